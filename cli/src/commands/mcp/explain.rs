//! `explain`: what a gate or a FleetPackage waits for: gates before it, and clusters one by one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use statusbridge_api::rollout_gate::OverrideState;

use super::api::Api;
use super::arguments::{ExplainQuestion, Name, ObjectKind};
use super::bound::{Listed, Told, list, plain, quoted};
use super::objects::{self, Gate, Package, the_one, unreadable, with};
use super::revision::waits;

/// Clusters that are asked for: as many as the API tells of.
const CLUSTERS: &str = "10000";

/// A package in one cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cluster {
    row: Row,
    as_of: Option<String>,
    message: String,
}

#[derive(Debug, Clone, serde::Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    cluster_name: String,
    state: String,
    reason: String,
    /// Why the cluster need not be healthy, where it is excused.
    #[serde(skip_serializing_if = "Option::is_none")]
    excused: Option<String>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// A FleetPackage, cluster by cluster.
#[derive(Debug, Clone)]
struct Detail {
    package: Package,
    clusters: Vec<Cluster>,
    /// There are more clusters than the API tells of.
    more: bool,
}

/// Asks and tells.
pub(super) async fn answer(api: &Api, question: &ExplainQuestion) -> Result<Told, String> {
    let namespace = question.namespace.as_ref().map(Name::as_str);
    let limit = question.limit.into();
    match question.kind {
        ObjectKind::Gate => {
            let gates = gates(api, namespace).await?;
            let gate = the_one(gates.clone(), "gate", question.name.as_str())?;
            let detail = match gate.fleet_package() {
                Some(name) => detail(api, &gate.standing.namespace, name).await,
                None => Err("the spec of the gate cannot be read".to_owned()),
            };
            tell_gate(&gate, &gates, &detail, limit)
        }
        ObjectKind::Package => {
            let package = find(api, namespace, &question.name).await?;
            let detail = detail(api, &package.standing.namespace, &package.standing.name).await?;
            let gates = gates(api, Some(&package.standing.namespace)).await?;
            tell_package(&detail, &gates, limit)
        }
    }
}

async fn gates(api: &Api, namespace: Option<&str>) -> Result<Vec<Gate>, String> {
    let query: Vec<_> = namespace.map(|namespace| ("namespace", namespace)).into_iter().collect();
    objects::gates(&api.get(&["gates"], &query).await?)
}

/// The FleetPackage of this name.
pub(super) async fn find(api: &Api, namespace: Option<&str>, name: &Name) -> Result<Package, String> {
    let query: Vec<_> = namespace.map(|namespace| ("namespace", namespace)).into_iter().collect();
    let packages = objects::packages(&api.get(&["packages"], &query).await?)?;
    the_one(packages, "package", name.as_str())
}

async fn detail(api: &Api, namespace: &str, name: &str) -> Result<Detail, String> {
    let answer = api.get(&["packages", namespace, name], &[("limit", CLUSTERS)]).await?;
    let read = || {
        Some(Detail {
            package: Package::read(&answer.body, answer.now)?,
            clusters: Deserialize::deserialize(answer.body.get("clusters")?).ok()?,
            more: answer.body.get("more")?.as_bool()?,
        })
    };
    read().ok_or_else(unreadable)
}

fn tell_gate(
    gate: &Gate,
    gates: &[Gate],
    detail: &Result<Detail, String>,
    limit: usize,
) -> Result<Told, String> {
    let mut text = gate.line() + &waits(&gate.standing.waiting_for);
    let chain = chain(gate, gates);
    let before = list(chain.iter().map(Before::data), limit);
    for it in chain.iter().take(before.shown.len()) {
        text += &format!("\n{}", it.line());
    }
    left_out(&before, "gates before it", &mut text);
    let mut notes = Vec::new();
    if let Some(by_hand) = gate.spec.as_ref().and_then(|spec| spec.override_.as_ref()) {
        let state = if by_hand.state == OverrideState::Open { "open" } else { "closed" };
        notes.push(format!("A person has overridden the gate, to be {state}: {}.", quoted(&by_hand.reason)));
    }
    // The status names the first ten clusters for each reason.
    let named: BTreeSet<&str> =
        gate.standing.waiting_for.iter().flat_map(|it| &it.clusters).map(String::as_str).collect();
    let (package, clusters) = match detail {
        Ok(detail) => {
            let own = &detail.package.standing.fingerprint;
            if own != &gate.standing.fingerprint {
                notes.push(format!(
                    "The states of clusters are those for the revision that the FleetPackage wants, {}; the gate is for \
                     another one.",
                    own.as_deref().map_or_else(|| "none".to_owned(), plain)
                ));
            }
            let clusters = detail.clusters.iter().filter(|it| named.contains(it.row.cluster_name.as_str()));
            (Some(detail.package.entry()), rows(clusters, limit, &mut text))
        }
        Err(why) => {
            notes.push(format!("There is nothing about single clusters: {}.", plain(why)));
            (None, Listed::default())
        }
    };
    for note in &notes {
        text += &format!("\n{note}");
    }
    let terms = gate.spec.as_ref().map(|spec| {
        let terms = json!({
            "minHealthy": spec.terms.min_healthy, "maxFailures": spec.terms.max_failures, "minSuccessTime": spec.terms.min_success_time,
            "progressDeadline": spec.terms.progress_deadline, "requireStage": spec.terms.require_stage, "override": spec.override_,
        });
        with(json!({"require": spec.terms.require}), terms)
    });
    let data = json!({
        "gate": with(&gate.verdict, json!({"fleetPackage": gate.fleet_package()})),
        "terms": terms,
        "checks": gate.status.as_ref().map(|status| &status.checks),
        "dependsOn": before.shown,
        "fleetPackage": package,
        "clusters": clusters.shown,
        "notes": notes,
        "leftOut": {"dependsOn": before.left_out, "clusters": clusters.left_out},
    });
    Told::new(text, data)
}

