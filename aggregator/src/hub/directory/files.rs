//! The files of the directory, and the objects that they declare.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use statusbridge_api::GROUP;
use statusbridge_api::names::is_subdomain;
use statusbridge_expression::yaml;
use tracing::error;

use super::schema::{Schemas, shown};
use super::stored::{FILE, Place, REFUSED, set, set_metadata};

/// Most files, and most bytes of one and of all together.
const MOST_FILES: usize = 1000;
const LONGEST: u64 = 4 << 20;
const MOST_BYTES: u64 = 32 << 20;
/// Most objects of all files.
const MOST_OBJECTS: usize = 10_000;
/// Namespace of an object that names none.
const NAMESPACE: &str = "default";
/// Longest name: a file is named after it.
const LONGEST_NAME: usize = 240;

/// What files say; why one cannot be read.
type Texts = BTreeMap<String, Result<String, String>>;

/// What all files declare.
#[derive(Debug, Default)]
pub(super) struct Declared {
    /// Objects; those that cannot be used say why in [`REFUSED`].
    pub(super) objects: BTreeMap<Place, Value>,
    /// Files of which a part cannot be read, and why: any object may be meant.
    pub(super) broken: BTreeMap<String, String>,
}

/// The files of a directory as they were seen.
pub(super) struct Files {
    directory: PathBuf,
    schemas: Schemas,
    last: Option<Texts>,
    /// What was the same in two looks one after the other, so that nobody is still writing any of it.
    settled: Texts,
    /// Whether that counts no longer.
    is_lost: bool,
    /// What was last said to be wrong.
    said: Vec<String>,
}

/// What a look at the files has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looked {
    /// What they said before.
    Same,
    /// Something else, in two looks.
    Changed,
    /// Something else than a look ago.
    Unsettled,
}

impl Files {
    pub(super) fn new(directory: PathBuf, schemas: Schemas) -> Self {
        Self { directory, schemas, last: None, settled: Texts::new(), is_lost: true, said: Vec::new() }
    }

