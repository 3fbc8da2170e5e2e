//! Who refers to what, what is known of it, and what follows. Plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use statusbridge_api::{Reason, RevisionFrom};

use super::evaluation::{Evaluated, Evaluation, Reading};
use super::object::{Object, ReadObject};
use super::reference::{Place, Reference};
use super::resolution::{Resolution, unresolved};
use super::turns::Turns;
use crate::reconcile::object::Key;

/// For how long what an object gave is believed while another version of it waits to be evaluated.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time from one evaluation of an expression on an object to the next, so that an object that changes all
/// the time has its FleetPackages judged no oftener.
const BETWEEN: Duration = Duration::from_secs(1);

/// What a watch found out.
#[derive(Debug, Clone)]
pub enum News {
    /// All objects of these names that there are.
    Listed {
        /// The names that were looked for.
        asked: BTreeSet<String>,
        /// The objects that were found.
        objects: BTreeMap<String, ReadObject>,
    },
    /// An object as it is now; `None` when it was deleted.
    Changed(String, Option<ReadObject>),
    /// Nothing is known any more.
    Failed(Failure),
}

/// Why objects of a kind cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// There is no such kind.
    NotServed,
    /// It is no kind to be read; says why.
    Unfit(String),
    /// The right to do `verb` on `resource` is missing.
    Forbidden {
        /// `list` or `watch`.
        verb: &'static str,
        /// The resource with its group.
        resource: String,
    },
    /// The API server fails to answer, for too long.
    NotAnswered(String),
}

/// Kinds that FleetPackages of one namespace may refer to, at most: each takes a watch of the hub.
pub(super) const MOST_PLACES: usize = 32;

/// The references of all FleetPackages.
#[derive(Debug, Default)]
pub struct Ledger {
    packages: BTreeMap<Key, Entry>,
    places: BTreeMap<Place, Known>,
    /// One for all FleetPackages that have the same expression on the same object.
    readings: BTreeMap<Arc<Reference>, Reading>,
    turns: Turns,
}

#[derive(Debug)]
struct Entry {
    from: RevisionFrom,
    reference: Result<Arc<Reference>, String>,
    resolution: Resolution,
}

#[derive(Debug, Default)]
enum Known {
    #[default]
    Nothing,
    Objects {
        asked: BTreeSet<String>,
        objects: BTreeMap<String, ReadObject>,
    },
    Failed(Failure),
}

/// An object that is looked for from now on, and one that no longer is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Nobody asked for it before.
    pub added: Option<(Place, String)>,
    /// Nobody asks for it any more.
    pub dropped: Option<(Place, String)>,
}

impl Ledger {
    /// What a FleetPackage's reference comes to. What was found for another reference than `from`
    /// does not count.
    pub(crate) fn resolution(&self, package: &Key, from: &RevisionFrom) -> &Resolution {
        match self.packages.get(package) {
            Some(entry) if entry.from == *from => &entry.resolution,
            _ => &Resolution::Pending,
        }
    }

    /// Takes note of what a FleetPackage refers to now.
    pub fn ask(&mut self, package: &Key, from: Option<&RevisionFrom>, now: Duration) -> Change {
        if self.packages.get(package).map(|entry| &entry.from) == from {
            return Change::default();
        }
        let reference = from.map(|from| self.check(&package.namespace, from).map(Arc::new));
        let before = self.packages.remove(package).and_then(|entry| entry.reference.ok());
        let mut change = Change::default();
        if let Some(Ok(reference)) = &reference {
            change.added = self.add(package, reference, now).then(|| reference.object());
        }
        if let Some(before) = before {
            change.dropped = self.forget(package, &before).then(|| before.object());
        }
        if let (Some(from), Some(reference)) = (from, reference) {
            let resolution = match &reference {
                Err(error) => unresolved(Reason::InvalidSpec, true, error),
                Ok(reference) => self.resolve(reference),
            };
            self.packages.insert(package.clone(), Entry { from: from.clone(), reference, resolution });
        }
        change
    }

    /// A reference that can be followed, of a FleetPackage in this namespace.
    fn check(&self, namespace: &str, from: &RevisionFrom) -> Result<Reference, String> {
        let reference = Reference::check(namespace, from)?;
        let others = self.places.keys().filter(|place| place.namespace == namespace).count();
        if others >= MOST_PLACES && !self.places.contains_key(&reference.place) {
            return Err(format!(
                "FleetPackages of this namespace already refer to objects of {MOST_PLACES} kinds, which are as many as are \
                 watched: refer to one of these kinds"
            ));
        }
        Ok(reference)
    }

