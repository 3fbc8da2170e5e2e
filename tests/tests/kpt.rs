//! What `kpt live apply` writes into the ResourceGroup that holds a package's inventory, version by version.
//!
//! With `STATUSBRIDGE_RECORD` set to a file, the versions are written there: the ResourceGroup's and those of the
//! objects in the package, in the order in which the API server stored them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_tests::*;
use tokio::io::{AsyncBufReadExt, BufReader};

const SOON: Duration = Duration::from_secs(60);
const WAIT: &str = "--reconcile-timeout=60s";

const REVISION: &str = "example.com/revision";

fn deployments() -> GroupVersionKind {
    GroupVersionKind::gvk("apps", "v1", "Deployment")
}

fn config_maps() -> GroupVersionKind {
    GroupVersionKind::gvk("", "v1", "ConfigMap")
}

fn config_map(name: &str, key: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata: {{{key}: {value}}}\n"
    )
}

/// A version of a ResourceGroup in short: generation/observedGeneration, then for each entry of spec.resources its
/// name and, when it has a status, actuation and reconcile.
fn short(object: &Value) -> String {
    let status = &object["status"];
    let entries = object["spec"]["resources"].as_array().into_iter().flatten().map(|entry| {
        let of = status["resourceStatuses"].as_array().into_iter().flatten();
        let mut of = of.filter(|s| s["kind"] == entry["kind"] && s["name"] == entry["name"]);
        let name = entry["name"].as_str().unwrap_or("?");
        let state = of.next().map_or("-".to_owned(), |s| {
            format!("{}/{}", s["actuation"].as_str().unwrap_or("?"), s["reconcile"].as_str().unwrap_or("?"))
        });
        format!("{name}={state}")
    });
    let mut entries: Vec<String> = entries.collect();
    entries.sort();
    format!("{}/{} {}", object["metadata"]["generation"], status["observedGeneration"], entries.join(" "))
}

/// The cluster, the package, and every version of what `kpt live apply` writes.
struct Package {
    api: ApiServer,
    kpt: Kpt,
    dir: PathBuf,
    group: History,
    others: Vec<History>,
    seen: usize,
}

impl Package {
    async fn new(rig: &Rig, etcd: &Etcd) -> Result<Self> {
        let api = ApiServer::start(rig, etcd, "one").await?;
        let kpt = Kpt::new(rig, &api)?;
        kpt.install_resource_group().await?;
        api.ensure_namespace("web").await?;
        let dir = kpt.package("web", &[])?;
        kpt.init(&dir, "web", "web").await?;
        let group = GroupVersionKind::gvk("kpt.dev", "v1alpha1", "ResourceGroup");
        let group = History::record(&api, &group, "web", "web").await?;
        let others = vec![
            History::record(&api, &deployments(), "default", "front").await?,
            History::record(&api, &config_maps(), "web", "web").await?,
            History::record(&api, &config_maps(), "default", "more").await?,
        ];
        Ok(Self { api, kpt, dir, group, others, seen: 0 })
    }

    fn write(&self, file: &str, content: &str) -> Result<()> {
        std::fs::write(self.dir.join(file), content).with_context(|| format!("writing {file}"))
    }

    /// A revision of the package: a ConfigMap that says so and a Deployment that runs it.
    fn revision(&self, revision: &str) -> Result<()> {
        // Status Bridge reads it from there.
        let labels = "namespace: web, labels: {statusbridge.dev/revision: \"\"}";
        let named = config_map("web", "revision", revision).replace("namespace: default", labels);
        self.write("revision.yaml", &named)?;
        self.write("front.yaml", &deployment_manifest("front", &format!("example.com/front:{revision}")))?;
        // In the inventory's own file, too: the next `apply` could take it from there.
        let file = self.dir.join("resourcegroup.yaml");
        let mut group: Value = serde_saphyr::from_str(&std::fs::read_to_string(&file)?)?;
        group["metadata"]["annotations"] = json!({ REVISION: revision });
        group["metadata"]["labels"][REVISION] = json!(revision);
        Ok(std::fs::write(file, group.to_string())?)
    }

    /// Applies and expects kpt's own verdict.
    async fn apply(&self, more: &[&str], succeeds: bool) -> Result<()> {
        let out = self.kpt.apply(&self.dir, more).await?;
        let said =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        ensure!(out.status.success() == succeeds, "kpt live apply ended with {}: {said}", out.status);
        Ok(())
    }

