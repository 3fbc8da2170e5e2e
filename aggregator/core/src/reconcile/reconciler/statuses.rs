//! The way of a status to the hub: sent over one version of its object, answered, tried again where somebody else came between.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_api::{FleetPackageSpec, FleetRolloutSpec, RolloutGateSpec};
use tracing::warn;

use super::Reconciler;
use super::flight::{Flies, Flight, Written};
use crate::decide::Moment;
use crate::reconcile::command::{Answer, Command, Number, StatusWrite};
use crate::reconcile::judge::World;
use crate::reconcile::judged::Judged;
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::object::{GateObject, HubObject, Key, Kind, Object};
use crate::reconcile::state::State;
use crate::reconcile::write_queue::Urgency;
use crate::time::Now;

/// How often a write is tried again after a conflict before it is left for later.
const ATTEMPTS: u32 = 5;

impl Reconciler {
    /// How a status write ended.
    pub fn wrote(&mut self, number: Number, kind: Kind, key: &Key, answer: Answer, now: Now) {
        match kind {
            Kind::FleetPackage => self.wrote_status::<FleetPackageSpec>(number, key, answer, now),
            Kind::RolloutGate => self.wrote_status::<RolloutGateSpec>(number, key, answer, now),
            Kind::FleetRollout => self.wrote_status::<FleetRolloutSpec>(number, key, answer, now),
            Kind::FleetPackageSlice
            | Kind::FleetRolloutSlice
            | Kind::RolloutFreeze
            | Kind::RolloutApproval => {}
        }
        self.go_on(now);
    }

    pub(super) fn write_package(&mut self, key: &Key, moment: Moment, now: Now) -> u32 {
        let package = self.state.packages.get(key);
        let Some(status) = package.and_then(|it| World::new(&self.state, moment).package(it)) else {
            return 0;
        };
        self.send::<FleetPackageSpec>(key, status, 0, now);
        1
    }

    /// Writes a gate's status. Before one that depends on others opens, these are read anew: a watch that lags must not let
    /// it open on what they said of an earlier spec.
    pub(super) fn write_gate(&mut self, key: &Key, moment: Moment, attempt: u32, now: Now) -> u32 {
        let Some(gate) = self.state.gates.get(key) else { return 0 };
        let Some(status) = World::new(&self.state, moment).gate(gate) else { return 0 };
        if gate.says_open() && !status.says_open() {
            self.state.closings.insert(key.clone());
            return 0;
        }
        let others = gate.spec.as_deref().map(|spec| spec.depends_on.as_slice()).unwrap_or_default();
        if !status.says_open() || gate.is_open_now() || others.is_empty() {
            self.send::<RolloutGateSpec>(key, status, attempt, now);
            return 1;
        }
        let others: BTreeSet<Key> = others.iter().map(|other| key.beside(&other.name)).collect();
        let mut left = BTreeMap::new();
        for other in others {
            let number = self.number();
            self.commands.push(Command::Read(number, Kind::RolloutGate, other.clone()));
            left.insert(number, other);
        }
        let number = self.number();
        let waits = Flight::Waits { left, read: BTreeSet::new() };
        self.flights.begin((Kind::RolloutGate, key.clone()), number, waits);
        1
    }

    /// Sends a status that was decided now for an object as it is known now.
    pub(super) fn send<S: Flies>(&mut self, key: &Key, status: S::Status, attempt: u32, now: Now) {
        let Some(object) = S::store(&self.state).get(key) else { return };
        let (object, mut version) = (Box::new(object.clone()), object.version());
        let status = S::status(&object, status);
        // Nobody keeps a gate open by changing it all the time: a closing is right on top of any version.
        if status.closes() && attempt >= ATTEMPTS {
            version.resource_version.clear();
        }
        let number = self.number();
        S::store_mut(&mut self.state).sent(key, S::sent(&status));
        let write = StatusWrite { number, kind: S::KIND, version, status, decided: now.passed };
        let status = Box::new(write.status.clone());
        let verdict = self.state.verdicts.number(S::KIND, key);
        self.flights.begin(
            (S::KIND, key.clone()),
            number,
            S::flight(Written { object, status, verdict, attempt }),
        );
        self.commands.push(Command::Write(Box::new(write)));
    }

