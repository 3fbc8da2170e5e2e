//! Which object of a kind.

/// Namespace and name of a package's object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageKey {
    /// `None` for a cluster-scoped object.
    pub namespace: Option<Box<str>>,
    /// Name of the object.
    pub name: Box<str>,
}

impl PackageKey {
    /// The key of an object with this metadata; an empty namespace is none.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self { namespace: namespace.filter(|n| !n.is_empty()).map(Box::from), name: Box::from(name) }
    }
}