    /// Applies, and lets the Deployment do this once kpt waits for it.
    async fn apply_while(&self, rollout: Rollout, succeeds: bool) -> Result<()> {
        let mut running =
            self.kpt.command([OsStr::new("apply"), self.dir.as_os_str(), WAIT.as_ref()]).spawn()?;
        let mut said = BufReader::new(running.stdout.take().context("no output")?).lines();
        let mut waits = false;
        while let Some(line) = said.next_line().await? {
            if !waits && line.contains("front reconcile pending") {
                waits = true;
                Flux::set_deployment(&self.api, "default", "front", rollout).await?;
            }
        }
        ensure!(waits, "kpt never waited for the Deployment");
        let status = running.wait().await?;
        ensure!(status.success() == succeeds, "kpt live apply ended with {status}");
        Ok(())
    }

    /// Holds the versions of the ResourceGroup since the last time against those expected, in short.
    async fn wrote(&mut self, what: &str, expected: &[String]) -> Result<()> {
        let versions = self.group.versions().await?;
        let mut found = Vec::new();
        for version in &versions[self.seen..] {
            let object = serde_json::to_value(&version.object)?;
            ensure!(object["status"]["conditions"].is_null(), "{what}: conditions: {object}");
            let meta = &object["metadata"];
            ensure!(meta["annotations"] == json!({REVISION: "v1"}), "{what}: {}", meta["annotations"]);
            ensure!(meta["labels"][REVISION] == "v1", "{what}: {}", meta["labels"]);
            found.push(short(&object));
        }
        self.seen = versions.len();
        ensure!(found == expected, "{what}: kpt wrote {found:#?} in place of {expected:#?}");
        Ok(())
    }

    /// Writes all versions, and those of objects that are gone by now, in the order of the API server.
    async fn save(&self, gone: Vec<history::Version>, path: &Path) -> Result<()> {
        let mut versions = gone;
        for history in self.others.iter().chain([&self.group]) {
            versions.extend(history.versions().await?);
        }
        let mut all = Vec::new();
        for history::Version { mut object, .. } in versions {
            object.metadata.managed_fields = None;
            let number: u64 = object.metadata.resource_version.as_deref().context("no version")?.parse()?;
            all.push((number, serde_json::to_string(&object)?));
        }
        all.sort();
        let lines: String = all.into_iter().map(|(_, line)| line + "\n").collect();
        std::fs::write(path, lines).with_context(|| format!("writing {}", path.display()))
    }
}

