//! The limits of memory hold what the programs take at most.

use super::*;
use statusbridge_aggregator::feed::push::server::most_memory;
use statusbridge_aggregator::feed::{push, scrape};
use statusbridge_core::fleet::MOST_OF_A_CLUSTER;

/// The limit of the aggregator's memory, in bytes.
async fn limit(more: &[&str]) -> Result<usize> {
    let objects = Chart::Aggregator.render(NAMESPACE, more).await?;
    let deployment = the(&objects, "Deployment", "statusbridge-aggregator")?;
    let limit = &deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"];
    let limit = limit.as_str().and_then(|limit| limit.strip_suffix("Mi")).context("no limit in Mi")?;
    Ok(limit.parse::<usize>()? << 20)
}

#[tokio::test]
async fn pushes_fit_beside_the_fleet() -> Result<()> {
    let push =
        ["--set", "push.enabled=true,push.tlsSecretName=a,push.tokensSecret.name=b,push.tokensSecret.key=c"];
    let (without, with) = (limit(&[]).await?, limit(&push).await?);
    let most = most_memory(push::Settings::default().max_bytes);
    let kept = most + MOST_OF_A_CLUSTER;
    ensure!(with - without >= kept, "{} bytes for pushes, which take up to {kept}", with - without);
    // What is said of a larger maxBytes.
    let more = most_memory(push::Settings::default().max_bytes + (1 << 20)) - most;
    ensure!(more <= 5 << 20, "a MiB more of maxBytes takes {more} bytes");
    Ok(())
}

#[tokio::test]
async fn scrapes_fit_beside_the_fleet() -> Result<()> {
    let values = [
        "--set",
        "config.feeds.scrape.targets[0].cluster=a,config.feeds.scrape.targets[0].url=http://a/metrics",
    ];
    let (without, with) = (limit(&[]).await?, limit(&values).await?);
    let most = scrape::most_memory(scrape::Settings::default().max_bytes) + MOST_OF_A_CLUSTER;
    ensure!(with - without >= most, "{} bytes for scrapes, which take up to {most}", with - without);
    Ok(())
}
