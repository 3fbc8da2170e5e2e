//! Which object of a source is which package, where that is not told by an object's own name alone.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use super::key::Key;
use crate::watch::KindId;

/// Where an object stands among those that are the same package: the highest is it.
pub(super) type Order = u64;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Names {
    packages: HashMap<(KindId, Key), (Key, Order)>,
    /// The highest first.
    objects: HashMap<Key, BTreeSet<(Reverse<Order>, KindId, Key)>>,
}

impl Names {
    /// Takes note of which package an object is, if it is any, and where it stands. Gives the one that it was, if that was
    /// another.
    pub(super) fn put(&mut self, kind: KindId, key: &Key, package: Option<(&Key, Order)>) -> Option<Key> {
        let object = (kind, key.clone());
        let known = self.packages.get(&object).map(|(package, order)| (package, *order));
        if known == package {
            return None;
        }
        let before = self.packages.remove(&object);
        if let Some((before, order)) = &before
            && let Some(objects) = self.objects.get_mut(before)
        {
            objects.remove(&(Reverse(*order), kind, key.clone()));
            if objects.is_empty() {
                self.objects.remove(before);
            }
        }
        if let Some((package, order)) = package {
            self.packages.insert(object, (package.clone(), order));
            self.objects.entry(package.clone()).or_default().insert((Reverse(order), kind, key.clone()));
        }
        before.map(|(before, _)| before).filter(|before| package.is_none_or(|(package, _)| package != before))
    }

    /// The package that an object is.
    pub(super) fn package_of(&self, kind: KindId, key: &Key) -> Option<Key> {
        self.packages.get(&(kind, key.clone())).map(|(package, _)| package.clone())
    }

    /// The highest objects that are a package: more than one say that it is not known which is meant.
    pub(super) fn objects_of(&self, package: &Key) -> impl Iterator<Item = (KindId, &Key)> {
        let mut objects = self.objects.get(package).into_iter().flatten().peekable();
        let highest = objects.peek().map(|(order, ..)| *order);
        let highest = objects.take_while(move |(order, ..)| Some(*order) == highest);
        highest.map(|(_, kind, key)| (*kind, key))
    }
}
