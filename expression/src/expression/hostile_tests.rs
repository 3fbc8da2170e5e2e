//! Expressions and objects that are made to do harm: each costs a bounded number of steps and ends
//! in an error that says where, and the next package is evaluated as if nothing had been.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{budget::MAX_STEPS, hostile_yaml};

/// As the runtime's threads have it.
const STACK: usize = 2 << 20;

fn on_a_small_stack<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run);
        thread.expect("a thread").join().expect("no panic")
    })
}

/// As large as the API server lets an object be.
fn large() -> Value {
    let nested =
        (0..100).fold(json!(1), |inner, n| if n % 2 == 0 { json!([inner]) } else { json!({"a": inner}) });
    let mut deep = nested.clone();
    deep["b"] = json!(2);
    json!({
        "text": "x".repeat(1 << 20),
        "same": "x".repeat(1 << 20),
        "items": (0..20_000).map(|n| json!({"n": n, "name": format!("item-{n}")})).collect::<Vec<_>>(),
        "numbers": (0..100_000).collect::<Vec<_>>(),
        "lists": (0..300).map(|_| (0..300).collect::<Vec<_>>()).collect::<Vec<_>>(),
        "map": (0..20_000).map(|n| (format!("k{n}"), json!(n))).collect::<serde_json::Map<_, _>>(),
        "nulls": (0..50_000).map(|n| (format!("k{n}"), Value::Null)).collect::<serde_json::Map<_, _>>(),
        "nested": nested,
        "deep": deep,
        "document": "a: {b: c}",
        "yaml": format!("[{}]", "a,".repeat(30_000)),
        "ids": (0..20_000).map(|n| format!("a-long-namespace_and-a-name-{n}_apps_Deployment")).collect::<Vec<_>>(),
        "pattern": "((a{50}){50}){50}",
        "status": {"conditions": (0..20_000).map(|n| json!({"type": format!("T{n}")})).collect::<Vec<_>>()},
    })
}

/// Defines the variables one after another and evaluates the last one.
fn run(object: &Value, expressions: &[String]) -> Result<(), EvaluationError> {
    let mut names = vec!["object".to_owned()];
    let mut compiled = Vec::new();
    for (n, text) in expressions.iter().enumerate() {
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let name = format!("v{n}");
        compiled.push(Expression::compile(&name, text, &known).expect(text));
        names.push(name);
    }
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let last = Expression::compile("last", known.last().expect("a variable"), &known).expect("compiles");
    let mut scope = Scope::default();
    scope.bind("object", object);
    names.iter().skip(1).zip(&compiled).for_each(|(name, expression)| scope.define(name, expression));
    last.run(&mut scope).map(drop)
}

fn doubling(first: &str, next: &str) -> Vec<String> {
    let mut all = vec![first.to_owned()];
    all.extend((0..60).map(|n| next.replace('$', &format!("v{n}"))));
    all
}

fn one(text: &str) -> Vec<String> {
    vec![text.to_owned()]
}

/// A loop that would be fine, around something that is not.
fn in_loops(text: &str) -> Vec<String> {
    one(&format!("object.numbers.exists(i, object.numbers.exists(j, {text}))"))
}

