//! The status of a RolloutGate.

mod asked;
mod checks;
mod input;
mod members;
mod own_terms;
mod until;
mod waiting;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use statusbridge_api::check::CheckStatus;
use statusbridge_api::conditions::{OPEN, OPENED_ONCE, READY, RECONCILING, STALLED, find};
use statusbridge_api::rollout_gate::{
    Approved, GateCounts, GateTerms, Members, Override, OverrideState, Require, Waiting,
};
use statusbridge_api::window::Approval;
use statusbridge_api::{FleetPackageSpec, Reason, RolloutGateSpec, RolloutGateStatus, common};
use statusbridge_contract::{Fingerprint, wanted};

use super::classify::{Demand, for_gate, is_under_way, unobserved};
use super::conditions::Conditions;
use super::excused::least_observed;
use super::hold::{self, Hold};
use super::{
    Backend, Moment, Target, cluster_set_error, clusters, digits, older, oldest_evidence, shorten, time,
    too_few, trace, transition, unanswered, unix,
};
use crate::time::Seconds;

pub use asked::{Asked, NoQuery};
pub use input::{Input, PackageSpec};
use members::Fixing;
pub use members::kept_members;
pub(crate) use until::holds_until;
use waiting::entry;

/// Evidence may seem to come from so far in the future when a leader's clock is compared with that of the
/// one before. What is further ahead tells of a clock that was set, and nothing of its age.
const CLOCKS_APART: Seconds = 30.0;

/// What the clusters come to, before anybody's word.
struct Finding {
    counts: Option<GateCounts>,
    /// Empty: the gate is open.
    waiting: Vec<Waiting>,
    /// The members that are fixed now.
    fixed: Option<Members>,
    /// Nobody but a person can change it.
    stalled: bool,
    checks: Vec<CheckStatus>,
    /// The time of the oldest answer to a check that was used.
    oldest_answer: Option<Seconds>,
}

/// Numbers and times of a spec, checked.
struct Terms<'a> {
    demand: Demand,
    need: u64,
    budget: u64,
    /// How many of all targets must be observed and not excused.
    least_observed: u64,
    /// Whether the time to reach the revision is over.
    late: bool,
    stale_after: Seconds,
    checks: Vec<checks::Terms<'a>>,
}

/// What the clusters and the other gates come to, before any check.
struct Survey<'a> {
    states: Vec<(Reason, &'a Target)>,
    counts: GateCounts,
    waiting: Vec<Waiting>,
    /// The members that are fixed now.
    fixed: Option<Members>,
}

/// The status that follows.
pub fn decide(input: &Input<'_>) -> RolloutGateStatus {
    let spec = match input.spec {
        Ok(spec) => spec,
        Err(error) => return write_up(input, None, None, nothing(Reason::InvalidSpec, error, true)),
    };
    let hold = own_terms::hold(input, spec);
    let is_held = hold.as_ref().is_ok_and(|hold| !hold.waiting.is_empty());
    if let Some(previous) = input.previous
        && (input.membership.is_unread(input.backend)
            || (input.excused.is_unread() && !previous.excused.is_empty()))
        && !is_held
        && keeps_for_now(input, spec, previous)
    {
        return previous.clone();
    }
    let (hold, mut finding) = match hold {
        Ok(hold) => (Some(hold), find_out(input, spec)),
        Err(error) => (None, nothing(Reason::InvalidSpec, &error, true)),
    };
    // Whatever else is the matter, a cycle lasts until a person breaks it.
    if let (None, Some((reason, message))) = (finding.counts, input.dependencies.circular()) {
        finding.waiting.insert(usize::from(finding.stalled), whole(reason, message));
        finding.stalled = true;
    }
    write_up(input, Some(spec), hold, finding)
}

/// After a restart, until everything has been read once: a gate that is open stays so while the evidence
/// that opened it would still count.
fn keeps_for_now(input: &Input<'_>, spec: &RolloutGateSpec, previous: &RolloutGateStatus) -> bool {
    let PackageSpec::Found(package) = input.package else { return false };
    is_open_by_young_evidence(input.generation, spec, package, previous, input.moment)
        && input.dependencies.are_met()
        && input.excused.may_stand(
            &previous.excused,
            previous.clusters.map_or(0, |counts| counts.excused),
            input.moment.now,
        )
}

