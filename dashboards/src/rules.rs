//! Rule files, and the same wrapped for the Prometheus operator.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::placeholder::Placeholders;

/// The templates.
const TEMPLATES: [(&str, &str); 3] = [
    ("recording", include_str!("rules/recording.yaml.in")),
    ("package-alerts", include_str!("rules/package-alerts.yaml.in")),
    ("bridge-alerts", include_str!("rules/bridge-alerts.yaml.in")),
];

/// Leaves out the links to runbooks: better none than one that leads nowhere.
fn without_runbooks(template: &str) -> String {
    template.lines().filter(|line| !line.contains("<<runbooks>>")).map(|line| format!("{line}\n")).collect()
}

/// Every file with rules.
pub(crate) fn render(placeholders: &Placeholders) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for (name, template) in TEMPLATES {
        let template =
            if placeholders.has("runbooks") { template.to_owned() } else { without_runbooks(template) };
        let text = placeholders.fill(&template).with_context(|| format!("the rules {name}"))?;
        let rules: Value = serde_saphyr::from_str(&text).with_context(|| format!("the rules {name}"))?;
        let object = json!({
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {
                "name": format!("statusbridge-{name}"),
                "labels": {"app.kubernetes.io/part-of": "statusbridge"},
            },
            "spec": rules,
        });
        let mut wrapped = serde_json::to_string_pretty(&object)?;
        wrapped.push('\n');
        files.insert(format!("rules/{name}.yaml"), text);
        files.insert(format!("prometheus-operator/{name}.json"), wrapped);
    }
    Ok(files)
}
