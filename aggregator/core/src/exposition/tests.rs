use statusbridge_contract::{Digest, sample};

use super::*;
use crate::fleet::observation::reason;
use crate::fleet::{FleetSettings, Observation, Standing};
use crate::testing::{Exposition, healthy, package, stream, text};

const T: Seconds = 1_000_000.0;

fn origin(cluster: &str, at: Seconds) -> Origin {
    Origin {
        cluster: cluster.into(),
        feed: "".into(),
        stream: stream(&[("cluster", cluster), ("instance", "i")]),
        at,
    }
}

fn exposition(revision: &str) -> Exposition {
    Exposition::new(7).with("p", healthy(revision, T as u64 - 100))
}

fn fold(fleet: &mut Fleet, cluster: &str, text: &str, at: Seconds) -> Outcome {
    read(text.as_bytes(), origin(cluster, at)).unwrap().fold(fleet, at + 0.1)
}

fn observe(fleet: &Fleet, cluster: &str, t: Seconds) -> Observation {
    fleet.observe(cluster, &package("p"), t, 60.0)
}

/// The text with 5 in place of the fingerprint of `r1`, so that it does not add up any more.
fn with_another_revision(text: &str) -> String {
    let revision = statusbridge_contract::Fingerprint::of("r1").value();
    text.replacen(&format!(" {revision}\n"), " 5\n", 1)
}

fn fleet() -> Fleet {
    Fleet::new(FleetSettings::default())
}

#[test]
fn what_adds_up_is_taken_and_the_same_again_confirms_it() {
    let mut fleet = fleet();
    fold(&mut fleet, "c", &text(&exposition("r1"), T - 15.0), T - 14.7);
    assert_eq!(
        fold(&mut fleet, "c", &text(&exposition("r1"), T), T + 0.3),
        Outcome::Verified { news: false }
    );
    assert_eq!(
        fold(&mut fleet, "c", &text(&exposition("r1"), T + 30.0), T + 30.3),
        Outcome::Verified { news: false }
    );
    let seen = observe(&fleet, "c", T + 80.0);
    assert_eq!((seen.standing, seen.as_of), (Standing::Fresh, Some(T + 30.0)));
    assert_eq!(
        fold(&mut fleet, "c", &text(&exposition("r2"), T + 101.0), T + 101.0),
        Outcome::Verified { news: true }
    );
    assert_eq!(fold(&mut fleet, "c", &text(&exposition("r1"), T + 60.0), T + 60.0), Outcome::Old);
    let applied = observe(&fleet, "c", T + 102.0).row.unwrap().applied;
    assert_eq!(applied, statusbridge_contract::Fingerprint::of("r2"));
}

#[test]
fn an_old_exposition_that_is_repeated_ages() {
    let mut fleet = fleet();
    fold(&mut fleet, "c", &text(&exposition("r1"), T - 15.0), T - 15.0);
    let repeated = text(&exposition("r1"), T);
    for at in [0.0, 30.0, 59.0, 90.0] {
        fold(&mut fleet, "c", &repeated, T + at);
    }
    assert_eq!(observe(&fleet, "c", T + 59.0).standing, Standing::Fresh);
    let seen = observe(&fleet, "c", T + 90.0);
    assert_eq!((seen.standing, seen.as_of), (Standing::Stale, Some(T)));
}

#[test]
fn one_that_starts_believes_a_soak_at_the_second_exposition() {
    let mut fleet = fleet();
    fold(&mut fleet, "c", &text(&exposition("r1"), T), T + 0.4);
    assert_eq!(observe(&fleet, "c", T + 1.0).standing, Standing::Stale);
    fold(&mut fleet, "c", &text(&exposition("r1"), T + 15.0), T + 15.4);
    let seen = observe(&fleet, "c", T + 16.0);
    assert_eq!((seen.standing, seen.row.unwrap().since), (Standing::Fresh, T - 100.0));
}

#[test]
fn a_clock_that_is_off_is_told() {
    let mut fleet = fleet();
    fold(&mut fleet, "c", &text(&exposition("r1"), T + 300.0), T);
    assert_eq!(observe(&fleet, "c", T + 1.0).standing, Standing::ClockSkew);
}

#[test]
fn what_does_not_add_up_confirms_nothing_whatever_its_digest() {
    let good = text(&exposition("r1"), T + 30.0);
    type Edit<'a> = (&'a str, &'a dyn Fn(&str) -> String);
    let edits: [Edit<'_>; 4] = [
        ("package_healthy_revision", &with_another_revision),
        ("samples of package p", &|text| {
            let kept = text.lines().filter(|line| !line.contains("package=\"p\""));
            kept.flat_map(|line| [line, "\n"]).collect()
        }),
        ("more than once", &|text| text.to_owned() + text.lines().nth(1).unwrap() + "\n"),
        ("statusbridge_package_cost, which contract version 2 does not know", &|text| {
            let more = sample::canonical("statusbridge_package_cost", &[("package", "p")], 3);
            let old = exposition("r1").digest(T as u64 + 30);
            let mut digest = Digest::default();
            digest.add(old);
            digest.add(sample::hash_canonical(more.as_bytes()));
            text.replace(&format!(" {old}\n"), &format!(" {}\n", digest.value())) + &more + "\n"
        }),
    ];
    for (expected, edit) in edits {
        let mut fleet = fleet();
        fold(&mut fleet, "c", &text(&exposition("r1"), T - 15.0), T - 15.0);
        fold(&mut fleet, "c", &text(&exposition("r1"), T), T);
        let bad = edit(&good);
        assert_ne!(bad, good);
        let Outcome::Unverified(fault) = fold(&mut fleet, "c", &bad, T + 30.0) else { panic!("{bad}") };
        assert!(fault.contains("is attested") && fault.contains(expected), "{fault}");
        let seen = observe(&fleet, "c", T + 85.0);
        assert_eq!((seen.standing, seen.reason), (Standing::Unverified, reason::UNVERIFIED));
        assert!(seen.message.contains(expected), "{}", seen.message);
        assert_eq!(seen.as_of, Some(T));
        fold(&mut fleet, "c", &text(&exposition("r1"), T + 101.0), T + 101.0);
        assert_eq!(observe(&fleet, "c", T + 102.0).standing, Standing::Fresh);
    }
}

