use proptest::prelude::*;
use rstest::rstest;
use statusbridge_contract::{MAX_48_BITS, Metric, label};

use super::{Content, Gathered, Stray, diagnose, verify};
use crate::{
    feed::Sample,
    fleet::PackageId,
    testing::{Exposition, Line, digest, failed, gather, healthy, stream},
};

type Lines = Vec<Line>;

fn fleet() -> Exposition {
    Exposition::new(77)
        .with("payments", healthy("r1", 1000, 3))
        .with("search", failed("r2", 2000, 5))
        .with("ledger", [healthy("r3", 3000, 1), vec![12, 12, 0]].concat())
}

/// What is said about these lines when the digest is that of `attested`.
fn said(lines: &[Line], attested: &Exposition, last: Option<&Content>, strays: &[Stray]) -> String {
    let labels = stream(&[("cluster", "c1"), ("instance", "i")]);
    let gathered = verify(gather(lines), attested.digest()).unwrap_err();
    diagnose(&gathered, attested.digest(), &labels, last, strays)
}

fn verified(exposition: &Exposition) -> Content {
    verify(gather(&exposition.lines()), exposition.digest()).unwrap()
}

#[test]
fn what_was_attested_is_verified_and_found_again() {
    let content = verified(&fleet());
    let key = super::content::key("flux", "ns", "search");
    let (at, found) = content.find(&key).unwrap();
    assert_eq!((at, found.value(Metric::PackageHealth)), (2, 5));
    assert_eq!(content.find(&super::content::key("flux", "", "search")), None);
    let code = found.value(Metric::PackageReason);
    assert_eq!(content.reason("flux", code).as_deref(), Some("HealthCheckFailed"));
    assert_eq!(content.reason("other", 0x12).as_deref(), Some("code 0x12"));
    assert_eq!(content.reason("flux", 0), None);
    assert_eq!((content.uid, content.samples), (Some(77), 31));
}

fn drop_metric(lines: &mut Vec<Line>, metric: Metric) {
    lines.retain(|l| l.metric != metric);
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
    "statusbridge_package_health is missing altogether")]
#[case::an_inventory_metric_dropped(|l: &mut Lines| drop_metric(l, Metric::PackageResourcesCurrent),
    "statusbridge_package_resources_current is missing altogether")]
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
    r#"label package_namespace of 3 packages is gone, it was "ns" (statusbridge_package_health)"#)]
#[case::rounded_to_six_digits(
    |l: &mut Lines| of(l, Metric::PackageHealthyRevision, "payments").value = 123_457_000_000_000,
    r#"rounded or stale: statusbridge_package_healthy_revision{package="payments",package_namespace="ns",package_source="flux"} reads 123457000000000, "#)]
#[case::health_flipped(|l: &mut Lines| of(l, Metric::PackageHealth, "search").value = 0,
    r#"statusbridge_package_health{package="search",package_namespace="ns",package_source="flux"} reads 0, 5 was attested"#)]
#[case::source_up_flipped(|l: &mut Lines| l.iter_mut().find(|x| x.metric == Metric::SourceUp).unwrap().value = 0,
    r#"rounded or stale: statusbridge_source_up{package_source="flux"} reads 0, 1 was attested"#)]
#[case::a_package_lost(|l: &mut Lines| l.retain(|x| x.own.first().is_none_or(|o| o.1 != "search")),
    r#"all samples of package search (namespace "ns", flux) are missing"#)]
#[case::a_deleted_package_still_there(
    |l: &mut Lines| *l = fleet().with("old", healthy("r0", 1, 1)).lines().into_iter()
        .filter(|x| x.metric != Metric::SourcePackages).chain(fleet().lines().into_iter()
        .filter(|x| x.metric == Metric::SourcePackages)).collect(),
    r#"package old (namespace "ns", flux) is there but not attested, perhaps deleted lately"#)]
#[case::uid_lost(|l: &mut Lines| drop_metric(l, Metric::ClusterUid), "statusbridge_cluster_uid is missing")]
#[case::dictionary_lost(|l: &mut Lines| drop_metric(l, Metric::ReasonInfo),
    r#"package_source="flux",reason="HealthCheckFailed"} is missing"#)]
fn a_fault_is_named(#[case] fault: fn(&mut Lines), #[case] expected: &str) {
    let mut lines = fleet().lines();
    fault(&mut lines);
    let text = said(&lines, &fleet(), Some(&verified(&fleet())), &[]);
    assert!(text.contains(expected), "{text}");
    assert!(text.len() < 500);
}

