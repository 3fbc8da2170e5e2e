//! As long as this replica leads: whose tokens count, and where pushes go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use statusbridge_contract::stream::StreamLabels;
use statusbridge_core::exposition::{Evidence, Outcome};
use statusbridge_core::fleet::{Access, Fleet};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::body::{READ_AT_ONCE, ROOM, Room};
use super::refusals::Refusals;
use super::{TokenId, Tokens};
use crate::clock;
use crate::feed::{FeedHandle, Receipt};

/// Pushes of one cluster under way at the same time.
const AT_ONCE: usize = 4;
/// Exporters of one cluster that are told apart.
const INSTANCES: usize = 32;
/// An exporter that has not pushed for so long is no longer counted.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// The time of one leadership.
pub(super) struct Session {
    desk: FeedHandle,
    tokens: RwLock<Tokens>,
    /// Largest exposition, in bytes.
    pub(super) max_bytes: usize,
    /// For bodies as they arrive: one cluster never takes more than half of it.
    room: Room,
    /// Half of it, which all share whose last push was refused or failed: the other half is for the others.
    failing: Room,
    pub(super) refusals: Refusals,
    receipts: mpsc::Sender<(String, Receipt)>,
    visitors: Arc<Mutex<HashMap<String, Visitor>>>,
    over: CancellationToken,
}

/// What is remembered of a cluster that pushes.
struct Visitor {
    under_way: usize,
    /// Its turns to be read: never more than half of all.
    reading: Arc<Semaphore>,
    /// Its share of the room for bodies.
    room: Room,
    instances: HashMap<String, Instant>,
}

/// Why a push is not let in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// Others of the same cluster are under way.
    AtOnce,
    /// There are too many exporters in the cluster.
    Instances,
}

/// A push that is let in.
pub(super) struct Visit {
    cluster: String,
    /// Turns of its cluster to be read.
    pub(super) reading: Arc<Semaphore>,
    /// What its cluster, and all together, have room for, and those that failed, if it is one of them.
    pub(super) rooms: Vec<Room>,
    visitors: Arc<Mutex<HashMap<String, Visitor>>>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut visitors = self.visitors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(visitor) = visitors.get_mut(&self.cluster) {
            visitor.under_way -= 1;
        }
    }
}

impl Session {
    pub(super) fn new(
        desk: FeedHandle,
        tokens: Tokens,
        max_bytes: usize,
        receipts: mpsc::Sender<(String, Receipt)>,
    ) -> Self {
        let (visitors, refusals, over) = Default::default();
        let (tokens, room) = (RwLock::new(tokens), Room::new(ROOM, max_bytes));
        let failing = Room::new(ROOM / 2, max_bytes);
        Self { desk, tokens, max_bytes, room, failing, refusals, receipts, visitors, over }
    }

    pub(super) fn knows(&self, tokens: Tokens) {
        self.refusals.keep(&tokens);
        let clusters = tokens.clusters();
        let mut visitors = self.visitors.lock().unwrap_or_else(PoisonError::into_inner);
        visitors.retain(|cluster, visitor| visitor.under_way > 0 || clusters.contains(cluster.as_str()));
        drop(visitors);
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    pub(super) fn end(&self) {
        self.over.cancel();
    }

    /// A token, and the cluster that it is for.
    pub(super) fn find(&self, token: &str) -> Option<(TokenId, String)> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        tokens.find(token).map(|(token, cluster)| (token, cluster.to_owned()))
    }

    /// Lets a push in, if there is room for it.
    pub(super) fn admit(&self, token: &TokenId, cluster: &str, instance: &str) -> Result<Visit, NoRoom> {
        let has_failed = self.refusals.remembers(token, Instant::now());
        let mut visitors = self.visitors.lock().unwrap_or_else(PoisonError::into_inner);
        let visitor = visitors.entry(cluster.to_owned()).or_insert_with(|| Visitor {
            under_way: 0,
            reading: Arc::new(Semaphore::new(READ_AT_ONCE / 2)),
            room: Room::new(ROOM / 2, self.max_bytes),
            instances: HashMap::new(),
        });
        if visitor.under_way >= AT_ONCE {
            return Err(NoRoom::AtOnce);
        }
        visitor.instances.retain(|_, last| last.elapsed() < FORGOTTEN);
        if visitor.instances.len() >= INSTANCES && !visitor.instances.contains_key(instance) {
            return Err(NoRoom::Instances);
        }
        visitor.instances.insert(instance.to_owned(), Instant::now());
        visitor.under_way += 1;
        let (cluster, reading) = (cluster.to_owned(), visitor.reading.clone());
        let failing = has_failed.then(|| self.failing.clone());
        let rooms = [visitor.room.clone(), self.room.clone()].into_iter().chain(failing).collect();
        Ok(Visit { cluster, reading, rooms, visitors: self.visitors.clone() })
    }

    /// Pushes of a cluster that are let in.
    #[cfg(test)]
    pub(super) fn under_way(&self, cluster: &str) -> usize {
        let visitors = self.visitors.lock().unwrap_or_else(PoisonError::into_inner);
        visitors.get(cluster).map_or(0, |visitor| visitor.under_way)
    }

    /// Brings the fleet up to what was pushed; its places are free after that. `None` when this replica leads no longer.
    pub(super) async fn fold(&self, evidence: Evidence, places: impl Send + 'static) -> Option<Outcome> {
        let mut desk = self.desk.clone();
        let fold = move |fleet: &mut Fleet| {
            let _places = places;
            evidence.fold(fleet, clock::now())
        };
        tokio::select! {
            () = self.over.cancelled() => None,
            outcome = desk.with(fold) => Some(outcome),
        }
    }

    /// Has a push counted.
    pub(super) async fn count(&self, cluster: &str, receipt: Receipt) {
        // Nobody counts any longer: then nobody has to know.
        let _ = self.receipts.send((cluster.to_owned(), receipt)).await;
    }
}

/// What tells the exporters of a cluster apart.
pub(super) fn stream(cluster: &str, instance: &str) -> StreamLabels {
    let labels = [("cluster", cluster), ("instance", instance)];
    let said = labels.into_iter().filter(|(_, value)| !value.is_empty());
    said.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
