//! What is measured of one program.

use crate::cluster::{Cluster, Listed};
use crate::subject::{Program, Scrape, Subject};
use crate::{say, usage};
use anyhow::Result;
use statusbridge_tests::Rig;
use std::collections::HashSet;
use std::time::Duration;

/// How much is done to measure.
pub(crate) struct Run {
    /// Packages that move to a new revision.
    pub(crate) updates: usize,
    /// How many do so a second.
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
    /// Resident memory after the first complete scrape, after scrapes and updates, and the most there ever was.
    pub(crate) resident: [u64; 3],
    /// Median time of a scrape and its size, not compressed and compressed.
    pub(crate) scrape: [(Duration, usize); 2],
    /// Samples of all packages.
    pub(crate) series: usize,
    /// Processor time for all updates of packages.
    pub(crate) updates: Duration,
    /// How long they took.
    pub(crate) updates_took: Duration,
    /// GitRepositories that moved beforehand, and processor time for that.
    pub(crate) repositories: (usize, Duration),
    /// Series that were not there before the updates.
    pub(crate) new_series: usize,
}

impl Figures {
    /// Measures a program from its start; the packages that move do so to `revision`.
    pub(crate) async fn measure(
        rig: &Rig,
        program: Program,
        cluster: &mut Cluster,
        run: &Run,
        revision: usize,
    ) -> Result<Self> {
        let name = program.name();
        let mut starts = Vec::new();
        let (mut subject, mut start_processor) = (None, Duration::ZERO);
        for n in 1..=run.starts {
            drop(subject.take());
            // The first list after many writes may find the server at other work.
            cluster.list().await?;
            let listed = cluster.list().await?;
            let started = program.start(rig, cluster.api.kubeconfig()).await?;
            let took = started.first_complete_scrape(cluster.packages()).await?;
            start_processor = usage::processor(started.pid()?)?;
            say(&format!(
                "{name}: start {n}: first complete scrape after {took:.2?}, list {:.2?} ({} pages, {} bytes a package)",
                listed.took,
                listed.pages,
                listed.bytes / cluster.packages()
            ));
            starts.push((listed, took));
            subject = Some(started);
        }
        let Some(subject) = subject else { anyhow::bail!("no start to measure") };
        let pid = subject.pid()?;
        let first = usage::resident(pid)?;
        usage::until_idle(pid).await?;

        let mut scrape = Vec::new();
        for gzip in [false, true] {
            scrape.push(scrapes(&subject, gzip, run.scrapes).await?);
        }
        let before = series(&subject).await?;

        usage::until_idle(pid).await?;
        let (moved, repositories) = spent(pid, cluster.move_repositories(run.updates, revision)).await?;
        say(&format!("{name}: {} packages move to a new revision, {} a second", run.updates, run.rate));
        let (took, updates) = spent(pid, cluster.move_packages(run.updates, revision, run.rate)).await?;
        let after = series(&subject).await?;
        Ok(Self {
            starts,
            start_processor,
            resident: [first, usage::resident(pid)?, usage::highest_resident(pid)?],
            scrape: [scrape[0], scrape[1]],
            series: before.len(),
            updates,
            updates_took: took,
            repositories: (moved, repositories),
            new_series: after.difference(&before).count(),
        })
    }

    /// The median start and the list before it.
    pub(crate) fn start(&self) -> (Listed, Duration) {
        let mut starts = self.starts.clone();
        starts.sort_by_key(|(_, took)| *took);
        starts[starts.len() / 2]
    }

    /// Median of the lists.
    pub(crate) fn list(&self) -> Duration {
        median(self.starts.iter().map(|(listed, _)| listed.took).collect())
    }
}

/// Runs something and gives the processor time that a process spends on it, until it has come to rest.
async fn spent<T>(pid: u32, work: impl Future<Output = Result<T>>) -> Result<(T, Duration)> {
    let before = usage::processor(pid)?;
    let done = work.await?;
    usage::until_idle(pid).await?;
    Ok((done, usage::processor(pid)? - before))
}

/// Median time of some scrapes and the size of the last.
async fn scrapes(subject: &Subject, gzip: bool, count: usize) -> Result<(Duration, usize)> {
    let (mut times, mut size) = (Vec::new(), 0);
    for _ in 0..count {
        let Scrape { took, body } = subject.scrape(gzip).await?;
        times.push(took);
        size = body.len();
    }
    Ok((median(times), size))
}

/// Name and labels of every sample.
async fn series(subject: &Subject) -> Result<HashSet<String>> {
    let scrape = subject.scrape(false).await?;
    let text = String::from_utf8_lossy(&scrape.body);
    let samples = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(samples.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series.to_owned()).collect())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
