//! From spec, previous status, observations and time to a status. Pure functions, no I/O.
//!
//! ```text
//!   Target (cluster + what the fleet says of it)
//!        │ excused: those that do not count now are set apart
//!        │ classify: one Reason per cluster
//!        ├──> fleet_package: counts, revisions, problems, history, Ready
//!        ├──> rows:          one row for each cluster
//!        └──> rollout_gate:  counts against need and budget, Open
//! ```
//!
//! Whatever cannot be shown to be good is taken to be bad: a gate opens only on fresh, verified
//! rows that name the gate's own revision.

pub mod classify;
pub mod closing;
pub mod conditions;
pub mod delivery;
pub mod dependencies;
pub mod excused;
pub mod fleet_package;
pub mod fleet_rollout;
pub mod history;
pub mod hold;
mod membership;
pub mod rollout_gate;
pub mod rows;
pub mod trace;
pub mod transition;
pub(crate) mod words;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use statusbridge_api::common::ClusterSet;
use statusbridge_api::conditions::{OPENED_ONCE, find};
use statusbridge_api::{FleetPackageStatus, FleetRolloutStatus, Reason, RolloutGateStatus};
use statusbridge_contract::Fingerprint;

use crate::fleet::observation::{Observation, Standing};
use crate::time::Seconds;

pub(crate) use membership::unclear_profiles;
pub use membership::{Membership, Obstacle};

/// In place of a text that may speak of what belongs to another tenant.
pub(crate) const HIDDEN: &str = "the aggregator's log says why";

/// The two clocks of a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// Evaluation time in the backend's clock, against which evidence ages.
    pub t: Seconds,
    /// Wall clock: for times written into the status and for the end of overrides.
    pub now: Seconds,
}

/// A cluster that counts, and what is known of the package there.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Name of the cluster.
    pub cluster: String,
    /// What the fleet says.
    pub observation: Observation,
}

impl Target {
    /// The cluster whose exporter its word is of.
    pub(crate) fn exporter(&self) -> &str {
        self.observation.told_by.as_deref().unwrap_or(&self.cluster)
    }
}

/// What the last poll of the metrics backend came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend<'a> {
    /// It answered in full.
    Answers,
    /// It did not, with this error; what is known from earlier polls ages.
    Fails(&'a str),
    /// It has never answered this process, so nothing is known of any cluster.
    Unknown(&'a str),
}

impl<'a> Backend<'a> {
    fn error(self) -> Option<&'a str> {
        match self {
            Self::Answers => None,
            Self::Fails(error) | Self::Unknown(error) => Some(error),
        }
    }
}

/// A status that carries the age of its evidence, and who wrote it.
pub trait Evidence: Clone + PartialEq + Default {
    /// Somebody else wrote this over `known`, the last that the aggregator knows of: keeps what it shows to everybody, and
    /// of all that decisions build upon what was known. It answers no generation, so that it is written anew.
    fn doubt(&mut self, known: &Self);
    /// The age of the evidence.
    fn as_of(&mut self) -> &mut Option<Time>;
    /// Takes away what is other at every poll and only refreshed together with the age.
    fn steady(&mut self) {}
    /// Which leadership wrote it.
    fn epoch(&mut self) -> &mut Option<i64>;
}

impl Evidence for FleetPackageStatus {
    fn doubt(&mut self, known: &Self) {
        let conditions = std::mem::take(&mut self.conditions);
        let last_counted = known.counted_for();
        *self = Self { observed_generation: None, conditions, last_counted, ..known.clone() };
    }

    fn as_of(&mut self) -> &mut Option<Time> {
        &mut self.as_of
    }

    fn steady(&mut self) {
        self.trace.iter_mut().for_each(|stage| stage.as_of = None);
    }

    fn epoch(&mut self) -> &mut Option<i64> {
        &mut self.epoch
    }
}

impl Evidence for RolloutGateStatus {
    fn doubt(&mut self, known: &Self) {
        let mut conditions = std::mem::take(&mut self.conditions);
        conditions.retain(|condition| condition.type_ != OPENED_ONCE);
        conditions.extend(find(&known.conditions, OPENED_ONCE).cloned());
        *self = Self { observed_generation: None, conditions, ..known.clone() };
    }

    fn as_of(&mut self) -> &mut Option<Time> {
        &mut self.as_of
    }

    fn steady(&mut self) {
        self.checks.iter_mut().for_each(|check| check.value = None);
    }

    fn epoch(&mut self) -> &mut Option<i64> {
        &mut self.epoch
    }
}

impl Evidence for FleetRolloutStatus {
    fn doubt(&mut self, known: &Self) {
        let conditions = std::mem::take(&mut self.conditions);
        *self = Self { observed_generation: None, conditions, ..known.clone() };
    }

    fn as_of(&mut self) -> &mut Option<Time> {
        &mut self.as_of
    }

    fn epoch(&mut self) -> &mut Option<i64> {
        &mut self.epoch
    }
}

/// Whether `new` says nothing else than `old` but that it was written later, or by another leader.
pub(crate) fn only_refreshes<S: Evidence>(old: Option<&S>, new: &S) -> bool {
    let Some(old) = old else { return false };
    let (mut old, mut new) = (old.clone(), new.clone());
    for status in [&mut old, &mut new] {
        status.steady();
        *status.as_of() = None;
        *status.epoch() = None;
    }
    old == new
}