    /// Notes who refers to an object; whether nobody did before.
    fn add(&mut self, package: &Key, reference: &Arc<Reference>, now: Duration) -> bool {
        let is_first = self.references_to(&reference.place, Some(&reference.name)).next().is_none();
        self.places.entry(reference.place.clone()).or_default();
        self.readings.entry(reference.clone()).or_default().askers.insert(package.clone());
        self.look(reference, now, now);
        is_first
    }

    /// Notes that a FleetPackage no longer refers to an object; whether nobody does now.
    fn forget(&mut self, package: &Key, reference: &Arc<Reference>) -> bool {
        let Some(reading) = self.readings.get_mut(reference) else { return false };
        reading.askers.remove(package);
        if !reading.askers.is_empty() {
            return false;
        }
        if let Some(due) = reading.due {
            self.turns.remove(due, reference);
        }
        self.readings.remove(reference);
        let Reference { place, name, .. } = &**reference;
        if self.references_to(place, Some(name)).next().is_some() {
            return false;
        }
        if self.references_to(place, None).next().is_none() {
            self.places.remove(place);
        } else if let Some(Known::Objects { asked, objects }) = self.places.get_mut(place) {
            asked.remove(name);
            objects.remove(name);
        }
        true
    }

    /// The references to an object, or to all objects of a place.
    fn references_to<'a>(
        &'a self,
        place: &'a Place,
        name: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Reference>> {
        let name_of_first = name.unwrap_or_default().to_owned();
        let first = Reference { place: place.clone(), name: name_of_first, expression: String::new() };
        let is_one =
            move |it: &&Arc<Reference>| it.place == *place && name.is_none_or(|name| it.name == name);
        self.readings.range(first..).map(|(reference, _)| reference).take_while(is_one)
    }

    /// Takes in what a watch found out, and says for which FleetPackages something else follows now.
    pub fn take(&mut self, place: &Place, news: News, now: Duration) -> BTreeSet<Key> {
        let name = if let News::Changed(name, _) = &news { Some(name.clone()) } else { None };
        let is_newer = matches!(&news, News::Changed(_, Some(Ok(_))));
        // Nothing follows from yet another version for those that wait for their turn anyway.
        let waits = |it: &Arc<Reference>| self.readings.get(it).is_some_and(|it| it.due.is_some());
        let concerned = self.references_to(place, name.as_deref()).filter(|it| !(is_newer && waits(it)));
        let concerned: Vec<_> = concerned.cloned().collect();
        let Some(known) = self.places.get_mut(place) else { return BTreeSet::new() };
        known.take(news, &concerned.iter().map(|it| it.name.as_str()).collect());
        concerned
            .iter()
            .flat_map(|reference| {
                self.look(reference, now, now);
                self.resolve_again(reference)
            })
            .collect()
    }

    /// Has the newest version of an object wait for its evaluation, which it has done `since`, where it was
    /// not evaluated yet. Nothing is kept of one that is not there.
    fn look(&mut self, reference: &Arc<Reference>, since: Duration, now: Duration) {
        let newest = self.places.get(&reference.place).and_then(|known| known.object(&reference.name));
        let Some(reading) = self.readings.get_mut(reference) else { return };
        let Some(newest) = newest else {
            if let Some(due) = reading.forget() {
                self.turns.remove(due, reference);
            }
            return;
        };
        if let Some(due) = reading.wait(newest, since, now) {
            self.turns.push(due, reference.clone());
        }
    }

    /// What is to be evaluated next, if it is somebody's turn.
    pub fn next(&mut self, now: Duration) -> Option<Evaluation> {
        let reference = self.turns.next(now)?;
        let object = self.places.get(&reference.place)?.object(&reference.name)?.clone();
        let reading = self.readings.get_mut(&reference)?;
        Some(reading.begin(reference, object, now))
    }

