//! The JSON Schema of the format: current, and of one mind with the program about real sources.

#![allow(clippy::expect_used)] // in a test, what cannot be is a failure

use std::{fs, path::Path};

use boon::{Compiler, SchemaIndex, Schemas};
use rstest::rstest;
use serde_json::Value;
use statusbridge_exporter::source::{PRESETS, Source, schema};

struct Validator(Schemas, SchemaIndex);

impl Validator {
    fn new() -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("source.schema.json", schema()).expect("the schema is JSON");
        let index = compiler.compile("source.schema.json", &mut schemas).expect("it is a schema");
        Self(schemas, index)
    }

    fn validate(&self, yaml: &str) -> Result<(), String> {
        let source: Value = serde_saphyr::from_str(yaml).expect("it is YAML");
        self.0.validate(&source, self.1).map_err(|error| format!("{error:#}"))
    }
}

fn docs(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_schema_in_docs_is_what_the_format_types_say() {
    assert!(
        docs("source.schema.json") == format!("{:#}\n", schema()),
        "docs/source.schema.json is out of date: \
         cargo run -p statusbridge -- source schema > docs/source.schema.json",
    );
}

#[test]
fn presets_and_examples_validate() {
    let validator = Validator::new();
    for preset in PRESETS {
        assert_eq!(validator.validate(preset.yaml), Ok(()), "{}", preset.name);
    }
    let mut examples = 0;
    for file in ["sources.md", "write-your-own-source.md"] {
        let text = docs(file);
        let blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
        for (_, example) in blocks.filter(|(_, text)| text.contains("kind: Source\n")) {
            assert_eq!(validator.validate(example), Ok(()), "{file}");
            examples += 1;
        }
    }
    assert!(examples >= 3, "there are only {examples} examples");
}

#[test]
fn every_field_is_described() {
    fn visit(path: &str, schema: &Value, missing: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if field["description"].as_str().is_none_or(str::is_empty) {
                missing.push(path.clone());
            }
            visit(&path, field, missing);
            visit(&path, &field["items"], missing);
        }
        let closed = schema["properties"].is_null() || schema["additionalProperties"] == false;
        assert!(closed, "{path} takes fields that there are not");
    }
    let mut missing = Vec::new();
    visit("", &schema(), &mut missing);
    assert_eq!(missing, Vec::<String>::new());
}

const SOURCE: &str = r#"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: widgets
spec:
  kinds:
    - {group: example.com, kind: Widget, versions: [v1]}
  related:
    - name: config
      kinds: [{group: "", kind: ConfigMap, versions: [v1]}]
      reference:
        nameExpression: object.?spec.?config
  revisions:
    appliedExpression: object.?status.?version
  apply:
    - {whenExpression: object.?status.?done.orValue(false), state: Applied, reason: Fine}
  health:
    - {whenExpression: object.?status.?ok.orValue(false), state: Current}
    - {state: Resources, unwatched: {state: Unknown}}
  resources:
    watch:
      referencesExpression: object.?status.?objects
  hold: {whenExpression: "false", keyExpression: object.?status.?version}
"#;

#[test]
fn what_is_right_is_taken_by_both() {
    assert_eq!(Validator::new().validate(SOURCE), Ok(()));
    assert!(Source::parse("widgets.yaml", SOURCE).is_ok());
}

#[rstest]
#[case::field_that_there_is_not("spec:", "spec:\n  sinze: \"0\"")]
#[case::field_that_there_is_not_below("hold: {", "hold: {until: x, ")]
#[case::no_name("  name: widgets", "  labels: {}")]
#[case::no_kinds("  kinds:\n    - {group: example.com, kind: Widget, versions: [v1]}\n", "")]
#[case::name_that_is_no_label("name: widgets", "name: -widgets")]
#[case::name_too_long(
    "name: widgets",
    "name: a123456789012345678901234567890123456789012345678901234567890123"
)]
#[case::version_of_the_format("dev/v1alpha1", "dev/v1")]
#[case::kind_of_the_document("kind: Source", "kind: Sauce")]
#[case::kinds_and_categories("  related:", "  categories: [widgets]\n  related:")]
#[case::half_a_kind("{group: example.com, kind: Widget, versions: [v1]}", "{group: example.com}")]
#[case::no_versions("kind: Widget, versions: [v1]", "kind: Widget, versions: []")]
#[case::identity_of_nothing("  related:", "  identity: {}\n  related:")]
#[case::related_by_both(
    "      reference:",
    "      labels: {match: [{label: a, valueExpression: object.metadata.name}]}\n      reference:"
)]
#[case::related_by_nothing("      reference:\n        nameExpression: object.?spec.?config\n", "")]
#[case::apply_state_that_there_is_not("state: Applied", "state: Synced")]
#[case::resources_are_no_apply_state("state: Applied", "state: Resources, unwatched: {state: Unknown}")]
#[case::nothing_for_unwatched_resources(", unwatched: {state: Unknown}", "")]
#[case::unwatched_beside_another_state("state: Current", "state: Current, unwatched: {state: Unknown}")]
#[case::unwatched_by_resources("unwatched: {state: Unknown}", "unwatched: {state: Resources}")]
#[case::health_that_there_is_not("state: Current", "state: Healthy")]
#[case::reason_that_is_no_word("reason: Fine", "reason: all is well")]
#[case::two_reasons("reason: Fine", "reason: Fine, reasonExpression: \"'Fine'\"")]
#[case::no_rules(
    "    - {whenExpression: object.?status.?done.orValue(false), state: Applied, reason: Fine}",
    "    []"
)]
#[case::resources_of_nothing("referencesExpression: object.?status.?objects", "enabled: true")]
fn what_is_wrong_is_refused_by_both(#[case] right: &str, #[case] wrong: &str) {
    assert!(SOURCE.contains(right), "{right}");
    let source = SOURCE.replacen(right, wrong, 1);
    assert!(Validator::new().validate(&source).is_err(), "the schema takes {wrong}");
    assert!(Source::parse("widgets.yaml", &source).is_err(), "the program takes {wrong}");
}
