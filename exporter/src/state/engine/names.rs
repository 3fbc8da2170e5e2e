//! Which object of a source is which package, where that is not told by an object's own name alone.

use std::collections::{BTreeSet, HashMap};

use super::key::Key;
use crate::watch::KindId;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Names {
    packages: HashMap<(KindId, Key), Key>,
    objects: HashMap<Key, BTreeSet<(KindId, Key)>>,
}

impl Names {
    /// Takes note of which package an object is, if it is any. Gives the one that it was, if that was another.
    pub(super) fn put(&mut self, kind: KindId, key: &Key, package: Option<&Key>) -> Option<Key> {
        let object = (kind, key.clone());
        if self.packages.get(&object) == package {
            return None;
        }
        let before = self.packages.remove(&object);
        if let Some(before) = &before
            && let Some(objects) = self.objects.get_mut(before)
        {
            objects.remove(&object);
            if objects.is_empty() {
                self.objects.remove(before);
            }
        }
        if let Some(package) = package {
            self.packages.insert(object.clone(), package.clone());
            self.objects.entry(package.clone()).or_default().insert(object);
        }
        before
    }

    /// The package that an object is.
    pub(super) fn package_of(&self, kind: KindId, key: &Key) -> Option<Key> {
        self.packages.get(&(kind, key.clone())).cloned()
    }

    /// The objects that are a package: more than one say that it is not known which is meant.
    pub(super) fn objects_of(&self, package: &Key) -> impl Iterator<Item = &(KindId, Key)> {
        self.objects.get(package).into_iter().flatten()
    }
}
