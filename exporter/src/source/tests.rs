use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Health};

use super::*;
use crate::source::Evaluation;

const SOURCE: &str = r#"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata: {name: widgets}
spec:
  kinds:
    - {group: example.com, kind: Widget, versions: [v1]}
  related:
    - name: config
      kinds:
        - {group: "", kind: ConfigMap, versions: [v1]}
        - {group: "", kind: Secret, versions: [v1]}
      reference: {kindExpression: object.?spec.?from.?kind, nameExpression: object.?spec.?from.?name}
    - name: parts
      kinds: [{group: example.com, kind: Part, versions: [v1]}]
      labels:
        match: [{label: widget, valueExpression: object.metadata.name}]
  variables:
    - {name: ready, expression: "condition(object, 'Ready')"}
    - {name: fresh, expression: object.?status.?seen.orValue(0) >= object.metadata.?generation.orValue(0)}
  revisions:
    desiredExpression: config.?data.?version
    appliedExpression: object.?status.?versions
  apply:
    - {whenExpression: "!fresh", state: Pending, reason: NotObserved}
    - {whenExpression: ready.status == 'True', state: Applied}
    - {whenExpression: ready.status == 'False', state: Failed, messageExpression: "'broken: ' + ready.message"}
  health:
    - {whenExpression: "apply == 'Applied' && parts.all(p, p.?status.?ok.orValue(false))", state: Current}
    - {state: InProgress, reasonExpression: "'Parts' + string(size(parts))"}
  reasonExpression: ready.reason
  messageExpression: ready.message
  sinceExpression: ready.?lastTransitionTime
  resources:
    counts:
      totalExpression: size(parts)
      currentExpression: size(parts.filter(p, p.?status.?ok.orValue(false)))
      failedExpression: "0"
  hold: {whenExpression: ready.status == 'Unknown', keyExpression: object.?spec.?from.?name}
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

/// The line of [`SOURCE`] that a text is on.
fn line(text: &str) -> usize {
    1 + SOURCE.lines().position(|line| line.contains(text)).expect(text)
}

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

