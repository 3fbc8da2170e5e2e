//! `/metrics`, `/healthz` and `/readyz`.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::answer::format::Format;
use crate::answer::response::{PLAIN, respond};
use crate::authorize::{Guard, Wanted};
use crate::listen::http::Limits;
use crate::options::ServerOptions;

/// What a process says of itself.
pub trait Endpoints: Send + Sync + 'static {
    /// The metrics as they are now, compressed only if the client accepts `gzip`; `Err` with the reason while there are
    /// none yet.
    fn metrics(&self, format: Format, gzip: bool) -> Result<Exposition, String>;
    /// `Err` with the reason when the process no longer works and should be restarted.
    fn healthy(&self) -> Result<(), String>;
    /// `Err` with the reason while the process has not read everything yet.
    fn ready(&self) -> Result<(), String>;
}

/// Text of an exposition, in pieces.
pub type Pieces = Box<dyn Iterator<Item = Bytes> + Send + Sync>;

/// An exposition that is made while the client reads it.
pub enum Exposition {
    /// Text as it is.
    Plain(Pieces),
    /// One gzip stream.
    Gzip(Pieces),
}

type Body = BoxBody<Bytes, Infallible>;

/// Serves until `stop`; requests under way are finished first.
pub async fn serve<E: Endpoints>(
    listener: TcpListener,
    options: ServerOptions,
    endpoints: Arc<E>,
    stop: CancellationToken,
) {
    let ServerOptions { tls, guard } = options;
    let service = service_fn(move |request: Request<Incoming>| {
        let (guard, endpoints) = (guard.clone(), endpoints.clone());
        async move { Ok::<_, Infallible>(answer(&request, guard.as_deref(), endpoints.as_ref()).await) }
    });
    crate::listen::http::serve(listener, tls, Limits::default(), service, stop).await;
}

async fn answer<E: Endpoints>(
    request: &Request<Incoming>,
    guard: Option<&Guard>,
    endpoints: &E,
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
                && let Err(refusal) = guard.admit(request, Wanted::Path("/metrics")).await
            {
                return refusal.respond().map(Body::new);
            }
            metrics(request.headers(), endpoints)
        }
        "/healthz" => probe(endpoints.healthy()),
        "/readyz" => probe(endpoints.ready()),
        _ => plain(StatusCode::NOT_FOUND, "not found: try /metrics, /healthz, /readyz\n"),
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    respond(status, PLAIN, text.to_owned()).map(Body::new)
}

fn metrics<E: Endpoints>(headers: &HeaderMap, endpoints: &E) -> Response<Body> {
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("");
    let format = Format::negotiate(text(header::ACCEPT));
    let (pieces, gzip) = match endpoints.metrics(format, accepts_gzip(text(header::ACCEPT_ENCODING))) {
        Ok(Exposition::Plain(pieces)) => (pieces, false),
        Ok(Exposition::Gzip(pieces)) => (pieces, true),
        Err(why) => return plain(StatusCode::SERVICE_UNAVAILABLE, &format!("{why}\n")),
    };
    let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    let mut response = Response::new(Body::new(StreamBody::new(futures::stream::iter(frames))));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    headers.insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
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
