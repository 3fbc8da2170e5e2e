//! The exporters beside the one that is measured: their expositions, served by one process.

use super::{INTERVAL, package};
use anyhow::{Context, Result};
use statusbridge_tests::{FakeFleet, FakePackage, PushDoor, ScrapeJob};
use std::time::Duration;
use tokio::task::JoinSet;

/// Packages of each.
const EACH: usize = 20;

/// So many of them.
pub(super) struct Others {
    fleet: FakeFleet,
    names: Vec<String>,
}

impl Others {
    pub(super) async fn start(count: usize, revision: &str) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        let names: Vec<String> = (0..count).map(|n| format!("other-{n:04}")).collect();
        for name in &names {
            (0..EACH).for_each(|n| fleet.says(name, &package(n), FakePackage::healthy_at(revision)));
        }
        Ok(Self { fleet, names })
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Adds all of them to a scrape job.
    pub(super) fn targets(&self, job: ScrapeJob) -> ScrapeJob {
        self.names().fold(job, |job, name| self.fleet.target(job, name, &[]))
    }

    /// Pushes what each says, every interval, as its token says who it is; until what it gives is dropped.
    pub(super) fn push(&self, door: &PushDoor, token: impl Fn(&str) -> String) -> Result<JoinSet<()>> {
        let pem = std::fs::read(&door.certificate)?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_merge([reqwest::Certificate::from_pem(&pem).context("the certificate")?])
            .timeout(INTERVAL)
            .build()?;
        let mut pushing = JoinSet::new();
        for (n, name) in self.names().enumerate() {
            let (client, from, to) = (client.clone(), self.fleet.url(name), door.url());
            let token = token(name);
            let first = INTERVAL.mul_f64(n as f64 / self.names.len() as f64);
            pushing.spawn(async move {
                let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + first, INTERVAL);
                loop {
                    ticks.tick().await;
                    while let Err(error) = push(&client, &from, &to, &token).await {
                        eprintln!("{from}: {error:#}");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            });
        }
        Ok(pushing)
    }
}

async fn push(client: &reqwest::Client, from: &str, to: &str, token: &str) -> Result<()> {
    let text = client.get(from).send().await?.error_for_status()?.bytes().await?;
    let request = client.post(to).bearer_auth(token).header("content-type", "text/plain; version=0.0.4");
    let answer = request.body(text).send().await?;
    anyhow::ensure!(answer.status().is_success(), "{}: {}", answer.status(), answer.text().await?);
    Ok(())
}
