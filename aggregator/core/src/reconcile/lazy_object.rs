//! An object of the hub as its API server sent it, less what nobody here reads, and the rest not read yet.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube_core::{ApiResource, DynamicObject, DynamicResourceScope, Resource};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use statusbridge_api::fleet_package_slice::FLEET_PACKAGE_LABEL;
use statusbridge_api::fleet_rollout_slice::WAVE_LABEL;

use crate::reconcile::labels::{DISCOVERED_LABEL, NOT_REPORTED_SINCE};

/// The labels and annotations that decisions rest on. An object may bear thousands of others, and there may be
/// thousands of objects.
const MARKS: [&str; 4] = [DISCOVERED_LABEL, NOT_REPORTED_SINCE, FLEET_PACKAGE_LABEL, WAVE_LABEL];

/// How many characters are kept of the value of one of them; none that means something has more.
const MOST_OF_A_MARK: usize = 64;

/// Any object. `managedFields`, which is often longer than the object itself and comes with every answer
/// and every event, is skipped; so is the rest of the metadata that no decision rests on. Of an event that says
/// nothing new nothing else is ever read; an event has to say its type before its object, as every API server does.
#[derive(Debug, Clone, Default)]
pub struct LazyObject {
    /// Name, namespace, UID, versions, labels and annotations that mean something here, the owner that controls it,
    /// when it was made and when it was deleted; nothing else of the metadata.
    pub metadata: ObjectMeta,
    /// All that is beside the metadata and the kind, as text.
    fields: BTreeMap<String, Box<RawValue>>,
}

impl LazyObject {
    /// A field's text; that of null when there is none.
    pub fn text(&self, field: &str) -> &str {
        self.fields.get(field).map_or("null", |text| text.get())
    }

    /// What a field says; null when there is none.
    pub fn value(&self, field: &str) -> Value {
        serde_json::from_str(self.text(field)).unwrap_or_default()
    }

    /// Reads a field.
    ///
    /// # Errors
    /// When it is something else; the message names no line, as nobody has seen any.
    pub fn read<T: DeserializeOwned>(&self, field: &str) -> serde_json::Result<T> {
        serde_json::from_str(self.text(field)).or_else(|_| serde_json::from_value(self.value(field)))
    }

    /// All of its fields.
    pub fn values(&self) -> Value {
        self.fields.keys().map(|field| (field.clone(), self.value(field))).collect()
    }
}

/// What is read of the metadata.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    labels: Option<Marks>,
    annotations: Option<Marks>,
    owner_references: Option<Controller>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
}

impl From<Metadata> for ObjectMeta {
    fn from(read: Metadata) -> Self {
        Self {
            name: read.name,
            namespace: read.namespace,
            uid: read.uid,
            resource_version: read.resource_version,
            generation: read.generation,
            labels: read.labels.map(|marks| marks.0),
            annotations: read.annotations.map(|marks| marks.0),
            owner_references: read.owner_references.map(|controller| controller.0.into_iter().collect()),
            creation_timestamp: read.creation_timestamp,
            deletion_timestamp: read.deletion_timestamp,
            ..Self::default()
        }
    }
}

/// Those of [`MARKS`] that an object bears, as labels or as annotations.
struct Marks(BTreeMap<String, String>);

impl Marks {
    fn of(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let marks = all.into_iter().filter(|(name, _)| MARKS.contains(&name.as_str()));
        Self(marks.map(|(name, value)| (name, value.chars().take(MOST_OF_A_MARK).collect())).collect())
    }
}

impl<'de> Deserialize<'de> for Marks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Marks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels or annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Marks, A::Error> {
                let mut marks = Vec::new();
                while let Some(name) = all.next_key::<String>()? {
                    if MARKS.contains(&name.as_str()) {
                        marks.push((name, all.next_value()?));
                    } else {
                        all.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Marks::of(marks))
            }
        }
        from.deserialize_map(Names)
    }
}

/// The one among an object's owners that controls it.
struct Controller(Option<OwnerReference>);

impl<'de> Deserialize<'de> for Controller {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Owners;
        impl<'de> Visitor<'de> for Owners {
            type Value = Controller;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("owners")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Controller, A::Error> {
                let mut controller = None;
                while let Some(owner) = all.next_element::<OwnerReference>()? {
                    controller = controller.or(Some(owner).filter(|owner| owner.controller == Some(true)));
                }
                Ok(Controller(controller))
            }
        }
        from.deserialize_seq(Owners)
    }
}

impl From<DynamicObject> for LazyObject {
    fn from(DynamicObject { mut metadata, data, .. }: DynamicObject) -> Self {
        for marks in [&mut metadata.labels, &mut metadata.annotations] {
            *marks = marks.take().map(|all| Marks::of(all).0);
        }
        let fields = data.as_object().into_iter().flatten();
        let text = |value| serde_json::value::to_raw_value(value).ok();
        let fields = fields.filter_map(|(field, value)| Some((field.clone(), text(value)?))).collect();
        Self { metadata, fields }
    }
}

