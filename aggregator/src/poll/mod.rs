//! One poll: which digests moved, what they attest, whether it adds up.
//!
//! ```text
//!   heads at T --> beats --fleet.hear--> unread --batches at T--> verify --> fleet.accept
//!                                                                   \--raw, as stamped--> verify --> accept | reject
//! ```
//!
//! The head queries decide whether a poll counts at all: when one of them fails, the fleet is left as
//! it was. What was verified before a later query failed is kept, because it was verified.

mod batch;
mod columns;
mod heads;
mod look_back;
mod read;
#[cfg(test)]
mod refusal_tests;
mod settle;
mod unknown;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use futures::stream::{FuturesOrdered, StreamExt};
use statusbridge_contract::stream::StreamLabels;

use crate::{
    checks::Asker,
    clock::Seconds,
    feed::{FeedError, PromFeed, QueryApi, contract_selector, excerpt},
    fleet::{Access, Beat, FeedName, Fleet, Heard, TURNS_UNTOLD},
    verify::{Gathered, Stray, diagnose, verify, with_unknown},
};
use batch::{Batch, Limit, batches, stamp_groups};
#[cfg(test)]
pub(crate) use heads::{lately_query, stamp_query, value_query};
pub use look_back::{Look, LookedBack};
use read::Read;
use settle::Settle;

/// How a backend is polled.
#[derive(Debug, Clone)]
pub struct PollConfig {
    /// Name of the feed; empty for the only one.
    pub feed: FeedName,
    /// The label by which the pipeline names the cluster.
    pub cluster_label: String,
    /// Labels that do not tell streams apart.
    pub ignored_labels: Vec<String>,
    /// Samples asked for in one query, at most if clusters are not larger themselves.
    pub batch_samples: u64,
    /// How long samples take to become complete in the backend, at least.
    pub settle: Seconds,
    /// The same, at most: it grows when samples keep arriving torn.
    pub max_settle: Seconds,
}