#[rstest]
#[case::texts_double(doubling("'abcdefgh'", "$ + $"))]
#[case::texts_double_in_one(doubling("'abcdefgh'", "[$, $].map(x, x + x)[0] + $"))]
#[case::lists_double(doubling("[1, 2]", "$ + $"))]
#[case::lists_nest(doubling("[1]", "[$]"))]
#[case::lists_nest_and_double(doubling("[1]", "[$, $]"))]
#[case::maps_nest_and_double(doubling("{'a': 1}", "{'a': $, 'b': $}"))]
#[case::optionals_nest(doubling("optional.of(1)", "optional.of($)"))]
#[case::optionals_hold_much([one("object.numbers.map(x, x)"), one("optional.of(v0)")].concat())]
#[case::a_large_optional_of_a_list([one("[object.numbers.map(x, x)]"), one("v0[?0]")].concat())]
#[case::conditions_hold_much([
    one("object.text + 'x'"),
    one("condition({'status': {'conditions': [{'type': 'A', 'status': v0}]}}, 'A')"),
].concat())]
#[case::squares(one("object.numbers.exists(a, object.numbers.exists(b, a + b < 0))"))]
#[case::squares_of_lists(one("object.lists.map(l, object.lists.map(m, l))"))]
#[case::lists_of_lists(one("object.lists.map(l, l.map(x, [x, x, x, x, x, x, x, x]))"))]
#[case::many_literals(one(&format!("[{0}].exists(a, [{0}].exists(b, a == b + 1))", vec!["1"; 1500].join(","))))]
#[case::copies_of_a_variable([one("object.text + 'x'"), one(&format!("[{}]", vec!["v0"; 2000].join(",")))].concat())]
#[case::copies_in_a_map([one("object.text + 'x'"), one("object.numbers.map(n, {'a': v0})")].concat())]
#[case::copies_in_a_loop([one("object.text + 'x'"), one("object.numbers.map(n, v0)")].concat())]
#[case::copies_by_optionals([one("object.numbers.map(n, n)"), one("object.items.exists(i, object.?none.orValue(v0) == 1)")].concat())]
#[case::copies_by_errors([one("object.text + 'x'"), one("object.items.exists(i, v0 - i.n == 1)")].concat())]
#[case::copies_by_comparing([one("object.text + 'x'"), one("object.items.exists(i, v0 < i.n)")].concat())]
#[case::copies_by_indexing([one("object.numbers.map(n, n)"), one("object.items.exists(i, v0[0.5] == 1)")].concat())]
#[case::texts_compared(in_loops("object.text == object.same"))]
#[case::texts_ordered(in_loops("object.text < object.same"))]
#[case::texts_searched(in_loops("object.text.contains('xy')"))]
#[case::texts_counted(in_loops("size(object.text) == 1"))]
#[case::texts_converted(in_loops("string(object.text) == ''"))]
#[case::texts_parsed(in_loops("int(object.text) == 1"))]
#[case::lists_compared(in_loops("object.numbers == object.numbers"))]
#[case::lists_searched(in_loops("-1 in object.numbers"))]
#[case::maps_compared(in_loops("object.map == object.map"))]
#[case::maps_counted(in_loops("size(object.map) == 1"))]
#[case::nulls_passed_over(in_loops("optional.ofNonZeroValue(object.nulls).hasValue()"))]
#[case::conditions_searched(in_loops("condition(object, 'None').status == 'x'"))]
#[case::texts_cut(in_loops("object.text.substring(1) == ''"))]
#[case::texts_cut_in_two(in_loops("object.text.substring(1, 1000) == ''"))]
#[case::texts_parsed_as_yaml(in_loops("yaml(object.yaml) == ''"))]
#[case::one_text_parsed_as_yaml_often(one("object.numbers.map(n, yaml(object.document))"))]
#[case::yaml_doubles(doubling("[1]", "yaml('[1, 2]') + $ + $"))]
#[case::patterns_in_a_loop(in_loops("object.text.matches('(x+x+)+y')"))]
#[case::patterns_of_an_object(one("object.items.map(i, 'a'.matches(i.name))"))]
#[case::errors_passed_over(one(
    "object.numbers.exists(a, object.numbers.exists(b, object.nope == a)) || true"
))]
#[case::excess_passed_over([
    in_loops("object.text == object.same").into_iter().map(|e| format!("{e} || true")).collect::<Vec<_>>(),
    one("true || v0"),
].concat())]
#[case::texts_replaced(one("object.text.replace('x', object.text)"))]
#[case::texts_replaced_by_nothing(in_loops("object.text.replace('x', '') == ''"))]
#[case::texts_grow_between_characters(one("object.text.replace('', 'abcdefgh')"))]
#[case::texts_joined(one("object.ids.join(object.text)"))]
#[case::texts_joined_often(in_loops("object.ids.join() == ''"))]
#[case::texts_split(one("object.text.split('')"))]
#[case::texts_split_often(in_loops("object.yaml.split(',') == []"))]
#[case::texts_searched_for_a_place(in_loops("object.text.indexOf('xy') == 0"))]
#[case::texts_searched_for_the_last_place(in_loops("object.text.lastIndexOf('yx') == 0"))]
#[case::texts_reversed(in_loops("object.text.reverse() == ''"))]
#[case::texts_quoted(doubling("'\"'", "strings.quote($)"))]
#[case::texts_formatted(doubling("'abcdefgh'", "'%s%s'.format([$, $])"))]
#[case::lists_formatted(one("'%s'.format([object.lists.map(l, object.lists)])"))]
#[case::objects_formatted(in_loops("'%s'.format([object.map]) == ''"))]
#[case::deep_objects_formatted(one("'%s'.format([object.nested])"))]
#[case::numbers_formatted(one("object.numbers.map(n, '%.100f%.100f%.100f'.format([1.0, 1.0, 1.0]))"))]
#[case::lists_sorted(in_loops("object.numbers.sort() == []"))]
#[case::long_texts_sorted(one("object.items.map(i, object.text).sort()"))]
#[case::lists_sorted_by_keys(one("object.numbers.exists(i, object.items.sortBy(x, x.name) == [])"))]
#[case::lists_made_distinct(one("object.numbers.distinct()"))]
#[case::lists_flattened(in_loops("object.lists.flatten() == []"))]
#[case::lists_reversed(doubling("[1]", "$.reverse() + $"))]
#[case::lists_of_numbers(one("lists.range(1000000)"))]
#[case::lists_of_numbers_often(one("object.items.map(i, lists.range(60000))"))]
#[case::lists_summed(in_loops("object.numbers.sum() == 1"))]
#[case::lists_searched_for_the_largest(in_loops("object.numbers.max() == 1"))]
#[case::largest_of_math(in_loops("math.greatest(object.numbers) == 1"))]
#[case::lists_searched_for_a_place(in_loops("object.numbers.indexOf(-1) == 0"))]
#[case::large_optionals_of_lists([one("[object.numbers.map(x, x)]"), one("v0.first()")].concat())]
#[case::sets_compared(one("sets.equivalent(object.numbers, object.numbers)"))]
#[case::sets_of_others(one("sets.intersects(object.numbers, object.ids)"))]
#[case::bytes_encoded(doubling("'abcdefgh'", "base64.encode(bytes($)) + $"))]
#[case::all_matches(one("object.text.findAll('x')"))]
#[case::all_matches_that_look_ahead(one("object.text.findAll('x*y|x')"))]
#[case::all_groups(one("regex.extractAll(object.yaml, '(a),')"))]
#[case::all_matches_replaced(one("regex.replace(object.yaml, 'a', object.text)"))]
#[case::groups_replaced(doubling("'ab'", r"regex.replace($, '(.*)', r'\1\1')"))]
#[case::patterns_of_an_object_found(one("object.items.map(i, 'a'.find(i.name))"))]
#[case::json_read_often(one("object.numbers.map(n, json.unmarshal('[[1,2],[3,4]]'))"))]
#[case::json_written(in_loops("json.marshal(object.map) == ''"))]
#[case::json_of_much(one("json.marshal(object.lists.map(l, object.lists))"))]
#[case::deep_json(one("json.marshal(object.nested)"))]
#[case::json_in_json(doubling("'\"'", "json.marshal($)"))]
#[case::squares_with_two_variables(one("object.numbers.all(i, a, object.numbers.all(j, b, a + b >= 0))"))]
#[case::copies_with_two_variables([one("object.text + 'x'"), one("object.numbers.transformList(i, n, v0)")].concat())]
#[case::maps_of_two_variables(one("object.numbers.transformMap(i, n, object.items.map(x, i))"))]
#[case::maps_joined(one(
    "object.items.transformMapEntry(i, item, object.numbers.transformMap(j, n, {i * 100000 + j: 1}))"
))]
#[case::names_double(doubling("'abcdefgh'", "cel.bind(a, $ + $, a + a)"))]
#[case::versions_read_often(in_loops("isSemver('1.2.3-' + string(i) + string(j)) && i < 0"))]
#[case::quantities_read_often(in_loops("quantity('1e400').add(quantity('1e-9')).sign() < 0"))]
#[case::excess_in_an_optional([one("object.numbers.map(x, [x, x, x, x, x])[?0].orValue('fine')")].concat())]
fn what_would_cost_too_much_is_an_error(#[case] expressions: Vec<String>) {
    let object = large();
    let error = on_a_small_stack(|| run(&object, &expressions)).expect_err("it costs too much");
    let field: usize = error.field.trim_start_matches('v').parse().expect("a variable");
    assert_eq!(error.expression, expressions[field], "{error}");
    assert!(
        error.message.starts_with("takes more than") || error.message.starts_with("builds a value"),
        "{error}"
    );
    let small = json!({"text": "x"});
    assert_eq!(run(&small, &one("object.text + 'y'")), Ok(()), "others are unharmed");
}

