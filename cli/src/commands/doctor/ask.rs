//! Asks backend and hub what the doctor wants to know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use statusbridge_aggregator::clock;
use statusbridge_aggregator::feed::Backend;
use statusbridge_aggregator::feed::promql::fold::fold;
use statusbridge_aggregator::feed::promql::poll::{PollConfig, Poller};
use statusbridge_aggregator::feed::promql::{Exporters, FeedConfig, FeedError, PromFeed, Trust};
use statusbridge_aggregator::hub::write::{self, HubError};
use statusbridge_api::rollout_gate::Require;
use statusbridge_contract::stream::StreamLabels;
use statusbridge_contract::{Fingerprint, Metric, label};
use statusbridge_core::fleet::{Fleet, FleetSettings, Speakers, StreamId};
use statusbridge_core::reconcile::gate_verdict;
use statusbridge_core::reconcile::object::{GateObject, Key, Kind, PackageObject};
use statusbridge_core::sample::{Labels, Sample};
use statusbridge_core::time::Seconds;

use super::cluster_label::candidates;
use super::survey::{DigestSeen, Expectation, GateSeen, StreamSeen, Survey};
use super::unchecked::of_package;

/// How often streams that do not add up are looked at.
const LOOKS: usize = 3;
/// How far back scrapes are counted.
const WINDOW: Seconds = 600.0;
/// How far beyond the present is looked: VictoriaMetrics takes samples that are stamped up to two days ahead, others
/// less.
const AHEAD: Seconds = 2.0 * 86_400.0;
/// A process that was not heard of for so many scrapes, while another one was, has been replaced.
const REPLACED: Seconds = 3.0;

/// Metrics of which no exporter says 0: it leaves the sample out.
const NEVER_ZERO: [Metric; 6] = [
    Metric::PackageApplyState,
    Metric::PackageHealth,
    Metric::PackageAppliedRevision,
    Metric::PackageDesiredRevision,
    Metric::PackageReason,
    Metric::PackageResourcesFailed,
];
/// Metrics that no package has beside a healthy revision.
const OF_TROUBLE: [Metric; 3] =
    [Metric::PackageApplyState, Metric::PackageHealth, Metric::PackageAppliedRevision];
/// Longest wait for the next scrape.
const NEXT_SCRAPE: Seconds = 60.0;
/// Wait for the next scrape where nobody knows when it comes.
const UNKNOWN_SCRAPE: Seconds = 15.0;

/// Own labels whose names a target may bear too, and a metric that has them.
const OWN_LABELS: [(&str, Metric); 4] = [
    (label::PACKAGE, Metric::PackageHealthyRevision),
    (label::PACKAGE_NAMESPACE, Metric::PackageHealthyRevision),
    (label::PACKAGE_SOURCE, Metric::SourceUp),
    (label::CONTRACT, Metric::Digest),
];

/// Looks at everything; `trust` is None where nobody has said who is believed.
///
/// # Errors
/// When the backend gives no usable answer, other than that it is partial or that clocks differ:
/// those are findings.
pub(super) async fn survey(
    backend: &Backend,
    settle: Duration,
    trust: Option<Trust>,
    settings: FleetSettings,
    expectations: Vec<Expectation>,
) -> Result<Survey, FeedError> {
    let config = backend.config();
    let mut poll = backend.poll(settle);
    let mut survey = Survey {
        settle: poll.settle,
        max_clock_skew: settings.max_clock_skew,
        cluster_label: poll.exporters.cluster_label.clone(),
        trust,
        flavour: config.flavour,
        expectations,
        ..Survey::default()
    };
    let feed = PromFeed::new(config.clone())?;
    survey.found_flavour = feed.probe().await;
    let asked = async {
        let (feed, ahead) = match fold(&feed, "vector(0)", clock::now(), |(): &mut (), _, _| {}).await {
            Err(FeedError::ClockDisagrees { ahead }) => {
                survey.clock_ahead = Some(ahead);
                (PromFeed::new(FeedConfig { max_clock_skew: Duration::MAX, ..config })?, ahead)
            }
            answered => answered.map(|()| (feed, 0.0))?,
        };
        survey.t = clock::now() + ahead - survey.settle;
        look(&feed, &poll, &mut survey).await?;
        let named = |labels: &StreamLabels| labels.contains_key(&survey.cluster_label);
        if !survey.digests.keys().any(named)
            && let Some(candidate) = candidates(&survey.digests).into_iter().next()
        {
            // As if the advice had been taken, so that everything is said at once.
            poll.exporters.cluster_label = candidate.label;
        }
        verify(feed, poll, settings, ahead, &mut survey).await
    };
    match asked.await {
        Err(error @ (FeedError::Warnings(_) | FeedError::Partial)) => {
            survey.partial = Some(error.to_string())
        }
        asked => asked?,
    }
    Ok(survey)
}

