use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::expression::{Expression, Scope};

fn object() -> Value {
    json!({
        "a": {"x": 1, "y": 2},
        "list": [3, 1, 2],
        "items": [{"name": "b", "tags": ["p", "q"]}, {"name": "a", "tags": []}],
        "text": "image:v1.2.3",
        "nested": [[1, [2]], [3]],
        "null": null,
    })
}

fn outcome(text: &str, object: &Value) -> Result<bool, String> {
    let mut scope = Scope::default();
    scope.bind("object", object);
    Expression::compile("f", text, &["object"])?.truth(&mut scope).map_err(|error| error.message)
}

/// Beside upstream's cases, which have nothing that lies in an object.
#[rstest]
#[case("object.a.all(k, v, object.a[k] == v) && object.list.exists(i, v, i == 0 && v == 3)")]
#[case("object.items.all(i, item, item.tags.all(j, tag, i == 0 && j < 2))")]
#[case("object.items.transformMap(i, item, has(item.name), item.name) == {0: 'b', 1: 'a'}")]
#[case("object.items.transformMapEntry(i, item, {item.name: item}).a == object.items[1]")]
#[case("object.a.transformList(k, v, k + string(v)).sort() == ['x1', 'y2']")]
#[case("object.list.map(i, [7].all(i, v, i == 0 && v == 7)) == [true, true, true]")]
#[case("[[5]].all(i, v, v.all(i, w, w == 5) && i == 0)")]
#[case("object.items.sortBy(item, item.name).map(item, item.name) == ['a', 'b']")]
#[case(
    "object.list.sort() == [1, 2, 3] && object.list.reverse() == [2, 1, 3] && object.list.slice(1, 2) == [1]"
)]
#[case("object.nested.flatten() == [1, [2], 3] && object.nested.flatten(5) == [1, 2, 3]")]
#[case(
    "object.list.sum() == 6 && object.list.min() == 1 && !object.list.isSorted() && object.list.includes(3)"
)]
#[case("object.items.first().name.orValue('') == 'b' && object.items.last().?name.orValue('') == 'a'")]
#[case("object.items.map(i, i.name).join('-') == 'b-a' && object.text.split(':')[1] == 'v1.2.3'")]
#[case("semver(regex.extract(object.text, ':(.*)').value(), true).minor() == 2")]
#[case("cel.bind(o, object, o.a.x + o.a.y) == 3 && cel.bind(x, 1, [2].map(x, x) == [2] && x == 1)")]
#[case("sets.contains(object.list, [1, 3]) && !sets.intersects(object.list, object.items)")]
#[case("'%s %d %x'.format([object.list, 12, 'a']) == '[3, 1, 2] 12 61'")]
#[case("json.marshal(object) == json.marshal(json.unmarshal(json.marshal(object)))")]
#[case(
    "json.marshal({'b': [1, 2.5, true, null], 'a': {1: '\"'}}) == '{\"a\":{\"1\":\"\\\\\"\"},\"b\":[1,2.5,true,null]}'"
)]
#[case(
    "json.unmarshal('{\"a\": [1, -2.5, \"x\", {}]}') == {'a': [1, -2.5, 'x', {}]} && json.marshal([]) == '[]'"
)]
#[case("type(json.unmarshal('1')) == int && !has(json.unmarshal('{\"a\": null}').a)")]
#[case("kstatus(object).status == 'Current' && kstatus(object).reason == ''")]
#[case(
    "kstatus({'kind': 'Widget', 'status': {'conditions': [{'type': 'Ready', 'status': 'False', 'reason': 'Down'}]}}) == {'status': 'InProgress', 'reason': 'Down', 'message': ''}"
)]
#[case(
    "kstatus(object.?nope).status == 'NotFound' && kstatus({'status': {'conditions': 5}}).reason == 'MalformedConditions'"
)]
#[case(
    "kstatus({'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'creationTimestamp': '2020-01-01T00:00:00Z'}, 'status': {'phase': 'Pending', 'conditions': [{'type': 'PodScheduled', 'status': 'False', 'reason': 'Unschedulable'}]}}).reason == 'PodNotScheduled'"
)]
#[case("math.greatest(object.list) == 3 && math.least(object.a.x, object.a.y) == 1")]
#[case("sets.equivalent([1], [1, 1]) && !equivalent([1], [1, 1])")]
#[case(
    "quantity('1Ki') == quantity('1024') && quantity('0.5') == quantity('500m') && quantity('-1') != quantity('1')"
)]
#[case("quantity('1e3').asInteger() == 1000 && quantity('1E').asInteger() == 1000000000000000000")]
#[case("!quantity('1000m').isInteger() && !quantity('1.0').isInteger() && quantity('0').isInteger()")]
#[case(
    "quantity('0.0000000001') == quantity('0.1n') && quantity('0.12345678901234567891') == quantity('0.123456790')"
)]
#[case(
    "quantity('9Ei').compareTo(quantity('9223372036854775807')) == 0 && quantity('9.3E').isGreaterThan(quantity('9Ei'))"
)]
#[case("quantity('1e400').asApproximateFloat() > 1e300 && quantity('1').sub(quantity('2')).sign() == -1")]
#[case(
    "['', '.', '+', '-', '1K', '1 ', ' 1', '1e', '1e401', '1.2.3', '1i', '0x1', '٣'].all(q, !isQuantity(q))"
)]
#[case("['1', '+1', '-1.', '.5', '1k', '1Mi', '1e-3', '1E+3', '007'].all(q, isQuantity(q))")]
#[case("semver('1.0.0-rc.1').isLessThan(semver('1.0.0')) && semver('1.0.0+a') == semver('1.0.0+b')")]
#[case("['v1.0.0', '1.0', '01.0.0', '1.0.0-01', '1.0.0-18446744073709551616', ''].all(v, !isSemver(v))")]
#[case("semver('v1.02', true) == semver('1.2.0') && !isSemver('1.0-rc', true)")]
fn libraries_read_what_lies_in_an_object(#[case] text: &str) {
    assert_eq!(outcome(text, &object()), Ok(true), "{text}");
}

