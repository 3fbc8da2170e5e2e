//! What the engine makes of packages, entry by entry, for whoever goes through saved objects step by step. Nobody does where
//! a cluster is watched.

use statusbridge_expression::EvaluationError;

use super::key::Key;
use crate::{
    source::{Detail, Evaluation, ResourceSet},
    state::soak::Shown,
    watch::SourceId,
};

/// An entry.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A package was evaluated.
    Evaluated {
        source: SourceId,
        package: Key,
        detail: Detail,
        /// Whether its object says nothing about the outcome at the moment.
        undecided: bool,
        error: Option<EvaluationError>,
    },
    /// This is shown of a package from now on.
    Shown { source: SourceId, package: Key, shown: Shown },
    /// A package consists of these from now on.
    ConsistsOf(ResourceSet),
    /// A package is gone.
    Gone { source: SourceId, package: Key },
}

impl Entry {
    pub(super) fn evaluated(source: SourceId, package: &Key, evaluation: &Evaluation) -> Self {
        Self::Evaluated {
            source,
            package: package.clone(),
            detail: evaluation.detail.clone(),
            undecided: evaluation.hold.is_some_and(|hold| hold.undecided),
            error: evaluation.error.clone(),
        }
    }
}