/// What is wrong, and the whole message: it must name file, line, field and expression.
#[rstest]
#[case(
    "name: widgets",
    "name: Widgets",
    "source Widgets: metadata.name: `Widgets` must be lower-case letters, digits and dashes, at most 63"
)]
#[case(
    "kind: Widget, versions: [v1]",
    "kind: Widget, versions: []",
    "spec.kinds[0].versions: needs at least one version, and no empty one"
)]
#[case(
    "kindExpression: object.?spec.?from.?kind, nameExpression: ",
    "nameExpression: ",
    "spec.related[config].reference: needs `kindExpression` to choose among the kinds"
)]
#[case(
    "object.metadata.name}",
    "objet.metadata.name}",
    "spec.related[parts].labels.match[0].valueExpression: there is no variable `objet` in `objet.metadata.name`"
)]
#[case("name: ready", "name: object", "spec.variables[0].name: there is already a variable `object`")]
#[case("name: ready", "name: apply", "spec.variables[0].name: `apply` cannot be the name of a variable")]
#[case(
    "name: ready",
    "name: my-ready",
    "spec.variables[0].name: `my-ready` cannot be the name of a variable"
)]
#[case(
    "condition(object, 'Ready')",
    "conditions(object, 'Ready')",
    "spec.variables[ready].expression: there is no function `conditions` (nearest: `condition`) in `conditions(object, 'Ready')`"
)]
#[case(
    "config.?data.?version",
    "config.?data.?version.orValue(1)",
    "spec.revisions.desiredExpression: on an object that has nothing but a name: gives int, where a string or a list of strings is needed in `config.?data.?version.orValue(1)`"
)]
#[case(
    "object.?status.?versions",
    "object.status.versions",
    "spec.revisions.appliedExpression: on an object that has nothing but a name: No such key: status in `object.status.versions`"
)]
#[case(
    "whenExpression: ready.status == 'True'",
    "whenExpression: ready.stauts == 'True'",
    "spec.apply[1].whenExpression: on spec.samples[0]: No such key: stauts in `ready.stauts == 'True'`"
)]
#[case(
    "whenExpression: ready.status == 'True'",
    "whenExpression: ready.status",
    "spec.apply[1].whenExpression: on spec.samples[0]: gives string, where a bool is needed in `ready.status`"
)]
#[case(
    "state: Applied",
    "state: Aplied",
    "spec.apply[1].state: `Aplied` is none of Applied, Applying, Pending, Paused, Deleting, Unknown, Failed"
)]
#[case(
    "apply == 'Applied'",
    "apply == 'Aplied'",
    "spec.health[0].whenExpression: `apply` is never `Aplied`: it is one of Applied, Applying, Pending, Paused, Deleting, Unknown, Failed in `apply == 'Aplied'"
)]
#[case(
    "apply == 'Applied'",
    "'Current' != apply",
    "spec.health[0].whenExpression: `apply` is never `Current`"
)]
#[case(
    "apply == 'Applied'",
    "!(apply in ['Applied', 'Pendig'])",
    "spec.health[0].whenExpression: `apply` is never `Pendig`"
)]
#[case(
    "apply == 'Applied'",
    "kstatus(object).status == 'Ready'",
    "spec.health[0].whenExpression: `kstatus(…).status` is never `Ready`: it is one of Current, InProgress"
)]
#[case(
    "state: Pending,",
    "state: Pending, after: {sinceExpression: ready.lastTransitionTime, duration: ten minutes},",
    "spec.apply[0].after.duration: `ten minutes` is no time of whole seconds from `1s` to `720h`, such as `10m`"
)]
#[case(
    "state: Pending,",
    "state: Pending, after: {sinceExpression: ready.status, duration: 721h},",
    "spec.apply[0].after.duration: `721h` is no time of whole seconds from `1s` to `720h`, such as `10m`"
)]
#[case(
    "state: Pending,",
    "state: Pending, after: {sinceExpression: ready.status, duration: 10m},",
    "spec.apply[0].after.sinceExpression: on spec.samples[0]: `True` is no time"
)]
#[case(
    "reason: NotObserved",
    "reason: ready.reason",
    "spec.apply[0].reason: `ready.reason` is no CamelCase word; an expression belongs into `reasonExpression`"
)]
#[case(
    "reason: NotObserved",
    "reason: NotObserved, reasonExpression: ready.reason",
    "spec.apply[0].reason: stands beside `reasonExpression`"
)]
#[case(
    "whenExpression: ready.status == 'True', ",
    "",
    "spec.apply[2]: is never reached: a rule before it has no `whenExpression`"
)]
#[case(
    "apply == 'Applied'",
    "aply == 'Applied'",
    "spec.health[0].whenExpression: there is no variable `aply` in `aply == 'Applied' && parts.all(p, p.?status.?ok.orValue(false))`"
)]
#[case(
    "state: Current}",
    "state: Resources}",
    "spec.health[0].state: `Resources` is none of Current, InProgress, Terminating, NotFound, Unknown, Failed"
)]
#[case(
    "state: Current}",
    "state: Current, unwatched: {state: Unknown}}",
    "spec.health[0].unwatched: stands beside the state `Current`: it is for `Resources`"
)]
#[case(
    "state: Pending,",
    "state: Pending, unwatched: {state: Unknown},",
    "spec.apply[0].unwatched: is for the state `Resources` of health rules"
)]
#[case(
    "sinceExpression: ready.?lastTransitionTime",
    "sinceExpression: ready.status",
    "spec.sinceExpression: on spec.samples[0]: `True` is no time"
)]
#[case(
    "failedExpression: \"0\"",
    "failedExpression: \"'0'\"",
    "spec.resources.counts.failedExpression: on spec.samples[0]: gives string, where an int is needed in `'0'`"
)]
#[case(
    "keyExpression: object.?spec.?from.?name",
    "keyExpression: object",
    "spec.hold.keyExpression: on spec.samples[0]: gives map, where a string, an int, a bool or a list of these is needed in `object`"
)]
#[case("kind: Widget\n", "kind: Gadget\n", "spec.samples[0].object: is of none of the source's kinds")]
#[case(
    "        config: {",
    "        confg: {",
    "spec.samples[0].related.confg: is no related object of this source"
)]
#[case("ready.status == 'False'", "ready.status == False'", "spec.apply[2].whenExpression: ERROR: <input>")]
fn what_is_wrong_is_found_at_load(#[case] right: &str, #[case] wrong: &str, #[case] message: &str) {
    assert!(SOURCE.contains(right), "{right}");
    let error = parse(&SOURCE.replacen(right, wrong, 1)).expect_err(wrong).to_string();
    let source = if message.starts_with("source ") { "" } else { "source widgets: " };
    // Two of these are noticed at a field other than the wrong one.
    let line = match wrong {
        "" => line("ready.status == 'False'"),
        "kind: Gadget\n" => line("- object:"),
        _ => line(right.trim()),
    };
    assert!(error.starts_with(&format!("widgets.yaml: line {line}: {source}{message}")), "{error}");
}

