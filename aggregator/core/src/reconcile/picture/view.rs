//! What of a picture is sent to a viewer.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::{Value, json};
use serde_with::skip_serializing_none;
use statusbridge_api::conditions::{READY, STALLED, is_true};
use statusbridge_api::label_selector::Labels;
use statusbridge_api::{
    FleetPackageSpec, FleetPackageStatus, FleetRolloutStatus, Reason, RolloutGateSpec, RolloutGateStatus,
};

use super::{Cell, Dated, Package, Picture, ShownGate};
use crate::reconcile::gate_verdict::GateVerdict;
use crate::reconcile::object::{Key, Kind, Object, RolloutObject};

/// Most cells that are sent one by one: with more, the viewer reads all of it anew.
const MOST_CHANGES: usize = 50_000;

/// Why nothing that is shown counts now; None while it does.
pub type Silence<'a> = Option<&'a str>;

/// All that a picture shows, or what of it has changed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View<'a> {
    cursor: String,
    as_of: Option<&'a Time>,
    evaluated_at: Option<&'a Time>,
    silent: Silence<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    states: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clusters: Vec<ClusterView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    packages: Vec<PackageView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gates: Vec<GateView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rollouts: Vec<RolloutView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gone: Option<Value>,
}

#[skip_serializing_none]
#[derive(Debug, Serialize)]
struct ClusterView<'a> {
    /// Where not all of them are sent.
    index: Option<usize>,
    name: &'a str,
    labels: &'a Labels,
}

/// What is sent of a FleetPackage.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
pub struct PackageView<'a> {
    metadata: Value,
    /// The spec; None where it cannot be read.
    pub spec: Option<&'a FleetPackageSpec>,
    /// The status as it stands in the hub.
    pub status: Option<&'a FleetPackageStatus>,
    wanted: Option<&'a str>,
    revisions: &'a [String],
    /// The clusters that need not be healthy now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    excused: Vec<ExcusedView<'a>>,
    /// Count, state, revision: run lengths over the numbers of clusters.
    cells: Option<Vec<[i64; 3]>>,
    /// Number of a cluster, state, revision.
    changes: Option<Vec<[i64; 3]>>,
}

/// Clusters that are excused, by their numbers, and why.
#[derive(Debug, Serialize)]
struct ExcusedView<'a> {
    reason: &'a str,
    clusters: &'a [usize],
}

/// What is sent of a gate.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
pub struct GateView<'a> {
    metadata: Value,
    /// The spec; None where it cannot be read.
    pub spec: Option<&'a RolloutGateSpec>,
    status: Option<&'a RolloutGateStatus>,
    /// What it tells now.
    pub verdict: &'a GateVerdict,
}

/// What is sent of a FleetRollout.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutView<'a> {
    metadata: Value,
    /// Name of its FleetPackage; None where the spec cannot be read.
    package: Option<&'a str>,
    paused: bool,
    ready: bool,
    stalled: bool,
    reason: &'a str,
    message: Cow<'a, str>,
    /// The status as it stands in the hub.
    status: Option<&'a FleetRolloutStatus>,
}

impl Picture {
    /// Everything that it shows.
    pub fn all<'a>(&'a self, silent: Silence<'a>) -> View<'a> {
        let clusters = self.clusters.iter().map(|cluster| ClusterView {
            index: None,
            name: &cluster.it.name,
            labels: &cluster.it.labels,
        });
        let packages = self.packages.values().map(|package| PackageView {
            cells: Some(package.it.runs(self.clusters.len())),
            ..package.it.head()
        });
        View {
            states: Reason::ALL.iter().map(|reason| reason.name()).collect(),
            clusters: clusters.collect(),
            packages: packages.collect(),
            gates: self.gates().collect(),
            rollouts: self.rollouts().collect(),
            ..self.pulse(silent)
        }
    }

    /// What has changed after the picture to which this cursor belongs; `None` where that is none of this picture's.
    pub fn since<'a>(&'a self, cursor: &str, silent: Silence<'a>) -> Option<View<'a>> {
        let (id, version) = cursor.split_once('-')?;
        let version: u64 = version.parse().ok()?;
        if id.parse::<u64>().ok()? != self.id || version > self.version {
            return None;
        }
        if version == self.version {
            return Some(self.pulse(silent));
        }
        let is_new = |at: u64| at > version;
        // Most packages have a new status and no new cell.
        let filled = self.packages.values().filter(|package| is_new(package.it.filled));
        let cells = filled.flat_map(|package| &package.it.cells);
        // All of it is shorter, as runs.
        if cells.filter(|cell| is_new(cell.version)).count() > MOST_CHANGES {
            return None;
        }
        let clusters = self.clusters.iter().enumerate().filter(|(_, cluster)| is_new(cluster.version));
        let clusters = clusters.map(|(index, cluster)| ClusterView {
            index: Some(index),
            name: &cluster.it.name,
            labels: &cluster.it.labels,
        });
        let packages = self.packages.values().filter(|package| is_new(package.version)).map(|package| {
            let cells = if is_new(package.it.filled) { package.it.cells.as_slice() } else { &[] };
            let changed = cells.iter().enumerate().filter(|(_, cell)| is_new(cell.version));
            let change = |(index, cell): (usize, &Dated<Option<Cell>>)| {
                let [state, revision] = numbers(cell.it);
                [index as i64, state, revision]
            };
            PackageView { changes: Some(changed.map(change).collect()), ..package.it.head() }
        });
        let gone = |kind: Kind| -> Vec<String> {
            let gone = self.gone.iter().filter(|((of, _), at)| *of == kind && is_new(**at));
            gone.map(|((_, key), _)| key.to_string()).collect()
        };
        let (packages_gone, gates_gone) = (gone(Kind::FleetPackage), gone(Kind::RolloutGate));
        let rollouts_gone = gone(Kind::FleetRollout);
        let any = [&packages_gone, &gates_gone, &rollouts_gone].iter().any(|gone| !gone.is_empty());
        let rollouts = self.rollouts.values().filter(|rollout| is_new(rollout.version));
        Some(View {
            clusters: clusters.collect(),
            packages: packages.collect(),
            gates: self
                .gates
                .values()
                .filter(|gate| is_new(gate.version))
                .map(|gate| gate.it.view())
                .collect(),
            rollouts: rollouts.map(|rollout| RolloutView::from(&rollout.it)).collect(),
            gone: any
                .then(|| json!({"packages": packages_gone, "gates": gates_gone, "rollouts": rollouts_gone})),
            ..self.pulse(silent)
        })
    }

