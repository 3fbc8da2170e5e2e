//! Saved objects say what the cluster says that they come from: whichever kinds, versions, labels and defaults they have, and
//! whatever came and went while they were recorded.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_tests::{ApiServer, Etcd, Exporter, Rig, SOON, eventually, program, run};

use crate::checked;

/// Widgets of one team, and bundles that consist of widgets and other things. A widget looks for its version in a ConfigMap, and
/// for its parts.
const SOURCES: &str = r#"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: widgets
spec:
  kinds:
    - {group: example.org, kind: Widget, versions: [v2, v1], selector: "team in (web, ops),!draft"}
  matchConditions:
    - name: packages
      expression: "!object.?spec.?template.orValue(true)"
  related:
    - name: config
      kinds: [{group: "", kind: ConfigMap, versions: [v1]}]
      reference:
        nameExpression: object.metadata.name
    - name: parts
      kinds: [{group: example.org, kind: Part, versions: [v1]}]
      labels:
        match:
          - {label: widget, valueExpression: object.metadata.name}
  revisions:
    desiredExpression: config.?data.?version
    appliedExpression: object.?status.?version
  apply:
    - whenExpression: object.?status.?version.orValue('') == config.?data.?version.orValue('-')
      state: Applied
    - {state: Pending, reason: NewVersion}
  health:
    - whenExpression: size(parts) < object.?spec.?parts.orValue(9)
      state: InProgress
      reason: PartsMissing
    - {state: Current}
  resources:
    counts:
      totalExpression: object.?spec.?parts.orValue(9)
      currentExpression: size(parts)
      failedExpression: "0"
  samples:
    - object: {apiVersion: example.org/v2, kind: Widget, metadata: {name: a}, spec: {template: false, parts: 1}}
---
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: bundles
spec:
  categories: [bundle]
  revisions:
    desiredExpression: object.?spec.?version
    appliedExpression: object.?spec.?version
  apply: [{state: Applied}]
  health: [{state: Resources, unwatched: {state: Unknown}}]
  resources:
    watch:
      enabled: true
      referencesExpression: object.?spec.?objects
  samples:
    - object: {metadata: {name: a}, spec: {version: v1, objects: []}}
"#;

/// A definition with a default in its spec; the last version is stored.
fn definition(kind: &str, versions: &[&str], category: &str, spec: &Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let properties =
        json!({"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |version: &&str| {
        json!({"name": version, "served": true, "storage": Some(version) == versions.last(),
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.org")},
        "spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "categories": [category]},
            "versions": versions.iter().map(version).collect::<Vec<_>>()}})
}

fn definitions() -> [Value; 3] {
    let of_widgets = json!({"type": "object", "default": {}, "properties": {
        "parts": {"type": "integer", "default": 1}, "template": {"type": "boolean", "default": false}}});
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    [
        definition("Widget", &["v1", "v2"], "all", &of_widgets),
        definition("Part", &["v1"], "all", &anything),
        definition("Bundle", &["v1"], "bundle", &anything),
    ]
}

fn widget(version: &str, name: &str, labels: &Value, running: &str) -> Value {
    json!({"apiVersion": format!("example.org/{version}"), "kind": "Widget",
        "metadata": {"name": name, "namespace": "web", "labels": labels},
        "status": {"version": running, "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn config(name: &str, version: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "web"},
        "data": {"version": version}})
}

fn part(name: &str, of: &str) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Part",
        "metadata": {"name": name, "namespace": "web", "labels": {"widget": of}}})
}

fn bundle(name: &str, widgets: &[&str]) -> Value {
    let widget =
        |name: &&str| json!({"group": "example.org", "kind": "Widget", "namespace": "web", "name": name});
    json!({"apiVersion": "example.org/v1", "kind": "Bundle", "metadata": {"name": name, "namespace": "web"},
        "spec": {"version": "v7", "objects": widgets.iter().map(widget).collect::<Vec<_>>()}})
}

/// What is there at the start, as somebody writes it.
fn objects() -> Vec<Value> {
    let web = json!({"team": "web"});
    let mut template = widget("v2", "template", &web, "1.0");
    template["spec"] = json!({"template": true});
    vec![
        widget("v2", "front", &web, "1.0"),
        // Its definition converts it.
        widget("v1", "back", &json!({"team": "ops"}), "0.9"),
        widget("v2", "foreign", &json!({"team": "others"}), "1.0"),
        widget("v2", "draft", &json!({"team": "web", "draft": ""}), "1.0"),
        template,
        config("front", "1.0"),
        config("back", "1.0"),
        part("door", "front"),
        bundle("whole", &["front", "foreign"]),
        bundle("broken", &["front", "nowhere"]),
    ]
}

/// The kinds that are recorded.
const RECORDED: [&str; 4] = ["widgets.example.org", "parts.example.org", "bundles.example.org", "configmaps"];

/// A watch of a kind by kubectl, which writes its events to a file until it is dropped.
struct Recording {
    file: PathBuf,
    _kubectl: tokio::process::Child,
}

