//! Asks a backend for a package's past.
//!
//! ```text
//!   which streams? --> a coarse look at each part of the time --plan--> every scrape where something moved
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};

use statusbridge_aggregator::feed::promql::fold::fold;
use statusbridge_aggregator::feed::promql::poll::{self, PollConfig};
use statusbridge_aggregator::feed::promql::{FeedError, Place, QueryApi};
use statusbridge_api::PackageRef;
use statusbridge_contract::{Metric, label};
use statusbridge_core::fleet::{IdentityLabels, key};
use statusbridge_core::sample::{Labels, Sample, Sink};
use statusbridge_core::time::Seconds;
use statusbridge_core::verify::Content;

use super::fold::Evidence;
use super::plan::{self, Piece, Window};
use super::sight::{COARSE_SERIES, MOVES, OF_PACKAGE, SERIES, Scrapes, State, place};

/// Samples that are received of one backend at most.
const MOST_SAMPLES: u64 = 50_000_000;

/// Why a backend's history cannot be told.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// It gave no whole answer.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// It would be more than this program takes.
    #[error("these are more than {MOST_SAMPLES} samples: ask for fewer clusters or a shorter time")]
    TooMuch,
}

/// What is asked.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// The package.
    pub(super) package: PackageRef,
    /// By which clusters' exporters; by all when empty.
    pub(super) clusters: BTreeSet<String>,
    /// In which other cluster than theirs it runs.
    pub(super) elsewhere: Option<String>,
    /// From when on.
    pub(super) from: Seconds,
    /// Until when.
    pub(super) to: Seconds,
}

/// What a backend knows.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// By cluster, every cluster that has had the package.
    pub(super) clusters: HashMap<String, Scrapes>,
    /// Words for codes of reasons.
    pub(super) reasons: BTreeMap<u64, String>,
    /// Digests without a cluster label: they count for nobody.
    pub(super) unnamed: usize,
}

/// By the labels that packages have in them and by cluster: how many scrapes each stream has.
type Groups = BTreeMap<IdentityLabels, BTreeMap<String, Vec<u64>>>;

/// One backend.
pub(super) struct Backend<Q> {
    /// What asks it.
    pub(super) feed: Q,
    /// How its streams are told apart.
    pub(super) config: PollConfig,
    received: u64,
}

impl<Q: QueryApi> Backend<Q> {
    /// Nothing is sent yet.
    pub(super) fn new(feed: Q, config: PollConfig) -> Self {
        Self { feed, config, received: 0 }
    }

    /// Reads the past.
    ///
    /// # Errors
    /// When any part of it cannot be had: what is missing here would look as if nothing had happened.
    pub(super) async fn ask(&mut self, question: &Question) -> Result<Found, AskError> {
        let mut found = Found::default();
        for part in plan::parts(question.from, question.to) {
            let (groups, unnamed) = self.streams(question, part).await?;
            found.unnamed = found.unnamed.max(unnamed);
            let mut coarse = HashMap::new();
            let step = plan::step(part);
            let looks = COARSE_SERIES as u64 * ((part.1 - part.0) / step) as u64;
            for (labels, clusters) in &groups {
                let sizes =
                    clusters.iter().map(|(name, streams)| (name.clone(), streams.len() as u64 * looks));
                let pieces = plan::pieces(part, sizes, self.config.batch_samples);
                self.read(question, labels, pieces, Some(step), &mut coarse).await?;
            }
            // Where it was before, it has to be told that it is there no more.
            coarse.retain(|cluster, scrapes: &mut Scrapes| {
                scrapes.has_package() || found.clusters.contains_key(cluster)
            });
            for (labels, clusters) in &groups {
                let mut windows: BTreeMap<Window, Vec<(String, u64)>> = BTreeMap::new();
                for (cluster, scrapes) in clusters {
                    let looks = coarse.get(cluster).into_iter().flat_map(Scrapes::by_stream);
                    for window in plan::moved(part, step, looks) {
                        let share = (window.1 - window.0) as f64 / (part.1 - part.0).max(1) as f64;
                        let samples = SERIES as f64 * share * scrapes.iter().sum::<u64>() as f64;
                        windows.entry(window).or_default().push((cluster.clone(), samples as u64));
                    }
                }
                for (window, sizes) in windows {
                    let pieces = plan::pieces(window, sizes, self.config.batch_samples);
                    self.read(question, labels, pieces, None, &mut found.clusters).await?;
                }
            }
            found.reasons.extend(self.reasons(question, part).await?);
        }
        found.clusters.values_mut().for_each(|scrapes| scrapes.begin_at(question.from));
        Ok(found)
    }

