//! Sources: which kind of object is a package, and how to read its state. Data, not code.
//!
//! ```text
//!   YAML ──format──> Definition ──compile──> Source ──evaluate──> Evaluation
//!                                              │  └──join_keys──> which related objects to look up
//!                                              └──projection──> which fields to keep
//! ```
//!
//! Before anything is compiled, `plain` refuses YAML that hides an expression.

mod compile;
mod error;
mod format;
mod join;
mod leaves;
mod plain;
mod references;
mod rule;
mod schema;
mod trial;

pub use error::SourceError;
pub use join::{JoinKey, Related, RelatedObject, RelatedObjects};
pub use schema::schema;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use statusbridge_contract::ApplyState;
use statusbridge_expression::{EvaluationError, Expression, OBJECT, Scope};

use crate::projection::Projection;
pub(crate) use leaves::{HealthRule, LeavesProgram};
pub(crate) use rule::Rule;

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
    /// Label selector of the objects that are watched; all of them when left out.
    #[serde(default)]
    pub selector: Option<String>,
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
pub struct GroupKind {
    /// API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
}

/// What is a package to a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageKind {
    /// Objects of one kind.
    Kind(KindRef),
    /// Objects of every kind that is in one of these categories: the `categories` of a
    /// CustomResourceDefinition's names, as discovery shows them. A package is named after its
    /// resource too, `<plural>.<group>/<name>`, as objects of two kinds may have one name.
    Categories(Vec<String>),
}

impl PackageKind {
    /// The kind, where there is only one.
    pub fn one(&self) -> Option<&KindRef> {
        match self {
            Self::Kind(kind) => Some(kind),
            Self::Categories(_) => None,
        }
    }
}

impl std::fmt::Display for PackageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kind(kind) => f.write_str(&kind.kind),
            Self::Categories(categories) => write!(f, "category {}", categories.join(", ")),
        }
    }
}

/// A source, compiled. Immutable and shared by reference.
#[derive(Debug)]
pub struct Source {
    /// Name: what the label `package_source` says.
    pub name: String,
    /// What it reads, for people.
    pub description: String,
    /// What is a package.
    pub kind: PackageKind,
    /// Objects read beside it.
    pub related: Vec<Related>,
    projection: Projection,
    pub(crate) program: Program,
    /// Whether expressions read `metadata.resourceVersion`, which moves when nothing else does.
    reads_versions: bool,
    /// Its definition, to tell whether another one is the same.
    definition: Value,
}

/// The expressions of a source.
#[derive(Debug)]
pub(crate) struct Program {
    /// Which objects are packages; `None`: all.
    pub(crate) filter: Option<Expression>,
    pub(crate) variables: Vec<(String, Expression)>,
    pub(crate) desired: Option<Expression>,
    pub(crate) attempted: Option<Expression>,
    pub(crate) applied: Option<Expression>,
    /// `None`: by kstatus.
    pub(crate) apply: Option<Vec<Rule<ApplyState>>>,
    /// `None`: by kstatus.
    pub(crate) health: Option<Vec<Rule<HealthRule>>>,
    pub(crate) reason: Option<Expression>,
    pub(crate) message: Option<Expression>,
    pub(crate) worst_resource: Option<Expression>,
    pub(crate) operation: Option<Expression>,
    pub(crate) since: Option<Expression>,
    pub(crate) inventory: Option<InventoryProgram>,
    pub(crate) leaves: Option<LeavesProgram>,
    pub(crate) hold: Option<HoldProgram>,
}

#[derive(Debug)]
pub(crate) struct InventoryProgram {
    pub(crate) total: Expression,
    pub(crate) current: Expression,
    pub(crate) failed: Expression,
}

#[derive(Debug)]
pub(crate) struct HoldProgram {
    pub(crate) when: Expression,
    pub(crate) key: Expression,
}

impl Source {
    /// The sources in a YAML text of one document or several, compiled and tried on their samples;
    /// `file` is for messages.
    pub fn parse(file: &str, yaml: &str) -> Result<Vec<Self>, SourceError> {
        compile::parse(file, yaml)
    }

    /// What of the package's own object is read.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// Whether packages of this source have inventory counts.
    pub fn has_inventory(&self) -> bool {
        self.program.inventory.is_some() || self.looks_at_leaves()
    }

    /// Whether the objects of its packages are looked at.
    pub fn looks_at_leaves(&self) -> bool {
        self.program.leaves.as_ref().is_some_and(|leaves| leaves.enabled)
    }

    /// Whether a verdict is made of the package's own object and nothing else.
    pub fn rests_on_one_object(&self) -> bool {
        self.related.is_empty() && !self.looks_at_leaves()
    }

    /// Has the objects of its packages looked at, or not; false when the source does not say which
    /// they are.
    pub fn look_at_leaves(&mut self, enabled: bool) -> bool {
        let Some(leaves) = &mut self.program.leaves else { return false };
        leaves.enabled = enabled;
        compile::set_projections(self);
        true
    }

    /// Whether an object is a package. One that cannot be told is one, whose expressions will fail
    /// where that can be seen.
    pub fn takes(&self, object: &Value) -> bool {
        let Some(filter) = &self.program.filter else { return true };
        let mut scope = Scope::default();
        scope.bind(OBJECT, object);
        filter.truth(&scope).unwrap_or(true)
    }

    /// Whether expressions read `metadata.resourceVersion`.
    pub(crate) fn reads_versions(&self) -> bool {
        self.reads_versions
    }

    /// Whether another source reads the same in the same way.
    pub fn same_as(&self, other: &Self) -> bool {
        self.definition == other.definition && self.looks_at_leaves() == other.looks_at_leaves()
    }

    /// Where to find the related objects of a package.
    pub fn join_keys(&self, object: &Value) -> Vec<JoinKey> {
        let mut keys = Vec::new();
        if self.related.is_empty() {
            return keys;
        }
        let mut scope = Scope::default();
        scope.bind(OBJECT, object);
        for (index, related) in self.related.iter().enumerate() {
            related.keys(index, object, &scope, &mut keys);
        }
        keys
    }

    /// The variables that all expressions see: the object, what is related to it, the source's own.
    pub(crate) fn scope<'v>(
        &self,
        object: &'v Value,
        related: &RelatedObjects<'v>,
    ) -> Result<Scope<'v>, EvaluationError> {
        let mut scope = Scope::default();
        scope.bind(OBJECT, object);
        for (index, r) in self.related.iter().enumerate() {
            r.bind(related.0.get(index), &mut scope);
        }
        for (name, expression) in &self.program.variables {
            scope.define(name, expression)?;
        }
        Ok(scope)
    }
}

/// The variable that holds the apply state's name, once it is known.
pub(crate) const APPLY: &str = "apply";

#[cfg(test)]
mod tests;
