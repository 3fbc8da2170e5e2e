//! What is told of an object: from all that was read, by a pure function.

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;
use serde_json::Value;
use statusbridge_contract::Fingerprint;

use super::Subject;
use super::doubts::{self, Claim};
use super::read::{Heartbeat, Seen};
use super::rows::{Row, rows};
use crate::api::common;
use crate::api::fleet_package::Detail;
use crate::api::rollout_gate::Require;
use crate::api::{ClusterSet, FleetPackageSpec};
use crate::clock::Seconds;
use crate::decide::conditions::{OPEN, READY, find};
use crate::decide::rollout_gate::need_and_budget;
use crate::decide::unix;
use crate::judge::{GateObject, PackageObject};
use crate::store::Key;
use crate::write::Kind;

/// Everything that a verdict rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// The object and its verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Why the status is not to be relied upon at present; empty when nothing speaks against it.
    pub doubts: Vec<String>,
    /// How many clusters must count and how many may fail, of a gate.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_package: Option<Dependency>,
    /// Age of the aggregator's last sign of life, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_age_seconds: Option<Seconds>,
    /// The clusters one by one, those first that are not done.
    pub clusters: Vec<Row>,
    /// Why there are no rows, or not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters_note: Option<String>,
}

/// An object and its verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
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
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
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
}

/// Another object that the verdict rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Its name.
    pub name: String,
    /// Its verdict; left out when there is no such object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Why that is not to be relied upon.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}

/// Tells what was read.
///
/// # Errors
/// When the object has no name.
pub fn account(seen: &Seen, now: Seconds) -> Result<Account> {
    match seen.subject {
        Subject::Gate(_) => gate(seen, now),
        Subject::FleetPackage(_) => package(seen, now),
    }
}

fn gate(seen: &Seen, now: Seconds) -> Result<Account> {
    let gate = GateObject::read(seen.object.clone()).context("an object without a name")?;
    let package = seen.package.clone().and_then(PackageObject::read);
    let package_spec = package.as_ref().and_then(|it| it.spec.as_ref().ok());
    let stale_after = package_spec.and_then(stale_after);
    let (verdict, mut doubts) = gate_verdict(&gate, stale_after, now);
    doubts.extend(spec_error(&gate.spec));
    if let Ok(spec) = &gate.spec
        && package.is_none()
    {
        doubts.push(format!("there is no FleetPackage {:?} in the namespace", spec.fleet_package_ref.name));
    }
    let depends_on = seen.dependencies.iter().map(|(name, other)| Dependency {
        name: name.clone(),
        ..other.clone().and_then(GateObject::read).map_or_else(absent, |other| {
            // Its own FleetPackage may be another; without its staleAfter its age is only shown.
            let same = package_name(&other) == package_name(&gate);
            let (verdict, doubts) = gate_verdict(&other, stale_after.filter(|_| same), now);
            Dependency { name: String::new(), verdict: Some(verdict), doubts }
        })
    });
    let judged = gate.status.as_ref().and_then(|status| status.revision.as_deref());
    if let (Some(judged), Some(wanted)) = (judged, verdict.revision.as_deref())
        && Fingerprint::of(judged) != Fingerprint::of(wanted)
    {
        doubts.push(format!("what was judged is revision {judged}"));
    }
    let counts = gate.status.as_ref().and_then(|status| status.clusters);
    // The numbers of one generation say nothing about the terms of another.
    let judged_now = verdict.observed_generation == Some(verdict.generation);
    let terms = gate.spec.as_ref().ok().zip(counts.filter(|_| judged_now)).and_then(|(spec, counts)| {
        let (needed, allowed) = need_and_budget(spec, counts.total).ok()?;
        Some(Terms {
            require: spec.require,
            min_success_time: spec.min_success_time.clone(),
            total: counts.total,
            healthy: counts.healthy,
            needed,
            failed_or_unobserved: counts.failed
                + counts.stale
                + counts.missing
                + counts.unverified
                + counts.conflicting,
            allowed,
        })
    });
    let spec = gate.spec.as_ref().ok();
    let told = Told {
        verdict,
        doubts,
        terms,
        depends_on: depends_on.collect(),
        fleet_package: package.as_ref().map(|package| {
            let (verdict, doubts) = package_verdict(package, now);
            Dependency { name: package.key.name.clone(), verdict: Some(verdict), doubts }
        }),
        package: package.as_ref(),
        clusters: spec.map(|spec| &spec.clusters),
        total: counts.map(|counts| counts.total),
    };
    Ok(told.account(seen, now))
}

fn package(seen: &Seen, now: Seconds) -> Result<Account> {
    let package = PackageObject::read(seen.object.clone()).context("an object without a name")?;
    let (verdict, mut doubts) = package_verdict(&package, now);
    doubts.extend(spec_error(&package.spec));
    let told = Told {
        verdict,
        doubts,
        terms: None,
        depends_on: Vec::new(),
        fleet_package: None,
        package: Some(&package),
        clusters: package.spec.as_ref().ok().map(|spec| &spec.clusters),
        total: package.status.as_ref().and_then(|status| status.counted()).map(|counts| counts.total),
    };
    Ok(told.account(seen, now))
}

/// What differs between the kinds.
struct Told<'a> {
    verdict: Verdict,
    doubts: Vec<String>,
    terms: Option<Terms>,
    depends_on: Vec<Dependency>,
    fleet_package: Option<Dependency>,
    package: Option<&'a PackageObject>,
    clusters: Option<&'a ClusterSet>,
    /// How many clusters were judged.
    total: Option<u64>,
}

