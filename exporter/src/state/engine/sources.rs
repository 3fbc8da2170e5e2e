//! Which sources are at work, on which kinds, and when their packages are to be seen.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tracing::info;

use serde_json::Value;

use super::{
    Engine,
    command::Command,
    due::Due,
    key::Key,
    kind::KindState,
    listing::Listing,
    names::Order,
    published::{PublishedSource, Visibility},
    resource_kind::ResourceKind,
    resources::named,
    source_state::SourceState,
};
use crate::{
    clock::Moment,
    source::{Identity, JoinKey, KindRef, PackageKinds, Projection, Source},
    state::{
        hold::Settled,
        soak::{Known, Shown},
    },
    watch::{Contact, KindId, PackageKey, SourceId},
};

/// Most objects of one package that a message names.
const MOST_RIVALS: usize = 4;

impl Engine {
    /// Uses these sources from now on. What an unchanged one has shown stays; a changed one starts
    /// with what its earlier version showed.
    pub(crate) fn use_sources(&mut self, sources: Vec<Arc<Source>>) {
        self.count += 1;
        let stays = |reader: &SourceState| sources.iter().any(|s| s.same_as(&reader.source));
        let going: Vec<SourceId> = (0..self.readers.len())
            .filter(|id| !self.readers[*id].retired && !stays(&self.readers[*id]))
            .collect();
        let mut shown: HashMap<String, HashMap<Key, (Settled, Shown)>> = HashMap::new();
        for id in going {
            shown.insert(self.readers[id].source.name.clone(), self.retire(id));
        }
        let known = |source: &Source| self.readers.iter().any(|r| !r.retired && r.source.same_as(source));
        let new: Vec<Arc<Source>> = sources.iter().filter(|s| !known(s)).cloned().collect();
        let first_kind = self.kinds.len();
        for source in new {
            let mut reader = SourceState::new(source.clone());
            reader.carried = shown.remove(&source.name).unwrap_or_default();
            let id = self.readers.len();
            match &source.kinds {
                PackageKinds::Listed(kinds) => {
                    let id = |kind| self.kind_id(first_kind, kind, source.projection());
                    reader.kinds = kinds.iter().map(id).collect();
                }
                PackageKinds::Categories(categories) => {
                    reader.finding = Some((Contact::default(), false));
                    let categories = categories.clone();
                    self.commands.push(Command::Find { source: id, categories });
                }
            }
            let related = source.related.iter();
            reader.related = related
                .map(|r| r.kinds.iter().map(|kind| self.kind_id(first_kind, kind, &r.projection)).collect())
                .collect();
            for (related, kinds) in source.related.iter().zip(&reader.related) {
                if let Some(names) = related.label_names() {
                    kinds.iter().for_each(|kind| self.kinds[*kind].labels.add(&names));
                }
            }
            if source.reads_versions() {
                reader.kinds().for_each(|kind| self.kinds[kind].versions = true);
            }
            self.readers.push(reader);
            let standing =
                PublishedSource { visibility: Visibility::NeverServed, contacts: Vec::new(), short: false };
            let mut published = self.lock();
            published.store.add_source(&source.name);
            published.standing.push(Some(standing));
            drop(published);
            self.refresh_contacts(id);
        }
        (first_kind..self.kinds.len()).for_each(|kind| self.watch(kind));
    }

    /// The API server has been asked at `at` (milliseconds by the `boot` clock) for the kinds of a source by categories;
    /// `None` when they are what they were.
    pub(crate) fn found(&mut self, source: SourceId, kinds: Option<Vec<KindRef>>, at: i64) {
        self.count += 1;
        let reader = &self.readers[source];
        let Some((contact, _)) = reader.finding.clone().filter(|_| !reader.retired) else { return };
        if let Some(kinds) = kinds {
            self.use_kinds(source, kinds);
        }
        contact.note(at);
    }

    fn use_kinds(&mut self, source: SourceId, kinds: Vec<KindRef>) {
        let reader = &self.readers[source];
        let projection = reader.source.projection().clone();
        let gone: Vec<KindId> =
            reader.kinds.iter().copied().filter(|kind| !kinds.contains(&self.kinds[*kind].of)).collect();
        for kind in gone {
            let objects: Vec<Key> = self.kinds[kind].objects.keys().cloned().collect();
            objects.iter().for_each(|key| self.deleted(kind, key, Known::Anew));
            self.readers[source].kinds.retain(|k| *k != kind);
        }
        self.retire_unused_kinds();
        for kind in kinds {
            if !self.readers[source].kinds.iter().any(|k| self.kinds[*k].of == kind) {
                let id = self.kinds.push(KindState::new(kind, projection.clone(), None));
                self.kinds[id].versions = self.readers[source].source.reads_versions();
                self.readers[source].kinds.push(id);
                self.watch(id);
            }
        }
        if let Some((_, known)) = &mut self.readers[source].finding {
            *known = true;
        }
        self.due.push_back(Due::Refresh(source));
    }

