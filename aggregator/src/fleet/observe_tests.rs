//! Every standing and reason, and which stream answers.

use rstest::rstest;
use statusbridge_contract::{Fingerprint, stream::StreamLabels};

use super::{Beat, Fleet, FleetSettings, Heard, Observation, Row, Standing, Turns, observation::reason};
use crate::{
    clock::Seconds,
    testing::{Exposition, failed, gather, healthy, package, stream},
    verify::verify,
};

const STALE_AFTER: Seconds = 180.0;

/// A fleet that is told what polls would tell it.
struct Story {
    fleet: Fleet,
    /// How far the clusters' clocks are behind the backend's.
    behind: Seconds,
}

fn story() -> Story {
    Story { fleet: Fleet::new(FleetSettings::default()), behind: 0.0 }
}

fn labels(instance: &str) -> StreamLabels {
    stream(&[("cluster", "c1"), ("instance", instance)])
}

impl Story {
    fn beat(&self, instance: &str, at: Seconds, exposition: &Exposition) -> Beat {
        Beat {
            cluster: "c1".into(),
            stream: labels(instance),
            contract: "1".into(),
            digest: Some(exposition.digest()),
            at,
            rendered: Some((at - self.behind, at)),
            ..Beat::default()
        }
    }

    /// An exposition scraped at `at` arrives whole.
    fn whole(mut self, instance: &str, at: Seconds, exposition: &Exposition) -> Self {
        let beat = self.beat(instance, at, exposition);
        if self.fleet.hear(&beat, at) == Heard::Unread {
            let content = verify(gather(&exposition.lines()), exposition.digest()).unwrap();
            self.fleet.accept(&beat, content, at);
        }
        self
    }

    /// Its digest arrives, its samples do not.
    fn torn(self, instance: &str, at: Seconds, exposition: &Exposition) -> Self {
        self.torn_of(Some(7), instance, at, exposition)
    }

    fn torn_of(mut self, uid: Option<u64>, instance: &str, at: Seconds, exposition: &Exposition) -> Self {
        let beat = self.beat(instance, at, exposition);
        if self.fleet.hear(&beat, at) == Heard::Unread {
            self.fleet.reject(&beat, "a sample is missing".into(), uid);
        }
        self
    }

    fn behind(mut self, seconds: Seconds) -> Self {
        self.behind = seconds;
        self
    }

    fn unanswered(mut self) -> Self {
        self.fleet.unanswered("", "backend cannot be reached".into());
        self
    }

    fn answered(mut self, t: Seconds) -> Self {
        self.fleet.answered("", t);
        self
    }

    fn at(&self, t: Seconds) -> Observation {
        self.fleet.observe("c1", &package("p"), t, STALE_AFTER)
    }
}

fn r1() -> Exposition {
    Exposition::new(7).with("p", healthy("r1", 900, 1))
}

fn r2() -> Exposition {
    Exposition::new(7).with("p", healthy("r2", 1950, 2))
}

fn bad() -> Exposition {
    Exposition::new(7).with("p", failed("r2", 1950, 3))
}

fn other_cluster() -> Exposition {
    Exposition::new(8).with("p", healthy("r1", 900, 1))
}

fn without() -> Exposition {
    Exposition::new(7).with("q", healthy("r1", 900, 1))
}

fn no_source() -> Exposition {
    Exposition { uid: 7, ..Exposition::default() }
}

use Standing::{ClockSkew, Conflict, Fresh, Missing, Stale, Unverified};

