//! `serve`: watches one cluster and serves its metrics.

use std::{
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
use kube::{Api, Client, Config, config::KubeConfigOptions};
use statusbridge_contract::Fingerprint;
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    engine::{Engine, Plan, SharedPublished},
    exposition::{Exposition, Format},
    own_metrics::OwnMetrics,
    server::{self, Subject},
    source::Source,
    watch::{Contacts, Discovery, Watcher, WatcherSettings},
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
    /// A source is no longer up when one of its watches was silent for this long, in seconds or
    /// like 2m. Servers send something about every minute.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    pub contact_timeout: Duration,
    /// How often to look for kinds that are not served yet.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub discovery_interval: Duration,
    /// Form of the log on standard error; RUST_LOG says how much.
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for log pipelines.
    Json,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse::<u32>() {
        Ok(seconds) => Duration::from_secs(seconds.into()),
        Err(_) => text
            .parse::<jiff::SignedDuration>()
            .map_err(|e| e.to_string())
            .and_then(|d| Duration::try_from(d).map_err(|_| "must not be negative".to_owned()))?,
    };
    if parsed < Duration::from_secs(1) { Err("must be at least 1s".to_owned()) } else { Ok(parsed) }
}

/// Watches the packages that `sources` read and serves their metrics until a signal asks to stop.
pub async fn run(args: ServeArgs, sources: Vec<Source>) -> anyhow::Result<()> {
    log_to_stderr(args.log_format);
    // Some other part of the process may have chosen a provider already; either will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = client(&args).await?;
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    info!(address = %listener.local_addr()?, "serving");

    let sources: Vec<Arc<Source>> = sources.into_iter().map(Arc::new).collect();
    let plan = Arc::new(Plan::new(&sources));
    let metrics = Arc::new(OwnMetrics::default());
    let contacts = Contacts::new(plan.kinds.len());
    let engine = Engine::new(sources, plan.clone(), metrics.clone());
    let bridge = Arc::new(Bridge {
        published: engine.published(),
        plan: plan.clone(),
        contacts: contacts.clone(),
        metrics: metrics.clone(),
        timeout: args.contact_timeout,
        cluster_uid: AtomicU64::new(0),
        start: Instant::now(),
        alive: AtomicU64::new(0),
    });

    let stop = CancellationToken::new();
    let (sender, updates) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    let settings = WatcherSettings {
        discovery: Arc::new(Discovery::new(client.clone())),
        contacts,
        metrics,
        idle: args.contact_timeout.mul_f64(0.75),
        look: args.discovery_interval,
        updates: sender,
        client: client.clone(),
    };
    for (id, (kind, projection)) in plan.kinds.iter().enumerate() {
        tasks.spawn(Watcher::new(settings.clone(), id, kind.clone(), projection.clone()).run());
    }
    drop(settings);
    tasks.spawn(learn_cluster_uid(client, bridge.clone()));
    let work = tokio::spawn(drive(engine, updates, bridge.clone(), stop.clone()));
    let serving = tokio::spawn(server::serve(listener, bridge, stop.clone()));

    signalled().await?;
    info!("stopping");
    stop.cancel();
    tasks.shutdown().await;
    serving.await.context("the server failed")?;
    work.await.context("the engine failed")
}

/// Feeds the engine until `stop`.
async fn drive(
    mut engine: Engine,
    mut updates: mpsc::Receiver<crate::watch::Update>,
    bridge: Arc<Bridge>,
    stop: CancellationToken,
) {
    // Often enough for the liveness probe to see the engine at work.
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        let due = engine.next_deadline().map(|at| u64::try_from(at - unix_millis()).unwrap_or(0));
        let deadline = async {
            match due {
                Some(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            update = updates.recv() => match update {
                Some(update) => engine.apply(update, unix_millis()),
                None => return,
            },
            () = deadline => engine.expire(unix_millis()),
            _ = tick.tick() => {}
        }
        bridge.alive.store(bridge.start.elapsed().as_secs(), Ordering::Relaxed);
    }
}

/// What the server shows.
struct Bridge {
    published: SharedPublished,
    plan: Arc<Plan>,
    contacts: Contacts,
    metrics: Arc<OwnMetrics>,
    timeout: Duration,
    /// Value of the cluster's fingerprint; 0 = not known yet.
    cluster_uid: AtomicU64,
    start: Instant,
    /// Seconds after `start` at which the engine last went round.
    alive: AtomicU64,
}

impl Subject for Bridge {
    fn exposition(&self, format: Format) -> Result<Exposition, String> {
        let uid = Fingerprint::from_value(self.cluster_uid.load(Ordering::Relaxed)).filter(|f| !f.is_none());
        // A restart must not look like another cluster for the moment until the UID is read.
        if uid.is_none() && self.start.elapsed() < WITHOUT_UID {
            return Err(format!("the UID of namespace {CLUSTER_NAMESPACE} is not known yet"));
        }
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let now = unix_millis().div_euclid(1000);
        let snapshot = published.snapshot(&self.plan, &self.contacts, uid, self.timeout, now);
        drop(published);
        let own = self.metrics.render(format).unwrap_or_default();
        Ok(Exposition::new(snapshot, format, Some(now), Bytes::from(own)))
    }

    fn healthy(&self) -> Result<(), String> {
        let silent = self.start.elapsed().as_secs().saturating_sub(self.alive.load(Ordering::Relaxed));
        if silent < 60 { Ok(()) } else { Err(format!("the engine has stood still for {silent} s")) }
    }

    fn ready(&self) -> Result<(), String> {
        if self.start.elapsed() > READY_AT_LAST {
            return Ok(());
        }
        let silent = self
            .plan
            .kinds
            .iter()
            .enumerate()
            .find(|(id, _)| self.contacts.age(*id).is_none())
            .map(|(_, (kind, _))| kind);
        if let Some(kind) = silent {
            return Err(format!("nothing heard yet of {}.{}", kind.kind, kind.group));
        }
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        if published.settled() { Ok(()) } else { Err("the first lists are not complete".to_owned()) }
    }

    fn scraped(&self, took: Duration) {
        self.metrics.scraped(took);
    }
}

fn log_to_stderr(format: LogFormat) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Fails only when a logger is there already, which then does as well.
    let _ = match format {
        LogFormat::Text => log.with_ansi(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}

async fn client(args: &ServeArgs) -> anyhow::Result<Client> {
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    let config = match &args.kubeconfig {
        Some(file) => {
            let shown = file.display();
            let kubeconfig = kube::config::Kubeconfig::read_from(file)
                .with_context(|| format!("cannot read the kubeconfig {shown}"))?;
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .with_context(|| format!("cannot use the kubeconfig {shown}"))?
        }
        None if args.context.is_some() => {
            Config::from_kubeconfig(&options).await.context("cannot use the kubeconfig")?
        }
        None => Config::infer().await.context("found neither a kubeconfig nor a service account")?,
    };
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

async fn signalled() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        result = tokio::signal::ctrl_c() => result.context("cannot listen for SIGINT"),
    }
}

fn unix_millis() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
