//! The objects of the directory: those that files declare, and what this program writes, which outlives it in files of its
//! own.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::{Value, json};
use statusbridge_api::GROUP;
use statusbridge_expression::yaml;
use tokio::sync::watch;
use tracing::{error, warn};

use super::files::Declared;
use super::stored::{
    LEASES, Place, REFUSED, content, declared, file, generation, identity, metadata, set, set_metadata,
};
use crate::hub::lease::LEASE;

/// How many changes are remembered for watches that have fallen behind; a watch that needs more reads everything anew.
const MOST_CHANGES: usize = 1024;

/// Most files that are read of what this program has written, and most bytes of one.
const MOST_WRITTEN: usize = 100_000;
const LONGEST_WRITTEN: u64 = 4 << 20;

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Added,
    Modified,
    Deleted,
}

/// A change, for watches.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) what: What,
    pub(super) place: Place,
    pub(super) object: Arc<Value>,
}

/// Why something is not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("there is no such object")]
    NotFound,
    #[error("it is there already")]
    AlreadyExists,
    #[error("it is another version by now")]
    Conflict,
    #[error("it is another object of that name")]
    Another,
    #[error("{0}")]
    NotTaken(String),
    #[error("not all of them are known: {0}")]
    Unknown(String),
    #[error("cannot be written to its file: {0}")]
    Failed(#[from] io::Error),
}

/// Which object, and which version of it, a write is about.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
}

impl Expected {
    /// What the metadata of an object that is written says.
    pub(super) fn of(object: &Value) -> Self {
        let text = |field| metadata(object, field).filter(|text| !text.is_empty()).map(str::to_owned);
        Self { uid: text("uid"), version: text("resourceVersion") }
    }

    fn check(&self, object: &Value) -> Result<(), Refusal> {
        if self.uid.as_deref().is_some_and(|uid| metadata(object, "uid") != Some(uid)) {
            return Err(Refusal::Another);
        }
        if self.version.as_deref().is_some_and(|version| metadata(object, "resourceVersion") != Some(version))
        {
            return Err(Refusal::Conflict);
        }
        Ok(())
    }
}

/// All objects.
pub(super) struct Store {
    /// The folder that this program writes.
    status: PathBuf,
    objects: BTreeMap<Place, Arc<Value>>,
    version: u64,
    changes: VecDeque<Change>,
    changed: watch::Sender<u64>,
    /// Why a file cannot be read, if there is one: any object that is only read may be in it, and be another one by now.
    broken: Option<String>,
    /// What of the files could not be taken in, and why.
    untaken: BTreeMap<Place, String>,
}

impl Store {
    /// Reads what this program has written before.
    pub(super) fn open(status: PathBuf, changed: watch::Sender<u64>) -> Result<Self> {
        let mut store = Self {
            status,
            objects: BTreeMap::new(),
            version: 0,
            changes: VecDeque::new(),
            changed,
            broken: None,
            untaken: BTreeMap::new(),
        };
        for path in written(&store.status).with_context(|| format!("reading {}", store.status.display()))? {
            match read(&path) {
                Ok((place, _)) if store.path(&place) != path => {
                    warn!(file = %path.display(), "is left alone: its name is not that of the object in it");
                }
                Ok((place, mut object)) => {
                    // Whoever has the lock is alone: the process that held the Lease is gone.
                    if place.name == LEASE
                        && let Some(spec) = object.get_mut("spec")
                    {
                        set(spec, "holderIdentity", None);
                    }
                    let version = metadata(&object, "resourceVersion").and_then(|text| text.parse().ok());
                    store.version = store.version.max(version.unwrap_or_default());
                    store.objects.insert(place, Arc::new(object));
                }
                Err(error) => {
                    warn!(file = %path.display(), error, "cannot be read: what was written there is forgotten");
                }
            }
        }
        Ok(store)
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The newest version.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Place, &Arc<Value>)> {
        self.objects.iter()
    }

    pub(super) fn get(&self, place: &Place) -> Option<Arc<Value>> {
        self.objects.get(place).cloned()
    }

