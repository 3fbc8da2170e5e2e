//! Which changes of a status people and machines are told of, and since when it says so.
//!
//! ```text
//!   status before ─┐             ┌─ verdict: another revision, state or reason ──> an Event of the object
//!                  ├─ transition ┤
//!   status now ────┘             └─ outcome: the revision set off, succeeded or failed ──> a message
//! ```
//!
//! Both times stand in the status, written together with what they are about: each leader, after any restart, calls a
//! transition by the same name, and so can see whether it was told already.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};
use statusbridge_api::conditions::{OPEN, OPENED_ONCE, READY, STALLED, find, is_true};
use statusbridge_api::{FleetPackageStatus, FleetRolloutStatus, RolloutGateStatus};

use super::time;
use crate::time::Seconds;

/// How the rollout of one revision stands. It is steadier than a verdict: what passes by itself, such as stale evidence,
/// takes no success back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Outcome {
    /// It has set off.
    Started,
    /// The gate was open in this generation; the package was Ready at the revision.
    Succeeded,
    /// Only a person or a new spec can change it (Stalled), whatever it was before.
    Failed,
}

/// What is told of a status.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The condition that people look at first: Open or Ready.
    pub condition: Condition,
    /// The revision that was judged; none where the object names none.
    pub revision: Option<String>,
    /// Healthy clusters and all targets, where they could be counted.
    pub healthy: Option<(u64, u64)>,
    /// How the revision's rollout stands; none where there is no revision, or it was not judged yet.
    pub outcome: Option<Outcome>,
    /// Since when revision, state and reason are these.
    pub verdict_since: Option<Time>,
    /// Since when revision and outcome are these.
    pub outcome_since: Option<Time>,
}

/// A status of which others are told.
pub trait Reported {
    /// What it says; nothing where it answers no generation: then it is none yet, or somebody else wrote it.
    fn report(&self) -> Option<Report>;
    /// Since when the verdict and the outcome are what they are.
    fn since(&mut self) -> (&mut Option<Time>, &mut Option<Time>);
}

impl Reported for RolloutGateStatus {
    fn report(&self) -> Option<Report> {
        self.observed_generation.filter(|generation| *generation >= 0)?;
        let outcome = match () {
            () if is_true(&self.conditions, STALLED) => Outcome::Failed,
            () if is_true(&self.conditions, OPENED_ONCE) => Outcome::Succeeded,
            () => Outcome::Started,
        };
        Some(Report {
            condition: find(&self.conditions, OPEN)?.clone(),
            outcome: self.revision.is_some().then_some(outcome),
            revision: self.revision.clone(),
            healthy: self.clusters.map(|clusters| (clusters.healthy, clusters.total)),
            verdict_since: self.verdict_since.clone(),
            outcome_since: self.outcome_since.clone(),
        })
    }

    fn since(&mut self) -> (&mut Option<Time>, &mut Option<Time>) {
        (&mut self.verdict_since, &mut self.outcome_since)
    }
}

impl Reported for FleetPackageStatus {
    fn report(&self) -> Option<Report> {
        self.observed_generation.filter(|generation| *generation >= 0)?;
        let newest = self.history.first().filter(|newest| Some(&newest.revision) == self.revision.as_ref());
        let outcome = match newest {
            _ if self.revision.is_none() => None,
            _ if is_true(&self.conditions, STALLED) => Some(Outcome::Failed),
            Some(newest) if newest.healthy_at.is_some() => Some(Outcome::Succeeded),
            Some(_) => Some(Outcome::Started),
            None => None,
        };
        Some(Report {
            condition: find(&self.conditions, READY)?.clone(),
            outcome,
            revision: self.revision.clone(),
            healthy: self.counted().map(|clusters| (clusters.healthy, clusters.total)),
            verdict_since: self.verdict_since.clone(),
            outcome_since: self.outcome_since.clone(),
        })
    }

