//! The status of a FleetPackage.

use statusbridge_api::conditions::{READY, RECONCILING, REPORTING, STALLED, is_true};
use statusbridge_api::fleet_package::{Detail, PackageCounts, Problem, RevisionCount};
use statusbridge_api::trace::StageStatus;
use statusbridge_api::{FleetPackageSpec, FleetPackageStatus, Reason, common};
use statusbridge_contract::{Fingerprint, wanted};

use super::classify::{PackageState, for_package, unobserved};
use super::conditions::Conditions;
use super::excused::{Excused, ExcusedTarget, least_observed};
use super::history::{self, Reached};
use super::membership::Obstacle;
use super::trace::{self, Trace};
use super::words::{named, phrase};
use super::{
    Backend, Membership, Moment, Target, cluster_set_error, digits, list, list_by, older, oldest_evidence,
    revisions, shorten, time, too_few, transition, unanswered, unix,
};
use crate::fleet::observation::{Standing, reason};
use crate::time::Seconds;

/// Most revisions that a status lists by name.
const MOST_REVISIONS: usize = 10;
/// Most clusters that a status lists as problems.
const MOST_PROBLEMS: usize = 20;

/// The revision that a FleetPackage wants.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// Whatever each cluster itself wants.
    Own,
    /// This one.
    Revision(&'a str),
    /// What comes of this one at the end of the trace.
    Traced(&'a str, Fingerprint),
    /// What comes of this one at the end of the trace, which is not known, for this reason.
    Untraced(&'a str, &'a str),
    /// One that is to be read from elsewhere, and cannot be.
    Unresolved(&'a Obstacle),
}

impl<'a> Wanted<'a> {
    /// What a spec itself says, if it refers to nothing.
    pub fn literal(spec: &'a FleetPackageSpec) -> Self {
        spec.revision.as_deref().map_or(Self::Own, Self::Revision)
    }

    /// The revision in words, if there is one.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Self::Revision(revision) | Self::Traced(revision, _) | Self::Untraced(revision, _) => {
                Some(revision)
            }
            Self::Own | Self::Unresolved(_) => None,
        }
    }

    /// What clusters are held to; `None`: to what each itself wants. While it is not known what is
    /// wanted, no cluster has it.
    pub(super) fn fingerprint(self) -> Option<Fingerprint> {
        match self {
            Self::Own => None,
            Self::Revision(revision) => Some(Fingerprint::of(revision)),
            Self::Traced(_, artifact) => Some(artifact),
            Self::Untraced(..) | Self::Unresolved(_) => Some(Fingerprint::NONE),
        }
    }

    /// The same where the revision goes through stages first.
    #[must_use]
    pub fn through(self, trace: &'a Trace) -> Self {
        match (self, &trace.artifact) {
            (Self::Revision(revision), Ok(artifact)) => Self::Traced(revision, *artifact),
            (Self::Revision(revision), Err(why)) => Self::Untraced(revision, why),
            (wanted, _) => wanted,
        }
    }

    /// Why it is not known what clusters are held to, if it is not.
    fn lack(self) -> Option<Obstacle> {
        match self {
            Self::Untraced(_, why) => {
                Some(Obstacle { reason: Reason::ArtifactUnknown, message: shorten(why), stalled: false })
            }
            Self::Unresolved(why) => Some(Obstacle { message: shorten(&why.message), ..why.clone() }),
            Self::Own | Self::Revision(_) | Self::Traced(..) => None,
        }
    }
}

/// All that a FleetPackage's status depends on.
pub struct Input<'a> {
    /// The spec, or why it cannot be read.
    pub spec: Result<&'a FleetPackageSpec, &'a str>,
    /// Its generation.
    pub generation: i64,
    /// The status as it stands.
    pub previous: Option<&'a FleetPackageStatus>,
    /// The revision that is wanted.
    pub wanted: Wanted<'a>,
    /// How far it has come in each stage of the trace.
    pub stages: &'a [StageStatus],
    /// The clusters that count.
    pub targets: &'a [Target],
    /// Those that do not now.
    pub excused: &'a Excused<'a>,
    /// Whether they are all that are meant.
    pub membership: &'a Membership,
    /// A target whose scrapes are too far apart for `staleAfter`.
    pub rarely_scraped: Option<RarelyScraped<'a>>,
    /// What the last poll came to.
    pub backend: Backend<'a>,
    /// When.
    pub moment: Moment,
}

