//! From what was seen to what is to be changed. Pure functions: one for each thing that can be wrong.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_aggregator::feed::promql::{Flavour, Trust};
use statusbridge_contract::stream::StreamLabels;
use statusbridge_contract::{Fingerprint, Metric, Version, label};
use statusbridge_core::time::Seconds;

use super::cluster_label::{candidates, of_target};
use super::finding::{Check, Finding, NAMES, list};
use super::survey::{DigestSeen, Expectation, StreamSeen, Survey, Unscraped};
use super::trust::{Proposal, propose};
use super::unchecked::unchecked;

/// Findings of one check that are shown one by one.
const SHOWN: usize = 10;
/// A difference of clocks that is worth a word.
const NOTEWORTHY_SKEW: Seconds = 10.0;
/// Scrapes that have to fit into the time that evidence may age.
const SCRAPES: Seconds = 4.0;

/// So many samples of a stream's digest that are at fault are no accident.
const OFTEN: usize = 3;

const AS_SCRAPED: &str = "scrape the exporter itself and pass its samples on by remote write as they were stamped, or let it push to the \
                          aggregator. A Pushgateway that is fed by POST, the OpenTelemetry Collector's `prometheus` exporter, Telegraf's \
                          `prometheus_client`, federation with honor_timestamps: false and caches repeat what they got last";
const AS_IT_IS: &str = "leave samples as they are: no zeros or last values where a sample is absent, no interpolation, no averages, no \
                        downsampling of the last minutes, no stream aggregation";
const LEAVE_ALONE: &str = "let metric_relabel_configs of the scrape job and write_relabel_configs of remote write leave statusbridge_.* alone";

/// Everything that is to be said when there is no other feed, the worst first.
pub(super) fn examine(survey: &Survey) -> Vec<Finding> {
    let mut findings = of_feed(survey);
    findings.extend(unknown_clusters(&survey.expectations, &known(survey), &survey.cluster_label));
    findings.extend(unchecked(&survey.expectations, survey.streams.iter()));
    ordered(findings)
}

/// What is to be said of one feed by itself.
pub(super) fn of_feed(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !survey.direct {
        backend(survey, &mut findings);
        trust(survey, &mut findings);
        digests(survey, &mut findings);
        cluster_label(survey, &mut findings);
        for (labels, seen) in &survey.digests {
            timestamps(labels, seen, survey.max_clock_skew, &mut findings);
        }
        values(survey, &mut findings);
        renamed(survey, &mut findings);
        replicas(survey, &mut findings);
    }
    unscraped(survey, &mut findings);
    names_and_uids(survey, &mut findings);
    verification(survey, &mut findings);
    silence(survey, &mut findings);
    scrape_interval(survey, &mut findings);
    exporters(survey, &mut findings);
    findings
}

/// In the order in which they are shown, each kind bounded.
pub(super) fn ordered(mut findings: Vec<Finding>) -> Vec<Finding> {
    let kind = |finding: &Finding| (finding.level, finding.check);
    findings.sort_by_key(kind);
    let mut shown: Vec<Finding> = Vec::new();
    for alike in findings.chunk_by(|a, b| kind(a) == kind(b)) {
        shown.extend(alike.iter().take(SHOWN).cloned());
        let more = alike.len().saturating_sub(SHOWN);
        if let Some(last) = shown.last_mut().filter(|_| more > 0) {
            last.message.push_str(&format!(" (and {more} more like this)"));
        }
    }
    shown
}

/// Every cluster that a feed tells of, or should.
pub(super) fn known(survey: &Survey) -> BTreeSet<&str> {
    let silent = survey.unscraped.iter().map(|it| it.cluster.as_str());
    survey.streams.iter().map(|stream| stream.cluster.as_str()).chain(silent).collect()
}

/// FleetPackages that name clusters which nobody knows. Where none is known at all, something else is wrong.
pub(super) fn unknown_clusters(
    expectations: &[Expectation],
    known: &BTreeSet<&str>,
    label: &str,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if known.is_empty() {
        return findings;
    }
    for expectation in expectations {
        let is_unknown = |cluster: &&String| !known.contains(cluster.as_str());
        let unknown: Vec<&String> = expectation.named().filter(is_unknown).collect();
        if !unknown.is_empty() {
            let who = &expectation.who;
            let message = format!("{who} names clusters that send nothing: {}", list(&unknown));
            let fix = format!("write names as the label `{label}` has them, or ship these clusters' metrics");
            findings.push(Finding::problem(Check::UnknownCluster, message, fix));
        }
    }
    findings
}

