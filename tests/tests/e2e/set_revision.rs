//! `set-revision`: a FleetPackage and its gates move together, and at no moment is a gate that is open for the revision
//! before to be taken for one of the new revision.

use crate::e2e::rollouts::{CLUSTERS, Setup, three_waves};
use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::path::{Path, PathBuf};
use std::time::Instant;

const FIRST: &str = "wave-1";
const SECOND: &str = "wave-2";

/// Two waves, open at the first revision.
struct Waves {
    fleet: FakeFleet,
    hub: Hub,
    _prometheus: Prometheus,
    _etcd: Etcd,
}

impl Waves {
    async fn start(rig: &Rig) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        let names = ["c1", "c2", "c3"];
        let all = names.iter().fold(job(), |job, name| fleet.target(job, name, &[]));
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([all])).await?;
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        let waves = Self { fleet, hub, _prometheus: prometheus, _etcd: etcd };
        names.iter().for_each(|name| waves.is_at(name, 1));
        waves.hub.report(APP, STALE_AFTER, json!({"revision": revision(1)})).await?;
        waves.hub.gate(FIRST, APP, &revision(1), json!({"clusters": {"names": ["c1"]}})).await?;
        waves.hub.gate(SECOND, APP, &revision(1), json!({"clusters": {"names": ["c2", "c3"]}})).await?;
        for gate in [FIRST, SECOND] {
            waves.hub.opens(gate, SOON).await?;
        }
        Ok(waves)
    }

    fn is_at(&self, cluster: &str, number: u32) {
        self.fleet.says(cluster, APP, FakePackage::healthy_at(&revision(number)));
    }

    async fn user(&self, name: &str, gates: &[&str]) -> Result<PathBuf> {
        user(&self.hub, name, gates).await
    }

    async fn specs(&self) -> Result<Vec<Value>> {
        let (hub, mut specs) = (&self.hub, Vec::new());
        for object in [hub.get_report(APP).await?, hub.get_gate(FIRST).await?, hub.get_gate(SECOND).await?] {
            specs.push(object.data["spec"].clone());
        }
        Ok(specs)
    }
}

/// A user with the rights that the documentation names, on all gates or on some.
async fn user(hub: &Hub, name: &str, gates: &[&str]) -> Result<PathBuf> {
    let group = "rbac.authorization.k8s.io";
    let mut patch = json!({
        "apiGroups": ["statusbridge.dev"], "resources": ["rolloutgates"], "verbs": ["patch"],
    });
    if !gates.is_empty() {
        patch["resourceNames"] = json!(gates);
    }
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Role",
        "metadata": {"name": name, "namespace": "default"},
        "rules": [
            {"apiGroups": ["statusbridge.dev"], "resources": ["fleetpackages", "fleetrollouts"], "verbs": ["get", "list", "patch"]},
            {"apiGroups": ["statusbridge.dev"], "resources": ["rolloutgates"], "verbs": ["get", "list"]},
            patch,
        ],
    });
    hub.api.apply_object(&role).await?;
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": "default"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"kind": "User", "name": name, "apiGroup": group}],
    });
    hub.api.apply_object(&binding).await?;
    hub.api.kubeconfig_as(name, &[])
}

/// Runs the command; what it printed and what it complained of.
async fn set_revision(user: &Path, args: &[&str]) -> Result<(bool, String, String)> {
    let out = tokio::process::Command::new(own_program("statusbridge").await?)
        .arg("set-revision")
        .args(args)
        .args(["--namespace", "default", "--kubeconfig"])
        .arg(user)
        .env("NO_PROXY", "127.0.0.1")
        .kill_on_drop(true)
        .output()
        .await
        .context("running set-revision")?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((out.status.success(), text(out.stdout), text(out.stderr)))
}

async fn succeeds(user: &Path, args: &[&str]) -> Result<String> {
    let (success, said, complaint) = set_revision(user, args).await?;
    ensure!(success, "{said}{complaint}");
    Ok(said)
}

