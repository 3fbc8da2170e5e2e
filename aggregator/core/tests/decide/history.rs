//! What is remembered of the revisions that were wanted.

use statusbridge_api::fleet_package::{FleetPackageSpec, FleetPackageStatus, HistoryEntry};
use statusbridge_api::{ClusterSet, Reporting};
use statusbridge_contract::{Fingerprint, Health};
use statusbridge_core::decide::excused::Excused;
use statusbridge_core::decide::fleet_package::{Input, Wanted, decide};
use statusbridge_core::decide::{Backend, Membership, Moment, time};
use statusbridge_core::fleet::observation::{Observation, Row, Standing};

use crate::made::*;

/// One FleetPackage that is judged again and again, a minute apart.
#[derive(Default)]
struct Story {
    minute: i64,
    status: Option<FleetPackageStatus>,
}

fn at(minute: i64) -> f64 {
    T + 60.0 * minute as f64
}

impl Story {
    fn judge<'a>(
        &mut self,
        revision: impl Into<Option<&'a str>>,
        seen: impl IntoIterator<Item = Observation>,
    ) -> FleetPackageStatus {
        self.judge_with(revision.into(), Backend::Answers, seen)
    }

    fn judge_with(
        &mut self,
        revision: Option<&str>,
        backend: Backend<'_>,
        seen: impl IntoIterator<Item = Observation>,
    ) -> FleetPackageStatus {
        let spec = FleetPackageSpec { revision: revision.map(Into::into), ..package() };
        let status = decide(&Input {
            previous: self.status.as_ref(),
            backend,
            moment: Moment { t: at(self.minute) - 5.0, now: at(self.minute) },
            ..reported(&spec, &targets(seen), &Excused::nobody())
        });
        self.minute += 1;
        self.status = Some(status.clone());
        status
    }
}

fn entry(revision: &str, started: i64, applied: Option<i64>, healthy: Option<i64>) -> HistoryEntry {
    let time = |minute: i64| time(at(minute));
    HistoryEntry {
        revision: revision.into(),
        started_at: time(started),
        applied_at: applied.map(time),
        healthy_at: healthy.map(time),
        failed_at: None,
        restored_at: None,
    }
}

/// The same, of a revision that failed, and when the package was healthy again.
fn failed_entry(entry: HistoryEntry, failed: i64, restored: Option<i64>) -> HistoryEntry {
    HistoryEntry {
        failed_at: Some(time(at(failed))),
        restored_at: restored.map(|minute| time(at(minute))),
        ..entry
    }
}

#[test]
fn a_rollout_leaves_its_times_behind() {
    let mut story = Story::default();
    let fresh = |row| fresh(row);
    assert_eq!(story.judge(R1, [fresh(healthy(R1))]).history, [entry(R1, 0, Some(0), Some(0))]);
    let first = entry(R1, 0, Some(0), Some(0));
    let started = story.judge(R2, [fresh(healthy(R1)), fresh(moving(R1, R2))]);
    assert_eq!(started.history, [entry(R2, 1, None, None), first.clone()]);
    let half = story.judge(R2, [fresh(moving(R1, R2)), fresh(healthy(R2))]);
    assert_eq!(half.history[0], entry(R2, 1, None, None));
    let applied = story.judge(R2, [fresh(applied(R2, Health::InProgress)), fresh(healthy(R2))]);
    assert_eq!(applied.history[0], entry(R2, 1, Some(3), None));
    let done = story.judge(R2, [fresh(healthy(R2)), fresh(healthy(R2))]);
    assert_eq!(done.history, [entry(R2, 1, Some(3), Some(4)), first]);
    // What happens later does not change when it first was so.
    let worse = story.judge(R2, [fresh(failed(R1, R2)), fresh(healthy(R2))]);
    let [second, first] = [0, 1].map(|place| done.history[place].clone());
    assert_eq!(worse.history, [failed_entry(second.clone(), 5, None), first.clone()]);
    assert_eq!(story.judge(R2, [fresh(healthy(R2))]).history, [failed_entry(second, 5, Some(6)), first]);
}

