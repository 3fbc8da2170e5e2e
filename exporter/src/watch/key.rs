//! Which object of a kind, and which package.

use std::sync::Arc;

/// Namespace and name of an object or of a package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageKey {
    /// `None` for a cluster-scoped object.
    pub namespace: Option<Box<str>>,
    /// Name of the object.
    pub name: Box<str>,
    /// The cluster in which a package runs, where that is not the exporter's own; `None` for every object.
    pub cluster: Option<Arc<str>>,
}

impl PackageKey {
    /// The key of an object with this metadata; an empty namespace is none.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.filter(|n| !n.is_empty()).map(Box::from);
        Self { namespace, name: Box::from(name), cluster: None }
    }
}
