//! Many gates at once.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use statusbridge_contract::Fingerprint;

use crate::decide::{Backend, Moment};
use crate::fleet::{Fleet, FleetSettings};
use crate::reconcile::judge::World;
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::observation_cache::ObservationCache;
use crate::reconcile::store::{Event, Gates, Packages, Store};
use crate::testing::{Exposition, Surroundings, healthy, package, tell};
use crate::time::Seconds;

const T: Seconds = 1_800_000_000.0;

fn object(kind: &str, name: &str, spec: Value) -> LazyObject {
    with_status(kind, name, spec, Value::Null)
}

fn with_status(kind: &str, name: &str, spec: Value, status: Value) -> LazyObject {
    serde_json::from_value(json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
        "metadata": {"namespace": "fleet", "name": name, "resourceVersion": "1", "generation": 1},
        "spec": spec,
        "status": status,
    }))
    .unwrap()
}

fn packages(names: &[&str]) -> Packages {
    let mut packages = Store::default();
    for name in names {
        let spec =
            json!({"package": {"source": "flux", "namespace": "ns", "name": name}, "staleAfter": "3m"});
        packages.apply(Event::Apply(object("FleetPackage", name, spec)));
    }
    packages
}

fn add(gates: &mut Gates, name: &str, package: &str, more: Value) {
    let mut spec = json!({"fleetPackageRef": {"name": package}, "revision": "r1"});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    gates.apply(Event::Apply(object("RolloutGate", name, spec)));
}

/// Clusters `c0000` and so on, healthy with all these packages for an hour, first heard of at [`T`].
fn fleet(clusters: usize, packages: &[&str]) -> Fleet {
    let mut fleet = Fleet::new(FleetSettings::default());
    let since = T as u64 - 3600;
    let exposition =
        packages.iter().fold(Exposition::new(7), |all, name| all.with(name, healthy("r1", since)));
    for n in 0..clusters {
        tell(&mut fleet, &[("cluster", &format!("c{n:04}"))], &exposition, T);
    }
    fleet
}

/// All but the fleet.
struct Hub(Surroundings);

impl Hub {
    fn new(packages: Packages) -> Self {
        Self(Surroundings { packages, ..Surroundings::default() })
    }

    fn world<'a>(&'a self, fleet: &'a Fleet) -> World<'a> {
        self.0.world(fleet, Backend::Answers, Moment { t: T + 10.0, now: T + 15.0 })
    }
}

#[test]
fn what_is_known_of_a_package_is_found_out_once() {
    let (fleet, observations) = (fleet(3, &["p"]), ObservationCache::default());
    let survey = |stale_after| observations.of(package("p"), T, stale_after);
    assert!(Arc::ptr_eq(&survey(180.0), &survey(180.0)));
    assert!(!Arc::ptr_eq(&survey(180.0), &survey(60.0)));
    assert!(Arc::ptr_eq(&survey(180.0).reporting(&fleet), &survey(180.0).reporting(&fleet)));
    assert_eq!(survey(180.0).observe(&fleet, "c0002"), fleet.observe("c0002", &package("p"), T, 180.0));
    assert!(survey(180.0).seen_anywhere(&fleet, Fingerprint::of("r1"), |cluster| cluster == "c0001"));
    assert!(!survey(180.0).seen_anywhere(&fleet, Fingerprint::of("r1"), |cluster| cluster == "c0009"));
    assert!(!survey(180.0).seen_anywhere(&fleet, Fingerprint::of("r2"), |_| true));
    let before = survey(180.0);
    observations.clear();
    assert!(!Arc::ptr_eq(&before, &survey(180.0)));
}

/// Not a test: prints how long it takes to judge ten thousand gates over a thousand clusters.
#[test]
#[ignore = "prints times"]
fn ten_thousand_gates_over_a_thousand_clusters() {
    let names: Vec<String> = (0..20).map(|n| format!("p{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fleet = fleet(1000, &names);
    let wave =
        |n: usize| -> Vec<String> { (0..50).map(|at| format!("c{:04}", (n * 50 + at) % 1000)).collect() };
    type Spec<'a> = Box<dyn Fn(usize) -> Value + 'a>;
    let cases: [(&str, Spec<'_>); 3] = [
        (
            "50 clusters by name",
            Box::new(|n| json!({"clusters": {"names": wave(n)}, "minSuccessTime": "10m"})),
        ),
        ("1,000 reporting", Box::new(|_| json!({"clusters": {"reporting": {"minClusters": 1}}}))),
        (
            "1,000 reporting, none at the revision",
            Box::new(|_| json!({"clusters": {"reporting": {"minClusters": 1}}, "revision": "r9"})),
        ),
    ];
    for (what, spec) in cases {
        let mut gates = Gates::default();
        for n in 0..10_000 {
            add(&mut gates, &format!("g{n:05}"), names[n / 500], spec(n));
        }
        let hub = Hub::new(packages(&names));
        let world = hub.world(&fleet);
        let began = Instant::now();
        let written = gates.iter().filter(|gate| world.gate(gate).is_some()).count();
        let together = began.elapsed();
        let began = Instant::now();
        for gate in gates.iter().take(100) {
            hub.0.observations.clear();
            world.gate(gate);
        }
        let alone = began.elapsed() * 100;
        println!("{what}: {written} gates in {together:.2?}, each by itself {alone:.2?}");
    }
}