impl Told<'_> {
    fn account(self, seen: &Seen, now: Seconds) -> Account {
        let mut doubts = self.doubts;
        if seen.object.metadata.deletion_timestamp.is_some() {
            doubts.push("the object is being deleted".to_owned());
        }
        let package_spec = self.package.and_then(|package| package.spec.as_ref().ok());
        // What another reporter fills does not rest on the aggregator.
        if package_spec.is_none_or(|spec| spec.managed_by.is_none()) {
            doubts.extend(doubts::of_heartbeat(&seen.heartbeat, now));
        }
        let (clusters, clusters_note) = match (&seen.slices, self.package, package_spec, self.clusters) {
            (Err(error), ..) => (Vec::new(), Some(format!("the slices could not be read: {error}"))),
            (Ok(slices), Some(package), Some(spec), Some(chosen)) if !slices.is_empty() => {
                let generation = package.generation;
                doubts.extend(doubts::of_slices(slices, generation, stale_after(spec), now));
                let revision = self.verdict.revision.as_deref().map(Fingerprint::of);
                let rows = rows(slices, revision, chosen);
                let others = self.total.filter(|total| *total != rows.len() as u64);
                let note = others
                    .map(|total| format!("{total} clusters were judged, the slices have {}", rows.len()));
                (rows, note)
            }
            (_, _, Some(spec), _) if spec.detail != Detail::All => {
                let note =
                    "the FleetPackage has no slices: with spec.detail: All every cluster is listed here";
                (Vec::new(), Some(note.to_owned()))
            }
            _ => (Vec::new(), Some("there are no slices (yet)".to_owned())),
        };
        let spec = seen.object.value("spec");
        let mut status = seen.object.value("status");
        let conditions = serde_json::from_value(status["conditions"].clone());
        if let Some(fields) = status.as_object_mut() {
            fields.remove("conditions");
        }
        Account {
            verdict: self.verdict,
            doubts,
            terms: self.terms,
            status,
            conditions: conditions.unwrap_or_default(),
            override_: spec["override"].clone(),
            checks: spec["checks"].clone(),
            depends_on: self.depends_on,
            fleet_package: self.fleet_package,
            heartbeat_age_seconds: match seen.heartbeat {
                Heartbeat::Renewed(at, _) => Some(now - unix(&Time(at))),
                Heartbeat::Never | Heartbeat::Unreadable(_) => None,
            },
            clusters,
            clusters_note,
        }
    }
}

fn absent() -> Dependency {
    let doubts = vec!["there is no such gate in the namespace".to_owned()];
    Dependency { name: String::new(), verdict: None, doubts }
}

fn package_name(gate: &GateObject) -> Option<&str> {
    gate.spec.as_ref().ok().map(|spec| spec.fleet_package_ref.name.as_str())
}

fn stale_after(spec: &FleetPackageSpec) -> Option<Seconds> {
    common::seconds(&spec.stale_after).ok()
}

fn spec_error<S>(spec: &Result<S, String>) -> Option<String> {
    spec.as_ref().err().map(|error| format!("this version cannot read the spec: {error}"))
}

fn gate_verdict(gate: &GateObject, stale_after: Option<Seconds>, now: Seconds) -> (Verdict, Vec<String>) {
    let status = gate.status.as_ref();
    let facts = Facts {
        kind: Kind::RolloutGate,
        condition: OPEN,
        revision: gate.spec.as_ref().ok().map(|spec| spec.revision.clone()),
        observed_generation: status.and_then(|it| it.observed_generation),
        verdict: status.and_then(|it| find(&it.conditions, OPEN)),
        as_of: status.and_then(|it| it.as_of.as_ref()),
    };
    facts.told(&gate.key, gate.generation, stale_after, now)
}

fn package_verdict(package: &PackageObject, now: Seconds) -> (Verdict, Vec<String>) {
    let (status, spec) = (package.status.as_ref(), package.spec.as_ref().ok());
    let facts = Facts {
        kind: Kind::FleetPackage,
        condition: READY,
        revision: spec.and_then(|spec| spec.wanted(status)).map(str::to_owned),
        observed_generation: status.and_then(|it| it.observed_generation),
        verdict: status.and_then(|it| find(&it.conditions, READY)),
        as_of: status.and_then(|it| it.as_of.as_ref()),
    };
    facts.told(&package.key, package.generation, spec.and_then(stale_after), now)
}

/// What both kinds say.
struct Facts<'a> {
    kind: Kind,
    condition: &'static str,
    revision: Option<String>,
    observed_generation: Option<i64>,
    verdict: Option<&'a Condition>,
    as_of: Option<&'a Time>,
}

impl Facts<'_> {
    fn told(
        self,
        key: &Key,
        generation: i64,
        stale_after: Option<Seconds>,
        now: Seconds,
    ) -> (Verdict, Vec<String>) {
        let Self { kind, condition, revision, observed_generation, verdict, as_of } = self;
        let doubts =
            doubts::of_status(&Claim { generation, observed_generation, verdict, as_of, stale_after, now });
        let told = Verdict {
            kind: kind.name(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            generation,
            observed_generation: observed_generation.filter(|observed| *observed >= 0),
            fingerprint: revision.as_deref().map(|revision| Fingerprint::of(revision).to_string()),
            revision,
            condition,
            holds: verdict.is_some_and(|it| it.status == "True"),
            reason: verdict.map(|it| it.reason.clone()).unwrap_or_default(),
            message: verdict.map(|it| it.message.clone()).unwrap_or_default(),
            since: verdict.map(|it| it.last_transition_time.clone()),
            evidence_age_seconds: as_of.map(|as_of| now - unix(as_of)),
            stale_after_seconds: stale_after,
        };
        (told, doubts)
    }
}

/// A name in the kind's own words, as kubectl prints it.
impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