#[rstest]
#[case::reported(story().whole("i", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::just_young_enough(story().whole("i", 1870.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::never_seen(story(), Missing, reason::CLUSTER_NOT_FOUND, "cluster `c1` was never seen")]
#[case::never_seen_and_no_backend(story().unanswered(), Missing, reason::BACKEND_UNAVAILABLE, "cannot be reached")]
#[case::no_such_package(story().whole("i", 2000.0, &without()), Missing, reason::PACKAGE_NOT_FOUND, "reports no such package")]
#[case::no_such_source(story().whole("i", 2000.0, &no_source()), Missing, reason::PACKAGE_NOT_FOUND, "reads source `flux`")]
#[case::silent(story().whole("i", 1860.0, &r1()), Stale, reason::EXPORTER_SILENT, "190 s old")]
#[case::silent_and_no_backend(story().whole("i", 1860.0, &r1()).unanswered(), Stale, reason::BACKEND_UNAVAILABLE, "cannot be reached")]
#[case::no_backend_but_young(story().whole("i", 2000.0, &r1()).unanswered(), Fresh, reason::REPORTED, "")]
#[case::backend_back_again(story().whole("i", 1860.0, &r1()).unanswered().answered(2000.0), Stale, reason::EXPORTER_SILENT, "190 s old")]
#[case::two_expositions_of_one_moment(story().whole("i", 1800.0, &r1()).torn("i", 2000.0, &r2()).behind(200.0).whole("i", 2000.0, &r1()), Stale, reason::EXPORTER_SILENT, "250 s old")]
#[case::source_down(story().whole("i", 1900.0, &r1()).whole("i", 2000.0, &r1().down("flux")), Stale, reason::SOURCE_DOWN, "cut off since 150 s")]
#[case::source_never_up(story().whole("i", 2000.0, &r1().down("flux")), Stale, reason::SOURCE_DOWN, "never seen up")]
#[case::source_up_again(story().whole("i", 1900.0, &r1().down("flux")).whole("i", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::torn_but_young(story().whole("i", 1900.0, &r1()).torn("i", 2000.0, &r2()), Fresh, reason::REPORTED, "a sample is missing")]
#[case::torn_for_long(story().whole("i", 1800.0, &r1()).torn("i", 1900.0, &r2()).torn("i", 2000.0, &bad()), Unverified, reason::UNVERIFIED, "250 s old; a sample is missing")]
#[case::never_verified(story().torn("i", 2000.0, &r1()), Unverified, reason::UNVERIFIED, "nothing was ever verified; a sample is missing")]
#[case::torn_then_silent(story().whole("i", 1700.0, &r1()).torn("i", 1800.0, &r2()), Stale, reason::EXPORTER_SILENT, "350 s old")]
#[case::torn_then_back_to_what_was_verified(story().whole("i", 1700.0, &r1()).torn("i", 1800.0, &r2()).whole("i", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::recovered(story().torn("i", 1900.0, &r1()).whole("i", 2000.0, &r2()), Fresh, reason::REPORTED, "")]
#[case::clock_behind(story().behind(90.0).whole("i", 2000.0, &r1()), ClockSkew, reason::CLOCK_SKEW, "90 s behind")]
#[case::clock_ahead(story().behind(-90.0).whole("i", 2000.0, &r1()), ClockSkew, reason::CLOCK_SKEW, "90 s ahead of")]
#[case::clock_off_by_little(story().behind(-50.0).whole("i", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::clock_back(story().behind(90.0).whole("i", 1900.0, &r1()).behind(0.0).whole("i", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::one_of_two_clocks_off(story().behind(90.0).whole("i", 2000.0, &r1()).behind(0.0).whole("j", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::a_gateway_that_repeats(story().whole("i", 1000.0, &r1()).behind(1000.0).whole("i", 2000.0, &r1()), Stale, reason::EXPORTER_SILENT, "repeated by some gateway")]
#[case::a_gateway_that_repeats_what_is_long_gone(story().behind(1000.0).whole("i", 2000.0, &r1()), ClockSkew, reason::CLOCK_SKEW, "repeats an old exposition")]
#[case::two_clusters(story().whole("i", 2000.0, &r1()).whole("j", 2000.0, &other_cluster()), Conflict, reason::CLUSTER_NAME_CONFLICT,
    r#"2 clusters report as `c1`: uid 000000000007 (instance="i") and uid 000000000008 (instance="j")"#)]
