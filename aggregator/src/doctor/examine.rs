//! From what was seen to what is to be changed. Pure functions: one for each thing that can be wrong.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_contract::{Fingerprint, Metric, stream::StreamLabels};

use super::cluster_label::{candidates, of_target};
use super::finding::{Check, Finding, Level};
use super::survey::{Limit, StreamSeen, Survey, Unscraped};
use crate::clock::Seconds;
use crate::feed::Flavour;

/// Findings of one check that are shown one by one.
const SHOWN: usize = 10;
/// Names that are shown of many.
const NAMES: usize = 5;
/// A difference of clocks that is worth a word.
const NOTEWORTHY_SKEW: Seconds = 10.0;
/// Scrapes that have to fit into the time that evidence may age.
const SCRAPES: Seconds = 4.0;

const LEAVE_ALONE: &str = "let metric_relabel_configs of the scrape job and write_relabel_configs of remote write leave statusbridge_.* alone";

/// Everything that is to be said when there is no other feed, the worst first.
pub fn examine(survey: &Survey) -> Vec<Finding> {
    let mut findings = of_feed(survey);
    if !survey.streams.is_empty() {
        findings.extend(unknown_clusters(&survey.limits, &known(survey), &survey.cluster_label));
    }
    ordered(findings)
}

/// What is to be said of one feed by itself.
pub(super) fn of_feed(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !survey.direct {
        backend(survey, &mut findings);
        digests(survey, &mut findings);
        cluster_label(survey, &mut findings);
    }
    unscraped(survey, &mut findings);
    names_and_uids(survey, &mut findings);
    verification(survey, &mut findings);
    silence(survey, &mut findings);
    scrape_interval(survey, &mut findings);
    exporters(survey, &mut findings);
    if !survey.direct {
        renamed(survey, &mut findings);
        replicas(survey, &mut findings);
    }
    findings
}

/// In the order in which they are shown, each kind bounded.
pub(super) fn ordered(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| (finding.level, finding.check));
    bounded(findings)
}

/// Every cluster that a feed tells of, or should.
pub(super) fn known(survey: &Survey) -> BTreeSet<&str> {
    let silent = survey.unscraped.iter().map(|it| it.cluster.as_str());
    survey.streams.iter().map(|stream| stream.cluster.as_str()).chain(silent).collect()
}

/// FleetPackages that name clusters which nobody knows.
pub(super) fn unknown_clusters(limits: &[Limit], known: &BTreeSet<&str>, label: &str) -> Vec<Finding> {
    let of = |limit: &Limit| {
        let names = limit.clusters.iter().flatten();
        let unknown: Vec<String> =
            names.filter(|cluster| !known.contains(cluster.as_str())).cloned().collect();
        (!unknown.is_empty()).then(|| {
            Finding::problem(
                Check::UnknownCluster,
                format!("{} names clusters that send nothing: {}", limit.who, list(&unknown)),
                format!("write names as the label `{label}` has them, or ship these clusters' metrics"),
            )
        })
    };
    limits.iter().filter_map(of).collect()
}

fn unscraped(survey: &Survey, findings: &mut Vec<Finding>) {
    for Unscraped { cluster, url, why } in &survey.unscraped {
        findings.push(Finding::problem(
            Check::ScrapeFailed,
            format!("cluster `{cluster}`, {url}: {why}"),
            "look whether the exporter runs there, and whether a network policy, a token or a certificate keeps this machine out",
        ));
    }
}

/// Leaves out what only repeats.
fn bounded(findings: Vec<Finding>) -> Vec<Finding> {
    let mut counts = BTreeMap::<(Level, Check), usize>::new();
    let mut out: Vec<Finding> = Vec::new();
    for finding in findings {
        let count = counts.entry((finding.level, finding.check)).or_default();
        *count += 1;
        if *count <= SHOWN {
            out.push(finding);
        }
    }
    for ((level, check), count) in counts.into_iter().filter(|(_, count)| *count > SHOWN) {
        if let Some(last) = out.iter_mut().rfind(|finding| (finding.level, finding.check) == (level, check)) {
            last.message.push_str(&format!(" (and {} more like this)", count - SHOWN));
        }
    }
    out
}

