//! Judging again comes to the same as judging anew, whatever happens in between.

use proptest::prelude::*;
use serde_json::json;

mod history;
mod steps;

use history::{GATES, History, PACKAGES};
use steps::{Change, Landing, Step, steps};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn judging_again_comes_to_the_same_as_judging_anew(steps in steps()) {
        let mut history = History::new();
        for (step, landing) in steps {
            history.happens(step);
            history.judge(landing)?;
        }
    }
}

#[test]
fn a_trace_that_a_spec_no_longer_has_is_told_no_longer() {
    let mut history = History::new();
    let id = statusbridge_core::testing::package("q");
    let stage = json!({"stage": "first", "cluster": "a", "source": id.source, "namespace": id.namespace, "name": id.name});
    let plain = json!({"clusters": {"names": ["a", "b"]}, "staleAfter": "2m"});
    let mut traced = plain.clone();
    (traced["revision"], traced["trace"]) = (json!("r1"), json!([stage]));
    for (spec, stages) in [(traced, 1), (plain, 0)] {
        history.happens(Step::Package(0, spec));
        history.happens(Step::Round(15));
        history.judge(Landing::Whole).unwrap();
        let report = history.around.packages.iter().next().unwrap();
        assert_eq!(report.status.as_ref().map(|status| status.trace.len()), Some(stages));
    }
}

#[test]
fn a_feed_that_answers_at_last_and_has_nothing_to_tell_is_news_to_who_waited_for_it() {
    let mut history = History::new();
    let wave = json!({"fleetPackageRef": {"name": "p"}, "revision": "r1", "clusters": {"names": ["b", "z"]}});
    let nothing = Step::Scraped { cluster: 2, instance: 0 };
    for step in [Step::Gate(0, wave), nothing, Step::Replanned, Step::Polled(0), Step::Polled(1)] {
        history.happens(step);
        history.judge(Landing::Whole).unwrap();
    }
}

/// What the process before said counts as long as nothing younger is known; then the new one answers.
#[test]
fn an_exporter_that_takes_over_in_the_same_second_is_believed_as_soon_as_it_is_younger() {
    let mut history = History::new();
    let moved_on = Step::Change { cluster: 0, package: 0, to: Change::Healthy(false) };
    let takes_over = Step::Restart { cluster: 0 };
    for step in [Step::Round(15), moved_on, takes_over, Step::Polled(0), Step::Round(15)] {
        history.happens(step);
        history.judge(Landing::Whole).unwrap();
    }
}

/// How often verdicts stood, were refreshed, and had to be given anew in that time.
fn counts(history: &History) -> [u64; 3] {
    history.around.verdicts.counts.each_ref().map(|count| count.load(std::sync::atomic::Ordering::Relaxed))
}

#[test]
fn a_quiet_fleet_is_judged_once_and_then_only_refreshed() {
    let mut history = History::new();
    history.happens(Step::Round(15));
    history.judge(Landing::Whole).unwrap();
    let [.., anew] = counts(&history);
    for _ in 0..40 {
        history.happens(Step::Round(15));
        history.judge(Landing::Whole).unwrap();
    }
    let [stood, refreshed, after] = counts(&history);
    // Scrape intervals become known after some rounds.
    assert!(after - anew <= (GATES.len() + PACKAGES.len()) as u64 * 3, "{after} of {anew}");
    assert!(refreshed >= 40 / 4 * 5 && stood >= 2 * refreshed, "{stood} {refreshed}");

    // What changes in one package does not concern the other.
    history.happens(Step::Change { cluster: 1, package: 0, to: Change::Healthy(false) });
    let [.., before] = counts(&history);
    history.happens(Step::Round(15));
    history.judge(Landing::Whole).unwrap();
    let [.., after] = counts(&history);
    assert_eq!(
        after - before,
        10,
        "two FleetPackages, and four gates twice each: then what was written stands"
    );
}
