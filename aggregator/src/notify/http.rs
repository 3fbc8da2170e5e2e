//! One request to a receiver, and what its answer means.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde_json::Value;
use statusbridge_core::sample::excerpt;
use statusbridge_serving::address::Address;

use crate::feed::{Connector, TlsFiles, chain, client_builder};

/// Most bytes of an answer that are read, and of a refusal that are shown.
const MOST_ANSWER: usize = 1 << 20;
const EXCERPT: usize = 200;
/// Longest time that a receiver may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Why a request did not do what it should.
#[derive(Debug, PartialEq)]
pub(super) enum Failure {
    /// It may pass: no answer, a server's error, a limit. The receiver may have said how long to wait.
    Later(String, Option<Duration>),
    /// The same request would be refused again.
    Never(String),
}

/// A receiver.
pub(super) struct Http {
    connector: Connector,
    /// With which requests begin.
    base: Url,
    /// Longest time for one request, from connecting to the last byte.
    timeout: Duration,
}

impl Http {
    /// Nothing is sent yet.
    pub(super) fn new(base: Url, tls: &TlsFiles, timeout: Duration) -> Self {
        Self { connector: Connector::new(tls, &base, Box::new(client_builder)), base, timeout }
    }

    /// A request for what lies below the base at `path`, whose parts are names; `query` is put to what the base has.
    ///
    /// # Errors
    /// When there can be no client now.
    pub(super) async fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, Failure> {
        let client = self.connector.client().await;
        let client = client.map_err(|error| Failure::Later(format!("its TLS files: {error}"), None))?;
        let mut url = self.base.clone();
        if !path.is_empty()
            && let Ok(mut parts) = url.path_segments_mut()
        {
            parts.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(client.request(method, url).timeout(self.timeout))
    }

    /// The same with the token in this file, which is read for it.
    ///
    /// # Errors
    /// When there can be no client now, or the file cannot be read.
    pub(super) async fn authorized(
        &self,
        token_file: &Path,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, Failure> {
        let token = secret(token_file).await?;
        Ok(self.request(method, path, query).await?.bearer_auth(token))
    }
}

/// Sends a request. What the receiver answers if it takes it; null where that is no JSON.
///
/// # Errors
/// When it does not take it.
pub(super) async fn send(request: RequestBuilder) -> Result<Value, Failure> {
    let failed = |error: reqwest::Error| Failure::Later(chain(&error.without_url()), None);
    let mut response = request.send().await.map_err(failed)?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > MOST_ANSWER {
            break;
        }
        body.extend_from_slice(&chunk);
    }
    match judge(status, &headers, Timestamp::now()) {
        None => Ok(serde_json::from_slice(&body).unwrap_or_default()),
        Some(failure) => {
            // A receiver may repeat the address, in whose query there may be a token.
            let said = Address::from(response.url().as_str()).without_query(&String::from_utf8_lossy(&body));
            let said = excerpt(&said, EXCERPT).to_string();
            let text = format!("HTTP {}: {said}", status.as_u16());
            Err(match failure {
                Failure::Later(_, wait) => Failure::Later(text, wait),
                Failure::Never(_) => Failure::Never(text),
            })
        }
    }
}

/// What an answer means, but for its words; nothing if all is well.
fn judge(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<Failure> {
    let later = || Some(Failure::Later(String::new(), wait(headers, now)));
    match status.as_u16() {
        200..=299 => None,
        // A token may be replaced; GitHub says 403 for its limits.
        401 | 403 | 408 | 425 | 429 | 500.. => later(),
        _ => Some(Failure::Never(String::new())),
    }
}

/// How long the receiver asks to wait: seconds, or a date; or until its limit ends.
fn wait(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let header = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or_default();
    let asked = header(RETRY_AFTER.as_str()).and_then(|text| match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some(until(rfc2822::parse(text).ok()?.timestamp())),
    });
    let limit = || {
        let ends = header("x-ratelimit-reset").filter(|_| header("x-ratelimit-remaining") == Some("0"))?;
        Some(until(Timestamp::from_second(ends.parse().ok()?).ok()?))
    };
    asked.or_else(limit).map(|wait| wait.min(LONGEST_WAIT))
}

/// What is in a file of secrets, without the line break at its end. It is read for every message, so that it may change.
///
/// # Errors
/// When there is nothing in it, or it cannot be read.
pub(super) async fn secret(file: &Path) -> Result<String, Failure> {
    let failure = |error: String| Failure::Later(format!("{}: {error}", file.display()), None);
    let text = tokio::fs::read_to_string(file).await.map_err(|error| failure(error.to_string()))?;
    match text.trim() {
        "" => Err(failure("it is empty; the secret should be in it".to_owned())),
        secret => Ok(secret.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SOON: Option<Duration> = Some(Duration::from_secs(30));

    #[rstest]
    #[case::taken(202, &[], None)]
    #[case::refused(422, &[], Some(Failure::Never(String::new())))]
    #[case::elsewhere(302, &[("location", "http://a")], Some(Failure::Never(String::new())))]
    #[case::broken(503, &[], Some(Failure::Later(String::new(), None)))]
    #[case::busy(429, &[("retry-after", "30")], Some(Failure::Later(String::new(), SOON)))]
    #[case::down_until(503, &[("retry-after", "Thu, 01 Jan 1970 00:17:10 GMT")], Some(Failure::Later(String::new(), SOON)))]
    #[case::down_until_long_ago(503, &[("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")], Some(Failure::Later(String::new(), Some(Duration::ZERO))))]
    #[case::for_ever(503, &[("retry-after", "99999999")], Some(Failure::Later(String::new(), Some(LONGEST_WAIT))))]
    #[case::nonsense(503, &[("retry-after", "soon")], Some(Failure::Later(String::new(), None)))]
    #[case::a_limit(403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1030")], Some(Failure::Later(String::new(), SOON)))]
    #[case::no_limit(403, &[("x-ratelimit-remaining", "5"), ("x-ratelimit-reset", "1030")], Some(Failure::Later(String::new(), None)))]
    fn what_an_answer_means(
        #[case] status: u16,
        #[case] headers: &[(&'static str, &'static str)],
        #[case] expected: Option<Failure>,
    ) {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let headers: HeaderMap = headers.collect();
        let now = Timestamp::from_second(1_000).unwrap();
        assert_eq!(judge(StatusCode::from_u16(status).unwrap(), &headers, now), expected);
    }
}