    fn since(&mut self) -> (&mut Option<Time>, &mut Option<Time>) {
        (&mut self.verdict_since, &mut self.outcome_since)
    }
}

impl Reported for FleetRolloutStatus {
    fn report(&self) -> Option<Report> {
        self.observed_generation.filter(|generation| *generation >= 0)?;
        let outcome = match () {
            () if is_true(&self.conditions, STALLED) => Outcome::Failed,
            () if self.completed_at.is_some() => Outcome::Succeeded,
            () => Outcome::Started,
        };
        Some(Report {
            condition: find(&self.conditions, READY)?.clone(),
            outcome: self.revision.is_some().then_some(outcome),
            revision: self.revision.clone(),
            healthy: None,
            verdict_since: self.verdict_since.clone(),
            outcome_since: self.outcome_since.clone(),
        })
    }

    fn since(&mut self) -> (&mut Option<Time>, &mut Option<Time>) {
        (&mut self.verdict_since, &mut self.outcome_since)
    }
}

/// What has changed from one report to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// Revision, state or reason.
    pub verdict: bool,
    /// Revision or outcome, and there is an outcome.
    pub outcome: bool,
}

/// What has changed, if anything that is told has. Before the first report, everything has.
pub fn transition(before: Option<&Report>, now: &Report) -> Option<Transition> {
    let verdict = before.is_none_or(|before| !same_verdict(before, now));
    let outcome = now.outcome.is_some() && before.is_none_or(|before| !same_outcome(before, now));
    (verdict || outcome).then_some(Transition { verdict, outcome })
}

fn same_verdict(one: &Report, other: &Report) -> bool {
    let Condition { status, reason, .. } = &other.condition;
    (&one.revision, &one.condition.status, &one.condition.reason) == (&other.revision, status, reason)
}

fn same_outcome(one: &Report, other: &Report) -> bool {
    (&one.revision, one.outcome) == (&other.revision, other.outcome)
}

/// Writes into a status that follows `previous` since when it says what it says.
pub(crate) fn dated<S: Reported>(mut status: S, previous: Option<&S>, now: Seconds) -> S {
    let Some(report) = status.report() else { return status };
    let before = previous.and_then(S::report);
    let unchanged = before.as_ref().filter(|before| same_verdict(before, &report));
    let verdict = unchanged.and_then(|before| before.verdict_since.clone());
    let unchanged = before.as_ref().filter(|before| same_outcome(before, &report));
    let outcome = unchanged.and_then(|before| before.outcome_since.clone());
    let since = status.since();
    *since.0 = Some(verdict.unwrap_or_else(|| time(now)));
    *since.1 = report.outcome.map(|_| outcome.unwrap_or_else(|| time(now)));
    status
}

impl Report {
    /// Whether the condition is True.
    fn is_positive(&self) -> bool {
        self.condition.status == "True"
    }

    /// Whether somebody should look at it: only a person can change it, or what was open or ready at the same revision no
    /// longer is.
    pub fn is_warning(&self, before: Option<&Self>) -> bool {
        let has_been = before.is_some_and(|before| before.is_positive() && before.revision == self.revision);
        self.outcome == Some(Outcome::Failed) || (has_been && !self.is_positive())
    }

    /// The change in a sentence, for people.
    pub fn sentence(&self, before: Option<&Self>) -> String {
        let word = match (self.condition.type_.as_str(), self.is_positive()) {
            (OPEN, true) => "Open",
            (OPEN, false) => "Closed",
            (_, true) => "Ready",
            (_, false) => "Not ready",
        };
        let mut text = word.to_owned();
        if let Some(revision) = &self.revision {
            text.push_str(&format!(" at {}", beginning(revision, MOST_REVISION)));
        }
        match before {
            Some(before) if before.revision != self.revision => {
                if let Some(revision) = &before.revision {
                    text.push_str(&format!(" (before: {})", beginning(revision, MOST_REVISION)));
                }
            }
            Some(before) if before.is_positive() == self.is_positive() => {
                text.push_str(&format!(" (still; before: {})", before.condition.reason));
            }
            _ => {}
        }
        text.push_str(&format!(": {}", self.condition.message));
        if let Some((healthy, total)) = self.healthy {
            text.push_str(&format!(" [{healthy}/{total} healthy]"));
        }
        text
    }
}

