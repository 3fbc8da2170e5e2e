//! The kinds in the hub, from their CRDs.

use anyhow::{Context, Result};
use serde_json::Value;
use statusbridge_api::crd;

use crate::markdown::{code, codes, sentence};
use crate::schema;

const HEAD: &str = "\
# API reference: `statusbridge.dev/v1alpha1`

Every field of the kinds in the hub, from their CRDs ([deploy/crds](../deploy/crds)); `kubectl explain` prints the
same. What they are for, how a gate is judged, conditions and reasons: [api.md](api.md).

What breaks one of the *limits* is refused by the API server, with the message that stands in “quotation marks”. Durations are
written `90s`, `10m`, `1h30m`. Everything under `status` is written by the aggregator, or by the reporter that `managedBy` names.
";

/// The page.
pub(crate) fn page() -> Result<String> {
    let mut out = HEAD.to_owned();
    for crd in crd::all()? {
        out.push_str(&kind(&serde_json::to_value(crd)?)?);
    }
    Ok(out)
}

fn kind(crd: &Value) -> Result<String> {
    let names = &crd["spec"]["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let words = |list: &Value| list.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let kind = text(&names["kind"]);
    let versions = crd["spec"]["versions"].as_array().context("a CRD without versions")?;
    let version = versions.first().context("a CRD without a version")?;
    let root = &version["schema"]["openAPIV3Schema"];

    let mut out = format!("\n## {kind}\n\n{}\n\n", sentence(&text(&root["description"])));
    let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    let (wide, columns): (Vec<_>, Vec<_>) =
        columns.partition(|column| column["priority"].as_u64().is_some_and(|priority| priority > 0));
    let titles = |columns: Vec<&Value>| {
        columns.into_iter().map(|column| text(&column["name"])).collect::<Vec<_>>().join(", ")
    };
    let wide =
        if wide.is_empty() { String::new() } else { format!("; with `-o wide` also {}", titles(wide)) };
    out.push_str(&format!(
        "`kubectl get {}` (short: {}) shows {}{wide}.\n",
        text(&names["plural"]),
        codes(words(&names["shortNames"])),
        titles(columns),
    ));
    out.push_str(&list(&schema::rules(root)));
    let (parts, own): (Vec<_>, Vec<_>) =
        ["spec", "status"].into_iter().partition(|part| root["properties"][*part].is_object());
    for part in &parts {
        let schema = &root["properties"][*part];
        out.push_str(&format!("\n### {kind} {part}\n\n"));
        out.push_str(&format!("{}\n", sentence(&text(&schema["description"]))));
        if let Some(default) = schema.get("default") {
            out.push_str(&format!("A new object has {}.\n", code(default)));
        }
        out.push_str(&list(&schema::rules(schema)));
        out.push_str(&format!("\n{}", schema::fields(schema, part)));
    }
    if own.len() == 2 {
        out.push_str(&format!("\n{}", schema::fields(root, "")));
    }
    Ok(out)
}

/// What must hold of the whole.
fn list(rules: &[String]) -> String {
    if rules.is_empty() {
        return String::new();
    }
    let rules = rules.iter().map(|rule| format!("- {rule}\n"));
    format!("\n{}", rules.collect::<String>())
}
