//! The digests of a source's packages: of all, and of those that run in other clusters by cluster, kept up to date in
//! constant time.

use std::{collections::BTreeMap, sync::Arc};

use statusbridge_contract::Digest;

use super::row::Row;

/// The sum of the hashes of all samples of packages, and its parts by cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Digests {
    all: Digest,
    /// Of packages that run in other clusters, by cluster, with how many there are.
    parts: BTreeMap<Arc<str>, (Digest, usize)>,
}

impl Digests {
    pub(super) fn add(&mut self, row: &Row) {
        self.all.merge(row.digest());
        if let Some(cluster) = row.cluster() {
            let (part, packages) = self.parts.entry(cluster.clone()).or_default();
            part.merge(row.digest());
            *packages += 1;
        }
    }

    pub(super) fn remove(&mut self, row: &Row) {
        self.all.subtract(row.digest());
        let Some(cluster) = row.cluster() else { return };
        if let Some((part, packages)) = self.parts.get_mut(cluster) {
            part.subtract(row.digest());
            *packages -= 1;
            if *packages == 0 {
                self.parts.remove(cluster);
            }
        }
    }

    /// The sum over all packages.
    pub(super) fn all(&self) -> Digest {
        self.all
    }

    /// The parts of several sources together, by cluster.
    pub(super) fn parts<'a>(sources: impl Iterator<Item = &'a Self>) -> BTreeMap<&'a str, Digest> {
        let mut parts: BTreeMap<&str, Digest> = BTreeMap::new();
        for (cluster, (part, _)) in sources.flat_map(|digests| &digests.parts) {
            parts.entry(cluster).or_default().merge(*part);
        }
        parts
    }
}
