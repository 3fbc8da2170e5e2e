//! The hub's objects as last seen, each read by itself: one that this program cannot read harms
//! no other.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_api::{
    FleetPackageSpec, FleetPackageStatus, FleetRolloutSpec, FleetRolloutStatus, RolloutGateSpec,
    RolloutGateStatus,
};
use tracing::warn;

use super::lazy_object::LazyObject;
use super::object::{HubObject, Key, Object, Version};
use crate::fleet::serial;

/// Most statuses that are remembered as sent and not heard of.
const MOST_SENT: usize = 4;

/// What is heard of the objects of one kind: a list, in pieces, and what changes after it.
#[derive(Debug, Clone)]
pub enum Event<O> {
    /// It was made or has changed.
    Apply(O),
    /// It is gone.
    Delete(O),
    /// A list begins.
    Init,
    /// An object of the list.
    InitApply(O),
    /// The list is whole: anything else is gone.
    InitDone,
}

/// All objects of one kind that has a spec and a status.
pub type Store<S, T> = Mirror<Object<S, T>>;

impl<S, T> Store<S, T> {
    /// These statuses are sent: any of them may stand there from now on.
    pub fn sent(&mut self, key: &Key, statuses: impl IntoIterator<Item = T>) {
        if let Some(object) = self.objects.get_mut(key) {
            object.sent.extend(statuses);
            let excess = object.sent.len().saturating_sub(MOST_SENT);
            object.sent.drain(..excess);
        }
    }
}

/// All objects of one kind.
#[derive(Debug)]
pub struct Mirror<O> {
    objects: BTreeMap<Key, O>,
    /// The objects that belong to another one, by that.
    belongings: BTreeMap<Key, BTreeSet<Key>>,
    listing: Option<BTreeMap<Key, O>>,
    complete: bool,
    foreign: u64,
    revision: u64,
    /// Whether statuses are taken as they stand: this process writes none.
    only_reads: bool,
}

impl<O> Default for Mirror<O> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            belongings: BTreeMap::new(),
            listing: None,
            complete: false,
            foreign: 0,
            revision: serial::next(),
            only_reads: false,
        }
    }
}

impl<O: HubObject> Mirror<O> {
    /// One whose statuses others write: they are taken as they stand.
    pub fn of_others() -> Self {
        Self { only_reads: true, ..Self::default() }
    }

    /// Whether the first list is in.
    pub fn complete(&self) -> bool {
        self.complete
    }

    /// Another one whenever any object may be other than before.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// How often somebody else wrote a status since this was asked before.
    pub fn take_foreign(&mut self) -> u64 {
        std::mem::take(&mut self.foreign)
    }

