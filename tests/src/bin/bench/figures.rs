//! What is measured of one program.

use crate::cluster::{Cluster, Listed};
use crate::subject::{Program, Subject};
use anyhow::{Result, ensure};
use statusbridge_tests::bench::say;
use statusbridge_tests::{Rig, usage};
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;

/// How much is done to measure.
pub(crate) struct Run {
    /// Objects that are updated: twice, once without scrapes and once with.
    pub(crate) updates: usize,
    /// How many of them a second.
    pub(crate) rate: u32,
    /// Scrapes of each sort.
    pub(crate) scrapes: usize,
    /// Starts, each after a list of the same objects.
    pub(crate) starts: usize,
}

/// The figures of one program. Memory and sizes in bytes.
#[derive(Debug)]
pub(crate) struct Figures {
    /// Time from start to the first complete scrape, and the list right before it: all starts, in order.
    pub(crate) starts: Vec<(Listed, Duration)>,
    /// Processor time from start to the first complete scrape.
    pub(crate) start_processor: Duration,
    /// GETs and LISTs that the API server answered meanwhile.
    pub(crate) reads: u64,
    /// Resident memory after the first complete scrape, after scrapes and updates, and the most there ever was.
    pub(crate) resident: [u64; 3],
    /// Scrapes: plain, compressed, and compressed during updates.
    pub(crate) scrapes: [Scrapes; 3],
    /// Samples in a scrape.
    pub(crate) series: usize,
    /// Processor time for all updates.
    pub(crate) updates: Duration,
    /// How long they took.
    pub(crate) updates_took: Duration,
    /// Sources that moved beforehand, and processor time for that.
    pub(crate) sources: (usize, Duration),
    /// Series that were not there before the updates.
    pub(crate) new_series: usize,
}

/// What scrapes took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scrapes {
    /// Median time of one.
    pub(crate) took: Duration,
    /// Processor time of one, on average.
    pub(crate) processor: Duration,
    /// Size of the last.
    pub(crate) size: usize,
}

impl Figures {
    /// Measures a program from its start; what moves to a new revision does so to `revision` and then to the next.
    pub(crate) async fn measure(
        rig: &Rig,
        program: Program,
        cluster: &Cluster,
        run: &Run,
        revision: usize,
    ) -> Result<Self> {
        let name = program.name();
        let mut starts = Vec::new();
        let (mut subject, mut start_processor, mut reads) = (None, Duration::ZERO, 0);
        for n in 1..=run.starts {
            drop(subject.take());
            // The first list after many writes may find the server at other work.
            cluster.list().await?;
            let listed = cluster.list().await?;
            let reads_before = cluster.reads().await?;
            let started = program.start(rig, cluster).await?;
            let took = started.first_complete_scrape(cluster.packages).await?;
            start_processor = usage::processor(started.pid()?)?;
            reads = cluster.reads().await? - reads_before;
            say(&format!(
                "{name}: start {n} of {}: first complete scrape after {took:.2?}, list {:.2?}",
                run.starts, listed.took
            ));
            starts.push((listed, took));
            subject = Some(started);
        }
        let Some(subject) = subject else { anyhow::bail!("no start to measure") };
        let pid = subject.pid()?;
        let first = usage::resident(pid)?;
        usage::until_idle(pid).await?;

        say(&format!("{name}: {} scrapes, and as many compressed", run.scrapes));
        let mut quiet = Vec::new();
        for gzip in [false, true] {
            let (scrapes, processor) =
                spent(pid, scrapes(&subject, gzip, run.scrapes, Duration::ZERO)).await?;
            quiet.push(scrapes.with(processor, run.scrapes));
        }
        let before = series(&subject).await?;

        usage::until_idle(pid).await?;
        let sources = spent(pid, cluster.announce(run.updates, revision)).await?;
        say(&format!("{name}: {} updates, {} a second", run.updates, run.rate));
        let taken_in = taken_in(&subject).await?;
        let (updates_took, updates) = spent(pid, cluster.update(run.updates, revision, run.rate)).await?;
        // Who falls behind rests between one sip and the next.
        let taken_in = self::taken_in(&subject).await? - taken_in;
        ensure!(
            program == Program::Peer || taken_in >= run.updates as u64,
            "{name} rests, and has taken in {taken_in} of {} updates",
            run.updates
        );

        cluster.announce(run.updates, revision + 1).await?;
        usage::until_idle(pid).await?;
        say(&format!("{name}: the same, with a scrape every second"));
        let count = (run.updates / run.rate as usize).max(1);
        let both = async {
            let updates = cluster.update(run.updates, revision + 1, run.rate);
            tokio::try_join!(updates, scrapes(&subject, true, count, Duration::from_secs(1)))
        };
        let ((_, busy), processor) = spent(pid, both).await?;
        let busy = busy.with(processor.saturating_sub(updates), count);
        let after = series(&subject).await?;
        Ok(Self {
            starts,
            start_processor,
            reads,
            resident: [first, usage::resident(pid)?, usage::highest_resident(pid)?],
            scrapes: [quiet[0], quiet[1], busy],
            series: before.len(),
            updates,
            updates_took,
            sources,
            new_series: after.difference(&before).count(),
        })
    }

    /// The median time to the first complete scrape.
    pub(crate) fn start(&self) -> Duration {
        median(self.starts.iter().map(|(_, took)| *took).collect())
    }

    /// Median of the lists.
    pub(crate) fn list(&self) -> Duration {
        median(self.starts.iter().map(|(listed, _)| listed.took).collect())
    }
}

impl Scrapes {
    /// The same, with the processor time that so many took.
    fn with(self, processor: Duration, count: usize) -> Self {
        Self { processor: processor.div_f64(count as f64), ..self }
    }
}

/// Runs something and gives the processor time that a process spends on it, until it has come to rest.
pub(crate) async fn spent<T>(pid: u32, work: impl Future<Output = Result<T>>) -> Result<(T, Duration)> {
    let before = usage::processor(pid)?;
    let done = work.await?;
    usage::until_idle(pid).await?;
    Ok((done, usage::processor(pid)? - before))
}

/// Scrapes so many times, one every `pause` at most.
async fn scrapes(subject: &Subject, gzip: bool, count: usize, pause: Duration) -> Result<Scrapes> {
    let (mut times, mut size) = (Vec::new(), 0);
    for _ in 0..count {
        let started = Instant::now();
        size = 0;
        times.push(subject.scrape(gzip, |piece| size += piece.len()).await?);
        tokio::time::sleep_until(started + pause).await;
    }
    Ok(Scrapes { took: median(times), processor: Duration::ZERO, size })
}

/// How many objects the exporter has taken in so far; 0 of another program.
async fn taken_in(subject: &Subject) -> Result<u64> {
    let text = subject.text().await?;
    let events = text.lines().filter(|line| line.starts_with("statusbridge_exporter_watch_events_total{"));
    let count = |line: &str| line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
    Ok(events.filter_map(count).sum())
}

/// Name and labels of every sample.
async fn series(subject: &Subject) -> Result<HashSet<String>> {
    let text = subject.text().await?;
    let samples = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(samples.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series.to_owned()).collect())
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