    /// The watch of a kind, one of those from `first` on: sources that come together share them.
    fn kind_id(&mut self, first: KindId, kind: &KindRef, projection: &Projection) -> KindId {
        if let Some(known) = (first..self.kinds.len()).find(|id| self.kinds[*id].of == *kind) {
            self.kinds[known].projection.merge(projection);
            return known;
        }
        self.kinds.push(KindState::new(kind.clone(), projection.clone(), None))
    }

    /// The watch of a kind that packages consist of: one for all sources.
    pub(super) fn resource_kind_id(
        &mut self,
        source: SourceId,
        group: &str,
        kind: &str,
        now: Moment,
    ) -> KindId {
        let health = self.readers[source].source.resource_health(group, kind);
        // Sources with rules of their own do not see what others do.
        let rules = health.as_ref().map(|health| health.text()).unwrap_or_default();
        let name = (Box::from(group), Box::from(kind), rules.into());
        let id = match self.resource_kinds.get(&name) {
            Some(id) => *id,
            None => {
                let of = KindRef {
                    group: group.to_owned(),
                    kind: kind.to_owned(),
                    versions: Vec::new(),
                    resource: None,
                    selector: None,
                };
                let mut projection = match &health {
                    Some(health) => health.projection(),
                    None => Projection::of_fields(statusbridge_kstatus::resource_fields(group, kind)),
                };
                projection.field("metadata").field("labels").keep();
                let resources = ResourceKind::new(self.count, health);
                let id = self.kinds.push(KindState::new(of, projection, Some(resources)));
                // A kind that turns up later does not take its sources down while it is first read.
                self.kinds[id].contact.note(now.boot);
                self.resource_kinds.insert(name, id);
                self.watch(id);
                id
            }
        };
        if self.readers[source].resource_kinds.insert(id) {
            self.refresh_contacts(source);
        }
        id
    }

    fn watch(&mut self, kind: KindId) {
        let state = &self.kinds[kind];
        self.commands.push(Command::Watch {
            kind,
            of: state.of.clone(),
            projection: state.projection.clone(),
            contact: state.contact.clone(),
        });
    }

    /// Takes a source away; gives what it showed, or an earlier version of it.
    fn retire(&mut self, source: SourceId) -> HashMap<Key, (Settled, Shown)> {
        if self.readers[source].finding.is_some() {
            self.commands.push(Command::StopFinding(source));
        }
        let packages = std::mem::take(&mut self.readers[source].packages);
        for (key, package) in &packages {
            self.unlink(source, key, &package.joins);
            self.deadlines.set(source, key, package.deadline(), None);
            if let Some(resources) = &package.resources {
                self.unlink_resources(source, key, resources);
            }
        }
        let reader = &mut self.readers[source];
        reader.retired = true;
        (reader.kinds, reader.related, reader.resource_kinds) = Default::default();
        let mut showed = std::mem::take(&mut reader.carried);
        reader.unconfirmed.clear();
        (reader.waiting, reader.unnameable) = Default::default();
        reader.names = None;
        self.metrics.left_out(&reader.source.name, 0);
        let mut published = self.lock();
        published.standing[source] = None;
        published.store.remove_source(source);
        drop(published);
        self.retire_unused_kinds();
        showed.extend(packages.into_iter().map(|(key, package)| (key, (package.settled, package.shown))));
        showed
    }

    /// Stops watching what nobody needs any more.
    pub(super) fn retire_unused_kinds(&mut self) {
        let used: HashSet<KindId> = self.readers.iter().flat_map(SourceState::kinds).collect();
        for kind in 0..self.kinds.len() {
            if !used.contains(&kind) && !self.kinds[kind].retired {
                let state = &mut self.kinds[kind];
                let of = state.of.clone();
                *state = KindState { retired: true, ..KindState::new(of, Projection::default(), None) };
                self.resource_kinds.retain(|_, id| *id != kind);
                self.to_read.remove(&kind);
                self.commands.push(Command::Unwatch(kind));
            }
        }
    }

