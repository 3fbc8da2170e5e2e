//! What must hold whatever polls bring.

use std::collections::BTreeMap;

use proptest::prelude::*;
use statusbridge_contract::Fingerprint;

use super::{Beat, FEED_LABEL, Fleet, FleetSettings, Heard, Standing};
use crate::{
    clock::Seconds,
    testing::{Exposition, beat, failed, gather, healthy, package, stream, tell},
    verify::verify,
};

/// What one poll finds of one stream.
#[derive(Debug, Clone)]
struct Event {
    stream: u8,
    /// Seconds since the event before.
    after: u16,
    /// How old the scrape is at the time of the poll.
    lag: u16,
    /// How much older the exposition is than its scrape.
    repeated: u16,
    /// Which exposition it is.
    says: u8,
    /// Whether its samples arrive whole.
    whole: bool,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event =
        (0..3u8, 0..120u16, 0..60u16, prop_oneof![8 => Just(0u16), 1 => 0..400u16], 0..6u8, any::<bool>());
    let event = event.prop_map(|(stream, after, lag, repeated, says, whole)| Event {
        stream,
        after,
        lag,
        repeated,
        says,
        whole,
    });
    prop::collection::vec(event, 0..40)
}

fn exposition(says: u8) -> Exposition {
    match says {
        0 => Exposition::new(1).with("p", healthy("r1", 10, 1)),
        1 => Exposition::new(1).with("p", healthy("r2", 20, 2)),
        2 => Exposition::new(1).with("p", failed("r2", 30, 3)),
        3 => Exposition::new(1).with("q", healthy("r1", 10, 1)),
        4 => Exposition::new(1).with("p", healthy("r1", 10, 1)).down("flux"),
        _ => Exposition::new(2).with("p", healthy("r1", 10, 1)),
    }
}

const STALE_AFTER: Seconds = 100.0;

proptest! {
    #[test]
    fn fresh_only_on_young_verified_evidence(events in events(), wait in 0..200u16) {
        let mut fleet = Fleet::new(FleetSettings::default());
        let mut t: Seconds = 10_000.0;
        // By stream: what was verified last, and the times of digests equal to it.
        let mut model: BTreeMap<u8, (u8, Seconds)> = BTreeMap::new();
        let mut newest: BTreeMap<u8, Seconds> = BTreeMap::new();
        for event in events {
            t += Seconds::from(event.after);
            let at = t - Seconds::from(event.lag);
            let rendered = at - Seconds::from(event.repeated);
            let exposition = exposition(event.says);
            let beat = Beat {
                cluster: "c".into(),
                stream: stream(&[("instance", &event.stream.to_string())]),
                contract: "1".into(),
                digest: Some(exposition.digest()),
                at,
                rendered: Some((rendered, at)),
                ..Beat::default()
            };
            let old = newest.get(&event.stream).is_some_and(|n| at < *n);
            if !old {
                newest.insert(event.stream, at);
            }
            let heard = fleet.hear(&beat, t);
            prop_assert_eq!(heard == Heard::Old, old);
            match heard {
                Heard::Unread if event.whole => {
                    let content = verify(gather(&exposition.lines()), exposition.digest()).unwrap();
                    fleet.accept(&beat, content, t);
                    model.insert(event.stream, (event.says, rendered));
                }
                Heard::Unread => fleet.reject(&beat, "torn".into(), None),
                Heard::Confirmed => {
                    let known = model.get_mut(&event.stream).unwrap();
                    prop_assert_eq!(known.0, event.says);
                    known.1 = known.1.max(rendered);
                }
                _ => {}
            }
            check(&fleet.observe("c", &package("p"), t, STALE_AFTER), &model, t)?;
        }
        t += Seconds::from(wait);
        check(&fleet.observe("c", &package("p"), t, STALE_AFTER), &model, t)?;
        fleet.unanswered("", "gone".into());
        check(&fleet.observe("c", &package("p"), t, STALE_AFTER), &model, t)?;
        prop_assert_ne!(fleet.observe("c", &package("p"), t + 10_000.0, STALE_AFTER).standing, Standing::Fresh);
    }
}

fn check(
    got: &super::Observation,
    model: &BTreeMap<u8, (u8, Seconds)>,
    t: Seconds,
) -> Result<(), TestCaseError> {
    if got.standing != Standing::Fresh {
        return Ok(());
    }
    // Some stream attested exactly this, with the source up, lately enough; and no other cluster did.
    let row = got.row.as_ref().unwrap();
    let young = |evidence: Seconds| t - evidence <= STALE_AFTER;
    let attested = |says: u8| match says {
        0 => row.healthy == Fingerprint::of("r1"),
        1 => row.healthy == Fingerprint::of("r2"),
        2 => row.healthy.is_none(),
        5 => row.healthy == Fingerprint::of("r1"),
        _ => false,
    };
    prop_assert!(
        model.values().any(|(says, evidence)| attested(*says) && young(*evidence)),
        "{:?} {:?}",
        got,
        model
    );
    let uids = |other: bool| model.values().any(|(says, evidence)| (*says == 5) == other && young(*evidence));
    prop_assert!(!(uids(true) && uids(false)), "two clusters, {:?}", model);
    Ok(())
}

