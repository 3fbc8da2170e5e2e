//! What is kept of an object, and which version of it that is.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use super::kept::PackedObject;

/// Which version of which object: equal ones are the same. Compared within one process alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stamp(u64);

impl Stamp {
    /// No version: it equals that of no object.
    pub(super) const NONE: Self = Self(0);

    /// By UID and resource version.
    pub(super) fn of(object: &Value) -> Self {
        let text = |field: &str| object.get("metadata")?.get(field)?.as_str();
        let mut hasher = DefaultHasher::new();
        (text("uid"), text("resourceVersion")).hash(&mut hasher);
        Self(hasher.finish().max(1))
    }
}

/// An object as it is kept between updates.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) kept: PackedObject,
    pub(super) stamp: Stamp,
}