fn unscraped(survey: &Survey, findings: &mut Vec<Finding>) {
    for Unscraped { cluster, url, why } in &survey.unscraped {
        let message = format!("cluster `{cluster}`, {url}: {why}");
        let fix = "look whether the exporter runs there, and whether a network policy, a token or a certificate keeps this machine out";
        findings.push(Finding::problem(Check::ScrapeFailed, message, fix));
    }
}

fn backend(survey: &Survey, findings: &mut Vec<Finding>) {
    if let Some(warning) = &survey.partial {
        let fix = "bring back the part of the backend that does not answer: until then no poll counts";
        findings.push(Finding::problem(Check::PartialAnswers, warning, fix));
    }
    if let Some(ahead) = survey.clock_ahead {
        let side = if ahead > 0.0 { "ahead of" } else { "behind" };
        let message = format!("the backend's clock is {:.0} s {side} this machine's", ahead.abs());
        let fix = "synchronise both clocks (NTP): until then the aggregator on such a machine uses no answer";
        findings.push(Finding::problem(Check::BackendClock, message, fix));
    }
    let Some(found) = survey.found_flavour.filter(|found| *found != survey.flavour) else { return };
    let (asked, name) = (survey.flavour.name(), found.name());
    let differs = format!("the backend is asked as {asked}, and seems to be {name}");
    let (may_be_partial, message) = match (survey.flavour, found) {
        (Flavour::Any, _) => {
            (false, format!("the backend seems to be {name}; parameters of all kinds are sent to it"))
        }
        (_, Flavour::Prometheus) => (false, differs),
        _ => (true, differs + ": it is not told to refuse partial answers"),
    };
    let fix = format!("--backend-flavour {name}");
    findings.push(Finding::problem_if(may_be_partial, Check::BackendFlavour, message, fix));
}

fn digests(survey: &Survey, findings: &mut Vec<Finding>) {
    if survey.partial.is_some() || survey.digests.is_empty() && !survey.refused.is_empty() {
        return;
    }
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
    // An exporter that has no package yet has neither of the last two.
    let may_lack = |it: &Metric| it.per_package() || matches!(it, Metric::ReasonInfo | Metric::Packages);
    let lacks = |it: &&Metric| !may_lack(it) && !survey.metrics.contains(it.name());
    for metric in Metric::ALL.iter().filter(lacks) {
        let needed = if metric.in_digest() { "" } else { ": dashboards and alerts need it" };
        let message = format!("{} is missing altogether{needed}", metric.name());
        findings.push(Finding::problem_if(metric.in_digest(), Check::MissingMetric, message, LEAVE_ALONE));
    }
}

/// What timestamps tell of the way that a stream's samples took.
fn timestamps(labels: &StreamLabels, seen: &DigestSeen, max_skew: Seconds, findings: &mut Vec<Finding>) {
    let (stream, all) = (show(labels), seen.stamps.len());
    if lacks_uid(seen) {
        let message = format!("a digest has no label {}: {stream}", label::CLUSTER_UID);
        let fix = "let relabelling on the way keep that label (no labeldrop, no aggregation): without it nobody knows which cluster speaks";
        findings.push(Finding::problem(Check::ClusterUid, message, fix));
    }
    let repeated = seen.repeated();
    if repeated >= OFTEN {
        let message = format!(
            "{repeated} of {all} scrapes bring an exposition that came before, with a new timestamp: {stream}"
        );
        findings.push(Finding::problem(Check::Restamped, message, AS_SCRAPED));
    }
    if is_split(seen) {
        let alone = seen.alone();
        let (rendered, process) = (Metric::RenderedTimestamp.name(), Metric::ProcessNumber.name());
        let missing = format!("{alone} of {all} digests have no {rendered} and {process}");
        let message = format!("{missing} of the same timestamp: {stream}");
        let fix = "let all samples of a scrape keep the one timestamp that whoever scrapes gives them: none by arrival, and none for each batch";
        findings.push(Finding::problem(Check::SplitScrape, message, fix));
    }
    if let Some(ahead) = seen.ahead.filter(|ahead| *ahead > NOTEWORTHY_SKEW) {
        let message = format!("samples are stamped {ahead:.0} s in the future: {stream}");
        let fix = "synchronise the clock of the machine that scrapes, or that gives the timestamps (NTP)";
        findings.push(Finding::problem_if(ahead > max_skew, Check::FutureSamples, message, fix));
    }
}

