//! How gates depend on each other: who has to be looked at again when one changes, and who waits
//! for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use petgraph::algo::kosaraju_scc;
use petgraph::graphmap::DiGraphMap;

use crate::reconcile::object::{GateObject, Key};
use crate::reconcile::store::Gates;

/// The gates that a gate depends on.
fn wanted(gate: &GateObject) -> BTreeSet<Key> {
    let spec = gate.spec.as_deref().ok();
    spec.into_iter().flat_map(|spec| &spec.depends_on).map(|other| gate.key.beside(&other.name)).collect()
}

/// Gates that all depend on each other.
#[derive(Debug, PartialEq, Eq)]
pub struct Cycle {
    /// In the order in which they depend on each other, when there is only one.
    members: Vec<String>,
    ring: bool,
}

impl std::fmt::Display for Cycle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 8;
        let more = self.members.len().saturating_sub(SHOWN);
        let shown = self.members.get(..SHOWN).unwrap_or(&self.members);
        let first = shown.first().map_or("", String::as_str);
        match (self.ring, more) {
            (true, 0) => write!(f, "{} -> {first}", shown.join(" -> ")),
            (true, more) => write!(f, "{} -> {more} more -> {first}", shown.join(" -> ")),
            (false, 0) => write!(f, "{} depend on each other", shown.join(", ")),
            (false, more) => write!(f, "{} and {more} more depend on each other", shown.join(", ")),
        }
    }
}

/// What every gate depends on.
#[derive(Debug, Default)]
pub struct Graph {
    /// Of gates that depend on any.
    wanted: BTreeMap<Key, BTreeSet<Key>>,
    dependents: BTreeMap<Key, BTreeSet<Key>>,
    cycles: BTreeMap<Key, Arc<Cycle>>,
}

impl Graph {
    /// Takes in gates that have changed, appeared or gone. Gives back those that are or were part of
    /// a cycle, when that may have changed.
    pub fn update(&mut self, gates: &Gates, changed: &BTreeSet<Key>) -> BTreeSet<Key> {
        let mut moved = false;
        for key in changed {
            let now = gates.get(key).map(wanted).unwrap_or_default();
            if self.wanted.get(key).map_or(now.is_empty(), |before| *before == now) {
                continue;
            }
            moved = true;
            for other in self.wanted.remove(key).unwrap_or_default() {
                if let Some(dependents) = self.dependents.get_mut(&other) {
                    dependents.remove(key);
                    if dependents.is_empty() {
                        self.dependents.remove(&other);
                    }
                }
            }
            for other in &now {
                self.dependents.entry(other.clone()).or_default().insert(key.clone());
            }
            if !now.is_empty() {
                self.wanted.insert(key.clone(), now);
            }
        }
        if !moved {
            return BTreeSet::new();
        }
        let before = std::mem::replace(&mut self.cycles, cycles(&self.wanted));
        before.into_keys().chain(self.cycles.keys().cloned()).collect()
    }

    /// The gates that depend on a gate.
    pub(crate) fn dependents(&self, key: &Key) -> impl Iterator<Item = &Key> {
        self.dependents.get(key).into_iter().flatten()
    }

    /// The cycle that a gate is part of.
    pub fn cycle(&self, gate: &GateObject) -> Option<Arc<Cycle>> {
        let now = wanted(gate);
        if self.wanted.get(&gate.key).map_or(now.is_empty(), |known| *known == now) {
            return self.cycles.get(&gate.key).cloned();
        }
        // A version that is newer than the graph.
        let lone = || Arc::new(Cycle { members: vec![gate.key.name.clone()], ring: true });
        self.leads_to(&gate.key, &now).then(lone)
    }

    /// Whether one of these, or one that they depend on, is `gate`.
    fn leads_to(&self, gate: &Key, from: &BTreeSet<Key>) -> bool {
        let mut seen = BTreeSet::new();
        let mut due: Vec<&Key> = from.iter().collect();
        while let Some(key) = due.pop() {
            if key == gate {
                return true;
            }
            if seen.insert(key) {
                due.extend(self.wanted.get(key).into_iter().flatten());
            }
        }
        false
    }
}

