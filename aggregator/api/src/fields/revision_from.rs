//! A reference to an object of the hub that says which revision is wanted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An object in the same namespace, and how to read a revision from it. Never a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.kind.lowerAscii() != 'secret'",
        "message": "a revision is never read from a Secret"
    },
    {
        "rule": "!(self.kind == 'FleetPackage' && self.apiVersion.startsWith('statusbridge.dev/'))",
        "message": "a revision is never read from a FleetPackage"
    }
]))]
pub struct RevisionFrom {
    /// API version of the object, such as `source.toolkit.fluxcd.io/v1`.
    #[schemars(length(min = 1, max = 317), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "message": "apiVersion must be a version or group/version, such as v1 or source.toolkit.fluxcd.io/v1"
    }]))]
    pub api_version: String,
    /// Kind of the object, which must be a namespaced one.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$')",
        "message": "kind must be the name of a kind, such as GitRepository"
    }]))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// A CEL expression over `object` that gives the revision as a text, such as
    /// `object.status.artifact.revision`.
    #[schemars(length(min = 1, max = 4096))]
    pub expression: String,
}
