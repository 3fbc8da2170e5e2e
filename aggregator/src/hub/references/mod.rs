//! Follows the objects that FleetPackages refer to.

mod api;
mod watch;

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use statusbridge_core::reconcile::references::{Change, News, Place, Room};
use tokio::sync::{mpsc, watch as channel};
use tokio::task::JoinHandle;

use api::Hub;
use watch::{Follower, Report};

/// Reports that wait to be taken in; watches wait when there are more.
const WAITING: usize = 64;

/// The watches that the references of all FleetPackages need.
pub(crate) struct References {
    hub: Hub,
    watches: BTreeMap<Place, Watch>,
    started: u64,
    sender: mpsc::Sender<Report>,
    reports: mpsc::Receiver<Report>,
}

struct Watch {
    /// Tells its reports from those of a watch that was there before.
    number: u64,
    /// That of its namespace.
    room: Room,
    wanted: channel::Sender<Wanted>,
    task: JoinHandle<()>,
}

/// The names that a watch looks for.
#[derive(Debug, Clone)]
struct Wanted {
    names: BTreeSet<String>,
    /// How many were ever added. A list that is older than one of them does not count for it, not even where it was looked
    /// for before.
    additions: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl References {
    /// Nobody refers to anything yet.
    pub(crate) fn new(client: Client) -> Self {
        let (sender, reports) = mpsc::channel(WAITING);
        Self { hub: Hub::new(client), watches: BTreeMap::new(), started: 0, sender, reports }
    }

    /// Starts and stops watches.
    pub(crate) fn follow(&mut self, change: Change) {
        if let Some((place, name)) = change.added {
            match self.watches.get(&place) {
                Some(watch) => {
                    watch.wanted.send_modify(|wanted| {
                        wanted.names.insert(name);
                        wanted.additions += 1;
                    });
                }
                None => self.start(place, name),
            }
        }
        if let Some((place, name)) = change.dropped
            && let Some(watch) = self.watches.get(&place)
        {
            watch.wanted.send_if_modified(|wanted| wanted.names.remove(&name));
            if watch.wanted.borrow().names.is_empty() {
                self.watches.remove(&place);
            }
        }
    }

    fn start(&mut self, place: Place, name: String) {
        self.started += 1;
        let (wanted, asked) = channel::channel(Wanted { names: BTreeSet::from([name]), additions: 1 });
        let number = self.started;
        let of_namespace = self.watches.iter().find(|(other, _)| other.namespace == place.namespace);
        let room = of_namespace.map(|(_, watch)| watch.room.clone()).unwrap_or_default();
        let (hub, sender) = (self.hub.clone(), self.sender.clone());
        let follower = Follower::new(hub, room.clone(), place.clone(), number, asked, sender);
        let task = tokio::spawn(follower.run());
        self.watches.insert(place, Watch { number, room, wanted, task });
    }

    /// What one of the watches has found out. Waits for that; may be dropped while it does.
    pub(crate) async fn next(&mut self) -> (Place, News) {
        loop {
            // One sender is kept here, so that the channel never closes.
            match self.reports.recv().await {
                Some(Report { place, number, news }) => {
                    if self.watches.get(&place).is_some_and(|watch| watch.number == number) {
                        return (place, news);
                    }
                }
                None => std::future::pending().await,
            }
        }
    }
}
