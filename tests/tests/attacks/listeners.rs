//! Whoever reaches an address opens connections and does nothing with them, or asks and does not read.

use crate::attacks::pushes::{push, pushed_to};
use crate::scrape::scrapers_rights;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use statusbridge_contract::Health;
use statusbridge_tests::exposition::Exposition;
use statusbridge_tests::fake_fleet::SOURCE;
use statusbridge_tests::workload::{delivered, failed, kustomization_kind};
use statusbridge_tests::*;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

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
const DROPPED: Duration = SOON.saturating_mul(2);
const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
/// Another host than the one that scrapes.
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// More than the exporter takes connections.
const ATTACKERS: usize = 300;
/// A few less than that.
const READERS: usize = 250;
/// How long a scrape may take, and a change until it is shown.
const PROMISED: Duration = Duration::from_secs(10);

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
        ensure!(asked.elapsed() < Duration::from_secs(60), "others wait for {:?}", asked.elapsed());
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

/// Makes packages that are shown on a large page.
async fn make_packages(api: &ApiServer) -> Result<()> {
    let kind = kustomization_kind();
    make(api, |n| {
        json!({
            "apiVersion": format!("{}/{}", kind.group, kind.version), "kind": kind.kind,
            "metadata": {"name": long_name(n), "namespace": "default"},
            "spec": {
                "interval": "1h", "prune": true, "path": "./",
                "sourceRef": {"kind": "GitRepository", "name": "a"},
            },
        })
    })
    .await
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
#[ignore = "it takes minutes: make long"]
async fn who_does_not_read_costs_the_exporter_little() {
    run("attacks-unread-exporter", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "c1").await?;
        api.install_crds(&crds::flux()?).await?;
        make_packages(&api).await?;
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

/// Clients that go on until this is dropped, on threads of their own.
struct Attack {
    runtime: Option<Runtime>,
    /// How often each kind of them got as far as it wanted.
    counts: Vec<(&'static str, Arc<AtomicU64>)>,
}

impl Attack {
    fn begin() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self { runtime: Some(runtime), counts: Vec::new() })
    }

    /// So many clients do this again and again; `act` says whether it came to what it is for.
    fn with<F: Future<Output = bool> + Send>(
        &mut self,
        kind: &'static str,
        clients: usize,
        act: impl Fn() -> F + Clone + Send + 'static,
    ) {
        let count = Arc::new(AtomicU64::new(0));
        if let Some(runtime) = &self.runtime {
            for _ in 0..clients {
                let (act, count) = (act.clone(), count.clone());
                runtime.spawn(async move {
                    loop {
                        if act().await {
                            count.fetch_add(1, Ordering::Relaxed);
                        } else {
                            tokio::time::sleep(Duration::from_millis(10)).await;
                        }
                    }
                });
            }
        }
        self.counts.push((kind, count));
    }

    /// Fails if one kind of them did not get that far so often: then nothing was shown.
    fn was_one(&self, least: u64) -> Result<()> {
        for (kind, count) in &self.counts {
            let count = count.load(Ordering::Relaxed);
            println!("{kind}: {count}");
            ensure!(count >= least, "{kind}: {count} are no flood");
        }
        Ok(())
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A connection from the attacker's address.
async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((ATTACKER, 0).into())?;
    Ok(socket.connect(address).await?)
}

/// Sends this from the attacker's address, and keeps the connection for as long as the server does.
async fn leave_half_done(address: SocketAddr, sent: &[u8]) -> Result<()> {
    let mut connection = connect(address).await?;
    connection.write_all(sent).await?;
    // Another comes in its place soon, so that connections come without an end.
    let _ = tokio::time::timeout(Duration::from_secs(1), connection.read(&mut [0])).await;
    Ok(())
}

/// Asks for many pages from the attacker's address, and reads them for a while without looking at them. Gives back how much
/// that was.
async fn read_pages(address: SocketAddr) -> Result<usize> {
    let mut connection = connect(address).await?;
    connection.write_all("GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n".repeat(100).as_bytes()).await?;
    let (until, mut buffer, mut read) = (Instant::now() + Duration::from_secs(5), vec![0; 1 << 16], 0);
    while Instant::now() < until {
        match tokio::time::timeout(Duration::from_secs(5), connection.read(&mut buffer)).await {
            Ok(Ok(1..)) => read += buffer.len(),
            _ => break,
        }
    }
    Ok(read)
}

/// What a client says first, which costs whoever says it again nothing, and the server a signature.
fn client_hello() -> Result<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), "127.0.0.1".try_into()?)?;
    let mut hello = Vec::new();
    connection.write_tls(&mut hello)?;
    Ok(hello)
}

/// The exporter of `api` over TLS, and who certified it.
async fn over_tls(rig: &Rig, api: &ApiServer, more: &[&str]) -> Result<(Exporter, Authority)> {
    let authority = Authority::new("exporters")?;
    let made = authority.certify("127.0.0.1")?;
    let (crt, key) = (rig.dir().join("exporter.crt"), rig.dir().join("exporter.key"));
    std::fs::write(&crt, made.certificate)?;
    std::fs::write(&key, made.key)?;
    let (crt, key) = (crt.display().to_string(), key.display().to_string());
    let tls = ["--presets", "flux-kustomization", "--tls-cert-file", &crt, "--tls-private-key-file", &key];
    let exporter = Exporter::launch(rig, "exporter", api.kubeconfig(), &[&tls, more].concat()).await?;
    let http = client(&authority)?.build()?;
    eventually(SOON, "the exporter is ready", async || {
        let url = format!("https://{}/readyz", exporter.address());
        http.get(url).send().await?.error_for_status()?;
        Ok(())
    })
    .await?;
    Ok((exporter, authority))
}

