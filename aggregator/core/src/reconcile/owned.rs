//! Objects that are wholly the aggregator's and belong to another one: what is to be done about one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};
use statusbridge_api::names::{LONGEST_LABEL, LONGEST_NAME, hashed, shortened};

use super::calls::is_young;
use super::object::{Key, Kind, Version};
use crate::time::Now;

/// A change of an object that belongs to another one.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedWrite {
    /// Kind and place of the object that it belongs to.
    pub owner: (Kind, Key),
    /// Which object of that name controls it, so that the control plane removes it with that one. `None`: it stays.
    pub controller: Option<String>,
    /// What is written for: the kind of the job.
    pub(super) job: Kind,
    /// The kind of the object itself.
    pub kind: Kind,
    /// What to do.
    pub change: Change,
    /// When it was decided.
    pub(super) decided: Duration,
}

impl OwnedWrite {
    /// Whether it may be sent now: what was decided long ago may no longer be true.
    pub fn may_be_sent(&self, now: Now) -> bool {
        is_young(self.decided, now)
    }
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Make an object of this name. One of somebody else's that has the name is not touched.
    Create(String, Content),
    /// Let this version of an object say something else: a field that is null goes, one that is not named stays.
    Update(Version, Content),
    /// Remove this version of an object.
    Delete(Version),
}

/// What an object says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Content {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its fields beside `metadata`.
    pub fields: Map<String, Value>,
}

impl Change {
    /// Whether it removes an object.
    pub fn is_delete(&self) -> bool {
        matches!(self, Self::Delete(_))
    }
}

impl Content {
    /// What serializes to an object of fields.
    pub(super) fn of(label: (&str, String), content: &impl serde::Serialize) -> Self {
        let fields = match serde_json::to_value(content) {
            Ok(Value::Object(fields)) => fields,
            // Whatever is written here is a struct.
            _ => Map::new(),
        };
        Self { labels: BTreeMap::from([(label.0.to_owned(), label.1)]), fields }
    }
}

/// The value of a label that names the owner.
pub fn label(owner: &str) -> String {
    shortened(owner, LONGEST_LABEL)
}

/// A name for an object, made from its owner's name, what tells its owner from others of that name, and a number.
pub(super) fn numbered(owner: &str, which: &str, number: u64) -> String {
    hashed(owner, &format!("{which} {number}"), LONGEST_NAME)
}
