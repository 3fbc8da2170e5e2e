//! Joins by label: packages of a source that is not a preset, each of five objects that name it in a label. How long until
//! all are shown beside a plain LIST, what an update of one such object costs beside one of its package, and how long the
//! probe is kept waiting meanwhile.

use crate::cluster::{Bench, Cluster, PARTS, WIDGETS};
use crate::figures::{median, spent};
use crate::fleet::{hex, name, namespace};
use crate::probe::Prober;
use crate::report::{mega, micros, millis};
use crate::subject::{Program, Subject};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_tests::bench::{number, say};
use statusbridge_tests::{Rig, usage};
use std::time::Duration;
use tokio::time::Instant;

/// Objects that name a package.
pub(crate) const EACH: usize = 5;
/// The source's name.
pub(crate) const SOURCE: &str = "widgets";
/// How the packages are read. The parts of a package are in any namespace.
pub(crate) const DEFINITION: &str = "\
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata: {name: widgets}
spec:
  kinds:
    - {group: example.com, kind: Widget, versions: [v1]}
  related:
    - name: parts
      kinds:
        - {group: example.com, kind: Part, versions: [v1]}
      labels:
        namespaceExpression: \"''\"
        match:
          - {label: example.com/widget, valueExpression: object.metadata.name}
  revisions:
    desiredExpression: object.?spec.?version
    appliedExpression: object.?status.?version
  apply:
    - {whenExpression: object.?status.?version == object.?spec.?version, state: Applied}
    - {state: Applying, reason: NewVersion}
  health:
    - {whenExpression: size(parts) != 5, state: InProgress, reason: PartsMissing}
    - {whenExpression: \"parts.exists(part, !part.?status.?ready.orValue(false))\", state: InProgress, reason: PartsNotReady}
    - {state: Current}
";

/// Starts, each after a list of the same objects.
const STARTS: usize = 3;
/// Updates a second.
const RATE: u32 = 200;
/// Updates of which each is awaited until a scrape shows it.
const AWAITED: usize = 200;
/// Time between two looks at whether it does.
const LOOK: Duration = Duration::from_millis(5);
/// Longest time until it does.
const PATIENCE: Duration = Duration::from_secs(30);

/// The two kinds' definitions.
pub(crate) fn crds() -> Vec<Value> {
    [("Widget", "widgets"), ("Part", "parts")].map(|(kind, plural)| definition(kind, plural)).to_vec()
}

fn definition(kind: &str, plural: &str) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    })
}

/// A package.
pub(crate) fn widget(n: usize) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": name(n), "namespace": namespace(n), "labels": {"app.kubernetes.io/part-of": "shop"}},
        "spec": {"version": hex(40, &[n]), "settings": settings(n)},
        "status": widget_status(n, true),
    })
}

/// The status of one that runs what it should, or does not yet.
fn widget_status(n: usize, is_done: bool) -> Value {
    json!({"version": hex(40, &[n + usize::from(!is_done)])})
}

/// An object of a package; those of one package are spread over the namespaces.
pub(crate) fn part(n: usize) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Part",
        "metadata": {
            "name": format!("{}-{}", name(n / EACH), n % EACH), "namespace": namespace(n),
            "labels": {"app.kubernetes.io/part-of": "shop", "example.com/widget": name(n / EACH)},
        },
        "spec": {"settings": settings(n)},
        "status": part_status(true),
    })
}

/// The status of one that is ready, or is not.
pub(crate) fn part_status(is_ready: bool) -> Value {
    let status = if is_ready { "True" } else { "False" };
    let condition = json!({"type": "Ready", "status": status, "lastTransitionTime": "2026-01-02T08:00:00Z"});
    json!({"ready": is_ready, "conditions": [condition]})
}

/// What nobody reads.
fn settings(n: usize) -> Value {
    (0..16).map(|line| (format!("setting-{line:02}"), json!(hex(40, &[n, line])))).collect()
}

struct Figures {
    /// Of the starts, in order.
    lists: Vec<Duration>,
    starts: Vec<Duration>,
    /// Slowest answers of the probe: in all starts, and in all updates.
    answers: [Duration; 2],
    /// From start to the first complete scrape.
    processor: Duration,
    /// Of so many updates of parts, and of as many of packages.
    updates: [Duration; 2],
    /// Until an update of a part was shown.
    shown: Vec<Duration>,
    /// Resident memory in bytes: after the first complete scrape, and the most there ever was.
    resident: [u64; 2],
}

/// Measures with so many packages, and gives the table.
pub(crate) async fn measure(rig: &Rig, packages: usize) -> Result<String> {
    let most = 2 * packages;
    let updates = number("UPDATES", 2_000.min(most))?;
    ensure!((2..=most).contains(&updates), "UPDATES has to be between 2 and {most}");
    let updates = updates - updates % 2;
    let machine = usage::machine();
    say(&format!("{packages} packages, each joined with {EACH} objects: writing them"));
    let cluster = Cluster::start(rig, Bench::Joins, packages).await?;
    let figures = figures(rig, &cluster, updates).await?;
    let what = Bench::Joins.what(packages, packages * (1 + EACH));
    let head = format!(
        "{what}. {machine}. A plain paged LIST of both kinds takes {}.\n\n\
         | | statusbridge-exporter | aim | met |\n|---|---|---|---|\n",
        millis(median(figures.lists.clone()).as_secs_f64()),
    );
    Ok(rows(&figures, updates).iter().fold(head, |table, row| table + row))
}

