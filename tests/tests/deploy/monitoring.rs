//! What the charts tell monitoring: scrape objects, rules, dashboards.

use super::*;

fn read_json(path: &Path) -> Result<Value> {
    Ok(numbers(serde_json::from_str(&std::fs::read_to_string(path)?)?))
}

/// The same with all numbers of one kind: Helm writes 1 for 1.0.
fn numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.into_iter().map(numbers).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, numbers(value))).collect(),
        other => other,
    }
}

#[tokio::test]
async fn every_scrape_object_has_the_labels_and_the_relabelings() -> Result<()> {
    let cluster = json!({"targetLabel": "cluster", "replacement": "eu-1"});
    for chart in Chart::ALL {
        let values = chart.dir().join("ci/everything-values.yaml");
        let objects = chart.render(NAMESPACE, &["--values", values.to_str().unwrap()]).await?;
        let has = |kind: &str, at: &str, field: &str| -> Result<()> {
            let object = the(&objects, kind, "")?;
            ensure!(object["metadata"]["labels"]["release"] == "prometheus", "{kind}: {object}");
            let of = object.pointer(at).with_context(|| format!("{kind} has no {at}"))?;
            let rules = of[field].as_array().with_context(|| format!("{kind} has no {field}"))?;
            ensure!(rules.contains(&cluster), "{kind}: {rules:?}");
            let metric = format!("metric{}{}", field[..1].to_uppercase(), &field[1..]);
            let dropped = json!([{"action": "labeldrop", "regex": "node"}]);
            ensure!(of[&metric] == dropped, "{kind}: {metric} is {}", of[&metric]);
            Ok(())
        };
        has("PodMonitor", "/spec/podMetricsEndpoints/0", "relabelings")?;
        has("ServiceMonitor", "/spec/endpoints/0", "relabelings")?;
        has("ScrapeConfig", "/spec", "relabelings")?;
        has("VMPodScrape", "/spec/podMetricsEndpoints/0", "relabelConfigs")?;
    }
    Ok(())
}

#[tokio::test]
async fn rules_and_dashboards_are_those_in_dashboards() -> Result<()> {
    let chart = Chart::Aggregator;
    let values = chart.dir().join("ci/kube-prometheus-stack-values.yaml");
    let objects = chart.render(NAMESPACE, &["--values", values.to_str().unwrap()]).await?;
    for file in ["recording", "package-alerts", "bridge-alerts"] {
        let rule = the(&objects, "PrometheusRule", file)?;
        let shipped = read_json(&repository("dashboards/prometheus-operator").join(format!("{file}.json")))?;
        ensure!(numbers(rule["spec"].clone()) == shipped["spec"], "{file} differs");
        let labels = &rule["metadata"]["labels"];
        ensure!(labels["release"] == "prometheus" && labels["role"] == "alert-rules", "{file}: {labels}");
    }
    for board in ["fleet", "package", "cluster", "bridge"] {
        let map = the(&objects, "ConfigMap", board)?;
        ensure!(map["metadata"]["labels"]["grafana_dashboard"] == "1", "{board}: {}", map["metadata"]);
        let text = map["data"][format!("statusbridge-{board}.json")].as_str().context("no dashboard")?;
        let shipped = read_json(&repository("dashboards").join(format!("{board}.json")))?;
        ensure!(numbers(serde_json::from_str(text)?) == shipped, "{board} differs");
    }
    let none = chart.render(NAMESPACE, &[]).await?;
    ensure!(of_kind(&none, "PrometheusRule").next().is_none(), "rules that nobody asked for");
    // They would match nothing.
    let other = ["--set", "rules.enabled=true,clusterLabel=k8s_cluster"];
    let refusal = chart.render(NAMESPACE, &other).await.expect_err("another label").to_string();
    ensure!(refusal.contains("make dashboards"), "{refusal}");
    Ok(())
}

#[tokio::test]
async fn an_exporter_that_reaches_into_another_cluster_gets_no_rights_here() -> Result<()> {
    let values = Chart::Exporter.dir().join("ci/reach-in-values.yaml");
    let objects = Chart::Exporter.render(NAMESPACE, &["--values", values.to_str().unwrap()]).await?;
    ensure!(of_kind(&objects, "ClusterRoleBinding").next().is_none(), "rights");
    let pod = &the(&objects, "Deployment", "")?["spec"]["template"]["spec"];
    ensure!(pod["automountServiceAccountToken"] == json!(false), "{pod}");
    let args = pod["containers"][0]["args"].as_array().context("no arguments")?;
    ensure!(args.contains(&json!("--kubeconfig=/etc/statusbridge/kubeconfig/kubeconfig")), "{args:?}");
    ensure!(pod["volumes"][0]["secret"]["secretName"] == "eu-1", "{pod}");
    Ok(())
}