#[test]
fn metrics_that_the_exporter_leaves_out_are_not_missed() {
    let failed = failed("r1", 1, 0)[..7].to_vec();
    let without = Exposition { words: Vec::new(), ..Exposition::new(5).with("search", failed) };
    let content = verified(&without);
    let (_, package) = content.find(&super::content::key("flux", "ns", "search")).unwrap();
    assert_eq!(package.value(Metric::PackageHealth), 5);
    assert_eq!(content.reason("flux", package.value(Metric::PackageReason)), None);
}

#[test]
fn a_sample_left_from_an_earlier_scrape_is_found() {
    let (before, now) = (fleet(), fleet().with("payments", healthy("r9", 1000, 3)));
    let mut lines = now.lines();
    of(&mut lines, Metric::PackageAppliedRevision, "payments").value = before
        .lines()
        .iter_mut()
        .find(|l| l.metric == Metric::PackageAppliedRevision && l.own[0].1 == "payments")
        .unwrap()
        .value;
    let text = said(&lines, &now, Some(&verified(&before)), &[]);
    assert!(text.contains("statusbridge_package_applied_revision{package=\"payments\""), "{text}");
}

#[test]
fn a_fraction_is_named() {
    let exposition = fleet();
    let mut gathered = Gathered::default();
    for line in exposition.lines() {
        let wrong = if line.metric == Metric::ClusterUid { 0.5 } else { 0.0 };
        gathered.add(line.metric, &line.own(), Sample { at: 0.0, value: line.value as f64 + wrong });
    }
    let gathered = verify(gathered, exposition.digest()).unwrap_err();
    let text = diagnose(&gathered, exposition.digest(), &stream(&[]), None, &[]);
    assert!(text.contains("statusbridge_cluster_uid reads 77.5, which is no whole number"), "{text}");
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
    let expected = "3 samples (statusbridge_package_health) have instance=\"other\" instead of \"i\", \
                    an additional label team=\"x\"";
    assert!(text.contains(expected), "{text}");
}

#[rstest]
#[case::a_state_that_the_contract_lacks(Metric::PackageApplyState, 7, "which the contract does not know")]
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
    let gathered = verify(gather(&lines), digest(&lines)).unwrap_err();
    let text = diagnose(&gathered, digest(&lines), &stream(&[]), None, &[]);
    assert!(text.contains(expected), "{text}");
}

fn expositions() -> impl Strategy<Value = Exposition> {
    let id = ("[ab]", proptest::option::of("[mn]"), "[a-z]{1,5}")
        .prop_map(|(source, namespace, name)| PackageId { source, namespace, name });
    let values = (
        (0..=6u64, 0..=5u64),
        prop::collection::vec(0..=MAX_48_BITS, 3),
        (0..2_000_000_000u64, 0..1000u64, 0..1u64 << 24),
        proptest::option::of(prop::collection::vec(0..500u64, 3)),
    )
        .prop_map(|((apply, health), revisions, (since, moves, reason), inventory)| {
            let inventory = inventory.unwrap_or_default();
            [vec![apply, health], revisions, vec![since, moves, reason], inventory].concat()
        });
    (prop::collection::btree_map(id, values, 0..12), 0..=MAX_48_BITS, any::<bool>()).prop_map(
        |(packages, uid, down)| Exposition {
            uid,
            down: if down { vec!["b".into()] } else { Vec::new() },
            sources: vec!["a".into(), "b".into()],
            packages,
            words: vec!["HealthCheckFailed".into(), "Other".into()],
        },
    )
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
        let attested = exposition.digest();
        let mut turned = lines.clone();
        turned.rotate_left(turn.index(lines.len()));
        let content = verify(gather(&turned), attested);
        prop_assert!(content.is_ok());
        let content = content.unwrap();
        prop_assert_eq!(content.packages.len(), exposition.packages.len());
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
    fn a_fraction_is_never_verified(exposition in expositions(), pick in any::<prop::sample::Index>(), off in 0.01..0.99f64) {
        let lines = exposition.lines();
        let at = pick.index(lines.len());
        prop_assume!(lines[at].value < 1 << 40);
        let mut gathered = Gathered::default();
        for (i, line) in lines.iter().enumerate() {
            let off = if i == at { off } else { 0.0 };
            gathered.add(line.metric, &line.own(), Sample { at: 0.0, value: line.value as f64 + off });
        }
        prop_assert!(verify(gathered, exposition.digest()).is_err());
    }
}
