use proptest::prelude::*;
use rstest::rstest;
use statusbridge_api::PackageRef;
use statusbridge_contract::{Fingerprint, MAX_48_BITS, Metric, label};

use super::content::Reason;
use super::{Attested, Content, Gathered, Stray, diagnose, verify};
use crate::sample::Sample;
use crate::testing::{self, Exposition, Line, failed, gather, healthy, stream};

type Lines = Vec<Line>;

const INVENTORY: [(Metric, u64); 3] = [
    (Metric::PackageResources, 12),
    (Metric::PackageResourcesCurrent, 11),
    (Metric::PackageResourcesFailed, 1),
];

fn fleet() -> Exposition {
    Exposition::new(77)
        .with("payments", healthy("r1", 1000))
        .with("search", failed("r2", 2000))
        .with("ledger", [healthy("r3", 3000), INVENTORY.to_vec()].concat())
}

/// What is said about these lines when the digest is that of `attested`.
fn said(lines: &[Line], attested: &Exposition, last: Option<&Content>, strays: &[Stray]) -> String {
    let labels = stream(&[("cluster", "c1"), ("instance", "i")]);
    let gathered = verify(gather(lines), attested.attested()).unwrap_err();
    diagnose(&gathered, attested.attested(), &labels, last, strays)
}

fn verified(exposition: &Exposition) -> Content {
    exposition.content()
}

#[test]
fn what_was_attested_is_verified_and_found_again() {
    let content = verified(&fleet());
    let key = super::package::key("flux", "ns", "search");
    let (at, found) = content.find(&key).unwrap();
    assert_eq!((at, found.health().code()), (2, 5));
    assert_eq!(content.find(&super::package::key("flux", "", "search")), None);
    let code = found.reason();
    assert_eq!(content.reason("flux", code).as_deref(), Some("HealthCheckFailed"));
    assert_eq!(content.reason("other", 0x12).as_deref(), Some("code 0x12"));
    assert_eq!(content.reason("flux", 0), None);
    assert_eq!(content.samples, 16);
}

#[test]
fn a_word_of_the_dictionary_takes_memory_and_so_does_a_name() {
    let content = verified(&fleet());
    let word = Reason { source: "s".into(), code: "0x1".into(), word: "Word".into(), value: 1 };
    let more =
        Content { reasons: content.reasons.iter().cloned().chain([word]).collect(), ..content.clone() };
    assert!(more.bytes(0) >= content.bytes(0) + size_of::<Reason>() + "s0x1Word".len());
    assert_eq!(content.bytes(1000), content.bytes(0) + 3 * 1000);
    let names: usize = content.packages.keys().iter().map(|key| key.len()).sum();
    let others = content.bytes(0) - Content { packages: Default::default(), ..content.clone() }.bytes(0);
    assert!(others >= names + content.packages.bytes(), "{others}");
}

fn drop_metric(lines: &mut Lines, metric: Metric) {
    drop_metrics(lines, &[metric]);
}

fn drop_metrics(lines: &mut Lines, metrics: &[Metric]) {
    lines.retain(|l| !metrics.contains(&l.metric));
}

fn of<'a>(lines: &'a mut [Line], metric: Metric, package: &str) -> &'a mut Line {
    lines
        .iter_mut()
        .find(|l| l.metric == metric && l.own.iter().any(|(n, v)| *n == label::PACKAGE && v == package))
        .unwrap()
}

fn relabel(line: &mut Line, name: &str, value: Option<&str>) {
    match value {
        Some(value) => line.own.iter_mut().filter(|(n, _)| *n == name).for_each(|(_, v)| *v = value.into()),
        None => line.own.retain(|(n, _)| *n != name),
    }
}

#[rstest]
#[case::a_metric_dropped(|l: &mut Lines| drop_metric(l, Metric::PackageHealth),
    "statusbridge_package_health{package=\"search\",package_namespace=\"ns\",package_source=\"flux\"} is missing")]
#[case::an_inventory_metric_dropped(|l: &mut Lines| drop_metric(l, Metric::PackageResourcesCurrent),
    "statusbridge_package_resources_current{package=\"ledger\",package_namespace=\"ns\",package_source=\"flux\"} is missing")]
