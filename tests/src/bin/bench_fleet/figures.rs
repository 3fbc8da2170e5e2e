//! The phases, one after another, and what was measured in each.

use crate::generated::{Generated, Millis, now};
use crate::hub::{Account, Hub, Running};
use crate::viewers::{VIEWERS, Viewers, Watched};
use crate::{Source, query};
use anyhow::{Context, Result, ensure};
use statusbridge_tests::bench::say;
use statusbridge_tests::{Rig, usage};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much is done to measure.
pub(crate) struct Run {
    /// How many packages have a FleetPackage and three gates.
    pub(crate) fleet_packages: usize,
    /// Clusters of the wave.
    pub(crate) wave: usize,
    /// How many packages change in them, one after the other.
    pub(crate) waves: usize,
    /// Time between polls.
    pub(crate) poll: Duration,
    /// Polls in which nothing happens.
    pub(crate) quiet: u64,
    /// `staleAfter` of the FleetPackages.
    pub(crate) stale_after: Duration,
    /// How many packages are rolled out by a FleetRollout, and in how many waves.
    pub(crate) rollouts: (usize, usize),
}

/// What some work took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    /// Time.
    pub(crate) took: Duration,
    /// The aggregator's part.
    pub(crate) account: Account,
    /// Processor time of the backend; of the generated one, of whoever generates.
    pub(crate) backend: Duration,
}

/// What came of it that all speakers fell silent.
#[derive(Debug)]
pub(crate) struct Silence {
    /// Gates that were open.
    pub(crate) gates: usize,
    /// From when the last scrape was as old as evidence may be until the last of them was closed.
    pub(crate) closed: Duration,
    /// The same until no FleetPackage had young evidence of all its clusters, and no write was left.
    pub(crate) written: Duration,
    /// What was done for it, above what quiet polls take.
    pub(crate) work: Work,
    /// Writes to the hub and bytes of their bodies.
    pub(crate) writes: (u64, u64),
    /// From when they were scraped again until as many gates were open as before.
    pub(crate) back: Duration,
}

/// What FleetRollouts took.
#[derive(Debug)]
pub(crate) struct Rollouts {
    /// From the first of them until the last was rolled out, and the writes were over.
    pub(crate) work: Work,
    /// Quiet polls with all of their gates.
    pub(crate) quiet: Work,
    /// Resident memory then.
    pub(crate) resident: u64,
}

/// The figures. Memory and sizes in bytes.
#[derive(Debug)]
pub(crate) struct Figures {
    /// How long a client that parses nothing needs to read what the first synchronisation reads.
    pub(crate) yardstick: Duration,
    /// From start to the first poll with every cluster verified, without any object in the hub.
    pub(crate) first: Work,
    /// Quiet polls without any object in the hub.
    pub(crate) bare: Work,
    /// From the first object to a status on all of them.
    pub(crate) judged: (usize, Work),
    /// Quiet polls with them.
    pub(crate) quiet: Work,
    /// Writes that the hub accepted in that time, and the bytes of their bodies.
    pub(crate) quiet_writes: (u64, u64),
    /// The same while people look at the page.
    pub(crate) watched: Watched,
    /// One package changed in so many clusters, above what quiet polls take.
    pub(crate) changed: (usize, Work),
    /// The first wave: all that was done until its gate was open and the writes were over, above what quiet polls take.
    pub(crate) wave: Work,
    /// From each delivery until the gate was open, from the least.
    pub(crate) opened: Vec<Duration>,
    /// Writes to the hub and bytes of their bodies because of the first wave.
    pub(crate) wave_writes: (u64, u64),
    /// All speakers silent, where there are any.
    pub(crate) silence: Option<Silence>,
    /// FleetRollouts, where there are any.
    pub(crate) rollouts: Option<Rollouts>,
    /// From start to the first verdict that needs the wave's clusters, with all objects in the hub.
    pub(crate) restart: Work,
    /// Resident memory after the first synchronisation, with all objects, and the most there ever was; then the most
    /// after the restart.
    pub(crate) resident: [u64; 4],
}

/// Everything that is running.
struct Stage<'a> {
    rig: &'a Rig,
    hub: Hub,
    fleet: &'a Arc<Generated>,
    source: &'a Source,
    run: &'a Run,
}

/// Longest time for anything.
const PATIENCE: Duration = Duration::from_secs(900);

impl Figures {
    /// Goes through all phases.
    pub(crate) async fn measure(
        rig: &Rig,
        fleet: &Arc<Generated>,
        source: &Source,
        run: &Run,
    ) -> Result<Self> {
        let hub = Hub::start(rig, &source.url(), fleet).await?;
        let stage = Stage { rig, hub, fleet, source, run };
        let done = stage.measure().await;
        // What the backend refused explains what did not come about.
        source.check()?;
        done
    }
}

