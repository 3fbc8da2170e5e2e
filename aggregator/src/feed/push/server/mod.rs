//! Takes what exporters push: an HTTPS server that lives as long as the process, whoever leads.
//!
//! ```text
//!   POST /v1alpha1/push ──token──> cluster ──body, bounded──> exposition ──> fleet of whoever is seated
//! ```
//!
//! Who a cluster is is told by its token and by nothing else. While nobody is seated, because another
//! replica leads, pushes are asked to come again.

mod answer;
mod body;
mod refusals;
mod session;
#[cfg(test)]
mod tests;
mod tokens;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::http::Request;
use anyhow::{Context, Result};
use hyper::body::Incoming;
use hyper::service::service_fn;
use statusbridge_serving::http::{self, Limits};
use statusbridge_serving::tls::{Certificate, Tls};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::feed::{FeedHandle, Receipt};
use crate::metrics::Metrics;

pub(in crate::feed) use body::MADE_OF_ONE;
pub use body::most_memory;
use session::Session;
pub(crate) use tokens::{TokenId, Tokens, TokensFile, bearer};

/// Where exporters push to.
pub const PATH: &str = "/v1alpha1/push";
/// Header by which exporters of one cluster tell themselves apart.
pub const INSTANCE: &str = "statusbridge-instance";

/// How long the body of a push may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);
/// An exporter keeps its connection from push to push, and those of many clusters may come through one proxy.
const LIMITS: Limits =
    Limits { connections: 8192, header: Duration::from_secs(60), silence: Duration::from_secs(180) };

/// Where to listen, and with which certificate and key; without, it is plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doors {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Files of certificate and key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Receipts on the way to whoever counts them, each with the cluster's name.
pub(crate) type Receipts = mpsc::Receiver<(String, Receipt)>;

/// The server, and who is seated.
pub struct PushServer {
    front: Arc<Front>,
    open: Mutex<Option<Open>>,
}

struct Open {
    doors: Doors,
    listener: std::net::TcpListener,
    /// They end with this.
    _tasks: JoinSet<()>,
}

/// What requests need.
struct Front {
    metrics: Arc<Metrics>,
    seated: Mutex<Option<Arc<Session>>>,
    limits: body::Limits,
}

impl Front {
    fn seated(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.seated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PushServer {
    /// One that does not listen yet.
    pub fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Self::with_arrival(metrics, ARRIVAL)
    }

    fn with_arrival(metrics: Arc<Metrics>, arrival: Duration) -> Arc<Self> {
        let front = Front { metrics, seated: Mutex::default(), limits: body::Limits::new(arrival) };
        Arc::new(Self { front: Arc::new(front), open: Mutex::default() })
    }

    fn doors(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens there from now on, and nowhere else.
    ///
    /// # Errors
    /// When that is not possible; then it goes on as before.
    pub fn open(&self, doors: Doors) -> Result<()> {
        let mut open = self.doors();
        if open.as_ref().is_some_and(|open| open.doors == doors) {
            return Ok(());
        }
        let certificate = match &doors.certificate {
            Some((certificate, key)) => Some(Certificate::new(certificate.clone(), key.clone())?),
            None => None,
        };
        // The socket of before is used on, so that nobody is turned away in between.
        let listener = match open.as_ref().filter(|open| open.doors.listen == doors.listen) {
            Some(open) => open.listener.try_clone(),
            None => bind(doors.listen),
        };
        let listener = listener.with_context(|| format!("listening on {}", doors.listen))?;
        let accepting = listener.try_clone().and_then(TcpListener::from_std).context("listening")?;
        info!(address = %listener.local_addr()?, tls = certificate.is_some(), "exporters may push");
        let mut tasks = JoinSet::new();
        let tls = certificate.as_ref().map(Certificate::tls);
        tasks.spawn(serve(accepting, tls, self.front.clone()));
        certificate.map(|certificate| tasks.spawn(certificate.follow(|_| {})));
        *open = Some(Open { doors, listener, _tasks: tasks });
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.doors().as_ref().and_then(|open| open.listener.local_addr().ok())
    }

    /// Listens no longer.
    pub fn close(&self) {
        *self.doors() = None;
    }

    /// From now on, what clusters with these tokens push goes to this desk, until the seat is left.
    pub(crate) fn seat(
        &self,
        desk: FeedHandle,
        tokens: Tokens,
        max_bytes: usize,
        receipts: mpsc::Sender<(String, Receipt)>,
    ) -> Seat {
        let session = Arc::new(Session::new(desk, tokens, max_bytes, receipts));
        *self.front.seated() = Some(session.clone());
        Seat { session, front: self.front.clone() }
    }
}

/// Whoever holds it is who pushes go to.
pub(crate) struct Seat {
    session: Arc<Session>,
    front: Arc<Front>,
}

impl Seat {
    /// Clusters have these tokens from now on.
    pub(crate) fn knows(&self, tokens: Tokens) {
        self.session.knows(tokens);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.session.end();
        let mut seated = self.front.seated();
        // Somebody else may have taken the seat already.
        if seated.as_ref().is_some_and(|it| Arc::ptr_eq(it, &self.session)) {
            *seated = None;
        }
    }
}

fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn serve(listener: TcpListener, tls: Option<Tls>, front: Arc<Front>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let front = front.clone();
        async move { Ok::<_, Infallible>(answer::answer(request, &front).await) }
    });
    // Who closes the doors drops this.
    http::serve(listener, tls, LIMITS, service, CancellationToken::new()).await;
}