type Take = fn(&Expression, &mut Scope<'_>) -> Result<(), EvaluationError>;

const HASH: Take = |e, s| e.hash_of(s).map(drop);
const ITEMS: Take = |e, s| e.each(s, 20_000, |item| item.field("name", 1024)).map(drop);
const REVISIONS: Take = |e, s| e.revisions(s).map(drop);

/// What is made of an outcome is on the budget of what made it.
#[rstest]
#[case::lists_of_views("object.items.map(i, object.numbers)", HASH, "takes more than")]
#[case::lists_of_lists_of_views(
    "[0, 1, 2].map(i, object.items.map(i, object.lists))",
    HASH,
    "takes more than"
)]
#[case::long_texts("object.items.map(i, object.text)", HASH, "takes more than")]
#[case::too_many("object.numbers", ITEMS, "gives more than 20000 items")]
#[case::long_fields("[{'name': object.text}]", ITEMS, "name longer than 1024")]
#[case::too_many_revisions("object.items.map(i, object.text)", REVISIONS, "gives more than 64 revisions")]
fn outcomes_that_would_cost_too_much_are_errors(
    #[case] text: &str,
    #[case] take: Take,
    #[case] message: &str,
) {
    let object = large();
    let error = on_a_small_stack(|| {
        let mut scope = Scope::default();
        scope.bind("object", &object);
        take(&Expression::compile("f", text, &["object"]).expect(text), &mut scope)
    })
    .expect_err(text);
    assert!(error.message.contains(message), "{error}");
}