    /// All objects, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &O> {
        self.objects.values()
    }

    /// The objects of a namespace, by name.
    pub fn within(&self, namespace: &str) -> impl Iterator<Item = &O> {
        let first = Key { namespace: namespace.to_owned(), name: String::new() };
        self.objects
            .range(first..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, object)| object)
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<&O> {
        self.objects.get(key)
    }

    /// The objects that belong to this one, by name.
    pub(crate) fn of(&self, owner: &Key) -> impl Iterator<Item = &O> {
        let keys = self.belongings.get(owner).into_iter().flatten();
        keys.filter_map(|key| self.objects.get(key))
    }

    /// The objects that any of these belong to.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Key> {
        self.belongings.keys()
    }

    /// Takes in a watch event and says which objects are other than before.
    pub fn apply(&mut self, event: Event<LazyObject>) -> BTreeSet<Key> {
        match event {
            Event::Apply(object) if self.knows(&object) => BTreeSet::new(),
            Event::Apply(object) => self.insert(object).into_iter().collect(),
            Event::Delete(object) => {
                Version::of(&object.metadata).map(|gone| self.forget(&gone.key)).unwrap_or_default()
            }
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                BTreeSet::new()
            }
            Event::InitApply(object) => {
                let object = self.read(object);
                if let (Some(listing), Some(object)) = (&mut self.listing, object) {
                    listing.insert(object.identity().0.clone(), object);
                }
                BTreeSet::new()
            }
            Event::InitDone => {
                let mut before =
                    std::mem::replace(&mut self.objects, self.listing.take().unwrap_or_default());
                self.belongings.clear();
                let all: Vec<_> =
                    self.objects.iter().map(|(key, it)| (it.belongs_to(), key.clone())).collect();
                for (owner, key) in all {
                    self.join(owner, key);
                }
                let version = |object: Option<&O>| object.map(|it| it.identity().2.to_owned());
                let all: BTreeSet<&Key> = before.keys().chain(self.objects.keys()).collect();
                let changed = all
                    .into_iter()
                    .filter(|key| version(before.get(key)) != version(self.objects.get(key)))
                    .cloned()
                    .collect();
                for (key, object) in &mut self.objects {
                    // What stands there when this process begins is all that it can build upon.
                    if self.complete && !self.only_reads {
                        self.foreign += foreign(key, object, before.get(key));
                    }
                    if let Some(before) = before.remove(key) {
                        object.replaces(before);
                    }
                }
                self.complete = true;
                self.revision = serial::next();
                changed
            }
        }
    }

    /// An event of our own last write, or from before it, says nothing new.
    fn knows(&self, object: &LazyObject) -> bool {
        Version::of(&object.metadata).is_some_and(|version| self.has_seen(&version))
    }

    /// Reads what the API server sent. `None` without a name.
    pub(crate) fn read(&self, object: LazyObject) -> Option<O> {
        let known = Version::of(&object.metadata).and_then(|version| self.objects.get(&version.key));
        O::read(object, known)
    }

    /// Whether this version of an object is known, or a later one.
    pub(crate) fn has_seen(&self, version: &Version) -> bool {
        let Some(known) = self.objects.get(&version.key) else { return false };
        let (_, uid, known) = known.identity();
        let number = |text: &str| text.parse::<u64>().ok();
        let versions = number(&version.resource_version).zip(number(known));
        version.uid == uid && versions.is_some_and(|(version, known)| version <= known)
    }

    /// Takes in an object that was read by itself, and says which it is if it is other than before.
    pub fn insert(&mut self, object: LazyObject) -> Option<Key> {
        let mut object = self.read(object)?;
        let key = object.identity().0.clone();
        if !self.only_reads {
            self.foreign += foreign(&key, &mut object, self.objects.get(&key));
        }
        self.keep(object).then_some(key)
    }

    /// Takes in an object. Whether it is other than before.
    pub fn keep(&mut self, mut object: O) -> bool {
        let Version { key, resource_version, .. } = object.version();
        let (before, owner) = (self.objects.remove(&key), object.belongs_to());
        let owner_before = before.as_ref().and_then(O::belongs_to);
        if owner != owner_before {
            self.leave(owner_before, &key);
            self.join(owner, key.clone());
        }
        let is_other = before.as_ref().is_none_or(|before| before.identity().2 != resource_version);
        if let Some(before) = before {
            object.replaces(before);
        }
        self.objects.insert(key, object);
        self.revision = serial::next();
        is_other
    }

    fn join(&mut self, owner: Option<Key>, key: Key) {
        if let Some(owner) = owner {
            self.belongings.entry(owner).or_default().insert(key);
        }
    }

    fn leave(&mut self, owner: Option<Key>, key: &Key) {
        let Some(owner) = owner else { return };
        if let Some(keys) = self.belongings.get_mut(&owner) {
            keys.remove(key);
            if keys.is_empty() {
                self.belongings.remove(&owner);
            }
        }
    }

    /// Forgets an object that is gone, and says which if it was known.
    pub fn forget(&mut self, key: &Key) -> BTreeSet<Key> {
        self.revision = serial::next();
        let Some((key, object)) = self.objects.remove_entry(key) else { return BTreeSet::new() };
        self.leave(object.belongs_to(), &key);
        [key].into()
    }
}

/// 1 if somebody else wrote the status of an object, of which this was known before.
fn foreign<O: HubObject>(key: &Key, object: &mut O, known: Option<&O>) -> u64 {
    let foreign = object.follows(known);
    if foreign {
        warn!(object = %key, "somebody else has written a status; it is written anew");
    }
    foreign.into()
}

