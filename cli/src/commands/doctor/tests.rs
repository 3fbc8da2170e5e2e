//! Each thing that can be wrong, in a survey of a fleet that is otherwise fit.

use rstest::rstest;
use statusbridge_aggregator::feed::promql::{Flavour, Trust};
use statusbridge_contract::stream::StreamLabels;
use statusbridge_contract::{Fingerprint, Metric};
use statusbridge_core::fleet::{Digests, Fleet, Speakers, StreamId};
use statusbridge_core::sample::Sample;
use statusbridge_core::testing::{Exposition, Line, digests, failed, gather, healthy, package, stream};
use statusbridge_core::time::Seconds;
use statusbridge_core::verify::{diagnose, verify};

use super::cluster_label::candidates;
use super::examine::examine;
use super::finding::{Check, Finding, Level};
use super::report::Report;
use super::survey::{DigestSeen, Expectation, Named, StreamSeen, Survey};

const T: Seconds = 10_000.0;

fn labels(cluster: &str) -> StreamLabels {
    stream(&[("cluster", cluster), ("instance", &format!("10.0.0.{cluster}:9090")), ("job", "statusbridge")])
}

fn add(survey: &mut Survey, cluster: &str, labels: StreamLabels, uid: u64, interval: Seconds) {
    let stamps: Vec<Seconds> = (0..20).map(|n| T - 2.0 - interval * f64::from(19 - n)).collect();
    let id = StreamId {
        labels: labels.clone().into(),
        uid: Fingerprint::from_value(uid),
        process: uid,
        ..StreamId::default()
    };
    let by_stamp = |value: &dyn Fn(Seconds) -> u64| {
        stamps.iter().map(|at| ((at * 1000.0).round() as i64, value(*at))).collect()
    };
    let seen = DigestSeen {
        contracts: ["2".to_owned()].into(),
        uids: [id.uid].into(),
        rendered: by_stamp(&|at| at as u64),
        processes: by_stamp(&|_| uid),
        ahead: None,
        stamps: stamps.clone(),
    };
    survey.digests.insert(labels, seen);
    survey.streams.push(StreamSeen {
        cluster: cluster.to_owned(),
        id,
        newest: Some(T - 2.0),
        clock_offset: Some(0.3),
        ..StreamSeen::default()
    });
}

/// What is known of the digest of c1.
fn digest(survey: &mut Survey) -> &mut DigestSeen {
    survey.digests.get_mut(&labels("c1")).unwrap()
}

/// As through a gateway to which the exporter pushes every minute.
fn repeats(survey: &mut Survey) {
    digest(survey).rendered.values_mut().for_each(|rendered| *rendered = *rendered / 60 * 60);
}

/// As of a pipeline that stamps each sample when it arrives.
fn stamped_by_arrival(survey: &mut Survey) {
    let seen = digest(survey);
    seen.rendered = seen.rendered.iter().map(|(at, rendered)| (at + 3, *rendered)).collect();
}

/// As behind a Service, while exporters are upgraded.
fn takes_turns(survey: &mut Survey) {
    digest(survey).processes.values_mut().enumerate().for_each(|(i, process)| *process = i as u64 % 2);
}

/// As when the exporter was replaced once.
fn replaced(survey: &mut Survey) {
    digest(survey).processes.values_mut().enumerate().for_each(|(i, process)| *process = u64::from(i > 9));
}

