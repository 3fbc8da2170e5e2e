//! `/metrics`, `/healthz` and `/readyz` of this process, and the gates' pages.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use statusbridge_serving::authorize::{Guard, Wanted};
use statusbridge_serving::http::{Limits, serve as listen};
use statusbridge_serving::options::ServerOptions;
use statusbridge_serving::response::{PLAIN, respond};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::gate_cache::Board;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::serve::gates_page;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long a page of metrics is given to all who ask.
const SAME_PAGE: Duration = Duration::from_secs(1);

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
                && let Err(refusal) = guard.admit(request.headers(), Wanted::Path(path)).await
            {
                return refusal.respond();
            }
            match last.page(Instant::now(), || shown.metrics.render()) {
                Ok(page) => return respond(StatusCode::OK, OPENMETRICS, page),
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

/// The page of metrics as it was rendered last. Many who ask at once get one and the same page: else each who does not read
/// would keep a page of his own in memory.
#[derive(Default)]
struct LastPage(Mutex<Option<(Instant, Bytes)>>);

impl LastPage {
    fn page<E>(&self, now: Instant, render: impl FnOnce() -> Result<String, E>) -> Result<Bytes, E> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, page)) = &*last
            && now.saturating_duration_since(*at) < SAME_PAGE
        {
            return Ok(page.clone());
        }
        let page = Bytes::from(render()?);
        *last = Some((now, page.clone()));
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_at_once_gets_one_page_and_who_comes_later_a_new_one() {
        let (last, start) = (LastPage::default(), Instant::now());
        let page =
            |at: Instant, text: &str| last.page(at, || Ok::<_, std::fmt::Error>(text.to_owned())).unwrap();
        let first = page(start, "1");
        assert_eq!(page(start + SAME_PAGE - Duration::from_millis(1), "2").as_ptr(), first.as_ptr());
        assert_eq!(page(start + SAME_PAGE, "3"), "3");
        assert!(last.page(start + 2 * SAME_PAGE, || Err(std::fmt::Error)).is_err());
    }
}
