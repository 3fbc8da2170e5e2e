use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Health};

use super::*;
use crate::source::Evaluation;

const SOURCE: &str = r#"
apiVersion: statusbridge.dev/source/v1
kind: Source
name: widgets
object: {group: example.com, kind: Widget, versions: [v1]}
related:
  - name: config
    kinds:
      - {group: "", kind: ConfigMap, versions: [v1]}
      - {group: "", kind: Secret, versions: [v1]}
    reference: {kind: object.?spec.?from.?kind, name: object.?spec.?from.?name}
  - name: parts
    kinds: [{group: example.com, kind: Part, versions: [v1]}]
    labels: {match: {widget: object.metadata.name}}
variables:
  ready: condition(object, 'Ready')
  fresh: object.?status.?seen.orValue(0) >= object.metadata.?generation.orValue(0)
revisions:
  desired: config.?data.?version
  applied: object.?status.?versions
apply:
  - {when: "!fresh", state: Pending, reason: NotObserved}
  - {when: ready.status == 'True', state: Applied}
  - {when: ready.status == 'False', state: Failed, messageFrom: "'broken: ' + ready.message"}
health:
  - {when: "apply == 'Applied' && parts.all(p, p.?status.?ok.orValue(false))", state: Current}
  - {state: InProgress, reasonFrom: "'Parts' + string(size(parts))"}
reason: ready.reason
message: ready.message
since: ready.?lastTransitionTime
inventory: {total: size(parts), current: "size(parts.filter(p, p.?status.?ok.orValue(false)))", failed: "0"}
hold: {when: ready.status == 'Unknown', key: object.?spec.?from.?name}
samples:
  - object:
      apiVersion: example.com/v1
      kind: Widget
      metadata: {name: a, namespace: b, generation: 1}
      spec: {from: {kind: Secret, name: s}}
      status: {seen: 1, versions: [x, "y"], conditions: [{type: Ready, status: "True"}]}
    related:
      config: {data: {version: x}}
      parts: [{status: {ok: true}}]
"#;

fn parse(yaml: &str) -> Result<Vec<Source>, SourceProblem> {
    Source::parse("widgets.yaml", yaml)
}

fn source() -> Source {
    parse(SOURCE).expect("the source compiles").remove(0)
}

#[test]
fn sources_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Source>();
}

#[test]
fn one_file_holds_several_sources() {
    let second = SOURCE.replace("name: widgets", "name: gadgets");
    let names: Vec<String> =
        parse(&format!("{SOURCE}---{second}")).expect("both compile").into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["widgets", "gadgets"]);
}

