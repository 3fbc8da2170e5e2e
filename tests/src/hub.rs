//! A hub with an aggregator, and what tests ask of it.

use crate::fake_fleet::SOURCE;
use crate::history::{History, condition};
use crate::{Aggregator, AggregatorOptions, ApiServer, Etcd, FLUX_NAMESPACE, Rig, Sweeper, crds, eventually};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Api, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Namespace of the aggregator.
pub const NAMESPACE: &str = "statusbridge-system";
/// Namespace of its Leases.
pub const LEASES: &str = "kube-system";

/// Lets the service account `reader` of a namespace have a ClusterRole there.
///
/// # Errors
/// When the API server refuses it.
pub async fn bind_reader(api: &ApiServer, namespace: &str, role: &str) -> Result<()> {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "reader", "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    });
    api.apply_object(&binding).await.map(drop)
}

/// The hub: an API server with our CRDs, and an aggregator and a sweeper with no more rights than ship.
pub struct Hub {
    /// The API server.
    pub api: ApiServer,
    /// The aggregator.
    pub aggregator: Aggregator,
    /// Kubeconfig file of the aggregator's service account.
    pub account: PathBuf,
    sweeper_account: PathBuf,
    fleet_packages: Api<DynamicObject>,
    gates: Api<DynamicObject>,
}

impl Hub {
    /// Starts the hub with an aggregator that reads `backend`.
    ///
    /// # Errors
    /// When something does not come up.
    pub async fn start(rig: &Rig, etcd: &Etcd, backend: &str) -> Result<Self> {
        Self::start_with(rig, etcd, Self::options(backend)).await
    }

    /// The same with an aggregator that believes the exporter of cluster `hub` about packages of `source` in `eu-*`.
    ///
    /// # Errors
    /// When something does not come up.
    pub async fn start_with_speaker(rig: &Rig, etcd: &Etcd, backend: &str, source: &str) -> Result<Self> {
        let options = Self::options(backend).believing(rig.dir(), source, &[("hub", "eu-*")])?;
        Self::start_with(rig, etcd, options).await
    }

    fn options(backend: &str) -> AggregatorOptions {
        let mut options = AggregatorOptions::new(backend);
        // A query that hangs is part of a poll.
        options.more = vec!["--backend-timeout".to_owned(), "2s".to_owned()];
        options
    }

    /// The same with other options.
    ///
    /// # Errors
    /// When something does not come up.
    pub async fn start_with(rig: &Rig, etcd: &Etcd, options: AggregatorOptions) -> Result<Self> {
        Self::start_named(rig, etcd, "hub", options).await
    }

    /// The same under another name, for several hubs in one test.
    ///
    /// # Errors
    /// When something does not come up.
    pub async fn start_named(
        rig: &Rig,
        etcd: &Etcd,
        name: &str,
        mut options: AggregatorOptions,
    ) -> Result<Self> {
        let api = ApiServer::start(rig, etcd, name).await?;
        let Accounts { aggregator: account, sweeper: sweeper_account } = install(&api).await?;
        options.namespace = LEASES.to_owned();
        let process = if name == "hub" { "aggregator".to_owned() } else { format!("aggregator-{name}") };
        let aggregator = Aggregator::start(rig, &process, &account, &options).await?;
        Self::of(api, aggregator, account, sweeper_account).await
    }

    /// Of an API server and an aggregator that are there, and the kubeconfig files of both service accounts.
    ///
    /// # Errors
    /// When our kinds are not served.
    pub async fn of(
        api: ApiServer,
        aggregator: Aggregator,
        account: PathBuf,
        sweeper_account: PathBuf,
    ) -> Result<Self> {
        let fleet_packages = api.dynamic(&kind("FleetPackage"), Some("default")).await?;
        let gates = api.dynamic(&kind("RolloutGate"), Some("default")).await?;
        Ok(Self { api, aggregator, account, sweeper_account, fleet_packages, gates })
    }