#[case::two_clusters_one_gone(story().whole("i", 1800.0, &r1()).whole("j", 2000.0, &other_cluster()), Fresh, reason::REPORTED, "")]
#[case::two_clusters_taking_turns(story().whole("i", 1990.0, &r1()).whole("i", 2000.0, &other_cluster()), Conflict, reason::CLUSTER_NAME_CONFLICT, "2 clusters report as `c1`")]
#[case::replicas_agree(story().whole("a", 2000.0, &r1()).whole("b", 2003.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::a_replica_lags(story().whole("a", 1900.0, &r1()).whole("b", 1903.0, &r1()).whole("b", 2003.0, &r2()), Fresh, reason::REPORTED, "")]
#[case::a_replica_is_frozen(story().whole("a", 1900.0, &r1()).whole("b", 1905.0, &r2()).whole("b", 2035.0, &r2()), Fresh, reason::REPORTED, "")]
#[case::an_exporter_of_the_cluster_is_torn_so_far(story().whole("a", 2000.0, &r1()).torn("b", 2003.0, &r2()), Fresh, reason::REPORTED, "")]
#[case::one_that_may_be_of_another(
    story().whole("a", 2000.0, &r1()).torn_of(None, "b", 2003.0, &r2()),
    Unverified, reason::UNVERIFIED, "whether it is the same cluster cannot be told: a sample is missing")]
#[case::one_that_says_it_is_of_another(
    story().whole("a", 2000.0, &r1()).torn_of(Some(8), "b", 2003.0, &r2()),
    Unverified, reason::UNVERIFIED, "something else reports as `c1`")]
#[case::one_of_another_that_is_long_silent(
    story().torn_of(Some(8), "b", 1800.0, &r2()).whole("a", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::streams_disagree(
    story().whole("a", 1900.0, &r1()).whole("b", 1905.0, &r2()).whole("a", 2000.0, &r1()).whole("b", 2005.0, &r2()),
    Conflict, reason::STREAMS_DISAGREE, r#"{instance="a"} says Applied and Current (desired"#)]
#[case::streams_disagree_whether_it_is_there(
    story().whole("a", 1900.0, &r1()).whole("b", 1905.0, &without()).whole("a", 2000.0, &r1()).whole("b", 2005.0, &without()),
    Conflict, reason::STREAMS_DISAGREE, r#"{instance="b"} says no such package"#)]
#[case::deleted_and_seen_gone_by_one_only_lately(
    story().whole("a", 1900.0, &r1()).whole("b", 1905.0, &r1()).whole("a", 1980.0, &r1()).whole("b", 1985.0, &without()),
    Missing, reason::PACKAGE_NOT_FOUND, "reports no such package")]
#[case::disagreed_but_one_is_down(
    story().whole("a", 1900.0, &r1()).whole("b", 1905.0, &r2().down("flux")).whole("a", 2000.0, &r1()).whole("b", 2005.0, &r2().down("flux")),
    Fresh, reason::REPORTED, "")]
fn standings(#[case] story: Story, #[case] standing: Standing, #[case] reason: &str, #[case] message: &str) {
    let got = story.at(2050.0);
    assert_eq!((got.standing, got.reason), (standing, reason), "{}", got.message);
    assert!(got.message.contains(message) && got.message.is_empty() == message.is_empty(), "{}", got.message);
}

