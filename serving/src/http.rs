//! HTTP/1.1 over TCP or TLS.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::tls::Tls;

/// How long requests under way may take once the server is to stop: whoever keeps a connection open must not keep the
/// process.
const GRACE: Duration = Duration::from_secs(5);

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// So many at the same time; others wait for one of them to end.
    pub connections: usize,
    /// How long one may be without a whole header of a request.
    pub header: Duration,
}

/// As many connections as come.
impl Default for Limits {
    fn default() -> Self {
        Self { connections: Semaphore::MAX_PERMITS, header: Duration::from_secs(10) }
    }
}

/// What answers requests.
pub trait Answers<B>:
    Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<B, S> Answers<B> for S where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// Serves until `stop`; requests under way are finished first. All connections end with the future.
pub async fn serve<B>(
    listener: TcpListener,
    tls: Option<Tls>,
    limits: Limits,
    service: impl Answers<B>,
    stop: CancellationToken,
) where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(limits.connections));
    let (graceful, mut connections) = (GracefulShutdown::new(), JoinSet::new());
    loop {
        let next = async { (room.clone().acquire_owned().await, accept(&listener).await) };
        let (place, connection) = tokio::select! {
            () = stop.cancelled() => break,
            next = next => next,
        };
        let (tls, service, watcher) = (tls.clone(), service.clone(), graceful.watcher());
        let stop = stop.clone();
        // A handshake takes as long as the other side likes, so it is none of this loop's business.
        connections.spawn(async move {
            let _place = place;
            let Some(tls) = tls else { return converse(connection, limits, service, watcher).await };
            let shaken = tokio::select! {
                () = stop.cancelled() => return,
                shaken = tls.accept(connection) => shaken,
            };
            match shaken {
                Ok(connection) => converse(connection, limits, service, watcher).await,
                Err(error) => debug!(%error, "a TLS handshake failed"),
            }
        });
        while connections.try_join_next().is_some() {}
    }
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}

/// The next connection that can be accepted.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((connection, _)) => return connection,
            Err(error) => {
                debug!(%error, "a connection was not accepted");
                // Out of file descriptors, most likely: give others time to close theirs.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Answers the requests of one connection.
async fn converse<B>(
    connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    limits: Limits,
    service: impl Answers<B>,
    watcher: Watcher,
) where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .serve_connection(TokioIo::new(connection), service);
    if let Err(error) = watcher.watch(connection).await {
        debug!(%error, "a connection ended badly");
    }
}
