//! Objects of the hub as they stand, kept up to date by lists and watches, and what time it is there.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::StreamExt;
use futures::stream::select_all;
use kube::runtime::watcher::{self, Config, Event};
use statusbridge_aggregator::hub;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::Kind;
use statusbridge_core::reconcile::store::{Gates, Packages, Rollouts};
use statusbridge_core::time::Seconds;
use tokio::time::{Instant, sleep, timeout};

use crate::hub::{Events, Hub};

/// Longest wait for the first lists.
const LIST: Duration = Duration::from_secs(60);
/// How often the hub is asked for the time while nothing happens: evidence grows old without an event.
pub(crate) const TICK: Duration = Duration::from_secs(5);

/// For so long what changes is taken in together, so that a hub where much happens is not shown all the time.
const GATHER: Duration = Duration::from_millis(100);

/// FleetPackages, gates and FleetRollouts, as far as they are watched.
pub(crate) struct Objects {
    pub(crate) packages: Packages,
    pub(crate) gates: Gates,
    pub(crate) rollouts: Rollouts,
}

/// The same, kept up to date.
pub(crate) struct Watched {
    hub: Hub,
    events: Events,
    pub(crate) objects: Objects,
    kinds: Vec<Kind>,
    /// The present of the hub when it was last asked.
    asked: (Seconds, Instant),
    complaint: String,
}

impl Default for Objects {
    fn default() -> Self {
        Self { packages: Packages::of_others(), gates: Gates::of_others(), rollouts: Rollouts::of_others() }
    }
}

impl Objects {
    /// Takes in what a list or a watch says.
    pub(crate) fn apply(&mut self, kind: Kind, event: Event<LazyObject>) {
        let event = hub::event(event);
        match kind {
            Kind::FleetPackage => drop(self.packages.apply(event)),
            Kind::RolloutGate => drop(self.gates.apply(event)),
            Kind::FleetRollout => drop(self.rollouts.apply(event)),
            _ => {}
        }
    }
}

impl Watched {
    /// Lists objects of these kinds in a namespace, or in all.
    ///
    /// # Errors
    /// When the hub cannot be asked.
    pub(crate) async fn begin(
        hub: &Hub,
        namespace: Option<&str>,
        kinds: impl IntoIterator<Item = (Kind, Config)>,
    ) -> Result<Self> {
        let (kinds, only): (Vec<Kind>, Vec<Config>) = kinds.into_iter().unzip();
        let each = kinds.iter().zip(only).map(|(kind, only)| hub.events_of(*kind, namespace, only));
        let mut watched = Self {
            events: select_all(each),
            objects: Objects::default(),
            kinds,
            asked: (0.0, Instant::now()),
            complaint: String::new(),
            hub: hub.clone(),
        };
        let lists = timeout(LIST, async {
            while !watched.is_listed() {
                let next = watched.events.next().await;
                let (kind, event) = next.context("the hub's API server ended the list")?;
                watched.objects.apply(kind, event.map_err(|error| refused(kind, &error))?);
            }
            anyhow::Ok(())
        });
        let late = |_| anyhow!("the hub's API server sent no list within {} s", LIST.as_secs());
        lists.await.map_err(late)??;
        watched.asked = (hub.now().await?, Instant::now());
        Ok(watched)
    }

    /// The present of the hub.
    pub(crate) fn now(&self) -> Seconds {
        let (now, at) = self.asked;
        now + at.elapsed().as_secs_f64()
    }

    /// Waits until anything may be other than before, if only the time, and says what else went wrong.
    ///
    /// # Errors
    /// When the API server ends the watches.
    pub(crate) async fn change(&mut self) -> Result<Option<String>> {
        tokio::select! {
            event = self.events.next() => {
                let mut complaint = self.take(event)?;
                let gathered = sleep(GATHER);
                tokio::pin!(gathered);
                loop {
                    tokio::select! {
                        () = &mut gathered => return Ok(complaint),
                        event = self.events.next() => complaint = self.take(event)?.or(complaint),
                    }
                }
            }
            () = sleep(TICK) => {
                // Where it does not answer, time goes on all the same.
                if let Ok(now) = self.hub.now().await {
                    self.asked = (now, Instant::now());
                }
                Ok(None)
            }
        }
    }

    /// Takes in an event, and says what went wrong unless that was said before.
    fn take(&mut self, event: Option<(Kind, watcher::Result<Event<LazyObject>>)>) -> Result<Option<String>> {
        let (kind, event) = event.context("the hub's API server ended the watch")?;
        match event {
            Ok(event) => self.objects.apply(kind, event),
            Err(error) => {
                let complaint = format!("{:#}", refused(kind, &error));
                if self.complaint != complaint {
                    self.complaint.clone_from(&complaint);
                    return Ok(Some(complaint));
                }
            }
        }
        Ok(None)
    }

    fn is_listed(&self) -> bool {
        self.kinds.iter().all(|kind| match kind {
            Kind::FleetPackage => self.objects.packages.complete(),
            Kind::RolloutGate => self.objects.gates.complete(),
            Kind::FleetRollout => self.objects.rollouts.complete(),
            _ => true,
        })
    }
}

fn refused(kind: Kind, error: &watcher::Error) -> anyhow::Error {
    anyhow!("{}s: {error}", kind.name())
}
