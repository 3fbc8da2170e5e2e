//! RolloutFreezes and RolloutApprovals, by the gates that they are for. A hub may lack either kind, or refuse to give them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::DeserializeOwned;
use statusbridge_api::rollout_gate::Approved;
use statusbridge_api::{RolloutApprovalSpec, RolloutFreezeSpec};
use statusbridge_contract::wanted;

use super::lazy_object::LazyObject;
use super::object::{HubObject, Key, REFUSED, Version};
use super::store::{Event, Mirror};
use crate::decide::hold::{Approvals, Freeze, Freezes, Knowledge};
use crate::decide::unix;
use crate::fleet::serial;
use crate::time::Seconds;

/// What is heard of the objects of one of the kinds.
#[derive(Debug)]
pub enum News {
    /// The hub does not serve the kind.
    NotServed,
    /// They cannot be listed or watched. When that ends, a whole list follows.
    Broken(String),
    /// Something in a list or a watch.
    Event(Box<Event<LazyObject>>),
}

impl From<Event<LazyObject>> for News {
    fn from(event: Event<LazyObject>) -> Self {
        Self::Event(Box::new(event))
    }
}

/// How well a kind is known.
#[derive(Debug, Clone, PartialEq)]
enum Known {
    /// Nothing was heard of it yet.
    Unheard,
    Whole,
    NotServed,
    /// Since when, and why, it may be other than it was.
    Unsure(Seconds, String),
}

/// All objects of a kind.
#[derive(Debug)]
struct Listed<O> {
    objects: Mirror<O>,
    known: Known,
}

impl<O: HubObject> Listed<O> {
    fn new(known: Known) -> Self {
        Self { objects: Mirror::of_others(), known }
    }

    fn knowledge(&self) -> Knowledge<'_> {
        match &self.known {
            Known::Unheard => {
                Knowledge::Unsure { since: Seconds::INFINITY, error: "they have not been listed yet" }
            }
            Known::Whole => Knowledge::Whole,
            Known::NotServed => Knowledge::NotServed,
            Known::Unsure(since, error) => Knowledge::Unsure { since: *since, error },
        }
    }

    /// Takes in what was heard at `now`: the objects that are other than before, and whether the kind is known otherwise.
    fn apply(&mut self, news: News, now: Seconds) -> (BTreeSet<Key>, bool) {
        let before = self.known.clone();
        let changed = match news {
            News::NotServed => {
                self.known = Known::NotServed;
                let objects = std::mem::replace(&mut self.objects, Mirror::of_others());
                objects.iter().map(|object| object.identity().0.clone()).collect()
            }
            News::Broken(error) => {
                // The first error stays: a text that changes would be written each time.
                if !matches!(self.known, Known::Unsure(..)) {
                    self.known = Known::Unsure(now, error);
                }
                BTreeSet::new()
            }
            News::Event(event) => {
                if matches!(*event, Event::InitDone) {
                    self.known = Known::Whole;
                }
                self.objects.apply(*event)
            }
        };
        (changed, self.known != before)
    }
}

fn spec<S: DeserializeOwned>(object: &LazyObject) -> Result<S, String> {
    match object.read::<Option<String>>(REFUSED).ok().flatten() {
        Some(why) => Err(why),
        None => object.read("spec").map_err(|error| error.to_string()),
    }
}

/// A RolloutFreeze of the hub.
#[derive(Debug)]
struct FreezeObject {
    key: Key,
    uid: String,
    resource_version: String,
    freeze: Freeze,
}

impl HubObject for FreezeObject {
    /// One that cannot be read is in force until somebody takes it away.
    fn read(object: LazyObject, _: Option<&Self>) -> Option<Self> {
        let spec = spec::<RolloutFreezeSpec>(&object);
        let metadata = object.metadata;
        let Version { key, uid, resource_version } = Version::of(&metadata)?;
        let freeze = match spec {
            Ok(spec) => Freeze {
                name: key.name.clone(),
                reason: spec.reason,
                from: spec.from.as_ref().map(unix),
                until: unix(&spec.until),
            },
            Err(error) => Freeze {
                name: key.name.clone(),
                reason: format!("what it says cannot be used: {error}"),
                from: None,
                until: Seconds::INFINITY,
            },
        };
        Some(Self { key, uid, resource_version, freeze })
    }

