//! What a node makes of a Deployment: which program runs, with which arguments, environment and rights.

use super::*;
use statusbridge_tests::{AggregatorOptions, own_command};

/// The container of a Deployment.
pub(super) fn container(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]
}

/// Its arguments, but the command and where it listens.
pub(super) fn arguments(container: &Value) -> Vec<&str> {
    let all = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    all.skip(1).filter(|arg| !arg.starts_with("--listen=")).collect()
}

/// Its environment as the flags that it stands for. That the program knows the variables by these names is looked up
/// in its help.
pub(super) async fn flags(container: &Value) -> Result<Vec<(String, String)>> {
    let command = container["args"][0].as_str().context("no command")?;
    let help = own_command("statusbridge-aggregator", &[command, "--help"]).await?.output().await?;
    let help = String::from_utf8(help.stdout)?;
    let mut flags = Vec::new();
    for variable in container["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().context("a variable without a name")?;
        let Some(flag) = name.strip_prefix("STATUSBRIDGE_") else { continue };
        let is_known = ["=", "]"].iter().any(|end| help.contains(&format!("[env: {name}{end}")));
        ensure!(is_known, "{command} does not know the variable {name}");
        let value = variable["value"].as_str().with_context(|| format!("{name} is no text"))?;
        flags.push((format!("--{}", flag.to_lowercase().replace('_', "-")), value.to_owned()));
    }
    Ok(flags)
}

/// What an aggregator is started with that runs as its container says, but asks `backend`, and asks every second.
pub(super) async fn aggregator_options(container: &Value, backend: &str) -> Result<AggregatorOptions> {
    let mut options = AggregatorOptions::new(backend);
    for (flag, value) in flags(container).await? {
        match flag.as_str() {
            "--cluster-label" => options.cluster_label = value,
            "--trust" => options.trust = Some(value),
            "--lease-namespace" => options.namespace = value,
            "--backend" | "--poll-interval" | "--settle-delay" => {}
            _ => options.more.extend([flag, value]),
        }
    }
    options.more.extend(arguments(container).into_iter().map(str::to_owned));
    let given = ["--backend", "--trust", "--poll-interval", "--settle-delay", "--cluster-label"];
    ensure!(given.iter().all(|flag| !options.more.iter().any(|more| more == flag)), "given twice");
    Ok(options)
}

/// The kubeconfig of the account that a Deployment names.
pub(super) async fn account(api: &ApiServer, deployment: &Value) -> Result<PathBuf> {
    let account = &deployment["spec"]["template"]["spec"]["serviceAccountName"];
    api.kubeconfig_of_service_account(NAMESPACE, account.as_str().context("no account")?).await
}
