//! What is printed, as data.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_with::skip_serializing_none;
use statusbridge_api::PackageRef;
use statusbridge_contract::Fingerprint;
use statusbridge_core::time::Seconds;

use super::fold::{self, Outcome, Story, Trigger};

/// The history of a package.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// The package.
    pub(super) package: PackageRef,
    /// The FleetPackage that was asked for, as namespace/name.
    pub(super) fleet_package: Option<String>,
    /// Beginning of the time range.
    pub(super) from: Timestamp,
    /// Its end.
    pub(super) to: Timestamp,
    /// Every cluster once for each exporter that tells of it, by name, its own exporter first.
    pub(super) clusters: Vec<Cluster>,
    /// What could not be told.
    pub(super) notes: Vec<String>,
}

/// The package in one cluster, as one exporter tells.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cluster {
    /// Its name.
    pub(super) cluster_name: String,
    /// The cluster whose exporter tells; left out: its own, or none does.
    pub(super) reported_by: Option<String>,
    /// The package as it was last seen; left out: it was not there at last, or never.
    pub(super) now: Option<Now>,
    /// Since when it is not there.
    pub(super) gone: Option<Moment>,
    /// Time of the last sample; left out: there is none.
    pub(super) last_seen_at: Option<Timestamp>,
    /// Time of the first sample where that is later than the beginning of the time range: what the package was before
    /// is not known.
    pub(super) unknown_until: Option<Timestamp>,
    /// Time of the last sample where that is earlier than the end of the time range: what became of the package since
    /// is not known.
    pub(super) unknown_since: Option<Timestamp>,
    /// Oldest first.
    pub(super) operations: Vec<Operation>,
    /// What happened and was not seen, oldest first.
    pub(super) unseen: Vec<Gap>,
    /// Operations and gaps that are left out, being the oldest.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) left_out: usize,
    /// Scrapes of which something was missing or made no sense.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) unusable_scrapes: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A state.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Now {
    /// How far applying has come.
    pub(super) apply_state: &'static str,
    /// Whether what was applied works.
    pub(super) health: &'static str,
    /// What the cluster was told to run.
    pub(super) desired_revision: Option<String>,
    /// What is applied in full and works.
    pub(super) healthy_revision: Option<String>,
    /// Since when.
    pub(super) since: Option<Timestamp>,
}

/// When something happened, in whole seconds.
pub(super) type Moment = fold::Moment<Timestamp>;

/// One thing that a cluster did about the package.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Operation {
    /// The revision in somebody's words, where the FleetPackage has them.
    pub(super) revision: Option<String>,
    /// The same as 12 hex digits; left out: the cluster did not say.
    pub(super) fingerprint: Option<String>,
    /// Why it began.
    pub(super) trigger: Trigger,
    /// When it began; left out: before the time range.
    pub(super) started: Option<Moment>,
    /// When the revision was first applied in full.
    pub(super) applied: Option<Moment>,
    /// When it was first healthy.
    pub(super) healthy: Option<Moment>,
    /// When it first failed.
    pub(super) failed: Option<Moment>,
    /// Why it failed last.
    pub(super) reason: Option<String>,
    /// How it stands, or ended.
    pub(super) outcome: Outcome,
    /// When it ended; left out: it goes on.
    pub(super) ended: Option<Moment>,
    /// From its beginning until it was healthy, failed, superseded or gone, in seconds: at most that much,
    /// where times are not exact. Left out: nobody knows, or it goes on.
    pub(super) duration_seconds: Option<u64>,
    /// Whether that may be less.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) duration_at_most: bool,
    /// Whether the outcome was held against the exporter's digest.
    pub(super) verified: Verified,
    /// What was seen, in order.
    pub(super) transitions: Vec<Transition>,
    /// Transitions that are left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) more_transitions: usize,
}

/// Whether an outcome was held against the exporter's digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Verified {
    /// A whole exposition that adds up says so.
    Yes,
    /// None does.
    No(String),
    /// It was not tried.
    NotTried,
}

/// A change that two samples in a row show: from `after` on the package moved at least once, and since `at` it was this.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Transition {
    /// When.
    #[serde(flatten)]
    pub(super) moment: Moment,
    /// Apply state from then on.
    pub(super) apply_state: &'static str,
    /// Health from then on.
    pub(super) health: &'static str,
    /// Revision that the cluster was told to run, as 12 hex digits; left out: none.
    pub(super) desired_fingerprint: Option<String>,
    /// The one last applied in full.
    pub(super) applied_fingerprint: Option<String>,
    /// The one that is applied in full and works.
    pub(super) healthy_fingerprint: Option<String>,
    /// The reason.
    pub(super) reason: Option<String>,
}

