//! Objects that a source reads beside the package's own.

use serde_json::Value;
use statusbridge_expression::{Expression, Scope};

use super::{kind::KindRef, projection::Projection};

/// Longest name, namespace or label value that a join follows; Kubernetes has no longer ones.
const MAX_NAME: usize = 253;

/// Objects that belong to a package.
#[derive(Debug)]
pub struct Related {
    /// The variable that holds them: an optional when found by reference, a list when by labels.
    pub name: String,
    /// The kinds that they may be of.
    pub kinds: Vec<KindRef>,
    /// What of them is read.
    pub projection: Projection,
    pub(super) by: By,
}

/// How related objects are found. The expressions see the variable `object` only.
#[derive(Debug)]
pub(super) enum By {
    /// At most one, by its name.
    Reference {
        /// Gives the kind; `None` when there is only one to choose from.
        kind: Option<Box<Expression>>,
        /// Gives the namespace; `None` for the package's own.
        namespace: Option<Box<Expression>>,
        name: Box<Expression>,
    },
    /// Any number, by equal labels.
    Labels {
        /// Gives the kind; `None` for all of them.
        kind: Option<Box<Expression>>,
        /// Gives the namespace; `None` for the package's own.
        namespace: Option<Box<Expression>>,
        labels: Vec<(String, Expression)>,
    },
}

/// Where to find the related objects of one package.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum JoinKey {
    /// One object.
    Reference {
        /// Index into `Source::related`.
        related: usize,
        /// Index into [`Related::kinds`].
        kind: usize,
        /// Its namespace; `None` for a cluster-scoped one.
        namespace: Option<String>,
        /// Its name.
        name: String,
    },
    /// All objects of a kind that have these labels.
    Labels {
        /// Index into `Source::related`.
        related: usize,
        /// Index into [`Related::kinds`].
        kind: usize,
        /// Their namespace; `None` for every one.
        namespace: Option<String>,
        /// Labels that they have, with these values.
        labels: Vec<(String, String)>,
    },
}

/// The related objects of one package, in the order of `Source::related`;
/// missing entries are objects that do not exist.
#[derive(Debug, Clone, Default)]
pub struct RelatedObjects<'a>(pub Vec<RelatedObject<'a>>);

/// What was found for one [`Related`].
#[derive(Debug, Clone)]
pub enum RelatedObject<'a> {
    /// By reference: the object, if it exists.
    One(Option<&'a Value>),
    /// By labels: all of them.
    Many(Vec<&'a Value>),
}

impl Related {
    /// Whether the objects are found by reference (at most one) or by labels (a list).
    pub(crate) fn by_reference(&self) -> bool {
        matches!(self.by, By::Reference { .. })
    }

    /// The labels by which the objects are found, in the order of [`JoinKey::Labels`]; `None` by reference.
    pub(crate) fn label_names(&self) -> Option<Vec<&str>> {
        match &self.by {
            By::Reference { .. } => None,
            By::Labels { labels, .. } => Some(labels.iter().map(|(name, _)| name.as_str()).collect()),
        }
    }

    /// Adds the keys for one package. What cannot be evaluated or is empty is followed nowhere: the
    /// related objects are then missing, which no source may take for a good sign.
    pub(super) fn keys(&self, index: usize, object: &Value, scope: &mut Scope<'_>, keys: &mut Vec<JoinKey>) {
        let own = || object.get("metadata")?.get("namespace")?.as_str().map(str::to_owned);
        let mut text = |e: &Expression| e.text_of(scope, MAX_NAME).ok().flatten();
        match &self.by {
            By::Reference { kind, namespace, name } => {
                let kind = kind.as_deref().map_or(Some(0), |kind| self.kind(text(kind)));
                let namespace = namespace.as_deref().map_or_else(own, &mut text);
                if let (Some(kind), Some(name)) = (kind, text(name)) {
                    keys.push(JoinKey::Reference { related: index, kind, namespace, name });
                }
            }
            By::Labels { kind, namespace, labels } => {
                let kinds = match kind {
                    Some(kind) => self.kind(text(kind)).map(|kind| kind..kind + 1).unwrap_or_default(),
                    None => 0..self.kinds.len(),
                };
                let namespace = namespace.as_deref().map_or_else(own, &mut text);
                let labels: Option<Vec<_>> =
                    labels.iter().map(|(name, value)| Some((name.clone(), text(value)?))).collect();
                if let Some(labels) = labels {
                    keys.extend(kinds.map(|kind| JoinKey::Labels {
                        related: index,
                        kind,
                        namespace: namespace.clone(),
                        labels: labels.clone(),
                    }));
                }
            }
        }
    }

    fn kind(&self, name: Option<String>) -> Option<usize> {
        let name = name?;
        self.kinds.iter().position(|kind| kind.kind == name)
    }

    /// Binds what was found.
    pub(super) fn bind<'v>(&self, found: Option<&RelatedObject<'v>>, scope: &mut Scope<'v>) {
        match (found, self.by_reference()) {
            (Some(RelatedObject::One(object)), true) => scope.bind_optional(&self.name, *object),
            (_, true) => scope.bind_optional(&self.name, None),
            (Some(RelatedObject::Many(objects)), false) => scope.bind_list(&self.name, objects),
            (_, false) => scope.bind_list(&self.name, &[]),
        }
    }
}

impl JoinKey {
    /// Index into `Source::related`.
    pub fn related(&self) -> usize {
        match self {
            Self::Reference { related, .. } | Self::Labels { related, .. } => *related,
        }
    }

    /// Whether an object of the key's kind is one that it means.
    pub fn matches(&self, object: &Value) -> bool {
        let metadata = |field: &str| object.get("metadata")?.get(field);
        let text = |field: &str| metadata(field).and_then(Value::as_str);
        match self {
            Self::Reference { namespace, name, .. } => {
                text("name") == Some(name)
                    && text("namespace").unwrap_or("") == namespace.as_deref().unwrap_or("")
            }
            Self::Labels { namespace, labels, .. } => {
                (namespace.is_none() || text("namespace") == namespace.as_deref())
                    && labels.iter().all(|(name, value)| {
                        metadata("labels").and_then(|l| l.get(name)).and_then(Value::as_str) == Some(value)
                    })
            }
        }
    }
}
