//! Brings one object's status up to date, deciding again from the freshest version until a write
//! is accepted or nothing is left to write.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use serde::Serialize;
use serde::de::DeserializeOwned;
use statusbridge_api::conditions::{OPEN, READY, find};
use statusbridge_api::{FleetPackageSpec, FleetPackageStatus, RolloutGateSpec, RolloutGateStatus};
use statusbridge_core::decide::Evidence;
use statusbridge_core::decide::closing::least;
use statusbridge_core::reconcile::judge::World;
use statusbridge_core::reconcile::store::{Kept, Kind, Object};
use tracing::warn;

use crate::clock::Timestamp;
use crate::hub::write::{self, CALL_TIMEOUT, HubError, Written};
use crate::metrics::{Metrics, WriteResult};

/// How often a write is tried again after a conflict before it is left for later.
pub(crate) const ATTEMPTS: usize = 5;

/// A spec that a status can be decided for.
pub trait Judged: DeserializeOwned + PartialEq + Sized {
    /// Its status.
    type Status: Serialize + DeserializeOwned + Evidence + Debug;
    /// Its kind.
    const KIND: Kind;
    /// The status that it should get, if it is worth a write.
    fn judge(world: &World<'_>, object: &Object<Self, Self::Status>) -> Option<Self::Status>;
    /// What is written where the hub refuses a status: only for one that closes.
    fn least(object: &Object<Self, Self::Status>, status: &Self::Status) -> Option<Self::Status>;
    /// Whether a status rests on other objects, which have to be read anew before it is written.
    fn rests_on_others(object: &Object<Self, Self::Status>, status: &Self::Status) -> bool;
    /// The condition that people look at first.
    fn verdict(status: &Self::Status) -> Option<&Condition>;
}

impl Judged for FleetPackageSpec {
    type Status = FleetPackageStatus;
    const KIND: Kind = Kind::FleetPackage;

    fn judge(world: &World<'_>, object: &Object<Self, Self::Status>) -> Option<Self::Status> {
        world.package(object)
    }

    fn least(_: &Object<Self, Self::Status>, _: &Self::Status) -> Option<Self::Status> {
        None
    }

    fn rests_on_others(_: &Object<Self, Self::Status>, _: &Self::Status) -> bool {
        false
    }

    fn verdict(status: &Self::Status) -> Option<&Condition> {
        find(&status.conditions, READY)
    }
}

impl Judged for RolloutGateSpec {
    type Status = RolloutGateStatus;
    const KIND: Kind = Kind::RolloutGate;

    fn judge(world: &World<'_>, object: &Object<Self, Self::Status>) -> Option<Self::Status> {
        world.gate(object)
    }

    fn least(object: &Object<Self, Self::Status>, status: &Self::Status) -> Option<Self::Status> {
        let open = object.status.as_ref().filter(|open| open.says_open())?;
        (!status.says_open()).then(|| least(open, status))
    }

    fn rests_on_others(object: &Object<Self, Self::Status>, status: &Self::Status) -> bool {
        let depends = object.spec.as_ref().is_ok_and(|spec| !spec.depends_on.is_empty());
        depends && status.says_open() && !object.is_open_now()
    }