/// What is wrong, and the whole message: it must name file, field and expression.
#[rstest]
#[case(
    "kind: Source",
    "kind: Sauce",
    "source widgets: needs `apiVersion: statusbridge.dev/source/v1` and `kind: Source`, has apiVersion statusbridge.dev/source/v1, kind Sauce"
)]
#[case(
    "source/v1",
    "source/v9",
    "source widgets: needs `apiVersion: statusbridge.dev/source/v1` and `kind: Source`, has apiVersion statusbridge.dev/source/v9, kind Source"
)]
#[case(
    "name: widgets",
    "name: Widgets",
    "source Widgets: name: `Widgets` must be lower-case letters, digits and dashes, at most 63"
)]
#[case(
    "versions: [v1]}\nrelated",
    "versions: []}\nrelated",
    "source widgets: object.versions: needs at least one version, and no empty one"
)]
#[case(
    "{kind: object.?spec.?from.?kind, name: ",
    "{name: ",
    "source widgets: related[0].reference.kind: is needed to choose among the kinds"
)]
#[case(
    "object.metadata.name}",
    "objet.metadata.name}",
    "source widgets: related[1].labels.match.widget: there is no variable `objet` in `objet.metadata.name`"
)]
#[case(
    "  ready: cond",
    "  object: cond",
    "source widgets: variables.object: there is already a variable `object`"
)]
#[case(
    "  ready: cond",
    "  apply: cond",
    "source widgets: variables.apply: `apply` cannot be the name of a variable"
)]
#[case(
    "condition(object, 'Ready')",
    "conditions(object, 'Ready')",
    "source widgets: variables.ready: there is no function `conditions` (nearest: `condition`) in `conditions(object, 'Ready')`"
)]
#[case(
    "config.?data.?version",
    "config.?data.?version.orValue(1)",
    "source widgets: revisions.desired: on an object that has nothing but a name: gives int, where a string or a list of strings is needed in `config.?data.?version.orValue(1)`"
)]
#[case(
    "object.?status.?versions",
    "object.status.versions",
    "source widgets: revisions.applied: on an object that has nothing but a name: No such key: status in `object.status.versions`"
)]
#[case(
    "when: ready.status == 'True'",
    "when: ready.stauts == 'True'",
    "source widgets: apply[1].when: on samples[0]: No such key: stauts in `ready.stauts == 'True'`"
)]
#[case(
    "when: ready.status == 'True'",
    "when: ready.status",
    "source widgets: apply[1].when: on samples[0]: gives string, where a bool is needed in `ready.status`"
)]
#[case(
    "state: Applied",
    "state: Aplied",
    "source widgets: apply[1].state: `Aplied` is none of Applied, Applying, Pending, Paused, Deleting, Unknown, Failed"
)]
#[case(
    "reason: NotObserved",
    "reason: ready.reason",
    "source widgets: apply[0].reason: `ready.reason` is no CamelCase word; an expression belongs into `reasonFrom`"
)]
#[case(
    "when: \"!fresh\", ",
    "",
    "source widgets: apply[0]: has no `when`, so no rule after it is ever reached"
)]
#[case(
    "apply == 'Applied'",
    "aply == 'Applied'",
    "source widgets: health[0].when: there is no variable `aply` in `aply == 'Applied' && parts.all(p, p.?status.?ok.orValue(false))`"
)]
#[case(
    "since: ready.?lastTransitionTime",
    "since: ready.status",
    "source widgets: since: on samples[0]: `True` is no time"
)]
#[case(
    "failed: \"0\"",
    "failed: \"'0'\"",
    "source widgets: inventory.failed: on samples[0]: gives string, where an int is needed in `'0'`"
)]
#[case(
    "key: object.?spec.?from.?name",
    "key: object",
    "source widgets: hold.key: on samples[0]: gives map, where a string, an int, a bool or a list of these is needed in `object`"
)]
#[case("kind: Widget\n", "kind: Gadget\n", "source widgets: samples[0].object: is not of the source's kind")]
#[case(
    "      config: {",
    "      confg: {",
    "source widgets: samples[0].related.confg: is no related object of this source"
)]
#[case("ready.status == 'False'", "ready.status == False'", "source widgets: apply[2].when: ERROR: <input>")]
fn what_is_wrong_is_found_at_load(#[case] right: &str, #[case] wrong: &str, #[case] message: &str) {
    assert!(SOURCE.contains(right), "{right}");
    let error = parse(&SOURCE.replacen(right, wrong, 1)).expect_err(wrong).to_string();
    assert!(error.starts_with(&format!("widgets.yaml: {message}")), "{error}");
}

#[rstest]
#[case("reason: ready.reason", "raeson: ready.reason", "raeson")]
#[case("state: Pending", "state: Pending, mesage: x", "mesage")]
#[case("versions: [v1]}\nrelated", "versions: [v1], plural: widgets}\nrelated", "plural")]
#[case("  ready: condition", "  fresh: \"true\"\n  ready: condition", "fresh")]
#[case("apply:\n", "apples:\n", "apples")]
fn a_field_that_the_format_does_not_have_is_named(
    #[case] right: &str,
    #[case] wrong: &str,
    #[case] named: &str,
) {
    assert!(SOURCE.contains(right), "{right}");
    let error = parse(&SOURCE.replacen(right, wrong, 1)).expect_err(wrong).to_string();
    assert!(error.contains("widgets.yaml") && error.contains(named), "{error}");
}

#[test]
fn files_that_are_no_sources_say_so() {
    for yaml in ["", "a: [", "just text", "apiVersion: v1\nkind: ConfigMap\n"] {
        assert!(parse(yaml).is_err(), "{yaml:?}");
    }
}

