//! A CustomResourceDefinition that was saved: what an API server that has it knows about a kind.

use serde_json::{Map, Value};

/// How deep defaults go: no schema that an API server takes is nested deeper.
const MAX_DEPTH: usize = 64;

/// A kind that is defined.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) plural: String,
    pub(super) categories: Vec<String>,
    /// Whether objects of one version become those of another by a new `apiVersion` alone.
    pub(super) converts: bool,
    pub(super) versions: Vec<DefinedVersion>,
}

/// One version of it.
#[derive(Debug)]
pub(super) struct DefinedVersion {
    pub(super) name: String,
    pub(super) served: bool,
    stored: bool,
    pub(super) schema: Value,
}

impl Definition {
    /// Group and kind of what an object defines; `None` when it defines nothing.
    pub(super) fn of(object: &Value) -> Option<((String, String), Self)> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let is_definition = object.get("kind")? == "CustomResourceDefinition"
            && object.get("apiVersion")?.as_str()?.starts_with("apiextensions.k8s.io/");
        let spec = object.get("spec").filter(|_| is_definition)?;
        let names = spec.get("names")?;
        let truth = |value: &Value, field: &str| value.get(field) == Some(&Value::Bool(true));
        let version = |version: &Value| {
            Some(DefinedVersion {
                name: text(version.get("name"))?,
                served: truth(version, "served"),
                stored: truth(version, "storage"),
                schema: version.get("schema").and_then(|schema| schema.get("openAPIV3Schema").cloned())?,
            })
        };
        let strategy = spec.get("conversion").and_then(|conversion| conversion.get("strategy"));
        let categories = names.get("categories").and_then(Value::as_array).into_iter().flatten();
        let versions = spec.get("versions")?.as_array()?.iter();
        let definition = Self {
            plural: text(names.get("plural"))?,
            categories: categories.filter_map(|category| text(Some(category))).collect(),
            converts: strategy.is_none_or(|strategy| strategy == "None"),
            versions: versions.filter_map(version).collect(),
        };
        Some(((text(spec.get("group"))?, text(names.get("kind"))?), definition))
    }

    /// Fills in what an API server fills in when it takes in an object of `version`, and when it reads the object back: so
    /// many values at most, which are taken from those that are left.
    pub(super) fn fill_in(&self, version: &str, object: &mut Value, left: &mut usize) {
        let written = self.versions.iter().filter(|it| it.name == version);
        let stored = self.versions.iter().filter(|it| it.stored && it.name != version);
        for version in written.chain(stored) {
            fill_in(object, &version.schema, MAX_DEPTH, left);
        }
    }
}

/// The defaults of a structural schema, as apiextensions-apiserver has them (`pkg/apiserver/schema/defaulting`).
fn fill_in(value: &mut Value, schema: &Value, depth: usize, left: &mut usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::Object(fields) => {
            let nothing = Map::new();
            let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
            let others = schema.get("additionalProperties").filter(|others| others.is_object());
            for (name, property) in properties {
                if !fields.contains_key(name)
                    && let Some(default) = default(property, left)
                {
                    fields.insert(name.clone(), default);
                }
            }
            for (name, field) in fields {
                if let Some(schema) = properties.get(name).or(others) {
                    fill_in_place(field, schema, depth, left);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| fill_in_place(item, schema, depth, left));
            }
        }
        _ => {}
    }
}

/// The same for a value that is there: a null where none may be counts as missing.
fn fill_in_place(value: &mut Value, schema: &Value, depth: usize, left: &mut usize) {
    if value.is_null()
        && schema.get("nullable") != Some(&Value::Bool(true))
        && let Some(default) = default(schema, left)
    {
        *value = default;
    }
    fill_in(value, schema, depth, left);
}

/// The default of a schema, if so much is left.
fn default(schema: &Value, left: &mut usize) -> Option<Value> {
    let default = schema.get("default")?;
    *left = left.checked_sub(size(default))?;
    Some(default.clone())
}

/// How much there is of a value: its parts, and the bytes of its texts.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn definition() -> Definition {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "paused": {"type": "boolean", "default": false},
                "parts": {"type": "array", "items": {"type": "object", "properties": {"size": {"default": 1}}}},
                "named": {"type": "object", "additionalProperties": {"properties": {"size": {"default": 2}}}},
                "free": {"nullable": true, "default": "x"},
            }},
        }});
        let old = json!({"properties": {"spec": {"properties": {"old": {"default": true}}}}});
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {
            "group": "example.com", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
                {"name": "v1beta1", "served": true, "schema": {"openAPIV3Schema": old}},
            ],
        }});
        let (kind, definition) = Definition::of(&crd).unwrap();
        assert_eq!(kind, ("example.com".to_owned(), "Widget".to_owned()));
        definition
    }

    #[rstest]
    #[case::all_is_missing("v1", json!({}), json!({"spec": {"paused": false, "free": "x"}}))]
    #[case::what_is_there_stays(
        "v1", json!({"spec": {"paused": true, "free": "y"}}), json!({"spec": {"paused": true, "free": "y"}}))]
    #[case::null(
        "v1", json!({"spec": {"paused": null, "free": null}}), json!({"spec": {"paused": false, "free": null}}))]
    #[case::in_lists_and_maps(
        "v1",
        json!({"spec": {"parts": [{}, {"size": 5}], "named": {"a": {}}}}),
        json!({"spec": {"parts": [{"size": 1}, {"size": 5}], "named": {"a": {"size": 2}}, "paused": false, "free": "x"}}))]
    #[case::what_is_no_object_stays("v1", json!({"spec": 5}), json!({"spec": 5}))]
    #[case::of_its_own_version_and_then_of_the_stored_one(
        "v1beta1", json!({"spec": {}}), json!({"spec": {"old": true, "paused": false, "free": "x"}}))]
    fn what_an_api_server_fills_in_is_filled_in(
        #[case] version: &str,
        #[case] mut object: Value,
        #[case] expected: Value,
    ) {
        let mut left = 1_000;
        definition().fill_in(version, &mut object, &mut left);
        assert_eq!(object, expected);
    }

    #[test]
    fn no_more_is_filled_in_than_is_left() {
        let (mut object, mut left) = (json!({"spec": {"parts": [{}, {}, {}]}}), 4);
        definition().fill_in("v1", &mut object, &mut left);
        let sizes = object["spec"]["parts"].as_array().unwrap().iter().filter(|part| part["size"] == 1);
        assert_eq!((sizes.count(), left), (1, 0), "`free` took two, `paused` one: {object}");
    }

    #[test]
    fn nothing_else_is_a_definition() {
        assert!(Definition::of(&json!({"apiVersion": "v1", "kind": "ConfigMap", "spec": {}})).is_none());
        let crd =
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": 5});
        assert!(Definition::of(&crd).is_none());
    }
}
