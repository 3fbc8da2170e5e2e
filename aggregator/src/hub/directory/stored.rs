//! An object of the directory, and where it lives.

use serde_json::{Map, Value, json};
use statusbridge_api::GROUP;
use statusbridge_core::reconcile::object::Kind;

/// Annotation: the file that an object was read from.
pub(super) const FILE: &str = "statusbridge.dev/file";
/// Group of Leases.
pub(super) const LEASES: &str = "coordination.k8s.io";
/// Field of an object beside its spec: why that counts for nothing.
pub(super) const REFUSED: &str = statusbridge_core::reconcile::object::REFUSED;

/// The kinds of ours that people write.
pub(super) const DECLARED: [Kind; 4] =
    [Kind::FleetPackage, Kind::RolloutGate, Kind::RolloutFreeze, Kind::RolloutApproval];

/// Where an object lives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) group: String,
    pub(super) plural: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Place {
    /// That of an object; `None` where it does not say kind and name.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let group = text("/apiVersion")?.rsplit_once('/').map_or("", |(group, _)| group);
        Some(Self {
            group: group.to_owned(),
            plural: plural(text("/kind")?),
            namespace: text("/metadata/namespace").unwrap_or_default().to_owned(),
            name: text("/metadata/name")?.to_owned(),
        })
    }

    /// Its kind, where that is one of ours that people write.
    pub(super) fn kind(&self) -> Option<Kind> {
        DECLARED.into_iter().find(|kind| self.is(*kind))
    }

    pub(super) fn is(&self, kind: Kind) -> bool {
        self.group == GROUP && self.plural == kind.resource().plural
    }

    /// Whether this program writes objects of this kind.
    pub(super) fn is_written(&self) -> bool {
        let written = [(LEASES, "leases"), ("", "configmaps")];
        self.group == GROUP || written.contains(&(self.group.as_str(), self.plural.as_str()))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.plural, self.namespace, self.name)
    }
}

/// The plural that a kind is served under here: true of all kinds that this program knows, and nobody else asks.
pub(super) fn plural(kind: &str) -> String {
    format!("{}s", kind.to_ascii_lowercase())
}

/// A field of an object's metadata.
pub(super) fn metadata<'o>(object: &'o Value, field: &str) -> Option<&'o str> {
    object.get("metadata")?.get(field)?.as_str()
}

/// Which generation of its spec it is.
pub(super) fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
}

/// The file that it was read from.
pub(super) fn file(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(FILE)?.as_str()
}

/// Sets a field of an object, or removes it.
pub(super) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(fields) = object.as_object_mut() {
        match value {
            Some(value) => drop(fields.insert(field.to_owned(), value)),
            None => drop(fields.remove(field)),
        }
    }
}

/// Sets a field of an object's metadata.
pub(super) fn set_metadata(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut()
        && let Some(metadata) = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
    {
        metadata.insert(field.to_owned(), value);
    }
}

/// What people say in an object: all but its status, and of the metadata what is theirs.
pub(super) fn declared(object: &Value) -> Value {
    let mut declared = object.clone();
    if let Some(metadata) = declared.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| ["name", "namespace", "labels", "annotations"].contains(&field.as_str()));
    }
    if Place::of(object).is_some_and(|place| place.kind().is_some()) {
        set(&mut declared, "status", None);
    }
    declared
}

/// What a generation is counted of: all but metadata and status.
pub(super) fn content(object: &Value) -> Map<String, Value> {
    let fields = object.as_object().into_iter().flatten();
    let counts = |field: &str| field != "metadata" && field != "status";
    fields.filter(|(field, _)| counts(field)).map(|(field, value)| (field.clone(), value.clone())).collect()
}

/// What never changes of an object: with something else there it is another object.
pub(super) fn identity(object: &Value) -> [Option<&Value>; 4] {
    let is_approval = Place::of(object).is_some_and(|place| place.is(Kind::RolloutApproval));
    let all = if is_approval { object.pointer("/spec") } else { None };
    let field = |field: &str| object.pointer(field);
    [field("/spec/package"), field("/spec/managedBy"), field("/spec/fleetPackageRef"), all]
}
