//! What a push is answered.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use statusbridge_core::exposition::{self, Origin, Outcome};
use statusbridge_serving::response::{PLAIN, respond};
use tracing::debug;

use super::body::NoBody;
use super::session::{NoRoom, Session, stream};
use super::{Front, INSTANCE, PATH, TokenId, bearer};
use crate::clock;
use crate::feed::{Receipt, push};
use crate::metrics::PushResult;

/// Longest name of an exporter, in bytes.
const LONGEST_INSTANCE: usize = 128;

/// An answer, and what it counts as.
struct Answer {
    status: StatusCode,
    counts: Option<PushResult>,
    text: String,
    /// After so many seconds a push that was turned away may be tried again.
    retry_after: u64,
}

impl Answer {
    fn new(status: StatusCode, counts: impl Into<Option<PushResult>>, text: impl Into<String>) -> Self {
        Self { status, counts: counts.into(), text: text.into(), retry_after: 1 }
    }

    /// Whether whoever holds the token sends what costs much and brings nothing.
    fn misbehaves(&self) -> bool {
        let refusals =
            [StatusCode::BAD_REQUEST, StatusCode::UNSUPPORTED_MEDIA_TYPE, StatusCode::PAYLOAD_TOO_LARGE];
        refusals.contains(&self.status)
    }

    /// Whether it is what may happen once to anybody, and costs as much.
    fn has_failed(&self) -> bool {
        [StatusCode::REQUEST_TIMEOUT, StatusCode::UNPROCESSABLE_ENTITY].contains(&self.status)
    }

    fn respond(self) -> Response<Full<Bytes>> {
        let Self { status, text, retry_after, .. } = self;
        let body = if text.is_empty() { text } else { text + "\n" };
        let mut response = respond(status, PLAIN, body);
        let headers = response.headers_mut();
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, retry_after.into());
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
        // It goes on to the end, whether or not the client is still there: what came of it is held against the token.
        (true, &Method::POST) => match tokio::spawn(take(request, front.clone())).await {
            Ok(answer) => answer,
            Err(error) => Answer::new(StatusCode::INTERNAL_SERVER_ERROR, None, error.to_string()),
        },
        (true, _) => Answer::new(StatusCode::METHOD_NOT_ALLOWED, None, "only POST"),
        (false, _) => Answer::new(StatusCode::NOT_FOUND, None, format!("not found: try {PATH}")),
    };
    if let Some(result) = answer.counts {
        front.metrics.pushed(result);
    }
    answer.respond()
}

fn malformed(text: &str) -> Answer {
    Answer::new(StatusCode::BAD_REQUEST, PushResult::Malformed, text)
}

/// Another replica leads, or none.
fn standby() -> Answer {
    let text = "this replica does not lead: try again, on a new connection";
    Answer::new(StatusCode::SERVICE_UNAVAILABLE, PushResult::Standby, text)
}

async fn take(request: Request<Incoming>, front: Arc<Front>) -> Answer {
    // What was rendered is not younger than the beginning of its arrival.
    let at = clock::now();
    let Some(session) = front.seated().clone() else { return standby() };
    let Some((token, cluster)) = bearer(request.headers()).and_then(|token| session.find(token)) else {
        let text = "the bearer token is of no cluster";
        return Answer::new(StatusCode::UNAUTHORIZED, PushResult::Unauthorized, text);
    };
    if let Some(wait) = session.refusals.wait(&token, Instant::now()) {
        let seconds = wait.as_secs() + 1;
        let text = format!("pushes with this token were refused: try again in {seconds} s");
        let answer = Answer::new(StatusCode::TOO_MANY_REQUESTS, PushResult::Slowed, text);
        return Answer { retry_after: seconds, ..answer };
    }
    let answer = admitted(request, &front, &session, (token, &cluster), at).await;
    if answer.misbehaves() {
        session.refusals.refused(token, Instant::now());
    } else if answer.has_failed() {
        session.refusals.failed(token, Instant::now());
    } else if answer.counts == Some(PushResult::Verified) {
        session.refusals.taken(&token);
    }
    debug!(cluster, status = answer.status.as_u16(), text = answer.text, "push");
    answer
}

/// Goes on once it is known whose push it is.
async fn admitted(
    request: Request<Incoming>,
    front: &Arc<Front>,
    session: &Session,
    (token, cluster): (TokenId, &str),
    at: statusbridge_core::time::Seconds,
) -> Answer {
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
    let busy = |text| Answer::new(StatusCode::TOO_MANY_REQUESTS, PushResult::Busy, text);
    let visit = match session.admit(&token, cluster, &instance) {
        Ok(visit) => visit,
        Err(NoRoom::AtOnce) => return busy("too many pushes of this cluster at the same time"),
        Err(NoRoom::Instances) => return busy("too many exporters in this cluster within an hour"),
    };
    let max = session.max_bytes;
    let arrived = match front.limits.receive(request.into_body(), &visit.rooms, max).await {
        Ok(arrived) => arrived,
        Err(error) => return no_body(error, max),
    };
    let origin = Origin {
        cluster: cluster.to_owned(),
        feed: push::NAME.into(),
        stream: stream(cluster, &instance),
        at,
    };
    // It takes its place until it ends.
    let (ours, all) = (visit.reading.clone(), front.limits.reading.clone());
    let reading = (ours.acquire_owned().await, all.acquire_owned().await);
    let read = tokio::task::spawn_blocking(move || {
        let places = (reading, visit);
        let text = arrived.unpack(gzip, max)?;
        Ok((text.len(), exposition::read(&text, origin), places))
    });
    let (bytes, read, places) = match read.await {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => return no_body(error, max),
        Err(error) => {
            return Answer::new(StatusCode::INTERNAL_SERVER_ERROR, PushResult::Malformed, error.to_string());
        }
    };
    let subject = format!("cluster {cluster}, {instance}");
    let bytes = bytes as u64;
    let evidence = match read {
        Ok(evidence) => evidence,
        Err(error) => {
            let receipt = Receipt { subject, samples: 0, bytes, outcome: Err(error.to_string()) };
            session.count(cluster, receipt).await;
            return malformed(&error.to_string());
        }
    };
    let (samples, excess) = (evidence.samples, evidence.excess());
    let Some(outcome) = session.fold(evidence, places).await else { return standby() };
    session.count(cluster, Receipt { subject, samples, bytes, outcome: Ok(outcome.clone()) }).await;
    if let Some(excess) = excess {
        return Answer::new(StatusCode::PAYLOAD_TOO_LARGE, PushResult::TooLarge, excess.to_string());
    }
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
    match error {
        NoBody::TooLarge => {
            let text = format!("it is larger than maxBytes ({max})");
            Answer::new(StatusCode::PAYLOAD_TOO_LARGE, PushResult::TooLarge, text)
        }
        NoBody::Slow => {
            Answer::new(StatusCode::REQUEST_TIMEOUT, PushResult::Slow, "it did not arrive in time")
        }
        NoBody::Busy => {
            let text = "too many pushes at the same time";
            Answer::new(StatusCode::SERVICE_UNAVAILABLE, PushResult::Busy, text)
        }
        NoBody::Broken => Answer::new(StatusCode::REQUEST_TIMEOUT, PushResult::Malformed, "it broke off"),
        NoBody::NotPacked(error) => malformed(&format!("it is not packed as gzip: {error}")),
    }
}
