//! What a gate tells a reader now: its status as it stands in the hub, and never more than that.
//!
//! A status is written by somebody who may have stopped since, for a spec that may have changed
//! since, about a revision that need not be the reader's. Whoever hands a verdict on (`/v1alpha1/gates`,
//! `statusbridge_gate_open`, `wait`) does so through [`read`], which takes all of this into account.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;
use serde_with::skip_serializing_none;
use statusbridge_api::conditions::{OPEN, OPENED_ONCE, READY, STALLED, find, is_true};
use statusbridge_api::excuse::ExcusedCluster;
use statusbridge_api::rollout_gate::{
    GateCounts, Newcomers, Override, OverrideState, RolloutGateStatus, Waiting,
};
use statusbridge_api::{FleetPackageSpec, FleetPackageStatus, Reason, common};
use statusbridge_contract::Fingerprint;

use crate::decide::rollout_gate::holds;
use crate::decide::unix;
use crate::reconcile::object::{GateObject, Key, Kind, PackageObject};
use crate::time::Seconds;

/// How far in the future evidence may lie before the reader's clock is taken to be wrong, in which
/// case old evidence would look young.
const FUTURE: Seconds = 60.0;

statusbridge_api::catalogue! {
    /// Where a gate stands for a reader.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    State:
    /// Open, for the revision that was asked for.
    Open,
    /// Closed, and may open by itself.
    Waiting,
    /// Closed, and will not change by itself.
    Stalled,
    /// The present spec has not been judged.
    NotJudged,
    /// It was open when last judged, but the evidence is too old, or nobody can say how old.
    Stale,
    /// It is for another revision than the one that was asked for.
    OtherRevision,
}

/// What of a gate matters to a reader. A FleetPackage can be read as the gate that is open while it
/// is Ready at its revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// Of which kind it is.
    pub kind: Kind,
    /// Where it lives.
    pub key: Key,
    /// Generation of its spec.
    pub generation: i64,
    /// What of its spec matters, or why it cannot be read.
    pub spec: Result<Wish, String>,
    /// Its status.
    pub status: Option<RolloutGateStatus>,
}

/// What of a gate's spec matters to a reader.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    /// The revision that it is for.
    pub revision: String,
    /// Name of its FleetPackage.
    pub package: String,
    /// A person's word.
    pub word: Option<Override>,
}

impl From<&GateObject> for Gate {
    fn from(object: &GateObject) -> Self {
        Self {
            kind: Kind::RolloutGate,
            key: object.key.clone(),
            generation: object.generation,
            spec: object.spec.as_deref().map_err(Clone::clone).map(|spec| Wish {
                revision: spec.revision.clone(),
                package: spec.fleet_package_ref.name.clone(),
                word: spec.override_.clone(),
            }),
            status: object.status.clone(),
        }
    }
}

impl From<&PackageObject> for Gate {
    fn from(object: &PackageObject) -> Self {
        let own = |spec: &FleetPackageSpec| Wish {
            // Without one it is Ready at whatever each cluster wants: that answers nobody.
            revision: spec.wanted(object.status.as_ref()).unwrap_or_default().to_owned(),
            package: object.key.name.clone(),
            word: None,
        };
        let spec = object.spec.as_deref().map_err(Clone::clone).map(own);
        let revision = spec.as_ref().ok().map(|wish| wish.revision.clone());
        Self {
            kind: Kind::FleetPackage,
            key: object.key.clone(),
            generation: object.generation,
            spec,
            status: object.status.clone().map(|status| as_of_a_gate(status, revision)),
        }
    }
}

fn as_of_a_gate(status: FleetPackageStatus, revision: Option<String>) -> RolloutGateStatus {
    let counts = status.counted();
    let mut conditions = status.conditions;
    if let Some(ready) = conditions.iter_mut().find(|condition| condition.type_ == READY) {
        OPEN.clone_into(&mut ready.type_);
    }
    RolloutGateStatus {
        observed_generation: status.observed_generation,
        as_of: status.as_of,
        since: find(&conditions, OPEN).map(|open| open.last_transition_time.clone()),
        revision,
        healthy: counts.map(|counts| format!("{}/{}", counts.healthy, counts.total)),
        excused: status.excused,
        conditions,
        ..RolloutGateStatus::default()
    }
}

impl Gate {
    fn noun(&self) -> &'static str {
        match self.kind {
            Kind::RolloutGate => "gate",
            other => other.name(),
        }
    }
}

/// How old evidence about a package may be, in seconds; `None` when the spec does not say it.
pub fn stale_after(package: &FleetPackageSpec) -> Option<Seconds> {
    common::seconds(&package.stale_after).ok()
}

