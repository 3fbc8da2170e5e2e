//! `statusbridge rollout`: people look at a FleetRollout, stop it, let it go on, approve it, and carry it over a wave that has
//! failed, each with the rights that this takes and no more.

use crate::e2e::rollouts::Setup;
use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Child;

/// Lets a user have these ClusterRoles.
async fn user(hub: &Hub, name: &str, roles: &[&str]) -> Result<PathBuf> {
    let group = "rbac.authorization.k8s.io";
    for role in roles {
        hub.api
            .apply_object(&json!({
                "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
                "metadata": {"name": format!("{name}-{role}"), "namespace": "default"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": name, "apiGroup": group}],
            }))
            .await?;
    }
    hub.api.kubeconfig_as(name, &[])
}

/// A `rollout status --watch` on a terminal of ten lines, which `script` of util-linux is.
async fn on_a_terminal(kubeconfig: &Path) -> Result<Child> {
    let program = own_program("statusbridge").await?;
    let line = format!(
        "stty rows 10 cols 90; {} rollout status {APP} --watch --kubeconfig {}",
        program.display(),
        kubeconfig.display()
    );
    let mut command = tokio::process::Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("TERM", "xterm");
    command.env("NO_COLOR", "1").env("NO_PROXY", "127.0.0.1").kill_on_drop(true);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
}

/// Its exit code, and what it printed on standard output and standard error.
async fn rollout(kubeconfig: &Path, args: &[&str]) -> Result<(i32, String, String)> {
    let mut command = own_command("statusbridge", &["rollout"]).await?;
    let out = command.args(args).arg("--kubeconfig").arg(kubeconfig).output().await?;
    Ok((out.status.code().context("killed")?, String::from_utf8(out.stdout)?, String::from_utf8(out.stderr)?))
}

async fn done(kubeconfig: &Path, args: &[&str]) -> Result<String> {
    let (code, out, err) = rollout(kubeconfig, args).await?;
    ensure!(code == 0, "{args:?}: {code} {out}{err}");
    Ok(out)
}

/// A `rollout status --watch` under way.
struct Watch {
    child: Child,
    log: PathBuf,
}

impl Watch {
    async fn start(rig: &Rig, kubeconfig: &Path, args: &[&str]) -> Result<Self> {
        let log =
            tempfile::Builder::new().prefix("rollout-").tempfile_in(rig.dir())?.into_temp_path().keep()?;
        let mut command = own_command("statusbridge", &["rollout", "status", APP, "--watch"]).await?;
        let command = command.args(args).arg("--kubeconfig").arg(kubeconfig);
        let child = command
            .stdout(File::create(&log)?)
            .stderr(File::create(log.with_extension("errors"))?)
            .spawn()?;
        Ok(Self { child, log })
    }

    fn told(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    async fn tells(&self, line: &str) -> Result<()> {
        eventually(SOON, &format!("it tells {line:?}"), async || {
            let told = self.told()?;
            ensure!(told.lines().any(|it| it.starts_with(line)), "{told}");
            Ok(())
        })
        .await
    }

    /// Its exit code, and all that it printed.
    async fn ends(mut self) -> Result<(Option<i32>, String)> {
        let status = tokio::time::timeout(SOON, self.child.wait()).await.context("it does not end")??;
        Ok((status.code(), self.told()?))
    }
}

fn names(clusters: &[&str]) -> BTreeSet<String> {
    clusters.iter().map(|name| (*name).to_owned()).collect()
}

fn waves() -> Value {
    let of = |name: &str, clusters: &[&str]| json!({"name": name, "clusters": {"names": clusters}});
    let mut asks = of("asks", &["c2"]);
    asks["gate"] = json!({"approval": "Required"});
    json!([of("canary", &["c1"]), asks, of("risky", &["c3"]), of("rest", &["c4", "c5", "c6"])])
}

#[tokio::test]
async fn people_follow_stop_approve_and_promote_a_rollout() {
    run("e2e-rollout-commands", async |rig| {
        let setup = Setup::start(rig).await?;
        let hub = &setup.hub;
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        for file in [
            "rbac/editor",
            "rbac/approve",
            "rbac/override",
            "policies/rolloutgate-override",
            "policies/rolloutapproval-by",
        ] {
            hub.api.apply(&std::fs::read_to_string(deploy.join(file).with_extension("yaml"))?).await?;
        }
        let viewer = viewer(hub).await?;
        let writer = user(hub, "writer", &["statusbridge-viewer", "statusbridge-editor"]).await?;
        let approver = user(hub, "approver", &["statusbridge-viewer", "statusbridge-approve"]).await?;
        let opener = user(hub, "opener", &["statusbridge-viewer", "statusbridge-override"]).await?;

        let (code, _, error) = rollout(&viewer, &["status", "nothing"]).await?;
        ensure!(code == 7 && error.contains("there is no FleetRollout \"nothing\""), "{code} {error}");
        ensure!(done(&viewer, &["status"]).await? == "there are no FleetRollouts\n");
        setup.rolls(APP, 2, waves()).await?;
        setup.admits(2, 1).await?;
        setup.says(APP, "RollingOut").await?;
        let lines = Watch::start(rig, &viewer, &["--revision", &revision(2)]).await?;
        let objects = Watch::start(rig, &viewer, &["-o", "json", "--until", "settled"]).await?;
        let terminal = on_a_terminal(&viewer).await?;
        lines.tells("rollout/app  Waiting  ").await?;
        lines.tells("rollout/app > wave canary > gate/app-canary  Waiting  0/1 healthy").await?;
        let (code, _, error) = rollout(&viewer, &["status", APP, "--revision", &revision(1)]).await?;
        ensure!(code == 6 && error.contains(&format!("not {}", revision(1))), "{code} {error}");
        let table = done(&viewer, &["status"]).await?;
        ensure!(
            table.lines().nth(1).is_some_and(|line| line.starts_with("app    app       Waiting")),
            "{table}"
        );

        // Nobody further is admitted while it is paused.
        let (code, _, error) = rollout(&viewer, &["pause", APP]).await?;
        ensure!(code == 1 && error.contains("forbidden"), "{code} {error}");
        let pause = ["pause", APP, "--reason", "ticket 4711"];
        let said = done(&writer, &[&pause[..], &["--dry-run"]].concat()).await?;
        ensure!(
            said.ends_with("(dry run)\n") && setup.rollout(APP).await?.data["spec"]["paused"] != true,
            "{said}"
        );
        let before = setup.rollout(APP).await?.data["spec"].clone();
        let said = done(&writer, &pause).await?;
        ensure!(
            said.contains("rollout/app at ") && said.contains("Waiting: RollingOut: wave canary (1 of 4)"),
            "{said}"
        );
        let mut expected = before.clone();
        expected["paused"] = json!(true);
        let spec = setup.rollout(APP).await?.data["spec"].clone();
        ensure!(spec == expected, "{spec:#} is not {expected:#}");
        setup.deliver(2, &names(&["c1"]));
        hub.opens("app-canary", SOON).await?;
        setup.says(APP, "GatePaused").await?;
        setup.admits_no_more(2, &names(&["c1"])).await?;
        let shown = done(&viewer, &["status", APP]).await?;
        ensure!(
            shown.contains("GatePaused")
                && shown.contains("ticket 4711")
                && shown.contains("wave asks    Pending"),
            "{shown}"
        );
        let said = done(&writer, &["pause", APP]).await?;
        ensure!(
            said.contains("paused because: ticket 4711") && said.ends_with("is paused already\n"),
            "{said}"
        );
        let (code, _, error) = rollout(&approver, &["approve", APP]).await?;
        ensure!(
            code == 1 && error.contains("no wave of rollout/app waits for an approval"),
            "{code} {error}"
        );

        done(&writer, &["resume", APP]).await?;
        let object = setup.rollout(APP).await?;
        let why = object.metadata.annotations.clone().unwrap_or_default();
        ensure!(
            object.data["spec"]["paused"] == false && !why.contains_key("statusbridge.dev/paused-because"),
            "{why:?}"
        );
        setup.admits(2, 2).await?;
        setup.deliver(2, &names(&["c2"]));
        hub.closes("app-asks", "ApprovalRequired", SOON).await?;

        // The gate that asks for it is approved, and no other.
        let (code, _, error) = rollout(&approver, &["approve", APP, "--revision", &revision(1)]).await?;
        ensure!(code == 6, "{code} {error}");
        let (code, _, error) = rollout(&approver, &["approve", APP, "--wave", "canary"]).await?;
        ensure!(
            code == 1 && error.contains("rolloutgate/app-canary does not ask for an approval"),
            "{code} {error}"
        );
        let (code, _, error) = rollout(&approver, &["approve", APP, "--wave", "rest"]).await?;
        ensure!(code == 1 && error.contains("wave rest has not started"), "{code} {error}");
        let said =
            done(&approver, &["approve", APP, "--reason", "looks good", "--revision", &revision(2)]).await?;
        ensure!(said.contains("approved as approver: rolloutapproval/app-asks-"), "{said}");
        setup.admits(2, 3).await?;
        let gate = hub.get_gate("app-asks").await?;
        ensure!(gate.data["status"]["approvedBy"]["user"] == "approver", "{}", gate.data["status"]);

        // A wave that fails stalls it; who has the right carries it over.
        setup.fleet.says("c3", APP, FakePackage::failed_at(&revision(2)));
        setup.says(APP, "WaveFailed").await?;
        hub.closes("app-risky", "FailureBudgetExceeded", SOON).await?;
        let (code, told) = objects.ends().await?;
        let last: Value = serde_json::from_str(told.lines().last().context("no lines")?)?;
        ensure!(
            code == Some(3) && last["state"] == "Stalled" && last["reason"] == "WaveFailed",
            "{code:?} {last:#}"
        );
        let risky = &last["waves"][2];
        ensure!(risky["state"] == "Failed" && risky["verdict"]["name"] == "app-risky", "{last:#}");
        lines.tells("rollout/app > wave risky > gate/app-risky > cluster c3  Failed").await?;
        let promote = |wave: &'static str| {
            ["promote", APP, "--wave", wave, "--reason", "c3 is being rebuilt", "--for", "1h"]
        };
        let (code, _, error) = rollout(&opener, &promote("canary")).await?;
        ensure!(code == 1 && error.contains("rolloutgate/app-canary is open already"), "{code} {error}");
        eventually(SOON, "it takes a right", async || {
            let (code, _, error) =
                rollout(&writer, &[&promote("risky")[..], &["--dry-run"]].concat()).await?;
            ensure!(
                code == 1
                    && error.contains(
                        "takes the verb override on rolloutgates.statusbridge.dev in namespace default"
                    ),
                "{code} {error}"
            );
            Ok(())
        })
        .await?;
        let (code, _, error) = rollout(&viewer, &promote("risky")).await?;
        ensure!(
            code == 1 && error.contains("the ClusterRole statusbridge-override has both"),
            "{code} {error}"
        );
        done(&opener, &[&promote("risky")[..], &["--dry-run"]].concat()).await?;
        ensure!(hub.get_gate("app-risky").await?.data["spec"]["override"].is_null());
        setup.admits_no_more(2, &names(&["c1", "c2", "c3"])).await?;
        let said = done(&opener, &promote("risky")).await?;
        ensure!(
            said.contains("FailureBudgetExceeded")
                && said.contains("rolloutgate/app-risky is open by hand until "),
            "{said}"
        );
        let word = hub.get_gate("app-risky").await?.data["spec"]["override"].clone();
        ensure!(word["state"] == "Open" && word["reason"] == "c3 is being rebuilt", "{word:#}");
        let until: Timestamp = word["until"].as_str().context("no end")?.parse()?;
        let now = Timestamp::now();
        ensure!(until > now + 50.minutes() && until <= now + 1.hour(), "{until}");
        setup.admits(2, 6).await?;
        let (code, _, error) = rollout(&opener, &promote("risky")).await?;
        ensure!(code == 1 && error.contains("is open by hand already until "), "{code} {error}");

        setup.deliver(2, &names(&["c4", "c5", "c6"]));
        setup.says(APP, "RolledOut").await?;
        let (code, told) = lines.ends().await?;
        ensure!(code == Some(0), "{code:?} {told}");
        for line in [
            "rollout/app > wave canary  Open  1/1 admitted",
            "rollout/app > paused  ticket 4711",
            "rollout/app > wave risky > gate/app-risky > cluster c3  is not in trouble any more",
            "rollout/app > wave rest > gate/app-rest  Open  3/3 healthy",
        ] {
            ensure!(told.lines().any(|it| it.starts_with(line)), "no {line:?} in {told}");
        }
        ensure!(!told.contains('\u{1b}'), "{told}");
        let shown =
            tokio::time::timeout(SOON, terminal.wait_with_output()).await.context("it does not end")??;
        let text = String::from_utf8(shown.stdout)?;
        let last = text.rsplit("\u{1b}[?7l").next().unwrap_or_default();
        ensure!(shown.status.code() == Some(0) && text.matches("\u{1b}[?7l").count() > 3, "{text:?}");
        ensure!(last.starts_with("\r\u{1b}[") && last.lines().count() <= 10, "{last:?}");
        ensure!(last.contains("rollout/app  RolledOut") && last.contains("4 done"), "{last:?}");
        Ok(())
    })
    .await;
}