#[test]
fn related_objects_are_found_by_reference_and_by_labels() {
    let object = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {"from": {"kind": "Secret", "name": "s"}}});
    let parts = JoinKey::Labels {
        related: 1,
        kind: 0,
        namespace: Some("b".into()),
        labels: vec![("widget".into(), "a".into())],
    };
    let secret = JoinKey::Reference { related: 0, kind: 1, namespace: Some("b".into()), name: "s".into() };
    assert_eq!(source().join_keys(&object), [secret.clone(), parts.clone()]);
    for (key, metadata, is) in [
        (&secret, json!({"name": "s", "namespace": "b"}), true),
        (&secret, json!({"name": "s", "namespace": "c"}), false),
        (&secret, json!({"name": "s"}), false),
        (&parts, json!({"name": "p", "namespace": "b", "labels": {"widget": "a", "x": "y"}}), true),
        (&parts, json!({"name": "p", "namespace": "b", "labels": {"widget": "z"}}), false),
        (&parts, json!({"name": "p", "namespace": "b"}), false),
    ] {
        assert_eq!(key.matches(&json!({"metadata": metadata})), is, "{metadata}");
    }
    let kept = &source().related[1].projection;
    assert!(kept.paths().contains(&"metadata.labels.widget".to_owned()), "{:?}", kept.paths());
}

#[test]
fn a_reference_that_cannot_be_followed_is_followed_nowhere() {
    for from in [
        json!(null),
        json!({"kind": "Pod", "name": "s"}),
        json!({"kind": 5, "name": "s"}),
        json!({"kind": "Secret"}),
    ] {
        let object = json!({"metadata": {"name": "a"}, "spec": {"from": from}});
        assert!(source().join_keys(&object).iter().all(|key| key.related() == 1), "{from}");
    }
}

fn evaluate(object: &Value, config: Option<&Value>, parts: Vec<&Value>) -> Evaluation {
    source().evaluate(object, &RelatedObjects(vec![RelatedObject::One(config), RelatedObject::Many(parts)]))
}

#[test]
fn everything_in_a_source_ends_up_in_the_evaluation() {
    let mut object = json!({
        "metadata": {"name": "a", "generation": 1},
        "status": {"seen": 1, "versions": ["x", "y"], "conditions": [
            {"type": "Ready", "status": "True", "reason": "Fine", "message": "m", "lastTransitionTime": "1970-01-01T00:01:00Z"},
        ]},
    });
    let (config, part) = (json!({"data": {"version": "x"}}), json!({"status": {"ok": true}}));
    let good = evaluate(&object, Some(&config), vec![&part, &part]);
    assert!(good.verdict.good() && good.verdict.reason.is_none() && good.error.is_none(), "{good:?}");
    assert_eq!(good.verdict.since, Some(60));
    assert_eq!(good.verdict.healthy, statusbridge_contract::Fingerprint::of_all(["x", "y"]));
    assert_eq!(good.detail.applied_revision.as_deref(), Some("x, y"));
    let counts = good.verdict.inventory.map(|i| (i.total, i.current, i.failed));
    assert_eq!(counts, Some((2, 2, 0)));
    assert!(good.hold.is_some_and(|hold| !hold.undecided));

    let bad_part = json!({});
    let waiting = evaluate(&object, Some(&config), vec![&part, &bad_part]).verdict;
    assert_eq!((waiting.health, waiting.reason.as_deref()), (Health::InProgress, Some("Parts2")));
    assert!(waiting.healthy.is_none() && !waiting.applied.is_none());

    object["status"]["conditions"][0]["status"] = json!("False");
    let failed = evaluate(&object, None, vec![]);
    assert_eq!((failed.verdict.apply, failed.verdict.reason.as_deref()), (ApplyState::Failed, Some("Fine")));
    assert_eq!(failed.detail.message, "broken: m");
    assert!(failed.verdict.desired.is_none());

    object["status"]["conditions"][0]["status"] = json!("Odd");
    let unknown = evaluate(&object, None, vec![]).verdict;
    assert_eq!((unknown.apply, unknown.reason.as_deref()), (ApplyState::Unknown, Some("NoRuleMatched")));

    object["status"]["versions"] = json!([1]);
    let rubbish = evaluate(&object, None, vec![]);
    assert_eq!(rubbish.verdict.reason.as_deref(), Some("EvaluationFailed"));
    assert_eq!(
        rubbish.verdict.inventory.map(|i| i.total),
        Some(0),
        "a source with an inventory always counts"
    );
    assert!(rubbish.detail.message.contains("revisions.applied"), "{}", rubbish.detail.message);
}