    /// Takes in what an evaluation gave, and says for which FleetPackages something else follows now.
    pub fn evaluated(&mut self, done: Evaluated, now: Duration) -> BTreeSet<Key> {
        let Evaluated { evaluation, found, took } = done;
        let (reference, began) = (evaluation.reference.clone(), evaluation.began);
        self.turns.charge(&reference.place.namespace, took, now);
        let Some(reading) = self.readings.get_mut(&reference) else { return BTreeSet::new() };
        reading.end(evaluation, found, now + BETWEEN);
        self.look(&reference, began, now);
        self.resolve_again(&reference)
    }

    /// Believes no longer what waits too long for its evaluation. For which FleetPackages something else
    /// follows now.
    pub fn expire(&mut self, now: Duration) -> BTreeSet<Key> {
        let is_late = |it: &Reading| it.since.is_some_and(|since| now.saturating_sub(since) >= PATIENCE);
        let mut late = Vec::new();
        for (reference, reading) in self.readings.iter_mut().filter(|(_, it)| !it.late && is_late(it)) {
            reading.late = true;
            late.push(reference.clone());
        }
        late.iter().flat_map(|reference| self.resolve_again(reference)).collect()
    }

    fn resolve_again(&mut self, reference: &Arc<Reference>) -> BTreeSet<Key> {
        let resolution = self.resolve(reference);
        let askers = self.readings.get(reference).map(|it| it.askers.clone()).unwrap_or_default();
        let differs = |package: &Key| {
            self.packages.get_mut(package).is_some_and(|entry| {
                std::mem::replace(&mut entry.resolution, resolution.clone()) != resolution
            })
        };
        askers.into_iter().filter(differs).collect()
    }

    fn resolve(&self, reference: &Reference) -> Resolution {
        match (self.places.get(&reference.place), self.readings.get(reference)) {
            (Some(known), Some(reading)) => known.resolve(reference, reading),
            _ => Resolution::Pending,
        }
    }
}

impl Known {
    fn take(&mut self, news: News, names: &BTreeSet<&str>) {
        match news {
            News::Failed(failure) => *self = Self::Failed(failure),
            News::Listed { mut asked, mut objects } => {
                asked.retain(|name| names.contains(name.as_str()));
                objects.retain(|name, _| names.contains(name.as_str()));
                *self = Self::Objects { asked, objects };
            }
            News::Changed(name, object) => {
                if let Self::Objects { asked, objects } = self
                    && asked.contains(&name)
                {
                    match object {
                        Some(object) => objects.insert(name, object),
                        None => objects.remove(&name),
                    };
                }
            }
        }
    }

    fn object(&self, name: &str) -> Option<&Arc<Object>> {
        if let Self::Objects { objects, .. } = self { objects.get(name)?.as_ref().ok() } else { None }
    }

    fn resolve(&self, reference: &Reference, reading: &Reading) -> Resolution {
        let Reference { place: Place { api_version, kind, .. }, name, .. } = reference;
        match self {
            Self::Nothing => Resolution::Pending,
            Self::Objects { objects, .. } if objects.contains_key(name) => {
                if let Some(Err(refusal)) = objects.get(name) {
                    return unresolved(Reason::RevisionUnreadable, false, &refusal.message(reference));
                }
                if !reading.late {
                    return reading.found.clone();
                }
                let message = format!(
                    "{kind} {name:?}: the expression has waited {} s for its turn, as those of this namespace \
                     take too long",
                    PATIENCE.as_secs()
                );
                unresolved(Reason::RevisionUnreadable, false, &message)
            }
            Self::Objects { asked, .. } if asked.contains(name) => {
                let message = format!("there is no {kind} {name:?} in this namespace");
                unresolved(Reason::RevisionNotFound, false, &message)
            }
            Self::Objects { .. } => Resolution::Pending,
            Self::Failed(Failure::NotServed) => {
                let message = format!("the hub has no kind {kind} in {api_version} (yet)");
                unresolved(Reason::RevisionNotFound, false, &message)
            }
            Self::Failed(Failure::Unfit(why)) => unresolved(Reason::InvalidSpec, true, why),
            Self::Failed(Failure::Forbidden { verb, resource }) => {
                let message = format!("the aggregator may not {verb} {resource} in this namespace");
                unresolved(Reason::RevisionForbidden, true, &message)
            }
            Self::Failed(Failure::NotAnswered(error)) => {
                let message = format!("{kind} {name:?} cannot be read: {error}");
                unresolved(Reason::RevisionUnreadable, false, &message)
            }
        }
    }
}