impl Default for PollConfig {
    fn default() -> Self {
        Self {
            feed: FeedName::default(),
            cluster_label: "cluster".into(),
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
    /// Name of the case of the error, see [`FeedError::kind`].
    pub error_kind: Option<&'static str>,
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
}

/// A digest that has to be read, with what came of it.
struct Unverified {
    beat: Beat,
    gathered: Box<Gathered>,
    strays: Vec<Stray>,
    /// Metrics that it has and its contract version does not know.
    unknown: Vec<String>,
}

impl Poller {
    /// What asks the same backend the queries of checks.
    pub fn asker(&self) -> Asker {
        Asker::new(self.feed.clone(), &self.config.cluster_label, self.feed.timeout() * 2)
    }

    /// Name of the feed; empty for the only one.
    pub fn feed_name(&self) -> FeedName {
        self.config.feed.clone()
    }
}

impl<Q: QueryApi> Poller<Q> {
    /// A poller; nothing is sent yet.
    pub fn new(config: PollConfig, feed: Q) -> Self {
        let settle = Settle::new(config.settle, config.max_settle);
        let limit = Limit::new(config.batch_samples);
        Self { config, feed, settle, limit }
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
            }
            Err(error) => {
                let text = error.to_string();
                fleet.with(move |fleet| fleet.unanswered(&feed, text)).await;
                report.error = Some(error.to_string());
                report.error_kind = Some(error.kind());
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
        let heads = heads::read(&self.feed, &self.config, t).await?;
        report.samples += heads.samples;
        report.unnamed = heads.unnamed;
        if heads.unnamed > 0 {
            let label = &self.config.cluster_label;
            report.problem(&format!(
                "{} digests have no label `{label}`: they belong to no cluster",
                heads.unnamed
            ));
        }
        let (beats, heard, known) = fleet
            .with(move |fleet| {
                let heard: Vec<Heard> = heads.beats.iter().map(|beat| fleet.hear(beat, t)).collect();
                let unread = heads.beats.iter().zip(&heard).filter(|(_, heard)| **heard == Heard::Unread);
                let known: HashMap<String, Option<u64>> =
                    unread.map(|(beat, _)| (beat.cluster.clone(), fleet.samples(&beat.cluster))).collect();
                (heads.beats, heard, known)
            })
            .await;
        let mut unread = Vec::new();
        for (beat, heard) in beats.iter().zip(heard) {
            match heard {
                Heard::Confirmed => report.verified += 1,
                Heard::Unread => unread.push(beat.clone()),
                Heard::Tried | Heard::Old | Heard::Unusable => report.unverified += 1,
            }
        }
        report.read = unread.len();
        let Self { config, feed, settle, limit } = self;
        let sizes = heads::sizes(feed, config, known, t).await?;
        let reader = Reader::new(feed, config, &unread, &beats, t);
        let (mut recovered, mut refusals) = (0, 0);
        let mut queue = VecDeque::from(batches(unread, &sizes, limit.samples()));
        // While one batch is verified, the next is on its way.
        let (mut asked, mut answers) = (VecDeque::<Batch>::new(), FuturesOrdered::new());
        loop {
            while answers.len() < AT_ONCE
                && let Some(batch) = queue.pop_front()
            {
                answers.push_back(reader.read(batch.clone()));
                asked.push_back(batch);
            }
            let (Some(answer), Some(batch)) = (answers.next().await, asked.pop_front()) else { break };
            let torn = match answer {
                Ok(read) => {
                    report.samples += read.samples;
                    settle_batch(fleet, batch.beats, read, t, &mut recovered, report).await
                }
                Err(error) if error.may_be_size() && batch.clusters.len() > 1 && refusals < MOST_REFUSALS => {
                    refusals += 1;
                    limit.refused(batch::samples(&batch, &sizes));
                    answers = FuturesOrdered::new();
                    let left = [batch].into_iter().chain(asked.drain(..)).chain(queue);
                    queue = batches(left.flat_map(|b| b.beats).collect(), &sizes, limit.samples()).into();
                    continue;
                }
                Err(error) => return Err(error),
            };
            report.reread += torn.len();
            for group in stamp_groups(torn) {
                reader.read_again(fleet, group, &mut recovered, report).await?;
            }
        }
        if refusals == 0 {
            limit.served();
        }
        settle.learn(report.read, recovered);
        Ok(())
    }
}

/// Reads streams of one backend at one time.
struct Reader<'a, Q> {
    feed: &'a Q,
    config: &'a PollConfig,
    /// All streams that have a digest, of the clusters that are read.
    beats: HashMap<&'a str, Vec<&'a Beat>>,
    t: Seconds,
}

impl<'a, Q: QueryApi> Reader<'a, Q> {
    fn new(feed: &'a Q, config: &'a PollConfig, due: &[Beat], beats: &'a [Beat], t: Seconds) -> Self {
        let clusters: HashSet<&str> = due.iter().map(|beat| beat.cluster.as_str()).collect();
        let mut of_them = HashMap::<&str, Vec<&Beat>>::with_capacity(clusters.len());
        for beat in beats.iter().filter(|beat| clusters.contains(beat.cluster.as_str())) {
            of_them.entry(&beat.cluster).or_default().push(beat);
        }
        Self { feed, config, beats: of_them, t }
    }

    /// What gathers the samples of these streams.
    fn sink(&self, due: &[Beat], raw: bool) -> Read {
        let clusters: BTreeSet<&str> = due.iter().map(|beat| beat.cluster.as_str()).collect();
        let beats = clusters.into_iter().filter_map(|cluster| self.beats.get(cluster)).flatten().copied();
        Read::at(self.config, due, beats, raw)
    }

    /// Reads a batch.
    async fn read(&self, batch: Batch) -> Result<Read, FeedError> {
        let selector =
            contract_selector(&self.config.cluster_label, batch.clusters.iter().map(String::as_str));
        self.feed.query(&selector, self.t, self.sink(&batch.beats, false)).await
    }

