//! Packages that another cluster's exporter tells of.

use rstest::rstest;
use statusbridge_contract::{ApplyState, Fingerprint, Health};

use super::observation::reason;
use super::*;
use crate::glob::Glob;
use crate::testing::{Exposition, Values, failed, healthy, package, tell};

const T: Seconds = 1000.0;

/// A fleet that believes the exporter of `hub` about `eu-*`.
fn believing() -> Fleet {
    let mut fleet = Fleet::default();
    fleet.believe(speakers());
    fleet
}

fn speakers() -> Speakers {
    let globs = |name: &str| vec![Glob::from(name)];
    let speaker = Speaker { cluster: "hub".into(), sources: globs("flux"), clusters: globs("eu-*") };
    Speakers::new(vec![speaker]).unwrap()
}

fn hub(fleet: &mut Fleet, said: Exposition, at: Seconds) {
    tell(fleet, &[("cluster", "hub")], &said, at);
}

/// What the exporter of `eu-1` itself says.
fn own(fleet: &mut Fleet, said: Exposition, at: Seconds) {
    tell(fleet, &[("cluster", "eu-1")], &said, at);
}

fn seen(fleet: &Fleet, cluster: &str, t: Seconds) -> Observation {
    fleet.observe(cluster, &package("p"), t, 60.0)
}

fn speaking(values: Values) -> Exposition {
    Exposition::new(7).with_in("eu-1", "p", values)
}

#[test]
fn nobody_is_believed_whom_the_configuration_does_not_name() {
    let mut fleet = Fleet::default();
    let said = speaking(healthy("r1", 10)).with_in("us-1", "p", healthy("r1", 10));
    hub(&mut fleet, said.clone(), T);
    let unbelieved = |fleet: &Fleet, cluster: &str| {
        assert_eq!(seen(fleet, cluster, T).reason, reason::CLUSTER_NOT_FOUND, "{cluster}");
    };
    unbelieved(&fleet, "eu-1");
    assert_eq!(seen(&fleet, "hub", T).reason, reason::PACKAGE_NOT_FOUND, "nor is it the exporter's own");
    assert!(fleet.reporting(&package("p")).is_empty() && fleet.revisions(&package("p")).is_empty());
    assert!(fleet.packages(|_| |_: &str| true).is_empty());

    let mut fleet = believing();
    hub(&mut fleet, said.clone(), T);
    assert_eq!(seen(&fleet, "eu-1", T).standing, Standing::Fresh);
    unbelieved(&fleet, "us-1");
    assert_eq!(fleet.reporting(&package("p")), ["eu-1"]);
    assert_eq!(fleet.packages(|_| |cluster: &str| cluster == "eu-1").len(), 1);
    assert!(fleet.packages(|_| |cluster: &str| cluster == "hub").is_empty());
    assert_eq!(fleet.revisions(&package("p")), [(Fingerprint::of("r1"), vec!["eu-1"])].into());
    // Another cluster that says the same says it of nobody, and harms nobody.
    tell(&mut fleet, &[("cluster", "rogue")], &speaking(failed("r9", 10)), T);
    assert_eq!(seen(&fleet, "eu-1", T).reason, reason::REPORTED);
    // What is no longer granted counts no longer.
    fleet.believe(Speakers::default());
    unbelieved(&fleet, "eu-1");
}

#[test]
fn a_speaker_is_as_good_as_its_evidence() {
    let mut fleet = believing();
    hub(&mut fleet, speaking(healthy("r1", 10)), T);
    let fresh = seen(&fleet, "eu-1", T + 60.0);
    assert_eq!((fresh.standing, fresh.told_by.as_deref()), (Standing::Fresh, Some("hub")));
    let silent = seen(&fleet, "eu-1", T + 61.0);
    assert_eq!((silent.standing, silent.reason), (Standing::Stale, reason::EXPORTER_SILENT));
    assert!(silent.message.starts_with("as the exporter of cluster `hub` says: "), "{}", silent.message);
    let missing = seen(&fleet, "eu-2", T);
    assert_eq!((missing.standing, missing.reason), (Standing::Missing, reason::PACKAGE_NOT_FOUND));
    hub(&mut fleet, speaking(healthy("r1", 10)).down("flux"), T + 15.0);
    assert_eq!(seen(&fleet, "eu-1", T + 15.0).reason, reason::SOURCE_DOWN);
    tell(&mut fleet, &[("cluster", "hub")], &Exposition { uid: 8, ..speaking(healthy("r1", 10)) }, T + 16.0);
    assert_eq!(seen(&fleet, "eu-1", T + 16.0).reason, reason::CLUSTER_NAME_CONFLICT);
}

