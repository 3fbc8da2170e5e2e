//! What is read anew before a FleetRollout goes on: a watch that lags must not let it go on by a plan, a gate or a freeze of
//! before.

use statusbridge_api::fleet_rollout_slice::FLEET_ROLLOUT_LABEL;

use crate::decide::hold::Knowledge;
use crate::reconcile::command::{Head, Listing, Which};
use crate::reconcile::judge::World;
use crate::reconcile::owned::label;
use crate::reconcile::store::{Key, Kind, RolloutObject};

impl World<'_> {
    /// What has to be as it is known: the plan, what it is for, the gates of its waves, and the freezes.
    pub(in crate::reconcile) fn listings(&self, rollout: &RolloutObject) -> Vec<Listing> {
        let Ok(spec) = &rollout.spec else { return Vec::new() };
        let of = |kind, which| Listing { kind, namespace: rollout.key.namespace.clone(), which };
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
        let is_known = |head: &Head| {
            let is = |known: Option<(&String, i64)>| known == Some((&head.version.uid, head.generation));
            match head.kind {
                Kind::FleetRollout => {
                    is(state.rollouts.get(&head.version.key).map(|it| (&it.uid, it.generation)))
                }
                Kind::FleetPackage => {
                    is(state.packages.get(&head.version.key).map(|it| (&it.uid, it.generation)))
                }
                Kind::RolloutGate => {
                    is(state.gates.get(&head.version.key).map(|it| (&it.uid, it.generation)))
                }
                Kind::RolloutFreeze => state.holds.has_freeze(&head.version),
                _ => false,
            }
        };
        let many = |kind| found.iter().filter(|head| head.kind == kind).count();
        // A gate that lost its label is one that is known and was not found.
        let gates = state
            .gates
            .of(&rollout.key)
            .filter(|gate| gate.owner.as_ref().is_some_and(|owner| owner.uid == rollout.uid));
        let was_found =
            |key: &Key| found.iter().any(|head| head.kind == Kind::RolloutGate && head.version.key == *key);
        found.iter().all(is_known)
            && many(Kind::FleetRollout) == 1
            && many(Kind::FleetPackage) == 1
            && many(Kind::RolloutFreeze) == state.holds.freezes(&rollout.key.namespace).0.all.len()
            && gates.map(|gate| &gate.key).all(was_found)
    }
}