fn backend(survey: &Survey, findings: &mut Vec<Finding>) {
    if let Some(warning) = &survey.partial {
        findings.push(Finding::problem(
            Check::PartialAnswers,
            warning,
            "bring back the part of the backend that does not answer: until then no poll counts",
        ));
    }
    if let Some(ahead) = survey.clock_ahead {
        let side = if ahead > 0.0 { "ahead of" } else { "behind" };
        findings.push(Finding::problem(
            Check::BackendClock,
            format!("the backend's clock is {:.0} s {side} this machine's", ahead.abs()),
            "synchronise both clocks (NTP): until then the aggregator on such a machine uses no answer",
        ));
    }
    let Some(found) = survey.found_flavour.filter(|found| *found != survey.flavour) else { return };
    let name = found.name();
    let fix = format!("--backend-flavour {name}");
    let finding = match (survey.flavour, found) {
        (Flavour::Any, _) => Finding::advice(
            Check::BackendFlavour,
            format!("the backend seems to be {name}; parameters of all kinds are sent to it"),
            fix,
        ),
        (_, Flavour::Prometheus) => Finding::advice(
            Check::BackendFlavour,
            format!("the backend is asked as {}, and seems to be prometheus", survey.flavour.name()),
            fix,
        ),
        _ => Finding::problem(
            Check::BackendFlavour,
            format!(
                "the backend is asked as {}, and seems to be {name}: it is not told to refuse partial answers",
                survey.flavour.name()
            ),
            fix,
        ),
    };
    findings.push(finding);
}

fn digests(survey: &Survey, findings: &mut Vec<Finding>) {
    if survey.partial.is_some() {
        return;
    }
    let there = |metric: &&Metric| survey.metrics.contains(metric.name());
    if survey.digests.is_empty() {
        let (message, fix) = match survey.metrics.iter().next() {
            None => (
                "the backend has no metric of ours".to_owned(),
                "scrape the exporters (port of --listen, path /metrics), and let remote write keep statusbridge_.*",
            ),
            Some(other) => {
                (format!("the backend has {other}, but no {}", Metric::Digest.name()), LEAVE_ALONE)
            }
        };
        return findings.push(Finding::problem(Check::NoDigests, message, fix));
    }
    for metric in Metric::ALL.iter().filter(|metric| !metric.per_package() && !there(metric)) {
        // An exporter that has no package yet has neither of these.
        if matches!(metric, Metric::ReasonInfo | Metric::Packages) {
            continue;
        }
        let message = format!("{} is missing altogether", metric.name());
        findings.push(match metric.in_digest() || *metric == Metric::RenderedTimestamp {
            true => Finding::problem(Check::MissingMetric, message, LEAVE_ALONE),
            false => Finding::advice(
                Check::MissingMetric,
                format!("{message}: dashboards and alerts need it"),
                LEAVE_ALONE,
            ),
        });
    }
}

fn cluster_label(survey: &Survey, findings: &mut Vec<Finding>) {
    let label = &survey.cluster_label;
    let bears = |labels: &StreamLabels| labels.get(label).is_some_and(|name| !name.is_empty());
    let without: Vec<&StreamLabels> = survey.digests.keys().filter(|labels| !bears(labels)).collect();
    let Some(first) = without.first() else { return };
    let (total, some) = (survey.digests.len(), without.len());
    let example = show(first);
    let fix = match candidates(&survey.digests).first() {
        Some(candidate) => format!(
            "--cluster-label {}: every digest bears it, and each of its {} values belongs to one cluster UID",
            candidate.label, candidate.values
        ),
        None => format!(
            "give each cluster a name where it is scraped: external_labels: {{{label}: NAME}} with remote write, \
             else labels of the scrape config's target (Prometheus' own queries do not show external labels)"
        ),
    };
    let message = match some == total {
        true => format!("no digest bears the label `{label}`, for instance {example}"),
        false => {
            format!(
                "{some} of {total} digests do not bear the label `{label}` and belong to no cluster, for instance {example}"
            )
        }
    };
    findings.push(Finding::problem(Check::ClusterLabel, message, fix));
}

