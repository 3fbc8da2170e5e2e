//! When the aggregator polled, and about which time.

use super::PATIENCE;
use super::clock::{Clock, Seconds};
use crate::query;
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use statusbridge_tests::Port;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Stands before the backend and notes when which time was asked about.
pub(super) struct Polls {
    port: Port,
    /// When a digest was asked for, and about which time.
    asked: Arc<Mutex<Vec<(Seconds, Seconds)>>>,
    task: JoinHandle<()>,
}

impl Polls {
    /// Before this backend.
    pub(super) async fn start(backend: &str, clock: Clock) -> Result<Self> {
        let port = Port::reserve()?;
        let listener = TcpListener::bind(port.address()).await.context("listening")?;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let client = reqwest::Client::builder().no_proxy().gzip(false).timeout(PATIENCE).build()?;
        let way = Arc::new((client, backend.to_owned(), asked.clone()));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((stream, _)) = accepted else { continue };
                        let way = way.clone();
                        connections.spawn(async move {
                            let answer = service_fn(move |request| pass_on(request, way.clone(), clock));
                            let _ = hyper::server::conn::http1::Builder::new()
                                .serve_connection(TokioIo::new(stream), answer)
                                .await;
                        });
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self { port, asked, task })
    }

    /// Where the aggregator asks.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// When a poll first asked about a time at which a sample counts.
    pub(super) fn first(&self, scraped: Seconds) -> Option<Seconds> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().find(|(_, about)| *about >= scraped).map(|(at, _)| *at)
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Passing = (reqwest::Client, String, Arc<Mutex<Vec<(Seconds, Seconds)>>>);

async fn pass_on(
    request: hyper::Request<hyper::body::Incoming>,
    way: Arc<Passing>,
    clock: Clock,
) -> Result<hyper::Response<Full<Bytes>>> {
    let arrived = clock.now();
    let (client, backend, asked) = way.as_ref();
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let form = reqwest::Url::parse(&format!("http://form/?{}", String::from_utf8_lossy(&body)))?;
    let field = |name: &str| form.query_pairs().find(|(n, _)| n == name).map(|(_, value)| value.into_owned());
    if field("query").is_some_and(|query| query::is_of_digests(&query)) {
        let until: Seconds = field("time").and_then(|time| time.parse().ok()).unwrap_or_default();
        asked.lock().unwrap_or_else(PoisonError::into_inner).push((arrived, until - query::AHEAD));
    }
    let sent = client
        .post(format!("{backend}{path}"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body)
        .send()
        .await?;
    let status = sent.status();
    let mut response = hyper::Response::new(Full::new(sent.bytes().await?));
    *response.status_mut() = status;
    Ok(response)
}
