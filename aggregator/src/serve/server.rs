//! `/metrics`, `/healthz` and `/readyz` of this process, and the gates' pages.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use ::http::{Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use statusbridge_serving::authorize::{Guard, Wanted};
use statusbridge_serving::format::Format;
use statusbridge_serving::http::{Limits, serve as listen};
use statusbridge_serving::options::ServerOptions;
use statusbridge_serving::page::LastPage;
use statusbridge_serving::response::{PLAIN, respond};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::gate_cache::GateCache;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::serve::gates_page;

/// What is shown of this process.
pub struct Shown {
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    /// Its health.
    pub health: Arc<Health>,
    /// Gates by name; without it there are no pages of gates.
    pub board: Option<Arc<GateCache>>,
}

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, options: ServerOptions, shown: Shown, stop: CancellationToken) {
    let (ServerOptions { tls, guard }, shown) = (options, Arc::new((shown, LastPage::default())));
    let service = service_fn(move |request: Request<Incoming>| {
        let (guard, shown) = (guard.clone(), shown.clone());
        async move { Ok::<_, Infallible>(answer(&request, guard.as_deref(), &shown).await) }
    });
    listen(listener, tls, Limits::default(), service, stop).await;
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
                && let Err(refusal) = guard.admit(request, Wanted::Path(path)).await
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
        "/readyz" if shown.health.is_ready() => (StatusCode::OK, "ok\n"),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "not ready yet\n"),
        _ => (StatusCode::NOT_FOUND, "not found: try /metrics, /healthz, /readyz\n"),
    };
    respond(status, PLAIN, body)
}