/// A cluster and how far apart its scrapes were seen to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RarelyScraped<'a> {
    /// The cluster.
    pub cluster: &'a str,
    /// Seconds between two scrapes.
    pub interval: Seconds,
}

/// The least `staleAfter` for which a lost scrape makes nothing stale: four intervals, as long as
/// Prometheus itself would wait at the least, and what samples take to settle in the backend. In whole
/// seconds, so that a little jitter changes nothing.
pub fn least_stale_after(interval: Seconds, settle: Seconds) -> Seconds {
    4.0 * interval.round() + settle.ceil()
}

/// The status that follows.
pub fn decide(input: &Input<'_>) -> FleetPackageStatus {
    let checked = input.spec.map_err(str::to_owned).and_then(|spec| Ok((spec, check(spec)?)));
    let status = match checked {
        Err(message) => {
            without_counts(input, &Obstacle { reason: Reason::InvalidSpec, message, stalled: true })
        }
        Ok((spec, stale_after)) => {
            if let Some(previous) = kept_for_now(input, stale_after) {
                return previous.clone();
            }
            match (input.membership.obstacle(), input.backend, input.wanted) {
                (Some(obstacle), ..) => without_counts(input, &obstacle),
                (None, Backend::Unknown(_), Wanted::Unresolved(obstacle)) => without_counts(input, obstacle),
                (None, Backend::Unknown(error), _) => without_counts(input, &unanswered(error)),
                (None, ..) => judge(input, spec, stale_after),
            }
        }
    };
    transition::dated(status, input.previous, input.moment.now)
}

/// After a restart, until all that is needed has been read once: what was said stays while its
/// evidence would still count.
fn kept_for_now<'a>(input: &Input<'a>, stale_after: Seconds) -> Option<&'a FleetPackageStatus> {
    input.previous.filter(|previous| {
        let excuses_unread = input.excused.is_unread() && !previous.excused.is_empty();
        (input.membership.is_unread(input.backend) || excuses_unread)
            && input.excused.may_stand(
                &previous.excused,
                previous.clusters.map_or(0, |counts| counts.excused),
                input.moment.now,
            )
            && previous.observed_generation == Some(input.generation)
            && previous.last_counted.is_none()
            && previous.revision.as_deref() == input.wanted.text()
            && previous.as_of.as_ref().is_some_and(|as_of| input.moment.t - unix(as_of) <= stale_after)
    })
}

/// `staleAfter`, if the spec makes sense. The API server lets no other pass, but an object may be
/// older than the CRD that is installed now.
///
/// # Errors
/// What is wrong, in words.
pub fn check(spec: &FleetPackageSpec) -> Result<Seconds, String> {
    match (common::seconds(&spec.stale_after), cluster_set_error(&spec.clusters)) {
        _ if spec.revision.is_some() && spec.revision_from.is_some() => {
            Err("revision and revisionFrom exclude each other".to_owned())
        }
        _ if !spec.trace.is_empty() && spec.revision.is_none() && spec.revision_from.is_none() => {
            Err("a trace follows a revision: set revision or revisionFrom".to_owned())
        }
        _ if spec.clusters.freeze => Err(
            "clusters.freeze is for RolloutGates: a FleetPackage tells of the clusters that are there now"
                .to_owned(),
        ),
        (Err(error), _) => Err(error.to_string()),
        (_, Some(error)) => Err(error),
        (Ok(stale_after), None) => {
            least_observed(spec, 1)?;
            if let Some(revision) = &spec.revision {
                wanted::fingerprint(revision).map_err(|error| error.to_string())?;
            }
            trace::check(&spec.trace).map(|()| stale_after)
        }
    }
}

