//! Looking at what packages consist of.
//!
//! An object does not say which revision it has. So two things have to be known before a package is
//! Current: that each of its objects was read after the package was applied (see `resource_kind`), and
//! that the package, read after that, still says the same: else they may be those of the next one.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;
use statusbridge_contract::Health;
use tracing::warn;

use super::{
    Engine,
    command::Command,
    due::Due,
    journal::Entry,
    key::{Key, Referrer},
    listing::Listing,
    published::Visibility,
    resource_kind::{Origin, ResourceKind},
    source_state::PackageResources,
};
use crate::{
    clock::Moment,
    source::{KindRef, ResourceRef, ResourceSet, ResourceSummary},
    state::soak::Known,
    watch::{Change, KindId, PackageKey, ReadRequest, Reading, SourceId},
};

/// More single reads of one kind than this are one read of all its objects.
const MANY: usize = 100;

impl Engine {
    /// What the objects of a package say, and what to remember about them.
    pub(super) fn look_at_resources(
        &mut self,
        source: SourceId,
        package: &Key,
        known: Option<Box<PackageResources>>,
        set: ResourceSet,
        at: Moment,
    ) -> (Box<PackageResources>, ResourceSummary) {
        let mut resources = match known {
            Some(known) if known.basis == set.basis => known,
            other => {
                let new = self.link_resources(source, package, &set, at);
                if let Some(old) = other {
                    self.unlink_resources(source, package, &old);
                }
                new
            }
        };
        if set.applied && resources.since.is_none() {
            resources.since = Some(self.count);
        }
        // What is not applied cannot be healthy: anything known is good enough to be shown.
        let since = resources.since.unwrap_or(0);
        let mut summary = ResourceSummary::default();
        let now = self.count;
        for (kind, key) in &resources.objects {
            let state = &mut self.kinds[*kind];
            let Some(of) = &mut state.resources else { continue };
            let (found, wanted) = of.state(state.listing, key, since, now);
            if wanted {
                self.to_read.entry(*kind).or_default().push(Reading::Object((**key).clone()));
            }
            summary.add(&found, || named(&state.of, Some(key)));
        }
        for (kind, (label, value)) in &resources.labelled {
            let state = &mut self.kinds[*kind];
            let Some(of) = &mut state.resources else { continue };
            let (found, wanted) = of.states(state.listing, (label, value), since, now);
            if wanted {
                let reading = Reading::Labelled { label: (**label).into(), value: (**value).into() };
                self.to_read.entry(*kind).or_default().push(reading);
            }
            for (key, found) in found {
                summary.add(&found, || named(&state.of, key.as_deref()));
            }
        }
        if summary.health != Health::Current {
            (resources.current, resources.confirmed) = (None, false);
        } else if set.applied && !resources.confirmed {
            if resources.current.is_none() {
                resources.current = Some(now);
                self.confirm(source, package);
            }
            summary.wait();
        }
        (resources, summary)
    }

    /// Has a package read once more.
    fn confirm(&mut self, source: SourceId, package: &Key) {
        if let Some((kind, key)) = self.object_of(source, package) {
            self.to_read.entry(kind).or_default().push(Reading::Object((*key).clone()));
            self.readers[source].unconfirmed.insert(package.clone());
        }
    }