    /// Starts another replica of the aggregator, which reaches the hub through `via`, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start_replica(
        &self,
        rig: &Rig,
        name: &str,
        options: &AggregatorOptions,
        via: SocketAddr,
    ) -> Result<Aggregator> {
        let options = AggregatorOptions { namespace: LEASES.to_owned(), ..options.clone() };
        Aggregator::start(rig, name, &self.api.via(&self.account, via)?, &options).await
    }

    /// A Lease of the aggregator, as it is now.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn lease(&self, name: &str) -> Result<LeaseSpec> {
        let leases = Api::<Lease>::namespaced(self.api.client(), LEASES);
        leases.get(name).await?.spec.context("a Lease without spec")
    }

    /// Lets aggregator and sweeper ask who may see what, as `--authorize-scrapes` has them do.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn may_authorize(&self) -> Result<()> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac/authorize.yaml");
        self.api.apply(&std::fs::read_to_string(file)?).await
    }

    /// Starts a sweeper beside it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start_sweeper(&self, rig: &Rig, heartbeat_timeout: &str) -> Result<Sweeper> {
        let more = ["--heartbeat-timeout", heartbeat_timeout];
        Sweeper::start(rig, "sweeper", &self.sweeper_account, LEASES, &more).await
    }

    /// Makes or changes the FleetPackage of a package; `spec` holds further fields.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn report(&self, package: &str, stale_after: &str, spec: Value) -> Result<()> {
        let package_ref = json!({"source": SOURCE, "namespace": FLUX_NAMESPACE, "name": package});
        let mut object =
            object("FleetPackage", package, json!({"package": package_ref, "staleAfter": stale_after}));
        set(&mut object, spec);
        self.api.apply_object(&object).await.map(drop)
    }

    /// Makes or changes a gate at a revision of a package; `spec` holds further fields, `clusters` among them.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn gate(
        &self,
        name: &str,
        package: &str,
        revision: &str,
        spec: Value,
    ) -> Result<DynamicObject> {
        let fields = json!({"fleetPackageRef": {"name": package}, "revision": revision});
        let mut object = object("RolloutGate", name, fields);
        set(&mut object, spec);
        self.api.apply_object(&object).await
    }

    /// Records every version of a gate from now on.
    ///
    /// # Errors
    /// When the kind is not served.
    pub async fn history(&self, gate: &str) -> Result<History> {
        History::record(&self.api, &kind("RolloutGate"), "default", gate).await
    }

    /// A FleetPackage as it is now.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn get_report(&self, package: &str) -> Result<DynamicObject> {
        Ok(self.fleet_packages.get(package).await?)
    }

    /// A gate as it is now.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn get_gate(&self, name: &str) -> Result<DynamicObject> {
        Ok(self.gates.get(name).await?)
    }

    /// Waits until a gate is open.
    ///
    /// # Errors
    /// When it is not by the deadline.
    pub async fn opens(&self, name: &str, deadline: Duration) -> Result<DynamicObject> {
        self.gate_is(name, "True", "Healthy", deadline).await
    }

    /// Waits until a gate is closed for this reason.
    ///
    /// # Errors
    /// When it is not by the deadline.
    pub async fn closes(&self, name: &str, reason: &str, deadline: Duration) -> Result<DynamicObject> {
        self.gate_is(name, "False", reason, deadline).await
    }

    async fn gate_is(
        &self,
        name: &str,
        open: &str,
        reason: &str,
        deadline: Duration,
    ) -> Result<DynamicObject> {
        eventually(deadline, &format!("gate {name} has Open={open}, {reason}"), async || {
            let gate = self.get_gate(name).await?;
            holds(&gate, "Open", open, reason)?;
            Ok(gate)
        })
        .await
    }

    /// Waits until a FleetPackage's condition is like this, for its present generation.
    ///
    /// # Errors
    /// When it is not by the deadline.
    pub async fn reports(
        &self,
        package: &str,
        condition: &str,
        status: &str,
        reason: &str,
        deadline: Duration,
    ) -> Result<DynamicObject> {
        eventually(deadline, &format!("{package} has {condition}={status}, {reason}"), async || {
            let report = self.get_report(package).await?;
            holds(&report, condition, status, reason)?;
            Ok(report)
        })
        .await
    }
}

/// Kubeconfig files of our programs in a hub.
#[derive(Debug)]
pub struct Accounts {
    /// The aggregator's service account.
    pub aggregator: PathBuf,
    /// The sweeper's.
    pub sweeper: PathBuf,
}

/// Makes a hub of an API server: our CRDs, the namespace, and service accounts with no more rights than ship.
///
/// # Errors
/// When the API server refuses.
pub async fn install(api: &ApiServer) -> Result<Accounts> {
    api.install_crds(&crds::own()?).await?;
    api.ensure_namespace(NAMESPACE).await?;
    let rbac = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac");
    for file in ["aggregator.yaml", "sweeper.yaml"] {
        api.apply(&std::fs::read_to_string(rbac.join(file))?).await?;
    }
    Ok(Accounts {
        aggregator: api.kubeconfig_of_service_account(NAMESPACE, "statusbridge-aggregator").await?,
        sweeper: api.kubeconfig_of_service_account(NAMESPACE, "statusbridge-sweeper").await?,
    })
}

/// A kind of ours.
pub fn kind(name: &str) -> GroupVersionKind {
    GroupVersionKind::gvk("statusbridge.dev", "v1alpha1", name)
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

fn set(object: &mut Value, fields: Value) {
    for (field, value) in fields.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
}

/// Whether a condition is like this and answers the object's present generation.
fn holds(object: &DynamicObject, kind: &str, status: &str, reason: &str) -> Result<()> {
    let observed = object.data["status"]["observedGeneration"].as_i64().context("not looked at yet")?;
    let generation = object.metadata.generation.context("no generation")?;
    ensure!(observed == generation, "the status answers generation {observed} of {generation}");
    ensure!(condition(object, kind) == (status, reason), "{}", object.data["status"]);
    Ok(())
}
