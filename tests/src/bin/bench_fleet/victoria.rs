//! A real VictoriaMetrics that a generated fleet is pushed into, as its clusters would be scraped.

use crate::exposition;
use crate::generated::{Generated, JOB, Millis, now};
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, stream};
use statusbridge_tests::{Rig, VictoriaMetrics, usage};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Clusters pushed at the same time.
const AT_ONCE: usize = 2;
/// Time between looks at who is due.
const TICK: Duration = Duration::from_millis(200);

/// The server, and who pushes into it.
pub(crate) struct Victoria {
    server: Arc<VictoriaMetrics>,
    pushed: Arc<Pushed>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Pushed {
    scrapes: AtomicU64,
    /// The longest time by which a scrape came late, in milliseconds.
    late: AtomicU64,
    failed: Mutex<Option<String>>,
}

impl Victoria {
    /// Starts one and waits until every cluster was pushed once.
    pub(crate) async fn start(rig: &Rig, fleet: Arc<Generated>) -> Result<Self> {
        let server = Arc::new(VictoriaMetrics::start_with(rig, &["-memory.allowedBytes=2GB"]).await?);
        let pushed = Arc::new(Pushed::default());
        let task = tokio::spawn(push(server.clone(), fleet.clone(), pushed.clone()));
        let victoria = Self { server, pushed, task };
        let patience = Duration::from_secs(600);
        statusbridge_tests::eventually(patience, "every cluster was pushed", async || {
            victoria.check()?;
            let scrapes = victoria.pushed.scrapes.load(Ordering::Relaxed);
            ensure!(scrapes >= fleet.len() as u64, "{scrapes} clusters");
            Ok(())
        })
        .await?;
        Ok(victoria)
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// Processor time and resident memory that it uses.
    pub(crate) fn usage(&self) -> Result<(Duration, u64)> {
        let pid = self.server.process().pid().context("VictoriaMetrics does not run")?;
        Ok((usage::processor(pid)?, usage::resident(pid)?))
    }

    /// The longest time by which a scrape came late, since this was last asked.
    pub(crate) fn late(&self) -> Duration {
        Duration::from_millis(self.pushed.late.swap(0, Ordering::Relaxed))
    }

    /// Why something could not be pushed.
    pub(crate) fn check(&self) -> Result<()> {
        match self.pushed.failed.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(error) => anyhow::bail!("pushing into VictoriaMetrics: {error}"),
            None => Ok(()),
        }
    }
}

impl Drop for Victoria {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn push(server: Arc<VictoriaMetrics>, fleet: Arc<Generated>, pushed: Arc<Pushed>) {
    let mut ticks = tokio::time::interval(TICK);
    // Each cluster's last scrape that was pushed; at first the newest of all, so that nobody has to wait.
    let mut last = vec![Millis::MIN; fleet.len()];
    loop {
        ticks.tick().await;
        let due: Vec<(usize, Millis)> = last
            .iter_mut()
            .enumerate()
            .filter_map(|(cluster, last)| {
                let newest = fleet.last_scrape(cluster, now());
                (std::mem::replace(last, newest) < newest).then_some((cluster, newest))
            })
            .collect();
        let (server, fleet, counts) = (&server, &fleet, &pushed);
        let all = stream::iter(due).map(|(cluster, at)| async move {
            let labels = fleet.origin(cluster).map(|o| (o.cluster, o.instance)).unwrap_or_default();
            let labels = [("cluster", labels.0), ("instance", labels.1), ("job", JOB)];
            let sent =
                server.import_as(exposition::render(fleet, cluster, at, &format!(" {at}")), &labels).await;
            if let Err(error) = sent {
                let mut failed = counts.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert_with(|| format!("{error:#}"));
            }
            if counts.scrapes.fetch_add(1, Ordering::Relaxed) >= fleet.len() as u64 {
                counts.late.fetch_max((now() - at).unsigned_abs(), Ordering::Relaxed);
            }
        });
        all.buffer_unordered(AT_ONCE).for_each(|()| async {}).await;
    }
}