/// A time in which the package moved, or may have moved, in whole seconds.
pub(super) type Gap = fold::Gap<Timestamp>;

/// Words for numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Words {
    /// Revisions by fingerprint.
    pub(super) revisions: BTreeMap<Fingerprint, String>,
    /// Reasons by code.
    pub(super) reasons: BTreeMap<u64, String>,
}

impl Words {
    fn reason(&self, code: u64) -> Option<String> {
        let known = || self.reasons.get(&code).cloned().unwrap_or_else(|| format!("code {code:#x}"));
        (code != 0).then(known)
    }

    fn revision(&self, fingerprint: Fingerprint) -> Option<String> {
        digits(fingerprint).map(|digits| self.revisions.get(&fingerprint).cloned().unwrap_or(digits))
    }
}

/// A time in whole seconds.
pub(super) fn time(at: Seconds) -> Timestamp {
    Timestamp::from_second(at.round() as i64).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl From<fold::Moment> for Moment {
    fn from(fold::Moment { at, exact, after }: fold::Moment) -> Self {
        let after = after.map(|after| time(after.floor()));
        Self { at: time(if exact { at } else { at.ceil() }), exact, after }
    }
}

fn digits(fingerprint: Fingerprint) -> Option<String> {
    (!fingerprint.is_none()).then(|| fingerprint.to_string())
}

impl Cluster {
    /// Of a cluster of which nothing is known.
    pub(super) fn unknown(cluster_name: String) -> Self {
        Self { cluster_name, ..Self::default() }
    }

    /// Of a cluster that has a story; `verified` has an entry for each operation.
    pub(super) fn new(cluster_name: String, story: &Story, verified: Vec<Verified>, words: &Words) -> Self {
        let operations = story.operations.iter().zip(verified);
        let now = story.now.map(|state| Now {
            apply_state: state.apply.name(),
            health: state.health.name(),
            desired_revision: words.revision(state.desired),
            healthy_revision: words.revision(state.healthy),
            since: (state.since > 0).then(|| time(state.since as Seconds + story.offset)),
        });
        let gaps = story.gaps.iter().map(|gap| {
            let (after, before) = (time(gap.after.floor()), time(gap.before.ceil()));
            Gap { after, before, because: gap.because }
        });
        Self {
            now,
            gone: story.gone.map(Moment::from),
            last_seen_at: story.seen.map(|(_, last)| time(last)),
            operations: operations.map(|(op, verified)| Operation::new(op, verified, words)).collect(),
            unseen: gaps.collect(),
            left_out: story.left_out,
            ..Self::unknown(cluster_name)
        }
    }
}

impl Operation {
    fn new(operation: &fold::Operation, verified: Verified, words: &Words) -> Self {
        let done = match operation.outcome {
            Outcome::Healthy => operation.healthy,
            Outcome::Failed => operation.failed.map(|(moment, _)| moment),
            Outcome::Applied => operation.applied,
            Outcome::Superseded | Outcome::Gone => operation.ended,
            Outcome::InProgress => None,
        };
        let duration = operation.started.zip(done).and_then(|(started, done)| {
            let exact = started.exact && done.exact;
            Some(((done.at - started.not_before()?).max(0.0).ceil() as u64, exact))
        });
        let transitions = operation.transitions.iter().map(|transition| Transition {
            moment: transition.moment.into(),
            apply_state: transition.state.apply.name(),
            health: transition.state.health.name(),
            desired_fingerprint: digits(transition.state.desired),
            applied_fingerprint: digits(transition.state.applied),
            healthy_fingerprint: digits(transition.state.healthy),
            reason: words.reason(transition.state.reason),
        });
        Self {
            revision: words.revisions.get(&operation.revision).cloned(),
            fingerprint: digits(operation.revision),
            trigger: operation.trigger,
            started: operation.started.map(Moment::from),
            applied: operation.applied.map(Moment::from),
            healthy: operation.healthy.map(Moment::from),
            failed: operation.failed.map(|(moment, _)| moment.into()),
            reason: operation.failed.and_then(|(_, code)| words.reason(code)),
            outcome: operation.outcome,
            ended: operation.ended.map(Moment::from),
            duration_seconds: duration.map(|(seconds, _)| seconds),
            duration_at_most: duration.is_some_and(|(_, exact)| !exact),
            verified,
            transitions: transitions.collect(),
            more_transitions: operation.more_transitions,
        }
    }
}