/// Whether there is a digest of a version that is read, and it does not say of which cluster it is.
fn lacks_uid(seen: &DigestSeen) -> bool {
    let is_read = |contract: &String| Version::readable(contract).is_some();
    seen.uids.contains(&None) && seen.contracts.iter().all(is_read)
}

/// Whether what comes with digests bears other timestamps than they do.
fn is_split(seen: &DigestSeen) -> bool {
    let alone = seen.alone();
    let comes_at_all = !seen.rendered.is_empty() && !seen.processes.is_empty();
    comes_at_all && alone >= OFTEN && 2 * alone > seen.stamps.len()
}

/// What values tell of the same.
fn values(survey: &Survey, findings: &mut Vec<Finding>) {
    for (cluster, metrics) in &survey.filled {
        let message = format!(
            "cluster `{cluster}` has samples of {} with the value 0, which no exporter says: a pipeline fills in what is absent",
            list(metrics)
        );
        findings.push(Finding::problem(Check::Filled, message, AS_IT_IS));
    }
    for (cluster, count) in &survey.restamped {
        let message = format!(
            "in cluster `{cluster}` packages in trouble ({count}) have a healthy revision of the same timestamp: \
             what their exporter leaves out goes on to be stamped"
        );
        findings.push(Finding::problem(Check::Restamped, message, AS_SCRAPED));
    }
}

/// Who is believed, and who is not.
fn trust(survey: &Survey, findings: &mut Vec<Finding>) {
    let streams = if survey.digests.is_empty() { &survey.refused } else { &survey.digests };
    let fix = match propose(streams.keys(), &survey.cluster_label) {
        Some(Proposal { matchers, clusters }) => format!(
            "--trust '{matchers}', which digests of {clusters} clusters bear, if these are your exporters; see that no \
             other pod in these clusters can get these labels",
        ),
        None => "give what is scraped a `namespace` and a `job` of its target, as Prometheus' service discovery can, \
                 and name them with --trust"
            .to_owned(),
    };
    let anybody = "whatever is scraped in a cluster can say what it likes, and open gates";
    match &survey.trust {
        None if survey.digests.is_empty() => {}
        None => findings.push(Finding::problem(
            Check::Trust,
            format!("--trust is missing: without it {anybody}"),
            fix,
        )),
        Some(Trust::All) => {
            findings.push(Finding::advice(Check::Trust, format!("every stream is believed: {anybody}"), fix))
        }
        Some(Trust::Matching(_)) if survey.digests.is_empty() && !survey.refused.is_empty() => {
            let message = format!("--trust matches none of {} digests", survey.refused.len());
            return findings.push(Finding::problem(Check::Trust, message, fix));
        }
        Some(trust) if trust.is_weak(&survey.cluster_label) => {
            let message =
                format!("--trust '{trust}' names only labels that tenants can often choose for their pods");
            let fix = "add the exporters' `namespace`, which service discovery knows (docs/pipelines.md)";
            findings.push(Finding::advice(Check::Trust, message, fix));
        }
        Some(Trust::Matching(_)) => {}
    }
    if survey.refused_unread {
        let message = "there are more digests that --trust refuses than the backend gives at a time";
        let fix = format!(
            "find out who says them: topk(10, count by ({}, job) ({}))",
            survey.cluster_label,
            Metric::Digest.name()
        );
        findings.push(Finding::advice(Check::Trust, message, fix));
    }
    let cluster = |labels: &StreamLabels| labels.get(&survey.cluster_label).cloned();
    let known: BTreeSet<Option<String>> = survey.digests.keys().map(cluster).collect();
    for labels in survey.refused.keys() {
        // Where exporters are believed, that is what --trust is for.
        let is_mute = !known.contains(&cluster(labels));
        let message = format!(
            "{} is not believed{}",
            show(labels),
            if is_mute { ", and nothing else speaks for its cluster" } else { "" }
        );
        let fix = "if it is an exporter of yours, let --trust match its labels; if not, find out who says that it is one";
        findings.push(Finding::problem_if(is_mute, Check::Trust, message, fix));
    }
}

