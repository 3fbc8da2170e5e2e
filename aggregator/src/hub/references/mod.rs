//! Revisions that FleetPackages read from objects of the hub (`revisionFrom`).
//!
//! ```text
//!   FleetPackages ──ask──> References ──one watch for each kind and namespace──> hub
//!                            │   ^                                                │
//!      decide <── Resolution ┘ ^ └───────────────────── News ─────────────────────┘
//!                              └── Evaluations, one at a time, in fair turns of namespaces
//! ```
//!
//! What is decided from is a [`Ledger`], plain data: who refers to what, what is known of it, what
//! follows. A value lives no longer than its reference works, and counts for no other reference.
//!
//! Whoever may make a FleetPackage writes expressions. Each is evaluated once for a version of an object,
//! beside the main loop.

mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kube::Client;
use statusbridge_api::RevisionFrom;
use statusbridge_core::reconcile::references::{Evaluated, Ledger, Place};
use statusbridge_core::reconcile::store::Key;
use tokio::sync::{mpsc, watch as channel};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval};

use watch::{Follower, Report};

/// Reports that wait to be taken in; watches wait when there are more.
const WAITING: usize = 64;
/// Time between looks at what waits for its turn.
const TICK: Duration = Duration::from_millis(100);

/// The references of all FleetPackages, and the watches that they need.
pub struct References {
    client: Client,
    /// The ledger counts time from then on.
    begun: Instant,
    ledger: Ledger,
    watches: BTreeMap<Place, Watch>,
    started: u64,
    sender: mpsc::Sender<Report>,
    reports: mpsc::Receiver<Report>,
    /// One at most.
    evaluations: JoinSet<Evaluated>,
    ticks: Interval,
}

struct Watch {
    /// Tells its reports from those of a watch that was there before.
    number: u64,
    names: channel::Sender<BTreeSet<String>>,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl References {
    /// Nobody refers to anything yet.
    pub fn new(client: Client) -> Self {
        let (sender, reports) = mpsc::channel(WAITING);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            client,
            begun: Instant::now(),
            ledger: Ledger::default(),
            watches: BTreeMap::new(),
            started: 0,
            sender,
            reports,
            evaluations: JoinSet::new(),
            ticks,
        }
    }

    /// What follows for each FleetPackage.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Takes note of what a FleetPackage refers to now; starts and stops watches accordingly.
    pub fn ask(&mut self, package: &Key, from: Option<&RevisionFrom>) {
        let change = self.ledger.ask(package, from, self.begun.elapsed());
        if let Some((place, name)) = change.added {
            match self.watches.get(&place) {
                Some(watch) => {
                    watch.names.send_if_modified(|names| names.insert(name));
                }
                None => self.start(place, name),
            }
        }
        if let Some((place, name)) = change.dropped
            && let Some(watch) = self.watches.get(&place)
        {
            watch.names.send_if_modified(|names| names.remove(&name));
            if watch.names.borrow().is_empty() {
                self.watches.remove(&place);
            }
        }
    }

    fn start(&mut self, place: Place, name: String) {
        self.started += 1;
        let (names, asked) = channel::channel(BTreeSet::from([name]));
        let number = self.started;
        let follower = Follower::new(self.client.clone(), place.clone(), number, asked, self.sender.clone());
        let task = tokio::spawn(follower.run());
        self.watches.insert(place, Watch { number, names, task });
    }

    /// The FleetPackages for which something may be different now. Waits for that; may be dropped
    /// while it does.
    pub async fn changed(&mut self) -> BTreeSet<Key> {
        loop {
            if self.evaluations.is_empty()
                && let Some(evaluation) = self.ledger.next(self.begun.elapsed())
            {
                self.evaluations.spawn_blocking(|| evaluation.run());
            }
            let changed = tokio::select! {
                // One sender is kept here, so that the channel never closes.
                Some(Report { place, number, news }) = self.reports.recv() => {
                    if self.watches.get(&place).is_some_and(|watch| watch.number == number) {
                        self.ledger.take(&place, news, self.begun.elapsed())
                    } else {
                        BTreeSet::new()
                    }
                }
                Some(Ok(done)) = self.evaluations.join_next() => self.ledger.evaluated(done, self.begun.elapsed()),
                _ = self.ticks.tick() => self.ledger.expire(self.begun.elapsed()),
            };
            if !changed.is_empty() {
                return changed;
            }
        }
    }
}