/// What can be told without verifying anything.
async fn look(feed: &PromFeed, poll: &PollConfig, survey: &mut Survey) -> Result<(), FeedError> {
    let (t, exporters) = (survey.t, &poll.exporters);
    let believed = exporters.select(&[Metric::Digest], []);
    survey.digests = fold(feed, &believed, t, heads(poll, t, f64::MAX)).await?;
    let others = format!("{} unless {believed}", Metric::Digest.name());
    match fold(feed, &others, t, heads(poll, t, f64::MAX)).await {
        // However many there are, what is believed can be looked at.
        Err(error) if error.may_be_size() => survey.refused_unread = true,
        refused => survey.refused = refused?,
    }
    let metrics = [Metric::Digest, Metric::RenderedTimestamp, Metric::ProcessNumber];
    let query = exporters.select(&metrics, []) + &format!("[{}s]", WINDOW + AHEAD);
    let lately = heads(poll, t, t + survey.settle);
    for (labels, seen) in fold(feed, &query, t + AHEAD, lately).await? {
        match survey.digests.get_mut(&labels) {
            Some(known) => {
                *known = DigestSeen { contracts: known.contracts.clone(), uids: known.uids.clone(), ..seen }
            }
            // All that there is of it is stamped in the future.
            None if seen.ahead.is_some() => drop(survey.digests.insert(labels, seen)),
            // It has ended.
            None => {}
        }
    }
    let label = exporters.cluster_label.clone();
    let note_name = move |all: &mut BTreeMap<String, BTreeSet<String>>, labels: &Labels, _: &[Sample]| {
        if let (Some(cluster), Some(name)) = (labels.get(&label), labels.get("__name__")) {
            all.entry(cluster.to_owned()).or_default().insert(name.to_owned());
        }
    };
    survey.filled = fold(feed, &filled(exporters), t, note_name).await?;
    let label = exporters.cluster_label.clone();
    let note_number = move |all: &mut BTreeMap<String, u64>, labels: &Labels, samples: &[Sample]| {
        all.extend(labels.get(&label).map(str::to_owned).zip(number(samples)));
    };
    survey.restamped = fold(feed, &restamped(exporters), t, note_number).await?;
    // Those that each cluster has a few of; what is missing of packages shows when they are verified.
    let few: Vec<Metric> = Metric::ALL.iter().filter(|m| !m.per_package()).copied().collect();
    let names = format!("count by (__name__) ({})", exporters.select(&few, []));
    let note_name = |all: &mut BTreeSet<String>, labels: &Labels, _: &[Sample]| {
        all.extend(labels.get("__name__").map(str::to_owned));
    };
    survey.metrics = fold(feed, &names, t, note_name).await?;
    for (own, metric) in OWN_LABELS {
        let query = format!("count({}{{exported_{own}!=\"\"{}}})", metric.name(), exporters.matchers([]));
        let count = fold(feed, &query, t, |count, _, samples| *count = number(samples).unwrap_or(0)).await?;
        if count > 0 {
            survey.collisions.insert(own.to_owned(), count);
        }
    }
    Ok(())
}

/// The last value, where it is a whole number.
fn number(samples: &[Sample]) -> Option<u64> {
    samples.last().and_then(|sample| sample.whole())
}

