//! ClusterApprovalRequests that wait for an approval, as the watch tells of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};

use kube::ResourceExt;
use kube::runtime::watcher::Event;
use serde::Deserialize;
use statusbridge_core::reconcile::lazy_object::LazyObject;

use crate::target::name;

/// The condition with which KubeFleet takes a request for approved.
pub(super) const APPROVED: &str = "Approved";
/// Most requests that are kept.
pub(super) const MOST: usize = 10_000;
/// Longest name of a stage: it is a part of an annotation's key.
const LONGEST_STAGE: usize = 63;

/// A request that nobody has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) generation: i64,
    /// The ClusterStagedUpdateRun that asks.
    pub(super) run: String,
    /// The stage about which it asks.
    pub(super) stage: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    parent_stage_rollout: String,
    target_stage: String,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
}

impl Request {
    /// `None` where there is nothing to approve: it is answered, whatever the answer is, goes away, or cannot be read.
    fn read(object: &LazyObject) -> Option<Self> {
        let spec: Spec = object.read("spec").ok()?;
        let status: Option<Status> = object.read("status").ok()?;
        let answered = status.unwrap_or_default().conditions.iter().any(|it| it.type_ == APPROVED);
        if answered || object.metadata.deletion_timestamp.is_some() || spec.target_stage.len() > LONGEST_STAGE
        {
            return None;
        }
        Some(Self {
            name: name(&object.name_any()).ok()?,
            uid: object.uid()?,
            resource_version: object.resource_version()?,
            generation: object.metadata.generation?,
            run: name(&spec.parent_stage_rollout).ok()?,
            stage: spec.target_stage,
        })
    }
}

/// The requests that wait, by name.
#[derive(Debug, Default)]
pub(super) struct Requests {
    waiting: BTreeMap<String, Request>,
    /// While a list comes in: those of before that it has not named.
    unseen: BTreeSet<String>,
    listed: bool,
    left_out: bool,
    /// The one that was looked at last.
    last: String,
}

impl Requests {
    /// Takes in what a list or a watch says.
    pub(super) fn apply(&mut self, event: Event<LazyObject>) {
        match event {
            Event::Init => {
                self.left_out = false;
                self.unseen = self.waiting.keys().cloned().collect();
            }
            Event::InitApply(object) | Event::Apply(object) => self.put(&object),
            Event::InitDone => {
                for name in std::mem::take(&mut self.unseen) {
                    self.waiting.remove(&name);
                }
                self.listed = true;
            }
            Event::Delete(object) => drop(self.waiting.remove(&object.name_any())),
        }
    }

    fn put(&mut self, object: &LazyObject) {
        let name = object.name_any();
        self.unseen.remove(&name);
        match Request::read(object) {
            None => drop(self.waiting.remove(&name)),
            Some(_) if self.waiting.len() >= MOST && !self.waiting.contains_key(&name) => {
                self.left_out = true;
            }
            Some(request) => drop(self.waiting.insert(name, request)),
        }
    }

    /// Whether a list has come in.
    pub(super) fn are_listed(&self) -> bool {
        self.listed
    }

    /// Whether some were left out that there would be room for now.
    pub(super) fn need_a_list(&self) -> bool {
        self.left_out && self.waiting.len() < MOST / 2
    }

    /// Whether this request still waits.
    pub(super) fn have(&self, name: &str) -> bool {
        self.waiting.contains_key(name)
    }

    /// The next requests to look at, each as often as the others.
    pub(super) fn next(&mut self, most: usize) -> Vec<Request> {
        let after = self.waiting.range::<str, _>((Excluded(self.last.as_str()), Unbounded));
        let rest = self.waiting.range::<str, _>((Unbounded, Included(self.last.as_str())));
        let next: Vec<Request> = after.chain(rest).take(most).map(|(_, request)| request.clone()).collect();
        if let Some(last) = next.last() {
            self.last.clone_from(&last.name);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn object(name: &str, change: Value) -> LazyObject {
        let mut object = json!({
            "metadata": {"name": name, "uid": "u", "resourceVersion": "7", "generation": 1},
            "spec": {"parentStageRollout": "run", "targetStage": "wave1"},
        });
        for (path, value) in change.as_object().unwrap() {
            match path.split_once('.') {
                Some((outer, inner)) => object[outer][inner] = value.clone(),
                None => object[path] = value.clone(),
            }
        }
        serde_json::from_value(object).unwrap()
    }

    fn answered(kind: &str, status: &str) -> Value {
        json!({"status": {"conditions": [{"type": kind, "status": status, "observedGeneration": 1}]}})
    }

    #[rstest]
    #[case(json!({}), true)]
    #[case(json!({"status": {}}), true)]
    #[case(answered("ApprovalAccepted", "False"), true)]
    #[case::approved(answered("Approved", "True"), false)]
    #[case::refused_by_a_person(answered("Approved", "False"), false)]
    #[case::odd_status(json!({"status": {"conditions": "Approved"}}), false)]
    #[case::goes_away(json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"}), false)]
    #[case::no_version(json!({"metadata.resourceVersion": null}), false)]
    #[case::another_path(json!({"spec.parentStageRollout": "../x"}), false)]
    #[case::no_stage(json!({"spec.targetStage": null}), false)]
    #[case::long_stage(json!({"spec.targetStage": "w".repeat(64)}), false)]
    fn a_request_waits_until_somebody_answers(#[case] change: Value, #[case] waits: bool) {
        assert_eq!(Request::read(&object("r", change)).is_some(), waits);
    }

    fn names(requests: &[Request]) -> Vec<&str> {
        requests.iter().map(|request| request.name.as_str()).collect()
    }

    #[test]
    fn each_gets_its_turn() {
        let mut requests = Requests::default();
        for name in ["a", "b", "c"] {
            requests.apply(Event::Apply(object(name, json!({}))));
        }
        assert_eq!(names(&requests.next(2)), ["a", "b"]);
        assert_eq!(names(&requests.next(2)), ["c", "a"]);
        requests.apply(Event::Delete(object("a", json!({}))));
        requests.apply(Event::Apply(object("c", answered("Approved", "True"))));
        assert_eq!(names(&requests.next(9)), ["b"]);
    }

    #[test]
    fn a_list_replaces_what_was_known() {
        let mut requests = Requests::default();
        assert!(!requests.are_listed());
        requests.apply(Event::Apply(object("a", json!({}))));
        requests.apply(Event::Apply(object("b", json!({}))));
        requests.apply(Event::Init);
        requests.apply(Event::InitApply(object("b", json!({}))));
        requests.apply(Event::InitApply(object("c", json!({}))));
        requests.apply(Event::InitDone);
        assert_eq!(names(&requests.next(9)), ["b", "c"]);
        assert!(requests.are_listed());
    }

    #[test]
    fn those_that_are_too_many_are_listed_again_once_there_is_room() {
        let mut requests = Requests::default();
        let name = |number: usize| format!("r{number}");
        for number in 0..=MOST {
            requests.apply(Event::Apply(object(&name(number), json!({}))));
        }
        assert!(!requests.have(&name(MOST)) && !requests.need_a_list());
        for number in 0..=MOST / 2 {
            requests.apply(Event::Delete(object(&name(number), json!({}))));
        }
        assert!(requests.need_a_list());
        requests.apply(Event::Init);
        assert!(!requests.need_a_list());
    }
}
