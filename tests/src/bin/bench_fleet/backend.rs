//! A metrics backend that answers for a generated fleet, in the words of Prometheus' query API.

use crate::generated::{Generated, JOB, Millis, now, seconds};
use crate::query::{BESIDE, Query};
use anyhow::{Context, Result};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures::stream;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use statusbridge_contract::{CONTRACT_VERSION, Metric, label};
use statusbridge_tests::Port;
use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How much is sent at a time.
const CHUNK: usize = 64 << 10;
/// Pieces on their way between whoever writes and the connection.
const CHUNKS: usize = 8;

type Body = BoxBody<Bytes, Infallible>;

/// The backend.
pub(crate) struct Backend {
    port: Port,
    served: Arc<Served>,
    task: JoinHandle<()>,
}

/// What was answered so far.
#[derive(Default)]
pub(crate) struct Served {
    /// Bytes of answers before compression.
    plain: AtomicU64,
    /// Bytes sent.
    sent: AtomicU64,
    /// The first query that was refused, and why.
    refused: Mutex<Option<String>>,
}

impl Backend {
    /// Starts one.
    pub(crate) async fn start(fleet: Arc<Generated>) -> Result<Self> {
        let port = Port::reserve()?;
        let listener = TcpListener::bind(port.address()).await.context("listening")?;
        let served = Arc::new(Served::default());
        let task = tokio::spawn(serve(listener, fleet, served.clone()));
        Ok(Self { port, served, task })
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// Bytes of answers so far, before compression and as they were sent.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.served.plain.load(Ordering::Relaxed), self.served.sent.load(Ordering::Relaxed))
    }

    /// What it was asked that it does not know.
    pub(crate) fn refused(&self) -> Option<String> {
        self.served.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, fleet: Arc<Generated>, served: Arc<Served>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let (fleet, served) = (fleet.clone(), served.clone());
                connections.spawn(async move {
                    let answer = service_fn(move |request| answer(request, fleet.clone(), served.clone()));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), answer)
                        .await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    fleet: Arc<Generated>,
    served: Arc<Served>,
) -> Result<Response<Body>, Infallible> {
    let gzip = request.headers().get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let gzip = gzip.is_some_and(|codings| codings.contains("gzip"));
    match read(request, &fleet).await {
        Ok((query, t)) => {
            let (chunks, rest) = mpsc::channel::<Bytes>(CHUNKS);
            tokio::task::spawn_blocking(move || {
                let sent = Chunks { chunks, buffer: Vec::with_capacity(CHUNK), sent: &served.sent };
                // Whoever asked may have gone away.
                let _ = if gzip {
                    let mut out =
                        Counted { out: GzEncoder::new(sent, Compression::fast()), plain: &served.plain };
                    write_answer(&mut out, &fleet, &query, t).and_then(|()| out.out.finish()?.flush())
                } else {
                    let mut out = Counted { out: sent, plain: &served.plain };
                    write_answer(&mut out, &fleet, &query, t).and_then(|()| out.out.flush())
                };
            });
            let frames = stream::unfold(rest, |mut rest| async move {
                let chunk = rest.recv().await?;
                Some((Ok::<_, Infallible>(Frame::data(chunk)), rest))
            });
            let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
            if gzip {
                response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
            Ok(response)
        }
        Err(error) => {
            let text = format!("{error:#}");
            served.refused.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| text.clone());
            let body = serde_json::json!({"status": "error", "errorType": "bad_data", "error": text});
            let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed());
            *response.status_mut() = StatusCode::BAD_REQUEST;
            Ok(response)
        }
    }
}

/// The query and the time of its evaluation.
async fn read(request: Request<Incoming>, fleet: &Generated) -> Result<(Query, Millis)> {
    anyhow::ensure!(request.uri().path() == "/api/v1/query", "no path that is known here");
    let body = request.into_body().collect().await.context("reading the request")?.to_bytes();
    // A URL's query has the form's encoding.
    let form = String::from_utf8(body.to_vec()).context("a form in another encoding")?;
    let form = reqwest::Url::parse(&format!("http://form/?{form}")).context("no form")?;
    let field = |name: &str| form.query_pairs().find(|(n, _)| n == name).map(|(_, value)| value.into_owned());
    let t: f64 = field("time").context("no time")?.parse().context("a time that is no number")?;
    Ok((Query::read(&field("query").context("no query")?, fleet)?, (t * 1000.0).round() as Millis))
}

