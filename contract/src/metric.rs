//! Every metric of the contract: one line each in the table below.

/// Own label names: chosen so that nothing in a pipeline is likely to carry them too.
pub mod label {
    macro_rules! labels {
        ($($(#[doc = $doc:literal])+ $name:ident = $word:literal,)+) => {
            $($(#[doc = $doc])+ pub const $name: &str = $word;)+

            /// Every own label with what it says: for the reference.
            pub const ALL: &[(&str, &str)] = &[$(($word, concat!($($doc),+))),+];
        };
    }

    labels! {
        /// Which source read the package.
        PACKAGE_SOURCE = "package_source",
        /// Namespace of the package's object; left out when it is cluster-scoped.
        PACKAGE_NAMESPACE = "package_namespace",
        /// Name of the package's object.
        PACKAGE = "package",
        /// A reason as a word.
        REASON = "reason",
        /// The decimal code that stands for a reason in `statusbridge_package_reason`.
        CODE = "code",
        /// Contract version of an exposition.
        CONTRACT = "contract",
        /// Name of an apply state, in counts for people.
        APPLY_STATE = "apply_state",
        /// Name of a health, in counts for people.
        HEALTH = "health",
    }
}

use label::{APPLY_STATE, CODE, CONTRACT, HEALTH, PACKAGE, PACKAGE_NAMESPACE, PACKAGE_SOURCE, REASON};

use crate::Version;

/// Type of a metric as the exposition formats name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only ever grows within the life of a process.
    Counter,
}

const IDENTITY: &[&str] = &[PACKAGE, PACKAGE_NAMESPACE, PACKAGE_SOURCE];

macro_rules! metrics {
    ($($variant:ident = $name:literal, $kind:ident, $labels:expr, since: $since:ident, in_digest: $digest:literal, $help:literal;)+) => {
        /// A metric of the contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Metric { $(#[doc = $help] $variant),+ }

        impl Metric {
            /// Every metric, in the order in which an exposition has them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Name of the metric's samples.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Type of the metric.
            pub const fn kind(self) -> Kind {
                match self { $(Self::$variant => Kind::$kind),+ }
            }

            /// Names of the labels that an exporter itself sets, sorted. All other labels of a
            /// sample come from the pipeline.
            pub const fn labels(self) -> &'static [&'static str] {
                match self { $(Self::$variant => $labels),+ }
            }

            /// Whether the digest covers this metric's samples.
            pub const fn in_digest(self) -> bool {
                match self { $(Self::$variant => $digest),+ }
            }

            /// The contract version that it came with.
            pub const fn since(self) -> Version {
                match self { $(Self::$variant => Version::$since),+ }
            }

            /// What the metric says, one line without a full stop: HELP text and reference.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),+ }
            }
        }
    };
}

metrics! {
    PackageApplyState = "statusbridge_package_apply_state", Gauge, IDENTITY, since: V1, in_digest: true,
        "Apply state of the package by severity: 0 Applied, 1 Applying, 2 Pending, 3 Paused, 4 Deleting, 5 Unknown, 6 Failed";
    PackageHealth = "statusbridge_package_health", Gauge, IDENTITY, since: V1, in_digest: true,
        "Health of the package by severity: 0 Current, 1 InProgress, 2 Terminating, 3 NotFound, 4 Unknown, 5 Failed";
    PackageDesiredRevision = "statusbridge_package_desired_revision", Gauge, IDENTITY, since: V1, in_digest: true,
        "Fingerprint of the revision that the cluster has been told to run; 0 when not known";
    PackageAppliedRevision = "statusbridge_package_applied_revision", Gauge, IDENTITY, since: V1, in_digest: true,
        "Fingerprint of the revision that was last applied in full; 0 when not known";
    PackageHealthyRevision = "statusbridge_package_healthy_revision", Gauge, IDENTITY, since: V1, in_digest: true,
        "Fingerprint of the revision that is applied in full and Current now; else 0";
    PackageTransitionTimestamp = "statusbridge_package_transition_timestamp_seconds", Gauge, IDENTITY, since: V1, in_digest: true,
        "When apply state, health or healthy revision last changed, in unix seconds";
    PackageTransitions = "statusbridge_package_transitions_total", Counter, IDENTITY, since: V1, in_digest: true,
        "Changes of apply state, health or healthy revision that this exporter process saw";
    PackageReason = "statusbridge_package_reason", Gauge, IDENTITY, since: V1, in_digest: true,
        "Code of the reason for the state, see statusbridge_reason_info; 0 while Applied and Current";
    PackageResources = "statusbridge_package_resources", Gauge, IDENTITY, since: V1, in_digest: true,
        "Resources in the inventory of the package";
    PackageResourcesCurrent = "statusbridge_package_resources_current", Gauge, IDENTITY, since: V1, in_digest: true,
        "Resources in the inventory of the package that are Current";
    PackageResourcesFailed = "statusbridge_package_resources_failed", Gauge, IDENTITY, since: V1, in_digest: true,
        "Resources in the inventory of the package that have failed";
    ReasonInfo = "statusbridge_reason_info", Gauge, &[CODE, PACKAGE_SOURCE, REASON], since: V1, in_digest: true,
        "Always 1: which code in statusbridge_package_reason stands for which reason";
    SourceUp = "statusbridge_source_up", Gauge, &[PACKAGE_SOURCE], since: V1, in_digest: true,
        "1 while the first lists are complete and every watch of the source was heard from lately; 0 when what is shown is the last known";
    SourcePackages = "statusbridge_source_packages", Gauge, &[PACKAGE_SOURCE], since: V1, in_digest: true,
        "Packages that the source reads";
    ClusterUid = "statusbridge_cluster_uid", Gauge, &[], since: V1, in_digest: true,
        "Fingerprint of the UID of the kube-system namespace";
    Digest = "statusbridge_digest", Gauge, &[CONTRACT], since: V1, in_digest: false,
        "Digest of every sample that the contract covers, the exporter's attestation of this exposition";
    RenderedTimestamp = "statusbridge_rendered_timestamp_seconds", Gauge, &[], since: V1, in_digest: false,
        "When this exposition was rendered, in unix seconds";
    SourceLastContact = "statusbridge_source_last_contact_timestamp_seconds", Gauge, &[PACKAGE_SOURCE], since: V1, in_digest: false,
        "When the watch of the source that has been silent for longest was last heard from, in unix seconds";
    Packages = "statusbridge_packages", Gauge, &[APPLY_STATE, HEALTH, PACKAGE_SOURCE], since: V1, in_digest: false,
        "Packages by source, apply state and health";
}

/// The metrics of which each package has one sample, those of an inventory last.
pub const PACKAGE_METRICS: [Metric; 11] = [
    Metric::PackageApplyState,
    Metric::PackageHealth,
    Metric::PackageDesiredRevision,
    Metric::PackageAppliedRevision,
    Metric::PackageHealthyRevision,
    Metric::PackageTransitionTimestamp,
    Metric::PackageTransitions,
    Metric::PackageReason,
    Metric::PackageResources,
    Metric::PackageResourcesCurrent,
    Metric::PackageResourcesFailed,
];

impl Metric {
    /// The metric whose samples have this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|m| m.name() == name)
    }

