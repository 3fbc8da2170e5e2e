//! A FleetPackage whose reference has not been read yet.

use std::time::Duration;

use serde_json::{Value, json};
use statusbridge_api::conditions::{READY, find};

use super::*;
use crate::fleet::Fleet;
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::object::Object;
use crate::reconcile::references::{News, Place};
use crate::testing::{self, evaluate_all, kept};

fn refers(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "expression": "object.data.revision"})
}

fn package(generation: i64, from: Value, status: Option<&FleetPackageStatus>) -> PackageObject {
    let object: LazyObject = serde_json::from_value(json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
        "metadata": {"namespace": "fleet", "name": "p", "generation": generation},
        "spec": {"package": {"source": "flux", "name": "p"}, "revisionFrom": from}, "status": status,
    }))
    .unwrap();
    Object::read(object).unwrap()
}

fn judged(state: &State, package: &PackageObject) -> Option<FleetPackageStatus> {
    World::new(state, Moment { t: 1000.0, now: 1000.0 }).package(package)
}

fn ready(status: &FleetPackageStatus) -> &str {
    &find(&status.conditions, READY).unwrap().reason
}

/// A hub of which nothing but this FleetPackage's reference is known.
fn asked(package: &PackageObject) -> State {
    let mut state = testing::state(Fleet::default());
    let from = package.spec.as_deref().unwrap().revision_from.as_ref();
    state.references.ask(&package.key, from, Duration::ZERO);
    state
}

#[test]
fn what_was_said_stands_for_its_generation_alone_until_the_reference_is_read() {
    let fresh = package(1, refers("a"), None);
    let mut state = asked(&fresh);
    assert_eq!(ready(&judged(&state, &fresh).unwrap()), "Pending");
    let place = Place { namespace: "fleet".into(), api_version: "v1".into(), kind: "ConfigMap".into() };
    let object = json!({"data": {"revision": "r1"}});
    let objects = [("a".to_owned(), kept(&object))].into();
    state.references.take(&place, News::Listed { asked: ["a".to_owned()].into(), objects }, Duration::ZERO);
    assert_eq!(judged(&state, &fresh).map(|it| ready(&it).to_owned()).as_deref(), Some("Pending"));
    evaluate_all(&mut state.references);
    let status = judged(&state, &fresh).unwrap();
    assert_eq!((ready(&status), status.revision.as_deref()), ("NoTargets", Some("r1")));

    // Another aggregator, which has not read it yet.
    let known = package(1, refers("a"), Some(&status));
    let state = asked(&known);
    assert_eq!(judged(&state, &known), None);
    // Somebody has changed the reference, and the ledger has not even heard of it.
    let changed = package(2, refers("b"), Some(&status));
    let status = judged(&state, &changed).unwrap();
    assert_eq!((ready(&status), status.revision.as_deref()), ("Pending", None));
    assert_eq!(status.observed_generation, Some(2));
}
