//! Events (`events.k8s.io/v1`) of FleetPackages, gates and FleetRollouts: one for each change of a verdict.
//!
//! ```text
//!   controller, sweeper ──change──> turns of namespaces ──limits──> create ──> written, or known: it was written before
//! ```
//!
//! The name of an Event follows from the object, the verdict and the time since which the status says so. All processes
//! that tell the same change, after a restart or as the next leader, so create the same object, and the API server takes
//! one of them. kube's own `Recorder` cannot promise that: it names Events by the time at which it writes them, remembers
//! in one process what it wrote, without a bound, merges different verdicts of the same reason, and has no limits.
//!
//! Nothing waits for an Event: what finds no room is dropped and counted.

mod limits;
mod turns;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use statusbridge_api::names::shortened;
use statusbridge_api::{GROUP, VERSION};
use statusbridge_core::decide::transition::Report;
use statusbridge_core::reconcile::object::{Key, Kind, Version};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::warn;

use crate::hub::events::limits::Limits;
use crate::hub::events::turns::Turns;
use crate::hub::write::{HubError, in_time};
use crate::metrics::{EventResult, Metrics};

/// Events that wait at most.
const MOST_WAITING: usize = 2048;
/// Pauses before an Event is tried again that the API server did not take.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(20)];
/// Most bytes of the text of an Event, and of the name of who wrote it.
const MOST_NOTE: usize = 1024;
const MOST_INSTANCE: usize = 128;
/// Most bytes of the name of an Event before its hash, so that all of it is a name.
const MOST_NAME: usize = 236;

/// Writes Events, in a task of its own.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    queue: mpsc::Sender<Event>,
    metrics: Arc<Metrics>,
    instance: String,
    controller: &'static str,
}

impl Events {
    /// Begins to write Events as `controller`, of which this process is `instance`, until the last clone is dropped.
    pub(crate) fn start(
        client: Client,
        controller: &'static str,
        instance: &str,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (queue, waiting) = mpsc::channel(MOST_WAITING);
        tokio::spawn(write_all(client, waiting, metrics.clone()));
        Self { queue, metrics, instance: instance.to_owned(), controller }
    }

    /// Tells that an object now says something else than before.
    pub(crate) fn tell(&self, kind: Kind, version: &Version, before: Option<&Report>, now: &Report) {
        let event = Event {
            reporting_controller: Some(format!("{GROUP}/{}", self.controller)),
            reporting_instance: Some(cut(&self.instance, MOST_INSTANCE).to_owned()),
            ..event(kind, version, before, now)
        };
        if self.queue.try_send(event).is_err() {
            self.metrics.event(EventResult::Dropped);
        }
    }
}

