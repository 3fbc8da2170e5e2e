//! The engine, driven in place of an API server.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry},
    sync::{Arc, PoisonError},
    time::Duration,
};

use serde_json::Value;
use statusbridge_expression::EvaluationError;

use super::package::{Package, PackageId, Transition};
use crate::{
    clock::Moment,
    metrics::OwnMetrics,
    recording::{GroupKind, Kinds, View, group_kind, key},
    source::{Detail, KindRef, Projection, ResourceSet, Source},
    state::{self, Command, Engine, Limits, Publisher, Snapshot, is_news},
    watch::{Change, KindId, PackageKey, ReadRequest, SourceId, Update},
};

/// An object of a kind.
pub(super) type Object = (GroupKind, PackageKey);

/// A kind that the engine watches.
struct Watch {
    of: KindRef,
    projection: Projection,
    /// How its objects are shown; `None` when it is not served.
    view: Option<View>,
}

/// An expression that failed on a version of an object.
pub(super) struct Failure {
    pub(super) id: PackageId,
    pub(super) object: Object,
    pub(super) version: usize,
    pub(super) error: EvaluationError,
}

/// What an evaluation says beside the verdict.
type Said = (Detail, bool, Option<EvaluationError>);

/// The exporter's engine, with a rehearsal in place of the API server.
pub struct Rehearsal {
    pub(super) kinds: Kinds,
    pub(super) sources: Vec<Arc<Source>>,
    engine: Engine,
    watches: BTreeMap<KindId, Watch>,
    /// Kinds that were ever watched for packages and what is related to them.
    pub(super) watched: Vec<KindRef>,
    /// What packages were ever found to consist of.
    pub(super) resources: ResourceSet,
    found: BTreeSet<SourceId>,
    objects: HashMap<GroupKind, BTreeMap<PackageKey, Value>>,
    /// Which version of each object it is, counted from 1.
    versions: HashMap<Object, usize>,
    pub(super) packages: BTreeMap<PackageId, Package>,
    /// What an evaluation has said of packages that are about to be shown.
    said: BTreeMap<PackageId, Said>,
    pub(super) failures: Vec<Failure>,
}

impl Rehearsal {
    /// Begins with these objects at `now` (unix milliseconds). `kinds` are those of all objects that ever come.
    pub fn begin(
        sources: Vec<Arc<Source>>,
        limits: Limits,
        kinds: Kinds,
        objects: Vec<Value>,
        now: i64,
    ) -> (Self, Vec<Transition>) {
        let mut engine = Engine::new(sources.clone(), limits, Arc::new(OwnMetrics::default()));
        engine.keep_journal();
        let mut rehearsal = Self {
            kinds,
            sources,
            engine,
            watches: BTreeMap::new(),
            watched: Vec::new(),
            resources: ResourceSet::default(),
            found: BTreeSet::new(),
            objects: HashMap::new(),
            versions: HashMap::new(),
            packages: BTreeMap::new(),
            said: BTreeMap::new(),
            failures: Vec::new(),
        };
        for object in objects {
            rehearsal.keep(object);
        }
        let transitions = rehearsal.settle(now);
        (rehearsal, transitions)
    }

    /// An object is new, or has a new version, at `now`.
    pub fn put(&mut self, object: Value, now: i64) -> Vec<Transition> {
        let mut transitions = self.wait(now);
        let (kind, key) = self.keep(object);
        let Some(object) = self.objects.get(&kind).and_then(|all| all.get(&key)) else {
            return transitions;
        };
        let seen = |(id, watch): (&KindId, &Watch)| {
            let view = watch.view.as_ref().filter(|view| view.is_of(&kind))?;
            Some(match view.read(object, &watch.projection) {
                Some(lean) => (*id, Change::Object(key.clone(), lean)),
                None => (*id, Change::Deleted(key.clone())),
            })
        };
        let changes: Vec<_> = self.watches.iter().filter_map(seen).collect();
        changes.into_iter().for_each(|(id, change)| self.tell(id, change, now));
        transitions.extend(self.settle(now));
        transitions
    }

    /// An object is gone at `now`.
    pub fn remove(&mut self, object: &Value, now: i64) -> Vec<Transition> {
        self.take_away(&group_kind(object), &key(object), now)
    }

