//! How much of one exposition is read, whichever way it came. What has more is not verified.
//!
//! The largest that an honest exporter renders fits: it has one source for each kind of package, 50,000 packages of each
//! (`--max-packages`) with up to ten samples each, and 128 reasons of each (`--max-reasons`), unless told otherwise.

use std::fmt;

use statusbridge_contract::exposition::LONGEST_VALUE;
use statusbridge_contract::{Metric, PACKAGE_METRICS};

/// Sources, at most.
pub(crate) const MOST_SOURCES: usize = 256;
/// Packages of all sources together, at most: those of four full sources.
pub(super) const MOST_PACKAGES: usize = 200_000;
/// Reasons of all sources together, at most.
pub(super) const MOST_REASONS: usize = MOST_SOURCES * 128;
/// Bytes of the names of packages and reasons, at most: what is kept of a stream may come from a backend whose answers have
/// no length of their own.
pub(super) const MOST_NAMES: usize = 64 << 20;
/// Samples that the digest attests, at most: those of all packages, two and the reasons of each source, and the process
/// number.
pub(super) const MOST_SAMPLES: u64 =
    (MOST_PACKAGES * PACKAGE_METRICS.len() + MOST_SOURCES * 2 + MOST_REASONS + 1) as u64;

/// What an exposition has too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// Samples.
    Samples,
    /// Sources.
    Sources,
    /// Packages.
    Packages,
    /// Reasons.
    Reasons,
    /// Bytes of names.
    Names,
    /// A label's value is so many bytes long.
    Value {
        /// The metric.
        metric: Metric,
        /// The label.
        label: &'static str,
        /// Length of the value.
        bytes: usize,
    },
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut more =
            |most: u64, of| write!(f, "it has more than {most} {of}, which are as many as are read");
        match self {
            Self::Samples => more(MOST_SAMPLES, "samples"),
            Self::Sources => more(MOST_SOURCES as u64, "sources"),
            Self::Packages => more(MOST_PACKAGES as u64, "packages"),
            Self::Reasons => more(MOST_REASONS as u64, "reasons"),
            Self::Names => more(MOST_NAMES as u64, "bytes of names of packages and reasons"),
            Self::Value { metric, label, bytes } => write!(
                f,
                "the label {label} of a sample of {} has a value of {bytes} bytes, {LONGEST_VALUE} at most are read",
                metric.name()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use statusbridge_contract::label;

    use super::*;
    use crate::sample::Sample;
    use crate::verify::Gathered;

    type Labels = fn(&str) -> Vec<(&'static str, &str)>;

    fn source(name: &str) -> Vec<(&'static str, &str)> {
        vec![(label::PACKAGE_SOURCE, name)]
    }

    fn package(name: &str) -> Vec<(&'static str, &str)> {
        vec![(label::PACKAGE, name), (label::PACKAGE_SOURCE, "s")]
    }

    fn reason(name: &str) -> Vec<(&'static str, &str)> {
        vec![(label::CODE, "1"), (label::PACKAGE_SOURCE, "s"), (label::REASON, name)]
    }

    #[rstest]
    #[case(Metric::SourceUp, source, 256, "it has more than 256 sources, which are as many as are read")]
    #[case(Metric::PackageHealth, package, 200_000, "more than 200000 packages")]
    #[case(Metric::ReasonInfo, reason, 32_768, "more than 32768 reasons")]
    fn so_much_is_read_and_no_more(
        #[case] metric: Metric,
        #[case] labels: Labels,
        #[case] most: usize,
        #[case] words: &str,
    ) {
        let mut gathered = Gathered::default();
        let mut add = |n: usize| {
            let name = format!("name-{n}");
            gathered.add(metric, &labels(&name), Sample { at: 0.0, value: 1.0 });
            gathered.excess
        };
        assert!((0..most).all(|n| add(n).is_none()));
        let excess = add(most).unwrap().to_string();
        assert!(excess.contains(words), "{excess}");
        // Nothing is kept, whatever else comes.
        assert!((1..=1000).all(|n| add(most + n).is_some()));
        assert!(gathered.packages.is_empty() && gathered.sources.is_empty() && gathered.reasons.is_empty());
        assert_eq!(gathered.samples, most as u64 + 1001);
    }

    #[test]
    fn samples_are_counted_even_where_they_say_the_same() {
        let mut gathered = Gathered::default();
        for _ in 0..MOST_SAMPLES {
            gathered.add(Metric::ProcessNumber, &[], Sample { at: 0.0, value: 1.0 });
        }
        assert_eq!(gathered.excess, None);
        gathered.add(Metric::ProcessNumber, &[], Sample { at: 0.0, value: 1.0 });
        assert_eq!(
            gathered.excess.unwrap().to_string(),
            "it has more than 2033281 samples, which are as many as are read"
        );
    }

    #[test]
    fn names_are_bounded_in_all() {
        for labels in [package as Labels, reason] {
            let mut gathered = Gathered::default();
            let counted = (0..9000_usize).find(|n| {
                let name = format!("{n:0>8192}");
                gathered.add(Metric::ReasonInfo, &labels(&name), Sample { at: 0.0, value: 1.0 });
                gathered.add(Metric::PackageHealth, &labels(&name), Sample { at: 0.0, value: 1.0 });
                gathered.excess.is_some()
            });
            // Each is a little longer than 8 KiB.
            assert!(counted.is_some_and(|n| (8000..8192).contains(&n)), "{counted:?}");
            assert_eq!(
                gathered.excess.unwrap().to_string(),
                "it has more than 67108864 bytes of names of packages and reasons, which are as many as are read"
            );
        }
    }

    #[test]
    fn the_value_of_a_label_is_bounded_whichever_way_it_came() {
        let name = "n".repeat(LONGEST_VALUE + 1);
        let mut gathered = Gathered::default();
        gathered.add(Metric::PackageHealth, &package(&name[1..]), Sample { at: 0.0, value: 1.0 });
        assert_eq!(gathered.excess, None);
        gathered.add(Metric::PackageHealth, &package(&name), Sample { at: 0.0, value: 1.0 });
        assert_eq!(
            gathered.excess.unwrap().to_string(),
            "the label package of a sample of statusbridge_package_health has a value of 8193 bytes, 8192 at most are read"
        );
    }
}