    /// A word that stands for what it shows now.
    pub fn cursor(&self) -> String {
        format!("{}-{}", self.id, self.version)
    }

    fn pulse<'a>(&'a self, silent: Silence<'a>) -> View<'a> {
        View {
            cursor: self.cursor(),
            as_of: self.as_of.as_ref(),
            evaluated_at: self.evaluated_at.as_ref(),
            silent,
            states: Vec::new(),
            clusters: Vec::new(),
            packages: Vec::new(),
            gates: Vec::new(),
            rollouts: Vec::new(),
            gone: None,
        }
    }

    /// The FleetPackages that it shows.
    pub fn packages(&self) -> impl Iterator<Item = PackageView<'_>> {
        self.packages.values().map(|package| package.it.head())
    }

    /// The gates that it shows.
    pub fn gates(&self) -> impl Iterator<Item = GateView<'_>> {
        self.gates.values().map(|gate| gate.it.view())
    }

    /// The FleetRollouts that it shows.
    pub fn rollouts(&self) -> impl Iterator<Item = RolloutView<'_>> {
        self.rollouts.values().map(|rollout| RolloutView::from(&rollout.it))
    }
}

impl Package {
    fn head(&self) -> PackageView<'_> {
        PackageView {
            metadata: metadata(&self.object),
            spec: self.object.spec.as_deref().ok(),
            status: self.object.status.as_ref(),
            wanted: self.wanted.as_deref(),
            revisions: &self.revisions,
            excused: self.excused.iter().map(|(reason, clusters)| ExcusedView { reason, clusters }).collect(),
            cells: None,
            changes: None,
        }
    }

    fn runs(&self, clusters: usize) -> Vec<[i64; 3]> {
        let mut runs: Vec<[i64; 3]> = Vec::new();
        let none = std::iter::repeat_n(None, clusters.saturating_sub(self.cells.len()));
        for cell in self.cells.iter().map(|cell| cell.it).chain(none) {
            let [state, revision] = numbers(cell);
            match runs.last_mut() {
                Some([count, of, at]) if (*of, *at) == (state, revision) => *count += 1,
                _ => runs.push([1, state, revision]),
            }
        }
        runs
    }
}

impl ShownGate {
    fn view(&self) -> GateView<'_> {
        GateView {
            metadata: metadata(&self.object),
            spec: self.object.spec.as_deref().ok(),
            status: self.object.status.as_ref(),
            verdict: &self.verdict,
        }
    }
}

impl<'a> From<&'a RolloutObject> for RolloutView<'a> {
    fn from(object: &'a RolloutObject) -> Self {
        let spec = object.spec.as_deref().ok();
        let judged = object.judged();
        let is = |kind| judged.as_ref().is_ok_and(|(status, _)| is_true(&status.conditions, kind));
        let (ready, stalled) = (is(READY), is(STALLED));
        let (reason, message) = match judged {
            Ok((_, verdict)) => (verdict.reason.as_str(), verdict.message.as_str().into()),
            Err(unjudged) => (Reason::Pending.name(), unjudged.into()),
        };
        Self {
            metadata: metadata(object),
            package: spec.map(|spec| spec.fleet_package_ref.name.as_str()),
            paused: spec.is_some_and(|spec| spec.paused),
            ready,
            stalled,
            reason,
            message,
            status: object.status.as_ref(),
        }
    }
}

/// What of an object's metadata is shown.
pub(in crate::reconcile) fn metadata<S, T>(object: &Object<S, T>) -> Value {
    let Key { namespace, name } = &object.key;
    json!({"namespace": namespace, "name": name, "generation": object.generation, "labels": object.labels})
}

/// State and revision as numbers; -1 for none.
fn numbers(cell: Option<Cell>) -> [i64; 2] {
    match cell {
        Some(Cell { state, revision }) => [state as i64, revision.map_or(-1, i64::from)],
        None => [-1, -1],
    }
}
