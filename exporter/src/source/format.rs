//! The YAML of a source, as people write it. See docs/sources.md for what the fields mean. The doc
//! comments here are the descriptions in the JSON Schema (see `schema`), for who writes a source.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::Value;
use statusbridge_contract::{ApplyState, Health};

use super::{
    expectation::Expectation,
    kind::{GroupKind, KindRef, PackageKind},
    resource_rules::LEAVES,
};

/// `apiVersion` of the format.
pub(super) const API_VERSION: &str = "statusbridge.dev/source/v1";
/// `kind` of the format.
pub(super) const KIND: &str = "Source";

/// Only what says whether this is a source at all, and of which version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Header {
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) name: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Definition {
    /// Version of the format.
    #[serde(rename = "apiVersion")]
    #[schemars(extend("const" = API_VERSION))]
    _api_version: String,
    /// What this document is.
    #[serde(rename = "kind")]
    #[schemars(extend("const" = KIND))]
    _kind: String,
    /// Name of the source: the label `package_source` of its packages. A source with a preset's name
    /// takes the preset's place.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub(super) name: String,
    /// What it reads, for people.
    #[serde(default)]
    pub(super) description: String,
    /// The kind that is a package.
    pub(super) object: ObjectDefinition,
    /// Which objects of the kind are packages: a CEL expression that gives a bool and sees `object`.
    /// All of them when left out.
    #[serde(rename = "where")]
    #[schemars(length(min = 1))]
    pub(super) filter: Option<String>,
    /// Other objects to read with each package.
    #[serde(default)]
    pub(super) related: Vec<RelatedDefinition>,
    /// Names for CEL expressions; each may use those above it.
    #[serde(default)]
    pub(super) variables: Ordered,
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
    pub(super) reason: Option<String>,
    /// What to tell people, for rules that give no message: a CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) message: Option<String>,
    /// What is worst off in the package, for the log: a CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) worst_resource: Option<String>,
    /// Which run of its controller the state is about, such as the name and uid of a plan, for the log: a
    /// CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) operation: Option<String>,
    /// Since when it is in this state, if the object can say: a CEL expression that gives a timestamp,
    /// RFC 3339 text or unix seconds.
    #[schemars(length(min = 1))]
    pub(super) since: Option<String>,
    /// How many things the package applies, and how many of them work.
    pub(super) inventory: Option<InventoryDefinition>,
    /// The objects that the package consists of, for resource health.
    pub(super) leaves: Option<LeavesDefinition>,
    /// When to keep the last verdict because the controller is only looking again.
    pub(super) hold: Option<HoldDefinition>,
    /// Objects that every expression is tried on when the source is loaded, besides one that has
    /// nothing but a name and a namespace.
    #[serde(default)]
    pub(super) samples: Vec<SampleDefinition>,
}

/// Either one kind, or every kind of some categories.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("oneOf" = [
    {"required": ["group", "kind", "versions"], "properties": {"categories": false}},
    {"required": ["categories"], "maxProperties": 1},
]))]
pub(super) struct ObjectDefinition {
    /// API group; empty for the core group.
    group: Option<String>,
    /// The kind.
    #[schemars(length(min = 1))]
    kind: Option<String>,
    /// Versions that can be read, the preferred one first.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    versions: Option<Vec<String>>,
    /// Name of the resource in requests, where it is not the usual plural of the kind.
    resource: Option<String>,
    /// Label selector of the objects that are read, such as `team=web`; all of them when left out.
    selector: Option<String>,
    /// Instead of all else here: every kind that is in one of these categories, as the names of its
    /// CustomResourceDefinition list them.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    categories: Option<Vec<String>>,
}

