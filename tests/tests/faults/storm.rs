//! Faults and truth at random, several at a time.

use crate::faults::check::ReceiptLog;
use crate::faults::fault::Fault;
use crate::faults::fault::Place;
use crate::faults::system::{CLUSTERS, System, revision};
use crate::faults::timeline::{Part, Truth, now};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How many faults there are at a time, at most.
const AT_ONCE: usize = 3;
/// Time from one calm to the next.
const ROUGH: Duration = Duration::from_secs(45);
/// Name of the FleetRollout.
const PLAN: &str = "storm";
const STEP: Duration = Duration::from_millis(500);
/// In which everything must be open once all is well.
const RECOVERY: Duration = Duration::from_secs(180);

/// Numbers that look random and follow from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True so many times of a hundred.
    fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }
}

/// What there was.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) faults: BTreeMap<String, usize>,
    pub(crate) moves: usize,
    pub(crate) revisions: usize,
    pub(crate) calms: usize,
    /// The longest that it took until all was open again.
    pub(crate) slowest_recovery: Duration,
    pub(crate) tally: ReceiptLog,
}

/// Goes on for so long, and ends in a calm in which everything opens. `first` numbers the revisions.
pub(crate) async fn rage(system: &System, seed: u64, lasts: Duration, first: u32) -> Result<Record> {
    let mut random = Random(seed);
    let mut record = Record::default();
    let faults = system.faults();
    let mut number = first;
    let end = Instant::now() + lasts;
    loop {
        let calm = (Instant::now() + ROUGH).min(end);
        let mut under_way: BTreeMap<Place, Instant> = BTreeMap::new();
        while Instant::now() < calm {
            step(system, &mut random, &mut record, &faults, &mut under_way, &mut number).await?;
            tokio::time::sleep(STEP).await;
        }
        let took = calm_down(system, &revision(number)).await?;
        record.calms += 1;
        record.slowest_recovery = record.slowest_recovery.max(took);
        record.tally = system.check().await?;
        println!("{:6.1} s  calm after {took:.1?}: {:?}", now() - system.started, record.tally);
        if Instant::now() >= end {
            return Ok(record);
        }
    }
}

async fn step(
    system: &System,
    random: &mut Random,
    record: &mut Record,
    faults: &[Fault],
    under_way: &mut BTreeMap<Place, Instant>,
    number: &mut u32,
) -> Result<()> {
    let over: Vec<Place> =
        under_way.iter().filter(|(_, until)| **until <= Instant::now()).map(|(place, _)| *place).collect();
    for place in over {
        under_way.remove(&place);
        system.end(place)?;
    }
    system.revive()?;
    if random.percent(25) {
        // Now and then one kind of trouble on a connection follows another.
        let there = |fault: &&Fault| under_way.contains_key(&fault.place);
        let among: Vec<&Fault> = match under_way.len() < AT_ONCE && random.percent(70) {
            true => faults.iter().filter(|fault| !there(fault)).collect(),
            false => faults.iter().filter(there).collect(),
        };
        // While the hub is away there is little to see.
        let among: Vec<&Fault> = match random.percent(70) {
            true => among.into_iter().filter(|fault| fault.place.part() != Part::Hub).collect(),
            false => among,
        };
        let lasts = Duration::from_millis(500 + random.below(14_500) as u64);
        if !among.is_empty() {
            let fault = *among[random.below(among.len())];
            if system.begin(fault)? {
                under_way.insert(fault.place, Instant::now() + lasts);
                *record.faults.entry(fault.kind()).or_default() += 1;
            }
        }
    }
    if random.percent(15) {
        let cluster = random.below(CLUSTERS.len());
        let truth = match random.below(10) {
            0..=5 => Truth::Healthy(revision(*number)),
            6..=8 => Truth::Failed(revision(*number)),
            _ => Truth::Healthy(revision(number.saturating_sub(1))),
        };
        system.becomes(cluster, truth);
        record.moves += 1;
    }
    let hub = [Place::HubApi, Place::HubEtcd];
    if random.percent(4) && !hub.iter().any(|place| under_way.contains_key(place)) {
        *number += 1;
        record.revisions += 1;
        // The hub may still be on its way back.
        let asked = tokio::time::timeout(Duration::from_secs(5), ask_for(system, &revision(*number))).await;
        if !matches!(asked, Ok(Ok(()))) {
            system.note("the hub did not take it, or not all of it");
        }
    }
    Ok(())
}

/// Has the gates and the plan ask for this revision.
async fn ask_for(system: &System, revision: &str) -> Result<()> {
    system.ask_for(revision).await?;
    system.plan(PLAN, revision, CLUSTERS.len()).await
}

/// Ends all faults and makes everything healthy. Says how long it took until everything was open.
async fn calm_down(system: &System, revision: &str) -> Result<Duration> {
    system.note("calm");
    system.end_all()?;
    let began = Instant::now();
    for cluster in 0..CLUSTERS.len() {
        system.becomes(cluster, Truth::Healthy(revision.to_owned()));
    }
    let asked = statusbridge_tests::eventually(RECOVERY, "the hub takes the gates", async || {
        system.revive()?;
        ask_for(system, revision).await
    });
    asked.await?;
    system.are(&System::gates(), true, RECOVERY).await.context("all is well again")?;
    system.is_admitted(PLAN, revision, RECOVERY).await?;
    Ok(began.elapsed())
}
