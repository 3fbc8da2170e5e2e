//! What is known of a package in a rehearsal.

use statusbridge_expression::EvaluationError;

use crate::{source::Detail, state::Shown};

/// A package, as its series name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackageId {
    /// Name of its source.
    pub source: String,
    /// The cluster in which it runs; `None` when that is the exporter's own.
    pub cluster: Option<String>,
    /// Its namespace; `None` when it is cluster-scoped.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// What the exporter would show of a package, and what it would write into its log.
#[derive(Debug, Clone, PartialEq)]
pub struct Package {
    /// What it shows, and since when.
    pub shown: Shown,
    /// What the package's object and what belongs to it say, when last evaluated.
    pub detail: Detail,
    /// Whether the object says nothing about the outcome at the moment, as its controller is looking again.
    pub undecided: bool,
    /// The expression that failed, if one did.
    pub error: Option<EvaluationError>,
    /// Which version of the package's object it is, counted from 1.
    pub version: usize,
}

/// A change of what is shown of a package, its first sight included.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// When, in unix milliseconds.
    pub at: i64,
    /// The package.
    pub id: PackageId,
    /// How it is from then on; `None` when it is gone.
    pub package: Option<Package>,
}

impl std::fmt::Display for PackageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)?;
        match &self.cluster {
            Some(cluster) => write!(f, " in {cluster}"),
            None => Ok(()),
        }
    }
}
