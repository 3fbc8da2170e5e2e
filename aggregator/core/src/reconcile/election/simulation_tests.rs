//! Many processes, one Lease, and anything that can happen in between: requests and answers that take
//! their time or get lost, processes that stop for a while wherever they are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use proptest::prelude::*;

use super::{Candidate, Held, Seen, Term};

const TERM: Term = Term { work: Duration::from_secs(10), lease: Duration::from_secs(15) };
const RETRY: Duration = Duration::from_secs(2);
const PROCESSES: usize = 3;
/// How long each run goes on.
const END: u64 = 200_000;

/// What happens next; times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A process wakes up and asks.
    Wake,
    /// A read reaches the server.
    Read,
    /// What was read comes back: the version number of the Lease.
    HasRead(u64),
    /// A write over a version, counted from when it was begun, reaches the server.
    Write { over: u64, begun: u64 },
    /// Whether the write was accepted comes back.
    HasWritten { version: Option<u64>, begun: u64 },
}

#[derive(Default)]
struct Process {
    seen: Seen,
    /// What it holds, and when the last renewal that was accepted was begun.
    held: Option<(Held, u64)>,
}

/// A small generator: proptest gives the seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Mostly short, now and then long enough to outlast a lease.
    fn delay(&mut self) -> u64 {
        match self.below(20) {
            0 => self.below(40_000),
            1..4 => self.below(6_000),
            _ => self.below(50),
        }
    }
}

struct World {
    chance: Chance,
    start: Instant,
    events: BinaryHeap<Reverse<(u64, usize, Event)>>,
    /// Every version of the Lease; the last one counts.
    versions: Vec<Lease>,
    processes: [Process; PROCESSES],
    /// When the last accepted write of the present holder was begun.
    renewed: Option<(usize, u64)>,
    takeovers: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            chance: Chance(seed),
            start: Instant::now(),
            events: BinaryHeap::new(),
            versions: vec![version(Lease::default(), 0)],
            processes: Default::default(),
            renewed: None,
            takeovers: 0,
        };
        (0..PROCESSES).for_each(|who| world.later(0, who, Event::Wake));
        world
    }

    fn later(&mut self, now: u64, who: usize, event: Event) {
        let at = now + self.chance.delay();
        self.events.push(Reverse((at, who, event)));
    }

    fn last(&self) -> u64 {
        self.versions.len() as u64 - 1
    }

    fn run(mut self) -> Result<usize, TestCaseError> {
        while let Some(Reverse((now, who, event))) = self.events.pop() {
            if now > END {
                break;
            }
            match event {
                Event::Wake => self.wake(now, who),
                Event::Read => {
                    let version = self.last();
                    self.later(now, who, Event::HasRead(version));
                }
                Event::HasRead(version) => self.has_read(now, who, version),
                Event::Write { over, begun } => self.write(now, who, over, begun)?,
                Event::HasWritten { version, begun } => self.has_written(now, who, version, begun),
            }
        }
        Ok(self.takeovers)
    }

    fn rest(&mut self, now: u64, who: usize) {
        let pause = RETRY.as_millis() as u64;
        self.later(now + pause, who, Event::Wake);
    }

    fn wake(&mut self, now: u64, who: usize) {
        let held = self.processes[who].held.take();
        let Some((held, renewed)) = held.filter(|(_, at)| TERM.works(millis(now - at))) else {
            return self.later(now, who, Event::Read);
        };
        let over = number(&held.0);
        self.processes[who].held = Some((held, renewed));
        self.later(now, who, Event::Write { over, begun: now });
    }

    fn has_read(&mut self, now: u64, who: usize, version: u64) {
        let lease = self.versions[version as usize].clone();
        let instant = self.start + millis(now);
        let unchanged = self.processes[who].seen.look(&lease, instant);
        if candidate(who).take(lease, unchanged, Timestamp::UNIX_EPOCH).is_ok() {
            self.later(now, who, Event::Write { over: version, begun: now });
        } else {
            self.rest(now, who);
        }
    }

    fn write(&mut self, now: u64, who: usize, over: u64, begun: u64) -> Result<(), TestCaseError> {
        let mut version = None;
        if over == self.last() {
            let before = self.versions[over as usize].clone();
            let holds = self.processes[who].held.as_ref().is_some_and(|(held, _)| held.is(&before));
            let mut lease = Held(before.clone()).renewal(Timestamp::UNIX_EPOCH);
            if !holds {
                let spec = before.spec.unwrap_or_default();
                lease.spec = Some(candidate(who).taken(&spec, Timestamp::UNIX_EPOCH));
                if let Some((other, at)) = self.renewed.filter(|(other, _)| *other != who) {
                    let lasts = TERM.lease;
                    prop_assert!(
                        millis(now - at) >= lasts,
                        "{who} took over from {other} after {} ms",
                        now - at
                    );
                    self.takeovers += 1;
                }
            }
            self.versions.push(self::version(lease, self.last() + 1));
            self.renewed = Some((who, begun));
            version = Some(self.last());
        }
        // One answer in ten is lost; the caller notices after a while.
        match self.chance.below(10) {
            0 => self.rest(now + 5000, who),
            _ => self.later(now, who, Event::HasWritten { version, begun }),
        }
        Ok(())
    }

    fn has_written(&mut self, now: u64, who: usize, version: Option<u64>, begun: u64) {
        match version {
            Some(version) => {
                self.processes[who].held = Some((Held(self.versions[version as usize].clone()), begun));
            }
            None => self.processes[who].held = None,
        }
        self.rest(now, who);
    }
}

fn candidate(who: usize) -> Candidate {
    Candidate { installation: "i".to_owned(), identity: format!("process-{who}"), term: TERM }
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn version(mut lease: Lease, number: u64) -> Lease {
    lease.metadata.uid = Some("uid".into());
    lease.metadata.resource_version = Some(number.to_string());
    lease
}

fn number(lease: &Lease) -> u64 {
    lease.metadata.resource_version.as_ref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

proptest! {
    #[test]
    fn nobody_takes_over_before_the_last_renewal_has_run_out(seed: u64) {
        World::new(seed).run()?;
    }
}

#[test]
fn in_the_simulation_leaders_do_change() {
    let takeovers: usize = (0..20).map(|seed| World::new(seed).run().unwrap()).sum();
    assert!(takeovers > 20, "only {takeovers}");
}
