use std::{path::Path, sync::Arc};

use rstest::rstest;

use super::*;
use crate::source::Source;

/// Health by a related object, a list of related objects, and a hold.
const SOURCE: &str = r#"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: widgets
spec:
  kinds:
    - {group: example.com, kind: Widget, versions: [v1]}
  matchConditions:
    - name: packages
      expression: object.?spec.?kind.orValue('') != 'template'
  related:
    - name: config
      kinds: [{group: "", kind: ConfigMap, versions: [v1]}]
      reference:
        nameExpression: object.?spec.?config
    - name: parts
      kinds: [{group: example.com, kind: Part, versions: [v1]}]
      labels:
        match:
          - {label: widget, valueExpression: object.metadata.name}
  revisions:
    desiredExpression: config.?data.?version
    appliedExpression: object.?status.?done
  apply:
    - {whenExpression: object.?status.?done.orValue('') == config.?data.?version.orValue('-'), state: Applied}
    - {state: Pending, reason: NewRevision}
  health:
    - {whenExpression: "parts.exists(p, !p.?ok.orValue(false))", state: Failed, reason: PartFailed}
    - {whenExpression: object.?status.?busy.orValue(false), state: InProgress}
    - {state: Current}
  resources:
    counts:
      totalExpression: size(parts)
      currentExpression: "size(parts.filter(p, p.?ok.orValue(false)))"
      failedExpression: "0"
    watch:
      referencesExpression: "[{'kind': 'ConfigMap', 'name': 'extra', 'namespace': object.metadata.namespace}]"
  hold: {whenExpression: object.?status.?busy.orValue(false), keyExpression: object.?status.?done}
  samples:
    - object: {apiVersion: example.com/v1, kind: Widget, metadata: {name: front, namespace: web}, spec: {config: front}, status: {done: v2}}
      related: {config: {data: {version: v2}}, parts: [{ok: true}, {ok: true}]}
      expect: {apply: Applied, health: Current, healthyRevision: v2, resources: 2/2/0}
"#;

fn source() -> Arc<Source> {
    Arc::new(Source::parse("widgets.yaml", SOURCE).expect("it compiles").remove(0))
}

/// The problems of each case of a test.
fn run(spec: &str) -> Vec<Vec<String>> {
    let text = format!(
        "apiVersion: sources.statusbridge.dev/v1alpha1\nkind: SourceTest\nmetadata: {{name: t}}\nspec:\n{spec}"
    );
    let suites = Suite::parse(Path::new("t.yaml"), &text).expect("a test");
    let find = |name: &str, resources: Option<bool>| {
        if name != "widgets" {
            return Err(format!("there is no source {name}"));
        }
        let mut source = Source::parse("widgets.yaml", SOURCE).expect("it compiles").remove(0);
        if let Some(resources) = resources {
            source.watch_resources(resources);
        }
        Ok(Arc::new(source))
    };
    suites.iter().flat_map(|suite| suite.run(&find)).map(|outcome| outcome.problems).collect()
}

const BASE: &str = "
  sources: [widgets]
  base:
    object: {metadata: {name: front, namespace: web}, spec: {config: front}, status: {done: v2}}
    related: {config: {data: {version: v2}}, parts: [{ok: true}]}
  expect: {apply: Applied, health: Current, healthyRevision: v2, resources: 1/1/0, reason: ''}
  cases:
";

fn of_base(cases: &str) -> Vec<Vec<String>> {
    run(&format!("{BASE}{cases}"))
}

#[test]
fn samples_are_tests_when_they_say_what_is_expected() {
    let source = source();
    let suite = Suite::of_samples(&source).expect("a sample with expectations");
    assert_eq!((suite.name.as_str(), suite.cases[0].name.as_str()), ("widgets", "samples[0]"));
    let outcomes = suite.run(&|_, _| Ok(source.clone()));
    assert_eq!(outcomes[0].problems, [""; 0]);
    let silent = SOURCE.replace(
        "    expect: {apply: Applied, health: Current, healthyRevision: v2, resources: 2/2/0}\n",
        "",
    );
    let silent = Arc::new(Source::parse("f", &silent).expect("it compiles").remove(0));
    assert!(Suite::of_samples(&silent).is_none());
}

