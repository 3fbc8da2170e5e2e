//! `/v1alpha1/gates/NAMESPACE/NAME`: one gate.

use std::time::Instant;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use statusbridge_api::GROUP;
use statusbridge_core::reconcile::object::Key;
use statusbridge_core::time::Seconds;
use statusbridge_serving::authorize::{Guard, Wanted};
use statusbridge_serving::response::respond;

use super::JSON;
use super::failure::Failure;
use super::params::Params;
use crate::gate_cache::{Answer, GateCache, NOT_AUTHORIZED};

/// What every address of a gate begins with.
pub const PATH: &str = "/v1alpha1/gates/";

/// Answers a request for an address that begins with [`PATH`]. `now` and `at` are the present.
pub async fn answer<B>(
    board: &GateCache,
    guard: Option<&Guard>,
    request: &Request<B>,
    now: Seconds,
    at: Instant,
) -> Response<Full<Bytes>> {
    match look(board, guard, request, now, at).await {
        Ok(body) => {
            let mut response = respond(StatusCode::OK, JSON, body + "\n");
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        Err(failure) => failure.respond(),
    }
}

async fn look<B>(
    board: &GateCache,
    guard: Option<&Guard>,
    request: &Request<B>,
    now: Seconds,
    at: Instant,
) -> Result<String, Failure> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Err(Failure::not_allowed("GET, HEAD"));
    }
    let words = request.uri().path().strip_prefix(PATH).unwrap_or_default().split_once('/');
    let is_gate = |words: &(&str, &str)| !words.0.is_empty() && !words.1.is_empty() && !words.1.contains('/');
    let Some((namespace, name)) = words.filter(is_gate) else {
        return Err(Failure::not_found(format!("the address of a gate is {PATH}NAMESPACE/NAME")));
    };
    let key = Key { namespace: namespace.to_owned(), name: name.to_owned() };
    let params = Params::read(request.uri().query(), &["revision"])?;
    let revision = params.revision()?;
    admit(board, guard, request, &key).await?;
    match board.answer(&key, revision, now, at) {
        Answer::Known(verdict) => serde_json::to_string(&verdict).map_err(|error| Failure::broken(&error)),
        Answer::Unknown => Err(Failure::not_found(format!("there is no RolloutGate {key}"))),
        Answer::Silent(why) => Err(Failure::silent(why)),
    }
}

/// Whether somebody may see a gate. What is said to those who may not is the same whether or not there is such a gate.
async fn admit<B>(
    board: &GateCache,
    guard: Option<&Guard>,
    request: &Request<B>,
    Key { namespace, name }: &Key,
) -> Result<(), Failure> {
    let Some(guard) = guard else {
        let refused = || Failure::new(StatusCode::FORBIDDEN, "Forbidden", NOT_AUTHORIZED);
        return if board.hides_gates() { Err(refused()) } else { Ok(()) };
    };
    guard.admit(request, Wanted::Object { group: GROUP, resource: "rolloutgates", namespace, name }).await?;
    Ok(())
}
