//! `history`: what each cluster did about a package, out of the metrics backends' past.
//!
//! ```text
//!   backends --ask--> scrapes --sight--> sights by stream --follow--> looks --fold--> operations, gaps
//!                                                                                      \-> table | JSON
//! ```
//!
//! The hub stores nothing of this. What the past cannot tell is said: each transition is shown, or lies between two
//! samples of which the later one shows another, or in a time of which it is said that the package moved, or may have.

mod ask;
#[cfg(test)]
mod ask_tests;
mod fold;
mod follow;
mod plan;
mod report;
mod sight;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use statusbridge_aggregator::clock;
use statusbridge_aggregator::feed::promql::poll::PollConfig;
use statusbridge_aggregator::feed::promql::{PromFeed, QueryApi};
use statusbridge_aggregator::hub::write;
use statusbridge_api::PackageRef;
use statusbridge_api::common::duration;
use statusbridge_contract::Fingerprint;
use statusbridge_core::fleet::Speakers;
use statusbridge_core::reconcile::object::{Key, Kind, PackageObject};
use statusbridge_core::time::Seconds;

use crate::exit::Exit;
use crate::feeds::FeedArgs;
use crate::hub::Access;
use crate::output::OutputArgs;
use ask::{AskError, Backend, Question};
use fold::{Story, fold};
use report::{Cluster, Report, Verified, Words};
use sight::Scrapes;

/// Outcomes that are held against a digest: each is a query for all that a cluster's exporter says.
const MOST_VERIFIED: usize = 200;
/// Clusters of which others tell that are asked about: each takes as many queries as a backend's own clusters do.
const MOST_TOLD: usize = 100;
/// A stream has a hole when nothing is heard for this long, or for so many times its usual interval.
const HOLE: f64 = 120.0;
const HOLE_INTERVALS: f64 = 4.0;

/// Flags of `history`.
#[derive(Debug, Clone, Args)]
pub(crate) struct HistoryArgs {
    /// The FleetPackage: NAME or NAMESPACE/NAME. With --source the package itself, as clusters have it
    #[arg(value_name = "PACKAGE")]
    package: String,
    /// Ask for a package without a FleetPackage, read by this source: the hub is not asked at all
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Only these clusters, separated by commas; may be repeated
    #[arg(long = "cluster", value_name = "CLUSTER", value_delimiter = ',')]
    clusters: Vec<String>,
    /// How far back
    #[arg(long, default_value = "24h", value_parser = duration)]
    since: Duration,
    #[command(flatten)]
    feeds: FeedArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Which package is asked for, and what the hub knows of it.
struct Subject {
    package: PackageRef,
    fleet_package: Option<String>,
    /// Clusters that have to be named.
    expected: BTreeSet<String>,
    revisions: BTreeMap<Fingerprint, String>,
}

/// A cluster, and the other one whose exporter tells of it, if it is not its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Teller {
    cluster: String,
    speaker: Option<String>,
}

/// What one exporter's scrapes tell of a cluster.
struct Told {
    story: Story,
    /// Whether the outcome of each of its operations was held against a digest.
    verified: Vec<Verified>,
    /// Until when, and since when, nothing is known.
    unknown: (Option<Seconds>, Option<Seconds>),
    /// Scrapes that were not whole.
    unusable: usize,
}