/// Asks which clusters have samples that were filled in.
fn filled(exporters: &Exporters) -> String {
    let label = &exporters.cluster_label;
    format!("count by ({label}, __name__) ({} == 0)", exporters.select(&NEVER_ZERO, []))
}

/// Asks how many samples of each cluster stand beside a healthy revision with the same timestamp, though their exporter
/// leaves them out then.
fn restamped(exporters: &Exporters) -> String {
    let label = &exporters.cluster_label;
    let healthy = exporters.select(&[Metric::PackageHealthyRevision], []);
    let stands = |metric: &Metric| {
        let name = exporters.select(&[*metric], []);
        format!("timestamp({name}) == timestamp({healthy}) and {name} > 0")
    };
    let any = OF_TROUBLE.iter().map(stands).collect::<Vec<_>>().join(" or ");
    format!("count by ({label}) (({any}) and {healthy} > 0)")
}

/// Polls as the aggregator does, until everything adds up or it is clear that something does not.
async fn verify(
    feed: PromFeed,
    poll: PollConfig,
    settings: FleetSettings,
    ahead: Seconds,
    survey: &mut Survey,
) -> Result<(), FeedError> {
    let mut poller = Poller::new(poll, feed);
    let mut fleet = Fleet::new(settings);
    let mut torn = BTreeSet::<StreamId>::new();
    for look in 1..=LOOKS {
        survey.t = clock::now() + ahead - survey.settle;
        let report = poller.poll(&mut fleet, survey.t).await;
        if let Some(error) = report.failure {
            return Err(error);
        }
        let faulty: Vec<StreamId> =
            fleet.streams().filter(|stream| stream.fault.is_some()).map(|stream| stream.id.clone()).collect();
        if faulty.is_empty() || look == LOOKS {
            break;
        }
        // Only the next digest sample is another chance.
        let next = faulty
            .iter()
            .map(|id| survey.digests.get(&id.labels).and_then(DigestSeen::interval).unwrap_or(UNKNOWN_SCRAPE))
            .fold(1.0, f64::max);
        torn.extend(faulty);
        tokio::time::sleep(Duration::from_secs_f64(next.min(NEXT_SCRAPE))).await;
    }
    survey.streams = seen(&fleet, &torn, &survey.expectations);
    survey.streams.retain(|stream| is_current(stream, &survey.digests));
    Ok(())
}

/// Whether a stream goes on: the fleet remembers those that have ended, too.
fn is_current(stream: &StreamSeen, digests: &BTreeMap<StreamLabels, DigestSeen>) -> bool {
    let Some(seen) = digests.get(&stream.id.labels) else { return false };
    let latest = seen.stamps.last().copied().unwrap_or(f64::MIN);
    let patience = REPLACED * seen.interval().unwrap_or(UNKNOWN_SCRAPE);
    let is_heard = stream.newest.is_none_or(|newest| latest - newest <= patience);
    is_heard && (seen.uids.contains(&stream.id.uid) || stream.newest.is_none())
}

/// The streams of a fleet, which of them were torn before, and what they say of the packages that are expected.
pub(super) fn seen(
    fleet: &Fleet,
    torn: &BTreeSet<StreamId>,
    expectations: &[Expectation],
) -> Vec<StreamSeen> {
    let seen = fleet.streams().map(|stream| {
        let sources = stream.content.iter().flat_map(|content| &content.sources);
        let down = sources.filter(|source| source.up == Some(0));
        let expected = expectations.iter().filter_map(|expectation| expectation.package.as_ref());
        let packages = expected.filter_map(|package| {
            let said = of_package(stream.content?, package);
            // What it says of its own cluster as of another one counts for nobody.
            let said = said.filter(|(cluster, _)| *cluster != Some(stream.cluster));
            let said = said.map(|(cluster, it)| (cluster.unwrap_or(stream.cluster).to_owned(), it));
            let said: BTreeMap<String, bool> = said.collect();
            (!said.is_empty()).then(|| (package.clone(), said))
        });
        StreamSeen {
            cluster: stream.cluster.to_owned(),
            id: stream.id.clone(),
            newest: stream.newest,
            clock_offset: stream.clock_offset,
            fault: stream.fault.map(str::to_owned),
            was_torn: torn.contains(stream.id),
            down: down.map(|source| source.name.to_string()).collect(),
            packages: packages.collect(),
        }
    });
    seen.collect()
}

