//! A compiled source: its expressions, and what the exporter asks it about an object.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use statusbridge_contract::ApplyState;
use statusbridge_expression::{EvaluationError, Expression, OBJECT, Scope};

use super::{
    error::SourceProblem,
    expectation::Expectation,
    identity::{ClusterNames, Identity, IdentityProgram},
    join::{JoinKey, Related, RelatedObjects},
    kind::PackageKinds,
    projection::Projection,
    resource_health::ResourceHealth,
    resource_program::WatchProgram,
    rule::{HealthState, Rule},
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
    pub kinds: PackageKinds,
    /// Objects read beside it.
    pub related: Vec<Related>,
    /// What whoever wrote it may have meant otherwise.
    pub warnings: Vec<SourceProblem>,
    pub(super) projection: Projection,
    pub(super) program: Program,
    /// Whether expressions read `metadata.resourceVersion`, which moves when nothing else does.
    pub(super) reads_versions: bool,
    /// Its definition, to tell whether another one is the same.
    pub(super) definition: Value,
    pub(super) samples: Vec<Sample>,
    /// How to call the clusters in which its packages run.
    pub(super) cluster_names: Arc<ClusterNames>,
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
    /// `None`: the object's own namespace and name.
    pub(super) identity: Option<IdentityProgram>,
    /// Which objects are packages: those for which all are true.
    pub(crate) conditions: Vec<Expression>,
    pub(crate) variables: Vec<(String, Expression)>,
    pub(crate) desired: Option<Expression>,
    pub(crate) attempted: Option<Expression>,
    pub(crate) applied: Option<Expression>,
    /// `None`: by kstatus.
    pub(crate) apply: Option<Vec<Rule<ApplyState>>>,
    /// `None`: by kstatus.
    pub(crate) health: Option<Vec<Rule<HealthState>>>,
    pub(crate) reason: Option<Expression>,
    pub(crate) message: Option<Expression>,
    pub(crate) worst_resource: Option<Expression>,
    pub(crate) operation: Option<Expression>,
    pub(crate) since: Option<Expression>,
    pub(crate) counts: Option<CountsProgram>,
    pub(crate) watch: Option<WatchProgram>,
    pub(super) resource_health: Vec<Arc<ResourceHealth>>,
    pub(crate) hold: Option<HoldProgram>,
}

#[derive(Debug)]
pub(crate) struct CountsProgram {
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

    /// Whether the resources of its packages are counted.
    pub(crate) fn counts_resources(&self) -> bool {
        self.program.counts.is_some() || self.watches_resources()
    }

    /// Whether the objects that its packages consist of are watched.
    pub fn watches_resources(&self) -> bool {
        self.program.watch.as_ref().is_some_and(|watch| watch.enabled)
    }

    /// Its own way to tell the health of a kind of resource.
    pub(crate) fn resource_health(&self, group: &str, kind: &str) -> Option<Arc<ResourceHealth>> {
        self.program.resource_health.iter().find(|health| health.is_of(group, kind)).cloned()
    }

    /// Whether the name of an object alone says which package it is.
    pub(crate) fn names_packages_after_objects(&self) -> bool {
        self.program.identity.is_none() && self.kinds.listed().len() == 1
    }

    /// Whether a verdict is made of the package's own object and nothing else, not even the time, or that no other object takes
    /// its place.
    pub(crate) fn rests_on_one_object(&self) -> bool {
        self.related.is_empty() && !self.watches_resources() && !self.waits() && !self.has_order()
    }

    /// Whether of several objects that are one package one takes the place of the others.
    pub(crate) fn has_order(&self) -> bool {
        self.program.identity.as_ref().is_some_and(|identity| identity.order.is_some())
    }

    /// Whether time alone makes other verdicts.
    pub(crate) fn waits(&self) -> bool {
        let apply = self.program.apply.iter().flatten().any(|rule| rule.after.is_some());
        apply || self.program.health.iter().flatten().any(|rule| rule.after.is_some())
    }

    /// Whether an object is a package. One that cannot be told is one, whose expressions will fail
    /// where that can be seen.
    pub fn takes(&self, object: &Value) -> bool {
        if self.program.conditions.is_empty() {
            return true;
        }
        let mut scope = Scope::default();
        scope.bind(OBJECT, object);
        self.program.conditions.iter().all(|condition| condition.truth(&mut scope).unwrap_or(true))
    }

    /// Which package an object is. An error when an expression fails or gives no name.
    pub fn identity(&self, object: &Value) -> Result<Identity, EvaluationError> {
        self.program
            .identity
            .as_ref()
            .map_or_else(|| Ok(Identity::of(object)), |identity| identity.of(object, &self.cluster_names))
    }

    /// Where an object stands among those that are the same package. An error when the expression fails.
    pub fn order(&self, object: &Value) -> Result<u64, EvaluationError> {
        self.program.identity.as_ref().map_or(Ok(0), |identity| identity.order_of(object))
    }

    /// Whether expressions read `metadata.resourceVersion`.
    pub(crate) fn reads_versions(&self) -> bool {
        self.reads_versions
    }

    /// Whether another source reads the same in the same way.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.definition == other.definition
            && self.watches_resources() == other.watches_resources()
            && self.cluster_names == other.cluster_names
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
            related.keys(index, object, &mut scope, &mut keys);
        }
        keys
    }

    /// The variables that all expressions see: the object, what is related to it, the source's own.
    pub(crate) fn scope<'v>(&'v self, object: &'v Value, related: &RelatedObjects<'v>) -> Scope<'v> {
        let mut scope = Scope::default();
        scope.bind(OBJECT, object);
        for (index, r) in self.related.iter().enumerate() {
            r.bind(related.0.get(index), &mut scope);
        }
        for (name, expression) in &self.program.variables {
            scope.define(name, expression);
        }
        scope
    }
}

impl Program {
    /// The expressions that something comes of, but for what the objects of a package are found by.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = &Expression> {
        let apply = self.apply.iter().flatten().flat_map(Rule::expressions);
        let health = self.health.iter().flatten().flat_map(Rule::expressions);
        let revisions = self.desired.iter().chain(&self.attempted).chain(&self.applied);
        let counts = self.counts.iter().flat_map(|counts| [&counts.total, &counts.current, &counts.failed]);
        let hold = self.hold.iter().flat_map(|hold| [&hold.when, &hold.key]);
        apply.chain(health).chain(revisions).chain(self.texts()).chain(&self.since).chain(counts).chain(hold)
    }
}