#[test]
fn what_is_not_heard_from_is_forgotten_but_only_when_the_backend_answers() {
    let mut fleet = Fleet::new(FleetSettings::default());
    let hear = |fleet: &mut Fleet, cluster: &str, at: Seconds| {
        tell(fleet, &[("cluster", cluster)], &exposition(0), at);
    };
    hear(&mut fleet, "b", 1000.0);
    hear(&mut fleet, "a", 1000.0);
    for at in [1030.0, 1045.0, 1075.0, 1090.0] {
        hear(&mut fleet, "a", at);
    }
    assert_eq!(fleet.scrape_interval("a"), Some(15.0));
    assert_eq!(fleet.scrape_interval("b"), None);
    assert_eq!(fleet.newest_evidence(), Some(1090.0));
    assert_eq!(fleet.reporting(&package("p")), ["a", "b"]);
    assert!(fleet.reporting(&package("q")).is_empty());
    let seen = fleet.revisions(&package("p"));
    assert_eq!(seen, [(Fingerprint::of("r1"), ["a", "b"].into())].into());
    fleet.unanswered("", "gone".into());
    assert_eq!(fleet.reporting(&package("p")), ["a", "b"]);
    hear(&mut fleet, "a", 9000.0);
    fleet.answered("", 9000.0);
    assert_eq!(fleet.reporting(&package("p")), ["a"]);
}

#[test]
fn packages_are_known_from_verified_data_of_clusters_that_may_be_looked_at() {
    let mut fleet = Fleet::new(FleetSettings::default());
    let mut hear = |cluster: &str, exposition: &Exposition, whole: bool| {
        let beat = beat(&[("cluster", cluster)], exposition, 100.0);
        fleet.hear(&beat, 100.0);
        match whole {
            true => drop(fleet.accept(
                &beat,
                verify(gather(&exposition.lines()), exposition.digest()).unwrap(),
                100.0,
            )),
            false => fleet.reject(&beat, "torn".into(), None),
        }
    };
    let says = |names: &[&str]| {
        names.iter().fold(Exposition::new(1), |all, name| all.with(name, healthy("r", 10, 1)))
    };
    hear("one", &says(&["a", "b"]), true);
    hear("two", &says(&["b", "c"]), true);
    hear("three", &says(&["d"]), false);
    let found = |clusters: &'static [&'static str]| -> Vec<String> {
        let found = fleet.packages(|_| move |cluster: &str| clusters.contains(&cluster));
        found.into_iter().map(|id| id.name).collect()
    };
    assert_eq!(found(&["one", "two", "three"]), ["a", "b", "c"]);
    assert_eq!(found(&["two"]), ["b", "c"]);
    assert_eq!(found(&[]), Vec::<String>::new());
    let hidden = package("b");
    let but_one = fleet.packages(|id| {
        let shown = *id != hidden;
        move |_: &str| shown
    });
    assert_eq!(but_one.into_iter().map(|id| id.name).collect::<Vec<_>>(), ["a", "c"]);
}

#[test]
fn a_cluster_is_taken_from_where_it_is_freshest_and_a_feed_that_fails_is_named() {
    let mut fleet = Fleet::new(FleetSettings::default());
    for (feed, at, says) in [("eu", 1000.0, "r1"), ("us", 1040.0, "r2")] {
        let exposition = Exposition::new(1).with("p", healthy(says, 900, 1));
        tell(&mut fleet, &[("cluster", "c"), (FEED_LABEL, feed)], &exposition, at);
    }
    let observe = |fleet: &Fleet, t| fleet.observe("c", &package("p"), t, STALE_AFTER);
    assert_eq!(observe(&fleet, 1050.0).row.unwrap().healthy, Fingerprint::of("r2"));
    assert_eq!(fleet.feed_of("c", &package("p")), Some("us"));

    // One that the cluster does not come by says nothing about it.
    fleet.unanswered("asia", "gone".into());
    assert_eq!(observe(&fleet, 2000.0).reason, super::observation::reason::EXPORTER_SILENT);
    fleet.unanswered("us", "gone".into());
    let silent = observe(&fleet, 2000.0);
    assert_eq!(silent.reason, super::observation::reason::BACKEND_UNAVAILABLE);
    assert!(silent.message.ends_with("feed us: gone"), "{}", silent.message);

    // Only what a feed has not heard of for long while it answers is forgotten.
    fleet.answered("eu", 9000.0);
    assert_eq!(fleet.feed_of("c", &package("p")), Some("us"));
    fleet.answered("us", 9000.0);
    assert_eq!(fleet.feed_of("c", &package("p")), None);
}
