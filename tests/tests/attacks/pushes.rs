//! Who may push for one cluster sends what takes long to read.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use statusbridge_contract::{Fingerprint, Metric, label};
use statusbridge_tests::exposition::{Attestation, Page};
use statusbridge_tests::*;
use std::time::Duration;
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_secs(90);
const APP: &str = "app";
const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
/// How much of the aggregator's memory all of it may take, in bytes.
const MEMORY: u64 = 600 << 20;

fn token(cluster: &str) -> String {
    format!("the token of {cluster}")
}

pub(crate) fn token_entry(cluster: &str) -> Value {
    let hash: String = Sha256::digest(token(cluster)).iter().map(|byte| format!("{byte:02x}")).collect();
    json!({"cluster": cluster, "sha256": hash})
}

/// One sample with ten megabytes of labels.
fn many_labels() -> Bytes {
    let labels: String = (0..400_000).map(|n| format!("label_number_{n}=\"\",")).collect();
    format!("{}{{{labels}}} 1\n", Metric::Digest.name()).into()
}

/// An exposition that adds up, of a hundred thousand sources.
fn many_sources() -> Bytes {
    let mut page = Page::default();
    for n in 0..100_000 {
        let name = format!("s{n}");
        let labels = [(label::PACKAGE_SOURCE, name.as_str())];
        page.say(Metric::SourceUp, &labels, 1);
        page.say(Metric::SourcePackages, &labels, 0);
    }
    page.attested(Attestation::new(Fingerprint::of("attacker"), 1, fake_fleet::unix_now())).into()
}

/// Pushes a body; `None` where it is not waited for an answer.
pub(crate) async fn push(
    url: &str,
    cluster: &str,
    body: Bytes,
    waits: bool,
) -> Result<Option<(u16, String)>> {
    let request = reqwest::Client::builder()
        .no_proxy()
        .build()?
        .post(url)
        .bearer_auth(token(cluster))
        .body(body)
        .send();
    if !waits {
        // Long enough to be sent, and no longer.
        let _ = tokio::time::timeout(Duration::from_millis(300), request).await;
        return Ok(None);
    }
    let answer = request.await?;
    Ok(Some((answer.status().as_u16(), answer.text().await?)))
}

#[tokio::test]
async fn what_one_cluster_pushes_delays_no_other() {
    run("attacks-pushes", async |rig| {
        let port = Port::reserve()?;
        let tokens = rig.dir().join("tokens.yaml");
        std::fs::write(&tokens, json!([token_entry("attacker"), token_entry("victim")]).to_string())?;
        let config = rig.dir().join("aggregator.yaml");
        let push_to =
            json!({"feeds": {"push": {"listen": port.address(), "insecure": true, "tokensFile": tokens, "expectWithin": "2s"}}});
        std::fs::write(&config, push_to.to_string())?;
        let mut options = AggregatorOptions::new("");
        options.more = vec!["--config".to_owned(), config.display().to_string()];
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, options).await?;
        let url = format!("http://{}/v1alpha1/push", port.address());
        hub.report(APP, "10s", json!({})).await?;
        hub.gate("wave", APP, R1, json!({"clusters": {"names": ["victim"]}})).await?;

        let (labels, sources) = (many_labels(), many_sources());
        let (code, said) = push(&url, "attacker", labels.clone(), true).await?.context("no answer")?;
        ensure!(code == 400 && said.contains("more than 32 labels"), "{code}: {said}");
        let (code, said) = push(&url, "attacker", sources.clone(), true).await?.context("no answer")?;
        ensure!(code == 422 && said.contains("100000 sources"), "{code}: {said}");

        // Both again and again, by many at a time who do not wait, while the other cluster's gate opens and closes.
        let mut attackers = JoinSet::new();
        for n in 0..12 {
            let (url, body) = (url.clone(), if n % 2 == 0 { labels.clone() } else { sources.clone() });
            attackers.spawn(async move {
                loop {
                    let _ = push(&url, "attacker", body.clone(), false).await;
                }
            });
        }
        let fleet = FakeFleet::start().await?;
        let says = async |what: FakePackage| -> Result<()> {
            fleet.says("victim", APP, what);
            let page = reqwest::get(fleet.url("victim")).await?.bytes().await?;
            let (code, said) = push(&url, "victim", page, true).await?.context("no answer")?;
            ensure!(code == 200 || code == 204, "{code}: {said}");
            Ok(())
        };
        for _ in 0..5 {
            eventually(SOON, "it opens", async || {
                says(FakePackage::healthy_at(R1)).await?;
                hub.opens("wave", Duration::from_secs(2)).await
            })
            .await?;
            eventually(SOON, "it closes", async || {
                says(FakePackage::failed_at(R1)).await?;
                let gate = hub.get_gate("wave").await?;
                ensure!(history::condition(&gate, "Open").0 == "False", "it is open");
                Ok(())
            })
            .await?;
        }
        let pid = hub.aggregator.process().pid().context("it has ended")?;
        let most = usage::highest_resident(pid)?;
        ensure!(most < MEMORY, "{} MB were resident", most >> 20);
        Ok(())
    })
    .await;
}