/// Sends what is written in pieces. Writing blocks: use it on a blocking thread.
struct Chunks<'a> {
    chunks: mpsc::Sender<Bytes>,
    buffer: Vec<u8>,
    sent: &'a AtomicU64,
}

impl Chunks<'_> {
    fn send(&mut self) -> io::Result<()> {
        let full = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK));
        self.sent.fetch_add(full.len() as u64, Ordering::Relaxed);
        self.chunks.blocking_send(full.into()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() { Ok(()) } else { self.send() }
    }
}

/// Counts what goes through it.
struct Counted<'a, W> {
    out: W,
    plain: &'a AtomicU64,
}

impl<W: Write> Counted<'_, W> {
    fn put(&mut self, text: &str) -> io::Result<()> {
        self.plain.fetch_add(text.len() as u64, Ordering::Relaxed);
        self.out.write_all(text.as_bytes())
    }
}

/// Writes a whole answer.
fn write_answer<W: Write>(
    out: &mut Counted<'_, W>,
    fleet: &Generated,
    query: &Query,
    t: Millis,
) -> io::Result<()> {
    let kind = if *query == Query::Sizes { "vector" } else { "matrix" };
    out.put(&format!("{{\"status\":\"success\",\"data\":{{\"resultType\":\"{kind}\",\"result\":["))?;
    let mut text = String::with_capacity(2 * CHUNK);
    let mut result = Series { text: &mut text, first: true };
    match query {
        Query::Digests { window } => {
            // Nothing was scraped yet in the future.
            let until = t.min(now());
            for exporter in 0..fleet.exporters() {
                head(&mut result, fleet, Metric::Digest, exporter, t - window, until);
                result.pass_on(out)?;
            }
            for exporter in 0..if fleet.is_told() { fleet.exporters() } else { 0 } {
                let scrapes: Vec<Millis> = fleet.scrapes(exporter, t - window, until).collect();
                for cluster in fleet.clusters_of(exporter) {
                    part(&mut result, fleet, exporter, cluster, &scrapes);
                    result.pass_on(out)?;
                }
            }
        }
        Query::Beside { exporters, window } => {
            let all = || (0..fleet.exporters()).collect();
            let exporters = exporters.clone().unwrap_or_else(all);
            for metric in BESIDE {
                for exporter in &exporters {
                    head(&mut result, fleet, metric, *exporter, t - window, t.min(now()));
                    result.pass_on(out)?;
                }
            }
        }
        Query::Sizes => {
            for exporter in 0..fleet.exporters() {
                size(&mut result, fleet, exporter, t);
                result.pass_on(out)?;
            }
        }
        Query::Contents { exporters, only, window } => {
            for exporter in exporters {
                content(&mut result, fleet, *exporter, only.as_deref(), *window, t);
                result.pass_on(out)?;
            }
        }
    }
    out.put(&text)?;
    out.put("]}}")
}

/// Series as they are written one after another.
struct Series<'a> {
    text: &'a mut String,
    first: bool,
}

