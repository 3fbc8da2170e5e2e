//! All that comes of some saved objects.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    driver::{Failure, Object, Rehearsal},
    package::{Package, PackageId, Transition},
};
use crate::{
    recording::{Hidden, Kinds, group_kind, in_order, key, timeline, version},
    saved::{Remark, SavedEvent, SavedObject},
    source::{KindRef, ResourceLabel, ResourceSet, Source},
    state::{Limits, Snapshot},
    watch::PackageKey,
};

/// What time it is when an object comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Always this, in unix milliseconds.
    Fixed(i64),
    /// As the times in the objects say; the given time, in unix milliseconds, where they say nothing.
    FromObjects(i64),
}

/// All that came of a rehearsal.
#[derive(Debug, Clone)]
pub struct History {
    /// What is shown in the end.
    pub packages: BTreeMap<PackageId, Package>,
    /// Every change, in order.
    pub transitions: Vec<Transition>,
    /// Objects on which an expression failed.
    pub failures: Vec<Remark>,
    /// Objects that no source reads, or reads at another version or with other labels.
    pub unread: Vec<Remark>,
    /// Fields that a source reads and no kind has, where the kinds' definitions are among the objects.
    pub unknown_fields: Vec<String>,
    /// What a scrape would read in the end.
    pub snapshot: Snapshot,
}

/// Has the engine go through saved objects.
pub fn rehearse(
    sources: Vec<Arc<Source>>,
    objects: Vec<SavedObject>,
    limits: Limits,
    clock: Clock,
) -> History {
    let objects = in_order(objects);
    let kinds = Kinds::of(&objects);
    let names = Names::of(&objects);
    let unknown_fields = sources.iter().flat_map(|source| kinds.unknown_fields(source)).collect();
    let (fixed, fallback) = match clock {
        Clock::Fixed(now) => (Some(now), now),
        Clock::FromObjects(now) => (None, now),
    };
    let (versions, begin) = timeline(objects, fallback);
    let later = versions.iter().position(|version| !version.is_first).unwrap_or(versions.len());
    let mut first = versions;
    let later = first.split_off(later);
    let mut now = fixed.unwrap_or(begin);
    let first = first.into_iter().filter_map(|version| version.object).collect();
    let (mut rehearsal, mut transitions) = Rehearsal::begin(sources, limits, kinds, first, now);
    for version in later {
        now = fixed.unwrap_or(version.at);
        transitions.extend(match version.object {
            Some(object) => rehearsal.put(object, now),
            None => rehearsal.take_away(&version.kind, &version.key, now),
        });
    }
    let snapshot = rehearsal.snapshot(now);
    let failures = rehearsal.failures.iter().map(|failure| names.failure(failure)).collect();
    let unread = names.unread(&rehearsal);
    History { packages: rehearsal.packages, transitions, failures, unread, unknown_fields, snapshot }
}

/// What saved objects are called, and where they stand.
struct Names {
    /// By object, the places of its versions.
    origins: HashMap<Object, Vec<String>>,
    /// The first version of each object, in order: kind, name and version for people.
    all: Vec<(Object, String, Value)>,
}

impl Names {
    fn of(objects: &[SavedObject]) -> Self {
        let mut names = Self { origins: HashMap::new(), all: Vec::new() };
        for saved in objects {
            let object = (group_kind(&saved.value), key(&saved.value));
            let origins = names.origins.entry(object.clone()).or_default();
            if origins.is_empty() {
                // What tells whether it is read.
                let labels = saved.value.get("metadata").and_then(|metadata| metadata.get("labels"));
                let shell = serde_json::json!({"apiVersion": saved.value.get("apiVersion"), "metadata": {"labels": labels}});
                names.all.push((object, saved.origin.clone(), shell));
            }
            if origins.is_empty() || saved.event != Some(SavedEvent::Deleted) {
                origins.push(saved.origin.clone());
            }
        }
        names
    }

