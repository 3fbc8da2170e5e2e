//! One poll: which digests there are, what they attest, whether it adds up.
//!
//! ```text
//!   digest samples since the last poll --fleet.hear--> unread --newest, in batches--> verify --> fleet.accept
//!                                                          \--older ones, too--> verify --> accept | reject
//! ```
//!
//! The first query decides whether a poll counts at all: when it fails, the fleet is left as
//! it was. What was verified before a later query failed is kept, because it was verified.

mod batch;
mod digests;
mod foreseen;
mod head;
mod look;
#[cfg(test)]
mod missing_tests;
mod part_digests;
mod parts;
#[cfg(test)]
mod parts_tests;
mod past;
mod read;
mod recognition;
#[cfg(test)]
mod refusal_tests;
mod settle;
mod sizes;
mod unknown;
mod window;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use futures::stream::{FuturesOrdered, StreamExt};
use statusbridge_core::fleet::{
    Access, DigestSample, FeedName, Fleet, Heard, MOST_LATE, MOST_STREAMS, Parts, StreamId,
};
use statusbridge_core::sample::excerpt;
use statusbridge_core::time::Seconds;
use statusbridge_core::verify::{Attested, Gathered, Stray, diagnose, verify, with_unknown};

use crate::feed::promql::{Exporters, FeedError, PromFeed, QueryApi};

pub use past::read_at;

use batch::{Batch, Limit, batches, span, tried};
use look::Looks;
use parts::Excerpt;
use read::Read;
use settle::Settle;

/// How a backend is polled.
#[derive(Debug, Clone)]
pub struct PollConfig {
    /// Name of the feed; empty for the only one.
    pub feed: FeedName,
    /// Whose samples are read.
    pub exporters: Exporters,
    /// Labels that do not tell streams apart.
    pub ignored_labels: Vec<String>,
    /// Samples asked for in one query, at most if clusters are not larger themselves.
    pub batch_samples: u64,
    /// How long samples take to become complete in the backend, at least.
    pub settle: Seconds,
    /// The same, at most: it grows when samples keep arriving torn.
    pub max_settle: Seconds,
}

impl PollConfig {
    /// As it is done where nothing else is said.
    pub fn new(exporters: Exporters) -> Self {
        Self {
            feed: FeedName::default(),
            exporters,
            ignored_labels: Vec::new(),
            // VictoriaMetrics refuses queries for more than 300,000 series, unless told otherwise.
            batch_samples: 250_000,
            settle: 5.0,
            max_settle: 30.0,
        }
    }
}

/// Problems named in a report at most.
const PROBLEMS: usize = 16;
/// How often a backend may refuse the size of a query before a poll is given up.
const MOST_REFUSALS: usize = 8;
/// Batches that are read at the same time: each takes memory.
const AT_ONCE: usize = 2;
/// Longest problem, in bytes.
const PROBLEM: usize = 600;

/// What a poll came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PollReport {
    /// Whether every query was answered.
    pub ok: bool,
    /// Why not.
    pub error: Option<String>,
    /// The same, to act upon.
    pub failure: Option<FeedError>,
    /// Streams whose newest digest is that of verified content.
    pub verified: usize,
    /// Streams of which that cannot be said.
    pub unverified: usize,
    /// Streams whose samples were read.
    pub read: usize,
    /// Of these, how many only added up when read again as they were stamped, or not even then.
    pub reread: usize,
    /// Samples received.
    pub samples: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Digests without a cluster label: they count for nobody.
    pub unnamed: usize,
    /// What is wrong, for a log: bounded.
    pub problems: Vec<String>,
}

impl PollReport {
    fn problem(&mut self, text: &str) {
        if self.problems.len() < PROBLEMS {
            self.problems.push(excerpt(text, PROBLEM));
        }
    }
}

/// Polls one backend.
#[derive(Debug)]
pub struct Poller<Q = PromFeed> {
    config: PollConfig,
    feed: Q,
    settle: Settle,
    limit: Limit,
    looks: Looks,
    parts: parts::Known,
}

/// One exposition that is to be read.
#[derive(Debug, Clone, PartialEq)]
struct Due {
    cluster: String,
    stream: StreamId,
    contract: Arc<str>,
    sample: DigestSample,
    /// None where it is not the newest.
    parts: Arc<Parts>,
}

impl Due {
    fn attested(&self) -> Attested {
        Attested { state: self.sample.exposition.state(), process: self.stream.process }
    }

    fn key(&self) -> (&str, &StreamId) {
        (&self.cluster, &self.stream)
    }
}