#[rstest]
#[case("object.list.slice(1, 4) == []", "there is no slice(1, 4) of a list of 3")]
#[case("[1, 'a'].sort() == []", "the list holds int and string")]
#[case("[[1]].sort() == []", "list has no order")]
#[case("[].max() == 1", "'max': the list is empty")]
#[case("object.items.sum() == 1", "the list holds map, not only numbers or durations")]
#[case("object.list.join() == ''", "the list holds int, not only strings")]
#[case("'a'.repeat(2) == ''", "there is no function `repeat`")]
#[case("'%d'.format(['a']) == ''", "decimal clause")]
#[case("[1, 1].transformMapEntry(i, v, {v: i}) == {}", "is there twice")]
#[case("[1, 2].transformMapEntry(i, v, {i == 0 ? dyn(1) : dyn(1u): i}) == {}", "is there twice")]
#[case("object.text.all(i, v, true)", "want 'list or map'")]
#[case("[1].all(i, i, true)", "duplicate variable name: i")]
#[case("[1].all(i, 1, true)", "argument must be a simple name")]
#[case("[1].transformMapEntry(i, v, 'x') == {}", "transformMapEntry makes maps")]
#[case("json.unmarshal('{') == 1", "EOF while parsing")]
#[case("json.unmarshal(object.deep) == 1", "the text is nested more than 32 deep")]
#[case("json.unmarshal(object.long) == 1", "the text is longer than 65536 bytes")]
#[case("semver('1.0.0-' + object.long) == 1", "the version is longer than 1024 bytes")]
#[case("quantity(object.long) == 1", "a text of 66000 bytes is no quantity, which has 1 to 256")]
#[case("quantity('1e401') == 1", "or e with a power of ten")]
#[case("json.marshal(b'a') == ''", "JSON cannot hold this bytes: give base64.encode(…) of it")]
#[case("json.marshal([timestamp(0)]) == ''", "JSON cannot hold this google.protobuf.Timestamp")]
#[case("semver('1.0') == semver('1.0.0')", "`1.0` is no semantic version")]
#[case("quantity('1K') == quantity('1k')", "`1K` is no quantity: its suffix is none of")]
#[case("quantity('1.5').asInteger() == 1", "cannot convert value to integer")]
#[case("regex.extract('ab', '(a)(b)').hasValue()", "the pattern has 2 groups")]
#[case("regex.replace('ab', '(a)', r'\\2') == ''", "has group 2, and the pattern 1")]
#[case("'a'.find('(') == ''", "cannot be used as a pattern")]
#[case("'a'.find(1) == ''", "want 'string'")]
#[case("lists.range(-1) == []", "the size -1 is negative")]
#[case("optional.some(1).hasValue()", "there is no function `optional.some`")]
fn what_does_not_work_says_why(#[case] text: &str, #[case] message: &str) {
    let mut object = object();
    object["deep"] = json!(["[".repeat(33), "]".repeat(33)].concat());
    object["long"] = json!("1".repeat(66_000));
    let error = outcome(text, &object).expect_err(text);
    assert!(error.contains(message), "{text}: {error}");
}

