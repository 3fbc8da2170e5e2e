//! A JSON schema, as CRDs and the format of sources have it, as rows: one for each field.

use serde_json::Value;

use crate::markdown::{code, codes, sentence, table};

/// What a reader wants to know of one field.
struct Field {
    path: String,
    shape: String,
    limits: Vec<String>,
    meaning: String,
}

/// A table of all fields below a schema, whose paths begin with `prefix`.
pub(crate) fn fields(schema: &Value, prefix: &str) -> String {
    let mut found = Vec::new();
    collect(schema, prefix, &mut found);
    let rows = found.into_iter().map(|f| [code(f.path), f.shape, f.limits.join("; "), f.meaning]);
    table(["field", "type", "limits", "meaning"], rows)
}

/// What must hold of a schema as a whole; what the API server says when it does not stands in quotation marks.
pub(crate) fn rules(schema: &Value) -> Vec<String> {
    let messages = items(&schema["x-kubernetes-validations"]).filter_map(|rule| rule["message"].as_str());
    messages.map(|message| format!("“{message}”")).chain(alternatives(schema)).collect()
}

fn collect(schema: &Value, prefix: &str, found: &mut Vec<Field>) {
    let schema = without_null(schema);
    for (name, described) in schema["properties"].as_object().into_iter().flatten() {
        // `false` forbids in one alternative what another has.
        if !described.is_object() {
            continue;
        }
        let field = without_null(described);
        let required = items(&schema["required"]).any(|it| it == name.as_str());
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let mut limits = limits(field);
        if required {
            limits.insert(0, "required".to_owned());
        }
        let meaning = sentence(described["description"].as_str().unwrap_or_default());
        found.push(Field { path: path.clone(), shape: shape(field), limits, meaning });
        collect(field, &path, found);
        collect(&field["items"], &format!("{path}[]"), found);
        collect(&field["additionalProperties"], &format!("{path}.*"), found);
    }
}

/// Where an optional field is written as "this or null", this.
fn without_null(schema: &Value) -> &Value {
    let [this, null] = schema["anyOf"].as_array().map(Vec::as_slice).unwrap_or_default() else {
        return schema;
    };
    if null["type"] == "null" { this } else { schema }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn shape(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    let named = match &schema["type"] {
        Value::Array(types) => types.iter().find(|it| *it != "null").unwrap_or(&Value::Null),
        one => one,
    };
    match (named.as_str().unwrap_or_default(), schema["format"].as_str()) {
        ("array", _) => format!("list of {}", plural(&shape(&schema["items"]))),
        ("object", _) if schema["additionalProperties"].is_object() => {
            format!("map of {}", plural(&shape(&schema["additionalProperties"])))
        }
        ("string", Some("date-time")) => "time".to_owned(),
        ("", _) => "anything".to_owned(),
        (name, _) => name.to_owned(),
    }
}

fn plural(shape: &str) -> String {
    match shape.split_once(' ') {
        _ if shape == "anything" => shape.to_owned(),
        Some((first, rest)) => format!("{first}s {rest}"),
        None => format!("{shape}s"),
    }
}

fn limits(schema: &Value) -> Vec<String> {
    let mut limits = Vec::new();
    if let Some(default) = schema.get("default") {
        limits.push(match default {
            Value::String(text) if text.is_empty() => "default: empty".to_owned(),
            Value::String(text) => format!("default {}", code(text)),
            other => format!("default {}", code(other)),
        });
    }
    if let Some(only) = schema["const"].as_str() {
        limits.push(format!("always {}", code(only)));
    }
    if let Some(words) = schema["enum"].as_array() {
        limits.push(format!("one of {}", codes(words.iter().filter_map(Value::as_str))));
    }
    limits.extend(range(schema, "minLength", "maxLength", " characters"));
    limits.extend(range(schema, "minimum", "maximum", ""));
    limits.extend(range(schema, "minItems", "maxItems", " entries"));
    limits.extend(range(schema, "minProperties", "maxProperties", " entries"));
    if let Some(pattern) = schema["pattern"].as_str() {
        limits.push(format!("matches {}", code(pattern)));
    }
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => limits.push("no two alike".to_owned()),
        Some("map") => {
            let keys = items(&schema["x-kubernetes-list-map-keys"]).filter_map(Value::as_str);
            limits.push(format!("no two with the same {}", codes(keys)));
        }
        _ => {}
    }
    limits.extend(rules(schema));
    for (part, word) in [("items", "each"), ("additionalProperties", "each value")] {
        let part = without_null(&schema[part]);
        let inner = limits_of_part(part);
        limits.extend((!inner.is_empty()).then(|| format!("{word}: {}", inner.join(", "))));
    }
    limits
}

/// What is in a list or a map.
fn limits_of_part(part: &Value) -> Vec<String> {
    if part.is_object() { limits(part) } else { Vec::new() }
}

/// From one bound to the other; a list or a text that merely must not be empty says so.
fn range(schema: &Value, least: &str, most: &str, unit: &str) -> Option<String> {
    let number = |name: &str| schema[name].as_f64();
    match (number(least), number(most)) {
        (None, None) => None,
        (Some(1.0), None) if !unit.is_empty() => Some("not empty".to_owned()),
        (Some(least), None) => Some(format!("at least {least}{unit}")),
        (None, Some(most)) => Some(format!("at most {most}{unit}")),
        (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
    }
}

/// Which fields go together, as far as a schema says so by `required` alone.
fn alternatives(schema: &Value) -> Vec<String> {
    let sets = |list: &Value| -> Vec<String> {
        items(list).map(required).filter(|set| !set.is_empty()).map(|set| codes(set.iter())).collect()
    };
    let mut rules = Vec::new();
    for forbidden in items(&schema["allOf"]).map(|it| required(&it["not"])).filter(|set| !set.is_empty()) {
        rules.push(format!("{} exclude each other", codes(forbidden)));
    }
    if let all @ [_, _, ..] = sets(&schema["anyOf"]).as_slice() {
        rules.push(format!("at least one of {}", all.join(" and ")));
    }
    if let all @ [_, _, ..] = sets(&schema["oneOf"]).as_slice() {
        rules.push(format!("either {}", all.join(" or ")));
    }
    rules
}

fn required(schema: &Value) -> Vec<&str> {
    items(&schema["required"]).filter_map(Value::as_str).collect()
}