async fn fails(user: &Path, args: &[&str], expected: &str) -> Result<()> {
    let (success, said, complaint) = set_revision(user, args).await?;
    ensure!(!success && complaint.contains(expected), "expected {expected:?}: {said}{complaint}");
    Ok(())
}

fn wants(object: &DynamicObject, number: u32) -> bool {
    object.data["spec"]["revision"] == revision(number)
}

fn number(object: &DynamicObject) -> Result<u64> {
    Ok(object.metadata.resource_version.as_deref().context("no resourceVersion")?.parse()?)
}

/// The number of the first version of which this is true.
async fn first(history: &History, what: impl Fn(&history::Version) -> bool) -> Result<u64> {
    let versions = history.versions().await?;
    number(&versions.iter().find(|version| what(version)).context("there never was one")?.object)
}

/// Fails when a version lets the second revision pass before `moment`.
fn not_before(moment: Instant) -> impl Fn(&history::Version) -> Result<()> {
    move |version| {
        let early = wants(&version.object, 2) && version.lets_pass() && version.seen < moment;
        ensure!(!early, "it lets the new revision pass too early");
        Ok(())
    }
}

/// Fails when a version lets the second revision pass.
fn never(version: &history::Version) -> Result<()> {
    ensure!(!(wants(&version.object, 2) && version.lets_pass()), "it lets the new revision pass");
    Ok(())
}

