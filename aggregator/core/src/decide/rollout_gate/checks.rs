//! What a gate's checks come to.

use statusbridge_api::check::{Check, CheckState, CheckStatus};
use statusbridge_api::{Reason, common};

use super::asked::{Asked, NoQuery};
use super::input::Input;
use crate::checks::answer::Value;
use crate::checks::{Answer, Answered, Fault};
use crate::decide::classify::held_for;
use crate::decide::{HIDDEN, Target, list, shorten, unix};
use crate::time::Seconds;

/// Which check asks for what its namespace may not ask, if one does.
pub(super) fn refusal(checks: &[Check], asked: &[Asked<'_>]) -> Option<String> {
    checks.iter().zip(asked).find_map(|(check, asked)| match &asked.query {
        Err(NoQuery::Forbidden(why)) => Some(format!("check {:?}: {why}", check.name)),
        _ => None,
    })
}

/// A check's numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms<'a> {
    name: &'a str,
    min: f64,
    max: f64,
    window: Seconds,
    window_text: &'a str,
}

/// Most checks of a gate.
const MOST: usize = 16;

/// Reads the checks of a spec: the API server lets no bad one pass, but an object may be older than
/// the CRD that is installed now.
pub(super) fn terms<'a>(checks: &'a [Check], asked: &[Asked<'_>]) -> Result<Vec<Terms<'a>>, String> {
    if checks.len() > MOST {
        return Err(format!("there are more than {MOST} checks"));
    }
    checks
        .iter()
        .enumerate()
        .map(|(at, check)| {
            let bad = |what: &str| format!("check {:?}: {what}", check.name);
            if checks.iter().take(at).any(|other| other.name == check.name) {
                return Err(bad("there are two of this name"));
            }
            if let Some(Asked { query: Err(NoQuery::Invalid(why) | NoQuery::Forbidden(why)), .. }) =
                asked.get(at)
            {
                return Err(bad(why));
            }
            let window = common::seconds(&check.window).map_err(|error| bad(&error.to_string()))?;
            let (min, max) = match (check.min, check.max) {
                (None, None) => return Err(bad("at least one of min and max must be set")),
                (min, max) => (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY)),
            };
            if min.is_nan() || max.is_nan() || min > max {
                return Err(bad("min must not be more than max"));
            }
            Ok(Terms { name: &check.name, min, max, window, window_text: &check.window })
        })
        .collect()
}

/// What all checks come to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// For the status, in the order of the spec.
    pub(super) statuses: Vec<CheckStatus>,
    /// What keeps the gate closed, with the clusters concerned: empty when all have passed.
    pub(super) waiting: Vec<(Reason, String, Vec<String>)>,
    /// The time of the oldest answer that was used.
    pub(super) oldest: Option<Seconds>,
}

/// Judges the checks of a gate for which everything else is fulfilled.
pub(super) fn judge(
    input: &Input<'_>,
    terms: &[Terms<'_>],
    stale_after: Seconds,
    states: &[(Reason, &Target)],
) -> Outcome {
    let mut outcome = Outcome::default();
    for (at, check) in terms.iter().enumerate() {
        let asked = input.checks.get(at);
        let discreet = asked.is_none_or(|asked| asked.discreet);
        let answer = asked.and_then(|asked| asked.answer);
        let (verdict, value, used) = match (answer, carried(input, check, stale_after)) {
            (Some(answer), _) => {
                let (verdict, value) = answered(check, answer, discreet, input.moment.t, stale_after, states);
                (verdict, value, Some(answer.at))
            }
            (None, Some((value, at))) if too_new(check, states, input.moment.t).is_empty() => {
                (Verdict::Passed, value, Some(at))
            }
            (None, _) => (pending(check, states, input.moment.t), None, None),
        };
        outcome.oldest = [outcome.oldest, used].into_iter().flatten().reduce(Seconds::min);
        let name = check.name.to_owned();
        let (state, message) = match verdict {
            Verdict::Passed => (CheckState::Passed, None),
            Verdict::Pending(why, clusters) => {
                outcome.waiting.push((Reason::CheckPending, format!("check {name}: {why}"), clusters));
                (CheckState::Pending, Some(why))
            }
            Verdict::Failed(why, clusters) => {
                let why = shorten(&why);
                outcome.waiting.push((Reason::CheckFailed, format!("check {name}: {why}"), clusters));
                (CheckState::Failed, Some(why))
            }
        };
        outcome.statuses.push(CheckStatus { name, state, value, message });
    }
    // What is wrong comes before what may only take time.
    outcome.waiting.sort_by_key(|(reason, ..)| *reason);
    outcome
}

/// The checks of a gate for which something else is not fulfilled: they are not asked.
pub(super) fn not_yet(terms: &[Terms<'_>]) -> Vec<CheckStatus> {
    let message = Some("asked once everything else is fulfilled".to_owned());
    let status = |check: &Terms<'_>| CheckStatus {
        name: check.name.to_owned(),
        state: CheckState::Pending,
        value: None,
        message: message.clone(),
    };
    terms.iter().map(status).collect()
}

/// The queries that are due: those whose window has passed.
pub(super) fn due(input: &Input<'_>, terms: &[Terms<'_>], states: &[(Reason, &Target)]) -> Vec<String> {
    let due = |check: &Terms<'_>| too_new(check, states, input.moment.t).is_empty();
    let asked = terms.iter().zip(input.checks).filter(|(check, _)| due(check));
    asked.filter_map(|(_, asked)| asked.query.clone().ok()).collect()
}

