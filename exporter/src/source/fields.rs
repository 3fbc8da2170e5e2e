//! Fields that expressions read and that a kind does not have, as its CustomResourceDefinition says.

use serde_json::Value;
use statusbridge_expression::OBJECT;

use super::{compile::footprint, kind::KindRef, program::Source, projection::Projection};

/// Most fields that are named for one source and kind.
const MOST_NAMED: usize = 20;

impl Source {
    /// What a CustomResourceDefinition says against the fields that expressions read: one text for each that the kind
    /// does not have, at the first version of the source that it serves. Of other kinds, and of a kind whose fields
    /// nobody has written down, nothing is said.
    pub fn unknown_fields(&self, definition: &Value) -> Vec<String> {
        let footprint = footprint(self);
        let own = self.kinds.listed().iter().map(|kind| (kind, OBJECT));
        let related = self.related.iter().flat_map(|r| r.kinds.iter().map(|kind| (kind, r.name.as_str())));
        let mut found = Vec::new();
        for (kind, variable) in own.chain(related) {
            let Some((version, schema)) = schema_of(definition, kind) else { continue };
            let mut fields = Vec::new();
            missing(&footprint.projection(variable), schema, "", &mut fields);
            // What every object has is not in schemas.
            let is_own = |field: &String| !["apiVersion", "kind", "metadata"].contains(&first(field));
            let fields = fields.into_iter().filter(is_own).take(MOST_NAMED);
            found.extend(fields.map(|field| {
                format!(
                    "source {}: reads {variable}.{field}, which {} of {} at version {version} does not have",
                    self.name, kind.kind, kind.group
                )
            }));
        }
        found
    }
}

fn first(field: &str) -> &str {
    field.split(['.', '[']).next().unwrap_or_default()
}

/// The schema of a kind's objects, at the first of its versions that is served.
fn schema_of<'d>(definition: &'d Value, kind: &KindRef) -> Option<(&'d str, &'d Value)> {
    let spec = definition.get("spec")?;
    let is_it = spec.get("group")?.as_str()? == kind.group && spec.get("names")?.get("kind")? == &kind.kind;
    let versions = spec.get("versions")?.as_array().filter(|_| is_it)?;
    kind.versions.iter().find_map(|wanted| {
        let version =
            versions.iter().find(|version| version.get("name").is_some_and(|name| name == wanted))?;
        let served = version.get("served").and_then(Value::as_bool).unwrap_or_default();
        let schema = version.get("schema")?.get("openAPIV3Schema").filter(|_| served)?;
        Some((version.get("name")?.as_str()?, schema))
    })
}

/// Paths of what is read of a value and is not in its schema.
fn missing(read: &Projection, schema: &Value, path: &str, found: &mut Vec<String>) {
    let is = |mark: &str| schema.get(mark).and_then(Value::as_bool).unwrap_or_default();
    if is("x-kubernetes-preserve-unknown-fields") || is("x-kubernetes-embedded-resource") {
        return;
    }
    if let (Some(items), Some(schema)) = (read.read_items(), schema.get("items")) {
        missing(items, schema, &format!("{path}[]"), found);
    }
    for (name, inner) in read.read_fields() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let property = schema.get("properties").and_then(|properties| properties.get(name));
        match property.or_else(|| schema.get("additionalProperties")) {
            Some(schema) => missing(inner, schema, &path, found),
            None => found.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SOURCE: &str = "
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata: {name: widgets}
spec:
  kinds: [{group: example.org, kind: Widget, versions: [v2, v1]}]
  related:
    - name: parts
      kinds: [{group: example.org, kind: Part, versions: [v1]}]
      labels: {match: [{label: a, valueExpression: object.metadata.name}]}
  variables:
    - {name: ready, expression: \"condition(object, 'Ready')\"}
  revisions:
    desiredExpression: object.?spec.?version
    appliedExpression: object.?status.?verzion
  apply:
    - {whenExpression: ready.status == 'True' && ready.?reazon.orValue('') != 'x', state: Applied}
    - {whenExpression: \"parts.all(p, p.?status.?ok.orValue(false))\", state: Applying}
    - {whenExpression: object.?spec.?free.?anything.orValue('') == '', state: Pending}
    - {whenExpression: object.?spec.?texts.?anything.orValue('') == '', state: Pending}
  health: [{state: Current}]
";

    fn definition(kind: &str, versions: Value) -> Value {
        json!({"kind": "CustomResourceDefinition",
            "spec": {"group": "example.org", "names": {"kind": kind}, "versions": versions}})
    }

    fn unknown(definition: &Value) -> Vec<String> {
        let source = Source::parse("f", SOURCE).expect("it compiles").remove(0);
        source.unknown_fields(definition)
    }

    #[test]
    fn fields_that_a_kind_does_not_have_are_named() {
        let text = json!({"type": "string"});
        let condition = json!({"type": "object", "properties": {"type": text, "status": text}});
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "version": text,
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "texts": {"type": "object", "additionalProperties": text},
            }},
            "status": {"type": "object", "properties": {"version": text,
                "conditions": {"type": "array", "items": condition}}},
        }});
        let version = |name: &str, served: bool, schema: &Value| json!({"name": name, "served": served, "schema": {"openAPIV3Schema": schema}});
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let widget = definition("Widget", json!([version("v1", true, &schema), version("v2", false, &open)]));
        let at = "Widget of example.org at version v1 does not have";
        assert_eq!(
            unknown(&widget),
            [
                format!("source widgets: reads object.status.conditions[].reazon, which {at}"),
                format!("source widgets: reads object.status.verzion, which {at}"),
            ]
        );
        let part = definition("Part", json!([version("v1", true, &schema)]));
        assert_eq!(
            unknown(&part),
            ["source widgets: reads parts.status.ok, which Part of example.org at version v1 does not have"]
        );
        for nothing in [
            definition("Widget", json!([version("v1", true, &open)])),
            definition("Other", json!([version("v1", true, &schema)])),
            definition("Widget", json!([version("v3", true, &schema)])),
            definition("Widget", json!("rubbish")),
            json!({}),
        ] {
            assert_eq!(unknown(&nothing), Vec::<String>::new(), "{nothing}");
        }
    }
}