/// Whether `new` is worth a write over `old`: always when anything but `asOf` differs, and when
/// `asOf` has moved by a third of `stale_after`. So a quiet fleet costs three writes per object
/// and `staleAfter`, and `asOf` is never off by more than a third of what would make it stale.
pub fn worth_writing<S: Evidence>(old: Option<&S>, new: &S, stale_after: Seconds) -> bool {
    let Some(old) = old else { return true };
    let (mut old, mut new) = (old.clone(), new.clone());
    old.steady();
    new.steady();
    let (before, after) = (old.as_of().take(), new.as_of().take());
    old != new || refreshed(before.as_ref(), after.as_ref(), stale_after)
}

/// Whether `asOf` has moved so far that it is worth a write by itself.
pub fn refreshed(before: Option<&Time>, after: Option<&Time>, stale_after: Seconds) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            let moved = (unix(after) - unix(before)).abs();
            moved > 0.0 && moved >= stale_after / 3.0
        }
        (None, None) => false,
        _ => true,
    }
}

/// A Kubernetes time: whole seconds, rounded down.
pub fn time(seconds: Seconds) -> Time {
    let whole = seconds.floor().clamp(0.0, 253_402_300_799.0);
    // The clamp keeps this within what both types can hold.
    Time(Timestamp::from_second(whole as i64).unwrap_or_default())
}

/// Unix seconds of a Kubernetes time.
pub fn unix(time: &Time) -> Seconds {
    time.0.as_second() as Seconds
}

/// The age of the evidence: the oldest verified word that counts.
fn oldest_evidence(targets: &[Target]) -> Option<Time> {
    targets
        .iter()
        .filter(|target| target.observation.standing == Standing::Fresh)
        .filter_map(|target| target.observation.as_of)
        .min_by(Seconds::total_cmp)
        .map(time)
}

/// The older of two times, as far as they are known.
fn older(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// What is wrong with the choice of clusters, if anything: the API server lets nothing of it pass,
/// but an object may be older than the CRD that is installed now.
fn cluster_set_error(clusters: &ClusterSet) -> Option<String> {
    clusters.choice().err()
}

/// That nobody is meant, in words.
fn nobody(clusters: &ClusterSet) -> &'static str {
    match clusters.selector {
        Some(_) => "the selector selects no cluster",
        None => "no cluster reports this package",
    }
}

/// Why there are not enough of the clusters that are meant, if there are not. `total` of them count.
fn too_few(meant: &ClusterSet, total: u64, excused: u64) -> Option<(Reason, String)> {
    match (total, excused) {
        (0, 0) => return Some((Reason::NoTargets, nobody(meant).to_owned())),
        // Then too few are observed.
        (0, _) => return None,
        _ => {}
    }
    let wanted = u64::try_from(meant.reporting.as_ref()?.min_clusters).unwrap_or(1).max(1);
    let besides = if excused > 0 { format!(" besides {excused} that are excused") } else { String::new() };
    let message =
        || format!("{} report this package{besides}, at least {wanted} are asked for", clusters(total));
    (total < wanted).then(|| (Reason::TooFewClusters, message()))
}

/// That nothing is known of any cluster yet.
fn unanswered(error: &str) -> Obstacle {
    let message = format!("the metrics backend has not answered yet: {error}");
    Obstacle { reason: Reason::BackendUnavailable, message, stalled: false }
}

/// `1 cluster` or `3 clusters`.
fn clusters(count: u64) -> String {
    if count == 1 { "1 cluster".to_owned() } else { format!("{count} clusters") }
}

/// The first names and how many there are besides: `a, b, c and 7 more`.
pub(crate) fn list(names: &[String]) -> String {
    list_by(names, String::clone)
}

/// The same of anything that has a name, without naming what is not shown.
fn list_by<T>(all: &[T], name: impl Fn(&T) -> String) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = all.iter().take(SHOWN).map(name).collect();
    let mut text = shown.join(", ");
    if all.len() > SHOWN {
        text.push_str(&format!(" and {} more", all.len() - SHOWN));
    }
    text
}

/// A revision as its 12 hex digits, if there is one.
fn digits(revision: Option<&str>) -> Option<String> {
    revision.map(Fingerprint::of).filter(|it| !it.is_none()).map(|it| it.to_string())
}

/// At most 256 characters of a text that comes from elsewhere.
fn shorten(text: &str) -> String {
    const MOST: usize = 256;
    match text.char_indices().nth(MOST).and_then(|(end, _)| text.get(..end)) {
        Some(beginning) => format!("{beginning}…"),
        None => text.to_owned(),
    }
}

/// How many fresh clusters have which revision applied and healthy.
fn revisions(targets: &[Target]) -> BTreeMap<Fingerprint, (u64, u64)> {
    let mut seen = BTreeMap::<Fingerprint, (u64, u64)>::new();
    for target in targets {
        let observation = &target.observation;
        if let (Standing::Fresh, Some(row)) = (observation.standing, &observation.row) {
            if !row.applied.is_none() {
                seen.entry(row.applied).or_default().0 += 1;
            }
            if !row.healthy.is_none() {
                seen.entry(row.healthy).or_default().1 += 1;
            }
        }
    }
    seen
}