/// What the FleetPackages of the hub expect, and which gates wait for them.
pub(super) async fn expectations(client: &Client) -> Result<Vec<Expectation>, HubError> {
    let pages = || ListParams::default().limit(500);
    let gate = |object| {
        let gate = GateObject::read(object)?;
        let spec = gate.spec.ok().map(Arc::unwrap_or_clone);
        let spec = spec.filter(|spec| spec.terms.require == Require::Healthy)?;
        let package = gate.key.beside(&spec.fleet_package_ref.name);
        Some((package, GateSeen { name: gate.key.name, clusters: spec.clusters.into() }))
    };
    let listed = write::list(&write::everywhere(client, Kind::RolloutGate), pages(), gate).await?;
    let mut gates = BTreeMap::<Key, Vec<GateSeen>>::new();
    for (package, gate) in listed {
        gates.entry(package).or_default().push(gate);
    }
    let expectation = |object| {
        let package = PackageObject::read(object)?;
        let spec = package.spec.ok().map(Arc::unwrap_or_clone).filter(|spec| spec.managed_by.is_none())?;
        let stale_after = gate_verdict::stale_after(&spec)?;
        Some(Expectation {
            who: format!("FleetPackage {}", package.key),
            stale_after,
            clusters: spec.clusters.into(),
            speakers: Speakers::default(),
            package: Some(spec.package),
            gates: gates.get(&package.key).cloned().unwrap_or_default(),
        })
    };
    write::list(&write::everywhere(client, Kind::FleetPackage), pages(), expectation).await
}