fn cluster_label(survey: &Survey, findings: &mut Vec<Finding>) {
    let label = &survey.cluster_label;
    let bears = |labels: &StreamLabels| labels.get(label).is_some_and(|name| !name.is_empty());
    let without: Vec<&StreamLabels> = survey.digests.keys().filter(|labels| !bears(labels)).collect();
    let Some(first) = without.first() else { return };
    let (total, some) = (survey.digests.len(), without.len());
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
    let lack = if some == total {
        format!("no digest bears the label `{label}`")
    } else {
        format!("{some} of {total} digests do not bear the label `{label}` and belong to no cluster")
    };
    let message = format!("{lack}, for instance {}", show(first));
    findings.push(Finding::problem(Check::ClusterLabel, message, fix));
}

fn names_and_uids(survey: &Survey, findings: &mut Vec<Finding>) {
    let mut uids = BTreeMap::<&str, BTreeMap<Fingerprint, &StreamLabels>>::new();
    let mut names = BTreeMap::<Fingerprint, BTreeSet<&str>>::new();
    for stream in &survey.streams {
        let Some(uid) = stream.id.uid else { continue };
        uids.entry(&stream.cluster).or_default().insert(uid, &stream.id.labels);
        names.entry(uid).or_default().insert(&stream.cluster);
    }
    for (name, uids) in uids.iter().filter(|(_, uids)| uids.len() > 1) {
        let all: Vec<&StreamLabels> = uids.values().copied().collect();
        let shown = uids.iter().take(NAMES);
        let shown = shown.map(|(uid, labels)| format!("uid {uid} ({})", differing_labels(labels, &all)));
        let renamed = format!("exported_{}", survey.cluster_label);
        let fix = match all.iter().any(|labels| labels.contains_key(&renamed)) {
            true => format!(
                "honor_labels: true in the federation job: `{renamed}` holds the names that the clusters had"
            ),
            false if survey.direct => "give each target the name of the cluster that it is in".to_owned(),
            false => format!("give each cluster a `{}` of its own where it is scraped", survey.cluster_label),
        };
        let shown = shown.collect::<Vec<_>>().join(" and ");
        let message = format!("{} clusters report as `{name}`: {shown}", uids.len());
        findings.push(Finding::problem(Check::DuplicateClusterName, message, fix));
    }
    for (uid, names) in names.into_iter().filter(|(_, names)| names.len() > 1) {
        let message = format!("one cluster (uid {uid}) reports under {} names: {}", names.len(), list(names));
        let fix = format!(
            "give all that ships its metrics (replicas, jobs) the same `{}`; an old name goes by itself after 5 minutes",
            survey.cluster_label
        );
        findings.push(Finding::problem(Check::ClusterRenamed, message, fix));
    }
}