    fn identity(&self) -> (&Key, &str, &str) {
        (&self.key, &self.uid, &self.resource_version)
    }
}

/// A RolloutApproval of the hub.
#[derive(Debug)]
struct ApprovalObject {
    key: Key,
    uid: String,
    resource_version: String,
    /// What it approves; nothing where it cannot be read, or is being deleted.
    given: Option<Given>,
}

/// What an approval is for.
#[derive(Debug, Clone)]
struct Given {
    gate: String,
    revision: String,
    approved: Approved,
}

impl HubObject for ApprovalObject {
    fn read(object: LazyObject, _: Option<&Self>) -> Option<Self> {
        let spec = spec::<RolloutApprovalSpec>(&object).ok();
        let metadata = object.metadata;
        let Version { key, uid, resource_version } = Version::of(&metadata)?;
        let at: Option<Time> = metadata.creation_timestamp;
        let given = spec.filter(|_| metadata.deletion_timestamp.is_none()).map(|spec| Given {
            gate: spec.gate_ref.name,
            revision: spec.revision,
            approved: Approved { name: key.name.clone(), user: spec.by.user, at },
        });
        Some(Self { key, uid, resource_version, given: given.filter(|given| !given.revision.is_empty()) })
    }

    fn identity(&self) -> (&Key, &str, &str) {
        (&self.key, &self.uid, &self.resource_version)
    }
}

/// The freezes of one namespace.
#[derive(Debug, Default)]
struct Frozen {
    /// Another one whenever any of them is other than before.
    revision: u64,
    all: Vec<Freeze>,
}

/// The gates that have to be judged again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Concerned {
    /// All of them.
    All,
    /// All of these namespaces.
    Namespaces(BTreeSet<String>),
    /// These.
    Gates(BTreeSet<Key>),
}

/// All that holds gates back beside clusters.
#[derive(Debug)]
pub struct Holds {
    freezes: Listed<FreezeObject>,
    frozen: BTreeMap<String, Frozen>,
    approvals: Listed<ApprovalObject>,
    /// By gate, then by name.
    given: BTreeMap<Key, BTreeMap<String, Given>>,
    gates: BTreeMap<Key, Key>,
}

impl Default for Holds {
    fn default() -> Self {
        Self::new(Known::Unheard)
    }
}

impl Holds {
    fn new(known: Known) -> Self {
        Self {
            freezes: Listed::new(known.clone()),
            frozen: BTreeMap::new(),
            approvals: Listed::new(known),
            given: BTreeMap::new(),
            gates: BTreeMap::new(),
        }
    }

    /// Those of a hub that serves neither kind.
    pub fn none() -> Self {
        Self::new(Known::NotServed)
    }

    /// Whether anything was heard of either kind, be it that it cannot be read.
    pub(crate) fn heard(&self) -> bool {
        self.freezes.known != Known::Unheard && self.approvals.known != Known::Unheard
    }

    /// Takes in news of freezes.
    pub(crate) fn take_freezes(&mut self, news: News, now: Seconds) -> Concerned {
        let (changed, otherwise) = self.freezes.apply(news, now);
        let namespaces: BTreeSet<String> = changed.into_iter().map(|key| key.namespace).collect();
        for namespace in &namespaces {
            let all = self.freezes.objects.within(namespace).map(|object| object.freeze.clone()).collect();
            self.frozen.insert(namespace.clone(), Frozen { revision: serial::next(), all });
        }
        self.frozen.retain(|_, frozen| !frozen.all.is_empty());
        if otherwise { Concerned::All } else { Concerned::Namespaces(namespaces) }
    }

