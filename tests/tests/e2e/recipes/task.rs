//! Tekton's Task, and with it every pipeline whose step is `wait`: the Task as Tekton's own CRD takes it, and its step run
//! with the real program.

use super::*;

/// A Task's only step with these parameters.
fn step(task: &Value, values: &[(&str, &str)]) -> Result<Value> {
    let params = task["spec"]["params"].as_array().context("no params")?;
    let value = |param: &Value| -> Result<(String, String)> {
        let name = param["name"].as_str().context("a param without a name")?;
        let given = values.iter().find(|(given, _)| *given == name).map(|(_, value)| *value);
        let value = given.or(param["default"].as_str()).with_context(|| format!("no value for {name}"))?;
        Ok((format!("$(params.{name})"), value.to_owned()))
    };
    let words = params.iter().map(value).collect::<Result<Vec<_>>>()?;
    let words: Vec<(&str, &str)> = words.iter().map(|(old, new)| (&**old, &**new)).collect();
    let step = pod::with(&task["spec"]["steps"][0], &words)?;
    ensure!(!step.to_string().contains("$("), "something is left to be replaced: {step}");
    Ok(step)
}

#[tokio::test]
async fn a_task_of_tekton_ends_well_only_while_the_gate_is_open_for_its_revision() {
    run("e2e-recipes-task", async |rig| {
        let one = One::start(rig).await?;
        let hub = &one.hub;
        hub.api.install_crds(&crds::consumer("tekton")?).await?;
        is_accepted(&hub.api, "tekton.yaml").await?;
        let task = recipe("tekton.yaml")?.pop().context("no Task")?;
        wait_rights(&hub.api, "pipeline").await?;
        let account = hub.api.kubeconfig_of_service_account("default", "pipeline").await?;
        let ends = async |number: u32, timeout: &str| {
            let revision = revision(number);
            let values = [("gate", "wave-1"), ("namespace", "default"), ("revision", &*revision)];
            pod::run_container(&step(&task, &[&values[..], &[("timeout", timeout)]].concat())?, &account)
                .await
        };
        let fails = |ended: pod::Ended, code: i32, words: &str| {
            ensure!(ended.code == code && ended.said.contains(words), "{ended:?}");
            Ok(())
        };

        fails(ends(2, "3s").await?, 4, "there is no such object")?;
        let spec = |more: Value| {
            let mut spec = json!({"clusters": {"names": ["c1"]}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        };
        hub.gate("wave-1", APP, &revision(2), spec(json!({}))).await?;
        fails(ends(2, "3s").await?, 4, "the time is over")?;
        // It waits until the cluster is there.
        let (ended, ()) = tokio::try_join!(ends(2, "90s"), async {
            one.at(2);
            Ok(())
        })?;
        fails(ended, 0, "open: Healthy")?;
        fails(ends(3, "3s").await?, 4, "OtherRevision")?;

        // A person's word, either way.
        let word = |state: &str| json!({"override": {"state": state, "reason": "incident 7"}});
        hub.gate("wave-1", APP, &revision(2), spec(word("Closed"))).await?;
        hub.closes("wave-1", "Overridden", SOON).await?;
        fails(ends(2, "3s").await?, 4, "incident 7")?;
        hub.gate("wave-1", APP, &revision(3), spec(word("Open"))).await?;
        fails(ends(3, "90s").await?, 0, "open: Overridden")?;

        // Nobody judges, and then there is no hub to ask.
        hub.aggregator.process().kill();
        hub.gate("wave-1", APP, &revision(4), spec(json!({}))).await?;
        fails(ends(4, "3s").await?, 4, "has not been judged yet")?;
        hub.api.stop();
        fails(ends(4, "3s").await?, 4, "the hub's API server does not answer")
    })
    .await;
}