#[test]
fn without_health_rules_kstatus_decides() {
    let start = SOURCE.find("health:").expect("health rules");
    let end = SOURCE.find("reason: ready").expect("what follows them");
    let source = parse(&format!("{}{}", &SOURCE[..start], &SOURCE[end..])).expect("it compiles").remove(0);
    let object = json!({"metadata": {"name": "a"}, "status": {"conditions": [
        {"type": "Stalled", "status": "True", "reason": "Stuck"}, {"type": "Ready", "status": "True"},
    ]}});
    let none = RelatedObjects::default();
    let verdict = source.evaluate(&object, &none).verdict;
    assert_eq!((verdict.health, verdict.reason.as_deref()), (Health::Failed, Some("Stuck")));
    assert_eq!(source.evaluate(&source.projection().project(&object), &none).verdict, verdict);
}

#[test]
fn the_example_in_the_documentation_works() {
    let documentation = include_str!("../../../docs/sources.md");
    let example = documentation.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let source = parse(example.expect("an example")).expect("it compiles").remove(0);
    let yaml: Value = serde_saphyr::from_str(example.expect("an example")).expect("it is YAML");
    let sample = &yaml["samples"][0];
    let parts = sample["related"]["parts"].as_array().expect("parts").iter().collect();
    let related = RelatedObjects(vec![
        RelatedObject::One(Some(&sample["related"]["config"])),
        RelatedObject::Many(parts),
    ]);
    let evaluation = source.evaluate(&sample["object"], &related);
    assert!(
        evaluation.verdict.good() && evaluation.verdict.desired == evaluation.verdict.healthy,
        "{evaluation:?}"
    );
}

/// All that a source needs for a kind whose conditions follow the conventions.
const SHORTEST: &str = "
apiVersion: statusbridge.dev/source/v1
kind: Source
name: widgets
object: {group: example.com, kind: Widget, versions: [v1]}
revisions: {desired: object.?spec.?version, applied: object.?status.?version}
";

fn widget(generation: i64, observed: i64, versions: [&str; 2], conditions: Value) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "front", "namespace": "shop", "generation": generation},
        "spec": {"version": versions[0]},
        "status": {"observedGeneration": observed, "version": versions[1], "conditions": conditions},
    })
}

fn shortest(object: &Value) -> crate::source::Verdict {
    let source = parse(SHORTEST).expect("it compiles").remove(0);
    let none = RelatedObjects::default();
    let verdict = source.evaluate(object, &none).verdict;
    assert_eq!(source.evaluate(&source.projection().project(object), &none).verdict, verdict, "lean");
    verdict
}

#[test]
fn a_source_of_five_lines_follows_a_rollout() {
    use statusbridge_contract::Fingerprint;
    let ready = |status: &str, reason: &str| json!({"type": "Ready", "status": status, "reason": reason});
    let of = Fingerprint::of;
    for (object, apply, health, applied, reason) in [
        (
            widget(1, 1, ["v1", "v1"], json!([ready("True", "Fine")])),
            ApplyState::Applied,
            Health::Current,
            of("v1"),
            None,
        ),
        // The wanted version is new, and the controller has not looked at it.
        (
            widget(2, 1, ["v2", "v1"], json!([ready("True", "Fine")])),
            ApplyState::Pending,
            Health::InProgress,
            Fingerprint::NONE,
            Some("LatestGenerationNotObserved"),
        ),
        // It says v2 from the start of the rollout on.
        (
            widget(2, 2, ["v2", "v2"], json!([ready("False", "Rolling")])),
            ApplyState::Applying,
            Health::InProgress,
            Fingerprint::NONE,
            Some("Rolling"),
        ),
        (
            widget(
                2,
                2,
                ["v2", "v2"],
                json!([ready("False", ""), {"type": "Stalled", "status": "True", "reason": "NoSuchVersion"}]),
            ),
            ApplyState::Failed,
            Health::Failed,
            Fingerprint::NONE,
            Some("NoSuchVersion"),
        ),
        (
            widget(
                2,
                2,
                ["v2", "v2"],
                json!([{"type": "Reconciling", "status": "True", "reason": "Retrying"}, ready("True", "")]),
            ),
            ApplyState::Applying,
            Health::InProgress,
            Fingerprint::NONE,
            Some("Retrying"),
        ),
        (
            widget(2, 2, ["v2", "v2"], json!([])),
            ApplyState::Unknown,
            Health::Unknown,
            Fingerprint::NONE,
            Some("NoConditions"),
        ),
        (
            widget(2, 2, ["v2", "v2"], json!([ready("True", "Fine")])),
            ApplyState::Applied,
            Health::Current,
            of("v2"),
            None,
        ),
    ] {
        let verdict = shortest(&object);
        assert_eq!((verdict.apply, verdict.health, verdict.applied), (apply, health, applied), "{object}");
        assert_eq!(verdict.healthy, applied, "{object}");
        assert_eq!(verdict.reason.as_deref(), reason, "{object}");
    }
    let mut deleting = widget(1, 1, ["v1", "v1"], json!([ready("True", "Fine")]));
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let verdict = shortest(&deleting);
    assert_eq!(
        (verdict.apply, verdict.applied),
        (ApplyState::Deleting, statusbridge_contract::Fingerprint::NONE)
    );
}

