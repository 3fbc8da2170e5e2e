//! `/metrics`, `/healthz` and `/readyz` over HTTP or HTTPS.

use std::{convert::Infallible, sync::Arc, time::Duration, time::Instant};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::{body::Incoming, service::service_fn};
use statusbridge_serving::{
    authorize::{Guard, Wanted},
    http::Limits,
    options::ServerOptions,
    response::{PLAIN, respond},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::exposition::{Exposition, Format};

/// What the server asks the rest of the process.
pub trait Subject: Send + Sync + 'static {
    /// The exposition as it is now; `Err` with the reason while there is none yet.
    fn exposition(&self, format: Format) -> Result<Exposition, String>;
    /// The digest of the state that an exposition would show now; `None` while there is none yet. It stays the same
    /// while the state does.
    fn state_digest(&self) -> Option<u64>;
    /// `Err` with the reason when the process no longer does its work.
    fn healthy(&self) -> Result<(), String>;
    /// `Err` with the reason while not everything has been read yet.
    fn ready(&self) -> Result<(), String>;
    /// A scrape was answered.
    fn scraped(&self, took: Duration);
}

type Body = BoxBody<Bytes, Infallible>;

/// Serves until `stop`; requests under way are finished first.
pub async fn serve<S: Subject>(
    listener: TcpListener,
    options: ServerOptions,
    subject: Arc<S>,
    stop: CancellationToken,
) {
    let ServerOptions { tls, guard } = options;
    let service = service_fn(move |request: Request<Incoming>| {
        let (guard, subject) = (guard.clone(), subject.clone());
        async move { Ok::<_, Infallible>(answer(&request, guard.as_deref(), &subject).await) }
    });
    statusbridge_serving::http::serve(listener, tls, Limits::default(), service, stop).await;
}

async fn answer<S: Subject>(
    request: &Request<Incoming>,
    guard: Option<&Guard>,
    subject: &Arc<S>,
) -> Response<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    }
    let probe = |state: Result<(), String>| match state {
        Ok(()) => plain(StatusCode::OK, "ok\n"),
        Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, &format!("{why}\n")),
    };
    match request.uri().path() {
        "/metrics" => {
            if let Some(guard) = guard
                && let Err(refusal) = guard.admit(request.headers(), Wanted::Path("/metrics")).await
            {
                return refusal.respond().map(BodyExt::boxed);
            }
            metrics(request.headers(), subject.clone())
        }
        "/healthz" => probe(subject.healthy()),
        "/readyz" => probe(subject.ready()),
        _ => plain(StatusCode::NOT_FOUND, "not found: try /metrics, /healthz, /readyz\n"),
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    respond(status, PLAIN, text.to_owned()).map(BodyExt::boxed)
}

fn metrics<S: Subject>(headers: &HeaderMap, subject: Arc<S>) -> Response<Body> {
    let start = Instant::now();
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("");
    let format = Format::negotiate(text(header::ACCEPT));
    let gzip = accepts_gzip(text(header::ACCEPT_ENCODING));
    let pieces = match subject.exposition(format) {
        Ok(pieces) => pieces,
        Err(why) => return plain(StatusCode::SERVICE_UNAVAILABLE, &format!("{why}\n")),
    };
    let pieces: Box<dyn Iterator<Item = Bytes> + Send + Sync> =
        if gzip { Box::new(pieces.gzip()) } else { Box::new(pieces.plain()) };
    let end = stream::once(async move {
        subject.scraped(start.elapsed());
        None
    });
    let body = stream::iter(pieces.map(Some)).chain(end).filter_map(async |piece| piece);
    let body = BodyExt::boxed(StreamBody::new(body.map(|piece| Ok::<_, Infallible>(Frame::data(piece)))));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(format.content_type()));
    headers.insert(header::VARY, header::HeaderValue::from_static("accept, accept-encoding"));
    if gzip {
        headers.insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
    }
    response
}

fn accepts_gzip(accept_encoding: &str) -> bool {
    accept_encoding.split(',').any(|part| {
        let mut params = part.split(';').map(str::trim);
        let name = params.next().unwrap_or("");
        let refused = params.any(|p| p.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()) == Some(0.0));
        (name.eq_ignore_ascii_case("gzip") || name == "*") && !refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_where_it_is_accepted() {
        assert!(accepts_gzip("gzip") && accepts_gzip("deflate, gzip;q=0.5") && accepts_gzip("*"));
        assert!(!accepts_gzip("") && !accepts_gzip("identity") && !accepts_gzip("gzip;q=0"));
    }
}
