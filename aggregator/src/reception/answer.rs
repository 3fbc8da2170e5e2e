//! What a push is answered.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tracing::debug;

use super::body::NoBody;
use super::session::{NoRoom, Session, stream};
use super::{Front, INSTANCE, PATH};
use crate::clock;
use crate::expositions::{self, Origin, Outcome};
use crate::feeds::Receipt;
use crate::metrics::PushResult;

/// Longest name of an exporter, in bytes.
const LONGEST_INSTANCE: usize = 128;

/// An answer, and what it counts as.
struct Answer {
    status: StatusCode,
    counts: Option<PushResult>,
    text: String,
}

impl Answer {
    fn new(status: StatusCode, counts: PushResult, text: impl Into<String>) -> Self {
        Self { status, counts: Some(counts), text: text.into() }
    }

    fn respond(self) -> Response<Full<Bytes>> {
        let Self { status, text, .. } = self;
        let body = if text.is_empty() { Bytes::new() } else { Bytes::from(text + "\n") };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        if !status.is_success() {
            // Another connection may lead to another replica, and what is left of the body is not read.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

pub(super) async fn answer(request: Request<Incoming>, front: &Arc<Front>) -> Response<Full<Bytes>> {
    let answer = match (request.uri().path() == PATH, request.method()) {
        (true, &Method::POST) => take(request, front).await,
        (true, _) => {
            Answer { status: StatusCode::METHOD_NOT_ALLOWED, counts: None, text: "only POST".to_owned() }
        }
        (false, _) => {
            Answer { status: StatusCode::NOT_FOUND, counts: None, text: format!("not found: try {PATH}") }
        }
    };
    answer.counts.iter().for_each(|result| front.metrics.pushed(*result));
    answer.respond()
}

/// Another replica leads, or none.
fn standby() -> Answer {
    let text = "this replica does not lead: try again, on a new connection";
    Answer::new(StatusCode::SERVICE_UNAVAILABLE, PushResult::Standby, text)
}

async fn take(request: Request<Incoming>, front: &Arc<Front>) -> Answer {
    // What was rendered is not younger than the beginning of its arrival.
    let at = clock::now();
    let Some(session) = front.seated().clone() else { return standby() };
    let Some(cluster) = bearer(request.headers()).and_then(|token| session.cluster_of(token)) else {
        let text = "the bearer token is of no cluster";
        return Answer::new(StatusCode::UNAUTHORIZED, PushResult::Unauthorized, text);
    };
    let answer = admitted(request, front, &session, &cluster, at).await;
    debug!(cluster, status = answer.status.as_u16(), text = answer.text, "push");
    answer
}

/// Goes on once it is known whose push it is.
async fn admitted(
    request: Request<Incoming>,
    front: &Arc<Front>,
    session: &Session,
    cluster: &str,
    at: clock::Seconds,
) -> Answer {
    let malformed = |text: &str| Answer::new(StatusCode::BAD_REQUEST, PushResult::Malformed, text);
    let gzip = match request.headers().get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => false,
        Some(b"gzip") => true,
        Some(_) => {
            let text = "only gzip is unpacked";
            return Answer::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, PushResult::Malformed, text);
        }
    };
    let instance = request.headers().get(INSTANCE).map_or(Ok(""), HeaderValue::to_str);
    let Some(instance) = instance.ok().filter(|it| it.len() <= LONGEST_INSTANCE).map(str::to_owned) else {
        return malformed("the header statusbridge-instance is too long, or not plain text");
    };
    let _visit = match session.admit(cluster, &instance) {
        Ok(visit) => visit,
        Err(no) => {
            let text = match no {
                NoRoom::AtOnce => "too many pushes of this cluster at the same time",
                NoRoom::Instances => "too many exporters in this cluster within an hour",
            };
            return Answer::new(StatusCode::TOO_MANY_REQUESTS, PushResult::Busy, text);
        }
    };
    let max = session.max_bytes;
    let arrived = match front.limits.receive(request.into_body(), max).await {
        Ok(arrived) => arrived,
        Err(error) => return no_body(error, max),
    };
    let origin = Origin { cluster: cluster.to_owned(), stream: stream(cluster, &instance), at };
    let reading = front.limits.reading.acquire().await;
    let read = tokio::task::spawn_blocking(move || {
        let text = arrived.unpack(gzip, max)?;
        Ok((text.len(), expositions::read(&text, origin)))
    });
    let read = match read.await {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => return no_body(error, max),
        Err(error) => {
            return Answer::new(StatusCode::INTERNAL_SERVER_ERROR, PushResult::Malformed, error.to_string());
        }
    };
    drop(reading);
    let subject = format!("cluster {cluster}, {instance}");
    let bytes = read.0 as u64;
    let evidence = match read.1 {
        Ok(evidence) => evidence,
        Err(error) => {
            let receipt = Receipt { subject, samples: 0, bytes, outcome: Err(error.to_string()) };
            session.count(cluster, receipt).await;
            return malformed(&error.to_string());
        }
    };
    let samples = evidence.samples;
    let Some(outcome) = session.fold(evidence).await else { return standby() };
    session.count(cluster, Receipt { subject, samples, bytes, outcome: Ok(outcome.clone()) }).await;
    match outcome {
        Outcome::Verified { .. } => Answer::new(StatusCode::NO_CONTENT, PushResult::Verified, ""),
        Outcome::Old => {
            let text = "what is known of this exporter is younger";
            Answer::new(StatusCode::CONFLICT, PushResult::Old, text)
        }
        Outcome::Unverified(fault) => {
            Answer::new(StatusCode::UNPROCESSABLE_ENTITY, PushResult::Unverified, fault)
        }
    }
}

fn no_body(error: NoBody, max: usize) -> Answer {
    let (status, counts, text) = match error {
        NoBody::TooLarge => (
            StatusCode::PAYLOAD_TOO_LARGE,
            PushResult::TooLarge,
            format!("it is larger than maxBytes ({max})"),
        ),
        NoBody::Slow => {
            (StatusCode::REQUEST_TIMEOUT, PushResult::Slow, "it did not arrive in time".to_owned())
        }
        NoBody::Busy => {
            let text = "too many pushes at the same time".to_owned();
            (StatusCode::SERVICE_UNAVAILABLE, PushResult::Busy, text)
        }
        NoBody::Broken => (StatusCode::BAD_REQUEST, PushResult::Malformed, "it broke off".to_owned()),
        NoBody::NotPacked(error) => {
            (StatusCode::BAD_REQUEST, PushResult::Malformed, format!("it is not packed as gzip: {error}"))
        }
    };
    Answer::new(status, counts, text)
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim()).filter(|token| !token.is_empty())
}
