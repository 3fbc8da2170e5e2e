//! What is told of an object: from all that was read, by a pure function.

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;
use serde_json::Value;
use serde_with::skip_serializing_none;
use statusbridge_api::ClusterSet;
use statusbridge_api::conditions::{OPEN, READY, find};
use statusbridge_api::fleet_package::Detail;
use statusbridge_api::rollout_gate::Require;
use statusbridge_contract::Fingerprint;
use statusbridge_core::decide::excused::least_observed;
use statusbridge_core::decide::rollout_gate::{kept_members, need_and_budget};
use statusbridge_core::decide::unix;
use statusbridge_core::reconcile::gate_verdict::{Gate, stale_after};
use statusbridge_core::reconcile::object::{GateObject, Kind, PackageObject};
use statusbridge_core::time::Seconds;

use super::doubts;
use super::read::{Heartbeat, Seen};
use super::rows::{Row, rows};
use crate::verdict::{Asked, Verdict};

/// Everything that a verdict rests on.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Account {
    /// The object and its verdict.
    #[serde(flatten)]
    pub verdict: Claim,
    /// Why the status is not to be relied upon at present; empty when nothing speaks against it.
    pub doubts: Vec<String>,
    /// How many clusters must count and how many may fail, of a gate.
    pub terms: Option<Terms>,
    /// The status but for its conditions, as it stands in the hub.
    pub status: Value,
    /// The conditions.
    pub conditions: Vec<Condition>,
    /// The override in the spec, as it stands there.
    #[serde(skip_serializing_if = "Value::is_null", rename = "override")]
    pub override_: Value,
    /// The checks of a gate's spec, as they stand there; what they came to is in the status.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub checks: Value,
    /// The gates that it depends on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Dependency>,
    /// The FleetPackage that a gate refers to.
    pub fleet_package: Option<Dependency>,
    /// Age of the aggregator's last sign of life, in seconds.
    pub heartbeat_age_seconds: Option<Seconds>,
    /// The clusters one by one, those first that are not done.
    pub clusters: Vec<Row>,
    /// Why there are no rows, or not all.
    pub clusters_note: Option<String>,
}

/// What an object says in its status.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Claim {
    /// Kind of the object.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Generation of its spec.
    pub generation: i64,
    /// The generation that the status answers.
    pub observed_generation: Option<i64>,
    /// The revision in the spec.
    pub revision: Option<String>,
    /// The revision as it is compared.
    pub fingerprint: Option<String>,
    /// The condition that says it: Open of a gate, Ready of a FleetPackage.
    pub condition: &'static str,
    /// Whether it is true; only to be relied upon without doubts.
    pub holds: bool,
    /// The condition's reason.
    pub reason: String,
    /// The same in words.
    pub message: String,
    /// Since when.
    pub since: Option<Time>,
    /// Age of the evidence, in seconds.
    pub evidence_age_seconds: Option<Seconds>,
    /// How old it may be, in seconds.
    pub stale_after_seconds: Option<Seconds>,
}

/// What a gate asks for, in numbers.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Terms {
    /// How far a cluster must be.
    pub require: Require,
    /// For how long.
    pub min_success_time: Option<String>,
    /// Clusters.
    pub total: u64,
    /// Clusters that count.
    pub healthy: u64,
    /// How many must.
    pub needed: u64,
    /// Clusters that failed or are out of sight.
    pub failed_or_unobserved: u64,
    /// How many may.
    pub allowed: u64,
    /// Clusters that count and have fresh, verified status.
    pub observed: u64,
    /// How many must, as the FleetPackage asks for, if it can be read.
    pub least_observed: Option<u64>,
    /// Clusters that are excused.
    pub excused: u64,
}

/// Another object that the verdict rests on.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Dependency {
    /// Its name.
    pub name: String,
    /// Its verdict; left out when there is no such object.
    pub verdict: Option<Claim>,
    /// Why that is not to be relied upon.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}