#[rstest]
#[case::no_kinds(
    "  kinds:\n    - {group: example.com, kind: Widget, versions: [v1]}\n",
    "",
    "spec: needs either `kinds` or `categories`"
)]
#[case::both("  related:", "  categories: [all]\n  related:", "spec: needs either `kinds` or `categories`")]
#[case::an_empty_list(
    "kinds:\n    - {group: example.com, kind: Widget, versions: [v1]}\n",
    "kinds: []\n",
    "spec.kinds: needs at least one kind"
)]
#[case::twins(
    "  related:",
    "    - {group: example.com, kind: Widget, versions: [v2]}\n  related:",
    "spec.kinds[1]: there is already a kind `Widget`"
)]
#[case::no_identity(
    "  related:",
    "  identity: {}\n  related:",
    "spec.identity: needs `clusterExpression`, `namespaceExpression` or `nameExpression`"
)]
#[case::no_name(
    "  related:",
    "  identity: {nameExpression: object.?spec.?name}\n  related:",
    "spec.identity.nameExpression: on spec.samples[0]: gives no name in `object.?spec.?name`"
)]
#[case::health_of_nothing(
    "    counts:",
    "    healthRules: [{group: a, kind: B, currentExpression: \"true\"}]\n    counts:",
    "spec.resources.healthRules: are for resources that are watched: say which these are in `watch`"
)]
#[case::no_objects(
    "    counts:",
    "    watch: {enabled: true}\n    counts:",
    "spec.resources.watch: needs `referencesExpression` or `labelled`"
)]
#[case::a_word_that_is_none(
    "reasonExpression: ready.reason",
    "reasonExpression: \"apply == 'Aplied' ? 'a' : 'b'\"",
    "spec.reasonExpression: `apply` is never `Aplied`"
)]
fn what_contradicts_itself_is_an_error(#[case] right: &str, #[case] wrong: &str, #[case] message: &str) {
    assert!(SOURCE.contains(right), "{right}");
    let error = parse(&SOURCE.replacen(right, wrong, 1)).expect_err(wrong).to_string();
    assert!(error.contains(&format!("source widgets: {message}")), "{error}");
}

#[test]
fn rules_are_needed_where_rules_are_expected() {
    let start = SOURCE.find("    - {whenExpression: \"!fresh\"").expect("rules");
    let end = SOURCE.find("  health:").expect("what follows them");
    let yaml = format!("{}{}", &SOURCE[..start], &SOURCE[end..]).replace("  apply:\n", "  apply: []\n");
    let error = parse(&yaml).expect_err("no rules").to_string();
    assert_eq!(error, "widgets.yaml: line 24: source widgets: spec.apply: needs at least one rule");
}

#[rstest]
#[case("kind: Source", "kind: Sauce", "apiVersion sources.statusbridge.dev/v1alpha1, kind Sauce")]
#[case("sources.statusbridge.dev/v1alpha1", "v1", "apiVersion v1, kind Source")]
#[case("apiVersion: sources", "apiVerzion: sources", "apiVersion none, kind Source")]
fn another_kind_or_version_is_shown_the_form(#[case] right: &str, #[case] wrong: &str, #[case] has: &str) {
    let error = parse(&SOURCE.replacen(right, wrong, 1)).expect_err(wrong).to_string();
    let form = "needs `apiVersion: sources.statusbridge.dev/v1alpha1`, `kind: Source`, `metadata: {name: …}` and `spec: …`";
    assert_eq!(error, format!("widgets.yaml: source widgets: {form}; has {has}"));
}