#[rstest]
#[case::two_clusters(other_cluster(), reason::CLUSTER_NAME_CONFLICT)]
#[case::two_replicas(r2(), reason::STREAMS_DISAGREE)]
fn who_fell_silent_first_of_two_at_odds_counts_until_the_other_goes_on_alone(
    #[case] second: Exposition,
    #[case] reason: &str,
) {
    let both = story().whole("a", 1900.0, &r1()).whole("b", 1905.0, &second);
    let both = both.whole("a", 2000.0, &r1()).whole("b", 2010.0, &second);
    let last = |t: Seconds| (both.at(t).standing, both.at(t).reason);
    // Nothing was heard since: not even when only one of the two words is young enough.
    for t in [2050.0, 2000.0 + STALE_AFTER + 5.0] {
        assert_eq!(last(t), (Conflict, reason));
    }
    assert_eq!(last(2010.0 + STALE_AFTER + 5.0).0, Stale);
    let alone = both.whole("b", 2000.0 + STALE_AFTER + 1.0, &second);
    assert_eq!(alone.at(2000.0 + STALE_AFTER + 5.0).standing, Fresh);
}

fn row(story: &Story, t: Seconds) -> Row {
    story.at(t).row.unwrap()
}

#[test]
fn the_row_is_told_in_words_and_the_last_one_stays_when_not_fresh() {
    let story = story().whole("i", 1950.0, &r1()).whole("i", 2000.0, &bad());
    let fresh = story.at(2050.0);
    let row = fresh.row.clone().unwrap();
    assert_eq!(fresh.as_of, Some(2000.0));
    assert_eq!(row.reason.as_deref(), Some("HealthCheckFailed"));
    assert_eq!((row.applied, row.healthy), (Fingerprint::of("r2"), Fingerprint::NONE));
    assert_eq!(row.previously_applied, Fingerprint::of("r1"));
    let stale = story.at(2500.0);
    assert_eq!((stale.standing, stale.as_of, stale.row), (Stale, Some(2000.0), Some(row)));
}

#[test]
fn the_freshest_stream_answers_whoever_was_first() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let story = story().whole(first, 2000.0, &r1()).whole(second, 2005.0, &bad());
        assert_eq!(story.at(2010.0).row.unwrap().healthy, Fingerprint::NONE);
        assert_eq!(story.at(2010.0).as_of, Some(2005.0));
    }
}

#[test]
fn replicas_scraped_a_moment_apart_do_not_flap() {
    // Both replicas scrape one exporter, which goes from r1 to failed to r2.
    let said = |t: Seconds| match t {
        t if t < 1050.0 => r1(),
        t if t < 1100.0 => bad(),
        _ => r2(),
    };
    let mut story = story();
    let mut seen: Vec<(Standing, Fingerprint)> = Vec::new();
    for poll in 0..40 {
        let t = 1000.0 + 5.0 * f64::from(poll);
        let (a, b) = ((t / 15.0).floor() * 15.0, ((t - 7.0) / 15.0).floor() * 15.0 + 7.0);
        story = story.whole("a", a, &said(a)).whole("b", b, &said(b));
        let got = story.at(t);
        seen.push((got.standing, got.row.unwrap().healthy));
    }
    seen.dedup();
    let expected = [Fingerprint::of("r1"), Fingerprint::NONE, Fingerprint::of("r2")];
    assert_eq!(seen, expected.map(|r| (Fresh, r)));
}

#[test]
fn a_restart_under_another_instance_keeps_what_is_remembered() {
    let story = story().whole("old", 1900.0, &r1()).whole("old", 1960.0, &r2()).whole(
        "new",
        2000.0,
        &Exposition::new(7).with("p", healthy("r2", 1950, 0)),
    );
    let row = row(&story, 2010.0);
    assert_eq!(row.previously_applied, Fingerprint::of("r1"));
    assert_eq!(row.since, 1950.0);
}

#[test]
fn a_restart_that_does_not_know_since_when_starts_the_soak_again_for_good() {
    let restarted = Exposition::new(7).with("p", healthy("r1", 1990, 0));
    let mut story = story().whole("old", 1980.0, &r1()).whole("new", 2000.0, &restarted);
    assert_eq!(row(&story, 2010.0).since, 1990.0);
    // While both are alive it does not matter which was scraped last.
    story = story.whole("old", 2005.0, &r1());
    assert_eq!(row(&story, 2010.0).since, 1990.0);
}