/// Three clusters, scraped every 15 s.
fn fit() -> Survey {
    let mut survey = Survey {
        t: T,
        settle: 5.0,
        max_clock_skew: 60.0,
        cluster_label: "cluster".to_owned(),
        trust: Some(r#"namespace="statusbridge",job="statusbridge""#.parse().unwrap()),
        found_flavour: Some(Flavour::Prometheus),
        flavour: Flavour::Prometheus,
        metrics: Metric::ALL.iter().map(|metric| metric.name().to_owned()).collect(),
        expectations: vec![expects("3m", 180.0, None)],
        ..Survey::default()
    };
    for (uid, cluster) in [(1, "c1"), (2, "c2"), (3, "c3")] {
        add(&mut survey, cluster, labels(cluster), uid, 15.0);
    }
    survey
}

fn expects(who: &str, stale_after: Seconds, clusters: Option<&[&str]>) -> Expectation {
    let clusters = clusters.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    Expectation { who: who.to_owned(), stale_after, clusters: Named(clusters), ..Expectation::default() }
}

/// Renames labels of every digest and stream.
fn relabel(survey: &mut Survey, change: impl Fn(&mut StreamLabels)) {
    let changed = |labels: &StreamLabels| {
        let mut labels = labels.clone();
        change(&mut labels);
        labels
    };
    survey.digests = survey.digests.iter().map(|(labels, seen)| (changed(labels), seen.clone())).collect();
    survey.streams.iter_mut().for_each(|stream| stream.id.labels = changed(&stream.id.labels).into());
}

/// What the aggregator says of an exposition that arrives like this.
fn fault(spoil: impl Fn(&mut Vec<Line>)) -> String {
    let exposition = Exposition::new(7).with("p", failed("r1", 1)).with("q", healthy("r2", 2));
    let mut lines = exposition.lines();
    spoil(&mut lines);
    match verify(gather(&lines), exposition.attested()) {
        Ok(_) => String::new(),
        Err(gathered) => diagnose(&gathered, exposition.attested(), &labels("c1"), None, &[]),
    }
}

fn dropped(lines: &mut Vec<Line>) {
    lines.retain(|line| line.metric != Metric::PackageTransitionTimestamp);
}

fn zeros(lines: &mut Vec<Line>) {
    let of_q = |line: &&Line| line.metric == Metric::PackageHealthyRevision && line.value > 0;
    let filled: Vec<Line> = lines
        .iter()
        .filter(of_q)
        .map(|line| Line { metric: Metric::PackageHealth, value: 0, ..line.clone() })
        .collect();
    lines.extend(filled);
}

fn rewritten(lines: &mut [Line]) {
    let of_time = |line: &&mut Line| line.metric == Metric::PackageTransitionTimestamp;
    for line in lines.iter_mut().filter(of_time) {
        line.own[1].1 = "elsewhere".to_owned();
    }
}

fn rounded(lines: &mut [Line]) {
    for line in lines.iter_mut().filter(|line| line.metric == Metric::PackageHealthyRevision) {
        line.value = line.value / 1_000_000_000 * 1_000_000_000;
    }
}

fn twice(lines: &mut Vec<Line>) {
    let again = lines.clone();
    lines.extend(again);
}

/// What a fleet says of an exporter of another contract version.
fn other_contract(version: &str) -> String {
    let said = Exposition::new(7);
    let stream = [("cluster", "c1")];
    let digests = Digests { contract: version.into(), ..digests(&stream, &said, &[T]) };
    let mut fleet = Fleet::default();
    fleet.hear(&digests, T);
    fleet.fault("c1", &digests.stream).unwrap().to_owned()
}

fn interpolated() -> String {
    let said = Exposition::new(7).with("p", healthy("r1", 1));
    let mut gathered = gather(&said.lines());
    gathered.add(Metric::SourceUp, &[("package_source", "flux")], Sample { at: 0.0, value: 0.5 });
    diagnose(&gathered, said.attested(), &labels("c1"), None, &[])
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
#[case::nobody_named(|s: &mut Survey| s.trust = None,
    Level::Problem, Check::Trust, "--trust is missing", "--trust 'job=\"statusbridge\"', which digests of 3 clusters bear")]
#[case::labels_of_tenants(|s: &mut Survey| s.trust = r#"job="statusbridge""#.parse().ok(),
    Level::Advice, Check::Trust, "names only labels that tenants can often choose", "add the exporters' `namespace`")]
#[case::everybody(|s: &mut Survey| s.trust = Some(Trust::All),
    Level::Advice, Check::Trust, "every stream is believed", "--trust 'job=\"statusbridge\"'")]
#[case::a_pod_that_poses_as_an_exporter(|s: &mut Survey| drop(s.refused.insert(stream(&[("cluster", "c1"), ("job", "x")]), DigestSeen::default())),
    Level::Advice, Check::Trust, "{job=\"x\",cluster=\"c1\"} is not believed", "find out who")]