/// What a reader wants to know, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question {
    /// The revision that has to be meant; `None`: whichever the gate is for.
    pub revision: Option<Fingerprint>,
    /// `staleAfter` of the gate's FleetPackage; `None` when there is none.
    pub stale_after: Option<Seconds>,
    /// How much older than `staleAfter` the evidence may be, for clocks that differ.
    pub slack: Seconds,
    /// The present.
    pub now: Seconds,
}

/// What the gate tells.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GateVerdict {
    /// Whether the rollout may go on: `state` is `Open`.
    open: bool,
    /// Where it stands.
    pub state: State,
    /// One of the documented reasons.
    pub reason: String,
    /// The same in words.
    pub message: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The revision that the gate is for.
    pub revision: Option<String>,
    /// Its fingerprint, 12 hex digits.
    pub fingerprint: Option<String>,
    /// Generation of the spec.
    pub generation: i64,
    /// Generation that the status answers.
    pub observed_generation: Option<i64>,
    /// Whether it was open in this generation of the spec, for the revision that was asked for.
    pub opened_once: bool,
    /// Time of the oldest evidence that counts.
    pub as_of: Option<Time>,
    /// How old that is, in seconds.
    pub age_seconds: Option<Seconds>,
    /// How old it may get, in seconds.
    pub stale_after_seconds: Option<Seconds>,
    /// When Open last changed.
    pub since: Option<Time>,
    /// Clusters that count, of all targets.
    pub healthy: Option<String>,
    /// How many clusters are how far.
    pub clusters: Option<GateCounts>,
    /// Clusters that are excused now, the first ten.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excused: Vec<ExcusedCluster>,
    /// Clusters that wait for the next revision, as the gate's are frozen.
    pub newcomers: Option<Newcomers>,
    /// What keeps it closed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<Waiting>,
}

impl GateVerdict {
    /// Whether the rollout may go on.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether nobody seems to keep the status up to date, be the gate open or closed.
    pub fn is_silent(&self, slack: Seconds) -> bool {
        let old = |(age, limit): (Seconds, Seconds)| age > limit + slack;
        matches!(self.state, State::NotJudged | State::Stale)
            || self.reason == Reason::AggregatorSilent.name()
            // While any cluster counts at all, a closed gate's evidence is refreshed too.
            || self.age_seconds.zip(self.stale_after_seconds).is_some_and(old)
    }

    /// The fingerprint that it is open for as a number, 0 while closed.
    pub fn open_for(&self) -> u64 {
        match &self.revision {
            Some(revision) if self.open => Fingerprint::of(revision).value(),
            _ => 0,
        }
    }

    /// The same without the age of the evidence, which is another one later.
    pub(crate) fn undated(self) -> Self {
        Self { age_seconds: None, ..self }
    }

    /// The same reading, closed for a reason that the status does not know of yet.
    #[must_use]
    fn closed(self, reason: Reason, message: &str) -> Self {
        let (reason, message) = (reason.name().to_owned(), message.to_owned());
        Self { open: false, state: State::Waiting, reason, message, ..self }
    }
}

struct Verdict {
    state: State,
    reason: String,
    message: String,
}

impl Verdict {
    fn new(state: State, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { state, reason: reason.into(), message: message.into() }
    }
}

/// What the gate tells whoever asks. It is open only when its status says so for the present
/// generation of the spec and for the revision that was asked for, on evidence that is young enough
/// now. A person's word needs no evidence, but must not have ended.
pub fn read(gate: &Gate, question: &Question) -> GateVerdict {
    let verdict = judge(gate, question);
    let status = gate.status.clone().unwrap_or_default();
    let revision = gate.spec.as_ref().ok().map(|wish| wish.revision.clone());
    let latched = find(&status.conditions, OPENED_ONCE).is_some_and(|opened_once| {
        opened_once.status == "True" && opened_once.observed_generation == Some(gate.generation)
    });
    let opened_once = latched && verdict.state != State::OtherRevision;
    GateVerdict {
        namespace: gate.key.namespace.clone(),
        name: gate.key.name.clone(),
        open: verdict.state == State::Open,
        state: verdict.state,
        reason: verdict.reason,
        message: verdict.message,
        fingerprint: revision.as_deref().map(|revision| Fingerprint::of(revision).to_string()),
        revision,
        generation: gate.generation,
        observed_generation: status.observed_generation,
        opened_once,
        age_seconds: age(&status, question).map(|age| (age * 1000.0).round() / 1000.0),
        as_of: status.as_of,
        stale_after_seconds: question.stale_after,
        since: status.since,
        healthy: status.healthy,
        clusters: status.clusters,
        excused: status.excused,
        newcomers: status.newcomers,
        waiting_for: status.waiting_for,
    }
}