#[test]
fn a_revision_that_is_wanted_again_starts_anew() {
    let mut story = Story::default();
    story.judge(R1, [fresh(healthy(R1))]);
    story.judge(R2, [fresh(failed(R1, R2))]);
    let back = story.judge(R1, [fresh(moving(R2, R1))]);
    let told: Vec<_> =
        back.history.iter().map(|it| (it.revision.as_str(), it.healthy_at.is_some())).collect();
    assert_eq!(told, [(R1, false), (R2, false), (R1, true)]);
}

#[test]
fn other_words_for_the_same_revision_are_no_other_rollout() {
    let mut story = Story::default();
    story.judge(R2, [fresh(healthy(R2))]);
    let digits = Fingerprint::of(R2).to_string();
    assert_eq!(story.judge(&*digits, [fresh(healthy(R2))]).history, [entry(&digits, 0, Some(0), Some(0))]);
}

#[test]
fn without_a_wanted_revision_nothing_is_added() {
    let mut story = Story::default();
    assert_eq!(story.judge(None, [fresh(healthy(R1))]).history, []);
    story.judge(R1, [fresh(healthy(R1))]);
    assert_eq!(story.judge(None, [fresh(healthy(R2))]).history, [entry(R1, 1, Some(1), Some(1))]);
}

#[test]
fn clusters_out_of_sight_have_not_applied_anything() {
    for standing in [Standing::Stale, Standing::Missing, Standing::Unverified, Standing::Conflict] {
        let mut story = Story::default();
        let hidden = unobserved(standing, Some(healthy(R2)));
        assert_eq!(story.judge(R2, [fresh(healthy(R2)), hidden]).history, [entry(R2, 0, None, None)]);
    }
    assert_eq!(Story::default().judge(R2, []).history, [entry(R2, 0, None, None)], "nobody is not everybody");
}

#[test]
fn it_is_bounded_and_the_oldest_goes() {
    let mut story = Story::default();
    for number in 0..25 {
        story.judge(&*format!("v{number}"), [fresh(healthy(R1))]);
    }
    let history = story.status.unwrap().history;
    assert_eq!(history.len(), 10);
    assert_eq!((history[0].revision.as_str(), history[9].revision.as_str()), ("v24", "v15"));
}

#[test]
fn it_outlives_a_backend_that_never_answers_and_a_spec_that_cannot_be_read() {
    let mut story = Story::default();
    let before = story.judge(R2, [fresh(healthy(R2))]);
    story.minute = 60;
    let silent = story.judge_with(Some(R3), Backend::Unknown("no route to host"), []);
    assert!(silent.counted().is_none());
    assert_eq!(silent.history, before.history, "R3 has not been judged");
    assert_eq!(silent.last_healthy_revision, before.last_healthy_revision);
    let unreadable = decide(&Input {
        spec: Err("of tomorrow"),
        wanted: Wanted::Own,
        generation: 2,
        previous: Some(&silent),
        ..reported(&package(), &[], &Excused::nobody())
    });
    assert_eq!(unreadable.history, before.history);
    assert_eq!(unreadable.last_healthy_revision, before.last_healthy_revision);
}

#[test]
fn what_a_namespace_may_not_see_any_more_is_not_remembered_either() {
    let mut story = Story::default();
    let before = story.judge(R2, [fresh(healthy(R2))]);
    let spec = package();
    let status = decide(&Input {
        previous: Some(&before),
        membership: &Membership::Forbidden("this namespace may not see it".into()),
        ..reported(&spec, &[], &Excused::nobody())
    });
    assert_eq!((status.history, status.last_healthy_revision), (vec![], None));
}

