//! Checks of a RolloutGate: PromQL on application metrics.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// An instant query whose value must stay within bounds while the gate is open.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.query) != has(self.template)",
        "message": "exactly one of query and template must be set"
    },
    {
        "rule": "!has(self.parameters) || has(self.template)",
        "message": "parameters belong to a template"
    },
    {
        "rule": "has(self.min) || has(self.max)",
        "message": "at least one of min and max must be set"
    },
    {
        "rule": "!has(self.min) || !has(self.max) || self.min <= self.max",
        "message": "min must not be more than max"
    }
]))]
pub struct Check {
    /// Name of the check within the gate, a DNS label.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// PromQL. It gives one value: a scalar, or a vector with one element without the cluster's
    /// label; or one value for each cluster: a vector whose elements carry the cluster's label.
    #[schemars(length(min = 1, max = 4096))]
    pub query: Option<String>,
    /// Name of a query in the aggregator's configuration (`checkTemplates`), instead of `query`.
    #[schemars(length(min = 1, max = 253))]
    pub template: Option<String>,
    /// Values of the template's parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "parameters")]
    pub parameters: BTreeMap<String, String>,
    /// The least value that passes.
    pub min: Option<f64>,
    /// The greatest value that passes.
    pub max: Option<f64>,
    /// How long every cluster that counts must have been at the revision without a change before
    /// the query is asked; at least as long as the query looks back.
    #[serde(default = "default_window")]
    #[schemars(length(max = 21), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') && size(self) > 0",
        "message": "window must be a duration such as 90s, 10m or 1h30m"
    }]))]
    pub window: String,
}

fn default_window() -> String {
    "5m".to_owned()
}

fn parameters(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": 253},
        "maxProperties": 32,
    })
}

/// What a check came to.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckStatus {
    /// Name of the check.
    pub name: String,
    /// Where it stands.
    pub state: CheckState,
    /// The value, or the least and the greatest of the clusters' values. Not refreshed at every
    /// poll when nothing else changes.
    pub value: Option<String>,
    /// Why it has not passed.
    pub message: Option<String>,
}

/// Where a check stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CheckState {
    /// It does not count yet, or has not been answered yet.
    Pending,
    /// Every value is within bounds.
    Passed,
    /// A value is out of bounds or missing, or there is no usable answer.
    Failed,
}
