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
  hold: {whenExpression: "false", key: object.?status.?version}
"#;

#[test]
fn what_is_right_is_taken_by_both() {
    assert_eq!(Validator::new().validate(SOURCE), Ok(()));
    assert!(Source::parse("widgets.yaml", SOURCE).is_ok());
}

#[rstest]
#[case::field_that_there_is_not("name: widgets", "name: widgets\nsinze: \"0\"")]
#[case::field_that_there_is_not_below("hold: {", "hold: {until: x, ")]
#[case::no_name("name: widgets\n", "")]
#[case::no_object("object: {group: example.com, kind: Widget, versions: [v1]}", "")]
#[case::name_that_is_no_label("name: widgets", "name: -widgets")]
#[case::name_too_long(
    "name: widgets",
    "name: a123456789012345678901234567890123456789012345678901234567890123"
)]
#[case::version_of_the_format("source/v1", "source/v2")]
#[case::kind_of_the_document("kind: Source", "kind: Sauce")]
#[case::kind_and_categories("versions: [v1]}\nrelated", "versions: [v1], categories: [widgets]}\nrelated")]
#[case::neither_kind_nor_categories(
    "{group: example.com, kind: Widget, versions: [v1]}",
    "{group: example.com}"
)]
#[case::selector_of_categories(
    "{group: example.com, kind: Widget, versions: [v1]}",
    "{categories: [widgets], selector: a=b}"
)]
#[case::no_versions("versions: [v1]}\nrelated", "versions: []}\nrelated")]
#[case::related_by_both("reference: {", "labels: {match: {a: object.metadata.name}}\n    reference: {")]
#[case::related_by_nothing("    reference: {name: object.?spec.?config}\n", "")]
#[case::apply_state_that_there_is_not("state: Applied", "state: Synced")]
#[case::leaves_are_no_apply_state("state: Applied", "state: Leaves")]
#[case::health_that_there_is_not("state: Current", "state: Healthy")]
#[case::reason_that_is_no_word("reason: Fine", "reason: all is well")]
#[case::two_reasons("reason: Fine", "reason: Fine, reasonFrom: \"'Fine'\"")]
#[case::no_rules("  - {when: object.?status.?done.orValue(false), state: Applied, reason: Fine}", "  []")]
#[case::leaves_of_nothing("{objects: object.?status.?objects}", "{enabled: true}")]
fn what_is_wrong_is_refused_by_both(#[case] right: &str, #[case] wrong: &str) {
    assert!(SOURCE.contains(right), "{right}");
    let source = SOURCE.replacen(right, wrong, 1);
    assert!(Validator::new().validate(&source).is_err(), "the schema takes {wrong}");
    assert!(Source::parse("widgets.yaml", &source).is_err(), "the program takes {wrong}");
}
