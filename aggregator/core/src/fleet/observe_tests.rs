//! Every standing and reason, and which streams count.

use rstest::rstest;
use statusbridge_contract::{Fingerprint, Health};

use super::observation::reason;
use super::{Digests, Exposition as Said, Fleet, FleetSettings, Heard, Observation, Row, Signs, Standing};
use crate::testing::{Exposition, SCRAPES, digests, failed, healthy, package, tell_digests};
use crate::time::Seconds;

const STALE_AFTER: Seconds = 180.0;

/// A fleet that is told what polls would tell it.
struct Story {
    fleet: Fleet,
    /// How far the cluster's clock is behind the scraper's.
    behind: Seconds,
}

fn story() -> Story {
    Story { fleet: Fleet::new(FleetSettings::default()), behind: 0.0 }
}

impl Story {
    fn digests(&self, instance: &str, at: &[Seconds], exposition: &Exposition) -> Digests {
        let mut digests = digests(&[("cluster", "c1"), ("instance", instance)], exposition, at);
        for sample in &mut digests.samples {
            let rendered = (sample.at - self.behind) as u64;
            sample.exposition = Said { digest: exposition.digest(rendered), rendered };
        }
        digests
    }

    /// Expositions scraped at `at` and a scrape before arrive whole.
    fn whole(self, instance: &str, at: Seconds, exposition: &Exposition) -> Self {
        self.scraped(instance, &[at - SCRAPES, at], exposition)
    }

    /// Expositions scraped at these times arrive whole.
    fn scraped(mut self, instance: &str, at: &[Seconds], exposition: &Exposition) -> Self {
        let digests = self.digests(instance, at, exposition);
        tell_digests(&mut self.fleet, &digests, exposition, at[at.len() - 1]);
        self.answered(at[at.len() - 1])
    }

    /// The digest of one arrives, its samples do not.
    fn torn(mut self, instance: &str, at: Seconds, exposition: &Exposition) -> Self {
        let digests = self.digests(instance, &[at], exposition);
        if let Heard::Unread(_) = self.fleet.hear(&digests, at) {
            self.fleet.reject((&digests.cluster, &digests.stream), "a sample is missing".into());
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
    Exposition::new(7).with("p", healthy("r1", 900))
}

fn r2() -> Exposition {
    Exposition::new(7).with("p", healthy("r2", 1950))
}

fn bad() -> Exposition {
    Exposition::new(7).with("p", failed("r2", 1950))
}

fn other_cluster() -> Exposition {
    Exposition::new(8).with("p", healthy("r1", 900))
}

fn without() -> Exposition {
    Exposition::new(7).with("q", healthy("r1", 900))
}

fn no_source() -> Exposition {
    Exposition { uid: 7, process: 1, ..Exposition::default() }
}

use Standing::{ClockSkew, Conflict, Fresh, Missing, Stale, Unverified};

#[rstest]
#[case::reported(story().whole("i", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::just_young_enough(story().whole("i", 1870.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::the_first_scrape_waits(story().scraped("i", &[2000.0], &r1()), Stale, reason::EXPORTER_SILENT, "waits for another one")]
#[case::the_first_scrape_after_a_gap_waits(story().behind(-50.0).scraped("i", &[1850.0], &r1()).scraped("i", &[2000.0], &r2()),
    Stale, reason::EXPORTER_SILENT, "waits for another one")]