#[rstest]
#[case::as_the_base("{name: a}")]
#[case::digits_of_a_revision("{name: a, expect: {healthyRevision: fb04dcb6970e}}")]
#[case::a_patch(
    "{name: a, patch: {related: {parts: [{ok: false}]}}, expect: {health: Failed, reason: PartFailed, healthyRevision: '', resources: 1/0/0}}"
)]
#[case::a_patch_that_takes_away("{name: a, patch: {related: {parts: null}}, expect: {resources: 0/0/0}}")]
#[case::a_value_at_a_pointer(
    "{name: a, replace: {/related/parts/0/ok: false}, expect: {health: Failed, reason: PartFailed, healthyRevision: '', resources: 1/0/0}}"
)]
#[case::a_related_object_of_another_name(
    "{name: a, patch: {related: {config: {metadata: {name: other}}}}, expect: {apply: Pending, reason: NewRevision, desiredRevision: '', healthyRevision: ''}}"
)]
#[case::an_expression_that_fails(
    "{name: a, patch: {object: {status: {done: 5}}}, expect: {apply: Unknown, health: Unknown, reason: EvaluationFailed, healthyRevision: '', error: spec.revisions.appliedExpression, resources: 0/0/0}}"
)]
#[case::no_package("{name: a, patch: {object: {spec: {kind: template}}}, expect: {shown: false}}")]
#[case::what_the_package_consists_of(
    "{name: a, resourceHealth: true, patch: {others: {extra: {apiVersion: v1, kind: ConfigMap, metadata: {name: extra, namespace: web}}}}}"
)]
#[case::something_later(
    "{name: a, then: [{patch: {object: {status: {busy: true}}}, after: 29s, expect: {undecided: true}}, {after: 40s, expect: {health: InProgress, reason: InProgress, healthyRevision: ''}}]}"
)]
#[case::something_that_goes_away(
    "{name: a, then: [{patch: {related: {config: null}}, expect: {apply: Pending, reason: NewRevision, healthyRevision: ''}}, {patch: {object: null}, expect: {shown: false}}]}"
)]
#[case::transitions(
    "{name: a, then: [{patch: {object: {status: {busy: true}}}, expect: {undecided: true}}, {after: 1m, expect: {health: InProgress, reason: InProgress, healthyRevision: ''}}], transitions: [{version: 1, health: Current}, {version: 2, health: InProgress}]}"
)]
fn what_is_as_expected_passes(#[case] case: &str) {
    assert_eq!(of_base(&format!("    - {case}\n")), [[""; 0]]);
}

#[rstest]
#[case::fields(
    "{name: a, replace: {/related/parts/0/ok: false}, expect: {healthyRevision: v3}}",
    &[
        "health           expected Current, found Failed",
        "reason           expected nothing, found PartFailed",
        "healthyRevision  expected v3, found nothing",
        "resources        expected 1/1/0, found 1/0/0",
    ]
)]
#[case::a_failed_expression(
    "{name: a, patch: {object: {status: {done: 5}}}, expect: {healthyRevision: '', reason: EvaluationFailed, resources: 0/0/0}}",
    &[
        "apply   expected Applied, found Unknown",
        "health  expected Current, found Unknown",
        "an expression failed: spec.revisions.appliedExpression: gives int, where a string or a list of strings is needed in `object.?status.?done`",
    ]
)]
#[case::a_later_step(
    "{name: a, then: [{patch: {related: {config: {data: {version: v3}}}}}]}",
    &[
        "then[0]: apply            expected Applied, found Pending",
        "then[0]: reason           expected nothing, found NewRevision",
        "then[0]: healthyRevision  expected v2, found nothing",
    ]
)]
#[case::no_package("{name: a, patch: {object: null}}", &["expected a package, found none"])]
#[case::another_package("{name: a, expect: {package: web/back}}", &["expected web/back, found web/front"])]
#[case::a_package_all_the_same("{name: a, expect: {shown: false}}", &["shown  expected false, found true"])]
#[case::transitions(
    "{name: a, then: [{patch: {object: {status: {busy: true}}}}, {after: 1m, expect: {health: InProgress, reason: InProgress, healthyRevision: ''}}], transitions: [{version: 1, health: Current}, {version: 2, health: Failed}, {version: 3, health: Current}]}",
    &[
        "transitions, - expected, + found:",
        "  {version: 1, health: Current}",
        "- {version: 2, health: Failed}",
        "- {version: 3, health: Current}",
        "+ {version: 2, health: InProgress}",
    ]
)]
#[case::a_pointer_to_nowhere("{name: a, replace: {/object/nope/deeper: 5}}", &["replace: there is no `/object/nope/deeper`"])]
#[case::a_related_name_that_there_is_not("{name: a, patch: {related: {nope: {}}}}", &["related.nope: source widgets has no such related objects"])]
#[case::a_field_that_there_is_not("{name: a, patch: {objects: {}}}", &["there is no `objects` in the objects of a case, only object, related, others"])]
#[case::no_object("{name: a, patch: {others: {x: {kind: A}}}}", &["others.x: is no Kubernetes object: needs apiVersion, kind and metadata.name"])]
#[case::no_file("{name: a, files: [nope.yaml]}", &["nope.yaml: No such file or directory (os error 2)", "expected a package, found none"])]
fn what_is_not_as_expected_is_told(#[case] case: &str, #[case] problems: &[&str]) {
    assert_eq!(of_base(&format!("    - {case}\n")), [problems]);
}