fn verification(survey: &Survey, findings: &mut Vec<Finding>) {
    for stream in &survey.streams {
        let Some(fault) = &stream.fault else { continue };
        let message =
            |fault: &str| format!("cluster `{}` {}: {fault}", stream.cluster, show(&stream.id.labels));
        // The fleet says at the end which half to upgrade.
        if let Some((what, upgrade)) =
            fault.rsplit_once(": ").filter(|(what, _)| what.contains("this aggregator reads"))
        {
            findings.push(Finding::problem(Check::ContractVersion, message(what), upgrade));
            continue;
        }
        // These are told by the timestamps and labels of the digest.
        let seen = survey.digests.get(&stream.id.labels).filter(|_| !survey.direct);
        if seen.is_some_and(|seen| lacks_uid(seen) && stream.id.uid.is_none() || is_split(seen)) {
            continue;
        }
        let is_filled = fault.contains("no whole number");
        let fix = match fault {
            _ if is_filled => AS_IT_IS,
            fault if fault.contains("contract version") => {
                "run an exporter and an aggregator of matching releases"
            }
            fault if fault.contains("arrived more than once") => {
                "let the backend deduplicate replicas, or take their label out of --ignore-labels"
            }
            fault if fault.contains("rounded") => {
                "send values as they are: no rounding to significant digits, no float32, in remote write or storage"
            }
            _ if survey.filled.contains_key(&stream.cluster) => AS_IT_IS,
            _ if survey.restamped.contains_key(&stream.cluster) => AS_SCRAPED,
            _ if survey.direct => "let whatever answers there pass on what the exporter says as it is",
            _ => LEAVE_ALONE,
        };
        let check = if is_filled { Check::Filled } else { Check::Unverified };
        findings.push(Finding::problem(check, message(fault), fix));
    }
    let torn = survey.streams.iter().filter(|stream| stream.fault.is_none() && stream.was_torn);
    let torn: Vec<&String> = torn.map(|stream| &stream.cluster).collect();
    if !torn.is_empty() {
        let (some, all) = (torn.len(), survey.streams.len());
        let message = format!("{some} of {all} streams added up only at a second look: {}", list(&torn));
        let fix = format!("--settle-delay longer than {} s, if this is found again", survey.settle);
        findings.push(Finding::advice(Check::Torn, message, fix));
    }
}

fn silence(survey: &Survey, findings: &mut Vec<Finding>) {
    // When any stream of the cluster was last heard.
    let mut clusters = BTreeMap::<&str, Seconds>::new();
    for stream in &survey.streams {
        let newest = clusters.entry(&stream.cluster).or_insert(f64::MIN);
        *newest = newest.max(stream.newest.unwrap_or(f64::MIN));
    }
    for (cluster, newest) in clusters {
        let age = survey.t - newest;
        let expectations = survey.expectations.iter().filter(|limit| limit.is_of(cluster));
        let strictest = expectations.min_by(|a, b| a.stale_after.total_cmp(&b.stale_after));
        let Some(Expectation { who, stale_after, .. }) = strictest else { continue };
        if age > *stale_after {
            let message =
                format!("cluster `{cluster}` was last heard {age:.0} s ago, {who} allows {stale_after:.0} s");
            let fix = "look whether its exporter runs and is scraped (`up` of the scrape job), and whether remote write keeps up";
            findings.push(Finding::problem(Check::SilentCluster, message, fix));
        }
    }
}

fn scrape_interval(survey: &Survey, findings: &mut Vec<Finding>) {
    // The quickest stream of a cluster is the one that counts.
    let mut intervals = BTreeMap::<&str, Seconds>::new();
    for stream in &survey.streams {
        if let Some(interval) = survey.digests.get(&stream.id.labels).and_then(DigestSeen::interval) {
            let least = intervals.entry(&stream.cluster).or_insert(f64::MAX);
            *least = least.min(interval);
        }
    }
    for limit in &survey.expectations {
        let is_slow = |(cluster, interval): &(&&str, &Seconds)| {
            limit.is_of(cluster) && SCRAPES * **interval + survey.settle > limit.stale_after
        };
        let (names, slow): (Vec<&str>, Vec<Seconds>) = intervals.iter().filter(is_slow).unzip();
        let Some(slowest) = slow.into_iter().reduce(f64::max) else { continue };
        let needed = (SCRAPES * slowest + survey.settle).ceil();
        let most = ((limit.stale_after - survey.settle) / SCRAPES).floor();
        let sooner = if most >= 1.0 { format!("scrape at least every {most} s, or ") } else { String::new() };
        let message = format!(
            "scraped every {} s: {}; {} allows {:.0} s, less than four scrapes and the settle delay ({needed} s)",
            (slowest * 10.0).round() / 10.0,
            list(&names),
            limit.who,
            limit.stale_after,
        );
        let fix = format!("{sooner}set staleAfter to at least {needed}s");
        findings.push(Finding::problem(Check::ScrapeInterval, message, fix));
    }
}

