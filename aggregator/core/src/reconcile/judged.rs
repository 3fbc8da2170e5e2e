//! The kinds of objects that get a status, and what they have in common.

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use statusbridge_api::{
    FleetPackageSpec, FleetPackageStatus, FleetRolloutSpec, FleetRolloutStatus, RolloutGateSpec,
    RolloutGateStatus,
};

use super::command::Status;
use super::object::{Kind, Object};
use super::state::State;
use super::store::Store;
use crate::decide::Evidence;
use crate::decide::closing::least;
use crate::decide::transition::Reported;

/// A spec that a status can be decided for.
pub trait Judged: DeserializeOwned + PartialEq + Clone + Debug + Sized {
    /// Its status.
    type Status: DeserializeOwned + PartialEq + Clone + Evidence + Reported + Debug;
    /// Its kind.
    const KIND: Kind;

    /// All objects of the kind.
    fn store(state: &State) -> &Store<Self, Self::Status>;
    /// The same.
    fn store_mut(state: &mut State) -> &mut Store<Self, Self::Status>;
    /// What to write.
    fn status(object: &Object<Self, Self::Status>, status: Self::Status) -> Status;
    /// What may stand there once that was sent.
    fn sent(status: &Status) -> Vec<Self::Status>;
}

impl Judged for FleetPackageSpec {
    type Status = FleetPackageStatus;
    const KIND: Kind = Kind::FleetPackage;

    fn store(state: &State) -> &Store<Self, Self::Status> {
        &state.packages
    }

    fn store_mut(state: &mut State) -> &mut Store<Self, Self::Status> {
        &mut state.packages
    }

    fn status(_: &Object<Self, Self::Status>, status: Self::Status) -> Status {
        Status::Package(Box::new(status))
    }

    fn sent(status: &Status) -> Vec<Self::Status> {
        match status {
            Status::Package(status) => vec![*status.clone()],
            Status::Gate { .. } | Status::Rollout(_) => Vec::new(),
        }
    }
}

impl Judged for RolloutGateSpec {
    type Status = RolloutGateStatus;
    const KIND: Kind = Kind::RolloutGate;

    fn store(state: &State) -> &Store<Self, Self::Status> {
        &state.gates
    }

    fn store_mut(state: &mut State) -> &mut Store<Self, Self::Status> {
        &mut state.gates
    }

    fn status(object: &Object<Self, Self::Status>, status: Self::Status) -> Status {
        let open = object.status.as_ref().filter(|open| open.says_open() && !status.says_open());
        let least = open.map(|open| Box::new(least(open, &status)));
        Status::Gate { status: Box::new(status), least }
    }

    fn sent(status: &Status) -> Vec<Self::Status> {
        match status {
            Status::Gate { status, least } => {
                [Some(status), least.as_ref()].into_iter().flatten().map(|it| *it.clone()).collect()
            }
            Status::Package(_) | Status::Rollout(_) => Vec::new(),
        }
    }
}

impl Judged for FleetRolloutSpec {
    type Status = FleetRolloutStatus;
    const KIND: Kind = Kind::FleetRollout;

    fn store(state: &State) -> &Store<Self, Self::Status> {
        &state.rollouts
    }

    fn store_mut(state: &mut State) -> &mut Store<Self, Self::Status> {
        &mut state.rollouts
    }

    fn status(_: &Object<Self, Self::Status>, status: Self::Status) -> Status {
        Status::Rollout(Box::new(status))
    }

    fn sent(status: &Status) -> Vec<Self::Status> {
        match status {
            Status::Rollout(status) => vec![*status.clone()],
            Status::Package(_) | Status::Gate { .. } => Vec::new(),
        }
    }
}
