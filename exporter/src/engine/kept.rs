//! Lean objects as they are kept between updates.

use serde_json::Value;
use statusbridge_contract::sample;

/// A lean object: as JSON, smaller than parsed, or only its hash where nobody reads it again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Object(Box<[u8]>),
    Hash(u64),
}

impl Kept {
    /// Keeps an object `whole`, or its hash.
    pub(super) fn new(object: &Value, whole: bool) -> Self {
        // A value that was parsed from JSON can be written as JSON.
        let bytes = serde_json::to_vec(object).unwrap_or_default();
        if whole {
            Self::Object(bytes.into_boxed_slice())
        } else {
            Self::Hash(sample::hash_canonical(&bytes))
        }
    }

    /// The object, if it was kept whole.
    pub(super) fn parse(&self) -> Option<Value> {
        match self {
            Self::Object(bytes) => serde_json::from_slice(bytes).ok(),
            Self::Hash(_) => None,
        }
    }
}