#[case::source_up_dropped(|l: &mut Lines| drop_metric(l, Metric::SourceUp), "statusbridge_source_up is missing altogether")]
#[case::everything_dropped(|l: &mut Lines| l.clear(), "none of the samples arrived")]
#[case::one_sample_dropped(
    |l: &mut Lines| l.retain(|x| !(x.metric == Metric::PackageReason && x.own[0].1 == "search")),
    r#"statusbridge_package_reason{package="search",package_namespace="ns",package_source="flux"} is missing"#)]
#[case::arrived_twice(|l: &mut Lines| { let again = of(l, Metric::PackageHealth, "search").clone(); l.push(again); },
    r#"statusbridge_package_health{package="search",package_namespace="ns",package_source="flux"} arrived more than once"#)]
#[case::a_required_label_dropped(|l: &mut Lines| relabel(of(l, Metric::PackageHealth, "search"), label::PACKAGE_SOURCE, None),
    r#"statusbridge_package_health{package="search",package_namespace="ns"} lacks its label package_source"#)]
#[case::namespace_rewritten_on_all(
    |l: &mut Lines| l.iter_mut().for_each(|x| relabel(x, label::PACKAGE_NAMESPACE, Some("other"))),
    r#"label package_namespace of 3 packages was rewritten, "other" instead of "ns""#)]
#[case::namespace_dropped_on_all(|l: &mut Lines| l.iter_mut().for_each(|x| relabel(x, label::PACKAGE_NAMESPACE, None)),
    r#"label package_namespace of 3 packages is gone, it was "ns""#)]
#[case::namespace_dropped_on_one_metric(
    |l: &mut Lines| l.iter_mut().filter(|x| x.metric == Metric::PackageHealth)
        .for_each(|x| relabel(x, label::PACKAGE_NAMESPACE, None)),
    r#"label package_namespace of 1 packages is gone, it was "ns" (statusbridge_package_health)"#)]
#[case::namespace_rewritten_on_the_first_metric(
    |l: &mut Lines| l.iter_mut().filter(|x| x.metric == Metric::PackageHealthyRevision)
        .for_each(|x| relabel(x, label::PACKAGE_NAMESPACE, Some("other"))),
    r#"label package_namespace of 3 packages was rewritten, "other" instead of "ns" (statusbridge_package_healthy_revision)"#)]
#[case::rounded_to_six_digits(
    |l: &mut Lines| of(l, Metric::PackageHealthyRevision, "payments").value = 123_457_000_000_000,
    r#"rounded or stale: statusbridge_package_healthy_revision{package="payments",package_namespace="ns",package_source="flux"} reads 123457000000000, "#)]
#[case::health_flipped(|l: &mut Lines| of(l, Metric::PackageHealth, "search").value = 4,
    r#"statusbridge_package_health{package="search",package_namespace="ns",package_source="flux"} reads 4, 5 was attested"#)]
#[case::source_up_flipped(|l: &mut Lines| l.iter_mut().find(|x| x.metric == Metric::SourceUp).unwrap().value = 0,
    r#"rounded or stale: statusbridge_source_up{package_source="flux"} reads 0, 1 was attested"#)]
#[case::a_package_lost(|l: &mut Lines| l.retain(|x| x.own.first().is_none_or(|o| o.1 != "search")),
    r#"all samples of package search (namespace "ns", flux) are missing"#)]
#[case::a_deleted_package_still_there(
    |l: &mut Lines| *l = fleet().with("old", healthy("r0", 1)).lines().into_iter()
        .filter(|x| x.metric != Metric::SourcePackages).chain(fleet().lines().into_iter()
        .filter(|x| x.metric == Metric::SourcePackages)).collect(),
    r#"package old (namespace "ns", flux) is there but not attested, perhaps deleted lately"#)]
#[case::process_lost(|l: &mut Lines| drop_metric(l, Metric::ProcessNumber), "statusbridge_process_number is missing")]
#[case::dictionary_lost(|l: &mut Lines| drop_metric(l, Metric::ReasonInfo),
    r#"package_source="flux",reason="HealthCheckFailed"} is missing"#)]