#[case::never_seen(story(), Missing, reason::CLUSTER_NOT_FOUND, "cluster `c1` was never seen")]
#[case::never_seen_and_no_backend(story().unanswered(), Missing, reason::BACKEND_UNAVAILABLE, "cannot be reached")]
#[case::no_such_package(story().whole("i", 2000.0, &without()), Missing, reason::PACKAGE_NOT_FOUND, "reports no such package")]
#[case::no_such_source(story().whole("i", 2000.0, &no_source()), Missing, reason::PACKAGE_NOT_FOUND, "reads source `flux`")]
#[case::silent(story().whole("i", 1860.0, &r1()), Stale, reason::EXPORTER_SILENT, "190 s old")]
#[case::silent_and_no_backend(story().whole("i", 1860.0, &r1()).unanswered(), Stale, reason::BACKEND_UNAVAILABLE, "cannot be reached")]
#[case::no_backend_but_young(story().whole("i", 2000.0, &r1()).unanswered(), Fresh, reason::REPORTED, "")]
#[case::backend_back_again(story().whole("i", 1860.0, &r1()).unanswered().answered(2000.0), Stale, reason::EXPORTER_SILENT, "190 s old")]
#[case::source_down(story().whole("i", 1900.0, &r1()).whole("i", 2000.0, &r1().down("flux")), Stale, reason::SOURCE_DOWN, "cut off since 150 s")]
#[case::source_never_up(story().whole("i", 2000.0, &r1().down("flux")), Stale, reason::SOURCE_DOWN, "never seen up")]
#[case::source_up_again(story().whole("i", 1900.0, &r1().down("flux")).whole("i", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::torn_once(story().whole("i", 2000.0, &r1()).torn("i", 2015.0, &r2()), Fresh, reason::REPORTED, "a sample is missing")]
#[case::torn_twice(story().whole("i", 2000.0, &r1()).torn("i", 2015.0, &r2()).torn("i", 2030.0, &r2()), Fresh, reason::REPORTED, "a sample is missing")]
#[case::torn_thrice(story().whole("i", 2000.0, &r1()).torn("i", 2015.0, &r2()).torn("i", 2030.0, &r2()).torn("i", 2045.0, &r2()),
    Unverified, reason::UNVERIFIED, "50 s old; a sample is missing")]
#[case::torn_after_a_gap(story().whole("i", 1900.0, &r1()).torn("i", 2000.0, &r2()), Unverified, reason::UNVERIFIED, "150 s old; a sample is missing")]
#[case::whole_again(story().whole("i", 1900.0, &r1()).torn("i", 2000.0, &r2()).scraped("i", &[2015.0], &r1()), Fresh, reason::REPORTED, "")]
#[case::torn_for_long(story().whole("i", 1800.0, &r1()).torn("i", 1900.0, &r2()).torn("i", 2000.0, &bad()), Unverified, reason::UNVERIFIED, "250 s old; a sample is missing")]
#[case::never_verified(story().torn("i", 2000.0, &r1()), Unverified, reason::UNVERIFIED, "nothing was ever verified; a sample is missing")]
#[case::torn_then_silent(story().whole("i", 1700.0, &r1()).torn("i", 1800.0, &r2()), Stale, reason::EXPORTER_SILENT, "350 s old")]
#[case::torn_then_back_to_what_was_verified(story().whole("i", 1700.0, &r1()).torn("i", 1800.0, &r2()).whole("i", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::recovered(story().torn("i", 1900.0, &r1()).whole("i", 2000.0, &r2()), Fresh, reason::REPORTED, "")]
#[case::clock_behind(story().behind(90.0).whole("i", 2000.0, &r1()), ClockSkew, reason::CLOCK_SKEW, "90 s behind")]
#[case::clock_ahead(story().behind(-90.0).whole("i", 2000.0, &r1()), ClockSkew, reason::CLOCK_SKEW, "90 s ahead of")]
#[case::clock_far_ahead_from_the_first_scrape_on(story().behind(-90.0).scraped("i", &[2000.0], &r1()), ClockSkew, reason::CLOCK_SKEW, "90 s ahead of")]
#[case::clock_off_by_little(story().behind(-50.0).whole("i", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::clock_back(story().behind(90.0).whole("i", 1900.0, &r1()).behind(0.0).whole("i", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::one_of_two_clocks_off(story().behind(90.0).whole("i", 2000.0, &r1()).behind(0.0).whole("j", 2000.0, &r1()), ClockSkew, reason::CLOCK_SKEW, "90 s behind")]
#[case::two_clusters(story().whole("i", 2000.0, &r1()).whole("j", 2000.0, &other_cluster()), Conflict, reason::CLUSTER_NAME_CONFLICT,
    r#"2 clusters report as `c1`: uid 000000000007 (instance="i") and uid 000000000008 (instance="j")"#)]
