use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::outcome::{MAX_REASON, MAX_REVISION};

fn object() -> Value {
    json!({
        "metadata": {"name": "a", "generation": 3, "labels": {"b": "2", "a": "1"}},
        "spec": {"nothing": null, "on": true, "big": 18446744073709551615u64, "half": 0.5, "list": [1, "x", null]},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "Fine", "observedGeneration": 3},
            {"type": "Odd", "status": 5},
        ]},
    })
}

fn with<T>(text: &str, read: impl FnOnce(&Expression, &mut Scope<'_>) -> T) -> T {
    let object = object();
    let mut scope = Scope::default();
    scope.bind("object", &object);
    scope.bind_optional("missing", None);
    scope.bind_optional("present", Some(&object));
    let expression = Expression::compile("f", text, &["object", "missing", "present"]).expect(text);
    read(&expression, &mut scope)
}

#[rstest]
#[case("object.metadata.generation == 3")]
#[case("object.metadata.generation - 10 == -7")]
#[case("object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')")]
#[case("object.status.conditions[0] == object.status.conditions.filter(c, c.type == 'Ready')[0]")]
#[case("object.spec.?nothing.orValue('default') == 'default'")]
#[case("!has(object.spec.nothing) && !('nothing' in object.spec) && 'on' in object.spec")]
#[case("object.?status.?nothing.?deeper.orValue('') == ''")]
#[case("object.metadata.labels.map(k, k) == ['a', 'b'] && size(object.metadata.labels) == 2")]
#[case("object.metadata.labels == {'a': '1', 'b': '2'} && object.metadata.labels != {'a': '1'}")]
#[case("object.spec.list == [1, 'x', null] && object.spec.list[2] == null")]
#[case("object.spec.big == 18446744073709551615u && object.spec.half == 0.5")]
#[case("condition(object, 'Ready').status == 'True' && condition(object, 'Ready').observedGeneration == 3")]
#[case("condition(object, 'Nope').status == '' && condition(object, 'Nope').type == 'Nope'")]
#[case("!condition(object, 'Nope').?observedGeneration.hasValue()")]
#[case("!has(condition(object, 'Nope').observedGeneration) && has(condition(object, 'Nope').reason)")]
#[case("condition(missing, 'Ready').status == '' && condition(present, 'Ready').reason == 'Fine'")]
#[case("condition(object.metadata, 'Ready').status == ''")]
#[case("type(object) == map && type(object.metadata.name) == string && type(object.spec.big) == uint")]
#[case("!missing.hasValue() && present.?metadata.?name.orValue('') == 'a'")]
#[case("present.optMap(p, p.metadata.name).orValue('') == 'a'")]
#[case("'a-0f'.substring(size('a-0f') - 2) == '0f' && 'éab'.substring(1, 2) == 'a'")]
#[case("optional.ofNonZeroValue(object.spec).hasValue() && !optional.ofNonZeroValue('').hasValue()")]
#[case("equivalent(object.spec.on, true) && !equivalent(object.spec.on, false)")]
#[case("equivalent(object.spec, present.spec) && !equivalent(object.spec, object.metadata)")]
#[case("equivalent({'a': 1, 'b': false, 'c': {'d': '', 'e': []}}, {'a': 1})")]
#[case("equivalent({'a': 1}, {'a': 1, 'b': 0, 'c': {'d': {}}})")]
#[case("!equivalent({'a': 1, 'b': true}, {'a': 1}) && !equivalent({'a': 1}, {'a': 1, 'b': 'x'})")]
#[case("!equivalent({'a': {'b': 1}}, {'a': {'b': 2}}) && !equivalent({'a': 1}, {'a': '1'})")]
#[case("equivalent([{'a': 1, 'b': ''}], [{'a': 1}]) && !equivalent([1, 2], [2, 1])")]
#[case(
    "!equivalent([1], [1, 1]) && !equivalent([0], ['']) && !equivalent([0], []) && !equivalent([1, 0], [1])"
)]
#[case("equivalent(missing, missing) && equivalent(missing, {}) && !equivalent(missing, present)")]
#[case("equivalent(object.metadata.?nope, '') && equivalent(object.metadata.?name, 'a')")]
#[case(
    "equivalent({'labels': {'a': '1', 'b': '2'}, 'name': 'a', 'generation': 3, 'x': ''}, object.metadata)"
)]
#[case(
    "equivalent(object.metadata, {'labels': {'a': '1', 'b': '2'}, 'name': 'a', 'generation': 3, 'x': ''})"
)]
#[case("yaml('main/3d42c19\\n') == 'main/3d42c19' && yaml('\"123e4567\"') == '123e4567'")]
#[case("yaml('a: [1, 2.5, {b: true}]\\nn: null') == {'a': [1, 2.5, {'b': true}]}")]
#[case("yaml('a: [{b: c}]').?a[0].?b.orValue('') == 'c' && !yaml('a: {b: }').a.?b.hasValue()")]
#[case("yaml('no') == 'no' && yaml('18446744073709551615') == 18446744073709551615u")]
fn reads_json_where_it_lies(#[case] text: &str) {
    assert_eq!(with(text, |e, s| e.truth(s)), Ok(true), "{text}");
}