#[test]
fn ten_thousand_clusters_of_one_speaker_are_stale_when_it_falls_silent_and_back_when_it_is_heard() {
    let mut fleet = believing();
    let clusters = (0..10_000).map(|n| format!("eu-{n}"));
    let said = clusters.fold(Exposition::new(7), |said, it| said.with_in(&it, "p", healthy("r1", 10)));
    hub(&mut fleet, said.clone(), T);
    let count = |fleet: &Fleet, t: Seconds, standing: Standing| {
        fleet.observe_all(&package("p"), t, 60.0).filter(|(_, seen)| seen.standing == standing).count()
    };
    assert_eq!(count(&fleet, T + 60.0, Standing::Fresh), 10_000);
    assert_eq!(count(&fleet, T + 61.0, Standing::Stale), 10_000);
    hub(&mut fleet, said, T + 75.0);
    assert_eq!(count(&fleet, T + 76.0, Standing::Fresh), 10_000);
}

#[rstest]
#[case::both_well(healthy("r1", 10), Some(healthy("r1", 20)), reason::REPORTED, Health::Current, "r1")]
#[case::the_speaker_says_worse(
    failed("r1", 10),
    Some(healthy("r1", 20)),
    reason::STREAMS_DISAGREE,
    Health::Failed,
    ""
)]
#[case::its_own_says_worse(
    healthy("r1", 10),
    Some(failed("r1", 20)),
    reason::STREAMS_DISAGREE,
    Health::Failed,
    ""
)]
#[case::another_revision(
    healthy("r2", 10),
    Some(healthy("r1", 20)),
    reason::STREAMS_DISAGREE,
    Health::Current,
    ""
)]
#[case::its_own_lacks_it(healthy("r1", 10), Some(Vec::new()), reason::PACKAGE_NOT_FOUND, Health::Unknown, "")]
#[case::it_has_none(healthy("r1", 10), None, reason::REPORTED, Health::Current, "r1")]
fn the_worse_counts_where_two_exporters_tell_of_a_cluster(
    #[case] told: Values,
    #[case] said: Option<Values>,
    #[case] expected: &str,
    #[case] health: Health,
    #[case] revision: &str,
) {
    for own_first in [true, false] {
        let mut fleet = believing();
        let tell_own = |fleet: &mut Fleet| match &said {
            Some(values) if values.is_empty() => own(fleet, Exposition::new(5), T),
            Some(values) => own(fleet, Exposition::new(5).with("p", values.clone()), T),
            // It reads other sources.
            None => own(fleet, Exposition { sources: vec!["argo".into()], ..Exposition::new(5) }, T),
        };
        if own_first {
            tell_own(&mut fleet);
        }
        hub(&mut fleet, speaking(told.clone()), T - 5.0);
        if !own_first {
            tell_own(&mut fleet);
        }
        let seen = seen(&fleet, "eu-1", T);
        assert_eq!(seen.reason, expected, "{seen:?}");
        if let Some(row) = seen.row {
            assert_eq!((row.apply, row.health), (ApplyState::Applied, health));
            assert_eq!(
                row.healthy,
                if revision.is_empty() { Fingerprint::NONE } else { Fingerprint::of(revision) }
            );
            let both = said.as_ref().is_some_and(|said| !said.is_empty());
            assert_eq!((seen.as_of, row.since), (Some(T - 5.0), if both { 20.0 } else { 10.0 }));
        }
    }
}

