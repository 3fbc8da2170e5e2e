//! A kind of objects that is watched: what is known of it.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    held::{Held, Stamp},
    kept::Packer,
    key::{Key, Referrer},
    label_index::LabelIndex,
    listing::Listing,
    resource_kind::ResourceKind,
};
use crate::{
    source::{JoinKey, KindRef, Projection},
    watch::{Contact, PackageKey},
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
    /// Packages that look for objects of this kind by name.
    pub(super) by_name: HashMap<Key, HashSet<Referrer>>,
    /// And by labels.
    pub(super) labels: LabelIndex,
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
            labels: LabelIndex::default(),
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

    /// A package looks for objects of this kind.
    pub(super) fn link(&mut self, join: &JoinKey, referrer: Referrer) {
        match join {
            JoinKey::Reference { namespace, name, .. } => {
                self.by_name.entry(name_of(namespace.as_deref(), name)).or_default().insert(referrer);
            }
            JoinKey::Labels { namespace, labels, .. } => {
                self.labels.link(namespace.as_deref(), labels, referrer);
            }
        }
    }

    /// A package no longer looks for them.
    pub(super) fn unlink(&mut self, join: &JoinKey, referrer: &Referrer) {
        match join {
            JoinKey::Reference { namespace, name, .. } => {
                let key = name_of(namespace.as_deref(), name);
                let Some(referrers) = self.by_name.get_mut(&key) else { return };
                referrers.remove(referrer);
                if referrers.is_empty() {
                    self.by_name.remove(&key);
                }
            }
            JoinKey::Labels { namespace, labels, .. } => {
                self.labels.unlink(namespace.as_deref(), labels, referrer);
            }
        }
    }

    /// The objects that a package looks for.
    pub(super) fn find(&self, join: &JoinKey) -> Vec<Value> {
        let object = |key: &Key| self.objects.get(key)?.kept.parse();
        match join {
            JoinKey::Reference { namespace, name, .. } => {
                object(&name_of(namespace.as_deref(), name)).into_iter().collect()
            }
            JoinKey::Labels { namespace, labels, .. } => {
                self.labels.find(namespace.as_deref(), labels).filter_map(object).collect()
            }
        }
    }

    /// Takes note of an object as it is now, `None` for one that is gone. Returns the packages that look for it as it was
    /// or is.
    pub(super) fn referrers(&mut self, key: &Key, object: Option<&Value>) -> BTreeSet<Referrer> {
        let mut referrers = match object {
            Some(object) => self.labels.put(key, object),
            None => self.labels.remove(key),
        };
        referrers.extend(self.by_name.get(key).into_iter().flatten().cloned());
        referrers
    }

    /// The kind for people.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.of.kind, self.of.group)
    }
}

fn name_of(namespace: Option<&str>, name: &str) -> Key {
    Arc::new(PackageKey::new(namespace, name))
}