/// Whether a gate is open for this generation of its spec because its clusters, and no person, said so, and what they said is
/// young enough to count.
pub(crate) fn is_open_by_young_evidence(
    generation: i64,
    spec: &RolloutGateSpec,
    package: &FleetPackageSpec,
    status: &RolloutGateStatus,
    moment: Moment,
) -> bool {
    let Ok(stale_after) = common::seconds(&package.stale_after) else { return false };
    let age = status.as_of.as_ref().map(|as_of| moment.t - unix(as_of));
    status.is_open_now(generation)
        && spec.override_.is_none()
        && package.managed_by.is_none()
        && age.is_some_and(|age| (-CLOCKS_APART..=stale_after).contains(&age))
}

/// Whether the gate is open now, for this generation.
fn was_open(input: &Input<'_>) -> bool {
    input.previous.is_some_and(|previous| previous.is_open_now(input.generation))
}

fn find_out(input: &Input<'_>, spec: &RolloutGateSpec) -> Finding {
    let package = match input.package {
        PackageSpec::Found(package) => package,
        PackageSpec::NotFound => {
            let message =
                format!("there is no FleetPackage {:?} in this namespace", spec.fleet_package_ref.name);
            return nothing(Reason::FleetPackageNotFound, &message, false);
        }
        PackageSpec::Unreadable(error) => {
            let message = format!("FleetPackage {:?}: {error}", spec.fleet_package_ref.name);
            return nothing(Reason::InvalidSpec, &message, true);
        }
    };
    if let Some(manager) = &package.managed_by {
        let message = format!("FleetPackage {:?} is filled by {manager}", spec.fleet_package_ref.name);
        return nothing(Reason::ExternallyManaged, &message, true);
    }
    if let Some(refusal) = checks::refusal(&spec.terms.checks, input.checks) {
        return nothing(Reason::Forbidden, &refusal, true);
    }
    let terms = terms(input, spec, package);
    match (terms, input.membership.obstacle(), input.backend) {
        (Err(error), ..) => nothing(Reason::InvalidSpec, &error, true),
        (Ok(_), Some(it), _) => nothing(it.reason, &it.message, it.stalled),
        (Ok(_), None, Backend::Unknown(error)) => {
            nothing(Reason::BackendUnavailable, &unanswered(error).message, false)
        }
        (Ok(terms), None, _) => judge(input, spec, &terms),
    }
}

/// The queries that have to be asked to judge a gate: those of one that is open or would be but for
/// its checks, once their windows have passed.
pub fn questions(input: &Input<'_>) -> Vec<String> {
    let (Ok(spec), PackageSpec::Found(package)) = (input.spec, input.package) else { return Vec::new() };
    if spec.terms.checks.is_empty() || package.managed_by.is_some() {
        return Vec::new();
    }
    let Ok(terms) = terms(input, spec, package) else { return Vec::new() };
    let survey = survey(input, spec, &terms);
    if survey.waiting.is_empty() { checks::due(input, &terms.checks, &survey.states) } else { Vec::new() }
}

/// What each cluster of a gate counts as; nobody where the gate cannot be judged.
pub(crate) fn each_cluster(input: &Input<'_>) -> Vec<(Reason, String)> {
    let (Ok(spec), PackageSpec::Found(package)) = (input.spec, input.package) else { return Vec::new() };
    let Ok(terms) = terms(input, spec, package) else { return Vec::new() };
    let states = survey(input, spec, &terms).states.into_iter();
    states.map(|(reason, target)| (reason, target.cluster.clone())).collect()
}

/// Where nothing can be said of the clusters, and why.
fn nothing(reason: Reason, message: &str, stalled: bool) -> Finding {
    Finding {
        counts: None,
        waiting: vec![whole(reason, shorten(message))],
        fixed: None,
        stalled,
        checks: Vec::new(),
        oldest_answer: None,
    }
}

/// An entry that concerns the gate as a whole.
fn whole(reason: Reason, message: String) -> Waiting {
    Waiting { reason: reason.name().to_owned(), message, count: 0, until: None, clusters: Vec::new() }
}