/// The Event of a change, but for who tells it.
fn event(kind: Kind, version: &Version, before: Option<&Report>, now: &Report) -> Event {
    let Version { key: Key { namespace, name }, uid, resource_version } = version;
    let since = now.verdict_since.as_ref().map_or_else(Timestamp::now, |since| since.0);
    let identity = (uid, &now.revision, &now.condition.status, &now.condition.reason, since.as_second());
    let hash: String =
        Sha256::digest(format!("{identity:?}")).iter().take(8).map(|b| format!("{b:02x}")).collect();
    Event {
        metadata: ObjectMeta {
            namespace: Some(namespace.clone()),
            name: Some(format!("{}.{hash}", shortened(name, MOST_NAME))),
            ..ObjectMeta::default()
        },
        action: Some("Judge".to_owned()),
        event_time: Some(MicroTime(since)),
        note: Some(cut(&now.sentence(before), MOST_NOTE).to_owned()),
        reason: Some(now.condition.reason.clone()),
        regarding: Some(ObjectReference {
            api_version: Some(format!("{GROUP}/{VERSION}")),
            kind: Some(kind.name().to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            uid: Some(uid.clone()),
            resource_version: Some(resource_version.clone()).filter(|version| !version.is_empty()),
            field_path: None,
        }),
        type_: Some(if now.is_warning(before) { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    }
}

/// The beginning of a text that has at most so many bytes.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

async fn write_all(client: Client, mut told: mpsc::Receiver<Event>, metrics: Arc<Metrics>) {
    let (begun, mut limits) = (Instant::now(), Limits::default());
    let mut waiting = Turns::new(MOST_WAITING);
    let mut said = String::new();
    while let Some(event) = told.recv().await {
        wait(&mut waiting, event, &metrics);
        while let Some(event) = waiting.next() {
            let uid = event.regarding.as_ref().and_then(|object| object.uid.clone()).unwrap_or_default();
            let Some(pause) = limits.admit(&uid, begun.elapsed()) else {
                metrics.event(EventResult::Dropped);
                continue;
            };
            let mut writing = pin!(async {
                sleep(pause).await;
                create(&client, &event).await
            });
            let written = loop {
                tokio::select! {
                    biased;
                    Some(event) = told.recv() => wait(&mut waiting, event, &metrics),
                    written = &mut writing => break written,
                }
            };
            metrics.event(match &written {
                Ok(true) => EventResult::Written,
                Ok(false) => EventResult::Known,
                Err(_) => EventResult::Failed,
            });
            if let Err(error) = written {
                let error = error.to_string();
                if error != said {
                    warn!(error, "an Event could not be written");
                    said = error;
                }
            }
        }
    }
}

fn wait(waiting: &mut Turns<Event>, event: Event, metrics: &Metrics) {
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    if waiting.push(namespace, event).is_some() {
        metrics.event(EventResult::Dropped);
    }
}

/// Creates an Event: whether there was none of its name.
async fn create(client: &Client, event: &Event) -> Result<bool, HubError> {
    let api =
        Api::<Event>::namespaced(client.clone(), event.metadata.namespace.as_deref().unwrap_or_default());
    let mut pauses = PAUSES.iter();
    loop {
        let error = match in_time(api.create(&PostParams::default(), event)).await {
            Ok(_) => return Ok(true),
            Err(HubError::Api(kube::Error::Api(refusal))) if refusal.reason == "AlreadyExists" => {
                return Ok(false);
            }
            Err(error) => error,
        };
        let passes = match &error {
            HubError::Api(kube::Error::Api(refusal)) => refusal.code == 429 || refusal.code >= 500,
            HubError::Api(_) | HubError::Timeout => true,
            HubError::TooMany(..) | HubError::NotLeading(_) => false,
        };
        match pauses.next().filter(|_| passes) {
            Some(pause) => sleep(*pause).await,
            None => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use rstest::rstest;

    use super::*;

    fn report(status: &str, reason: &str, since: i64) -> Report {
        let at = Time(Timestamp::from_second(since).unwrap());
        Report {
            condition: Condition {
                type_: "Open".to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message: "because".to_owned(),
                observed_generation: Some(1),
                last_transition_time: at.clone(),
            },
            revision: Some("r1".to_owned()),
            healthy: Some((1, 2)),
            outcome: None,
            verdict_since: Some(at),
            outcome_since: None,
        }
    }

    fn version(uid: &str, resource_version: &str) -> Version {
        let key = Key { namespace: "fleet".to_owned(), name: "wave".to_owned() };
        Version { key, uid: uid.to_owned(), resource_version: resource_version.to_owned() }
    }

    fn name(uid: &str, resource_version: &str, before: Option<&Report>, now: &Report) -> String {
        event(Kind::RolloutGate, &version(uid, resource_version), before, now).metadata.name.unwrap()
    }

    #[rstest]
    #[case::the_next_leader("u", "9", report("False", "Stale", 100), true)]
    #[case::another_object_of_the_name("v", "7", report("False", "Stale", 100), false)]
    #[case::another_reason("u", "7", report("False", "Failed", 100), false)]
    #[case::the_same_again_later("u", "7", report("False", "Stale", 200), false)]
    #[case::another_revision("u", "7", Report { revision: Some("r2".into()), ..report("False", "Stale", 100) }, false)]
    fn who_tells_the_same_change_writes_the_same_event(
        #[case] uid: &str,
        #[case] resource_version: &str,
        #[case] now: Report,
        #[case] same: bool,
    ) {
        let before = report("True", "Healthy", 50);
        let first = name("u", "7", Some(&before), &report("False", "Stale", 100));
        assert_eq!(name(uid, resource_version, None, &now) == first, same);
    }

    #[test]
    fn an_event_says_what_kubectl_describe_shows() {
        let now = report("False", "Stale", 100);
        let event = event(Kind::RolloutGate, &version("u", "7"), Some(&report("True", "Healthy", 50)), &now);
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.reason.as_deref(), Some("Stale"));
        assert_eq!(event.note.as_deref(), Some("Closed at r1: because [1/2 healthy]"));
        assert_eq!(event.event_time.unwrap().0.as_second(), 100, "not when it was written");
    }

    #[test]
    fn whatever_a_status_says_fits_into_an_event() {
        let mut now = report("False", "Stale", 100);
        now.condition.message = "\u{e9}".repeat(2000);
        let mut long = version("u", "7");
        long.key.name = "a".repeat(253);
        let event = event(Kind::RolloutGate, &long, None, &now);
        assert!(event.note.unwrap().len() <= MOST_NOTE && event.metadata.name.unwrap().len() <= 253);
    }
}