#[test]
fn each_function_is_declared() {
    let mut env = Env::stdlib();
    declare(&mut env).expect("no name twice");
    for name in functions() {
        let called = ["", "1", "1, 1", "1, 1, 1", "1, 1, 1, 1"].into_iter().any(|args| {
            let member = format!("[].{name}({args})");
            let texts = [format!("{name}({args})"), member];
            texts.iter().any(|text| match outcome(&format!("type({text}) == int"), &json!({})) {
                Ok(_) => true,
                Err(error) => !error.contains("Undeclared reference") && !error.contains("no variable"),
            })
        });
        assert!(called, "{name}");
    }
}

/// A quantity as it may be written, and its billionths.
fn any_quantity() -> impl Strategy<Value = (String, i128)> {
    let suffix =
        prop::sample::select(vec![("", 9), ("m", 6), ("u", 3), ("n", 0), ("k", 12), ("M", 15), ("e2", 11)]);
    (any::<bool>(), 0u32..1_000_000, suffix).prop_map(|(negative, number, (suffix, power))| {
        let amount = i128::from(number) * 10i128.pow(power);
        let sign = if negative { "-" } else { "" };
        (format!("{sign}{number}{suffix}"), if negative { -amount } else { amount })
    })
}

proptest! {
    #[test]
    fn quantities_are_exact((one, a) in any_quantity(), (other, b) in any_quantity()) {
        let object = json!({"one": one, "other": other, "sum": format!("{}n", a + b), "less": format!("{}n", a - b)});
        let order = a.cmp(&b) as i64;
        for text in [
            "quantity(object.one).add(quantity(object.other)) == quantity(object.sum)".to_owned(),
            "quantity(object.one).sub(quantity(object.other)) == quantity(object.less)".to_owned(),
            format!("quantity(object.one).compareTo(quantity(object.other)) == {order}"),
        ] {
            prop_assert_eq!(outcome(&text, &object), Ok(true), "{}", text);
        }
    }

    /// Against the plainest search that there is.
    #[test]
    fn positions_count_characters(text in "[aé☃]{0,8}", wanted in "[aé☃]{0,3}", from in 0i64..10) {
        let (runes, wanted_runes): (Vec<char>, Vec<char>) = (text.chars().collect(), wanted.chars().collect());
        let starts: Vec<i64> = (0..=runes.len())
            .filter(|&at| runes[at..].starts_with(&wanted_runes))
            .map(|at| at as i64)
            .collect();
        let end = runes.len() as i64;
        let (first, last) = (starts.iter().find(|&&at| at >= from), starts.iter().rev().find(|&&at| at <= from));
        let beyond = |found: i64| if !wanted.is_empty() && from >= end { -1 } else { found };
        let clamped = if wanted.is_empty() { from.min(end) } else { -1 };
        let expected = [
            ("object.text.indexOf(object.wanted)".to_owned(), starts.first().copied().unwrap_or(-1)),
            ("object.text.lastIndexOf(object.wanted)".to_owned(), starts.last().copied().unwrap_or(-1)),
            (format!("object.text.indexOf(object.wanted, {from})"), beyond(first.copied().unwrap_or(clamped))),
            (format!("object.text.lastIndexOf(object.wanted, {from})"), beyond(last.copied().unwrap_or(clamped))),
        ];
        let object = json!({"text": text, "wanted": wanted});
        for (call, found) in expected {
            prop_assert_eq!(outcome(&format!("{call} == {found}"), &object), Ok(true), "{} == {}", call, found);
        }
    }
}