fn tell_package(detail: &Detail, gates: &[Gate], limit: usize) -> Result<Told, String> {
    let Detail { package, clusters, more } = detail;
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for cluster in clusters {
        *states.entry(&cluster.row.state).or_default() += 1;
    }
    let mut text = package.line();
    let counts: Vec<_> = states.iter().map(|(state, count)| format!("{count} {}", plain(state))).collect();
    if !counts.is_empty() {
        text += &format!("\nClusters: {}.", counts.join(", "));
    }
    let waiting = clusters.iter().filter(|it| it.row.state != "Healthy");
    let rows = rows(waiting, limit, &mut text);
    let own = gates.iter().filter(|gate| gate.fleet_package() == Some(package.standing.name.as_str()));
    let own: Vec<&Gate> = own.collect();
    let told = list(own.iter().map(|gate| gate.entry()), limit);
    for gate in own.iter().take(told.shown.len()) {
        text += &format!("\n{}", gate.line());
    }
    left_out(&told, "gates", &mut text);
    let mut notes = Vec::new();
    if *more {
        let note = format!("There are more than {CLUSTERS} clusters: the others are not in these numbers.");
        text += &format!("\n{note}");
        notes.push(note);
    }
    let problems =
        package.status.as_ref().map(|status| list(status.problems.iter().map(|it| json!(it)), limit));
    let data = json!({
        "fleetPackage": with(package.entry(), json!({"staleAfterSeconds": package.verdict.get("staleAfterSeconds")})),
        "clusterStates": states,
        "clusters": rows.shown,
        "problems": problems.map(|problems| problems.shown),
        "gates": told.shown,
        "notes": notes,
        "leftOut": {"clusters": rows.left_out, "gates": told.left_out},
    });
    Told::new(text, data)
}

fn rows<'a>(clusters: impl Iterator<Item = &'a Cluster>, limit: usize, text: &mut String) -> Listed {
    let clusters: Vec<&Cluster> = clusters.collect();
    let data = |it: &&Cluster| with(&it.row, json!({"asOf": it.as_of, "message": it.message}));
    let listed = list(clusters.iter().map(data), limit);
    for Cluster { row, message, .. } in clusters.iter().take(listed.shown.len()) {
        *text += &format!(
            "\ncluster {}: {}: {}",
            plain(&row.cluster_name),
            plain(&row.state),
            quoted(&row.reason)
        );
        if !message.is_empty() {
            *text += &format!(", {}", quoted(message));
        }
        if let Some(why) = &row.excused {
            *text += &format!(", excused: {}", quoted(why));
        }
    }
    left_out(&listed, "clusters", text);
    listed
}

fn left_out(listed: &Listed, what: &str, text: &mut String) {
    if listed.left_out > 0 {
        *text += &format!("\n{what} left out: {}. Raise limit to see more.", listed.left_out);
    }
}

/// A gate that another one depends on, at first or at second hand.
struct Before<'a> {
    /// The gate that depends on it.
    of: &'a str,
    name: &'a str,
    /// None where there is none of this name.
    gate: Option<&'a Gate>,
}

impl Before<'_> {
    fn data(&self) -> Value {
        let missing = || json!({"name": self.name, "state": "NotFound", "open": false});
        let entry = self.gate.map_or_else(missing, Gate::entry);
        let depends_on: Vec<_> = self.gate.iter().flat_map(|gate| gate.depends_on()).collect();
        with(entry, json!({"requiredBy": self.of, "dependsOn": depends_on}))
    }

    fn line(&self) -> String {
        let (of, name) = (plain(self.of), plain(self.name));
        match self.gate {
            Some(gate) => format!("{of} depends on {}", gate.line()),
            None => format!("{of} depends on gate {name}, which does not exist"),
        }
    }
}

/// The gates that it depends on, and those that these wait for while they are not open; each once.
fn chain<'a>(gate: &'a Gate, gates: &'a [Gate]) -> Vec<Before<'a>> {
    let own = gates.iter().filter(|it| it.standing.namespace == gate.standing.namespace);
    let by_name: BTreeMap<&str, &Gate> = own.map(|it| (it.standing.name.as_str(), it)).collect();
    let (mut seen, mut queue, mut found) = (BTreeSet::new(), VecDeque::from([gate]), Vec::new());
    while let Some(next) = queue.pop_front() {
        for name in next.depends_on() {
            if !seen.insert(name) {
                continue;
            }
            let gate = by_name.get(name).copied();
            found.push(Before { of: &next.standing.name, name, gate });
            queue.extend(gate.filter(|gate| !gate.standing.open));
        }
    }
    found
}