/// What came of reading expositions.
#[derive(Default)]
struct Outcome {
    whole: Vec<Due>,
    torn: Vec<Unverified>,
}

/// An exposition that does not add up, with what came of it.
struct Unverified {
    due: Due,
    gathered: Box<Gathered>,
    strays: Vec<Stray>,
    /// Metrics that it has and its contract version does not know.
    unknown: Vec<String>,
}

impl Poller {
    /// The backend that is polled.
    pub fn backend(&self) -> &PromFeed {
        &self.feed
    }

    /// The label that has the cluster's name there.
    pub fn cluster_label(&self) -> &str {
        &self.config.exporters.cluster_label
    }

    /// Name of the feed; empty for the only one.
    pub(crate) fn feed_name(&self) -> FeedName {
        self.config.feed.clone()
    }
}

impl<Q: QueryApi> Poller<Q> {
    /// A poller; nothing is sent yet.
    pub fn new(config: PollConfig, feed: Q) -> Self {
        let settle = Settle::new(config.settle, config.max_settle);
        let limit = Limit::new(config.batch_samples);
        Self { config, feed, settle, limit, looks: Looks::default(), parts: parts::Known::default() }
    }

    /// How far behind the present the next poll should look. It grows while streams keep arriving
    /// torn, and shrinks again.
    pub fn settle_delay(&self) -> Seconds {
        self.settle.delay()
    }

    /// Brings the fleet up to what the backend knows at `t`. Never fails: a failure is in the report,
    /// and the fleet remembers it.
    pub async fn poll(&mut self, fleet: &mut impl Access, t: Seconds) -> PollReport {
        let mut report = PollReport::default();
        let before = self.feed.received();
        // What is sent has milliseconds.
        let t = (t * 1000.0).floor() / 1000.0;
        let feed = self.config.feed.clone();
        match self.run(fleet, t, &mut report).await {
            Ok(()) => {
                fleet.with(move |fleet| fleet.answered(&feed, t)).await;
                report.ok = true;
                self.looks.answered(t);
            }
            Err(error) => {
                let text = error.to_string();
                fleet.with(move |fleet| fleet.unanswered(&feed, text)).await;
                report.error = Some(error.to_string());
                report.failure = Some(error);
            }
        }
        report.bytes = self.feed.received() - before;
        report
    }