#[rstest]
#[case::unread(
    "    - {name: fresh,",
    "    - {name: stray, expression: ready.reason}\n    - {name: fresh,",
    Some("line 20: source widgets: spec.variables[stray]: is read by nothing")
)]
#[case::read_by_what_is_unread(
    "    - {name: fresh,",
    "    - {name: one, expression: \"1\"}\n    - {name: two, expression: one}\n    - {name: fresh,",
    Some("line 21: source widgets: spec.variables[two]: is read by nothing")
)]
#[case::behind_another(
    "whenExpression: ready.status == 'False'",
    "whenExpression: ready.reason == 'A' && ready.status == 'True'",
    Some("line 27: source widgets: spec.apply[2]: is never reached: rule [1] holds wherever this one does")
)]
#[case::behind_one_that_waits(
    "whenExpression: ready.status == 'True'",
    "whenExpression: ready.status == 'False', after: {sinceExpression: ready.?lastTransitionTime, duration: 10m}",
    None
)]
#[case::waiting_behind_another(
    "whenExpression: ready.status == 'False'",
    "whenExpression: ready.status == 'True', after: {sinceExpression: ready.?lastTransitionTime, duration: 10m}",
    Some("line 27: source widgets: spec.apply[2]: is never reached: rule [1] holds wherever this one does")
)]
#[case::nothing("kind: Source", "kind: Source", None)]
fn what_may_be_meant_otherwise_is_a_warning(
    #[case] right: &str,
    #[case] wrong: &str,
    #[case] expected: Option<&str>,
) {
    assert!(SOURCE.contains(right), "{right}");
    let source = parse(&SOURCE.replacen(right, wrong, 1)).expect("it compiles").remove(0);
    let warnings: Vec<String> = source.warnings.iter().map(ToString::to_string).collect();
    let first = warnings.first().map(|warning| warning.trim_start_matches("widgets.yaml: "));
    assert_eq!(first, expected, "{warnings:?}");
}

#[test]
fn a_variable_is_tried_where_it_is_used() {
    let used = "object.status.missing == 1";
    let add = |rule: &str| {
        let variable = format!("    - {{name: risky, expression: {used}}}\n    - {{name: fresh,");
        let yaml = SOURCE.replacen("    - {name: fresh,", &variable, 1);
        parse(&yaml.replacen("whenExpression: \"!fresh\"", &format!("whenExpression: \"{rule}\""), 1))
    };
    assert!(add("!fresh && false && risky").is_ok());
    let error = add("!fresh || risky").expect_err("it fails").to_string();
    assert!(error.contains("spec.variables[risky].expression: on spec.samples[0]: No such key"), "{error}");
}

#[rstest]
#[case("reasonExpression: ready.reason", "raesonExpression: ready.reason", "raesonExpression")]
#[case("state: Pending", "state: Pending, mesage: x", "mesage")]
#[case("kind: Widget, versions: [v1]", "kind: Widget, versions: [v1], plural: widgets", "plural")]
#[case("apply:\n", "apples:\n", "apples")]
#[case("metadata: {name: widgets}", "metadata: {name: widgets, nam: a}", "nam")]
#[case(
    "kind: Widget, versions: [v1]",
    "kind: Widget, versions: [v1], selector: team in (web",
    "`team in (web` is no label selector: it has a `(` without a `)`; write one such as `team=web,tier!=db`"
)]
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
fn two_variables_of_one_name_are_refused() {
    let yaml = SOURCE.replacen("name: fresh", "name: ready", 1);
    let error = parse(&yaml).expect_err("twice").to_string();
    assert!(error.contains("spec.variables[1].name: there is already a variable `ready`"), "{error}");
}

