//! Turns of FleetRollouts.

use std::collections::BTreeSet;

use statusbridge_api::FleetRolloutSpec;

use super::Reconciler;
use super::flight::Flight;
use crate::decide::Moment;
use crate::reconcile::command::{Command, Listed, Number};
use crate::reconcile::judge::World;
use crate::reconcile::object::{GateObject, HubObject, Key, Kind};
use crate::reconcile::rollouts::Work;
use crate::reconcile::state::State;
use crate::reconcile::write_queue::Urgency;
use crate::time::Now;

impl Reconciler {
    /// When one is gone, another one of its package may come first now.
    pub(super) fn rollouts_changed(&mut self, changed: &BTreeSet<Key>, now: Now) {
        for key in changed {
            self.is_new(Kind::FleetRollout, key, now);
            self.queue.push((Kind::FleetRollout, key.clone()), Urgency::News);
            if self.state.rollouts.get(key).is_none() {
                self.look_at_rollouts_within(&key.namespace);
            }
        }
    }

    /// Looks at the FleetRollouts of a namespace.
    pub(super) fn look_at_rollouts_within(&mut self, namespace: &str) {
        for rollout in self.state.rollouts.within(namespace) {
            self.queue.push((Kind::FleetRollout, rollout.key.clone()), Urgency::News);
        }
    }

    /// Looks at the FleetRollouts of these FleetPackages.
    pub(super) fn look_at_rollouts_for(&mut self, packages: &BTreeSet<Key>) {
        let namespaces: BTreeSet<&String> = packages.iter().map(|key| &key.namespace).collect();
        let rollouts = namespaces.into_iter().flat_map(|namespace| self.state.rollouts.within(namespace));
        for rollout in rollouts {
            let package =
                rollout.spec.as_deref().ok().map(|it| rollout.key.beside(&it.fleet_package_ref.name));
            if package.is_some_and(|package| packages.contains(&package)) {
                self.queue.push((Kind::FleetRollout, rollout.key.clone()), Urgency::News);
            }
        }
    }

    /// Looks at all FleetRollouts when their turn comes, and at those that are gone and have left something behind: most have
    /// nothing to write, which costs no write.
    pub(super) fn look_at_rollouts(&mut self) {
        let State { rollouts, gates, .. } = &self.state;
        let keys: BTreeSet<Key> = rollouts.iter().map(|it| &it.key).chain(gates.owners()).cloned().collect();
        for key in keys {
            self.queue.push((Kind::FleetRollout, key), Urgency::News);
        }
    }

    /// Looks at the FleetRollouts of these gates.
    pub(super) fn look_at_rollouts_of(&mut self, gates: &BTreeSet<Key>) {
        for key in gates {
            if let Some(rollout) = self.state.gates.get(key).and_then(GateObject::belongs_to) {
                self.queue.push((Kind::FleetRollout, rollout), Urgency::News);
            }
        }
    }

    /// Takes the next step of a FleetRollout. Before it goes on, what it goes on by is read anew.
    pub(super) fn write_rollout(&mut self, key: &Key, moment: Moment, attempt: u32, now: Now) -> u32 {
        let work = self.rollout_work(key, moment);
        let rollout = self.state.rollouts.get(key).filter(|_| work.goes_on());
        let listings = rollout.map(|it| World::new(&self.state, moment).listings(it));
        match listings {
            Some(listings) => {
                let number = self.number();
                self.commands.push(Command::List(number, key.clone(), listings));
                self.flights.begin((Kind::FleetRollout, key.clone()), number, Flight::Lists);
                1
            }
            None => self.do_rollout_work(key, work, attempt, now),
        }
    }

    /// What of a FleetRollout was to be read anew: goes on where all of it was known.
    pub fn listed(&mut self, number: Number, key: &Key, found: &Listed, now: Now) {
        let job = (Kind::FleetRollout, key.clone());
        if self.end(&job, number).is_none() {
            return;
        }
        let moment = self.moment(now);
        let is_known = self.state.rollouts.get(key).is_some_and(|rollout| {
            found.as_ref().is_ok_and(|found| World::new(&self.state, moment).is_up_to_date(rollout, found))
        });
        // Where something was not known, the watch brings it, or the next poll has another look.
        if is_known {
            let work = self.rollout_work(key, moment);
            self.do_rollout_work(key, work, 0, now);
        }
        self.go_on(now);
    }

    /// The PlacementDecisions of a FleetRollout are written, or not, for this reason.
    pub fn handed_over(&mut self, key: &Key, why: Option<String>, now: Now) {
        let all = &mut self.state.not_handed_over;
        let before = match why.clone() {
            Some(why) => all.insert(key.clone(), why),
            None => all.remove(key),
        };
        if before != why {
            self.queue.push((Kind::FleetRollout, key.clone()), Urgency::News);
            self.go_on(now);
        }
    }

    /// What is to be done about a FleetRollout: its gates, then its record, then its status. The gates that one that is gone
    /// has left behind go first.
    fn rollout_work(&self, key: &Key, moment: Moment) -> Work {
        let State { rollouts, rollout_slices, .. } = &self.state;
        if !self.state.can_judge() || !rollouts.complete() || !rollout_slices.complete() {
            return Work::Nothing;
        }
        let world = World::new(&self.state, moment);
        let rollout = rollouts.get(key);
        let gates = world.left_behind(key, rollout);
        match rollout {
            _ if !gates.is_empty() => Work::Gates(gates),
            Some(rollout) => world.rollout_work(rollout),
            None => Work::Nothing,
        }
    }

    fn do_rollout_work(&mut self, key: &Key, work: Work, attempt: u32, now: Now) -> u32 {
        let (job, owner) = (Kind::FleetRollout, (Kind::FleetRollout, key.clone()));
        match work {
            Work::Gates(changes) => {
                let controller = self.state.rollouts.get(key).map(|it| it.uid.clone());
                self.write_owned(job, (owner, controller), Kind::RolloutGate, changes, now)
            }
            // It outlives the FleetRollout.
            Work::Record(changes) => {
                self.write_owned(job, (owner, None), Kind::FleetRolloutSlice, changes, now)
            }
            Work::Status(status) => {
                self.send::<FleetRolloutSpec>(key, *status, attempt, now);
                1
            }
            Work::Nothing => 0,
        }
    }
}
