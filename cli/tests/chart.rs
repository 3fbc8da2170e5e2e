//! What the Helm chart knows of the presets: their names, and what each of them has to be allowed to read.
//!
//! `STATUSBRIDGE_UPDATE_DEPLOY=1 cargo test -p statusbridge --test chart` writes it anew.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use statusbridge_exporter::source::{PRESETS, Preset};

fn chart(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/charts/statusbridge-exporter").join(file)
}

/// What a ClusterRole for one preset allows to be watched, as `plural.group`.
fn watched(preset: &str, resource_health: Option<&str>) -> BTreeSet<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statusbridge"));
    command.args(["source", "rbac", "--presets", preset]).env_remove("STATUSBRIDGE_SOURCES");
    if let Some(names) = resource_health {
        command.arg(format!("--resource-health={names}"));
    }
    let out = command.output().expect("the program starts");
    assert!(out.status.success(), "{preset}: {}", String::from_utf8_lossy(&out.stderr));
    let yaml = String::from_utf8(out.stdout).expect("text");
    let role: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.map(|item| item.as_str().expect("a text").to_owned()).collect()
    };
    let mut resources = BTreeSet::new();
    for rule in role["rules"].as_array().expect("rules") {
        if rule["resourceNames"].is_array() {
            continue; // the one namespace that the chart always adds
        }
        assert_eq!(texts(&rule["verbs"]), ["get", "list", "watch"]);
        for (group, plural) in texts(&rule["apiGroups"])
            .iter()
            .flat_map(|g| texts(&rule["resources"]).into_iter().map(move |r| (g, r)))
        {
            resources.insert(if group.is_empty() { plural } else { format!("{plural}.{group}") });
        }
    }
    resources
}

fn list(yaml: &mut String, indent: &str, items: impl IntoIterator<Item = String>) {
    for item in items {
        let _ = writeln!(yaml, "{indent}- {item}");
    }
}

fn generated() -> String {
    let mut yaml =
        "# Made from the presets by cli/tests/chart.rs: what `statusbridge source rbac` says of each.\n\
        presets:\n"
            .to_owned();
    let mut usual = BTreeSet::new();
    for Preset { name, .. } in PRESETS {
        let source = Preset::find(name).expect("a preset").source().expect("presets compile");
        let off = source.watches_resources().then(|| format!("-{name}"));
        let own = watched(name, off.as_deref());
        let _ = writeln!(yaml, "  {name}:");
        if source.watches_resources() {
            let _ = writeln!(yaml, "    watched: true");
            usual = watched(name, None).difference(&own).cloned().collect();
        }
        if own.is_empty() {
            let _ = writeln!(yaml, "    byCategory: true");
        } else {
            let _ = writeln!(yaml, "    resources:");
            list(&mut yaml, "    ", own);
        }
    }
    assert!(
        !usual.is_empty(),
        "no preset watches resources: the chart has to learn the usual ones from elsewhere"
    );
    yaml.push_str("# What packages usually consist of.\nwatched:\n");
    list(&mut yaml, "", usual);
    yaml
}

#[test]
fn the_chart_grants_what_presets_need() {
    let path = chart("files/rbac.yaml");
    let generated = generated();
    if std::env::var_os("STATUSBRIDGE_UPDATE_DEPLOY").is_some() {
        fs::write(&path, &generated).expect("writing the file");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, generated, "{} is out of date: run with STATUSBRIDGE_UPDATE_DEPLOY=1", path.display());
}

#[test]
fn the_chart_knows_every_preset() {
    let schema = fs::read_to_string(chart("values.schema.json")).expect("the schema of the chart's values");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let known = &schema["properties"]["presets"]["items"]["enum"];
    let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    assert_eq!(*known, serde_json::json!(presets), "presets in values.schema.json");

    let values: Value =
        serde_saphyr::from_str(&fs::read_to_string(chart("values.yaml")).expect("the chart's values"))
            .expect("YAML");
    let chosen: BTreeSet<&str> =
        values["presets"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for preset in PRESETS {
        let source = preset.source().expect("presets compile");
        let depends = source.watches_resources() || watched(preset.name, None).is_empty();
        assert_eq!(
            chosen.contains(preset.name),
            preset.is_usual() && !depends,
            "{}: the default are those usual presets whose rights are the same in every cluster",
            preset.name
        );
    }
}