async fn figures(rig: &Rig, cluster: &Cluster, updates: usize) -> Result<Figures> {
    let (mut lists, mut starts, mut slowest) = (Vec::new(), Vec::new(), Duration::ZERO);
    let (mut subject, mut processor) = (None, Duration::ZERO);
    for n in 1..=STARTS {
        drop(subject.take());
        // The first list after many writes may find the server at other work.
        cluster.list().await?;
        let listed = cluster.list().await?;
        let started = Program::Exporter.start(rig, cluster).await?;
        let prober = Prober::start(started.address());
        let took = started.first_complete_scrape(cluster.packages).await?;
        processor = usage::processor(started.pid()?)?;
        slowest = slowest.max(prober.stop()?);
        say(&format!(
            "start {n} of {STARTS}: first complete scrape after {took:.2?}, list {:.2?}",
            listed.took
        ));
        lists.push(listed.took);
        starts.push(took);
        subject = Some(started);
    }
    let subject = subject.context("no start to measure")?;
    let pid = subject.pid()?;
    let resident = usage::resident(pid)?;
    usage::until_idle(pid).await?;

    say(&format!("{updates} updates of parts, {RATE} a second, and as many of packages"));
    let (_, of_parts) = spent(pid, cluster.update(updates, 1, RATE)).await?;
    let half = updates / 2;
    let of_package = |n: usize| (WIDGETS, n % half, widget_status(n % half, n >= half));
    let (_, of_packages) = spent(pid, cluster.paced(updates, RATE, of_package)).await?;

    let awaited = AWAITED.min(2 * cluster.packages);
    say(&format!(
        "the parts again beside a probe, then {awaited} one after the other, each until it is shown"
    ));
    let prober = Prober::start(subject.address());
    cluster.update(updates, 1, RATE).await?;
    let mut shown = Vec::new();
    for n in 0..awaited {
        shown.push(until_shown(cluster, &subject, n / 2, n % 2 == 1).await?);
    }
    Ok(Figures {
        lists,
        starts,
        answers: [slowest, prober.stop()?],
        processor,
        updates: [of_parts, of_packages],
        shown,
        resident: [resident, usage::highest_resident(pid)?],
    })
}

/// Updates the first part of a package, and gives how long it takes from the API server's answer until a scrape shows it.
async fn until_shown(
    cluster: &Cluster,
    subject: &Subject,
    package: usize,
    is_ready: bool,
) -> Result<Duration> {
    cluster.write_status(PARTS, package * EACH, &part_status(is_ready)).await?;
    let written = Instant::now();
    while written.elapsed() < PATIENCE {
        if subject.shows_health_of(&name(package)).await? != is_ready {
            return Ok(written.elapsed());
        }
        tokio::time::sleep(LOOK).await;
    }
    anyhow::bail!("{} does not show that a part of it has changed", name(package))
}

fn rows(figures: &Figures, updates: usize) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = |what: &str, value: String, aim: Option<(&str, bool)>| {
        let (aim, met) = aim.map_or(("", ""), |(aim, is_met)| (aim, if is_met { "yes" } else { "**no**" }));
        rows.push(format!("| {what} | {value} | {aim} | {met} |\n"));
    };
    let (start, list) = (median(figures.starts.clone()), median(figures.lists.clone()));
    let lists = start.as_secs_f64() / list.as_secs_f64();
    row("start to first complete scrape", millis(start.as_secs_f64()), None);
    row("the same in plain paged LISTs", format!("{lists:.2}"), Some(("1.5", lists <= 1.5)));
    row("CPU from start to first complete scrape", millis(figures.processor.as_secs_f64()), None);
    let [of_part, of_package] = figures.updates.map(|all| all.as_secs_f64() / updates as f64);
    row(&format!("CPU for an update of {}", Bench::Joins.updated()), micros(of_part), None);
    row("CPU for an update of a package", micros(of_package), None);
    let ratio = of_part / of_package;
    row("the former in the latter", format!("{ratio:.2}"), Some(("1.5", ratio <= 1.5)));
    let shown = median(figures.shown.clone());
    let slowest = figures.shown.iter().max().copied().unwrap_or_default();
    row("until an update of an object is shown", millis(shown.as_secs_f64()), None);
    row("the same at most", millis(slowest.as_secs_f64()), None);
    for (when, answer) in ["starts", "is updated"].iter().zip(figures.answers) {
        let seconds = answer.as_secs_f64();
        let what = format!("slowest answer of `/healthz` while it {when}");
        row(&what, millis(seconds), Some(("100 ms", seconds <= 0.1)));
    }
    let [first, most] = figures.resident.map(|bytes| bytes as f64);
    row("resident memory after the first complete scrape", mega(first), None);
    row("resident memory at most", mega(most), None);
    rows
}
