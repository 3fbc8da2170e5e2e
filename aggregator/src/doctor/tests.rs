//! Each thing that can be wrong, in a survey of a fleet that is otherwise fit.

use rstest::rstest;
use statusbridge_contract::{Metric, stream::StreamLabels};

use super::cluster_label::candidates;
use super::*;
use crate::feed::Flavour;
use crate::testing::{Exposition, Line, digest, gather, healthy, stream};
use crate::verify::{diagnose, verify};

const T: Seconds = 10_000.0;

fn labels(cluster: &str) -> StreamLabels {
    stream(&[("cluster", cluster), ("instance", &format!("10.0.0.{cluster}:9090")), ("job", "statusbridge")])
}

fn add(survey: &mut Survey, cluster: &str, labels: StreamLabels, uid: u64, interval: Seconds) {
    let stamps = (0..20).map(|n| T - 2.0 - interval * f64::from(19 - n)).collect();
    survey.digests.insert(labels.clone(), DigestSeen { uid: Some(uid), stamps });
    survey.streams.push(StreamSeen {
        cluster: cluster.to_owned(),
        labels,
        newest: Some(T - 2.0),
        clock_offset: Some(0.3),
        ..StreamSeen::default()
    });
}

/// Three clusters, scraped every 15 s.
fn fit() -> Survey {
    let mut survey = Survey {
        t: T,
        found_flavour: Some(Flavour::Prometheus),
        flavour: Flavour::Prometheus,
        metrics: Metric::ALL.iter().map(|metric| metric.name().to_owned()).collect(),
        limits: vec![limit("3m", 180.0, None)],
        ..Survey::default()
    };
    for (uid, cluster) in [(1, "c1"), (2, "c2"), (3, "c3")] {
        add(&mut survey, cluster, labels(cluster), uid, 15.0);
    }
    survey
}

fn limit(who: &str, stale_after: Seconds, clusters: Option<&[&str]>) -> Limit {
    let clusters = clusters.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    Limit { who: who.to_owned(), stale_after, clusters }
}

/// Renames labels of every digest and stream.
fn relabel(survey: &mut Survey, change: impl Fn(&mut StreamLabels)) {
    let changed = |labels: &StreamLabels| {
        let mut labels = labels.clone();
        change(&mut labels);
        labels
    };
    survey.digests = survey.digests.iter().map(|(labels, seen)| (changed(labels), seen.clone())).collect();
    survey.streams.iter_mut().for_each(|stream| stream.labels = changed(&stream.labels));
}

/// What the aggregator says of an exposition that arrives like this.
fn fault(spoil: impl Fn(&mut Vec<Line>)) -> String {
    let exposition = Exposition::new(7).with("p", healthy("r1", 1, 1)).with("q", healthy("r2", 2, 2));
    let mut lines = exposition.lines();
    let attested = digest(&lines);
    spoil(&mut lines);
    match verify(gather(&lines), attested) {
        Ok(_) => String::new(),
        Err(gathered) => diagnose(&gathered, attested, &labels("c1"), None, &[]),
    }
}

fn dropped(lines: &mut Vec<Line>) {
    lines.retain(|line| line.metric != Metric::PackageHealth);
}

fn rewritten(lines: &mut [Line]) {
    let of_health = |line: &&mut Line| line.metric == Metric::PackageHealth;
    for line in lines.iter_mut().filter(of_health) {
        line.own[1].1 = "elsewhere".to_owned();
    }
}

fn rounded(lines: &mut [Line]) {
    for line in lines.iter_mut().filter(|line| line.metric == Metric::PackageAppliedRevision) {
        line.value = line.value / 1_000_000_000 * 1_000_000_000;
    }
}

fn twice(lines: &mut Vec<Line>) {
    let again = lines.clone();
    lines.extend(again);
}

type Breakage = fn(&mut Survey);

#[rstest]
#[case::partial(|s: &mut Survey| s.partial = Some("backend's answer comes with warnings: store down".into()),
    Level::Problem, Check::PartialAnswers, "store down", "until then no poll counts")]
#[case::clock_of_the_backend(|s: &mut Survey| s.clock_ahead = Some(-40.0),
    Level::Problem, Check::BackendClock, "40 s behind this machine's", "NTP")]
#[case::flavour_not_said(|s: &mut Survey| s.flavour = Flavour::Any,
    Level::Advice, Check::BackendFlavour, "seems to be prometheus", "--backend-flavour prometheus")]
#[case::flavour_wrong(|s: &mut Survey| s.found_flavour = Some(Flavour::Thanos),
    Level::Problem, Check::BackendFlavour, "not told to refuse partial answers", "--backend-flavour thanos")]
#[case::nothing_at_all(|s: &mut Survey| { s.digests.clear(); s.streams.clear(); s.metrics.clear() },
    Level::Problem, Check::NoDigests, "no metric of ours", "scrape the exporters")]
#[case::no_digest(|s: &mut Survey| { s.digests.clear(); s.streams.clear(); s.metrics.remove("statusbridge_digest"); },
    Level::Problem, Check::NoDigests, "no statusbridge_digest", "metric_relabel_configs")]