fn names_and_uids(survey: &Survey, findings: &mut Vec<Finding>) {
    let mut uids = BTreeMap::<&str, BTreeMap<u64, &StreamLabels>>::new();
    let mut names = BTreeMap::<u64, BTreeSet<&str>>::new();
    for stream in &survey.streams {
        let Some(uid) = survey.digests.get(&stream.labels).and_then(|digest| digest.uid) else { continue };
        uids.entry(&stream.cluster).or_default().insert(uid, &stream.labels);
        names.entry(uid).or_default().insert(&stream.cluster);
    }
    for (name, uids) in uids.iter().filter(|(_, uids)| uids.len() > 1) {
        let all: Vec<&StreamLabels> = uids.values().copied().collect();
        let shown: Vec<String> = uids
            .iter()
            .take(NAMES)
            .map(|(uid, labels)| format!("uid {} ({})", fingerprint(*uid), differing_labels(labels, &all)))
            .collect();
        let renamed = format!("exported_{}", survey.cluster_label);
        let fix = match all.iter().any(|labels| labels.contains_key(&renamed)) {
            true => format!(
                "honor_labels: true in the federation job: `{renamed}` holds the names that the clusters had"
            ),
            false if survey.direct => "give each target the name of the cluster that it is in".to_owned(),
            false => format!("give each cluster a `{}` of its own where it is scraped", survey.cluster_label),
        };
        let message = format!("{} clusters report as `{name}`: {}", uids.len(), shown.join(" and "));
        findings.push(Finding::problem(Check::DuplicateClusterName, message, fix));
    }
    for (uid, names) in names.into_iter().filter(|(_, names)| names.len() > 1) {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        findings.push(Finding::problem(
            Check::ClusterRenamed,
            format!("one cluster (uid {}) reports under {} names: {}", fingerprint(uid), names.len(), list(&names)),
            format!(
                "give all that ships its metrics (replicas, jobs) the same `{}`; an old name goes by itself after 5 minutes",
                survey.cluster_label
            ),
        ));
    }
}

fn verification(survey: &Survey, findings: &mut Vec<Finding>) {
    for stream in &survey.streams {
        let Some(fault) = &stream.fault else { continue };
        let fix = match fault {
            fault if fault.contains("contract version") => {
                "run an exporter and an aggregator of matching releases"
            }
            fault if fault.contains("arrived more than once") => {
                "let the backend deduplicate replicas, or take their label out of --ignore-labels"
            }
            fault if fault.contains("rounded") || fault.contains("no whole number") => {
                "send values as they are: no rounding to significant digits, no float32, in remote write or storage"
            }
            _ if survey.direct => "let whatever answers there pass on what the exporter says as it is",
            _ => LEAVE_ALONE,
        };
        let message = format!("cluster `{}` {}: {fault}", stream.cluster, show(&stream.labels));
        findings.push(Finding::problem(Check::Unverified, message, fix));
    }
    let torn: Vec<String> = survey
        .streams
        .iter()
        .filter(|stream| stream.fault.is_none() && stream.was_torn)
        .map(|stream| stream.cluster.clone())
        .collect();
    if !torn.is_empty() {
        findings.push(Finding::advice(
            Check::Torn,
            format!(
                "{} of {} streams added up only at a second look: {}",
                torn.len(),
                survey.streams.len(),
                list(&torn)
            ),
            format!("--settle-delay longer than {} s, if this is found again", survey.settle),
        ));
    }
}

/// Clusters by name, each with the time at which any of its streams was last heard.
fn clusters(survey: &Survey) -> BTreeMap<&str, Seconds> {
    let mut clusters = BTreeMap::<&str, Seconds>::new();
    for stream in &survey.streams {
        let newest = clusters.entry(&stream.cluster).or_insert(f64::MIN);
        *newest = newest.max(stream.newest.unwrap_or(f64::MIN));
    }
    clusters
}

