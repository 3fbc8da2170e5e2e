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
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use statusbridge_api::PackageRef;
use statusbridge_api::common::duration;
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::store::{Key, Kind, PackageObject};
use statusbridge_core::time::Seconds;

use crate::clock;
use crate::feed::flags::BackendArgs;
use crate::feed::promql::PromFeed;
use crate::feed::promql::poll::PollConfig;
use crate::hub::access::Access;
use crate::hub::write;
use crate::serve::config::ConfigFile;
use ask::{Backend, Found, Question};
use fold::{Story, fold};
use report::{Cluster, Report, Verified, Words};
use sight::Scrapes;

/// Outcomes that are held against a digest: each is a query for all that a cluster's exporter says.
const MOST_VERIFIED: usize = 200;
/// A stream has a hole when nothing is heard for this long, or for so many times its usual interval.
const HOLE: f64 = 120.0;
const HOLE_INTERVALS: f64 = 4.0;

/// Flags of `history`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub struct HistoryArgs {
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
    backend: BackendArgs,
    /// How far behind the present the backend is asked, as for serve
    #[arg(long, env = "STATUSBRIDGE_SETTLE_DELAY", default_value = "5s", value_parser = duration)]
    settle_delay: Duration,
    /// The aggregator's configuration file: its backends are asked too
    #[arg(long, env = "STATUSBRIDGE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
    /// Namespace of the FleetPackage [default: that of the context]
    #[arg(long, short)]
    namespace: Option<String>,
    /// Form of what is printed
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  everything that was asked for is printed
  1  nothing can be printed
  2  wrong arguments
  3  a backend could not be asked: its clusters are missing";

/// Form of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table for people.
    Text,
    /// One JSON object.
    Json,
}

/// Which package is asked for, and what the hub knows of it.
struct Subject {
    package: PackageRef,
    fleet_package: Option<String>,
    /// Clusters that have to be named.
    expected: BTreeSet<String>,
    revisions: BTreeMap<Fingerprint, String>,
}

/// What one cluster's scrapes tell.
struct Told {
    story: Story,
    /// Whether the outcome of each of its operations was held against a digest.
    verified: Vec<Verified>,
    /// Until when, and since when, nothing is known.
    unknown: (Option<Seconds>, Option<Seconds>),
    /// Scrapes that were not whole.
    unusable: usize,
}

/// Asks, prints, and gives the exit code.
///
/// # Errors
/// When nothing can be printed.
pub async fn history(args: HistoryArgs) -> Result<u8> {
    if args.since.is_zero() {
        bail!("--since must be more than 0s");
    }
    let (mut backends, mut notes) = backends(&args)?;
    let subject = subject(&args).await?;
    let clusters: BTreeSet<String> = args.clusters.iter().filter(|name| !name.is_empty()).cloned().collect();
    // Whole seconds are easier to read, and to ask for again.
    let to = clock::now().floor();
    let from = to - args.since.as_secs_f64();
    let mut scrapes: BTreeMap<String, Scrapes> = BTreeMap::new();
    let mut homes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut words = Words { revisions: subject.revisions, ..Words::default() };
    let mut failures = 0;
    for (place, backend) in backends.iter_mut().enumerate() {
        let to = to - backend.config.settle;
        let question = Question { package: subject.package.clone(), clusters: clusters.clone(), from, to };
        let found = match backend.ask(&question).await {
            Ok(found) => found,
            Err(error) => {
                failures += 1;
                notes.push(format!("{}: {error}", name(&backend.config)));
                continue;
            }
        };
        let Found { clusters, reasons, unnamed } = found;
        words.reasons.extend(reasons);
        if unnamed > 0 {
            let label = &backend.config.exporters.cluster_label;
            notes.push(format!("{}: {unnamed} streams without the label {label}", name(&backend.config)));
        }
        for (cluster, found) in clusters {
            homes.entry(cluster.clone()).or_default().push(place);
            scrapes.entry(cluster).or_default().absorb(found);
        }
    }
    if failures > 0 && failures == backends.len() {
        bail!("{}", notes.join("; "));
    }
    let settled = backends.iter().map(|backend| backend.config.settle).fold(0.0, f64::max);
    let mut stories = BTreeMap::new();
    for (cluster, scrapes) in scrapes {
        let (streams, unusable) = scrapes.streams();
        let usual = streams.iter().filter_map(sight::Stream::interval).fold(0.0, f64::max);
        let patience = HOLE.max(HOLE_INTERVALS * usual);
        let story = fold(follow::follow(&streams, patience));
        let unknown = story.unknown(from + patience, to - settled - patience);
        let verified = vec![Verified::NotTried; story.operations.len()];
        stories.insert(cluster, Told { story, verified, unknown, unusable });
    }
    attest(&mut backends, &homes, &subject.package, &mut stories, &mut notes).await;
    let mut all: BTreeMap<String, Cluster> = BTreeMap::new();
    let wanted = if clusters.is_empty() { subject.expected } else { clusters };
    for (name, told) in stories {
        let (unknown_until, unknown_since) = told.unknown;
        let cluster = Cluster {
            unknown_until: unknown_until.map(report::time),
            unknown_since: unknown_since.map(report::time),
            unusable_scrapes: told.unusable,
            ..Cluster::new(name.clone(), &told.story, told.verified, &words)
        };
        all.insert(name, cluster);
    }
    for name in wanted {
        all.entry(name.clone()).or_insert_with(|| Cluster::unknown(name));
    }
    let report = Report {
        package: subject.package.clone(),
        fleet_package: subject.fleet_package,
        from: report::time(from),
        to: report::time(to),
        clusters: all.into_values().collect(),
        notes,
    };
    match args.output {
        Output::Text => print!("{}", text::render(&report)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report).context("writing the history")?),
    }
    Ok(if failures > 0 { 3 } else { 0 })
}

