//! All that a judgement looks at beside the fleet, for the tests of this crate.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::checks::{Answers, Templates};
use crate::decide::{Backend, Moment};
use crate::dependencies::Graph;
use crate::fleet::Fleet;
use crate::judge::{Gates, Packages, World};
use crate::profiles::{Profiles, Settings};
use crate::references::Ledger;
use crate::store::Key;
use crate::survey::ObservationCache;
use crate::tenancy::Tenancy;
use crate::verdicts::VerdictCache;
use crate::write::Kind;

/// All that a [`World`] refers to but the fleet: nothing, unless a test says otherwise.
pub(crate) struct Surroundings {
    pub(crate) packages: Packages,
    pub(crate) profiles: Profiles,
    pub(crate) tenancy: Tenancy,
    pub(crate) gates: Gates,
    pub(crate) graph: Graph,
    pub(crate) closing: BTreeSet<Key>,
    pub(crate) templates: Templates,
    pub(crate) answers: Answers,
    pub(crate) references: Ledger,
    pub(crate) surveys: ObservationCache,
    pub(crate) doubtful: BTreeSet<(Kind, Key)>,
    pub(crate) verdicts: VerdictCache,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            packages: Packages::default(),
            profiles: Profiles::new(Settings::default()),
            tenancy: Tenancy::default(),
            gates: Gates::default(),
            graph: Graph::default(),
            closing: BTreeSet::new(),
            templates: Templates::default(),
            answers: Answers::default(),
            references: Ledger::default(),
            surveys: ObservationCache::default(),
            doubtful: BTreeSet::new(),
            verdicts: VerdictCache::default(),
        }
    }
}

impl Surroundings {
    pub(crate) fn world<'a>(&'a self, fleet: &'a Fleet, backend: Backend<'a>, moment: Moment) -> World<'a> {
        World {
            fleet,
            packages: &self.packages,
            profiles: &self.profiles,
            tenancy: &self.tenancy,
            gates: &self.gates,
            graph: &self.graph,
            closing: &self.closing,
            templates: &self.templates,
            answers: &self.answers,
            references: &self.references,
            surveys: &self.surveys,
            backend,
            unheard: None,
            epoch: None,
            doubtful: &self.doubtful,
            verdicts: &self.verdicts,
            moment,
        }
    }
}

/// Evaluates every expression that waits for it.
pub(crate) fn evaluate_all(references: &mut Ledger) {
    while let Some(next) = references.next(Instant::now() + Duration::from_secs(3600)) {
        references.evaluated(next.run(), Instant::now());
    }
}