    /// The sources to which objects of a kind are packages.
    pub(super) fn sources_of(&self, kind: KindId) -> Vec<SourceId> {
        (0..self.readers.len()).filter(|id| self.readers[*id].kinds.contains(&kind)).collect()
    }

    /// The kind in which a join of a source looks.
    pub(super) fn join_kind(&self, source: SourceId, join: &JoinKey) -> KindId {
        let (JoinKey::Reference { related, kind, .. } | JoinKey::Labels { related, kind, .. }) = join;
        #[expect(clippy::indexing_slicing, reason = "the source's own joins name its own related kinds")]
        self.readers[source].related[*related][*kind]
    }

    /// Whether objects of a kind are looked at again, beside when they change.
    pub(super) fn is_read_again(&self, kind: KindId) -> bool {
        self.readers.iter().any(|reader| {
            let again = !reader.related.is_empty()
                || reader.names.is_some()
                || reader.waits_for_lists()
                || reader.source.waits();
            reader.related.iter().flatten().any(|k| *k == kind) || (again && reader.kinds.contains(&kind))
        })
    }

    /// The package that an object is to a source, as it says now. What it was before is looked at again.
    pub(super) fn name(
        &mut self,
        source: SourceId,
        kind: KindId,
        key: &Key,
        object: &Value,
        known: Known,
    ) -> Option<Key> {
        let reader = &mut self.readers[source];
        let Some(names) = &mut reader.names else { return Some(key.clone()) };
        let package = reader.source.takes(object).then(|| match reader.source.identity(object) {
            Ok(Identity { cluster, namespace, name }) => {
                Arc::new(PackageKey { cluster, ..PackageKey::new(namespace.as_deref(), &name) })
            }
            // Evaluation says what is wrong.
            Err(_) => key.clone(),
        });
        // Where it cannot be told which is meant, the one of which that cannot be told says so.
        let order = reader.source.order(object).unwrap_or(Order::MAX);
        if let Some(before) = names.put(kind, key, package.as_ref().map(|package| (package, order))) {
            self.due.push_back(Due::Evaluate(source, before, known));
        }
        package
    }

    /// An object is gone.
    pub(super) fn unname(&mut self, source: SourceId, kind: KindId, key: &Key, known: Known) {
        match &mut self.readers[source].names {
            None => self.forget(source, key),
            Some(names) => {
                if let Some(before) = names.put(kind, key, None) {
                    self.due.push_back(Due::Evaluate(source, before, known));
                }
            }
        }
    }

    /// The package that an object is, as it was last heard.
    pub(super) fn package_of(&self, source: SourceId, kind: KindId, key: &Key) -> Option<Key> {
        match &self.readers[source].names {
            None => Some(key.clone()),
            Some(names) => names.package_of(kind, key),
        }
    }

    /// An object that is a package: the only one, unless there are rivals.
    pub(crate) fn object_of(&self, source: SourceId, package: &Key) -> Option<(KindId, Key)> {
        let reader = &self.readers[source];
        match &reader.names {
            None => Some((*reader.kinds.first()?, package.clone())),
            Some(names) => names.objects_of(package).next().map(|(kind, key)| (kind, key.clone())),
        }
    }

    /// The objects that are one package, for people, where there are several.
    pub(super) fn rivals(&self, source: SourceId, package: &Key) -> Option<String> {
        let objects = || self.readers[source].names.iter().flat_map(|names| names.objects_of(package));
        let count = objects().take(MOST_RIVALS + 1).count();
        if count < 2 {
            return None;
        }
        let named = objects().take(MOST_RIVALS).map(|(kind, key)| named(&self.kinds[kind].of, Some(key)));
        let more = if count > MOST_RIVALS { " and more" } else { "" };
        Some(named.collect::<Vec<_>>().join(", ") + more)
    }

    /// Whether what a package of a kind needs to be evaluated is known.
    pub(super) fn can_evaluate(&self, source: SourceId, kind: KindId) -> bool {
        let listed = self.kinds[kind].listing == Listing::Complete;
        (listed || !self.readers[source].waits_for_lists()) && self.joins_known(source)
    }

    /// Whether everything that a source joins is known, so that evaluating makes sense.
    fn joins_known(&self, source: SourceId) -> bool {
        let known = |kind: &KindId| matches!(self.kinds[*kind].listing, Listing::Complete | Listing::Absent);
        self.visibility(source) == Visibility::Visible
            || self.readers[source].related.iter().flatten().all(known)
    }