/// Tells what was read.
///
/// # Errors
/// When the object has no name.
pub(super) fn account(seen: &Seen, now: Seconds) -> Result<Account> {
    if seen.kind == Kind::RolloutGate { gate(seen, now) } else { package(seen, now) }
}

/// What an object says, and why that is not to be relied upon.
type Judged = (Claim, Vec<String>);

fn gate(seen: &Seen, now: Seconds) -> Result<Account> {
    let gate = GateObject::read(seen.object.clone()).context("an object without a name")?;
    let package = seen.package.clone().and_then(PackageObject::read);
    let (verdict, mut doubts) = judged(&Gate::from(&gate), package.as_ref(), now);
    if let (Ok(spec), None) = (&gate.spec, &package) {
        doubts.push(format!("there is no FleetPackage {:?} in the namespace", spec.fleet_package_ref.name));
    }
    let depends_on = seen.dependencies.iter().map(|it| {
        let package = it.package.clone().and_then(PackageObject::read);
        let gate = it.gate.clone().and_then(GateObject::read);
        let judged = gate.map(|gate| judged(&Gate::from(&gate), package.as_ref(), now));
        dependency(&it.name, judged)
    });
    let counts = gate.status.as_ref().and_then(|status| status.clusters);
    // The numbers of one generation say nothing about the terms of another.
    let judged_now = verdict.observed_generation == Some(verdict.generation);
    let terms = gate.spec.as_ref().ok().zip(counts.filter(|_| judged_now)).and_then(|(spec, counts)| {
        let (needed, allowed) = need_and_budget(&spec.terms, counts.total).ok()?;
        let unobserved = counts.stale + counts.missing + counts.unverified + counts.conflicting;
        Some(Terms {
            require: spec.terms.require,
            min_success_time: spec.terms.min_success_time.clone(),
            total: counts.total,
            healthy: counts.healthy,
            needed,
            failed_or_unobserved: counts.failed + unobserved,
            allowed,
            observed: counts.total - unobserved.min(counts.total),
            least_observed: package
                .as_ref()
                .and_then(|it| least_observed(it.spec.as_ref().ok()?, counts.total + counts.excused).ok()),
            excused: counts.excused,
        })
    });
    let package = package.as_ref();
    let members = gate.spec.as_ref().ok().and_then(|spec| kept_members(spec, gate.status.as_ref()));
    let frozen = members.map(|members| ClusterSet::named(members.clusters.clone()));
    let clusters = gate.spec.as_ref().map(|spec| frozen.as_ref().unwrap_or(&spec.clusters));
    let total = counts.map(|counts| counts.total + counts.excused);
    Ok(Account {
        terms,
        depends_on: depends_on.collect(),
        fleet_package: package.map(|it| dependency(&it.key.name, Some(package_verdict(it, now)))),
        ..of_both_kinds(seen, now, (verdict, doubts), package, clusters, total)
    })
}

fn package(seen: &Seen, now: Seconds) -> Result<Account> {
    let package = PackageObject::read(seen.object.clone()).context("an object without a name")?;
    let clusters = package.spec.as_ref().map(|spec| &spec.clusters);
    let counts = package.status.as_ref().and_then(|status| status.counted());
    let total = counts.map(|counts| counts.total + counts.excused);
    Ok(of_both_kinds(seen, now, package_verdict(&package, now), Some(&package), clusters, total))
}

