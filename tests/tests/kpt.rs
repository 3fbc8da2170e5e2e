//! What `kpt live apply` writes into the ResourceGroup that holds a package's inventory, version by version.
//!
//! With `STATUSBRIDGE_RECORD` set to a file, the versions are written there: the ResourceGroup's and those of the
//! objects in the package, in the order in which the API server stored them.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_tests::*;

const WAIT: &str = "--reconcile-timeout=60s";

const REVISION: &str = "example.com/revision";

fn deployments() -> GroupVersionKind {
    GroupVersionKind::gvk("apps", "v1", "Deployment")
}

fn config_maps() -> GroupVersionKind {
    GroupVersionKind::gvk("", "v1", "ConfigMap")
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
struct Recording {
    api: ApiServer,
    package: KptPackage,
    group: History,
    others: Vec<History>,
    seen: usize,
}

impl Recording {
    async fn new(rig: &Rig, etcd: &Etcd) -> Result<Self> {
        let api = ApiServer::start(rig, etcd, "one").await?;
        let package = KptPackage::new(rig, &api, "web").await?;
        let group = GroupVersionKind::gvk("kpt.dev", "v1alpha1", "ResourceGroup");
        let group = History::record(&api, &group, "web", "web").await?;
        let others = vec![
            History::record(&api, &deployments(), "default", "front").await?,
            History::record(&api, &config_maps(), "web", "web").await?,
            History::record(&api, &config_maps(), "default", "more").await?,
        ];
        Ok(Self { api, package, group, others, seen: 0 })
    }

    fn write(&self, file: &str, content: &str) -> Result<()> {
        self.package.write(file, content)
    }

    fn revision(&self, revision: &str) -> Result<()> {
        self.package.revision(revision)?;
        // In the inventory's own file, too: the next `apply` could take it from there.
        let file = self.package.dir().join("resourcegroup.yaml");
        let mut group: Value = serde_saphyr::from_str(&std::fs::read_to_string(&file)?)?;
        group["metadata"]["annotations"] = json!({ REVISION: revision });
        group["metadata"]["labels"][REVISION] = json!(revision);
        Ok(std::fs::write(file, group.to_string())?)
    }

    async fn apply(&self, more: &[&str], succeeds: bool) -> Result<()> {
        self.package.apply(more, succeeds).await
    }

    /// Lets the Deployment do this once kpt waits for it.
    async fn apply_while(&self, rollout: Rollout, succeeds: bool) -> Result<()> {
        let happens = async || Flux::set_deployment(&self.api, "default", "front", rollout).await;
        self.package.apply_while(&[WAIT], succeeds, happens).await
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
        let mut recording = Recording::new(rig, &etcd).await?;
        // What a version says of the two objects, or of these two and a third.
        let two = |at: &str, state: &str| format!("{at} front={state} web={state}");
        let three = |at: &str, state: &str| format!("{at} front={state} more={state} web={state}");
        let (pending, good) = ("Pending/Pending", "Succeeded/Succeeded");

        recording.revision("v1")?;
        recording.apply_while(Rollout::Ready, true).await?;
        let versions = [two("1/null", "-"), two("1/0", pending), two("1/1", good)];
        recording.wrote("the first apply", &versions).await?;
        recording.apply(&[WAIT], true).await?;
        recording.wrote("nothing has changed", &[two("1/1", pending), two("1/1", good)]).await?;
        recording.revision("v2")?;
        recording.apply_while(Rollout::Ready, true).await?;
        recording.wrote("changed objects", &[two("1/1", pending), two("1/1", good)]).await?;

        recording.revision("v3")?;
        recording.apply(&["--reconcile-timeout=2s"], false).await?;
        let late = "1/1 front=Succeeded/Timeout web=Succeeded/Succeeded";
        recording.wrote("not ready in time", &[two("1/1", pending), late.into()]).await?;
        Flux::set_deployment(&recording.api, "default", "front", Rollout::Ready).await?;
        recording.wrote("ready when kpt has gone", &[]).await?;
        recording.apply(&[WAIT], true).await?;
        recording.wrote("applied again", &[two("1/1", pending), two("1/1", good)]).await?;
        recording.revision("v4")?;
        recording.apply_while(Rollout::Failed, false).await?;
        let failed = "1/1 front=Succeeded/Failed web=Succeeded/Succeeded";
        recording.wrote("its progress deadline passes", &[two("1/1", pending), failed.into()]).await?;

        // A changed set of objects is written before their status, which is the old one for one version. At the end
        // both are written again, and observedGeneration is what generation was before: it stays one behind.
        recording.revision("v5")?;
        recording.write("more.yaml", &config_map_manifest("more", "a", "b"))?;
        recording.apply_while(Rollout::Ready, true).await?;
        let old = "2/1 front=Succeeded/Failed more=- web=Succeeded/Succeeded".to_owned();
        let versions = [old, three("2/1", pending), three("3/1", pending), three("3/2", good)];
        recording.wrote("one object more", &versions).await?;
        recording.apply(&[WAIT], true).await?;
        recording.wrote("applied again", &[three("3/3", pending), three("3/3", good)]).await?;

        recording.write("more.yaml", &config_map_manifest("more", "a/b", "refused"))?;
        recording.apply(&[WAIT], false).await?;
        let refused = "4/3 front=Succeeded/Succeeded more=Failed/Skipped web=Succeeded/Succeeded";
        let versions = [three("3/3", pending), three("4/3", pending), refused.into()];
        recording.wrote("an object of the inventory is refused", &versions).await?;
        recording.write("more.yaml", &config_map_manifest("more", "a", "b"))?;
        recording.apply(&[WAIT], true).await?;
        let versions = [three("4/4", pending), three("5/4", pending), three("5/4", good)];
        recording.wrote("accepted again", &versions).await?;

        // A new object that is refused is forgotten at the end: but for observedGeneration, this looks good.
        recording.write("other.yaml", &config_map_manifest("other", "a/b", "refused"))?;
        for [started, ended, before] in [["6", "7", "4"], ["8", "9", "6"]] {
            let next = |n: &str| (n.parse::<u32>().unwrap_or_default() + 1).to_string();
            let four = |observed: &str, state: &str, other: &str| {
                format!("{started}/{observed} front={state} more={state} other={other} web={state}")
            };
            recording.apply(&[WAIT], false).await?;
            let versions = [
                four(before, good, "-"),
                four(&next(before), pending, pending),
                three(&format!("{ended}/{}", next(before)), pending),
                three(&format!("{ended}/{started}"), good),
            ];
            recording.wrote("a new object is refused", &versions).await?;
        }
        recording
            .write("other.yaml", "apiVersion: example.com/v1\nkind: Unknown\nmetadata: {name: other}\n")?;
        recording.apply(&[WAIT], false).await?;
        recording.wrote("a kind that is not served", &[]).await?;

        std::fs::remove_file(recording.package.dir().join("other.yaml"))?;
        std::fs::remove_file(recording.package.dir().join("more.yaml"))?;
        let more = recording.others.pop().context("no recording")?.versions().await?;
        recording.apply(&[WAIT], true).await?;
        let versions = [three("9/9", pending), two("10/9", pending), two("10/9", good)];
        recording.wrote("pruned", &versions).await?;
        recording.apply(&[WAIT], true).await?;
        recording.wrote("applied again", &[two("10/10", pending), two("10/10", good)]).await?;

        recording.revision("v6")?;
        let mut running = recording
            .package
            .kpt()
            .command([OsStr::new("apply"), recording.package.dir().as_os_str()])
            .spawn()?;
        let deployments = recording.api.dynamic(&deployments(), Some("default")).await?;
        eventually(SOON, "kpt has applied the Deployment", async || {
            let generation = deployments.get("front").await?.metadata.generation;
            ensure!(generation == Some(6), "its generation is {generation:?}");
            Ok(())
        })
        .await?;
        running.kill().await?;
        recording.wrote("killed while it waits", &[two("10/10", pending)]).await?;
        Flux::set_deployment(&recording.api, "default", "front", Rollout::Ready).await?;
        recording.wrote("ready when kpt is dead", &[]).await?;
        recording.apply(&[WAIT], true).await?;
        recording.wrote("applied again", &[two("10/10", good)]).await?;

        recording.revision("v7")?;
        recording.apply(&["--reconcile-timeout=2s", "--status-policy=none"], false).await?;
        recording.wrote("told to write no status", &[]).await?;

        if let Some(path) = std::env::var_os("STATUSBRIDGE_RECORD") {
            recording.save(more, Path::new(&path)).await?;
        }
        Ok(())
    })
    .await;
}
