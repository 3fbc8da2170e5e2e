//! What an API server does with an object before it stores it, by the same CRDs: refuses what the schema or a rule of it
//! forbids, and fills in defaults. Fields that a schema does not know are refused too, where an API server would drop
//! them.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, anyhow};
use regex::Regex;
use serde_json::Value;
use statusbridge_api::crd;
use statusbridge_core::reconcile::object::Kind;
use statusbridge_expression::{Expression, Scope};

use super::stored::DECLARED;

/// How many steps a rule may take: names of 10,000 clusters are looked at one by one.
const STEPS: u64 = 10_000_000;
/// Most that is shown of what was found.
const SHOWN: usize = 80;

/// A rule of a schema, in a form that runs.
enum Rule {
    /// On one version.
    Expression(Box<Expression>),
    /// On two versions: what differs there is another object (`stored::identity`).
    Immutable,
}

/// The schemas of the kinds that people write.
pub(super) struct Schemas {
    kinds: BTreeMap<Kind, Value>,
    /// By their text.
    rules: HashMap<String, Rule>,
    /// By their text.
    patterns: HashMap<String, Regex>,
}

impl Schemas {
    /// Those of the CRDs that this program comes with.
    pub(super) fn new() -> Result<Self> {
        let mut schemas = Self { kinds: BTreeMap::new(), rules: HashMap::new(), patterns: HashMap::new() };
        for crd in crd::all()? {
            let crd = serde_json::to_value(crd)?;
            let name = crd.pointer("/spec/names/kind").and_then(Value::as_str).unwrap_or_default();
            let kind = DECLARED.into_iter().find(|kind| kind.name() == name);
            let Some(kind) = kind else { continue };
            let schema =
                crd.pointer("/spec/versions/0/schema/openAPIV3Schema").context("a CRD without schema")?;
            schemas.compile(schema)?;
            schemas.kinds.insert(kind, schema.clone());
        }
        Ok(schemas)
    }

