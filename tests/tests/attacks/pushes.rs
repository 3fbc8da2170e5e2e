//! Who may push for one cluster sends what takes long to read.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use statusbridge_aggregator::feed::push::Settings;
use statusbridge_aggregator::feed::push::server::most_memory;
use statusbridge_contract::{Fingerprint, Metric, label};
use statusbridge_tests::exposition::{Attestation, Page};
use statusbridge_tests::*;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const APP: &str = "app";
const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
/// How much of the aggregator's memory all of it may take, in bytes.
const MEMORY: u64 = 600 << 20;

fn token(cluster: &str) -> String {
    format!("the token of {cluster}")
}

pub(crate) fn token_entry(cluster: &str) -> Value {
    statusbridge_tests::token_entry(cluster, &token(cluster))
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

/// The largest exposition that adds up and is read, and the same packed.
fn largest() -> Result<[Bytes; 2]> {
    const PACKAGES: usize = 200_000;
    let mut page = Page::default();
    for n in 0..PACKAGES {
        let name = format!("{n:088}");
        let labels = [(label::PACKAGE, name.as_str()), (label::PACKAGE_SOURCE, "s")];
        page.say(Metric::PackageHealthyRevision, &labels, 1);
        page.say(Metric::PackageTransitionTimestamp, &labels, 1);
    }
    let labels = [(label::PACKAGE_SOURCE, "s")];
    page.say(Metric::SourceUp, &labels, 1);
    page.say(Metric::SourcePackages, &labels, PACKAGES as u64);
    let text = page.attested(Attestation::new(Fingerprint::of("attacker"), 1, fake_fleet::unix_now()));
    ensure!((60 << 20..64 << 20).contains(&text.len()), "{} bytes", text.len());
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes())?;
    Ok([text.into(), packed.finish()?.into()])
}

/// A hub to which these clusters may push, and nothing else tells of clusters.
pub(crate) async fn pushed_to(rig: &Rig, clusters: &[&str]) -> Result<(Etcd, Port, Hub)> {
    let port = Port::reserve()?;
    let entries: Vec<Value> = clusters.iter().map(|cluster| token_entry(cluster)).collect();
    let tokens = rig.file("tokens.yaml", json!(entries).to_string())?;
    let push =
        json!({"listen": port.address(), "insecure": true, "tokensFile": tokens, "expectWithin": "2s"});
    let options = AggregatorOptions::configured(rig, "aggregator", &json!({"feeds": {"push": push}}))?;
    let etcd = Etcd::start(rig).await?;
    let hub = Hub::start_with(rig, &etcd, options).await?;
    Ok((etcd, port, hub))
}