fn a_fault_is_named(#[case] fault: fn(&mut Lines), #[case] expected: &str) {
    let mut lines = fleet().lines();
    fault(&mut lines);
    let text = said(&lines, &fleet(), Some(&verified(&fleet())), &[]);
    assert!(text.contains(expected), "{text}");
    assert!(text.len() < 500);
}

/// Drops the time of these packages.
fn drop_times(lines: &mut Lines, packages: &[&str]) {
    let is_theirs = |line: &Line| line.own.iter().any(|(_, value)| packages.contains(&value.as_str()));
    lines.retain(|line| line.metric != Metric::PackageTransitionTimestamp || !is_theirs(line));
}

fn double(lines: &mut Lines, packages: &[&str]) {
    for package in packages {
        let again = of(lines, Metric::PackageTransitionTimestamp, package).clone();
        lines.push(again);
    }
}

const TIME: &str = "statusbridge_package_transition_timestamp_seconds";

#[rstest]
#[case::of_all_packages(|l: &mut Lines| drop_times(l, &["payments", "search", "ledger"]), "TIME is missing altogether")]
#[case::of_one_package(|l: &mut Lines| drop_times(l, &["search"]), "TIME{search} is missing")]
#[case::of_two_packages(|l: &mut Lines| drop_times(l, &["search", "payments"]), "TIME{payments} is missing and of 1 more packages")]
#[case::one_twice(|l: &mut Lines| double(l, &["search"]), "TIME{search} arrived more than once")]
#[case::two_twice(|l: &mut Lines| double(l, &["search", "payments"]), "TIME{search} arrived more than once (and 1 more)")]
#[case::nothing_but_the_process(
    |l: &mut Lines| l.retain(|line| line.metric == Metric::ProcessNumber),
    "samples of different scrapes, or changed on the way"
)]
#[case::nothing_but_a_source(
    |l: &mut Lines| l.retain(|line| [Metric::ProcessNumber, Metric::SourcePackages].contains(&line.metric)),
    "statusbridge_source_up is missing altogether"
)]
#[case::nothing_but_what_says_that_it_is_up(
    |l: &mut Lines| l.retain(|line| [Metric::ProcessNumber, Metric::SourceUp].contains(&line.metric)),
    "statusbridge_source_packages is missing altogether"
)]
#[case::of_another_process(
    |l: &mut Lines| l.iter_mut().filter(|line| line.metric == Metric::ProcessNumber).for_each(|line| line.value += 1),
    "statusbridge_process_number is another process's"
)]
#[case::three(
    |l: &mut Lines| { drop_metrics(l, &[Metric::SourceUp, Metric::ProcessNumber]); drop_times(l, &["search"]); },
    "TIME{search} is missing; statusbridge_source_up is missing altogether; statusbridge_process_number is missing"
)]
#[case::four(
    |l: &mut Lines| {
        drop_metrics(l, &[Metric::SourceUp, Metric::SourcePackages, Metric::ProcessNumber]);
        drop_times(l, &["search"]);
    },
    "TIME{search} is missing; statusbridge_source_up is missing altogether; \
     statusbridge_source_packages is missing altogether; and 1 more findings"
)]
fn faults_are_told_in_so_many_words(#[case] fault: fn(&mut Lines), #[case] expected: &str) {
    let mut lines = fleet().lines();
    fault(&mut lines);
    let text = said(&lines, &fleet(), None, &[]);
    let (_, found) = text.split_once(" is attested: ").unwrap();
    let rest = "\",package_namespace=\"ns\",package_source=\"flux\"}";
    let found = found.replace(TIME, "TIME").replace("{package=\"", "{").replace(rest, "}");
    assert_eq!(found, expected);
}

