//! Objects and configurations that the documentation shows.

use anyhow::{Result, ensure};
use serde_json::Value;
use statusbridge_tests::*;

use crate::docs::markdown::{pages, repository};
use crate::docs::nothing_wrong;

/// Every document of the YAML blocks, with where it stands, and what cannot be read.
fn documents() -> (Vec<(String, Value)>, Vec<String>) {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for page in pages() {
        for block in page.blocks.iter().filter(|block| ["yaml", "json"].contains(&block.language.as_str())) {
            match crds::documents(&block.text) {
                Ok(documents) => found.extend(documents.into_iter().map(|it| (page.at(block.line), it))),
                Err(error) => wrong.push(format!("{}: {error:#}", page.at(block.line))),
            }
        }
    }
    (found, wrong)
}

#[test]
fn every_yaml_block_can_be_read() {
    let (found, wrong) = documents();
    nothing_wrong(&wrong);
    assert!(found.len() > 25, "only {} documents", found.len());
}

#[tokio::test]
async fn every_object_of_our_kinds_is_accepted() {
    run("docs-objects", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        api.install_crds(&crds::own()?).await?;
        let (mut wrong, mut shown) = (Vec::new(), 0);
        for (at, mut object) in documents().0 {
            if object["apiVersion"] != "statusbridge.dev/v1alpha1" {
                continue;
            }
            shown += 1;
            object["metadata"]["namespace"] = "default".into();
            let file = rig.dir().join("object.json");
            std::fs::write(&file, object.to_string())?;
            let file = file.display().to_string();
            let apply = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", &file];
            if let Err(error) = api.kubectl(&apply).await {
                wrong.push(format!("{at}: {error:#}"));
            }
        }
        nothing_wrong(&wrong);
        ensure!(shown > 5, "only {shown} objects");
        Ok(())
    })
    .await;
}

#[test]
fn prometheus_takes_the_configuration_that_people_start_from() -> Result<()> {
    let file = repository().join("deploy/pipelines/prometheus.yaml");
    let out =
        std::process::Command::new(program("promtool")?).args(["check", "config"]).arg(&file).output()?;
    ensure!(
        out.status.success(),
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(())
}
