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
        /// Cluster in which the package runs; left out when that is the exporter's own.
        PACKAGE_CLUSTER = "package_cluster",
        /// A reason as a word.
        REASON = "reason",
        /// The decimal code that stands for a reason in `statusbridge_package_reason`.
        CODE = "code",
        /// Contract version of an exposition.
        CONTRACT = "contract",
        /// Fingerprint of the UID of the kube-system namespace of the exporter's cluster, as 12 hex digits.
        CLUSTER_UID = "statusbridge_cluster_uid",
        /// Name of an apply state, in counts for people.
        APPLY_STATE = "apply_state",
        /// Name of a health, in counts for people.
        HEALTH = "health",
    }
}

use label::{
    APPLY_STATE, CLUSTER_UID, CODE, CONTRACT, HEALTH, PACKAGE, PACKAGE_CLUSTER, PACKAGE_NAMESPACE,
    PACKAGE_SOURCE, REASON,
};

use crate::Version;

const IDENTITY: &[&str] = &[PACKAGE, PACKAGE_CLUSTER, PACKAGE_NAMESPACE, PACKAGE_SOURCE];

macro_rules! metrics {
    ($($variant:ident = $name:literal, $labels:expr, since: $since:ident, in_digest: $digest:literal, $help:literal;)+) => {
        /// A metric of the contract. All are gauges.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Metric { $(#[doc = $help] $variant),+ }

        impl Metric {
            /// Every metric, in the order in which an exposition has them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Name of the metric's samples.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
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
    PackageHealthyRevision = "statusbridge_package_healthy_revision", IDENTITY, since: V2, in_digest: true,
        "Fingerprint of the revision that is applied in full and Current now, else 0; every package has this sample";
    PackageTransitionTimestamp = "statusbridge_package_transition_timestamp_seconds", IDENTITY, since: V2, in_digest: true,
        "Since when the exporter vouches that states and revisions are what they are now, in unix seconds; every package has this sample";
    PackageApplyState = "statusbridge_package_apply_state", IDENTITY, since: V2, in_digest: true,
        "Apply state of a package that is not Applied, by severity: 1 Applying, 2 Pending, 3 Paused, 4 Deleting, 5 Unknown, 6 Failed";
    PackageHealth = "statusbridge_package_health", IDENTITY, since: V2, in_digest: true,
        "Health of a package that is not Current, by severity: 1 InProgress, 2 Terminating, 3 NotFound, 4 Unknown, 5 Failed";
    PackageAppliedRevision = "statusbridge_package_applied_revision", IDENTITY, since: V2, in_digest: true,
        "Fingerprint of the revision that was last applied in full, of a package without a healthy revision";
    PackageDesiredRevision = "statusbridge_package_desired_revision", IDENTITY, since: V2, in_digest: true,
        "Fingerprint of the revision that the cluster has been told to run, where it is known and not the applied one";
    PackageReason = "statusbridge_package_reason", IDENTITY, since: V2, in_digest: true,
        "Code of the reason why a package is not Applied and Current, see statusbridge_reason_info";
    PackageResources = "statusbridge_package_resources", IDENTITY, since: V2, in_digest: true,
        "Resources of the package";
    PackageResourcesCurrent = "statusbridge_package_resources_current", IDENTITY, since: V2, in_digest: true,
        "Resources of the package that are Current, where not all are";
    PackageResourcesFailed = "statusbridge_package_resources_failed", IDENTITY, since: V2, in_digest: true,
        "Resources of the package that have failed, where any has";
    ReasonInfo = "statusbridge_reason_info", &[CODE, PACKAGE_SOURCE, REASON], since: V2, in_digest: true,
        "Always 1: which code in statusbridge_package_reason stands for which reason";
    SourceUp = "statusbridge_source_up", &[PACKAGE_SOURCE], since: V2, in_digest: true,
        "1 while the first lists are complete and every watch of the source keeps up with its API server; 0 when what is shown is the last known";
    SourcePackages = "statusbridge_source_packages", &[PACKAGE_SOURCE], since: V2, in_digest: true,
        "Packages that the source reads";
    ProcessNumber = "statusbridge_process_number", &[], since: V2, in_digest: true,
        "Random number of the exporter's process, which tells two processes under the same labels apart";
    RenderedTimestamp = "statusbridge_rendered_timestamp_seconds", &[], since: V2, in_digest: true,
        "When this exposition was rendered, in unix seconds";
    Digest = "statusbridge_digest", &[CONTRACT, PACKAGE_CLUSTER, CLUSTER_UID], since: V2, in_digest: false,
        "Digest of every sample that the contract covers, the exporter's attestation of this exposition";
    SourceLastContact = "statusbridge_source_last_contact_timestamp_seconds", &[PACKAGE_SOURCE], since: V2, in_digest: false,
        "When the watch of the source that has been behind for longest last kept up with its API server, in unix seconds";
    Packages = "statusbridge_packages", &[APPLY_STATE, HEALTH, PACKAGE_SOURCE], since: V2, in_digest: false,
        "Packages by source, apply state and health";
}

/// The metrics of which each package may have one sample; each has the first [`ALWAYS`].
pub const PACKAGE_METRICS: [Metric; 10] = [
    Metric::PackageHealthyRevision,
    Metric::PackageTransitionTimestamp,
    Metric::PackageApplyState,
    Metric::PackageHealth,
    Metric::PackageAppliedRevision,
    Metric::PackageDesiredRevision,
    Metric::PackageReason,
    Metric::PackageResources,
    Metric::PackageResourcesCurrent,
    Metric::PackageResourcesFailed,
];

/// How many of [`PACKAGE_METRICS`] every package has.
pub const ALWAYS: usize = 2;

impl Metric {
    /// The metric whose samples have this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|m| m.name() == name)
    }

    /// Whether each package has one sample of this metric.
    pub fn per_package(self) -> bool {
        self.labels() == IDENTITY
    }

    /// Whether its samples are part of what the exporter says about its cluster, and not of when it says so: the
    /// digest covers both, see [`crate::Digest::of_state`].
    pub const fn in_state(self) -> bool {
        self.in_digest() && !matches!(self, Self::RenderedTimestamp)
    }

    /// Whether a sample of the metric may lack this own label.
    pub fn may_lack(self, name: &str) -> bool {
        self.labels().contains(&name) && [PACKAGE_NAMESPACE, PACKAGE_CLUSTER].contains(&name)
    }
}

impl Version {
    /// Whether it has this metric.
    pub fn knows(self, metric: Metric) -> bool {
        metric.since() <= self
    }

    /// Whether its digest covers this metric's samples.
    pub fn covers(self, metric: Metric) -> bool {
        self.knows(metric) && metric.in_digest()
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
            assert!(!m.help().ends_with('.') && !m.help().contains('\n'));
        }
        assert_eq!(Metric::from_name("up"), None);
    }

    #[test]
    fn a_package_costs_ten_series_at_most() {
        assert!(Metric::ALL.iter().filter(|m| m.per_package()).eq(&PACKAGE_METRICS));
        assert!(PACKAGE_METRICS.len() <= 10 && ALWAYS == 2);
    }

    #[test]
    fn neither_revision_nor_error_text_is_a_label() {
        for m in Metric::ALL.iter().filter(|m| m.per_package()) {
            assert_eq!(
                m.labels(),
                [label::PACKAGE, PACKAGE_CLUSTER, label::PACKAGE_NAMESPACE, label::PACKAGE_SOURCE]
            );
        }
    }
}