/// A status for which nothing can be said of any cluster. What was last known stays, and is marked as such.
fn without_counts(input: &Input<'_>, obstacle: &Obstacle) -> FleetPackageStatus {
    let Obstacle { reason, ref message, stalled } = *obstacle;
    let previous = input.previous.filter(|_| reason != Reason::Forbidden).cloned().unwrap_or_default();
    let before = input.previous.map(|it| it.conditions.as_slice()).unwrap_or_default();
    let mut conditions = Conditions::new(input.generation, input.moment, before);
    let message = shorten(message);
    conditions.set(READY, false, reason, message.clone());
    conditions.set(REPORTING, false, reason, message.clone());
    conditions.set(if stalled { STALLED } else { RECONCILING }, true, reason, message);
    let revision = input.wanted.text().filter(|_| reason != Reason::Forbidden).map(str::to_owned);
    FleetPackageStatus {
        observed_generation: Some(input.generation),
        fingerprint: digits(revision.as_deref()),
        revision,
        last_counted: previous.counted_for(),
        epoch: None,
        trace: input.stages.to_vec(),
        tenancy: None,
        conditions: conditions.finish(),
        ..previous
    }
}

fn judge(input: &Input<'_>, spec: &FleetPackageSpec, stale_after: Seconds) -> FleetPackageStatus {
    let wanted = input.wanted.fingerprint();
    let lack = input.wanted.lack();
    let states: Vec<(Result<PackageState, Reason>, &Target)> = input
        .targets
        .iter()
        .map(|target| (unobserved(&target.observation).map(|row| for_package(row, wanted)), target))
        .collect();
    let counts = PackageCounts { excused: input.excused.count(), ..count(&states) };
    let mut wrong: Vec<(Reason, &Target)> = states
        .iter()
        .map(|(state, target)| (state.map_or_else(|reason| reason, |state| state.reason), *target))
        .filter(|(reason, _)| *reason != Reason::Healthy)
        // Nobody can be blamed for not being where nobody knows.
        .filter(|(reason, _)| lack.is_none() || !matches!(reason, Reason::NotUpdated | Reason::Progressing))
        .collect();
    wrong.sort_by(|a, b| (a.0, &a.1.cluster).cmp(&(b.0, &b.1.cluster)));

    let previous = input.previous.cloned().unwrap_or_default();
    let mut conditions = Conditions::new(input.generation, input.moment, &previous.conditions);
    let was_ready =
        previous.observed_generation == Some(input.generation) && is_true(&previous.conditions, READY);
    let doubt = input.membership.doubt();
    let few = match least_observed(spec, counts.total + counts.excused) {
        Ok(least) => input.excused.too_few_observed(least, counts.reporting, counts.total),
        Err(error) => Some((Reason::InvalidSpec, error)),
    };
    // Where something is wrong with clusters that count, they are named instead.
    let few_only = few.clone().filter(|_| wrong.is_empty());
    let blocked = too_few(&spec.clusters, counts.total, counts.excused).or(few_only).or_else(|| {
        let message = doubt
            .clone()
            .filter(|_| wrong.is_empty() && input.membership.forbids(was_ready, input.moment, stale_after));
        message.map(|message| (Reason::ClusterProfilesUnavailable, message))
    });
    let ready = lack.is_none() && blocked.is_none() && wrong.is_empty();
    let (reason, message) = match (&lack, &blocked, wrong.first()) {
        (Some(lack), ..) => (lack.reason, lack.message.clone()),
        (None, Some((reason, message)), _) => (*reason, message.clone()),
        (None, None, Some((worst, _))) => (*worst, describe(*worst, &wrong)),
        (None, None, None) if wanted.is_some() => {
            (Reason::Healthy, format!("{} healthy at the wanted revision", all(&counts)))
        }
        (None, None, None) => (
            Reason::HealthyAtOwnRevision,
            format!("{} healthy at the revision that the cluster itself wants", all(&counts)),
        ),
    };
    let besides = [input.excused.words(), doubt].into_iter().flatten().filter(|_| ready);
    let message = besides.fold(message, |message, more| format!("{message}; {more}"));
    conditions.set(READY, ready, reason, message.clone());
    reporting(&mut conditions, input, spec, &blocked, &wrong, &counts);
    if lack.is_some_and(|lack| lack.stalled) {
        conditions.set(STALLED, true, reason, message);
    } else if counts.failed > 0 && blocked.is_none() {
        conditions.set(STALLED, true, Reason::Failed, describe(Reason::Failed, &wrong));
    } else if !ready {
        conditions.set(RECONCILING, true, reason, message);
    }

    let conditions = conditions.finish();
    let revision = input.wanted.text().map(str::to_owned);
    let revisions = revision_counts(input.targets, wanted.zip(revision.as_deref()));
    let last_healthy_revision = match (is_true(&conditions, READY), &revision, revisions.as_slice()) {
        (true, Some(revision), _) => Some(revision.clone()),
        (true, None, [only]) => Some(only.revision.clone()),
        _ => previous.last_healthy_revision,
    };
    let reached = Reached {
        applied: blocked.is_none() && few.is_none() && counts.applied == counts.total,
        healthy: is_true(&conditions, READY),
        failed: states.iter().any(|(state, _)| state.is_ok_and(|it| it.failed)),
    };
    let history = history::next(previous.history, input.wanted.text(), reached, input.moment);
    FleetPackageStatus {
        observed_generation: Some(input.generation),
        as_of: input.stages.iter().fold(oldest_evidence(input.targets), |at, it| older(at, it.evidence())),
        epoch: None,
        fingerprint: digits(revision.as_deref()),
        verdict_since: None,
        outcome_since: None,
        revision,
        last_healthy_revision,
        last_counted: None,
        clusters: Some(counts),
        revisions,
        excused: input.excused.list(),
        history,
        problems: match spec.detail {
            Detail::Problems | Detail::All => {
                let excused = excused_problems(input.excused, wanted);
                wrong.iter().map(problem).chain(excused).take(MOST_PROBLEMS).collect()
            }
            Detail::None => Vec::new(),
        },
        trace: input.stages.to_vec(),
        tenancy: None,
        conditions,
    }
}

