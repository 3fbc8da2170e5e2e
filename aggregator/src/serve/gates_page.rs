//! `/v1alpha1/gates/NAMESPACE/NAME`: one gate as JSON.

use std::time::Instant;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, Uri, header};
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use serde_json::json;
use statusbridge_api::GROUP;
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::store::Key;
use statusbridge_core::time::Seconds;
use statusbridge_serving::authorize::{Guard, Wanted};
use statusbridge_serving::refusal::Refusal;
use statusbridge_serving::response::respond;

use crate::gate_cache::{Answer, GateCache, NOT_AUTHORIZED};

/// What every address of a gate begins with.
pub const PATH: &str = "/v1alpha1/gates/";

/// Answers a request for an address that begins with [`PATH`]. `now` and `at` are the present.
pub async fn answer<B>(
    board: &GateCache,
    guard: Option<&Guard>,
    request: &http::Request<B>,
    now: Seconds,
    at: Instant,
) -> Response<Full<Bytes>> {
    let (status, body) = match Request::read(request.method(), request.uri()) {
        Ok(Request { key, revision }) => match admit(board, guard, request, &key).await {
            Ok(()) => look(board, &key, revision, now, at),
            Err(answer) => answer,
        },
        Err((status, message)) => (status, closed("BadRequest", &message)),
    };
    let mut response = respond(status, "application/json", format!("{body}\n"));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// Whether somebody may see a gate, or the answer to those who may not: the same whether or not there is such a gate.
async fn admit<B>(
    board: &GateCache,
    guard: Option<&Guard>,
    request: &http::Request<B>,
    Key { namespace, name }: &Key,
) -> Result<(), (StatusCode, String)> {
    let Some(guard) = guard else {
        let refused = || (StatusCode::FORBIDDEN, closed("Forbidden", NOT_AUTHORIZED));
        return if board.hides_gates() { Err(refused()) } else { Ok(()) };
    };
    let gate = Wanted::Object { group: GROUP, resource: "rolloutgates", namespace, name };
    guard.admit(request, gate).await.map_err(|refusal| {
        let reason = match refusal {
            Refusal::Unauthenticated => "Unauthenticated",
            Refusal::Forbidden(_) => "Forbidden",
            Refusal::Unavailable(_) => "AuthorizationUnavailable",
        };
        (refusal.status(), closed(reason, &refusal.to_string()))
    })
}

fn look(
    board: &GateCache,
    key: &Key,
    revision: Option<Fingerprint>,
    now: Seconds,
    at: Instant,
) -> (StatusCode, String) {
    match board.answer(key, revision, now, at) {
        Answer::Known(reading) => match serde_json::to_string(&reading) {
            Ok(reading) => (StatusCode::OK, reading),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, closed("Error", &error.to_string())),
        },
        Answer::Unknown => {
            let message = format!("there is no RolloutGate {key}");
            (StatusCode::NOT_FOUND, closed("NotFound", &message))
        }
        Answer::Silent(why) => (StatusCode::SERVICE_UNAVAILABLE, closed("AggregatorSilent", &why)),
    }
}

/// Whatever goes wrong, who looks at `open` alone reads that it is closed.
fn closed(reason: &str, message: &str) -> String {
    json!({"open": false, "reason": reason, "message": message}).to_string()
}

#[derive(Debug, PartialEq)]
struct Request {
    key: Key,
    revision: Option<Fingerprint>,
}

impl Request {
    fn read(method: &Method, uri: &Uri) -> Result<Self, (StatusCode, String)> {
        let bad = |message: &str| (StatusCode::BAD_REQUEST, message.to_owned());
        if method != Method::GET && method != Method::HEAD {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered".to_owned()));
        }
        let words = uri.path().strip_prefix(PATH).unwrap_or_default().split_once('/');
        let is_gate =
            |words: &(&str, &str)| !words.0.is_empty() && !words.1.is_empty() && !words.1.contains('/');
        let Some((namespace, name)) = words.filter(is_gate) else {
            return Err((StatusCode::NOT_FOUND, format!("the address of a gate is {PATH}NAMESPACE/NAME")));
        };
        let key = Key { namespace: namespace.to_owned(), name: name.to_owned() };
        let mut revision = None;
        for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            // A parameter that is not understood may have been meant to narrow the question.
            let ("revision", value) = pair.split_once('=').unwrap_or((pair, "")) else {
                return Err(bad("the only parameter is revision"));
            };
            let value = percent_decode_str(value).decode_utf8().map_err(|_| bad("revision is not UTF-8"))?;
            let asked = Fingerprint::of(&value);
            if asked.is_none() || revision.replace(asked).is_some() {
                return Err(bad("revision must be given once, and not be empty"));
            }
        }
        Ok(Self { key, revision })
    }
}