#[test]
fn what_cannot_be_dated_or_is_of_another_version_is_of_no_use() {
    let rendered = sample::canonical(Metric::RenderedTimestamp.name(), &[], T as u64) + "\n";
    let good = text(&exposition("r1"), T);
    for (bad, expected) in [
        (good.replace(&rendered, ""), "statusbridge_rendered_timestamp_seconds of its scrape is missing"),
        (good.replace("contract=\"2\"", "contract=\"99\""), "contract version `99`"),
        (good.replace("000000000007\"} ", "000000000007\"} 0.4"), "is no whole number"),
        (good.replace(",statusbridge_cluster_uid=\"000000000007\"", ""), "no label statusbridge_cluster_uid"),
        (
            good.replace("statusbridge_process_number{} 1\n", ""),
            "statusbridge_process_number of its scrape is missing",
        ),
    ] {
        let mut fleet = fleet();
        let outcome = fold(&mut fleet, "c", &bad, T);
        assert!(matches!(&outcome, Outcome::Unverified(fault) if fault.contains(expected)), "{outcome:?}");
        assert_ne!(observe(&fleet, "c", T + 1.0).standing, Standing::Fresh);
    }
}

#[test]
fn what_is_no_exposition_of_the_contract_says_nothing_of_anybody() {
    let good = text(&exposition("r1"), T);
    let digest = good.lines().find(|line| line.starts_with("statusbridge_digest")).unwrap();
    let cases = [
        (good.replace(&format!("{digest}\n"), ""), "it has no statusbridge_digest"),
        (format!("{good}{digest}\n"), "it has several samples of statusbridge_digest"),
        (
            good.replace("{package=\"p\"", "{cluster=\"d\",package=\"p\""),
            "a label `cluster`, which no exporter sets",
        ),
        (good.trim_end().to_owned(), "breaks off"),
        ("<html></html>\n".to_owned(), "line 1: "),
        (String::new(), "it has no statusbridge_digest"),
    ];
    for (bad, expected) in cases {
        let error = read(bad.as_bytes(), origin("c", T)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(read(b"a{x=\"\xff\"} 1\n", origin("c", T)).unwrap_err(), NoExposition::NotText);
}

#[test]
fn of_metrics_that_nobody_knows_the_first_is_named_and_as_many_more_as_are_kept_are_counted() {
    let mut fleet = fleet();
    let good = text(&exposition("r1"), T);
    for (unknown, expected) in [
        (vec!["a", "a"], "the exporter has statusbridge_a, which contract version 2 does not know"),
        (vec!["a", "a", "b"], "has statusbridge_a (and 1 more), which"),
        (vec!["a", "b", "c", "d", "e", "f"], "has statusbridge_a (and 3 more), which"),
    ] {
        let more: String = unknown.iter().map(|name| format!("statusbridge_{name}{{}} 1\n")).collect();
        let bad = with_another_revision(&good) + &more;
        let outcome = fold(&mut fleet, "c", &bad, T);
        assert!(matches!(&outcome, Outcome::Unverified(fault) if fault.contains(expected)), "{outcome:?}");
    }
}

#[test]
fn what_it_has_too_much_of_is_told() {
    let mut said = exposition("r1");
    let evidence = |said: &Exposition| read(text(said, T).as_bytes(), origin("c", T)).unwrap();
    assert_eq!(evidence(&said).excess(), None);
    said.sources = (0..257).map(|n| format!("source-{n}")).collect();
    assert_eq!(evidence(&said).excess(), Some(Excess::Sources));
}

#[test]
fn of_a_version_that_is_not_read_no_sample_is_gathered() {
    let text = text(&exposition("r1"), T);
    let samples = |text: &str| read(text.as_bytes(), origin("c", T)).unwrap().samples;
    assert!(samples(&text) > 5);
    assert_eq!(samples(&text.replace("contract=\"2\"", "contract=\"99\"")), 0);
}

/// Our own clock was set back after it was asked for.
#[test]
fn no_evidence_is_younger_than_the_present() {
    let mut fleet = fleet();
    fold(&mut fleet, "c", &text(&exposition("r1"), T), T);
    let evidence = read(text(&exposition("r1"), T + 20.0).as_bytes(), origin("c", T + 20.0)).unwrap();
    evidence.fold(&mut fleet, T + 5.0);
    assert_eq!(observe(&fleet, "c", T + 5.0).as_of, Some(T + 5.0));
}