    /// Whether all that packages of a source consist of is known, as far as it may be read.
    fn resources_known(&self, source: SourceId) -> bool {
        let reader = &self.readers[source];
        reader.unconfirmed.is_empty()
            && reader.resource_kinds.iter().map(|kind| &self.kinds[*kind]).all(|state| {
                matches!(state.listing, Listing::Complete | Listing::Absent)
                    || state.resources.as_ref().is_some_and(|resources| resources.forbidden.is_some())
            })
    }

    pub(super) fn visibility(&self, source: SourceId) -> Visibility {
        self.lock().standing[source].as_ref().map_or(Visibility::NeverServed, |s| s.visibility)
    }

    fn set_visibility(&self, source: SourceId, visibility: Visibility) {
        if let Some(standing) = &mut self.lock().standing[source] {
            standing.visibility = visibility;
        }
    }

    /// What a source's being up depends on.
    pub(super) fn refresh_contacts(&self, source: SourceId) {
        let reader = &self.readers[source];
        let may_be_read = |state: &&KindState| state.resources.as_ref().is_none_or(|l| l.forbidden.is_none());
        let states = reader.kinds().map(|kind| &self.kinds[kind]).filter(may_be_read);
        let mut contacts: Vec<_> = states.map(|s| (s.name(), s.contact.clone())).collect();
        if let Some((contact, _)) = &reader.finding {
            contacts.push((reader.source.kinds.to_string(), contact.clone()));
        }
        if let Some(standing) = &mut self.lock().standing[source] {
            standing.contacts = contacts;
        }
    }

    /// A kind's listing has moved on: sources that wait for it may be ready to be seen.
    pub(super) fn refresh_visibility(&mut self, kind: KindId) {
        let sources =
            (0..self.readers.len()).filter(|source| self.readers[*source].kinds().any(|k| k == kind));
        self.due.extend(sources.map(Due::Refresh));
    }

    /// A list that a source needs has moved on.
    pub(super) fn refresh(&mut self, source: SourceId) {
        self.refresh_contacts(source);
        let own = self.own_listing(source);
        match (self.visibility(source), own) {
            (Visibility::Visible, _) => {
                if self.readers[source].waits_for_lists() {
                    self.evaluate_missing(source);
                }
            }
            (Visibility::NeverServed, Listing::Unheard | Listing::Absent) => {}
            (_, Listing::Complete) if self.joins_known(source) => {
                let reader = &self.readers[source];
                if !reader.related.is_empty() || reader.waits_for_lists() {
                    self.evaluate_missing(source);
                }
                self.due.push_back(Due::Reveal(source));
            }
            (_, Listing::Absent) => self.set_visibility(source, Visibility::NeverServed),
            _ => self.set_visibility(source, Visibility::Loading),
        }
    }

    /// Shows the packages of a source, unless what they consist of is not known yet.
    pub(super) fn reveal(&mut self, source: SourceId) {
        if self.visibility(source) == Visibility::Visible {
            return;
        }
        if !self.resources_known(source) {
            return self.set_visibility(source, Visibility::Loading);
        }
        self.set_visibility(source, Visibility::Visible);
        let reader = &mut self.readers[source];
        reader.carried = HashMap::new();
        let packages = reader.packages.len();
        info!(source = reader.source.name, packages, "first lists are complete");
    }

    /// How much is known of the packages of a source.
    fn own_listing(&self, source: SourceId) -> Listing {
        let reader = &self.readers[source];
        if reader.finding.as_ref().is_some_and(|(_, found)| !found) {
            return Listing::Unheard;
        }
        let has = |listing| reader.kinds.iter().any(|kind| self.kinds[*kind].listing == listing);
        let order = [Listing::First, Listing::Unheard, Listing::Complete];
        match order.into_iter().find(|listing| has(*listing)) {
            Some(Listing::Unheard) if has(Listing::Complete) => Listing::First,
            found => found.unwrap_or(Listing::Absent),
        }
    }

    /// Has the packages evaluated that came before everything that they need was known.
    fn evaluate_missing(&mut self, source: SourceId) {
        let reader = &self.readers[source];
        let mut missing = Vec::new();
        for kind in &reader.kinds {
            let state = &self.kinds[*kind];
            if state.listing == Listing::Complete {
                let packages = state.objects.keys().filter_map(|key| self.package_of(source, *kind, key));
                missing.extend(packages.filter(|package| !reader.packages.contains_key(package)));
            }
        }
        self.due.extend(missing.into_iter().map(|package| Due::Evaluate(source, package, Known::Anew)));
    }
}