fn terms<'a>(
    input: &Input<'_>,
    spec: &'a RolloutGateSpec,
    package: &FleetPackageSpec,
) -> Result<Terms<'a>, String> {
    let total = input.targets.len() as u64;
    let stale_after = common::seconds(&package.stale_after).map_err(|error| error.to_string())?;
    if let Some(error) = cluster_set_error(&spec.clusters) {
        return Err(error);
    }
    wanted::fingerprint(&spec.revision).map_err(|error| error.to_string())?;
    let revision = input.artifact.unwrap_or(Fingerprint::NONE);
    let min_success = match &spec.terms.min_success_time {
        Some(text) => common::seconds(text).map_err(|error| error.to_string())?,
        None => 0.0,
    };
    let late = match &spec.terms.progress_deadline {
        Some(text) => {
            let longest = common::seconds(text).map_err(|error| error.to_string())?;
            input.moment.now - unix(&started_at(input, spec)) >= longest
        }
        None => false,
    };
    let (need, budget) = need_and_budget(&spec.terms, total)?;
    Ok(Terms {
        demand: Demand { revision, require: spec.terms.require, min_success },
        need,
        budget,
        least_observed: least_observed(package, total + input.excused.count())?,
        late,
        stale_after,
        checks: checks::terms(&spec.terms.checks, input.checks)?,
    })
}

/// How many of `total` clusters must count, and how many may have failed or be out of sight.
///
/// # Errors
/// When an amount cannot be read.
pub fn need_and_budget(terms: &GateTerms, total: u64) -> Result<(u64, u64), String> {
    let budget = match &terms.max_failures {
        Some(amount) => amount.of_rounded_down(total).map_err(|error| error.to_string())?,
        None => 0,
    };
    let need = match &terms.min_healthy {
        Some(amount) => amount.of_rounded_up(total).map_err(|error| error.to_string())?,
        None => total.saturating_sub(budget),
    };
    // Not even the most generous terms open a gate with nobody at its revision.
    Ok((need.max(1), budget))
}

/// When the gate was first judged for the spec's revision: the deadline counts from then.
fn started_at(input: &Input<'_>, spec: &RolloutGateSpec) -> Time {
    let wanted = Fingerprint::of(&spec.revision);
    let same = |status: &&RolloutGateStatus| {
        status.revision.as_ref().is_some_and(|revision| Fingerprint::of(revision) == wanted)
    };
    // A time to come is a clock that was wrong.
    let sane = |at: &Time| unix(at) <= input.moment.now;
    let known = input.previous.filter(same).and_then(|status| status.started_at.clone()).filter(sane);
    known.unwrap_or_else(|| time(input.moment.now))
}

fn judge(input: &Input<'_>, spec: &RolloutGateSpec, terms: &Terms<'_>) -> Finding {
    let Survey { states, counts, mut waiting, fixed } = survey(input, spec, terms);
    let (checks, oldest_answer) = if waiting.is_empty() {
        let outcome = checks::judge(input, &terms.checks, terms.stale_after, &states);
        waiting.extend(outcome.waiting.into_iter().map(|(reason, message, clusters)| Waiting {
            reason: reason.name().to_owned(),
            message,
            count: clusters.len() as u64,
            until: None,
            clusters: clusters.into_iter().take(waiting::MOST_CLUSTERS).collect(),
        }));
        (outcome.statuses, outcome.oldest)
    } else {
        (checks::not_yet(&terms.checks), None)
    };
    let is_invalid = waiting.iter().any(|entry| entry.reason == Reason::InvalidSpec.name());
    let stalled = counts.failed > terms.budget || input.dependencies.cycle.is_some() || is_invalid;
    Finding { counts: Some(counts), waiting, fixed, stalled, checks, oldest_answer }
}

