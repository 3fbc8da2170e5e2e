//! The status of a FleetRollout, and which clusters may have its revision next.
//!
//! ```text
//!   wave 1      gate open  ──> wave 2 starts ──> gate open ──> wave 3 …
//!     │                          │
//!     └ admits its clusters      └ admits its clusters, maxConcurrency of them on the way at a time
//! ```
//!
//! Which clusters a wave starts with is told in the status before its gate is made, and before any of them is admitted: a
//! gate's names are anybody's to change who may write gates.
//!
//! Clusters are admitted only while the gates of all waves before theirs are open on fresh evidence; an admission is never
//! taken back. What cannot be told stops the rollout where it is.

mod progress;

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use statusbridge_api::common::{MOST_NAMES, MOST_OF_NAMES};
use statusbridge_api::conditions::{READY, RECONCILING, STALLED};
use statusbridge_api::fleet_rollout::{PreviousRollout, RolloutCounts, WaveClusters, WaveState, WaveStatus};
use statusbridge_api::{FleetRolloutSpec, FleetRolloutStatus, Reason};
use statusbridge_contract::{Fingerprint, wanted};

use self::progress::Progress;
use super::conditions::Conditions;
use super::{Moment, Obstacle, clusters, digits, list_by, older, shorten, time, transition};

/// Most clusters that are named as left out.
const MOST_LEFT_OUT: usize = 10;

/// All that a FleetRollout's status depends on.
pub struct Input<'a> {
    /// The spec, or why it cannot be read.
    pub spec: Result<&'a FleetRolloutSpec, &'a str>,
    /// Its generation.
    pub generation: i64,
    /// The status as it stands.
    pub previous: Option<&'a FleetRolloutStatus>,
    /// The revision to roll out, or why there is none.
    pub revision: Result<&'a str, Obstacle>,
    /// Why nothing can go on, whatever the gates say.
    pub obstacle: Option<Obstacle>,
    /// What people and the time hold it back by: windows and freezes.
    pub hold: Option<Obstacle>,
    /// That the hub did not take what was last decided.
    pub refusal: Option<Obstacle>,
    /// The waves, in the spec's order.
    pub waves: &'a [Wave<'a>],
    /// The FleetPackage's clusters that no wave names or selects, or why they are not known.
    pub rest: Result<&'a [&'a str], Obstacle>,
    /// The place of a cluster in the order in which clusters are admitted, before all that are excused.
    pub order: &'a dyn Fn(&str) -> Fingerprint,
    /// Whether a cluster need not be healthy now: a wave of few clusters with too few of the others would wait for its excuse
    /// to end.
    pub is_excused: &'a dyn Fn(&str) -> bool,
    /// Whether a cluster may have the revision.
    pub is_admitted: &'a dyn Fn(&str) -> bool,
    /// The revision at which the FleetPackage was last Ready.
    pub last_healthy: Option<&'a str>,
    /// When.
    pub moment: Moment,
}

/// One wave.
pub struct Wave<'a> {
    /// The clusters that it names or selects, or why they are not known; none where it takes of the rest.
    pub explicit: Option<Result<Vec<&'a str>, Obstacle>>,
    /// Its gate, where it has started.
    pub gate: Option<Gate<'a>>,
    /// Why it cannot have its gate, if it cannot.
    pub hindrance: Option<Obstacle>,
}

/// The gate of a wave, for the revision that is rolled out.
pub struct Gate<'a> {
    /// Its name.
    pub name: &'a str,
    /// The clusters of the wave, in the order in which it names them.
    pub members: Vec<&'a str>,
    /// Whether the hub says that it is open, and it would be open now on evidence that is fresh.
    pub is_open: bool,
    /// Whether too many of its clusters have failed, or only a person can change it.
    pub is_stalled: bool,
    /// Whether somebody has closed or paused it by hand.
    pub is_held: bool,
    /// What it waits for.
    pub message: Option<&'a str>,
    /// The age of its evidence.
    pub as_of: Option<&'a Time>,
    /// How many of the members that may have the revision are neither where they have to be nor have failed.
    pub on_the_way: usize,
    /// The members that may have the revision, and of which nothing can be told.
    pub unseen: Vec<&'a str>,
}