fn reporting(
    conditions: &mut Conditions<'_>,
    input: &Input<'_>,
    spec: &FleetPackageSpec,
    blocked: &Option<(Reason, String)>,
    wrong: &[(Reason, &Target)],
    counts: &PackageCounts,
) {
    if let Some((reason, message)) = blocked {
        conditions.set(REPORTING, false, *reason, message.clone());
        return;
    }
    let warning = input.rarely_scraped.map(|it| short_stale_after(spec, it, input.moment));
    let warning = |message: String| match &warning {
        Some(warning) => format!("{message}; {warning}"),
        None => message,
    };
    let unheard: Vec<String> = wrong
        .iter()
        .filter(|(_, target)| unobserved(&target.observation).is_err())
        .map(|(_, target)| target.cluster.clone())
        .collect();
    if unheard.is_empty() {
        let message = format!("{} reporting", all(counts));
        let reason = match input.rarely_scraped {
            Some(_) => Reason::StaleAfterTooShort,
            None => Reason::AllReporting,
        };
        conditions.set(REPORTING, true, reason, warning(message));
        return;
    }
    let mut message = format!("no fresh, verified status from {}", list(&unheard));
    let reason = match input.backend.error() {
        Some(error) => {
            message.push_str(&format!("; the metrics backend does not answer: {}", shorten(error)));
            Reason::BackendUnavailable
        }
        None => Reason::NotReporting,
    };
    conditions.set(REPORTING, false, reason, warning(message));
}

fn short_stale_after(spec: &FleetPackageSpec, rarely: RarelyScraped<'_>, moment: Moment) -> String {
    let RarelyScraped { cluster, interval } = rarely;
    format!(
        "staleAfter {} is short for scrapes that are {} s apart ({cluster}): {}s or more is advised",
        spec.stale_after,
        interval.round(),
        least_stale_after(interval, moment.now - moment.t),
    )
}

fn all(counts: &PackageCounts) -> String {
    let that = if counts.excused > 0 { " that count" } else { "" };
    match counts.total {
        1 if counts.excused > 0 => "the only cluster that counts is".to_owned(),
        1 => "the only cluster is".to_owned(),
        total => format!("all {total} clusters{that} are"),
    }
}