#[tokio::test]
async fn the_largest_pushes_fit_into_the_memory_that_the_chart_gives() {
    run("attacks-largest-pushes", async |rig| {
        let clusters = ["a", "b", "c"];
        let (_etcd, port, hub) = pushed_to(rig, &clusters).await?;
        let url = format!("http://{}/v1alpha1/push", port.address());
        let pid = hub.aggregator.process().pid().context("it has ended")?;
        let before = usage::resident(pid)?;
        let largest = largest()?;

        let mut pushers = JoinSet::new();
        for n in 0..12 {
            let (url, body) = (url.clone(), largest[n % 2].clone());
            let client = reqwest::Client::builder().no_proxy().build()?;
            pushers.spawn(async move {
                let mut request = client.post(url).bearer_auth(token(clusters[n % 3])).body(body);
                if n % 2 == 1 {
                    request = request.header("content-encoding", "gzip");
                }
                // One for which there is no room is cut off.
                request.send().await.map(|answer| answer.status().as_u16()).unwrap_or_default()
            });
        }
        let codes = pushers.join_all().await;
        ensure!(codes.contains(&204), "{codes:?}");
        // What stays in the fleet takes less than what the chart reserves for each package.
        let (most, after) = (usage::highest_resident(pid)?, usage::resident(pid)?);
        println!(
            "{codes:?}: {} MB before, {} MB at most, {} MB after",
            before >> 20,
            most >> 20,
            after >> 20
        );
        let pushes = most_memory(Settings::default().max_bytes) as u64;
        let packages = 3 * 200_000 * 400;
        ensure!(most < before + packages + pushes, "{} MB were resident", most >> 20);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn many_exporters_under_one_token_are_refused_before_they_fill_the_memory() {
    run("attacks-many-exporters", async |rig| {
        let (_etcd, port, hub) = pushed_to(rig, &["a"]).await?;
        let url = format!("http://{}/v1alpha1/push", port.address());
        let [_, packed] = largest()?;
        let client = reqwest::Client::builder().no_proxy().build()?;
        let mut answers = Vec::new();
        for instance in 0..5 {
            let push = client.post(&url).bearer_auth(token("a")).body(packed.clone());
            let push = push.header("content-encoding", "gzip").header("statusbridge-instance", instance);
            let answer = push.send().await?;
            answers.push((answer.status().as_u16(), answer.text().await?));
        }
        let codes: Vec<u16> = answers.iter().map(|(code, _)| *code).collect();
        ensure!(codes == [204, 204, 204, 422, 422], "{answers:?}");
        ensure!(
            answers.iter().skip(3).all(|(_, said)| said.contains("128 MiB are kept of a cluster")),
            "{answers:?}"
        );
        let pid = hub.aggregator.process().pid().context("it has ended")?;
        println!("{} MB were resident", usage::highest_resident(pid)? >> 20);
        Ok(())
    })
    .await;
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

/// Sends the whole of a push, and goes.
async fn push_and_hang_up(address: SocketAddr, cluster: &str, body: &[u8]) -> Result<()> {
    let mut connection = TcpStream::connect(address).await?;
    let head = format!(
        "POST /v1alpha1/push HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        token(cluster),
        body.len()
    );
    // One whose token has to wait is answered before it has sent everything.
    let _ = connection.write_all(&[head.as_bytes(), body].concat()).await;
    Ok(())
}

#[tokio::test]
async fn what_one_cluster_pushes_delays_no_other() {
    run("attacks-pushes", async |rig| {
        let (_etcd, port, hub) = pushed_to(rig, &["attacker", "another", "hasty", "victim"]).await?;
        let url = format!("http://{}/v1alpha1/push", port.address());
        hub.report(APP, "10s", json!({})).await?;
        hub.gate("wave", APP, R1, json!({"clusters": {"names": ["victim"]}})).await?;

        let (labels, sources) = (many_labels(), many_sources());
        let (code, said) = push(&url, "attacker", labels.clone(), true).await?.context("no answer")?;
        ensure!(code == 400 && said.contains("more than 32 labels"), "{code}: {said}");
        let (code, said) = push(&url, "another", sources.clone(), true).await?.context("no answer")?;
        ensure!(code == 413 && said.contains("more than 256 sources"), "{code}: {said}");
        // Whoever was refused has to wait, longer and longer, and costs nothing meanwhile.
        for _ in 0..20 {
            let (code, said) =
                push(&url, "attacker", Bytes::from("# \n"), true).await?.context("no answer")?;
            ensure!(code == 429 || code == 400, "{code}: {said}");
        }
        // The one after a wait is refused for what it is, and begins the next.
        eventually(SOON, "whoever was refused is told to wait", async || {
            let (code, said) =
                push(&url, "attacker", Bytes::from("# \n"), true).await?.context("no answer")?;
            ensure!(code == 429 && said.contains("pushes with this token were refused"), "{code}: {said}");
            Ok(())
        })
        .await?;

        // Nor does it help not to wait for the answer, or to send something good in between.
        let fleet = FakeFleet::start().await?;
        fleet.says("hasty", APP, FakePackage::healthy_at(R1));
        let bad_at_last = "# \n".repeat(10 << 20) + "nonsense{\n";
        eventually(SOON, "whoever hangs up has to wait, too", async || {
            push_and_hang_up(port.address(), "hasty", bad_at_last.as_bytes()).await?;
            let page = reqwest::get(fleet.url("hasty")).await?.bytes().await?;
            let (code, said) = push(&url, "hasty", page, true).await?.context("no answer")?;
            ensure!(code == 429 && said.contains("pushes with this token were refused"), "{code}: {said}");
            Ok(())
        })
        .await?;

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