/// What a FleetRollout's status should say, and how it goes on.
pub struct Decision<'a> {
    /// The status.
    pub status: FleetRolloutStatus,
    /// What to do next, in this order.
    pub steps: Vec<Step<'a>>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// The wave in this place of the spec starts with these clusters.
    Start(usize, Vec<&'a str>),
    /// These clusters may have the revision, by way of the wave in this place.
    Admit(usize, Vec<&'a str>),
}

/// The status, where it is about this very revision.
pub(crate) fn known<'s>(
    status: Option<&'s FleetRolloutStatus>,
    revision: &str,
) -> Option<&'s FleetRolloutStatus> {
    status.filter(|it| it.revision.as_deref().is_some_and(|it| wanted::is_same(it, revision)))
}

/// Whether a wave of which a status says this has started with a gate for these clusters: it has told so before. Else the gate
/// is whoever's, as anybody could have made it who may write gates.
pub(crate) fn has_started<'n>(known: &WaveStatus, members: impl IntoIterator<Item = &'n str>) -> bool {
    known.members_fingerprint.as_ref().is_some_and(|told| known.gate.is_some() || *told == mark(members))
}

/// Decides what the status should say and what to do next.
pub fn decide<'a>(input: &'a Input<'a>) -> Decision<'a> {
    let (status, steps) = match (input.spec, &input.revision) {
        (Err(error), _) => {
            let obstacle = Obstacle { reason: Reason::InvalidSpec, message: shorten(error), stalled: true };
            (stopped(input, None, &obstacle), Vec::new())
        }
        (Ok(spec), Err(obstacle)) => (stopped(input, Some(spec), obstacle), Vec::new()),
        (Ok(spec), Ok(revision)) => judge(input, spec, revision),
    };
    Decision { status: transition::dated(status, input.previous, input.moment.now), steps }
}

/// The status where the waves cannot be looked at: what was known stays.
fn stopped(input: &Input<'_>, spec: Option<&FleetRolloutSpec>, obstacle: &Obstacle) -> FleetRolloutStatus {
    let previous = input.previous.cloned().unwrap_or_default();
    let conditions = conditions(input, &previous, &Verdict::stopped(obstacle));
    let observed_generation = Some(input.generation);
    match spec {
        // Nothing of another revision is said of this one.
        Some(_) if obstacle.reason == Reason::Forbidden => FleetRolloutStatus {
            observed_generation,
            conditions,
            last_completed_revision: previous.last_completed_revision,
            ..FleetRolloutStatus::default()
        },
        _ => FleetRolloutStatus { observed_generation, epoch: None, tenancy: None, conditions, ..previous },
    }
}

/// What is said of the rollout as a whole.
struct Verdict {
    ready: bool,
    stalled: bool,
    reason: Reason,
    message: String,
}

impl Verdict {
    fn stopped(obstacle: &Obstacle) -> Self {
        let Obstacle { reason, message, stalled } = obstacle;
        Self { ready: false, stalled: *stalled, reason: *reason, message: shorten(message) }
    }
}

fn conditions(
    input: &Input<'_>,
    previous: &FleetRolloutStatus,
    verdict: &Verdict,
) -> Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    let Verdict { ready, stalled, reason, message } = verdict;
    let mut conditions = Conditions::new(input.generation, input.moment, &previous.conditions);
    conditions.set(READY, *ready, *reason, message.clone());
    if *stalled {
        conditions.set(STALLED, true, *reason, message.clone());
    } else if !ready {
        conditions.set(RECONCILING, true, *reason, message.clone());
    }
    conditions.finish()
}

