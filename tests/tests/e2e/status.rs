//! `statusbridge status`: what people see at a glance, and while it goes on. It never shows as open what `wait` and the
//! gate page would refuse.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

/// Two packages. The gates of the first: wave-1 is open, wave-2 waits for c2 and c3.
struct Waves {
    fleet: FakeFleet,
    hub: Hub,
    viewer: PathBuf,
    _prometheus: Prometheus,
    _etcd: Etcd,
}

impl Waves {
    async fn start(rig: &Rig) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        let names = ["c1", "c2", "c3"];
        let prometheus = Prometheus::start(rig, &scraping(&fleet, &names)).await?;
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        for name in names {
            fleet.says(name, APP, FakePackage::healthy_at(&revision(1)));
            fleet.says(name, "other", FakePackage::healthy_at(&revision(1)));
        }
        fleet.says("c1", APP, FakePackage::healthy_at(&revision(2)));
        hub.report(APP, STALE_AFTER, json!({"revision": revision(2)})).await?;
        hub.report("other", STALE_AFTER, json!({})).await?;
        let of = |names: &[&str]| json!({"clusters": {"names": names}});
        hub.gate("wave-1", APP, &revision(2), of(&["c1"])).await?;
        hub.gate("wave-2", APP, &revision(2), of(&["c2", "c3"])).await?;
        hub.gate("of-other", "other", &revision(1), of(&["c1"])).await?;
        hub.opens("wave-1", SOON).await?;
        hub.opens("of-other", SOON).await?;
        hub.closes("wave-2", "NotUpdated", SOON).await?;
        let viewer = viewer(&hub).await?;
        Ok(Self { fleet, hub, viewer, _prometheus: prometheus, _etcd: etcd })
    }
}

/// Its exit code, and what it printed.
async fn status(kubeconfig: &Path, args: &[&str]) -> Result<(i32, String, String)> {
    let mut command = own_command("statusbridge", &["status"]).await?;
    let out = command.args(args).arg("--kubeconfig").arg(kubeconfig).output().await?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes);
    Ok((out.status.code().context("killed")?, text(out.stdout)?, text(out.stderr)?))
}

async fn shown(kubeconfig: &Path, args: &[&str]) -> Result<String> {
    let (code, out, err) = status(kubeconfig, args).await?;
    ensure!(code == 0 && err.is_empty(), "{args:?}: {code} {err}");
    Ok(out)
}

/// The first cells of each line.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().skip(1).take_while(|line| !line.is_empty());
    rows.map(|line| line.split_whitespace().take(4).collect()).collect()
}

/// A `status --watch` under way.
struct Watch {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    told: Vec<String>,
}

impl Watch {
    async fn start(kubeconfig: &Path, args: &[&str]) -> Result<Self> {
        let mut command = own_command("statusbridge", &["status", "--watch"]).await?;
        let command = command.args(args).arg("--kubeconfig").arg(kubeconfig).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Self { _child: child, lines, told: Vec::new() })
    }

    async fn next(&mut self) -> Result<String> {
        let line = tokio::time::timeout(SOON, self.lines.next_line()).await;
        let line = line.with_context(|| format!("no more lines after {:#?}", self.told))??;
        let line = line.context("it ended")?;
        self.told.push(line.clone());
        Ok(line)
    }

    /// Reads on until an object is in a state.
    async fn tells(&mut self, name: &str, state: &str) -> Result<Value> {
        loop {
            let told: Value = serde_json::from_str(&self.next().await?)?;
            if told["name"] == name && told["state"] == state {
                return Ok(told);
            }
        }
    }
}