/// Also at the bottom of an expression that is as deep as may be.
#[test]
fn no_text_of_an_object_harms_as_yaml() {
    let around = |inner: &str| format!("{}{inner}{}", "[".repeat(20), "]".repeat(20));
    let mut texts: Vec<String> = hostile_yaml::texts().into_iter().map(|(_, text)| text).collect();
    let short = |text: &String| text.chars().take(20_000).collect();
    texts.extend(texts.iter().map(short).collect::<Vec<String>>());
    texts.extend(["[", "- ", "{a: "].map(|open| open.repeat(32)));
    for text in texts {
        let object = json!({"text": text});
        for expression in ["yaml(object.text)", &around("yaml(object.text)")] {
            let error = on_a_small_stack(|| run(&object, &one(expression)));
            let deep = text.starts_with("- ") && text.len() == 64;
            assert!(deep || error.is_err(), "{}", &text[..text.len().min(80)]);
        }
    }
}

#[test]
fn yaml_as_deep_as_may_be_is_read() {
    let object = json!({"text": "- ".repeat(32) + "x", "deeper": "- ".repeat(33) + "x", "map": "{a: ".repeat(32) + "1" + &"}".repeat(32)});
    assert_eq!(on_a_small_stack(|| run(&object, &one("yaml(object.text)"))), Ok(()));
    assert_eq!(on_a_small_stack(|| run(&object, &one("yaml(object.map)"))), Ok(()));
    let error = on_a_small_stack(|| run(&object, &one("yaml(object.deeper)"))).expect_err("too deep");
    assert!(error.message.contains("nested more than 32 deep"), "{error}");
}

