//! Which package an object is.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use statusbridge_expression::{EvaluationError, Expression, OBJECT, Scope};

/// Longest name that an expression may give, in bytes. What series can show is shorter.
const MAX_NAME: usize = 1024;

/// Names of clusters, by what a package system calls them; an empty name is the exporter's own cluster.
pub(super) type ClusterNames = BTreeMap<String, String>;

/// The field `identity` of a source. The expressions see the variable `object` only.
#[derive(Debug)]
pub(super) struct IdentityProgram {
    /// `None`: the exporter's own.
    pub(super) cluster: Option<Expression>,
    /// `None`: the object's own.
    pub(super) namespace: Option<Expression>,
    /// `None`: the object's own.
    pub(super) name: Option<Expression>,
    /// `None`: no two objects are one package.
    pub(super) order: Option<Expression>,
}

/// The cluster, the namespace and the name of a package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// `None` when it is the exporter's own.
    pub cluster: Option<Arc<str>>,
    /// `None` when it is in none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl IdentityProgram {
    /// Which package an object is. An error when an expression fails or gives no name.
    pub(super) fn of(&self, object: &Value, clusters: &ClusterNames) -> Result<Identity, EvaluationError> {
        let mut identity = Identity::of(object);
        let mut scope = Scope::default();
        scope.bind(OBJECT, object);
        let mut text = |expression: &Expression| {
            let given = expression.whole_text_of(&mut scope, MAX_NAME)?;
            match given.as_ref().is_some_and(|given| given.chars().any(char::is_control)) {
                true => Err(expression.error("gives a control character, which no name has")),
                false => Ok(given),
            }
        };
        if let Some(cluster) = &self.cluster {
            let given = text(cluster)?;
            let name = given.map(|given| clusters.get(&given).cloned().unwrap_or(given));
            identity.cluster = name.filter(|name| !name.is_empty()).map(Arc::from);
        }
        if let Some(namespace) = &self.namespace {
            identity.namespace = text(namespace)?;
        }
        if let Some(name) = &self.name {
            let given = text(name)?;
            identity.name = given.ok_or_else(|| name.error("gives no name"))?;
        }
        Ok(identity)
    }

    /// Where an object stands among those that are the same package: the last of them is it.
    pub(super) fn order_of(&self, object: &Value) -> Result<u64, EvaluationError> {
        let Some(order) = &self.order else { return Ok(0) };
        let mut scope = Scope::default();
        scope.bind(OBJECT, object);
        order.count(&mut scope)
    }

    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.cluster.iter().chain(&self.namespace).chain(&self.name).chain(&self.order)
    }
}

impl Identity {
    /// The object's own namespace and name.
    pub fn of(object: &Value) -> Self {
        let text = |field: &str| object.get("metadata")?.get(field)?.as_str().map(str::to_owned);
        Self {
            cluster: None,
            namespace: text("namespace").filter(|namespace| !namespace.is_empty()),
            name: text("name").unwrap_or_default(),
        }
    }
}
