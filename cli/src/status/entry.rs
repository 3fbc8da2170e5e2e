//! What is told of one object: its verdict for the present, and how many clusters are how far.

use serde::Serialize;
use serde_with::skip_serializing_none;
use statusbridge_api::fleet_package::{PackageCounts, Problem};
use statusbridge_core::reconcile::gate_verdict::{Gate, Question, Reading, State, read, stale_after};
use statusbridge_core::reconcile::store::{GateObject, Key, Kind, PackageObject};
use statusbridge_core::time::Seconds;

use crate::target::Target;

/// A FleetPackage or a gate.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    #[serde(rename = "kind", serialize_with = "kind_name")]
    pub(super) kind: Kind,
    /// As the gate page has it; a FleetPackage is open while it is Ready.
    #[serde(flatten)]
    pub(super) reading: Reading,
    /// Name of a gate's FleetPackage.
    pub(super) fleet_package: Option<String>,
    /// Clusters of a FleetPackage; those of a gate are in its reading.
    #[serde(rename = "clusters")]
    pub(super) counts: Option<PackageCounts>,
    /// Where something is wrong with a FleetPackage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) problems: Vec<Problem>,
}

fn kind_name<S: serde::Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

/// How many clusters of an object are how far.
pub(super) struct Counts {
    pub(super) soaking: u64,
    pub(super) failed: u64,
    pub(super) unobserved: u64,
}

impl Entry {
    pub(super) fn of_package(package: &PackageObject, now: Seconds) -> Self {
        let status = package.status.as_ref();
        Self {
            kind: Kind::FleetPackage,
            reading: reading(&Gate::from(package), Some(package), now),
            fleet_package: None,
            counts: status.and_then(|status| status.counted()),
            problems: status.map(|status| status.problems.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn of_gate(gate: &GateObject, package: Option<&PackageObject>, now: Seconds) -> Self {
        Self {
            kind: Kind::RolloutGate,
            reading: reading(&Gate::from(gate), package, now),
            fleet_package: gate.spec.as_ref().ok().map(|spec| spec.fleet_package_ref.name.clone()),
            counts: None,
            problems: Vec::new(),
        }
    }

    /// Whether it is the target, or a gate of it.
    pub(super) fn concerns(&self, target: &Target) -> bool {
        let is_itself = self.kind == target.kind && self.reading.name == target.name;
        let is_its_gate =
            target.kind == Kind::FleetPackage && self.fleet_package.as_deref() == Some(target.name.as_str());
        is_itself || is_its_gate
    }

    pub(super) fn key(&self) -> (Kind, Key) {
        let (namespace, name) = (self.reading.namespace.clone(), self.reading.name.clone());
        (self.kind, Key { namespace, name })
    }

    /// Its state in the words of its kind.
    pub(super) fn state(&self) -> &'static str {
        match (self.kind, self.reading.state) {
            (Kind::FleetPackage, State::Open) => "Ready",
            (_, state) => state.name(),
        }
    }

    pub(super) fn clusters(&self) -> Option<Counts> {
        let of_gate = self.reading.clusters.map(|it| Counts {
            soaking: it.soaking,
            failed: it.failed,
            unobserved: it.stale + it.missing + it.unverified + it.conflicting,
        });
        of_gate.or_else(|| {
            self.counts.map(|it| Counts {
                soaking: 0,
                failed: it.failed,
                unobserved: it.stale + it.missing + it.unverified + it.conflicting,
            })
        })
    }

    /// All that is worth a new line when it changes: not the age of the evidence.
    pub(super) fn news(&self) -> Vec<String> {
        let Reading { reason, message, fingerprint, healthy, .. } = &self.reading;
        let counts = self.clusters().map(|it| format!("{} {} {}", it.soaking, it.failed, it.unobserved));
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let state = self.state().to_owned();
        vec![state, reason.clone(), message.clone(), text(fingerprint), text(healthy), text(&counts)]
    }
}

fn reading(gate: &Gate, package: Option<&PackageObject>, now: Seconds) -> Reading {
    let stale_after = package.and_then(|it| it.spec.as_ref().ok()).and_then(stale_after);
    read(gate, &Question { revision: None, stale_after, slack: 0.0, now })
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
            let open = usize::from(entry.reading.is_open());
            if entry.kind == Kind::FleetPackage {
                totals.packages += 1;
                totals.packages_ready += open;
            } else {
                totals.gates += 1;
                totals.gates_open += open;
                totals.gates_stalled += usize::from(entry.reading.state == State::Stalled);
            }
        }
        totals
    }
}

impl Report {
    pub(super) fn of(entries: Vec<Entry>) -> Self {
        let totals = Totals::of(&entries);
        let (packages, gates) = entries.into_iter().partition(|entry| entry.kind == Kind::FleetPackage);
        Self { totals, packages, gates }
    }
}