fn describe(reason: Reason, wrong: &[(Reason, &Target)]) -> String {
    let with: Vec<&Target> =
        wrong.iter().filter(|(other, _)| *other == reason).map(|(_, target)| *target).collect();
    format!("{}: {}", phrase(reason, with.len() as u64), list_by(&with, |target| named(reason, target)))
}

fn count(states: &[(Result<PackageState, Reason>, &Target)]) -> PackageCounts {
    let mut counts = PackageCounts { total: states.len() as u64, ..PackageCounts::default() };
    for (state, _) in states {
        match state {
            Err(Reason::Missing) => counts.missing += 1,
            Err(Reason::Unverified) => counts.unverified += 1,
            Err(Reason::Conflict) => counts.conflicting += 1,
            Err(_) => counts.stale += 1,
            Ok(state) => {
                counts.reporting += 1;
                counts.updated += u64::from(state.updated);
                counts.applied += u64::from(state.applied);
                match state.reason {
                    Reason::Healthy => counts.healthy += 1,
                    Reason::Failed => counts.failed += 1,
                    Reason::Paused => counts.paused += 1,
                    _ => counts.progressing += 1,
                }
            }
        }
    }
    counts
}

fn revision_counts(targets: &[Target], wanted: Option<(Fingerprint, &str)>) -> Vec<RevisionCount> {
    let mark = wanted.map(|(mark, _)| mark);
    let mut seen: Vec<_> = revisions(targets).into_iter().collect();
    seen.sort_by_key(|(revision, (applied, healthy))| {
        (Some(*revision) != mark, std::cmp::Reverse((*applied, *healthy)), *revision)
    });
    let rest = seen.split_off(seen.len().min(MOST_REVISIONS));
    let mut listed: Vec<RevisionCount> = seen
        .into_iter()
        .map(|(revision, (applied, healthy))| RevisionCount {
            revision: match wanted {
                Some((mark, text)) if revision == mark => text.to_owned(),
                _ => revision.to_string(),
            },
            applied,
            healthy,
        })
        .collect();
    if !rest.is_empty() {
        listed.push(RevisionCount {
            revision: "other".to_owned(),
            applied: rest.iter().map(|(_, (applied, _))| applied).sum(),
            healthy: rest.iter().map(|(_, (_, healthy))| healthy).sum(),
        });
    }
    listed
}

fn problem((state, target): &(Reason, &Target)) -> Problem {
    let (word, since) = word_and_since(*state, target);
    Problem {
        cluster_name: target.cluster.clone(),
        state: state.name().to_owned(),
        reason: word,
        since: since.map(time),
        excused: None,
    }
}

/// The clusters that are excused and would be problems, worst first.
fn excused_problems(excused: &Excused<'_>, wanted: Option<Fingerprint>) -> impl Iterator<Item = Problem> {
    let state = |target: &Target| match unobserved(&target.observation) {
        Ok(row) => for_package(row, wanted).reason,
        Err(reason) => reason,
    };
    let mut wrong: Vec<_> = excused.targets().iter().map(|it| (state(&it.target), it)).collect();
    wrong.retain(|(reason, _)| *reason != Reason::Healthy);
    wrong.sort_by(|a, b| (a.0, &a.1.target.cluster).cmp(&(b.0, &b.1.target.cluster)));
    let shown = |(reason, it): (Reason, &ExcusedTarget)| Problem {
        excused: Some(it.reason.clone()),
        ..problem(&(reason, &it.target))
    };
    wrong.into_iter().map(shown)
}

/// The package's own word for its state, or why the cluster's word does not count; and since when.
pub(super) fn word_and_since(state: Reason, target: &Target) -> (String, Option<Seconds>) {
    let observation = &target.observation;
    match (observation.standing, &observation.row) {
        (Standing::Fresh, Some(row)) => {
            (row.reason.clone().unwrap_or_else(|| state.name().to_owned()), Some(row.since))
        }
        // Only where the last word stands still; a time that moves with every poll would be
        // written at every poll.
        (Standing::Stale | Standing::Unverified, _) if observation.reason != reason::SOURCE_DOWN => {
            (observation.reason.to_owned(), observation.as_of)
        }
        _ => (observation.reason.to_owned(), None),
    }
}
