//! A replica of the aggregator: stands by or leads, polls, decides, writes.
//!
//! Requests for the Lease take no time and are not lost here; `election::simulation_tests` tries what else can happen to them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use jiff::Timestamp;
use statusbridge_core::fleet::{Fleet, FleetSettings, Speakers};
use statusbridge_core::reconcile::calls::CALL_TIMEOUT;
use statusbridge_core::reconcile::command::{Answer, Command, Number, Status, StatusWrite, Unreadable};
use statusbridge_core::reconcile::election::{Candidate, Held, Seen, Term};
use statusbridge_core::reconcile::feeds::{Failure, Planned, Polled};
use statusbridge_core::reconcile::holds::Holds;
use statusbridge_core::reconcile::judging::Judges;
use statusbridge_core::reconcile::object::{Key, Kind};
use statusbridge_core::reconcile::owned::OwnedWrite;
use statusbridge_core::reconcile::profiles;
use statusbridge_core::reconcile::reconciler::Reconciler;
use statusbridge_core::reconcile::state::{Rules, State};
use statusbridge_core::reconcile::store::Event;
use statusbridge_core::time::{Now, Seconds};

use super::backend::{Asked, Backend, MAX_CLOCK_SKEW};
use super::hub::{Hub, Sent};
use super::{EXPORTERS, POLL_INTERVAL};
use crate::feed::promql::FeedError;
use crate::feed::promql::poll::{PollConfig, Poller};

/// How long a leader works and is left alone without a renewal.
const TERM: Term = Term { work: Duration::from_secs(10), lease: Duration::from_secs(15) };
/// Time between two renewals, or two looks at the lease.
const RETRY: Seconds = 2.0;
/// What a leader follows.
const KINDS: [Kind; 4] = [Kind::FleetPackage, Kind::RolloutGate, Kind::FleetRollout, Kind::FleetRolloutSlice];
/// Writes for which the budget of a second allows.
const WRITES_PER_SECOND: u32 = 20;

/// A call of the hub that is under way.
#[derive(Debug)]
enum Call {
    /// A status was sent; what it has for a number at the hub.
    Write { write: Box<StatusWrite>, at: Seconds, number: u64 },
    /// An object of the FleetRollout was sent.
    WriteOwned { write: Box<OwnedWrite>, at: Seconds, number: u64 },
    /// Nobody answers it.
    Read { number: Number, kind: Kind, key: Key, at: Seconds },
    /// Nobody answers it.
    List { number: Number, key: Key, at: Seconds },
}

impl Call {
    const fn at(&self) -> Seconds {
        let (Self::Write { at, .. }
        | Self::WriteOwned { at, .. }
        | Self::Read { at, .. }
        | Self::List { at, .. }) = self;
        *at
    }
}

/// What a leader has and knows.
struct Work {
    began: Seconds,
    reconciler: Reconciler,
    poller: Poller<Asked>,
    next_poll: Seconds,
    /// The version of the gate that was heard of last.
    heard: u64,
    /// How many news of other objects were heard.
    news: usize,
    /// What the configuration says, as far as it was read.
    speakers: Speakers,
    /// What it wants done and has not begun with.
    commands: VecDeque<Command>,
    calls: Vec<Call>,
}

/// A replica.
pub(super) struct Replica {
    /// Which replica, and which process of it.
    id: (usize, u32),
    /// The election counts its times from here.
    start: Instant,
    asked: Asked,
    /// By how much its clock is ahead.
    ahead: Seconds,
    work: Option<Work>,
    /// The Lease as it last wrote it, and when that was sent.
    held: Option<(Held, Seconds)>,
    seen: Seen,
    next_look: Seconds,
    pub(super) frozen_until: Seconds,
    pub(super) isolated_until: Seconds,
    pub(super) away_until: Seconds,
    /// It is to stand still before it sends what it decides next.
    pub(super) stalls: Option<Seconds>,
}

