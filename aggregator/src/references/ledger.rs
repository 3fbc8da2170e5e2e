//! Who refers to what, what is known of it, and what follows. Plain data.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::reference::{Place, Reference};
use crate::api::{Reason, RevisionFrom};
use crate::decide::Obstacle;
use crate::store::Key;

/// What a watch found out.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// All objects of these names that there are.
    Listed {
        /// The names that were looked for.
        asked: BTreeSet<String>,
        /// The objects that were found.
        objects: BTreeMap<String, Value>,
    },
    /// An object as it is now; `None` when it was deleted.
    Changed(String, Option<Value>),
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

/// What a reference comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The object has not been read yet.
    Pending,
    /// The revision that is wanted.
    Revision(String),
    /// None can be had.
    Unresolved(Obstacle),
}

/// The references of all FleetPackages.
#[derive(Debug, Default)]
pub struct Ledger {
    packages: BTreeMap<Key, Entry>,
    places: BTreeMap<Place, Contents>,
}

#[derive(Debug)]
struct Entry {
    from: RevisionFrom,
    reference: Result<Reference, String>,
    resolution: Resolution,
}

#[derive(Debug, Default)]
struct Contents {
    known: Known,
    /// Which FleetPackages refer to the object of a name.
    names: BTreeMap<String, BTreeSet<Key>>,
}

#[derive(Debug, Default)]
enum Known {
    #[default]
    Nothing,
    Objects {
        asked: BTreeSet<String>,
        objects: BTreeMap<String, Value>,
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
    pub fn resolution(&self, package: &Key, from: &RevisionFrom) -> &Resolution {
        match self.packages.get(package) {
            Some(entry) if entry.from == *from => &entry.resolution,
            _ => &Resolution::Pending,
        }
    }

    /// Takes note of what a FleetPackage refers to now.
    pub fn ask(&mut self, package: &Key, from: Option<&RevisionFrom>) -> Change {
        if self.packages.get(package).map(|entry| &entry.from) == from {
            return Change::default();
        }
        let reference = from.map(|from| Reference::check(&package.namespace, from));
        let object = reference.as_ref().and_then(|it| it.as_ref().ok()).map(Reference::object);
        let before = self.packages.remove(package).and_then(|entry| entry.reference.ok());
        let before = before.as_ref().map(Reference::object);
        let mut change = Change::default();
        if before != object {
            change.dropped = before.filter(|it| self.forget(package, it));
            change.added = object.filter(|it| self.index(package, it));
        }
        if let (Some(from), Some(reference)) = (from, reference) {
            let resolution = self.resolve(&reference);
            self.packages.insert(package.clone(), Entry { from: from.clone(), reference, resolution });
        }
        change
    }

    /// Notes who refers to an object; whether nobody did before.
    fn index(&mut self, package: &Key, (place, name): &(Place, String)) -> bool {
        let names = &mut self.places.entry(place.clone()).or_default().names;
        let askers = names.entry(name.clone()).or_default();
        askers.insert(package.clone());
        askers.len() == 1
    }

    /// Notes that a FleetPackage no longer refers to an object; whether nobody does now.
    fn forget(&mut self, package: &Key, (place, name): &(Place, String)) -> bool {
        let Some(contents) = self.places.get_mut(place) else { return false };
        let Some(askers) = contents.names.get_mut(name) else { return false };
        askers.remove(package);
        if !askers.is_empty() {
            return false;
        }
        contents.names.remove(name);
        if let Known::Objects { asked, objects } = &mut contents.known {
            asked.remove(name);
            objects.remove(name);
        }
        if contents.names.is_empty() {
            self.places.remove(place);
        }
        true
    }

    /// Takes in what a watch found out, and says for which FleetPackages something else follows now.
    pub fn take(&mut self, place: &Place, news: News) -> BTreeSet<Key> {
        let Some(contents) = self.places.get_mut(place) else { return BTreeSet::new() };
        let concerned: BTreeSet<Key> = match &news {
            News::Changed(name, _) => contents.names.get(name).cloned().unwrap_or_default(),
            News::Listed { .. } | News::Failed(_) => contents.names.values().flatten().cloned().collect(),
        };
        contents.take(news);
        concerned.into_iter().filter(|package| self.resolve_again(package)).collect()
    }

    fn resolve_again(&mut self, package: &Key) -> bool {
        let Some(entry) = self.packages.get(package) else { return false };
        let resolution = self.resolve(&entry.reference);
        let Some(entry) = self.packages.get_mut(package) else { return false };
        let changed = entry.resolution != resolution;
        entry.resolution = resolution;
        changed
    }

    fn resolve(&self, reference: &Result<Reference, String>) -> Resolution {
        match reference {
            Err(error) => unresolved(Reason::InvalidSpec, true, error),
            Ok(reference) => match self.places.get(&reference.place) {
                Some(contents) => contents.resolve(reference),
                None => Resolution::Pending,
            },
        }
    }
}

impl Contents {
    fn take(&mut self, news: News) {
        match news {
            News::Failed(failure) => self.known = Known::Failed(failure),
            News::Listed { mut asked, mut objects } => {
                asked.retain(|name| self.names.contains_key(name));
                objects.retain(|name, _| self.names.contains_key(name));
                self.known = Known::Objects { asked, objects };
            }
            News::Changed(name, object) => {
                if let Known::Objects { asked, objects } = &mut self.known
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

    fn resolve(&self, reference: &Reference) -> Resolution {
        let Reference { place: Place { api_version, kind, .. }, name, .. } = reference;
        match &self.known {
            Known::Nothing => Resolution::Pending,
            Known::Objects { asked, objects } => match objects.get(name) {
                Some(object) => match reference.read(object) {
                    Ok(revision) => Resolution::Revision(revision),
                    Err(error) => {
                        unresolved(Reason::RevisionInvalid, false, &format!("{kind} {name:?}: {error}"))
                    }
                },
                None if asked.contains(name) => {
                    let message = format!("there is no {kind} {name:?} in this namespace");
                    unresolved(Reason::RevisionNotFound, false, &message)
                }
                None => Resolution::Pending,
            },
            Known::Failed(Failure::NotServed) => {
                let message = format!("the hub has no kind {kind} in {api_version} (yet)");
                unresolved(Reason::RevisionNotFound, false, &message)
            }
            Known::Failed(Failure::Unfit(why)) => unresolved(Reason::InvalidSpec, true, why),
            Known::Failed(Failure::Forbidden { verb, resource }) => {
                let message = format!("the aggregator may not {verb} {resource} in this namespace");
                unresolved(Reason::RevisionForbidden, true, &message)
            }
            Known::Failed(Failure::NotAnswered(error)) => {
                let message = format!("{kind} {name:?} cannot be read: {error}");
                unresolved(Reason::RevisionUnreadable, false, &message)
            }
        }
    }
}

fn unresolved(reason: Reason, stalled: bool, message: &str) -> Resolution {
    Resolution::Unresolved(Obstacle { reason, stalled, message: format!("revisionFrom: {message}") })
}
