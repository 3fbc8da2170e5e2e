//! One kind: found by discovery, listed, watched, listed again when its resource version expired,
//! waited for when it is not served.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use futures::{AsyncBufRead, AsyncBufReadExt as _, poll};
use kube::Client;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use super::{
    answer::{Answer, PATIENCE},
    contact::Contact,
    discovery::Discovery,
    event::{Event, Parser, key_of, version_of},
    fault::Fault,
    path::{Path, encode},
    progress::Progress,
    update::{Change, Event as ForEngine, KindId, Update},
};
use crate::{
    clock::Clock,
    metrics::OwnMetrics,
    source::{KindRef, Projection},
};

/// Objects on one page of a LIST.
pub(super) const PAGE: usize = 500;
/// How long the server may take for a streaming list.
const LISTING: Duration = Duration::from_secs(290);
/// How long a watch that has run dry is left alone once something comes: what comes in meanwhile is read at one go,
/// which takes a third of the processor time of waking up for every object. Of several versions of an object all are taken
/// in nonetheless: one that failed and recovered in between has changed, and its time must move.
const GATHER: Duration = Duration::from_millis(50);
/// A watch of which nothing came for so long is taken to have nothing on its way. Where more comes all the time, the server
/// is asked how far it is.
const QUIET: Duration = Duration::from_secs(2);
/// How long it may take to hear how far the server is, and the time between two tries.
const ASKING: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(500);
/// How often a watch is looked at before it counts as dry: in between, the task that reads the connection has its turn.
const TURNS: usize = 4;
pub(super) const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// What all watches of a process have in common.
#[derive(Clone)]
pub struct WatcherSettings {
    /// Client of the workload cluster.
    pub client: Client,
    /// The clock of the process.
    pub clock: Arc<Clock>,
    /// Shared discovery.
    pub discovery: Arc<Discovery>,
    /// Counts errors and relists.
    pub metrics: Arc<OwnMetrics>,
    /// How long the server is to keep a watch open. It sends a bookmark two seconds before the end, so that a watch of
    /// which nothing else comes is heard from in time.
    pub life: Duration,
    /// A watch that is silent for this long is opened anew.
    pub idle: Duration,
    /// How often to look whether a kind that is not served appeared.
    pub look: Duration,
    /// Where updates go.
    pub updates: mpsc::Sender<ForEngine>,
}

impl WatcherSettings {
    /// The head of the answer to a GET.
    async fn ask(&self, uri: &str, accept: &str) -> Result<Answer, Fault> {
        Answer::get(&self.client, &self.clock, uri, accept).await
    }

    /// The whole answer to a GET.
    pub(super) async fn get(&self, uri: &str, accept: &str) -> Result<String, Fault> {
        self.ask(uri, accept).await?.text().await
    }
}

/// Which version the server named, the newest one that was known when it was asked, and when that was.
type Named = Result<(u64, u64, i64), Fault>;
type Asked = Pin<Box<dyn Future<Output = Named> + Send>>;

/// The watch of one kind.
pub struct Watcher {
    settings: WatcherSettings,
    id: KindId,
    kind: KindRef,
    parser: Arc<Parser>,
    contact: Contact,
    /// Whether to ask for a streaming list: not after the server refused one, until it has given a plain one. Another
    /// server may answer the next time, one with a newer version or one that is no longer in trouble.
    streaming: bool,
    backoff: Duration,
    /// The newest version that was heard of; 0 = none.
    newest: u64,
    /// Whether the server has gone back in time and the engine does not know yet.
    restored: bool,
    /// Up to when the watch has kept up, as the engine was last told.
    told: i64,
}

impl Watcher {
    /// A watch of `kind`, known to the engine as `id`, that keeps what `projection` says, and says to `contact` when it
    /// hears something.
    pub fn new(
        settings: WatcherSettings,
        id: KindId,
        kind: KindRef,
        projection: Projection,
        contact: Contact,
    ) -> Self {
        let (parser, backoff) = (Arc::new(Parser::new(projection, &kind.kind)), BACKOFF.0);
        let (newest, restored, told) = Default::default();
        Self { settings, id, kind, parser, contact, streaming: true, backoff, newest, restored, told }
    }

