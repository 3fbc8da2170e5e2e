//! A kind of objects that is watched: what is known of it.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{
    held::{Held, Stamp},
    kept::Packer,
    key::{Key, Referrer},
    listing::Listing,
    resource_kind::ResourceKind,
};
use crate::{
    source::{JoinKey, KindRef, Projection},
    watch::Contact,
};

#[derive(Debug)]
pub(super) struct KindState {
    pub(super) of: KindRef,
    /// Whether nobody needs it any more.
    pub(super) retired: bool,
    /// Whether a source reads the versions of its objects.
    pub(super) versions: bool,
    pub(super) projection: Projection,
    pub(super) contact: Contact,
    pub(super) listing: Listing,
    /// By how many milliseconds the API server's clock is ahead of the `run` clock at least, as of the newest list.
    pub(super) server: Option<i64>,
    /// While a list is being read: what it has named.
    pub(super) named: Option<HashSet<Key>>,
    /// Packages, or what they are joined with.
    pub(super) objects: HashMap<Key, Held>,
    pub(super) packer: Packer,
    /// Packages that look for objects of this kind, by what they look for.
    pub(super) by_name: HashMap<Key, HashSet<Referrer>>,
    pub(super) by_labels: HashMap<Referrer, Vec<JoinKey>>,
    /// For a kind that is watched because packages consist of its objects; there are no `objects` then.
    pub(super) resources: Option<ResourceKind>,
}

impl KindState {
    pub(super) fn new(of: KindRef, projection: Projection, resources: Option<ResourceKind>) -> Self {
        Self {
            of,
            retired: false,
            versions: false,
            projection,
            contact: Contact::default(),
            listing: Listing::Unheard,
            server: None,
            named: None,
            objects: HashMap::new(),
            packer: Packer::default(),
            by_name: HashMap::new(),
            by_labels: HashMap::new(),
            resources,
        }
    }

    /// Takes away what changes without anything that most sources read having changed.
    pub(super) fn strip(&self, object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            if !self.versions {
                metadata.remove("resourceVersion");
            }
            metadata.remove("uid");
        }
    }

    /// An object as it is kept.
    pub(super) fn lean(&self, object: &Value) -> Value {
        let mut object = object.clone();
        self.strip(&mut object);
        object
    }

    /// A list begins; `restored` when the API server has gone back in time, so that versions of before say nothing, and
    /// neither do times that objects give themselves.
    pub(super) fn start_list(&mut self, server: Option<i64>, restored: bool) {
        self.named = Some(HashSet::new());
        self.server = server.filter(|_| !restored);
        if restored {
            self.objects.values_mut().for_each(|held| held.stamp = Stamp::NONE);
            if let Some(resources) = &mut self.resources {
                resources.forget_versions();
            }
        }
        if matches!(self.listing, Listing::Unheard | Listing::Absent) {
            self.listing = Listing::First;
        }
    }

    /// Ends a list; gives what it has not named.
    pub(super) fn finish_list(&mut self) -> Vec<Key> {
        let named = self.named.take().unwrap_or_default();
        self.listing = Listing::Complete;
        self.objects.keys().filter(|key| !named.contains(*key)).cloned().collect()
    }

    /// The kind for people.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.of.kind, self.of.group)
    }
}