impl Stage<'_> {
    async fn measure(&self) -> Result<Figures> {
        let yardstick = self.read_all().await?;
        say(&format!("reading everything without looking at it takes {yardstick:.1?}"));

        let streams = self.fleet.exporters() as u64;
        let backend = self.source.processor()?;
        let running = self.hub.launch(self.rig).await?;
        let account = running.wait("the first synchronisation", PATIENCE, |a| a.verified == streams).await?;
        let first = Work {
            took: running.started.elapsed(),
            account,
            backend: self.source.processor()?.saturating_sub(backend),
        };
        let resident_first = usage::resident(running.pid()?)?;
        say(&format!("first synchronisation: {first:.1?}, {} MB resident", resident_first / 1_000_000));

        running.polls(1).await?;
        let bare = self.quiet(&running, self.run.quiet).await?;
        say(&format!("quiet without objects: {bare:.1?}"));

        let (before, began) = (running.polls(0).await?, Instant::now());
        let objects = self
            .hub
            .make_objects(
                self.fleet,
                self.run.fleet_packages,
                self.run.wave,
                &format!("{}s", self.run.stale_after.as_secs()),
            )
            .await?;
        say(&format!("{objects} objects made in {:.1?}", began.elapsed()));
        statusbridge_tests::eventually(PATIENCE, "every object has a status", async || {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let judged = self.hub.judged().await?;
            ensure!(judged == objects, "{judged} of {objects}");
            Ok(())
        })
        .await?;
        let judged = self.work(&running, before, began).await?;
        say(&format!("all judged: {judged:.1?}"));

        self.settle(&running).await?;
        let writes = self.hub.writes().await?;
        let quiet = self.quiet(&running, self.run.quiet).await?;
        let quiet_writes = difference(self.hub.writes().await?, writes);
        say(&format!("quiet with objects: {quiet:.1?}, writes {quiet_writes:?}"));
        let resident_objects = usage::resident(running.pid()?)?;

        let viewers = Viewers::come(&running).await?;
        let seen = self.quiet(&running, self.run.quiet).await?;
        let watched = viewers.end(&running, seen, self.fleet).await?;
        say(&format!("{VIEWERS} viewers: {watched:.1?}"));

        let silence = if self.fleet.is_told() { Some(self.silence(&running, &quiet).await?) } else { None };
        say(&format!("silence: {silence:.1?}"));
        let rollouts = if self.run.rollouts.0 > 0 { Some(self.rollouts(&running).await?) } else { None };
        say(&format!("rollouts: {rollouts:.1?}"));
        let changed = self.some_change(&running, &quiet).await?;
        say(&format!("{} clusters changed: {:.1?}", changed.0, changed.1));
        let (wave, after, wave_writes) = self.wave(&running, &quiet, 0).await?;
        say(&format!("wave: {wave:.1?}, open after {after:.1?}, writes {wave_writes:?}"));
        let mut opened = vec![after];
        // The second package is for the restart.
        for package in 2..=self.run.waves {
            let (_, after, _) = self.wave(&running, &quiet, package).await?;
            say(&format!("open after {after:.1?}"));
            opened.push(after);
        }
        opened.sort();
        let most = usage::highest_resident(running.pid()?)?;

        let (restart, most_again) = self.restart(running).await?;
        say(&format!("restart: {restart:.1?}"));
        Ok(Figures {
            yardstick,
            first,
            bare,
            judged: (objects, judged),
            quiet,
            quiet_writes,
            watched,
            changed,
            wave,
            opened,
            wave_writes,
            silence,
            rollouts,
            restart,
            resident: [resident_first, resident_objects, most, most_again],
        })
    }

    /// Reads what a first synchronisation reads, compressed, and looks at nothing of it.
    async fn read_all(&self) -> Result<Duration> {
        let http = reqwest::Client::builder().no_proxy().gzip(false).timeout(PATIENCE).build()?;
        let origins = (0..self.fleet.exporters()).filter_map(|exporter| self.fleet.origin(exporter));
        let names: Vec<String> = origins.map(|origin| origin.cluster.to_owned()).collect();
        // As many as the aggregator asks for at a time.
        let at_a_time = (200 * self.fleet.exporters()).div_ceil(self.fleet.len()).max(1);
        // One scrape of each.
        let window = self.fleet.interval - 1;
        let began = Instant::now();
        for names in names.chunks(at_a_time) {
            let time = format!("{:.3}", (now() - 5_000) as f64 / 1000.0);
            let form = reqwest::Url::parse_with_params(
                "http://form/",
                [("query", query::contents(names, window)), ("time", time)],
            )?;
            let request = http
                .post(format!("{}/api/v1/query", self.source.url()))
                .header("content-type", "application/x-www-form-urlencoded")
                .header("accept-encoding", "gzip")
                .body(form.query().unwrap_or_default().to_owned());
            let mut answer = request.send().await?;
            ensure!(answer.status().is_success(), "{}", answer.text().await?);
            while answer.chunk().await?.is_some() {}
        }
        Ok(began.elapsed())
    }

    async fn work(&self, running: &Running, before: Account, began: Instant) -> Result<Work> {
        let account = running.polls(0).await?.since(before);
        Ok(Work { took: began.elapsed(), account, backend: Duration::ZERO })
    }

    /// Polls in which nothing happens, from between two of them to between two others, and nobody looks meanwhile.
    async fn quiet(&self, running: &Running, polls: u64) -> Result<Work> {
        let before = running.polls(1).await?;
        // What follows a poll is to be counted with it: judging, and the writes.
        let before = self.rest(running, before).await?;
        let began = Instant::now();
        tokio::time::sleep(self.run.poll * polls as u32).await;
        let after = running.polls(0).await?;
        ensure!(after.polls == before.polls + polls, "polls do not come in time: {after:?} after {before:?}");
        ensure!(after.verified == self.fleet.exporters() as u64, "not all is verified: {after:?}");
        Ok(Work { took: began.elapsed(), account: after.since(before), backend: Duration::ZERO })
    }

    /// Waits for the middle between two polls.
    async fn rest(&self, running: &Running, account: Account) -> Result<Account> {
        tokio::time::sleep(self.run.poll / 2).await;
        let later = running.polls(0).await?;
        ensure!(later.polls == account.polls, "polls take so long that there is no time between them");
        Ok(later)
    }

    /// Waits until nothing is to be written.
    async fn settle(&self, running: &Running) -> Result<()> {
        running.wait("the writes end", PATIENCE, |account| account.pending == 0).await.map(drop)
    }

    /// The last moment that every cluster's next scrape is still to come after.
    async fn between_scrapes(&self) -> Result<Millis> {
        loop {
            let (at, next) = (now(), now() + 500);
            let scraped =
                |t| (0..self.fleet.exporters().min(100)).map(move |n| self.fleet.last_scrape(n, t)).max();
            // Spread over the whole interval there is no such moment.
            if scraped(at) == scraped(next) || self.source.is_spread() {
                return Ok(at);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// In one of a hundred clusters one package changes, each another one.
    async fn some_change(&self, running: &Running, quiet: &Work) -> Result<(usize, Work)> {
        let clusters = self.fleet.len().div_ceil(100);
        let before = running.polls(1).await?;
        let before = self.rest(running, before).await?;
        let (at, began) = (self.between_scrapes().await?, Instant::now());
        // Not the first two packages, whose waves are still to come.
        let packages = self.fleet.packages.len();
        (0..clusters).for_each(|n| self.fleet.deliver(n * 100, (2 + n % packages).min(packages - 1), 1, at));
        let work = self.seen(running, before, began, quiet).await?;
        Ok((clusters, work))
    }

    /// What was done until every cluster was scraped and seen again, above what quiet polls take.
    async fn seen(&self, running: &Running, before: Account, began: Instant, quiet: &Work) -> Result<Work> {
        let interval = Duration::from_millis(self.fleet.interval.unsigned_abs());
        tokio::time::sleep((interval + Duration::from_secs(6)).saturating_sub(began.elapsed())).await;
        let after = running.polls(1).await?;
        ensure!(after.verified == self.fleet.exporters() as u64, "not all is verified: {after:?}");
        let after = self.rest(running, after).await?;
        let mut account = after.since(before);
        let polls = account.polls as f64 / quiet.account.polls.max(1) as f64;
        account.processor = account.processor.saturating_sub(quiet.account.processor.mul_f64(polls));
        account.bytes = account.bytes.saturating_sub((quiet.account.bytes as f64 * polls) as u64);
        Ok(Work { took: began.elapsed(), account, backend: Duration::ZERO })
    }

    /// The wave's clusters get the next revision of a package all at once.
    async fn wave(
        &self,
        running: &Running,
        quiet: &Work,
        package: usize,
    ) -> Result<(Work, Duration, (u64, u64))> {
        self.settle(running).await?;
        let before = running.polls(1).await?;
        let before = self.rest(running, before).await?;
        let writes = self.hub.writes().await?;
        let (at, began) = (self.between_scrapes().await?, Instant::now());
        (0..self.wave_size()).for_each(|cluster| self.fleet.deliver(cluster, package, 1, at));
        let gate = format!("{}-wave", self.package(package)?);
        self.hub.opens(&gate, PATIENCE).await?;
        let opened = began.elapsed();
        let work = self.seen(running, before, began, quiet).await?;
        self.settle(running).await?;
        Ok((work, opened, difference(self.hub.writes().await?, writes)))
    }

    /// No exporter is scraped any more, until every gate is closed and all is written; then they are again.
    async fn silence(&self, running: &Running, quiet: &Work) -> Result<Silence> {
        self.settle(running).await?;
        let (gates, _) = self.hub.standing().await?;
        let at = self.between_scrapes().await?;
        self.fleet.is_silent(at, Millis::MAX);
        let scrapes = (0..self.fleet.exporters()).map(|exporter| self.fleet.last_scrape(exporter, at));
        let last = scrapes.max().context("no exporter")?;
        let stale = Duration::from_millis((last - now()).unsigned_abs());
        tokio::time::sleep((self.run.stale_after - stale).saturating_sub(Duration::from_secs(20))).await;
        let (before, writes) = (running.polls(0).await?, self.hub.writes().await?);
        let since_stale = || {
            let since = Duration::from_millis((now() - last).unsigned_abs());
            since.saturating_sub(self.run.stale_after)
        };
        let stands = async |what: &str, is_so: &dyn Fn((usize, usize)) -> bool| {
            statusbridge_tests::eventually(PATIENCE, what, async || {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let standing = self.hub.standing().await?;
                ensure!(is_so(standing), "{standing:?}");
                Ok(())
            })
            .await
        };
        stands("all gates are closed", &|(open, _)| open == 0).await?;
        let closed = since_stale();
        stands("no FleetPackage has young evidence of all", &|(_, ready)| ready == 0).await?;
        self.settle(running).await?;
        let written = since_stale();
        let after = running.polls(1).await?;
        let mut account = after.since(before);
        let polls = account.polls as f64 / quiet.account.polls.max(1) as f64;
        account.processor = account.processor.saturating_sub(quiet.account.processor.mul_f64(polls));
        let writes = difference(self.hub.writes().await?, writes);
        let (again, began) = (self.between_scrapes().await?, Instant::now());
        self.fleet.is_silent(at, again);
        stands("the gates are open again", &|(open, _)| open >= gates).await?;
        let back = began.elapsed();
        self.settle(running).await?;
        let work = Work { took: written, account, backend: Duration::ZERO };
        Ok(Silence { gates, closed, written, work, writes, back })
    }

    /// FleetRollouts of the revision that all clusters have: each wave's gate opens as soon as it is judged. Then they go.
    async fn rollouts(&self, running: &Running) -> Result<Rollouts> {
        self.settle(running).await?;
        let (rollouts, waves) = self.run.rollouts;
        let (before, began) = (running.polls(0).await?, Instant::now());
        self.hub.make_rollouts(self.fleet, rollouts, waves).await?;
        statusbridge_tests::eventually(PATIENCE.saturating_mul(4), "all are rolled out", async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let done = self.hub.rolled_out().await?;
            ensure!(done == rollouts, "{done} of {rollouts}");
            Ok(())
        })
        .await?;
        let work = self.work(running, before, began).await?;
        say(&format!("rolled out: {work:.1?}"));
        // Their gates are refreshed as all others are, which may take all of the budget for writes.
        let before = running.polls(1).await?;
        let quiet_began = Instant::now();
        tokio::time::sleep(self.run.poll * self.run.quiet as u32).await;
        let quiet = self.work(running, before, quiet_began).await?;
        let resident = usage::resident(running.pid()?)?;
        self.hub.remove_rollouts().await?;
        self.settle(running).await?;
        Ok(Rollouts { work, quiet, resident })
    }

    /// The same of the second package while the aggregator is away.
    async fn restart(&self, running: Running) -> Result<(Work, u64)> {
        running.aggregator.process().terminate(Duration::from_secs(30)).await?;
        let at = self.between_scrapes().await?;
        (0..self.wave_size()).for_each(|cluster| self.fleet.deliver(cluster, 1, 1, at));
        // Whoever starts is to find it.
        tokio::time::sleep(
            Duration::from_millis(self.fleet.interval.unsigned_abs()) + Duration::from_secs(8),
        )
        .await;
        let backend = self.source.processor()?;
        let running = self.hub.launch(self.rig).await?;
        let gate = format!("{}-wave", self.package(1)?);
        self.hub.opens(&gate, PATIENCE).await?;
        let took = running.started.elapsed();
        let backend = self.source.processor()?.saturating_sub(backend);
        let account = running.polls(0).await?;
        let processor = usage::processor(running.pid()?)?;
        Ok((
            Work { took, account: Account { processor, ..account }, backend },
            usage::highest_resident(running.pid()?)?,
        ))
    }

    fn wave_size(&self) -> usize {
        self.run.wave.min(self.fleet.len())
    }

    fn package(&self, number: usize) -> Result<&str> {
        let name = self.fleet.packages.get(number).map(String::as_str);
        name.with_context(|| format!("no package {number}"))
    }
}

fn difference(after: (u64, u64), before: (u64, u64)) -> (u64, u64) {
    (after.0 - before.0, after.1 - before.1)
}
