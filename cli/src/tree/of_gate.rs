//! A gate or a FleetPackage, with what it waits for and the clusters that are in trouble.

use statusbridge_api::Reason;
use statusbridge_api::fleet_package::Problem;
use statusbridge_api::rollout_gate::Waiting;
use statusbridge_core::decide::unix;
use statusbridge_core::reconcile::object::Kind;
use statusbridge_core::time::Seconds;

use super::Branch;
use crate::counts::counts;
use crate::text::{Colour, span};
use crate::verdict::Verdict;

/// What clusters are when somebody has to look at them, and they do not come along by themselves.
const TROUBLE: [Reason; 9] = [
    Reason::FailureBudgetExceeded,
    Reason::Failed,
    Reason::TimeOut,
    Reason::Conflict,
    Reason::ClockSkew,
    Reason::Unverified,
    Reason::Stale,
    Reason::Missing,
    Reason::Superseded,
];

/// What a gate or a FleetPackage tells; `problems` are those of the FleetPackage.
pub(crate) fn of_gate(verdict: &Verdict, problems: &[Problem], now: Seconds) -> Branch {
    let Verdict { kind, reading } = verdict;
    let word = if *kind == Kind::FleetPackage { "package" } else { "gate" };
    let counts = counts(reading, now);
    let mut text = counts.as_ref().map(|counts| counts.news()).unwrap_or_default();
    if !reading.is_open() && !reading.message.is_empty() {
        let gap = if text.is_empty() { "" } else { ": " };
        text = format!("{text}{gap}{}", reading.message);
    }
    let evidence = reading.age_seconds.map(|age| format!("evidence {} old", span(age)));
    let ages: Vec<String> = counts.and_then(|counts| counts.left).into_iter().chain(evidence).collect();
    // The message is about the first.
    let waits = reading.waiting_for.iter().skip(1);
    let waits = waits.map(|it| Branch::told(&format!("and for {}", it.reason), it.message.clone()));
    let named = reading.waiting_for.iter().flat_map(|it| in_trouble(it, problems, now));
    Branch {
        name: format!("{word}/{}", reading.name),
        state: Some((verdict.state(), Some(verdict.colour()))),
        text,
        ages: ages.join(", "),
        is_done: reading.is_open(),
        end: "Gone",
        branches: waits.chain(named).collect(),
    }
}

/// The clusters that a FleetPackage names as problems, but those that are on their way.
pub(crate) fn problems(problems: &[Problem], now: Seconds) -> impl Iterator<Item = Branch> {
    let wrong = problems.iter().filter(|problem| trouble(&problem.state).is_some());
    wrong.map(move |problem| cluster(&problem.cluster_name, &problem.state, Some(problem), now))
}

fn in_trouble(waiting: &Waiting, problems: &[Problem], now: Seconds) -> Vec<Branch> {
    if trouble(&waiting.reason).is_none() {
        return Vec::new();
    }
    let mut all: Vec<Branch> = waiting
        .clusters
        .iter()
        .map(|name| {
            let problem = problems.iter().find(|problem| problem.cluster_name == *name);
            cluster(name, &waiting.reason, problem, now)
        })
        .collect();
    let more = waiting.count.saturating_sub(all.len() as u64);
    if more > 0 {
        all.push(Branch::told(&format!("and {more} more"), waiting.reason.clone()));
    }
    all
}

fn trouble(reason: &str) -> Option<Reason> {
    TROUBLE.into_iter().find(|trouble| trouble.name() == reason)
}

fn cluster(name: &str, reason: &str, problem: Option<&Problem>, now: Seconds) -> Branch {
    let own = problem.and_then(|problem| trouble(&problem.state));
    let word = match own.or_else(|| trouble(reason)) {
        Some(Reason::FailureBudgetExceeded) => Reason::Failed.name(),
        Some(reason) => reason.name(),
        None => "",
    };
    let text = problem.map(|problem| problem.reason.clone()).filter(|text| text != word);
    let since = problem.and_then(|problem| problem.since.as_ref());
    Branch {
        name: format!("cluster {name}"),
        state: Some((word, Some(Colour::Red))),
        text: text.unwrap_or_default(),
        ages: since.map(|since| format!("for {}", span(now - unix(since)))).unwrap_or_default(),
        is_done: false,
        end: "is not in trouble any more",
        branches: Vec::new(),
    }
}