#[rstest]
#[case("object.stauts.x == 1", "No such key: stauts")]
#[case("object.metadata.name.x == 1", "no matching overload")]
#[case("condition(object, 'Odd').status == 'True'", "`status` is int, not string")]
#[case("condition(object, 'Ready').stauts == ''", "No such key: stauts")]
#[case("condition(object.spec.list, 'Ready').status == ''", "want 'map'")]
#[case("yaml('a: [') == ''", "yaml")]
#[case("yaml(object.spec.list) == ''", "want 'string'")]
#[case("yaml('a\\n---\\nb') == ''", "yaml")]
#[case("object.metadata.name.substring(2) == ''", "out of range")]
#[case("object.metadata.generation", "gives int, where a bool is needed")]
#[case("object", "gives map, where a bool is needed")]
fn what_does_not_fit_is_an_error_with_field_and_expression(#[case] text: &str, #[case] message: &str) {
    let error = with(text, |e, s| e.truth(s)).expect_err(text);
    assert_eq!((error.field.as_str(), error.expression.as_str()), ("f", text));
    assert!(error.message.contains(message), "{error}");
}

#[rstest]
#[case("object.metadata.name = 'a'", "Syntax error")]
#[case("nope == 1", "there is no variable `nope`")]
#[case("object.status.conditions.exists(c, d.type == '')", "there is no variable `d`")]
#[case("object.metadata.name.trimm() == ''", "there is no function `trimm` (nearest: `trim`)")]
#[case(
    "object.metadata.name.loweRAscii() == ''",
    "there is no function `loweRAscii` (nearest: `lowerAscii`)"
)]
#[case("sets.contain([], [])", "there is no function `sets.contain` (nearest: `sets.contains`)")]
#[case("range(3) == []", "there is no function `range` (nearest: `lists.range`)")]
#[case("object.metadata.name.url() == ''", "there is no function `url`")]
#[case("[1].map(a, [1].map(b, [1].map(c, a)))", "nested more than 2 deep")]
#[case("Message{a: 1}", "no message type `Message`")]
#[case("  ", "is empty")]
fn what_can_never_work_does_not_compile(#[case] text: &str, #[case] message: &str) {
    let error = Expression::compile("f", text, &["object"]).expect_err(text);
    assert!(error.contains(message), "{error}");
}