    /// Reads torn streams again, keeping only samples stamped like their digest: that heals lost
    /// stale markers, and samples newer than the digest.
    async fn read_again(
        &self,
        fleet: &mut impl Access,
        torn: Vec<Unverified>,
        recovered: &mut usize,
        report: &mut PollReport,
    ) -> Result<(), FeedError> {
        let due: Vec<Beat> = torn.iter().map(|u| u.beat.clone()).collect();
        let (first, last) = due.iter().fold((f64::MAX, f64::MIN), |(lo, hi), b| (lo.min(b.at), hi.max(b.at)));
        let clusters: BTreeSet<&str> = due.iter().map(|b| b.cluster.as_str()).collect();
        let window = ((last - first) * 1000.0).round() as u64 + 1000;
        let selector = contract_selector(&self.config.cluster_label, clusters) + &format!("[{window}ms]");
        let read = self.feed.query(&selector, last, self.sink(&due, true)).await?;
        report.samples += read.samples;
        let still = settle_batch(fleet, due, read, self.t, recovered, report).await;
        let mut torn: HashMap<StreamLabels, Unverified> =
            torn.into_iter().map(|first| (first.beat.stream.clone(), first)).collect();
        // A backend that cannot be read like this gives nothing: then the first reading tells more.
        let told = still.into_iter().map(|unverified| match torn.remove(&unverified.beat.stream) {
            Some(first) if unverified.gathered.samples == 0 => first,
            _ => unverified,
        });
        let mut told: Vec<Unverified> = told.collect();
        unknown::ask(self.feed, self.config, &mut told, last).await;
        for told in told {
            report.unverified += 1;
            report.problem(&fleet.with(move |fleet| reject(fleet, &told)).await);
        }
        Ok(())
    }
}

/// Notes what does not add up, and says why.
fn reject(fleet: &mut Fleet, Unverified { beat, gathered, strays, unknown }: &Unverified) -> String {
    let last = fleet.verified(&beat.cluster, &beat.stream);
    let digest = beat.digest.unwrap_or_default();
    let fault = diagnose(gathered, digest, &beat.stream, last, strays);
    let fault = with_unknown(fault, &beat.contract, unknown);
    let problem = format!("cluster {}: {fault}", beat.cluster);
    fleet.reject(beat, fault, gathered.uid);
    problem
}

/// Verifies what was read; gives back what does not add up.
async fn settle_batch(
    fleet: &mut impl Access,
    due: Vec<Beat>,
    read: Read,
    t: Seconds,
    recovered: &mut usize,
    report: &mut PollReport,
) -> Vec<Unverified> {
    let (mut whole, mut torn, mut untold) = (Vec::new(), Vec::new(), Vec::new());
    let (gathered, strays) = read.finish();
    for (beat, gathered) in due.into_iter().zip(gathered) {
        match verify(gathered, beat.digest.unwrap_or_default()) {
            Ok(content) if beat.tells_turns(content.uid) => whole.push((beat, content)),
            Ok(content) => untold.push((beat, content.uid)),
            Err(gathered) => {
                let strays = strays.get(&beat.cluster).cloned().unwrap_or_default();
                torn.push(Unverified { beat, gathered, strays, unknown: Vec::new() });
            }
        }
    }
    report.verified += whole.len();
    report.unverified += untold.len();
    for (beat, _) in &untold {
        report.problem(&format!("cluster {}: {TURNS_UNTOLD}", beat.cluster));
    }
    *recovered += fleet
        .with(move |fleet| {
            untold.iter().for_each(|(beat, uid)| fleet.reject(beat, TURNS_UNTOLD.to_owned(), *uid));
            whole.into_iter().filter_map(|(b, c)| fleet.accept(&b, c, t).then_some(())).count()
        })
        .await;
    torn
}