#[rstest]
#[case::pattern_of_an_object("object.text.matches(object.pattern)", "cannot be used as a pattern")]
#[case::long_pattern("object.text.matches(object.text)", "longer than 1024 bytes")]
fn hostile_patterns_are_errors(#[case] text: &str, #[case] message: &str) {
    let mut object = large();
    object["text"] = json!("x".repeat(2000));
    let error = on_a_small_stack(|| run(&object, &one(text))).expect_err(text);
    assert!(error.message.contains(message), "{error}");
}

#[rstest]
#[case("'a'.matches('((a{50}){50}){50}')", "cannot be used as a pattern")]
#[case("'a'.matches('(')", "cannot be used as a pattern")]
#[case("'a'.findAll('((a{50}){50}){50}')", "cannot be used as a pattern")]
#[case("regex.replace('a', '(', '')", "cannot be used as a pattern")]
fn hostile_patterns_that_are_written_do_not_compile(#[case] text: &str, #[case] message: &str) {
    let error = Expression::compile("f", text, &[]).expect_err(text);
    assert!(error.contains(message), "{error}");
}

#[rstest]
#[case::resources_of_a_large_inventory(
    "object.items.filter(i, i.n > 3 && i.name != 'x').map(i, i.name)[0] == 'item-4' && object.items.all(i, has(i.n))"
)]
#[case::a_deep_object("object.nested != object.deep && object.deep == object.deep")]
#[case::a_long_text(
    "object.text == object.same && object.text + 'y' != object.same && size(object.text) > 9"
)]
#[case::a_long_list(
    "object.numbers == object.numbers && 99999 in object.numbers && object.numbers[99999] == 99999"
)]
#[case::a_large_map("object.map == object.map && 'k7' in object.map && size(object.nulls) == 0")]
fn what_is_only_large_is_evaluated(#[case] text: &str) {
    let object = large();
    let outcome = on_a_small_stack(|| {
        let mut scope = Scope::default();
        scope.bind("object", &object);
        Expression::compile("f", text, &["object"]).expect(text).truth(&mut scope)
    });
    assert_eq!(outcome, Ok(true), "{text}");
}

/// The fewest steps that an expression is evaluated in.
fn steps(object: &Value, text: &str) -> u64 {
    let expression = Expression::compile("f", text, &["object"]).expect(text);
    let fits = |steps: u64| {
        let mut scope = Scope::with_steps(steps);
        scope.bind("object", object);
        expression.truth(&mut scope).is_ok()
    };
    assert!(fits(MAX_STEPS), "{text}");
    let (mut few, mut enough) = (0, MAX_STEPS);
    while enough - few > 1 {
        let middle = few.midpoint(enough);
        if fits(middle) { enough = middle } else { few = middle }
    }
    enough
}