    async fn run(
        &mut self,
        fleet: &mut impl Access,
        t: Seconds,
        report: &mut PollReport,
    ) -> Result<(), FeedError> {
        let now = t + self.settle.delay();
        let found = self.looks.look(&self.feed, &self.config, fleet, t, now).await?;
        report.samples += found.samples;
        report.unnamed = found.unnamed;
        if found.unnamed > 0 {
            let label = &self.config.exporters.cluster_label;
            report.problem(&format!(
                "{} digests have no label `{label}`: they belong to no cluster",
                found.unnamed
            ));
        }
        for cluster in &found.crowded {
            report.problem(&format!("cluster {cluster}: more than {MOST_STREAMS} streams: not all are read"));
        }
        let (digests, heard, known) = fleet
            .with(move |fleet| {
                let heard = fleet.hear_all(&found.digests, t);
                found.crowded.iter().for_each(|cluster| fleet.crowd(cluster, t));
                let unread =
                    found.digests.iter().zip(&heard).filter(|(_, heard)| matches!(heard, Heard::Unread(_)));
                let known: HashMap<String, Option<u64>> =
                    unread.map(|(it, _)| (it.cluster.to_string(), fleet.samples(&it.cluster))).collect();
                (found.digests, heard, known)
            })
            .await;
        let arrived = now - MOST_LATE;
        let mut unread = Vec::new();
        for (digests, heard) in digests.iter().zip(heard) {
            match heard {
                Heard::Confirmed => report.verified += 1,
                Heard::Unread(samples) => {
                    let newest = digests.samples.last().copied();
                    let due = tried(samples, arrived).map(|sample| Due {
                        cluster: digests.cluster.to_string(),
                        stream: digests.stream.clone(),
                        contract: digests.contract.clone(),
                        parts: if Some(sample) == newest { digests.parts.clone() } else { Arc::default() },
                        sample,
                    });
                    unread.push(due.collect::<Vec<Due>>());
                }
                Heard::Old | Heard::Unusable => report.unverified += 1,
            }
        }
        report.read = unread.len();
        if unread.is_empty() {
            self.settle.learn(0, 0);
            return Ok(());
        }
        let mut streams = HashMap::<&str, Vec<&StreamId>>::new();
        for digests in &digests {
            streams.entry(&digests.cluster).or_default().push(&digests.stream);
        }
        let sizes = sizes::read(&self.feed, &self.config, known, t).await?;
        let reader = Reader { feed: &self.feed, config: &self.config, streams, t };
        // The newest of each, and where that does not add up all of them: some samples may have been late.
        let newest = unread.iter().filter_map(|it| it.first().cloned()).collect();
        let (excerpts, newest) = self.parts.excerpts(newest, &sizes);
        let mut first = Outcome::default();
        let unread_excerpts = reader.read_excerpts(fleet, excerpts, report, &mut first).await?;
        let misled = first.torn.iter().map(|it| it.due.clone()).collect::<Vec<Due>>();
        let newest = newest.into_iter().chain(unread_excerpts).collect();
        reader.read_all(fleet, newest, &sizes, &mut self.limit, report, &mut first).await?;
        report.reread = first.torn.len();
        let torn: BTreeSet<_> = first.torn.iter().map(|it| it.due.key()).collect();
        let is_torn = |it: &Vec<Due>| it.first().is_some_and(|due| torn.contains(&due.key()));
        let all = unread.iter().filter(|it| is_torn(it)).flatten().cloned().collect();
        let mut again = Outcome::default();
        reader.read_all(fleet, all, &sizes, &mut self.limit, report, &mut again).await?;
        first.whole.iter().chain(&again.whole).for_each(|due| self.parts.note(due));
        misled.iter().for_each(|due| self.parts.forget(due));
        let heard: HashSet<_> = digests.iter().map(|it| (&*it.cluster, &it.stream)).collect();
        self.parts.retain(|cluster, stream| heard.contains(&(cluster, stream)));
        let whole: BTreeSet<_> = again.whole.iter().map(Due::key).collect();
        let mut faulty: Vec<Unverified> = Vec::new();
        for unverified in again.torn.into_iter().filter(|it| !whole.contains(&it.due.key())) {
            // The newest tells most.
            match faulty.iter_mut().find(|it| it.due.key() == unverified.due.key()) {
                Some(known) if known.due.sample.at < unverified.due.sample.at => *known = unverified,
                Some(_) => {}
                None => faulty.push(unverified),
            }
        }
        unknown::ask(&self.feed, &self.config, &mut faulty, t).await;
        for told in faulty {
            report.unverified += 1;
            report.problem(&fleet.with(move |fleet| reject(fleet, &told)).await);
        }
        // Parts that tell nothing of use are not late.
        let misled: BTreeSet<_> = misled.iter().map(Due::key).collect();
        self.settle.learn(report.read, whole.difference(&misled).count());
        Ok(())
    }
}

/// Reads expositions of one backend.
struct Reader<'a, Q> {
    feed: &'a Q,
    config: &'a PollConfig,
    /// All streams that have a digest, by cluster.
    streams: HashMap<&'a str, Vec<&'a StreamId>>,
    t: Seconds,
}