#[test]
fn since_is_told_in_the_backends_clock() {
    // What was dated before the first look is not moved into the past; what is dated later is known better.
    let story = story().behind(-40.0).whole("i", 2000.0, &r1());
    assert_eq!(row(&story, 2010.0).since, 900.0);
    let story = story.whole("i", 2020.0, &Exposition::new(7).with("p", healthy("r2", 2050, 2)));
    assert_eq!(row(&story, 2030.0).since, 2010.0);
    let story = self::story().behind(30.0).whole("i", 2000.0, &r1());
    assert_eq!(row(&story, 2010.0).since, 930.0);
}

#[test]
fn an_unexplained_move_of_the_counter_is_the_earliest_since() {
    let moved = Exposition::new(7).with("p", healthy("r1", 900, 3));
    let story = story().whole("i", 1900.0, &r1()).whole("i", 2000.0, &moved);
    assert_eq!(row(&story, 2010.0).since, 2000.0);
}

#[test]
fn age_counts_from_when_the_exposition_was_rendered() {
    // A gateway holds an exposition back for 50 s: within the limit for skew, but older.
    let story = story().behind(50.0).whole("i", 2000.0, &r1());
    assert_eq!(story.at(2050.0).as_of, Some(1950.0));
    assert_eq!(story.at(2120.0).standing, Fresh);
    assert_eq!(story.at(2131.0).standing, Stale);
}

#[test]
fn two_exporters_of_a_cluster_may_read_different_sources() {
    let argo = Exposition { sources: vec!["argo".into()], ..Exposition::new(7) };
    let story = story().whole("flux", 1800.0, &r1()).whole("argo", 2000.0, &argo);
    let got = story.at(2050.0);
    assert_eq!((got.standing, got.reason), (Stale, reason::EXPORTER_SILENT));
}

#[rstest]
#[case::another_contract(Beat { contract: "2".into(), ..story().beat("i", 2000.0, &r1()) }, "contract version `2`")]
#[case::a_rounded_digest(Beat { digest: None, ..story().beat("i", 2000.0, &r1()) }, "statusbridge_digest is no whole number")]
#[case::no_rendered_time(Beat { rendered: None, ..story().beat("i", 2000.0, &r1()) }, "rendered_timestamp_seconds is missing")]
fn a_digest_that_is_of_no_use_is_no_evidence(#[case] beat: Beat, #[case] message: &str) {
    let mut story = story().whole("i", 1800.0, &r1());
    assert_eq!(story.fleet.hear(&beat, 2000.0), Heard::Unusable);
    let got = story.at(2050.0);
    assert_eq!((got.standing, got.as_of), (Unverified, Some(1800.0)));
    assert!(got.message.contains(message), "{}", got.message);
}

#[test]
fn clusters_that_take_turns_under_the_same_labels_conflict_whosever_turn_it_is() {
    let mut story = story().whole("i", 1985.0, &r1());
    let beat = Beat { turns: Turns::Taken { until: 2000.0 }, ..story.beat("i", 2000.0, &r1()) };
    assert_eq!(story.fleet.hear(&beat, 2000.0), Heard::Confirmed);
    let got = story.at(2050.0);
    assert_eq!((got.standing, got.reason), (Conflict, reason::CLUSTER_NAME_CONFLICT));
    let story = story.whole("i", 2200.0, &r1());
    assert_eq!(story.at(2210.0).standing, Fresh);
}

