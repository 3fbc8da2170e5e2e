//! Fields that expressions read and that a kind does not have, as its CustomResourceDefinition says.

use std::collections::BTreeSet;

use serde_json::Value;

use super::kinds::Kinds;
use crate::source::{Projection, Source};

/// Most fields that are named for one variable of a source.
const MOST_NAMED: usize = 20;

impl Kinds {
    /// What definitions say against the fields that a source's expressions read of the package or of what is related
    /// to it: one text for each that none of its kinds has, at the first version of the source that is served. Nothing
    /// is said where one of the kinds is not defined, or nobody has written its fields down.
    pub(crate) fn unknown_fields(&self, source: &Source) -> Vec<String> {
        if !self.has_definitions() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (variable, kinds, read) in source.reads() {
            let of_kinds: Option<Vec<_>> = kinds
                .iter()
                .map(|kind| {
                    let mut fields = BTreeSet::new();
                    missing(&read, self.schema(kind)?, "", &mut fields);
                    Some(fields)
                })
                .collect();
            let in_all = of_kinds.and_then(|all| all.into_iter().reduce(|one, other| &one & &other));
            // What every object has is not in schemas.
            let fields = in_all.into_iter().flatten();
            let fields = fields.filter(|field| !["apiVersion", "kind", "metadata"].contains(&first(field)));
            let names: Vec<&str> = kinds.iter().map(|kind| &*kind.kind).collect();
            let has = if names.len() == 1 { "does not have" } else { "do not have" };
            let names = names.join(" and ");
            found.extend(fields.take(MOST_NAMED).map(|field| {
                format!("source {}: reads {variable}.{field}, which {names} {has}", source.name)
            }));
        }
        found
    }
}

fn first(field: &str) -> &str {
    field.split(['.', '[']).next().unwrap_or_default()
}

/// Paths of what is read of a value and is not in its schema.
fn missing(read: &Projection, schema: &Value, path: &str, found: &mut BTreeSet<String>) {
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
            None => drop(found.insert(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::saved::SavedObject;

    const SOURCE: &str = "
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata: {name: widgets}
spec:
  kinds: [{group: example.org, kind: Widget, versions: [v2, v1]}]
  related:
    - name: parts
      kinds: [{group: example.org, kind: Part, versions: [v1]}, {group: example.org, kind: Piece, versions: [v1]}]
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
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {
            "group": "example.org", "names": {"kind": kind, "plural": kind.to_lowercase()}, "versions": versions}})
    }

    fn unknown(definitions: &[&Value]) -> Vec<String> {
        let source = Source::parse("f", SOURCE).expect("it compiles").remove(0);
        let saved: Vec<_> = definitions.iter().map(|it| SavedObject::new("f", Value::clone(it))).collect();
        Kinds::of(&saved).unknown_fields(&source)
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
        assert_eq!(
            unknown(&[&widget]),
            [
                "source widgets: reads object.status.conditions[].reazon, which Widget does not have",
                "source widgets: reads object.status.verzion, which Widget does not have",
            ]
        );
        let [part, piece, other] = [("Part", &schema), ("Piece", &schema), ("Piece", &open)]
            .map(|(kind, schema)| definition(kind, json!([version("v1", true, schema)])));
        assert_eq!(
            unknown(&[&piece, &part]),
            ["source widgets: reads parts.status.ok, which Part and Piece do not have"]
        );
        assert_eq!(unknown(&[&part, &other]), Vec::<String>::new(), "one has it");
        assert_eq!(unknown(&[&part]), Vec::<String>::new(), "the other is not known");
        for nothing in [
            definition("Widget", json!([version("v1", true, &open)])),
            definition("Other", json!([version("v1", true, &schema)])),
            definition("Widget", json!([version("v3", true, &schema)])),
            definition("Widget", json!("rubbish")),
            json!({}),
        ] {
            assert_eq!(unknown(&[&nothing]), Vec::<String>::new(), "{nothing}");
        }
    }
}
