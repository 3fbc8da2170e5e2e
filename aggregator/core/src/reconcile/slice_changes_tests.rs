//! What becomes of slices in a hub: whose are touched, and what they may show.

use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_api::FleetPackageSlice;

use super::*;
use crate::decide::Moment;
use crate::fleet::{Fleet, FleetSettings};
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::state::State;
use crate::reconcile::store::Event;
use crate::reconcile::tenancy::Tenancy;
use crate::testing::{self, Exposition, feeds, healthy, tell};

const T: f64 = 10_000.0;
const GONE: Result<(), &str> = Err("no route to host");

/// Two clusters that report the package, and some slices.
struct Scene(State);

fn key(name: &str) -> Key {
    Key { namespace: "tenant".into(), name: name.into() }
}

fn package(uid: &str, spec: Value) -> LazyObject {
    let mut object = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
        "metadata": {"namespace": "tenant", "name": "p", "uid": uid, "generation": 1, "resourceVersion": "1"},
        "spec": {"package": {"source": "flux", "namespace": "ns", "name": "p"}, "detail": "All"},
    });
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn slice(name: &str, owner: Value, cluster: &str) -> LazyObject {
    let row = json!({"clusterName": cluster, "status": "Succeeded", "state": "Healthy", "reason": "Healthy"});
    serde_json::from_value(json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackageSlice",
        "metadata": {"namespace": "tenant", "name": name, "uid": name, "resourceVersion": "1", "ownerReferences": [owner]},
        "fleetPackageGeneration": 1, "clusters": [row],
    }))
    .unwrap()
}

fn owned_by(uid: &str) -> Value {
    json!({"apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage", "name": "p", "uid": uid, "controller": true})
}

impl Scene {
    fn new(package: Option<LazyObject>, slices: Vec<LazyObject>) -> Self {
        let mut fleet = Fleet::new(FleetSettings::default());
        for (at, cluster) in ["one", "two"].into_iter().enumerate() {
            let exposition = Exposition::new(at as u64 + 1).with("p", healthy("r", 10));
            tell(&mut fleet, &[("cluster", cluster)], &exposition, T - 5.0);
        }
        let mut state = testing::state(fleet);
        state.slices.apply(Event::InitDone);
        package.map(|package| state.packages.insert(package));
        slices.into_iter().for_each(|slice| drop(state.slices.insert(slice)));
        Self(state)
    }

    fn changes(&self) -> Vec<String> {
        let Self(state) = self;
        let clusters = |content: &FleetPackageSlice| -> String {
            content.clusters.iter().map(|row| format!(" {}", row.cluster_name)).collect()
        };
        let changes = changes(&World::new(state, Moment { t: T, now: T }), &state.slices, &key("p"));
        let told = changes.iter().map(|change| match change {
            Change::Create(_, content) => format!("make{}", clusters(content)),
            Change::Update(slice, content) => format!("write {}:{}", slice.key.name, clusters(content)),
            Change::Delete(slice) => format!("remove {}", slice.key.name),
        });
        told.collect()
    }
}

fn only(cluster: &str) -> Tenancy {
    serde_json::from_value(json!([
        {"namespaces": ["tenant"], "clusters": [cluster], "packageNamespaces": ["*"], "sources": ["*"]},
    ]))
    .unwrap()
}

#[rstest]
#[case::none_yet(json!({}), vec![], vec!["make one two"])]
#[case::adopted(json!({}), vec![slice("a", owned_by("1"), "two")], vec!["write a: one two"])]
#[case::not_asked_for(json!({"detail": "Problems"}), vec![slice("a", owned_by("1"), "two")], vec!["remove a"])]
#[case::never_asked_for(json!({"detail": "None"}), vec![], vec![])]
#[case::of_a_namesake_that_is_gone(json!({}), vec![slice("a", owned_by("0"), "two")], vec!["make one two", "remove a"])]
#[case::filled_by_others(json!({"managedBy": "them"}), vec![slice("a", owned_by("1"), "two")], vec![])]
#[case::unreadable(json!({"detail": "Some"}), vec![slice("a", owned_by("1"), "two")], vec![])]
#[case::makes_no_sense(json!({"staleAfter": "soon"}), vec![slice("a", owned_by("1"), "two")], vec![])]
#[case::nobody_reports(json!({"package": {"source": "flux", "namespace": "ns", "name": "x"}}), vec![slice("a", owned_by("1"), "two")], vec!["remove a"])]
fn what_follows(#[case] spec: Value, #[case] slices: Vec<LazyObject>, #[case] expected: Vec<&str>) {
    assert_eq!(Scene::new(Some(package("1", spec)), slices).changes(), expected);
}

#[test]
fn slices_of_a_package_that_is_gone_go_too() {
    assert_eq!(Scene::new(None, vec![slice("a", owned_by("1"), "two")]).changes(), ["remove a"]);
}

#[rstest]
#[case::no_controller(json!({"apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage", "name": "p", "uid": "1"}))]
#[case::another_kind(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "1", "controller": true}))]
#[case::another_group(json!({"apiVersion": "example.com/v1", "kind": "FleetPackage", "name": "p", "uid": "1", "controller": true}))]
fn slices_of_others_are_left_alone(#[case] owner: Value) {
    let theirs = || vec![slice("a", owner.clone(), "two")];
    assert_eq!(Scene::new(Some(package("1", json!({}))), theirs()).changes(), ["make one two"]);
    assert_eq!(Scene::new(None, theirs()).changes(), Vec::<String>::new());
}

#[test]
fn without_an_answer_of_the_backend_what_is_there_stays() {
    let mut scene = Scene::new(Some(package("1", json!({}))), vec![slice("a", owned_by("1"), "two")]);
    scene.0.feeds = feeds(&[("", &[GONE])]);
    assert_eq!(scene.changes(), Vec::<String>::new());
    // What was heard once counts until it is too old.
    scene.0.feeds = feeds(&[("", &[Ok(()), GONE])]);
    assert_eq!(scene.changes(), ["write a: one two"]);
}

#[test]
fn what_a_namespace_may_not_see_is_in_no_slice_and_does_not_stay() {
    let slices = || vec![slice("a", owned_by("1"), "two")];
    let scene = |spec: Value, tenancy: Tenancy, poll| {
        let mut scene = Scene::new(Some(package("1", spec)), slices());
        (scene.0.rules.tenancy, scene.0.feeds) = (tenancy, feeds(&[("", &[poll])]));
        scene.changes()
    };
    assert_eq!(scene(json!({}), only("two"), Ok(())), ["write a: two"]);
    assert_eq!(scene(json!({}), only("one"), Ok(())), ["make one", "remove a"]);
    assert_eq!(scene(json!({}), only("two"), GONE), Vec::<String>::new());
    assert_eq!(scene(json!({}), only("one"), GONE), ["remove a"]);
    let forbidden = json!({"clusters": {"names": ["one", "two"]}});
    assert_eq!(scene(forbidden, only("two"), Ok(())), ["remove a"]);
    assert_eq!(scene(json!({"detail": "Some"}), only("two"), Ok(())), ["remove a"], "unreadable");
}