/// Takes note of digests and what comes with them, by the labels of their streams. What is looked at ends at `t`.
fn heads(
    poll: &PollConfig,
    t: Seconds,
    present: Seconds,
) -> impl FnMut(&mut BTreeMap<StreamLabels, DigestSeen>, &Labels, &[Sample]) + Send + 'static {
    let ignored = poll.ignored_labels.clone();
    move |all, labels, samples| {
        let Some(metric) = labels.get("__name__").and_then(Metric::from_name) else { return };
        // Stale markers are no samples; VictoriaMetrics answers them as such.
        let samples: Vec<Sample> = samples.iter().filter(|sample| !sample.value.is_nan()).copied().collect();
        // A digest of a part of what an exporter says makes no stream.
        if samples.is_empty() || metric == Metric::Digest && labels.get(label::PACKAGE_CLUSTER).is_some() {
            return;
        }
        let split = labels.split(metric, &ignored);
        let seen = all.entry(split.stream).or_default();
        let latest = samples.iter().map(|sample| sample.at).reduce(f64::max);
        if let Some(ahead) = latest.map(|at| at - present).filter(|ahead| *ahead > 0.0) {
            seen.ahead = seen.ahead.into_iter().chain([ahead]).reduce(f64::max);
        }
        let known = samples.iter().filter(|sample| sample.at <= t);
        let said = known.clone().filter_map(|it| Some(((it.at * 1000.0).round() as i64, it.whole()?)));
        match metric {
            Metric::Digest => {
                let own =
                    |name: &str| split.own.iter().find(|(own, _)| *own == name).map(|(_, it)| it.as_str());
                seen.uids.insert(own(label::CLUSTER_UID).filter(|uid| !uid.is_empty()).map(Fingerprint::of));
                seen.contracts.insert(own(label::CONTRACT).unwrap_or_default().to_owned());
                seen.stamps.extend(known.map(|sample| sample.at));
                seen.stamps.sort_by(Seconds::total_cmp);
                seen.stamps.dedup();
            }
            Metric::ProcessNumber => seen.processes.extend(said),
            _ => seen.rendered.extend(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statusbridge_aggregator::testing::{everybody, poll_config};

    fn sample(at: Seconds, value: f64) -> Sample {
        Sample { at, value }
    }

    #[test]
    fn what_comes_with_a_digest_is_found_by_its_labels() {
        let mut note = heads(&poll_config(), 100.0, 105.0);
        let mut all = BTreeMap::new();
        let mut take = |name: &str, own: &[(&str, &str)], samples: &[Sample]| {
            let labels = [("__name__", name), ("cluster", "c"), ("package", "target")];
            note(&mut all, &labels.iter().chain(own).copied().collect(), samples);
        };
        let digests = [sample(85.0, 1.0), sample(95.0, f64::NAN), sample(100.0, 2.0), sample(3705.0, 3.0)];
        take(
            "statusbridge_digest",
            &[("contract", "2"), ("statusbridge_cluster_uid", "00000000002a")],
            &digests,
        );
        take("statusbridge_digest", &[("contract", "9")], &[sample(100.0, 2.0)]);
        take("statusbridge_digest", &[("contract", "2"), ("package_cluster", "far")], &[sample(90.0, 2.0)]);
        take("statusbridge_rendered_timestamp_seconds", &[], &digests[..1]);
        take("statusbridge_process_number", &[], &digests[2..]);
        let expected = DigestSeen {
            contracts: ["2".to_owned(), "9".to_owned()].into(),
            uids: [None, Fingerprint::from_value(42)].into(),
            stamps: vec![85.0, 100.0],
            rendered: [(85_000, 1)].into(),
            processes: [(100_000, 2)].into(),
            ahead: Some(3600.0),
        };
        let labels = statusbridge_core::testing::stream(&[("cluster", "c"), ("package", "target")]);
        assert_eq!(all, [(labels, expected)].into());
    }

    #[test]
    fn a_stream_that_has_ended_or_was_replaced_is_not_looked_at() {
        let id = |process| StreamId { process, ..StreamId::default() };
        let seen = |stamps: Vec<Seconds>| {
            let seen = DigestSeen { uids: [None].into(), stamps, ..DigestSeen::default() };
            BTreeMap::from([(StreamLabels::new(), seen)])
        };
        let of = |process, newest| StreamSeen { id: id(process), newest, ..StreamSeen::default() };
        let digests = seen(vec![40.0, 55.0, 70.0, 85.0, 100.0]);
        assert!(is_current(&of(1, Some(100.0)), &digests) && is_current(&of(2, Some(85.0)), &digests));
        assert!(!is_current(&of(1, Some(40.0)), &digests), "it was replaced");
        assert!(!is_current(&of(1, Some(100.0)), &BTreeMap::new()), "it has ended");
        assert!(is_current(&of(0, None), &digests), "nothing of it can be used, which is to be said");
    }

    #[test]
    fn queries() {
        insta::assert_snapshot!(
            filled(&everybody()),
            @r#"count by (cluster, __name__) ({__name__=~"statusbridge_(package_apply_state|package_health|package_applied_revision|package_desired_revision|package_reason|package_resources_failed)"} == 0)"#
        );
        insta::assert_snapshot!(
            restamped(&everybody()),
            @r#"count by (cluster) ((timestamp({__name__=~"statusbridge_(package_apply_state)"}) == timestamp({__name__=~"statusbridge_(package_healthy_revision)"}) and {__name__=~"statusbridge_(package_apply_state)"} > 0 or timestamp({__name__=~"statusbridge_(package_health)"}) == timestamp({__name__=~"statusbridge_(package_healthy_revision)"}) and {__name__=~"statusbridge_(package_health)"} > 0 or timestamp({__name__=~"statusbridge_(package_applied_revision)"}) == timestamp({__name__=~"statusbridge_(package_healthy_revision)"}) and {__name__=~"statusbridge_(package_applied_revision)"} > 0) and {__name__=~"statusbridge_(package_healthy_revision)"} > 0)"#
        );
    }
}