/// Asks, and prints.
///
/// # Errors
/// When nothing can be printed.
pub(crate) async fn run(access: &Access, args: HistoryArgs) -> Result<Exit> {
    if args.since.is_zero() {
        return Err(Exit::Usage.error("--since must be more than 0s"));
    }
    let (mut backends, speakers, mut notes) = backends(&args.feeds)?;
    let subject = subject(access, &args).await?;
    let clusters: BTreeSet<String> = args.clusters.iter().filter(|name| !name.is_empty()).cloned().collect();
    // Whole seconds are easier to read, and to ask for again.
    let to = clock::now().floor();
    let from = to - args.since.as_secs_f64();
    let mut scrapes: BTreeMap<Teller, Scrapes> = BTreeMap::new();
    // The places of the backends that have them.
    let mut homes: BTreeMap<Teller, Vec<usize>> = BTreeMap::new();
    let mut words = Words { revisions: subject.revisions, ..Words::default() };
    let mut failures = 0;
    for (place, backend) in backends.iter_mut().enumerate() {
        let to = to - backend.config.settle;
        let package = subject.package.clone();
        let question = Question { package, clusters: clusters.clone(), elsewhere: None, from, to };
        let asked = async {
            let own = backend.ask(&question).await?;
            Ok::<_, AskError>((own, told(backend, &question, &speakers).await?))
        };
        let (own, told) = match asked.await {
            Ok(found) => found,
            Err(error) => {
                failures += 1;
                notes.push(format!("{}: {error}", name(&backend.config)));
                continue;
            }
        };
        if own.unnamed > 0 {
            let (unnamed, label) = (own.unnamed, &backend.config.exporters.cluster_label);
            notes.push(format!("{}: {unnamed} streams without the label {label}", name(&backend.config)));
        }
        if told.left_out > 0 {
            notes.push(format!(
                "{} clusters more have the package, as exporters of other clusters say: name those that you ask for with --cluster",
                told.left_out
            ));
        }
        words.reasons.extend(own.reasons.into_iter().chain(told.reasons));
        let own = own.clusters.into_iter().map(|(cluster, found)| (Teller { cluster, speaker: None }, found));
        for (teller, found) in own.chain(told.found) {
            homes.entry(teller.clone()).or_default().push(place);
            scrapes.entry(teller).or_default().absorb(found);
        }
    }
    if failures > 0 && failures == backends.len() {
        bail!("{}", notes.join("; "));
    }
    let settled = backends.iter().map(|backend| backend.config.settle).fold(0.0, f64::max);
    let mut stories = BTreeMap::new();
    for (teller, scrapes) in scrapes {
        let (streams, unusable) = scrapes.streams();
        let usual = streams.iter().filter_map(sight::Stream::interval).fold(0.0, f64::max);
        let patience = HOLE.max(HOLE_INTERVALS * usual);
        let story = fold(follow::follow(&streams, patience));
        let unknown = story.unknown(from + patience, to - settled - patience);
        let verified = vec![Verified::NotTried; story.operations.len()];
        stories.insert(teller, Told { story, verified, unknown, unusable });
    }
    attest(&mut backends, &homes, &subject.package, &mut stories, &mut notes).await;
    let wanted = if clusters.is_empty() { subject.expected } else { clusters };
    let mut all: BTreeMap<Teller, Cluster> = BTreeMap::new();
    for name in wanted.into_iter().filter(|name| stories.keys().all(|it| it.cluster != *name)) {
        all.insert(Teller { cluster: name.clone(), speaker: None }, Cluster::unknown(name));
    }
    for (teller, told) in stories {
        let (unknown_until, unknown_since) = told.unknown;
        let cluster = Cluster {
            unknown_until: unknown_until.map(report::time),
            unknown_since: unknown_since.map(report::time),
            unusable_scrapes: told.unusable,
            reported_by: teller.speaker.clone(),
            ..Cluster::new(teller.cluster.clone(), &told.story, told.verified, &words)
        };
        all.insert(teller, cluster);
    }
    let report = Report {
        package: subject.package.clone(),
        fleet_package: subject.fleet_package,
        from: report::time(from),
        to: report::time(to),
        clusters: all.into_values().collect(),
        notes,
    };
    args.output.output.print(&text::render(&report), &report)?;
    Ok(if failures > 0 { Exit::Incomplete } else { Exit::Done })
}

/// What exporters tell of the package in other clusters.
#[derive(Default)]
struct ToldOf {
    found: Vec<(Teller, Scrapes)>,
    reasons: BTreeMap<u64, String>,
    /// Clusters that are too many.
    left_out: usize,
}

/// Asks for what the exporters say of other clusters that the configuration has them speak for.
async fn told<Q: QueryApi>(
    backend: &mut Backend<Q>,
    question: &Question,
    speakers: &Speakers,
) -> Result<ToldOf, AskError> {
    let (mut told, mut count) = (ToldOf::default(), 0);
    for speaker in speakers.clusters().collect::<BTreeSet<_>>() {
        let by = Question { clusters: [speaker.to_owned()].into(), ..question.clone() };
        let is_asked = |cluster: &String| {
            let is_wanted = question.clusters.is_empty() || question.clusters.contains(cluster);
            is_wanted && speakers.believes(speaker, &question.package.source, cluster)
        };
        for cluster in backend.told_of(&by).await?.into_iter().filter(is_asked) {
            count += 1;
            if count > MOST_TOLD {
                told.left_out += 1;
                continue;
            }
            let found = backend.ask(&Question { elsewhere: Some(cluster.clone()), ..by.clone() }).await?;
            let teller = Teller { cluster, speaker: Some(speaker.to_owned()) };
            told.found.extend(found.clusters.into_values().map(|said| (teller.clone(), said)));
            told.reasons.extend(found.reasons);
        }
    }
    Ok(told)
}

