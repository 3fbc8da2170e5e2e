//! The fleet as a tree: each FleetPackage with its FleetRollouts, their waves, its gates, and clusters in trouble.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_api::fleet_package::Problem;
use statusbridge_core::reconcile::gate_verdict::Gate;
use statusbridge_core::reconcile::object::{GateObject, Key, Kind, PackageObject, RolloutObject};
use statusbridge_core::time::Seconds;

use crate::rollout::Rollout;
use crate::target::Target;
use crate::tree::{Branch, of_gate, of_rollout, problems};
use crate::verdict::{Asked, Verdict};
use crate::watched::Objects;

/// All, by namespaces if asked; of a target, that alone.
pub(super) fn tree(
    objects: &Objects,
    target: Option<&Target>,
    namespaces: bool,
    now: Seconds,
) -> Vec<Branch> {
    let fleet = Fleet::of(objects, now);
    let mut roots = BTreeMap::<&str, Vec<Branch>>::new();
    let is_meant = |kind: Kind, key: &Key| target.is_none_or(|it| it.kind == kind && it.name == key.name);
    for package in objects.packages.iter().filter(|it| is_meant(Kind::FleetPackage, &it.key)) {
        roots.entry(&package.key.namespace).or_default().push(fleet.package(package));
    }
    let alone = |package: &Option<Key>| package.as_ref().is_none_or(|it| objects.packages.get(it).is_none());
    let rollouts = objects.rollouts.iter().filter(|it| target.is_none() && alone(&package_of(it)));
    for rollout in rollouts {
        let branch = of_rollout(&fleet.rollout(rollout, None), &[], fleet.now);
        roots.entry(&rollout.key.namespace).or_default().push(branch);
    }
    let gates = objects.gates.iter().filter(|it| match target {
        None => alone(&it.package()),
        Some(target) => {
            let is_its = |key: &Key| target.kind == Kind::FleetPackage && key.name == target.name;
            is_meant(Kind::RolloutGate, &it.key)
                || (alone(&it.package()) && it.package().as_ref().is_some_and(is_its))
        }
    });
    for gate in gates {
        let package = gate.package().and_then(|key| objects.packages.get(&key));
        roots.entry(&gate.key.namespace).or_default().push(fleet.gate(gate, package));
    }
    if roots.is_empty() {
        return vec![Branch::told("there are no FleetPackages and no RolloutGates", String::new())];
    }
    if !namespaces {
        return roots.into_values().flatten().collect();
    }
    let named = |(namespace, branches)| Branch {
        is_done: true,
        branches,
        ..Branch::told(&format!("namespace {namespace}"), String::new())
    };
    roots.into_iter().map(named).collect()
}

/// What belongs to which FleetPackage.
struct Fleet<'w> {
    rollouts: BTreeMap<Key, Vec<&'w RolloutObject>>,
    gates: BTreeMap<Key, Vec<&'w GateObject>>,
    now: Seconds,
}

impl<'w> Fleet<'w> {
    fn of(objects: &'w Objects, now: Seconds) -> Self {
        let mut rollouts = BTreeMap::<Key, Vec<_>>::new();
        for rollout in objects.rollouts.iter() {
            if let Some(package) = package_of(rollout) {
                rollouts.entry(package).or_default().push(rollout);
            }
        }
        let mut gates = BTreeMap::<Key, Vec<_>>::new();
        for gate in objects.gates.iter() {
            if let Some(package) = gate.package() {
                gates.entry(package).or_default().push(gate);
            }
        }
        Self { rollouts, gates, now }
    }

    fn package(&self, package: &PackageObject) -> Branch {
        let own: Vec<Rollout> = self
            .rollouts
            .get(&package.key)
            .into_iter()
            .flatten()
            .map(|it| self.rollout(it, Some(package)))
            .collect();
        let in_waves: BTreeSet<&str> = own
            .iter()
            .flat_map(|rollout| &rollout.waves)
            .filter_map(|wave| Some(wave.verdict.as_ref()?.reading.name.as_str()))
            .collect();
        let known = problems_of(package);
        let rollouts = own.iter().map(|rollout| of_rollout(rollout, known, self.now));
        let others = self.gates.get(&package.key).into_iter().flatten();
        let others = others.filter(|gate| !in_waves.contains(gate.key.name.as_str()));
        let mut branch = self.judged(&Verdict::of_package(package, Asked::at(self.now)), known);
        branch.branches.extend(rollouts.chain(others.map(|gate| self.gate(gate, Some(package)))));
        let mut told = BTreeSet::new();
        names(&branch.branches, &mut told);
        let rest: Vec<Branch> = problems(known, self.now).filter(|it| !told.contains(&it.name)).collect();
        branch.branches.extend(rest);
        branch
    }

    fn rollout(&self, rollout: &RolloutObject, package: Option<&PackageObject>) -> Rollout {
        let of_package =
            package.and_then(|package| self.gates.get(&package.key)).into_iter().flatten().copied();
        Rollout::of(rollout, package, of_package, self.now)
    }

    fn gate(&self, gate: &GateObject, package: Option<&PackageObject>) -> Branch {
        let verdict = Verdict::of_gate(&Gate::from(gate), package, Asked::at(self.now));
        self.judged(&verdict, package.map(problems_of).unwrap_or_default())
    }

    /// With the revision, which no FleetRollout above it tells.
    fn judged(&self, verdict: &Verdict, known: &[Problem]) -> Branch {
        let branch = of_gate(verdict, known, self.now);
        let revision = verdict.reading.revision.as_ref().filter(|it| !it.is_empty());
        let revision = revision.and(verdict.reading.fingerprint.clone());
        let text = revision.into_iter().chain(Some(branch.text).filter(|text| !text.is_empty()));
        Branch { text: text.collect::<Vec<_>>().join(", "), ..branch }
    }
}

fn package_of(rollout: &RolloutObject) -> Option<Key> {
    let spec = rollout.spec.as_ref().ok()?;
    Some(rollout.key.beside(&spec.fleet_package_ref.name))
}

fn problems_of(package: &PackageObject) -> &[Problem] {
    package.status.as_ref().map(|status| status.problems.as_slice()).unwrap_or_default()
}

/// The names of branches, at any depth.
fn names(branches: &[Branch], all: &mut BTreeSet<String>) {
    for branch in branches {
        all.insert(branch.name.clone());
        names(&branch.branches, all);
    }
}