/// The backends that flags and configuration name, and what else the configuration has.
fn backends(args: &HistoryArgs) -> Result<(Vec<Backend<PromFeed>>, Vec<String>)> {
    let file = ConfigFile::open(args.config.clone())?;
    let feeds = &file.current().feeds;
    let mut backends = Vec::new();
    for backend in args.backend.backends(feeds)? {
        let client = PromFeed::new(backend.config()).with_context(|| format!("backend {}", backend.name))?;
        backends.push(Backend::new(client, backend.poll(args.settle_delay)));
    }
    if backends.is_empty() {
        bail!("there is no backend to ask: neither --backend nor `feeds.backends` in the configuration file");
    }
    let mut notes = Vec::new();
    if feeds.scrape.is_some() || feeds.push.is_some() {
        notes.push("clusters that are scraped or push have no history: nothing of it is stored".to_owned());
    }
    Ok((backends, notes))
}

fn name(config: &PollConfig) -> String {
    match config.feed.as_ref() {
        "" => "the backend".to_owned(),
        name => format!("backend {name}"),
    }
}

/// What is asked for.
async fn subject(args: &HistoryArgs) -> Result<Subject> {
    let (namespace, name) = split(&args.package)?;
    if let Some(source) = &args.source {
        let (source, name) = (source.clone(), name.to_owned());
        let package = PackageRef { source, namespace: namespace.map(str::to_owned), name };
        let (expected, revisions) = (BTreeSet::new(), BTreeMap::new());
        return Ok(Subject { package, fleet_package: None, expected, revisions });
    }
    let (client, namespace) = args.access.connect(namespace.or(args.namespace.as_deref())).await?;
    let key = Key { namespace, name: name.to_owned() };
    let object = write::read(&client, Kind::FleetPackage, &key)
        .await
        .with_context(|| format!("reading FleetPackage {key}"))?
        .with_context(|| {
            format!("there is no FleetPackage {key}; --source asks for a package without one")
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
        expected: spec.clusters.names.into_iter().flatten().collect(),
        revisions,
    })
}

/// NAMESPACE/NAME or NAME; `fleetpackage/NAME` as other subcommands have it is a name.
fn split(package: &str) -> Result<(Option<&str>, &str)> {
    let (namespace, name) = match package.split_once('/') {
        Some(("fleetpackage" | "fleetpackages" | "fpkg", name)) => (None, name),
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, package),
    };
    if name.is_empty() || name.contains('/') || namespace == Some("") {
        bail!("{package:?} is neither NAME nor NAMESPACE/NAME");
    }
    Ok((namespace, name))
}

/// Holds outcomes against digests, the newest first.
async fn attest(
    backends: &mut [Backend<PromFeed>],
    homes: &BTreeMap<String, Vec<usize>>,
    package: &PackageRef,
    stories: &mut BTreeMap<String, Told>,
    notes: &mut Vec<String>,
) {
    let mut work = Vec::new();
    for (cluster, told) in stories {
        let outcomes = told.story.operations.iter().zip(&mut told.verified);
        work.extend(outcomes.map(|(operation, verified)| (cluster, operation.evidence, verified)));
    }
    work.sort_by(|a, b| b.1.at.total_cmp(&a.1.at));
    if work.len() > MOST_VERIFIED {
        let more = work.len() - MOST_VERIFIED;
        notes.push(format!("{more} outcomes, the oldest, were not held against digests"));
    }
    for (cluster, evidence, verified) in work.into_iter().take(MOST_VERIFIED) {
        for place in homes.get(cluster).into_iter().flatten() {
            let Some(backend) = backends.get_mut(*place) else { continue };
            *verified = match backend.attest(package, cluster, &evidence).await {
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
