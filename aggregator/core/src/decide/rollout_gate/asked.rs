//! The checks of a gate, as they are asked.

use crate::checks::Answered;

/// A check of the spec, with its query and what the backend last said to it.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// The query, or why there is none.
    pub query: Result<String, NoQuery>,
    /// What was said to it, if it was asked.
    pub answer: Option<Answered<'a>>,
    /// Whether the backend's own words are kept back, because they may speak of other tenants.
    pub discreet: bool,
}

/// Why a check has no query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoQuery {
    /// What it asks for does not exist or does not fit.
    Invalid(String),
    /// The gate's namespace may not ask this.
    Forbidden(String),
}