/// The backends that flags and configuration name, whose exporters speak for other clusters, and what else the configuration
/// has.
fn backends(args: &FeedArgs) -> Result<(Vec<Backend<PromFeed>>, Speakers, Vec<String>)> {
    let config = args.config()?;
    let feeds = config.feeds;
    let named = args.backend.backends(&feeds).map_err(|error| Exit::Usage.error(format!("{error:#}")))?;
    let mut backends = Vec::new();
    for backend in named {
        let client = PromFeed::new(backend.config()).with_context(|| format!("backend {}", backend.name))?;
        backends.push(Backend::new(client, backend.poll(args.settle_delay)));
    }
    if backends.is_empty() {
        let none =
            "there is no backend to ask: neither --backend nor `feeds.backends` in the configuration file";
        return Err(Exit::Usage.error(none));
    }
    let mut notes = Vec::new();
    if feeds.scrape.is_some() || feeds.push.is_some() {
        notes.push("clusters that are scraped or push have no history: nothing of it is stored".to_owned());
    }
    Ok((backends, config.speakers, notes))
}

fn name(config: &PollConfig) -> String {
    match config.feed.as_ref() {
        "" => "the backend".to_owned(),
        name => format!("backend {name}"),
    }
}

/// What is asked for.
async fn subject(access: &Access, args: &HistoryArgs) -> Result<Subject> {
    let (namespace, name) = split(&args.package)?;
    if let Some(source) = &args.source {
        let (source, name) = (source.clone(), name.to_owned());
        let package = PackageRef { source, namespace: namespace.map(str::to_owned), name };
        let (expected, revisions) = (BTreeSet::new(), BTreeMap::new());
        return Ok(Subject { package, fleet_package: None, expected, revisions });
    }
    let hub = access.connect().await?;
    let key = Key { namespace: namespace.unwrap_or(&hub.namespace).to_owned(), name: name.to_owned() };
    let object = write::read(&hub.client, Kind::FleetPackage, &key)
        .await
        .with_context(|| format!("reading FleetPackage {key}"))?
        .ok_or_else(|| {
            let missing = format!("there is no FleetPackage {key}; --source asks for a package without one");
            Exit::NotFound.error(missing)
        })?;
    let object = PackageObject::read(object).context("a FleetPackage without a name")?;
    let spec = object.spec.map_err(|error| anyhow::anyhow!("FleetPackage {key}: {error}"))?;
    let status = object.status.unwrap_or_default();
    let past = status.history.into_iter().map(|entry| entry.revision);
    let words = spec.revision.iter().chain(&status.revision).chain(&status.last_healthy_revision).cloned();
    let revisions = past.chain(words).map(|word| (Fingerprint::of(&word), word)).collect();
    Ok(Subject {
        package: spec.package.clone(),
        fleet_package: Some(key.to_string()),
        expected: spec.clusters.names.iter().flatten().cloned().collect(),
        revisions,
    })
}

/// NAMESPACE/NAME or NAME; `package/NAME` as other commands have it is a name.
fn split(package: &str) -> Result<(Option<&str>, &str)> {
    let (namespace, name) = match package.split_once('/') {
        Some(("package" | "fleetpackage" | "fleetpackages" | "fpkg", name)) => (None, name),
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, package),
    };
    if name.is_empty() || name.contains('/') || namespace == Some("") {
        return Err(Exit::Usage.error(format!("{package:?} is neither NAME nor NAMESPACE/NAME")));
    }
    Ok((namespace, name))
}

/// Holds outcomes against digests, the newest first.
async fn attest(
    backends: &mut [Backend<PromFeed>],
    homes: &BTreeMap<Teller, Vec<usize>>,
    package: &PackageRef,
    stories: &mut BTreeMap<Teller, Told>,
    notes: &mut Vec<String>,
) {
    let mut work = Vec::new();
    for (teller, told) in stories {
        let outcomes = told.story.operations.iter().zip(&mut told.verified);
        work.extend(outcomes.map(|(operation, verified)| (teller, operation.evidence, verified)));
    }
    work.sort_by(|a, b| b.1.at.total_cmp(&a.1.at));
    if work.len() > MOST_VERIFIED {
        let more = work.len() - MOST_VERIFIED;
        notes.push(format!("{more} outcomes, the oldest, were not held against digests"));
    }
    for (teller, evidence, verified) in work.into_iter().take(MOST_VERIFIED) {
        let (by, elsewhere) = match &teller.speaker {
            None => (&teller.cluster, None),
            Some(speaker) => (speaker, Some(teller.cluster.as_str())),
        };
        for place in homes.get(teller).into_iter().flatten() {
            let Some(backend) = backends.get_mut(*place) else { continue };
            *verified = match backend.attest(package, by, elsewhere, &evidence).await {
                Ok(Ok(())) => Verified::Yes,
                Ok(Err(why)) => Verified::No(why),
                Err(error) => Verified::No(error.to_string()),
            };
            if *verified == Verified::Yes {
                break;
            }
        }
    }
}
