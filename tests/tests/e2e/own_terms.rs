//! Freezes, windows, pauses and approvals: they close gates at once, end when they say, hide no failure; and who approves is
//! the API server's business.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use jiff::{Timestamp, ToSpan};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::path::{Path, PathBuf};

const GATE: &str = "wave-1";

/// One cluster, healthy at the first revision, and a hub with the policies.
struct World {
    fleet: FakeFleet,
    hub: Hub,
    _prometheus: Prometheus,
    _etcd: Etcd,
}

impl World {
    async fn start(rig: &Rig) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        let prometheus =
            Prometheus::start(rig, &PrometheusConfig::with_jobs([fleet.target(job(), "c1", &[])])).await?;
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        let files = ["rbac/editor.yaml", "rbac/approve.yaml", "rbac/override.yaml"];
        let policies = ["rolloutapproval-by", "rolloutgate-approval", "rolloutfreeze-override"];
        let policies = policies.map(|name| format!("policies/{name}.yaml"));
        for file in files.into_iter().chain(policies.iter().map(String::as_str)) {
            hub.api.apply(&std::fs::read_to_string(deploy.join(file))?).await?;
        }
        let world = Self { fleet, hub, _prometheus: prometheus, _etcd: etcd };
        world.is(FakePackage::healthy_at(&revision(1)));
        world.hub.report(APP, STALE_AFTER, json!({})).await?;
        Ok(world)
    }

    fn is(&self, package: FakePackage) {
        self.fleet.says("c1", APP, package);
    }

    async fn gate(&self, number: u32, more: Value) -> Result<DynamicObject> {
        let mut spec = json!({"clusters": {"names": ["c1"]}});
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        self.hub.gate(GATE, APP, &revision(number), spec).await
    }

    /// Lets a user have these ClusterRoles, or what these rules say.
    async fn user(&self, name: &str, roles: &[&str], rules: Value) -> Result<PathBuf> {
        let group = "rbac.authorization.k8s.io";
        let own = json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": format!("own-{name}")},
            "rules": rules,
        });
        self.hub.api.apply_object(&own).await?;
        for role in roles.iter().map(|role| (*role).to_owned()).chain([format!("own-{name}")]) {
            let binding = json!({
                "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
                "metadata": {"name": format!("{name}-{role}"), "namespace": "default"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": name, "apiGroup": group}],
            });
            self.hub.api.apply_object(&binding).await?;
        }
        self.hub.api.kubeconfig_as(name, &[])
    }

    async fn freeze(&self, name: &str, from: Option<Timestamp>, until: Timestamp) -> Result<()> {
        let mut spec = json!({"reason": "a great day", "until": until.to_string()});
        if let Some(from) = from {
            spec["from"] = json!(from.to_string());
        }
        let freeze = object("RolloutFreeze", name, spec);
        self.hub.api.apply_object(&freeze).await.map(drop)
    }

    /// What a user of kubectl is told.
    async fn tried(&self, user: &str, args: &[&str]) -> Result<(bool, String)> {
        let out = self.hub.api.kubectl_output(&[&["--as", user], args].concat()).await?;
        let said = [out.stdout, out.stderr].concat();
        Ok((out.status.success(), String::from_utf8_lossy(&said).into_owned()))
    }

    /// Waits until the API server refuses this for this reason: a policy counts from a moment after it was made.
    async fn is_refused(&self, user: &str, args: &[&str], why: &str) -> Result<()> {
        eventually(SOON, why, async || {
            let (done, said) = self.tried(user, args).await?;
            ensure!(!done && said.contains(why), "{said}");
            Ok(())
        })
        .await
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

/// Runs `statusbridge approve`; its exit code and what it said.
async fn approve(user: &Path, args: &[&str]) -> Result<(Option<i32>, String)> {
    let out = tokio::process::Command::new(own_program("statusbridge").await?)
        .args(["approve", GATE, "--namespace", "default"])
        .args(args)
        .arg("--kubeconfig")
        .arg(user)
        .env("NO_PROXY", "127.0.0.1")
        .kill_on_drop(true)
        .output()
        .await
        .context("running approve")?;
    let said = [out.stdout, out.stderr].concat();
    Ok((out.status.code(), String::from_utf8_lossy(&said).into_owned()))
}

fn time(gate: &DynamicObject, pointer: &str) -> Result<Timestamp> {
    let text = gate.data.pointer(pointer).and_then(Value::as_str);
    Ok(text.with_context(|| format!("no {pointer}: {}", gate.data["status"]))?.parse()?)
}

fn first_waits(gate: &DynamicObject) -> &Value {
    &gate.data["status"]["waitingFor"][0]
}

#[tokio::test]
async fn a_freeze_closes_and_ends_and_hides_no_failure() {
    run("e2e-freeze", async |rig| {
        let world = World::start(rig).await?;
        world.gate(1, json!({})).await?;
        world.hub.opens(GATE, SOON).await?;

        // One that is to come is told beforehand.
        let from = Timestamp::now().round(jiff::Unit::Second)? + 40.seconds();
        world.freeze("to-come", Some(from), from + 1.hour()).await?;
        eventually(SOON, "the end is told", async || {
            ensure!(time(&world.hub.get_gate(GATE).await?, "/status/openUntil")? == from);
            Ok(())
        })
        .await?;
        let gate = world.hub.closes(GATE, "Frozen", SOON).await?;
        ensure!(time(&gate, "/status/since")? >= from, "closed before the freeze began");
        ensure!(gate.data["status"]["openUntil"].is_null());

        // A failure is told first, and at once.
        world.is(FakePackage::failed_at(&revision(1)));
        let gate = world.hub.closes(GATE, "FailureBudgetExceeded", SOON).await?;
        ensure!(gate.data["status"]["waitingFor"][1]["reason"] == "Frozen", "{}", gate.data["status"]);
        world.is(FakePackage::healthy_at(&revision(1)));
        world.hub.closes(GATE, "Frozen", SOON).await?;

        // Everybody who writes gates freezes, and lets a freeze last longer; to end it sooner takes a right.
        world.user("editor", &["statusbridge-editor"], json!([])).await?;
        world.user("releaser", &["statusbridge-editor", "statusbridge-override"], json!([])).await?;
        let sooner = Timestamp::now().round(jiff::Unit::Second)? + 15.seconds();
        let patch = |until: Timestamp| json!({"spec": {"until": until.to_string()}}).to_string();
        let (shorter, longer) = (patch(sooner), patch(from + 2.hours()));
        let change = |patch| ["patch", "rolloutfreeze", "to-come", "--type=merge", "-p", patch];
        world.is_refused("editor", &change(&shorter), "needs the verb override on rolloutgates").await?;
        world.is_refused("editor", &["delete", "rolloutfreeze", "to-come"], "cannot delete").await?;
        let (done, said) = world.tried("editor", &change(&longer)).await?;
        ensure!(done, "{said}");
        let shorter = patch(Timestamp::now().round(jiff::Unit::Second)? + 15.seconds());
        let (done, said) = world.tried("releaser", &change(&shorter)).await?;
        ensure!(done, "{said}");
        let end = world
            .hub
            .api
            .kubectl(&["get", "rolloutfreeze", "to-come", "-o", "jsonpath={.spec.until}"])
            .await?;
        let gate = world.hub.opens(GATE, SOON).await?;
        ensure!(time(&gate, "/status/since")? >= end.trim().parse()?, "opened before the freeze had ended");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_pause_and_windows_close_and_a_bad_window_says_so() {
    run("e2e-windows", async |rig| {
        let world = World::start(rig).await?;
        let always = json!([{"schedule": "* * * * *", "duration": "1h", "timeZone": "Europe/Berlin"}]);
        world.gate(1, json!({"windows": always})).await?;
        world.hub.opens(GATE, SOON).await?;
        world.gate(1, json!({"windows": always, "paused": true})).await?;
        world.hub.closes(GATE, "GatePaused", SOON).await?;

        let last = Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date().yesterday()?;
        let yearly = format!("0 0 {} {} *", last.day(), last.month());
        world.gate(1, json!({"windows": [{"schedule": yearly, "duration": "1m"}]})).await?;
        let gate = world.hub.closes(GATE, "OutsideWindow", SOON).await?;
        let next: Timestamp = serde_json::from_value(first_waits(&gate)["until"].clone())?;
        ensure!(next > Timestamp::now() + (24 * 300).hours(), "{next}");

        world.gate(1, json!({"windows": [{"schedule": "0 0 31 2 *", "duration": "1m"}]})).await?;
        let gate = world.hub.closes(GATE, "InvalidSpec", SOON).await?;
        let message = first_waits(&gate)["message"].as_str().unwrap_or_default();
        ensure!(message.starts_with("windows[0]: schedule"), "{message}");
        for (window, why) in [
            (json!({"schedule": "0 0 * * *", "duration": "169h"}), "duration must be from 1m to 168h"),
            (json!({"schedule": "0 0 * * * *", "duration": "1h"}), "should match"),
            (json!({"schedule": "0 0 * * *", "duration": "1h", "timeZone": "../etc"}), "should match"),
        ] {
            let refused = world.gate(1, json!({"windows": [window]})).await.map(drop);
            let said = format!("{:#}", refused.err().context("it was accepted")?);
            ensure!(said.contains(why), "{said}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_gate_waits_for_an_approval_of_its_revision_by_somebody_with_the_right() {
    run("e2e-approval", async |rig| {
        let world = World::start(rig).await?;
        let hub = &world.hub;
        let required = json!({"approval": "Required"});
        world.gate(1, required.clone()).await?;
        hub.closes(GATE, "ApprovalRequired", SOON).await?;

        let makes = json!([{"apiGroups": ["statusbridge.dev"], "resources": ["rolloutapprovals"], "verbs": ["create", "delete"]}]);
        let anna = world.user("anna", &["statusbridge-approve"], json!([])).await?;
        let bert = world.user("bert", &["statusbridge-editor"], makes).await?;

        // Without the verb.
        eventually(SOON, "the policy is in force", async || {
            let (code, said) = approve(&bert, &["--dry-run"]).await?;
            ensure!(code == Some(1) && said.contains("to approve gate wave-1 needs the verb approve"), "{said}");
            Ok(())
        })
        .await?;
        // In another's name.
        let spec = json!({"gateRef": {"name": GATE}, "revision": revision(1), "by": {"user": "bert"}});
        let file = rig.dir().join("forged.json");
        std::fs::write(&file, object("RolloutApproval", "forged", spec).to_string())?;
        let forged = ["create", "-f", file.to_str().context("path")?];
        world.is_refused("anna", &forged, "nobody approves in the name of another user").await?;
        // Of another revision than is meant.
        let (code, said) = approve(&anna, &["--revision", &revision(2)]).await?;
        ensure!(code == Some(6), "{code:?} {said}");

        let (code, said) = approve(&anna, &["--revision", &revision(1), "--reason", "looks good"]).await?;
        ensure!(code == Some(0) && said.contains("approved as anna: rolloutapproval/wave-1-"), "{said}");
        let gate = hub.opens(GATE, SOON).await?;
        let approved = &gate.data["status"]["approvedBy"];
        ensure!(approved["user"] == "anna" && approved["at"].is_string(), "{approved}");
        let name = approved["name"].as_str().context("no name")?.to_owned();
        let seen = hub.api.kubectl(&["get", "rolloutapproval", &name, "-o", "jsonpath={.spec.seen.reason}"]).await?;
        ensure!(seen == "ApprovalRequired", "{seen}");
        let (code, said) = approve(&anna, &[]).await?;
        ensure!(code == Some(0) && said.contains("anna has approved it already"), "{said}");

        // Nobody changes it, and who may not approve lets no gate go without.
        let other = json!({"spec": {"revision": revision(2)}}).to_string();
        let change = ["patch", "rolloutapproval", &name, "--type=merge", "-p", &other];
        let out = hub.api.kubectl_output(&change).await?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(!out.status.success() && said.contains("an approval is immutable"), "{said}");
        let without = json!({"spec": {"approval": "NotRequired"}}).to_string();
        let loosen = ["patch", "rolloutgate", GATE, "--type=merge", "-p", &without];
        world.is_refused("bert", &loosen, "spec.approval (Required -> NotRequired) needs the verb approve").await?;
        let delete = ["delete", "rolloutgate", GATE];
        world.is_refused("bert", &delete, "spec.approval (Required -> deleted with its gate) needs").await?;
        let take_back = ["delete", "rolloutapproval", &name];
        world.is_refused("bert", &take_back, "to take back an approval gate wave-1 needs the verb").await?;

        // Another revision is not approved, however healthy.
        world.gate(2, required).await?;
        world.is(FakePackage::healthy_at(&revision(2)));
        let gate = eventually(SOON, "healthy, and not approved", async || {
            let gate = hub.closes(GATE, "ApprovalRequired", SOON).await?;
            ensure!(gate.data["status"]["healthy"] == "1/1", "{}", gate.data["status"]);
            Ok(gate)
        })
        .await?;
        let message = first_waits(&gate)["message"].as_str().unwrap_or_default();
        ensure!(message.contains("approvals of other revisions are void"), "{message}");
        ensure!(gate.data["status"]["approvedBy"].is_null());
        let (code, said) = approve(&anna, &[]).await?;
        ensure!(code == Some(0), "{said}");
        let gate = hub.opens(GATE, SOON).await?;

        // Taken back.
        let name = gate.data["status"]["approvedBy"]["name"].as_str().context("no name")?.to_owned();
        let (done, said) = world.tried("anna", &["delete", "rolloutapproval", &name]).await?;
        ensure!(done, "{said}");
        hub.closes(GATE, "ApprovalRequired", SOON).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_hub_without_the_kinds_goes_on_and_approves_nothing() {
    run("e2e-no-freezes", async |rig| {
        let world = World::start(rig).await?;
        world.gate(1, json!({})).await?;
        world.hub.opens(GATE, SOON).await?;
        let crds = ["rolloutfreezes", "rolloutapprovals"].map(|plural| format!("{plural}.statusbridge.dev"));
        world.hub.api.kubectl(&["delete", "crd", &crds[0], &crds[1]]).await?;
        world.is(FakePackage::healthy_at(&revision(2)));
        world.gate(2, json!({})).await?;
        world.hub.opens(GATE, SOON).await?;
        world.gate(2, json!({"approval": "Required"})).await?;
        eventually(SOON, "it says why nobody can approve", async || {
            let gate = world.hub.closes(GATE, "ApprovalRequired", SOON).await?;
            let message = first_waits(&gate)["message"].as_str().unwrap_or_default();
            ensure!(message.contains("the hub does not serve RolloutApprovals"), "{message}");
            Ok(())
        })
        .await
    })
    .await;
}
