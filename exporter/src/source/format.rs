//! The YAML of a source, as people write it. See docs/sources.md for what the fields mean.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::Value;

use super::{GroupKind, KindRef, PackageKind};

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Definition {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) object: ObjectDefinition,
    #[serde(rename = "where")]
    pub(super) filter: Option<String>,
    #[serde(default)]
    pub(super) related: Vec<RelatedDefinition>,
    #[serde(default)]
    pub(super) variables: Ordered,
    #[serde(default)]
    pub(super) revisions: RevisionsDefinition,
    pub(super) apply: Vec<RuleDefinition>,
    pub(super) health: Option<Vec<RuleDefinition>>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) worst_resource: Option<String>,
    pub(super) since: Option<String>,
    pub(super) inventory: Option<InventoryDefinition>,
    pub(super) leaves: Option<LeavesDefinition>,
    pub(super) hold: Option<HoldDefinition>,
    pub(super) samples: Vec<SampleDefinition>,
}

/// Either `categories`, or a kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ObjectDefinition {
    group: Option<String>,
    kind: Option<String>,
    versions: Option<Vec<String>>,
    resource: Option<String>,
    selector: Option<String>,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LeavesDefinition {
    #[serde(default)]
    pub(super) enabled: bool,
    pub(super) when: Option<String>,
    pub(super) objects: Option<String>,
    pub(super) labelled: Option<LabelledDefinition>,
    pub(super) basis: Option<String>,
    pub(super) ignore: Option<Vec<GroupKind>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LabelledDefinition {
    pub(super) label: String,
    pub(super) kinds: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RelatedDefinition {
    pub(super) name: String,
    pub(super) kinds: Vec<KindRef>,
    pub(super) reference: Option<ReferenceDefinition>,
    pub(super) labels: Option<LabelsDefinition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ReferenceDefinition {
    pub(super) kind: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LabelsDefinition {
    pub(super) namespace: Option<String>,
    #[serde(rename = "match")]
    pub(super) labels: Ordered,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RevisionsDefinition {
    pub(super) desired: Option<String>,
    pub(super) attempted: Option<String>,
    pub(super) applied: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RuleDefinition {
    pub(super) when: Option<String>,
    pub(super) state: String,
    pub(super) reason: Option<String>,
    pub(super) reason_from: Option<String>,
    pub(super) message: Option<String>,
    pub(super) message_from: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct InventoryDefinition {
    pub(super) total: String,
    pub(super) current: String,
    pub(super) failed: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct HoldDefinition {
    pub(super) when: String,
    pub(super) key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SampleDefinition {
    pub(super) object: Value,
    #[serde(default)]
    pub(super) related: BTreeMap<String, Value>,
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
