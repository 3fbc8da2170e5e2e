//! Nobody can tell a lean object from a whole one, not even when both are rubbish.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

use std::sync::LazyLock;

use proptest::prelude::*;
use serde::de::DeserializeSeed;
use serde_json::{Value, json};
use statusbridge_exporter::source::{PRESETS, Projection, RelatedObject, RelatedObjects, Source};

/// Looks at objects in every way that the language has, and shows what it sees in the key of its hold.
const PRYING: &str = r#"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: prying
spec:
  kinds:
    - {group: a, kind: B, versions: [v1]}
  related:
    - {name: other, kinds: [{group: a, kind: C, versions: [v1]}], reference: {nameExpression: object.metadata.name}}
  variables:
    - name: status
      expression: object.?status.orValue({})
    - name: conditions
      expression: status.?conditions.orValue([])
    - name: both
      expression: "[object, other.orValue({})]"
    - name: firstReady
      expression: conditions.filter(c, c.?type.orValue('') == 'Ready')[?0]
  apply:
    - {whenExpression: "status.?inventory == optional.of({'entries': []})", state: Pending}
    - {whenExpression: "object.?spec.?sourceRef == optional.of({'kind': 'Bucket', 'name': 'x'})", state: Applying}
    - {state: Applied}
  messageExpression: firstReady.optMap(c, c.?message.orValue(''))
  hold:
    whenExpression: status.?history.orValue([]).exists(h, h == status.?history[?0].orValue(''))
    keyExpression: >-
      [[other.?status.orValue({}).size(), size(object.?metadata.orValue({}))], other.?metadata.orValue({}).map(k, k), conditions.map(c, type(c) == string),
       [firstReady.?status.hasValue(), has(object.spec), optional.ofNonZeroValue(other.?spec.orValue({})).hasValue()],
       both.map(o, o.?metadata.?generation.orValue(0) == 1), both.exists(o, o.?status.?artifact.hasValue()),
       object.?spec.?path.orValue('') in ['./', ''], object.?spec.?interval,
       object.?spec[?object.?spec.?prune.orValue(false) == true ? 'sourceRef' : 'wait'].hasValue(),
       conditions.all(c, c.?status.orValue('') != ''), conditions.exists_one(c, c.?reason.orValue('') == 'Succeeded')]
  samples: [{object: {apiVersion: a/v1, kind: B, metadata: {name: a}}}]
"#;

static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let mut sources = Source::parse("prying.yaml", PRYING).expect("it compiles");
    sources.extend(PRESETS.iter().map(|p| p.source().expect("a preset compiles")));
    sources
});

/// Objects to start from: recorded ones and the presets' own samples.
fn objects() -> Vec<Value> {
    let recorded = include_str!("traces/flux-kustomization-1.7.3.jsonl").lines().step_by(6);
    let recorded = recorded.map(|line| serde_json::from_str(line).expect("a line is an object"));
    let samples = PRESETS.iter().flat_map(|preset| {
        let yaml: Value = serde_saphyr::from_str(preset.yaml).expect("a preset is YAML");
        let samples = yaml["spec"]["samples"].as_array().cloned().expect("samples");
        samples.into_iter().flat_map(|s| {
            let related = s["related"].as_object().cloned().unwrap_or_default();
            std::iter::once(s["object"].clone()).chain(related.into_iter().map(|(_, v)| v))
        })
    });
    recorded.chain(samples).collect()
}

fn rubbish() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        Just(json!(-1)),
        Just(json!(0.5)),
        Just(json!(u64::MAX)),
        Just(json!("")),
        Just(json!("Failed")),
        Just(json!("2026-01-02T03:04:05Z")),
        Just(json!([])),
        Just(json!([null, 1, "x", {"type": "Ready", "status": "False", "reason": 5}])),
        Just(json!({})),
        Just(json!({"type": "Ready", "status": {"a": 1}})),
    ]
}

/// Every place in a value, in a fixed order.
fn places(value: &Value, at: &mut Vec<String>, path: &str) {
    at.push(path.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(k, v)| {
            places(v, at, &format!("{path}/{}", k.replace('~', "~0").replace('/', "~1")));
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, v)| places(v, at, &format!("{path}/{i}")))
        }
        _ => {}
    }
}

fn mutate(value: &mut Value, changes: &[(prop::sample::Index, Value)]) {
    for (index, rubbish) in changes {
        let mut at = Vec::new();
        places(value, &mut at, "");
        // Objects stay maps: that much an API server guarantees.
        if let Some(place) =
            value.pointer_mut(&at[index.index(at.len())]).filter(|_| index.index(at.len()) > 0)
        {
            *place = rubbish.clone();
        }
    }
}

fn parse_lean(projection: &Projection, value: &Value) -> Value {
    let text = value.to_string();
    projection.seed().deserialize(&mut serde_json::Deserializer::from_str(&text)).expect("JSON parses")
}

fn check(source: &Source, object: &Value, other: &Value) {
    let whole = RelatedObjects(source.related.iter().map(|_| RelatedObject::One(Some(other))).collect());
    let lean_others: Vec<Value> = source.related.iter().map(|r| parse_lean(&r.projection, other)).collect();
    let lean = RelatedObjects(lean_others.iter().map(|o| RelatedObject::One(Some(o))).collect());
    let lean_object = parse_lean(source.projection(), object);
    assert_eq!(
        source.evaluate(&lean_object, &lean, 0),
        source.evaluate(object, &whole, 0),
        "{object}\n{other}"
    );
    assert_eq!(source.join_keys(&lean_object), source.join_keys(object), "{object}");
    // Nor does it matter how the lean object came about.
    assert_eq!(
        source.evaluate(&source.projection().project(object), &whole, 0),
        source.evaluate(object, &whole, 0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_lean_object_evaluates_like_the_whole_one(
        object in prop::sample::select(objects()),
        other in prop::sample::select(objects()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), rubbish()), 0..6),
        other_changes in prop::collection::vec((any::<prop::sample::Index>(), rubbish()), 0..4),
    ) {
        let (mut object, mut other) = (object, other);
        mutate(&mut object, &changes);
        mutate(&mut other, &other_changes);
        SOURCES.iter().for_each(|source| check(source, &object, &other));
    }
}

#[test]
fn a_lean_object_is_a_small_part_of_a_whole_one() {
    let source = PRESETS.iter().find(|p| p.name == "flux-kustomization").expect("a preset");
    let source = source.source().expect("it compiles");
    let line = include_str!("traces/flux-kustomization-1.7.3.jsonl").lines().last().expect("a version");
    let mut object: Value = serde_json::from_str(line).expect("an object");
    object["status"]["inventory"]["entries"] =
        (0..200).map(|i| json!({"id": format!("apps_app-{i}_apps_Deployment"), "v": "v1"})).collect();
    object["metadata"]["managedFields"] = json!([{"fieldsV1": {"f:spec": {}}}]);
    let lean = parse_lean(source.projection(), &object).to_string();
    assert!(lean.len() < 2500, "{} bytes: {lean}", lean.len());
}