#[case::two_clusters_after_one_scrape(story().whole("i", 2000.0, &r1()).scraped("j", &[2003.0], &other_cluster()), Conflict,
    reason::CLUSTER_NAME_CONFLICT, "2 clusters report as `c1`")]
#[case::two_clusters_one_gone(story().whole("i", 1960.0, &r1()).whole("j", 2000.0, &other_cluster()), Fresh, reason::REPORTED, "")]
#[case::two_clusters_under_the_same_labels(story().whole("i", 1990.0, &r1()).whole("i", 2000.0, &other_cluster()), Conflict, reason::CLUSTER_NAME_CONFLICT, "2 clusters report as `c1`")]
#[case::replicas_agree(story().whole("a", 2000.0, &r1()).whole("b", 2003.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::two_processes_agree(story().whole("a", 2000.0, &r1()).whole("a", 2003.0, &r1().by(2)), Fresh, reason::REPORTED, "")]
#[case::a_replica_says_worse(story().whole("a", 2000.0, &r1()).whole("b", 2003.0, &bad()), Fresh, reason::STREAMS_DISAGREE, "Applied and Failed")]
#[case::a_replica_says_worse_after_one_scrape(story().whole("a", 2000.0, &r1()).scraped("b", &[2003.0], &bad()), Fresh, reason::STREAMS_DISAGREE, "Applied and Failed")]
#[case::a_replica_is_dead(story().whole("a", 1960.0, &bad()).whole("b", 2000.0, &r2()), Fresh, reason::REPORTED, "")]
#[case::one_that_does_not_verify(story().whole("a", 2000.0, &r1()).torn("b", 2003.0, &r2()),
    Unverified, reason::UNVERIFIED, "one of the streams of `c1` is not verified: a sample is missing")]
#[case::one_that_does_not_verify_any_more(story().whole("a", 2000.0, &r1()).whole("b", 1950.0, &r1()).torn("b", 2003.0, &r2()),
    Unverified, reason::UNVERIFIED, "one of the streams of `c1` is not verified: a sample is missing")]
#[case::one_that_reads_something_else_does_not_verify_any_more(
    story().whole("a", 2000.0, &r1()).whole("b", 1950.0, &no_source().by(2)).torn("b", 2003.0, &no_source().by(2).down("argo")),
    Fresh, reason::REPORTED, "")]
#[case::one_that_does_not_verify_and_is_silent(story().torn("b", 1870.0, &r2()).whole("a", 2000.0, &r1()), Fresh, reason::REPORTED, "")]
#[case::one_lacks_the_package(story().whole("a", 2000.0, &r1()).whole("b", 2003.0, &without()),
    Missing, reason::PACKAGE_NOT_FOUND, "reports no such package")]
