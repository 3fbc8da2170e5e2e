//! What a FleetRollout tells now, with the gates of its waves.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_with::skip_serializing_none;
use statusbridge_api::conditions::{STALLED, is_true};
use statusbridge_api::fleet_rollout::{PreviousRollout, RolloutCounts, WaveStatus};
use statusbridge_api::{FleetRolloutStatus, Reason};
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::gate_verdict::Gate;
use statusbridge_core::reconcile::object::{GateObject, Kind, PackageObject, RolloutObject};
use statusbridge_core::time::Seconds;

use crate::verdict::{Asked, Verdict};

/// Where a FleetRollout stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum RolloutState {
    /// The gates of all waves were open, and all of their clusters are admitted.
    RolledOut,
    /// Not so yet.
    Waiting,
    /// It will not go on by itself.
    Stalled,
    /// The aggregator has not judged what is wanted now.
    NotJudged,
}

impl RolloutState {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RolledOut => "RolledOut",
            Self::Waiting => "Waiting",
            Self::Stalled => "Stalled",
            Self::NotJudged => "NotJudged",
        }
    }
}

/// A FleetRollout.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rollout {
    kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) fleet_package: Option<String>,
    pub(crate) state: RolloutState,
    /// One of the documented reasons, and the same in words.
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) paused: bool,
    /// The revision that is wanted, or else the one that the status is about.
    pub(crate) revision: Option<String>,
    pub(crate) fingerprint: Option<String>,
    /// Clusters that may have the revision, of those in all waves.
    pub(crate) admitted: Option<String>,
    pub(crate) clusters: Option<RolloutCounts>,
    /// The latest wave that has started, and how many there are.
    pub(crate) wave: Option<String>,
    pub(crate) started_at: Option<Time>,
    pub(crate) completed_at: Option<Time>,
    pub(crate) waves: Vec<Wave>,
    pub(crate) previous: Option<PreviousRollout>,
    last_completed_revision: Option<String>,
    pub(crate) recommended_revision: Option<String>,
}

/// A wave.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wave {
    #[serde(flatten)]
    pub(crate) status: WaveStatus,
    /// What its gate tells.
    pub(crate) verdict: Option<Verdict>,
}

/// Whether a gate is of a wave of this very FleetRollout.
pub(crate) fn is_its(gate: &GateObject, rollout: &RolloutObject) -> bool {
    gate.key.namespace == rollout.key.namespace
        && gate.owner.as_ref().is_some_and(|owner| owner.uid == rollout.uid && owner.is_a(Kind::FleetRollout))
}

impl Rollout {
    /// Reads it. `gates` are those of the namespace that may be its own.
    pub(crate) fn of<'g>(
        object: &RolloutObject,
        package: Option<&PackageObject>,
        gates: impl Iterator<Item = &'g GateObject>,
        now: Seconds,
    ) -> Self {
        let spec = object.spec.as_ref();
        let wanted = spec.ok().and_then(|spec| spec.wanted(of_package(package)));
        let status = object.status.clone().unwrap_or_default();
        let (state, reason, message) = judge(object, wanted);
        let own: Vec<&GateObject> = gates.filter(|gate| is_its(gate, object)).collect();
        // What is told of another revision is not told of this one.
        let is_same = wanted.is_none_or(|wanted| is_about(&status, wanted));
        let revision = wanted.map(str::to_owned).or(status.revision);
        let verdict = |wave: &WaveStatus| {
            let gate = own.iter().find(|gate| Some(&gate.key.name) == wave.gate.as_ref())?;
            let asked = Asked { revision: revision.as_deref().map(Fingerprint::of), slack: 0.0, now };
            Some(Verdict::of_gate(&Gate::from(*gate), package, asked))
        };
        let waves = status.waves.into_iter().filter(|_| is_same);
        let waves = waves.map(|wave| Wave { verdict: verdict(&wave), status: wave }).collect();
        Self {
            kind: Kind::FleetRollout.name(),
            namespace: object.key.namespace.clone(),
            name: object.key.name.clone(),
            fleet_package: spec.ok().map(|spec| spec.fleet_package_ref.name.clone()),
            state,
            reason,
            message,
            paused: spec.is_ok_and(|spec| spec.paused),
            fingerprint: revision.as_deref().map(|revision| Fingerprint::of(revision).to_string()),
            admitted: status.admitted.filter(|_| is_same),
            clusters: status.clusters.filter(|_| is_same),
            wave: status.wave.filter(|_| is_same),
            started_at: status.started_at.filter(|_| is_same),
            completed_at: status.completed_at.filter(|_| is_same),
            waves,
            previous: status.previous,
            last_completed_revision: status.last_completed_revision,
            recommended_revision: status.recommended_revision.filter(|_| is_same),
            revision,
        }
    }

    /// All that is news when it changes.
    pub(crate) fn news(&self) -> Self {
        let mut news = self.clone();
        for reading in
            news.waves.iter_mut().filter_map(|wave| wave.verdict.as_mut()).map(|it| &mut it.reading)
        {
            (reading.age_seconds, reading.as_of) = (None, None);
        }
        news
    }
}

/// The revision that a FleetPackage wants.
fn of_package(package: Option<&PackageObject>) -> Option<&str> {
    let package = package?;
    package.spec.as_ref().ok()?.wanted(package.status.as_ref())
}

fn is_about(status: &FleetRolloutStatus, revision: &str) -> bool {
    status.revision.as_deref().map(Fingerprint::of) == Some(Fingerprint::of(revision))
}

fn judge(object: &RolloutObject, wanted: Option<&str>) -> (RolloutState, String, String) {
    let not_judged = |message: String| (RolloutState::NotJudged, Reason::Pending.name().to_owned(), message);
    let spec = match &object.spec {
        Ok(spec) => spec,
        Err(error) => return (RolloutState::Stalled, Reason::InvalidSpec.name().to_owned(), error.clone()),
    };
    let (status, ready) = match object.judged() {
        Ok(judged) => judged,
        Err(unjudged) => return not_judged(unjudged),
    };
    let state = match ready.status.as_str() {
        "True" => RolloutState::RolledOut,
        _ if is_true(&status.conditions, STALLED) => RolloutState::Stalled,
        _ => RolloutState::Waiting,
    };
    // When the FleetPackage moves, the FleetRollout's generation stays.
    let may_have_moved = spec.revision.is_none() || state == RolloutState::RolledOut;
    match wanted.filter(|wanted| may_have_moved && !is_about(status, wanted)) {
        Some(wanted) => not_judged(format!(
            "revision {wanted} is wanted, and the FleetRollout has not been judged for it yet"
        )),
        None => (state, ready.reason.clone(), ready.message.clone()),
    }
}