    pub(super) fn wrote_status<S: Flies>(&mut self, number: Number, key: &Key, answer: Answer, now: Now) {
        let job = (S::KIND, key.clone());
        let flight = self.end(&job, number);
        let written = flight.as_ref().and_then(S::written);
        let closes = written.is_some_and(|it| it.status.closes());
        let opens = self.state.gates.get(key).map(GateObject::is_open_now);
        let (mut changed, mut retries, mut is_cut) = (false, false, false);
        match answer {
            Answer::Done(object) => (changed, is_cut) = self.landed::<S>(*object, written),
            Answer::Gone => changed = !S::store_mut(&mut self.state).forget(key).is_empty(),
            Answer::Conflict => {
                let Some(written) = written else { return };
                let attempt = written.attempt + 1;
                if closes {
                    self.closing_conflicts(key, attempt);
                } else if attempt >= ATTEMPTS {
                    warn!(kind = S::KIND.name(), object = %key, "status is left for later: somebody else keeps changing the object");
                    return;
                }
                let number = self.number();
                self.flights.begin(job, number, Flight::Rereads { attempt });
                self.commands.push(Command::Read(number, S::KIND, key.clone()));
                return;
            }
            // A closing is tried again soon, anything else is found again by the next poll.
            Answer::NotSent | Answer::Refused(_) => retries = true,
            Answer::Unconfirmed => {
                self.state.unconfirmed.insert(job.clone());
                retries = true;
            }
        }
        if closes && retries {
            self.closing_rests(key, now);
        } else if closes {
            self.is_closed(key);
        }
        if changed {
            self.is_new(S::KIND, key, now);
        }
        match S::KIND {
            // Its next step may rest on what was told.
            Kind::FleetRollout if changed => self.queue.push((S::KIND, key.clone()), Urgency::News),
            Kind::RolloutGate
                if changed && opens != self.state.gates.get(key).map(GateObject::is_open_now) =>
            {
                self.look_at_rollouts_of(&[key.clone()].into());
            }
            _ => {}
        }
        // What came to light meanwhile, and what rests on it.
        if S::KIND == Kind::RolloutGate && !retries {
            let mut concerned = self.state.concerned([key.clone()].into());
            // To say the same again at once would be cut again.
            if is_cut && !self.has_to_close(key, now) {
                concerned.remove(key);
            }
            self.judge(BTreeSet::new(), concerned, now);
        }
    }

    /// The hub has taken a status. Whether another version of the object is known now, and whether it says less than what
    /// was sent, as with a CRD that does not know all fields.
    fn landed<S: Flies>(&mut self, object: LazyObject, written: Option<&Written<S>>) -> (bool, bool) {
        let store = S::store(&self.state);
        let Some(after) = store.read(object) else { return (false, false) };
        // The watch may have told already that it is gone.
        let Some(known) = store.get(&after.key).map(|known| &known.resource_version) else {
            return (false, false);
        };
        // Or it may have brought a later one.
        let is_next = written.is_some_and(|it| *known == it.object.resource_version);
        if !is_next && store.has_seen(&after.version()) {
            return (false, false);
        }
        let mut is_cut = false;
        if let Some(written) = written {
            is_cut = !stands(&self.state, written, &after);
        }
        if is_cut && !std::mem::replace(&mut self.cuts, true) {
            warn!(kind = S::KIND.name(), object = %after.key, "the hub keeps only a part of the status that was written: apply the CRDs of this version");
        }
        (S::store_mut(&mut self.state).keep(after), is_cut)
    }

    /// An object was read, or could not be: goes on with what waited for that.
    pub(super) fn goes_on_after(&mut self, number: Number, kind: Kind, key: &Key, known: bool, now: Now) {
        let job = (kind, key.clone());
        let moment = self.moment(now);
        let rereads = self.flights.get_mut(&job).filter(|flight| flight.number == number);
        if let Some(&mut Flight::Rereads { attempt }) = rereads.map(|flight| &mut flight.what) {
            self.end(&job, number);
            if !known {
                self.state.unconfirmed.insert(job);
            } else if kind == Kind::RolloutGate {
                self.write_gate(key, moment, attempt, now);
            } else if kind == Kind::FleetRollout {
                self.write_rollout(key, moment, attempt, now);
            } else if let Some(package) = self.state.packages.get(key)
                && let Some(status) = World::new(&self.state, moment).package(package)
            {
                self.send::<FleetPackageSpec>(key, status, attempt, now);
            }
            return;
        }
        if kind != Kind::RolloutGate {
            return;
        }
        let waits = self.flights.iter_mut().find_map(|(job, flight)| match &mut flight.what {
            Flight::Waits { left, read } if left.contains_key(&number) => {
                left.remove(&number);
                read.insert(key.clone());
                Some((job.1.clone(), flight.number, left.is_empty(), read.clone()))
            }
            _ => None,
        });
        let Some((gate, number, complete, read)) = waits else { return };
        let job = (Kind::RolloutGate, gate.clone());
        if !known {
            // The next poll finds it again.
            self.end(&job, number);
        } else if complete {
            self.end(&job, number);
            self.write_after_reading(&gate, &read, moment, now);
        }
    }

    /// Writes a gate's status after all gates that it depended on were read anew.
    fn write_after_reading(&mut self, key: &Key, read: &BTreeSet<Key>, moment: Moment, now: Now) {
        let Some(gate) = self.state.gates.get(key) else { return };
        let others = gate.spec.as_deref().map(|spec| spec.depends_on.as_slice()).unwrap_or_default();
        let all_read = others.iter().all(|other| read.contains(&key.beside(&other.name)));
        match World::new(&self.state, moment).gate(gate) {
            Some(status) if all_read && status.says_open() => {
                self.send::<RolloutGateSpec>(key, status, 0, now);
            }
            Some(_) => self.queue.push((Kind::RolloutGate, key.clone()), Urgency::News),
            None => {}
        }
    }
}

/// Whether an object says what was sent for it: then the verdict that was sent stands for this version of it.
pub(super) fn stands<S: Judged>(state: &State, written: &Written<S>, object: &Object<S, S::Status>) -> bool {
    let sent = S::sent(&written.status);
    for sent in &sent {
        state.verdicts.landed(S::KIND, written.verdict, &written.object, sent, object);
    }
    sent.iter().any(|sent| object.status.as_ref() == Some(sent))
}
