use std::fs::File;

use super::*;
use crate::example;
use crate::tree::whole;

fn shown(target: Option<&str>, namespaces: bool) -> String {
    let objects = example::objects(&example::all());
    let target = target.map(|text| crate::target::target(text).unwrap());
    let tree = tree(&objects, target.as_ref(), namespaces, example::NOW);
    whole(&tree, &File::open("/dev/null").unwrap()).join("\n")
}

#[test]
fn a_package_is_followed_by_its_rollouts_its_gates_and_clusters_in_trouble() {
    insta::assert_snapshot!(shown(None, false));
    assert_eq!(shown(Some("package/payments"), false), shown(None, false));
}

#[test]
fn all_namespaces_are_told_apart() {
    let all = shown(None, true);
    assert!(all.starts_with("namespace fleet\n└─ package/payments"), "{all}");
}

#[test]
fn a_gate_is_shown_alone() {
    assert_eq!(
        shown(Some("gate/by-hand"), false),
        "gate/by-hand  Open  222222222222, 2/2 healthy; evidence 4s old"
    );
    assert_eq!(shown(Some("gate/gone"), false), "there are no FleetPackages and no RolloutGates");
}
