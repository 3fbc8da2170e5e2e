//! One object of the hub, and what is kept of it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube_core::{ApiResource, GroupVersionKind};
use serde::de::DeserializeOwned;
use statusbridge_api::{
    FleetPackageSpec, FleetPackageStatus, FleetRolloutSpec, FleetRolloutStatus, GROUP, RolloutGateSpec,
    RolloutGateStatus, VERSION, fleet_package_slice, fleet_rollout_slice,
};

use super::lazy_object::LazyObject;
use crate::decide::Evidence;

/// How long a spec may be, in bytes of JSON. The API server stores 1.5 MiB of an object: that leaves room for as much
/// again in `managedFields`, 256 KiB of annotations, and any status.
const MOST_SPEC: usize = 384 * 1024;

/// Field of an object beside its spec: why the spec counts for nothing, where a hub takes in what it has to refuse. An API
/// server refuses it before, and keeps no field of this name.
pub const REFUSED: &str = "refused";

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

impl Version {
    /// That of the object that this is the metadata of. `None` without a name.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let ObjectMeta { namespace, uid, resource_version, .. } = metadata;
        let key = Key { namespace: text(namespace), name: metadata.name.clone()? };
        Some(Self { key, uid: text(uid), resource_version: text(resource_version) })
    }
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
    /// The same for the very same spec of the very same object, whatever its version, and for nothing else. Each process
    /// computes others, so that nobody can write two specs that have the same.
    pub terms: u64,
    /// The spec, or why it cannot be read. It is shared by all versions of the object that have the same.
    pub spec: Result<Arc<S>, String>,
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
            spec: Ok(Arc::new(spec)),
            status: None,
            sent: Vec::new(),
        }
    }
}

impl<S: DeserializeOwned, T: DeserializeOwned + Evidence> Object<S, T> {
    /// Reads what the API server sent, where nothing was known of the object. `None` without a name.
    pub fn read(object: LazyObject) -> Option<Self> {
        HubObject::read(object, None)
    }
}

/// What is kept of an object.
pub trait HubObject: Sized {
    /// Reads what the API server sent, where this was known of the object. `None` without a name.
    fn read(object: LazyObject, known: Option<&Self>) -> Option<Self>;
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
    /// A spec may name ten thousand clusters, and comes with each write of the status: one that is known is not read again.
    fn read(object: LazyObject, known: Option<&Self>) -> Option<Self> {
        static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let metadata = &object.metadata;
        let Version { key, uid, resource_version } = Version::of(metadata)?;
        let terms = HASHES.hash_one((&uid, metadata.generation, object.text("spec"), object.text(REFUSED)));
        let spec = match known.filter(|known| known.terms == terms) {
            Some(known) => known.spec.clone(),
            None => spec(&object),
        };
        let status = object.read("status").ok();
        let metadata = object.metadata;
        Some(Self {
            terms,
            key,
            uid,
            resource_version,
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

fn spec<S: DeserializeOwned>(object: &LazyObject) -> Result<Arc<S>, String> {
    let refused = object.read::<Option<String>>(REFUSED).ok().flatten();
    match (refused, object.text("spec").len()) {
        (Some(why), _) => Err(why),
        (None, bytes) if bytes > MOST_SPEC => {
            Err(format!("the spec takes {bytes} bytes, at most {MOST_SPEC} leave room for the status"))
        }
        _ => object.read("spec").map(Arc::new).map_err(|error| error.to_string()),
    }
}

impl GateObject {
    /// The name of its FleetPackage; `None` where the spec cannot be read.
    pub fn package(&self) -> Option<Key> {
        let spec = self.spec.as_deref().ok()?;
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

/// A FleetPackage of the hub.
pub type PackageObject = Object<FleetPackageSpec, FleetPackageStatus>;
/// A RolloutGate of the hub.
pub type GateObject = Object<RolloutGateSpec, RolloutGateStatus>;

/// A FleetRollout of the hub.
pub type RolloutObject = Object<FleetRolloutSpec, FleetRolloutStatus>;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_gate_is_open_now_only_by_a_verdict_on_its_present_spec() {
        let key = Key { namespace: "fleet".into(), name: "one".into() };
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
            let spec =
                json!({"fleetPackageRef": {"name": "p"}, "revision": "r", "clusters": {"names": ["a"]}});
            let mut gate: GateObject = Object::made_up(key.clone(), serde_json::from_value(spec).unwrap());
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
}
