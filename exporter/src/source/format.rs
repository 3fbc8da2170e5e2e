//! The YAML of a source, as people write it. See docs/sources.md for what the fields mean. The doc
//! comments here are the descriptions in the JSON Schema (see `schema`), for who writes a source.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Health};

use super::{
    expectation::Expectation,
    kind::{GroupKind, KindRef},
    rule::RESOURCES,
};

/// `apiVersion` of the format.
pub(crate) const API_VERSION: &str = "sources.statusbridge.dev/v1alpha1";
/// `kind` of the format.
pub(super) const KIND: &str = "Source";

/// Only what says whether this is a source at all, and of which version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Header {
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) metadata: Option<HeaderMetadata>,
}

#[derive(Deserialize)]
pub(super) struct HeaderMetadata {
    pub(super) name: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SourceDefinition {
    /// Version of the format.
    #[serde(rename = "apiVersion")]
    #[schemars(extend("const" = API_VERSION))]
    _api_version: String,
    /// What this document is.
    #[serde(rename = "kind")]
    #[schemars(extend("const" = KIND))]
    _kind: String,
    /// Which source it is.
    pub(super) metadata: MetadataDefinition,
    /// What it reads, and how.
    pub(super) spec: SpecDefinition,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct MetadataDefinition {
    /// Name of the source: the label `package_source` of its packages. A source with a preset's name
    /// takes the preset's place.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub(super) name: String,
    /// For people and their tools.
    #[serde(default, rename = "labels")]
    _labels: BTreeMap<String, String>,
    /// For people and their tools.
    #[serde(default, rename = "annotations")]
    _annotations: BTreeMap<String, String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("oneOf" = [{"required": ["kinds"]}, {"required": ["categories"]}]))]
pub(super) struct SpecDefinition {
    /// What it reads, for people.
    #[serde(default)]
    pub(super) description: String,
    /// The kinds that are packages.
    #[schemars(length(min = 1))]
    pub(super) kinds: Option<Vec<KindRef>>,
    /// Instead of `kinds`: every kind that is in one of these categories, as the names of its
    /// CustomResourceDefinition list them.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub(super) categories: Option<Vec<String>>,
    /// Which package an object is, where that is not its own namespace and name.
    pub(super) identity: Option<IdentityDefinition>,
    /// Which objects of the kinds are packages: those for which every condition is true, which gives a bool
    /// and sees `object`. All of them when left out.
    #[serde(default)]
    pub(super) match_conditions: Vec<NamedExpression>,
    /// Other objects to read with each package.
    #[serde(default)]
    pub(super) related: Vec<RelatedDefinition>,
    /// Names for CEL expressions; each may use those above it, and is evaluated only where it is used.
    #[serde(default)]
    pub(super) variables: Vec<NamedExpression>,
    /// Which revisions the package is about. Each is a CEL expression that gives a text, or a list of
    /// texts for a package of several sources.
    #[serde(default)]
    pub(super) revisions: RevisionsDefinition,
    /// How far the cluster has got with applying it: ordered rules, of which the first that holds gives
    /// the state. By kstatus when left out.
    #[serde(default)]
    #[schemars(schema_with = "apply_rules")]
    pub(super) apply: Option<Vec<RuleDefinition>>,
    /// Whether what was applied works: ordered rules, which may use the variable `apply`. By kstatus
    /// when left out.
    #[serde(default)]
    #[schemars(schema_with = "health_rules")]
    pub(super) health: Option<Vec<RuleDefinition>>,
    /// Why, for rules that give no reason: a CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) reason_expression: Option<String>,
    /// What to tell people, for rules that give no message: a CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) message_expression: Option<String>,
    /// What is worst off in the package, for the log: a CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) worst_resource_expression: Option<String>,
    /// Which run of its controller the state is about, such as the name and uid of a plan, for the log: a
    /// CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) operation_expression: Option<String>,
    /// Since when it is in this state, if the object can say: a CEL expression that gives a timestamp,
    /// RFC 3339 text or unix seconds.
    #[schemars(length(min = 1))]
    pub(super) since_expression: Option<String>,
    /// The objects that the package consists of.
    #[serde(default)]
    pub(super) resources: ResourcesDefinition,
    /// When to keep the last verdict because the controller is only looking again.
    pub(super) hold: Option<HoldDefinition>,
    /// Objects that every expression is tried on when the source is loaded, besides one that has
    /// nothing but a name and a namespace.
    #[serde(default)]
    pub(super) samples: Vec<SampleDefinition>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub(super) struct IdentityDefinition {
    /// The cluster in which the package runs, by the name that it has in the hub: a CEL expression that gives a
    /// text and sees `object`. The exporter's own when it gives none, or is left out.
    #[schemars(length(min = 1))]
    pub(super) cluster_expression: Option<String>,
    /// The package's namespace: a CEL expression that gives a text, empty for none, and sees `object`. The
    /// object's own when left out.
    #[schemars(length(min = 1))]
    pub(super) namespace_expression: Option<String>,
    /// The package's name: a CEL expression that gives a text and sees `object`. The object's own when left
    /// out.
    #[schemars(length(min = 1))]
    pub(super) name_expression: Option<String>,
    /// Which of several objects is the package, where each of its versions is an object of its own: a CEL
    /// expression that gives an int, 0 at least, and sees `object`. The object with the highest is it. When left
    /// out, several objects that are one package make it Unknown.
    #[schemars(length(min = 1))]
    pub(super) order_expression: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NamedExpression {
    /// Its name.
    #[schemars(length(min = 1))]
    pub(super) name: String,
    /// A CEL expression.
    #[schemars(length(min = 1))]
    pub(super) expression: String,
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ResourcesDefinition {
    /// How many there are, and how many of them work, where the package's own object says so.
    pub(super) counts: Option<CountsDefinition>,
    /// Which objects they are, so that the exporter can watch them itself and tell their health.
    pub(super) watch: Option<WatchDefinition>,
    /// How to tell the health of kinds for which kstatus, by which all others are judged, will not do.
    #[serde(default)]
    pub(super) health_rules: Vec<HealthRuleDefinition>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CountsDefinition {
    /// How many there are: a CEL expression that gives an int.
    #[schemars(length(min = 1))]
    pub(super) total_expression: String,
    /// How many of them are as they should be.
    #[schemars(length(min = 1))]
    pub(super) current_expression: String,
    /// How many of them failed.
    #[schemars(length(min = 1))]
    pub(super) failed_expression: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("anyOf" = [{"required": ["referencesExpression"]}, {"required": ["labelled"]}]))]
pub(super) struct WatchDefinition {
    /// Whether to watch them; `--resource-health` turns it on and off for a source.
    #[serde(default)]
    pub(super) enabled: bool,
    /// Of which packages: a CEL expression that gives a bool. Of all when left out.
    #[schemars(length(min = 1))]
    pub(super) when_expression: Option<String>,
    /// The objects: a CEL expression that gives a list of references or inventory ids.
    #[schemars(length(min = 1))]
    pub(super) references_expression: Option<String>,
    /// All objects of some kinds that have a label.
    pub(super) labelled: Option<LabelledDefinition>,
    /// Whatever moves, beside applied revision and generation, when the package is applied anew: a CEL
    /// expression.
    #[schemars(length(min = 1))]
    pub(super) basis_expression: Option<String>,
    /// Kinds that are not watched; Secrets when left out.
    pub(super) ignore: Option<Vec<GroupKind>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LabelledDefinition {
    /// The label, as `name=value`: a CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) label_expression: String,
    /// The kinds: a CEL expression that gives a list of maps with `group` and `kind`.
    #[schemars(length(min = 1))]
    pub(super) kinds_expression: String,
}

/// The words and their order are those of the health check expressions of a Flux Kustomization: each sees
/// `object` and gives a bool, and the first that is true counts. An object of which none is true, or whose
/// `status.observedGeneration` is behind, is InProgress.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct HealthRuleDefinition {
    /// API group; empty for the core group.
    pub(super) group: String,
    /// The kind.
    #[schemars(length(min = 1))]
    pub(super) kind: String,
    /// Whether it is on its way.
    #[schemars(length(min = 1))]
    pub(super) in_progress_expression: Option<String>,
    /// Whether it has failed.
    #[schemars(length(min = 1))]
    pub(super) failed_expression: Option<String>,
    /// Whether it works.
    #[schemars(length(min = 1))]
    pub(super) current_expression: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("oneOf" = [{"required": ["reference"]}, {"required": ["labels"]}]))]
pub(super) struct RelatedDefinition {
    /// The variable that holds what is found: an optional object for `reference`, a list of objects for
    /// `labels`.
    #[schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub(super) name: String,
    /// The kinds that it may be of.
    #[schemars(length(min = 1))]
    pub(super) kinds: Vec<KindRef>,
    /// At most one object, found by its name.
    pub(super) reference: Option<ReferenceDefinition>,
    /// Any number of objects, found by their labels.
    pub(super) labels: Option<LabelsDefinition>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ReferenceDefinition {
    /// The kind, where there are several: a CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) kind_expression: Option<String>,
    /// The namespace: a CEL expression that gives a text, empty for cluster-scoped objects. The
    /// package's own when left out.
    #[schemars(length(min = 1))]
    pub(super) namespace_expression: Option<String>,
    /// The name: a CEL expression that gives a text. No object is found when it is empty.
    #[schemars(length(min = 1))]
    pub(super) name_expression: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LabelsDefinition {
    /// The kind, where only one of several is meant: a CEL expression that gives a text. All of them when left
    /// out.
    #[schemars(length(min = 1))]
    pub(super) kind_expression: Option<String>,
    /// The namespace: a CEL expression that gives a text. The package's own when left out.
    #[schemars(length(min = 1))]
    pub(super) namespace_expression: Option<String>,
    /// The labels, all of which they have.
    #[serde(rename = "match")]
    #[schemars(length(min = 1))]
    pub(super) labels: Vec<LabelDefinition>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LabelDefinition {
    /// Name of the label.
    #[schemars(length(min = 1))]
    pub(super) label: String,
    /// Its value: a CEL expression that gives a text. No object is found when it is empty.
    #[schemars(length(min = 1))]
    pub(super) value_expression: String,
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RevisionsDefinition {
    /// What the cluster has been told to run.
    #[schemars(length(min = 1))]
    pub(super) desired_expression: Option<String>,
    /// What was last tried; for the log.
    #[schemars(length(min = 1))]
    pub(super) attempted_expression: Option<String>,
    /// What was last applied in full. This is the healthy revision while the package is Applied and
    /// Current, so read it from the status and never from the spec.
    #[schemars(length(min = 1))]
    pub(super) applied_expression: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("allOf" = [
    {"not": {"required": ["reason", "reasonExpression"]}},
    {"not": {"required": ["message", "messageExpression"]}},
]))]
pub(super) struct RuleDefinition {
    /// When it holds: a CEL expression that gives a bool. Always when left out, which only the last
    /// rule may do, or one with `after`.
    #[schemars(length(min = 1))]
    pub(super) when_expression: Option<String>,
    /// What time has to pass before it holds.
    pub(super) after: Option<AfterDefinition>,
    /// The state.
    pub(super) state: String,
    /// Why: one CamelCase word.
    #[schemars(length(max = 128), regex(pattern = r"^[A-Z][A-Za-z0-9]*$"))]
    pub(super) reason: Option<String>,
    /// Why: a CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) reason_expression: Option<String>,
    /// What to tell people: a text.
    #[schemars(length(max = 1024))]
    pub(super) message: Option<String>,
    /// What to tell people: a CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) message_expression: Option<String>,
    /// What holds where they are not watched: for the state `Resources`, which needs it.
    pub(super) unwatched: Option<UnwatchedDefinition>,
}

/// The exporter looks again by itself when the time has come. It goes by the clock of its own machine.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct AfterDefinition {
    /// Since when: a CEL expression that gives a timestamp, RFC 3339 text or unix seconds. While it gives
    /// none, the rule does not hold.
    #[schemars(length(min = 1))]
    pub(super) since_expression: String,
    /// How long: such as `90s`, `10m` or `1h30m`, from one second to 30 days.
    #[schemars(length(min = 1))]
    pub(super) duration: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct UnwatchedDefinition {
    /// The state.
    pub(super) state: String,
    /// Why: one CamelCase word.
    #[schemars(length(max = 128), regex(pattern = r"^[A-Z][A-Za-z0-9]*$"))]
    pub(super) reason: Option<String>,
    /// What to tell people.
    #[schemars(length(max = 1024))]
    pub(super) message: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct HoldDefinition {
    /// Whether the object says nothing about the outcome at the moment, as its controller is looking
    /// again: a CEL expression that gives a bool.
    #[schemars(length(min = 1))]
    pub(super) when_expression: String,
    /// What it is looking at, such as the generation and the attempted revision: a CEL expression that
    /// gives a scalar or a list of scalars. While it is the same, the last verdict stays.
    #[schemars(length(min = 1))]
    pub(super) key_expression: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SampleDefinition {
    /// An object of one of the source's kinds, as the API server gives it.
    #[schemars(extend("type" = "object"))]
    pub(super) object: Value,
    /// What is related to it, by the variable's name: an object, or a list of objects.
    #[serde(default)]
    #[schemars(extend("additionalProperties" = {"type": ["object", "array"]}))]
    pub(super) related: BTreeMap<String, Value>,
    /// What `source test` expects to be shown of it.
    pub(super) expect: Option<Expectation>,
}

fn apply_rules(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = rules(generator, ApplyState::ALL.iter().map(|state| state.name()));
    if let Some(properties) = schema.pointer_mut("/items/properties").and_then(Value::as_object_mut) {
        properties.remove("unwatched");
    }
    schema
}

fn health_rules(generator: &mut SchemaGenerator) -> Schema {
    let states = || Health::ALL.iter().map(|state| state.name());
    let mut schema = rules(generator, states().chain([RESOURCES]));
    let state = schema.pointer_mut("/items/properties/unwatched/properties/state");
    if let Some(state) = state.and_then(Value::as_object_mut) {
        state.insert("enum".to_owned(), states().collect());
    }
    if let Some(rule) = schema.pointer_mut("/items").and_then(Value::as_object_mut) {
        rule.insert("if".to_owned(), json!({"properties": {"state": {"const": RESOURCES}}}));
        rule.insert("then".to_owned(), json!({"required": ["unwatched"]}));
        rule.insert("else".to_owned(), json!({"properties": {"unwatched": false}}));
    }
    schema
}

fn rules<'n>(generator: &mut SchemaGenerator, states: impl Iterator<Item = &'n str>) -> Schema {
    let mut rule = RuleDefinition::json_schema(generator);
    if let Some(state) = rule.pointer_mut("/properties/state").and_then(Value::as_object_mut) {
        state.insert("enum".to_owned(), states.collect());
    }
    json_schema!({"type": "array", "minItems": 1, "items": rule})
}
