//! Writes JSON Schemas for kubeconform: of Kubernetes' own kinds from its OpenAPI document, and of CRDs.
//!
//! ```text
//! schemas OUT SWAGGER CRD…
//! ```
//!
//! A kind's schema is OUT/GROUP/KIND_VERSION.json, with the version for a group in the core. Fields that nobody knows are
//! refused, as the API server does with strict validation.

#![allow(clippy::indexing_slicing, clippy::string_slice)] // what cannot be ends it

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use statusbridge_tests::crds;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let out = args.next().context("usage: schemas OUT SWAGGER CRD…")?;
    let swagger = args.next().context("usage: schemas OUT SWAGGER CRD…")?;
    let text = std::fs::read(&swagger).with_context(|| format!("reading {}", swagger.display()))?;
    of_kubernetes(&out, &serde_json::from_slice(&text)?)?;
    for crd in crds::definitions(&args.collect::<Vec<_>>())? {
        of_crd(&out, crd)?;
    }
    Ok(())
}

fn write(out: &Path, group: &str, version: &str, kind: &str, schema: &Value) -> Result<()> {
    let dir = out.join(if group.is_empty() { version } else { group });
    std::fs::create_dir_all(&dir)?;
    let file = dir.join(format!("{}_{version}.json", kind.to_lowercase()));
    std::fs::write(&file, schema.to_string()).with_context(|| format!("writing {}", file.display()))
}

fn of_kubernetes(out: &Path, swagger: &Value) -> Result<()> {
    let mut definitions = swagger["definitions"].as_object().context("no definitions")?.clone();
    for (name, definition) in &mut definitions {
        // These two say that they are a string, and are written as numbers too.
        if name.ends_with(".IntOrString") || name.ends_with(".Quantity") {
            *definition = json!({"type": ["string", "number"]});
        }
        close(definition);
    }
    for (name, definition) in &definitions {
        let kinds = definition["x-kubernetes-group-version-kind"].as_array().into_iter().flatten();
        for kind in kinds.filter(|_| !definition["properties"]["metadata"].is_null()) {
            let text = |field: &str| kind[field].as_str().unwrap_or_default();
            if text("kind").ends_with("List") {
                continue;
            }
            let mut used = BTreeSet::new();
            collect(definition, &definitions, &mut used);
            used.insert(name);
            let used: Map<String, Value> =
                used.into_iter().map(|name| (name.to_owned(), definitions[name].clone())).collect();
            let schema = json!({"$ref": format!("#/definitions/{name}"), "definitions": used});
            write(out, text("group"), text("version"), text("kind"), &schema)?;
        }
    }
    Ok(())
}

/// The definitions that a schema refers to, and those that they refer to.
fn collect<'a>(schema: &'a Value, all: &'a Map<String, Value>, used: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(fields) => {
            let name =
                fields.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/definitions/"));
            if let Some((name, next)) = name.and_then(|name| Some((name, all.get(name)?)))
                && used.insert(name)
            {
                collect(next, all, used);
            }
            fields.values().for_each(|value| collect(value, all, used));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, all, used)),
        _ => {}
    }
}

/// Lets an object have no other fields than those that its schema names.
fn close(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let open = fields.contains_key("additionalProperties")
        || fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(close);
        if !open {
            fields.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
    }
    for of in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(of) {
            close(inner);
        }
    }
}

fn of_crd(out: &Path, crd: Value) -> Result<()> {
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a CRD without names");
    let (group, kind) = (text(&spec["group"])?, text(&spec["names"]["kind"])?);
    for version in spec["versions"].as_array().into_iter().flatten() {
        let mut schema = version["schema"]["openAPIV3Schema"].clone();
        // The API server knows these without being told.
        for (field, of) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
            schema["properties"][field] = json!({"type": of});
        }
        close(&mut schema);
        write(out, &group, &text(&version["name"])?, &kind, &schema)?;
    }
    Ok(())
}