#[test]
fn what_is_left_out_follows_from_the_rest() {
    let content = verified(&Exposition::new(5).with("good", healthy("r1", 7)).with("bad", failed("r2", 8)));
    let found = |name| content.find(&super::package::key("flux", "ns", name)).unwrap().1;
    let states = |name| {
        let it = found(name);
        (
            (it.apply().code(), it.health().code()),
            [it.desired(), it.applied(), it.healthy()],
            it.since(),
            it.reason(),
        )
    };
    let (r1, r2) = (Fingerprint::of("r1"), Fingerprint::of("r2"));
    assert_eq!(states("good"), ((0, 0), [r1, r1, r1], 7, 0));
    let code = statusbridge_contract::reason::code("HealthCheckFailed");
    assert_eq!(states("bad"), ((0, 5), [r2, r2, Fingerprint::NONE], 8, code));
}

#[rstest]
#[case::zeros_are_filled_in(
    Metric::PackageApplyState,
    0,
    "reads 0, which no exporter says: a pipeline fills what is absent"
)]
#[case::an_applied_revision_beside_a_healthy_one(
    Metric::PackageAppliedRevision,
    5,
    "does not know beside the rest"
)]
#[case::a_desired_revision_that_is_the_applied_one(
    Metric::PackageDesiredRevision, Fingerprint::of("r1").value(), "does not know beside the rest")]
#[case::well_and_failed(Metric::PackageHealth, 5, "is not 0 though it is not well")]
#[case::failed_resources_without_an_inventory(
    Metric::PackageResourcesFailed,
    1,
    "does not know beside the rest"
)]
fn what_follows_from_the_rest_is_never_said(
    #[case] metric: Metric,
    #[case] value: u64,
    #[case] expected: &str,
) {
    let odd = Exposition::new(5).with("p", [healthy("r1", 7), vec![(metric, value)]].concat());
    let gathered = verify(gather(&odd.lines()), odd.attested()).unwrap_err();
    let text = diagnose(&gathered, odd.attested(), &stream(&[]), None, &[]);
    assert!(text.contains(expected), "{text}");
}

#[test]
fn packages_that_run_elsewhere_are_others_than_those_that_run_here() {
    let mut lines = fleet().lines();
    let own = [(label::PACKAGE, "p"), (label::PACKAGE_CLUSTER, "eu-1"), (label::PACKAGE_SOURCE, "flux")];
    let own = own.map(|(name, value)| (name, value.to_owned())).to_vec();
    for (metric, value) in healthy("r1", 7) {
        lines.push(Line { metric, own: own.clone(), value });
    }
    lines.iter_mut().find(|it| it.metric == Metric::SourcePackages).unwrap().value += 1;
    let attested = Attested { state: lines.iter().map(Line::hash).collect(), process: 1 };
    let content = verify(gather(&lines), attested).unwrap();
    assert_eq!((content.packages.len(), content.samples), (4, 18));
    let here = super::package::key("flux", "", "p");
    assert!(content.has(&super::package::key_in(&here, "eu-1")) && !content.has(&here));
    let elsewhere: Vec<_> = content.find_elsewhere(&here).map(|(cluster, _)| cluster).collect();
    assert_eq!(elsewhere, ["eu-1"]);
    lines.retain(|it| it.own != own);
    assert!(verify(gather(&lines), attested).is_err());
}

#[test]
fn a_sample_left_from_an_earlier_scrape_is_found() {
    let now = fleet().with("search", healthy("r2", 2100));
    let mut lines = now.lines();
    let left = fleet().lines().into_iter();
    lines.extend(left.filter(|it| it.metric == Metric::PackageHealth && it.own[0].1 == "search"));
    let text = said(&lines, &now, Some(&verified(&fleet())), &[]);
    assert!(
        text.contains("statusbridge_package_health{package=\"search\"") && text.contains("not attested"),
        "{text}"
    );
}

#[test]
fn a_fraction_is_named() {
    let exposition = fleet();
    let mut gathered = Gathered::default();
    for line in exposition.lines() {
        let wrong = if line.metric == Metric::SourcePackages { 0.5 } else { 0.0 };
        gathered.add(line.metric, &line.own(), Sample { at: 0.0, value: line.value as f64 + wrong });
    }
    let gathered = verify(gathered, exposition.attested()).unwrap_err();
    let text = diagnose(&gathered, exposition.attested(), &stream(&[]), None, &[]);
    assert!(text.contains("reads 3.5, which is no whole number"), "{text}");
}

