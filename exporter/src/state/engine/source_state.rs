//! A source at work, and its packages.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{key::Key, names::Names, resource_kind::Label};
use crate::{
    source::{JoinKey, Source},
    state::{hold::Settled, soak::Shown, store::Slot},
    watch::{Contact, KindId},
};

/// A source at work.
#[derive(Debug)]
pub(super) struct SourceState {
    pub(super) source: Arc<Source>,
    /// Whether it has been replaced or taken away.
    pub(super) retired: bool,
    /// The kinds that are packages.
    pub(super) kinds: Vec<KindId>,
    /// Which objects are which packages; `None` where these have the same names.
    pub(super) names: Option<Names>,
    /// By `related` of the source.
    pub(super) related: Vec<Vec<KindId>>,
    /// For a source by categories: when its kinds were last asked for, and whether they are known.
    pub(super) finding: Option<(Contact, bool)>,
    /// Kinds of what its packages consist of.
    pub(super) resource_kinds: BTreeSet<KindId>,
    pub(super) packages: HashMap<Key, Box<Package>>,
    /// What an earlier version of the source showed, until this one shows anything.
    pub(super) carried: HashMap<Key, (Settled, Shown)>,
    /// Packages that are left out of the series until there is room.
    pub(super) waiting: BTreeSet<Key>,
    /// And those whose names are too long.
    pub(super) unnameable: BTreeSet<Key>,
    /// Packages that are being read once more.
    pub(super) unconfirmed: BTreeSet<Key>,
}

#[derive(Debug)]
pub(super) struct Package {
    pub(super) settled: Settled,
    /// When time alone may make another verdict of it, in milliseconds by the `boot` clock.
    pub(super) again: Option<i64>,
    pub(super) shown: Shown,
    /// `None` when it is left out of the series.
    pub(super) slot: Option<Slot>,
    pub(super) joins: Box<[JoinKey]>,
    pub(super) resources: Option<Box<PackageResources>>,
}

/// What a package consists of, as it is looked for.
#[derive(Debug)]
pub(super) struct PackageResources {
    pub(super) basis: u64,
    /// Since when, by the engine's count, it is applied as it is; `None` while it is not.
    pub(super) since: Option<u64>,
    pub(super) objects: Box<[(KindId, Key)]>,
    pub(super) labelled: Box<[(KindId, Label)]>,
    /// Since when, by the engine's count, all objects are Current.
    pub(super) current: Option<u64>,
    /// Whether the package, read after that, was what it was.
    pub(super) confirmed: bool,
}

impl Package {
    /// When it is looked at though nothing is heard of it, in milliseconds by the `boot` clock.
    pub(super) fn deadline(&self) -> Option<i64> {
        self.settled.until.into_iter().chain(self.again).min()
    }
}

impl SourceState {
    pub(super) fn new(source: Arc<Source>) -> Self {
        let names = (!source.names_packages_after_objects()).then(Names::default);
        Self {
            source,
            retired: false,
            kinds: Vec::new(),
            names,
            related: Vec::new(),
            finding: None,
            resource_kinds: BTreeSet::new(),
            packages: HashMap::new(),
            carried: HashMap::new(),
            waiting: BTreeSet::new(),
            unnameable: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
        }
    }

    /// Whether its packages can only be evaluated once all of them are known: their kinds come one by
    /// one, or what they consist of has to be found first.
    pub(super) fn waits_for_lists(&self) -> bool {
        self.finding.is_some() || self.source.watches_resources()
    }

    /// Every kind that it reads.
    pub(super) fn kinds(&self) -> impl Iterator<Item = KindId> + '_ {
        let own = self.kinds.iter().chain(self.related.iter().flatten());
        own.chain(&self.resource_kinds).copied()
    }
}
