//! How far a revision has come in each stage of a trace, and what comes out at the end of it.
//!
//! ```text
//!   revision ──> stage 1 ──output──> stage 2 ──output──> the FleetPackage's own clusters
//!                  │                   │
//!                  └── its clusters say what they were told to run (the input is looked for there)
//!                      and what they have applied (the output)
//! ```
//!
//! Where an artifact comes from is a fact about content: once it was seen it stays known, whatever runs
//! in the stage later. How the stage stands is always said of now.

use std::collections::BTreeSet;
use std::sync::Arc;

use statusbridge_api::Reason;
use statusbridge_api::trace::{Output, StageBefore, StageCounts, StageStatus, TraceStage};
use statusbridge_contract::{ApplyState, Fingerprint};

use super::classify::{PackageState, for_package, unobserved};
use super::words::{named, phrase};
use super::{
    Membership, Moment, Obstacle, Target, list_by, nobody, oldest_evidence, shorten, time, unanswered,
};
use crate::fleet::observation::Row;
use crate::time::Seconds;

/// A stage, and what is known of its clusters.
#[derive(Debug, Clone)]
pub struct Stage<'a> {
    /// As the spec has it.
    pub spec: &'a TraceStage,
    /// Its clusters.
    pub targets: Arc<[Target]>,
    /// Whether they are all that are meant.
    pub membership: Membership,
    /// Why nothing is known of them yet, if the metrics backend has never answered.
    pub unanswered: Option<String>,
}

/// Where a trace leads.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// How far the revision has come in each stage.
    pub stages: Vec<StageStatus>,
    /// What comes out at the end, or why that is not known.
    pub artifact: Result<Fingerprint, String>,
}

impl Trace {
    /// The trace of a revision that goes through no stages.
    pub fn none(revision: &str) -> Self {
        Self { stages: Vec::new(), artifact: Ok(Fingerprint::of(revision)) }
    }
}

/// Follows a revision through the stages. `previous` is what was found out before.
pub fn follow(
    stages: &[Stage<'_>],
    revision: &str,
    previous: &[StageStatus],
    stale_after: Seconds,
    moment: Moment,
) -> Trace {
    let mut found = Vec::with_capacity(stages.len());
    let mut carried: Result<Fingerprint, String> = Ok(Fingerprint::of(revision));
    for stage in stages {
        let own = stage.spec.revision.as_deref().map(Fingerprint::of);
        let input = own.map_or_else(|| carried.clone(), Ok);
        let known = Known::of(stage.spec, revision, input.as_ref().ok().copied(), previous);
        let (status, output) = match &input {
            Ok(input) => arrive(stage, *input, known, stale_after, moment),
            Err(why) => (known.status(Reason::ArtifactUnknown, why), None),
        };
        if own.is_none() && carried.is_ok() {
            let why = || format!("stage {}: {}", stage.spec.stage, status.message);
            carried = output.ok_or_else(why);
        }
        found.push(status);
    }
    Trace { stages: found, artifact: carried }
}

/// Whether the revision was healthy in the stage, and nothing speaks against it now.
pub fn holds(stage: &StageStatus) -> bool {
    let fine = [Reason::Healthy.name(), Reason::Superseded.name()];
    stage.healthy_at.is_some() && fine.contains(&stage.state.as_str())
}

/// What is wrong with the stages of a spec, if anything.
///
/// # Errors
/// In words for a status.
pub fn check(stages: &[TraceStage]) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for stage in stages {
        if !names.insert(&stage.stage) {
            return Err(format!("trace: there are two stages {:?}", stage.stage));
        }
        stage.clusters().choice().map_err(|error| format!("trace: stage {:?}: {error}", stage.stage))?;
        if stage.revision.is_some() && stage.output == Output::Built {
            return Err(format!(
                "trace: stage {:?} has a revision of its own and builds another",
                stage.stage
            ));
        }
    }
    Ok(())
}

/// What was known of a stage before, as far as it may be built upon.
struct Known(StageStatus);

