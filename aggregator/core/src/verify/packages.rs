//! The packages of one exposition, kept in as little memory as they take: a fleet may have a million.
//!
//! ```text
//!   keys   shared by all expositions of the same packages
//!   rows   72 bytes each, in the same order
//! ```

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use statusbridge_contract::PACKAGE_METRICS;

use super::package::Package;

/// Bytes of one number.
const WIDTH: usize = 7;

thread_local! {
    /// Where a package was last found. Whoever asks cluster after cluster for one mostly finds it in the same place,
    /// and need not search there.
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// Keys of packages, in order.
pub type Keys = Arc<[Arc<str>]>;

/// Packages in order of their keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Packages {
    keys: Keys,
    rows: Box<[Row]>,
}

/// One package without its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    present: [u8; 2],
    /// Each below 2^56: a sample holds no whole number beyond 2^53.
    numbers: [[u8; WIDTH]; PACKAGE_METRICS.len()],
}

impl Row {
    fn of(package: &Package) -> Self {
        let mut row =
            Self { present: package.present.to_le_bytes(), numbers: [[0; WIDTH]; PACKAGE_METRICS.len()] };
        for (to, value) in row.numbers.iter_mut().zip(package.values) {
            to.copy_from_slice(&value.to_le_bytes()[..WIDTH]);
        }
        row
    }

    fn package(&self, key: Arc<str>) -> Package {
        let mut package = Package::new(key);
        package.present = u16::from_le_bytes(self.present);
        for (value, from) in package.values.iter_mut().zip(&self.numbers) {
            let mut bytes = [0; 8];
            bytes[..WIDTH].copy_from_slice(from);
            *value = u64::from_le_bytes(bytes);
        }
        package
    }
}

impl Packages {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Their keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Replaces the keys by others that say the same, so that there is one copy of them. Others are left where they are.
    pub fn share(&mut self, keys: &Keys) {
        if self.keys == *keys {
            self.keys = keys.clone();
        }
    }

    /// Where the package with this key is.
    pub fn position(&self, key: &str) -> Option<usize> {
        let last = LAST.get();
        if self.keys.get(last).is_some_and(|known| known.as_ref() == key) {
            return Some(last);
        }
        let found = self.keys.binary_search_by(|known| known.as_ref().cmp(key)).ok()?;
        LAST.set(found);
        Some(found)
    }

    /// The other clusters in which the package with this key runs, too.
    pub(crate) fn clusters_of(&self, key: &str) -> impl Iterator<Item = &str> {
        let first = super::package::key_in(key, "");
        let at = self.keys.partition_point(|known| known.as_ref() < first.as_str());
        self.keys.iter().skip(at).map_while(move |known| known.strip_prefix(first.as_str()))
    }

    /// The package at a position.
    pub fn get(&self, at: usize) -> Option<Package> {
        Some(self.rows.get(at)?.package(self.keys.get(at)?.clone()))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Package> {
        self.rows.iter().zip(self.keys.iter()).map(|(row, key)| row.package(key.clone()))
    }
}

impl FromIterator<Package> for Packages {
    /// In any order, but each once.
    fn from_iter<I: IntoIterator<Item = Package>>(packages: I) -> Self {
        let mut packages: Vec<Package> = packages.into_iter().collect();
        packages.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let rows = packages.iter().map(Row::of).collect();
        Self { keys: packages.into_iter().map(|package| package.key).collect(), rows }
    }
}

impl fmt::Debug for Packages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn package() -> impl Strategy<Value = (u16, [u64; PACKAGE_METRICS.len()])> {
        let number = 0..=(1_u64 << 53);
        (any::<u16>(), prop::collection::vec(number, PACKAGE_METRICS.len())).prop_map(|(present, numbers)| {
            let mut values = [0; PACKAGE_METRICS.len()];
            values.copy_from_slice(&numbers);
            (present, values)
        })
    }

    proptest! {
        #[test]
        fn packages_come_out_as_they_went_in(all in prop::collection::btree_map("[a-c]{1,3}", package(), 0..8)) {
            let made = all.iter().rev().map(|(key, (present, values))| {
                Package { present: *present, values: *values, ..Package::new(key.as_str().into()) }
            });
            let made: Vec<Package> = made.collect();
            let packages: Packages = made.iter().cloned().collect();
            prop_assert!(packages.iter().eq(made.iter().rev().cloned()));
            for package in &made {
                let at = packages.position(&package.key).unwrap();
                let got = packages.get(at);
                prop_assert_eq!(got.as_ref(), Some(package));
            }
            prop_assert_eq!(packages.position("d"), None);
        }
    }

    #[test]
    fn a_row_is_small_and_keys_are_shared_only_where_they_are_the_same() {
        assert_eq!(size_of::<Row>(), 72);
        let of = |keys: &[&str]| -> Packages { keys.iter().map(|key| Package::new((*key).into())).collect() };
        let (mut one, other, third) = (of(&["a", "b"]), of(&["b", "a"]), of(&["a", "c"]));
        one.share(third.keys());
        assert!(!Arc::ptr_eq(one.keys(), third.keys()));
        one.share(other.keys());
        assert!(Arc::ptr_eq(one.keys(), other.keys()));
    }
}