    /// Takes in news of approvals.
    pub(crate) fn take_approvals(&mut self, news: News, now: Seconds) -> Concerned {
        let (changed, otherwise) = self.approvals.apply(news, now);
        let mut gates = BTreeSet::new();
        for key in changed {
            if let Some(gate) = self.gates.remove(&key)
                && let Some(given) = self.given.get_mut(&gate)
            {
                given.remove(&key.name);
                if given.is_empty() {
                    self.given.remove(&gate);
                }
                gates.insert(gate);
            }
            if let Some(given) = self.approvals.objects.get(&key).and_then(|object| object.given.clone()) {
                let gate = key.beside(&given.gate);
                self.given.entry(gate.clone()).or_default().insert(key.name.clone(), given);
                self.gates.insert(key, gate.clone());
                gates.insert(gate);
            }
        }
        if otherwise { Concerned::All } else { Concerned::Gates(gates) }
    }

    /// The freezes of a namespace, and what is another number whenever any of them is other than before.
    pub(crate) fn freezes(&self, namespace: &str) -> (Freezes<'_>, u64) {
        let frozen = self.frozen.get(namespace);
        let all = frozen.map(|frozen| frozen.all.as_slice()).unwrap_or_default();
        (Freezes { all, knowledge: self.freezes.knowledge() }, frozen.map_or(0, |frozen| frozen.revision))
    }

    /// Whether this version of a freeze is the one that is known.
    pub(crate) fn has_freeze(&self, version: &Version) -> bool {
        self.freezes.objects.get(&version.key).is_some_and(|known| known.version() == *version)
    }

