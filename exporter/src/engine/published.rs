//! What scrapes read of the engine's work.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use statusbridge_contract::Fingerprint;

use crate::{
    store::{Snapshot, SourceStanding, Store},
    watch::Contact,
};

/// Whether a source's packages are to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visibility {
    /// Its kind was never served.
    NeverServed,
    /// The first lists are being read.
    Loading,
    Visible,
}

/// What is known about a source as a whole.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) visibility: Visibility,
    /// What it reads, by kind for people, and when each was last heard from.
    pub(super) contacts: Vec<(String, Contact)>,
    /// Whether packages had to be left out of the series.
    pub(super) short: bool,
}

/// What scrapes read: the store and what is known about each source, by its index; `None` for one
/// that is no longer used.
#[derive(Debug)]
pub struct Published {
    pub(super) store: Store,
    pub(super) standing: Vec<Option<Standing>>,
}

/// Shared by the engine, which writes, and scrapes, which clone row pointers.
pub type SharedPublished = Arc<Mutex<Published>>;

impl Published {
    /// One consistent view at `now` (unix seconds): a source is up when every kind that it reads was
    /// heard from within `timeout`, and none of its packages is left out.
    pub fn snapshot(&self, cluster_uid: Option<Fingerprint>, timeout: Duration, now: i64) -> Snapshot {
        let standing = |standing: &Option<Standing>| {
            let Some(standing) = standing else { return SourceStanding::Unpublished };
            let ages: Option<Vec<_>> = standing.contacts.iter().map(|(_, contact)| contact.age()).collect();
            let age = ages.and_then(|ages| ages.into_iter().max());
            let seconds = |age: Duration| i64::try_from(age.as_secs()).unwrap_or(now);
            let last_contact = age.map_or(0, |age| now - seconds(age));
            match standing.visibility {
                Visibility::NeverServed => SourceStanding::Unpublished,
                Visibility::Loading => SourceStanding::Loading { last_contact },
                Visibility::Visible => {
                    let up = age.is_some_and(|age| age <= timeout) && !standing.short;
                    SourceStanding::Published { up, last_contact }
                }
            }
        };
        let standing: Vec<SourceStanding> = self.standing.iter().map(standing).collect();
        self.store.snapshot(cluster_uid, &standing)
    }

    /// What is still being waited for: a kind that nothing was heard of yet, or a first list.
    pub fn waiting(&self) -> Option<String> {
        let mut standing = self.standing.iter().flatten();
        let silent = standing.clone().flat_map(|s| &s.contacts).find(|(_, c)| c.age().is_none());
        match silent {
            Some((kind, _)) => Some(format!("nothing heard yet of {kind}")),
            None => standing
                .any(|s| s.visibility == Visibility::Loading)
                .then(|| "the first lists are not complete".to_owned()),
        }
    }
}
