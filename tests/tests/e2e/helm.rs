//! Releases of a real Helm: the newest version tells, whatever became of the ones before, and what is in a Secret is neither
//! read nor shown.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_tests::*;

const SOURCE: &str = "helm-release";

/// Runs helm, and says whether all went well.
async fn helm(api: &ApiServer, args: &[&str]) -> Result<bool> {
    let mut command = tokio::process::Command::new(program("helm")?);
    command.args(args).args(["--namespace", "web"]).env("KUBECONFIG", api.kubeconfig());
    Ok(command.output().await.context("running helm")?.status.success())
}

/// A chart with one ConfigMap that says so, and may never say anything else.
fn chart(dir: &Path, name: &str, word: &str) -> Result<()> {
    std::fs::create_dir_all(dir.join("templates"))?;
    std::fs::write(dir.join("Chart.yaml"), "apiVersion: v2\nname: payments\nversion: 1.0.0\n")?;
    let object = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\nimmutable: true\ndata: {{word: {word}}}\n"
    );
    Ok(std::fs::write(dir.join("templates/config.yaml"), object)?)
}

#[tokio::test]
async fn the_newest_version_of_a_release_tells_what_became_of_it() {
    run("e2e-helm", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "cluster").await?;
        api.ensure_namespace("web").await?;
        let account = Exporter::grant(&api, &["--presets", SOURCE]).await?;
        let exporter = Exporter::start(rig, "exporter", &account, &["--presets", SOURCE]).await?;
        let shows = async |apply: ApplyState, version: &str, reason: &str| {
            let what = format!("version {version} is {apply}, {reason}");
            eventually(SOON, &what, async || {
                let said = exporter.says().await?;
                said.adds_up()?;
                let shown = said.package(SOURCE, "payments").context("there is no such package")?;
                let applied = if apply == ApplyState::Applied { version } else { "" };
                let expected = (apply, Fingerprint::of(version), Fingerprint::of(applied), Fingerprint::NONE);
                ensure!((shown.apply, shown.desired, shown.applied, shown.healthy) == expected, "{shown:?}");
                ensure!(said.reason(SOURCE, shown.reason) == Some(reason), "{shown:?}");
                ensure!(shown.health == Health::Unknown, "{shown:?}");
                Ok(())
            })
            .await
        };
        let dir = rig.dir().join("chart");
        let chart_dir = dir.display().to_string();
        let upgrade = async |more: &[&str]| {
            helm(&api, &[&["upgrade", "--install", "payments", &chart_dir], more].concat()).await
        };

        chart(&dir, "one", "first")?;
        ensure!(upgrade(&[]).await?, "it is not installed");
        shows(ApplyState::Applied, "1", "NoHealthChecks").await?;

        // The version before is deployed, as its label goes on to say, and some of the next one may be there.
        chart(&dir, "one", "second")?;
        ensure!(!upgrade(&[]).await?, "what may not be changed was changed");
        shows(ApplyState::Failed, "2", "Failed").await?;
        chart(&dir, "two", "second")?;
        ensure!(upgrade(&[]).await?, "it is not upgraded");
        shows(ApplyState::Applied, "3", "NoHealthChecks").await?;
        ensure!(helm(&api, &["rollback", "payments", "1"]).await?, "it is not rolled back");
        shows(ApplyState::Applied, "4", "NoHealthChecks").await?;

        // Older versions are forgotten, and a new exporter finds what there is.
        for n in 5..8 {
            chart(&dir, &format!("n{n}"), "more")?;
            ensure!(upgrade(&["--history-max", "2"]).await?, "version {n}");
        }
        shows(ApplyState::Applied, "7", "NoHealthChecks").await?;
        exporter.process().kill();
        exporter.process().start()?;
        shows(ApplyState::Applied, "7", "NoHealthChecks").await?;

        // A Secret that is newer in everything but its version counts for nothing, and neither does one that is not Helm's.
        let secret = |name: &str, owner: &str| {
            serde_json::json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "web",
                    "labels": {"owner": owner, "name": "payments", "version": "6", "status": "failed"}},
                "stringData": {"release": "nobody reads this"},
            })
        };
        api.apply_object(&secret("late", "helm")).await?;
        api.apply_object(&secret("another", "somebody")).await?;
        chart(&dir, "last", "more")?;
        ensure!(upgrade(&[]).await?, "version 8");
        shows(ApplyState::Applied, "8", "NoHealthChecks").await?;
        ensure!(!exporter.metrics().await?.contains("nobody reads this"));

        ensure!(helm(&api, &["uninstall", "payments"]).await?, "it is not uninstalled");
        api.kubectl(&["delete", "secret", "late", "-n", "web", "--ignore-not-found"]).await?;
        eventually(SOON, "the package is gone", async || {
            let packages = exporter.says().await?.packages();
            ensure!(packages.is_empty(), "{packages:?}");
            Ok(())
        })
        .await
    })
    .await;
}