    pub(super) fn take_away(&mut self, kind: &GroupKind, key: &PackageKey, now: i64) -> Vec<Transition> {
        let mut transitions = self.wait(now);
        if let Some(all) = self.objects.get_mut(kind) {
            all.remove(key);
        }
        let of_kind = |watch: &Watch| watch.view.as_ref().is_some_and(|view| view.is_of(kind));
        let watches: Vec<KindId> =
            self.watches.iter().filter(|(_, watch)| of_kind(watch)).map(|(id, _)| *id).collect();
        watches.into_iter().for_each(|id| self.tell(id, Change::Deleted(key.clone()), now));
        transitions.extend(self.settle(now));
        transitions
    }

    /// Nothing comes until `now`: holds run out, each at its own time.
    pub fn wait(&mut self, now: i64) -> Vec<Transition> {
        let mut transitions = Vec::new();
        while let Some(at) = self.engine.next_deadline().filter(|at| *at <= now) {
            self.engine.expire(Moment::unix(at));
            transitions.extend(self.settle(at));
        }
        transitions
    }

    /// What is shown of every package.
    pub fn packages(&self) -> &BTreeMap<PackageId, Package> {
        &self.packages
    }

    /// What a scrape at `now` would read.
    pub fn snapshot(&mut self, now: i64) -> Snapshot {
        let moment = Moment::unix(now);
        for kind in self.watches.keys() {
            self.engine.apply(Update { kind: *kind, change: Change::Contact(moment.boot) }, moment);
        }
        for source in &self.found {
            self.engine.found(*source, None, moment.boot);
        }
        let published = self.engine.published();
        let mut published = published.lock().unwrap_or_else(PoisonError::into_inner);
        published.snapshot(Publisher::default(), Duration::MAX, moment)
    }

    /// Puts an object in its place, as an API server keeps it.
    fn keep(&mut self, object: Value) -> Object {
        let object = self.kinds.stored(object);
        let (kind, key) = (group_kind(&object), key(&object));
        *self.versions.entry((kind.clone(), key.clone())).or_default() += 1;
        self.objects.entry(kind.clone()).or_default().insert(key.clone(), object);
        (kind, key)
    }

    fn tell(&mut self, kind: KindId, change: Change, now: i64) {
        self.engine.apply(Update { kind, change }, Moment::unix(now));
        while self.engine.go_on(Moment::unix(now)) {}
    }

    /// Does what the engine wants done, until it wants nothing more; gives what has changed for people.
    fn settle(&mut self, now: i64) -> Vec<Transition> {
        loop {
            while self.engine.go_on(Moment::unix(now)) {}
            let commands = self.engine.commands();
            if commands.is_empty() {
                break;
            }
            for command in commands {
                self.obey(command, now);
            }
        }
        self.read_journal(now)
    }

    fn obey(&mut self, command: Command, now: i64) {
        match command {
            Command::Watch { kind, of, projection, .. } => self.watch(kind, of, projection, now),
            Command::Unwatch(kind) => drop(self.watches.remove(&kind)),
            Command::Find { source, categories } => {
                let kinds = self.kinds.of_categories(&categories);
                self.found.insert(source);
                self.engine.found(source, Some(kinds), now);
            }
            Command::StopFinding(source) => drop(self.found.remove(&source)),
            Command::Read(wanted) => {
                let objects = self.read(&wanted);
                let change = Change::Read { reading: wanted.reading, objects, asked: wanted.asked };
                self.tell(wanted.kind, change, now);
            }
        }
    }

    fn watch(&mut self, kind: KindId, of: KindRef, projection: Projection, now: i64) {
        let view = self.kinds.view(&of);
        let seen = view.as_ref().map(|view| {
            let all = self.objects.get(view.kind()).into_iter().flatten();
            let seen = all.filter_map(|(key, object)| Some((key.clone(), view.read(object, &projection)?)));
            seen.collect::<Vec<_>>()
        });
        if !of.versions.is_empty() {
            self.watched.push(of.clone());
        }
        self.watches.insert(kind, Watch { of, projection, view });
        let Some(seen) = seen else {
            self.tell(kind, Change::Absent, now);
            return;
        };
        // The clock of the API server is that of the exporter.
        self.tell(kind, Change::ListStarted { server: Some(0), restored: false }, now);
        for (key, object) in seen {
            self.tell(kind, Change::Object(key, object), now);
        }
        self.tell(kind, Change::ListDone, now);
    }