/// All FleetRollouts.
pub type Rollouts = Store<FleetRolloutSpec, FleetRolloutStatus>;
/// All FleetPackages.
pub type Packages = Store<FleetPackageSpec, FleetPackageStatus>;
/// All RolloutGates.
pub type Gates = Store<RolloutGateSpec, RolloutGateStatus>;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use serde_json::json;
    use statusbridge_api::conditions::find;

    fn gate(name: &str, version: &str, spec: serde_json::Value) -> LazyObject {
        serde_json::from_value(json!({
            "apiVersion": "statusbridge.dev/v1alpha1",
            "kind": "RolloutGate",
            "metadata": {"namespace": "fleet", "name": name, "resourceVersion": version, "generation": 1},
            "spec": spec,
            "status": {"observedGeneration": -1, "conditions": []},
        }))
        .unwrap()
    }

    fn good() -> serde_json::Value {
        json!({"fleetPackageRef": {"name": "p"}, "revision": "r", "clusters": {"names": ["a"]}})
    }

    #[test]
    fn a_status_that_somebody_else_wrote_counts_for_those_only_who_write_none() {
        let written = |version: &str, open: &str| -> LazyObject {
            serde_json::from_value(json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
                "metadata": {"namespace": "fleet", "name": "g", "uid": "u", "resourceVersion": version, "generation": 1},
                "spec": good(),
                "status": {"observedGeneration": 1, "conditions": [{
                    "type": "Open", "status": open, "reason": "Healthy", "message": "", "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }]},
            }))
            .unwrap()
        };
        for (mut gates, counts) in [(Gates::default(), false), (Gates::of_others(), true)] {
            gates.apply(Event::Apply(written("1", "False")));
            let changed = gates.apply(Event::Apply(written("2", "True")));
            let gate = changed.iter().next().and_then(|key| gates.get(key)).unwrap();
            assert_eq!(gate.is_open_now(), counts);
        }
    }

    #[test]
    fn a_spec_is_read_again_only_where_it_is_another() {
        let key = Key { namespace: "fleet".into(), name: "g".into() };
        let mut other = good();
        other["revision"] = json!("s");
        let mut gates = Gates::default();
        let mut spec = |event: Event<LazyObject>| {
            gates.apply(event);
            gates.get(&key).unwrap().spec.clone().unwrap()
        };
        let first = spec(Event::Apply(gate("g", "1", good())));
        assert!(Arc::ptr_eq(&first, &spec(Event::Apply(gate("g", "2", good())))));
        spec(Event::Init);
        spec(Event::InitApply(gate("g", "3", good())));
        assert!(Arc::ptr_eq(&first, &spec(Event::InitDone)));
        // Of a hub that was restored, which counts its generations again.
        assert_eq!(spec(Event::Apply(gate("g", "4", other))).revision, "s");
        gates.apply(Event::Apply(gate("g", "5", json!({}))));
        assert!(gates.get(&key).unwrap().spec.is_err());
    }

    #[test]
    fn what_was_sent_is_known_when_it_lands_late_and_no_longer_once_something_else_stands_there() {
        let with = |version: &str, spec: serde_json::Value, status: i64| -> LazyObject {
            serde_json::from_value(json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
                "metadata": {"namespace": "fleet", "name": "g", "uid": "u", "resourceVersion": version},
                "spec": spec, "status": {"observedGeneration": status},
            }))
            .unwrap()
        };
        let status = |number| RolloutGateStatus { observed_generation: Some(number), ..Default::default() };
        let list = |gates: &mut Gates, object: LazyObject| {
            for event in [Event::Init, Event::InitApply(object), Event::InitDone] {
                gates.apply(event);
            }
        };
        let key = Key { namespace: "fleet".into(), name: "g".into() };
        let started = || {
            let mut gates = Gates::default();
            list(&mut gates, with("1", good(), 0));
            gates.sent(&key, [status(1), status(2)]);
            gates
        };
        let other =
            || json!({"fleetPackageRef": {"name": "p"}, "revision": "other", "clusters": {"names": ["a"]}});
        // It was listed anew, or somebody else changed the spec, before the first write landed, and the second.
        for version in ["1", "2"] {
            for watched in [true, false] {
                let mut gates = started();
                match watched {
                    true => drop(gates.apply(Event::Apply(with(version, other(), 0)))),
                    false => list(&mut gates, with(version, other(), 0)),
                }
                gates.apply(Event::Apply(with("3", other(), 1)));
                gates.apply(Event::Apply(with("4", other(), 2)));
                assert_eq!(gates.take_foreign(), 0, "{version} {watched}");
                // What stood there before is not ours when it comes back.
                gates.apply(Event::Apply(with("5", other(), 1)));
                assert_eq!(gates.take_foreign(), 1);
            }
        }
        // Nor is what was sent over what somebody else has replaced.
        let mut gates = started();
        gates.apply(Event::Apply(with("2", good(), 7)));
        gates.apply(Event::Apply(with("3", good(), 2)));
        assert_eq!(gates.take_foreign(), 2);
    }

    #[test]
    fn an_object_of_tomorrow_is_kept_with_its_error_and_harms_no_other() {
        let mut store = Store::<RolloutGateSpec, RolloutGateStatus>::default();
        let mut newer = good();
        newer["require"] = json!("Blessed");
        store.apply(Event::Init);
        store.apply(Event::InitApply(gate("one", "1", newer)));
        store.apply(Event::InitApply(gate("two", "2", good())));
        assert!(!store.complete());
        assert_eq!(store.apply(Event::InitDone).len(), 2);
        assert!(store.complete());
        let specs: Vec<bool> = store.iter().map(|object| object.spec.is_ok()).collect();
        assert_eq!(specs, [false, true]);
    }

    #[test]
    fn what_comes_late_of_an_earlier_version_changes_nothing() {
        let mut store = Store::<RolloutGateSpec, RolloutGateStatus>::default();
        for (version, is_news) in [("9", true), ("10", true), ("10", false), ("9", false), ("11", true)] {
            assert_eq!(
                !store.apply(Event::Apply(gate("one", version, good()))).is_empty(),
                is_news,
                "{version}"
            );
        }
        assert_eq!(store.iter().next().unwrap().resource_version, "11");
    }

    #[test]
    fn a_new_list_replaces_the_old_and_names_what_changed() {
        let mut store = Store::<RolloutGateSpec, RolloutGateStatus>::default();
        for (name, version) in [("gone", "1"), ("same", "2"), ("changed", "3")] {
            store.apply(Event::Apply(gate(name, version, good())));
        }
        store.apply(Event::Init);
        store.apply(Event::InitApply(gate("same", "2", good())));
        store.apply(Event::InitApply(gate("changed", "4", good())));
        assert_eq!(store.iter().count(), 3, "until the list is complete, what was known stays");
        let changed = store.apply(Event::InitDone);
        let names: Vec<_> = changed.iter().map(|key| key.name.as_str()).collect();
        assert_eq!(names, ["changed", "gone"]);
        assert_eq!(store.iter().count(), 2);
    }

    /// A gate of generation 1, with a status that claims all.
    fn claims(version: &str, answered: i64, opened_once: &str) -> LazyObject {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "Healthy", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let mut object = serde_json::to_value(gate("one", version, good()).values()).unwrap();
        object["apiVersion"] = json!("statusbridge.dev/v1alpha1");
        object["metadata"] = json!({"namespace": "fleet", "name": "one", "uid": "u", "resourceVersion": version,
            "generation": 1});
        object["status"] = json!({"observedGeneration": answered, "conditions": [condition("Open", "True"),
            condition("OpenedOnce", opened_once)], "startedAt": "2026-01-01T00:00:00Z"});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_somebody_else_wrote_into_a_status_is_seen_and_nothing_is_built_upon_it() {
        let of = |store: &mut Store<RolloutGateSpec, RolloutGateStatus>| {
            let foreign = store.take_foreign();
            let status = store.iter().next().unwrap().status.clone().unwrap();
            let is = |kind| find(&status.conditions, kind).map(|it| it.status.clone());
            (status.observed_generation, is("Open"), is("OpenedOnce"), foreign)
        };
        let (yes, no) = (|| Some("True".to_owned()), || Some("False".to_owned()));
        let mut store = Store::<RolloutGateSpec, RolloutGateStatus>::default();
        // What stands there at the beginning is believed.
        store.apply(Event::Init);
        store.apply(Event::InitApply(claims("1", 1, "False")));
        store.apply(Event::InitDone);
        assert_eq!(of(&mut store), (Some(1), yes(), no(), 0));
        // So is what this process wrote itself, and what was changed beside the status.
        store.keep(Object::read(claims("2", 1, "False")).unwrap());
        store.apply(Event::Apply(claims("3", 1, "False")));
        assert_eq!(of(&mut store), (Some(1), yes(), no(), 0));
        store.apply(Event::Apply(claims("4", 1, "True")));
        assert_eq!(of(&mut store), (None, yes(), no(), 1));
        store.apply(Event::Init);
        store.apply(Event::InitApply(claims("5", 1, "True")));
        store.apply(Event::InitDone);
        assert_eq!(of(&mut store), (None, yes(), no(), 1));
        store.keep(Object::read(claims("6", 1, "True")).unwrap());
        assert_eq!(of(&mut store), (Some(1), yes(), yes(), 0));
        // A new object has no past.
        let mut store = Store::<RolloutGateSpec, RolloutGateStatus>::default();
        store.apply(Event::Init);
        store.apply(Event::InitDone);
        store.apply(Event::Apply(claims("7", 1, "True")));
        assert_eq!(of(&mut store), (None, yes(), None, 0));
    }
}
