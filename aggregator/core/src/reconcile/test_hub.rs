//! A hub of a few lines, for histories.

use std::collections::BTreeMap;

use serde_json::Value;

use super::command::{Answer, StatusWrite};
use super::lazy_object::LazyObject;
use super::store::{Key, Kind};

/// Its objects.
pub(super) type Hub = BTreeMap<(Kind, Key), Value>;

/// An object as its API server sends it.
pub(super) fn object(value: &Value) -> LazyObject {
    serde_json::from_value(value.clone()).unwrap()
}

/// The object over which a status is written, if it is of the version that the status was decided upon.
pub(super) fn over<'h>(hub: &'h mut Hub, write: &StatusWrite) -> Result<&'h mut Value, Answer> {
    let it = hub.get_mut(&(write.kind, write.version.key.clone())).ok_or(Answer::Gone)?;
    let is_of = |field: &str, said: &str| said.is_empty() || it["metadata"][field] == said;
    match is_of("uid", &write.version.uid) && is_of("resourceVersion", &write.version.resource_version) {
        true => Ok(it),
        false => Err(Answer::Conflict),
    }
}
