//! The packages of one exposition, kept in as little memory as they take: a fleet may have ten million.
//!
//! ```text
//!   keys     shared by all expositions of the same packages
//!   starts   where the row of each begins, in the same order
//!   rows     which numbers a package has, and these: 16 bytes for one that is well
//! ```

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use super::package::Package;

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
    starts: Box<[u32]>,
    rows: Box<[u8]>,
}

/// Adds a package without its key: which numbers it has, then these.
fn write_row(rows: &mut Vec<u8>, package: &Package) {
    rows.extend(package.present.to_le_bytes());
    package.samples().for_each(|(_, value)| write_number(rows, value));
}

/// The package with this row. What the row lacks, the package does.
fn read_row(row: &[u8], key: Arc<str>) -> Package {
    let mut package = Package::new(key);
    let Some((present, mut rest)) = row.split_first_chunk() else { return package };
    package.present = u16::from_le_bytes(*present);
    for (slot, value) in package.values.iter_mut().enumerate() {
        if package.present & 1 << slot != 0 {
            (*value, rest) = read_number(rest);
        }
    }
    package
}

/// Seven bits a byte, the lowest first; the last byte has its highest bit clear.
fn write_number(to: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// A number, and what comes after it.
fn read_number(from: &[u8]) -> (u64, &[u8]) {
    let mut number = 0;
    for (at, byte) in from.iter().enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return (number, from.get(at + 1..).unwrap_or_default());
        }
    }
    (number, &[])
}

impl Packages {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Bytes that they take, without their keys.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.rows)
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
        let row = self.rows.get(*self.starts.get(at)? as usize..)?;
        Some(read_row(row, self.keys.get(at)?.clone()))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Package> {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

impl FromIterator<Package> for Packages {
    /// In any order, but each once.
    fn from_iter<I: IntoIterator<Item = Package>>(packages: I) -> Self {
        let mut packages: Vec<Package> = packages.into_iter().collect();
        packages.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let mut rows = Vec::new();
        let start = |package| {
            let start = rows.len() as u32;
            write_row(&mut rows, package);
            start
        };
        let starts = packages.iter().map(start).collect();
        Self { keys: packages.into_iter().map(|package| package.key).collect(), starts, rows: rows.into() }
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
    use statusbridge_contract::{Metric, PACKAGE_METRICS};

    use super::*;

    fn package() -> impl Strategy<Value = (u16, [u64; PACKAGE_METRICS.len()])> {
        let number = 0..=(1_u64 << 53);
        (any::<u16>(), prop::collection::vec(number, PACKAGE_METRICS.len())).prop_map(|(present, numbers)| {
            let mut values = [0; PACKAGE_METRICS.len()];
            values.copy_from_slice(&numbers);
            let has = |slot: usize| present & 1 << slot != 0;
            (0..values.len()).filter(|slot| !has(*slot)).for_each(|slot| values[slot] = 0);
            (present & ((1 << values.len()) - 1), values)
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
    fn a_package_that_is_well_takes_twenty_bytes() {
        let well = |n: u64| {
            let mut package = Package::new(format!("{n}").into());
            let revision = statusbridge_contract::Fingerprint::of(&format!("revision {n}")).value();
            let said = [
                (Metric::PackageHealthyRevision, revision),
                (Metric::PackageTransitionTimestamp, 1_800_000_000),
                (Metric::PackageResources, 12),
            ];
            for (slot, value) in
                said.map(|(metric, value)| (super::super::package::slot(metric).unwrap(), value))
            {
                package.present |= 1 << slot;
                package.values[slot] = value;
            }
            package
        };
        let packages: Packages = (0..1000).map(well).collect();
        assert!(packages.bytes() <= 20 * 1000, "{}", packages.bytes());
    }

    #[test]
    fn keys_are_shared_only_where_they_are_the_same() {
        let of = |keys: &[&str]| -> Packages { keys.iter().map(|key| Package::new((*key).into())).collect() };
        let (mut one, other, third) = (of(&["a", "b"]), of(&["b", "a"]), of(&["a", "c"]));
        one.share(third.keys());
        assert!(!Arc::ptr_eq(one.keys(), third.keys()));
        one.share(other.keys());
        assert!(Arc::ptr_eq(one.keys(), other.keys()));
    }
}
