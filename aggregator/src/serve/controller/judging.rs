//! What has to be done about objects, as the world is.

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use statusbridge_core::decide::only_refreshes;
use statusbridge_core::reconcile::judge::World;
use statusbridge_core::reconcile::slices::{self, Owned, Slices};
use statusbridge_core::reconcile::store::{GateObject, Gates, Key, Kind};
use statusbridge_core::reconcile::write_queue::Urgency;

/// Most threads that judge: each has a package's clusters in memory.
const JUDGES: usize = 4;

/// An object that is to be judged.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    /// The FleetPackage; the gate itself where it cannot be read of which it is.
    pub(super) of: Key,
    /// None: the FleetPackage itself is.
    pub(super) gate: Option<Key>,
}

/// What was found of an object.
pub(super) enum Judged {
    /// It has to be written.
    Writes((Kind, Key), Urgency),
    /// It is an open gate that has to be closed.
    Closes(Key),
}

/// Threads that judge.
pub(super) fn judges() -> Result<ThreadPool, ThreadPoolBuildError> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(JUDGES));
    ThreadPoolBuilder::new().num_threads(threads).thread_name(|n| format!("judge-{n}")).build()
}

/// Judges objects, which are in order. What is about the same FleetPackage is judged one after the other, as what the
/// fleet says of it is remembered for some packages only; different ones at the same time.
pub(super) fn judge(
    judges: &ThreadPool,
    world: &World<'_>,
    slices: &Slices,
    owned: &Owned<'_>,
    due: &[Due],
) -> Vec<Judged> {
    let of_a_package: Vec<&[Due]> = due.chunk_by(|a, b| a.of == b.of).collect();
    let judge = |due: &Due| match &due.gate {
        Some(gate) => judge_gate(world, gate).into_iter().collect(),
        None => judge_package(world, slices, owned, &due.of),
    };
    let judge_each = |due: &&[Due]| due.iter().flat_map(judge).collect::<Vec<_>>();
    judges.install(|| of_a_package.par_iter().flat_map_iter(judge_each).collect())
}

fn judge_gate(world: &World<'_>, key: &Key) -> Option<Judged> {
    let gate = world.gates.get(key)?;
    let status = world.gate(gate)?;
    if gate.says_open() && !status.says_open() {
        return Some(Judged::Closes(key.clone()));
    }
    Some(Judged::writes(Kind::RolloutGate, key, only_refreshes(gate.status.as_ref(), &status)))
}

fn judge_package(world: &World<'_>, slices: &Slices, owned: &Owned<'_>, key: &Key) -> Vec<Judged> {
    // Whatever slices say, statuses say first.
    let has_changes = !slices::changes(world, slices, owned, key).is_empty();
    let slices = has_changes.then(|| Judged::writes(Kind::FleetPackageSlice, key, true));
    let status = world.packages.get(key).and_then(|package| {
        let status = world.package(package)?;
        Some(Judged::writes(Kind::FleetPackage, key, only_refreshes(package.status.as_ref(), &status)))
    });
    slices.into_iter().chain(status).collect()
}

impl Judged {
    fn writes(kind: Kind, key: &Key, only_refreshes: bool) -> Self {
        Self::Writes((kind, key.clone()), if only_refreshes { Urgency::Refresh } else { Urgency::News })
    }
}

impl Due {
    pub(super) fn gate(gates: &Gates, key: Key) -> Self {
        let of = gates.get(&key).and_then(GateObject::package);
        Self { of: of.unwrap_or_else(|| key.clone()), gate: Some(key) }
    }
}