/// What is told of a gate as of a FleetPackage. `clusters` are those that the spec chooses, `total` is how many were
/// judged.
fn of_both_kinds(
    seen: &Seen,
    now: Seconds,
    (verdict, mut doubts): Judged,
    package: Option<&PackageObject>,
    clusters: Result<&ClusterSet, &String>,
    total: Option<u64>,
) -> Account {
    if let Err(error) = clusters {
        doubts.push(format!("this version cannot read the spec: {error}"));
    }
    if seen.object.metadata.deletion_timestamp.is_some() {
        doubts.push("the object is being deleted".to_owned());
    }
    let package_spec = package.and_then(|package| package.spec.as_ref().ok());
    // What another reporter fills does not rest on the aggregator.
    if package_spec.is_none_or(|spec| spec.managed_by.is_none()) {
        doubts.extend(doubts::of_heartbeat(&seen.heartbeat, now));
    }
    let (clusters, clusters_note) = match (&seen.slices, package, package_spec, clusters) {
        (Err(error), ..) => (Vec::new(), Some(format!("the slices could not be read: {error}"))),
        (Ok(slices), Some(package), Some(spec), Ok(chosen)) if !slices.is_empty() => {
            let generation = package.generation;
            doubts.extend(doubts::of_slices(slices, generation, stale_after(spec), now));
            let revision = verdict.revision.as_deref().map(Fingerprint::of);
            let rows = rows(slices, revision, chosen);
            let others = total.filter(|total| *total != rows.len() as u64);
            let note =
                others.map(|total| format!("{total} clusters were judged, the slices have {}", rows.len()));
            (rows, note)
        }
        (_, _, Some(spec), _) if spec.detail != Detail::All => {
            let note = "the FleetPackage has no slices: with spec.detail: All every cluster is listed here";
            (Vec::new(), Some(note.to_owned()))
        }
        _ => (Vec::new(), Some("there are no slices (yet)".to_owned())),
    };
    let spec = seen.object.value("spec");
    let mut status = seen.object.value("status");
    let conditions = status.as_object_mut().and_then(|fields| fields.remove("conditions"));
    Account {
        verdict,
        doubts,
        terms: None,
        status,
        conditions: conditions.and_then(|it| serde_json::from_value(it).ok()).unwrap_or_default(),
        override_: spec.get("override").cloned().unwrap_or_default(),
        checks: spec.get("checks").cloned().unwrap_or_default(),
        depends_on: Vec::new(),
        fleet_package: None,
        heartbeat_age_seconds: match seen.heartbeat {
            Heartbeat::Renewed(at, _) => Some(now - unix(&Time(at))),
            Heartbeat::Never | Heartbeat::Unreadable(_) => None,
        },
        clusters,
        clusters_note,
    }
}

fn dependency(name: &str, judged: Option<Judged>) -> Dependency {
    let (verdict, doubts) = match judged {
        Some((verdict, doubts)) => (Some(verdict), doubts),
        None => (None, vec!["there is no such gate in the namespace".to_owned()]),
    };
    Dependency { name: name.to_owned(), verdict, doubts }
}

fn package_verdict(package: &PackageObject, now: Seconds) -> Judged {
    judged(&Gate::from(package), Some(package), now)
}

fn judged(gate: &Gate, package: Option<&PackageObject>, now: Seconds) -> Judged {
    // A FleetPackage may want none.
    let revision = gate.spec.as_ref().ok().map(|wish| wish.revision.clone()).filter(|it| !it.is_empty());
    let status = gate.status.clone().unwrap_or_default();
    let Verdict { reading, .. } = Verdict::of_gate(gate, package, Asked::at(now));
    let doubts = doubts::of_reading(&reading).into_iter().collect();
    let verdict = find(&status.conditions, OPEN);
    let told = Claim {
        kind: gate.kind.name(),
        namespace: gate.key.namespace.clone(),
        name: gate.key.name.clone(),
        generation: gate.generation,
        observed_generation: status.observed_generation.filter(|observed| *observed >= 0),
        fingerprint: revision.as_deref().map(|revision| Fingerprint::of(revision).to_string()),
        revision,
        // What the object itself calls it.
        condition: if gate.kind == Kind::RolloutGate { OPEN } else { READY },
        holds: verdict.is_some_and(|it| it.status == "True"),
        reason: verdict.map(|it| it.reason.clone()).unwrap_or_default(),
        message: verdict.map(|it| it.message.clone()).unwrap_or_default(),
        since: verdict.map(|it| it.last_transition_time.clone()),
        evidence_age_seconds: status.as_of.as_ref().map(|as_of| now - unix(as_of)),
        stale_after_seconds: reading.stale_after_seconds,
    };
    (told, doubts)
}

/// A name in the kind's own words, as kubectl prints it.
impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
