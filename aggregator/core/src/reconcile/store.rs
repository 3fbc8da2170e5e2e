//! The hub's objects as last seen, each read by itself: one that this program cannot read harms
//! no other.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube_core::{ApiResource, GroupVersionKind};
use serde::de::DeserializeOwned;
use statusbridge_api::{
    FleetPackageSpec, FleetPackageStatus, FleetRolloutSpec, FleetRolloutStatus, GROUP, RolloutGateSpec,
    RolloutGateStatus, VERSION, fleet_package_slice, fleet_rollout_slice,
};
use tracing::warn;

use crate::decide::Evidence;
use crate::fleet::serial;
use crate::reconcile::lazy_object::LazyObject;

/// How long a spec may be, in bytes of JSON. The API server stores 1.5 MiB of an object: that leaves room for as much
/// again in `managedFields`, 256 KiB of annotations, and any status.
const MOST_SPEC: usize = 384 * 1024;

/// Field of an object beside its spec: why the spec counts for nothing, where a hub takes in what it has to refuse. An API
/// server refuses it before, and keeps no field of this name.
pub const REFUSED: &str = "refused";

/// Most statuses that are remembered as sent and not heard of.
const MOST_SENT: usize = 4;

/// Where an object lives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// The object of this name beside the one that `self` means.
    pub fn beside(&self, name: &str) -> Self {
        Self { namespace: self.namespace.clone(), name: name.to_owned() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One of the kinds, in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// RolloutGate
    RolloutGate,
    /// FleetPackage
    FleetPackage,
    /// FleetPackageSlice
    FleetPackageSlice,
    /// FleetRollout
    FleetRollout,
    /// FleetRolloutSlice
    FleetRolloutSlice,
    /// RolloutFreeze
    RolloutFreeze,
    /// RolloutApproval
    RolloutApproval,
}

impl Kind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FleetPackage => "FleetPackage",
            Self::RolloutGate => "RolloutGate",
            Self::FleetPackageSlice => fleet_package_slice::KIND,
            Self::FleetRollout => "FleetRollout",
            Self::FleetRolloutSlice => fleet_rollout_slice::KIND,
            Self::RolloutFreeze => "RolloutFreeze",
            Self::RolloutApproval => "RolloutApproval",
        }
    }

    /// How the API server serves it.
    pub fn resource(self) -> ApiResource {
        let plural = match self {
            Self::FleetPackage => "fleetpackages",
            Self::RolloutGate => "rolloutgates",
            Self::FleetPackageSlice => fleet_package_slice::PLURAL,
            Self::FleetRollout => "fleetrollouts",
            Self::FleetRolloutSlice => fleet_rollout_slice::PLURAL,
            Self::RolloutFreeze => "rolloutfreezes",
            Self::RolloutApproval => "rolloutapprovals",
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, self.name()), plural)
    }
}

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

/// One version of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Where it lives.
    pub key: Key,
    /// Which object of this name.
    pub uid: String,
    /// Which version of it; empty where any will do.
    pub resource_version: String,
}

/// The object that controls another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its kind, of this API.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Which object of this name.
    pub uid: String,
}

impl Owner {
    /// The controller among owner references, if it is of this API.
    pub fn among(owners: Option<Vec<OwnerReference>>) -> Option<Self> {
        let controller = owners.into_iter().flatten().find(|owner| owner.controller == Some(true))?;
        let is_ours = controller.api_version.split_once('/').is_some_and(|(group, _)| group == GROUP);
        is_ours.then_some(Self { kind: controller.kind, name: controller.name, uid: controller.uid })
    }

    /// Whether it is of this kind.
    pub fn is_a(&self, kind: Kind) -> bool {
        self.kind == kind.name()
    }
}

