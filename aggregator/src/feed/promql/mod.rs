//! Evidence out of a metrics backend that speaks the Prometheus query API.
//!
//! ```text
//!   PromFeed::query --POST--> backend --body--> answer (series by series) --> Sink
//! ```
//!
//! Whatever is not a whole, unreserved answer is a [`FeedError`], never "no data".

mod answer;
#[cfg(test)]
mod answer_tests;
mod body;
#[cfg(test)]
mod client_tests;
mod config;
mod elements;
mod error;
mod exporters;
pub mod fold;
#[cfg(test)]
mod fuzz;
pub mod poll;
mod probe;
mod quick;
mod trust;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::{RequestBuilder, Response, Url, header};

pub use answer::read as read_answer;
pub use config::{Credentials, FeedConfig, Flavour};
pub use error::FeedError;
pub(crate) use exporters::any_of;
pub use exporters::{Exporters, Place};
pub use trust::Trust;

use crate::clock;
use crate::feed::tls::{Connector, chain, client_builder};
use statusbridge_core::sample::{Sink, excerpt};
use statusbridge_core::time::Seconds;

/// How much of an error's body is shown, in bytes.
const EXCERPT: usize = 256;
/// How much of an error's body is read, in bytes.
const ERROR_BODY: usize = 16 << 10;

/// Whoever answers instant queries.
pub trait QueryApi: Send + Sync {
    /// Evaluates an expression at one moment and hands every series of the answer to `sink`, which
    /// comes back once the answer was found to be whole.
    fn query<S: Sink>(
        &self,
        expression: &str,
        at: Seconds,
        sink: S,
    ) -> impl Future<Output = Result<S, FeedError>> + Send;

    /// Bytes of answers received so far, unpacked.
    fn received(&self) -> u64;
}

/// A client of one backend.
#[derive(Debug, Clone)]
pub struct PromFeed {
    config: FeedConfig,
    connector: Arc<Connector>,
    /// Where the query API begins.
    api: Url,
    received: Arc<AtomicU64>,
}

impl PromFeed {
    /// A client; nothing is sent yet. A TLS provider must be installed as the process' default.
    pub fn new(config: FeedConfig) -> Result<Self, FeedError> {
        let bad = |error: String| FeedError::Config(error);
        let url = config.url.url().map_err(bad)?;
        let (mut api, host) =
            config.tls.address(&url).map_err(|error| bad(format!("{error} for `{}`", config.url)))?;
        api.set_path(&format!("{}/api/v1/", api.path().trim_end_matches('/')));
        let mut headers = config.header_map()?;
        if let Some(host) = host {
            headers.entry(header::HOST).or_insert(host);
        }
        let timeout = config.timeout;
        let builder = move || client_builder().default_headers(headers.clone()).timeout(timeout);
        let connector = Connector::new(&config.tls, &url, Box::new(builder));
        connector.check().map_err(bad)?;
        Ok(Self { config, connector: Arc::new(connector), api, received: Arc::default() })
    }

    /// Address of an end point of the query API, such as `query`.
    fn endpoint(&self, path: &str) -> Url {
        let mut url = self.api.clone();
        url.set_path(&(self.api.path().to_owned() + path));
        url
    }

    async fn send(&self, expression: &str, at: Seconds) -> Result<Response, FeedError> {
        match self.request(expression, at).await?.send().await {
            Ok(response) => Ok(response),
            // A connection kept from an earlier query may have been closed meanwhile. Queries change
            // nothing, so they may be sent twice.
            Err(error) if error.is_request() && !error.is_connect() && !error.is_timeout() => {
                self.request(expression, at).await?.send().await.map_err(|e| self.transport(e))
            }
            Err(error) => Err(self.transport(error)),
        }
    }

    /// Longest time for one query.
    pub fn timeout(&self) -> std::time::Duration {
        self.config.timeout
    }

    async fn request(&self, expression: &str, at: Seconds) -> Result<RequestBuilder, FeedError> {
        // A detour over a URL's query gives the form encoding.
        let url = self.endpoint("query");
        let mut form = url.clone();
        form.query_pairs_mut()
            .clear()
            .append_pair("query", expression)
            .append_pair("time", &format!("{at:.3}"))
            .append_pair("timeout", &format!("{}ms", self.config.timeout.as_millis()))
            .extend_pairs(self.config.flavour.parameters());
        let body = form.query().unwrap_or_default().to_owned();
        let client = self.connector.client().await.map_err(FeedError::Config)?;
        let request =
            client.post(url).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        self.config.credentials.sign(request).await
    }

    /// An aggregator whose clock lags would take old data for fresh, one whose clock is ahead would
    /// ask about a future that has no data yet.
    fn compare_clocks(&self, response: &Response) -> Result<(), FeedError> {
        let Some(theirs) = clock::told(response.headers()) else { return Ok(()) };
        let ahead = theirs - clock::now();
        if ahead.abs() > self.config.max_clock_skew.as_secs_f64() {
            return Err(FeedError::ClockDisagrees { ahead: ahead.round() });
        }
        Ok(())
    }

    /// What an answer other than 200 says.
    async fn refusal(&self, mut response: Response) -> FeedError {
        #[derive(serde::Deserialize)]
        struct Refusal {
            #[serde(rename = "errorType")]
            kind: String,
            #[serde(default)]
            error: String,
        }
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > ERROR_BODY {
                break;
            }
        }
        let shown = |said: &str| excerpt(&self.config.url.without_query(said), EXCERPT);
        match serde_json::from_slice::<Refusal>(&body) {
            Ok(refusal) => FeedError::Api { kind: refusal.kind, message: shown(&refusal.error) },
            Err(_) => FeedError::Http { status, excerpt: shown(&String::from_utf8_lossy(&body)) },
        }
    }

    async fn fold<S: Sink>(&self, mut response: Response, mut sink: S) -> Result<S, FeedError> {
        let (mut body, reader) = body::pipe();
        let parser = tokio::task::spawn_blocking(move || answer::read(reader, &mut sink).map(|()| sink));
        let sent = loop {
            match response.chunk().await {
                // The parser gave up: its own error says why.
                Ok(Some(chunk)) => {
                    self.received.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                    if body.write(chunk).await.is_err() {
                        break Ok(());
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(self.transport(error)),
            }
        };
        body.finish().await;
        let parsed = parser.await.map_err(|e| FeedError::Malformed(e.to_string()))?;
        sent.and(parsed)
    }

    fn transport(&self, error: reqwest::Error) -> FeedError {
        // The address may hold secrets.
        let error = &error.without_url();
        if error.is_timeout() {
            FeedError::Timeout { seconds: self.config.timeout.as_secs_f64() }
        } else if error.is_body() || error.is_decode() {
            FeedError::Truncated(chain(error))
        } else if error.is_builder() {
            FeedError::Config(chain(error))
        } else {
            FeedError::Connect(chain(error))
        }
    }
}

impl QueryApi for PromFeed {
    async fn query<S: Sink>(&self, expression: &str, at: Seconds, sink: S) -> Result<S, FeedError> {
        let response = self.send(expression, at).await?;
        self.compare_clocks(&response)?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(self.refusal(response).await);
        }
        self.fold(response, sink).await
    }

    fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}
