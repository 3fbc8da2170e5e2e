//! `/metrics`, `/healthz` and `/readyz` of this process, and the gates' pages.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::http::{Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use statusbridge_serving::authorize::{Guard, Wanted};
use statusbridge_serving::format::Format;
use statusbridge_serving::http::{self, Limits};
use statusbridge_serving::options::ServerOptions;
use statusbridge_serving::page::LastPage;
use statusbridge_serving::response::{PLAIN, respond};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::board::Board;
use crate::clock;
use crate::gates_page;
use crate::metrics::Metrics;

/// Whether the main loop is alive and has what it needs.
pub struct Health {
    ready: AtomicBool,
    last: Mutex<Instant>,
    patience: Duration,
}

impl Health {
    /// Alive now, not ready yet; no longer alive when nothing is heard for `patience`.
    pub fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self { ready: AtomicBool::new(false), last: Mutex::new(Instant::now()), patience })
    }

    /// How long it may be silent.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The main loop goes round.
    pub fn alive(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// It has, or has not, what it needs.
    pub fn ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    fn is_alive(&self) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < self.patience
    }
}

/// What is shown of this process.
pub struct Shown {
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    /// Its health.
    pub health: Arc<Health>,
    /// Gates by name; without it there are no pages of gates.
    pub board: Option<Arc<Board>>,
}

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, options: ServerOptions, shown: Shown, stop: CancellationToken) {
    let (ServerOptions { tls, guard }, shown) = (options, Arc::new((shown, LastPage::default())));
    let service = service_fn(move |request: Request<Incoming>| {
        let (guard, shown) = (guard.clone(), shown.clone());
        async move { Ok::<_, Infallible>(answer(&request, guard.as_deref(), &shown).await) }
    });
    http::serve(listener, tls, Limits::default(), service, stop).await;
}

async fn answer(
    request: &Request<Incoming>,
    guard: Option<&Guard>,
    (shown, last): &(Shown, LastPage),
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if let Some(board) = &shown.board
        && path.starts_with(gates_page::PATH)
    {
        return gates_page::answer(board, guard, request, clock::now(), Instant::now()).await;
    }
    let (status, body) = match path {
        "/metrics" => {
            if let Some(guard) = guard
                && let Err(refusal) = guard.admit(request.headers(), Wanted::Path(path)).await
            {
                return refusal.respond();
            }
            match last.page(Instant::now(), || shown.metrics.render()) {
                Ok(page) => return respond(StatusCode::OK, Format::OpenMetrics.content_type(), page),
                Err(error) => return respond(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("{error}\n")),
            }
        }
        "/healthz" if shown.health.is_alive() => (StatusCode::OK, "ok\n"),
        "/healthz" => (StatusCode::SERVICE_UNAVAILABLE, "the main loop stands still\n"),
        "/readyz" if shown.health.ready.load(Ordering::Relaxed) => (StatusCode::OK, "ok\n"),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "not ready yet\n"),
        _ => (StatusCode::NOT_FOUND, "not found: try /metrics, /healthz, /readyz\n"),
    };
    respond(status, PLAIN, body)
}