    fn verdict(status: &Self::Status) -> Option<&Condition> {
        find(&status.conditions, OPEN)
    }
}

/// How an object was left.
#[derive(Debug)]
pub enum Settled<O, T> {
    /// Its status is what it should be; the newest version, if it was read or written.
    Done(Option<Box<O>>),
    /// It no longer exists.
    Gone,
    /// It was not written, for sure; to be tried again.
    Unsettled,
    /// The hub's API server answered with an error: what was sent may arrive yet. To be tried again.
    Unconfirmed(Box<T>),
    /// The same, but it did not answer in time.
    Hung(Box<T>),
}

/// Decides and writes until the object's status is what it should be. What the world, which is as of `since`,
/// makes of it is not sent late, be it that others kept changing the object or that this process was stopped
/// meanwhile: it may no longer be true. Each write may take as long as `patience`. A status that rests on other objects
/// is written only where these were `read_anew` for it.
pub async fn settle<S: Judged>(
    client: &Client,
    world: &World<'_>,
    since: Timestamp,
    metrics: &Metrics,
    object: &Object<S, S::Status>,
    patience: Duration,
    read_anew: bool,
) -> Settled<Object<S, S::Status>, S::Status> {
    let mut reread = None;
    let is_late = || since.elapsed() >= CALL_TIMEOUT;
    for attempt in 1..=ATTEMPTS {
        // Of many that wait for a slow hub none is judged in vain.
        if is_late() {
            return Settled::Unsettled;
        }
        let object = reread.as_deref().unwrap_or(object);
        let Some(status) = S::judge(world, object) else { return Settled::Done(reread) };
        // They were read for the version that was known before.
        if (!read_anew || reread.is_some()) && S::rests_on_others(object, &status) {
            return Settled::Done(reread);
        }
        if is_late() {
            metrics.wrote(S::KIND, WriteResult::Fenced);
            return Settled::Unsettled;
        }
        let (least, mut version) = (S::least(object, &status), object.version());
        // Nobody keeps a gate open by changing it all the time: a closing is right on top of any version.
        if least.is_some() && attempt == ATTEMPTS {
            version.resource_version.clear();
        }
        let answer = write::status(client, S::KIND, &version, &status, least.as_ref(), patience).await;
        metrics.wrote(S::KIND, write::result(&answer));
        let raw = match answer {
            Ok(Written::Done(raw)) => {
                let after = Object::read(*raw).map(Box::new);
                if let Some(after) = &after {
                    world.verdicts.landed(S::KIND, object, &status, after);
                }
                return Settled::Done(after);
            }
            Ok(Written::Gone) => return Settled::Gone,
            Ok(Written::Conflict) => write::read(client, S::KIND, &object.key).await,
            // The lease is renewed in time, or somebody else sees to it.
            Err(HubError::NotLeading(_)) => return Settled::Unsettled,
            Err(error) => Err(error),
        };
        match raw {
            Ok(Some(raw)) => {
                let mut read = Object::read(raw);
                if let Some(read) = &mut read {
                    read.follows(Some(object));
                }
                reread = read.map(Box::new);
            }
            Ok(None) => return Settled::Gone,
            Err(error) => {
                warn!(kind = S::KIND.name(), object = %object.key, %error, "status could not be written");
                let status = Box::new(status);
                return match error {
                    HubError::Timeout => Settled::Hung(status),
                    _ => Settled::Unconfirmed(status),
                };
            }
        }
    }
    warn!(kind = S::KIND.name(), object = %object.key, "status is left for later: somebody else keeps changing the object");
    Settled::Unsettled
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use statusbridge_core::decide::{Backend, Moment};
    use statusbridge_core::fleet::{Fleet, FleetSettings};
    use statusbridge_core::reconcile::store::GateObject;
    use statusbridge_core::testing::Surroundings;

    /// Settles a gate that was open in its first generation against a hub that takes everything: what came of it, and how
    /// many requests were sent.
    async fn settled(
        spec: &Value,
        since: Timestamp,
        read_anew: bool,
    ) -> (Settled<GateObject, RolloutGateStatus>, u32) {
        let mut object = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
            "metadata": {"namespace": "fleet", "name": "g", "uid": "1", "resourceVersion": "1", "generation": 2},
            "spec": {"fleetPackageRef": {"name": "p"}, "revision": "r", "clusters": {"names": ["c"]}},
            "status": {"observedGeneration": 1, "conditions": [{
                "type": "Open", "status": "True", "reason": "Healthy", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        for (field, value) in spec.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        let gate = Object::read(serde_json::from_value(object.clone()).unwrap()).unwrap();
        let around = Surroundings::default();
        let fleet = Fleet::new(FleetSettings::default());
        let world = around.world(&fleet, Backend::Answers, Moment { t: 100.0, now: 100.0 });
        let sent = Arc::new(AtomicU32::new(0));
        let (answer, counted) = (object.to_string(), sent.clone());
        let hub = tower::service_fn(move |_: http::Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            ready(Ok::<_, Infallible>(http::Response::new(Body::from(answer.clone().into_bytes()))))
        });
        let (client, metrics) = (Client::new(hub, "fleet"), Metrics::aggregator());
        let settled =
            settle::<RolloutGateSpec>(&client, &world, since, &metrics, &gate, CALL_TIMEOUT, read_anew);
        (settled.await, sent.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn what_was_decided_long_ago_is_not_sent() {
        let spec = json!({});
        assert!(matches!(settled(&spec, Timestamp::now(), true).await, (Settled::Done(Some(_)), 1)));
        let late = settled(&spec, Timestamp::ago(CALL_TIMEOUT + Duration::from_secs(1)), true).await;
        assert!(matches!(late, (Settled::Unsettled, 0)), "{late:?}");
    }

    #[tokio::test]
    async fn a_gate_opens_only_after_those_that_it_depends_on_were_read_anew() {
        let opens =
            json!({"override": {"state": "Open", "reason": "drill"}, "dependsOn": [{"name": "other"}]});
        assert!(matches!(settled(&opens, Timestamp::now(), false).await, (Settled::Done(None), 0)));
        assert!(matches!(settled(&opens, Timestamp::now(), true).await, (Settled::Done(Some(_)), 1)));
        // A closing rests on no other object.
        let closes = json!({"dependsOn": [{"name": "other"}]});
        assert!(matches!(settled(&closes, Timestamp::now(), false).await, (Settled::Done(Some(_)), 1)));
    }
}
