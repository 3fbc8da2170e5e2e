//! Which package an object is.

use serde_json::Value;
use statusbridge_expression::{EvaluationError, Expression, OBJECT, Scope};

use super::program::Source;

/// Longest namespace or name that an expression may give, in bytes. What series can show is shorter.
const MAX_NAME: usize = 1024;

/// The field `identity` of a source. The expressions see the variable `object` only.
#[derive(Debug)]
pub(super) struct IdentityProgram {
    /// `None`: the object's own.
    pub(super) namespace: Option<Expression>,
    /// `None`: the object's own.
    pub(super) name: Option<Expression>,
}

/// The namespace and the name of a package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// `None` when it is in none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Source {
    /// Which package an object is. An error when an expression fails or gives no name.
    pub fn identity(&self, object: &Value) -> Result<Identity, EvaluationError> {
        let mut identity = Identity::of(object);
        let Some(program) = &self.program.identity else { return Ok(identity) };
        let mut scope = Scope::default();
        scope.bind(OBJECT, object);
        if let Some(namespace) = &program.namespace {
            identity.namespace = namespace.whole_text_of(&mut scope, MAX_NAME)?;
        }
        if let Some(name) = &program.name {
            let given = name.whole_text_of(&mut scope, MAX_NAME)?;
            identity.name = given.ok_or_else(|| name.error("gives no name"))?;
        }
        Ok(identity)
    }
}

impl Identity {
    /// The object's own namespace and name.
    pub fn of(object: &Value) -> Self {
        let text = |field: &str| object.get("metadata")?.get(field)?.as_str().map(str::to_owned);
        Self {
            namespace: text("namespace").filter(|namespace| !namespace.is_empty()),
            name: text("name").unwrap_or_default(),
        }
    }
}

impl IdentityProgram {
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.namespace.iter().chain(&self.name)
    }
}