#[test]
fn identity_names_packages() {
    let object = json!({"kind": "Widget", "metadata": {"name": "a", "namespace": "b"}, "spec": {"app": "shop", "of": "c"}});
    let of = |identity: &str| {
        let yaml = SOURCE.replacen("  related:", &format!("  identity: {{{identity}}}\n  related:"), 1);
        let yaml = yaml.split("  samples:").next().expect("the source").to_owned();
        let found = parse(&yaml).expect("it compiles").remove(0).identity(&object);
        found.map(|identity| (identity.namespace.unwrap_or_default(), identity.name)).map_err(|e| e.message)
    };
    let named = |namespace: &str, name: &str| Ok((namespace.to_owned(), name.to_owned()));
    assert_eq!(
        of("nameExpression: \"object.?kind.orValue('x').lowerAscii() + '/' + object.metadata.name\""),
        named("b", "widget/a")
    );
    assert_eq!(
        of("nameExpression: object.?spec.?app.orValue('x'), namespaceExpression: object.?spec.?of"),
        named("c", "shop")
    );
    assert_eq!(of("namespaceExpression: \"''\""), named("", "a"));
    assert_eq!(source().identity(&object).map(|i| i.name).map_err(|e| e.message), Ok("a".to_owned()));
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
    source().evaluate(
        object,
        &RelatedObjects(vec![RelatedObject::One(config), RelatedObject::Many(parts)]),
        0,
    )
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
    let counts = good.verdict.resources.map(|i| (i.total, i.current, i.failed));
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
    assert_eq!(rubbish.verdict.resources.map(|i| i.total), Some(0), "a source that counts always counts");
    assert!(
        rubbish.detail.message.contains("spec.revisions.appliedExpression"),
        "{}",
        rubbish.detail.message
    );
}

#[test]
fn without_health_rules_kstatus_decides() {
    let start = SOURCE.find("  health:").expect("health rules");
    let end = SOURCE.find("  reasonExpression: ready").expect("what follows them");
    let source = parse(&format!("{}{}", &SOURCE[..start], &SOURCE[end..])).expect("it compiles").remove(0);
    let object = json!({"metadata": {"name": "a"}, "status": {"conditions": [
        {"type": "Stalled", "status": "True", "reason": "Stuck"}, {"type": "Ready", "status": "True"},
    ]}});
    let none = RelatedObjects::default();
    let verdict = source.evaluate(&object, &none, 0).verdict;
    assert_eq!((verdict.health, verdict.reason.as_deref()), (Health::Failed, Some("Stuck")));
    assert_eq!(source.evaluate(&source.projection().project(&object), &none, 0).verdict, verdict);
}

#[test]
fn the_example_in_the_documentation_works() {
    let documentation = include_str!("../../../docs/sources.md");
    let example = documentation.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let source = parse(example.expect("an example")).expect("it compiles").remove(0);
    let yaml: Value = serde_saphyr::from_str(example.expect("an example")).expect("it is YAML");
    let sample = &yaml["spec"]["samples"][0];
    let parts = sample["related"]["parts"].as_array().expect("parts").iter().collect();
    let related = RelatedObjects(vec![
        RelatedObject::One(Some(&sample["related"]["config"])),
        RelatedObject::Many(parts),
    ]);
    let evaluation = source.evaluate(&sample["object"], &related, 0);
    assert!(
        evaluation.verdict.good() && evaluation.verdict.desired == evaluation.verdict.healthy,
        "{evaluation:?}"
    );
}

/// All that a source needs for a kind whose conditions follow the conventions.
const SHORTEST: &str = "
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata: {name: widgets}
spec:
  kinds: [{group: example.com, kind: Widget, versions: [v1]}]
  revisions: {desiredExpression: object.?spec.?version, appliedExpression: object.?status.?version}
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
    let verdict = source.evaluate(object, &none, 0).verdict;
    assert_eq!(source.evaluate(&source.projection().project(object), &none, 0).verdict, verdict, "lean");
    verdict
}

#[test]
fn a_source_of_a_few_lines_follows_a_rollout() {
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
        let within =
            format!("apiVersion: {}\nkind: Source\nspec:\n  samples:\n{indented}", format::API_VERSION);
        for text in [text, within] {
            let error = parse(&text).expect_err(name).to_string();
            assert!(error.starts_with("widgets.yaml: ") && error.len() < 4_000, "{name}: {error}");
        }
    }
}