    /// Whether each package has one sample of this metric.
    pub fn per_package(self) -> bool {
        self.labels() == IDENTITY
    }

    /// Whether only packages of sources with an inventory have this metric.
    pub const fn of_inventory(self) -> bool {
        matches!(self, Self::PackageResources | Self::PackageResourcesCurrent | Self::PackageResourcesFailed)
    }

    /// Whether an exporter may have been told to leave this metric of packages out.
    pub const fn optional(self) -> bool {
        self.of_inventory() || matches!(self, Self::PackageReason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_own_labels_sorted() {
        for m in Metric::ALL {
            assert_eq!(Metric::from_name(m.name()), Some(*m));
            assert!(m.labels().is_sorted(), "{m:?}");
            assert_eq!(m.kind() == Kind::Counter, m.name().ends_with("_total"));
            assert!(!m.help().ends_with('.') && !m.help().contains('\n'));
        }
        assert_eq!(Metric::from_name("up"), None);
    }

    #[test]
    fn a_package_costs_eleven_series_at_most() {
        assert!(Metric::ALL.iter().filter(|m| m.per_package()).eq(&PACKAGE_METRICS));
        assert!(PACKAGE_METRICS.is_sorted_by_key(|m| m.of_inventory()));
        assert_eq!(Metric::ALL.iter().filter(|m| m.per_package() && !m.of_inventory()).count(), 8);
        assert_eq!(Metric::ALL.iter().filter(|m| m.per_package() && !m.optional()).count(), 7);
    }

    #[test]
    fn neither_revision_nor_error_text_is_a_label() {
        for m in Metric::ALL.iter().filter(|m| m.per_package()) {
            assert_eq!(m.labels(), [label::PACKAGE, label::PACKAGE_NAMESPACE, label::PACKAGE_SOURCE]);
        }
    }
}
