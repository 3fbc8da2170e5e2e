//! One look at a gate: it and its FleetPackage, read anew, by the API server's clock.

use http::StatusCode;
use serde_json::{Value, json};
use statusbridge_api::{GROUP, VERSION};
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::gate_verdict::Gate;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::{GateObject, Key, Kind, PackageObject};
use statusbridge_core::time::Seconds;

use crate::hub::{Answer, Hub};
use crate::verdict::{Asked, Verdict};

/// What a look found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Seen {
    /// The gate, and what time it was in the hub.
    Gate(Box<Verdict>, Seconds),
    /// There is none.
    NotFound,
    /// The API server answers, but not with that.
    Refused(String),
    /// It does not answer.
    Unreachable(String),
}

impl Seen {
    /// What would be news if it changed.
    pub(crate) fn words(&self) -> (&str, &str, &str) {
        match self {
            Self::Gate(verdict, _) => (verdict.state(), &verdict.reading.reason, &verdict.reading.message),
            Self::NotFound => ("NotFound", "", ""),
            Self::Refused(error) => ("Refused", error, ""),
            // An API server that starts fails in many ways, one after the other.
            Self::Unreachable(_) => ("Unreachable", "", ""),
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Gate(verdict, _) => {
                let reading = &verdict.reading;
                let healthy = reading.healthy.iter().map(|healthy| format!(" ({healthy})"));
                format!("{}: {}{}", reading.reason, reading.message, healthy.collect::<String>())
            }
            Self::NotFound => "there is no such object".to_owned(),
            Self::Refused(error) => format!("the hub's API server refuses: {error}"),
            Self::Unreachable(error) => format!("the hub's API server does not answer: {error}"),
        }
    }

    /// For programs.
    pub(crate) fn json(&self, key: &Key) -> Value {
        match self {
            Self::Gate(verdict, _) => json!(verdict),
            _ => json!({
                "namespace": key.namespace, "name": key.name, "open": false,
                "state": self.words().0, "reason": self.words().0, "message": self.text(),
            }),
        }
    }
}

/// Looks. `Err` is what is seen where a call of the API server fails.
pub(crate) async fn look(
    hub: &Hub,
    kind: Kind,
    key: &Key,
    revision: Fingerprint,
    slack: Seconds,
) -> Result<Seen, Seen> {
    let Some((object, now)) = get(hub, kind, key).await? else { return Ok(Seen::NotFound) };
    let asked = Asked { revision: Some(revision), slack, now };
    let nameless = || Seen::Refused(format!("a {} without a name", kind.name()));
    let verdict = if kind == Kind::RolloutGate {
        let gate = Gate::from(&GateObject::read(object).ok_or_else(nameless)?);
        let package = match &gate.spec {
            Ok(wish) => get(hub, Kind::FleetPackage, &key.beside(&wish.package)).await?,
            Err(_) => None,
        };
        let package = package.and_then(|(package, _)| PackageObject::read(package));
        Verdict::of_gate(&gate, package.as_ref(), asked)
    } else {
        Verdict::of_package(&PackageObject::read(object).ok_or_else(nameless)?, asked)
    };
    Ok(Seen::Gate(Box::new(verdict), now))
}

/// An object as it is now, and what the API server says is the time.
async fn get(hub: &Hub, kind: Kind, key: &Key) -> Result<Option<(LazyObject, Seconds)>, Seen> {
    let plural = kind.resource().plural;
    let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{}/{plural}/{}", key.namespace, key.name);
    let Answer { status, body, now } = hub.get(&path).await.map_err(Seen::Unreachable)?;
    let said = || serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let message =
        || said().get("message").and_then(Value::as_str).map_or_else(|| status.to_string(), str::to_owned);
    match status {
        StatusCode::OK => serde_json::from_slice(&body)
            .map(|object| Some((object, now)))
            .map_err(|error| Seen::Unreachable(format!("its answer is malformed: {error}"))),
        // It is about this object, and not about a kind that is not installed.
        StatusCode::NOT_FOUND if said().pointer("/details/name").is_some_and(|name| *name == key.name) => {
            Ok(None)
        }
        StatusCode::NOT_FOUND => Err(Seen::Refused(format!("it does not know {plural}.{GROUP}"))),
        status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
            Err(Seen::Refused(message()))
        }
        _ => Err(Seen::Unreachable(message())),
    }
}