    /// Looks at all files. They change together: of two files that belong together never one is new and the other old.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(super) fn look(&mut self) -> io::Result<Looked> {
        let now = texts(&self.directory)?;
        if self.last.as_ref() != Some(&now) {
            self.last = Some(now);
            return Ok(Looked::Unsettled);
        }
        if self.settled == now && !self.is_lost {
            return Ok(Looked::Same);
        }
        (self.settled, self.is_lost) = (now, false);
        Ok(Looked::Changed)
    }

    /// What they declare when nobody knows what they say: all of them are broken, for this reason.
    pub(super) fn lose(&mut self, why: &str) -> Declared {
        self.is_lost = true;
        let broken = self.settled.keys().map(|name| (name.clone(), format!("{name}: {why}"))).collect();
        Declared { objects: BTreeMap::new(), broken }
    }

    /// What the files declare. What is wrong is logged once.
    pub(super) fn read(&mut self) -> Declared {
        let mut declared = Declared::default();
        for (name, text) in &self.settled {
            match text {
                Ok(text) => self.add(&mut declared, name, text),
                Err(error) => drop(declared.broken.insert(name.clone(), format!("{name}: {error}"))),
            }
        }
        let refused = declared.objects.values().filter_map(|object| object.get(REFUSED)?.as_str());
        let wrong: Vec<String> =
            declared.broken.values().map(String::as_str).chain(refused).map(str::to_owned).collect();
        for wrong in wrong.iter().filter(|wrong| !self.said.contains(wrong)) {
            error!(error = wrong, "a file cannot be used: gates that it may be about are closed");
        }
        self.said = wrong;
        declared
    }

    fn add(&self, declared: &mut Declared, file: &str, text: &str) {
        let documents = yaml::documents(text);
        let why = match () {
            () if documents.is_empty() => {
                "found no object: remove the file if what it declared is to be removed"
            }
            () if !text.ends_with('\n') => {
                "found no newline at the end, so that it may be half written: add one"
            }
            () => "",
        };
        if !why.is_empty() {
            declared.broken.insert(file.to_owned(), format!("{file}: {why}"));
            return;
        }
        let several = documents.len() > 1;
        for (number, document) in documents.into_iter().enumerate() {
            let at = if several { format!("{file}, document {}", number + 1) } else { file.to_owned() };
            let object = yaml::from_str::<Value>(&document);
            if let Err(error) = object.and_then(|object| self.object(declared, file, &at, object)) {
                declared.broken.entry(file.to_owned()).or_insert_with(|| format!("{at}: {error}"));
            }
        }
    }

    /// Takes in an object.
    fn object(&self, declared: &mut Declared, file: &str, at: &str, mut object: Value) -> Result<(), String> {
        let place = Place::of(&object)
            .ok_or("found no Kubernetes object: expected apiVersion, kind and metadata.name, each a text")?;
        if place.namespace.is_empty() {
            set_metadata(&mut object, "namespace", json!(NAMESPACE));
        }
        let place = Place::of(&object).unwrap_or(place);
        for (field, name, most) in [("namespace", &place.namespace, 63), ("name", &place.name, LONGEST_NAME)]
        {
            if name.len() > most || !is_subdomain(name) {
                return Err(format!(
                    "metadata.{field}: found {name:?}, expected a name of at most {most} small letters, digits, hyphens \
                     and dots"
                ));
            }
        }
        for field in ["labels", "annotations"] {
            let texts = object.pointer(&format!("/metadata/{field}")).filter(|texts| !texts.is_null());
            let are_texts = |it: &Map<String, Value>| it.values().all(Value::is_string);
            if let Some(texts) = texts.filter(|texts| !texts.as_object().is_some_and(are_texts)) {
                return Err(format!(
                    "metadata.{field}: found {}, expected a map of texts (put numbers in quotes)",
                    shown(texts)
                ));
            }
        }
        if place.kind().is_none() && place.is_written() && place.plural != "configmaps" {
            let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
            return Err(format!(
                "kind: found {kind} of {}, expected FleetPackage, RolloutGate, RolloutFreeze or RolloutApproval of {GROUP}, a ClusterProfile, or an \
                 object that a FleetPackage refers to",
                place.group
            ));
        }
        if declared.objects.len() >= MOST_OBJECTS {
            return Err(format!(
                "found more than {MOST_OBJECTS} objects in all files, which is the most that is read"
            ));
        }
        let mut refused = None;
        if let Some(kind) = place.kind() {
            set(&mut object, "status", None);
            set(&mut object, REFUSED, None);
            refused = self.schemas.check(kind, &mut object).err();
        }
        own_metadata(&mut object, file);
        if let Some(other) = declared.objects.get(&place) {
            let other = super::stored::file(other).unwrap_or_default();
            let twice = format!("{place} is declared twice, in {other} too: expected one of them");
            if place.kind().is_none() {
                return Err(twice);
            }
            refused = Some(twice);
        }
        if let Some(refused) = refused {
            set(&mut object, REFUSED, Some(json!(format!("{at}: {refused}"))));
        }
        declared.objects.insert(place, object);
        Ok(())
    }
}

/// Leaves of the metadata what people say, and says where it was read.
fn own_metadata(object: &mut Value, file: &str) {
    let annotations = object.pointer("/metadata/annotations").cloned();
    let mut annotations = annotations.filter(Value::is_object).unwrap_or_else(|| json!({}));
    set(&mut annotations, FILE, Some(json!(file)));
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| ["name", "namespace", "labels"].contains(&field.as_str()));
    }
    set_metadata(object, "annotations", annotations);
}

/// The texts of all files right in the directory that end like YAML.
fn texts(directory: &Path) -> io::Result<Texts> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if (name.ends_with(".yaml") || name.ends_with(".yml")) && !name.starts_with('.') {
            names.push((name, entry.path()));
        }
    }
    if names.len() > MOST_FILES {
        return Err(io::Error::other(format!(
            "found {} files, and at most {MOST_FILES} are read: move some of them elsewhere",
            names.len()
        )));
    }
    names.sort();
    let mut left = MOST_BYTES;
    let mut texts = Texts::new();
    for (name, path) in names {
        let text = read(&path, left.min(LONGEST));
        left = left.saturating_sub(text.as_ref().map_or(0, |text| text.len() as u64));
        texts.insert(name, text);
    }
    Ok(texts)
}

/// A file of at most so many bytes.
pub(super) fn read(path: &Path, most: u64) -> Result<String, String> {
    let read = || {
        // Whoever opens a pipe waits until somebody writes to it.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut text = String::new();
        fs::File::open(path)?.take(most + 1).read_to_string(&mut text)?;
        io::Result::Ok(text)
    };
    match read() {
        Ok(text) if text.len() as u64 > most => Err(format!(
            "found more than {most} bytes: at most {LONGEST} are read of a file, and {MOST_BYTES} of all together"
        )),
        Ok(text) => Ok(text),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}