impl Replica {
    pub(super) fn new(number: usize, now: Seconds, ahead: Seconds, backend: &Backend) -> Self {
        let asked = Asked { backend: backend.clone(), ahead: Arc::new(Mutex::new(ahead)) };
        Self {
            id: (number, 0),
            start: Instant::now(),
            asked,
            ahead,
            work: None,
            held: None,
            seen: Seen::default(),
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
        let answered = |work: &Work| work.reconciler.state().feeds.all_answer();
        self.leads() && now >= self.frozen_until && self.work.as_ref().is_some_and(answered)
    }

    /// Whether it judges and is heard: a leader in a state to close gates.
    pub(super) fn watches(&self, now: Seconds) -> bool {
        let judges = self.work.as_ref().is_some_and(|work| work.reconciler.state().feeds.any_was_polled());
        judges && now >= self.frozen_until && now >= self.isolated_until
    }

    pub(super) fn kill(&mut self, now: Seconds, away: Seconds) {
        self.away_until = now + away;
        self.id.1 += 1;
        self.resign();
        self.stalls = None;
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
    pub(super) fn tick(&mut self, now: Seconds, hub: &mut Hub, speakers: &Speakers) {
        if now < self.away_until || now < self.frozen_until {
            return;
        }
        self.elect(now, hub, speakers);
        let Some(mut work) = self.work.take() else { return };
        work.configure(self, now, speakers);
        work.tick(self, now, hub);
        self.work = Some(work);
    }

    /// Takes, renews or loses the lease.
    fn elect(&mut self, now: Seconds, hub: &mut Hub, speakers: &Speakers) {
        if self.work.is_some() && !self.is_certain(now, Term::works) {
            self.resign();
        }
        if now < self.next_look || now < self.isolated_until {
            return;
        }
        self.next_look = now + RETRY;
        if let Some((held, _)) = &self.held {
            match hub.replace(held.renewal(Timestamp::UNIX_EPOCH)) {
                Some(renewed) => self.held = Some((Held(renewed), now)),
                None => self.resign(),
            }
            return;
        }
        let unchanged = self.seen.look(hub.lease(), self.start + passed(now));
        let lease = self.candidate().take(hub.lease().clone(), unchanged, Timestamp::UNIX_EPOCH);
        if let Some(held) = lease.ok().and_then(|lease| hub.replace(lease)).map(Held) {
            let epoch = held.epoch();
            self.held = Some((held, now));
            self.work = Some(Work::new(epoch, self, now, hub, speakers));
        }
    }

    fn candidate(&self) -> Candidate {
        let identity = format!("{}-{}", self.id.0, self.id.1);
        Candidate { installation: "model".to_owned(), identity, term: TERM }
    }

    /// Leads no longer, and starts anew.
    fn resign(&mut self) {
        (self.work, self.held, self.seen) = Default::default();
    }

    /// Whether a leader may, so long after its last renewal was sent.
    fn is_certain(&self, now: Seconds, may: impl FnOnce(Term, Duration) -> bool) -> bool {
        self.held.as_ref().is_some_and(|(_, sent)| may(TERM, passed(now - sent)))
    }

    /// Whether the fence lets a call of the hub pass.
    fn admits(&self, now: Seconds) -> bool {
        self.is_certain(now, |term, elapsed| term.admits(elapsed, CALL_TIMEOUT))
    }
}

fn passed(time: Seconds) -> Duration {
    Duration::from_secs_f64(time.max(0.0))
}

/// A moment of the world, by the clock of a replica.
fn moment(replica: &Replica, real: Seconds) -> Now {
    Now { wall: real + replica.ahead, passed: Duration::from_secs_f64(real) }
}

/// The configuration's rules, of which only the speakers are at stake here.
fn rules(speakers: &Speakers) -> Rules {
    Rules { speakers: speakers.clone(), ..Rules::default() }
}

impl Work {
    fn new(epoch: i64, replica: &Replica, now: Seconds, hub: &Hub, speakers: &Speakers) -> Self {
        let fleet = || Fleet::new(FleetSettings::default());
        let mut state = State::new(fleet(), profiles::Settings::default(), rules(speakers), epoch);
        state.holds = Holds::none();
        let mut reconciler = Reconciler::new(state, Judges::default(), None);
        let poller = Poller::new(PollConfig::new(EXPORTERS.clone()), replica.asked.clone());
        let feed = Planned { name: "".into(), settle: poller.settle_delay(), asked: false };
        reconciler.planned(vec![feed], fleet());
        let at = moment(replica, now);
        for kind in KINDS {
            for event in hub.listed(kind) {
                reconciler.heard(kind, event, at);
            }
        }
        Self {
            began: now,
            reconciler,
            poller,
            next_poll: now + 1.0,
            heard: hub.version(),
            news: hub.all_news(),
            speakers: speakers.clone(),
            commands: VecDeque::new(),
            calls: Vec::new(),
        }
    }

    /// Reads the configuration, as it is now.
    fn configure(&mut self, replica: &Replica, now: Seconds, speakers: &Speakers) {
        if self.speakers != *speakers {
            self.speakers = speakers.clone();
            self.reconciler.configured(rules(speakers), moment(replica, now));
        }
    }

    fn tick(&mut self, replica: &mut Replica, now: Seconds, hub: &mut Hub) {
        let at = moment(replica, now);
        let news = hub.news(now);
        if now >= replica.isolated_until && news.number() > self.heard {
            self.heard = news.number();
            self.reconciler.heard(Kind::RolloutGate, Event::Apply(news.sent.clone()), at);
        }
        if now >= replica.isolated_until {
            let news = hub.more_news(now, self.news);
            self.news += news.len();
            for (_, kind, event) in news {
                self.reconciler.heard(*kind, event.clone(), at);
            }
        }
        if now >= self.next_poll {
            self.poll(replica, now);
        }
        self.reconciler.tick(at);
        let mut budget = WRITES_PER_SECOND;
        // As many steps as can be taken at once.
        loop {
            self.take_answers(replica, now, hub);
            self.commands.extend(self.reconciler.commands());
            if self.commands.is_empty() {
                budget = budget.saturating_sub(self.reconciler.next_write(at).unwrap_or_default().max(1));
                self.commands.extend(self.reconciler.commands());
            }
            match self.commands.pop_front() {
                Some(command) => {
                    let stalls = matches!(command, Command::Write(_)).then(|| replica.stalls.take());
                    if let Some(lasts) = stalls.flatten() {
                        replica.frozen_until = now + lasts;
                        self.commands.push_front(command);
                        return;
                    }
                    self.carry_out(command, replica, now, hub);
                }
                None if budget == 0 || !self.reconciler.has_writes() => return,
                None => {}
            }
        }
    }

    /// Does what the reconciler wants done, or begins with it.
    fn carry_out(&mut self, command: Command, replica: &Replica, now: Seconds, hub: &mut Hub) {
        let at = moment(replica, now);
        let isolated = now < replica.isolated_until;
        match command {
            Command::Write(write) => {
                let is_sent = write.may_be_sent(at) && replica.admits(now);
                let sent = match &write.status {
                    Status::Gate { status, .. } if write.version.key == hub.gate().key => {
                        Some(Sent::Gate(write.version.resource_version.parse().ok(), status.clone()))
                    }
                    Status::Gate { .. } | Status::Rollout(_) => Some(Sent::Status(write.clone())),
                    // What FleetPackages say is not at stake here.
                    Status::Package(_) => None,
                };
                match sent.filter(|_| is_sent) {
                    Some(sent) => {
                        let number = hub.send(now, sent, isolated);
                        hub.arrive(now);
                        self.calls.push(Call::Write { write, at: now, number });
                    }
                    None => self.wrote(&write, Answer::NotSent, at),
                }
            }
            Command::WriteOwned(write) if write.may_be_sent(at) && replica.admits(now) => {
                let number = hub.send(now, Sent::Owned(write.clone()), isolated);
                hub.arrive(now);
                self.calls.push(Call::WriteOwned { write, at: now, number });
            }
            Command::WriteOwned(write) => self.reconciler.wrote_owned(&write, Answer::NotSent, at),
            Command::Read(number, kind, key) if isolated => {
                self.calls.push(Call::Read { number, kind, key, at: now });
            }
            Command::Read(number, kind, key) => {
                self.reconciler.read(number, kind, &key, Ok(hub.object(kind, &key)), at);
            }
            Command::List(number, key, _) if isolated => self.calls.push(Call::List { number, key, at: now }),
            Command::List(number, key, listings) => {
                let found = listings.iter().flat_map(|it| hub.objects().heads(it)).collect();
                self.reconciler.listed(number, &key, &Ok(found), at);
            }
            Command::Beat(unclosed) => {
                let landed = !isolated && replica.admits(now);
                if landed {
                    (hub.heartbeat, hub.unclosed) = (now, !unclosed.is_empty());
                }
                self.reconciler.beaten(landed, at);
            }
            _ => {}
        }
    }

    fn wrote(&mut self, write: &StatusWrite, answer: Answer, at: Now) {
        self.reconciler.wrote(write.number, write.kind, &write.version.key, answer, at);
    }

    /// Takes in the answers that have come, and that none comes any more.
    fn take_answers(&mut self, replica: &Replica, now: Seconds, hub: &Hub) {
        let at = moment(replica, now);
        let answer = |number| hub.answer(now, number).filter(|_| now >= replica.isolated_until);
        for call in std::mem::take(&mut self.calls) {
            let is_over = now - call.at() >= CALL_TIMEOUT.as_secs_f64();
            let unconfirmed = is_over.then_some(Answer::Unconfirmed);
            match &call {
                Call::Write { write, number, .. } => match answer(*number).or(unconfirmed) {
                    Some(answer) => self.wrote(write, answer, at),
                    None => self.calls.push(call),
                },
                Call::WriteOwned { write, number, .. } => match answer(*number).or(unconfirmed) {
                    Some(answer) => self.reconciler.wrote_owned(write, answer, at),
                    None => self.calls.push(call),
                },
                Call::Read { number, kind, key, .. } if is_over => {
                    self.reconciler.read(*number, *kind, key, Err(Unreadable), at);
                }
                Call::List { number, key, .. } if is_over => {
                    self.reconciler.listed(*number, key, &Err(Unreadable), at);
                }
                Call::Read { .. } | Call::List { .. } => self.calls.push(call),
            }
        }
    }

    fn poll(&mut self, replica: &Replica, now: Seconds) {
        let at = moment(replica, now);
        let t = at.wall - self.poller.settle_delay();
        let report = block_on(self.poller.poll(self.reconciler.fleet(), t));
        let clock_lags = report.failure.as_ref().and_then(FeedError::clock_lags);
        let streams = (report.verified, report.unverified);
        let outcome = report.error.map_or(Ok(streams), |error| Err(Failure { error, clock_lags }));
        self.next_poll = now + POLL_INTERVAL;
        self.reconciler.polled(0, Polled { t, settle: self.poller.settle_delay(), outcome }, at);
    }
}
