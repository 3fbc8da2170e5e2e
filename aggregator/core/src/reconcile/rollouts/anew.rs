//! What is read anew before a FleetRollout goes on: a watch that lags must not let it go on by a plan, a gate or a freeze of
//! before.

use statusbridge_api::fleet_rollout_slice::FLEET_ROLLOUT_LABEL;

use crate::decide::hold::Knowledge;
use crate::reconcile::command::{Head, Listing, Which};
use crate::reconcile::judge::World;
use crate::reconcile::object::{HubObject, Key, Kind, Object, RolloutObject};
use crate::reconcile::owned::label;
use crate::reconcile::store::Store;

impl World<'_> {
    /// What has to be as it is known: the plan, what it is for, the gates of its waves, and the freezes.
    pub(in crate::reconcile) fn listings(&self, rollout: &RolloutObject) -> Vec<Listing> {
        let Ok(spec) = &rollout.spec else { return Vec::new() };
        let of = |kind, which| Listing { kind, which };
        let mut all = vec![
            of(Kind::FleetRollout, Which::Named(rollout.key.name.clone())),
            of(Kind::FleetPackage, Which::Named(spec.fleet_package_ref.name.clone())),
            of(Kind::RolloutGate, Which::Labelled(FLEET_ROLLOUT_LABEL, label(&rollout.key.name))),
        ];
        let freezes = self.state.holds.freezes(&rollout.key.namespace).0;
        if !matches!(freezes.knowledge, Knowledge::NotServed) {
            all.push(of(Kind::RolloutFreeze, Which::All));
        }
        all
    }

    /// Whether all that was found is known, and all that is known was found.
    pub(in crate::reconcile) fn is_up_to_date(&self, rollout: &RolloutObject, found: &[Head]) -> bool {
        let state = self.state;
        let is_known = |head: &Head| match head.kind {
            Kind::FleetRollout => is_in(&state.rollouts, head),
            Kind::FleetPackage => is_in(&state.packages, head),
            Kind::RolloutGate => is_in(&state.gates, head),
            Kind::RolloutFreeze => state.holds.has_freeze(&head.version),
            _ => false,
        };
        let many = |kind| found.iter().filter(|head| head.kind == kind).count();
        // A gate that lost its label is one that is known and was not found.
        let was_found =
            |key: &Key| found.iter().any(|head| head.kind == Kind::RolloutGate && head.version.key == *key);
        found.iter().all(is_known)
            && many(Kind::FleetRollout) == 1
            && many(Kind::FleetPackage) == 1
            && many(Kind::RolloutFreeze) == state.holds.freezes(&rollout.key.namespace).0.all.len()
            && self.own_gates(rollout).map(|gate| &gate.key).all(was_found)
    }
}

fn is_in<S, T>(objects: &Store<S, T>, head: &Head) -> bool
where
    Object<S, T>: HubObject,
{
    let known = objects.get(&head.version.key);
    known.is_some_and(|it| (&it.uid, it.generation) == (&head.version.uid, head.generation))
}
