//! What is told.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use statusbridge_api::PackageRef;
use statusbridge_core::decide::transition::{Outcome, Report};
use statusbridge_core::reconcile::object::{Kind, PackageObject, Version};

use super::commit::{Commit, commit};

/// Most bytes of a revision, and characters of a text, that are told.
const MOST_REVISION: usize = 512;
const MOST_TEXT: usize = 256;

/// What a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum About {
    /// A wave.
    RolloutGate,
    /// A package in all of its clusters.
    FleetPackage,
    /// All waves of a package.
    FleetRollout,
}

impl About {
    /// Its kind.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::RolloutGate => Kind::RolloutGate.name(),
            Self::FleetPackage => Kind::FleetPackage.name(),
            Self::FleetRollout => Kind::FleetRollout.name(),
        }
    }
}

/// What the rollout of a revision has come to. Nothing in it is from another object than its own and its FleetPackage,
/// so it names no cluster that its namespace may not see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Message {
    /// The same for the same transition, whoever tells it.
    pub(super) id: String,
    /// When it came to that, in Unix seconds.
    pub(super) at: i64,
    pub(super) about: About,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Name of the FleetPackage.
    pub(super) fleet_package: String,
    /// Name of the FleetRollout that it is, or of which it is a wave.
    pub(super) fleet_rollout: Option<String>,
    /// What the FleetPackage reports, where that is known.
    pub(super) package: Option<PackageRef>,
    pub(super) revision: String,
    pub(super) commit: Option<Commit>,
    pub(super) outcome: Outcome,
    pub(super) reason: String,
    pub(super) text: String,
    /// Healthy clusters and all targets.
    pub(super) healthy: Option<(u64, u64)>,
}

impl Message {
    /// What is to be told of an object, if it has an outcome. `package` is its FleetPackage, `name` the name of that, and
    /// `rollout` the name of its FleetRollout.
    pub(crate) fn new(
        about: About,
        version: &Version,
        (name, package): (&str, Option<&PackageObject>),
        rollout: Option<&str>,
        report: &Report,
    ) -> Option<Self> {
        let (outcome, revision) = (report.outcome?, report.revision.as_ref()?);
        let at = report.outcome_since.as_ref()?.0.as_second();
        let identity = format!("{:?}", (&version.uid, revision, outcome, at));
        let trace = package.and_then(|it| it.status.as_ref()).map(|it| it.trace.as_slice());
        Some(Self {
            id: Sha256::digest(identity).iter().take(8).map(|byte| format!("{byte:02x}")).collect(),
            at,
            about,
            namespace: version.key.namespace.clone(),
            name: version.key.name.clone(),
            fleet_package: name.to_owned(),
            fleet_rollout: rollout.map(str::to_owned),
            package: package.and_then(|it| it.spec.as_deref().ok()).map(|spec| spec.package.clone()),
            commit: commit(revision, trace.unwrap_or_default()),
            revision: beginning(revision, MOST_REVISION).to_owned(),
            outcome,
            reason: report.condition.reason.clone(),
            text: beginning(&report.condition.message, MOST_TEXT).to_owned(),
            healthy: report.healthy,
        })
    }

    /// By which a forge tells it from others of its namespace. Most FleetRollouts are called like their FleetPackage.
    pub(super) fn label(&self) -> String {
        match self.about {
            About::RolloutGate | About::FleetPackage => self.name.clone(),
            About::FleetRollout => format!("{}/rollout", self.name),
        }
    }

    /// In a line of at most so many characters.
    pub(super) fn line(&self, most: usize) -> String {
        let healthy = self.healthy.map(|(healthy, total)| format!("{healthy}/{total} healthy: "));
        beginning(&format!("{}{}", healthy.unwrap_or_default(), self.text), most).to_owned()
    }

    /// When it came to that, as RFC 3339 has it.
    pub(super) fn time(&self) -> String {
        jiff::Timestamp::from_second(self.at).unwrap_or_default().to_string()
    }
}

fn beginning(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What is told of a wave.
    pub(in crate::notify) fn message(outcome: Outcome, at: i64) -> Message {
        let revision = "main@sha1:4f0e2a91c3d5b7e6f80912a4b6c8d0e2f4a6b8c0";
        Message {
            id: format!("{at:016x}"),
            at,
            about: About::RolloutGate,
            namespace: "fleet".to_owned(),
            name: "payments-wave-1".to_owned(),
            fleet_package: "payments".to_owned(),
            fleet_rollout: None,
            package: Some(PackageRef {
                source: "flux-kustomization".to_owned(),
                namespace: Some("flux-system".to_owned()),
                name: "payments".to_owned(),
            }),
            revision: revision.to_owned(),
            commit: commit(revision, &[]),
            outcome,
            reason: "Healthy".to_owned(),
            text: "3 of 3 clusters healthy at the revision".to_owned(),
            healthy: Some((3, 3)),
        }
    }
}