/// What is compared with a literal, or of which one item is taken, is not looked at as a whole: so it is the function
/// itself that pays. A thousand items, texts of 64,000 bytes: a thousand steps.
#[rstest]
#[case::sorted("object.list.sort()[0] == 0", 10_000)]
#[case::sorted_texts("object.names.sort()[0] == ''", 20_000)]
#[case::distinct("object.list.slice(0, 500).distinct()[0] == 0", 249_500)]
#[case::range("lists.range(1000)[0] == 0", 1000)]
#[case::reversed("object.list.reverse()[0] == 999", 2000)]
#[case::flattened("[object.list].flatten()[0] == 0", 2000)]
#[case::summed("object.list.sum() == 499500", 2000)]
#[case::largest("object.names.max() == ''", 4000)]
#[case::in_order("!object.names.isSorted()", 3000)]
#[case::place("object.list.indexOf(-1) == -1", 3000)]
#[case::set("!sets.contains(object.list, [-1])", 3000)]
#[case::replaced("object.text.replace('x', 'yz') == ''", 2000 + 64_000)]
#[case::replaced_by_nothing("object.text.replace('x', '') == ''", 1000 + 64_000)]
#[case::joined("object.names.join(object.text.substring(0, 640)) == ''", 1000 + 1000 * 10)]
#[case::split("object.text.substring(0, 30000).split('')[0] == 'x'", 30_000)]
#[case::lower("object.text.lowerAscii() == ''", 2000)]
#[case::upper("object.text.upperAscii() == ''", 2000)]
#[case::trimmed("object.text.trim() == ''", 2000)]
#[case::cut("object.text.substring(1) == ''", 2000)]
#[case::cut_in_two("object.text.substring(0, 63000) == ''", 1900)]
#[case::reversed_text("object.text.reverse() == ''", 2000)]
#[case::quoted("strings.quote(object.text) == ''", 3000)]
#[case::formatted("'%s'.format([object.text]) == ''", 8000)]
#[case::formatted_list("'%s'.format([object.names]) == ''", 1000 * 2)]
#[case::formatted_number("'%.100f'.format([1.0]) == ''", 8)]
#[case::found("object.text.find('x+') == ''", 64_000 + 1000)]
#[case::found_all("object.few.findAll('x')[0] == 'x'", 640 * 640 / 2)]
#[case::found_all_groups("regex.extractAll(object.few.substring(0, 300), '(x)')[0] == 'x'", 4 * 300 * 300 / 2)]
#[case::extracted("regex.extract(object.text, 'x(y?)').hasValue() == false", 4 * 64_000)]
#[case::replaced_matches("regex.replace(object.few, 'x', object.few.substring(0, 64)) == ''", 640 * 640 / 2 + 640 * 2)]
#[case::pattern_of_an_object("object.few.find(object.few.substring(0, 1)) == 'x'", 20_000)]
#[case::json_read("json.unmarshal(object.json)[0] == 1", 4 * 2000)]
#[case::json_written("json.marshal(object.names) == ''", 1000 * 3)]
#[case::entries_of_a_list("[object.text + 'x'].all(i, v, i == 0)", 3000)]
#[case::entries_of_an_object("object.list.all(i, v, i == v)", 1000 * 7)]
#[case::map_of_pairs("object.list.transformMap(i, v, v)[0] == 0", 1000 * 8)]
fn functions_pay_for_what_they_do(#[case] text: &str, #[case] least: u64) {
    let object = json!({
        "text": "x".repeat(64_000),
        "few": "x".repeat(640),
        "list": (0..1000).collect::<Vec<_>>(),
        "names": (0..1000).map(|n| format!("{:064}", (n * 7) % 1000)).collect::<Vec<_>>(),
        "json": format!("[1{}]", ",1".repeat(999)),
    });
    let steps = steps(&object, text);
    assert!(steps >= least, "{text}: {steps} steps, not {least} or more");
}

/// As the outcome is not looked at, either: what is too large is not even made.
#[rstest]
#[case::replaced("object.few.replace('', object.text) == ''")]
#[case::replaced_matches("regex.replace(object.few, '.', object.text) == ''")]
#[case::joined("object.list.map(n, '').join(object.text) == ''")]
#[case::split("object.text.split('')[0] == 'x'")]
#[case::formatted("'%s'.format([object.list.map(n, object.text)]) == ''")]
#[case::range("lists.range(70000)[0] == 0")]
#[case::json("json.marshal(object.list.map(n, object.text)) == ''")]
#[case::flattened("object.list.map(n, object.list).flatten()[0] == 0")]
fn what_is_too_large_is_not_made(#[case] text: &str) {
    let object =
        json!({"text": "x".repeat(64_000), "few": "x".repeat(640), "list": (0..640).collect::<Vec<_>>()});
    let mut scope = Scope::with_steps(u64::MAX / 2);
    scope.bind("object", &object);
    let error = Expression::compile("f", text, &["object"]).expect(text).truth(&mut scope).expect_err(text);
    assert!(error.message.starts_with("builds a value larger"), "{error}");
}