fn survey<'a>(input: &Input<'a>, spec: &RolloutGateSpec, terms: &Terms<'_>) -> Survey<'a> {
    let state = |target: &'a Target| {
        let reason = for_gate(&target.observation, &terms.demand, input.moment.t);
        (if terms.late && is_under_way(reason) { Reason::TimeOut } else { reason }, target)
    };
    let states: Vec<(Reason, &Target)> = input.targets.iter().map(state).collect();
    let counts = GateCounts { excused: input.excused.count(), ..count(&states, &terms.demand) };
    let unobserved = counts.stale + counts.missing + counts.unverified + counts.conflicting;
    let over_budget = counts.failed + unobserved > terms.budget;
    let mut waiting = gate_level(input, spec, terms, counts.total);
    let fixing = members::fixing(input, spec);
    if let Fixing::Cannot(reason, message) = &fixing {
        waiting.push(whole(*reason, message.clone()));
    }
    // Where those out of sight are over the budget, they are named instead.
    let few = input.excused.too_few_observed(terms.least_observed, counts.total - unobserved, counts.total);
    waiting.extend(few.filter(|_| !over_budget).map(|(reason, message)| whole(reason, message)));
    let knows_what = input.artifact.is_ok();
    if knows_what && counts.total > 0 && (counts.healthy < terms.need || over_budget) {
        let entries = cluster_level(input, spec, terms, &states, over_budget);
        waiting.extend(entries);
        if waiting.is_empty() {
            let message =
                format!("minHealthy asks for {}, there are only {}", clusters(terms.need), counts.total);
            waiting.push(whole(Reason::TooFewClusters, message));
        }
    }
    let fixed = if let Fixing::Now(members) = fixing { Some(members) } else { None };
    if fixed.is_some() && waiting.is_empty() {
        // Once they stand in the hub, whoever judges next keeps to them.
        let message = "the clusters of the revision are fixed from now on, and are not written down yet";
        waiting.push(whole(Reason::Pending, message.to_owned()));
    }
    // What only a person can change comes before what may pass by itself.
    let lasting =
        [Reason::InvalidSpec, Reason::DependencyCycle, Reason::FailureBudgetExceeded].map(Reason::name);
    waiting.sort_by_key(|entry| !lasting.contains(&entry.reason.as_str()));
    Survey { states, counts, waiting, fixed }
}

fn gate_level(input: &Input<'_>, spec: &RolloutGateSpec, terms: &Terms<'_>, total: u64) -> Vec<Waiting> {
    let mut waiting = Vec::new();
    // What is open may stay open on evidence that is young enough; nothing opens.
    if let (Some(error), false) = (input.backend.error(), was_open(input)) {
        let message = format!("the metrics backend does not answer: {}", shorten(error));
        waiting.push(whole(Reason::BackendUnavailable, message));
    }
    if let Some(doubt) = input.membership.doubt()
        && input.membership.forbids(
            was_open(input) && !members::are_missing(input, spec),
            input.moment,
            terms.stale_after,
        )
    {
        waiting.push(whole(Reason::ClusterProfilesUnavailable, doubt));
    }
    let few = too_few(&spec.clusters, total, input.excused.count());
    let others = input.dependencies.waiting();
    waiting.extend(few.into_iter().chain(others).map(|(reason, message)| whole(reason, message)));
    waiting.extend(traced(input, spec));
    waiting
}

/// What the trace keeps the gate closed for.
fn traced(input: &Input<'_>, spec: &RolloutGateSpec) -> Vec<Waiting> {
    let mut waiting = Vec::new();
    if let Some(name) = &spec.terms.require_stage {
        match input.stages.iter().find(|stage| stage.stage == *name) {
            None => {
                let message = format!("the FleetPackage's trace has no stage {name:?}");
                waiting.push(whole(Reason::StageNotFound, message));
            }
            Some(stage) if !trace::holds(stage) => {
                let message = format!("stage {name}: {}", stage.message);
                waiting.push(whole(Reason::StageNotHealthy, shorten(&message)));
            }
            Some(_) => {}
        }
    }
    if let Err(why) = input.artifact {
        waiting.push(whole(Reason::ArtifactUnknown, shorten(why)));
    }
    waiting
}

/// Time of the evidence for the stage that is required.
fn stage_evidence(input: &Input<'_>, spec: Option<&RolloutGateSpec>) -> Option<Time> {
    let name = spec?.terms.require_stage.as_ref()?;
    input.stages.iter().find(|stage| stage.stage == *name)?.evidence()
}

