//! A replica of the aggregator: stands by or leads, polls, decides, writes.
//!
//! The election itself is proved elsewhere (`lease::simulation_tests`). Here it is what makes leaders change,
//! with the terms by which they know how long they lead.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::executor::block_on;
use statusbridge_api::RolloutGateStatus;
use statusbridge_core::decide::{self, Moment};
use statusbridge_core::fleet::{Fleet, FleetSettings};
use statusbridge_core::reconcile::store::{GateObject, Kept, Kind};
use statusbridge_core::testing::Surroundings;
use statusbridge_core::time::Seconds;

use super::POLL_INTERVAL;
use super::backend::{Asked, Backend, MAX_CLOCK_SKEW};
use super::hub::{Hub, Outcome, version};
use super::world::packages;
use crate::feed::promql::FeedError;
use crate::feed::promql::poll::{PollConfig, Poller};
use crate::hub::leadership_guard::Term;
use crate::hub::write::CALL_TIMEOUT;

/// Which replica, and which process of it.
pub(super) type ReplicaId = (usize, u32);

/// How long a leader works and is left alone without a renewal.
const TERM: Term = Term { work: Duration::from_secs(10), lease: Duration::from_secs(15) };
/// Time between two renewals, or two looks at the lease.
const RETRY: Seconds = 2.0;
/// How often a write is tried again after a conflict, see `settle`.
const ATTEMPTS: u32 = 5;

/// What came of the last poll; `Unknown` as long as none was good.
#[derive(Debug, Clone)]
enum LastPoll {
    None,
    Unknown(String),
    Good,
    Failed(String),
}

/// A write under way.
#[derive(Debug)]
enum Writing {
    /// It is decided, upon a version.
    Decided { over: u64, status: Box<RolloutGateStatus>, since: Seconds, attempt: u32 },
    /// It was sent then.
    Sent { number: u64, at: Seconds, attempt: u32 },
}

/// What a leader has and knows.
struct Work {
    began: Seconds,
    epoch: Option<i64>,
    fleet: Fleet,
    poller: Poller<Asked>,
    last_poll: LastPoll,
    /// What the last good poll looked at, or should have by the backend's clock, and when that was by a clock
    /// that nobody sets.
    floor: (Seconds, Seconds),
    next_poll: Seconds,
    gate: GateObject,
    judge_due: bool,
    writing: Option<Writing>,
    /// What it decided and wrote did not arrive for sure, and it was a closing.
    closing: bool,
    beat_due: bool,
    around: Surroundings,
}

/// A replica.
pub(super) struct Replica {
    id: ReplicaId,
    asked: Asked,
    /// By how much its clock is ahead.
    ahead: Seconds,
    elects: bool,
    work: Option<Work>,
    /// When its last renewal was sent.
    renewed: Seconds,
    /// The version of the lease that it saw, and since when.
    seen: (u64, Seconds),
    next_look: Seconds,
    pub(super) frozen_until: Seconds,
    pub(super) isolated_until: Seconds,
    pub(super) away_until: Seconds,
    /// It is to stand still before it sends what it decides next.
    pub(super) stalls: Option<Seconds>,
}

impl Replica {
    pub(super) fn new(number: usize, now: Seconds, ahead: Seconds, elects: bool, backend: &Backend) -> Self {
        let asked = Asked { backend: backend.clone(), ahead: Arc::new(Mutex::new(ahead)) };
        Self {
            id: (number, 0),
            asked,
            ahead,
            elects,
            work: None,
            renewed: 0.0,
            seen: (0, now),
            // The first replica leads at first.
            next_look: now + number as Seconds,
            frozen_until: 0.0,
            isolated_until: 0.0,
            away_until: 0.0,
            stalls: None,
        }
    }

    /// Sets its clock.
    pub(super) fn set_clock(&mut self, ahead: Seconds) {
        self.ahead = ahead;
        *self.asked.ahead.lock().unwrap_or_else(PoisonError::into_inner) = ahead;
    }

    /// By how much its clock lags, if it does, as far as answers are taken from a backend then.
    pub(super) fn behind(&self) -> Seconds {
        (-self.ahead).clamp(0.0, MAX_CLOCK_SKEW)
    }

    /// How far back it looks.
    pub(super) fn settle_delay(&self) -> Option<Seconds> {
        self.work.as_ref().map(|work| work.poller.settle_delay())
    }

    /// Since when it leads.
    pub(super) fn began(&self) -> Option<Seconds> {
        self.work.as_ref().map(|work| work.began)
    }

    pub(super) fn leads(&self) -> bool {
        self.work.is_some()
    }

