//! The objects of a case: the base with its changes, completed by what follows from the source.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    saved::is_object,
    source::{JoinKey, KindRef, Source},
};

/// The fields of a base.
const FIELDS: [&str; 3] = ["object", "related", "others"];

/// Changes the base, or what has become of it: by a JSON merge patch, then by values at JSON pointers.
///
/// # Errors
/// When a pointer leads nowhere, or the base has fields that there are not.
pub(super) fn change(
    base: &mut Value,
    patch: &Value,
    values: &BTreeMap<String, Value>,
) -> Result<(), String> {
    if !patch.is_null() {
        merge(base, patch);
    }
    for (pointer, value) in values {
        replace(base, pointer, value).ok_or_else(|| format!("replace: there is no `{pointer}`"))?;
    }
    let mut fields = base.as_object().into_iter().flat_map(Map::keys);
    match fields.find(|field| !FIELDS.contains(&field.as_str())) {
        Some(field) => {
            Err(format!("there is no `{field}` in the objects of a case, only {}", FIELDS.join(", ")))
        }
        None => Ok(()),
    }
}

/// Applies a JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Puts a value at a JSON pointer; the last field need not be there.
fn replace(target: &mut Value, pointer: &str, value: &Value) -> Option<()> {
    let (parent, key) = pointer.rsplit_once('/')?;
    match target.pointer_mut(parent)? {
        Value::Object(fields) => {
            drop(fields.insert(key.replace("~1", "/").replace("~0", "~"), value.clone()))
        }
        Value::Array(items) => *items.get_mut(key.parse::<usize>().ok()?)? = value.clone(),
        _ => return None,
    }
    Some(())
}

/// The objects that there are, each with what it is to the case: `object`, `related.source`, `others.front`. What a package and
/// its related objects leave out is filled in, so that the source finds them.
///
/// # Errors
/// When one of them is no object.
pub(super) fn objects(source: &Source, base: &Value) -> Result<Vec<(String, Value)>, String> {
    let mut all = Vec::new();
    let own = base.get("object").filter(|object| !object.is_null()).cloned();
    if let Some(mut own) = own {
        if let Some(kind) = source.kinds.listed().first() {
            be_of(&mut own, kind);
        }
        all.push(("object".to_owned(), own));
    }
    let package = all.first().map(|(_, object)| object.clone()).unwrap_or_default();
    let related: BTreeMap<&String, &Value> = map(base, "related")?;
    if let Some(name) = related.keys().find(|name| !source.related.iter().any(|it| it.name == ***name)) {
        return Err(format!("related.{name}: source {} has no such related objects", source.name));
    }
    let keys = source.join_keys(&package);
    for (index, of) in source.related.iter().enumerate() {
        let key = keys.iter().find(|key| key.related() == index);
        for (number, mut object) in each(related.get(&of.name).copied()).enumerate() {
            complete(&mut object, &of.kinds, key, number);
            all.push((format!("related.{}", of.name), object));
        }
    }
    for (name, others) in map(base, "others")? {
        all.extend(each(Some(others)).map(|object| (format!("others.{name}"), object)));
    }
    match all.iter().find(|(_, object)| !is_object(object)) {
        Some((name, _)) => {
            Err(format!("{name}: is no Kubernetes object: needs apiVersion, kind and metadata.name"))
        }
        None => Ok(all),
    }
}

fn map<'v>(base: &'v Value, field: &str) -> Result<BTreeMap<&'v String, &'v Value>, String> {
    match base.get(field) {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(fields)) => Ok(fields.iter().collect()),
        Some(_) => Err(format!("{field}: needs names of objects")),
    }
}

/// An object, those of a list, or none.
fn each(value: Option<&Value>) -> impl Iterator<Item = Value> {
    let values = match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(objects)) => objects.clone(),
        Some(object) => vec![object.clone()],
    };
    values.into_iter()
}

/// Has an object be one that a source finds as related, as far as it does not say otherwise.
fn complete(object: &mut Value, kinds: &[KindRef], key: Option<&JoinKey>, number: usize) {
    let kind = match key {
        Some(JoinKey::Reference { kind, .. } | JoinKey::Labels { kind, .. }) => kinds.get(*kind),
        None => kinds.first(),
    };
    if let Some(kind) = kind {
        be_of(object, kind);
    }
    let metadata = match key {
        Some(JoinKey::Reference { namespace, name, .. }) => json!({"namespace": namespace, "name": name}),
        Some(JoinKey::Labels { namespace, labels, .. }) => {
            let labels: BTreeMap<&String, &String> =
                labels.iter().map(|(name, value)| (name, value)).collect();
            json!({"namespace": namespace, "name": format!("related-{number}"), "labels": labels})
        }
        None => json!({"name": format!("related-{number}")}),
    };
    fill_in(object, &json!({"metadata": metadata}));
}

/// Has an object be of a kind, unless it says of which kind it is.
fn be_of(object: &mut Value, kind: &KindRef) {
    if object.get("kind").is_some() {
        return;
    }
    let version = kind.versions.first().map(String::as_str).unwrap_or_default();
    let version =
        if kind.group.is_empty() { version.to_owned() } else { format!("{}/{version}", kind.group) };
    fill_in(object, &json!({"apiVersion": version, "kind": kind.kind}));
}

/// Puts the fields of `from` that are no null where there are none.
fn fill_in(object: &mut Value, from: &Value) {
    let (Value::Object(fields), Value::Object(from)) = (object, from) else { return };
    for (name, value) in from.iter().filter(|(_, value)| !value.is_null()) {
        match fields.get_mut(name) {
            Some(known) => fill_in(known, value),
            None => {
                let mut value = value.clone();
                if let Some(fields) = value.as_object_mut() {
                    fields.retain(|_, value| !value.is_null());
                }
                fields.insert(name.clone(), value);
            }
        }
    }
}
