//! `serve`: watches one cluster and serves its metrics.

use std::{
    collections::HashMap,
    iter,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use bytes::Bytes;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use statusbridge_contract::Fingerprint;
use statusbridge_serving::{
    endpoints::{self, Endpoints},
    format::Format,
    kubeconfig,
    log::LogFormat,
    options::ServerArgs,
    signals::told_to_stop,
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    catalog::SourceArgs,
    clock::{Clock, Moment},
    engine::{Command, Engine, SharedPublished, SourceId},
    exposition::Exposition,
    own_metrics::OwnMetrics,
    push::PushArgs,
    reload,
    store::{Limits, Publisher, Snapshot},
    watch::{self, Discovery, Event, KindId, Watcher, WatcherSettings},
};

/// The namespace whose UID stands for the cluster.
const CLUSTER_NAMESPACE: &str = "kube-system";
/// A process that has been up for this long is ready even if some source is not: that one says so by
/// `source_up`, and must not keep the others from being scraped.
const READY_AT_LAST: Duration = Duration::from_secs(60);
/// How long to wait for the cluster's UID before serving metrics without it.
const WITHOUT_UID: Duration = Duration::from_secs(30);
/// Updates that may wait for the engine. Few: parsed objects are many times larger than kept ones.
const QUEUE: usize = 64;

/// Single reads that may be under way at once.
const READS: usize = 8;

/// Arguments of `serve`.
#[derive(Debug, Clone, clap::Args)]
pub struct ServeArgs {
    /// Kubeconfig of the cluster to watch; in-cluster configuration or $KUBECONFIG otherwise.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Address to serve /metrics, /healthz and /readyz on.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:9477")]
    pub listen: SocketAddr,
    /// TLS and authorization of what is served.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Pushing, for where nobody can scrape.
    #[command(flatten)]
    pub push: PushArgs,
    /// A source is no longer up when one of its watches has not kept up for this long, in seconds or like 2m. Servers send
    /// something about every minute. One that is heard from and does not keep up takes its source down after 8 seconds.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    pub contact_timeout: Duration,
    /// How often to look for kinds that are not served yet.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub discovery_interval: Duration,
    /// How much of a source may become series. Past a limit the rest is left out, and its
    /// statusbridge_source_up is 0.
    #[command(flatten)]
    pub limits: Limits,
    /// Form of the log on standard error; RUST_LOG says how much.
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse::<u32>() {
        Ok(seconds) => Duration::from_secs(seconds.into()),
        Err(_) => text
            .parse::<jiff::SignedDuration>()
            .map_err(|e| e.to_string())
            .and_then(|d| Duration::try_from(d).map_err(|_| "must not be negative".to_owned()))?,
    };
    if parsed < Duration::from_secs(1) { Err("must be at least 1s".to_owned()) } else { Ok(parsed) }
}

/// Watches the packages that the sources in `of` read and serves their metrics until a signal asks to
/// stop.
pub async fn run(args: ServeArgs, of: SourceArgs) -> anyhow::Result<()> {
    // What is followed is what was compiled: a change in between must not pass unnoticed.
    let seen = of.texts();
    let sources = of.compile(&seen)?;
    args.log_format.log_to(std::io::stderr);
    // Some other part of the process may have chosen a provider already; either will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pusher = args.push.pusher()?;
    let client = client(&args).await?;
    let metrics = Arc::new(OwnMetrics::default());
    let options = args.server.options(&metrics.server, async || Ok(client.clone())).await?;
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    info!(address = %listener.local_addr()?, "serving");

    let engine = Engine::new(sources.into_iter().map(Arc::new).collect(), args.limits, metrics.clone());
    let clock = Arc::new(Clock::default());
    clock.run().context("cannot start the clock's thread")?;
    let bridge = Arc::new(Bridge {
        clock: clock.clone(),
        published: engine.published(),
        metrics: metrics.clone(),
        timeout: args.contact_timeout,
        cluster_uid: AtomicU64::new(0),
        process_number: fastrand::u32(1..).into(),
        start: Instant::now(),
        alive: AtomicU64::new(0),
    });

    let stop = CancellationToken::new();
    let (sender, updates) = mpsc::channel(QUEUE);
    let settings = WatcherSettings {
        discovery: Arc::new(Discovery::new(client.clone())),
        metrics: metrics.clone(),
        idle: args.contact_timeout.mul_f64(0.75),
        look: args.discovery_interval,
        updates: sender.clone(),
        client: client.clone(),
        clock: clock.clone(),
    };
    let mut tasks = JoinSet::new();
    if let Some(pusher) = pusher {
        tasks.spawn(pusher.run(bridge.clone(), metrics.clone()));
    }
    tasks.spawn(learn_cluster_uid(client, bridge.clone()));
    tasks.spawn(reload::follow(of, seen, metrics, sender));
    let work = Work { clock, engine, tasks: Tasks::new(settings), bridge: bridge.clone() };
    let work = tokio::spawn(work.drive(updates, stop.clone()));
    let serving = tokio::spawn(endpoints::serve(listener, options, bridge, stop.clone()));

    told_to_stop()?.await;
    info!("stopping");
    stop.cancel();
    tasks.shutdown().await;
    serving.await.context("the server failed")?;
    work.await.context("the engine failed")
}

/// The engine and all that it has under way.
struct Work {
    clock: Arc<Clock>,
    engine: Engine,
    tasks: Tasks,
    bridge: Arc<Bridge>,
}

impl Work {
    /// Feeds the engine until `stop`.
    async fn drive(mut self, mut updates: mpsc::Receiver<Event>, stop: CancellationToken) {
        // Often enough for the liveness probe to see the engine at work.
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        loop {
            self.engine.commands().into_iter().for_each(|command| self.tasks.obey(command));
            let due =
                self.engine.next_deadline().map(|at| u64::try_from(at - self.clock.now().boot).unwrap_or(0));
            let deadline = async {
                match due {
                    Some(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                event = updates.recv() => match event {
                    Some(Event::Heard(update)) => self.engine.apply(update, self.clock.now()),
                    Some(Event::Found { source, kinds, at }) => {
                        self.engine.found(source, kinds, at, self.clock.now());
                    }
                    Some(Event::Sources(sources)) => self.engine.use_sources(sources),
                    None => return,
                },
                () = deadline => self.engine.expire(self.clock.now()),
                _ = tick.tick() => {}
            }
            self.bridge.alive.store(self.bridge.start.elapsed().as_secs(), Ordering::Relaxed);
        }
    }
}

/// What the engine has asked for and is under way.
struct Tasks {
    settings: WatcherSettings,
    watching: HashMap<KindId, AbortHandle>,
    finding: HashMap<SourceId, AbortHandle>,
    /// Single reads of a kind end with its watch.
    reading: HashMap<KindId, JoinSet<()>>,
    /// How many of them may be under way at once.
    turns: Arc<Semaphore>,
    all: JoinSet<()>,
}

impl Tasks {
    fn new(settings: WatcherSettings) -> Self {
        let (watching, finding, reading) = Default::default();
        let turns = Arc::new(Semaphore::new(READS));
        Self { settings, watching, finding, reading, turns, all: JoinSet::new() }
    }

    fn obey(&mut self, command: Command) {
        let settings = self.settings.clone();
        match command {
            Command::Watch { kind, of, projection, contact } => {
                let watcher = Watcher::new(settings, kind, of, projection, contact);
                self.watching.insert(kind, self.all.spawn(watcher.run()));
            }
            Command::Unwatch(kind) => {
                self.watching.remove(&kind).iter().for_each(AbortHandle::abort);
                self.reading.remove(&kind);
            }
            Command::Find { source, categories } => {
                let task = watch::find(settings, source, categories);
                self.finding.insert(source, self.all.spawn(task));
            }
            Command::StopFinding(source) => {
                self.finding.remove(&source).iter().for_each(AbortHandle::abort);
            }
            Command::Read(wanted) => {
                let turns = self.turns.clone();
                let reading = self.reading.entry(wanted.kind).or_default();
                while reading.try_join_next().is_some() {}
                reading.spawn(async move {
                    let _turn = turns.acquire().await;
                    watch::read(settings, wanted).await;
                });
            }
        }
        while self.all.try_join_next().is_some() {}
    }
}

/// What the server shows.
pub(crate) struct Bridge {
    clock: Arc<Clock>,
    published: SharedPublished,
    metrics: Arc<OwnMetrics>,
    timeout: Duration,
    /// Value of the cluster's fingerprint; 0 = not known yet.
    cluster_uid: AtomicU64,
    /// Random, from 1 to 2^32 - 1.
    process_number: u64,
    start: Instant,
    /// Seconds after `start` at which the engine last went round.
    alive: AtomicU64,
}

impl Bridge {
    /// What there is to show at `now`, or why there is nothing yet.
    fn snapshot(&self, now: Moment) -> Result<Snapshot, String> {
        let uid = Fingerprint::from_value(self.cluster_uid.load(Ordering::Relaxed)).filter(|f| !f.is_none());
        // A restart must not look like another cluster for the moment until the UID is read.
        if uid.is_none() && self.start.elapsed() < WITHOUT_UID {
            return Err(format!("the UID of namespace {CLUSTER_NAMESPACE} is not known yet"));
        }
        let publisher = Publisher { cluster_uid: uid, process_number: Some(self.process_number) };
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(published.snapshot(publisher, self.timeout, now))
    }

    /// The exposition as it is now, or why there is none yet.
    pub(crate) fn exposition(&self, format: Format) -> Result<Exposition, String> {
        let now = self.clock.now();
        let snapshot = self.snapshot(now)?;
        let own = self.metrics.render(format).unwrap_or_default();
        Ok(Exposition::new(snapshot, format, u64::try_from(now.unix_seconds()).ok(), Bytes::from(own)))
    }

    /// The digest of the state that an exposition would show now; `None` while there is none yet. It stays the same while
    /// the state does.
    pub(crate) fn state_digest(&self) -> Option<u64> {
        // A scraper waits until the exporter is ready, so the aggregator that it pushes to does too.
        self.ready().ok()?;
        let snapshot = self.snapshot(self.clock.now()).ok()?;
        Some(snapshot.state_digest().value())
    }
}

impl Endpoints for Bridge {
    fn metrics(&self, format: Format, gzip: bool) -> Result<endpoints::Exposition, String> {
        let start = Instant::now();
        let exposition = self.exposition(format)?;
        let metrics = self.metrics.clone();
        let end = iter::from_fn(move || {
            metrics.scraped(start.elapsed());
            None
        });
        Ok(if gzip {
            endpoints::Exposition::Gzip(Box::new(exposition.gzip().chain(end)))
        } else {
            endpoints::Exposition::Plain(Box::new(exposition.plain().chain(end)))
        })
    }

    fn healthy(&self) -> Result<(), String> {
        let silent = self.start.elapsed().as_secs().saturating_sub(self.alive.load(Ordering::Relaxed));
        if silent < 60 { Ok(()) } else { Err(format!("the engine has stood still for {silent} s")) }
    }

    fn ready(&self) -> Result<(), String> {
        if self.start.elapsed() > READY_AT_LAST {
            return Ok(());
        }
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.waiting().map_or(Ok(()), Err)
    }
}

async fn client(args: &ServeArgs) -> anyhow::Result<Client> {
    let config = kubeconfig::find(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    Client::try_from(config).context("cannot make a client")
}

/// Learns what stands for the cluster; asks until it is answered.
async fn learn_cluster_uid(client: Client, bridge: Arc<Bridge>) {
    let namespaces: Api<Namespace> = Api::all(client);
    let mut told = false;
    loop {
        match namespaces.get(CLUSTER_NAMESPACE).await {
            Ok(namespace) => {
                let uid = Fingerprint::of(namespace.metadata.uid.as_deref().unwrap_or(""));
                bridge.cluster_uid.store(uid.value(), Ordering::Relaxed);
                return;
            }
            Err(error) if !told => {
                warn!(%error, "cannot read namespace {CLUSTER_NAMESPACE}: its UID tells clusters apart");
                told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