impl Known {
    fn of(spec: &TraceStage, revision: &str, input: Option<Fingerprint>, previous: &[StageStatus]) -> Self {
        let description = describe(spec);
        let shown = input.map(|input| input.to_string());
        let before = previous.iter().find(|it| it.stage == spec.stage);
        let mut status = StageStatus {
            stage: spec.stage.clone(),
            revision: revision.to_owned(),
            description,
            input: shown,
            ..StageStatus::default()
        };
        let Some(before) = before else { return Self(status) };
        let same = before.description == status.description
            && Fingerprint::of(&before.revision) == Fingerprint::of(revision);
        // While the stage before has nothing to give, what this one had of the same revision stays.
        if same && (status.input.is_none() || status.input == before.input) {
            status = StageStatus { revision: revision.to_owned(), ..before.clone() };
        } else {
            let done = match (&before.input, &before.healthy_at) {
                (Some(input), Some(healthy_at)) => Some(StageBefore {
                    revision: before.revision.clone(),
                    description: before.description.clone(),
                    input: input.clone(),
                    output: before.output.clone(),
                    healthy_at: healthy_at.clone(),
                }),
                _ => None,
            };
            // Who rolls back asks for what was there already, which the clusters of the stage may have left.
            let again = before.before.clone().filter(|it| {
                Fingerprint::of(&it.revision) == Fingerprint::of(revision)
                    && it.description == status.description
                    && status.input.as_ref() == Some(&it.input)
            });
            status.before = match again {
                Some(again) => {
                    (status.output, status.healthy_at) = (again.output, Some(again.healthy_at));
                    done
                }
                None => done.or_else(|| before.before.clone()),
            };
        }
        Self(status)
    }

    /// The same, with why nothing can be counted now.
    fn status(self, state: Reason, message: &str) -> StageStatus {
        StageStatus {
            state: state.name().to_owned(),
            message: shorten(message),
            outdated: self.0.clusters.total > 0,
            ..self.0
        }
    }

    fn output(&self) -> Option<Fingerprint> {
        self.0.output.as_deref().map(Fingerprint::of)
    }
}

/// Stands for all that the spec says of a stage but its name.
fn describe(spec: &TraceStage) -> String {
    let nameless = TraceStage { stage: String::new(), ..spec.clone() };
    // Plain data, which can always be written.
    Fingerprint::of(&serde_json::to_string(&nameless).unwrap_or_default()).to_string()
}

/// How the stage stands with what has to come in, and what comes out.
fn arrive(
    stage: &Stage<'_>,
    input: Fingerprint,
    mut known: Known,
    stale_after: Seconds,
    moment: Moment,
) -> (StageStatus, Option<Fingerprint>) {
    let passed_on = match stage.spec.output {
        Output::Same => Some(input),
        Output::Built => known.output(),
    };
    let shown = |output: Option<Fingerprint>| match stage.spec.revision {
        Some(_) => None,
        None => output.map(|output| output.to_string()),
    };
    known.0.output = shown(passed_on);
    if let Some(Obstacle { reason, message, .. }) = stage.membership.obstacle() {
        return (known.status(reason, &message), passed_on);
    }
    if let Some(error) = &stage.unanswered {
        return (known.status(Reason::BackendUnavailable, &unanswered(error).message), passed_on);
    }
    if stage.targets.is_empty() {
        return (known.status(Reason::NoTargets, nobody(&stage.spec.clusters())), passed_on);
    }

    let was_healthy = known.0.healthy_at.is_some();
    let seen: Vec<(Result<PackageState, Reason>, &Target)> = stage
        .targets
        .iter()
        .map(|target| {
            (unobserved(&target.observation).map(|row| state(row, input, stage.spec.output)), target)
        })
        .collect();
    let counts = count(&seen);
    let mut standings: Vec<(Reason, &Target)> = seen
        .iter()
        .map(|(state, target)| match state {
            Err(reason) => (*reason, *target),
            Ok(state) if state.reason == Reason::NotUpdated && was_healthy => (Reason::Superseded, *target),
            Ok(state) => (state.reason, *target),
        })
        .collect();
    standings.sort_by(|a, b| (a.0, &a.1.cluster).cmp(&(b.0, &b.1.cluster)));

    let mut healthy = counts.healthy == counts.total;
    let mut standing = standings.first().map_or((Reason::Healthy, String::new()), |(worst, _)| {
        let with: Vec<&Target> =
            standings.iter().filter(|(it, _)| it == worst).map(|(_, target)| *target).collect();
        let message = match worst {
            Reason::Healthy => format!("{} of {} healthy at it", counts.healthy, counts.total),
            _ => {
                format!("{}: {}", phrase(*worst, with.len() as u64), list_by(&with, |it| named(*worst, it)))
            }
        };
        (*worst, message)
    });
    let (mut arrived, mut applied) = (counts.arrived == counts.total, counts.applied == counts.total);
    if let Some(doubt) = stage.membership.doubt()
        && stage.membership.forbids(was_healthy, moment, stale_after)
    {
        // There may be clusters that it has not come to.
        (arrived, applied, healthy) = (false, false, false);
        if matches!(standing.0, Reason::Healthy | Reason::Superseded) {
            standing = (Reason::ClusterProfilesUnavailable, doubt);
        }
    }
    let mut status = known.0;
    let mut output = passed_on;
    if healthy {
        match made(stage, input, &status) {
            Ok(made) => output = Some(made),
            Err(why) => {
                healthy = false;
                standing = (Reason::ArtifactUnknown, why);
            }
        }
    }
    let reach = |at: &mut Option<_>, reached: bool| {
        if reached && at.is_none() {
            *at = Some(time(moment.now));
        }
    };
    reach(&mut status.arrived_at, arrived);
    reach(&mut status.applied_at, applied);
    reach(&mut status.healthy_at, healthy);
    let (state, message) = standing;
    let status = StageStatus {
        state: state.name().to_owned(),
        message: shorten(&message),
        output: shown(output),
        as_of: oldest_evidence(&stage.targets),
        outdated: false,
        clusters: counts,
        ..status
    };
    (status, output)
}

