//! Starts the sidecar, accepts providers, and stops without losing an entry.

use std::{
    convert::Infallible,
    fs::File,
    iter,
    net::SocketAddr,
    os::fd::AsFd as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use hyper::{server::conn::http2, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::graceful::{GracefulShutdown, Watcher},
};
use kube::Client;
use statusbridge_serving::{
    endpoints::{self, Endpoints, Exposition},
    format::Format,
    kubeconfig,
    log::LogFormat,
    options::ServerArgs,
    page::LastPage,
    signals::told_to_stop,
};
use tokio::{
    net::{TcpListener, UnixStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    log::Log,
    metrics::Metrics,
    output::Output,
    service::ChangeLog,
    socket::{self, Socket},
};

/// Requests that one connection may have under way.
const STREAMS: u32 = 128;
/// How long connected providers may go on sending after a signal. Together with [`DRAIN`] it is less than the 30 s that a
/// pod has by default.
const GRACE: Duration = Duration::from_secs(20);
/// How long requests under way may take once no more are accepted.
const LAST_REQUESTS: Duration = Duration::from_secs(1);
/// How long standard output may take for the rest of the buffer at the end.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause after a connection could not be accepted: most likely the process is out of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Arguments of the sidecar.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Unix socket that the provider sends its entries to. A socket that a dead process left there is replaced.
    #[arg(long, value_name = "FILE", default_value = "/var/run/changelogs/changelogs.sock")]
    socket_path: PathBuf,
    /// Mode of the socket's file. Processes with write permission may send entries.
    #[arg(long, value_name = "MODE", default_value = "0660", value_parser = socket::mode)]
    socket_mode: u32,
    /// How many bytes of entries may wait for standard output. Entries beyond that are counted and dropped.
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20)]
    buffer_bytes: usize,
    /// How many kinds get series of their own. All others are counted as `Other`.
    #[arg(long, value_name = "N", default_value_t = 200)]
    max_kinds: usize,
    /// Address to serve /metrics, /healthz and /readyz on.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:9478")]
    listen: SocketAddr,
    #[command(flatten)]
    server: ServerArgs,
    /// Form of the log on standard error; RUST_LOG says how much. Standard output has nothing but entries.
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
}

/// Takes entries and serves metrics until a signal asks to stop.
///
/// # Errors
/// When the sidecar cannot start.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let (log, _flushed_at_the_end) = Log::start(std::io::stderr())?;
    args.log_format.log_to(move || log.clone());
    // It fails only when there is a provider of cryptography already, and any provider will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let metrics = Arc::new(Metrics::new(args.max_kinds));
    let client = async || {
        let config = kubeconfig::find(None, None).await?;
        Client::try_from(config).context("cannot make a client of the API server")
    };
    let options = args.server.options(&metrics.server, client).await?;
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().context("there is no standard output")?;
    let output = Output::start(File::from(stdout), args.buffer_bytes, metrics.clone())?;
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    let socket = Socket::bind(&args.socket_path, args.socket_mode)?;
    info!(socket = %args.socket_path.display(), address = %listener.local_addr()?, "serving");

    let stop = CancellationToken::new();
    let (text, openmetrics) = Default::default();
    let sidecar = Arc::new(Sidecar { output: output.clone(), metrics: metrics.clone(), text, openmetrics });
    let serving = tokio::spawn(endpoints::serve(listener, options, sidecar, stop.clone()));
    let service = ChangeLog::new(output.clone(), metrics.clone());
    accept_providers(socket, &service, &metrics).await?;

    let left =
        tokio::task::spawn_blocking(move || output.drained(DRAIN)).await.context("the output failed")?;
    if left > 0 {
        warn!(bytes = left, "standard output did not take the rest of the buffer in time");
    }
    stop.cancel();
    serving.await.context("the server failed")
}

/// Serves providers until a signal asks to stop, and then for as long as one is connected: it may have entries yet.
async fn accept_providers(socket: Socket, service: &ChangeLog, metrics: &Metrics) -> anyhow::Result<()> {
    let (graceful, mut connections) = (GracefulShutdown::new(), JoinSet::new());
    let signal = told_to_stop()?;
    tokio::pin!(signal);
    let mut asked: Option<Instant> = None;
    loop {
        metrics.connections(connections.len());
        let left = asked.map_or(GRACE, |asked| GRACE.saturating_sub(asked.elapsed()));
        if asked.is_some() && (connections.is_empty() || left.is_zero()) {
            break;
        }
        tokio::select! {
            () = &mut signal, if asked.is_none() => {
                info!("stopping");
                asked = Some(Instant::now());
            }
            () = sleep(left), if asked.is_some() => {}
            Some(_) = connections.join_next() => {}
            accepted = socket.listener.accept() => match accepted {
                Ok((connection, _)) => {
                    connections.spawn(serve_provider(connection, service.clone(), graceful.watcher()));
                }
                Err(error) => {
                    debug!(%error, "a connection was not accepted");
                    sleep(PAUSE).await;
                }
            },
        }
    }
    drop(socket);
    let _ = timeout(LAST_REQUESTS, graceful.shutdown()).await;
    Ok(())
}

async fn serve_provider(connection: UnixStream, service: ChangeLog, watcher: Watcher) {
    let answer = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.answer(request).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(STREAMS)
        .serve_connection(TokioIo::new(connection), answer);
    if let Err(error) = watcher.watch(connection).await {
        debug!(%error, "a connection ended badly");
    }
}

/// What the sidecar serves over HTTP.
struct Sidecar {
    output: Output,
    metrics: Arc<Metrics>,
    text: LastPage,
    openmetrics: LastPage,
}

impl Endpoints for Sidecar {
    /// Never compressed: a page is small.
    fn metrics(&self, format: Format, _accepts_gzip: bool) -> Result<Exposition, String> {
        let last = match format {
            Format::Text => &self.text,
            Format::OpenMetrics => &self.openmetrics,
        };
        let page = last.page(Instant::now(), || self.metrics.render(format));
        let page = page.map_err(|error| error.to_string())?;
        Ok(Exposition::Plain(Box::new(iter::once(page))))
    }

    fn healthy(&self) -> Result<(), String> {
        self.output.healthy()
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}
