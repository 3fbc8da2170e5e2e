//! Why a request is not answered.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::json;
use statusbridge_serving::refusal::Refusal;
use statusbridge_serving::response::respond;

use super::JSON;
use crate::serve::desk::Unanswered;

/// Why a request is not answered, in a word and in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    reason: &'static str,
    message: String,
    allow: Option<&'static str>,
}

impl Failure {
    pub(super) fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into(), allow: None }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub(super) fn silent(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "AggregatorSilent", message)
    }

    pub(super) fn broken(error: &serde_json::Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Error", error.to_string())
    }

    pub(super) fn not_allowed(allow: &'static str) -> Self {
        let message = format!("only {allow} are answered");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message) }
    }

    /// As JSON. Whatever goes wrong, whoever looks at `open` alone reads that nothing is.
    pub(super) fn respond(&self) -> Response<Full<Bytes>> {
        let body = json!({"open": false, "reason": self.reason, "message": self.message});
        let mut response = respond(self.status, JSON, format!("{body}\n"));
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let reason = match refusal {
            Refusal::Unauthenticated => "Unauthenticated",
            Refusal::Forbidden(_) => "Forbidden",
            Refusal::Unavailable(_) => "AuthorizationUnavailable",
        };
        Self::new(refusal.status(), reason, refusal.to_string())
    }
}

impl From<Unanswered> for Failure {
    fn from(unanswered: Unanswered) -> Self {
        Self::silent(unanswered.to_string())
    }
}
