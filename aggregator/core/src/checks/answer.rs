//! The values that a check's query gives.

use std::collections::BTreeMap;

/// What a query gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// One value for all clusters together.
    One(f64),
    /// A value for each cluster by name.
    Clusters(BTreeMap<String, Value>),
}

impl Answer {
    /// How many values it has.
    pub fn values(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Clusters(clusters) => clusters.len(),
        }
    }
}

/// What a query gives for one cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A number, which may be NaN or infinite.
    Number(f64),
    /// More than one element.
    Several,
}
