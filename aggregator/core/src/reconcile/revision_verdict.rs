//! A verdict on any revision, without a gate that names it: judged by the same code as a RolloutGate.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_with::skip_serializing_none;
use statusbridge_api::common::{Amount, ClusterSet, MOST_NAMES, MOST_OF_NAMES};
use statusbridge_api::rollout_gate::{FleetPackageRef, GateCounts, GateTerms, Require, Waiting};
use statusbridge_api::{FleetPackageSpec, PackageRef, Reason, RolloutGateSpec};
use statusbridge_contract::{Fingerprint, wanted};

use super::gate_verdict::{self, Gate, GateVerdict};
use super::judge::World;
use super::object::{GateObject, Key, Object, PackageObject};
use crate::decide::excused::Excuses;
use crate::decide::rollout_gate;
use crate::time::Seconds;

/// Most of each text, in bytes: as in the schemas of FleetPackage and RolloutGate.
const LONGEST: [(&str, usize); 6] = [
    ("source", 253),
    ("namespace", 63),
    ("package", 512),
    ("revision", 4096),
    ("minSuccessTime", 21),
    ("staleAfter", 21),
];
/// Most bytes of a cluster's name, as in a RolloutGate.
const LONGEST_NAME: usize = 253;

/// Which revision of which package in which clusters, and what has to be true of them. The terms are those of a RolloutGate
/// that needs no history: there are no deadline, dependencies and checks. Nobody is excused.
#[derive(Debug, Clone, PartialEq)]
pub struct RevisionQuestion {
    /// The hub's namespace that asks: tenancy says what it may see.
    pub asker: String,
    /// The package.
    pub package: PackageRef,
    /// The revision in the delivery system's words, or its fingerprint.
    pub revision: String,
    /// The clusters that count.
    pub clusters: ClusterSet,
    /// How far a cluster must be.
    pub require: Require,
    /// As in a RolloutGate.
    pub min_healthy: Option<Amount>,
    /// As in a RolloutGate.
    pub max_failures: Option<Amount>,
    /// As in a RolloutGate.
    pub min_success_time: Option<String>,
    /// As in a FleetPackage.
    pub stale_after: String,
}

statusbridge_api::catalogue! {
    /// What can be answered to a question about a revision.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    RevisionState:
    /// Enough clusters are at the revision, as the question asks for.
    Open,
    /// They are not.
    Closed,
    /// Nothing can be said now: no fresh and verified evidence of any cluster, or which clusters are meant is not known.
    Unknown,
    /// The question makes no sense.
    Invalid,
    /// The namespace that asks may not see what it asks about.
    Forbidden,
}

/// The answer to a [`RevisionQuestion`].
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionVerdict {
    /// Whether enough clusters are at the revision: `state` is `Open`.
    open: bool,
    /// What can be answered.
    pub state: RevisionState,
    /// One of the documented reasons.
    pub reason: String,
    /// The same in words.
    pub message: String,
    /// The revision that was asked for.
    pub revision: String,
    /// Its fingerprint, 12 hex digits.
    pub fingerprint: String,
    /// Whether there is fresh and verified evidence of every cluster that is meant.
    pub complete: bool,
    /// Time of the oldest evidence that counts.
    pub as_of: Option<Time>,
    /// How old that is, in seconds.
    pub age_seconds: Option<Seconds>,
    /// How old it may get, in seconds.
    pub stale_after_seconds: Option<Seconds>,
    /// Clusters that count, of all that are meant.
    pub healthy: Option<String>,
    /// How many clusters are how far.
    pub clusters: Option<GateCounts>,
    /// What keeps it closed, most important first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<Waiting>,
}

impl RevisionQuestion {
    /// What of it the API server would refuse in an object.
    fn error(&self) -> Option<String> {
        let PackageRef { source, namespace, name } = &self.package;
        let texts = [
            source.as_str(),
            namespace.as_deref().unwrap_or_default(),
            name,
            &self.revision,
            self.min_success_time.as_deref().unwrap_or_default(),
            &self.stale_after,
        ];
        if let Some((field, most)) =
            LONGEST.iter().zip(texts).find(|((_, most), text)| text.len() > *most).map(|it| it.0)
        {
            return Some(format!("{field} takes more than {most} bytes"));
        }
        let names = self.clusters.names.as_deref().unwrap_or_default();
        if let Err(error) = wanted::fingerprint(&self.revision) {
            return Some(error.to_string());
        }
        match () {
            () if source.is_empty() => Some("source must not be empty".to_owned()),
            () if name.is_empty() => Some("package must not be empty".to_owned()),
            () if names.len() > MOST_NAMES
                || names.iter().map(String::len).sum::<usize>() > MOST_OF_NAMES =>
            {
                Some(format!(
                    "clusters takes at most {MOST_NAMES} names of {MOST_OF_NAMES} bytes together: select clusters by their labels instead"
                ))
            }
            () if self.clusters.names.is_some() && names.is_empty() => {
                Some("clusters must name at least one cluster".to_owned())
            }
            () => names
                .iter()
                .any(|name| name.is_empty() || name.len() > LONGEST_NAME)
                .then(|| format!("clusters: the name of a cluster has 1 to {LONGEST_NAME} bytes")),
        }
    }

