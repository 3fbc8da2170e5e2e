//! A compiled source: its expressions, and what the exporter asks it about an object.

use std::collections::BTreeMap;

use serde_json::Value;
use statusbridge_contract::ApplyState;
use statusbridge_expression::{EvaluationError, Expression, OBJECT, Scope};

use super::{
    expectation::Expectation,
    join::{JoinKey, Related, RelatedObjects},
    kind::PackageKind,
    projection::Projection,
    resource_rules::{HealthRule, ResourcesProgram},
    rule::Rule,
};

/// The variable that holds the apply state's name, once it is known.
pub(crate) const APPLY: &str = "apply";

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
    pub(super) projection: Projection,
    pub(super) program: Program,
    /// Whether expressions read `metadata.resourceVersion`, which moves when nothing else does.
    pub(super) reads_versions: bool,
    /// Its definition, to tell whether another one is the same.
    pub(super) definition: Value,
    pub(super) samples: Vec<Sample>,
}

/// An object that a source was tried on.
#[derive(Debug)]
pub struct Sample {
    /// An object of the source's kind.
    pub object: Value,
    /// What is related to it, by the variable's name: an object, or a list of objects.
    pub related: BTreeMap<String, Value>,
    /// What is expected to be shown of it.
    pub expect: Option<Expectation>,
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
    pub(crate) resources: Option<ResourcesProgram>,
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
    /// What of the package's own object is read.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// The objects that it was tried on.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Whether packages of this source have inventory counts.
    pub(crate) fn has_inventory(&self) -> bool {
        self.program.inventory.is_some() || self.looks_at_resources()
    }

    /// Whether the objects of its packages are looked at.
    pub fn looks_at_resources(&self) -> bool {
        self.program.resources.as_ref().is_some_and(|resources| resources.enabled)
    }

    /// Whether a verdict is made of the package's own object and nothing else.
    pub(crate) fn rests_on_one_object(&self) -> bool {
        self.related.is_empty() && !self.looks_at_resources()
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
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.definition == other.definition && self.looks_at_resources() == other.looks_at_resources()
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