fn count(states: &[(Reason, &Target)], demand: &Demand) -> GateCounts {
    let mut counts = GateCounts { total: states.len() as u64, ..GateCounts::default() };
    for (reason, target) in states {
        if let Ok(row) = unobserved(&target.observation) {
            let own = if row.desired.is_none() { row.applied } else { row.desired };
            counts.updated += u64::from(own == demand.revision);
            counts.applied += u64::from(row.applied == demand.revision);
        }
        match reason {
            Reason::Healthy => counts.healthy += 1,
            Reason::Failed => counts.failed += 1,
            Reason::TimeOut => {
                counts.timed_out += 1;
                counts.failed += 1;
            }
            Reason::Superseded => counts.superseded += 1,
            Reason::Stale | Reason::ClockSkew => counts.stale += 1,
            Reason::Missing => counts.missing += 1,
            Reason::Unverified => counts.unverified += 1,
            Reason::Conflict => counts.conflicting += 1,
            Reason::Soaking => {
                counts.soaking += 1;
                counts.progressing += 1;
            }
            _ => counts.progressing += 1,
        }
    }
    counts
}

/// Whether nothing can be told of such a cluster.
pub(crate) const fn is_out_of_sight(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Stale | Reason::ClockSkew | Reason::Missing | Reason::Unverified | Reason::Conflict
    )
}

/// Failures and clusters out of sight: what the budget is for.
pub(crate) fn is_fault(reason: Reason) -> bool {
    let has_failed = [Reason::FailureBudgetExceeded, Reason::Failed, Reason::TimeOut].contains(&reason);
    has_failed || is_out_of_sight(reason)
}

/// One entry for each state that keeps the gate closed, most important first: what is over the
/// budget, then what is on the way, then what the budget covers.
fn cluster_level(
    input: &Input<'_>,
    spec: &RolloutGateSpec,
    terms: &Terms<'_>,
    states: &[(Reason, &Target)],
    over_budget: bool,
) -> Vec<Waiting> {
    let has_failed = |reason: &Reason| matches!(reason, Reason::Failed | Reason::TimeOut);
    let failed = states.iter().filter(|(reason, _)| has_failed(reason)).count() as u64;
    let mut groups: Vec<(Reason, Vec<(Reason, &Target)>)> = Vec::new();
    for (reason, target) in states.iter().filter(|(reason, _)| *reason != Reason::Healthy) {
        let together = failed > terms.budget && has_failed(reason);
        let group = if together { Reason::FailureBudgetExceeded } else { *reason };
        match groups.iter_mut().find(|(other, _)| *other == group) {
            Some((_, members)) => members.push((*reason, target)),
            None => groups.push((group, vec![(*reason, target)])),
        }
    }
    groups.sort_by_key(|(reason, _)| (is_fault(*reason) != over_budget, *reason));
    groups.iter().map(|(reason, group)| entry(input, spec, terms, *reason, group)).collect()
}

/// The override that holds now.
fn in_force(spec: Option<&RolloutGateSpec>, moment: Moment) -> Option<&Override> {
    spec?.override_.as_ref().filter(|word| holds(word, moment.now))
}

/// Whether an override has not ended yet.
pub fn holds(word: &Override, now: Seconds) -> bool {
    word.until.as_ref().is_none_or(|until| now < unix(until))
}

