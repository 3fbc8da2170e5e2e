//! Gates and FleetPackages, as the API tells them.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use serde_with::skip_serializing_none;
use statusbridge_api::excuse::ExcusedCluster;
use statusbridge_api::fleet_package::{FleetPackageSpec, FleetPackageStatus};
use statusbridge_api::rollout_gate::{Newcomers, RolloutGateSpec, RolloutGateStatus, Waiting};
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::PackageObject;
use statusbridge_core::time::Seconds;

use super::api::Answer;
use super::bound::{plain, quoted};
use crate::text::span;
use crate::verdict::{Asked, Verdict};

/// How many names an error lists.
const NAMES: usize = 20;

/// Where an object stands now.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Standing {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) state: String,
    pub(super) open: bool,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) revision: Option<String>,
    pub(super) fingerprint: Option<String>,
    pub(super) healthy: Option<String>,
    pub(super) since: Option<String>,
    pub(super) age_seconds: Option<Seconds>,
    #[serde(default, skip_serializing)]
    pub(super) waiting_for: Vec<Waiting>,
    /// Clusters that are excused now, the first ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) excused: Vec<ExcusedCluster>,
    /// Clusters that wait for the next revision.
    pub(super) newcomers: Option<Newcomers>,
}

/// An object of the hub.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object<S, T> {
    /// `gate` or `package`.
    pub(super) kind: &'static str,
    pub(super) standing: Standing,
    /// All that the verdict says.
    pub(super) verdict: Value,
    /// None where it cannot be read.
    pub(super) spec: Option<S>,
    pub(super) status: Option<T>,
}

pub(super) type Gate = Object<RolloutGateSpec, RolloutGateStatus>;
pub(super) type Package = Object<FleetPackageSpec, FleetPackageStatus>;

impl<S, T> Display for Object<S, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Standing { namespace, name, .. } = &self.standing;
        write!(f, "{} {}/{}", self.kind, plain(namespace), plain(name))
    }
}

impl<S, T> Object<S, T> {
    /// Name, state, and why, in one line.
    pub(super) fn line(&self) -> String {
        let it = &self.standing;
        let mut line = format!("{self}: {}", plain(&it.state));
        if let Some(fingerprint) = &it.fingerprint {
            line += &format!(" for revision {}", plain(fingerprint));
        }
        if let Some(healthy) = &it.healthy {
            line += &format!(", {} clusters healthy", plain(healthy));
        }
        for ExcusedCluster { cluster_name, reason, .. } in &it.excused {
            line += &format!(", {} excused ({})", plain(cluster_name), quoted(reason));
        }
        if let Some(newcomers) = &it.newcomers {
            line += &format!(", {} clusters left to the next revision", newcomers.count);
        }
        if let Some(age) = it.age_seconds {
            line += &format!(", evidence {} old", span(age));
        }
        if it.open { line } else { format!("{line}. {}: {}", plain(&it.reason), quoted(&it.message)) }
    }
}

impl Gate {
    fn read(item: &Value) -> Option<Self> {
        let verdict = item.get("verdict")?.clone();
        Some(Self {
            kind: "gate",
            standing: Standing::deserialize(&verdict).ok()?,
            verdict,
            spec: field(item, "spec"),
            status: field(item, "status"),
        })
    }

    /// Name of its FleetPackage, which is in the same namespace.
    pub(super) fn fleet_package(&self) -> Option<&str> {
        self.spec.as_ref().map(|spec| spec.fleet_package_ref.name.as_str())
    }

    /// Names of the gates that it waits for, in the same namespace.
    pub(super) fn depends_on(&self) -> impl Iterator<Item = &str> {
        self.spec.iter().flat_map(|spec| &spec.depends_on).map(|gate| gate.name.as_str())
    }

    /// As an entry of a list.
    pub(super) fn entry(&self) -> Value {
        with(&self.standing, json!({"fleetPackage": self.fleet_package()}))
    }
}

impl Package {
    /// The API tells what stands in the hub; what that means `now` is for this reader to say, as for every other.
    pub(super) fn read(item: &Value, now: Seconds) -> Option<Self> {
        let object = PackageObject::read(LazyObject::deserialize(item).ok()?)?;
        let verdict = serde_json::to_value(Verdict::of_package(&object, Asked::at(now))).ok()?;
        Some(Self {
            kind: "package",
            standing: Standing::deserialize(&verdict).ok()?,
            verdict,
            spec: object.spec.ok().map(Arc::unwrap_or_clone),
            status: object.status,
        })
    }

    /// As an entry of a list.
    pub(super) fn entry(&self) -> Value {
        let counts = self.status.as_ref().and_then(FleetPackageStatus::counted);
        let package = self.spec.as_ref().map(|spec| &spec.package);
        with(&self.standing, json!({"package": package, "clusters": counts}))
    }
}

fn field<T: DeserializeOwned>(item: &Value, name: &str) -> Option<T> {
    item.get(name).and_then(|field| T::deserialize(field).ok())
}

/// A value with more fields; those that are null are left out.
pub(super) fn with(value: impl Serialize, more: Value) -> Value {
    let mut all = serde_json::to_value(value).unwrap_or_default();
    let more: Map<String, Value> = serde_json::from_value(more).unwrap_or_default();
    if let Some(fields) = all.as_object_mut() {
        fields.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
    }
    all
}

/// The gates of a list.
///
/// # Errors
/// When it is none.
pub(super) fn gates(answer: &Answer) -> Result<Vec<Gate>, String> {
    items(answer)?.iter().map(|item| Gate::read(item).ok_or_else(unreadable)).collect()
}

/// The FleetPackages of a list.
///
/// # Errors
/// When it is none.
pub(super) fn packages(answer: &Answer) -> Result<Vec<Package>, String> {
    items(answer)?.iter().map(|item| Package::read(item, answer.now).ok_or_else(unreadable)).collect()
}

fn items(answer: &Answer) -> Result<&Vec<Value>, String> {
    answer.body.get("items").and_then(Value::as_array).ok_or_else(unreadable)
}

/// What is said of an answer with another form than the API's.
pub(super) fn unreadable() -> String {
    "the aggregator's answer has an unknown form: aggregator and `statusbridge` have to be of one version"
        .to_owned()
}

/// The one of this name.
///
/// # Errors
/// In words for the client, when there is none, or more than one.
pub(super) fn the_one<S, T>(all: Vec<Object<S, T>>, kind: &str, name: &str) -> Result<Object<S, T>, String> {
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    let mut found: Vec<_> = all.into_iter().filter(|it| it.standing.name == name).collect();
    match (found.pop(), found.len()) {
        (Some(it), 0) => Ok(it),
        (Some(it), _) => {
            let namespaces: Vec<_> =
                found.iter().chain([&it]).map(|it| plain(&it.standing.namespace)).collect();
            Err(format!(
                "there is a {kind} {name} in several namespaces: name one of {}",
                namespaces.join(", ")
            ))
        }
        (None, _) if names.is_empty() => Err(format!(
            "there is no {kind} {name}, and no other {kind} there either: is it the right namespace?"
        )),
        (None, _) => {
            let more = match names.len().saturating_sub(NAMES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let names = names.into_iter().take(NAMES).collect::<Vec<_>>().join(", ");
            Err(format!("there is no {kind} {name}; there are {names}{more}"))
        }
    }
}