/// Where a check stands, why, and because of which clusters.
enum Verdict {
    Passed,
    Pending(String, Vec<String>),
    Failed(String, Vec<String>),
}

/// After a restart, until the backend has been asked: a check that has passed stands while the
/// evidence of the open gate would still count.
fn carried(input: &Input<'_>, check: &Terms<'_>, stale_after: Seconds) -> Option<(Option<String>, Seconds)> {
    let before = input.previous.filter(|before| before.is_open_now(input.generation))?;
    let status = before.checks.iter().find(|it| it.name == check.name && it.state == CheckState::Passed)?;
    let as_of = unix(before.as_of.as_ref()?);
    (input.moment.t - as_of <= stale_after).then(|| (status.value.clone(), as_of))
}

/// Clusters that count and have not done so for the check's window at this time.
fn too_new(check: &Terms<'_>, states: &[(Reason, &Target)], at: Seconds) -> Vec<String> {
    let counting = states.iter().filter(|(reason, _)| *reason == Reason::Healthy);
    let new = counting.filter(|(_, target)| {
        let held = target.observation.row.as_ref().map(|row| held_for(&target.observation, row, at));
        check.window > 0.0 && held.is_none_or(|held| held < check.window)
    });
    new.map(|(_, target)| target.cluster.clone()).collect()
}

fn pending(check: &Terms<'_>, states: &[(Reason, &Target)], t: Seconds) -> Verdict {
    let new = too_new(check, states, t);
    let why = match new.len() {
        0 => "not answered yet".to_owned(),
        _ => format!("not at the revision for {} yet: {}", check.window_text, list(&new)),
    };
    Verdict::Pending(why, new)
}

fn answered(
    check: &Terms<'_>,
    answer: Answered<'_>,
    discreet: bool,
    t: Seconds,
    stale_after: Seconds,
    states: &[(Reason, &Target)],
) -> (Verdict, Option<String>) {
    // What was asked before the window had passed says too little.
    if !too_new(check, states, answer.at).is_empty() {
        return (pending(check, states, t), None);
    }
    if t - answer.at > stale_after {
        return (Verdict::Failed("the last answer is too old".to_owned(), Vec::new()), None);
    }
    let (wrong, clusters, value) = match answer.said {
        Err(Fault::Backend(_)) if discreet => {
            (vec![format!("the metrics backend gave no usable answer: {HIDDEN}")], Vec::new(), None)
        }
        Err(fault) => (vec![fault.to_string()], Vec::new(), None),
        Ok(Answer::One(value)) => {
            (wrong(check, *value).into_iter().collect(), Vec::new(), Some(number(*value)))
        }
        Ok(Answer::Clusters(values)) => {
            let mut groups: Vec<(String, Vec<String>)> = Vec::new();
            let mut numbers = Vec::new();
            for (_, target) in states {
                let wrong = match values.get(&target.cluster) {
                    None => Some("no value".to_owned()),
                    Some(Value::Several) => Some("several values".to_owned()),
                    Some(Value::Number(value)) => {
                        numbers.push(*value);
                        wrong(check, *value)
                    }
                };
                let Some(wrong) = wrong else { continue };
                match groups.iter_mut().find(|(other, _)| *other == wrong) {
                    Some((_, names)) => names.push(target.cluster.clone()),
                    None => groups.push((wrong, vec![target.cluster.clone()])),
                }
            }
            groups.sort();
            let wrong = groups.iter().map(|(what, names)| format!("{what} in {}", list(names))).collect();
            let clusters = groups.into_iter().flat_map(|(_, names)| names).collect();
            (wrong, clusters, span(&numbers))
        }
    };
    match wrong.is_empty() {
        true => (Verdict::Passed, value),
        false => (Verdict::Failed(wrong.join("; "), clusters), value),
    }
}

/// What is wrong with a value. The value itself is not named: it may be another at every poll.
fn wrong(check: &Terms<'_>, value: f64) -> Option<String> {
    if !value.is_finite() {
        Some("not a finite number".to_owned())
    } else if value > check.max {
        Some(format!("more than {}", number(check.max)))
    } else if value < check.min {
        Some(format!("less than {}", number(check.min)))
    } else {
        None
    }
}

/// The least and the greatest of several values.
fn span(values: &[f64]) -> Option<String> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let greatest = values.iter().copied().max_by(f64::total_cmp)?;
    Some(if least == greatest { number(least) } else { format!("{} to {}", number(least), number(greatest)) })
}

fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() || (1e-6..1e15).contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}
