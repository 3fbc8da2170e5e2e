//! Objects of one kind as they stand in the hub, kept up by a watch.

use std::collections::BTreeMap;

use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::store::{Key, Object};

/// Objects by namespace and name.
pub(super) struct Objects<S, T> {
    objects: BTreeMap<Key, Object<S, T>>,
    /// A list that is not complete yet.
    listing: BTreeMap<Key, Object<S, T>>,
    listed: bool,
}

impl<S, T> Default for Objects<S, T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listing: BTreeMap::new(), listed: false }
    }
}

impl<S: DeserializeOwned, T: DeserializeOwned> Objects<S, T> {
    /// Whether the first list is complete.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Object<S, T>> {
        self.objects.values()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Object<S, T>> {
        self.objects.get(key)
    }

    pub(super) fn apply(&mut self, event: Event<LazyObject>) {
        let keyed = |object: LazyObject| {
            Object::read(object).map(|object: Object<S, T>| (object.key.clone(), object))
        };
        match event {
            Event::Apply(object) => self.objects.extend(keyed(object)),
            Event::Delete(object) => {
                if let Some((key, _)) = keyed(object) {
                    self.objects.remove(&key);
                }
            }
            Event::Init => self.listing.clear(),
            Event::InitApply(object) => self.listing.extend(keyed(object)),
            Event::InitDone => {
                self.objects = std::mem::take(&mut self.listing);
                self.listed = true;
            }
        }
    }
}