/// One object of the hub.
#[derive(Debug, Clone, PartialEq)]
pub struct Object<S, T> {
    /// Where it lives.
    pub key: Key,
    /// Which object of this name it is.
    pub uid: String,
    /// Which version of it this is.
    pub resource_version: String,
    /// Generation of its spec.
    pub generation: i64,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// When it was made.
    pub created: Option<Time>,
    /// The object that controls it.
    pub owner: Option<Owner>,
    /// Whether it was deleted, and is there only for what somebody else has to do first.
    pub is_going: bool,
    /// The same for the very same spec of the very same object, whatever its version.
    pub terms: u64,
    /// The spec, or why it cannot be read.
    pub spec: Result<S, String>,
    /// The status, when there is one that can be read.
    pub status: Option<T>,
    /// Statuses that this process has sent over this version, and that may stand there by now.
    pub sent: Vec<T>,
}

impl<S, T> Object<S, T> {
    /// One that the hub does not have, to be judged once.
    pub(crate) fn made_up(key: Key, spec: S) -> Self {
        Self {
            key,
            uid: String::new(),
            resource_version: String::new(),
            generation: 1,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            created: None,
            owner: None,
            is_going: false,
            terms: 0,
            spec: Ok(spec),
            status: None,
            sent: Vec::new(),
        }
    }
}

impl<S: DeserializeOwned, T: DeserializeOwned> Object<S, T> {
    /// Reads what the API server sent. `None` without a name.
    pub fn read(object: LazyObject) -> Option<Self> {
        let mut terms = DefaultHasher::new();
        (&object.metadata.uid, object.metadata.generation, object.text("spec"), object.text(REFUSED))
            .hash(&mut terms);
        let refused = object.read::<Option<String>>(REFUSED).ok().flatten();
        let spec = match (refused, object.text("spec").len()) {
            (Some(why), _) => Err(why),
            (None, bytes) if bytes > MOST_SPEC => {
                Err(format!("the spec takes {bytes} bytes, at most {MOST_SPEC} leave room for the status"))
            }
            _ => object.read("spec").map_err(|error| error.to_string()),
        };
        let status = object.read("status").ok();
        let metadata = object.metadata;
        Some(Self {
            terms: terms.finish(),
            key: Key { namespace: metadata.namespace.unwrap_or_default(), name: metadata.name? },
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            created: metadata.creation_timestamp,
            owner: Owner::among(metadata.owner_references),
            is_going: metadata.deletion_timestamp.is_some(),
            spec,
            status,
            sent: Vec::new(),
        })
    }
}

/// What is kept of an object.
pub trait HubObject: Sized {
    /// Reads what the API server sent. `None` without a name.
    fn read(object: LazyObject) -> Option<Self>;
    /// Where it lives, which object of this name it is, and which version of that.
    fn identity(&self) -> (&Key, &str, &str);
    /// The object beside it that it belongs to.
    fn belongs_to(&self) -> Option<Key> {
        None
    }
    /// It was read, and not written, by this process, which knew this of it before. Whether somebody else wrote its status.
    fn follows(&mut self, _known: Option<&Self>) -> bool {
        false
    }
    /// It takes the place of this one: what was sent over that and may still land is to be known.
    fn replaces(&mut self, _known: Self) {}

    /// The same.
    fn version(&self) -> Version {
        let (key, uid, resource_version) = self.identity();
        Version { key: key.clone(), uid: uid.to_owned(), resource_version: resource_version.to_owned() }
    }
}

impl<S: DeserializeOwned, T: DeserializeOwned + Evidence> HubObject for Object<S, T> {
    fn read(object: LazyObject) -> Option<Self> {
        Self::read(object)
    }

    /// Who may write a status might claim what decides later: that a gate was open once, how far a stage has come.
    fn follows(&mut self, known: Option<&Self>) -> bool {
        let known = known.filter(|known| known.uid == self.uid);
        let is_own = |status: &T| {
            known.is_some_and(|it| it.status.as_ref() == Some(status) || it.sent.contains(status))
        };
        match &mut self.status {
            Some(status) if !is_own(status) => {
                let before = known.and_then(|it| it.status.as_ref());
                status.doubt(before.unwrap_or(&T::default()));
                before.is_some()
            }
            _ => false,
        }
    }

