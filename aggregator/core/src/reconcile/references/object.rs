//! Objects that FleetPackages refer to, as they are kept: as text, and not too much of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::reference::Reference;

/// Longest object, in bytes of JSON without `managedFields`. The API server stores objects of 1.5 MiB, and escapes make
/// longer JSON of them.
pub(super) const MAX_OBJECT: usize = 256 << 10;

/// How many bytes the objects that FleetPackages of one namespace refer to may take together.
pub(super) const MOST_OF_A_NAMESPACE: usize = 8 << 20;

/// An object as the API server sends it in lists and events, of which nothing is kept that is too large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Its name.
    pub name: String,
    /// Its resource version; empty where it has none.
    pub version: String,
    json: Result<Box<str>, usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    resource_version: String,
}

impl<'de> Deserialize<'de> for Sent {
    /// Reads text only, as its parts are looked at where they lie.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        type Fields<'a> = BTreeMap<String, &'a RawValue>;
        let text = <&RawValue>::deserialize(from)?.get();
        let read = || {
            let mut fields: Fields<'_> = serde_json::from_str(text)?;
            let metadata = fields.get("metadata").map_or("{}", |it| it.get());
            let Metadata { name, resource_version: version } = serde_json::from_str(metadata)?;
            let mut metadata: Fields<'_> = serde_json::from_str(metadata)?;
            let unread = metadata.remove("managedFields").map_or(0, |it| it.get().len());
            let bytes = text.len().saturating_sub(unread);
            if bytes > MAX_OBJECT {
                return Ok(Self { name, version, json: Err(bytes) });
            }
            let metadata = serde_json::value::to_raw_value(&metadata)?;
            fields.insert("metadata".to_owned(), &metadata);
            let json = serde_json::to_string(&fields)?.into_boxed_str();
            Ok(Self { name, version, json: Ok(json) })
        };
        read().map_err(|error: serde_json::Error| D::Error::custom(error))
    }
}

/// An object that is kept. It is parsed only while an expression is evaluated on it, as it takes many times its length
/// then.
#[derive(Debug)]
pub struct Object {
    json: Box<str>,
    _share: Share,
}

impl Object {
    pub(super) fn json(&self) -> &str {
        &self.json
    }
}

/// What is kept of an object that there is.
pub type ReadObject = Result<Arc<Object>, Refusal>;

/// Why an object that there is is not kept. With its bytes of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is longer than any may be.
    TooLarge(usize),
    /// Others of its namespace leave no room for it.
    NoRoom(usize),
}

impl Refusal {
    /// In words for the person who refers to the object.
    pub(super) fn message(self, reference: &Reference) -> String {
        let Reference { place, name, .. } = reference;
        let kind = &place.kind;
        match self {
            Self::TooLarge(bytes) => format!(
                "{kind} {name:?} takes {} KiB of JSON, and the aggregator reads {} KiB at most: refer to a smaller object",
                bytes.div_ceil(1 << 10),
                MAX_OBJECT >> 10
            ),
            Self::NoRoom(bytes) => format!(
                "{kind} {name:?} takes {} KiB of JSON, which is more than is left of the {} MiB that the aggregator keeps \
                 for the references of one namespace: refer to fewer or smaller objects in this namespace",
                bytes.div_ceil(1 << 10),
                MOST_OF_A_NAMESPACE >> 20
            ),
        }
    }
}

/// How many bytes objects of one namespace take, wherever they are on their way.
#[derive(Debug, Clone, Default)]
pub struct Room(Arc<AtomicUsize>);

impl Room {
    /// Room for so many bytes, also where only an object that goes for it leaves enough: then both count until it is gone.
    fn take(&self, bytes: usize, instead_of: usize) -> Option<Share> {
        let most = MOST_OF_A_NAMESPACE + instead_of;
        let more = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= most);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Share { room: self.clone(), bytes })
    }

    fn is_left(&self, bytes: usize) -> bool {
        self.0.load(Ordering::Relaxed).saturating_add(bytes) <= MOST_OF_A_NAMESPACE
    }
}

/// Room that is taken as long as this lives.
#[derive(Debug)]
struct Share {
    room: Room,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The objects that one watch keeps. An object that was there first stays; one that had no room gets it once others go.
#[derive(Debug, Default)]
pub struct Shelf {
    room: Room,
    objects: BTreeMap<String, Arc<Object>>,
    /// The bytes of those that there was no room for.
    refused: BTreeMap<String, usize>,
}

impl Shelf {
    /// An empty one, in the room of its namespace.
    pub fn new(room: Room) -> Self {
        Self { room, ..Self::default() }
    }

    /// Keeps an object instead of the version before, or nothing of it.
    pub fn put(&mut self, Sent { name, json, .. }: Sent) -> ReadObject {
        self.refused.remove(&name);
        let before = self.objects.remove(&name);
        let json = json.map_err(Refusal::TooLarge)?;
        if let Some(same) = before.as_ref().filter(|before| before.json == json) {
            self.objects.insert(name, same.clone());
            return Ok(same.clone());
        }
        let bytes = json.len();
        let Some(share) = self.room.take(bytes, before.map_or(0, |before| before.json.len())) else {
            self.refused.insert(name, bytes);
            return Err(Refusal::NoRoom(bytes));
        };
        let object = Arc::new(Object { json, _share: share });
        self.objects.insert(name, object.clone());
        Ok(object)
    }

    /// Keeps nothing of an object that is gone.
    pub fn remove(&mut self, name: &str) {
        self.objects.remove(name);
        self.refused.remove(name);
    }

    /// Keeps nothing of objects of other names.
    pub fn retain(&mut self, names: &BTreeSet<String>) {
        self.objects.retain(|name, _| names.contains(name));
        self.refused.retain(|name, _| names.contains(name));
    }

    /// Whether there is room by now for one that was refused. It has to be read again.
    pub fn has_room(&self) -> bool {
        self.refused.values().min().is_some_and(|bytes| self.room.is_left(*bytes))
    }
}
