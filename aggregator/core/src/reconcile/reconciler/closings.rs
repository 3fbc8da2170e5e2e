//! Gates that have to close: which they are, and their way to the hub, which goes before all else.

use std::collections::BTreeSet;
use std::time::Duration;

use statusbridge_api::RolloutGateSpec;

use super::Reconciler;
use super::flight::Flight;
use crate::decide::unix;
use crate::reconcile::judge::World;
use crate::reconcile::object::{GateObject, Key, Kind};
use crate::reconcile::write_queue::Urgency;
use crate::time::Now;

/// Time until a closing is tried again of which nobody knows whether it arrived, or that was not sent.
const REST: Duration = Duration::from_secs(1);
/// Time between two looks for gates whose time to be open is over.
const ENDS: Duration = Duration::from_secs(1);

/// How a closing was tried.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// So often it was in conflict with somebody else's change.
    conflicts: u32,
    /// It is not tried again before that.
    rests_until: Duration,
}

impl Reconciler {
    /// Judges the gates whose time to be open is over, which no poll need be waited for.
    pub(super) fn close_what_ends(&mut self, now: Now) {
        if now.passed < self.ends_looked_at + ENDS {
            return;
        }
        self.ends_looked_at = now.passed;
        let is_over = |gate: &&GateObject| {
            let status = gate.status.as_ref().filter(|status| status.says_open());
            status.and_then(|it| it.open_until.as_ref()).is_some_and(|until| unix(until) <= now.wall)
        };
        let over: BTreeSet<Key> =
            self.state.gates.iter().filter(is_over).map(|gate| gate.key.clone()).collect();
        if !over.is_empty() {
            self.judge(BTreeSet::new(), over, now);
        }
    }

    /// Before the first poll: what is open on evidence that no longer counts closes, whatever the backend may say later. All
    /// else waits for what it says. A gate that is not `changed` and whose evidence is young is not judged, as the fleet may be
    /// read for a minute meanwhile.
    pub(super) fn close_what_is_too_old(&mut self, changed: &BTreeSet<Key>, now: Now) {
        let moment = self.moment(now);
        let state = &self.state;
        let world = World::new(state, moment);
        let dependents: BTreeSet<&Key> =
            state.closings.iter().flat_map(|key| state.graph.dependents(key)).collect();
        let may_be = |gate: &&GateObject| {
            changed.contains(&gate.key) || dependents.contains(&gate.key) || !world.names_young_evidence(gate)
        };
        let open = state.gates.iter().filter(|gate| gate.says_open()).filter(may_be);
        let too_old = open.filter(|gate| world.gate(gate).is_some_and(|status| !status.says_open()));
        let too_old: Vec<Key> = too_old.map(|gate| gate.key.clone()).collect();
        self.state.closings.extend(too_old);
    }

    /// Sends the closings that are not under way, the first of each namespace first.
    pub(super) fn close(&mut self, now: Now) {
        if self.state.closings.is_empty() {
            return;
        }
        let is_under_way = |flight: &Flight| match flight {
            Flight::Gate(written) => written.status.closes(),
            Flight::Rereads { .. } => true,
            _ => false,
        };
        let moment = self.moment(now);
        for key in by_turns(self.state.closings.iter().cloned().collect()) {
            let job = (Kind::RolloutGate, key);
            // It may take the place of a write that does not close.
            let under_way = self.flights.get_mut(&job).map(|flight| is_under_way(&flight.what));
            let key = &job.1;
            let rests = self.tried.get(key).is_some_and(|tried| now.passed < tried.rests_until);
            if rests
                || under_way == Some(true)
                || under_way.is_none() && !self.flights.has_room(&key.namespace)
            {
                continue;
            }
            let Some(gate) = self.state.gates.get(key) else {
                self.state.closings.remove(key);
                continue;
            };
            let status = World::new(&self.state, moment).gate(gate).filter(|status| !status.says_open());
            match status.filter(|_| gate.says_open()) {
                Some(status) => {
                    let attempt = self.tried.get(key).map_or(0, |tried| tried.conflicts);
                    let key = key.clone();
                    self.send::<RolloutGateSpec>(&key, status, attempt, now);
                }
                // It need not close after all; by now it may have to be open, which takes the way of all that opens.
                None => {
                    self.is_closed(&key.clone());
                    self.queue.push(job, Urgency::News);
                }
            }
        }
    }

    pub(super) fn is_closed(&mut self, key: &Key) {
        self.state.closings.remove(key);
        self.tried.remove(key);
    }

    /// Somebody else has changed a gate while it was being closed, so often by now.
    pub(super) fn closing_conflicts(&mut self, key: &Key, attempt: u32) {
        self.tried.entry(key.clone()).or_default().conflicts = attempt;
    }

    /// Nobody knows whether a closing arrived, or it was not sent: it is tried again soon.
    pub(super) fn closing_rests(&mut self, key: &Key, now: Now) {
        self.tried.entry(key.clone()).or_default().rests_until = now.passed + REST;
    }

    pub(super) fn has_to_close(&mut self, key: &Key, now: Now) -> bool {
        let moment = self.moment(now);
        let Some(gate) = self.state.gates.get(key).filter(|gate| gate.says_open()) else { return false };
        World::new(&self.state, moment).gate(gate).is_some_and(|status| !status.says_open())
    }
}

/// The first of each namespace, then the second of each, and so on. They are sorted.
fn by_turns(keys: Vec<Key>) -> Vec<Key> {
    let mut ranked = Vec::with_capacity(keys.len());
    let mut rank = 0_usize;
    let mut namespace = String::new();
    for key in keys {
        rank = if key.namespace == namespace { rank + 1 } else { 0 };
        namespace.clone_from(&key.namespace);
        ranked.push((rank, key));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, key)| key).collect()
}