impl Recording {
    fn start(rig: &Rig, api: &ApiServer, kind: &str) -> Result<Self> {
        let file = rig.dir().join(format!("{kind}.jsonl"));
        let kubectl = tokio::process::Command::new(program("kubectl")?)
            .arg("--kubeconfig")
            .arg(api.kubeconfig())
            .args(["get", kind, "-n", "web", "-o", "json", "--watch", "--output-watch-events"])
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&file)?)
            .kill_on_drop(true)
            .spawn()
            .context("starting kubectl")?;
        Ok(Self { file, _kubectl: kubectl })
    }

    fn events(&self) -> Result<Vec<Value>> {
        let text = std::fs::read_to_string(&self.file)?;
        let events = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        // The last one may be written at this moment.
        Ok(events.map_while(Result::ok).collect())
    }

    fn has(&self, kind: &str, name: &str) -> Result<()> {
        let events = self.events()?;
        let is_it = |event: &Value| event["type"] == kind && event["object"]["metadata"]["name"] == name;
        ensure!(events.iter().any(is_it), "no {kind} of {name}: {}", self.file.display());
        Ok(())
    }
}

async fn delete(api: &ApiServer, kind: &str, name: &str) -> Result<()> {
    let of = match kind {
        "ConfigMap" => GroupVersionKind::gvk("", "v1", kind),
        "Widget" => GroupVersionKind::gvk("example.org", "v2", kind),
        _ => GroupVersionKind::gvk("example.org", "v1", kind),
    };
    api.dynamic(&of, Some("web")).await?.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Ends once the exporter says what `check` says about the objects.
async fn agree(
    rig: &Rig,
    exporter: &Exporter,
    args: &[&str],
    name: &str,
    objects: &[Value],
) -> Result<String> {
    let (checked, told) = checked::check(rig, name, args, objects).await?;
    eventually(SOON, &format!("the exporter says what check says of the {name} objects"), async || {
        checked::agree(&exporter.says().await?, &checked)
    })
    .await?;
    Ok(told)
}

#[tokio::test]
async fn saved_objects_say_what_their_cluster_says() {
    run("saved-objects", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        for definition in definitions() {
            api.apply_object(&definition).await?;
        }
        api.ensure_namespace("web").await?;
        let written = objects();
        let mut stored = Vec::new();
        for object in &written {
            stored.push(serde_json::to_value(api.apply_object(object).await?)?);
        }
        let file = rig.dir().join("sources.yaml");
        std::fs::write(&file, SOURCES)?;
        let file = file.display().to_string();
        let args = ["--presets", "", "--sources", &file];
        let exporter = Exporter::start(rig, "exporter", api.kubeconfig(), &args).await?;
        let recordings = RECORDED.map(|kind| Recording::start(rig, &api, kind));
        let [widgets, parts, bundles, configs] = recordings;
        let [widgets, parts, bundles, configs] = [widgets?, parts?, bundles?, configs?];
        let definitions = definitions();
        let with_definitions = |objects: &[Value]| [definitions.as_slice(), objects].concat();

        agree(rig, &exporter, &args, "stored", &with_definitions(&stored)).await?;
        // What nobody wrote, the definitions say.
        let told = agree(rig, &exporter, &args, "written", &with_definitions(&written)).await?;
        let of = |name: &str| told.lines().find(|line| line.contains(&format!(" web/{name} ")));
        let unselected = "has not the labels that widgets selects: team in (web, ops),!draft";
        ensure!(of("draft").is_some_and(|line| line.ends_with(unselected)), "{told}");
        // `foreign` is a part of a bundle all the same.
        ensure!(of("foreign").is_none() && of("front").is_none(), "{told}");
        let (checked, _) = checked::check(rig, "bare", &args, &written).await?;
        ensure!(
            checked.packages().is_empty(),
            "without defaults all are templates: {:?}",
            checked.packages()
        );

        // It goes on, and is recorded.
        eventually(SOON, "all is recorded from the start", async || {
            widgets.has("ADDED", "front")?;
            parts.has("ADDED", "door")?;
            bundles.has("ADDED", "whole")?;
            configs.has("ADDED", "back")
        })
        .await?;
        api.apply_object(&part("hinge", "back")).await?;
        api.apply_object(&config("front", "1.1")).await?;
        delete(&api, "Part", "door").await?;
        delete(&api, "Bundle", "broken").await?;
        delete(&api, "Widget", "foreign").await?;
        api.apply_object(&widget("v2", "late", &json!({"team": "web"}), "1.0")).await?;
        api.apply_object(&bundle("late", &["late"])).await?;
        // It leaves the selection, and one comes in.
        let of_widgets = GroupVersionKind::gvk("example.org", "v2", "Widget");
        let of_widgets = api.dynamic(&of_widgets, Some("web")).await?;
        let labels = |labels: Value| Patch::Merge(json!({"metadata": {"labels": labels}}));
        of_widgets.patch("back", &PatchParams::default(), &labels(json!({"team": "others"}))).await?;
        of_widgets.patch("draft", &PatchParams::default(), &labels(json!({"draft": null}))).await?;
        delete(&api, "ConfigMap", "back").await?;
        eventually(SOON, "all of it is recorded", async || {
            parts.has("DELETED", "door")?;
            bundles.has("ADDED", "late")?;
            widgets.has("MODIFIED", "draft")?;
            configs.has("DELETED", "back")
        })
        .await?;
        let mut recorded = Vec::new();
        for recording in [&configs, &bundles, &parts, &widgets] {
            recorded.extend(recording.events()?);
        }
        let told = agree(rig, &exporter, &args, "recorded", &with_definitions(&recorded)).await?;
        ensure!(!told.contains("late"), "{told}");
        Ok(())
    })
    .await;
}
