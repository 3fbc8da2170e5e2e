//! What the tools take. The schemas that a client sees are made from these types.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use statusbridge_api::rollout_gate::Require;

use crate::target::name;

/// How many entries of a list are told where nothing else is asked for.
const USUAL: u16 = 20;
/// How many at most.
const MOST: u16 = 100;

/// Name of an object or a namespace of the hub.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Name(String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.len() > 253 {
            Err("a name has at most 253 characters".to_owned())
        } else {
            name(&text).map(Self)
        }
    }
}

impl Name {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl JsonSchema for Name {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[-.a-z0-9]+$"})
    }
}

/// Most entries of a list in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u16")]
pub(super) struct Limit(u16);

impl TryFrom<u16> for Limit {
    type Error = String;

    fn try_from(limit: u16) -> Result<Self, String> {
        let in_range = (1..=MOST).contains(&limit);
        in_range.then_some(Self(limit)).ok_or_else(|| format!("limit must be from 1 to {MOST}"))
    }
}

impl Default for Limit {
    fn default() -> Self {
        Self(USUAL)
    }
}

impl From<Limit> for usize {
    fn from(Limit(limit): Limit) -> Self {
        limit.into()
    }
}

impl JsonSchema for Limit {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL})
    }
}

/// What `fleet_status` takes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FleetQuestion {
    /// Namespace of the hub. Left out: all namespaces, which needs the right to list in all of them.
    pub(super) namespace: Option<Name>,
    /// Name of a FleetPackage: only this one and its gates are told.
    pub(super) fleet_package: Option<Name>,
    /// Leave out packages that are Ready and gates that are open.
    #[serde(default)]
    pub(super) only_waiting: bool,
    /// Most packages, and most gates, in the answer. Those that wait come first.
    #[serde(default)]
    pub(super) limit: Limit,
}

/// What `verdict` takes. Exactly one of clusters, selector and reporting.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RevisionQuestion {
    /// The exporter's source that reads the package, for instance flux-kustomization. fleet_status tells it.
    pub(super) source: String,
    /// Namespace of the package's object in the workload clusters; left out when it is cluster-scoped.
    pub(super) package_namespace: Option<String>,
    /// Name of the package's object in the workload clusters.
    pub(super) package: String,
    /// The revision, in the words of the delivery system or as 12 hex digits.
    pub(super) revision: String,
    /// Names of the clusters that count.
    pub(super) clusters: Option<Vec<String>>,
    /// The clusters that count, by labels of ClusterProfiles, as kubectl -l takes them.
    pub(super) selector: Option<String>,
    /// Every cluster counts that reports the package; there must be at least so many.
    #[schemars(range(min = 1))]
    pub(super) reporting: Option<u32>,
    /// How far a cluster must be to count. Healthy when left out.
    pub(super) require: Option<Require>,
    /// How many clusters must count: a number or a percentage, for instance "3" or "95%".
    pub(super) min_healthy: Option<String>,
    /// How many clusters may have failed or be unobserved: a number or a percentage. "0" when left out.
    pub(super) max_failures: Option<String>,
    /// How long a cluster must have been so, for instance "10m".
    pub(super) min_success_time: Option<String>,
    /// How old evidence may be, for instance "90s". "3m" when left out.
    pub(super) stale_after: Option<String>,
    /// Namespace of the hub whose rights and tenancy hold. Left out: the token needs rights in all namespaces.
    pub(super) hub_namespace: Option<Name>,
}

/// Kind of an object of the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum ObjectKind {
    Gate,
    Package,
}

/// What `explain` takes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExplainQuestion {
    /// gate: a RolloutGate, for instance a wave of a rollout. package: a FleetPackage.
    pub(super) kind: ObjectKind,
    /// Its name, as fleet_status tells it.
    pub(super) name: Name,
    /// Its namespace in the hub. Left out: it is looked for in all, which needs the right to list in all of them.
    pub(super) namespace: Option<Name>,
    /// Most clusters in the answer.
    #[serde(default)]
    pub(super) limit: Limit,
}

/// What `history` takes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HistoryQuestion {
    /// Name of the FleetPackage, as fleet_status tells it.
    pub(super) fleet_package: Name,
    /// Its namespace in the hub. Left out: it is looked for in all, which needs the right to list in all of them.
    pub(super) namespace: Option<Name>,
}