#[case::one_of_two_is_down(story().whole("a", 2000.0, &r1()).whole("b", 2005.0, &r2().down("flux")), Fresh, reason::REPORTED, "")]
fn standings(#[case] story: Story, #[case] standing: Standing, #[case] reason: &str, #[case] message: &str) {
    let got = story.at(2050.0);
    assert_eq!((got.standing, got.reason), (standing, reason), "{}", got.message);
    assert!(got.message.contains(message) && got.message.is_empty() == message.is_empty(), "{}", got.message);
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
fn nothing_is_gained_by_speaking_last() {
    for (first, second) in [(r1(), bad()), (bad(), r1())] {
        let story = story().whole("a", 2000.0, &first).whole("b", 2005.0, &second);
        let seen = story.at(2010.0);
        // The worst word, and the oldest evidence. It counts as failed, not only as not healthy.
        assert_eq!(seen.as_of, Some(2000.0));
        let row = seen.row.unwrap();
        assert_eq!((row.health, row.healthy), (Health::Failed, Fingerprint::NONE));
    }
}

#[test]
fn no_revision_counts_while_streams_name_different_ones() {
    let row = row(&story().whole("a", 2000.0, &r1()).whole("b", 2005.0, &r2()), 2010.0);
    assert_eq!((row.healthy, row.applied), (Fingerprint::NONE, Fingerprint::NONE));
}

#[test]
fn a_stream_has_a_vote_until_it_was_silent_for_two_of_its_intervals_while_another_goes_on() {
    let both = story().scraped("a", &[1970.0, 1985.0, 2000.0], &bad());
    let both = both.scraped("b", &[1972.0, 1987.0, 2002.0, 2017.0], &r2());
    assert_eq!(row(&both, 2020.0).healthy, Fingerprint::NONE);
    let both = both.scraped("b", &[2030.0], &r2());
    assert_eq!(row(&both, 2035.0).healthy, Fingerprint::NONE);
    let both = both.scraped("b", &[2045.0], &r2());
    let seen = both.at(2050.0);
    assert_eq!((seen.as_of, seen.row.as_ref().unwrap().healthy), (Some(2045.0), Fingerprint::of("r2")));
    // Its last word counts for the soak: nothing is so for longer.
    assert_eq!(seen.row.unwrap().since, 2000.0);
    // Also where the one that goes on was verified before the other one spoke.
    let both = story().scraped("b", &[1972.0, 1987.0], &r2()).scraped("a", &[1970.0, 1985.0, 2000.0], &bad());
    let alone = both.scraped("b", &[2002.0, 2017.0, 2032.0, 2047.0], &r2());
    assert_eq!((row(&alone, 2050.0).healthy, row(&alone, 2050.0).since), (Fingerprint::of("r2"), 2000.0));
    // While none of them goes on, both count.
    let silent = story().scraped("a", &[1970.0, 1985.0, 2000.0], &bad());
    let silent = silent.scraped("b", &[1972.0, 1987.0, 2002.0], &r2());
    assert_eq!(row(&silent, 2100.0).healthy, Fingerprint::NONE);
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
    for poll in 3..40 {
        let t = 1000.0 + 5.0 * f64::from(poll);
        let (a, b) = ((t / 15.0).floor() * 15.0, ((t - 7.0) / 15.0).floor() * 15.0 + 7.0);
        story = story.scraped("a", &[a], &said(a)).scraped("b", &[b], &said(b));
        let got = story.at(t);
        if poll > 6 {
            seen.push((got.standing, got.row.unwrap().healthy));
        }
    }
    seen.dedup();
    let expected = [Fingerprint::of("r1"), Fingerprint::NONE, Fingerprint::of("r2")];
    assert_eq!(seen, expected.map(|r| (Fresh, r)));
}

#[test]
fn another_process_keeps_what_is_remembered() {
    let story = story().whole("old", 1900.0, &r1()).whole("old", 1960.0, &r2());
    let story = story.whole("new", 2000.0, &r2().by(2));
    let row = row(&story, 2010.0);
    assert_eq!(row.previously_applied, Fingerprint::of("r1"));
    assert_eq!(row.since, 1950.0);
}

#[test]
fn since_is_told_in_the_backends_clock() {
    let ahead = story().behind(-40.0).whole("i", 2000.0, &r1());
    assert_eq!((row(&ahead, 2010.0).since, ahead.at(2010.0).as_of), (860.0, Some(2000.0)));
    // One that is behind makes the evidence older by as much.
    let behind = story().behind(30.0).whole("i", 2000.0, &r1());
    assert_eq!((row(&behind, 2010.0).since, behind.at(2010.0).as_of), (900.0, Some(1970.0)));
}

#[test]
fn age_counts_from_when_the_exposition_was_rendered() {
    // A gateway holds expositions back for 50 s: within the limit for skew, but older.
    let story = story().behind(50.0).whole("i", 2000.0, &r1());
    assert_eq!(story.at(2050.0).as_of, Some(1950.0));
    assert_eq!(story.at(2120.0).standing, Fresh);
    assert_eq!(story.at(2131.0).standing, Stale);
}

/// A gateway goes on giving one exposition of a cluster whose clock is ahead.
#[test]
fn what_is_repeated_is_as_old_as_its_first_scrape_whatever_the_clock_says() {
    let mut story = story().behind(-50.0).whole("i", 1900.0, &r1());
    let repeated = Said { digest: r1().digest(1950), rendered: 1950 };
    for at in [1915.0, 1930.0, 1945.0] {
        let mut digests = story.digests("i", &[at], &r1());
        digests.samples[0].exposition = repeated;
        assert_eq!(story.fleet.hear(&digests, at), Heard::Confirmed);
    }
    assert_eq!(story.at(1950.0).as_of, Some(1900.0));
    let late = story.at(1900.0 + STALE_AFTER + 1.0);
    assert_eq!((late.standing, late.reason), (Stale, reason::EXPORTER_SILENT));
    assert!(late.message.contains("repeated by some gateway"), "{}", late.message);
}

/// A balancer has two caches, and one of them is stuck.
#[test]
fn an_older_exposition_that_comes_in_between_is_passed_over() {
    let mut story = story().whole("i", 1900.0, &bad());
    for at in [1915.0, 1945.0] {
        story = story.scraped("i", &[at], &r2());
        let stuck = Said { digest: bad().digest(1900), rendered: 1900 };
        let mut digests = story.digests("i", &[at + 15.0], &bad());
        digests.samples[0].exposition = stuck;
        assert_eq!(story.fleet.hear(&digests, at + 15.0), Heard::Confirmed);
        let seen = story.at(at + 16.0);
        assert_eq!((seen.as_of, seen.row.unwrap().healthy), (Some(at), Fingerprint::of("r2")));
    }
}

/// Else a gate on all that report the package would open without it.
#[test]
fn a_cluster_whose_clock_is_ahead_reports_all_the_same() {
    let seen = story().behind(-300.0).whole("i", 2000.0, &r1());
    assert_eq!(seen.fleet.reporting(&package("p")), ["c1"]);
    assert_eq!(seen.at(2000.0).standing, ClockSkew);
    // What comes when the clock is right counts, whatever time the clock said before.
    let right = seen.behind(0.0).scraped("i", &[2015.0, 2030.0], &r2());
    let seen = right.at(2030.0);
    assert_eq!((seen.standing, seen.row.unwrap().healthy), (Fresh, Fingerprint::of("r2")));
}

#[test]
fn samples_of_the_future_are_a_clock_that_is_wrong_until_no_more_come() {
    let mut story = story().whole("i", 2000.0, &r1());
    let tell = |story: &mut Story, at: Seconds, soon: &[Seconds], ahead: Option<Seconds>| {
        let mut digests = story.digests("i", &[at], &r1());
        digests.signs = Signs { soon: soon.to_vec(), ahead, doubted: None };
        story.fleet.hear(&digests, at);
        story.fleet.answered("", at);
        (story.at(at).standing, story.at(at).message)
    };
    let (standing, message) = tell(&mut story, 2015.0, &[], Some(3585.0));
    assert_eq!(standing, ClockSkew);
    assert!(message.contains("3585 s in the future"), "{message}");
    assert_eq!(tell(&mut story, 2030.0, &[], Some(3585.0)).0, ClockSkew);
    // Clocks may be off by a little.
    let mut near = self::story().whole("i", 2000.0, &r1());
    assert_eq!(tell(&mut near, 2015.0, &[2045.0], None).0, Fresh);
    // No more come.
    assert_eq!(tell(&mut story, 2045.0, &[2046.0], None).0, ClockSkew);
    assert_eq!(tell(&mut story, 2061.0, &[2062.0], None).0, Fresh);
    // So is one of which nothing else was ever there.
    let mut alone = self::story();
    let mut digests = alone.digests("i", &[], &r1());
    digests.signs.ahead = Some(3600.0);
    alone.fleet.hear(&digests, 2000.0);
    alone.fleet.answered("", 2000.0);
    assert_eq!(alone.at(2000.0).standing, ClockSkew);
}

#[test]
fn what_is_found_again_is_no_sign_of_life_and_what_is_found_late_is_one() {
    let said = story().scraped("a", &[1970.0, 1985.0, 2000.0], &bad());
    let found = said.digests("a", &[1970.0, 1985.0, 2000.0], &bad());
    // A clock was set back in between: stamps are new, and none is the newest.
    let late = |said: &Story, at: Seconds| said.digests("a", &[at - 48.0], &bad());
    for (is_new, healthy) in [(false, Fingerprint::of("r2")), (true, Fingerprint::NONE)] {
        let mut both = story().scraped("a", &[1970.0, 1985.0, 2000.0], &bad());
        for at in [2015.0, 2030.0, 2045.0] {
            let again = if is_new { late(&both, at) } else { found.clone() };
            both.fleet.hear(&again, at);
            both = both.scraped("b", &[at], &r2());
        }
        assert_eq!(row(&both, 2050.0).healthy, healthy, "{is_new}");
    }
}

#[test]
fn stamps_that_are_to_come_are_a_sign_of_life() {
    let mut both = story().scraped("a", &[1970.0, 1985.0, 2000.0], &bad());
    for at in [2015.0, 2030.0, 2045.0, 2060.0] {
        // A clock that is set 50 s ahead: nothing of the present comes until then.
        let mut ahead = both.digests("a", &[], &bad());
        ahead.signs.soon = vec![at + 50.0];
        both.fleet.hear(&ahead, at);
        both = both.scraped("b", &[at], &r2());
        assert_eq!(row(&both, at).healthy, Fingerprint::NONE, "{at}");
    }
    // No more come.
    let alone = both.scraped("b", &[2075.0, 2090.0, 2105.0], &r2());
    assert_eq!(row(&alone, 2110.0).healthy, Fingerprint::of("r2"));
}

/// It is known that the cluster is not well any more; since when is not.
#[test]
fn what_is_doubted_is_no_evidence_and_takes_back_what_was_said_before() {
    // Beside a process that is live its word counts, as of when that one was heard.
    for (process, standings) in [(1, [Stale, Stale]), (2, [Fresh, Stale])] {
        let mut story = story().whole("i", 2000.0, &r1());
        let said = bad().by(process);
        let mut doubted = story.digests("i", &[2015.0, 2030.0], &said);
        doubted.signs.doubted = Some(2060.0);
        tell_digests(&mut story.fleet, &doubted, &said, 2030.0);
        let mut story = story.answered(2030.0);
        for (at, standing) in [2045.0, 2060.0].into_iter().zip(standings) {
            let seen = story.at(at);
            assert_eq!(
                (seen.standing, seen.row.unwrap().healthy),
                (standing, Fingerprint::NONE),
                "{process}"
            );
            story = story.scraped("i", &[at], &said);
        }
        let story = story.scraped("i", &[2075.0], &said).answered(2075.0);
        assert_eq!(row(&story, 2075.0).healthy, Fingerprint::NONE);
    }
    let mut story = story().whole("i", 2000.0, &r1());
    let mut same = story.digests("i", &[2015.0, 2030.0], &r1());
    same.signs.doubted = Some(2060.0);
    tell_digests(&mut story.fleet, &same, &r1(), 2030.0);
    assert_eq!(story.at(2045.0).as_of, Some(2000.0));
    let story = story.scraped("i", &[2045.0, 2060.0, 2075.0], &r1());
    assert_eq!(story.at(2080.0).as_of, Some(2075.0));
}

/// What is to come does not say of which process it is, nor does a scrape whose other parts are late.
#[test]
fn what_did_not_say_of_which_process_it_is_was_of_the_one_that_is_heard_first() {
    for is_late in [false, true] {
        let mut story = story();
        let mut unnamed = story.digests("i", &[], &r1());
        unnamed.stream.process = 0;
        if is_late {
            (unnamed.lack, unnamed.seen) = (Some("its process number is missing".to_owned()), Some(2000.0));
        } else {
            unnamed.signs.soon = vec![2030.0];
        }
        story.fleet.hear(&unnamed, 2000.0);
        let story = story.scraped("i", &[2030.0, 2045.0], &r1()).answered(2045.0);
        assert_eq!((story.fleet.streams().count(), story.at(2045.0).standing), (1, Fresh), "{is_late}");
    }
}

/// Nobody knows how far apart its scrapes are: what it says counts until a minute's would have come twice.
#[test]
fn one_that_was_scraped_once_is_not_silent_before_another_that_is_scraped_more_often_could_be() {
    let mut both = story().scraped("a", &[2000.0], &bad());
    for at in (1..=9).map(|scrape| 2000.0 + 15.0 * f64::from(scrape)) {
        both = both.scraped("b", &[at - 15.0, at], &r2());
        let healthy = if at <= 2120.0 { Fingerprint::NONE } else { Fingerprint::of("r2") };
        assert_eq!(row(&both, at).healthy, healthy, "{at}");
    }
}

#[test]
fn two_exporters_of_a_cluster_may_read_different_sources() {
    let argo = Exposition { sources: vec!["argo".into()], ..Exposition::new(7).by(2) };
    let story = story().whole("flux", 1800.0, &r1()).whole("argo", 2000.0, &argo);
    let got = story.at(2050.0);
    assert_eq!((got.standing, got.reason), (Stale, reason::EXPORTER_SILENT));
}

#[rstest]
#[case::a_later_contract(|d: &mut Digests| d.contract = "3".into(), "contract version `3`, this aggregator reads 2: upgrade the aggregator")]
#[case::an_older_contract(|d: &mut Digests| d.contract = "1".into(), "contract version `1`, this aggregator reads 2: upgrade the exporter")]
#[case::something_lacks(|d: &mut Digests| {
    (d.samples, d.seen, d.lack) = (Vec::new(), Some(2000.0), Some("its digest has no label".into()));
    d.stream.process = 0;
}, "its digest has no label")]
fn a_digest_that_is_of_no_use_is_no_evidence(#[case] make: fn(&mut Digests), #[case] message: &str) {
    let mut story = story().whole("i", 1800.0, &r1());
    let mut digests = story.digests("i", &[2000.0], &r1());
    make(&mut digests);
    assert_eq!(story.fleet.hear(&digests, 2000.0), Heard::Unusable);
    let got = story.at(2050.0);
    assert_eq!((got.standing, got.as_of), (Unverified, Some(1800.0)));
    assert!(got.message.contains(message), "{}", got.message);
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
fn the_newest_that_is_not_known_is_read_first_and_older_ones_after_it() {
    let mut story = story().whole("i", 2000.0, &r1());
    let mut digests = story.digests("i", &[2000.0, 2015.0, 2030.0, 2045.0], &r2());
    digests.samples[0] = story.digests("i", &[2000.0], &r1()).samples[0];
    digests.samples[1] = story.digests("i", &[2015.0], &r1()).samples[0];
    let Heard::Unread(unread) = story.fleet.hear(&digests, 2045.0) else { panic!("nothing to read") };
    assert_eq!(unread.iter().map(|sample| sample.at).collect::<Vec<_>>(), [2045.0, 2030.0]);
    // The one in between confirms what is known.
    assert_eq!(story.at(2045.0).as_of, Some(2015.0));
    // An older one adds up: that is what is known then.
    let key = (&*digests.cluster, &digests.stream);
    story.fleet.accept(key, &unread[1], r2().content(), 2045.0);
    let seen = story.at(2046.0);
    assert_eq!((seen.as_of, seen.row.unwrap().healthy), (Some(2030.0), Fingerprint::of("r2")));
}

#[test]
fn a_stream_that_is_scraped_more_seldom_keeps_vote_and_evidence() {
    let often: Vec<Seconds> = (0..20).map(|n| 1500.0 + SCRAPES * Seconds::from(n)).collect();
    let mut story = story().scraped("a", &often, &bad()).scraped("b", &often, &r2());
    // From now on every minute; the first such scrape waits for the second one.
    for at in [1845.0, 1905.0, 1965.0] {
        story = story.scraped("a", &[at], &bad());
    }
    let goes_on: Vec<Seconds> = (0..15).map(|n| 1800.0 + SCRAPES * Seconds::from(n)).collect();
    let story = story.scraped("b", &goes_on, &r2());
    let seen = story.at(2015.0);
    assert_eq!((seen.row.as_ref().unwrap().healthy, seen.as_of), (Fingerprint::NONE, Some(1965.0)));
}

/// `b` is stamped by a clock that is behind, or comes late: polls find news of it, and its stamps are as old as those of `a`.
#[test]
fn a_stream_is_not_silent_by_polls_alone() {
    let mut story = story().scraped("a", &[1970.0, 1985.0, 2000.0], &bad());
    let digests = story.digests("b", &[1965.0, 1980.0, 1995.0, 2010.0], &r2());
    tell_digests(&mut story.fleet, &digests, &r2(), 2045.0);
    assert_eq!(row(&story.answered(2045.0), 2050.0).healthy, Fingerprint::NONE);
}

#[test]
fn a_stream_that_reads_something_else_takes_no_vote_away() {
    let story = story().scraped("a", &[1970.0, 1985.0, 2000.0], &bad()).scraped(
        "b",
        &[1980.0, 1995.0, 2010.0],
        &r2(),
    );
    let story = story.scraped("c", &[1980.0, 1995.0, 2010.0, 2025.0, 2040.0], &no_source());
    assert_eq!(row(&story, 2045.0).healthy, Fingerprint::NONE);
}

#[test]
fn a_gap_between_the_first_two_scrapes_keeps_no_vote_for_long() {
    let goes_on: Vec<Seconds> = (0..=20).map(|n| 1700.0 + SCRAPES * Seconds::from(n)).collect();
    let story = story().scraped("a", &[1000.0, 1700.0], &bad()).scraped("b", &goes_on, &r2());
    assert_eq!(row(&story, 2010.0).healthy, Fingerprint::of("r2"));
}

/// The cluster's clock is ahead, and the exposition adds up only once its first scrape is found.
#[test]
fn a_first_scrape_that_is_found_late_dates_what_is_repeated() {
    let mut story = story().behind(-50.0).scraped("i", &[1885.0], &r1());
    let repeated = Said { digest: r2().digest(1950), rendered: 1950 };
    for at in [vec![1930.0], vec![1900.0, 1915.0, 1930.0, 1945.0]] {
        let mut digests = story.digests("i", &at, &r2());
        digests.samples.iter_mut().for_each(|sample| sample.exposition = repeated);
        let t = at[at.len() - 1];
        let Heard::Unread(unread) = story.fleet.hear(&digests, t) else { panic!("nothing to read") };
        let key = (&*digests.cluster, &digests.stream);
        match at.len() {
            1 => story.fleet.reject(key, "a sample is missing".into()),
            _ => drop(story.fleet.accept(key, &unread[0], r2().content(), t)),
        }
    }
    assert_eq!(story.at(1950.0).as_of, Some(1900.0));
}

/// Some gateway repeats the first one after the second one came.
#[test]
fn what_was_rendered_later_is_read_before_what_was_scraped_later() {
    let mut story = story();
    let mut digests = story.digests("i", &[1985.0, 2000.0, 2015.0], &r1());
    digests.samples[1] = story.digests("i", &[2000.0], &bad()).samples[0];
    digests.samples[2].exposition = digests.samples[0].exposition;
    let Heard::Unread(unread) = story.fleet.hear(&digests, 2015.0) else { panic!("nothing to read") };
    assert_eq!(unread.iter().map(|sample| sample.at).collect::<Vec<_>>(), [2000.0, 2015.0, 1985.0]);
}

/// Its clock was far ahead when it was rendered, and is right in the next one, which does not add up.
#[test]
fn what_was_rendered_far_ahead_of_its_scrape_is_no_evidence() {
    let mut story = story();
    let mut digests = story.digests("i", &[1970.0, 1985.0, 2000.0], &r1());
    digests.samples[1].exposition = Said { digest: r2().digest(2075), rendered: 2075 };
    let Heard::Unread(_) = story.fleet.hear(&digests, 2000.0) else { panic!("nothing to read") };
    story.fleet.accept((&digests.cluster, &digests.stream), &digests.samples[1], r2().content(), 2000.0);
    let seen = story.at(2001.0);
    assert_eq!((seen.standing, seen.as_of), (Stale, None));
}