    /// Statuses are sent one after the other: when one stands there, those before it do not come any more.
    fn replaces(&mut self, known: Self) {
        if known.uid != self.uid {
            return;
        }
        let mut sent = known.sent;
        match sent.iter().rposition(|sent| self.status.as_ref() == Some(sent)) {
            Some(landed) => drop(sent.drain(..=landed)),
            None if self.status == known.status => {}
            None => sent.clear(),
        }
        sent.append(&mut self.sent);
        self.sent = sent;
    }

    fn identity(&self) -> (&Key, &str, &str) {
        (&self.key, &self.uid, &self.resource_version)
    }

    fn belongs_to(&self) -> Option<Key> {
        self.owner.as_ref().filter(|it| it.is_a(Kind::FleetRollout)).map(|it| self.key.beside(&it.name))
    }
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

impl GateObject {
    /// The name of its FleetPackage; `None` where the spec cannot be read.
    pub fn package(&self) -> Option<Key> {
        let spec = self.spec.as_ref().ok()?;
        Some(self.key.beside(&spec.fleet_package_ref.name))
    }

    /// Whether it is open now: its status says so of its present spec, which can be read.
    pub fn is_open_now(&self) -> bool {
        self.spec.is_ok() && self.status.as_ref().is_some_and(|status| status.is_open_now(self.generation))
    }

    /// Whether its status says Open, of whichever spec: then it is to be closed if it must not be open.
    pub fn says_open(&self) -> bool {
        self.status.as_ref().is_some_and(RolloutGateStatus::says_open)
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
                let key = O::read(object).map(|object| object.identity().0.clone());
                key.map(|key| self.forget(&key)).unwrap_or_default()
            }
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                BTreeSet::new()
            }
            Event::InitApply(object) => {
                if let (Some(listing), Some(object)) = (&mut self.listing, O::read(object)) {
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
        let metadata = &object.metadata;
        let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else { return false };
        self.has_seen(&Version {
            key: Key { namespace: namespace.clone(), name: name.clone() },
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
        })
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
        let mut object = O::read(object)?;
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

/// A FleetPackage of the hub.
pub type PackageObject = Object<FleetPackageSpec, FleetPackageStatus>;
/// A RolloutGate of the hub.
pub type GateObject = Object<RolloutGateSpec, RolloutGateStatus>;

/// A FleetRollout of the hub.
pub type RolloutObject = Object<FleetRolloutSpec, FleetRolloutStatus>;

/// All FleetRollouts.
pub type Rollouts = Store<FleetRolloutSpec, FleetRolloutStatus>;
/// All FleetPackages.
pub type Packages = Store<FleetPackageSpec, FleetPackageStatus>;
/// All RolloutGates.
pub type Gates = Store<RolloutGateSpec, RolloutGateStatus>;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use statusbridge_api::conditions::find;
    use statusbridge_api::{RolloutGateSpec, RolloutGateStatus};

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
    fn a_gate_is_open_now_only_by_a_verdict_on_its_present_spec() {
        // What the status answers, what its condition does, whether the spec can be read, and what follows.
        for (status, condition, readable, now) in [
            (1, 1, true, true),
            (0, 1, true, false),
            (1, 0, true, false),
            (0, 0, true, false),
            (1, 1, false, false),
        ] {
            let open = json!({"type": "Open", "status": "True", "reason": "Healthy", "message": "",
                "observedGeneration": condition, "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let mut gate: GateObject = Object::read(gate("one", "1", good())).unwrap();
            gate.status =
                serde_json::from_value(json!({"observedGeneration": status, "conditions": [open]})).unwrap();
            if !readable {
                gate.spec = Err("unreadable".into());
            }
            // Whatever it answers, it has to be closed if it must not be open.
            assert_eq!(
                (gate.is_open_now(), gate.says_open()),
                (now, true),
                "{status} {condition} {readable}"
            );
        }
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
