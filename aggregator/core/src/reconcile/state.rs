//! All that verdicts rest on.

use std::collections::{BTreeMap, BTreeSet};

use super::dependencies::Graph;
use super::feeds::Feeds;
use super::holds::Holds;
use super::object::{Key, Kind};
use super::observation_cache::ObservationCache;
use super::profiles::{Profiles, Settings};
use super::references::Ledger;
use super::rollout_slices::RolloutSlices;
use super::slices::Slices;
use super::store::{Gates, Packages, Rollouts};
use super::tenancy::Tenancy;
use super::verdict_cache::VerdictCache;
use crate::checks::{Rounds, Templates};
use crate::fleet::{Fleet, Speakers};

/// What the configuration says about verdicts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// What each namespace may see.
    pub tenancy: Tenancy,
    /// Queries that checks may refer to by name.
    pub templates: Templates,
    /// Whose exporters are believed about other clusters.
    pub speakers: Speakers,
}

/// All that verdicts rest on.
pub struct State {
    /// What the clusters report.
    pub fleet: Fleet,
    /// What the feeds' last polls came to.
    pub feeds: Feeds,
    /// The FleetPackages.
    pub packages: Packages,
    /// The gates.
    pub gates: Gates,
    /// The slices.
    pub slices: Slices,
    /// The FleetRollouts.
    pub rollouts: Rollouts,
    /// Which clusters may have which revision.
    pub rollout_slices: RolloutSlices,
    /// The clusters that the hub knows.
    pub profiles: Profiles,
    /// What the configuration says.
    pub rules: Rules,
    /// What each gate depends on.
    pub graph: Graph,
    /// What the backends say to checks.
    pub checks: Rounds,
    /// Freezes and approvals.
    pub holds: Holds,
    /// The revisions that packages read from other objects.
    pub references: Ledger,
    /// What was found out about the fleet, as it is now.
    pub observations: ObservationCache,
    /// What objects were judged to be, and what that rests on.
    pub verdicts: VerdictCache,
    /// Gates that have to be closed, and of which the hub does not know it yet.
    pub closings: BTreeSet<Key>,
    /// Objects that a write was sent for, and nobody knows whether it has arrived.
    pub unconfirmed: BTreeSet<(Kind, Key)>,
    /// FleetRollouts of which the API server does not take a gate or a slice, and why.
    pub refused: BTreeMap<Key, String>,
    /// FleetRollouts whose PlacementDecisions could not be written, and why.
    pub not_handed_over: BTreeMap<Key, String>,
    /// Which leadership it is.
    pub epoch: i64,
}

impl State {
    /// Nothing is known yet.
    pub fn new(mut fleet: Fleet, profiles: Settings, rules: Rules, epoch: i64) -> Self {
        fleet.believe(rules.speakers.clone());
        Self {
            fleet,
            feeds: Feeds::default(),
            packages: Packages::default(),
            gates: Gates::default(),
            slices: Slices::default(),
            rollouts: Rollouts::default(),
            rollout_slices: RolloutSlices::default(),
            profiles: Profiles::new(profiles),
            rules,
            graph: Graph::default(),
            checks: Rounds::default(),
            holds: Holds::default(),
            references: Ledger::default(),
            observations: ObservationCache::default(),
            verdicts: VerdictCache::default(),
            closings: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
            refused: BTreeMap::new(),
            not_handed_over: BTreeMap::new(),
            epoch,
        }
    }

    /// Whether all FleetPackages and gates of the hub are known.
    pub fn has_listed(&self) -> bool {
        self.packages.complete() && self.gates.complete()
    }

    /// Judging needs both lists, to have heard of freezes and approvals, and to have asked for evidence at least once: before that, nothing is known, and nothing
    /// is worse than it was but what has grown too old.
    pub(crate) fn can_judge(&self) -> bool {
        self.has_listed() && self.holds.heard() && self.feeds.any_was_polled()
    }

    /// The gates that have to be looked at when these have changed: themselves, those that depend on them, and those of
    /// cycles that they closed or opened.
    pub fn concerned(&mut self, changed: BTreeSet<Key>) -> BTreeSet<Key> {
        let mut concerned = self.graph.update(&self.gates, &changed);
        concerned.extend(changed.iter().flat_map(|key| self.graph.dependents(key)).cloned());
        concerned.extend(changed);
        concerned
    }
}