fn silence(survey: &Survey, findings: &mut Vec<Finding>) {
    let clusters = clusters(survey);
    for (cluster, newest) in &clusters {
        let strictest = survey.limits.iter().filter(|limit| limit.concerns(cluster));
        let strictest = strictest.min_by(|a, b| a.stale_after.total_cmp(&b.stale_after));
        let Some(limit) = strictest.filter(|limit| survey.t - newest > limit.stale_after) else { continue };
        findings.push(Finding::problem(
            Check::SilentCluster,
            format!(
                "cluster `{cluster}` was last heard {:.0} s ago, {} allows {:.0} s",
                survey.t - newest,
                limit.who,
                limit.stale_after
            ),
            "look whether its exporter runs and is scraped (`up` of the scrape job), and whether remote write keeps up",
        ));
    }
}

fn scrape_interval(survey: &Survey, findings: &mut Vec<Finding>) {
    // The quickest stream of a cluster is the one that counts.
    let mut intervals = BTreeMap::<&str, Seconds>::new();
    for stream in &survey.streams {
        if let Some(interval) = survey.digests.get(&stream.labels).and_then(|digest| digest.interval()) {
            let least = intervals.entry(&stream.cluster).or_insert(f64::MAX);
            *least = least.min(interval);
        }
    }
    for limit in &survey.limits {
        let slow: Vec<(&str, Seconds)> = intervals
            .iter()
            .filter(|(cluster, interval)| {
                limit.concerns(cluster) && SCRAPES * **interval + survey.settle > limit.stale_after
            })
            .map(|(cluster, interval)| (*cluster, *interval))
            .collect();
        let Some(slowest) = slow.iter().map(|(_, interval)| *interval).reduce(f64::max) else { continue };
        let names: Vec<String> = slow.iter().map(|(cluster, _)| (*cluster).to_owned()).collect();
        let needed = (SCRAPES * slowest + survey.settle).ceil();
        let most = ((limit.stale_after - survey.settle) / SCRAPES).floor();
        let sooner = if most >= 1.0 { format!("scrape at least every {most} s, or ") } else { String::new() };
        findings.push(Finding::problem(
            Check::ScrapeInterval,
            format!(
                "scraped every {} s: {}; {} allows {:.0} s, less than four scrapes and the settle delay ({needed} s)",
                (slowest * 10.0).round() / 10.0,
                list(&names),
                limit.who,
                limit.stale_after,
            ),
            format!("{sooner}set staleAfter to at least {needed}s"),
        ));
    }
}

fn exporters(survey: &Survey, findings: &mut Vec<Finding>) {
    for stream in &survey.streams {
        if let Some(offset) = stream.clock_offset.filter(|offset| offset.abs() > NOTEWORTHY_SKEW) {
            let side = if offset > 0.0 { "behind" } else { "ahead of" };
            let message = format!(
                "the clock of cluster `{}` is {:.0} s {side} the backend's, or a gateway repeats an old exposition",
                stream.cluster,
                offset.abs()
            );
            let fix = "synchronise the clock of the node that its exporter runs on (NTP); scrape the exporter itself";
            findings.push(match offset.abs() > survey.max_clock_skew {
                true => Finding::problem(Check::ExporterClock, message, fix),
                false => Finding::advice(Check::ExporterClock, message, fix),
            });
        }
        for source in &stream.down {
            findings.push(Finding::problem(
                Check::SourceDown,
                format!("source `{source}` of cluster `{}` is down", stream.cluster),
                "look into the log of that cluster's exporter: it cannot watch what it reads (RBAC, API server)",
            ));
        }
    }
}

