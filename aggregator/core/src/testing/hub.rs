//! A hub of a few lines: objects by kind and place, as its API server keeps them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::fleet::{Fleet, FleetSettings};
use crate::reconcile::command::{Answer, Head, Listing, StatusWrite, Which};
use crate::reconcile::feeds::Planned;
use crate::reconcile::judging::Judges;
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::object::{Key, Kind, Version};
use crate::reconcile::owned::{Change, OwnedWrite};
use crate::reconcile::reconciler::Reconciler;
use crate::reconcile::state::State;
use crate::reconcile::store::Event;
use crate::time::Now;

/// The hub.
#[derive(Debug, Default)]
pub struct Hub {
    objects: BTreeMap<(Kind, Key), Value>,
    /// How many versions there were of all objects.
    pub versions: u64,
}

/// An object as the API server sends it.
pub fn object(value: &Value) -> LazyObject {
    serde_json::from_str(&value.to_string()).unwrap()
}

impl Hub {
    fn version(&mut self) -> Value {
        self.versions += 1;
        json!(self.versions.to_string())
    }

    pub fn get(&self, kind: Kind, key: &Key) -> Option<&Value> {
        self.objects.get(&(kind, key.clone()))
    }

    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |((of, _), _)| *of == kind).map(|(_, it)| it)
    }

    /// What a watch of a kind begins with.
    pub fn listed(&self, kind: Kind) -> Vec<Event<LazyObject>> {
        let all = self.of(kind).map(|it| Event::InitApply(object(it)));
        [Event::Init].into_iter().chain(all).chain([Event::InitDone]).collect()
    }

    /// A process that has just come to lead: it has one feed, and has read all objects of these kinds.
    pub fn leader(&self, state: State, kinds: &[Kind], now: Now) -> Reconciler {
        let mut reconciler = Reconciler::new(state, Judges::default(), None);
        let feed = Planned { name: "".into(), settle: 5.0, asked: false };
        reconciler.planned(vec![feed], Fleet::new(FleetSettings::default()));
        for kind in kinds {
            for event in self.listed(*kind) {
                reconciler.heard(*kind, event, now);
            }
        }
        reconciler
    }

    /// Makes an object, or gives it another spec; its status stays.
    pub fn make(&mut self, kind: Kind, key: Key, spec: Value) -> LazyObject {
        let version = self.version();
        let made = self.objects.entry((kind, key)).or_insert_with_key(|(kind, key)| {
            json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind.name(),
                "metadata": {"namespace": key.namespace, "name": key.name, "uid": version, "generation": 0,
                    "creationTimestamp": "2027-01-01T00:00:00Z"},
            })
        });
        made["spec"] = spec;
        let generation = made["metadata"]["generation"].as_i64().unwrap();
        made["metadata"]["generation"] = json!(generation + 1);
        made["metadata"]["resourceVersion"] = version;
        object(made)
    }

    /// Changes an object, if it is there, in all but its spec.
    pub fn touch(&mut self, kind: Kind, key: Key, change: impl FnOnce(&mut Value)) -> Option<LazyObject> {
        let version = self.version();
        let it = self.objects.get_mut(&(kind, key))?;
        change(it);
        it["metadata"]["resourceVersion"] = version;
        Some(object(it))
    }

    pub fn remove(&mut self, kind: Kind, key: Key) -> Option<LazyObject> {
        self.objects.remove(&(kind, key)).map(|gone| object(&gone))
    }

    /// Takes in a status; one that changes nothing makes no new version.
    pub fn write_status(&mut self, write: &StatusWrite, status: Value) -> Answer {
        let of = &write.version;
        let Some(it) = self.get(write.kind, &of.key) else { return Answer::Gone };
        match it["status"] == status {
            _ if !is_of(it, of) => Answer::Conflict,
            true => Answer::Done(Box::new(object(it))),
            false => self.touched(write.kind, of, |it| it["status"] = status),
        }
    }

    /// Takes in a change of an object that belongs to another one.
    pub fn write_owned(&mut self, write: &OwnedWrite) -> Answer {
        let kind = write.kind;
        match &write.change {
            Change::Create(name, content) => {
                let key = write.owner.1.beside(name);
                if self.get(kind, &key).is_some() {
                    return Answer::Conflict;
                }
                let version = self.version();
                let mut made = Value::Object(content.fields.clone());
                made["metadata"] = json!({"namespace": key.namespace, "name": key.name, "uid": version,
                    "resourceVersion": version, "generation": 1, "creationTimestamp": "2027-01-01T00:00:00Z",
                    "labels": content.labels});
                if let Some(controller) = &write.controller {
                    made["metadata"]["ownerReferences"] = json!([{"apiVersion": "statusbridge.dev/v1alpha1",
                        "kind": write.owner.0.name(), "name": write.owner.1.name, "uid": controller, "controller": true}]);
                }
                let answer = Answer::Done(Box::new(object(&made)));
                self.objects.insert((kind, key), made);
                answer
            }
            Change::Update(of, content) => self.touched(kind, of, |it| {
                json_patch::merge(it, &Value::Object(content.fields.clone()));
                let generation = it["metadata"]["generation"].as_i64().unwrap();
                it["metadata"]["generation"] = json!(generation + 1);
                json_patch::merge(&mut it["metadata"]["labels"], &json!(content.labels));
            }),
            Change::Delete(of) => match self.get(kind, &of.key) {
                Some(it) if !is_of(it, of) => Answer::Conflict,
                _ => {
                    self.remove(kind, of.key.clone());
                    Answer::Gone
                }
            },
        }
    }

    /// Changes an object if it is of the version that the change was decided upon.
    fn touched(&mut self, kind: Kind, of: &Version, change: impl FnOnce(&mut Value)) -> Answer {
        match self.get(kind, &of.key) {
            None => Answer::Gone,
            Some(it) if !is_of(it, of) => Answer::Conflict,
            Some(_) => {
                self.touch(kind, of.key.clone(), change).map_or(Answer::Gone, |it| Answer::Done(Box::new(it)))
            }
        }
    }

    /// What a listing of metadata gives.
    pub fn heads(&self, Listing { kind, which, .. }: &Listing) -> Vec<Head> {
        let is_meant = |it: &&Value| match which {
            Which::All => true,
            Which::Named(name) => it["metadata"]["name"] == *name,
            Which::Labelled(label, value) => it["metadata"]["labels"][label] == *value,
        };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let head = |it: &Value| {
            let metadata = &it["metadata"];
            let key = Key { namespace: text(&metadata["namespace"]), name: text(&metadata["name"]) };
            let (uid, resource_version) = (text(&metadata["uid"]), text(&metadata["resourceVersion"]));
            let generation = metadata["generation"].as_i64().unwrap();
            Head { kind: *kind, version: Version { key, uid, resource_version }, generation }
        };
        self.of(*kind).filter(is_meant).map(head).collect()
    }
}

/// Whether it is this very version, as far as one is said.
fn is_of(it: &Value, of: &Version) -> bool {
    let is = |field: &str, said: &str| said.is_empty() || it["metadata"][field] == said;
    is("uid", &of.uid) && is("resourceVersion", &of.resource_version)
}
