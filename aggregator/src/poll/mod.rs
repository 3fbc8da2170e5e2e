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
mod heads;
mod look_back;
mod read;
mod settle;

use crate::{
    checks::Asker,
    clock::Seconds,
    feed::{FeedError, PromFeed, QueryApi, contract_selector, excerpt},
    fleet::{Beat, Fleet, Heard},
    verify::{Gathered, Stray, diagnose, verify},
};
use batch::{Batch, batches, stamp_groups};
#[cfg(test)]
pub(crate) use heads::{repeats_query, turns_query};
pub use look_back::{Look, LookedBack};
use read::Read;
use settle::Settle;

/// How a backend is polled.
#[derive(Debug, Clone)]
pub struct PollConfig {
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
            cluster_label: "cluster".into(),
            ignored_labels: Vec::new(),
            batch_samples: 500_000,
            settle: 5.0,
            max_settle: 30.0,
        }
    }
}

/// Problems named in a report at most.
const PROBLEMS: usize = 16;
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
}

/// A digest that has to be read, with what came of it.
struct Unverified {
    beat: Beat,
    gathered: Box<Gathered>,
    strays: Vec<Stray>,
}

impl Poller {
    /// What asks the same backend the queries of checks.
    pub fn asker(&self) -> Asker {
        Asker::new(self.feed.clone(), &self.config.cluster_label, self.feed.timeout() * 2)
    }
}

impl<Q: QueryApi> Poller<Q> {
    /// A poller; nothing is sent yet.
    pub fn new(config: PollConfig, feed: Q) -> Self {
        let settle = Settle::new(config.settle, config.max_settle);
        Self { config, feed, settle }
    }

    /// How far behind the present the next poll should look. It grows while streams keep arriving
    /// torn, and shrinks again.
    pub fn settle_delay(&self) -> Seconds {
        self.settle.delay()
    }

    /// Brings the fleet up to what the backend knows at `t`. Never fails: a failure is in the report,
    /// and the fleet remembers it.
    pub async fn poll(&mut self, fleet: &mut Fleet, t: Seconds) -> PollReport {
        let mut report = PollReport::default();
        let before = self.feed.received();
        // What is sent has milliseconds.
        let t = (t * 1000.0).floor() / 1000.0;
        match self.run(fleet, t, &mut report).await {
            Ok(()) => {
                fleet.answered(t);
                report.ok = true;
            }
            Err(error) => {
                fleet.unanswered(error.to_string());
                report.error = Some(error.to_string());
                report.error_kind = Some(error.kind());
                report.failure = Some(error);
            }
        }
        report.bytes = self.feed.received() - before;
        report
    }

    async fn run(&mut self, fleet: &mut Fleet, t: Seconds, report: &mut PollReport) -> Result<(), FeedError> {
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
        let mut unread = Vec::new();
        for beat in &heads.beats {
            match fleet.hear(beat, t) {
                Heard::Confirmed => report.verified += 1,
                Heard::Unread => unread.push(beat.clone()),
                Heard::Tried | Heard::Old | Heard::Unusable => report.unverified += 1,
            }
        }
        report.read = unread.len();
        let sizes = heads::sizes(&self.feed, &self.config, fleet, &unread, t).await?;
        let mut recovered = 0;
        for batch in batches(unread, &sizes, self.config.batch_samples) {
            let torn = self.read(fleet, batch, &heads.beats, t, &mut recovered, report).await?;
            report.reread += torn.len();
            for group in stamp_groups(torn) {
                self.read_again(fleet, group, &heads.beats, t, &mut recovered, report).await?;
            }
        }
        self.settle.learn(report.read, recovered);
        Ok(())
    }

    /// Reads a batch at `t`; gives back what does not add up.
    async fn read(
        &self,
        fleet: &mut Fleet,
        batch: Batch,
        beats: &[Beat],
        t: Seconds,
        recovered: &mut usize,
        report: &mut PollReport,
    ) -> Result<Vec<Unverified>, FeedError> {
        let selector =
            contract_selector(&self.config.cluster_label, batch.clusters.iter().map(String::as_str));
        let read = Read::at(&self.config, &batch.beats, beats, false);
        let read = self.feed.query(&selector, t, read).await?;
        report.samples += read.samples;
        Ok(self.settle_batch(fleet, batch.beats, read, t, recovered, report))
    }

    /// Reads torn streams again, keeping only samples stamped like their digest: that heals lost
    /// stale markers, and samples newer than the digest.
    async fn read_again(
        &self,
        fleet: &mut Fleet,
        torn: Vec<Unverified>,
        beats: &[Beat],
        t: Seconds,
        recovered: &mut usize,
        report: &mut PollReport,
    ) -> Result<(), FeedError> {
        let due: Vec<Beat> = torn.iter().map(|u| u.beat.clone()).collect();
        let (first, last) = due.iter().fold((f64::MAX, f64::MIN), |(lo, hi), b| (lo.min(b.at), hi.max(b.at)));
        let clusters: std::collections::BTreeSet<&str> = due.iter().map(|b| b.cluster.as_str()).collect();
        let window = ((last - first) * 1000.0).round() as u64 + 1000;
        let selector = contract_selector(&self.config.cluster_label, clusters) + &format!("[{window}ms]");
        let read = self.feed.query(&selector, last, Read::at(&self.config, &due, beats, true)).await?;
        report.samples += read.samples;
        let still = self.settle_batch(fleet, due, read, t, recovered, report);
        for unverified in still {
            // A backend that cannot be read like this gives nothing: then the first reading tells more.
            let first = torn.iter().find(|u| u.beat == unverified.beat);
            let told = match first {
                Some(first) if unverified.gathered.samples == 0 => first,
                _ => &unverified,
            };
            let beat = &unverified.beat;
            let last = fleet.verified(&beat.cluster, &beat.stream);
            let fault =
                diagnose(&told.gathered, beat.digest.unwrap_or_default(), &beat.stream, last, &told.strays);
            report.unverified += 1;
            report.problem(&format!("cluster {}: {fault}", beat.cluster));
            fleet.reject(beat, fault);
        }
        Ok(())
    }

    /// Verifies what was read; gives back what does not add up.
    fn settle_batch(
        &self,
        fleet: &mut Fleet,
        due: Vec<Beat>,
        read: Read,
        t: Seconds,
        recovered: &mut usize,
        report: &mut PollReport,
    ) -> Vec<Unverified> {
        let mut torn = Vec::new();
        let (gathered, strays) = read.finish();
        for (beat, gathered) in due.into_iter().zip(gathered) {
            match verify(gathered, beat.digest.unwrap_or_default()) {
                Ok(content) => {
                    report.verified += 1;
                    *recovered += usize::from(fleet.accept(&beat, content, t));
                }
                Err(gathered) => {
                    let strays = strays.get(&beat.cluster).cloned().unwrap_or_default();
                    torn.push(Unverified { beat, gathered, strays });
                }
            }
        }
        torn
    }
}
