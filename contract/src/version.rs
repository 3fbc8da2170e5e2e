//! Versions of the contract. A new one is a line here and the metrics that it adds.

/// A version of the contract; a later one is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Two series for a package at rest, and a time that the exporter vouches for.
    V2,
}

impl Version {
    /// What exporters publish.
    pub const CURRENT: Self = Self::V2;

    /// What aggregators read side by side: the current one, and from the next on the one before it.
    pub const READ: &'static [Self] = &[Self::V2];

    /// How it stands in the digest's `contract` label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2 => "2",
        }
    }

    /// The version of this name, if aggregators read it.
    pub fn readable(name: &str) -> Option<Self> {
        Self::READ.iter().copied().find(|version| version.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metric;

    #[test]
    fn the_current_version_and_at_most_the_one_before_are_read() {
        assert!(Version::READ.is_sorted() && (1..=2).contains(&Version::READ.len()));
        assert_eq!(Version::READ.last(), Some(&Version::CURRENT));
        for version in Version::READ {
            assert_eq!(Version::readable(version.name()), Some(*version));
        }
        assert_eq!((Version::readable("1"), Version::readable("")), (None, None));
    }

    #[test]
    fn the_current_version_has_every_metric_and_no_version_lacks_what_makes_a_digest() {
        assert!(Metric::ALL.iter().all(|metric| Version::CURRENT.knows(*metric)));
        for version in Version::READ {
            for needed in [Metric::Digest, Metric::RenderedTimestamp, Metric::ProcessNumber, Metric::SourceUp]
            {
                assert!(version.knows(needed), "{version:?} lacks {needed:?}");
            }
        }
        assert!(Version::V2.covers(Metric::PackageHealth) && !Version::V2.covers(Metric::Packages));
    }
}