proptest::proptest! {
    #[test]
    fn without_rules_a_revision_is_claimed_only_while_everything_says_so(
        generation in 1i64..3,
        observed in 0i64..3,
        conditions in proptest::collection::vec(
            (proptest::sample::select(vec!["Ready", "Reconciling", "Stalled", "Other"]),
             proptest::sample::select(vec!["True", "False", "Unknown", ""]),
             proptest::option::of(1i64..3)), 0..5),
    ) {
        let values = conditions.iter().map(|(kind, status, observed)| {
            json!({"type": kind, "status": status, "observedGeneration": observed})
        });
        let verdict = shortest(&widget(generation, observed, ["v2", "v2"], values.collect()));
        let of = |kind: &'static str| conditions.iter().filter(move |(other, ..)| *other == kind);
        let first_ready = of("Ready").next().is_some_and(|(_, status, _)| *status == "True");
        let busy = of("Reconciling").chain(of("Stalled")).any(|(_, status, _)| *status == "True");
        let stale = of("Ready").any(|(.., observed)| observed.is_some_and(|o| o != generation));
        let good = observed == generation && first_ready && !busy && !stale;
        proptest::prop_assert_eq!(verdict.good(), good);
        proptest::prop_assert_eq!(!verdict.applied.is_none(), good);
        proptest::prop_assert_eq!(!verdict.healthy.is_none(), good);
    }
}

/// Alone, as a part of a source, and beside one.
#[test]
fn hostile_yaml_is_an_error_that_names_the_file() {
    for (name, text) in statusbridge_expression::hostile_yaml::texts() {
        let indented: String = text.lines().map(|line| format!("    {line}\n")).collect();
        let within = format!("apiVersion: statusbridge.dev/source/v1\nkind: Source\nsamples:\n{indented}");
        for text in [text, within] {
            let error = parse(&text).expect_err(name).to_string();
            assert!(error.starts_with("widgets.yaml: ") && error.len() < 4_000, "{name}: {error}");
        }
    }
}

/// The field `where` in place of the source's `reason`, on line 28.
fn with_where(yaml: &str) -> String {
    SOURCE.replacen("reason: ready.reason", yaml, 1)
}

const TAG: &str = "as a tag, not as part of the value: ";
const ANCHOR: &str = "as an anchor, not as part of the value: leave it out";
const ALIAS: &str = "is a YAML alias, which a source may not have: write the value itself";
const NULL: &str = "is no value in YAML: write one, or leave the field out";
const NOTHING: &str = "there is no value: write one, or leave the field out";
const EMPTY: &str = "the text is empty: write one, or leave the field out";
const SCAN_TAG: &str = "while scanning a tag, did not find expected whitespace or line break: ";
const SCAN_BLOCK: &str = "while scanning a block scalar, did not find expected comment or line break: ";
const BANG: &str = "quote a value that begins with `!`";