impl ObjectDefinition {
    /// What it says, or what is wrong with it.
    pub(super) fn kind(self) -> Result<PackageKind, &'static str> {
        let is_kind = self.resource.is_some() || self.selector.is_some();
        match (self.categories, self.group, self.kind, self.versions) {
            (Some(categories), None, None, None) if !is_kind => Ok(PackageKind::Categories(categories)),
            (Some(_), ..) => Err("has `categories`, and then nothing else"),
            (None, Some(group), Some(kind), Some(versions)) => {
                let (resource, selector) = (self.resource, self.selector);
                Ok(PackageKind::Kind(KindRef { group, kind, versions, resource, selector }))
            }
            (None, ..) => Err("needs `group`, `kind` and `versions`, or `categories`"),
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("anyOf" = [{"required": ["objects"]}, {"required": ["labelled"]}]))]
pub(super) struct LeavesDefinition {
    /// Whether to look at them; `--resource-health` turns it on and off for a source.
    #[serde(default)]
    pub(super) enabled: bool,
    /// Of which packages: a CEL expression that gives a bool. Of all when left out.
    #[schemars(length(min = 1))]
    pub(super) when: Option<String>,
    /// The objects: a CEL expression that gives a list of references or inventory ids.
    #[schemars(length(min = 1))]
    pub(super) objects: Option<String>,
    /// All objects of some kinds that have a label.
    pub(super) labelled: Option<LabelledDefinition>,
    /// Whatever moves, beside applied revision and generation, when the package is applied anew: a CEL
    /// expression.
    #[schemars(length(min = 1))]
    pub(super) basis: Option<String>,
    /// Kinds that are not looked at; Secrets when left out.
    pub(super) ignore: Option<Vec<GroupKind>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LabelledDefinition {
    /// The label, as `name=value`: a CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) label: String,
    /// The kinds: a CEL expression that gives a list of maps with `group` and `kind`.
    #[schemars(length(min = 1))]
    pub(super) kinds: String,
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
    pub(super) kind: Option<String>,
    /// The namespace: a CEL expression that gives a text, empty for cluster-scoped objects. The
    /// package's own when left out.
    #[schemars(length(min = 1))]
    pub(super) namespace: Option<String>,
    /// The name: a CEL expression that gives a text. No object is found when it is empty.
    #[schemars(length(min = 1))]
    pub(super) name: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LabelsDefinition {
    /// The namespace: a CEL expression that gives a text. The package's own when left out.
    #[schemars(length(min = 1))]
    pub(super) namespace: Option<String>,
    /// Label names, each with a CEL expression that gives the label's value. All have to match.
    #[serde(rename = "match")]
    #[schemars(extend("minProperties" = 1))]
    pub(super) labels: Ordered,
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RevisionsDefinition {
    /// What the cluster has been told to run.
    #[schemars(length(min = 1))]
    pub(super) desired: Option<String>,
    /// What was last tried; for the log.
    #[schemars(length(min = 1))]
    pub(super) attempted: Option<String>,
    /// What was last applied in full. This is the healthy revision while the package is Applied and
    /// Current, so read it from the status and never from the spec.
    #[schemars(length(min = 1))]
    pub(super) applied: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("allOf" = [
    {"not": {"required": ["reason", "reasonFrom"]}},
    {"not": {"required": ["message", "messageFrom"]}},
]))]
pub(super) struct RuleDefinition {
    /// When it holds: a CEL expression that gives a bool. Always when left out, which only the last
    /// rule may do.
    #[schemars(length(min = 1))]
    pub(super) when: Option<String>,
    /// The state.
    pub(super) state: String,
    /// Why: one CamelCase word.
    #[schemars(length(max = 128), regex(pattern = r"^[A-Z][A-Za-z0-9]*$"))]
    pub(super) reason: Option<String>,
    /// Why: a CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) reason_from: Option<String>,
    /// What to tell people: a text.
    #[schemars(length(max = 1024))]
    pub(super) message: Option<String>,
    /// What to tell people: a CEL expression that gives a text.
    #[schemars(length(min = 1))]
    pub(super) message_from: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct InventoryDefinition {
    /// How many there are: a CEL expression that gives an int.
    #[schemars(length(min = 1))]
    pub(super) total: String,
    /// How many of them are as they should be.
    #[schemars(length(min = 1))]
    pub(super) current: String,
    /// How many of them failed.
    #[schemars(length(min = 1))]
    pub(super) failed: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct HoldDefinition {
    /// Whether the object says nothing about the outcome at the moment, as its controller is looking
    /// again: a CEL expression that gives a bool.
    #[schemars(length(min = 1))]
    pub(super) when: String,
    /// What it is looking at, such as the generation and the attempted revision: a CEL expression that
    /// gives a scalar or a list of scalars. While it is the same, the last verdict stays.
    #[schemars(length(min = 1))]
    pub(super) key: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SampleDefinition {
    /// An object of the source's kind, as the API server gives it.
    #[schemars(extend("type" = "object"))]
    pub(super) object: Value,
    /// What is related to it, by the variable's name: an object, or a list of objects.
    #[serde(default)]
    #[schemars(extend("additionalProperties" = {"type": ["object", "array"]}))]
    pub(super) related: BTreeMap<String, Value>,
    /// What `source test` expects to be shown of it.
    pub(super) expect: Option<Expectation>,
}

/// A map of texts in the order in which it was written, each name once.
#[derive(Default)]
pub(super) struct Ordered(pub(super) Vec<(String, String)>);

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Ordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from names to expressions")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut entries: Vec<(String, String)> = Vec::new();
                while let Some((name, text)) = map.next_entry::<String, String>()? {
                    if entries.iter().any(|(other, _)| *other == name) {
                        return Err(A::Error::custom(format_args!("`{name}` stands here twice")));
                    }
                    entries.push((name, text));
                }
                Ok(Ordered(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl JsonSchema for Ordered {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Ordered".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": {"type": "string", "minLength": 1}})
    }
}

fn apply_rules(generator: &mut SchemaGenerator) -> Schema {
    rules(generator, ApplyState::ALL.iter().map(|state| state.name()))
}

fn health_rules(generator: &mut SchemaGenerator) -> Schema {
    rules(generator, Health::ALL.iter().map(|state| state.name()).chain([LEAVES]))
}

fn rules<'n>(generator: &mut SchemaGenerator, states: impl Iterator<Item = &'n str>) -> Schema {
    let mut rule = RuleDefinition::json_schema(generator);
    if let Some(state) = rule.pointer_mut("/properties/state").and_then(Value::as_object_mut) {
        state.insert("enum".to_owned(), states.collect());
    }
    json_schema!({"type": "array", "minItems": 1, "items": rule})
}
