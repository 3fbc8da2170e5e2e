//! Kinds of objects, as a source names them.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::selector::Selector;

/// A kind of object, at any of some versions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct KindRef {
    /// API group; empty for the core group.
    pub group: String,
    /// The kind.
    #[schemars(length(min = 1))]
    pub kind: String,
    /// Versions that can be read, the preferred one first.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub versions: Vec<String>,
    /// Name of the resource in requests, where it is not the usual plural of the kind.
    #[serde(default)]
    pub resource: Option<String>,
    /// Label selector of the objects that are watched, such as `team=web`; all of them when left out.
    #[serde(default)]
    pub selector: Option<Selector>,
}

impl KindRef {
    /// Whether an object says that it is of this kind, at any version: a saved object of a version
    /// that is not listed is still read, as an API server would convert it.
    pub fn matches(&self, object: &Value) -> bool {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or("");
        let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
        group == self.group && text("kind") == self.kind
    }

    /// Name of the resource in requests and in RBAC: the kind's lower-case plural, made as
    /// Kubernetes itself guesses it (apimachinery, `UnsafeGuessKindToResource`), unless the source
    /// says otherwise.
    pub fn resource(&self) -> String {
        let guess = || {
            let kind = self.kind.to_ascii_lowercase();
            match kind.strip_suffix('y') {
                Some(stem) => format!("{stem}ies"),
                None if kind.ends_with('s') => format!("{kind}es"),
                None => format!("{kind}s"),
            }
        };
        self.resource.clone().unwrap_or_else(guess)
    }
}

/// A kind of object, whatever its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupKind {
    /// API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
}

/// What is a package to a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageKinds {
    /// Objects of these kinds.
    Listed(Vec<KindRef>),
    /// Objects of every kind that is in one of these categories: the `categories` of a
    /// CustomResourceDefinition's names, as discovery shows them.
    Categories(Vec<String>),
}

impl PackageKinds {
    /// The kinds that are known without asking an API server.
    pub fn listed(&self) -> &[KindRef] {
        match self {
            Self::Listed(kinds) => kinds,
            Self::Categories(_) => &[],
        }
    }
}

impl std::fmt::Display for PackageKinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Listed(kinds) => {
                let names: Vec<&str> = kinds.iter().map(|kind| &*kind.kind).collect();
                f.write_str(&names.join(", "))
            }
            Self::Categories(categories) => write!(f, "category {}", categories.join(", ")),
        }
    }
}