fn exporters(survey: &Survey, findings: &mut Vec<Finding>) {
    for stream in &survey.streams {
        if let Some(offset) = stream.clock_offset.filter(|offset| offset.abs() > NOTEWORTHY_SKEW) {
            let side = if offset > 0.0 { "behind" } else { "ahead of" };
            let off = offset.abs();
            let message =
                format!("the clock of cluster `{}` is {off:.0} s {side} the backend's", stream.cluster);
            let fix = "synchronise the clock of the node that its exporter runs on (NTP), and let samples arrive as soon as they are scraped";
            let is_too_much = off > survey.max_clock_skew;
            findings.push(Finding::problem_if(is_too_much, Check::ExporterClock, message, fix));
        }
        for source in &stream.down {
            let message = format!("source `{source}` of cluster `{}` is down", stream.cluster);
            let fix = "look into the log of that cluster's exporter: it cannot watch what it reads (RBAC, API server)";
            findings.push(Finding::problem(Check::SourceDown, message, fix));
        }
    }
}

fn renamed(survey: &Survey, findings: &mut Vec<Finding>) {
    for (label, series) in &survey.collisions {
        let message =
            format!("{series} series bear `exported_{label}`: something else calls a label `{label}` too");
        let fix = format!(
            "nothing has to be done, it is undone before anything is verified; for dashboards rename the \
             target's label `{label}` in relabel_configs of the scrape job"
        );
        findings.push(Finding::advice(Check::RenamedLabel, message, fix));
    }
    let mut labels = BTreeMap::<&str, usize>::new();
    for label in survey.digests.keys().flat_map(BTreeMap::keys).filter(|label| label.starts_with("exported_"))
    {
        *labels.entry(label).or_default() += 1;
    }
    for (label, count) in labels {
        let message = format!(
            "{count} digests bear `{label}`: their samples have passed through another scrape, as with federation"
        );
        let fix = "honor_labels: true in the job that scrapes the other Prometheus, so that labels keep their names";
        findings.push(Finding::advice(Check::RenamedLabel, message, fix));
    }
}

fn replicas(survey: &Survey, findings: &mut Vec<Finding>) {
    for (labels, _) in survey.digests.iter().filter(|(_, seen)| seen.alternates()) {
        let message = format!("processes take turns under the same labels: {}", show(labels));
        let fix = "scrape each pod by itself: behind a Service every scrape is another one's, and each is heard of half as often";
        findings.push(Finding::advice(Check::Replicas, message, fix));
    }
    let mut clusters = BTreeMap::<(&str, Option<Fingerprint>), BTreeSet<&StreamLabels>>::new();
    for StreamSeen { cluster, id, .. } in &survey.streams {
        clusters.entry((cluster, id.uid)).or_default().insert(&id.labels);
    }
    let mut found = BTreeMap::<Vec<&str>, (Vec<&str>, BTreeSet<&str>)>::new();
    for ((cluster, _), streams) in clusters.into_iter().filter(|(_, streams)| streams.len() > 1) {
        let all: Vec<&StreamLabels> = streams.into_iter().collect();
        let labels = differing(&all);
        // Two exporters, or one that was replaced a moment ago.
        if labels.iter().any(|label| ["instance", "pod"].contains(label)) {
            continue;
        }
        let first = labels.first().copied().unwrap_or_default();
        let (clusters, values) = found.entry(labels).or_default();
        clusters.push(cluster);
        values.extend(all.iter().filter_map(|labels| labels.get(first)).map(String::as_str));
    }
    for (labels, (clusters, values)) in found {
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
            format!("{what} and differ in the label `{label}` ({}): {}", list(values), list(clusters));
        findings.push(Finding::advice(Check::Replicas, message, fix));
    }
}

/// Names of the labels in which these streams differ.
fn differing<'a>(streams: &[&'a StreamLabels]) -> Vec<&'a str> {
    let names: BTreeSet<&str> = streams.iter().flat_map(|labels| labels.keys()).map(String::as_str).collect();
    let differs =
        |name: &&str| streams.iter().zip(streams.iter().skip(1)).any(|(a, b)| a.get(*name) != b.get(*name));
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
    let first = of_targets.into_iter().chain(others).take(NAMES);
    let mut shown: Vec<String> = first.map(|(name, value)| format!("{name}={value:?}")).collect();
    if labels.len() > NAMES {
        shown.push("…".to_owned());
    }
    format!("{{{}}}", shown.join(","))
}