/// A text of about `length` bytes that nests or chains `part`.
fn repeated(before: &str, part: &str, between: &str, after: &str, length: usize) -> String {
    let times = length.saturating_sub(between.len()) / (part.len() + after.len()).max(1);
    [before, &part.repeat(times), between, &after.repeat(times)].concat()
}

const SHAPES: [(&str, &str, &str, &str); 20] = [
    ("", "(", "1", ")"),
    ("", "[", "1", "]"),
    ("", "{1: ", "1", "}"),
    ("", "!", "true", ""),
    ("", "-", "object", ""),
    ("", "!(", "true", ")"),
    ("", "1+", "1", ""),
    ("", "1==", "1", ""),
    ("", "1 in ", "[]", ""),
    ("", "true||", "true", ""),
    ("", "(true&&", "true", ")"),
    ("", "true?1:", "1", ""),
    ("", "true?", "1", ":1"),
    ("", "size(", "1", ")"),
    ("object", ".a", "", ""),
    ("object", ".?a", "", ""),
    ("object", "[0]", "", ""),
    ("object", ".size()", "", ""),
    ("object", ".optMap(a, a)", "", ""),
    ("[1]", ".map(a, a)", "", ""),
];

#[test]
fn expressions_nested_without_end_do_not_compile_and_do_not_crash() {
    for (before, part, between, after) in SHAPES {
        for length in [MAX_SOURCE - 16, 100_000] {
            let text = repeated(before, part, between, after, length);
            let outcome = on_a_small_stack(|| Expression::compile("f", &text, &["object"]).map(drop));
            let folds = matches!(part, "!" | "-" | "true||") && length < MAX_SOURCE;
            assert_eq!(outcome.is_ok(), folds, "{part} {length}: {outcome:?}");
        }
    }
}

/// The deepest that compile are evaluated on the runtime's stack.
#[test]
fn expressions_as_deep_as_may_be_are_evaluated() {
    let object = json!({"a": 1});
    for (before, part, between, after) in SHAPES {
        let deepest = (1..40).rev().find_map(|times| {
            let text = [before, &part.repeat(times), between, &after.repeat(times)].concat();
            Expression::compile("f", &text, &["object"]).ok()
        });
        let expression = deepest.expect("some depth compiles");
        on_a_small_stack(|| {
            let mut scope = Scope::default();
            scope.bind("object", &object);
            // Whatever comes out of it: that something does is what matters.
            let _ = expression.run(&mut scope).map(drop);
        });
    }
}

