//! Gateways and balancers that repeat an old exposition: nothing opens on what they repeat, it gets no younger, and once
//! they are over a scrape or two are enough.

use crate::e2e::world::*;
use anyhow::{Result, ensure};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;
use statusbridge_tests::*;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How scrapes are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// With what the exporter says now.
    Direct,
    /// With what it said when this began.
    Repeats,
    /// By turns, as a balancer does of which one cache is stuck.
    ByTurns,
}

/// Stands between exporter and Prometheus.
struct Detour {
    http: reqwest::Client,
    exporter: SocketAddr,
    state: Mutex<State>,
}

struct State {
    way: Way,
    kept: Option<Bytes>,
    /// Whether the next answer is the kept one.
    turn: bool,
}

impl Detour {
    async fn start(exporter: SocketAddr) -> Result<(Arc<Self>, FileServer)> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let state = Mutex::new(State { way: Way::Direct, kept: None, turn: false });
        let detour = Arc::new(Self { http, exporter, state });
        let server = FileServer::start().await?;
        let answers = detour.clone();
        server.put_with("/metrics", move || {
            let detour = answers.clone();
            async move { detour.answer().await.ok() }
        });
        Ok((detour, server))
    }

    async fn ask(&self) -> Result<Bytes> {
        let answer = self.http.get(format!("http://{}/metrics", self.exporter)).send().await?;
        Ok(answer.error_for_status()?.bytes().await?)
    }

    async fn answer(&self) -> Result<Bytes> {
        let kept = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.turn = !state.turn;
            let repeats = state.way == Way::Repeats || state.way == Way::ByTurns && state.turn;
            state.kept.clone().filter(|_| repeats)
        };
        match kept {
            Some(kept) => Ok(kept),
            None => self.ask().await,
        }
    }

    /// Answers in another way from now on; gives when what it repeats was said at the latest.
    async fn goes(&self, way: Way) -> Result<Timestamp> {
        let kept = self.ask().await?;
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) =
            State { way, kept: Some(kept), turn: false };
        Ok(Timestamp::now())
    }
}

/// Fails when a FleetPackage claims to rest on anything younger than this.
async fn is_no_younger(hub: &Hub, than: Timestamp) -> Result<()> {
    let report = hub.get_report(APP).await?;
    let Some(as_of) = report.data["status"]["asOf"].as_str() else { return Ok(()) };
    ensure!(as_of.parse::<Timestamp>()? <= than, "asOf is {as_of}, and what is repeated was said at {than}");
    Ok(())
}

#[tokio::test]
async fn nothing_opens_on_an_exposition_that_is_repeated() {
    run("e2e-detours", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let cluster = Workload::start(rig, &etcd, "c1", &[]).await?;
        let (detour, server) = Detour::start(cluster.exporter.address()).await?;
        let config = PrometheusConfig::with_jobs([job().target(server.address(), &[("cluster", "c1")])]);
        let prometheus = Prometheus::start(rig, &config).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        let of_c1 = || json!({"clusters": {"names": ["c1"]}});
        cluster.deliver(APP, &revision(1)).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        hub.gate("first", APP, &revision(1), of_c1()).await?;
        hub.opens("first", SOON).await?;

        // For seconds: what is new comes late, and only once it comes a gate opens on it.
        hub.gate("second", APP, &revision(2), of_c1()).await?;
        let second = hub.history("second").await?;
        let said = detour.goes(Way::Repeats).await?;
        cluster.deliver(APP, &revision(2)).await?;
        holds_for(
            Duration::from_secs(5),
            "what is repeated opens nothing, and gets no younger",
            async || {
                second.check("nothing opens", not_open).await?;
                is_no_younger(&hub, said).await
            },
        )
        .await?;
        detour.goes(Way::Direct).await?;
        let over = Instant::now();
        hub.opens("second", SOON).await?;
        println!("open {:.1?} after a gateway no longer repeats", over.elapsed());

        // For as long as can be seen: what was good is too old in the end, whatever has become of it.
        let said = detour.goes(Way::Repeats).await?;
        cluster.fail(APP, &revision(2), "out of memory").await?;
        hub.closes("second", "Stale", STALE_BY).await?;
        is_no_younger(&hub, said).await?;
        let second = hub.history("second").await?;
        holds_for(Duration::from_secs(5), "it stays closed", async || {
            second.check("it stays closed", not_open).await
        })
        .await?;
        detour.goes(Way::Direct).await?;
        hub.closes("second", "FailureBudgetExceeded", SOON).await?;
        cluster.deliver(APP, &revision(2)).await?;
        hub.opens("second", SOON).await?;

        // One cache of two: it takes nothing back.
        detour.goes(Way::ByTurns).await?;
        cluster.fail(APP, &revision(2), "out of memory again").await?;
        hub.closes("second", "FailureBudgetExceeded", SOON).await?;
        let second = hub.history("second").await?;
        holds_for(Duration::from_secs(10), "a stuck cache opens nothing", async || {
            second.check("a stuck cache opens nothing", not_open).await
        })
        .await?;
        detour.goes(Way::Direct).await?;
        cluster.deliver(APP, &revision(2)).await?;
        let over = Instant::now();
        hub.opens("second", SOON).await?;
        println!("open {:.1?} after a cache is no longer stuck", over.elapsed());
        Ok(())
    })
    .await;
}
