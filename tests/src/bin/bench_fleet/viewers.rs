//! People who look at the page, and programs that ask for verdicts.

use crate::figures::Work;
use crate::generated::{Generated, NAMESPACE, SOURCE, revision};
use crate::hub::Running;
use anyhow::{Context, Result, ensure};
use statusbridge_tests::bench::say;
use statusbridge_tests::usage;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How many look at the same time.
pub(crate) const VIEWERS: usize = 10;
/// How many verdicts are asked for, one after the other.
pub(crate) const VERDICTS: usize = 500;

/// What they take.
#[derive(Debug)]
pub(crate) struct Watched {
    /// From the request to the last byte of the first picture.
    pub(crate) first: Duration,
    /// Its bytes.
    pub(crate) bytes: u64,
    /// Quiet polls while all of them look.
    pub(crate) quiet: Work,
    /// Bytes of memory more than before.
    pub(crate) memory: u64,
    /// Half of the verdicts, and 99 of a hundred, were there within this.
    pub(crate) verdicts: [Duration; 2],
    /// So many of them the aggregator had no time for.
    pub(crate) refused: usize,
}

/// Viewers that read what they are sent, until they are dropped.
pub(crate) struct Viewers {
    tasks: JoinSet<Result<()>>,
    http: reqwest::Client,
    first: Duration,
    bytes: u64,
    resident: u64,
}

impl Viewers {
    /// The first picture, and then all of them look at what changes.
    pub(crate) async fn come(running: &Running) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let resident = usage::resident(running.pid()?)?;
        let address = running.aggregator.address();
        let began = Instant::now();
        let answer = http.get(format!("http://{address}/v1alpha1/fleet")).send().await?;
        ensure!(answer.status().is_success(), "{}", answer.text().await?);
        let body = answer.bytes().await?;
        let (first, bytes) = (began.elapsed(), body.len() as u64);
        let all: serde_json::Value = serde_json::from_slice(&body)?;
        let cursor = all["cursor"].as_str().context("the fleet has a cursor")?;
        let mut tasks = JoinSet::new();
        for _ in 0..VIEWERS {
            let request = http.get(format!("http://{address}/v1alpha1/fleet/changes?cursor={cursor}"));
            tasks.spawn(async move {
                let mut answer = request.send().await?;
                ensure!(answer.status().is_success(), "{}", answer.text().await?);
                while answer.chunk().await?.is_some() {}
                anyhow::bail!("the changes have ended")
            });
        }
        Ok(Self { tasks, http, first, bytes, resident })
    }

    /// Asks for verdicts, and adds what the polls meanwhile took.
    pub(crate) async fn end(mut self, running: &Running, quiet: Work, fleet: &Generated) -> Result<Watched> {
        if let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        let memory = usage::resident(running.pid()?)?.saturating_sub(self.resident);
        let (mut took, mut refused) = (Vec::with_capacity(VERDICTS), 0);
        for number in 0..VERDICTS {
            let package = fleet.packages.get(number % fleet.packages.len()).context("packages")?;
            let some = fleet.len().min(1000);
            let clusters: Vec<&str> = (0..100).map(|n| fleet.cluster_name((number + n * 7) % some)).collect();
            let query = format!(
                "source={SOURCE}&namespace={NAMESPACE}&package={package}&revision={}&clusters={}",
                revision(package, (number % 2) as u64),
                clusters.join(",")
            );
            let began = Instant::now();
            let address = running.aggregator.address();
            let answer = self.http.get(format!("http://{address}/v1alpha1/verdict?{query}")).send().await?;
            let status = answer.status().as_u16();
            let said = answer.text().await?;
            ensure!([200, 409, 503].contains(&status), "{status}: {said}");
            if status == 503 {
                say(&format!("verdict {number}: {said}"));
                refused += 1;
            }
            took.push(began.elapsed());
        }
        took.sort();
        let within = |share: usize| {
            took.get((took.len() * share / 100).min(took.len() - 1)).copied().unwrap_or_default()
        };
        let verdicts = [within(50), within(99)];
        Ok(Watched { first: self.first, bytes: self.bytes, quiet, memory, verdicts, refused })
    }
}