#[test]
fn rounding_is_suspected_without_anything_to_compare_with() {
    let mut lines = fleet().lines();
    for line in lines.iter_mut().filter(|l| l.metric == Metric::PackageHealthyRevision) {
        line.value = format!("{:.5e}", line.value as f64).parse::<f64>().unwrap() as u64;
    }
    let text = said(&lines, &fleet(), None, &[]);
    assert!(text.contains("which looks rounded, and 1 more revisions"), "{text}");
}

#[test]
fn samples_in_a_stream_without_a_digest_name_the_label() {
    let (kept, moved): (Vec<Line>, Vec<Line>) =
        fleet().lines().into_iter().partition(|l| l.metric != Metric::PackageHealth);
    let stray = Stray {
        labels: stream(&[("cluster", "c1"), ("instance", "other"), ("team", "x")]),
        metrics: [(Metric::PackageHealth, moved.len() as u64)].into(),
    };
    let text = said(&kept, &fleet(), None, &[stray]);
    let expected = "1 samples (statusbridge_package_health) have instance=\"other\" instead of \"i\", \
                    an additional label team=\"x\"";
    assert!(text.contains(expected), "{text}");
    let metrics = [Metric::PackageHealth, Metric::PackageReason, Metric::PackageTransitionTimestamp];
    for (most, expected) in [
        (2, "2 samples (statusbridge_package_health, statusbridge_package_reason) have no label instance"),
        (
            3,
            "3 samples (statusbridge_package_transition_timestamp_seconds, statusbridge_package_health, …) have no label instance",
        ),
    ] {
        let metrics = metrics.into_iter().take(most).map(|metric| (metric, 1)).collect();
        let stray = Stray { labels: stream(&[("cluster", "c1")]), metrics };
        let text = said(&kept, &fleet(), None, &[stray]);
        assert!(text.ends_with(&format!(" is attested: {expected}")), "{text}");
    }
}

#[rstest]
#[case::a_state_that_the_contract_lacks(Metric::PackageHealth, 7, "which the contract does not know")]
#[case::a_revision_of_49_bits(Metric::PackageHealthyRevision, MAX_48_BITS + 1, "which the contract does not know")]
#[case::a_wrong_count(Metric::SourcePackages, 9, "source flux says it has 9 packages, 3 arrived")]
#[case::a_source_neither_up_nor_down(Metric::SourceUp, 2, "reads 2")]
fn an_exporter_that_breaks_the_contract_is_not_believed(
    #[case] metric: Metric,
    #[case] value: u64,
    #[case] expected: &str,
) {
    let mut lines = fleet().lines();
    lines.iter_mut().find(|l| l.metric == metric).unwrap().value = value;
    let attested = Attested { state: lines.iter().map(Line::hash).collect(), process: 1 };
    let gathered = verify(gather(&lines), attested).unwrap_err();
    let text = diagnose(&gathered, attested, &stream(&[]), None, &[]);
    assert!(text.contains(expected), "{text}");
}

#[rstest]
#[case::since_when(&[Metric::PackageTransitionTimestamp], "statusbridge_package_transition_timestamp_seconds")]
#[case::the_source_of_its_packages(&[Metric::SourceUp, Metric::SourcePackages], "statusbridge_source_up is missing altogether")]
fn an_exporter_that_attests_too_little_is_not_believed(#[case] lacking: &[Metric], #[case] expected: &str) {
    let mut lines = fleet().lines();
    lines.retain(|line| !lacking.contains(&line.metric));
    let attested = Attested { state: lines.iter().map(Line::hash).collect(), process: 1 };
    let gathered = verify(gather(&lines), attested).unwrap_err();
    let text = diagnose(&gathered, attested, &stream(&[]), None, &[]);
    assert!(text.contains(expected), "{text}");
}