    /// Packages were read once more, as asked for at `asked`.
    pub(super) fn confirmed(
        &mut self,
        kind: KindId,
        reading: &Reading,
        objects: Vec<(PackageKey, Value)>,
        asked: u64,
    ) {
        let objects: HashMap<Key, Value> = objects.into_iter().map(|(k, o)| (Arc::new(k), o)).collect();
        for source in self.sources_of(kind) {
            let packages: Vec<Key> = match reading {
                Reading::Object(key) => {
                    self.package_of(source, kind, &Arc::new(key.clone())).into_iter().collect()
                }
                _ => self.readers[source].unconfirmed.iter().cloned().collect(),
            };
            for package in packages {
                let Some((own, key)) = self.object_of(source, &package) else { continue };
                let Some(found) = self.readers[source].packages.get_mut(&package) else {
                    self.readers[source].unconfirmed.remove(&package);
                    continue;
                };
                let Some(resources) = &mut found.resources else { continue };
                if own != kind || resources.current.is_none_or(|since| asked < since) {
                    continue;
                }
                let kept = self.kinds[kind].objects.get(&key).and_then(|held| held.kept.parse());
                // When it has moved on, the watch will say so, and it is asked again.
                resources.confirmed =
                    kept.is_some() && kept == objects.get(&key).map(|o| self.kinds[kind].lean(o));
                resources.current = resources.current.filter(|_| resources.confirmed);
                let confirmed = resources.confirmed;
                self.readers[source].unconfirmed.remove(&package);
                if confirmed {
                    self.due.push_back(Due::Evaluate(source, package, Known::Watched));
                }
            }
            // One that is seen already waits for nothing: going over all its packages would be in vain.
            if self.visibility(source) != Visibility::Visible {
                self.due.push_back(Due::Refresh(source));
            }
        }
    }

    fn link_resources(
        &mut self,
        source: SourceId,
        package: &Key,
        set: &ResourceSet,
        at: Moment,
    ) -> Box<PackageResources> {
        self.write_down(|| Entry::ConsistsOf(set.clone()));
        let referrer = (source, package.clone());
        let now = self.count;
        let mut objects = Vec::with_capacity(set.objects.len());
        for ResourceRef { group, kind, namespace, name } in &set.objects {
            let kind = self.resource_kind_id(source, group, kind, at);
            let key = Arc::new(PackageKey::new(namespace.as_deref(), name));
            if let Some(of) = &mut self.kinds[kind].resources {
                of.link(&key, &referrer, now);
            }
            objects.push((kind, key));
        }
        let mut labelled = Vec::with_capacity(set.labelled.len());
        for resource in &set.labelled {
            let kind = self.resource_kind_id(source, &resource.group, &resource.kind, at);
            if let Some(of) = &mut self.kinds[kind].resources {
                of.link_label(&resource.label, &resource.value, &referrer, now);
            }
            labelled.push((kind, (Arc::from(&*resource.label), Arc::from(&*resource.value))));
        }
        Box::new(PackageResources {
            basis: set.basis,
            since: None,
            objects: objects.into_boxed_slice(),
            labelled: labelled.into_boxed_slice(),
            current: None,
            confirmed: false,
        })
    }

    pub(super) fn unlink_resources(&mut self, source: SourceId, package: &Key, resources: &PackageResources) {
        let referrer = (source, package.clone());
        for (kind, key) in &resources.objects {
            if let Some(of) = &mut self.kinds[*kind].resources {
                of.unlink(key, &referrer);
            }
        }
        for (kind, (label, value)) in &resources.labelled {
            if let Some(of) = &mut self.kinds[*kind].resources {
                of.unlink_label(label, value, &referrer);
            }
        }
        let kinds = resources.objects.iter().map(|(kind, _)| *kind);
        let kinds: BTreeSet<KindId> = kinds.chain(resources.labelled.iter().map(|(kind, _)| *kind)).collect();
        for kind in kinds {
            if self.kinds[kind].resources.as_ref().is_some_and(ResourceKind::unused) {
                for reader in self.readers.iter_mut() {
                    reader.resource_kinds.remove(&kind);
                }
                self.retire_unused_kinds();
                (0..self.readers.len()).for_each(|source| self.refresh_contacts(source));
            }
        }
    }

