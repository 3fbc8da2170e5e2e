//! Which gates are to be moved, and in which order. Plain data.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::Value;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::{Kind, Owner};

/// A gate of the FleetPackage as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gate {
    /// Its name.
    pub(super) name: String,
    /// The revision that it waits for.
    pub(super) revision: String,
    /// Names of the gates that it depends on.
    pub(super) depends_on: Vec<String>,
    /// A person's word: `Open` or `Closed`, and why.
    pub(super) word: Option<(String, String)>,
    /// It says Open, be it for an earlier generation.
    pub(super) open: bool,
    /// Its status answers its present spec.
    pub(super) judged: bool,
}

impl Gate {
    /// Reads a gate if it belongs to a FleetPackage, and not to a wave of a FleetRollout. Nothing else of it is looked at, so
    /// that this also works on gates with fields that this program does not know.
    pub(super) fn read(object: &LazyObject, package: &str) -> Option<Self> {
        let owner = Owner::among(object.metadata.owner_references.clone());
        if !is_of(object, package) || owner.is_some_and(|owner| owner.is_a(Kind::FleetRollout)) {
            return None;
        }
        let (spec, status) = (&object.value("spec"), &object.value("status"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let word = &spec["override"];
        let open = |condition: &Value| condition["type"] == "Open" && condition["status"] == "True";
        let observed = status["observedGeneration"].as_i64();
        Some(Self {
            name: object.metadata.name.clone()?,
            revision: text(&spec["revision"]),
            depends_on: list(&spec["dependsOn"]).iter().map(|other| text(&other["name"])).collect(),
            word: word.is_object().then(|| (text(&word["state"]), text(&word["reason"]))),
            open: list(&status["conditions"]).iter().any(open),
            judged: observed.is_some() && observed == object.metadata.generation,
        })
    }
}

/// Whether an object refers to a FleetPackage.
pub(super) fn is_of(object: &LazyObject, package: &str) -> bool {
    let spec = object.value("spec");
    spec.pointer("/fleetPackageRef/name").and_then(Value::as_str) == Some(package)
}

/// What is to become of the gates.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// To be moved, in this order.
    pub(super) moved: Vec<Gate>,
    /// Are at the revision already.
    pub(super) there: Vec<Gate>,
    /// Stay where they are, because they were not named.
    pub(super) left: Vec<Gate>,
}

/// Sorts a FleetPackage's gates. `only`: those that are meant, all of them when `None`.
///
/// # Errors
/// When one is named that does not exist, or belongs to another FleetPackage.
pub(super) fn plan(gates: Vec<Gate>, revision: &str, only: Option<&[String]>) -> Result<Plan> {
    let unknown = |name: &&String| !gates.iter().any(|gate| gate.name == **name);
    let unknown: Vec<String> = only.unwrap_or_default().iter().filter(unknown).cloned().collect();
    ensure!(
        unknown.is_empty(),
        "no RolloutGate of this FleetPackage, other than those of FleetRollouts, is called {}",
        unknown.join(" or ")
    );
    let mut plan = Plan::default();
    for gate in last_waves_first(gates) {
        if only.is_some_and(|only| !only.contains(&gate.name)) {
            plan.left.push(gate);
        } else if gate.revision == revision {
            plan.there.push(gate);
        } else {
            plan.moved.push(gate);
        }
    }
    Ok(plan)
}

/// A gate comes after all gates that depend on it: where a wave starts as soon as its own gate
/// names the revision, the gates of all later waves have been closed for it already. What depends
/// on itself comes last.
fn last_waves_first(mut gates: Vec<Gate>) -> Vec<Gate> {
    gates.sort_by(|a, b| b.name.cmp(&a.name));
    let mut ordered = Vec::with_capacity(gates.len());
    while !gates.is_empty() {
        let needed: BTreeSet<String> = gates.iter().flat_map(|gate| gate.depends_on.clone()).collect();
        let (free, rest): (Vec<Gate>, Vec<Gate>) =
            gates.into_iter().partition(|gate| !needed.contains(&gate.name));
        if free.is_empty() {
            ordered.extend(rest);
            break;
        }
        ordered.extend(free);
        gates = rest;
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    fn gate(name: &str, revision: &str, depends_on: &[&str]) -> Gate {
        Gate {
            name: name.to_owned(),
            revision: revision.to_owned(),
            depends_on: depends_on.iter().map(|name| (*name).to_owned()).collect(),
            word: None,
            open: false,
            judged: true,
        }
    }

    fn names(gates: &[Gate]) -> Vec<&str> {
        gates.iter().map(|gate| gate.name.as_str()).collect()
    }

    #[rstest]
    #[case::no_order(vec![gate("wave-1", "r1", &[]), gate("wave-2", "r1", &[])], &["wave-2", "wave-1"])]
    #[case::a_chain(
        vec![gate("a", "r1", &["b"]), gate("b", "r1", &["c"]), gate("c", "r1", &[])], &["a", "b", "c"])]
    #[case::a_diamond(
        vec![gate("first", "r1", &[]), gate("left", "r1", &["first"]), gate("right", "r1", &["first"]),
            gate("zlast", "r1", &["left", "right"])],
        &["zlast", "right", "left", "first"])]
    #[case::on_what_is_not_there(vec![gate("a", "r1", &["gone"]), gate("b", "r1", &[])], &["b", "a"])]
    #[case::in_a_circle(vec![gate("a", "r1", &["b"]), gate("b", "r1", &["a"])], &["b", "a"])]
    #[case::on_itself(vec![gate("a", "r1", &["a"]), gate("b", "r1", &["a"])], &["b", "a"])]
    fn last_waves_come_first(#[case] gates: Vec<Gate>, #[case] expected: &[&str]) {
        let plan = plan(gates, "r2", None).unwrap();
        assert_eq!(names(&plan.moved), expected);
    }

    #[test]
    fn what_is_there_or_not_meant_stays() {
        let gates = || vec![gate("a", "r1", &[]), gate("b", "r2", &[]), gate("c", "r0", &[])];
        let all = plan(gates(), "r2", None).unwrap();
        assert_eq!((names(&all.moved), names(&all.there), all.left.len()), (vec!["c", "a"], vec!["b"], 0));
        let some = plan(gates(), "r2", Some(&["a".to_owned(), "b".to_owned()])).unwrap();
        assert_eq!(
            (names(&some.moved), names(&some.there), names(&some.left)),
            (vec!["a"], vec!["b"], vec!["c"])
        );
        let error = plan(gates(), "r2", Some(&["a".to_owned(), "x".to_owned()])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no RolloutGate of this FleetPackage, other than those of FleetRollouts, is called x"
        );
    }

    #[test]
    fn a_gate_is_read_whatever_else_it_says() {
        let object = |spec: Value, status: Value| -> LazyObject {
            serde_json::from_value(json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
                "metadata": {"name": "wave-2", "uid": "u", "resourceVersion": "7", "generation": 3},
                "spec": spec, "status": status,
            }))
            .unwrap()
        };
        let spec = json!({
            "fleetPackageRef": {"name": "p"}, "revision": "r1", "dependsOn": [{"name": "wave-1"}],
            "override": {"state": "Open", "reason": "we know"}, "clusters": "of tomorrow",
        });
        let status = json!({"observedGeneration": 3, "conditions": [{"type": "Open", "status": "True"}]});
        let read = Gate::read(&object(spec.clone(), status), "p").unwrap();
        let expected = Gate {
            word: Some(("Open".into(), "we know".into())),
            open: true,
            ..gate("wave-2", "r1", &["wave-1"])
        };
        assert_eq!(read, expected);
        assert_eq!(Gate::read(&object(spec.clone(), json!({})), "another"), None);
        for (kind, is_read) in [("FleetRollout", false), ("Other", true)] {
            let mut of_a_wave = object(spec.clone(), json!({}));
            let owner = json!([{"apiVersion": "statusbridge.dev/v1alpha1", "kind": kind, "name": "p", "uid": "u",
                "controller": true}]);
            of_a_wave.metadata.owner_references = Some(serde_json::from_value(owner).unwrap());
            assert_eq!(Gate::read(&of_a_wave, "p").is_some(), is_read, "{kind}");
        }
        for status in [json!({}), json!({"observedGeneration": 2}), json!({"observedGeneration": -1})] {
            assert!(!Gate::read(&object(spec.clone(), status), "p").unwrap().judged);
        }
    }

    proptest! {
        /// Whatever depends on what: every gate has one place, and where nothing goes in circles,
        /// each comes after all that depend on it.
        #[test]
        fn every_gate_has_its_place(edges in proptest::collection::vec((0usize..8, 0usize..8), 0..16)) {
            let forward: Vec<(usize, usize)> = edges.into_iter().filter(|(a, b)| a < b).collect();
            let gates: Vec<Gate> = (0..8)
                .map(|at| {
                    let on: Vec<String> =
                        forward.iter().filter(|(_, b)| *b == at).map(|(a, _)| format!("g{a}")).collect();
                    Gate { depends_on: on, ..gate(&format!("g{at}"), "r1", &[]) }
                })
                .collect();
            let plan = plan(gates, "r2", None).unwrap();
            let place = |name: &str| plan.moved.iter().position(|gate| gate.name == name).unwrap();
            prop_assert_eq!(plan.moved.len(), 8);
            for (a, b) in forward {
                let places = [b, a].map(|at| place(&format!("g{at}")));
                prop_assert!(places[0] < places[1], "{:?}", places);
            }
        }
    }
}