/// What the gate tells whoever speaks for the hub: one that has to close is closed, though the hub does not know it yet.
pub fn present(gate: &Gate, question: &Question, has_to_close: bool) -> GateVerdict {
    let verdict = read(gate, question);
    if verdict.is_open() && has_to_close {
        verdict.closed(Reason::Pending, "the gate has to close, and the hub does not know it yet")
    } else {
        verdict
    }
}

fn age(status: &RolloutGateStatus, question: &Question) -> Option<Seconds> {
    status.as_of.as_ref().map(|as_of| question.now - unix(as_of))
}

fn judge(gate: &Gate, question: &Question) -> Verdict {
    let wish = match &gate.spec {
        Ok(wish) => wish,
        Err(error) => return Verdict::new(State::Stalled, Reason::InvalidSpec.name(), error),
    };
    let own = Fingerprint::of(&wish.revision);
    if let Some(asked) = question.revision.filter(|asked| *asked != own || own.is_none()) {
        let message = format!("the {} is for revision {own}, not {asked}", gate.noun());
        return Verdict::new(State::OtherRevision, State::OtherRevision.name(), message);
    }
    let Some((status, open)) = answered(gate) else {
        let message =
            format!("generation {} of the {} has not been judged yet", gate.generation, gate.noun());
        return Verdict::new(State::NotJudged, Reason::Pending.name(), message);
    };
    let said = |state| Verdict::new(state, &open.reason, &open.message);
    match open.status.as_str() {
        "True" => match doubt(gate, wish, status, open, question) {
            Some(doubt) => doubt,
            None => said(State::Open),
        },
        _ if is_true(&status.conditions, STALLED) => said(State::Stalled),
        _ => said(State::Waiting),
    }
}

/// The status and its verdict, when they answer the present spec.
fn answered(gate: &Gate) -> Option<(&RolloutGateStatus, &Condition)> {
    let status = gate.status.as_ref()?;
    Some((status, status.verdict_on(gate.generation)?))
}

/// Why a gate that says it is open is not to be believed.
fn doubt(
    gate: &Gate,
    wish: &Wish,
    status: &RolloutGateStatus,
    open: &Condition,
    question: &Question,
) -> Option<Verdict> {
    let own = Fingerprint::of(&wish.revision);
    // A FleetPackage without a revision is Ready at the one that each cluster wants.
    let nothing_meant = own.is_none() && gate.kind == Kind::RolloutGate;
    if status.revision.as_deref().map(Fingerprint::of) != Some(own) || nothing_meant {
        let message = "the revision that was judged is not the one in the spec";
        return Some(Verdict::new(State::NotJudged, Reason::Pending.name(), message));
    }
    if open.reason == Reason::Overridden.name() {
        let stands = |word: &Override| word.state == OverrideState::Open && holds(word, question.now);
        return match wish.word.as_ref().is_some_and(stands) {
            true => None,
            false => Some(Verdict::new(
                State::NotJudged,
                Reason::Pending.name(),
                "the override has ended, and the gate has not been judged since",
            )),
        };
    }
    let has_ended = |it: &ExcusedCluster| it.until.as_ref().is_some_and(|until| question.now >= unix(until));
    if status.excused.iter().any(has_ended) {
        let message = "a cluster is not excused any more, and the gate has not been judged since";
        return Some(Verdict::new(State::NotJudged, Reason::Pending.name(), message));
    }
    if status.open_until.as_ref().is_some_and(|until| unix(until) <= question.now) {
        let message =
            "the time in which the gate may be open has ended, and the gate has not been judged since";
        return Some(Verdict::new(State::NotJudged, Reason::Pending.name(), message));
    }
    let Some(limit) = question.stale_after else {
        let message =
            format!("FleetPackage {:?}, which says how old evidence may be, cannot be read", wish.package);
        return Some(Verdict::new(State::Stale, Reason::FleetPackageNotFound.name(), message));
    };
    match age(status, question) {
        None => Some(Verdict::new(
            State::Stale,
            Reason::Stale.name(),
            "the status does not say how old its evidence is",
        )),
        Some(age) if age > limit + question.slack => {
            let message = format!("the evidence is older than staleAfter ({limit} s)");
            Some(Verdict::new(State::Stale, Reason::Stale.name(), message))
        }
        Some(age) if age < -FUTURE => {
            let message = format!("the evidence lies {:.0} s in the future: clocks differ", -age);
            Some(Verdict::new(State::Stale, Reason::ClockSkew.name(), message))
        }
        Some(_) => None,
    }
}