    fn read(&self, wanted: &ReadRequest) -> Vec<(PackageKey, Value)> {
        let Some(view) = self.watches.get(&wanted.kind).and_then(|watch| watch.view.as_ref()) else {
            return Vec::new();
        };
        let all = self.objects.get(view.kind()).into_iter().flatten();
        all.filter(|(key, object)| wanted.reading.is_of(key, object))
            .filter_map(|(key, object)| Some((key.clone(), view.read(object, &wanted.projection)?)))
            .collect()
    }

    fn read_journal(&mut self, now: i64) -> Vec<Transition> {
        let mut before: BTreeMap<PackageId, Option<Package>> = BTreeMap::new();
        for entry in self.engine.journal() {
            match entry {
                state::Entry::Evaluated { source, package, detail, undecided, error } => {
                    let id = self.id(source, &package);
                    if let Some(error) = &error {
                        self.note_failure(source, &package, &id, error);
                    }
                    self.said.insert(id, (detail, undecided, error));
                }
                state::Entry::Shown { source, package, shown } => {
                    let id = self.id(source, &package);
                    before.entry(id.clone()).or_insert_with(|| self.packages.get(&id).cloned());
                    let version =
                        self.version_of(source, &package).map(|(_, version)| version).unwrap_or_default();
                    let said = self.said.remove(&id);
                    match self.packages.entry(id) {
                        Entry::Occupied(mut known) => {
                            let known = known.get_mut();
                            (known.shown, known.version) = (shown, version);
                            if let Some(said) = said {
                                (known.detail, known.undecided, known.error) = said;
                            }
                        }
                        Entry::Vacant(new) => {
                            let (detail, undecided, error) = said.unwrap_or_default();
                            new.insert(Package { shown, detail, undecided, error, version });
                        }
                    }
                }
                state::Entry::ConsistsOf(set) => {
                    self.resources.objects.extend(set.objects);
                    self.resources.labelled.extend(set.labelled);
                }
                state::Entry::Gone { source, package } => {
                    let id = self.id(source, &package);
                    let gone = self.packages.remove(&id);
                    before.entry(id).or_insert(gone);
                }
            }
        }
        let transition = |(id, before): (PackageId, Option<Package>)| {
            let package = self.packages.get(&id).cloned();
            let is_news = match (&before, &package) {
                (Some(before), Some(after)) => is_news(&before.shown.verdict, &after.shown.verdict),
                (before, after) => before.is_some() != after.is_some(),
            };
            is_news.then_some(Transition { at: now, id, package })
        };
        before.into_iter().filter_map(transition).collect()
    }

    fn id(&self, source: SourceId, package: &PackageKey) -> PackageId {
        PackageId {
            source: self.sources.get(source).map(|source| source.name.clone()).unwrap_or_default(),
            cluster: package.cluster.as_deref().map(str::to_owned),
            namespace: package.namespace.as_deref().map(str::to_owned),
            name: package.name.to_string(),
        }
    }

    /// The object that a package is, and which version of it.
    fn version_of(&self, source: SourceId, package: &Arc<PackageKey>) -> Option<(Object, usize)> {
        let (kind, key) = self.engine.object_of(source, package)?;
        let of = &self.watches.get(&kind)?.of;
        let object = ((of.group.clone(), of.kind.clone()), PackageKey::clone(&key));
        let version = self.versions.get(&object).copied()?;
        Some((object, version))
    }

    /// Takes note of a failure, once for each version of an object.
    fn note_failure(
        &mut self,
        source: SourceId,
        package: &Arc<PackageKey>,
        id: &PackageId,
        error: &EvaluationError,
    ) {
        let Some((object, version)) = self.version_of(source, package) else { return };
        let known = self.packages.get(id).is_some_and(|it| it.version == version && it.error.is_some());
        if !known {
            self.failures.push(Failure { id: id.clone(), object, version, error: error.clone() });
        }
    }
}