#[test]
fn outcomes_are_bounded_plain_data() {
    assert_eq!(with("object.metadata.name", |e, s| e.text_of(s, 10)), Ok(Some("a".into())));
    assert_eq!(with("'éé'", |e, s| e.text_of(s, 3)), Ok(Some("é".into())));
    for none in ["''", "null", "missing.?x", "optional.of('')"] {
        assert_eq!(with(none, |e, s| e.text_of(s, 10)), Ok(None), "{none}");
        assert_eq!(with(none, |e, s| e.revisions(s)), Ok(vec![]), "{none}");
        assert_eq!(with(none, |e, s| e.time(s)), Ok(None), "{none}");
    }
    let two = vec!["r1".to_owned(), "r2".to_owned()];
    assert_eq!(with("['r1', '', missing, 'r2']", |e, s| e.revisions(s)), Ok(two));
    assert!(with("[1]", |e, s| e.revisions(s)).is_err());
    assert_eq!(with("object.metadata.name", |e, s| e.whole_text_of(s, 1)), Ok(Some("a".into())));
    assert_eq!(with("missing.?x", |e, s| e.whole_text_of(s, 1)), Ok(None));
    assert!(with("'éé'", |e, s| e.whole_text_of(s, 3)).is_err_and(|e| e.message.contains("longer than 3")));
    assert!(with("1", |e, s| e.whole_text_of(s, 3)).is_err_and(|e| e.message.contains("a string is needed")));
    let long = format!("'{}'", "x".repeat(MAX_REVISION + 1));
    assert!(with(&long, |e, s| e.revisions(s)).is_err_and(|e| e.message.contains("longer than 1024")));
    for time in ["timestamp('1970-01-01T00:01:00Z')", "'1970-01-01T01:01:00+01:00'", "60", "optional.of(60)"]
    {
        assert_eq!(with(time, |e, s| e.time(s)), Ok(Some(60)), "{time}");
    }
    assert!(with("'yesterday'", |e, s| e.time(s)).is_err());
    assert_eq!(with("size(object.spec.list)", |e, s| e.count(s)), Ok(3));
    assert!(with("-1", |e, s| e.count(s)).is_err());
    let hash = |text: &str| with(text, |e, s| e.hash_of(s)).expect(text);
    assert_eq!(hash("[1, 'a']"), hash("[object.metadata.generation - 2, object.metadata.name]"));
    assert_ne!(hash("[1, 'a']"), hash("[1, 'b']"));
    assert_ne!(hash("['a', 'b']"), hash("['ab']"));
    assert!(with("object", |e, s| e.hash_of(s)).is_err());
}

/// Any JSON, not deep.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (-2i64..3).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// The same without the fields that are empty, as a Go program would write it.
fn without_empty(value: &Value) -> Value {
    let empty = |v: &Value| match v {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_i64() == Some(0),
        Value::String(s) => s.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    };
    match value {
        Value::Array(items) => items.iter().map(without_empty).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(k, v)| (k.clone(), without_empty(v)));
            Value::Object(fields.filter(|(_, v)| !empty(v)).collect())
        }
        other => other.clone(),
    }
}

fn equivalent(one: &Value, other: &Value) -> bool {
    let mut scope = Scope::default();
    scope.bind("one", one);
    scope.bind("other", other);
    let expression =
        Expression::compile("f", "equivalent(one.v, other.v)", &["one", "other"]).expect("it compiles");
    expression.truth(&mut scope).expect("a truth")
}

proptest! {
    #[test]
    fn equivalent_is_equal_but_for_empty_fields(one in any_json(), other in any_json()) {
        let (left, right) = (json!({"v": one}), json!({"v": other}));
        let lean = json!({"v": without_empty(&one)});
        prop_assert!(equivalent(&left, &left) && equivalent(&left, &lean) && equivalent(&lean, &left));
        prop_assert_eq!(equivalent(&left, &right), equivalent(&right, &left));
        prop_assert_eq!(equivalent(&left, &right), without_empty(&left) == without_empty(&right));
    }
}

