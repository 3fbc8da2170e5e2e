//! A write under way, and what it waits for.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_api::{FleetPackageSpec, FleetRolloutSpec, RolloutGateSpec};

use crate::reconcile::command::{Number, Status};
use crate::reconcile::judged::Judged;
use crate::reconcile::object::{Key, Object};

/// A write under way.
#[derive(Debug)]
pub(super) enum Flight {
    /// Of a FleetPackage's status.
    Package(Written<FleetPackageSpec>),
    /// Of a gate's.
    Gate(Written<RolloutGateSpec>),
    /// Somebody else has changed the object, which is being read. So often it was tried.
    Rereads { attempt: u32 },
    /// Of a gate that is to open: it waits for these, which are being read; the second of those that were.
    Waits { left: BTreeMap<Number, Key>, read: BTreeSet<Key> },
    /// Of a FleetRollout's status.
    Rollout(Written<FleetRolloutSpec>),
    /// Of a FleetRollout that goes on: what it goes on by is read anew.
    Lists,
    /// Of objects that belong to another: so many answers are to come, whether all that came landed, and whether there is
    /// more to write.
    Owned { left: usize, landed: bool, more: bool },
}

/// A status that was sent.
#[derive(Debug)]
pub(super) struct Written<S: Judged> {
    /// Over this.
    pub(super) object: Box<Object<S, S::Status>>,
    pub(super) status: Box<Status>,
    /// Which verdict it says.
    pub(super) verdict: Option<u64>,
    pub(super) attempt: u32,
}

/// What is written of either kind.
pub(super) trait Flies: Judged {
    fn flight(written: Written<Self>) -> Flight;
    fn written(flight: &Flight) -> Option<&Written<Self>>;
}

impl Flies for FleetPackageSpec {
    fn flight(written: Written<Self>) -> Flight {
        Flight::Package(written)
    }

    fn written(flight: &Flight) -> Option<&Written<Self>> {
        if let Flight::Package(written) = flight { Some(written) } else { None }
    }
}

impl Flies for RolloutGateSpec {
    fn flight(written: Written<Self>) -> Flight {
        Flight::Gate(written)
    }

    fn written(flight: &Flight) -> Option<&Written<Self>> {
        if let Flight::Gate(written) = flight { Some(written) } else { None }
    }
}

impl Flies for FleetRolloutSpec {
    fn flight(written: Written<Self>) -> Flight {
        Flight::Rollout(written)
    }

    fn written(flight: &Flight) -> Option<&Written<Self>> {
        if let Flight::Rollout(written) = flight { Some(written) } else { None }
    }
}