#[test]
fn a_failure_and_its_end_are_remembered_with_the_revision_that_failed() {
    let mut story = Story::default();
    story.judge(R1, [fresh(healthy(R1)), fresh(healthy(R1))]);
    let first = entry(R1, 0, Some(0), Some(0));
    // It fails in one cluster, and then in the other one, too: the first time counts.
    story.judge(R2, [fresh(failed(R1, R2)), fresh(healthy(R1))]);
    let broken = story.judge(R2, [fresh(failed(R1, R2)), fresh(failed(R1, R2))]);
    let second = failed_entry(entry(R2, 1, None, None), 1, None);
    assert_eq!(broken.history, [second, first.clone()]);
    // While the next one is on its way, the package still fails at the one before: that is not the next one's fault.
    let unhealthy = |row: Row| fresh(Row { health: Health::Failed, healthy: Fingerprint::NONE, ..row });
    let mending = story.judge(R3, [unhealthy(moving(R2, R3)), fresh(moving(R1, R3))]);
    assert_eq!(mending.history[0], entry(R3, 3, None, None));
    let mended = story.judge(R3, [fresh(healthy(R3)), fresh(healthy(R3))]);
    let second = failed_entry(entry(R2, 1, None, None), 1, Some(4));
    assert_eq!(mended.history, [entry(R3, 3, Some(4), Some(4)), second.clone(), first.clone()]);
    // It breaks later, and mends itself.
    let third = entry(R3, 3, Some(4), Some(4));
    let late = story.judge(R3, [unhealthy(healthy(R3)), fresh(healthy(R3))]);
    assert_eq!(late.history[0], failed_entry(third.clone(), 5, None));
    let over = story.judge(R3, [fresh(healthy(R3)), fresh(healthy(R3))]);
    assert_eq!(over.history, [failed_entry(third.clone(), 5, Some(6)), second, first]);
    // What comes after that is not told: a revision fails once.
    story.judge(R3, [unhealthy(healthy(R3)), fresh(healthy(R3))]);
    assert_eq!(story.status.unwrap().history[0], failed_entry(third, 5, Some(6)));
}

#[test]
fn the_last_healthy_revision_is_one_that_the_whole_package_had() {
    let mut story = Story::default();
    let last = |status: FleetPackageStatus| status.last_healthy_revision;
    let (one, two) = (Fingerprint::of(R1).to_string(), Fingerprint::of(R2).to_string());
    // Without a wanted revision: the one that all have.
    assert_eq!(last(story.judge(None, [fresh(healthy(R1)), fresh(healthy(R1))])), Some(one.clone()));
    // Each healthy at its own, but not the same: the package was last healthy as a whole before.
    assert_eq!(last(story.judge(None, [fresh(healthy(R1)), fresh(healthy(R2))])), Some(one));
    assert_eq!(last(story.judge(None, [fresh(healthy(R2)), fresh(healthy(R2))])), Some(two.clone()));
    // The same revision everywhere, but one of them is not healthy, or cannot be seen.
    assert_eq!(
        last(story.judge(None, [fresh(healthy(R3)), fresh(applied(R3, Health::Failed))])),
        Some(two.clone())
    );
    let hidden = unobserved(Standing::Stale, Some(healthy(R3)));
    assert_eq!(last(story.judge(None, [fresh(healthy(R3)), hidden])), Some(two.clone()));
    // With one: in the spec's own words, once all are healthy at it.
    assert_eq!(last(story.judge(R3, [fresh(healthy(R3)), fresh(healthy(R2))])), Some(two));
    assert_eq!(last(story.judge(R3, [fresh(healthy(R3)), fresh(healthy(R3))])), Some(R3.to_owned()));
    let too_few = FleetPackageSpec {
        clusters: ClusterSet { reporting: Some(Reporting { min_clusters: 2 }), ..ClusterSet::default() },
        ..package()
    };
    let status = decide(&Input {
        previous: story.status.as_ref(),
        ..reported(&too_few, &targets([fresh(healthy(R2))]), &Excused::nobody())
    });
    assert_eq!(status.last_healthy_revision.as_deref(), Some(R3), "too few are not all");
}
