//! Whoever reaches an address opens connections and does nothing with them, or asks and does not read.

use crate::attacks::pushes::{push, pushed_to};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use statusbridge_tests::workload::kustomization_kind;
use statusbridge_tests::*;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_secs(90);
/// As many as the address for pushes takes.
const IDLE: usize = 8192;
/// Clients that do not read, and how much memory all of them may cost, in bytes.
const UNREAD: usize = 3000;
const COST: u64 = 50 << 20;
/// Objects with names as long as they may be make a page of this size at least, in bytes.
const OBJECTS: usize = 3000;
const LARGE: usize = 800_000;
/// Longer than a connection may be silent, a look at who is, and rendering what the kernel takes of all pages, by a program
/// that is not optimized.
const DROPPED: Duration = Duration::from_secs(240);
const R1: &str = "main@sha1:1111111111111111111111111111111111111111";

/// Connections to `address`, each of which has sent this.
async fn connections(address: SocketAddr, count: usize, sent: &[u8]) -> Result<Vec<TcpStream>> {
    let connect = async |_| -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4096)?;
        let mut connection = socket.connect(address).await?;
        // One that has to give way at once cannot be written to.
        let _ = connection.write_all(sent).await;
        Ok(connection)
    };
    let all = stream::iter(0..count).map(connect).buffer_unordered(64);
    all.collect::<Vec<_>>().await.into_iter().collect()
}

