//! What the doctor can find.

use serde::Serialize;

/// Names that are shown of many.
pub(super) const NAMES: usize = 5;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Clusters or packages will not count, or gates stay closed.
    Problem,
    /// It works, and could do so better.
    Advice,
}

statusbridge_api::catalogue! {
    /// The closed list of what is looked at, in the order in which findings are shown.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    Check:
    /// The backend cannot be asked.
    BackendUnavailable,
    /// An exporter that the aggregator is to scrape itself cannot be scraped.
    ScrapeFailed,
    /// Nobody knows which exporters ClusterProfiles name.
    ClusterProfiles,
    /// Tokens or certificate for pushes cannot be used.
    Pushes,
    /// The backend answers only in part.
    PartialAnswers,
    /// The backend's clock and that of the machine that asks differ.
    BackendClock,
    /// The backend is of another kind than it is asked as.
    BackendFlavour,
    /// The backend has no digests.
    NoDigests,
    /// A metric of the contract is missing altogether.
    MissingMetric,
    /// Nothing tells exporters from others that are scraped, or some digests are not believed.
    Trust,
    /// A digest does not say of which cluster it is.
    ClusterUid,
    /// Digests do not bear the label that names the cluster.
    ClusterLabel,
    /// Several clusters report under one name.
    DuplicateClusterName,
    /// One cluster reports under several names.
    ClusterRenamed,
    /// An exporter speaks a contract version that this aggregator does not read.
    ContractVersion,
    /// A pipeline repeats what it got before under new timestamps, or leaves standing what has ended.
    Restamped,
    /// A pipeline fills in samples that are absent, or averages values.
    Filled,
    /// Samples of one scrape have several timestamps.
    SplitScrape,
    /// Samples are stamped in the future.
    FutureSamples,
    /// What arrives of a stream does not add up to what its exporter attests.
    Unverified,
    /// A stream added up only when it was looked at again.
    Torn,
    /// A cluster has not been heard of for too long.
    SilentCluster,
    /// A FleetPackage names a cluster that sends nothing.
    UnknownCluster,
    /// A cluster is scraped too seldom for a FleetPackage.
    ScrapeInterval,
    /// The clock of a cluster and the backend's differ.
    ExporterClock,
    /// An exporter has lost contact with what it reads.
    SourceDown,
    /// A package is applied, and nothing in its cluster looks at whether it works.
    NoHealthChecks,
    /// Labels were renamed because they collide with others.
    RenamedLabel,
    /// A cluster is seen by several replicas.
    Replicas,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was looked at.
    pub check: Check,
    /// What was seen.
    pub message: String,
    /// What to change, and where.
    pub fix: String,
}

impl Finding {
    /// A problem if that is so, else advice.
    pub(super) fn problem_if(
        is_problem: bool,
        check: Check,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let level = if is_problem { Level::Problem } else { Level::Advice };
        Self { level, check, message: message.into(), fix: fix.into() }
    }

    pub(super) fn problem(check: Check, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::problem_if(true, check, message, fix)
    }

    pub(super) fn advice(check: Check, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::problem_if(false, check, message, fix)
    }
}

/// The first names and how many there are besides.
pub(super) fn list(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<_> = names.into_iter().collect();
    let mut text = names.iter().take(NAMES).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if names.len() > NAMES {
        text.push_str(&format!(" and {} more", names.len() - NAMES));
    }
    text
}