/// What one cluster of a stage counts as.
fn state(row: &Row, input: Fingerprint, output: Output) -> PackageState {
    let own = if row.desired.is_none() { row.applied } else { row.desired };
    if own != input {
        // How it fares with another revision says nothing of this one.
        return PackageState {
            reason: Reason::NotUpdated,
            updated: false,
            applied: false,
            healthy: false,
            failed: false,
        };
    }
    match output {
        Output::Same => for_package(row, Some(input)),
        Output::Built => {
            // What has come in is compared; what is made of it may be anything, but must be there.
            let made = row.apply == ApplyState::Applied && !row.applied.is_none();
            let as_input = |revision: Fingerprint| match made && !revision.is_none() {
                true if revision == row.applied => row.desired,
                _ => Fingerprint::NONE,
            };
            let row = Row { applied: as_input(row.applied), healthy: as_input(row.healthy), ..row.clone() };
            for_package(&row, Some(input))
        }
    }
}

fn count(seen: &[(Result<PackageState, Reason>, &Target)]) -> StageCounts {
    let mut counts = StageCounts { total: seen.len() as u64, ..StageCounts::default() };
    for (state, _) in seen {
        match state {
            Err(_) => counts.unobserved += 1,
            Ok(state) => {
                counts.arrived += u64::from(state.updated);
                counts.applied += u64::from(state.applied);
                counts.healthy += u64::from(state.reason == Reason::Healthy);
            }
        }
    }
    counts
}

/// What comes out of a stage that is healthy in all of its clusters.
///
/// # Errors
/// Why that cannot be told, in words.
fn made(stage: &Stage<'_>, input: Fingerprint, known: &StageStatus) -> Result<Fingerprint, String> {
    if stage.spec.output == Output::Same {
        return Ok(input);
    }
    let rows = stage.targets.iter().filter_map(|target| target.observation.row.as_ref());
    let made: BTreeSet<Fingerprint> = rows.map(|row| row.applied).collect();
    let mut made = made.into_iter();
    match (made.next(), made.next()) {
        (Some(output), None) => {
            // A builder that has not begun yet shows what it made last, and may call that healthy.
            let shown = output.to_string();
            let of_another = known
                .before
                .as_ref()
                .filter(|before| before.output.as_ref() == Some(&shown) && before.input != input.to_string());
            match of_another {
                Some(before) => Err(format!(
                    "it shows {shown}, which was made of revision {}; whether this one comes to the same cannot be told",
                    shorten(&before.revision)
                )),
                None => Ok(output),
            }
        }
        (Some(one), Some(other)) => {
            Err(format!("its clusters make different artifacts of it, such as {one} and {other}"))
        }
        (None, _) => Err("nothing was made of it".to_owned()),
    }
}