    /// Watches until nobody listens any more.
    pub async fn run(mut self) {
        loop {
            let asked = self.settings.clock.now().boot;
            let fault = match self.settings.discovery.path(&self.kind).await {
                Ok(Some(path)) => self.follow(path).await,
                Ok(None) => {
                    if self.send(Change::Absent).await.is_err() || self.tell(asked).await.is_err() {
                        return;
                    }
                    sleep(self.settings.look).await;
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
        if !fault.is_forbidden() {
            return Ok(());
        }
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
        let mut listed = Instant::now();
        loop {
            let (started, resumed) = (Instant::now(), resume.is_some());
            let ended = match (&resume, self.streaming) {
                (Some(_), _) | (None, true) => self.watch(path, &mut resume).await,
                (None, false) => self.list(path).await.map(|version| {
                    resume = Some(version);
                    self.streaming = true;
                }),
            };
            if !resumed {
                listed = Instant::now();
            }
            if ended.is_err() {
                self.contact.end(self.settings.clock.now().boot);
            }
            match ended {
                // A server that closes at once would be asked without a pause.
                Ok(()) if resumed && started.elapsed() < BACKOFF.0 => self.wait().await,
                Ok(()) => {}
                Err(fault @ (Fault::Expired | Fault::Restored)) => {
                    self.note(&fault);
                    if started.elapsed() < BACKOFF.0 {
                        self.wait().await;
                    }
                    if matches!(fault, Fault::Restored) {
                        (self.newest, self.restored) = (0, true);
                    }
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
                    // Whoever was told that it is forbidden hears by a list that it is over. A version that the server cannot
                    // read it would refuse for ever; but where it takes no watch at all, few lists have to do.
                    let is_stuck = fault.refuses_request() && listed.elapsed() >= self.settings.look;
                    resume = resume.filter(|_| !fault.is_forbidden() && !is_stuck);
                    self.wait().await;
                }
            }
        }
    }

    /// One watch request: from `resume`, or a streaming list when there is none. Ends with `Ok` when the list is complete,
    /// when the server closes the watch, as it is asked to do soon, and after a pause of this process: what only looks
    /// open then is opened anew.
    ///
    /// Silence proves nothing, for a firewall may have dropped the connection, and the version that the server names on
    /// another one does not either: any write to any kind raises it. A watch that is opened anew from where the last one
    /// ended brings what that one may have lost.
    async fn watch(&mut self, path: &str, resume: &mut Option<String>) -> Result<(), Fault> {
        let mut listing = resume.is_none();
        let from = match resume {
            Some(version) => format!("&resourceVersion={version}"),
            None => "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        };
        let selector = self.selector();
        let idle = self.settings.idle;
        let (seconds, patience) = if listing {
            (LISTING.as_secs(), PATIENCE)
        } else {
            (spread(self.settings.life, self.id), (idle / 2).max(ASKING))
        };
        let uri = format!("{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}{from}{selector}");
        let refused = |fault: Fault| match fault {
            // 400 and 422: an API server that knows no streaming lists, or has them turned off. 500
            // inside the stream: one whose etcd cannot report watch progress.
            Fault::Server { code: 400 | 422 | 500, message } if listing => Fault::StreamingRefused(message),
            fault => fault,
        };
        let mut pauses = self.settings.clock.pauses();
        let opened = self.settings.clock.now();
        pauses.mark_unchanged();
        let answer = timeout(patience, self.settings.ask(&uri, self.parser.forms.object))
            .await
            .map_err(|_| Fault::Silent(patience))?;
        let answer = answer.map_err(refused)?;
        if listing {
            self.begin_list(answer.server).await?;
        }
        let mut reader = answer.read();
        let quiet = i64::try_from(QUIET.min(idle / 3).as_millis()).unwrap_or(i64::MAX);
        let mut progress = Progress::new(!listing, quiet, opened.boot, self.settings.clock.now().boot);
        // Asked behind the head of the watch's answer: a server that goes back in time later ends the watch.
        let mut asked: Option<Asked> = (!listing).then(|| self.ask_for_version(path));
        let mut line = Vec::new();
        loop {
            line.clear();
            let now = self.settings.clock.now();
            if now.resumed != opened.resumed {
                return stood_still(listing);
            }
            if let Some(asking) = &mut asked
                && let Poll::Ready(named) = poll!(asking)
            {
                asked = None;
                self.named(named, &mut progress).await?;
            }
            let (more, waited) = {
                let mut more = pin!(has_more(&mut reader));
                match ready(&mut more).await {
                    Some(more) => (more, false),
                    None => {
                        progress.empty(self.settings.clock.now().boot);
                        let mut dry = pin!(sleep(millis(quiet)));
                        let mut silence = pin!(sleep(idle));
                        loop {
                            tokio::select! {
                                biased;
                                more = &mut more => break (more, true),
                                named = answered(&mut asked) => {
                                    asked = None;
                                    self.named(named, &mut progress).await?;
                                    dry.set(sleep(millis(progress.quiet_at() - self.settings.clock.now().boot)));
                                }
                                _ = pauses.changed() => return stood_still(listing),
                                () = &mut dry, if !listing && !dry.is_elapsed() => {
                                    let now = self.settings.clock.now();
                                    if now.resumed != opened.resumed {
                                        return stood_still(listing);
                                    }
                                    // The connection may not have had its turn yet.
                                    if let Some(more) = ready(&mut more).await {
                                        break (more, true);
                                    }
                                    self.keeps_up(progress.dry(now.boot)).await?;
                                }
                                () = &mut silence => return Err(Fault::Silent(idle)),
                            }
                        }
                    }
                }
            };
            match more.map_err(lost)? {
                false if listing => {
                    return Err(Fault::Connection("closed in the middle of a list".to_owned()));
                }
                false => return Ok(()),
                true => {}
            }
            let now = self.settings.clock.now();
            if now.resumed != opened.resumed {
                return stood_still(listing);
            }
            let heard = now.boot;
            progress.hear(heard);
            // How long it takes to list, or to be let in again, is another matter.
            if !listing && progress.is_proven() {
                self.contact.hear(heard);
            }
            tokio::select! {
                read = timeout(idle, reader.read_until(b'\n', &mut line)) => {
                    read.map_err(|_| Fault::Silent(idle))?.map_err(lost)?;
                }
                _ = pauses.changed() => return stood_still(listing),
            }
            let was_listing = listing;
            let kept_up = self.take_in(&line, &mut listing, resume, &mut progress, heard).await?;
            self.keeps_up(kept_up).await?;
            if was_listing && !listing {
                return Ok(());
            }
            if !listing && asked.is_none() && progress.is_flooded(heard) {
                asked = Some(self.ask_for_version(path));
            }
            if waited && !listing {
                sleep(GATHER).await;
            }
        }
    }

    /// Takes in one line of a watch that had come by `at`; gives up to when the watch has kept up, where that is known.
    async fn take_in(
        &mut self,
        line: &[u8],
        listing: &mut bool,
        resume: &mut Option<String>,
        progress: &mut Progress,
        at: i64,
    ) -> Result<Option<i64>, Fault> {
        let (change, version) = match self.parser.event(line)? {
            Event::Bookmark { version, ends_list } => {
                if *listing && !ends_list {
                    return Ok(None);
                }
                let number = number(&version);
                let kept_up = if std::mem::take(listing) {
                    self.end_list(&version).await?;
                    progress.listed()
                } else {
                    progress.bookmark(number, at)
                };
                self.backoff = BACKOFF.0;
                self.newest = self.newest.max(number);
                *resume = Some(version);
                return Ok(kept_up);
            }
            Event::Error { code, message } => {
                return Err(match Fault::from_status(code, &message) {
                    Fault::Server { code: 400 | 422 | 500, message } if *listing => {
                        Fault::StreamingRefused(message)
                    }
                    fault => fault,
                });
            }
            Event::Applied(object) => {
                let version = version_of(&object).to_owned();
                (Change::Object(key_of(&object)?, object), version)
            }
            Event::Deleted(object) => (Change::Deleted(key_of(&object)?), version_of(&object).to_owned()),
        };
        self.settings.metrics.event(&self.kind);
        self.send(change).await?;
        // Initial events are not in order of version: there is no going on from one.
        if *listing {
            return Ok(None);
        }
        let number = number(&version);
        self.newest = self.newest.max(number);
        *resume = Some(version);
        Ok(progress.version(number))
    }

    /// Reads all pages of a list; gives the version to watch from.
    async fn list(&mut self, path: &str) -> Result<String, Fault> {
        let selector = self.selector();
        let at = self.settings.clock.now().boot;
        let mut next: Option<String> = None;
        let mut begun = false;
        loop {
            let token = next.map(|t| format!("&continue={}", encode(&t))).unwrap_or_default();
            let uri = format!("{path}?limit={PAGE}{token}{selector}");
            let answer = self.settings.ask(&uri, self.parser.forms.list).await?;
            if !std::mem::replace(&mut begun, true) {
                self.begin_list(answer.server).await?;
            }
            let text = answer.text().await?;
            let page = self.parser.page(&text)?;
            drop(text);
            for object in page.objects {
                self.settings.metrics.event(&self.kind);
                self.send(Change::Object(key_of(&object)?, object)).await?;
            }
            next = page.next;
            if next.is_none() {
                self.end_list(&page.version).await?;
                self.keeps_up(Some(at)).await?;
                return Ok(page.version);
            }
        }
    }

    async fn begin_list(&mut self, server: Option<i64>) -> Result<(), Fault> {
        self.settings.metrics.relist(&self.kind);
        self.send(Change::ListStarted { server, restored: self.restored }).await?;
        self.restored = false;
        Ok(())
    }

    /// The list of this version is complete.
    async fn end_list(&mut self, version: &str) -> Result<(), Fault> {
        let version = number(version);
        if version < self.newest {
            return Err(Fault::Restored);
        }
        self.newest = version;
        self.send(Change::ListDone).await
    }

    /// Asks which version the server is at, as it is stored and not as a cache has it; again where it is too busy to say.
    fn ask_for_version(&self, path: &str) -> Asked {
        let (settings, parser, known) = (self.settings.clone(), self.parser.clone(), self.newest);
        let kind = self.kind.clone();
        let uri = format!("{path}?limit=1");
        Box::pin(async move {
            loop {
                let at = settings.clock.now().boot;
                let answer = timeout(ASKING, settings.get(&uri, parser.forms.list)).await;
                match answer.unwrap_or(Err(Fault::Silent(ASKING))) {
                    Ok(text) => return Ok((number(&parser.page(&text)?.version), known, at)),
                    Err(fault) if fault.may_pass() => {
                        settings.metrics.watch_error(&kind, fault.cause());
                        debug!(group = kind.group, kind = kind.kind, %fault, "asking for the version");
                        sleep(AGAIN).await;
                    }
                    Err(fault) => return Err(fault),
                }
            }
        })
    }

    /// The server has named its version. What the watch has told of already need not be waited for.
    async fn named(&mut self, named: Named, progress: &mut Progress) -> Result<(), Fault> {
        let (version, known, at) = named?;
        progress.named(version, known, at)?;
        self.keeps_up(progress.version(self.newest)).await
    }

    /// The part of a query that says which objects are watched.
    fn selector(&self) -> String {
        let selector = self.kind.selector.as_ref();
        selector.map(|s| format!("&labelSelector={}", encode(&s.to_string()))).unwrap_or_default()
    }

    /// The watch has kept up to this moment, if to any.
    async fn keeps_up(&mut self, at: Option<i64>) -> Result<(), Fault> {
        let Some(at) = at.filter(|at| *at > self.told) else { return Ok(()) };
        // Whoever makes contact is not refused over and over.
        self.backoff = BACKOFF.0;
        self.tell(at).await
    }

    /// Tells the engine, behind all that it was told before, up to when the watch has kept up.
    async fn tell(&mut self, at: i64) -> Result<(), Fault> {
        self.told = at;
        self.send(Change::Contact(at)).await
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

/// One of three times up to `life`, in seconds, so that what was begun together does not go on in step.
fn spread(life: Duration, id: KindId) -> u64 {
    let (seconds, tenths) = (life.as_secs().max(1), [0, 1, 2].get(id % 3).copied().unwrap_or(0));
    seconds - seconds * tenths / 10
}

/// A resource version as a number, which they are; 0 for one that is none.
fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

/// Waits for what comes next; whether anything does.
async fn has_more(reader: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<bool> {
    Ok(!reader.fill_buf().await?.is_empty())
}

fn lost(error: std::io::Error) -> Fault {
    Fault::Connection(error.to_string())
}

/// So many milliseconds, or none when there are fewer.
fn millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// How a watch ends after a pause of this process.
fn stood_still(listing: bool) -> Result<(), Fault> {
    let why = || Fault::Connection("this process stood still in the middle of a list".to_owned());
    if listing { Err(why()) } else { Ok(()) }
}

/// What a future has to give without waiting for the network.
async fn ready<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    for _ in 0..TURNS {
        if let Poll::Ready(output) = poll!(&mut future) {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// The answer to a question; never when there is none.
async fn answered(asked: &mut Option<Asked>) -> Named {
    match asked {
        Some(asked) => asked.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_that_began_together_end_apart_and_in_time() {
        let ends = |millis| (0..4).map(|id| spread(Duration::from_millis(millis), id)).collect::<Vec<_>>();
        assert_eq!(ends(10_000), [10, 9, 8, 10]);
        assert_eq!(ends(2_500), [2; 4], "long enough to be quiet for a quarter of the timeout");
        assert_eq!(ends(500), [1; 4], "none is without an end");
    }
}
