//! `/metrics`, `/healthz` and `/readyz` of this process, the API and the page.

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
use crate::serve::api::admitted::{Question, Rollouts};
use crate::serve::api::{Api, Body, Endpoint, gates, is_local, whole};
use crate::serve::ui;

/// What is shown of this process.
pub struct Shown {
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    /// Its health.
    pub health: Arc<Health>,
    /// Gates by name; without it there are no pages of gates.
    pub board: Option<Arc<GateCache>>,
    /// The rest of the API, where it is served.
    pub api: Option<Arc<Api>>,
    /// What FleetRollouts admit, where it is handed over.
    pub rollouts: Option<Arc<Rollouts>>,
}

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, options: ServerOptions, shown: Shown, stop: CancellationToken) {
    let (ServerOptions { tls, guard }, shown) = (options, Arc::new((shown, LastPage::default())));
    let service = service_fn(move |request: Request<Incoming>| {
        let (guard, shown) = (guard.clone(), shown.clone());
        async move { Ok::<_, Infallible>(answer(request, guard.as_ref(), &shown).await) }
    });
    listen(listener, tls, Limits::default(), service, stop).await;
}

async fn answer(
    request: Request<Incoming>,
    guard: Option<&Arc<Guard>>,
    (shown, last): &(Shown, LastPage),
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let path = path.as_str();
    if (shown.api.is_some() || shown.rollouts.is_some())
        && guard.is_none()
        && !is_local(&request)
        && !["/healthz", "/readyz"].contains(&path)
    {
        let message = "without authorization only requests for an address or localhost are answered, so that no web site \
                       can ask through somebody's browser\n";
        return whole(respond(StatusCode::FORBIDDEN, PLAIN, message));
    }
    if let Some(board) = &shown.board
        && path.starts_with(gates::PATH)
    {
        return whole(
            gates::answer(board, guard.map(AsRef::as_ref), &request, clock::now(), Instant::now()).await,
        );
    }
    if shown.api.is_some()
        && let Some(answer) = ui::answer(path, request.method())
    {
        return whole(answer);
    }
    if let Some(api) = &shown.api
        && let Some(endpoint) = Endpoint::of(path)
    {
        return api.answer(endpoint, guard, request).await;
    }
    if let Some(rollouts) = &shown.rollouts
        && let Some(question) = Question::of(path)
    {
        return rollouts.answer(question, guard, request).await;
    }
    whole(answer_about_itself(path, &request, guard, shown, last).await)
}

async fn answer_about_itself(
    path: &str,
    request: &Request<Incoming>,
    guard: Option<&Arc<Guard>>,
    shown: &Shown,
    last: &LastPage,
) -> Response<Full<Bytes>> {
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