impl<Q: QueryApi> Reader<'_, Q> {
    /// Reads expositions and takes in what adds up.
    async fn read_all(
        &self,
        fleet: &mut impl Access,
        due: Vec<Due>,
        sizes: &HashMap<String, u64>,
        limit: &mut Limit,
        report: &mut PollReport,
        outcome: &mut Outcome,
    ) -> Result<(), FeedError> {
        let mut refusals = 0;
        if due.is_empty() {
            return Ok(());
        }
        let mut queue = VecDeque::from(batches(due, sizes, limit.samples()));
        // While one batch is verified, the next is on its way.
        let (mut asked, mut answers) = (VecDeque::<Batch>::new(), FuturesOrdered::new());
        loop {
            while answers.len() < AT_ONCE
                && let Some(batch) = queue.pop_front()
            {
                answers.push_back(self.read(batch.clone()));
                asked.push_back(batch);
            }
            let (Some(answer), Some(batch)) = (answers.next().await, asked.pop_front()) else { break };
            match answer {
                Ok(read) => {
                    report.samples += read.samples;
                    verify_batch(fleet, batch.due, read, self.t, report, outcome).await;
                }
                // One cluster that has too much to say takes the others down no further.
                Err(error)
                    if error.may_be_size() && batch.clusters.len() == 1 && refusals < MOST_REFUSALS =>
                {
                    refusals += 1;
                    report.problem(&format!("cluster {}: {error}", batch.clusters.concat()));
                    let keys: BTreeSet<(String, StreamId)> =
                        batch.due.into_iter().map(|due| (due.cluster, due.stream)).collect();
                    report.unverified += keys.len();
                    fleet
                        .with(move |fleet| {
                            for (cluster, stream) in &keys {
                                fleet.reject((cluster, stream), error.to_string());
                            }
                        })
                        .await;
                }
                Err(error) if error.may_be_size() && refusals < MOST_REFUSALS => {
                    refusals += 1;
                    limit.refused(batch.samples(sizes));
                    answers = FuturesOrdered::new();
                    let left = [batch].into_iter().chain(asked.drain(..)).chain(queue);
                    queue = batches(left.flat_map(|b| b.due).collect(), sizes, limit.samples()).into();
                }
                Err(error) => return Err(error),
            }
        }
        if refusals == 0 {
            limit.served();
        }
        Ok(())
    }

    /// The same of expositions of which a part is known. Gives those that have to be read as a whole nonetheless, all that are left
    /// when the backend refuses one.
    async fn read_excerpts(
        &self,
        fleet: &mut impl Access,
        excerpts: Vec<Excerpt>,
        report: &mut PollReport,
        outcome: &mut Outcome,
    ) -> Result<Vec<Due>, FeedError> {
        let (mut unread, mut is_refused) = (Vec::new(), false);
        for excerpt in excerpts {
            // What is kept takes as much memory as what is read.
            let kept = if is_refused { None } else { excerpt.kept(fleet).await };
            let Excerpt { cluster, others, due } = excerpt;
            let Some(kept) = kept else {
                unread.extend(due);
                continue;
            };
            let selector = self.config.exporters.attested_of(&cluster, others.iter().map(AsRef::as_ref));
            let read = self.sink(&[cluster], &due).beside(kept);
            match self.query(selector, &due, read).await {
                Ok(read) => {
                    report.samples += read.samples;
                    verify_batch(fleet, due, read, self.t, report, outcome).await;
                }
                Err(error) if error.may_be_size() => {
                    is_refused = true;
                    unread.extend(due);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(unread)
    }

    async fn read(&self, batch: Batch) -> Result<Read, FeedError> {
        let selector = self.config.exporters.attested(batch.clusters.iter().map(String::as_str));
        self.query(selector, &batch.due, self.sink(&batch.clusters, &batch.due)).await
    }

    fn sink(&self, clusters: &[String], due: &[Due]) -> Read {
        let streams = clusters.iter().filter_map(|cluster| self.streams.get(cluster.as_str()));
        Read::new(self.config, due, streams.flatten().copied())
    }

    async fn query(&self, selector: String, due: &[Due], read: Read) -> Result<Read, FeedError> {
        let (first, last) = span(due);
        // Backends leave out, or take in, what is stamped at the very beginning.
        let window = ((last - first) * 1000.0).round() as u64 + 500;
        self.feed.query(&(selector + &format!("[{window}ms]")), last, read).await
    }
}

/// Notes what does not add up, and says why.
fn reject(fleet: &mut Fleet, Unverified { due, gathered, strays, unknown }: &Unverified) -> String {
    let last = fleet.verified(&due.cluster, &due.stream);
    let fault = diagnose(gathered, due.attested(), &due.stream.labels, last, strays);
    let fault = with_unknown(fault, &due.contract, unknown);
    let problem = format!("cluster {}: {fault}", due.cluster);
    fleet.reject(due.key(), fault);
    problem
}

/// Verifies what was read.
async fn verify_batch(
    fleet: &mut impl Access,
    due: Vec<Due>,
    read: Read,
    t: Seconds,
    report: &mut PollReport,
    outcome: &mut Outcome,
) {
    let mut whole = Vec::new();
    let (gathered, strays) = read.finish();
    for (due, gathered) in due.into_iter().zip(gathered) {
        match verify(gathered, due.attested()) {
            Ok(content) => whole.push((due, content)),
            Err(gathered) => {
                let strays = strays.get(&due.cluster).cloned().unwrap_or_default();
                outcome.torn.push(Unverified { due, gathered, strays, unknown: Vec::new() });
            }
        }
    }
    report.verified += whole.iter().map(|(due, _)| due.key()).collect::<BTreeSet<_>>().len();
    let (whole, claims): (Vec<Due>, Vec<String>) = fleet
        .with(move |fleet| {
            let (mut all, mut claims) = (Vec::new(), Vec::new());
            for (due, content) in whole {
                let accepted = fleet.accept(due.key(), &due.sample, content, t);
                claims.extend(
                    accepted
                        .claims
                        .into_iter()
                        .chain(accepted.refused)
                        .map(|claim| format!("cluster {}: {claim}", due.cluster)),
                );
                all.push(due);
            }
            (all, claims)
        })
        .await;
    outcome.whole.extend(whole);
    claims.iter().for_each(|claim| report.problem(claim));
}