fn renamed(survey: &Survey, findings: &mut Vec<Finding>) {
    for (label, series) in &survey.collisions {
        findings.push(Finding::advice(
            Check::RenamedLabel,
            format!("{series} series bear `exported_{label}`: something else calls a label `{label}` too"),
            format!(
                "nothing has to be done, it is undone before anything is verified; for dashboards rename the \
                 target's label `{label}` in relabel_configs of the scrape job"
            ),
        ));
    }
    let mut labels = BTreeMap::<&str, usize>::new();
    for label in survey.digests.keys().flat_map(BTreeMap::keys).filter(|label| label.starts_with("exported_"))
    {
        *labels.entry(label).or_default() += 1;
    }
    for (label, count) in labels {
        findings.push(Finding::advice(
            Check::RenamedLabel,
            format!("{count} digests bear `{label}`: their samples have passed through another scrape, as with federation"),
            "honor_labels: true in the job that scrapes the other Prometheus, so that labels keep their names",
        ));
    }
}

fn replicas(survey: &Survey, findings: &mut Vec<Finding>) {
    let mut clusters = BTreeMap::<(&str, Option<u64>), Vec<&StreamSeen>>::new();
    for stream in &survey.streams {
        let uid = survey.digests.get(&stream.labels).and_then(|digest| digest.uid);
        clusters.entry((&stream.cluster, uid)).or_default().push(stream);
    }
    let mut found = BTreeMap::<Vec<&str>, (Vec<String>, BTreeSet<&str>)>::new();
    for ((cluster, _), streams) in clusters.into_iter().filter(|(_, streams)| streams.len() > 1) {
        let all: Vec<&StreamLabels> = streams.iter().map(|stream| &stream.labels).collect();
        let labels = differing(&all);
        // Two exporters, or one that was replaced a moment ago.
        if labels.iter().any(|label| ["instance", "pod"].contains(label)) {
            continue;
        }
        let values =
            labels.first().into_iter().flat_map(|label| all.iter().filter_map(|labels| labels.get(*label)));
        let values: BTreeSet<&str> = values.map(String::as_str).collect();
        let (clusters, known) = found.entry(labels).or_default();
        clusters.push(cluster.to_owned());
        known.extend(values);
    }
    for (labels, (clusters, values)) in found {
        let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
        let label = labels.join(",");
        let (what, fix) = match labels.as_slice() {
            ["job"] => {
                ("several jobs scrape the same exporter", "scrape each exporter by one job".to_owned())
            }
            _ => (
                "several replicas ship the same cluster",
                format!(
                    "nothing has to be done, each is verified by itself; to read one only let the backend deduplicate by \
                     `{label}`, and only if it then still shows now one and now the other, --ignore-labels {label}"
                ),
            ),
        };
        let message =
            format!("{what} and differ in the label `{label}` ({}): {}", list(&values), list(&clusters));
        findings.push(Finding::advice(Check::Replicas, message, fix));
    }
}

/// Names of the labels in which these streams differ.
fn differing<'a>(streams: &[&'a StreamLabels]) -> Vec<&'a str> {
    let names: BTreeSet<&str> = streams.iter().flat_map(|labels| labels.keys()).map(String::as_str).collect();
    let differs = |name: &&str| streams.windows(2).any(|pair| pair[0].get(*name) != pair[1].get(*name));
    names.into_iter().filter(differs).collect()
}

fn differing_labels(labels: &StreamLabels, all: &[&StreamLabels]) -> String {
    let names = differing(all);
    let shown = names.iter().filter_map(|name| labels.get(*name).map(|value| format!("{name}={value:?}")));
    shown.take(NAMES).collect::<Vec<_>>().join(", ")
}

/// The labels by which a person finds the stream.
fn show(labels: &StreamLabels) -> String {
    let (of_targets, others): (Vec<_>, Vec<_>) = labels.iter().partition(|(name, _)| of_target(name));
    let mut shown: Vec<String> = of_targets
        .into_iter()
        .chain(others)
        .take(NAMES)
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    if labels.len() > NAMES {
        shown.push("…".to_owned());
    }
    format!("{{{}}}", shown.join(","))
}

fn fingerprint(uid: u64) -> Fingerprint {
    Fingerprint::from_value(uid).unwrap_or_default()
}

/// The first names and how many there are besides.
fn list(names: &[String]) -> String {
    let mut text = names[..names.len().min(NAMES)].join(", ");
    if names.len() > NAMES {
        text.push_str(&format!(" and {} more", names.len() - NAMES));
    }
    text
}