    /// The other clusters in which the exporter of one said at some time that the package runs.
    ///
    /// # Errors
    /// When that cannot be had as a whole.
    pub(super) async fn told_of(&self, question: &Question) -> Result<BTreeSet<String>, AskError> {
        let mut told = BTreeSet::new();
        for part in plan::parts(question.from, question.to) {
            let (groups, _) = self.streams(question, part).await?;
            let clusters = question.clusters.iter().map(String::as_str);
            for labels in groups.keys() {
                let exporters = &self.config.exporters;
                let packages =
                    exporters.package(MOVES, clusters.clone(), labels, &question.package, Place::Elsewhere);
                let query = format!("count_over_time({packages}[{}ms])", part.1 - part.0);
                let note = |told: &mut BTreeSet<String>, labels: &Labels, _: &[Sample]| {
                    let own = labels.split(Metric::PackageTransitionTimestamp, &[]).own;
                    told.extend(
                        own.into_iter().filter(|(name, _)| *name == label::PACKAGE_CLUSTER).map(|(_, it)| it),
                    );
                };
                told.extend(fold(&self.feed, &query, end(part), note).await?);
            }
        }
        Ok(told)
    }

    /// The streams of a part of the time, and how many there are besides without a cluster label.
    async fn streams(&self, question: &Question, part: Window) -> Result<(Groups, usize), AskError> {
        let digests = self.of_clusters(question, Metric::Digest);
        let query = format!("count_over_time({digests}[{}ms])", part.1 - part.0);
        let cluster_label = self.config.exporters.cluster_label.clone();
        let count = move |(groups, unnamed): &mut (Groups, usize), labels: &Labels, samples: &[Sample]| {
            let split = labels.split(Metric::Digest, &[]);
            // A part of what an exporter says.
            if split.own.iter().any(|(name, _)| *name == label::PACKAGE_CLUSTER) {
                return;
            }
            let stream = split.stream;
            let Some(cluster) = stream.get(&cluster_label).filter(|c| !c.is_empty()) else {
                *unnamed += 1;
                return;
            };
            let scrapes = samples.last().and_then(|s| s.whole()).unwrap_or_default().max(1);
            let group = groups.entry(IdentityLabels::of(&stream)).or_default();
            group.entry(cluster.clone()).or_default().push(scrapes);
        };
        Ok(fold(&self.feed, &query, end(part), count).await?)
    }

    /// Reads scrapes, or looks at distances of `step`, piece by piece; what is too large is halved.
    async fn read(
        &mut self,
        question: &Question,
        labels: &IdentityLabels,
        mut pieces: Vec<Piece>,
        step: Option<i64>,
        into: &mut HashMap<String, Scrapes>,
    ) -> Result<(), AskError> {
        while let Some(piece) = pieces.pop() {
            match (self.piece(question, labels, &piece, step).await, piece.halves()) {
                (Ok(read), _) => {
                    for (cluster, scrapes) in read {
                        into.entry(cluster).or_default().absorb(scrapes);
                    }
                }
                (Err(AskError::Feed(error)), Some(halves)) if error.may_be_size() => pieces.extend(halves),
                (Err(error), _) => return Err(error),
            }
        }
        Ok(())
    }

