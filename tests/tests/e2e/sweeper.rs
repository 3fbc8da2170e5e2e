//! An aggregator that is killed cannot close its gates.

use crate::e2e::world::*;
use anyhow::ensure;
use statusbridge_tests::*;

#[tokio::test]
async fn the_sweeper_closes_the_gate_of_a_killed_aggregator_while_the_data_goes_bad() {
    run("e2e-sweeper", async |rig| {
        let world = World::start(rig, &["c1"], &[]).await?;
        let (hub, cluster) = (&world.hub, &world.clusters[0]);
        let sweeper = hub.start_sweeper(rig, "8s").await?;
        world.open("wave", &revision(1)).await?;
        let history = hub.history("wave").await?;

        hub.aggregator.process().kill();
        history.check("a sweeper leaves a living aggregator's gate alone", open).await?;
        cluster.fail(APP, &revision(1), "deployment/app: ProgressDeadlineExceeded").await?;
        let gate = hub.closes("wave", "AggregatorSilent", SOON).await?;
        ensure!(history::condition(&gate, "Ready").0 == "False", "{}", gate.data["status"]);
        // Closed once, it is not written again and again.
        let written = history.versions().await?.len();
        cluster.deliver(APP, &revision(2)).await?;
        cluster.fail(APP, &revision(1), "deployment/app: ProgressDeadlineExceeded").await?;
        ensure!(history.versions().await?.len() == written, "the sweeper wrote again");
        sweeper.process().ensure_running()?;

        // The next aggregator judges for itself, and opens only on what is good.
        hub.aggregator.process().start()?;
        hub.closes("wave", "FailureBudgetExceeded", SOON).await?;
        cluster.deliver(APP, &revision(1)).await?;
        hub.opens("wave", SOON).await.map(drop)
    })
    .await;
}
