//! A recipe's pod, run here as a kubelet would: its containers one after the other, with the real programs and with the
//! rights of its service account.

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use statusbridge_tests::{ApiServer, own_program, program};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The program in our image, which is in no directory of its PATH.
const ENTRY_POINT: &str = "/statusbridge";

/// How a pod ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Exit code of its first container that failed, or 0.
    pub(super) code: i32,
    /// All that its containers printed.
    pub(super) said: String,
}

/// Kubeconfig file of the service account that a pod runs as.
pub(super) async fn account(api: &ApiServer, pod: &Value) -> Result<PathBuf> {
    let name = pod["serviceAccountName"].as_str().context("no service account")?;
    api.kubeconfig_of_service_account("default", name).await
}

/// Runs the containers of a pod (`spec` of it) until one fails.
pub(super) async fn run(pod: &Value, account: &Path) -> Result<Ended> {
    let containers = |field: &str| pod[field].as_array().cloned().unwrap_or_default();
    let mut said = String::new();
    for container in containers("initContainers").into_iter().chain(containers("containers")) {
        let ended = run_container(&container, account).await?;
        said.push_str(&ended.said);
        if ended.code != 0 {
            return Ok(Ended { code: ended.code, said });
        }
    }
    Ok(Ended { code: 0, said })
}

/// Runs one container until it ends.
pub(super) async fn run_container(container: &Value, account: &Path) -> Result<Ended> {
    let words = |field: &str| -> Vec<String> {
        let words = container[field].as_array().into_iter().flatten();
        words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let own = own_program("statusbridge").await?;
    let mut line = words("command");
    if line.is_empty() {
        line.push(ENTRY_POINT.to_owned());
    }
    line.extend(words("args"));
    let kubectl = program("kubectl")?;
    let path = [kubectl.parent(), Some(Path::new("/usr/bin")), Some(Path::new("/bin"))];
    let path = std::env::join_paths(path.into_iter().flatten())?;
    let program = if line[0] == ENTRY_POINT { own.as_os_str() } else { line[0].as_ref() };
    let mut command = tokio::process::Command::new(program);
    command.args(&line[1..]).env_clear().env("PATH", path).env("KUBECONFIG", account);
    // Where kubectl keeps its cache.
    command.env("HOME", account.parent().context("a kubeconfig that lies nowhere")?);
    for variable in container["env"].as_array().into_iter().flatten() {
        let text = |field: &str| variable[field].as_str().context("a variable without name or value");
        command.env(text("name")?, text("value")?);
    }
    let out = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let said = [out.stdout, out.stderr].concat();
    let code = out.status.code().context("it was killed")?;
    Ok(Ended { code, said: String::from_utf8_lossy(&said).into_owned() })
}

/// Says in a Job's status how its pod ended.
pub(super) async fn ends(jobs: &Api<Job>, name: &str, ended: &Ended) -> Result<()> {
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": jiff::Timestamp::now()});
    let mut status = json!({"startTime": jiff::Timestamp::now()});
    if ended.code == 0 {
        status["completionTime"] = json!(jiff::Timestamp::now());
        status["succeeded"] = json!(1);
        status["conditions"] = json!([condition("SuccessCriteriaMet"), condition("Complete")]);
    } else {
        status["failed"] = json!(1);
        status["conditions"] = json!([condition("FailureTarget"), condition("Failed")]);
    }
    let patch = Patch::Merge(json!({"status": status}));
    jobs.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// An object with words of a recipe replaced by a test's own, wherever they stand.
pub(super) fn with(object: &Value, words: &[(&str, &str)]) -> Result<Value> {
    let mut text = object.to_string();
    for (old, new) in words {
        anyhow::ensure!(text.contains(old), "{old} does not stand in the recipe");
        text = text.replace(old, new);
    }
    Ok(serde_json::from_str(&text)?)
}

#[test]
fn the_entry_point_is_that_of_the_image() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/Containerfile");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(&format!("ENTRYPOINT [\"{ENTRY_POINT}\"]")), "{text}");
}