#[test]
fn who_may_write_as_the_stream_has_to_be_told() {
    let mut story = story().whole("i", 1800.0, &r1());
    let untold = Beat { turns: Turns::Untold, ..story.beat("i", 2000.0, &r1()) };
    assert_eq!(story.fleet.hear(&untold, 2000.0), Heard::Unusable);
    let got = story.at(2050.0);
    assert_eq!((got.standing, got.as_of), (Unverified, Some(1800.0)));
    assert!(got.message.contains("does not say whether another cluster writes"), "{}", got.message);
    // What is known up to some time is worth no more than that.
    let told = Beat { turns: Turns::None { until: 1900.0 }, ..untold };
    assert_eq!(story.fleet.hear(&told, 2000.0), Heard::Confirmed);
    assert_eq!(story.at(2050.0).as_of, Some(1900.0));
    // An exporter that does not know its cluster's UID cannot be told from another.
    let nameless = Exposition { uid: 0, ..Exposition::default() };
    let content = verify(gather(&nameless.lines()), nameless.digest()).unwrap();
    let beat = Beat { turns: Turns::Untold, ..story.beat("i", 2010.0, &nameless) };
    assert!(beat.tells_turns(None) && !beat.tells_turns(content.uid));
}

#[test]
fn a_cluster_that_cannot_be_scraped_says_why_while_it_is_silent() {
    let mut story = story().whole("i", 1900.0, &r1());
    for (cluster, url) in [("c1", "http://a/"), ("c1", "http://b/"), ("c2", "http://c/")] {
        story.fleet.unscraped(cluster, url, Some("connection refused".into()));
    }
    assert_eq!(story.at(1950.0).standing, Fresh);
    let silent = story.at(2200.0);
    assert_eq!((silent.standing, silent.reason, silent.as_of), (Stale, reason::SCRAPE_FAILED, Some(1900.0)));
    assert_eq!(silent.message, "cannot be scraped: connection refused");
    let never = story.fleet.observe("c2", &package("p"), 2200.0, STALE_AFTER);
    assert_eq!((never.standing, never.reason), (Missing, reason::SCRAPE_FAILED));
    story.fleet.unscraped("c1", "http://a/", None);
    assert_eq!(story.at(2200.0).reason, reason::SCRAPE_FAILED);
    story.fleet.unscraped("c1", "http://b/", None);
    assert_eq!(story.at(2200.0).reason, reason::EXPORTER_SILENT);
}

#[test]
fn a_digest_is_tried_once() {
    let mut story = story().torn("i", 2000.0, &r1());
    assert_eq!(story.fleet.hear(&story.beat("i", 2000.0, &r1()), 2005.0), Heard::Tried);
    assert_eq!(story.fleet.hear(&story.beat("i", 1990.0, &r2()), 2005.0), Heard::Old);
    assert_eq!(story.fleet.hear(&story.beat("i", 2015.0, &r1()), 2020.0), Heard::Unread);
}

/// A gateway that is given something new now and then looks as if it repeated all the time.
#[rstest]
#[case::polled_often(30.0, Some(2025.0))]
#[case::not_polled_for_long(100.0, None)]
fn how_old_a_repeated_exposition_is_tells_who_looks_often(
    #[case] gap: Seconds,
    #[case] evidence: Option<Seconds>,
) {
    let mut story = story().whole("i", 1990.0, &r1()).whole("i", 1995.0, &r1());
    let at = 1995.0 + gap;
    let beat = Beat { repeats: true, rendered: Some((at + 20.0, at)), ..story.beat("i", at, &r1()) };
    let heard = story.fleet.hear(&beat, at);
    assert_eq!(heard == Heard::Confirmed, evidence.is_some());
    assert_eq!(story.at(at).as_of, Some(evidence.unwrap_or(1995.0)));
}

#[test]
fn samples_of_different_scrapes_tell_nothing_about_clocks() {
    let mut story = story();
    let beat = Beat { rendered: Some((1880.0, 1880.0)), ..story.beat("i", 2000.0, &r1()) };
    assert_eq!(story.fleet.hear(&beat, 2000.0), Heard::Unread);
    let content = verify(gather(&r1().lines()), r1().digest()).unwrap();
    story.fleet.accept(&beat, content, 2000.0);
    let got = story.at(2010.0);
    assert_eq!((got.standing, got.as_of), (Fresh, Some(1880.0)));
}