    /// The approvals of a gate that is for this revision.
    pub(crate) fn approvals(&self, gate: &Key, revision: &str) -> Approvals<'_> {
        let all = || self.given.get(gate).into_iter().flat_map(BTreeMap::values);
        let valid =
            all().filter(|given| wanted::is_same(&given.revision, revision)).map(|given| &given.approved);
        Approvals {
            valid: valid.min_by(|a, b| (&a.at, &a.name).cmp(&(&b.at, &b.name))),
            others: all().any(|given| !wanted::is_same(&given.revision, revision)),
            knowledge: self.approvals.knowledge(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use statusbridge_contract::Fingerprint;

    use super::*;

    const AT: Seconds = 1_000.0;

    fn sent(name: &str, version: u32, spec: Value) -> LazyObject {
        serde_json::from_value(json!({
            "metadata": {"namespace": "fleet", "name": name, "uid": name, "resourceVersion": version.to_string(),
                "creationTimestamp": format!("2026-05-04T08:00:{version:02}Z")},
            "spec": spec,
        }))
        .unwrap()
    }

    fn freeze(name: &str, version: u32) -> LazyObject {
        sent(name, version, json!({"reason": "release", "until": "2026-05-04T12:00:00Z"}))
    }

    fn approval(name: &str, version: u32, gate: &str, revision: &str) -> LazyObject {
        sent(name, version, json!({"gateRef": {"name": gate}, "revision": revision, "by": {"user": name}}))
    }

    fn key(name: &str) -> Key {
        Key { namespace: "fleet".into(), name: name.into() }
    }

    fn list(objects: Vec<LazyObject>) -> Vec<News> {
        let objects = objects.into_iter().map(Event::InitApply);
        [Event::Init].into_iter().chain(objects).chain([Event::InitDone]).map(News::from).collect()
    }

    fn valid(holds: &Holds, gate: &str, revision: &str) -> Option<String> {
        holds.approvals(&key(gate), revision).valid.map(|approved| approved.name.clone())
    }

    #[test]
    fn a_freeze_concerns_its_namespace_and_one_that_cannot_be_read_has_no_end() {
        let mut holds = Holds::default();
        assert!(matches!(holds.freezes("fleet").0.knowledge, Knowledge::Unsure { .. }));
        for news in list(vec![freeze("a", 1)]) {
            holds.take_freezes(news, AT);
        }
        let (freezes, revision) = holds.freezes("fleet");
        assert_eq!((freezes.all.len(), freezes.knowledge), (1, Knowledge::Whole));
        assert_eq!(holds.freezes("elsewhere").0.all, []);

        let odd = sent("odd", 2, json!({"reason": "release"}));
        let concerned = holds.take_freezes(Event::Apply(odd).into(), AT);
        assert_eq!(concerned, Concerned::Namespaces(["fleet".to_owned()].into()));
        let (freezes, other) = holds.freezes("fleet");
        assert_eq!(freezes.all.last().map(|freeze| freeze.until), Some(Seconds::INFINITY));
        assert_ne!(revision, other);

        holds.take_freezes(Event::Delete(freeze("a", 3)).into(), AT);
        holds.take_freezes(Event::Delete(freeze("odd", 3)).into(), AT);
        assert_eq!(holds.freezes("fleet"), (Freezes::default(), 0));
    }

    #[test]
    fn the_oldest_approval_of_the_revision_counts() {
        let mut holds = Holds::default();
        let all = vec![
            approval("late", 9, "wave-1", "r1"),
            approval("early", 3, "wave-1", "r1"),
            approval("other-revision", 1, "wave-1", "r0"),
            approval("other-gate", 1, "wave-2", "r1"),
        ];
        for news in list(all) {
            holds.take_approvals(news, AT);
        }
        assert_eq!(valid(&holds, "wave-1", "r1").as_deref(), Some("early"));
        assert_eq!(valid(&holds, "wave-1", &Fingerprint::of("r1").to_string()).as_deref(), Some("early"));
        assert_eq!(valid(&holds, "wave-1", "r2"), None);
        assert!(holds.approvals(&key("wave-1"), "r2").others);
        assert!(!holds.approvals(&key("wave-2"), "r1").others);
        assert_eq!(holds.approvals(&Key { namespace: "else".into(), ..key("wave-1") }, "r1").valid, None);

        // It is taken back.
        let gone = holds.take_approvals(Event::Delete(approval("early", 10, "wave-1", "r1")).into(), AT);
        assert_eq!(gone, Concerned::Gates([key("wave-1")].into()));
        assert_eq!(valid(&holds, "wave-1", "r1").as_deref(), Some("late"));
    }

    #[test]
    fn one_that_is_being_deleted_or_cannot_be_read_counts_for_nothing() {
        let mut holds = Holds::default();
        let mut leaving = json!({"metadata": {"namespace": "fleet", "name": "a", "uid": "a", "resourceVersion": "5",
            "deletionTimestamp": "2026-05-04T09:00:00Z"}});
        leaving["spec"] = json!({"gateRef": {"name": "wave-1"}, "revision": "r1", "by": {"user": "a"}});
        let odd = sent("b", 6, json!({"gateRef": {"name": "wave-1"}, "revision": "r1"}));
        let unnamed = approval("c", 7, "wave-1", "");
        for news in list(vec![serde_json::from_value(leaving).unwrap(), odd, unnamed]) {
            holds.take_approvals(news, AT);
        }
        assert_eq!(valid(&holds, "wave-1", "r1"), None);
        assert_eq!(valid(&holds, "wave-1", ""), None);
    }

    #[test]
    fn one_made_anew_for_another_gate_leaves_the_first() {
        let mut holds = Holds::default();
        for news in list(vec![approval("a", 1, "wave-1", "r1")]) {
            holds.take_approvals(news, AT);
        }
        let concerned = holds.take_approvals(Event::Apply(approval("a", 2, "wave-2", "r1")).into(), AT);
        assert_eq!(concerned, Concerned::Gates([key("wave-1"), key("wave-2")].into()));
        assert_eq!((valid(&holds, "wave-1", "r1"), valid(&holds, "wave-2", "r1")), (None, Some("a".into())));
    }

    #[rstest]
    #[case::refused("forbidden")]
    fn what_was_known_stays_while_the_kind_cannot_be_read(#[case] error: &str) {
        let mut holds = Holds::default();
        for news in list(vec![freeze("a", 1)]) {
            holds.take_freezes(news, AT);
        }
        let concerned = holds.take_freezes(News::Broken(error.to_owned()), AT);
        assert_eq!(concerned, Concerned::All);
        holds.take_freezes(News::Broken("something else".to_owned()), AT + 5.0);
        let (freezes, _) = holds.freezes("fleet");
        assert_eq!((freezes.all.len(), freezes.knowledge), (1, Knowledge::Unsure { since: AT, error }));
        assert_eq!(holds.take_freezes(News::NotServed, AT), Concerned::All);
        assert_eq!(holds.freezes("fleet").0, Freezes { all: &[], knowledge: Knowledge::NotServed });
    }
}