fn open_files(pid: u32) -> Result<usize> {
    Ok(std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"))?.count())
}

/// Has clients ask for a page who do not read it: the process still answers others at once, needs little memory for them, and
/// drops them.
async fn unread_pages_cost_little(process: &Process, address: SocketAddr, headers: &str) -> Result<()> {
    let pid = process.pid().context("it has ended")?;
    // A connection that is kept has to give way.
    let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build()?;
    let url = format!("http://{address}/metrics");
    for _ in 0..3 {
        let page = http.get(&url).send().await?.error_for_status()?.text().await?;
        ensure!(page.len() > LARGE, "the page has only {} bytes", page.len());
    }
    let (files, before) = (open_files(pid)?, usage::resident(pid)?);
    // Many pages on one connection, so that they do not all fit into what the kernel keeps.
    let ask = format!("GET /metrics HTTP/1.1\r\nhost: a\r\n{headers}\r\n").repeat(20);
    let mut most = before;
    let mut unread = Vec::new();
    while unread.len() < UNREAD {
        unread.extend(connections(address, UNREAD / 10, ask.as_bytes()).await?);
        most = most.max(usage::resident(pid)?);
        let asked = Instant::now();
        http.get(&url).send().await?.error_for_status()?.bytes().await?;
        ensure!(asked.elapsed() < Duration::from_secs(20), "others wait for {:?}", asked.elapsed());
    }
    let cost = (most.max(usage::resident(pid)?) - before) >> 10;
    println!("{UNREAD} clients that do not read cost {cost} KB");
    ensure!(cost << 10 < COST, "{cost} KB for clients that do not read");
    eventually(DROPPED, "they are dropped", async || {
        let open = open_files(pid)?;
        ensure!(open <= files + 10, "{open} files are open, {files} were before");
        Ok(())
    })
    .await?;
    drop(unread);
    Ok(())
}

/// Somebody who sends one byte of a header at a time does not keep the connection.
async fn slow_headers_are_dropped(address: SocketAddr) -> Result<()> {
    let mut slow = TcpStream::connect(address).await?;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").await?;
    let dropped = async {
        let mut answer = [0; 1024];
        loop {
            match tokio::time::timeout(Duration::from_secs(1), slow.read(&mut answer)).await {
                Ok(Ok(0) | Err(_)) => return,
                // 408, and the end after it.
                Ok(Ok(_)) => {}
                Err(_) => drop(slow.write_all(b"a").await),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), dropped).await.context("a slow header is waited for")
}

/// Makes so many objects.
async fn make(api: &ApiServer, object: impl Fn(usize) -> Value) -> Result<()> {
    let made = stream::iter(0..OBJECTS).map(|n| {
        let object = object(n);
        async move { api.apply_object(&object).await.map(drop) }
    });
    made.buffer_unordered(16).collect::<Vec<_>>().await.into_iter().collect()
}

fn long_name(n: usize) -> String {
    format!("{}-{n:04}", "a".repeat(230))
}

#[tokio::test]
async fn idle_connections_keep_no_pusher_out() {
    run("attacks-idle", async |rig| {
        let (_etcd, port, hub) = pushed_to(rig, &["victim"]).await?;
        let pid = hub.aggregator.process().pid().context("it has ended")?;
        let before = usage::resident(pid)?;
        let idle = connections(port.address(), IDLE, b"").await?;
        // As many again, over and over, in the place of those that had to give way.
        let mut attackers = JoinSet::new();
        let address = port.address();
        attackers.spawn(async move {
            loop {
                drop(connections(address, 256, b"POST /v1alpha1/push HTTP/1.1\r\n").await);
            }
        });

        let (fleet, url) = (FakeFleet::start().await?, format!("http://{address}/v1alpha1/push"));
        hub.report("app", "10s", json!({})).await?;
        hub.gate("wave", "app", R1, json!({"clusters": {"names": ["victim"]}})).await?;
        for _ in 0..20 {
            fleet.says("victim", "app", FakePackage::healthy_at(R1));
            let page: Bytes = reqwest::get(fleet.url("victim")).await?.bytes().await?;
            let answer = tokio::time::timeout(Duration::from_secs(5), push(&url, "victim", page, true)).await;
            let (code, said) = answer.context("a pusher waits")??.context("no answer")?;
            ensure!(code == 200 || code == 204, "{code}: {said}");
        }
        hub.opens("wave", SOON).await?;
        let cost = usage::resident(pid)?.saturating_sub(before) >> 20;
        println!("{IDLE} idle connections cost {cost} MB");
        ensure!(cost < 200, "{cost} MB for idle connections");
        drop(idle);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn who_does_not_read_costs_the_aggregator_little() {
    run("attacks-unread-aggregator", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let mut options = AggregatorOptions::new("http://127.0.0.1:1");
        options.namespace = hub::LEASES.to_owned();
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        let account = hub::install(&api).await?.aggregator;
        make(&api, |n| {
            json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
                "metadata": {"name": long_name(n), "namespace": "default"},
                "spec": {"fleetPackageRef": {"name": "app"}, "revision": R1, "clusters": {"names": ["c1"]}},
            })
        })
        .await?;
        let aggregator = Aggregator::launch(rig, "aggregator", &account, &options).await?;
        eventually(SOON, "every gate has a series", async || {
            let page = aggregator.http().get(aggregator.url("/metrics")).send().await?.text().await?;
            let series = page.matches("statusbridge_gate_open{").count();
            ensure!(series == OBJECTS, "{series}");
            Ok(())
        })
        .await?;
        slow_headers_are_dropped(aggregator.address()).await?;
        unread_pages_cost_little(aggregator.process(), aggregator.address(), "").await
    })
    .await;
}

#[tokio::test]
async fn who_does_not_read_costs_the_exporter_little() {
    run("attacks-unread-exporter", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "c1").await?;
        api.install_crds(&crds::flux()?).await?;
        let kind = kustomization_kind();
        make(&api, |n| {
            json!({
                "apiVersion": format!("{}/{}", kind.group, kind.version), "kind": kind.kind,
                "metadata": {"name": long_name(n), "namespace": "default"},
                "spec": {
                    "interval": "1h", "prune": true, "path": "./",
                    "sourceRef": {"kind": "GitRepository", "name": "a"},
                },
            })
        })
        .await?;
        let exporter =
            Exporter::start(rig, "exporter", api.kubeconfig(), &["--presets", "flux-kustomization"]).await?;
        slow_headers_are_dropped(exporter.address()).await?;
        for headers in ["", "accept-encoding: gzip\r\n"] {
            unread_pages_cost_little(exporter.process(), exporter.address(), headers).await?;
        }
        Ok(())
    })
    .await;
}