#[tokio::test]
async fn packages_and_gates_are_shown_at_a_glance_and_one_by_one() {
    run("e2e-status", async |rig| {
        let world = Waves::start(rig).await?;
        let viewer = &world.viewer;
        let short = |number: u32| statusbridge_contract::Fingerprint::of(&revision(number)).to_string();
        let (r1, r2) = (short(1), short(2));
        let text = eventually(SOON, "the packages are judged", async || {
            let text = shown(viewer, &[]).await?;
            ensure!(text.contains("2 packages, 1 Ready; 3 gates, 2 open"), "{text}");
            Ok(text)
        })
        .await?;
        let expected = [
            vec!["package/app", "Waiting", &r2, "1/3"],
            vec!["gate/wave-1", "Open", &r2, "1/1"],
            vec!["gate/wave-2", "Waiting", &r2, "0/2"],
            vec!["package/other", "Ready", "-", "3/3"],
            vec!["gate/of-other", "Open", &r1, "1/1"],
        ];
        ensure!(rows(&text) == expected, "{text}");
        ensure!(!text.contains('\u{1b}'), "colours where there is no terminal: {text}");
        let everywhere = shown(viewer, &["-A"]).await?;
        ensure!(rows(&everywhere)[0][..2] == ["default", "package/app"], "{everywhere}");
        let elsewhere = shown(viewer, &["-n", "kube-system"]).await?;
        ensure!(elsewhere == "there are no FleetPackages and no RolloutGates\n", "{elsewhere}");

        let json: Value = serde_json::from_str(&shown(viewer, &["-o", "json"]).await?)?;
        let totals =
            json!({"packages": 2, "packagesReady": 1, "gates": 3, "gatesOpen": 2, "gatesStalled": 0});
        ensure!(json["totals"] == totals, "{json:#}");
        ensure!(
            json["packages"][0]["clusters"]["updated"] == 1 && json["gates"][1]["state"] == "Waiting",
            "{json:#}"
        );
        ensure!(
            json["packages"][1]["kind"] == "FleetPackage" && json["packages"][1]["state"] == "Ready",
            "{json:#}"
        );
        let yaml: Value = serde_saphyr::from_str(&shown(viewer, &["-o", "yaml"]).await?)?;
        ensure!(yaml["totals"] == totals && yaml["gates"][0]["name"] == json["gates"][0]["name"], "{yaml:#}");

        let gate: Value = serde_json::from_str(&shown(viewer, &["gate/wave-2", "-o", "json"]).await?)?;
        ensure!(
            gate["kind"] == "RolloutGate" && gate["open"] == false && gate["fleetPackage"] == APP,
            "{gate:#}"
        );
        let gate = shown(viewer, &["gate/wave-2"]).await?;
        ensure!(rows(&gate).len() == 1 && gate.contains("gate/wave-2 waits for NotUpdated: "), "{gate}");
        let package = shown(viewer, &["package/app"]).await?;
        ensure!(
            rows(&package) == expected[..3] && package.contains("package/app c2: NotUpdated"),
            "{package}"
        );
        let (code, _, error) = status(viewer, &["gate/nowhere"]).await?;
        ensure!(code == 7 && error.contains("there is no RolloutGate \"nowhere\""), "{code} {error}");
        let (code, _, error) = status(&world.hub.api.kubeconfig_as("nobody", &[])?, &[]).await?;
        ensure!(code == 1 && error.contains("forbidden"), "{code} {error}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_changes_is_told_while_it_goes_on_and_evidence_that_grows_too_old_too() {
    run("e2e-status-watch", async |rig| {
        let world = Waves::start(rig).await?;
        let mut lines = Watch::start(&world.viewer, &["gate/wave-2"]).await?;
        let first = lines.next().await?;
        ensure!(first.starts_with("gate/wave-2  Waiting  ") && first.contains(", 0/2 healthy"), "{first}");
        let mut all = Watch::start(&world.viewer, &["-o", "json"]).await?;
        all.tells("wave-2", "Waiting").await?;
        let mut tree = Watch::start(&world.viewer, &[]).await?;
        while !tree.next().await?.starts_with("package/app > gate/wave-2  Waiting  ") {}
        for cluster in ["c2", "c3"] {
            world.fleet.says(cluster, APP, FakePackage::healthy_at(&revision(2)));
        }
        let told = all.tells("wave-2", "Open").await?;
        ensure!(told["open"] == true && told["kind"] == "RolloutGate", "{told:#}");
        while !lines.next().await?.starts_with("gate/wave-2  Open") {}
        // Nobody writes any more, and nothing else happens either: only time goes on.
        world.hub.aggregator.process().kill();
        let told = all.tells("wave-2", "Stale").await?;
        ensure!(told["open"] == false, "{told:#}");
        while !lines.next().await?.starts_with("gate/wave-2  Stale") {}
        let gates = world.hub.api.dynamic(&hub::kind("RolloutGate"), Some("default")).await?;
        gates.delete("wave-2", &DeleteParams::default()).await?;
        all.tells("wave-2", "Gone").await?;
        while !lines.next().await?.starts_with("gate/wave-2  Gone") {}
        Ok(())
    })
    .await;
}
