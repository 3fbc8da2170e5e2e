//! A metrics backend that freezes, dies, answers errors or half of what it should.

use crate::e2e::world::*;
use anyhow::{Result, ensure};
use statusbridge_tests::*;

/// The setup with a proxy between Prometheus and the aggregator.
struct Setup {
    clusters: Vec<Workload>,
    prometheus: Prometheus,
    proxy: FaultProxy,
    hub: Hub,
    _etcd: Etcd,
}

impl Setup {
    async fn start(rig: &Rig) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let cluster = Workload::start(rig, &etcd, "c1", &[]).await?;
        let config = PrometheusConfig::with_jobs([cluster.target(job())]);
        let prometheus = Prometheus::start(rig, &config).await?;
        let proxy = FaultProxy::start(rig, prometheus.address()).await?;
        let hub = Hub::start(rig, &etcd, &proxy.url()).await?;
        cluster.deliver(APP, &revision(1)).await?;
        hub.report(APP, STALE_AFTER, serde_json::json!({})).await?;
        let setup = Self { clusters: vec![cluster], prometheus, proxy, hub, _etcd: etcd };
        setup.gate(1).await?;
        setup.hub.opens("r1", SOON).await?;
        Ok(setup)
    }

    /// The gate of the revision of this number.
    async fn gate(&self, number: u32) -> Result<()> {
        let clusters = serde_json::json!({"clusters": {"names": ["c1"]}});
        self.hub.gate(&format!("r{number}"), APP, &revision(number), clusters).await.map(drop)
    }

    /// While the gate of `number` is open and that of the next one waits, the backend fails and the cluster moves
    /// on: the first closes, the second does not open, both say why; and once the backend is back it opens.
    async fn survives(
        &self,
        number: u32,
        fault: impl AsyncFnOnce() -> Result<()>,
        repair: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        let (open_gate, next_gate) = (format!("r{number}"), format!("r{}", number + 1));
        self.gate(number + 1).await?;
        self.hub.closes(&next_gate, "RevisionNeverSeen", SOON).await?;
        self.hub.opens(&open_gate, SOON).await?;
        let history = self.hub.history(&next_gate).await?;
        fault().await?;
        self.clusters[0].deliver(APP, &revision(number + 1)).await?;
        let silent = "the metrics backend does not answer";
        for (gate, by) in [(&open_gate, STALE_BY), (&next_gate, SOON)] {
            eventually(by, &format!("{gate} is closed and says that the backend is silent"), async || {
                let gate = self.hub.get_gate(gate).await?;
                ensure!(history::condition(&gate, "Open").0 == "False", "open");
                ensure!(waiting(&gate).contains(silent), "{}", waiting(&gate));
                Ok(())
            })
            .await?;
        }
        self.hub.reports(APP, "Reporting", "False", "BackendUnavailable", SOON).await?;
        history.check("nothing opens while the backend is silent", closed).await?;
        repair().await?;
        self.hub.opens(&next_gate, SOON).await?;
        self.hub.closes(&open_gate, "Superseded", SOON).await?;
        self.hub.aggregator.process().ensure_running()
    }
}

#[tokio::test]
async fn a_frozen_or_killed_prometheus_closes_gates_and_opens_none() {
    run("e2e-backend-gone", async |rig| {
        let setup = Setup::start(rig).await?;
        let prometheus = &setup.prometheus;
        setup
            .survives(1, async || prometheus.process().freeze(), async || prometheus.process().thaw())
            .await?;
        let kill = async || {
            prometheus.stop();
            Ok(())
        };
        setup.survives(2, kill, async || prometheus.start_again().await).await
    })
    .await;
}

#[tokio::test]
async fn a_backend_that_answers_errors_or_half_a_body_closes_gates_and_opens_none() {
    run("e2e-backend-errors", async |rig| {
        let setup = Setup::start(rig).await?;
        let switch = async |fault: Fault| {
            setup.proxy.set(fault);
            Ok(())
        };
        setup
            .survives(1, async || switch(Fault::ServerError).await, async || switch(Fault::Pass).await)
            .await?;
        setup.survives(2, async || switch(Fault::HalfBody).await, async || switch(Fault::Pass).await).await
    })
    .await;
}
