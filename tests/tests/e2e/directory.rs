//! A directory as hub and a recording as cluster: the real exporter and the real aggregator, and no Kubernetes at all.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_tests::*;

/// The heartbeat in `status`.
const BEAT: &str = "leases/kube-system/statusbridge-aggregator-heartbeat.yaml";

fn revision(number: u8) -> String {
    format!("main@sha1:{}", number.to_string().repeat(40))
}

/// What Flux says while it goes from revision 1 to 2: a minute to set off, and another one to get there.
fn recording() -> String {
    let object = |version: &str, kind: &str, spec: Value, status: Value| {
        json!({
            "apiVersion": format!("{version}.toolkit.fluxcd.io/v1"),
            "kind": kind,
            "metadata": {
                "name": "payments",
                "namespace": "flux-system",
                "uid": kind,
                "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": spec,
            "status": status,
        })
    };
    let source = |number: u8, at: &str| {
        object(
            "source",
            "GitRepository",
            json!({}),
            json!({
                "artifact": {"revision": revision(number), "lastUpdateTime": at},
            }),
        )
    };
    let package = |applied: u8, attempted: u8, ready: &str, at: &str| {
        let condition = |kind: &str, status: &str| {
            let reason = if status == "True" { "Succeeded" } else { "Progressing" };
            json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at,
                "observedGeneration": 1})
        };
        object(
            "kustomize",
            "Kustomization",
            json!({"wait": true, "sourceRef": {"kind": "GitRepository", "name": "payments"}}),
            json!({
                "observedGeneration": 1,
                "lastAppliedRevision": revision(applied),
                "lastAttemptedRevision": revision(attempted),
                "conditions": [condition("Ready", ready), condition("Healthy", ready)],
            }),
        )
    };
    let [begin, set_off, done] = ["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"];
    let versions = [
        source(1, begin),
        package(1, 1, "True", begin),
        source(2, set_off),
        package(1, 2, "Unknown", set_off),
        package(2, 2, "True", done),
    ];
    versions.map(|version| format!("{version}\n")).concat()
}

/// The two objects of the directory, with the gate's revision as YAML.
fn objects(revision: &str) -> String {
    format!(
        "apiVersion: statusbridge.dev/v1alpha1\nkind: FleetPackage\nmetadata: {{name: payments}}\nspec:\n  package: \
         {{source: flux-kustomization, namespace: flux-system, name: payments}}\n  clusters: {{names: [eu-1]}}\n---\n\
         apiVersion: statusbridge.dev/v1alpha1\nkind: RolloutGate\nmetadata: {{name: wave-1}}\nspec:\n  \
         fleetPackageRef: {{name: payments}}\n  revision: {revision}\n  clusters: {{names: [eu-1]}}\n"
    )
}

/// The directory and who works on it.
struct World {
    aggregator: Process,
    port: Port,
    hub: PathBuf,
    _exporter: Process,
}

impl World {
    async fn start(rig: &Rig) -> Result<Self> {
        let (exporter, aggregator) = (Port::reserve()?, Port::reserve()?);
        let hub = rig.subdir("hub")?;
        std::fs::write(rig.dir().join("eu-1.json"), recording())?;
        std::fs::write(
            rig.dir().join("config.yaml"),
            format!(
                "feeds: {{scrape: {{interval: 1s, targets: [{{cluster: eu-1, url: \"http://{}/metrics\"}}]}}}}\n",
                exporter.address()
            ),
        )?;
        std::fs::write(hub.join("payments.yaml"), objects(&revision(2)))?;
        let program = own_program("statusbridge-exporter").await?;
        let address = exporter.address().to_string();
        let args = ["serve", "--replay", "eu-1.json", "--speed", "6", "--listen", &address];
        let exporter = Process::spawn(rig, "exporter", &program, args, no_cluster())?;
        let program = own_program("statusbridge-aggregator").await?;
        let args = arguments(&aggregator);
        let process = Process::spawn(rig, "aggregator", &program, args, no_cluster())?;
        Ok(Self { aggregator: process, port: aggregator, hub, _exporter: exporter })
    }

    /// What the API says of the gate.
    async fn gate(&self) -> Result<Value> {
        let url = format!("http://{}/v1alpha1/gates/default/wave-1", self.port.address());
        let http = reqwest::Client::builder().no_proxy().timeout(SOON).build()?;
        Ok(http.get(url).send().await?.json().await?)
    }

    /// What stands in a file of the status.
    fn file(&self, path: &str) -> Result<Value> {
        let text = std::fs::read_to_string(self.hub.join("status").join(path))?;
        Ok(serde_saphyr::from_str(&text)?)
    }

    fn gate_file(&self) -> Result<Value> {
        self.file("rolloutgates/default/wave-1.yaml")
    }