#[tokio::test]
async fn gates_are_closed_for_the_new_revision_before_anything_says_that_it_is_wanted() {
    run("e2e-set-revision", async |rig| {
        let waves = Waves::start(rig).await?;
        let hub = &waves.hub;
        let user = waves.user("mover", &[]).await?;
        // The second wave depends on nothing that says so; its name puts it last, so that it moves first.
        let (one, two) = (hub.history(FIRST).await?, hub.history(SECOND).await?);
        let package = History::record(&hub.api, &hub::kind("FleetPackage"), "default", APP).await?;
        let (r1, r2) = (revision(1), revision(2));

        let before = waves.specs().await?;
        let said = succeeds(&user, &[APP, &r2, "--dry-run"]).await?;
        let lines = |how: &str| {
            format!("rolloutgate/{SECOND}: {r1} -> {r2}{how}\nrolloutgate/{FIRST}: {r1} -> {r2}{how}\nfleetpackage/{APP}: {r1} -> {r2}{how}\n")
        };
        ensure!(said == lines(" (dry run)"), "{said}");
        ensure!(waves.specs().await? == before, "a dry run changed something");

        let said = succeeds(&user, &[APP, &r2]).await?;
        ensure!(said == lines(""), "{said}");
        ensure!(wants(&hub.get_report(APP).await?, 2));
        let wanted = first(&package, |version| wants(&version.object, 2)).await?;
        let mut moved = Vec::new();
        for history in [&two, &one] {
            moved.push(first(history, |version| wants(&version.object, 2)).await?);
            // Also for those who do not compare generations.
            let closed = first(history, |version| {
                wants(&version.object, 2) && ["Ready", "Open"].iter().all(|it| version.condition(it).0 == "False")
            });
            ensure!(closed.await? < wanted, "the FleetPackage moved before a gate was seen closed");
        }
        ensure!(moved[0] < moved[1] && moved[1] < wanted, "{moved:?}, then {wanted}");
        hub.closes(FIRST, "RevisionNeverSeen", SOON).await?;
        hub.closes(SECOND, "RevisionNeverSeen", SOON).await?;

        let moment = Instant::now();
        waves.is_at("c1", 2);
        hub.opens(FIRST, SOON).await?;
        one.check("closed until c1 is healthy at r2", not_before(moment)).await?;
        hub.closes(SECOND, "NotUpdated", SOON).await?;
        two.check("closed still", never).await?;
        waves.is_at("c2", 2);
        let moment = Instant::now();
        waves.is_at("c3", 2);
        hub.opens(SECOND, SOON).await?;
        two.check("closed until all of it is healthy at r2", not_before(moment)).await?;
        hub.reports(APP, "Ready", "True", "Healthy", SOON).await?;

        // Once more changes nothing.
        let generation = hub.get_gate(FIRST).await?.metadata.generation;
        let said = succeeds(&user, &[APP, &r2]).await?;
        ensure!(said.lines().count() == 3 && said.lines().all(|line| line.ends_with(" already")), "{said}");
        ensure!(hub.get_gate(FIRST).await?.metadata.generation == generation);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn where_it_stops_half_way_nothing_is_open_that_should_not_be_and_it_goes_on_from_there() {
    run("e2e-set-revision-stops", async |rig| {
        let waves = Waves::start(rig).await?;
        let hub = &waves.hub;
        let (one, two) = (hub.history(FIRST).await?, hub.history(SECOND).await?);
        let r2 = revision(2);

        // In the middle of the gates.
        let half = waves.user("half", &[SECOND]).await?;
        let stopped = format!("only these were moved: rolloutgate/{SECOND}. Gates are closed until");
        fails(&half, &[APP, &r2], &stopped).await?;
        let is_at = async |package: u32, first: u32, second: u32| -> Result<()> {
            let objects = [
                (hub.get_report(APP).await?, package),
                (hub.get_gate(FIRST).await?, first),
                (hub.get_gate(SECOND).await?, second),
            ];
            let right = objects.iter().all(|(object, number)| wants(object, *number));
            ensure!(right, "{objects:?}");
            Ok(())
        };
        is_at(1, 1, 2).await?;
        hub.closes(SECOND, "RevisionNeverSeen", SOON).await?;

        // Between the gates and the FleetPackage: nobody judges.
        hub.aggregator.process().kill();
        let whole = waves.user("whole", &[]).await?;
        fails(&whole, &[APP, &r2, "--timeout", "2s"], "has not judged wave-1 within 2 s").await?;
        is_at(1, 2, 2).await?;
        two.check("closed half-way", never).await?;
        one.check("closed half-way", never).await?;

        hub.aggregator.process().start()?;
        succeeds(&whole, &[APP, &r2]).await?;
        is_at(2, 2, 2).await?;
        two.check("closed until its clusters are there", never).await?;
        one.check("closed until its clusters are there", never).await?;
        for name in ["c1", "c2", "c3"] {
            waves.is_at(name, 2);
        }
        hub.opens(FIRST, SOON).await?;
        hub.opens(SECOND, SOON).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_moved_is_refused_and_what_is_odd_is_said() {
    run("e2e-set-revision-refuses", async |rig| {
        let waves = Waves::start(rig).await?;
        let hub = &waves.hub;
        let user = waves.user("mover", &[]).await?;
        let (r1, r2) = (revision(1), revision(2));
        let before = waves.specs().await?;
        let from =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "expression": "object.data.a"});
        hub.report("referring", STALE_AFTER, json!({"revisionFrom": from})).await?;
        hub.report("theirs", STALE_AFTER, json!({"managedBy": "them"})).await?;
        hub.gate("other", "theirs", &r1, json!({"clusters": {"names": ["c1"]}})).await?;
        for (args, expected) in [
            (vec!["referring", &r2], "reads its revision from another object (revisionFrom)"),
            (vec!["theirs", &r2], "is filled by them (managedBy)"),
            (vec!["nobody", &r2], "there is no FleetPackage \"nobody\""),
            (vec![APP, ""], "a revision has 1 to 4096 characters"),
            (vec![APP, " v2"], "must not begin or end with white space"),
            (vec![APP, "main@sha1:489d0f70"], "at least 12 hex digits behind main@sha1:, found 8"),
            (
                vec![APP, &r2, "--gates", "wave-1,wave-9"],
                "no RolloutGate of this FleetPackage, other than those of FleetRollouts, is called wave-9",
            ),
            (vec![APP, &r2, "--gates", "other"], "other than those of FleetRollouts, is called other"),
        ] {
            fails(&user, &args, expected).await?;
        }
        ensure!(waves.specs().await? == before, "something was changed");

        // A gate that is held open, one that is left behind, one that is somewhere else.
        let held = json!({"clusters": {"names": ["c1"]}, "override": {"state": "Open", "reason": "we know"}});
        hub.gate("held", APP, "v0", held).await?;
        let (success, said, complaint) = set_revision(&user, &[APP, &r2, "--gates", "held,wave-2"]).await?;
        ensure!(success, "{said}{complaint}");
        for line in [
            format!("rolloutgate/{FIRST} stays at {r1} and is OPEN for it: it is not in --gates"),
            format!("rolloutgate/held: v0 -> {r2}"),
            format!("rolloutgate/{SECOND}: {r1} -> {r2}"),
            format!("fleetpackage/{APP}: {r1} -> {r2}"),
        ] {
            ensure!(said.lines().any(|it| it == line), "{line:?} is missing in {said}");
        }
        let warning =
            "warning: rolloutgate/held is held open by hand (we know): it stays open whatever the revision";
        ensure!(complaint.contains(warning), "{complaint}");
        ensure!(wants(&hub.get_gate(FIRST).await?, 1) && wants(&hub.get_gate("held").await?, 2));

        // While the aggregator writes statuses all the time, no write is lost or made twice.
        for number in 3..9 {
            succeeds(&user, &[APP, &revision(number)]).await?;
            for gate in [FIRST, SECOND, "held"] {
                ensure!(wants(&hub.get_gate(gate).await?, number), "{gate} is not at {number}");
            }
        }
        hub.closes(SECOND, "RevisionNeverSeen", SOON).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn rollouts_move_with_their_package_and_the_gates_of_their_waves_are_left_to_the_aggregator() {
    run("e2e-set-revision-rollouts", async |rig| {
        let setup = Setup::start(rig).await?;
        let hub = &setup.hub;
        let (r1, r2, r3) = (revision(1), revision(2), revision(3));
        // Rights on no gate but one that people made.
        let user = user(hub, "mover", &["people"]).await?;
        hub.report(APP, STALE_AFTER, json!({"clusters": {"names": CLUSTERS}, "revision": r1})).await?;
        hub.gate("people", APP, &r1, json!({"clusters": {"names": ["c1"]}})).await?;
        hub.opens("people", SOON).await?;

        // It has a revision of its own.
        setup.rolls(APP, 1, three_waves()).await?;
        setup.says(APP, "RolledOut").await?;
        let said = succeeds(&user, &[APP, &r2]).await?;
        let line = |which: &str, from: &str, to: &str| format!("{which}: {from} -> {to}\n");
        let moved = |from: &str, to: &str| {
            ["rolloutgate/people", "fleetpackage/app", "fleetrollout/app"]
                .map(|which| line(which, from, to))
                .concat()
        };
        ensure!(said == moved(&r1, &r2), "{said}");
        let canary = setup.admits(2, 1).await?;
        setup.deliver(2, &canary);
        setup.admits(2, 2).await?;

        // It follows the FleetPackage.
        let no_revision = json!({"spec": {"revision": null}}).to_string();
        hub.api.kubectl(&["patch", "fleetrollout", APP, "--type=merge", "-p", &no_revision]).await?;
        let said = succeeds(&user, &[APP, &r3]).await?;
        let expected = [
            line("rolloutgate/people", &r2, &r3),
            line("fleetpackage/app", &r2, &r3),
            "fleetrollout/app rolls out what the FleetPackage wants\n".to_owned(),
        ];
        ensure!(said == expected.concat(), "{said}");
        setup.admits(3, 1).await?;
        Ok(())
    })
    .await;
}