#[test]
fn the_budget_is_one_for_all_expressions_of_a_scope() {
    let object = large();
    let half =
        Expression::compile("half", "object.numbers.all(n, n >= 0)", &["object"]).expect("it compiles");
    let mut scope = Scope::default();
    scope.bind("object", &object);
    let mut done = 0;
    while half.truth(&mut scope).is_ok() {
        done += 1;
        assert!(done < MAX_STEPS, "it never ends");
    }
    let cheap = Expression::compile("cheap", "true", &[]).expect("it compiles");
    assert!(
        cheap.truth(&mut scope).is_err_and(|e| e.message.starts_with("takes more than")),
        "nothing is left"
    );
    assert_eq!(cheap.truth(&mut Scope::default()), Ok(true));
    let mut again = Scope::default();
    let counted = (0..).take_while(|_| cheap.truth(&mut again).is_ok()).count() as u64;
    assert_eq!(counted, MAX_STEPS, "the same on every machine");
    let mut few = Scope::with_steps(3);
    assert_eq!((0..).take_while(|_| cheap.truth(&mut few).is_ok()).count(), 3);
    let error = cheap.truth(&mut few).expect_err("nothing is left");
    assert!(error.message.starts_with("takes more than 3 steps"), "{error}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..5)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Expressions of every sort, most of them nonsense.
fn any_expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("object".to_owned()),
        Just("object.a".to_owned()),
        Just("object.?b".to_owned()),
        Just("object.c".to_owned()),
        Just("'a'".to_owned()),
        Just("1".to_owned()),
        Just("-9223372036854775807".to_owned()),
        Just("18446744073709551615u".to_owned()),
        Just("0.5".to_owned()),
        Just("[]".to_owned()),
        Just("null".to_owned()),
        Just("optional.none()".to_owned()),
        Just("duration('9223372036s')".to_owned()),
        Just("timestamp('9999-12-31T23:59:59Z')".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            (two, prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", "in", "&&", "||"]))
                .prop_map(|((a, b), op)| format!("({a} {op} {b})")),
            (
                inner.clone(),
                prop::sample::select(vec![
                    "size",
                    "string",
                    "int",
                    "uint",
                    "double",
                    "type",
                    "timestamp",
                    "duration",
                    "bytes",
                    "dyn",
                    "bool",
                    "!",
                    "-",
                    "optional.of",
                    "optional.ofNonZeroValue"
                ])
            )
                .prop_map(|(a, f)| format!("{f}({a})")),
            (
                inner.clone(),
                inner.clone(),
                prop::sample::select(vec![
                    "map",
                    "filter",
                    "exists",
                    "all",
                    "exists_one",
                    "optMap",
                    "sortBy"
                ])
            )
                .prop_map(|(a, b, f)| format!("{a}.{f}(x, {b} == x)")),
            (
                inner.clone(),
                inner.clone(),
                prop::sample::select(vec!["contains", "matches", "startsWith", "orValue", "or", "getHours"])
            )
                .prop_map(|(a, b, f)| format!("{a}.{f}({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[{b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[?{b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{'k': {a}, {b}: 1}}")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            (inner.clone(), prop::sample::select(vec!["a", "b"])).prop_map(|(a, f)| format!("{a}.{f}")),
            inner.prop_map(|a| format!("condition({a}, 'a').status")),
        ]
    })
}

/// What the library makes of the tree as it was parsed.
fn unbounded(expression: &Expression, scope: &Scope<'_>) -> Result<String, ()> {
    let value = cel::Value::resolve_val(expression.program.expression(), &scope.context).map_err(drop)?;
    Ok(words(&*value))
}

fn words(value: &dyn Val) -> String {
    use cel::common::types::Kind;
    match value.get_type().kind() {
        Kind::List => {
            let mut items = Vec::new();
            let mut list = value.as_iterable().expect("a list").iter();
            while let Some(item) = list.next() {
                items.push(words(item));
            }
            format!("{items:?}")
        }
        Kind::Map => format!("map of {:?}", value.as_sizer().map(|s| s.size())),
        Kind::Opaque => format!("{:?}", value.downcast_ref::<CelOptional>().map(|o| o.option().map(words))),
        _ => format!("{value:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// No expression panics on any object, and one that stays in its budget means what it says.
    #[test]
    fn counting_changes_no_outcome(object in any_json(), text in any_expression()) {
        if let Ok(expression) = Expression::compile("f", &text, &["object"]) {
            let mut scope = Scope::default();
            scope.bind("object", &object);
            let unbounded = unbounded(&expression, &scope);
            let bounded = expression.run(&mut scope).map(|value| words(&*value));
            let panicked = bounded.as_ref().is_err_and(|e| e.message.contains("panicked"));
            prop_assert!(!panicked, "{}", text);
            prop_assert_eq!(bounded.map_err(drop), unbounded, "{}", text);
        }
    }
}