fn write_up(
    input: &Input<'_>,
    spec: Option<&RolloutGateSpec>,
    hold: Option<Hold>,
    finding: Finding,
) -> RolloutGateStatus {
    let Finding { counts, mut waiting, fixed, mut stalled, checks, oldest_answer } = finding;
    let (members, newcomers) = members::standing(input, fixed);
    let open_until = hold.as_ref().and_then(|hold| hold.open_until);
    hold::insert(&mut waiting, hold.map(|hold| hold.waiting).unwrap_or_default());
    let word = in_force(spec, input.moment);
    let (open, reason, message) = match word {
        Some(word) => {
            stalled = false;
            let until = word.until.as_ref().map(|until| format!(" (until {})", until.0)).unwrap_or_default();
            match word.state {
                OverrideState::Open => {
                    let else_closed = waiting
                        .first()
                        .map(|first| format!("; otherwise closed: {}", first.message))
                        .unwrap_or_default();
                    waiting.clear();
                    (true, Reason::Overridden, format!("opened by hand: {}{until}{else_closed}", word.reason))
                }
                OverrideState::Closed => {
                    let message = format!("closed by hand: {}{until}", word.reason);
                    waiting.insert(0, whole(Reason::Overridden, message.clone()));
                    (false, Reason::Overridden, message)
                }
            }
        }
        None => match waiting.first() {
            Some(first) => {
                let reason = Reason::ALL.iter().copied().find(|reason| reason.name() == first.reason);
                (false, reason.unwrap_or(Reason::Progressing), first.message.clone())
            }
            None => {
                let (open, reason, message) = satisfied(spec, counts.as_ref());
                let joined = newcomers.as_ref().map(members::words);
                let besides = [input.excused.words(), joined, input.membership.doubt()].into_iter().flatten();
                (open, reason, besides.fold(message, |message, more| format!("{message}; {more}")))
            }
        },
    };
    let previous = input.previous.cloned().unwrap_or_default();
    let conditions = conditions(input, &previous, open, stalled, reason, message);
    // A spec that cannot be read says nothing about the revision.
    let (revision, started_at) = match spec {
        Some(spec) => (Some(spec.revision.clone()), Some(started_at(input, spec))),
        None => (previous.revision, previous.started_at),
    };
    let evidence = older(oldest_evidence(input.targets), stage_evidence(input, spec));
    let status = RolloutGateStatus {
        observed_generation: Some(input.generation),
        as_of: evidence.map(|at| oldest_answer.map(time).map_or(at.clone(), |answer| answer.min(at))),
        epoch: None,
        started_at,
        since: find(&conditions, OPEN).map(|open| open.last_transition_time.clone()),
        open_until: open_until.filter(|_| open && word.is_none()).map(time),
        approved_by: approved_by(input, spec),
        fingerprint: digits(revision.as_deref()),
        verdict_since: None,
        outcome_since: None,
        revision,
        healthy: counts.map(|counts| format!("{}/{}", counts.healthy, counts.total)),
        clusters: counts,
        excused: counts.map(|_| input.excused.list()).unwrap_or_default(),
        members,
        newcomers,
        waiting_for: waiting,
        checks,
        tenancy: None,
        conditions,
    };
    transition::dated(status, input.previous, input.moment.now)
}

/// The approval that counts, where one is asked for.
fn approved_by(input: &Input<'_>, spec: Option<&RolloutGateSpec>) -> Option<Approved> {
    spec.filter(|spec| spec.terms.approval == Approval::Required)?;
    input.approvals.valid.cloned()
}

fn satisfied(spec: Option<&RolloutGateSpec>, counts: Option<&GateCounts>) -> (bool, Reason, String) {
    // Without a spec or without counts there is always something that the gate waits for.
    let (Some(spec), Some(counts)) = (spec, counts) else {
        return (false, Reason::InvalidSpec, "nothing to judge".to_owned());
    };
    let (reason, word) = match spec.terms.require {
        Require::Healthy => (Reason::Healthy, "healthy at the revision"),
        Require::Applied => (Reason::Applied, "at the revision"),
    };
    (true, reason, format!("{} of {} {word}", counts.healthy, clusters(counts.total)))
}

fn conditions(
    input: &Input<'_>,
    previous: &RolloutGateStatus,
    open: bool,
    stalled: bool,
    reason: Reason,
    message: String,
) -> Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    let mut conditions = Conditions::new(input.generation, input.moment, &previous.conditions);
    conditions.set(READY, open, reason, message.clone());
    conditions.set(OPEN, open, reason, message.clone());
    let latched = find(&previous.conditions, OPENED_ONCE).filter(|opened_once| {
        opened_once.status == "True" && opened_once.observed_generation == Some(input.generation)
    });
    match latched {
        Some(opened_once) => conditions.keep(opened_once.clone()),
        None if open => conditions.set(OPENED_ONCE, true, reason, "the gate was open in this generation"),
        None => conditions.set(
            OPENED_ONCE,
            false,
            Reason::NotYetOpen,
            "the gate has not been open in this generation",
        ),
    }
    if stalled {
        conditions.set(STALLED, true, reason, message);
    } else if !open {
        conditions.set(RECONCILING, true, reason, message);
    }
    conditions.finish()
}
