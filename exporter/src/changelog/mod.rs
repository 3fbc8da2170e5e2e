//! `changelog`: a drop-in for Crossplane's change-log sidecar (crossplane/changelogs-sidecar) that counts what it
//! writes.
//!
//! ```text
//!   provider ──unix socket──> service ──line──> buffer ──> thread ──> standard output
//!                                └──labels, repeats──> metrics ──> /metrics
//! ```
//!
//! The providers' side is `pkg/reconciler/managed/changelogger.go` of crossplane/crossplane-runtime: it waits up to
//! 10 s in the middle of a reconciliation until the socket is there and the entry is answered. So the socket is there
//! at all times, and answers wait for nothing.

pub mod buffer;
pub mod labels;
pub mod line;
pub mod log;
pub mod malformed;
pub mod metrics;
pub mod output;
pub mod repeats;
pub mod service;
pub mod snapshot;
pub mod socket;
#[cfg(test)]
mod testing;
pub mod wire;

use std::{
    convert::Infallible,
    fs::File,
    net::SocketAddr,
    os::fd::AsFd as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use bytes::Bytes;
use hyper::{server::conn::http2, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::graceful::GracefulShutdown,
};
use kube::{Client, Config};
use statusbridge_serving::{log::LogFormat, options::ServerArgs, signals::told_to_stop};
use tokio::net::{TcpListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    exposition::{Exposition, Format},
    server::{self, Subject},
};
use log::Log;
use metrics::Metrics;
use output::Output;
use service::ChangeLog;
use socket::Socket;

/// Requests of one connection that may be under way at once.
const STREAMS: u32 = 128;
/// How long to go on for providers that are still connected when asked to stop. With [`DRAIN`] it is less than the 30 s
/// that a pod commonly has.
const FAREWELL: Duration = Duration::from_secs(20);
/// How long standard output has for what waits at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// Arguments of `changelog`.
#[derive(Debug, Clone, clap::Args)]
pub struct ChangelogArgs {
    /// Unix socket that the provider sends its entries to. One that is left of another process is replaced.
    #[arg(long, value_name = "FILE", default_value = "/var/run/changelogs/changelogs.sock")]
    pub socket_path: PathBuf,
    /// Mode of the socket: who may write to it may send entries.
    #[arg(long, value_name = "MODE", default_value = "0660", value_parser = socket::mode)]
    pub socket_mode: u32,
    /// How many bytes of entries may wait for standard output. What comes beyond is counted and dropped.
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20)]
    pub buffer_bytes: usize,
    /// How many kinds get series of their own; the rest is counted as `Other`.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_kinds: usize,
    /// Address to serve /metrics, /healthz and /readyz on.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:9478")]
    pub listen: SocketAddr,
    /// TLS and authorization of what is served over HTTP. To authorize, the provider's service account asks.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Form of the log on standard error; RUST_LOG says how much. Standard output has nothing but entries.
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
}

/// Takes entries and serves metrics until a signal asks to stop.
///
/// # Errors
/// When it cannot start.
pub async fn run(args: ChangelogArgs) -> anyhow::Result<()> {
    let (log, _rest) = Log::start(std::io::stderr())?;
    args.log_format.log_to(move || log.clone());
    // Some other part of the process may have chosen a provider already; either will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let metrics = Arc::new(Metrics::default());
    let client = async || {
        let config = Config::infer().await.context("found neither a kubeconfig nor a service account")?;
        Client::try_from(config).context("cannot make a client")
    };
    let options = args.server.options(&metrics.server, client).await?;
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().context("there is no standard output")?;
    let output = Output::start(File::from(stdout), args.buffer_bytes, metrics.clone())?;
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    let socket = Socket::bind(&args.socket_path, args.socket_mode)?;
    info!(socket = %args.socket_path.display(), address = %listener.local_addr()?, "serving");

    let stop = CancellationToken::new();
    let sidecar = Arc::new(Sidecar { output: output.clone(), metrics: metrics.clone() });
    let serving = tokio::spawn(server::serve(listener, options, sidecar, stop.clone()));
    let log = ChangeLog::new(output.clone(), metrics.clone(), args.max_kinds);
    let connections = Connections { graceful: GracefulShutdown::new(), log, metrics };
    connections.accept(socket).await?;

    let left =
        tokio::task::spawn_blocking(move || output.drained(DRAIN)).await.context("the output failed")?;
    if left > 0 {
        warn!(bytes = left, "standard output did not take what was left");
    }
    stop.cancel();
    serving.await.context("the server failed")
}

/// Providers that are connected.
struct Connections {
    graceful: GracefulShutdown,
    log: ChangeLog,
    metrics: Arc<Metrics>,
}

impl Connections {
    /// Takes entries until a signal asks to stop, and then for as long as providers are connected that may have some.
    async fn accept(self, socket: Socket) -> anyhow::Result<()> {
        let mut asked: Option<Instant> = None;
        let signal = told_to_stop()?;
        tokio::pin!(signal);
        let mut look = tokio::time::interval(Duration::from_millis(500));
        loop {
            tokio::select! {
                () = &mut signal, if asked.is_none() => {
                    info!("stopping");
                    asked = Some(Instant::now());
                }
                accepted = socket.listener.accept() => match accepted {
                    Ok((connection, _)) => self.converse(connection),
                    Err(error) => {
                        debug!(%error, "a connection was not accepted");
                        // Out of file descriptors, most likely: give others time to close theirs.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                _ = look.tick() => {}
            }
            let open = self.graceful.count();
            self.metrics.connections(open);
            if asked.is_some_and(|since| open == 0 || since.elapsed() > FAREWELL) {
                break;
            }
        }
        drop(socket);
        // What is under way is answered.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.graceful.shutdown()).await;
        Ok(())
    }

    fn converse(&self, connection: UnixStream) {
        let log = self.log.clone();
        let service = service_fn(move |request| {
            let log = log.clone();
            async move { Ok::<_, Infallible>(log.answer(request).await) }
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(STREAMS)
            .serve_connection(TokioIo::new(connection), service);
        let connection = self.graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "a connection ended badly");
            }
        });
    }
}

/// What the HTTP server shows.
struct Sidecar {
    output: Output,
    metrics: Arc<Metrics>,
}

impl Subject for Sidecar {
    fn exposition(&self, format: Format) -> Result<Exposition, String> {
        let own = self.metrics.render(format).map_err(|error| error.to_string())?;
        // Nothing of the contract: a digest here would be a second exporter in this cluster.
        Ok(Exposition::own(format, Bytes::from(own)))
    }

    fn state_digest(&self) -> Option<u64> {
        None
    }

    fn healthy(&self) -> Result<(), String> {
        self.output.healthy()
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn scraped(&self, _: Duration) {}
}