/// What stands on line 28, and from the column on the whole message.
#[rstest]
#[case::tag("where: !broken", "8: where: YAML reads `!broken` {TAG}quote the value: where: \"!broken\"")]
#[case::space("where: ! broken", "8: where: YAML reads `!` {TAG}quote the value: where: \"! broken\"")]
#[case::and(
    "where: !broken && true",
    "8: where: YAML reads `!broken` {TAG}quote the value: where: \"!broken && true\""
)]
#[case::comment(
    "where: !has(a.x) # b",
    "8: where: YAML reads `!has(a.x)` {TAG}quote the value: where: \"!has(a.x)\""
)]
#[case::group("where: !(a && b)", "8: where: YAML reads `!(a` {TAG}quote the value: where: \"!(a && b)\"")]
#[case::twice("where: !!broken", "8: where: YAML reads `!!broken` {TAG}quote the value: where: \"!!broken\"")]
#[case::double_quotes(
    "where: !a == \"b\"",
    "8: where: YAML reads `!a` {TAG}quote the value: where: '!a == \"b\"'"
)]
#[case::both_quotes(
    "where: !a == \"b\" + 'c'",
    "8: where: YAML reads `!a` {TAG}quote the value: where: '!a == \"b\" + ''c'''"
)]
#[case::two_lines("where: !a\n  && b", "8: where: YAML reads `!a` {TAG}quote the value")]
#[case::index("where: !object.a[0]", "8: where: {SCAN_TAG}{BANG}")]
#[case::or("where: !a || b", "11: where: {SCAN_BLOCK}{BANG}")]
#[case::known_tag("where: !!str a", "8: where: YAML reads `!!str` {TAG}leave the tag out")]
#[case::quoted_with_tag("where: !a \"b\"", "8: where: YAML reads `!a` {TAG}leave the tag out")]
#[case::block_with_tag("where: !a |\n  b", "8: where: YAML reads `!a` {TAG}leave the tag out")]
#[case::tag_of_a_key("!a where: b", "1: YAML reads `!a` {TAG}leave the tag out")]
#[case::anchor("where: &a", "8: where: YAML reads `&a` {ANCHOR}, or quote the value: where: \"&a\"")]
#[case::anchor_and_text(
    "where: && a",
    "8: where: YAML reads `&&` {ANCHOR}, or quote the value: where: \"&& a\""
)]
#[case::anchored_key("&a where: b", "1: YAML reads `&a` {ANCHOR}")]
#[case::alias("where: *a", "8: where: `*a` {ALIAS}")]
#[case::alias_as_a_key("*a : b", "1: `*a` {ALIAS}")]
#[case::merge_key(
    "<<: {where: \"true\"}",
    "1: `<<` is a YAML merge key, which a source may not have: write the fields themselves"
)]
#[case::nothing("where:", "1: where: {NOTHING}")]
#[case::only_a_comment("where: # true", "1: where: {NOTHING}")]
#[case::tilde("where: ~", "8: where: `~` {NULL}")]
#[case::null("where: null", "8: where: `null` {NULL}")]
#[case::null_in_capitals("where: NULL", "8: where: `NULL` {NULL}")]
#[case::empty("where: \"\"", "1: where: {EMPTY}")]
#[case::blank("where: '  '", "1: where: {EMPTY}")]
#[case::empty_block("where: |\n", "1: where: {EMPTY}")]
#[case::null_as_a_key("~: a", "1: a field has no name: write one")]
fn yaml_that_hides_an_expression_is_refused(#[case] yaml: &str, #[case] message: &str) {
    let message = message_of(message);
    let error = parse(&with_where(yaml)).expect_err(yaml).to_string();
    assert_eq!(error, format!("widgets.yaml: line 28 column {message}"));
    // In a later document, after one that is empty.
    let documents = format!("{SOURCE}---\n# Nothing.\n---\n{}", with_where(yaml));
    let line = 28 + SOURCE.lines().count() + 3;
    let error = parse(&documents).expect_err(yaml).to_string();
    assert_eq!(error, format!("widgets.yaml: line {line} column {message}"));
}