/// Most characters of a revision in a sentence: a branch and a commit.
const MOST_REVISION: usize = 80;

fn beginning(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const NOW: Seconds = 1_000.0;

    fn conditions(all: &[(&str, &str, &str)]) -> Value {
        let one = |(kind, status, reason): &(&str, &str, &str)| {
            json!({"type": kind, "status": status, "reason": reason, "message": "because",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        all.iter().map(one).collect()
    }

    fn gate(revision: &str, all: &[(&str, &str, &str)]) -> RolloutGateStatus {
        serde_json::from_value(json!({"observedGeneration": 1, "revision": revision,
            "clusters": {"healthy": 2, "total": 3}, "conditions": conditions(all)}))
        .unwrap()
    }

    /// A gate by what it says: what its outcome is, and how it stands now.
    fn named(name: &str) -> RolloutGateStatus {
        match name {
            "waits" => gate("r1", &[("Open", "False", "Progressing"), ("OpenedOnce", "False", "NotYetOpen")]),
            "soaks" => gate("r1", &[("Open", "False", "Soaking"), ("OpenedOnce", "False", "NotYetOpen")]),
            "open" => gate("r1", &[("Open", "True", "Healthy"), ("OpenedOnce", "True", "Healthy")]),
            "stale" => gate("r1", &[("Open", "False", "Stale"), ("OpenedOnce", "True", "Healthy")]),
            "failed" => gate("r1", &[("Open", "False", "Failed"), ("Stalled", "True", "Failed")]),
            "regressed" => gate(
                "r1",
                &[
                    ("Open", "False", "Failed"),
                    ("OpenedOnce", "True", "Healthy"),
                    ("Stalled", "True", "Failed"),
                ],
            ),
            "next" => gate("r2", &[("Open", "False", "Progressing"), ("OpenedOnce", "False", "NotYetOpen")]),
            "doubted" => RolloutGateStatus { observed_generation: None, ..named("open") },
            "unjudged" => RolloutGateStatus { observed_generation: Some(-1), ..named("waits") },
            other => panic!("{other}"),
        }
    }

    #[rstest]
    #[case::the_first("", "waits", Some((true, true)))]
    #[case::nothing_new("waits", "waits", None)]
    #[case::another_reason("waits", "soaks", Some((true, false)))]
    #[case::it_opens("soaks", "open", Some((true, true)))]
    #[case::evidence_is_lost("open", "stale", Some((true, false)))]
    #[case::and_found_again("stale", "open", Some((true, false)))]
    #[case::it_fails("waits", "failed", Some((true, true)))]
    #[case::it_fails_after_it_was_open("open", "regressed", Some((true, true)))]
    #[case::and_recovers("regressed", "open", Some((true, true)))]
    #[case::another_revision_for_the_same_reason("waits", "next", Some((true, true)))]
    fn what_is_told_of_a_gate(#[case] before: &str, #[case] now: &str, #[case] told: Option<(bool, bool)>) {
        let before = (!before.is_empty()).then(|| named(before).report().unwrap());
        let found = transition(before.as_ref(), &named(now).report().unwrap());
        assert_eq!(found.map(|it| (it.verdict, it.outcome)), told);
    }

    #[rstest]
    #[case::somebody_else_wrote_it("doubted")]
    #[case::nobody_has_judged_it("unjudged")]
    fn what_is_no_verdict_of_ours_is_not_told(#[case] name: &str) {
        assert_eq!(named(name).report(), None);
    }

    fn package(
        revision: Option<&str>,
        healthy_at: Option<&str>,
        all: &[(&str, &str, &str)],
    ) -> FleetPackageStatus {
        serde_json::from_value(json!({"observedGeneration": 1, "revision": revision,
            "history": [{"revision": "r1", "startedAt": "2026-01-01T00:00:00Z", "healthyAt": healthy_at}],
            "conditions": conditions(all)}))
        .unwrap()
    }

    #[rstest]
    #[case::it_set_off(Some("r1"), None, &[("Ready", "False", "Progressing")], Some(Outcome::Started))]
    #[case::ready(Some("r1"), Some("2026-01-01T00:00:00Z"), &[("Ready", "True", "Healthy")], Some(Outcome::Succeeded))]
    #[case::ready_once(Some("r1"), Some("2026-01-01T00:00:00Z"), &[("Ready", "False", "Stale")], Some(Outcome::Succeeded))]
    #[case::failed(Some("r1"), Some("2026-01-01T00:00:00Z"), &[("Ready", "False", "Failed"), ("Stalled", "True", "Failed")], Some(Outcome::Failed))]
    #[case::not_counted_yet(Some("r2"), None, &[("Ready", "False", "BackendUnavailable")], None)]
    #[case::nothing_wanted(None, None, &[("Ready", "True", "HealthyAtOwnRevision")], None)]
    fn what_a_package_comes_to(
        #[case] revision: Option<&str>,
        #[case] healthy_at: Option<&str>,
        #[case] all: &[(&str, &str, &str)],
        #[case] outcome: Option<Outcome>,
    ) {
        assert_eq!(package(revision, healthy_at, all).report().unwrap().outcome, outcome);
    }

    #[rstest]
    #[case::the_first("", "waits", true, true)]
    #[case::nothing_new("waits", "waits", false, false)]
    #[case::another_reason("waits", "soaks", true, false)]
    #[case::open("soaks", "open", true, true)]
    #[case::stale("open", "stale", true, false)]
    #[case::recovers("regressed", "open", true, true)]
    #[case::another_revision("waits", "next", true, true)]
    #[case::after_somebody_elses("doubted", "open", true, true)]
    fn a_time_changes_with_what_it_is_about_and_only_then(
        #[case] before: &str,
        #[case] now: &str,
        #[case] verdict: bool,
        #[case] outcome: bool,
    ) {
        let before = (!before.is_empty()).then(|| dated(named(before), None, 500.0));
        let status = dated(named(now), before.as_ref(), NOW);
        let expected = |changed: bool| Some(time(if changed { NOW } else { 500.0 }));
        assert_eq!((status.verdict_since, status.outcome_since), (expected(verdict), expected(outcome)));
    }

    #[rstest]
    #[case("", "waits", false, "Closed at r1: because [2/3 healthy]")]
    #[case("waits", "soaks", false, "Closed at r1 (still; before: Progressing): because [2/3 healthy]")]
    #[case("soaks", "open", false, "Open at r1: because [2/3 healthy]")]
    #[case("open", "stale", true, "Closed at r1: because [2/3 healthy]")]
    #[case("waits", "failed", true, "Closed at r1 (still; before: Progressing): because [2/3 healthy]")]
    #[case("open", "next", false, "Closed at r2 (before: r1): because [2/3 healthy]")]
    fn a_change_in_a_sentence(
        #[case] before: &str,
        #[case] now: &str,
        #[case] warns: bool,
        #[case] sentence: &str,
    ) {
        let before = (!before.is_empty()).then(|| named(before).report().unwrap());
        let now = named(now).report().unwrap();
        assert_eq!(now.sentence(before.as_ref()), sentence);
        assert_eq!(now.is_warning(before.as_ref()), warns);
    }

    #[test]
    fn of_a_long_revision_the_beginning_is_said() {
        let long = named("open").report().map(|it| Report { revision: Some("\u{e9}".repeat(4096)), ..it });
        let sentence = long.unwrap().sentence(None);
        assert!(sentence.chars().count() < 150, "{sentence}");
    }
}