    fn compile(&mut self, schema: &Value) -> Result<()> {
        for (text, _) in rules(schema) {
            let rule = if text.contains("oldSelf") {
                Rule::Immutable
            } else {
                let compiled = Expression::compile("rule", text, &["self"]);
                let compiled = compiled.map_err(|error| anyhow!("rule `{text}` of a CRD: {error}"))?;
                Rule::Expression(Box::new(compiled))
            };
            self.rules.insert(text.to_owned(), rule);
        }
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
            self.patterns.insert(pattern.to_owned(), Regex::new(pattern)?);
        }
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let below = ["items", "additionalProperties"].into_iter().filter_map(|field| schema.get(field));
        properties.map(|(_, schema)| schema).chain(below).try_for_each(|schema| self.compile(schema))
    }

    /// Fills in the defaults of an object.
    ///
    /// # Errors
    /// With the first field that is wrong, what was found there, and what is expected.
    pub(super) fn check(&self, kind: Kind, object: &mut Value) -> Result<(), String> {
        let Some(schema) = self.kinds.get(&kind) else { return Ok(()) };
        let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let expected = kind.resource().api_version;
        if version != expected {
            return Err(format!("apiVersion: found {version}, expected {expected}"));
        }
        self.value("", schema, object)
    }

    fn value(&self, at: &str, schema: &Value, value: &mut Value) -> Result<(), String> {
        let wrong = |value: &Value, expected: String| {
            Err(format!("{at}: found {}, expected {expected}", shown(value)))
        };
        if let Some(expected) = expected_type(schema, value) {
            return wrong(value, expected);
        }
        if let Some(choices) = schema.get("enum").and_then(Value::as_array)
            && !choices.contains(value)
        {
            let choices: Vec<_> = choices.iter().map(shown).collect();
            return wrong(value, format!("one of {}", choices.join(", ")));
        }
        let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
        let sizes = match value {
            Value::String(text) => Some((text.chars().count() as f64, "Length", "characters")),
            Value::Array(items) => Some((items.len() as f64, "Items", "items")),
            Value::Object(fields) => Some((fields.len() as f64, "Properties", "entries")),
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or_default();
                if bound("minimum").is_some_and(|least| number < least) {
                    return wrong(value, format!("at least {}", bound("minimum").unwrap_or_default()));
                }
                if bound("maximum").is_some_and(|most| number > most) {
                    return wrong(value, format!("at most {}", bound("maximum").unwrap_or_default()));
                }
                None
            }
            Value::Null | Value::Bool(_) => None,
        };
        if let Some((size, of, what)) = sizes {
            if let Some(least) = bound(&format!("min{of}")).filter(|least| size < *least) {
                return Err(format!("{at}: found {size} {what}, expected at least {least}"));
            }
            if let Some(most) = bound(&format!("max{of}")).filter(|most| size > *most) {
                return Err(format!("{at}: found {size} {what}, expected at most {most}"));
            }
        }
        if let (Some(pattern), Some(text)) = (schema.get("pattern").and_then(Value::as_str), value.as_str())
            && !self.patterns.get(pattern).is_some_and(|pattern| pattern.is_match(text))
        {
            return wrong(value, format!("a text that matches {pattern}"));
        }
        if schema.get("format").and_then(Value::as_str) == Some("date-time")
            && value.as_str().is_none_or(|text| text.parse::<jiff::Timestamp>().is_err())
        {
            return wrong(value, "a time such as 2026-01-31T12:00:00Z".to_owned());
        }
        match value {
            Value::Object(fields) => {
                let properties = schema.get("properties").and_then(Value::as_object);
                // A null counts as left out, as an API server has it.
                fields.retain(|_, value| !value.is_null());
                for (name, schema) in properties.into_iter().flatten() {
                    if let Some(default) = schema.get("default").filter(|_| !fields.contains_key(name)) {
                        fields.insert(name.clone(), default.clone());
                    }
                }
                let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
                for name in required.filter_map(Value::as_str) {
                    if !fields.contains_key(name) {
                        return Err(format!("{}: found nothing, expected a value", below(at, name)));
                    }
                }
                let others = schema.get("additionalProperties").filter(|schema| schema.is_object());
                // Of metadata, apiVersion and kind a schema says nothing.
                let is_free = properties.is_none() && others.is_none();
                for (name, value) in fields.iter_mut().filter(|_| !is_free) {
                    let place = below(at, name);
                    match properties.and_then(|all| all.get(name)).or(others) {
                        Some(schema) => self.value(&place, schema, value)?,
                        None if at.is_empty()
                            && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) => {}
                        None => {
                            let known = properties.into_iter().flatten().map(|(name, _)| name.as_str());
                            let known: Vec<_> = known.collect();
                            return Err(format!(
                                "{place}: found an unknown field, expected one of {}",
                                known.join(", ")
                            ));
                        }
                    }
                }
            }
            Value::Array(items) => {
                if let Some(of) = schema.get("items") {
                    for (number, item) in items.iter_mut().enumerate() {
                        self.value(&format!("{at}[{number}]"), of, item)?;
                    }
                }
                unique(at, schema, items)?;
            }
            _ => {}
        }
        self.rules(at, schema, value)
    }

    fn rules(&self, at: &str, schema: &Value, value: &Value) -> Result<(), String> {
        for (text, message) in rules(schema) {
            let holds = match self.rules.get(text) {
                Some(Rule::Expression(rule)) => {
                    let mut scope = Scope::with_steps(STEPS);
                    scope.bind("self", value);
                    rule.truth(&mut scope).map_err(|error| format!("{at}: {error}"))?
                }
                Some(Rule::Immutable) | None => true,
            };
            if !holds {
                let at = if at.is_empty() { "the object" } else { at };
                return Err(format!("{at}: found {}, and {message}", shown(value)));
            }
        }
        Ok(())
    }
}

/// The rules of one level of a schema, each with its message.
fn rules(schema: &Value) -> impl Iterator<Item = (&str, &str)> {
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
    rules.filter_map(|rule| {
        let message = rule.get("message").and_then(Value::as_str).unwrap_or("a rule forbids it");
        Some((rule.get("rule")?.as_str()?, message))
    })
}

/// The type that is expected where it is another.
fn expected_type(schema: &Value, value: &Value) -> Option<String> {
    let either = schema.get("x-kubernetes-int-or-string").and_then(Value::as_bool) == Some(true);
    let (fits, expected) = match schema.get("type").and_then(Value::as_str) {
        _ if either => (value.is_i64() || value.is_string(), "a whole number or a text"),
        Some("object") => (value.is_object(), "fields"),
        Some("array") => (value.is_array(), "a list"),
        Some("string") => (value.is_string(), "a text (put it in quotes)"),
        Some("integer") => (value.is_i64(), "a whole number"),
        Some("number") => (value.is_number(), "a number"),
        Some("boolean") => (value.is_boolean(), "true or false"),
        _ => (true, ""),
    };
    (!fits).then(|| expected.to_owned())
}