#[test]
fn a_history_in_a_file_is_held_against_its_transitions() {
    let directory = tempfile::tempdir().expect("a directory");
    let version = |revision: &str, second: u32| {
        format!(
            "apiVersion: example.com/v1\nkind: Widget\nmetadata: {{name: front, namespace: web}}\nspec: {{config: front}}\nstatus: {{done: {revision}, at: '2026-01-01T00:00:{second:02}Z'}}\n---\n"
        )
    };
    let config =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: front, namespace: web}\ndata: {version: v2}\n";
    std::fs::write(directory.path().join("history.yaml"), version("v1", 1) + &version("v2", 9) + config)
        .expect("a file");
    let test = |version: usize| {
        format!(
            "apiVersion: sources.statusbridge.dev/v1alpha1
kind: SourceTest
metadata: {{name: t}}
spec:
  sources: [widgets]
  cases:
    - name: a rollout
      files: [history.yaml]
      expect: {{healthyRevision: v2}}
      transitions:
        - {{version: 1, apply: Pending, time: '2026-01-01T00:00:01Z'}}
        - {{version: {version}, apply: Applied, time: '2026-01-01T00:00:09Z'}}
"
        )
    };
    let file = directory.path().join("t.yaml");
    let problems = |text: String| {
        std::fs::write(&file, text).expect("a file");
        let suites = Suite::read(&[directory.path().join("t.yaml")]).expect("a test");
        suites[0].run(&|_, _| Ok(source())).remove(0).problems
    };
    assert_eq!(problems(test(2)), [""; 0]);
    assert_eq!(
        problems(test(3)),
        [
            "transitions, - expected, + found:",
            "  {version: 1, time: \"2026-01-01T00:00:01Z\", apply: Pending}",
            "- {version: 3, time: \"2026-01-01T00:00:09Z\", apply: Applied}",
            "+ {version: 2, time: \"2026-01-01T00:00:09Z\", apply: Applied}",
        ]
    );
}

#[rstest]
#[case::no_test("apiVersion: v1\nkind: A\n", "has apiVersion v1, kind A")]
#[case::an_unknown_field(
    "apiVersion: sources.statusbridge.dev/v1alpha1\nkind: SourceTest\nmetadata: {name: t}\nspec: {sources: [a], cases: [{name: a, expcet: {}}]}\n",
    "expcet"
)]
#[case::an_unknown_state(
    "apiVersion: sources.statusbridge.dev/v1alpha1\nkind: SourceTest\nmetadata: {name: t}\nspec: {sources: [a], cases: [{name: a, expect: {apply: Aplied}}]}\n",
    "`Aplied` is no state"
)]
#[case::a_revision_that_is_a_number(
    "apiVersion: sources.statusbridge.dev/v1alpha1\nkind: SourceTest\nmetadata: {name: t}\nspec: {sources: [a], cases: [{name: a, expect: {healthyRevision: 1e7}}]}\n",
    "in quotes where YAML takes it for a number"
)]
#[case::time_that_goes_back(
    "apiVersion: sources.statusbridge.dev/v1alpha1\nkind: SourceTest\nmetadata: {name: t}\nspec: {sources: [a], cases: [{name: a, then: [{after: -5s}]}]}\n",
    "must not be negative"
)]
fn what_is_no_test_is_an_error(#[case] text: &str, #[case] expected: &str) {
    let error = Suite::parse(Path::new("t.yaml"), text).expect_err("no test").to_string();
    assert!(error.starts_with("t.yaml: ") && error.contains(expected), "{error}");
}

#[test]
fn a_source_that_there_is_not_is_a_problem() {
    let problems = run("  sources: [nope]\n  cases: [{name: a}]\n");
    assert_eq!(problems, [["there is no source nope"]]);
}