impl Resource for LazyObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        DynamicObject::kind(of)
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        DynamicObject::group(of)
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        DynamicObject::version(of)
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        DynamicObject::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<'de> Deserialize<'de> for LazyObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = LazyObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<LazyObject, A::Error> {
        let mut raw = LazyObject::default();
        while let Some(field) = fields.next_key::<String>()? {
            match field.as_str() {
                "metadata" => raw.metadata = fields.next_value::<Metadata>()?.into(),
                "apiVersion" | "kind" => drop(fields.next_value::<IgnoredAny>()?),
                _ => drop(raw.fields.insert(field, fields.next_value()?)),
            }
        }
        Ok(raw)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_decisions_rest_on_is_read_and_nothing_else() {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true});
        let metadata = json!({
            "name": "g", "namespace": "fleet", "uid": "1", "resourceVersion": "7", "generation": 3,
            "labels": {DISCOVERED_LABEL: "true", FLEET_PACKAGE_LABEL: "p"},
            "annotations": {NOT_REPORTED_SINCE: "2026-01-01T00:00:00Z"}, "ownerReferences": [owner],
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
        });
        let mut sent = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate", "metadata": metadata.clone(),
            "spec": {"revision": "r"}, "status": {"observedGeneration": 3},
        });
        sent["metadata"]["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]);
        let raw: LazyObject = serde_json::from_str(&sent.to_string()).unwrap();
        assert_eq!(raw.metadata, serde_json::from_value(metadata).unwrap());
        assert_eq!(raw.values(), json!({"spec": {"revision": "r"}, "status": {"observedGeneration": 3}}));
        assert_eq!((raw.value("spec"), raw.value("other")), (json!({"revision": "r"}), Value::Null));

        let same: DynamicObject = serde_json::from_value(sent.clone()).unwrap();
        assert_eq!(LazyObject::from(same).values(), raw.values());
        let event = format!(r#"{{"type":"MODIFIED","object":{sent}}}"#);
        match serde_json::from_str(&event).unwrap() {
            kube_core::WatchEvent::<LazyObject>::Modified(object) => {
                assert_eq!(object.values(), raw.values())
            }
            other => panic!("{other:?}"),
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [sent]}).to_string();
        let list: kube_core::ObjectList<LazyObject> = serde_json::from_str(&list).unwrap();
        assert_eq!(list.items[0].values(), raw.values());
    }

    #[test]
    fn of_what_somebody_hangs_on_an_object_only_what_means_something_is_kept_and_no_more_than_a_line_of_it() {
        let mut labels: BTreeMap<String, String> =
            (0..6_000).map(|n| (format!("n{n}"), "v".repeat(63))).collect();
        labels.insert(DISCOVERED_LABEL.to_owned(), "true".to_owned());
        let owner = |name: String, controller: bool| json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": "u", "controller": controller});
        let mut owners: Vec<Value> = (0..1_000).map(|n| owner(format!("n{n}"), false)).collect();
        owners.push(owner("c".to_owned(), true));
        let annotations = json!({NOT_REPORTED_SINCE: "\u{e9}".repeat(200_000), "note": "x".repeat(200_000)});
        let metadata =
            json!({"name": "g", "labels": labels, "annotations": annotations, "ownerReferences": owners});
        let sent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let whole: DynamicObject = serde_json::from_value(sent.clone()).unwrap();
        let read: LazyObject = serde_json::from_str(&sent.to_string()).unwrap();
        for object in [&read, &LazyObject::from(whole)] {
            let marks = |all: &Option<BTreeMap<String, String>>| serde_json::to_value(all).unwrap();
            assert_eq!(marks(&object.metadata.labels), json!({DISCOVERED_LABEL: "true"}));
            assert_eq!(marks(&object.metadata.annotations), json!({NOT_REPORTED_SINCE: "\u{e9}".repeat(64)}));
        }
        let owners = read.metadata.owner_references.unwrap();
        assert_eq!(owners.iter().map(|owner| owner.name.as_str()).collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn a_field_of_another_kind_is_told_without_a_place_in_the_text() {
        let raw: LazyObject = serde_json::from_value(json!({"metadata": {}, "spec": {"n": "x"}})).unwrap();
        let error = raw.read::<BTreeMap<String, u64>>("spec").unwrap_err().to_string();
        assert_eq!(error, r#"invalid type: string "x", expected u64"#);
        assert_eq!(raw.read::<Option<u64>>("status").unwrap(), None);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for sent in ["[]", "null", r#"{"metadata": 1}"#, r#"{"metadata": {"name": 1}}"#] {
            assert!(serde_json::from_str::<LazyObject>(sent).is_err(), "{sent}");
        }
    }
}