fn expositions() -> impl Strategy<Value = Exposition> {
    let id = ("[ab]", proptest::option::of("[mn]"), "[a-z]{1,5}")
        .prop_map(|(source, namespace, name)| PackageRef { source, namespace, name });
    let revision = || (0..=MAX_48_BITS).prop_map(|bits| Fingerprint::from_value(bits).unwrap());
    let values = (
        (0..=6u64, 0..=5u64),
        (revision(), revision()),
        (0..2_000_000_000u64, 0..1u64 << 24),
        proptest::option::of((1..500u64, 0..500u64, 0..500u64)),
    )
        .prop_map(|(states, (desired, applied), (since, reason), inventory)| {
            let healthy = if states == (0, 0) { applied } else { Fingerprint::NONE };
            let mut values = testing::said(states, [desired, applied, healthy], since, reason);
            if let Some((total, current, failed)) = inventory {
                values.push((Metric::PackageResources, total));
                values.extend((current < total).then_some((Metric::PackageResourcesCurrent, current)));
                values.extend((failed > 0).then_some((Metric::PackageResourcesFailed, failed)));
            }
            values
        });
    let here = prop::collection::btree_map(id.clone(), values.clone(), 0..12);
    let elsewhere = prop::collection::btree_map(("c[12]".prop_map(String::from), id), values, 0..4);
    (here, elsewhere, 0..=MAX_48_BITS, any::<bool>()).prop_map(|(packages, elsewhere, uid, down)| {
        Exposition {
            uid,
            process: 1,
            down: if down { vec!["b".into()] } else { Vec::new() },
            sources: vec!["a".into(), "b".into()],
            packages,
            elsewhere,
            words: vec!["HealthCheckFailed".into(), "Other".into()],
        }
    })
}

proptest! {
    #[test]
    fn the_untouched_is_verified_and_nothing_with_a_single_fault_is(
        exposition in expositions(),
        pick in any::<prop::sample::Index>(),
        other in 0..=MAX_48_BITS,
        turn in any::<prop::sample::Index>(),
    ) {
        let lines = exposition.lines();
        let attested = exposition.attested();
        let mut turned = lines.clone();
        turned.rotate_left(turn.index(lines.len()));
        let content = verify(gather(&turned), attested);
        prop_assert!(content.is_ok());
        let content = content.unwrap();
        prop_assert_eq!(content.packages.len(), exposition.packages.len() + exposition.elsewhere.len());
        prop_assert_eq!(content.samples as usize, lines.len());

        let at = pick.index(lines.len());
        let with = |change: &dyn Fn(&mut Vec<Line>)| {
            let mut faulty = lines.clone();
            change(&mut faulty);
            (faulty != lines).then_some(faulty)
        };
        let value = lines[at].value;
        let faults = [
            with(&|l| { l.remove(at); }),
            with(&|l| { let again = l[at].clone(); l.push(again); }),
            with(&|l| { let mut again = l[at].clone(); again.value = other; l.push(again); }),
            with(&|l| l[at].value = other),
            with(&|l| l[at].value = value + 1),
            with(&|l| l[at].value = f64::from(value as f32) as u64),
            with(&|l| l[at].value = format!("{:.5e}", value as f64).parse::<f64>().unwrap() as u64),
            with(&|l| if let Some(own) = l[at].own.first_mut() { own.1.push('x') }),
            with(&|l| { l[at].own.pop(); }),
            with(&|l| if !l[at].own.is_empty() { l[at].own.remove(0); }),
        ];
        for faulty in faults.into_iter().flatten() {
            let gathered = verify(gather(&faulty), attested);
            prop_assert!(gathered.is_err());
            let text = diagnose(&gathered.unwrap_err(), attested, &stream(&[]), Some(&content), &[]);
            prop_assert!(text.len() < 500 && !text.is_empty());
        }
    }

    #[test]
    fn a_fraction_is_never_verified(exposition in expositions(), pick in any::<prop::sample::Index>(), off in 0.3..0.7f64) {
        let lines = exposition.lines();
        let at = pick.index(lines.len());
        prop_assume!(lines[at].value < 1 << 40);
        let mut gathered = Gathered::default();
        for (i, line) in lines.iter().enumerate() {
            let off = if i == at { off } else { 0.0 };
            gathered.add(line.metric, &line.own(), Sample { at: 0.0, value: line.value as f64 + off });
        }
        prop_assert!(verify(gathered, exposition.attested()).is_err());
    }
}