/// The cycle of every gate that is part of one.
fn cycles(wanted: &BTreeMap<Key, BTreeSet<Key>>) -> BTreeMap<Key, Arc<Cycle>> {
    let edges = wanted.iter().flat_map(|(gate, others)| others.iter().map(move |other| (gate, other)));
    // A gate that depends on nothing is part of no cycle.
    let graph = DiGraphMap::<&Key, ()>::from_edges(edges.filter(|(_, other)| wanted.contains_key(other)));
    let mut cycles = BTreeMap::new();
    // Tarjan's algorithm recurses in this crate: too deep where ten thousand gates stand in a row.
    for mut members in kosaraju_scc(&graph) {
        members.sort_unstable();
        let within = |gate| graph.neighbors(gate).filter(|other| members.binary_search(other).is_ok());
        if members.iter().any(|gate| within(gate).count() == 0) {
            // One gate that does not depend on itself.
            continue;
        }
        let ring = members.iter().all(|gate| within(gate).count() == 1);
        let ordered: Vec<&Key> = if ring {
            let around = std::iter::successors(members.first().copied(), |gate| within(gate).next());
            around.take(members.len()).collect()
        } else {
            members.clone()
        };
        let names = ordered.into_iter().map(|gate| gate.name.clone()).collect();
        let cycle = Arc::new(Cycle { members: names, ring });
        cycles.extend(members.into_iter().map(|gate| (gate.clone(), cycle.clone())));
    }
    cycles
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::reconcile::object::Object;

    fn gate(name: &str, depends_on: &[String]) -> crate::reconcile::lazy_object::LazyObject {
        let depends_on: Vec<_> = depends_on.iter().map(|name| json!({"name": name})).collect();
        serde_json::from_value(json!({
            "apiVersion": "statusbridge.dev/v1alpha1",
            "kind": "RolloutGate",
            "metadata": {"namespace": "fleet", "name": name, "resourceVersion": "1", "generation": 2},
            "spec": {"fleetPackageRef": {"name": "p"}, "revision": "r", "clusters": {"names": ["a"]},
                "dependsOn": depends_on},
        }))
        .unwrap()
    }

    fn key(name: &str) -> Key {
        Key { namespace: "fleet".into(), name: name.into() }
    }

    /// `a:b,c d:a` is that a depends on b and c, and d on a.
    fn world(text: &str) -> (Gates, Graph) {
        let mut gates = Gates::default();
        let mut changed = BTreeSet::new();
        for gate_text in text.split_whitespace() {
            let (name, others) = gate_text.split_once(':').unwrap();
            let others: Vec<String> = others.split(',').filter(|it| !it.is_empty()).map(Into::into).collect();
            changed.extend(gates.insert(gate(name, &others)));
        }
        let mut graph = Graph::default();
        graph.update(&gates, &changed);
        (gates, graph)
    }

    #[rstest]
    #[case::none("a: b:a c:a,b d:c,a", &[])]
    #[case::itself("a:a b:a", &[("a", "a -> a")])]
    #[case::two("a:b b:a c:a", &[("a", "a -> b -> a"), ("b", "a -> b -> a")])]
    #[case::three("c:a a:b b:c d:a e:d", &[("a", "a -> b -> c -> a"), ("b", "a -> b -> c -> a"), ("c", "a -> b -> c -> a")])]
    #[case::two_circles("a:b b:a,c c:b", &[("a", "a, b, c depend on each other"), ("b", "a, b, c depend on each other"), ("c", "a, b, c depend on each other")])]
    #[case::apart("a:b b:a c:d d:c,a", &[("a", "a -> b -> a"), ("b", "a -> b -> a"), ("c", "c -> d -> c"), ("d", "c -> d -> c")])]
    #[case::by_way_of_one_that_does_not_exist("a:x b:a", &[])]
    fn every_gate_of_a_cycle_is_found_and_none_that_only_waits_for_one(
        #[case] text: &str,
        #[case] expected: &[(&str, &str)],
    ) {
        let (gates, graph) = world(text);
        let found: Vec<(String, String)> = gates
            .iter()
            .filter_map(|gate| Some((gate.key.name.clone(), graph.cycle(gate)?.to_string())))
            .collect();
        let expected: Vec<(String, String)> =
            expected.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_change_is_told_to_all_that_are_or_were_in_a_cycle() {
        let (mut gates, mut graph) = world("a:b b:c c: d:a");
        assert_eq!(graph.dependents(&key("a")).collect::<Vec<_>>(), [&key("d")]);
        gates.insert(gate("c", &["a".into()]));
        let all: BTreeSet<Key> = ["a", "b", "c"].map(key).into();
        assert_eq!(graph.update(&gates, &[key("c")].into()), all);
        assert_eq!(graph.update(&gates, &[key("c")].into()), BTreeSet::new());
        gates.forget(&key("b"));
        assert_eq!(graph.update(&gates, &[key("b")].into()), all);
        assert!(gates.iter().all(|gate| graph.cycle(gate).is_none()));
        assert_eq!(graph.dependents(&key("c")).count(), 0);
    }

    #[test]
    fn a_version_that_the_graph_does_not_know_yet_does_not_escape_it() {
        let (_, graph) = world("a:b b: c:a");
        let newer = Object::read(gate("b", &["c".into()])).unwrap();
        assert_eq!(graph.cycle(&newer).unwrap().to_string(), "b -> b");
        let freed = Object::read(gate("a", &[])).unwrap();
        assert_eq!(graph.cycle(&freed), None);
    }

    #[test]
    fn ten_thousand_gates_in_one_circle_or_one_row() {
        let name = |at: usize| format!("g{at:05}");
        let mut gates = Gates::default();
        let all: BTreeSet<Key> =
            (0..10_000).filter_map(|at| gates.insert(gate(&name(at), &[name((at + 1) % 10_000)]))).collect();
        let mut graph = Graph::default();
        assert_eq!(graph.update(&gates, &all), all);
        let text = graph.cycle(gates.get(&key("g00500")).unwrap()).unwrap().to_string();
        assert!(
            text.starts_with("g00000 -> g00001 -> ") && text.ends_with(" -> 9992 more -> g00000"),
            "{text}"
        );
        gates.insert(gate(&name(9_999), &[]));
        assert_eq!(graph.update(&gates, &[key(&name(9_999))].into()), all);
        assert!(gates.iter().all(|gate| graph.cycle(gate).is_none()));
    }

    proptest! {
        #[test]
        fn a_gate_is_in_a_cycle_when_it_leads_to_itself(edges in prop::collection::vec(prop::collection::btree_set(0..8usize, 0..3), 8)) {
            let mut gates = Gates::default();
            let mut changed = BTreeSet::new();
            for (at, others) in edges.iter().enumerate() {
                let others: Vec<String> = others.iter().map(|other| format!("g{other}")).collect();
                changed.extend(gates.insert(gate(&format!("g{at}"), &others)));
            }
            let mut graph = Graph::default();
            graph.update(&gates, &changed);
            // All that can be reached, by brute force.
            let mut reach = edges.clone();
            for _ in 0..8 {
                for reached in &mut reach {
                    let more: Vec<usize> = reached.iter().flat_map(|to| edges[*to].iter().copied()).collect();
                    reached.extend(more);
                }
            }
            for (at, reached) in reach.iter().enumerate() {
                let gate = gates.get(&key(&format!("g{at}"))).unwrap();
                prop_assert_eq!(graph.cycle(gate).is_some(), reached.contains(&at));
            }
        }
    }
}
