//! What is read of the hub: the object, and what its verdict rests on.

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::Value;
use statusbridge_aggregator::hub::heartbeat::LEASE;
use statusbridge_aggregator::hub::write::{self, HubError, in_time};
use statusbridge_api::fleet_package_slice::FLEET_PACKAGE_LABEL;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::{HubObject, Key, Kind};
use statusbridge_core::reconcile::owned;
use statusbridge_core::reconcile::slices::Slice;

use crate::exit::Exit;
use crate::hub::Hub;
use crate::target::Target;

/// Slices in one answer of the API server: each may be 100 KB.
const PAGE: u32 = 50;

/// All that was read.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// What is explained: a gate or a FleetPackage.
    pub kind: Kind,
    /// The object itself.
    pub object: LazyObject,
    /// The FleetPackage that a gate refers to.
    pub package: Option<LazyObject>,
    /// The gates that a gate depends on.
    pub dependencies: Vec<Dependency>,
    /// The slices of the FleetPackage, or why they could not be read.
    pub slices: Result<Vec<Slice>, String>,
    /// The aggregator's sign of life.
    pub heartbeat: Heartbeat,
}

/// A gate that another one depends on.
#[derive(Debug, Clone)]
pub(super) struct Dependency {
    /// Its name.
    pub name: String,
    /// The gate, if there is one.
    pub gate: Option<LazyObject>,
    /// The FleetPackage that it refers to.
    pub package: Option<LazyObject>,
}

/// The aggregator's sign of life.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Heartbeat {
    /// It was renewed then, and should be again within so many seconds.
    Renewed(Timestamp, i32),
    /// There never was one.
    Never,
    /// It could not be read.
    Unreadable(String),
}

/// Reads all of it.
pub(super) async fn read(hub: &Hub, target: &Target, lease_namespace: &str) -> Result<Seen> {
    let Hub { client, namespace } = hub;
    let Target { kind, name } = target;
    let kind = *kind;
    let get = async |kind: Kind, name: &str| -> Result<Option<LazyObject>> {
        let key = Key { namespace: namespace.clone(), name: name.to_owned() };
        write::read(client, kind, &key).await.with_context(|| format!("reading {} {key}", kind.name()))
    };
    let object = get(kind, name).await?.ok_or_else(|| {
        Exit::NotFound.error(format!("there is no {} {name:?} in namespace {namespace:?}", kind.name()))
    })?;
    let package_of = async |gate: Option<&LazyObject>| -> Result<Option<LazyObject>> {
        let spec = gate.map(|gate| gate.value("spec")).unwrap_or_default();
        match spec.pointer("/fleetPackageRef/name").and_then(Value::as_str) {
            Some(name) => get(Kind::FleetPackage, name).await,
            None => Ok(None),
        }
    };
    let (mut dependencies, mut package) = (Vec::new(), None);
    if kind == Kind::RolloutGate {
        let spec = object.value("spec");
        let names = spec.get("dependsOn").and_then(Value::as_array).into_iter().flatten();
        for name in names.filter_map(|other| other["name"].as_str()) {
            let gate = get(Kind::RolloutGate, name).await?;
            let package = package_of(gate.as_ref()).await?;
            dependencies.push(Dependency { name: name.to_owned(), gate, package });
        }
        package = package_of(Some(&object)).await?;
    }
    let owner = if kind == Kind::RolloutGate { package.as_ref() } else { Some(&object) };
    let slices = match owner {
        Some(owner) => slices_of(client, namespace, owner).await.map_err(|error| error.to_string()),
        None => Ok(Vec::new()),
    };
    let heartbeat = heartbeat(client, lease_namespace).await;
    Ok(Seen { kind, object, package, dependencies, slices, heartbeat })
}

async fn slices_of(client: &Client, namespace: &str, package: &LazyObject) -> Result<Vec<Slice>, HubError> {
    let name = package.metadata.name.as_deref().unwrap_or_default();
    let api = write::within(client, Kind::FleetPackageSlice, namespace);
    let selector = format!("{FLEET_PACKAGE_LABEL}={}", owned::label(name));
    let page = ListParams::default().labels(&selector).limit(PAGE);
    let is_own = |slice: &Slice| {
        slice.owner.as_ref().is_some_and(|owner| Some(&owner.uid) == package.metadata.uid.as_ref())
    };
    write::list(&api, page, |object| Slice::read(object, None).filter(is_own)).await
}

async fn heartbeat(client: &Client, namespace: &str) -> Heartbeat {
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let renewed = |lease: Lease| {
        let spec = lease.spec?;
        Some(Heartbeat::Renewed(spec.renew_time?.0, spec.lease_duration_seconds?))
    };
    match in_time(leases.get_opt(LEASE)).await {
        Err(error) => Heartbeat::Unreadable(error.to_string()),
        Ok(lease) => lease.and_then(renewed).unwrap_or(Heartbeat::Never),
    }
}
