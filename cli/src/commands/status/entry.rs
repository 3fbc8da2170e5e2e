//! What is told of one object: its verdict for the present, and how many clusters are how far.

use serde::Serialize;
use serde_with::skip_serializing_none;
use statusbridge_api::fleet_package::{PackageCounts, Problem};
use statusbridge_core::reconcile::gate_verdict::{Gate, GateVerdict, State};
use statusbridge_core::reconcile::object::{GateObject, Key, Kind, PackageObject};
use statusbridge_core::time::Seconds;

use crate::target::Target;
use crate::verdict::{Asked, Verdict};

/// A FleetPackage or a gate.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    #[serde(flatten)]
    pub(super) verdict: Verdict,
    /// Name of a gate's FleetPackage.
    pub(super) fleet_package: Option<String>,
    /// Clusters of a FleetPackage; those of a gate are in its reading.
    #[serde(rename = "clusters")]
    pub(super) counts: Option<PackageCounts>,
    /// Where something is wrong with a FleetPackage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) problems: Vec<Problem>,
}

/// How many clusters of an object are how far.
pub(super) struct Counts {
    pub(super) soaking: u64,
    pub(super) failed: u64,
    pub(super) unobserved: u64,
    pub(super) excused: u64,
}

impl Entry {
    pub(super) fn of_package(package: &PackageObject, now: Seconds) -> Self {
        let status = package.status.as_ref();
        Self {
            verdict: Verdict::of_package(package, Asked::at(now)),
            fleet_package: None,
            counts: status.and_then(|status| status.counted()),
            problems: status.map(|status| status.problems.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn of_gate(gate: &GateObject, package: Option<&PackageObject>, now: Seconds) -> Self {
        Self {
            verdict: Verdict::of_gate(&Gate::from(gate), package, Asked::at(now)),
            fleet_package: gate.spec.as_ref().ok().map(|spec| spec.fleet_package_ref.name.clone()),
            counts: None,
            problems: Vec::new(),
        }
    }

    /// Whether it is the target, or a gate of it.
    pub(super) fn concerns(&self, target: &Target) -> bool {
        let is_itself = self.verdict.kind == target.kind && self.verdict.reading.name == target.name;
        let is_its_gate =
            target.kind == Kind::FleetPackage && self.fleet_package.as_deref() == Some(target.name.as_str());
        is_itself || is_its_gate
    }

    pub(super) fn key(&self) -> (Kind, Key) {
        let GateVerdict { namespace, name, .. } = self.verdict.reading.clone();
        (self.verdict.kind, Key { namespace, name })
    }

    pub(super) fn clusters(&self) -> Option<Counts> {
        let of_gate = self.verdict.reading.clusters.map(|it| Counts {
            soaking: it.soaking,
            failed: it.failed,
            unobserved: it.stale + it.missing + it.unverified + it.conflicting,
            excused: it.excused,
        });
        of_gate.or_else(|| {
            self.counts.map(|it| Counts {
                soaking: 0,
                failed: it.failed,
                unobserved: it.stale + it.missing + it.unverified + it.conflicting,
                excused: it.excused,
            })
        })
    }

    /// All that is worth a new line when it changes: not the age of the evidence.
    pub(super) fn news(&self) -> Vec<String> {
        let GateVerdict { reason, message, fingerprint, healthy, .. } = &self.verdict.reading;
        let counts = |it: Counts| format!("{} {} {} {}", it.soaking, it.failed, it.unobserved, it.excused);
        let counts = self.clusters().map(counts);
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let state = self.verdict.state().to_owned();
        vec![state, reason.clone(), message.clone(), text(fingerprint), text(healthy), text(&counts)]
    }
}

/// The fleet, or a FleetPackage and its gates.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    totals: Totals,
    packages: Vec<Entry>,
    gates: Vec<Entry>,
}

/// How many objects are how.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Totals {
    pub(super) packages: usize,
    pub(super) packages_ready: usize,
    pub(super) gates: usize,
    pub(super) gates_open: usize,
    pub(super) gates_stalled: usize,
}

impl Totals {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let mut totals = Self::default();
        for entry in entries {
            let Verdict { kind, reading } = &entry.verdict;
            let open = usize::from(reading.is_open());
            if *kind == Kind::FleetPackage {
                totals.packages += 1;
                totals.packages_ready += open;
            } else {
                totals.gates += 1;
                totals.gates_open += open;
                totals.gates_stalled += usize::from(reading.state == State::Stalled);
            }
        }
        totals
    }
}

impl Report {
    pub(super) fn of(entries: Vec<Entry>) -> Self {
        let totals = Totals::of(&entries);
        let (packages, gates) =
            entries.into_iter().partition(|entry| entry.verdict.kind == Kind::FleetPackage);
        Self { totals, packages, gates }
    }
}