    fn objects(&self) -> (GateObject, PackageObject) {
        let key = Key { namespace: self.asker.clone(), name: "question".to_owned() };
        let package = FleetPackageSpec::of(self.package.clone(), self.clusters.clone(), &self.stale_after);
        let gate = RolloutGateSpec {
            fleet_package_ref: FleetPackageRef { name: key.name.clone() },
            revision: self.revision.clone(),
            clusters: self.clusters.clone(),
            terms: GateTerms {
                require: self.require,
                min_healthy: self.min_healthy.clone(),
                max_failures: self.max_failures.clone(),
                min_success_time: self.min_success_time.clone(),
                ..GateTerms::default()
            },
            depends_on: Vec::new(),
            override_: None,
        };
        (Object::made_up(key.clone(), gate), Object::made_up(key, package))
    }
}

impl RevisionVerdict {
    /// Whether enough clusters are at the revision.
    pub fn is_open(&self) -> bool {
        self.open
    }

    fn new(question: &RevisionQuestion, state: RevisionState, verdict: GateVerdict) -> Self {
        let observed = |counts: &GateCounts| counts.total - unobserved(counts);
        Self {
            open: state == RevisionState::Open,
            state,
            reason: verdict.reason,
            message: verdict.message,
            revision: question.revision.clone(),
            fingerprint: Fingerprint::of(&question.revision).to_string(),
            complete: verdict.clusters.is_some_and(|it| it.total > 0 && observed(&it) == it.total),
            as_of: verdict.as_of,
            age_seconds: verdict.age_seconds,
            stale_after_seconds: verdict.stale_after_seconds,
            healthy: verdict.healthy,
            clusters: verdict.clusters,
            waiting_for: verdict.waiting_for,
        }
    }

    fn invalid(question: &RevisionQuestion, message: String) -> Self {
        Self {
            open: false,
            state: RevisionState::Invalid,
            reason: Reason::InvalidSpec.name().to_owned(),
            message,
            revision: question.revision.clone(),
            fingerprint: Fingerprint::of(&question.revision).to_string(),
            complete: false,
            as_of: None,
            age_seconds: None,
            stale_after_seconds: None,
            healthy: None,
            clusters: None,
            waiting_for: Vec::new(),
        }
    }
}

/// Clusters of which nothing counts.
fn unobserved(counts: &GateCounts) -> u64 {
    counts.stale + counts.missing + counts.unverified + counts.conflicting
}

fn state(verdict: &GateVerdict) -> RevisionState {
    let nothing_counts = |counts: &GateCounts| counts.total == unobserved(counts) - counts.missing;
    match &verdict.clusters {
        _ if verdict.is_open() => RevisionState::Open,
        _ if verdict.reason == Reason::InvalidSpec.name() => RevisionState::Invalid,
        _ if verdict.reason == Reason::Forbidden.name() => RevisionState::Forbidden,
        _ if verdict.reason == Reason::FreezesUnavailable.name() => RevisionState::Unknown,
        None => RevisionState::Unknown,
        Some(counts) if counts.total > 0 && nothing_counts(counts) => RevisionState::Unknown,
        Some(_) => RevisionState::Closed,
    }
}

impl World<'_> {
    /// The answer to a question about a revision.
    pub fn revision(&self, question: &RevisionQuestion) -> RevisionVerdict {
        if let Some(error) = question.error() {
            return RevisionVerdict::invalid(question, error);
        }
        let (mut gate, package) = question.objects();
        let excuses = Excuses::none();
        let status =
            self.with_excuses(&gate, Some(&package), &excuses, |input, _, _| rollout_gate::decide(input));
        gate.status = Some(status);
        // As whoever reads a gate does: evidence ages by the clock of the one who answers.
        let stale_after = package.spec.as_deref().ok().and_then(gate_verdict::stale_after);
        let asked = gate_verdict::Question { revision: None, stale_after, slack: 0.0, now: self.moment.now };
        let verdict = gate_verdict::read(&Gate::from(&gate), &asked);
        RevisionVerdict::new(question, state(&verdict), verdict)
    }
}

#[cfg(test)]
mod tests;
