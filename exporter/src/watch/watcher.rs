//! One kind: found by discovery, listed, watched, listed again when its resource version expired,
//! waited for when it is not served.

use std::{
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use futures::{AsyncBufReadExt as _, poll};
use kube::Client;
use tokio::{sync::mpsc, time::timeout};
use tracing::{debug, info, warn};

use super::{
    Change, Contact, Discovery, Event as ForEngine, Fault, KindId, Update,
    event::{Event, Parser, key_of, version_of},
    path::{Path, encode, request},
};
use crate::{own_metrics::OwnMetrics, projection::Projection, source::KindRef};

/// Objects on one page of a LIST.
pub(super) const PAGE: usize = 500;
/// How long a page of a LIST, or the head of a watch's answer, may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the server may keep one watch open, in seconds.
const WATCH_SECONDS: u32 = 290;
/// How long a watch that has run dry is left alone: what comes in meanwhile is read at one go, which
/// takes a third of the processor time of waking up for every object. One that comes after a longer
/// silence is read at once.
const GATHER: Duration = Duration::from_millis(50);
/// How long a watch that was opened anew has to be dry before all that happened meanwhile counts as
/// known. The server sends it directly behind the head of its answer.
const CATCH_UP: Duration = Duration::from_millis(500);
/// A watch that never runs dry is one with much to say: after so long it is not behind any more.
const CATCH_UP_AT_LAST: Duration = Duration::from_secs(10);
pub(super) const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// What all watches of a process have in common.
#[derive(Clone)]
pub struct WatcherSettings {
    /// Client of the workload cluster.
    pub client: Client,
    /// Shared discovery.
    pub discovery: Arc<Discovery>,
    /// Counts errors and relists.
    pub metrics: Arc<OwnMetrics>,
    /// A watch that is silent for this long is opened anew. Servers send a bookmark about every
    /// minute.
    pub idle: Duration,
    /// How often to look whether a kind that is not served appeared.
    pub look: Duration,
    /// Where updates go.
    pub updates: mpsc::Sender<ForEngine>,
}

impl WatcherSettings {
    /// The whole answer to a GET.
    pub(super) async fn get(&self, uri: String) -> Result<String, Fault> {
        let answer = self.client.request_text(request(&uri)?);
        Ok(timeout(PATIENCE, answer).await.map_err(|_| Fault::Silent(PATIENCE))??)
    }
}

/// The watch of one kind.
pub struct Watcher {
    settings: WatcherSettings,
    id: KindId,
    kind: KindRef,
    contact: Contact,
    parser: Parser,
    /// Whether to ask for streaming lists: until the server refuses one.
    streaming: bool,
    backoff: Duration,
}

impl Watcher {
    /// A watch of `kind`, known to the engine as `id`, that keeps what `projection` says and notes
    /// in `contact` when it hears anything and the engine was told all that came before.
    pub fn new(
        settings: WatcherSettings,
        id: KindId,
        kind: KindRef,
        projection: Projection,
        contact: Contact,
    ) -> Self {
        let parser = Parser::new(projection);
        Self { settings, id, kind, contact, parser, streaming: true, backoff: BACKOFF.0 }
    }

    /// Watches until nobody listens any more.
    pub async fn run(mut self) {
        loop {
            let fault = match self.settings.discovery.path(&self.kind).await {
                Ok(Some(path)) => self.follow(path).await,
                Ok(None) => {
                    self.heard();
                    if self.send(Change::Absent).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(self.settings.look).await;
                    continue;
                }
                Err(fault) => fault,
            };
            if matches!(fault, Fault::Stopping) {
                return;
            }
            self.note(&fault);
            if self.tell_if_forbidden(&fault).await.is_err() {
                return;
            }
            self.wait().await;
        }
    }

    /// Says so when the server refuses: for some kinds that is a state, and not only a fault.
    async fn tell_if_forbidden(&self, fault: &Fault) -> Result<(), Fault> {
        let Fault::Server { code: 401 | 403, .. } = fault else { return Ok(()) };
        let KindRef { group, kind, .. } = &self.kind;
        let dot = if group.is_empty() { "" } else { "." };
        self.send(Change::Forbidden(format!("may not get, list and watch {kind}{dot}{group}"))).await
    }

    /// Lists and watches at one path until the kind is not served there, the server is not reached
    /// at all (it may come back with other versions), or nobody listens.
    async fn follow(&mut self, path: Path) -> Fault {
        let path = path.all();
        let path = path.as_str();
        info!(group = self.kind.group, kind = self.kind.kind, path, "watching");
        let mut resume: Option<String> = None;
        loop {
            let started = Instant::now();
            let ended = match (&resume, self.streaming) {
                (Some(_), _) | (None, true) => self.watch(path, &mut resume).await,
                (None, false) => self.list(path).await.map(|version| resume = Some(version)),
            };
            match ended {
                // A server that closes at once would be asked without a pause.
                Ok(()) if started.elapsed() < BACKOFF.0 => self.wait().await,
                Ok(()) => {}
                Err(Fault::Expired) => {
                    self.note(&Fault::Expired);
                    resume = None;
                }
                Err(Fault::StreamingRefused(why)) => {
                    info!(kind = self.kind.kind, why, "no streaming lists here, reading pages instead");
                    self.settings.metrics.watch_error(&self.kind, "streaming_refused");
                    self.streaming = false;
                }
                Err(fault @ (Fault::NotServed | Fault::Stopping)) => return fault,
                Err(fault) => {
                    self.note(&fault);
                    if let Err(stopping) = self.tell_if_forbidden(&fault).await {
                        return stopping;
                    }
                    self.wait().await;
                }
            }
        }
    }

    /// One watch request: from `resume`, or with a streaming list when there is none. Ends with
    /// `Ok` when the server closes it, as it does now and then.
    async fn watch(&mut self, path: &str, resume: &mut Option<String>) -> Result<(), Fault> {
        let mut listing = resume.is_none();
        let from = match resume {
            Some(version) => format!("&resourceVersion={version}"),
            None => "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        };
        let selector = self.selector();
        let uri =
            format!("{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}{from}{selector}");
        let refused = |fault: Fault| match fault {
            // 400 and 422: an API server that knows no streaming lists, or has them turned off. 500
            // inside the stream: one whose etcd cannot report watch progress.
            Fault::Server { code: 400 | 422 | 500, message } if listing => Fault::StreamingRefused(message),
            fault => fault,
        };
        let answer = self.settings.client.request_stream(request(&uri)?);
        let reader = timeout(PATIENCE, answer).await.map_err(|_| Fault::Silent(PATIENCE))?;
        let mut reader = Box::pin(reader.map_err(Fault::from).map_err(refused)?);
        let answered = Instant::now();
        // That the server answers says nothing about what is shown: contact is made once all that
        // happened meanwhile is known, or the state from before an outage would be said to be fresh.
        let mut caught_up = false;
        if listing {
            self.settings.metrics.relist(&self.kind);
            self.send(Change::ListStarted).await?;
        }
        let mut line = Vec::new();
        loop {
            line.clear();
            let idle = self.settings.idle;
            let mut read = pin!(reader.read_until(b'\n', &mut line));
            let read = match poll!(&mut read) {
                Poll::Ready(read) => Ok(read),
                Poll::Pending if listing => timeout(idle, read).await,
                Poll::Pending if caught_up => {
                    tokio::time::sleep(GATHER).await;
                    timeout(idle, read).await
                }
                Poll::Pending => {
                    let dry = CATCH_UP.min(idle / 3);
                    match timeout(dry, &mut read).await {
                        Ok(read) => Ok(read),
                        Err(_) => {
                            caught_up = true;
                            self.heard();
                            // Whoever makes contact is not refused over and over.
                            self.backoff = BACKOFF.0;
                            timeout(idle - dry, read).await
                        }
                    }
                }
            };
            // This process, or the network, may have stood still: then there is much to read first.
            caught_up &= self.contact.age().is_some_and(|age| age <= idle + CATCH_UP);
            let length = match read {
                Err(_) => return Err(Fault::Silent(idle)),
                Ok(Err(error)) => return Err(Fault::Connection(error.to_string())),
                Ok(Ok(length)) => length,
            };
            match length {
                0 if listing => return Err(Fault::Connection("closed in the middle of a list".to_owned())),
                0 => return Ok(()),
                _ => {}
            }
            match self.parser.event(&line)? {
                Event::Applied(object) => {
                    let version = version_of(&object).to_owned();
                    self.settings.metrics.event(&self.kind);
                    self.send(Change::Object(key_of(&object)?, object)).await?;
                    // Initial events are not in order of version: there is no going on from one.
                    if !listing {
                        *resume = Some(version);
                    }
                }
                Event::Deleted(object) => {
                    let version = version_of(&object).to_owned();
                    self.settings.metrics.event(&self.kind);
                    self.send(Change::Deleted(key_of(&object)?)).await?;
                    if !listing {
                        *resume = Some(version);
                    }
                }
                Event::Bookmark { version, ends_list } => {
                    if listing && ends_list {
                        listing = false;
                        self.send(Change::ListDone).await?;
                    }
                    if !listing {
                        *resume = Some(version);
                        self.backoff = BACKOFF.0;
                        caught_up = true;
                    }
                }
                Event::Error { code, message } => {
                    let fault = Fault::from_status(code, &message);
                    return Err(match fault {
                        Fault::Server { code: 400 | 422 | 500, message } if listing => {
                            Fault::StreamingRefused(message)
                        }
                        fault => fault,
                    });
                }
            }
            caught_up |= !listing && answered.elapsed() > CATCH_UP_AT_LAST;
            if caught_up {
                self.heard();
            }
        }
    }

    /// Reads all pages of a list; gives the version to watch from.
    async fn list(&mut self, path: &str) -> Result<String, Fault> {
        self.settings.metrics.relist(&self.kind);
        let selector = self.selector();
        let mut next: Option<String> = None;
        self.send(Change::ListStarted).await?;
        loop {
            let token = next.map(|t| format!("&continue={}", encode(&t))).unwrap_or_default();
            let text = self.settings.get(format!("{path}?limit={PAGE}{token}{selector}")).await?;
            let page = self.parser.page(&text)?;
            drop(text);
            for object in page.objects {
                self.settings.metrics.event(&self.kind);
                self.send(Change::Object(key_of(&object)?, object)).await?;
            }
            next = page.next;
            if next.is_none() {
                self.send(Change::ListDone).await?;
                self.heard();
                self.backoff = BACKOFF.0;
                return Ok(page.version);
            }
        }
    }

    /// The part of a query that says which objects are watched.
    fn selector(&self) -> String {
        let selector = self.kind.selector.as_ref();
        selector.map(|s| format!("&labelSelector={}", encode(s))).unwrap_or_default()
    }

    fn heard(&self) {
        self.contact.touch();
    }

    async fn send(&self, change: Change) -> Result<(), Fault> {
        let update = Update { kind: self.id, change };
        self.settings.updates.send(ForEngine::Heard(update)).await.map_err(|_| Fault::Stopping)
    }

    fn note(&self, fault: &Fault) {
        self.settings.metrics.watch_error(&self.kind, fault.cause());
        let (group, kind) = (&self.kind.group, &self.kind.kind);
        match fault {
            // Both are everyday events: an old version, a connection that a short timeout tests.
            Fault::Expired | Fault::Silent(_) => debug!(group, kind, %fault, "watch ended"),
            _ => warn!(group, kind, %fault, "watch ended"),
        }
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.backoff).await;
        self.backoff = (self.backoff * 2).min(BACKOFF.1);
    }
}