#[case::metric_dropped(|s: &mut Survey| { s.metrics.remove("statusbridge_source_up"); },
    Level::Problem, Check::MissingMetric, "statusbridge_source_up is missing altogether", "metric_relabel_configs")]
#[case::age_dropped(|s: &mut Survey| { s.metrics.remove("statusbridge_rendered_timestamp_seconds"); },
    Level::Problem, Check::MissingMetric, "statusbridge_rendered_timestamp_seconds", "metric_relabel_configs")]
#[case::for_people_only(|s: &mut Survey| { s.metrics.remove("statusbridge_source_last_contact_timestamp_seconds"); },
    Level::Advice, Check::MissingMetric, "statusbridge_source_last_contact_timestamp_seconds is missing", "metric_relabel_configs")]
#[case::label_of_another_name(|s: &mut Survey| relabel(s, |l| { let name = l.remove("cluster").unwrap(); l.insert("k8s_cluster".into(), name); }),
    Level::Problem, Check::ClusterLabel, "no digest bears the label `cluster`", "--cluster-label k8s_cluster: every digest bears it, and each of its 3 values")]
#[case::no_label(|s: &mut Survey| relabel(s, |l| { l.remove("cluster"); }),
    Level::Problem, Check::ClusterLabel, "no digest bears the label `cluster`", "external_labels: {cluster: NAME}")]
#[case::label_of_some(|s: &mut Survey| { let c3 = labels("c3"); let seen = s.digests.remove(&c3).unwrap(); let mut l = c3; l.remove("cluster"); s.digests.insert(l, seen); },
    Level::Problem, Check::ClusterLabel, "1 of 3 digests do not bear the label `cluster` and belong to no cluster, for instance {instance=\"10.0.0.c3:9090\"", "external_labels")]
#[case::one_name_for_two(|s: &mut Survey| add(s, "c1", stream(&[("cluster", "c1"), ("instance", "x")]), 9, 15.0),
    Level::Problem, Check::DuplicateClusterName, "2 clusters report as `c1`: uid 000000000001 (instance=\"10.0.0.c1:9090\", job=\"statusbridge\") and uid 000000000009 (instance=\"x\")", "a `cluster` of its own")]
#[case::federated(|s: &mut Survey| { relabel(s, |l| { l.insert("exported_cluster".into(), l["cluster"].clone()); l.insert("cluster".into(), "hub".into()); }); s.streams.iter_mut().for_each(|stream| stream.cluster = "hub".into()); },
    Level::Problem, Check::DuplicateClusterName, "3 clusters report as `hub`", "honor_labels: true")]
#[case::two_names_for_one(|s: &mut Survey| add(s, "old", stream(&[("cluster", "old"), ("instance", "x")]), 1, 15.0),
    Level::Problem, Check::ClusterRenamed, "reports under 2 names: c1, old", "the same `cluster`")]
#[case::dropped(|s: &mut Survey| s.streams[0].fault = Some(fault(dropped)),
    Level::Problem, Check::Unverified, "statusbridge_package_health is missing altogether", "write_relabel_configs")]
#[case::rewritten(|s: &mut Survey| s.streams[0].fault = Some(fault(|lines| rewritten(lines))),
    Level::Problem, Check::Unverified, "label package_namespace of 2 packages was rewritten, \"elsewhere\" instead of \"ns\"", "write_relabel_configs")]
#[case::rounded(|s: &mut Survey| s.streams[0].fault = Some(fault(|lines| rounded(lines))),
    Level::Problem, Check::Unverified, "which looks rounded", "no rounding")]
#[case::ignored_replica(|s: &mut Survey| s.streams[0].fault = Some(fault(twice)),
    Level::Problem, Check::Unverified, "arrived more than once", "--ignore-labels")]
#[case::other_contract(|s: &mut Survey| s.streams[0].fault = Some("its contract version `9` is not one that this aggregator reads (1)".into()),
    Level::Problem, Check::Unverified, "`9`", "matching releases")]
#[case::torn(|s: &mut Survey| s.streams[1].was_torn = true,
    Level::Advice, Check::Torn, "1 of 3 streams added up only at a second look: c2", "--settle-delay longer than 5 s")]
#[case::silent(|s: &mut Survey| s.streams[1].newest = Some(T - 200.0),
    Level::Problem, Check::SilentCluster, "`c2` was last heard 200 s ago, 3m allows 180 s", "`up`")]
#[case::unknown_cluster(|s: &mut Survey| s.limits = vec![limit("FleetPackage a/b", 180.0, Some(&["c1", "c9"]))],
    Level::Problem, Check::UnknownCluster, "FleetPackage a/b names clusters that send nothing: c9", "`cluster`")]
#[case::scraped_too_seldom(|s: &mut Survey| s.limits.push(limit("FleetPackage a/b", 60.0, None)),
    Level::Problem, Check::ScrapeInterval, "scraped every 15 s: c1, c2, c3; FleetPackage a/b allows 60 s, less than four scrapes and the settle delay (65 s)", "scrape at least every 13 s, or set staleAfter to at least 65s")]