impl Series<'_> {
    fn pass_on<W: Write>(&mut self, out: &mut Counted<'_, W>) -> io::Result<()> {
        if self.text.len() >= CHUNK {
            out.put(self.text)?;
            self.text.clear();
        }
        Ok(())
    }

    /// A series with labels in order of their names, as backends write them.
    fn add(
        &mut self,
        name: Option<Metric>,
        labels: &[(&str, &str)],
        samples: &[(Millis, &str)],
        matrix: bool,
    ) {
        self.text.push_str(if std::mem::take(&mut self.first) { "{\"metric\":{" } else { ",{\"metric\":{" });
        let name = name.map(|metric| ("__name__", metric.name()));
        for (n, (label, value)) in name.iter().chain(labels).enumerate() {
            let comma = if n == 0 { "" } else { "," };
            self.text.extend([comma, "\"", label, "\":\"", value, "\""]);
        }
        self.text.push_str(if matrix { "},\"values\":[" } else { "},\"value\":" });
        for (n, (at, value)) in samples.iter().enumerate() {
            let (seconds, millis) = (at.div_euclid(1000), at.rem_euclid(1000));
            let comma = if n == 0 { "" } else { "," };
            let time = format!("{comma}[{seconds}.{millis:03},\"");
            self.text.extend([time.as_str(), value, "\"]"]);
        }
        self.text.push_str(if matrix { "]}" } else { "}" });
    }
}

/// One of the samples that a digest is read with, as each scrape in the window found it.
fn head(
    result: &mut Series<'_>,
    fleet: &Generated,
    metric: Metric,
    exporter: usize,
    from: Millis,
    t: Millis,
) {
    let Some(origin) = fleet.origin(exporter) else { return };
    let value = |scraped: Millis| match metric {
        Metric::Digest => fleet.digest(exporter, scraped),
        Metric::RenderedTimestamp => seconds(scraped),
        _ => origin.process,
    };
    let samples = fleet.scrapes(exporter, from, t).map(|scraped| (scraped, value(scraped).to_string()));
    let samples: Vec<(Millis, String)> = samples.collect();
    let samples: Vec<(Millis, &str)> = samples.iter().map(|(at, value)| (*at, value.as_str())).collect();
    let (name, instance) = (("cluster", origin.cluster), ("instance", origin.instance));
    let uid = (label::CLUSTER_UID, origin.uid);
    match metric {
        Metric::Digest => {
            let labels = [name, (label::CONTRACT, CONTRACT_VERSION), instance, ("job", JOB), uid];
            result.add(Some(metric), &labels, &samples, true);
        }
        _ => result.add(Some(metric), &[name, instance, ("job", JOB)], &samples, true),
    }
}

/// The digest of what an exporter says of another cluster, as its scrapes found it.
fn part(result: &mut Series<'_>, fleet: &Generated, exporter: usize, cluster: usize, scrapes: &[Millis]) {
    let Some(origin) = fleet.origin(exporter) else { return };
    let samples = scrapes.iter().map(|scraped| (*scraped, fleet.part(cluster, *scraped).value().to_string()));
    let samples: Vec<(Millis, String)> = samples.collect();
    let samples: Vec<(Millis, &str)> = samples.iter().map(|(at, value)| (*at, value.as_str())).collect();
    let labels = [
        ("cluster", origin.cluster),
        (label::CONTRACT, CONTRACT_VERSION),
        ("instance", origin.instance),
        ("job", JOB),
        (label::PACKAGE_CLUSTER, fleet.cluster_name(cluster)),
        (label::CLUSTER_UID, origin.uid),
    ];
    result.add(Some(Metric::Digest), &labels, &samples, true);
}

fn size(result: &mut Series<'_>, fleet: &Generated, exporter: usize, t: Millis) {
    if let Some(origin) = fleet.origin(exporter) {
        let packages = fleet.packages_of(exporter).to_string();
        result.add(None, &[("cluster", origin.cluster)], &[(t, &packages)], false);
    }
}

fn content(
    result: &mut Series<'_>,
    fleet: &Generated,
    exporter: usize,
    only: Option<&[usize]>,
    window: Millis,
    t: Millis,
) {
    let Some(origin) = fleet.origin(exporter) else { return };
    // Windows are shorter than the time between scrapes.
    let scraped = fleet.last_scrape(exporter, t);
    if scraped <= t - window {
        return;
    }
    let mut number = itoa::Buffer::new();
    fleet.each(exporter, only, scraped, &mut |metric, own, value| {
        let mut labels = vec![("cluster", origin.cluster), ("instance", origin.instance), ("job", JOB)];
        labels.extend(own);
        labels.sort_unstable();
        result.add(Some(metric), &labels, &[(scraped, number.format(value))], true);
    });
}