/// Whoever keeps a verdict is told of each change that it may rest on.
#[rstest]
#[case::nothing(|it: &mut Fleet| hub(it, speaking(healthy("r1", 10)), T + 15.0), Since::Same(Some(T + 15.0)))]
#[case::the_package(|it: &mut Fleet| hub(it, speaking(failed("r1", 10)), T + 15.0), Since::Changed)]
#[case::the_package_elsewhere(
    |it: &mut Fleet| hub(it, speaking(healthy("r1", 10)).with_in("eu-2", "p", healthy("r1", 10)), T + 15.0), Since::Changed)]
#[case::another_package(
    |it: &mut Fleet| hub(it, speaking(healthy("r1", 10)).with_in("eu-1", "q", healthy("r1", 10)), T + 15.0),
    Since::Same(Some(T + 15.0)))]
#[case::its_own_exporter_comes(|it: &mut Fleet| own(it, Exposition::new(5), T), Since::Changed)]
#[case::nobody_is_believed(|it: &mut Fleet| drop(it.believe(Speakers::default())), Since::Changed)]
#[case::the_speaker_is_cut_off(|it: &mut Fleet| hub(it, speaking(healthy("r1", 10)).down("flux"), T + 15.0), Since::Changed)]
fn what_changes_since(#[case] change: fn(&mut Fleet), #[case] expected: Since) {
    let mut fleet = believing();
    hub(&mut fleet, speaking(healthy("r1", 10)), T);
    let key = key(&package("p"));
    let clusters = fleet.clusters_of(["eu-1"].into_iter(), &key).unwrap();
    let mark = fleet.mark();
    change(&mut fleet);
    assert_eq!(fleet.since(mark, &key, &clusters), expected);
}

#[test]
fn who_speaks_of_others_without_a_grant_is_reported_once_for_the_same_names() {
    let mut fleet = believing();
    let mut claims = |said: &Exposition, at: Seconds| {
        let digests = crate::testing::digests(&[("cluster", "hub")], said, &[at]);
        let Heard::Unread(samples) = fleet.hear(&digests, at) else { panic!("nothing new at {at}") };
        fleet.accept((&digests.cluster, &digests.stream), &samples[0], said.content(), at).claims
    };
    assert_eq!(claims(&speaking(healthy("r1", 10)), T), Vec::<String>::new());
    let more = speaking(healthy("r1", 10)).with_in("us-1", "p", healthy("r1", 1010));
    assert_eq!(
        claims(&more, T + 15.0),
        [
            "the exporter of cluster hub tells of 1 packages in other clusters, such as p of source flux in us-1, and is not \
         believed: `speakers` of the configuration does not grant it"
        ]
    );
    let same = speaking(healthy("r2", 1020)).with_in("us-1", "p", healthy("r1", 1010));
    assert_eq!(claims(&same, T + 30.0), Vec::<String>::new());
}

#[test]
fn who_is_no_longer_believed_is_reported_when_the_configuration_says_so() {
    let mut fleet = believing();
    let said =
        speaking(healthy("r1", 10)).with_in("eu-2", "p", healthy("r1", 10)).with("own", healthy("r1", 10));
    hub(&mut fleet, said.with_in("us-1", "p", healthy("r1", 10)), T);
    tell(&mut fleet, &[("cluster", "other")], &speaking(healthy("r1", 10)), T);
    let granted = |clusters: &[&str]| {
        let globs = |names: &[&str]| names.iter().map(|name| Glob::from(*name)).collect();
        let speaker = Speaker { cluster: "hub".into(), sources: globs(&["flux"]), clusters: globs(clusters) };
        Speakers::new(vec![speaker]).unwrap()
    };
    let no_longer = |cluster: &str| {
        BTreeSet::from([format!(
            "the exporter of cluster hub is no longer believed about 1 packages in other clusters, such as p of source flux in \
             {cluster}: `speakers` of the configuration does not grant it any more"
        )])
    };
    assert_eq!(fleet.believe(speakers()), BTreeSet::new(), "the same");
    assert_eq!(fleet.believe(granted(&["eu-*", "us-*"])), BTreeSet::new(), "more");
    assert_eq!(fleet.believe(granted(&["eu-1", "us-1"])), no_longer("eu-2"));
    assert_eq!(fleet.believe(granted(&["us-1"])), no_longer("eu-1"));
    assert_eq!(fleet.believe(Speakers::default()), no_longer("us-1"));
    assert_eq!(fleet.believe(Speakers::default()), BTreeSet::new(), "nobody is left");
}