#[case::clock_of_a_cluster(|s: &mut Survey| s.streams[2].clock_offset = Some(-300.0),
    Level::Problem, Check::ExporterClock, "`c3` is 300 s ahead of the backend's", "NTP")]
#[case::clock_a_little_off(|s: &mut Survey| s.streams[2].clock_offset = Some(30.0),
    Level::Advice, Check::ExporterClock, "`c3` is 30 s behind the backend's", "NTP")]
#[case::source_down(|s: &mut Survey| s.streams[0].down = vec!["flux-kustomization".into()],
    Level::Problem, Check::SourceDown, "`flux-kustomization` of cluster `c1` is down", "log of that cluster's exporter")]
#[case::collision(|s: &mut Survey| { s.collisions.insert("package".into(), 7); },
    Level::Advice, Check::RenamedLabel, "7 series bear `exported_package`", "relabel_configs")]
#[case::another_scrape(|s: &mut Survey| relabel(s, |l| { l.insert("exported_instance".into(), "x".into()); }),
    Level::Advice, Check::RenamedLabel, "3 digests bear `exported_instance`", "honor_labels: true")]
#[case::replicas(|s: &mut Survey| { let mut l = labels("c1"); l.insert("replica".into(), "b".into()); add(s, "c1", l, 1, 15.0) },
    Level::Advice, Check::Replicas, "several replicas ship the same cluster and differ in the label `replica` (b): c1", "--ignore-labels replica")]
#[case::two_jobs(|s: &mut Survey| { let mut l = labels("c1"); l.insert("job".into(), "again".into()); add(s, "c1", l, 1, 15.0) },
    Level::Advice, Check::Replicas, "several jobs scrape the same exporter", "one job")]
fn what_is_wrong_is_named_with_what_to_change(
    #[case] breakage: Breakage,
    #[case] level: Level,
    #[case] check: Check,
    #[case] message: &str,
    #[case] fix: &str,
) {
    let mut survey = fit();
    breakage(&mut survey);
    let findings = examine(&survey);
    let found: Vec<&Finding> = findings.iter().filter(|finding| finding.check == check).collect();
    let [finding] = found.as_slice() else { panic!("{findings:#?}") };
    assert_eq!(finding.level, level);
    assert!(finding.message.contains(message), "{}", finding.message);
    assert!(finding.fix.contains(fix), "{}", finding.fix);
    assert!(findings.is_sorted_by_key(|finding| (finding.level, finding.check)));
    assert!(!finding.message.contains('\n') && !finding.fix.contains('\n'), "one line each");
}

#[test]
fn a_fleet_that_is_fit_has_no_findings() {
    assert_eq!(examine(&fit()), []);
    let report = Report::new("http://b".into(), "2 FleetPackages".into(), &fit());
    assert_eq!(
        report.text(),
        "backend http://b (prometheus)\nclusters 3, streams 3, verified 3, scraped every 15 s\nhub: 2 FleetPackages\nfit\n"
    );
    // An exporter that was replaced a moment ago is no replica.
    let mut survey = fit();
    add(
        &mut survey,
        "c1",
        stream(&[("cluster", "c1"), ("instance", "new"), ("job", "statusbridge")]),
        1,
        15.0,
    );
    assert_eq!(examine(&survey), []);
}

#[test]
fn a_thousand_findings_are_a_few_and_a_number() {
    let mut survey = fit();
    for at in 0..1000 {
        let name = format!("x{at:04}");
        add(&mut survey, &name, labels(&name), 100 + at, 15.0);
        survey.streams.last_mut().unwrap().fault = Some("no".into());
    }
    let findings = examine(&survey);
    assert_eq!(findings.len(), 10);
    assert!(findings[9].message.ends_with("(and 990 more like this)"), "{}", findings[9].message);
}

#[test]
fn a_label_names_the_cluster_when_it_does_so_one_to_one() {
    let mut survey = fit();
    relabel(&mut survey, |labels| {
        labels.insert("region".into(), "eu".into());
        labels.insert("shard".into(), format!("s-{}", labels["cluster"]));
        labels.insert("build".into(), String::new());
    });
    let found: Vec<String> = candidates(&survey.digests).into_iter().map(|it| it.label).collect();
    assert_eq!(found, ["cluster", "shard"], "instance would do as well, until a pod is replaced");
    // Without UIDs nothing is proposed.
    survey.digests.values_mut().for_each(|seen| seen.uid = None);
    assert_eq!(candidates(&survey.digests), []);
}

#[test]
fn the_usual_distance_of_scrapes_is_not_moved_by_one_that_was_lost() {
    let seen = |stamps: &[Seconds]| DigestSeen { uid: None, stamps: stamps.to_vec() }.interval();
    assert_eq!(seen(&[0.0, 15.0, 30.0, 60.0, 75.0]), Some(15.0));
    assert_eq!(seen(&[0.0]), None);
}

#[test]
fn every_check_is_documented() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/consumers.md");
    let page = std::fs::read_to_string(path).unwrap();
    for check in Check::ALL {
        let row = format!("| `{}` | {} |", check.name(), check.meaning().trim());
        assert!(page.contains(&row), "docs/consumers.md lacks: {row}");
    }
}
