//! Every fault once: which of them are made together.
//!
//! What concerns one cluster alone is made in both clusters at once, another fault in each. The standby and the
//! sweeper have nothing to do while the leader works, so what happens to them happens beside something else.

use crate::faults::fault::{Fault, How, Place, Transport};
use crate::faults::system::{CLUSTERS, System, revision};
use crate::faults::timeline::Truth;
use anyhow::{Context, Result};
use statusbridge_tests::SOON;
use std::time::Duration;

/// Faults that are made at the same time.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) faults: Vec<Fault>,
    /// Which clusters go bad meanwhile.
    bad: Vec<usize>,
    /// Whether their gates close before it is over: not where the hub cannot be written, or where the cluster
    /// cannot go bad.
    closes: bool,
}

/// All rounds, with the replica that leads and the one that stands by. Which they are is found out before each.
pub(crate) fn rounds(leader: usize, transport: Transport) -> Vec<Round> {
    let standby = 1 - leader;
    let at = |place: Place| place.ways().iter().map(move |how| Fault { place, how: *how });
    let mut standbys = at(Place::Aggregator(standby)).chain(at(Place::AggregatorToHub(standby)));
    let mut sweepers = at(Place::Sweeper).chain(at(Place::SweeperToHub));
    let mut rounds = Vec::new();

    let kinds = Place::of_a_cluster(transport);
    let own: Vec<_> =
        kinds.into_iter().flat_map(|of| of(0).ways().iter().map(move |how| (of, *how))).collect();
    for pair in own.chunks(2) {
        let each = pair.iter().enumerate().map(|(i, (of, how))| Fault { place: of(i), how: *how });
        let faults = each.chain(standbys.next()).collect();
        rounds.push(Round { faults, bad: (0..pair.len()).collect(), closes: true });
    }

    let mut before = Place::between(transport).to_vec();
    if transport != Transport::Push {
        before.push(Place::AggregatorToBackend(leader));
    }
    for fault in before.into_iter().flat_map(at) {
        let faults = [fault].into_iter().chain(sweepers.next()).collect();
        rounds.push(Round { faults, bad: vec![rounds.len() % 2], closes: true });
    }
    for fault in sweepers {
        rounds.push(Round { faults: vec![fault], bad: vec![rounds.len() % 2], closes: true });
    }
    for fault in at(Place::WorkloadEtcd) {
        rounds.push(Round { faults: vec![fault], bad: vec![rounds.len() % 2], closes: false });
    }
    for fault in at(Place::Aggregator(leader)).chain(at(Place::AggregatorToHub(leader))) {
        rounds.push(Round { faults: vec![fault], bad: vec![rounds.len() % 2], closes: true });
    }
    // With nobody left to lead there is only the sweeper.
    let all = [leader, standby].map(|i| Fault { place: Place::Aggregator(i), how: How::Killed });
    rounds.push(Round { faults: all.to_vec(), bad: vec![rounds.len() % 2], closes: true });
    for fault in at(Place::HubApi).chain(at(Place::HubEtcd)) {
        rounds.push(Round { faults: vec![fault], bad: vec![rounds.len() % 2], closes: false });
    }
    rounds
}

impl Round {
    /// How long it lasts at least: what is held back is held back for longer than it counts.
    fn lasts(&self, system: &System) -> Duration {
        let rules = system.rules();
        let seconds = match () {
            // Until the next one leads, or would.
            () if self
                .faults
                .iter()
                .any(|it| matches!(it.place, Place::Aggregator(_)) && it.stands_still()) =>
            {
                rules.takeover
            }
            () if self.faults.iter().any(|it| it.stands_still()) => {
                rules.stale_after + rules.settle_delay + 1.0
            }
            // Long enough to be missed.
            () if !self.closes => 3.0,
            () => 0.0,
        };
        Duration::from_secs_f64(seconds)
    }

    /// Makes the faults while all gates are open, lets clusters go bad meanwhile, and awaits that their gates close;
    /// then ends it all, and awaits that everything opens. A plan of this name, which has one wave when the faults begin,
    /// gets the second when gates have closed.
    pub(crate) async fn run(&self, system: &System, number: u32, plan: &str) -> Result<()> {
        let names: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        system.note(format!("round: {}", names.join(", ")));
        let bad: Vec<&str> = self.bad.iter().map(|i| CLUSTERS[*i]).collect();
        let good = revision(number);
        system.plan(plan, &good, 1).await?;
        system.are(&[&format!("{plan}-of-{}", CLUSTERS[0])], true, SOON).await.context("before the fault")?;
        let began = tokio::time::Instant::now();
        self.faults.iter().try_for_each(|fault| system.begin(*fault).map(drop))?;
        // What is repeated is from before the cluster goes bad.
        for fault in &self.faults {
            system.remembers(*fault).await?;
        }
        for cluster in &self.bad {
            // One that moves on is as wrong as one that fails.
            let truth = match (self.faults.len() + cluster) % 2 {
                0 => Truth::Failed(good.clone()),
                _ => Truth::Healthy(revision(number + 1_000_000)),
            };
            system.becomes(*cluster, truth);
        }
        if self.closes {
            system.are(&bad, false, SOON).await.context("while the fault lasts")?;
            system.plan(plan, &good, 2).await?;
        }
        tokio::time::sleep_until(began + self.lasts(system)).await;
        system.end_all()?;
        system.is_so(SOON).await?;
        system.are(&bad, false, SOON).await.context("after the fault")?;
        if !self.closes {
            system.plan(plan, &good, 2).await?;
        }
        self.bad.iter().for_each(|cluster| system.becomes(*cluster, Truth::Healthy(good.clone())));
        system.are(&System::quick_gates(), true, SOON).await.context("all is well again")?;
        system.is_admitted(plan, &good, SOON).await?;
        system.check().await.map(drop)
    }
}

#[test]
fn every_fault_is_in_some_round() {
    use std::collections::BTreeSet;
    for transport in [Transport::Prometheus, Transport::VictoriaMetrics, Transport::Push] {
        let places = Place::all(2, 2, transport);
        let all: BTreeSet<String> = places
            .into_iter()
            .flat_map(|place| place.ways().iter().map(move |how| Fault { place, how: *how }.kind()))
            .collect();
        let made: BTreeSet<String> =
            rounds(0, transport).iter().flat_map(|round| &round.faults).map(|fault| fault.kind()).collect();
        assert_eq!(made, all);
    }
}
