//! What has to be done about objects, as the world is.

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::judge::World;
use super::object::{GateObject, Key, Kind};
use super::slice_changes::changes;
use super::slices::Slices;
use super::store::Gates;
use super::write_queue::{Job, Urgency};
use crate::decide::only_refreshes;

/// Most threads that judge: each has a package's clusters in memory.
const MOST_THREADS: usize = 4;

/// An object that is to be judged.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    /// The FleetPackage; the gate itself where it cannot be read of which it is.
    pub(super) of: Key,
    /// None: the FleetPackage itself is.
    pub(super) gate: Option<Key>,
}

/// What is to be done about an object.
pub(super) enum Todo {
    /// It has to be written.
    Writes(Job, Urgency),
    /// It is an open gate that has to be closed.
    Closes(Key),
}

/// What judges objects: several threads, or the one that asks.
#[derive(Debug, Default)]
pub struct Judges(Option<ThreadPool>);

impl Judges {
    /// A thread for each core, up to four.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn threads() -> Result<Self, ThreadPoolBuildError> {
        let threads = std::thread::available_parallelism().map_or(1, |it| it.get().min(MOST_THREADS));
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|n| format!("judge-{n}"));
        Ok(Self(Some(pool.build()?)))
    }

    /// Judges objects, which are in order. What is about the same FleetPackage is judged one after the other, as what the
    /// fleet says of it is remembered for some packages only; different ones at the same time.
    pub(super) fn judge(&self, world: &World<'_>, slices: &Slices, due: &[Due]) -> Vec<Todo> {
        let of_a_package: Vec<&[Due]> = due.chunk_by(|a, b| a.of == b.of).collect();
        let judge = |due: &Due| match &due.gate {
            Some(gate) => judge_gate(world, gate).into_iter().collect(),
            None => judge_package(world, slices, &due.of),
        };
        let judge_each = |due: &&[Due]| due.iter().flat_map(judge).collect::<Vec<_>>();
        match &self.0 {
            // To wake the others for what one does alone costs more than it takes.
            Some(threads) if of_a_package.len() > 1 => {
                threads.install(|| of_a_package.par_iter().flat_map_iter(judge_each).collect())
            }
            _ => of_a_package.iter().flat_map(judge_each).collect(),
        }
    }
}

fn judge_gate(world: &World<'_>, key: &Key) -> Option<Todo> {
    let gate = world.state.gates.get(key)?;
    let status = world.gate(gate)?;
    if gate.says_open() && !status.says_open() {
        return Some(Todo::Closes(key.clone()));
    }
    Some(Todo::writes(Kind::RolloutGate, key, only_refreshes(gate.status.as_ref(), &status)))
}

fn judge_package(world: &World<'_>, slices: &Slices, key: &Key) -> Vec<Todo> {
    // Whatever slices say, statuses say first.
    let has_changes = !changes(world, slices, key).is_empty();
    let slices = has_changes.then(|| Todo::writes(Kind::FleetPackageSlice, key, true));
    let status = world.state.packages.get(key).and_then(|package| {
        let status = world.package(package)?;
        Some(Todo::writes(Kind::FleetPackage, key, only_refreshes(package.status.as_ref(), &status)))
    });
    slices.into_iter().chain(status).collect()
}

impl Todo {
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
