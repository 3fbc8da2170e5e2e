//! What must hold whatever polls bring.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;
use statusbridge_contract::Fingerprint;

use super::{DigestSample, Digests, Exposition, Fleet, FleetSettings, Heard, Signs, Since, Standing};
use crate::testing::{self, digests, failed, healthy, package, tell, tell_by, tell_digests};
use crate::time::Seconds;

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

fn exposition(says: u8) -> testing::Exposition {
    let new = testing::Exposition::new;
    match says {
        0 => new(1).with("p", healthy("r1", 10)),
        1 => new(1).with("p", healthy("r2", 20)),
        2 => new(1).with("p", failed("r2", 30)),
        3 => new(1).with("q", healthy("r1", 10)),
        4 => new(1).with("p", healthy("r1", 10)).down("flux"),
        _ => new(1).by(2).with("p", healthy("r1", 10)),
    }
}

const STALE_AFTER: Seconds = 100.0;

proptest! {
    #[test]
    fn fresh_only_on_young_verified_evidence(events in events(), wait in 0..200u16) {
        let mut fleet = Fleet::new(FleetSettings::default());
        let mut t: Seconds = 10_000.0;
        // By stream: what was verified last, and when the last exposition of it was rendered.
        let mut model: BTreeMap<(u8, bool), (u8, Seconds)> = BTreeMap::new();
        for event in events {
            t += Seconds::from(event.after);
            let at = t - Seconds::from(event.lag);
            let rendered = at - Seconds::from(event.repeated);
            let exposition = exposition(event.says);
            let instance = event.stream.to_string();
            let labels = [("cluster", "c"), ("instance", instance.as_str())];
            let said = Exposition { digest: exposition.digest(rendered as u64), rendered: rendered as u64 };
            let samples = vec![DigestSample { at, exposition: said }];
            let digests = Digests { samples, ..digests(&labels, &exposition, &[]) };
            let id = (event.stream, event.says == 5);
            match fleet.hear(&digests, t) {
                Heard::Unread(samples) if event.whole => {
                    fleet.accept((&digests.cluster, &digests.stream), &samples[0], exposition.content(), t);
                    model.insert(id, (event.says, rendered));
                }
                Heard::Unread(_) => fleet.reject((&digests.cluster, &digests.stream), "torn".into()),
                // One that comes late confirms as well.
                Heard::Confirmed | Heard::Old => {
                    if let Some(known) = model.get_mut(&id).filter(|known| known.0 == event.says) {
                        known.1 = known.1.max(rendered);
                    }
                }
                Heard::Unusable => {}
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
    model: &BTreeMap<(u8, bool), (u8, Seconds)>,
    t: Seconds,
) -> Result<(), TestCaseError> {
    if got.standing != Standing::Fresh {
        return Ok(());
    }
    // A revision counts only if some stream attested it, with the source up, lately enough.
    let row = got.row.as_ref().unwrap();
    let attested = |says: u8| match says {
        0 | 5 => row.healthy == Fingerprint::of("r1"),
        1 => row.healthy == Fingerprint::of("r2"),
        _ => false,
    };
    let young = |(says, rendered): &(u8, Seconds)| attested(*says) && t - rendered <= STALE_AFTER;
    prop_assert!(row.healthy.is_none() || model.values().any(young), "{:?} {:?}", got, model);
    prop_assert!(got.as_of.is_some_and(|as_of| t - as_of <= STALE_AFTER));
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
    assert_eq!(fleet.scrape_interval("c"), None);
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
    let mut hear = |cluster: &str, exposition: &testing::Exposition, whole: bool| {
        let digests = digests(&[("cluster", cluster)], exposition, &[100.0]);
        if whole {
            return tell_digests(&mut fleet, &digests, exposition, 100.0);
        }
        fleet.hear(&digests, 100.0);
        fleet.reject((&digests.cluster, &digests.stream), "torn".into());
    };
    let says = |names: &[&str]| {
        names.iter().fold(testing::Exposition::new(1), |all, name| all.with(name, healthy("r", 10)))
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
fn the_worst_of_two_feeds_counts_and_one_that_fails_is_named() {
    let mut fleet = Fleet::new(FleetSettings::default());
    for (feed, at, says) in [("eu", 1010.0, "r1"), ("us", 1020.0, "r2")] {
        let exposition = testing::Exposition::new(1).with("p", healthy(says, 900));
        tell_by(feed, &mut fleet, &[("cluster", "c")], &exposition, at);
    }
    let observe = |fleet: &Fleet, t| fleet.observe("c", &package("p"), t, STALE_AFTER);
    let seen = observe(&fleet, 1050.0);
    assert_eq!((seen.standing, seen.as_of), (Standing::Fresh, Some(1010.0)));
    assert_eq!(seen.row.unwrap().healthy, Fingerprint::NONE);
    assert!(seen.message.contains("its streams disagree"), "{}", seen.message);
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

/// Two clusters of one name, by two feeds that are looked at as of other times: of the one nothing is ever as young as of the
/// other.
#[test]
fn a_stream_that_is_late_or_whose_feed_does_not_answer_is_not_silent() {
    let mut fleet = Fleet::new(FleetSettings::default());
    let poll = |fleet: &mut Fleet, feed: &str, uid, t: Seconds| {
        let exposition = testing::Exposition::new(uid).with("p", healthy("r1", 900));
        tell_by(feed, fleet, &[("cluster", "c")], &exposition, t);
        fleet.answered(feed, t);
    };
    let standing = |fleet: &Fleet, t| fleet.observe("c", &package("p"), t, STALE_AFTER).standing;
    for now in (1100..1400).step_by(15).map(f64::from) {
        poll(&mut fleet, "eu", 1, now - 5.0);
        poll(&mut fleet, "us", 2, now - 60.0);
        assert_eq!(standing(&fleet, now), Standing::Conflict, "{now}");
    }
    for now in (1400..1600).step_by(15).map(f64::from) {
        poll(&mut fleet, "eu", 1, now - 5.0);
        fleet.unanswered("us", "gone".into());
        assert_eq!(standing(&fleet, now), Standing::Conflict, "{now}");
    }
    // Once it answers, and has nothing new, the other one is alone.
    poll(&mut fleet, "eu", 1, 1600.0);
    fleet.answered("us", 1600.0);
    assert_eq!(standing(&fleet, 1605.0), Standing::Fresh);

    // Where both are the same cluster, the feed that answers is enough.
    let mut fleet = Fleet::new(FleetSettings::default());
    poll(&mut fleet, "us", 1, 1000.0);
    for now in (1000..1600).step_by(15).map(f64::from) {
        poll(&mut fleet, "eu", 1, now);
        fleet.unanswered("us", "gone".into());
        assert_eq!(standing(&fleet, now + 5.0), Standing::Fresh, "{now}");
    }
}

#[test]
fn an_exporter_that_starts_again_and_again_does_not_fill_the_memory() {
    let mut fleet = Fleet::new(FleetSettings::default());
    for process in 1..100_u32 {
        let said = exposition(0).by(process.into());
        let at = 1000.0 + 40.0 * Seconds::from(process);
        tell(&mut fleet, &[("cluster", "c")], &said, at);
        fleet.answered("", at);
    }
    assert_eq!(fleet.streams().count(), super::KEPT_STREAMS);
    // A cluster of which nothing else is known keeps what it is known by.
    assert_eq!(fleet.observe("c", &package("p"), 4970.0, STALE_AFTER).standing, Standing::Fresh);
}

#[test]
fn processes_under_the_same_labels_are_bounded_however_fast_they_come() {
    let mut fleet = Fleet::new(FleetSettings::default());
    for process in 1..50_u32 {
        let at = 1000.0 + Seconds::from(process);
        let said = exposition(0).by(process.into());
        tell_digests(&mut fleet, &digests(&[("cluster", "c")], &said, &[at]), &said, at);
    }
    // Those that were heard last.
    let known: Vec<u64> = fleet.streams().map(|stream| stream.id.process).collect();
    assert_eq!(known, (50 - super::KEPT_STREAMS as u64..50).collect::<Vec<_>>());
}

#[test]
fn names_that_come_and_go_do_not_fill_the_memory_and_their_packages_count_as_changed() {
    let mut fleet = Fleet::new(FleetSettings::default());
    let labels = [("cluster", "c")];
    let mut before = None;
    for n in 0..4000_u32 {
        let said = testing::Exposition::new(1).with(&format!("p{n}"), healthy("r1", 10));
        let at = 1000.0 + Seconds::from(n);
        tell_digests(&mut fleet, &digests(&labels, &said, &[at]), &said, at);
        if n == 100 {
            before = Some((
                fleet.mark(),
                fleet.clusters_of(["c"].into_iter(), &super::key(&package("p"))).unwrap(),
            ));
        }
    }
    assert!(fleet.changes.packages() <= 2048, "{} names are known", fleet.changes.packages());
    let (mark, clusters) = before.unwrap();
    assert_eq!(fleet.since(mark, &super::key(&package("p100")), &clusters), Since::Changed);
}

/// Two clusters that said so at 1000, and two feeds, of which `lost` does not answer.
fn quiet() -> Fleet {
    let mut fleet = Fleet::new(FleetSettings::default());
    fleet.unanswered("lost", "gone".into());
    say(&mut fleet, "c", [healthy("r1", 10), healthy("r1", 10)], 1000.0);
    say(&mut fleet, "d", [healthy("r1", 10), healthy("r1", 10)], 1000.0);
    fleet
}

/// What a cluster says of `p` and `q`.
fn say(fleet: &mut Fleet, cluster: &str, [p, q]: [testing::Values; 2], at: Seconds) {
    tell(fleet, &[("cluster", cluster)], &testing::Exposition::new(1).with("p", p).with("q", q), at);
}

#[rstest]
#[case::nothing(|_: &mut Fleet| (), Since::Same(Some(1000.0)))]
#[case::the_same_again(|it: &mut Fleet| say(it, "c", [healthy("r1", 10), healthy("r1", 10)], 1015.0), Since::Same(Some(1015.0)))]
#[case::the_package(|it: &mut Fleet| say(it, "c", [failed("r1", 10), healthy("r1", 10)], 1015.0), Since::Changed)]
#[case::the_package_elsewhere(|it: &mut Fleet| say(it, "d", [failed("r1", 10), healthy("r1", 10)], 1015.0), Since::Changed)]
#[case::another_package(|it: &mut Fleet| say(it, "c", [healthy("r1", 10), failed("r1", 10)], 1015.0), Since::Same(Some(1015.0)))]
#[case::a_feed_answers(|it: &mut Fleet| it.answered("", 1000.0), Since::Same(Some(1000.0)))]
#[case::a_feed_fails(|it: &mut Fleet| it.unanswered("", "gone".into()), Since::Changed)]
#[case::a_feed_that_failed_answers(|it: &mut Fleet| it.answered("lost", 1000.0), Since::Changed)]
#[case::too_many_streams(|it: &mut Fleet| it.crowd("c", 1000.0), Since::Changed)]
#[case::too_many_streams_elsewhere(|it: &mut Fleet| it.crowd("d", 1000.0), Since::Same(Some(1000.0)))]
#[case::another_fleet(|it: &mut Fleet| *it = quiet(), Since::Changed)]
fn what_is_news_of_a_package_that_was_fresh_in_a_cluster(#[case] happens: fn(&mut Fleet), #[case] is: Since) {
    let mut fleet = quiet();
    let (mark, clusters) =
        (fleet.mark(), fleet.clusters_of(["c"].into_iter(), &super::key(&package("p"))).unwrap());
    happens(&mut fleet);
    assert_eq!(fleet.since(mark, &super::key(&package("p")), &clusters), is);
}

/// A hundred and thirty clusters, of which the first one has the youngest evidence. One after the other changes.
#[rstest]
#[case::one(&[70])]
#[case::on_both_sides_of_a_border(&[63, 64])]
#[case::the_ends(&[0, 129])]
#[case::all_but_some(&(0..130).filter(|n| n % 7 != 3).collect::<Vec<_>>())]
#[case::all(&(0..130).collect::<Vec<_>>())]
fn what_is_news_of_some_clusters_is_what_is_news_of_one_of_them(#[case] chosen: &[u32]) {
    let mut fleet = Fleet::new(FleetSettings::default());
    let name = |n: u32| format!("c{n:03}");
    let evidence = |n: u32| 1000.0 - Seconds::from(n);
    for n in 0..130 {
        say(&mut fleet, &name(n), [healthy("r1", 10), healthy("r1", 10)], evidence(n));
    }
    let names: Vec<String> = chosen.iter().map(|n| name(*n)).collect();
    let key = super::key(&package("p"));
    let clusters = fleet.clusters_of(names.iter().map(String::as_str), &key).unwrap();
    let is_as_old_as = chosen.iter().copied().map(evidence).reduce(Seconds::min);
    assert_eq!(fleet.since(fleet.mark(), &key, &clusters), Since::Same(is_as_old_as));
    for n in 0..130 {
        let mark = fleet.mark();
        fleet.crowd(&name(n), 1000.0);
        let is_one_of_them = fleet.since(mark, &key, &clusters) == Since::Changed;
        assert_eq!(is_one_of_them, chosen.contains(&n), "{n}");
    }
}

#[test]
fn what_a_poll_found_is_heard_of_its_own_cluster_whatever_the_order() {
    let names = ["a", "b", "c", "d", "e"];
    for order in [[0, 1, 2, 3, 4], [3, 0, 4, 1, 2]] {
        let mut fleet = Fleet::default();
        let said = testing::Exposition::new(1).with("p", healthy("r1", 10));
        for known in ["b", "d"] {
            tell(&mut fleet, &[("cluster", known)], &said, 1000.0);
        }
        let found = order.map(|at| digests(&[("cluster", names[at])], &said, &[1015.0]));
        let heard = fleet.hear_all(&found, 1015.0);
        for (at, heard) in order.into_iter().zip(heard) {
            assert_eq!(
                heard == Heard::Confirmed,
                ["b", "d"].contains(&names[at]),
                "{}: {heard:?}",
                names[at]
            );
        }
        let streams = fleet.streams().map(|it| (it.cluster, it.id.labels["cluster"].as_str()));
        assert_eq!(streams.collect::<Vec<_>>(), names.map(|name| (name, name)));
    }
}

#[test]
fn a_stream_that_falls_silent_is_news_once_its_feed_was_looked_at() {
    let mut fleet = Fleet::new(FleetSettings::default());
    let tell = |fleet: &mut Fleet, instance: &str, says: testing::Values, at: Seconds| {
        let labels = [("cluster", "c"), ("instance", instance)];
        testing::tell(fleet, &labels, &testing::Exposition::new(1).with("p", says), at);
    };
    tell(&mut fleet, "1", failed("r1", 900), 1000.0);
    for at in [1000.0, 1015.0, 1030.0] {
        tell(&mut fleet, "2", healthy("r1", 900), at);
        fleet.answered("", at);
    }
    tell(&mut fleet, "2", healthy("r1", 900), 1045.0);
    let key = super::key(&package("p"));
    let (mark, clusters) = (fleet.mark(), fleet.clusters_of(["c"].into_iter(), &key).unwrap());
    fleet.answered("", 1045.0);
    assert_eq!(fleet.since(mark, &key, &clusters), Since::Changed);
}

/// Two exporters of a cluster, by two feeds. The one that has failed is late by a scrape when its feed does not answer.
#[test]
fn a_stream_that_is_heard_again_is_news_before_its_feed_has_answered() {
    let mut fleet = Fleet::new(FleetSettings::default());
    let tell = |fleet: &mut Fleet, feed: &str, says: testing::Values, at: Seconds| {
        tell_by(feed, fleet, &[("cluster", "c")], &testing::Exposition::new(1).with("p", says), at);
    };
    tell(&mut fleet, "eu", failed("r1", 900), 1000.0);
    fleet.answered("eu", 1015.0);
    for at in [1015.0, 1030.0, 1045.0] {
        tell(&mut fleet, "us", healthy("r1", 900), at);
        fleet.answered("us", at);
    }
    let is_well = |fleet: &Fleet| {
        let seen = fleet.observe("c", &package("p"), 1045.0, STALE_AFTER);
        !seen.row.unwrap().healthy.is_none()
    };
    assert!(!is_well(&fleet), "its feed says nothing of whether it goes on");
    fleet.unanswered("eu", "gone".into());
    assert!(is_well(&fleet), "another one tells of the cluster");
    let key = super::key(&package("p"));
    let (mark, clusters) = (fleet.mark(), fleet.clusters_of(["c"].into_iter(), &key).unwrap());
    tell(&mut fleet, "eu", failed("r1", 900), 1040.0);
    assert!(!is_well(&fleet));
    assert_eq!(fleet.since(mark, &key, &clusters), Since::Changed);
}

#[test]
fn sources_that_one_cluster_makes_up_take_no_room_from_those_of_others() {
    let mut fleet = Fleet::new(FleetSettings::default());
    let mut said = testing::Exposition::new(7);
    said.sources = (0..200).map(|n| format!("made-up-{n}")).collect();
    tell(&mut fleet, &[("cluster", "liar")], &said, 1000.0);
    say(&mut fleet, "c", [healthy("r1", 10), healthy("r1", 10)], 1000.0);
    let key = super::key(&package("p"));
    let clusters = fleet.clusters_of(["c"].into_iter(), &key).unwrap();
    assert_eq!(fleet.since(fleet.mark(), &key, &clusters), Since::Same(Some(1000.0)));
}

#[test]
fn streams_of_a_cluster_are_bounded_and_nothing_counts_while_too_many_go_on() {
    let mut fleet = Fleet::new(FleetSettings::default());
    // The first one says that it has failed, and goes on.
    let say = |fleet: &mut Fleet, instances: std::ops::Range<u32>, at: Seconds| {
        for n in instances {
            let values = if n == 0 { failed("r1", 10) } else { healthy("r1", 10) };
            let (said, instance) = (testing::Exposition::new(1).with("p", values), format!("i{n}"));
            let labels = [("cluster", "c"), ("instance", instance.as_str())];
            tell_digests(fleet, &digests(&labels, &said, &[at - 15.0, at]), &said, at);
        }
        fleet.answered("", at);
        fleet.observe("c", &package("p"), at, 60.0)
    };
    let most = super::MOST_STREAMS as u32;
    let all = say(&mut fleet, 0..most, 1000.0);
    assert_eq!(all.standing, Standing::Fresh, "{}", all.message);
    assert_ne!(all.row.unwrap().health, statusbridge_contract::Health::Current, "the worst counts");
    for round in 1..4 {
        let crowded = say(&mut fleet, 0..3 * most, 1000.0 + 15.0 * Seconds::from(round));
        assert_eq!(crowded.standing, Standing::Unverified, "{}", crowded.message);
        assert_eq!(fleet.streams().count(), super::MOST_STREAMS);
    }
    // Those that are silent make room, and the cluster counts again.
    let after = (4..20).map(|round| say(&mut fleet, 0..1, 1000.0 + 15.0 * Seconds::from(round))).last();
    assert_eq!(after.unwrap().standing, Standing::Fresh);
    let others = say(&mut fleet, most..most + 10, 1300.0);
    assert_eq!(others.standing, Standing::Fresh, "{}", others.message);
}

#[test]
fn nothing_counts_of_a_cluster_of_which_not_all_streams_were_told_and_others_do() {
    let mut fleet = Fleet::new(FleetSettings::default());
    let said = testing::Exposition::new(1).with("p", healthy("r1", 10));
    for cluster in ["c", "d"] {
        tell_digests(&mut fleet, &digests(&[("cluster", cluster)], &said, &[985.0, 1000.0]), &said, 1000.0);
    }
    fleet.crowd("c", 1000.0);
    fleet.crowd("nobody", 1000.0);
    let seen = |fleet: &Fleet, cluster: &str| fleet.observe(cluster, &package("p"), 1000.0, 60.0);
    let crowded = seen(&fleet, "c");
    assert_eq!(crowded.standing, Standing::Unverified);
    assert_eq!(crowded.message, "more than 64 streams of `c` go on: not all are read");
    assert_eq!(seen(&fleet, "d").standing, Standing::Fresh);
    assert_eq!(seen(&fleet, "nobody").standing, Standing::Missing);
}

#[test]
fn a_poll_looks_for_room_once() {
    let mut fleet = Fleet::new(FleetSettings::default());
    let said = testing::Exposition::new(1).with("p", healthy("r1", 10));
    let mut hear = |n: usize, at: Seconds| {
        let instance = format!("i{n}");
        let labels = [("cluster", "c"), ("instance", instance.as_str())];
        let heard = fleet.hear(&digests(&labels, &said, &[at - 15.0, at]), at);
        (heard, fleet.clusters["c"].looks.swap(0, std::sync::atomic::Ordering::Relaxed))
    };
    let looks = |heard: &[(Heard, usize)]| heard.iter().map(|(_, looks)| looks).sum::<usize>();
    let first: Vec<_> = (0..20_000).map(|n| hear(n, 1000.0)).collect();
    assert!(first[..super::MOST_STREAMS].iter().all(|(heard, _)| matches!(heard, Heard::Unread(_))));
    assert!(first[super::MOST_STREAMS..].iter().all(|(heard, _)| *heard == Heard::Unusable));
    assert_eq!(looks(&first), 1);
    assert_eq!(looks(&(0..20_000).map(|n| hear(n, 1015.0)).collect::<Vec<_>>()), 1);
}

#[test]
fn many_exporters_of_a_cluster_do_not_fill_the_memory_and_are_told_why() {
    // Each takes some 60 MiB: two are kept.
    let long = "x".repeat(6 << 10);
    let mut said = testing::Exposition::new(1);
    for n in 0..10_000 {
        said = said.with(&format!("{long}{n}"), healthy("r1", 10));
    }
    let content = said.content();
    let mut fleet = Fleet::new(FleetSettings::default());
    let mut say = |cluster: &str, instance: &str, at: u32| {
        let labels = [("cluster", cluster), ("instance", instance)];
        let mut digests = digests(&labels, &testing::Exposition::new(1), &[]);
        let (rendered, at) = (u64::from(at), Seconds::from(at));
        let exposition = Exposition { digest: content.state.rendered(rendered).value(), rendered };
        digests.samples.push(DigestSample { at, exposition });
        digests.is_torn = true;
        let Heard::Unread(samples) = fleet.hear(&digests, at) else { panic!("it was read already") };
        fleet.accept((cluster, &digests.stream), &samples[0], content.clone(), at).refused
    };
    assert_eq!((say("c", "1", 1000), say("c", "2", 1000)), (None, None));
    let refused = say("c", "3", 1000).unwrap();
    assert!(refused.contains("MiB are kept of a cluster"), "{refused}");
    assert_eq!(say("d", "1", 1000), None, "another cluster has room of its own");
    assert_eq!(say("c", "1", 1015), None, "and so has one that takes its own place");
}

#[test]
fn whoever_was_heard_lately_and_is_not_found_is_missing() {
    let mut fleet = Fleet::default();
    let new = testing::Exposition::new;
    let [a, b, c] = ["a", "b", "c"].map(|cluster| [("cluster", cluster)]);
    for (feed, labels, said) in
        [("", &a, new(1).by(1)), ("", &b, new(2)), ("", &c, new(3)), ("west", &a, new(1))]
    {
        tell_by(feed, &mut fleet, labels, &said, 1000.0);
    }
    let found = |all: &[(&[(&str, &str)], testing::Exposition)], since: Seconds| {
        let all: Vec<Digests> = all.iter().map(|(labels, said)| digests(labels, said, &[1015.0])).collect();
        fleet.missing("", &all, 1015.0, since)
    };
    let none: [&str; 0] = [];
    assert_eq!(found(&[(&a, new(1).by(1)), (&b, new(2)), (&c, new(3))], 990.0), none);
    // Another process of the same.
    assert_eq!(found(&[(&a, new(1).by(2)), (&b, new(2)), (&c, new(3))], 990.0), none);
    assert_eq!(found(&[(&b, new(7)), (&b, new(8))], 990.0), ["a", "b", "c"]);
    let bb = [("cluster", "bb")];
    assert_eq!(found(&[(&a, new(1)), (&b, new(7)), (&bb, new(9)), (&c, new(3))], 990.0), ["b"]);
    // Long ago, unless another one has its name.
    assert_eq!(found(&[(&b, new(7))], 1010.0), ["b"]);
    assert_eq!(fleet.missing("west", &[digests(&a, &new(2), &[1015.0])], 1015.0, 990.0), ["a"]);
    assert_eq!(fleet.missing("east", &[], 1015.0, 990.0), none);
    // What may have been found before is no finding.
    for (signs, missing) in [
        (Signs { soon: vec![1020.0], ..Signs::default() }, &["a", "b", "c"][..]),
        (Signs { ahead: Some(3985.0), ..Signs::default() }, &["a", "c"]),
    ] {
        let found = Digests { samples: Vec::new(), signs, ..digests(&b, &new(2), &[]) };
        assert_eq!(fleet.missing("", &[found], 1015.0, 990.0), missing);
    }
}

#[test]
fn what_lacks_something_is_no_finding_when_it_is_found_again() {
    let mut fleet = Fleet::default();
    let (cluster, said) = ([("cluster", "c")], testing::Exposition::new(1));
    tell(&mut fleet, &cluster, &said, 1000.0);
    let lacks = |seen| Digests {
        samples: Vec::new(),
        lack: Some("its process number".to_owned()),
        seen: Some(seen),
        ..digests(&cluster, &said, &[])
    };
    fleet.hear(&lacks(1015.0), 1015.0);
    let misses = |seen| !fleet.missing("", &[lacks(seen)], 1200.0, 0.0).is_empty();
    assert_eq!([1015.0, 1016.0].map(misses), [true, false]);
}

#[test]
fn one_stream_of_several_is_missing_until_it_is_silent() {
    let mut fleet = Fleet::default();
    let said = testing::Exposition::new(1);
    let [a, b] = ["a", "b"].map(|instance| [("cluster", "c"), ("instance", instance)]);
    tell(&mut fleet, &a, &said, 1000.0);
    for (t, is_missing) in [(1000.0, true), (1015.0, true), (1030.0, true), (1045.0, true), (1060.0, false)] {
        let found = digests(&b, &said, &[t]);
        assert_eq!(!fleet.missing("", std::slice::from_ref(&found), t, 990.0).is_empty(), is_missing, "{t}");
        tell_digests(&mut fleet, &found, &said, t);
        fleet.answered("", t);
    }
}

/// It may come back late, beside another one of its name.
#[test]
fn the_last_process_of_a_cluster_is_not_forgotten_for_those_of_another() {
    let mut fleet = Fleet::default();
    let cluster = [("cluster", "c")];
    let mut at = 1000.0;
    for said in (1..4).map(|process| (1, process)).chain((1..30).map(|process| (2, process))) {
        tell(&mut fleet, &cluster, &testing::Exposition::new(said.0).by(said.1), at);
        fleet.answered("", at);
        at += 60.0;
    }
    let of = |uid| fleet.streams().filter(|it| it.id.uid == Fingerprint::from_value(uid)).count();
    assert_eq!((of(1), of(2)), (1, 7));
}