/// Fills in the constants, which keep the tables readable.
fn message_of(text: &str) -> String {
    let constants = [
        ("{TAG}", TAG),
        ("{ANCHOR}", ANCHOR),
        ("{ALIAS}", ALIAS),
        ("{NULL}", NULL),
        ("{NOTHING}", NOTHING),
        ("{EMPTY}", EMPTY),
        ("{SCAN_TAG}", SCAN_TAG),
        ("{SCAN_BLOCK}", SCAN_BLOCK),
        ("{BANG}", BANG),
    ];
    constants.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

#[rstest]
#[case::rule(
    "when: \"!fresh\",",
    "when: !fresh,",
    "line 22 column 12: apply[0].when: YAML reads `!fresh` {TAG}quote the value: when: \"!fresh\""
)]
#[case::last_rule(
    "  - {state: InProgress,",
    "  - when:\n    state: InProgress\n  - {state: InProgress,",
    "line 27 column 5: health[1].when: {NOTHING}"
)]
#[case::last_rule_in_braces(
    "{state: InProgress,",
    "{when: , state: InProgress,",
    "line 27 column 6: health[1].when: {NOTHING}"
)]
#[case::rules("apply:\n", "apply: !a\n", "line 21 column 8: apply: YAML reads `!a` {TAG}leave the tag out")]
#[case::anchored_rules("apply:\n", "apply: &a\n", "line 21 column 8: apply: YAML reads `&a` {ANCHOR}")]
#[case::variable(
    "  ready: cond",
    "  broken: !ready\n  ready: cond",
    "line 16 column 11: variables.broken: YAML reads `!ready` {TAG}quote the value: broken: \"!ready\""
)]
#[case::related(
    "kind: object.?spec.?from.?kind",
    "kind: ~",
    "line 11 column 23: related[0].reference.kind: `~` {NULL}"
)]
#[case::item(
    "versions: [v1]}\nrelated",
    "versions: [v1, ~]}\nrelated",
    "line 5 column 59: object.versions[1]: `~` is no value in YAML: write one, or leave the item out"
)]
#[case::key_that_is_a_list(
    "  ready: cond",
    "  ? [a, !b ]\n  : c\n  ready: cond",
    "line 16 column 9: variables[1]: YAML reads `!b` {TAG}quote the value: \"!b\""
)]
#[case::document(
    "\napiVersion",
    "--- !source\napiVersion",
    "line 1 column 5: YAML reads `!source` {TAG}leave the tag out"
)]
fn no_field_takes_yaml_that_hides_something(#[case] right: &str, #[case] wrong: &str, #[case] message: &str) {
    assert!(SOURCE.contains(right), "{right}");
    let error = parse(&SOURCE.replacen(right, wrong, 1)).expect_err(wrong).to_string();
    assert_eq!(error, format!("widgets.yaml: {}", message_of(message)));
}

#[rstest]
#[case::double_quotes("where: \"!(1 > 2)\"")]
#[case::single_quotes("where: '!(1 > 2)'")]
#[case::literal("where: |\n  !(1 > 2)\n    && true")]
#[case::folded("where: >-\n\n  !(1 > 2)\n  && true")]
#[case::two_lines("where: 1 < 2\n  && !false")]
#[case::within_the_text("where: 1 < 2 && !false && 'a*b&c' != '~'")]
#[case::null_in_quotes("where: \"null == null\"")]
#[case::comments("# where: !x\nwhere: 1 < 2 # &a *b !c ~")]
#[case::a_bool("where: true")]
#[case::empty_text("description: \"\"")]
fn yaml_that_hides_nothing_loads(#[case] yaml: &str) {
    assert_eq!(parse(&with_where(yaml)).map(|sources| sources.len()), Ok(1), "{yaml}");
}

#[rstest]
#[case::none("[]")]
#[case::nothing("")]
#[case::null("~")]
#[case::anchored_null("&a ~")]
#[case::nulls(
    "[{object: {apiVersion: example.com/v1, kind: Widget, spec: ~, status: {a: null, b: [~], c: }}}]"
)]
#[case::tags("[{object: {apiVersion: example.com/v1, kind: !!str Widget, metadata: {name: !a b}}}]")]
#[case::aliases(
    "[{object: &a {apiVersion: example.com/v1, kind: Widget}}, {object: *a}, {object: {<<: *a}}]"
)]
#[case::anchor("&a [{object: {apiVersion: example.com/v1, kind: Widget}}]")]
fn samples_may_hold_any_yaml(#[case] samples: &str) {
    let source = format!("{SHORTEST}samples: {samples}\n");
    let two = format!("{source}where: 1 < 2\n---{source}");
    assert_eq!(parse(&two).map(|sources| sources.len()), Ok(2), "{samples}");
    // The field after the samples may not.
    let error = parse(&format!("{source}where: !x\n")).expect_err(samples).to_string();
    assert!(error.starts_with("widgets.yaml: line 8 column 8: where: "), "{error}");
}

#[test]
fn an_alias_cannot_carry_a_sample_into_a_field() {
    let source = format!(
        "{SHORTEST}samples: [{{object: {{apiVersion: example.com/v1, kind: &a Widget}}}}]\nwhere: *a\n"
    );
    let error = parse(&source).expect_err("an alias").to_string();
    assert_eq!(error, message_of("widgets.yaml: line 8 column 8: where: `*a` {ALIAS}"));
}