    /// The changes after a version; `None` where some of them are no longer known.
    pub(super) fn since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        let first = self.changes.front().map_or(self.version.saturating_add(1), |first| first.version);
        (version.saturating_add(1) >= first && version <= self.version)
            .then(|| self.changes.iter().filter(move |change| change.version > version))
    }

    /// Takes in what the files declare now. Where that cannot be written, the object counts for nothing until a later try
    /// succeeds.
    pub(super) fn take(&mut self, files: Declared) {
        let Declared { objects, broken } = files;
        let said = std::mem::take(&mut self.untaken);
        let gone: Vec<_> = self
            .objects
            .iter()
            .filter(|(place, object)| file(object).is_some() && !objects.contains_key(place))
            .map(|(place, object)| (place.clone(), object.clone()))
            .collect();
        for (place, object) in gone {
            let broken = file(&object).and_then(|file| broken.get(file));
            let taken = match (broken, place.kind()) {
                (Some(why), Some(_)) => self.declare(&place, refused(&object, why)),
                (Some(_), None) => continue,
                (None, _) => self.delete(&place, &Expected::default()).map(drop),
            };
            self.taken(&place, taken, &said);
        }
        for (place, object) in objects {
            let taken = self.declare(&place, object);
            self.taken(&place, taken, &said);
        }
        self.broken = broken.into_values().next();
        self.changed.send_replace(self.version);
    }

    /// Whether something of the files is to be taken in again.
    pub(super) fn is_behind(&self) -> bool {
        !self.untaken.is_empty()
    }

    /// Notes what could not be taken in.
    fn taken(&mut self, place: &Place, taken: Result<(), Refusal>, said: &BTreeMap<Place, String>) {
        let Err(error) = taken else { return };
        let why = format!("what its file says could not be taken in: {error}");
        if said.get(place) != Some(&why) {
            error!(object = %place, error = why, "the gates that it may be about are closed");
        }
        if let Some(known) = self.get(place).filter(|_| place.kind().is_some()) {
            let mut refused = refused(&known, &why);
            if declared(&refused) != declared(&known) {
                set(&mut refused, "status", known.get("status").cloned());
                follow(&known, &mut refused);
                self.keep(place.clone(), refused, What::Modified);
            }
        }
        self.untaken.insert(place.clone(), why);
    }

    /// Why not all objects of a group are known. Ours are, and those that this program writes: each is refused by itself.
    pub(super) fn unknown(&self, group: &str) -> Option<&str> {
        self.broken.as_deref().filter(|_| ![GROUP, LEASES].contains(&group))
    }

    /// Takes in an object as a file declares it.
    fn declare(&mut self, place: &Place, mut object: Value) -> Result<(), Refusal> {
        let Some(known) = self.objects.get(place).cloned() else { return self.create(object).map(drop) };
        if object.get(REFUSED).is_some() {
            // What it said before is kept, so that it is the same object when it can be used again.
            if let Some(spec) = known.get("spec") {
                set(&mut object, "spec", Some(spec.clone()));
            }
        } else if identity(&object) != identity(&known) {
            self.delete(place, &Expected::default())?;
            return self.create(object).map(drop);
        }
        if declared(&object) == declared(&known) {
            return Ok(());
        }
        if place.kind().is_some() {
            set(&mut object, "status", known.get("status").cloned());
        }
        self.replace(place, &known, object).map(drop)
    }

    /// Stores a new object.
    pub(super) fn create(&mut self, mut object: Value) -> Result<Arc<Value>, Refusal> {
        let place = self.place(&object)?;
        if self.objects.contains_key(&place) {
            return Err(Refusal::AlreadyExists);
        }
        set_metadata(&mut object, "uid", json!(uid()));
        set_metadata(&mut object, "creationTimestamp", json!(format!("{:.0}", Timestamp::now())));
        set_metadata(&mut object, "generation", json!(1));
        self.put(place, object, What::Added)
    }

    /// Writes an object as a whole, whatever there is of it.
    pub(super) fn apply(&mut self, object: Value, force: bool) -> Result<Arc<Value>, Refusal> {
        let place = self.place(&object)?;
        match self.objects.get(&place).cloned() {
            Some(known) if force || Expected::of(&object).version.is_some() => {
                Expected::of(&object).check(&known)?;
                self.replace(&place, &known, object)
            }
            Some(_) => Err(Refusal::Conflict),
            None if Expected::of(&object).uid.is_some() => Err(Refusal::Another),
            None => self.create(object),
        }
    }

    /// Changes an object that is there.
    pub(super) fn change(
        &mut self,
        place: &Place,
        expected: &Expected,
        change: impl FnOnce(&mut Value),
    ) -> Result<Arc<Value>, Refusal> {
        let known = self.get(place).ok_or(Refusal::NotFound)?;
        expected.check(&known)?;
        let mut object = known.as_ref().clone();
        change(&mut object);
        self.replace(place, &known, object)
    }

    pub(super) fn delete(&mut self, place: &Place, expected: &Expected) -> Result<Arc<Value>, Refusal> {
        let known = self.get(place).ok_or(Refusal::NotFound)?;
        expected.check(&known)?;
        if place.is_written() {
            match fs::remove_file(self.path(place)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        self.objects.remove(place);
        let mut object = known.as_ref().clone();
        set_metadata(&mut object, "resourceVersion", json!(self.next_version()));
        Ok(self.note(place.clone(), Arc::new(object), What::Deleted))
    }

    /// Where an object that is written belongs.
    fn place(&self, object: &Value) -> Result<Place, Refusal> {
        Place::of(object).ok_or_else(|| Refusal::NotTaken("it has no apiVersion, kind and name".to_owned()))
    }

    fn replace(&mut self, place: &Place, known: &Value, mut object: Value) -> Result<Arc<Value>, Refusal> {
        follow(known, &mut object);
        self.put(place.clone(), object, What::Modified)
    }

    /// Writes an object to its file, and only then here.
    fn put(&mut self, place: Place, mut object: Value, what: What) -> Result<Arc<Value>, Refusal> {
        set_metadata(&mut object, "resourceVersion", json!(self.next_version()));
        // A ConfigMap that a file declares is only read.
        if place.is_written() && (place.plural != "configmaps" || file(&object).is_none()) {
            write(&self.path(&place), &object)?;
        }
        Ok(self.keep(place, object, what))
    }

    fn keep(&mut self, place: Place, mut object: Value, what: What) -> Arc<Value> {
        set_metadata(&mut object, "resourceVersion", json!(self.next_version()));
        let object = Arc::new(object);
        self.objects.insert(place.clone(), object.clone());
        self.note(place, object, what)
    }

    fn next_version(&self) -> String {
        self.version.saturating_add(1).to_string()
    }

    fn note(&mut self, place: Place, object: Arc<Value>, what: What) -> Arc<Value> {
        self.version = self.version.saturating_add(1);
        self.changes.push_back(Change { version: self.version, what, place, object: object.clone() });
        if self.changes.len() > MOST_CHANGES {
            self.changes.pop_front();
        }
        self.changed.send_replace(self.version);
        object
    }

    fn path(&self, place: &Place) -> PathBuf {
        self.status.join(&place.plural).join(&place.namespace).join(format!("{}.yaml", place.name))
    }
}

/// The same object, which can no longer be used.
fn refused(object: &Value, why: &str) -> Value {
    let mut object = declared(object);
    set(&mut object, REFUSED, Some(json!(why)));
    object
}

/// Makes an object the next version of one that is known.
fn follow(known: &Value, object: &mut Value) {
    for field in ["uid", "creationTimestamp"] {
        set_metadata(object, field, json!(metadata(known, field)));
    }
    let changed = content(known) != content(object);
    set_metadata(object, "generation", json!(generation(known).saturating_add(i64::from(changed))));
}

/// A name that no other object has.
fn uid() -> String {
    let [high, low] = [fastrand::u64(..), fastrand::u64(..)];
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// The files that this program wrote: PLURAL/NAMESPACE/NAME.yaml.
fn written(status: &Path) -> io::Result<Vec<PathBuf>> {
    let mut level = vec![status.to_owned()];
    for _ in 0..3 {
        let mut below = Vec::new();
        for path in level.into_iter().filter(|path| path.is_dir()) {
            for entry in fs::read_dir(path)? {
                below.push(entry?.path());
                if below.len() > MOST_WRITTEN {
                    return Err(io::Error::other(format!(
                        "found more than {MOST_WRITTEN} files, which is the most that is read: remove what the \
                         aggregator did not write"
                    )));
                }
            }
        }
        level = below;
    }
    // One that was being written when its process ended has another ending.
    level.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    level.sort();
    Ok(level)
}

fn read(path: &Path) -> Result<(Place, Value), String> {
    let text = super::files::read(path, LONGEST_WRITTEN)?;
    let object: Value = yaml::from_str(&text)?;
    let place = Place::of(&object).filter(Place::is_written);
    place.map(|place| (place, object)).ok_or_else(|| "it is no object that the aggregator writes".to_owned())
}

/// Writes a file beside it and gives that its name, so that nobody reads half of one.
fn write(path: &Path, object: &Value) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let text = serde_saphyr::to_string(object).ok();
    let same = |text: &String| yaml::from_str::<Value>(text).is_ok_and(|read| read == *object);
    // JSON is YAML, too.
    let text = text.filter(same).unwrap_or_else(|| format!("{object}\n"));
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::File::options().write(true).create_new(true).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
