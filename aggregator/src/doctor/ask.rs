//! Asks backend and hub what the doctor wants to know.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use statusbridge_contract::stream::{self, StreamLabels};
use statusbridge_contract::{Metric, label};

use super::cluster_label::candidates;
use super::survey::{DigestSeen, Limit, StreamSeen, Survey};
use crate::api::{FleetPackageSpec, FleetPackageStatus};
use crate::clock::{self, Seconds};
use crate::feed::{FeedConfig, FeedError, Labels, PromFeed, QueryApi as _, Sample, Sink};
use crate::fleet::{Fleet, FleetSettings};
use crate::poll::{PollConfig, Poller};
use crate::reading;
use crate::store::Object;
use crate::write::{HubError, Kind, in_time};

/// How often streams that do not add up are looked at.
const LOOKS: usize = 3;
/// How far back scrapes are counted.
const WINDOW: &str = "10m";
/// Longest wait for the next scrape.
const NEXT_SCRAPE: Seconds = 60.0;
/// Wait for the next scrape where nobody knows when it comes.
const UNKNOWN_SCRAPE: Seconds = 15.0;

/// Own labels whose names a target may bear too, and a metric that has them.
const OWN_LABELS: [(&str, Metric); 4] = [
    (label::PACKAGE, Metric::PackageHealth),
    (label::PACKAGE_NAMESPACE, Metric::PackageHealth),
    (label::PACKAGE_SOURCE, Metric::SourceUp),
    (label::CONTRACT, Metric::Digest),
];

/// How to ask.
pub(super) struct Questions {
    pub(super) feed: FeedConfig,
    pub(super) poll: PollConfig,
    pub(super) fleet: FleetSettings,
    pub(super) limits: Vec<Limit>,
}