    /// Takes in what was heard of a kind that packages consist of.
    pub(super) fn apply_to_resources(&mut self, kind: KindId, change: Change, now: Moment) {
        let count = self.count;
        let state = &mut self.kinds[kind];
        let Some(of) = &mut state.resources else { return };
        let (mut all, mut known, mut anew) = (false, Known::Watched, BTreeSet::new());
        let news = match change {
            Change::ListStarted { server, restored } => {
                all = of.forbidden.take().is_some();
                state.start_list(server, restored);
                Vec::new()
            }
            Change::Object(key, object) => {
                let key = Arc::new(key);
                let from = if state.named.is_some() { Origin::List } else { Origin::Watch };
                let (news, how) = of.object(&key, &object, from, now);
                known = how;
                of.heard(&key, count);
                if let Some(named) = &mut state.named {
                    named.insert(key);
                }
                news
            }
            Change::Deleted(key) => {
                if let Some(named) = &mut state.named {
                    named.remove(&key);
                }
                of.deleted(&Arc::new(key), count)
            }
            Change::ListDone => {
                all = state.listing != Listing::Complete;
                state.listing = Listing::Complete;
                known = Known::Anew;
                of.listed(&state.named.take().unwrap_or_default())
            }
            Change::Absent => {
                all = state.listing != Listing::Absent;
                state.listing = Listing::Absent;
                state.named = None;
                known = Known::Anew;
                of.listed(&HashSet::new())
            }
            Change::Forbidden(permission) => {
                all = of.forbidden.as_ref() != Some(&permission);
                if all {
                    warn!(permission, "what some packages consist of cannot be looked at");
                }
                of.forbidden = Some(permission);
                Vec::new()
            }
            Change::Read { reading, objects, asked } => {
                let mut objects: Vec<(Key, Value)> =
                    objects.into_iter().map(|(key, object)| (Arc::new(key), object)).collect();
                of.end_read(&mut objects, asked);
                let mut news = Vec::new();
                for (key, object) in &objects {
                    let (more, how) = of.object(key, object, Origin::Read, now);
                    if how == Known::Anew {
                        anew.extend(more.iter().cloned());
                    }
                    news.extend(more);
                }
                match reading {
                    Reading::Object(key) => {
                        news.extend(of.read(&Arc::new(key), !objects.is_empty(), asked));
                    }
                    Reading::Labelled { label, value } => {
                        let found = objects.into_iter().map(|(key, _)| key).collect();
                        news.extend(of.read_labelled(&label, &value, &found, asked));
                    }
                    Reading::All => {
                        of.read_all(asked);
                        all = true;
                    }
                }
                news
            }
            Change::Contact(_) => Vec::new(),
        };
        let again: BTreeSet<Referrer> = if all {
            self.kinds[kind]
                .resources
                .as_ref()
                .map(ResourceKind::referrers)
                .unwrap_or_default()
                .into_iter()
                .collect()
        } else {
            news.into_iter().collect()
        };
        for (source, package) in again {
            let known = if anew.contains(&(source, package.clone())) { Known::Anew } else { known };
            self.due.push_back(Due::Evaluate(source, package, known));
        }
        if all {
            self.refresh_visibility(kind);
        }
    }

    /// Turns what has to be read into commands.
    pub(super) fn commands_to_read(&mut self) {
        for (kind, readings) in std::mem::take(&mut self.to_read) {
            let state = &mut self.kinds[kind];
            let readings = if readings.len() > MANY { vec![Reading::All] } else { readings };
            for reading in readings {
                state.resources.iter_mut().for_each(ResourceKind::begin_read);
                self.commands.push(Command::Read(ReadRequest {
                    kind,
                    of: state.of.clone(),
                    projection: state.projection.clone(),
                    reading,
                    asked: self.count,
                }));
            }
        }
    }
}

/// An object for people.
pub(super) fn named(of: &KindRef, key: Option<&PackageKey>) -> String {
    match key {
        Some(PackageKey { namespace: Some(namespace), name, .. }) => {
            format!("{} {namespace}/{name}", of.kind)
        }
        Some(PackageKey { namespace: None, name, .. }) => format!("{} {name}", of.kind),
        None => format!("objects of kind {}", of.kind),
    }
}
