//! What is served: the exposition, over HTTP or pushed, and the program around it.

mod duration;
pub mod exposition;
mod http;
mod listener;
mod playback;
mod push;
mod reload;
mod work;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use kube::Client;
use statusbridge_serving::{kubeconfig, log::LogFormat, options::ServerArgs, signals::told_to_stop};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    clock::Clock,
    metrics::OwnMetrics,
    source::SourceArgs,
    state::{Engine, Limits},
    watch::{Discovery, WatcherSettings},
};
use duration::duration;
use http::{ServerState, learn_cluster_uid};
use playback::{Playback, Recording, ReplayArgs};
use push::PushArgs;
use work::{Server, Tasks, Work};

/// Updates that may wait for the engine. Few: parsed objects are many times larger than kept ones.
const QUEUE: usize = 64;

/// How long a watch is kept open at most.
const LIFE: Duration = Duration::from_secs(290);

/// Arguments of `serve`.
#[derive(Debug, Clone, clap::Args)]
pub struct ServeArgs {
    /// Kubeconfig of the cluster to watch; in-cluster configuration or $KUBECONFIG otherwise.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// A recording, for where there is no cluster.
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// Address to serve /metrics, /healthz and /readyz on.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:9477")]
    pub listen: SocketAddr,
    /// TLS and authorization of what is served.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Pushing, for where nobody can scrape.
    #[command(flatten)]
    pub push: PushArgs,
    /// A source is no longer up when one of its watches has not kept up for this long, in seconds or like 1m: a connection
    /// that only looks open is found out by then. Watches are opened anew after half of it. One that is heard from and does
    /// not keep up takes its source down after 8 seconds.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration)]
    pub contact_timeout: Duration,
    /// How often to look for kinds that are not served yet; at least twice in each --contact-timeout.
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

/// Watches the packages that the sources in `of` read and serves their metrics until a signal asks to
/// stop.
pub async fn run(args: ServeArgs, of: SourceArgs) -> anyhow::Result<()> {
    // What is followed is what was compiled: a change in between must not pass unnoticed.
    let seen = of.texts();
    let sources = of.compile(&seen)?;
    args.log_format.log_to(std::io::stderr);
    reload::warn_of(&sources);
    // Some other part of the process may have chosen a provider already; either will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pusher = args.push.pusher()?;
    let clock = Arc::new(Clock::default());
    clock.run().context("cannot start the clock's thread")?;
    let recording = args.replay.replay.as_ref();
    let recording =
        recording.map(|path| Recording::read(path, args.replay.speed, clock.now())).transpose()?;
    let metrics = Arc::new(OwnMetrics::default());
    let engine =
        Engine::new(sources.into_iter().map(Arc::new).collect(), args.limits.clone(), metrics.clone());
    let state =
        Arc::new(ServerState::new(clock.clone(), engine.published(), metrics.clone(), args.contact_timeout));
    let (sender, updates) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    let server = match recording {
        Some(recording) => {
            state.is_cluster(&recording.cluster);
            Server::Recording(Playback::new(Arc::new(recording), clock.clone(), sender.clone()))
        }
        None => {
            let client = client(&args).await?;
            tasks.spawn(learn_cluster_uid(client.clone(), state.clone()));
            Server::Cluster(Box::new(Tasks::new(WatcherSettings {
                discovery: Arc::new(Discovery::new(client.clone())),
                metrics: metrics.clone(),
                life: (args.contact_timeout / 2).min(LIFE),
                idle: args.contact_timeout.mul_f64(0.75),
                look: args.discovery_interval.min(args.contact_timeout / 2),
                updates: sender.clone(),
                client,
                clock: clock.clone(),
            })))
        }
    };

    let stop = CancellationToken::new();
    let reviewer = args.clone();
    let serving = listener::start(
        args.listen,
        args.server.clone(),
        async move || self::client(&reviewer).await,
        state.clone(),
        metrics.clone(),
        stop.clone(),
    )
    .await?;
    if let Some(pusher) = pusher {
        tasks.spawn(pusher.run(state.clone(), metrics.clone()));
    }
    tasks.spawn(reload::follow(of, seen, metrics, sender));
    let work = Work::new(engine, clock, server, state.clone());
    let work = tokio::spawn(work.drive(updates, stop.clone()));

    told_to_stop()?.await;
    info!("stopping");
    stop.cancel();
    tasks.shutdown().await;
    serving.await.context("the server failed")?;
    work.await.context("the engine failed")
}

async fn client(args: &ServeArgs) -> anyhow::Result<Client> {
    if args.replay.replay.is_some() {
        bail!("--replay has no API server that could be asked who may read: leave out what asks it");
    }
    let config = kubeconfig::find(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    Client::try_from(config).context("cannot make a client")
}