    fn failure(&self, failure: &Failure) -> Remark {
        let origins = self.origins.get(&failure.object);
        let origin = origins.and_then(|all| all.get(failure.version.saturating_sub(1))).cloned();
        let ((_, kind), _) = &failure.object;
        let Failure { id, error, .. } = failure;
        Remark {
            origin: origin.unwrap_or_default(),
            message: format!("{kind} {id}: source {}: {error}", id.source),
        }
    }

    fn unread(&self, rehearsal: &Rehearsal) -> Vec<Remark> {
        let mut watched: HashMap<(&str, &str), HashSet<&KindRef>> = HashMap::new();
        for of in &rehearsal.watched {
            watched.entry((&of.group, &of.kind)).or_default().insert(of);
        }
        let resources = Resources::of(&rehearsal.resources);
        let mut unread = Vec::new();
        for (((group, kind), key), origin, object) in &self.all {
            if group == "apiextensions.k8s.io" && kind == "CustomResourceDefinition" {
                continue;
            }
            let watches = watched.get(&(group.as_str(), kind.as_str()));
            let mut hidden = Vec::new();
            let mut is_read = resources.have(group, kind, key, object);
            for of in watches.into_iter().flatten() {
                let shown = match rehearsal.kinds.view(of) {
                    Some(view) => view.shows(object),
                    None => Err(Hidden::OtherVersion),
                };
                match shown {
                    Ok(()) => is_read = true,
                    Err(why) => hidden.push(why_not(&rehearsal.sources, of, why, version(object))),
                }
            }
            if is_read {
                continue;
            }
            hidden.sort();
            let why = if hidden.is_empty() { "is read by no source".to_owned() } else { hidden.join("; ") };
            let name = match &key.namespace {
                Some(namespace) => format!("{namespace}/{}", key.name),
                None => key.name.to_string(),
            };
            let api = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
            unread.push(Remark { origin: origin.clone(), message: format!("{api} {kind} {name} {why}") });
        }
        unread
    }
}

/// What packages consist of, to look up.
struct Resources<'a> {
    /// By group, kind, namespace and name.
    named: HashSet<(&'a str, &'a str, Option<&'a str>, &'a str)>,
    labelled: HashSet<&'a ResourceLabel>,
}

impl<'a> Resources<'a> {
    fn of(set: &'a ResourceSet) -> Self {
        let named = set.objects.iter();
        let named = named.map(|it| (&*it.group, &*it.kind, it.namespace.as_deref(), &*it.name)).collect();
        Self { named, labelled: set.labelled.iter().collect() }
    }

    fn have(&self, group: &str, kind: &str, key: &PackageKey, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        let is_it = |it: &&ResourceLabel| {
            let value = labels.and_then(|labels| labels.get(&*it.label)?.as_str());
            (&*it.group, &*it.kind, Some(&*it.value)) == (group, kind, value)
        };
        self.named.contains(&(group, kind, key.namespace.as_deref(), &*key.name))
            || self.labelled.iter().copied().any(|it| is_it(&it))
    }
}

/// Why sources that read a kind do not read an object of it.
fn why_not(sources: &[Arc<Source>], of: &KindRef, why: Hidden, version: &str) -> String {
    let reads = |source: &&Arc<Source>| {
        let related = source.related.iter().flat_map(|related| &related.kinds);
        source.kinds.listed().iter().chain(related).any(|kind| kind == of)
    };
    let names: Vec<&str> = sources.iter().filter(reads).map(|source| source.name.as_str()).collect();
    let names = names.join(", ");
    match why {
        Hidden::OtherVersion => format!(
            "is at version {version}, where {names} reads {}: save it at that version, or its CustomResourceDefinition too \
             if the API server converts it",
            of.versions.join(" or ")
        ),
        Hidden::NotSelected => {
            let selector = of.selector.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("has not the labels that {names} selects: {selector}")
        }
    }
}