/// Looks at everything.
///
/// # Errors
/// When the backend gives no usable answer, other than that it is partial or that clocks differ:
/// those are findings.
pub(super) async fn survey(questions: Questions) -> Result<Survey, FeedError> {
    let Questions { feed: config, mut poll, fleet: settings, limits } = questions;
    let mut survey = Survey {
        settle: poll.settle,
        max_clock_skew: settings.max_clock_skew,
        cluster_label: poll.cluster_label.clone(),
        flavour: config.flavour,
        limits,
        ..Survey::default()
    };
    let feed = PromFeed::new(config.clone())?;
    survey.found_flavour = feed.probe().await;
    let asked = async {
        let (feed, ahead) = match feed.query("vector(0)", clock::now(), Nothing).await {
            Err(FeedError::ClockDisagrees { ahead }) => {
                survey.clock_ahead = Some(ahead);
                (PromFeed::new(FeedConfig { max_clock_skew: Duration::MAX, ..config })?, ahead)
            }
            answered => answered.map(|Nothing| (feed, 0.0))?,
        };
        survey.t = clock::now() + ahead - survey.settle;
        look(&feed, &poll, &mut survey).await?;
        let named = |labels: &StreamLabels| labels.contains_key(&survey.cluster_label);
        if !survey.digests.keys().any(named)
            && let Some(candidate) = candidates(&survey.digests).into_iter().next()
        {
            // As if the advice had been taken, so that everything is said at once.
            poll.cluster_label = candidate.label;
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
    let t = survey.t;
    let ours = |metric: Metric| Series::of(metric, &poll.ignored_labels);
    let digests = feed.query(Metric::Digest.name(), t, ours(Metric::Digest)).await?;
    let uids = feed.query(Metric::ClusterUid.name(), t, ours(Metric::ClusterUid)).await?;
    let window = format!("{}[{WINDOW}]", Metric::Digest.name());
    let stamps = feed.query(&window, t, ours(Metric::Digest)).await?;
    for labels in digests.all.into_keys() {
        let uid = uids.all.get(&labels).and_then(|samples| samples.last()?.whole());
        let stamps = stamps.all.get(&labels).map(|samples| samples.iter().map(|sample| sample.at).collect());
        survey.digests.insert(labels, DigestSeen { uid, stamps: stamps.unwrap_or_default() });
    }
    // Those that each cluster has a few of; what is missing of packages shows when they are verified.
    let few: Vec<&str> = Metric::ALL.iter().filter(|m| !m.per_package()).map(|m| m.name()).collect();
    let names = format!("count by (__name__) ({{__name__=~\"{}\"}})", few.join("|"));
    survey.metrics = feed.query(&names, t, Names::default()).await?.0;
    for (own, metric) in OWN_LABELS {
        let query = format!("count({}{{exported_{own}!=\"\"}})", metric.name());
        let count = feed.query(&query, t, Count::default()).await?.0;
        if count > 0 {
            survey.collisions.insert(own.to_owned(), count);
        }
    }
    Ok(())
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
    let mut torn = BTreeSet::<StreamLabels>::new();
    for look in 1..=LOOKS {
        survey.t = clock::now() + ahead - survey.settle;
        let report = poller.poll(&mut fleet, survey.t).await;
        if let Some(error) = report.failure {
            return Err(error);
        }
        let faulty: Vec<StreamLabels> = fleet
            .streams()
            .filter(|stream| stream.fault.is_some())
            .map(|stream| stream.labels.clone())
            .collect();
        if faulty.is_empty() || look == LOOKS {
            break;
        }
        // Only the next digest sample is another chance.
        let next = faulty
            .iter()
            .map(|labels| survey.digests.get(labels).and_then(DigestSeen::interval).unwrap_or(UNKNOWN_SCRAPE))
            .fold(1.0, f64::max);
        torn.extend(faulty);
        tokio::time::sleep(Duration::from_secs_f64(next.min(NEXT_SCRAPE))).await;
    }
    survey.streams = seen(&fleet, &torn);
    Ok(())
}

/// The streams of a fleet, and which of them were torn before.
pub(super) fn seen(fleet: &Fleet, torn: &BTreeSet<StreamLabels>) -> Vec<StreamSeen> {
    let seen = fleet.streams().map(|stream| StreamSeen {
        cluster: stream.cluster.to_owned(),
        labels: stream.labels.clone(),
        newest: stream.newest,
        clock_offset: stream.clock_offset,
        fault: stream.fault.map(str::to_owned),
        was_torn: torn.contains(stream.labels),
        down: stream
            .content
            .iter()
            .flat_map(|content| &content.sources)
            .filter(|source| source.up == Some(0))
            .map(|source| source.name.to_string())
            .collect(),
    });
    seen.collect()
}

/// How old evidence may be, by the FleetPackages of the hub.
pub(super) async fn limits(client: &Client) -> Result<Vec<Limit>, HubError> {
    let packages = Kind::FleetPackage.everywhere(client);
    let mut page = ListParams::default().limit(500);
    let mut limits = Vec::new();
    loop {
        let list = in_time(packages.list(&page)).await?;
        let objects = list.items.into_iter().filter_map(Object::<FleetPackageSpec, FleetPackageStatus>::read);
        limits.extend(objects.filter_map(|object| {
            let spec = object.spec.ok().filter(|spec| spec.managed_by.is_none())?;
            Some(Limit {
                who: format!("FleetPackage {}", object.key),
                stale_after: reading::stale_after(&spec)?,
                clusters: spec.clusters.names.map(|names| names.into_iter().collect()),
            })
        }));
        match list.metadata.continue_ {
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            _ => return Ok(limits),
        }
    }
}

struct Nothing;

impl Sink for Nothing {
    fn series(&mut self, _: &Labels, _: &[Sample]) {}
}

/// Samples of a metric, by stream.
struct Series {
    metric: Metric,
    ignored: Vec<String>,
    all: BTreeMap<StreamLabels, Vec<Sample>>,
}

impl Series {
    fn of(metric: Metric, ignored: &[String]) -> Self {
        Self { metric, ignored: ignored.to_vec(), all: BTreeMap::new() }
    }
}

impl Sink for Series {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        let owned = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let labels = stream::split(self.metric, owned, &self.ignored).stream;
        self.all.entry(labels).or_default().extend_from_slice(samples);
    }
}

/// Names of metrics.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl Sink for Names {
    fn series(&mut self, labels: &Labels, _: &[Sample]) {
        self.0.extend(labels.get("__name__").map(str::to_owned));
    }
}

/// The only number of an answer.
#[derive(Default)]
struct Count(u64);

impl Sink for Count {
    fn series(&mut self, _: &Labels, samples: &[Sample]) {
        self.0 = samples.last().and_then(|sample| sample.whole()).unwrap_or_default();
    }
}
