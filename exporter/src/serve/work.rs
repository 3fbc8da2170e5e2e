//! The engine at work: it is fed what watches hear, and what it asks for is done.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{Semaphore, mpsc},
    task::{AbortHandle, JoinSet, yield_now},
};
use tokio_util::sync::CancellationToken;

use super::{http::ServerState, playback::Playback};
use crate::{
    clock::Clock,
    state::{Command, Engine},
    watch::{self, Event, KindId, SourceId, Watcher, WatcherSettings},
};

/// Single reads that may be under way at once.
const READS: usize = 8;

/// How long the engine may be at work before others on its thread have their turn: those who watch, push and ask.
const TURN: Duration = Duration::from_millis(5);

/// Whom the engine asks.
pub(super) enum Server {
    /// The cluster's API server.
    Cluster(Box<Tasks>),
    /// A recording.
    Recording(Playback),
}

/// The engine and all that it has under way.
pub(super) struct Work {
    clock: Arc<Clock>,
    engine: Engine,
    server: Server,
    state: Arc<ServerState>,
}

impl Work {
    pub(super) fn new(engine: Engine, clock: Arc<Clock>, server: Server, state: Arc<ServerState>) -> Self {
        Self { clock, engine, server, state }
    }

    /// Feeds the engine until `stop`.
    pub(super) async fn drive(mut self, mut updates: mpsc::Receiver<Event>, stop: CancellationToken) {
        // Often enough for the liveness probe to see the engine at work.
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        loop {
            for command in self.engine.commands() {
                match &mut self.server {
                    Server::Cluster(tasks) => tasks.obey(command),
                    Server::Recording(playback) => playback.obey(command),
                }
            }
            let due =
                self.engine.next_deadline().map(|at| u64::try_from(at - self.clock.now().boot).unwrap_or(0));
            let deadline = async {
                match due {
                    Some(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                event = updates.recv() => match event {
                    Some(Event::Heard(update)) => self.engine.apply(update, self.clock.now()),
                    Some(Event::Found { source, kinds, at }) => {
                        self.engine.found(source, kinds, at);
                    }
                    Some(Event::Sources(sources)) => self.engine.use_sources(sources),
                    None => return,
                },
                () = deadline => self.engine.expire(self.clock.now()),
                _ = tick.tick() => {}
            }
            if !self.finish(&stop).await {
                return;
            }
        }
    }

    /// Has the engine do what follows from an update, and lets others have their turn now and then; whether it was done
    /// before `stop`.
    async fn finish(&mut self, stop: &CancellationToken) -> bool {
        let mut begun = Instant::now();
        while self.engine.go_on(self.clock.now()) {
            if begun.elapsed() > TURN {
                self.state.engine_is_alive();
                yield_now().await;
                if stop.is_cancelled() {
                    return false;
                }
                begun = Instant::now();
            }
        }
        self.state.engine_is_alive();
        true
    }
}

/// What the engine has asked for and is under way.
pub(super) struct Tasks {
    settings: WatcherSettings,
    watching: HashMap<KindId, AbortHandle>,
    finding: HashMap<SourceId, AbortHandle>,
    /// Single reads of a kind end with its watch.
    reading: HashMap<KindId, JoinSet<()>>,
    /// How many of them may be under way at once.
    turns: Arc<Semaphore>,
    all: JoinSet<()>,
}

impl Tasks {
    pub(super) fn new(settings: WatcherSettings) -> Self {
        let (watching, finding, reading) = Default::default();
        let turns = Arc::new(Semaphore::new(READS));
        Self { settings, watching, finding, reading, turns, all: JoinSet::new() }
    }

    fn obey(&mut self, command: Command) {
        let settings = self.settings.clone();
        match command {
            Command::Watch { kind, of, projection, contact } => {
                let watcher = Watcher::new(settings, kind, of, projection, contact);
                self.watching.insert(kind, self.all.spawn(watcher.run()));
            }
            Command::Unwatch(kind) => {
                self.watching.remove(&kind).iter().for_each(AbortHandle::abort);
                self.reading.remove(&kind);
            }
            Command::Find { source, categories } => {
                let task = watch::find(settings, source, categories);
                self.finding.insert(source, self.all.spawn(task));
            }
            Command::StopFinding(source) => {
                self.finding.remove(&source).iter().for_each(AbortHandle::abort);
            }
            Command::Read(wanted) => {
                let turns = self.turns.clone();
                let reading = self.reading.entry(wanted.kind).or_default();
                while reading.try_join_next().is_some() {}
                reading.spawn(async move {
                    let _turn = turns.acquire().await;
                    watch::read(settings, wanted).await;
                });
            }
        }
        while self.all.try_join_next().is_some() {}
    }
}