/// A condition on objects in place of the source's `reasonExpression`, with this as its only field.
fn with_condition(yaml: &str) -> String {
    let field: String = yaml.lines().map(|line| format!("      {line}\n")).collect();
    let condition = format!("  matchConditions:\n    -\n{field}      name: c\n");
    SOURCE.replacen("  reasonExpression: ready.reason\n", &condition, 1)
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

/// What stands in the condition, and from the column on the whole message.
#[rstest]
#[case::tag(
    "expression: !broken",
    "19: {AT}.expression: YAML reads `!broken` {TAG}quote the value: expression: \"!broken\""
)]
#[case::space(
    "expression: ! broken",
    "19: {AT}.expression: YAML reads `!` {TAG}quote the value: expression: \"! broken\""
)]
#[case::and(
    "expression: !broken && true",
    "19: {AT}.expression: YAML reads `!broken` {TAG}quote the value: expression: \"!broken && true\""
)]
#[case::comment(
    "expression: !has(a.x) # b",
    "19: {AT}.expression: YAML reads `!has(a.x)` {TAG}quote the value: expression: \"!has(a.x)\""
)]
#[case::group(
    "expression: !(a && b)",
    "19: {AT}.expression: YAML reads `!(a` {TAG}quote the value: expression: \"!(a && b)\""
)]
#[case::twice(
    "expression: !!broken",
    "19: {AT}.expression: YAML reads `!!broken` {TAG}quote the value: expression: \"!!broken\""
)]
#[case::double_quotes(
    "expression: !a == \"b\"",
    "19: {AT}.expression: YAML reads `!a` {TAG}quote the value: expression: '!a == \"b\"'"
)]
#[case::both_quotes(
    "expression: !a == \"b\" + 'c'",
    "19: {AT}.expression: YAML reads `!a` {TAG}quote the value: expression: '!a == \"b\" + ''c'''"
)]
#[case::two_lines("expression: !a\n  && b", "19: {AT}.expression: YAML reads `!a` {TAG}quote the value")]
#[case::index("expression: !object.a[0]", "19: {AT}.expression: {SCAN_TAG}{BANG}")]
#[case::or("expression: !a || b", "22: {AT}.expression: {SCAN_BLOCK}{BANG}")]
#[case::known_tag("expression: !!str a", "19: {AT}.expression: YAML reads `!!str` {TAG}leave the tag out")]
#[case::quoted_with_tag(
    "expression: !a \"b\"",
    "19: {AT}.expression: YAML reads `!a` {TAG}leave the tag out"
)]
#[case::block_with_tag(
    "expression: !a |\n  b",
    "19: {AT}.expression: YAML reads `!a` {TAG}leave the tag out"
)]
#[case::tag_of_a_key("!a expression: b", "7: {AT}: YAML reads `!a` {TAG}leave the tag out")]
#[case::anchor(
    "expression: &a",
    "19: {AT}.expression: YAML reads `&a` {ANCHOR}, or quote the value: expression: \"&a\""
)]
#[case::anchor_and_text(
    "expression: && a",
    "19: {AT}.expression: YAML reads `&&` {ANCHOR}, or quote the value: expression: \"&& a\""
)]
#[case::anchored_key("&a expression: b", "7: {AT}: YAML reads `&a` {ANCHOR}")]
#[case::alias("expression: *a", "19: {AT}.expression: `*a` {ALIAS}")]
#[case::alias_as_a_key("*a : b", "7: {AT}: `*a` {ALIAS}")]
#[case::merge_key(
    "<<: {expression: \"true\"}",
    "7: {AT}: `<<` is a YAML merge key, which a source may not have: write the fields themselves"
)]
#[case::nothing("expression:", "7: {AT}.expression: {NOTHING}")]
#[case::only_a_comment("expression: # true", "7: {AT}.expression: {NOTHING}")]
#[case::tilde("expression: ~", "19: {AT}.expression: `~` {NULL}")]
#[case::null("expression: null", "19: {AT}.expression: `null` {NULL}")]
#[case::null_in_capitals("expression: NULL", "19: {AT}.expression: `NULL` {NULL}")]
#[case::empty("expression: \"\"", "7: {AT}.expression: {EMPTY}")]
#[case::blank("expression: '  '", "7: {AT}.expression: {EMPTY}")]
#[case::empty_block("expression: |\n", "7: {AT}.expression: {EMPTY}")]
#[case::null_as_a_key("~: a", "7: {AT}: a field has no name: write one")]
fn yaml_that_hides_an_expression_is_refused(#[case] yaml: &str, #[case] message: &str) {
    let message = message_of(message);
    let line = line("reasonExpression: ready.reason") + 2;
    let error = parse(&with_condition(yaml)).expect_err(yaml).to_string();
    assert_eq!(error, format!("widgets.yaml: line {line} column {message}"));
    // In a later document, after one that is empty.
    let documents = format!("{SOURCE}---\n# Nothing.\n---\n{}", with_condition(yaml));
    let line = line + SOURCE.lines().count() + 3;
    let error = parse(&documents).expect_err(yaml).to_string();
    assert_eq!(error, format!("widgets.yaml: line {line} column {message}"));
}