#[case::an_exporter_of_another_job(|s: &mut Survey| drop(s.refused.insert(stream(&[("cluster", "c9"), ("job", "x")]), DigestSeen::default())),
    Level::Problem, Check::Trust, "nothing else speaks for its cluster", "let --trust match its labels")]
#[case::none_of_them(|s: &mut Survey| { s.refused = std::mem::take(&mut s.digests); s.streams.clear(); s.metrics.clear() },
    Level::Problem, Check::Trust, "--trust matches none of 3 digests", "--trust 'job=\"statusbridge\"'")]
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
    Level::Problem, Check::Unverified, "statusbridge_package_transition_timestamp_seconds is missing altogether", "write_relabel_configs")]
#[case::rewritten(|s: &mut Survey| s.streams[0].fault = Some(fault(|lines| rewritten(lines))),
    Level::Problem, Check::Unverified, "label package_namespace of 2 packages was rewritten, \"elsewhere\" instead of \"ns\"", "write_relabel_configs")]
#[case::rounded(|s: &mut Survey| s.streams[0].fault = Some(fault(|lines| rounded(lines))),
    Level::Problem, Check::Unverified, "which looks rounded", "no rounding")]
#[case::ignored_replica(|s: &mut Survey| s.streams[0].fault = Some(fault(twice)),
    Level::Problem, Check::Unverified, "arrived more than once", "--ignore-labels")]
#[case::later_contract(|s: &mut Survey| s.streams[0].fault = Some(other_contract("9")),
    Level::Problem, Check::ContractVersion, "its exporter speaks contract version `9`, this aggregator reads 2", "upgrade the aggregator")]
#[case::earlier_contract(|s: &mut Survey| s.streams[0].fault = Some(other_contract("0")),
    Level::Problem, Check::ContractVersion, "its exporter speaks contract version `0`, this aggregator reads 2", "upgrade the exporter")]
#[case::without_uid(|s: &mut Survey| digest(s).uids = [None].into(),
    Level::Problem, Check::ClusterUid, "a digest has no label statusbridge_cluster_uid: {instance=\"10.0.0.c1:9090\"", "labeldrop")]
#[case::repeated(
    repeats,
    Level::Problem,
    Check::Restamped,
    "14 of 20 scrapes bring an exposition that came before, with a new timestamp",
    "Pushgateway that is fed by POST"
)]
#[case::left_standing(|s: &mut Survey| { s.restamped.insert("c1".into(), 7); },
    Level::Problem, Check::Restamped, "in cluster `c1` packages in trouble (7) have a healthy revision of the same timestamp", "OpenTelemetry Collector's `prometheus` exporter")]
#[case::filled_with_zeros(|s: &mut Survey| { s.filled.insert("c1".into(), ["statusbridge_package_health".into()].into()); },
    Level::Problem, Check::Filled, "samples of statusbridge_package_health with the value 0, which no exporter says", "no zeros")]
#[case::interpolated(|s: &mut Survey| s.streams[0].fault = Some(interpolated()),
    Level::Problem, Check::Filled, "reads 0.5, which is no whole number", "no interpolation")]
#[case::stamped_by_arrival(
    stamped_by_arrival,
    Level::Problem,
    Check::SplitScrape,
    "20 of 20 digests have no statusbridge_rendered_timestamp_seconds and statusbridge_process_number of the same timestamp",
    "one timestamp"
)]
#[case::in_the_future(|s: &mut Survey| digest(s).ahead = Some(3600.0),
    Level::Problem, Check::FutureSamples, "stamped 3600 s in the future", "NTP")]
#[case::a_little_in_the_future(|s: &mut Survey| digest(s).ahead = Some(20.0),
    Level::Advice, Check::FutureSamples, "stamped 20 s in the future", "NTP")]
#[case::torn(|s: &mut Survey| s.streams[1].was_torn = true,
    Level::Advice, Check::Torn, "1 of 3 streams added up only at a second look: c2", "--settle-delay longer than 5 s")]
#[case::silent(|s: &mut Survey| s.streams[1].newest = Some(T - 200.0),
    Level::Problem, Check::SilentCluster, "`c2` was last heard 200 s ago, 3m allows 180 s", "`up`")]