    async fn piece(
        &mut self,
        question: &Question,
        labels: &IdentityLabels,
        piece: &Piece,
        step: Option<i64>,
    ) -> Result<HashMap<String, Scrapes>, AskError> {
        let (from, to) = piece.window;
        let (metrics, of_exporter, step): (_, &[Metric], _) = match step {
            Some(step) => (MOVES, &[Metric::ProcessNumber], format!(":{step}ms")),
            None => (OF_PACKAGE, &[Metric::ProcessNumber, Metric::RenderedTimestamp], String::new()),
        };
        let range = format!("[{}ms{step}]", to - from);
        let clusters = || piece.clusters.iter().map(String::as_str);
        let exporters = &self.config.exporters;
        let package = exporters.package(
            metrics,
            clusters(),
            labels,
            &question.package,
            question.elsewhere.as_deref().map_or(Place::Own, Place::In),
        );
        let of_exporter = exporters.select(of_exporter, clusters());
        let of_source = exporters.source(&[Metric::SourceUp], clusters(), labels, &question.package.source);
        let mut read = Read::new(&self.config);
        for selector in [package, of_exporter, of_source] {
            let before = read.samples;
            read = self.feed.query(&(selector + &range), end(piece.window), read).await?;
            self.received += read.samples - before;
            if self.received > MOST_SAMPLES {
                return Err(AskError::TooMuch);
            }
        }
        Ok(read.clusters)
    }

    async fn reasons(&self, question: &Question, part: Window) -> Result<BTreeMap<u64, String>, AskError> {
        let info = self.of_clusters(question, Metric::ReasonInfo);
        let query = format!(
            "max by ({}, {}) (max_over_time({info}[{}ms]))",
            label::CODE,
            label::REASON,
            part.1 - part.0
        );
        let note = |words: &mut BTreeMap<u64, String>, labels: &Labels, _: &[Sample]| {
            let code = labels.get(label::CODE).and_then(|code| code.parse().ok());
            words.extend(code.zip(labels.get(label::REASON).map(str::to_owned)));
        };
        Ok(fold(&self.feed, &query, end(part), note).await?)
    }

    fn of_clusters(&self, question: &Question, metric: Metric) -> String {
        let clusters = question.clusters.iter().map(String::as_str);
        self.config.exporters.select(&[metric], clusters)
    }

    /// Whether an exposition that adds up says what an outcome rests on; if not, why not.
    ///
    /// # Errors
    /// When the backend gives no whole answer.
    pub(super) async fn attest(
        &mut self,
        package: &PackageRef,
        cluster: &str,
        elsewhere: Option<&str>,
        evidence: &Evidence,
    ) -> Result<Result<(), String>, AskError> {
        let mut why = "no digest is there for it";
        for content in poll::read_at(&self.feed, &self.config, cluster, evidence.at).await? {
            match content {
                Some(content) if says(&content, package, elsewhere, evidence.package) => return Ok(Ok(())),
                Some(_) => why = "what adds up says something else",
                None => why = "the samples do not add up to the digest",
            }
        }
        Ok(Err(why.to_owned()))
    }
}

fn end((_, to): Window) -> Seconds {
    to as Seconds / 1000.0
}

/// Whether verified content has the package in just this state.
fn says(content: &Content, package: &PackageRef, elsewhere: Option<&str>, state: Option<State>) -> bool {
    let key = key(package);
    let found = match elsewhere {
        None => content.find(&key).map(|(_, package)| package),
        Some(cluster) => {
            content.find_elsewhere(&key).find(|(it, _)| *it == cluster).map(|(_, package)| package)
        }
    };
    let found = found.map(|package| State::of(&package));
    content.is_up(&package.source) && found == state
}

/// Scrapes by cluster.
struct Read {
    config: PollConfig,
    clusters: HashMap<String, Scrapes>,
    samples: u64,
}

impl Read {
    fn new(config: &PollConfig) -> Self {
        Self { config: config.clone(), clusters: HashMap::new(), samples: 0 }
    }
}

impl Sink for Read {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        self.samples += samples.len() as u64;
        let Some(metric) = labels.get("__name__").and_then(Metric::from_name) else { return };
        let cluster = labels.get(&self.config.exporters.cluster_label);
        let (Some(place), Some(cluster)) = (place(metric), cluster) else { return };
        let stream = (self.config.feed.clone(), labels.split(metric, &self.config.ignored_labels).stream);
        self.clusters.entry(cluster.to_owned()).or_default().add(stream, place, samples);
    }
}