    /// Whether it leads and the backend answers it.
    pub(super) fn polls(&self, now: Seconds) -> bool {
        let answered = |work: &Work| matches!(work.last_poll, LastPoll::Good);
        self.leads() && now >= self.frozen_until && self.work.as_ref().is_some_and(answered)
    }

    /// Whether it judges and is heard: a leader in a state to close gates.
    pub(super) fn watches(&self, now: Seconds) -> bool {
        let judges = self.work.as_ref().is_some_and(|work| !matches!(work.last_poll, LastPoll::None));
        judges && now >= self.frozen_until && now >= self.isolated_until
    }

    pub(super) fn kill(&mut self, now: Seconds, away: Seconds) {
        self.away_until = now + away;
        self.id.1 += 1;
        self.work = None;
        self.stalls = None;
        self.seen = (u64::MAX, now);
    }

    /// All that is wrong with it is over.
    pub(super) fn heal(&mut self, now: Seconds) {
        for until in [&mut self.frozen_until, &mut self.isolated_until, &mut self.away_until] {
            *until = until.min(now);
        }
        self.stalls = None;
        self.set_clock(self.ahead.clamp(-4.0, 4.0));
    }

    /// One second passes.
    pub(super) fn tick(&mut self, now: Seconds, hub: &mut Hub) {
        if now < self.away_until || now < self.frozen_until {
            return;
        }
        self.elect(now, hub);
        let Some(mut work) = self.work.take() else { return };
        work.tick(self, now, hub);
        self.work = Some(work);
    }

    /// Takes, renews or loses the lease.
    fn elect(&mut self, now: Seconds, hub: &mut Hub) {
        if !self.elects {
            if self.work.is_none() {
                self.work = Some(Work::new(None, now, &self.asked, hub));
            }
            return;
        }
        let lost = self.work.is_some() && !TERM.works(self.since_renewal(now));
        if lost {
            self.work = None;
            self.seen = (hub.lease.version, now);
        }
        if now < self.next_look || now < self.isolated_until {
            return;
        }
        self.next_look = now + RETRY;
        let lease = &mut hub.lease;
        if self.work.is_some() {
            if lease.holder == Some(self.id) {
                lease.version += 1;
                self.renewed = now;
            } else {
                self.work = None;
                self.seen = (lease.version, now);
            }
            return;
        }
        if self.seen.0 != lease.version {
            self.seen = (lease.version, now);
        }
        let free = lease.holder.is_none_or(|holder| holder == self.id);
        if free || now - self.seen.1 >= TERM.lease.as_secs_f64() {
            lease.holder = Some(self.id);
            lease.version += 1;
            lease.transitions += 1;
            self.renewed = now;
            let epoch = Some(lease.transitions);
            self.work = Some(Work::new(epoch, now, &self.asked, hub));
        }
    }

    fn since_renewal(&self, now: Seconds) -> Duration {
        Duration::from_secs_f64((now - self.renewed).max(0.0))
    }

    /// Whether the fence lets a call of the hub pass.
    fn admits(&self, now: Seconds) -> bool {
        !self.elects || TERM.admits(self.since_renewal(now), CALL_TIMEOUT)
    }
}

impl Work {
    fn new(epoch: Option<i64>, now: Seconds, asked: &Asked, hub: &Hub) -> Self {
        let config = PollConfig::new(super::exporters());
        Self {
            began: now,
            epoch,
            fleet: Fleet::new(FleetSettings::default()),
            poller: Poller::new(config, asked.clone()),
            last_poll: LastPoll::None,
            floor: (Seconds::NEG_INFINITY, now),
            next_poll: now + 1.0,
            gate: hub.gate().clone(),
            judge_due: true,
            writing: None,
            closing: false,
            beat_due: false,
            around: Surroundings { packages: packages(hub.stale_after), ..Surroundings::default() },
        }
    }

    fn tick(&mut self, replica: &mut Replica, now: Seconds, hub: &mut Hub) {
        if now >= replica.isolated_until {
            self.learn(hub.news(now));
        }
        if now >= self.next_poll {
            self.poll(replica, now);
        }
        // As many steps as can be taken at once.
        for _ in 0..=2 * ATTEMPTS {
            match self.writing.take() {
                Some(Writing::Sent { number, at, attempt }) => {
                    if !self.answered(number, at, attempt, replica, now, hub) {
                        break;
                    }
                }
                Some(Writing::Decided { over, status, since, attempt }) => {
                    if let Some(lasts) = replica.stalls.take() {
                        replica.frozen_until = now + lasts;
                        self.writing = Some(Writing::Decided { over, status, since, attempt });
                        return;
                    }
                    let late = now - since >= CALL_TIMEOUT.as_secs_f64();
                    if !late && replica.admits(now) {
                        let isolated = now < replica.isolated_until;
                        let number = hub.send(now, over, *status, isolated);
                        hub.arrive(now);
                        self.writing = Some(Writing::Sent { number, at: now, attempt });
                    } else {
                        break;
                    }
                }
                None if self.judge_due || self.closing => {
                    self.judge_due = false;
                    self.decide(replica, now, 0);
                }
                None => break,
            }
        }
        let quiet = self.writing.is_none();
        let reaches = now >= replica.isolated_until && replica.admits(now);
        if quiet && reaches && self.beat_due && !matches!(self.last_poll, LastPoll::None) {
            self.beat_due = false;
            (hub.heartbeat, hub.unclosed) = (now, self.closing);
        }
    }