#[tokio::test]
async fn what_kpt_live_apply_writes() {
    run("kpt", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let mut package = Package::new(rig, &etcd).await?;
        // What a version says of the two objects, or of these two and a third.
        let two = |at: &str, state: &str| format!("{at} front={state} web={state}");
        let three = |at: &str, state: &str| format!("{at} front={state} more={state} web={state}");
        let (pending, good) = ("Pending/Pending", "Succeeded/Succeeded");

        package.revision("v1")?;
        package.apply_while(Rollout::Ready, true).await?;
        let versions = [two("1/null", "-"), two("1/0", pending), two("1/1", good)];
        package.wrote("the first apply", &versions).await?;
        package.apply(&[WAIT], true).await?;
        package.wrote("nothing has changed", &[two("1/1", pending), two("1/1", good)]).await?;
        package.revision("v2")?;
        package.apply_while(Rollout::Ready, true).await?;
        package.wrote("changed objects", &[two("1/1", pending), two("1/1", good)]).await?;

        package.revision("v3")?;
        package.apply(&["--reconcile-timeout=2s"], false).await?;
        let late = "1/1 front=Succeeded/Timeout web=Succeeded/Succeeded";
        package.wrote("not ready in time", &[two("1/1", pending), late.into()]).await?;
        Flux::set_deployment(&package.api, "default", "front", Rollout::Ready).await?;
        package.wrote("ready when kpt has gone", &[]).await?;
        package.apply(&[WAIT], true).await?;
        package.wrote("applied again", &[two("1/1", pending), two("1/1", good)]).await?;
        package.revision("v4")?;
        package.apply_while(Rollout::Failed, false).await?;
        let failed = "1/1 front=Succeeded/Failed web=Succeeded/Succeeded";
        package.wrote("its progress deadline passes", &[two("1/1", pending), failed.into()]).await?;

        // A changed set of objects is written before their status, which is the old one for one version. At the end
        // both are written again, and observedGeneration is what generation was before: it stays one behind.
        package.revision("v5")?;
        package.write("more.yaml", &config_map("more", "a", "b"))?;
        package.apply_while(Rollout::Ready, true).await?;
        let old = "2/1 front=Succeeded/Failed more=- web=Succeeded/Succeeded".to_owned();
        let versions = [old, three("2/1", pending), three("3/1", pending), three("3/2", good)];
        package.wrote("one object more", &versions).await?;
        package.apply(&[WAIT], true).await?;
        package.wrote("applied again", &[three("3/3", pending), three("3/3", good)]).await?;

        package.write("more.yaml", &config_map("more", "a/b", "refused"))?;
        package.apply(&[WAIT], false).await?;
        let refused = "4/3 front=Succeeded/Succeeded more=Failed/Skipped web=Succeeded/Succeeded";
        let versions = [three("3/3", pending), three("4/3", pending), refused.into()];
        package.wrote("an object of the inventory is refused", &versions).await?;
        package.write("more.yaml", &config_map("more", "a", "b"))?;
        package.apply(&[WAIT], true).await?;
        let versions = [three("4/4", pending), three("5/4", pending), three("5/4", good)];
        package.wrote("accepted again", &versions).await?;

        // A new object that is refused is forgotten at the end: but for observedGeneration, this looks good.
        package.write("other.yaml", &config_map("other", "a/b", "refused"))?;
        for [started, ended, before] in [["6", "7", "4"], ["8", "9", "6"]] {
            let next = |n: &str| (n.parse::<u32>().unwrap_or_default() + 1).to_string();
            let four = |observed: &str, state: &str, other: &str| {
                format!("{started}/{observed} front={state} more={state} other={other} web={state}")
            };
            package.apply(&[WAIT], false).await?;
            let versions = [
                four(before, good, "-"),
                four(&next(before), pending, pending),
                three(&format!("{ended}/{}", next(before)), pending),
                three(&format!("{ended}/{started}"), good),
            ];
            package.wrote("a new object is refused", &versions).await?;
        }
        package
            .write("other.yaml", "apiVersion: example.com/v1\nkind: Unknown\nmetadata: {name: other}\n")?;
        package.apply(&[WAIT], false).await?;
        package.wrote("a kind that is not served", &[]).await?;

        std::fs::remove_file(package.dir.join("other.yaml"))?;
        std::fs::remove_file(package.dir.join("more.yaml"))?;
        let more = package.others.pop().context("no recording")?.versions().await?;
        package.apply(&[WAIT], true).await?;
        let versions = [three("9/9", pending), two("10/9", pending), two("10/9", good)];
        package.wrote("pruned", &versions).await?;
        package.apply(&[WAIT], true).await?;
        package.wrote("applied again", &[two("10/10", pending), two("10/10", good)]).await?;

        package.revision("v6")?;
        let mut running = package.kpt.command([OsStr::new("apply"), package.dir.as_os_str()]).spawn()?;
        let deployments = package.api.dynamic(&deployments(), Some("default")).await?;
        eventually(SOON, "kpt has applied the Deployment", async || {
            let generation = deployments.get("front").await?.metadata.generation;
            ensure!(generation == Some(6), "its generation is {generation:?}");
            Ok(())
        })
        .await?;
        running.kill().await?;
        package.wrote("killed while it waits", &[two("10/10", pending)]).await?;
        Flux::set_deployment(&package.api, "default", "front", Rollout::Ready).await?;
        package.wrote("ready when kpt is dead", &[]).await?;
        package.apply(&[WAIT], true).await?;
        package.wrote("applied again", &[two("10/10", good)]).await?;

        package.revision("v7")?;
        package.apply(&["--reconcile-timeout=2s", "--status-policy=none"], false).await?;
        package.wrote("told to write no status", &[]).await?;

        if let Some(path) = std::env::var_os("STATUSBRIDGE_RECORD") {
            package.save(more, Path::new(&path)).await?;
        }
        Ok(())
    })
    .await;
}