    /// Waits until the gate is open or closed, with words of the message, at its present generation, by API and file.
    async fn gate_is(&self, open: bool, generation: i64, message: &str) -> Result<Value> {
        let what = format!("the gate is {} at generation {generation}", if open { "open" } else { "closed" });
        eventually(SOON, &what, async || {
            self.aggregator.ensure_running()?;
            let gate = self.gate().await?;
            ensure!(gate["open"] == open && gate["observedGeneration"] == generation, "{gate}");
            ensure!(gate["message"].as_str().unwrap_or_default().contains(message), "{gate}");
            let file = self.gate_file()?;
            let status = if open { "True" } else { "False" };
            let conditions = file["status"]["conditions"].as_array().context("no conditions")?;
            let stands = conditions.iter().find(|it| it["type"] == "Open").context("no Open")?;
            ensure!(stands["status"] == status && stands["observedGeneration"] == generation, "{file}");
            ensure!(file["metadata"]["generation"] == generation, "{file}");
            Ok(gate)
        })
        .await
    }

    fn write(&self, revision: &str) -> Result<()> {
        Ok(std::fs::write(self.hub.join("payments.yaml"), objects(revision))?)
    }
}

/// No kubeconfig leads anywhere.
fn no_cluster() -> [(&'static str, OsString); 2] {
    [("KUBECONFIG", "/nowhere".into()), ("NO_PROXY", "127.0.0.1".into())]
}

fn arguments(port: &Port) -> Vec<String> {
    let address = port.address().to_string();
    let args =
        ["serve", "--hub", "dir:hub", "--config", "config.yaml", "--serve-fleet", "--poll-interval", "1s"];
    args.into_iter().chain(["--listen", &address]).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_directory_is_a_hub_and_a_recording_is_a_cluster() {
    run("e2e-directory", async |rig| {
        let world = World::start(rig).await?;
        // Healthy at revision 1, and asked for 2.
        world.gate_is(false, 1, "seen instead: 111111111111").await?;
        world.gate_is(true, 1, "").await?;
        let page = format!("http://{}/ui/", world.port.address());
        ensure!(reqwest::get(page).await?.status().is_success());

        let other = Port::reserve()?;
        let program = own_program("statusbridge-aggregator").await?;
        let second = tokio::process::Command::new(program)
            .args(arguments(&other))
            .current_dir(rig.dir())
            .env("RUST_BACKTRACE", "0")
            .output()
            .await?;
        let said = String::from_utf8_lossy(&second.stderr);
        ensure!(
            !second.status.success() && said.contains("another aggregator works on this directory"),
            "{said}"
        );

        world.write(&revision(3))?;
        world.gate_is(false, 2, "333333333333").await?;
        world.write(&revision(2))?;
        world.gate_is(true, 3, "").await?;
        world.write("5")?;
        let expected = "payments.yaml, document 2: spec.revision: found 5, expected a text";
        let gate = world.gate_is(false, 4, expected).await?;
        ensure!(gate["reason"] == "InvalidSpec", "{gate}");
        std::fs::write(world.hub.join("payments.yaml"), "broken: [\n")?;
        world.gate_is(false, 5, "payments.yaml: ").await?;
        world.write(&revision(2))?;
        world.gate_is(true, 6, "").await?;

        // No file can take the place of a folder: the gate that cannot be closed takes the heartbeat from all.
        let path = world.hub.join("status/rolloutgates/default/wave-1.yaml");
        std::fs::remove_file(&path)?;
        std::fs::create_dir(&path)?;
        world.write(&revision(3))?;
        eventually(SOON, "the gates are closed, and the log says why", async || {
            let why =
                "these gates have to be closed first, and their files could not be written: default/wave-1";
            ensure!(world.aggregator.log().contains(why));
            let gate = world.gate().await?;
            ensure!(
                gate["open"] == false && gate.to_string().contains("has not been able to judge"),
                "{gate}"
            );
            Ok(())
        })
        .await?;
        ensure!(world.file(BEAT)?["metadata"]["annotations"]["statusbridge.dev/unclosed-gates"] == "");
        std::fs::remove_dir(&path)?;
        // Refused, and as its file says again.
        world.gate_is(false, 8, "333333333333").await?;
        world.write(&revision(2))?;
        world.gate_is(true, 9, "").await?;

        // What nobody watches over says when it was watched over last.
        let before = world.gate_file()?;
        world.aggregator.kill();
        ensure!(world.gate_file()? == before);
        let last: jiff::Timestamp =
            world.file(BEAT)?["spec"]["renewTime"].as_str().context("no heartbeat")?.parse()?;
        ensure!(last < jiff::Timestamp::now());
        world.aggregator.start()?;
        world.gate_is(true, 9, "").await?;
        let after = world.gate_file()?;
        for field in ["/metadata/uid", "/status/startedAt", "/status/outcomeSince"] {
            ensure!(before.pointer(field) == after.pointer(field), "{field}: {before} {after}");
        }
        std::fs::remove_file(world.hub.join("payments.yaml"))?;
        eventually(SOON, "the gate is gone", async || {
            ensure!(world.gate().await?["open"] == false && world.gate_file().is_err());
            Ok(())
        })
        .await
    })
    .await;
}