    /// Takes in another version of the gate.
    fn learn(&mut self, gate: &GateObject) {
        if version(gate) > version(&self.gate) {
            let mut gate = gate.clone();
            gate.follows(Some(&self.gate));
            self.gate = gate;
            self.around.unconfirmed.clear();
            self.judge_due = true;
        }
    }

    fn moment(&self, replica: &Replica, real: Seconds) -> Moment {
        let now = real + replica.ahead;
        Moment { t: self.floored(real, now - self.poller.settle_delay()), now }
    }

    fn floored(&self, real: Seconds, t: Seconds) -> Seconds {
        let (floor, since) = self.floor;
        t.max(floor + real - since)
    }

    fn poll(&mut self, replica: &Replica, now: Seconds) {
        let t = now + replica.ahead - self.poller.settle_delay();
        let report = block_on(self.poller.poll(&mut self.fleet, t));
        self.around.observations.clear();
        if let Some(ahead) = report.failure.as_ref().and_then(FeedError::clock_lags) {
            self.floor = (self.floored(now, t + ahead), now);
        }
        let known = matches!(self.last_poll, LastPoll::Good | LastPoll::Failed(_));
        self.last_poll = match report.error {
            None => LastPoll::Good,
            Some(error) if known => LastPoll::Failed(error),
            Some(error) => LastPoll::Unknown(error),
        };
        self.next_poll = now + POLL_INTERVAL;
        self.beat_due = true;
        self.judge_due = true;
        if matches!(self.last_poll, LastPoll::Good) {
            self.floor = (t, now);
        }
    }

    /// Decides what the gate's status should be, and prepares the write if it is worth one.
    fn decide(&mut self, replica: &Replica, now: Seconds, attempt: u32) {
        let backend = match &self.last_poll {
            LastPoll::None => decide::Backend::Unknown("it is being asked for the first time"),
            LastPoll::Unknown(error) => decide::Backend::Unknown(error),
            LastPoll::Good => decide::Backend::Answers,
            LastPoll::Failed(error) => decide::Backend::Fails(error),
        };
        self.around.observations.clear();
        let mut world = self.around.world(&self.fleet, backend, self.moment(replica, now));
        world.epoch = self.epoch;
        let status = world.gate(&self.gate);
        let closes = status.as_ref().is_some_and(|status| self.gate.says_open() && !status.says_open());
        self.closing = closes;
        // Before the first poll, only what is too old is closed.
        let status = status.filter(|_| closes || !matches!(self.last_poll, LastPoll::None));
        self.writing = status.map(|status| Writing::Decided {
            over: version(&self.gate),
            status: Box::new(status),
            since: now,
            attempt,
        });
    }

    /// Looks for the answer to a write. False while there is nothing to go on with.
    fn answered(
        &mut self,
        number: u64,
        at: Seconds,
        attempt: u32,
        replica: &Replica,
        now: Seconds,
        hub: &mut Hub,
    ) -> bool {
        match hub.answer(now, number).filter(|_| now >= replica.isolated_until) {
            Some(Outcome::Done(version)) => {
                self.closing = false;
                let before = std::mem::replace(&mut self.gate, hub.written(version).clone());
                if let Some(sent) = &self.gate.status {
                    self.around.verdicts.landed(Kind::RolloutGate, &before, sent, &self.gate);
                }
                self.around.unconfirmed.clear();
                true
            }
            Some(Outcome::Conflict) => {
                self.closing = false;
                self.learn(hub.gate());
                self.judge_due = false;
                if attempt < ATTEMPTS {
                    self.decide(replica, now, attempt + 1);
                }
                true
            }
            None if now - at >= CALL_TIMEOUT.as_secs_f64() => {
                self.around.unconfirmed.insert((Kind::RolloutGate, self.gate.key.clone()));
                // A closing is tried again at once.
                self.closing
            }
            None => {
                self.writing = Some(Writing::Sent { number, at, attempt });
                false
            }
        }
    }
}