/// Its own exporter may say worse, and nobody hears it.
#[rstest]
#[case::it_cannot_be_scraped(
    |it: &mut Fleet| it.unscraped("eu-1", "http://a/", Some("connection refused".into())), reason::SCRAPE_FAILED)]
#[case::some_feed_does_not_answer(|it: &mut Fleet| it.unanswered("other", "refused".into()), reason::BACKEND_UNAVAILABLE)]
#[case::its_streams_are_too_many(|it: &mut Fleet| {
    own(it, Exposition { sources: vec!["argo".into()], ..Exposition::new(5) }, T);
    it.crowd("eu-1", T);
}, reason::UNVERIFIED)]
#[case::two_have_its_name(|it: &mut Fleet| {
    own(it, Exposition { sources: vec!["argo".into()], ..Exposition::new(5) }, T);
    own(it, Exposition { sources: vec!["argo".into()], ..Exposition::new(6) }, T);
}, reason::CLUSTER_NAME_CONFLICT)]
fn a_speaker_alone_is_not_enough_while_nobody_knows_what_the_cluster_itself_says(
    #[case] change: fn(&mut Fleet),
    #[case] expected: &str,
) {
    let mut fleet = believing();
    hub(&mut fleet, speaking(healthy("r1", 10)), T);
    let key = key(&package("p"));
    let clusters = fleet.clusters_of(["eu-1"].into_iter(), &key).unwrap();
    let mark = fleet.mark();
    change(&mut fleet);
    let seen = seen(&fleet, "eu-1", T);
    assert_eq!(seen.reason, expected, "{seen:?}");
    assert_ne!(seen.standing, Standing::Fresh);
    assert_eq!(fleet.since(mark, &key, &clusters), Since::Changed);
}

#[test]
fn an_exporter_of_its_own_that_reads_other_sources_is_looked_at_once_it_reads_this_one() {
    let mut fleet = believing();
    own(&mut fleet, Exposition { sources: vec!["argo".into()], ..Exposition::new(5) }, T);
    hub(&mut fleet, speaking(healthy("r1", 10)), T);
    let key = key(&package("p"));
    let clusters = fleet.clusters_of(["eu-1"].into_iter(), &key).unwrap();
    let mark = fleet.mark();
    assert_eq!(fleet.since(mark, &key, &clusters), Since::Same(Some(T)));
    own(&mut fleet, Exposition::new(5).with("q", healthy("r1", 10)), T + 15.0);
    assert_eq!(fleet.since(mark, &key, &clusters), Since::Changed);
    assert_eq!(seen(&fleet, "eu-1", T + 15.0).reason, reason::PACKAGE_NOT_FOUND);
    assert!(fleet.clusters_of(["eu-1"].into_iter(), &key).is_none(), "two tell of it");
}

#[test]
fn no_name_reads_what_is_told_of_another_cluster() {
    let mut fleet = believing();
    hub(&mut fleet, speaking(healthy("r1", 10)).with("own", healthy("r1", 10)), T);
    for name in ["p\0eu-1", "own\0", "own\0\0"] {
        let seen = fleet.observe("hub", &package(name), T, 60.0);
        assert_eq!((seen.standing, seen.reason), (Standing::Missing, reason::PACKAGE_NOT_FOUND), "{name:?}");
        assert!(fleet.reporting(&package(name)).is_empty());
    }
    assert_eq!(fleet.observe("eu-1\0", &package("p"), T, 60.0).standing, Standing::Missing);
}