/// Rows of the tables below a heading of the reference, as cells.
fn rows<'d>(reference: &'d str, heading: &str) -> Vec<Vec<&'d str>> {
    let section = reference.split(heading).nth(1).and_then(|rest| rest.split("\n#").next());
    let lines =
        section.expect(heading).lines().filter(|line| line.starts_with("| `") || line.starts_with("| ["));
    lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn the_reference_has_every_function_and_its_examples_hold() {
    let reference = include_str!("../../../docs/sources.md");
    let source = reference.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let source: Value = serde_saphyr::from_str(source.expect("an example")).expect("it is YAML");
    let sample = &source["samples"][0];
    let functions = rows(reference, "### Functions");
    let libraries = rows(reference, "### Libraries");
    let names_of = |cell: &'static str| cell.split('`').skip(1).step_by(2);
    let mut named: Vec<&str> = functions.iter().flat_map(|row| names_of(row[0])).collect();
    named.extend(libraries.iter().flat_map(|row| names_of(row[1])));
    let mut known: Vec<&str> = library::names().collect();
    for names in [&mut named, &mut known] {
        names.sort_unstable();
        names.dedup();
    }
    assert_eq!(named, known);
    let operators = rows(reference, "### Operators");
    assert_eq!(operators.len(), 10);
    let examples = functions.iter().chain(&operators).map(|row| (row[0], row));
    for (names, row) in examples.chain(libraries.iter().map(|row| (row[1], row))) {
        let text = row.last().expect("a cell").trim_matches('`');
        let shown = |name: &str| text.contains(name.rsplit('.').next().expect("a name"));
        assert!(row.len() == 2 || names_of(names).any(shown), "{text} does not show {names}");
        let mut scope = Scope::default();
        scope.bind("object", &sample["object"]);
        scope.bind_optional("config", Some(&sample["related"]["config"]));
        scope.bind_list(
            "parts",
            &sample["related"]["parts"].as_array().expect("parts").iter().collect::<Vec<_>>(),
        );
        let expression = Expression::compile("f", text, &["object", "config", "parts"])
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(expression.truth(&mut scope), Ok(true), "{text}");
    }
}

#[test]
fn the_reference_has_the_limits() {
    let reference = include_str!("../../../docs/sources.md");
    for (limit, said) in [
        (MAX_SOURCE as u64, (8 << 10, "more than 8 KiB")),
        (MAX_DEPTH as u64, (24, "more than 24 deep")),
        (MAX_COMPREHENSIONS as u64, (2, "more than two deep")),
        (budget::MAX_STEPS, (1_000_000, "more than 1,000,000 steps")),
        (MAX_REVISION as u64, (1024, "at most 1024 bytes")),
        (MAX_REASON as u64, (128, "cut at 128\nbytes")),
        (MAX_MESSAGE as u64, (1024, "messages at 1024")),
    ] {
        assert_eq!(limit, said.0, "{}", said.1);
        assert!(reference.contains(said.1), "{}", said.1);
    }
}

/// A variable that fails breaks what comes to it and nothing else, and one that nothing comes to is not evaluated.
#[rstest]
#[case("broken == 1", Err("variables.broken"))]
#[case("false && broken == 1", Ok(false))]
#[case("broken == 1 || true", Ok(true))]
#[case("on_broken == 1", Err("variables.broken"))]
#[case("double == 2 && double == 2", Ok(true))]
#[case("[2].exists(broken, broken == double)", Ok(true))]
fn variables_are_evaluated_where_they_are_used(#[case] text: &str, #[case] expected: Result<bool, &str>) {
    let object = object();
    let variables = [
        ("one", "1"),
        ("double", "one + one"),
        ("broken", "object.spec.missing"),
        ("on_broken", "broken + 1"),
        ("endless", "object.metadata.name.split('').map(a, object.spec.list.map(b, a))"),
    ];
    let names: Vec<&str> = ["object"].into_iter().chain(variables.map(|(name, _)| name)).collect();
    let compiled = variables.map(|(name, text)| {
        (name, Expression::compile(&format!("variables.{name}"), text, &names).expect(text))
    });
    let expression = Expression::compile("f", text, &names).expect(text);
    let mut scope = Scope::default();
    scope.bind("object", &object);
    compiled.iter().for_each(|(name, definition)| scope.define(name, definition));
    let outcome = expression.truth(&mut scope);
    assert_eq!(outcome.as_ref().map(|truth| *truth).map_err(|error| &*error.field), expected, "{text}");
    assert!(scope.defined.iter().any(|(name, _)| *name == "endless"), "nothing came to it");
}

#[test]
fn an_expression_knows_what_it_reads() {
    let expression = Expression::compile(
        "f",
        "[a].exists(b, b == c && c == size(d)) && type(c) == int",
        &["a", "b", "c", "d", "e"],
    );
    assert_eq!(expression.expect("it compiles").reads(), ["a", "c", "d"]);
}