/// A list that is a set, or a map by some of its fields, has nothing twice.
fn unique(at: &str, schema: &Value, items: &[Value]) -> Result<(), String> {
    let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    let key = |item: &Value| match (schema.get("x-kubernetes-list-type").and_then(Value::as_str), keys) {
        (Some("set"), _) => Some(item.to_string()),
        (Some("map"), Some(keys)) => {
            let values = keys.iter().filter_map(Value::as_str).map(|key| item.get(key).cloned());
            Some(format!("{:?}", values.collect::<Vec<_>>()))
        }
        _ => None,
    };
    let mut seen = std::collections::BTreeSet::new();
    for (number, item) in items.iter().enumerate() {
        if let Some(key) = key(item)
            && !seen.insert(key)
        {
            return Err(format!("{at}[{number}]: found {} twice, expected it once", shown(item)));
        }
    }
    Ok(())
}

fn below(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

/// What was found, and not too much of it.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN).and_then(|(end, _)| text.get(..end)) {
        Some(beginning) => format!("{beginning}…"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn gate(change: Value) -> Value {
        let mut spec =
            json!({"fleetPackageRef": {"name": "p"}, "revision": "r1", "clusters": {"names": ["a"]}});
        for (field, value) in change.as_object().unwrap() {
            spec[field] = value.clone();
        }
        json!({
            "apiVersion": "statusbridge.dev/v1alpha1",
            "kind": "RolloutGate",
            "metadata": {"name": "wave-1", "namespace": "default"},
            "spec": spec,
        })
    }

    #[test]
    fn defaults_are_filled_in_and_a_fresh_gate_reads_as_pending() {
        let mut object = gate(json!({"override": null}));
        Schemas::new().unwrap().check(Kind::RolloutGate, &mut object).unwrap();
        assert_eq!(object["spec"]["require"], "Healthy");
        assert_eq!(object["status"]["observedGeneration"], -1);
        assert!(object["spec"].get("override").is_none());
    }

    #[rstest]
    #[case::another_type(json!({"revision": 5}), "spec.revision: found 5, expected a text (put it in quotes)")]
    #[case::unknown(json!({"minHealty": 1}), "spec.minHealty: found an unknown field, expected one of approval, checks,")]
    #[case::missing(json!({"revision": null}), "spec.revision: found nothing, expected a value")]
    #[case::long(json!({"revision": "r".repeat(4097)}), "spec.revision: found 4097 characters, expected at most 4096")]
    #[case::a_choice(json!({"require": "Happy"}), "spec.require: found \"Happy\", expected one of \"Healthy\", \"Applied\"")]
    #[case::white_space(json!({"revision": " r"}), "spec.revision: found \" r\", and revision must not begin or end with")]
    #[case::a_rule(json!({"clusters": {}}), "spec.clusters: found {}, and exactly one of")]
    #[case::a_number(json!({"minHealthy": 0}), "spec.minHealthy: found 0, expected at least 1")]
    #[case::a_share(json!({"maxFailures": "200%"}), "spec.maxFailures: found \"200%\", expected")]
    #[case::a_duration(json!({"minSuccessTime": "soon"}), "spec.minSuccessTime: found \"soon\", and minSuccessTime must be")]
    #[case::a_short_one(json!({"progressDeadline": "0s"}), "spec.progressDeadline: found \"0s\", and progressDeadline must be at")]
    #[case::bounds(json!({"checks": [{"name": "c", "query": "up", "min": 2, "max": 1.5}]}), "spec.checks[0]: found")]
    #[case::twice(json!({"dependsOn": [{"name": "a"}, {"name": "a"}]}), "spec.dependsOn[1]: found {\"name\":\"a\"} twice")]
    #[case::itself(json!({"dependsOn": [{"name": "wave-1"}]}), "the object: found")]
    #[case::a_time(json!({"override": {"state": "Open", "reason": "r", "until": "noon"}}), "spec.override.until: found \"noon\"")]
    fn what_an_api_server_refuses_is_refused(#[case] change: Value, #[case] expected: &str) {
        let error = Schemas::new().unwrap().check(Kind::RolloutGate, &mut gate(change)).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }

    #[rstest]
    #[case(json!({"minHealthy": "50%", "maxFailures": 0, "minSuccessTime": "1h30m"}))]
    #[case(json!({"checks": [{"name": "c", "query": "up", "min": 1, "max": 1.5}]}))]
    #[case(json!({"clusters": {"selector": {"matchLabels": {"wave": "1"}}}}))]
    #[case(json!({"clusters": {"names": (0..10_000).map(|n| n.to_string()).collect::<Vec<_>>()}}))]
    fn what_an_api_server_takes_is_taken(#[case] change: Value) {
        Schemas::new().unwrap().check(Kind::RolloutGate, &mut gate(change)).unwrap();
    }
}
