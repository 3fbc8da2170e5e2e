//! What a provider sends, and the line of JSON that it becomes.

mod line;
mod malformed;
mod snapshot;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod wire;

use bytes::Bytes;

pub(crate) use line::Line;
pub(crate) use malformed::Malformed;
pub(crate) use wire::{Entry, Operation};

impl Entry {
    /// API group of the resource; empty for Kubernetes' core group.
    pub(crate) fn group(&self) -> &str {
        self.api_version.rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// Namespace of the resource, by its snapshot; empty when the snapshot has none.
    pub(crate) fn namespace(&self) -> String {
        self.whole_snapshot().map(|raw| snapshot::namespace(&raw)).unwrap_or_default()
    }

    /// When the provider made the change, in unix seconds.
    ///
    /// # Errors
    /// When it is outside the years 1 to 9999.
    pub(crate) fn seconds(&self) -> Result<Option<i64>, Malformed> {
        const YEAR_1: i64 = -62_135_596_800;
        const YEAR_10000: i64 = 253_402_300_800;
        match self.timestamp {
            Some(at) if !(YEAR_1..YEAR_10000).contains(&at.seconds) => Err(Malformed::Timestamp(at.seconds)),
            at => Ok(at.map(|at| at.seconds)),
        }
    }

    /// The snapshot as one message: protocol buffers merge pieces by concatenation.
    fn whole_snapshot(&self) -> Option<Bytes> {
        match self.snapshot.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(several.concat().into()),
        }
    }
}
