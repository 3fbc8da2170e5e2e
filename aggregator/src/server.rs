//! `/metrics`, `/healthz` and `/readyz` of this process, and the gates' pages.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::http::{Request, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use statusbridge_serving::http::{self, Limits};
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

/// Serves until `stop`. Without a board there are no pages of gates.
pub async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    board: Option<Arc<Board>>,
    stop: CancellationToken,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = match &board {
            Some(board) if request.uri().path().starts_with(gates_page::PATH) => {
                gates_page::answer(board, request.method(), request.uri(), clock::now(), Instant::now())
            }
            _ => answer(request.uri().path(), &metrics, &health),
        };
        std::future::ready(Ok::<_, Infallible>(response))
    });
    http::serve(listener, None, Limits::default(), service, stop).await;
}

fn answer(path: &str, metrics: &Metrics, health: &Health) -> Response<Full<Bytes>> {
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body) = match path {
        "/metrics" => match metrics.render() {
            Ok(body) => (StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", body),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, plain, format!("{error}\n")),
        },
        "/healthz" if health.is_alive() => (StatusCode::OK, plain, "ok\n".to_owned()),
        "/healthz" => (StatusCode::SERVICE_UNAVAILABLE, plain, "the main loop stands still\n".to_owned()),
        "/readyz" if health.ready.load(Ordering::Relaxed) => (StatusCode::OK, plain, "ok\n".to_owned()),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, plain, "not ready yet\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, plain, "not found: try /metrics, /healthz, /readyz\n".to_owned()),
    };
    respond(status, kind, body)
}

/// A response with a body of this content type.
pub(crate) fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