#[case::unknown_cluster(|s: &mut Survey| s.expectations = vec![expects("FleetPackage a/b", 180.0, Some(&["c1", "c9"]))],
    Level::Problem, Check::UnknownCluster, "FleetPackage a/b names clusters that send nothing: c9", "`cluster`")]
#[case::scraped_too_seldom(|s: &mut Survey| s.expectations.push(expects("FleetPackage a/b", 60.0, None)),
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
#[case::processes_in_turn(
    takes_turns,
    Level::Advice,
    Check::Replicas,
    "processes take turns under the same labels: {instance=\"10.0.0.c1:9090\"",
    "scrape each pod"
)]
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
    // Nor is its successor under the same labels.
    let mut survey = fit();
    replaced(&mut survey);
    let mut next = survey.streams[0].clone();
    next.id.process = 9;
    survey.streams.push(next);
    assert_eq!(examine(&survey), []);
}

/// What keeps a stream from being read at all is said once.
#[test]
fn a_digest_that_cannot_be_used_is_told_by_what_it_lacks() {
    for (breakage, check) in [
        (stamped_by_arrival as Breakage, Check::SplitScrape),
        (|s| digest(s).uids = [None].into(), Check::ClusterUid),
    ] {
        let mut survey = fit();
        breakage(&mut survey);
        survey.streams[0].fault = Some("it lacks something".into());
        survey.streams[0].id.uid = None;
        let checks: Vec<Check> = examine(&survey).into_iter().map(|finding| finding.check).collect();
        assert_eq!(checks, [check]);
    }
}

/// What fills in zeros is told by them, and so is what to do about the stream that does not add up.
#[test]
fn the_advice_for_a_stream_fits_what_else_is_wrong_with_its_cluster() {
    let fix = |also: Breakage| {
        let mut survey = fit();
        survey.streams[0].fault = Some(fault(zeros));
        also(&mut survey);
        let found = examine(&survey).into_iter().find(|finding| finding.check == Check::Unverified).unwrap();
        (found.message, found.fix)
    };
    let (message, alone) = fix(|_| {});
    assert!(message.contains("reads 0, which no exporter says"), "{message}");
    assert!(alone.contains("metric_relabel_configs"), "{alone}");
    let filled = fix(|s| _ = s.filled.insert("c1".into(), ["statusbridge_package_health".into()].into())).1;
    assert!(filled.contains("no zeros"), "{filled}");
    assert!(fix(|s| _ = s.restamped.insert("c1".into(), 2)).1.contains("Pushgateway"));
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
    survey.digests.values_mut().for_each(|seen| seen.uids = [None].into());
    assert_eq!(candidates(&survey.digests), []);
}

#[test]
fn the_usual_distance_of_scrapes_is_not_moved_by_one_that_was_lost() {
    let seen =
        |stamps: &[Seconds]| DigestSeen { stamps: stamps.to_vec(), ..DigestSeen::default() }.interval();
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

#[test]
fn clusters_of_which_another_one_tells_need_send_nothing_themselves() {
    let speakers = serde_json::json!([{"cluster": "hub", "sources": ["flux"], "clusters": ["eu-*"]}]);
    let speakers: Speakers = serde_json::from_value(speakers).unwrap();
    let package = Some(package("p"));
    let expects =
        |clusters| Expectation { speakers: speakers.clone(), ..expects("FleetPackage a/b", 180.0, clusters) };
    let named = Expectation { package: package.clone(), ..expects(Some(&["c1", "eu-1"])) };
    assert_eq!(named.named().collect::<Vec<_>>(), ["c1"]);
    assert!(named.is_of("c1") && !named.is_of("eu-1") && !named.is_of("c2"));
    let of_nothing = expects(Some(&["eu-1"]));
    assert!(of_nothing.is_of("eu-1") && of_nothing.named().eq(["eu-1"]));
    // An exporter of its own that is there has to keep up, where nobody chose the clusters.
    let all = Expectation { package, ..expects(None) };
    assert!(all.is_of("eu-1") && all.named().next().is_none());
}