/// Fills in the constants, which keep the tables readable.
fn message_of(text: &str) -> String {
    let constants = [
        ("{AT}", "spec.matchConditions[0]"),
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
    "whenExpression: \"!fresh\",",
    "whenExpression: !fresh,",
    "line 25 column 24: spec.apply[0].whenExpression: YAML reads `!fresh` {TAG}quote the value: whenExpression: \"!fresh\""
)]
#[case::last_rule(
    "    - {state: InProgress,",
    "    - whenExpression:\n      state: InProgress\n    - {state: InProgress,",
    "line 30 column 7: spec.health[1].whenExpression: {NOTHING}"
)]
#[case::last_rule_in_braces(
    "{state: InProgress,",
    "{whenExpression: , state: InProgress,",
    "line 30 column 8: spec.health[1].whenExpression: {NOTHING}"
)]
#[case::rules(
    "apply:\n",
    "apply: !a\n",
    "line 24 column 10: spec.apply: YAML reads `!a` {TAG}leave the tag out"
)]
#[case::anchored_rules("apply:\n", "apply: &a\n", "line 24 column 10: spec.apply: YAML reads `&a` {ANCHOR}")]
#[case::variable(
    "    - {name: ready,",
    "    - {name: broken, expression: !ready }\n    - {name: ready,",
    "line 19 column 34: spec.variables[0].expression: YAML reads `!ready` {TAG}quote the value: expression: \"!ready\""
)]
#[case::related(
    "kindExpression: object.?spec.?from.?kind",
    "kindExpression: ~",
    "line 13 column 35: spec.related[0].reference.kindExpression: `~` {NULL}"
)]
#[case::item(
    "kind: Widget, versions: [v1]",
    "kind: Widget, versions: [v1, ~]",
    "line 7 column 57: spec.kinds[0].versions[1]: `~` is no value in YAML: write one, or leave the item out"
)]
#[case::key_that_is_a_list(
    "  variables:",
    "  ? [a, !b ]\n  : c\n  variables:",
    "line 18 column 9: spec[1]: YAML reads `!b` {TAG}quote the value: \"!b\""
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
#[case::double_quotes("expression: \"!(1 > 2)\"")]
#[case::single_quotes("expression: '!(1 > 2)'")]
#[case::literal("expression: |\n  !(1 > 2)\n    && true")]
#[case::folded("expression: >-\n\n  !(1 > 2)\n  && true")]
#[case::two_lines("expression: 1 < 2\n  && !false")]
#[case::within_the_text("expression: 1 < 2 && !false && 'a*b&c' != '~'")]
#[case::null_in_quotes("expression: \"null == null\"")]
#[case::comments("# expression: !x\nexpression: 1 < 2 # &a *b !c ~")]
#[case::a_bool("expression: true")]
fn yaml_that_hides_nothing_loads(#[case] yaml: &str) {
    assert_eq!(parse(&with_condition(yaml)).map(|sources| sources.len()), Ok(1), "{yaml}");
}

#[test]
fn a_description_may_be_empty() {
    assert!(parse(&SHORTEST.replacen("  kinds:", "  description: \"\"\n  kinds:", 1)).is_ok());
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
    let source = format!("{SHORTEST}  samples: {samples}\n");
    let two = format!("{source}  description: a\n---{source}");
    assert_eq!(parse(&two).map(|sources| sources.len()), Ok(2), "{samples}");
    // The field after the samples may not.
    let error = parse(&format!("{source}  description: !x\n")).expect_err(samples).to_string();
    assert!(error.starts_with("widgets.yaml: line 9 column 16: spec.description: "), "{error}");
}

#[test]
fn an_alias_cannot_carry_a_sample_into_a_field() {
    let source = format!(
        "{SHORTEST}  samples: [{{object: {{apiVersion: example.com/v1, kind: &a Widget}}}}]\n  description: *a\n"
    );
    let error = parse(&source).expect_err("an alias").to_string();
    assert_eq!(error, message_of("widgets.yaml: line 9 column 16: spec.description: `*a` {ALIAS}"));
}