/// A client that opens a connection for each request and waits for it as long as a scraper does.
fn client(authority: &Authority) -> Result<reqwest::ClientBuilder> {
    let trusted = reqwest::Certificate::from_pem(authority.pem().as_bytes())?;
    Ok(reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([trusted])
        .pool_max_idle_per_host(0)
        .timeout(PROMISED))
}

#[tokio::test]
async fn unknown_tokens_and_half_done_handshakes_keep_no_scraper_out() {
    run("attacks-unknown-tokens", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "c1").await?;
        api.install_crds(&crds::flux()?).await?;
        api.apply(scrapers_rights()?).await?;
        let token = async || api.token_of_service_account("monitoring", "prometheus", &[]).await;
        let (exporter, authority) = over_tls(rig, &api, &["--authorize-scrapes"]).await?;
        let url = format!("https://{}/metrics", exporter.address());

        let http = client(&authority)?.build()?;
        let (known, mut page) = (token().await?, String::new());
        // In all for longer than an answer of the API server holds, with a token that is known and ones that are new.
        let mut scrapes = async || {
            tokio::time::sleep(Duration::from_secs(3)).await;
            for n in 0..8 {
                let token = if n % 4 == 3 { token().await? } else { known.clone() };
                let asked = Instant::now();
                let answer =
                    http.get(&url).bearer_auth(token).send().await.with_context(|| format!("{n}"))?;
                let status = answer.status();
                page = answer.text().await?;
                ensure!(status == 200, "scrape {n} is answered {status}: {page}");
                println!("scrape {n} took {:?}", asked.elapsed());
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            anyhow::Ok(())
        };

        // As many as one client may have stay connected; more make room for each other.
        for (kind, clients, kept) in
            [("requests on kept connections", 60, 60), ("requests on new connections", ATTACKERS, 0)]
        {
            let http = client(&authority)?.local_address(ATTACKER).pool_max_idle_per_host(kept).build()?;
            let (url, next) = (url.clone(), Arc::new(AtomicU64::new(0)));
            let mut attack = Attack::begin()?;
            attack.with(kind, clients, move || {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let asked = http.get(&url).bearer_auth(format!("{kind}-{number}").replace(' ', "-")).send();
                async move { asked.await.is_ok() }
            });
            scrapes().await?;
            attack.was_one(100)?;
        }
        let mut attack = Attack::begin()?;
        let address = exporter.address();
        // A record of a handshake that has just begun.
        attack.with("half-done handshakes", ATTACKERS, move || async move {
            leave_half_done(address, b"\x16\x03\x01\x02\x00\x01").await.is_ok()
        });
        scrapes().await?;
        let refused = |cause: &str| {
            let series = format!("statusbridge_exporter_scrapes_refused_total{{cause=\"{cause}\"}} ");
            page.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok())
        };
        println!("refused: {:?}, at once: {:?}", refused("unauthenticated"), refused("unavailable"));
        ensure!(refused("unavailable") > Some(0), "no client was told to try again");
        attack.was_one(100)
    })
    .await;
}

#[tokio::test]
async fn handshakes_and_readers_keep_no_engine_from_its_work() {
    run("attacks-busy-listener", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "c1").await?;
        api.install_crds(&crds::flux()?).await?;
        api.ensure_namespace(FLUX_NAMESPACE).await?;
        make_packages(&api).await?;
        let (over_tls, authority) = over_tls(rig, &api, &[]).await?;
        let plain =
            Exporter::start(rig, "plain", api.kubeconfig(), &["--presets", "flux-kustomization"]).await?;
        let (tls_address, plain_address) = (over_tls.address(), plain.address());
        let cluster = Workload::of(api, plain).await?;
        cluster.deliver("app", R1).await?;

        let http = client(&authority)?.build()?;
        let scrape = async |url: &str| {
            let page = http.get(url).send().await?.error_for_status()?.text().await?;
            let says = Exposition::parse(&page)?;
            ensure!(says.source_up(SOURCE) == Some(true), "the source is not up");
            Ok(says)
        };
        let keeps_up = async |url: &str| {
            tokio::time::sleep(Duration::from_secs(10)).await;
            for n in 0..8 {
                let is_good = n % 2 == 1;
                let status = if is_good { delivered(R1) } else { failed(R1, "crash loop") };
                cluster.set_status("app", status).await?;
                let written = Instant::now();
                loop {
                    let shown = scrape(url).await?.package(SOURCE, "app").context("it is not shown")?;
                    if (shown.health == Health::Current) == is_good {
                        break;
                    }
                    ensure!(written.elapsed() < PROMISED, "{shown:?} {:?} after a change", written.elapsed());
                }
                println!("change {n} is shown after {:?}", written.elapsed());
            }
            anyhow::Ok(())
        };

        let mut attack = Attack::begin()?;
        let hello = client_hello()?;
        attack.with("handshakes", ATTACKERS, move || {
            let hello = hello.clone();
            async move { leave_half_done(tls_address, &hello).await.is_ok() }
        });
        keeps_up(&format!("https://{tls_address}/metrics")).await?;
        attack.was_one(1000)?;
        drop(attack);

        let mut attack = Attack::begin()?;
        attack.with("readers", READERS, move || async move {
            read_pages(plain_address).await.is_ok_and(|read| read > LARGE)
        });
        keeps_up(&format!("http://{plain_address}/metrics")).await?;
        drop(over_tls);
        attack.was_one(50)
    })
    .await;
}