fn judge<'a>(
    input: &'a Input<'a>,
    spec: &'a FleetRolloutSpec,
    revision: &'a str,
) -> (FleetRolloutStatus, Vec<Step<'a>>) {
    let before = input.previous;
    let same = known(before, revision);
    let Progress { waves, steps, stop, left_out } = progress::of(input, spec, same);

    let completed_at = same.and_then(|it| it.completed_at.clone());
    let complete = waves.iter().all(|wave| wave.opened_at.is_some() && wave.admitted == wave.clusters);
    let completed_at = complete.then(|| completed_at.unwrap_or_else(|| time(input.moment.now)));
    let counts = RolloutCounts {
        total: waves.iter().map(|wave| wave.clusters).sum(),
        admitted: waves.iter().map(|wave| wave.admitted).sum(),
        left_out: left_out.len() as u64,
    };
    let verdict = match stop {
        _ if complete => Verdict {
            ready: true,
            stalled: false,
            reason: Reason::RolledOut,
            message: rolled_out(&waves, counts),
        },
        Some(stop) => Verdict::stopped(&stop),
        None => under_way(&waves),
    };
    let last_completed_revision = match &completed_at {
        Some(_) => Some(revision.to_owned()),
        None => before.and_then(|it| it.last_completed_revision.clone()),
    };
    let is_other = |it: &&str| !wanted::is_same(it, revision);
    let recommended_revision = verdict
        .stalled
        .then(|| last_completed_revision.as_deref().filter(is_other).or(input.last_healthy.filter(is_other)))
        .flatten()
        .map(str::to_owned);
    let started = waves.iter().rposition(|wave| wave.gate.is_some());
    let previous = match (before, same) {
        (Some(before), None) => replaced(before, input.moment).or_else(|| before.previous.clone()),
        (_, Some(same)) => same.previous.clone(),
        (None, None) => None,
    };
    let unjudged = FleetRolloutStatus::default();
    let conditions = conditions(input, before.unwrap_or(&unjudged), &verdict);
    let gates = input.waves.iter().filter_map(|wave| wave.gate.as_ref());
    let status = FleetRolloutStatus {
        observed_generation: Some(input.generation),
        as_of: gates.fold(None, |at, gate| older(at, gate.as_of.cloned())),
        epoch: None,
        verdict_since: None,
        outcome_since: None,
        revision: Some(revision.to_owned()),
        fingerprint: digits(Some(revision)),
        started_at: same.and_then(|it| it.started_at.clone()).or_else(|| Some(time(input.moment.now))),
        completed_at,
        wave: started.and_then(|at| Some(format!("{} ({}/{})", waves.get(at)?.name, at + 1, waves.len()))),
        admitted: Some(format!("{}/{}", counts.admitted, counts.total)),
        clusters: Some(counts),
        left_out: left_out.into_iter().take(MOST_LEFT_OUT).map(str::to_owned).collect(),
        waves,
        previous,
        last_completed_revision,
        recommended_revision,
        tenancy: None,
        conditions,
    };
    (status, steps)
}

fn rolled_out(waves: &[WaveStatus], counts: RolloutCounts) -> String {
    let left_out = match counts.left_out {
        0 => String::new(),
        count => format!("; {} in no wave", clusters(count)),
    };
    format!(
        "all {} admitted, the gates of all {} waves were open{left_out}",
        clusters(counts.total),
        waves.len()
    )
}

/// What the first wave that is not done waits for.
fn under_way(waves: &[WaveStatus]) -> Verdict {
    let wave = waves
        .iter()
        .enumerate()
        .find(|(_, wave)| !(wave.state == WaveState::Open && wave.admitted == wave.clusters));
    let message = match wave {
        Some((at, wave)) => {
            let waits = wave.message.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
            let WaveStatus { name, admitted, clusters, .. } = wave;
            format!("wave {name} ({} of {}), {admitted} of {clusters} admitted{waits}", at + 1, waves.len())
        }
        None => "every wave is open".to_owned(),
    };
    Verdict { ready: false, stalled: false, reason: Reason::RollingOut, message: shorten(&message) }
}

/// What became of the revision before, when another takes its place.
fn replaced(before: &FleetRolloutStatus, moment: Moment) -> Option<PreviousRollout> {
    let message = statusbridge_api::conditions::find(&before.conditions, READY)
        .filter(|ready| ready.status != "True")
        .map(|ready| ready.message.clone());
    Some(PreviousRollout {
        revision: before.revision.clone()?,
        started_at: before.started_at.clone(),
        completed_at: before.completed_at.clone(),
        replaced_at: time(moment.now),
        admitted: before.admitted.clone(),
        wave: before.wave.clone(),
        message: message.filter(|_| before.completed_at.is_none()),
    })
}

/// Stands for the clusters of a wave, in whatever order.
pub(crate) fn mark<'n>(members: impl IntoIterator<Item = &'n str>) -> String {
    let mut sorted: Vec<&str> = members.into_iter().collect();
    sorted.sort_unstable();
    sorted.dedup();
    Fingerprint::of(&sorted.join("\n")).to_string()
}

#[cfg(test)]
mod tests;
