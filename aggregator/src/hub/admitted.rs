//! The record of what FleetRollouts have admitted, as this process reads it for itself, whether or not it leads.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::StreamExt;
use kube::Client;
use kube::runtime::watcher::{self, watcher};
use statusbridge_api::fleet_rollout_slice::AdmittedCluster;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::{Key, Kind};
use statusbridge_core::reconcile::rollout_slices::RolloutSlices;
use statusbridge_core::reconcile::store::Event;
use tokio::time::sleep;
use tracing::warn;

use crate::hub::{self, write};

/// Slices of a page: each may be 100 KB.
const PAGE: u32 = 50;
/// Seconds after which a watch is begun anew, so that one that has died unnoticed is found out.
const WATCH: u32 = 60;
/// Time until all is listed anew after an error.
const RETRY: Duration = Duration::from_secs(5);

/// What all FleetRollouts of the hub have admitted.
#[derive(Debug, Default)]
pub(crate) struct Admitted(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    slices: RolloutSlices,
    /// Those that somebody asked for since they last changed.
    asked: HashMap<Key, Arc<Rows>>,
}

/// What one FleetRollout has admitted: at least one cluster.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) by_cluster: BTreeMap<String, AdmittedCluster>,
    text: OnceLock<Bytes>,
}

impl Rows {
    pub(crate) fn new(by_cluster: BTreeMap<String, AdmittedCluster>) -> Self {
        Self { by_cluster, text: OnceLock::new() }
    }

    /// All of it as text, which those who ask share: `make` is asked once.
    pub(crate) fn text(&self, make: impl FnOnce(&BTreeMap<String, AdmittedCluster>) -> Bytes) -> Bytes {
        self.text.get_or_init(|| make(&self.by_cluster)).clone()
    }
}

/// Why nothing can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unknown {
    /// Nothing was listed yet.
    #[error("what FleetRollouts have admitted has not been read yet")]
    Unread,
    /// A slice is there and cannot be read, or is about another FleetPackage than the others.
    #[error(
        "a FleetRolloutSlice of this FleetRollout cannot be read, or is about another FleetPackage than the others: delete it if a FleetRollout of before left it behind"
    )]
    Unreadable,
}

impl Admitted {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a FleetRollout has admitted; `None` where there is no row of one of that name.
    pub(crate) fn by(&self, rollout: &Key) -> Result<Option<Arc<Rows>>, Unknown> {
        let State { slices, asked } = &mut *self.state();
        if let Some(rows) = asked.get(rollout) {
            return Ok(Some(rows.clone()));
        }
        if !slices.complete() {
            return Err(Unknown::Unread);
        }
        let rows = slices.admitted(rollout).ok_or(Unknown::Unreadable)?;
        if rows.is_empty() {
            return Ok(None);
        }
        let rows = rows.into_iter().map(|(cluster, row)| (cluster.to_owned(), row.clone())).collect();
        let rows = Arc::new(Rows::new(rows));
        asked.insert(rollout.clone(), rows.clone());
        Ok(Some(rows))
    }

    fn take(&self, event: Event<LazyObject>) {
        let State { slices, asked } = &mut *self.state();
        if !slices.apply(event).is_empty() {
            asked.clear();
        }
    }

    /// Keeps up with the hub, for ever. What was read stays while the hub cannot be reached.
    pub(crate) async fn follow(&self, client: Client) {
        loop {
            let config = watcher::Config::default().page_size(PAGE).timeout(WATCH);
            let mut events = watcher(write::everywhere(&client, Kind::FleetRolloutSlice), config).boxed();
            // A watch that goes on after an error says nothing until something changes: only a new list shows that nothing was
            // missed.
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => self.take(hub::event(event)),
                    Err(error) => {
                        warn!(%error, "watching what FleetRollouts have admitted");
                        break;
                    }
                }
            }
            sleep(RETRY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(name: &str, version: &str, clusters: Value) -> LazyObject {
        serde_json::from_value(json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetRolloutSlice",
            "metadata": {
                "namespace": "fleet", "name": name, "uid": name, "resourceVersion": version,
            },
            "fleetRolloutRef": {"name": "payments"}, "fleetPackageRef": {"name": "p"}, "clusters": clusters,
        }))
        .unwrap()
    }

    fn row(cluster: &str, revision: &str) -> Value {
        json!({"clusterName": cluster, "revision": revision, "wave": "w", "since": "2026-05-04T10:00:00Z"})
    }

    fn payments() -> Key {
        Key { namespace: "fleet".into(), name: "payments".into() }
    }

    fn clusters(admitted: &Admitted) -> Result<Vec<String>, Unknown> {
        let rows = admitted.by(&payments())?;
        Ok(rows.map(|rows| rows.by_cluster.keys().cloned().collect()).unwrap_or_default())
    }

    #[test]
    fn nothing_is_said_before_the_first_list_is_whole_and_what_was_said_stays_during_the_next() {
        let admitted = Admitted::default();
        for event in [Event::Init, Event::InitApply(slice("1", "1", json!([row("a", "r1")])))] {
            admitted.take(event);
            assert_eq!(clusters(&admitted), Err(Unknown::Unread));
        }
        admitted.take(Event::InitDone);
        assert_eq!(clusters(&admitted), Ok(vec!["a".into()]));
        admitted.take(Event::Apply(slice("2", "2", json!([row("b", "r1")]))));
        let both = Ok(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(clusters(&admitted), both);
        for event in [Event::Init, Event::InitApply(slice("1", "1", json!([row("a", "r1")])))] {
            admitted.take(event);
            assert_eq!(clusters(&admitted), both);
        }
        admitted.take(Event::InitApply(slice("2", "2", json!([row("b", "r1")]))));
        admitted.take(Event::InitDone);
        assert_eq!(clusters(&admitted), both);
    }

    #[test]
    fn a_slice_that_becomes_unreadable_is_an_error_and_never_fewer_rows() {
        let admitted = Admitted::default();
        for event in [Event::Init, Event::InitDone] {
            admitted.take(event);
        }
        assert_eq!(clusters(&admitted), Ok(Vec::new()));
        admitted.take(Event::Apply(slice("1", "1", json!([row("a", "r1")]))));
        admitted.take(Event::Apply(slice("2", "2", json!([row("b", "r1")]))));
        assert_eq!(clusters(&admitted).unwrap().len(), 2);
        admitted.take(Event::Apply(slice("2", "3", json!([{"clusterName": "b"}]))));
        assert_eq!(clusters(&admitted), Err(Unknown::Unreadable));
        admitted.take(Event::Apply(slice("2", "4", json!([row("b", "r2")]))));
        assert_eq!(admitted.by(&payments()).unwrap().unwrap().by_cluster["b"].revision, "r2");
    }

    #[test]
    fn those_who_ask_share_one_text_until_something_changes() {
        let admitted = Admitted::default();
        for event in
            [Event::Init, Event::InitApply(slice("1", "1", json!([row("a", "r1")]))), Event::InitDone]
        {
            admitted.take(event);
        }
        let text = |text: &'static str| admitted.by(&payments()).unwrap().unwrap().text(|_| text.into());
        assert_eq!((text("1"), text("2")), ("1".into(), "1".into()));
        admitted.take(Event::Apply(slice("1", "2", json!([row("a", "r2")]))));
        assert_eq!(text("3"), "3");
    }
}
