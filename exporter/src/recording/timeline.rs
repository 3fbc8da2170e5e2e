//! When the versions of saved objects come.
//!
//! A recording begins when the first version comes that is not the first of its object. Objects are there from then on in
//! their first version, unless they were created later. Everything else comes in the order of its resource versions, or else
//! in that in which it was saved, at the newest time that it or something before it says: about when it was written.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::kinds::{GroupKind, group_kind, key};
use crate::{
    saved::{SavedEvent, SavedObject},
    watch::PackageKey,
};

/// A version of an object, or its end.
#[derive(Debug)]
pub(crate) struct Version {
    /// Which of the saved objects it is.
    pub(crate) number: usize,
    /// Whether it is there from the start.
    pub(crate) is_first: bool,
    /// When it comes, in unix milliseconds; when the recording begins, if it is there from the start.
    pub(crate) at: i64,
    pub(crate) kind: GroupKind,
    pub(crate) key: PackageKey,
    /// `None` when it is gone.
    pub(crate) object: Option<Value>,
}

/// Objects in the order in which they were written: by their resource versions, which one cluster gives all of its objects,
/// if all of them have one. Several files may hold the objects of several watches.
pub(crate) fn in_order(mut objects: Vec<SavedObject>) -> Vec<SavedObject> {
    if objects.iter().all(|object| resource_version(&object.value).is_some()) {
        objects.sort_by_key(|object| resource_version(&object.value));
    }
    objects
}

fn resource_version(object: &Value) -> Option<u64> {
    object.get("metadata")?.get("resourceVersion")?.as_str()?.parse().ok()
}

/// Everything that comes, those first that are there from the start; and when the recording begins. `now` (unix milliseconds)
/// is the time for objects that have none.
pub(crate) fn timeline(objects: Vec<SavedObject>, now: i64) -> (Vec<Version>, i64) {
    let begin = beginning(&objects).unwrap_or(now);
    let (mut clock, mut has_begun) = (i64::MIN, false);
    let mut seen = HashSet::new();
    let mut newest = HashMap::<(GroupKind, PackageKey), Option<u64>>::new();
    let mut versions = Vec::with_capacity(objects.len());
    for (number, SavedObject { value, event, .. }) in objects.into_iter().enumerate() {
        clock = clock.max(newest_time(&value).unwrap_or(clock));
        let (kind, key) = (group_kind(&value), key(&value));
        let name = (kind.clone(), key.clone());
        let is_new = seen.insert(name.clone());
        let object = with_later_version(value, newest.entry(name.clone()).or_default());
        let comes_later = match created(&object) {
            Some(created) => created > begin,
            None => has_begun && event == Some(SavedEvent::Added),
        };
        let is_first = is_new && !comes_later;
        let at = if is_first { begin } else { clock.max(begin) };
        let version = |is_first, at, object| Version {
            number,
            is_first,
            at,
            kind: kind.clone(),
            key: key.clone(),
            object,
        };
        if event == Some(SavedEvent::Deleted) {
            if is_first {
                versions.push(version(true, begin, Some(object)));
            }
            newest.remove(&name);
            versions.push(version(false, clock.max(begin), None));
        } else {
            versions.push(version(is_first, at, Some(object)));
        }
        has_begun |= !is_first || event == Some(SavedEvent::Deleted);
    }
    versions.sort_by_key(|version| !version.is_first);
    (versions, begin)
}

/// When a recording begins: about when the last version was written before the first one that changes something. `None`
/// when no object says a time.
pub(crate) fn beginning(objects: &[SavedObject]) -> Option<i64> {
    let mut clock = None;
    let mut seen = HashSet::new();
    for SavedObject { value, event, .. } in objects {
        let changes = !seen.insert((group_kind(value), key(value))) || *event == Some(SavedEvent::Deleted);
        if changes && clock.is_some() {
            break;
        }
        clock = clock.max(newest_time(value));
    }
    clock
}

/// An object with a resource version that is greater than that of its version before; with none, if it says something else.
fn with_later_version(mut object: Value, before: &mut Option<u64>) -> Value {
    let version = resource_version(&object);
    if version > *before {
        *before = version;
    } else if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    object
}

fn created(object: &Value) -> Option<i64> {
    millis(object.get("metadata")?.get("creationTimestamp")?)
}

/// The newest time in an object's metadata and status, in unix milliseconds.
fn newest_time(object: &Value) -> Option<i64> {
    fn newest(value: &Value) -> Option<i64> {
        match value {
            Value::Array(items) => items.iter().filter_map(newest).max(),
            Value::Object(fields) => fields.values().filter_map(newest).max(),
            other => millis(other),
        }
    }
    ["metadata", "status"].iter().filter_map(|field| newest(object.get(field)?)).max()
}

/// The time that a text is, in unix milliseconds.
pub(crate) fn millis(value: &Value) -> Option<i64> {
    let text = value.as_str().filter(|text| text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T'))?;
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 7;

    fn object(name: &str, created: &str, status: &str) -> Value {
        let time = |second: &str| match second {
            "" => Value::Null,
            second => format!("2026-01-01T00:00:{second}Z").into(),
        };
        json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": name, "creationTimestamp": time(created)}, "status": {"at": time(status)}})
    }

    /// The versions in their order: second, name, `=` for those that are there from the start, `-` for an end.
    fn plan(objects: &[(Value, Option<SavedEvent>)]) -> Vec<String> {
        let objects: Vec<_> = objects
            .iter()
            .map(|(value, event)| SavedObject { event: *event, ..SavedObject::new("f", value.clone()) })
            .collect();
        let (versions, _) = timeline(objects, NOW);
        let second = |at: i64| if at == NOW { "now".to_owned() } else { (at / 1000 % 60).to_string() };
        let mark = |version: &Version| match (&version.object, version.is_first) {
            (None, _) => "-",
            (_, true) => "=",
            (_, false) => "",
        };
        versions.iter().map(|it| format!("{} {}{}", second(it.at), it.key.name, mark(it))).collect()
    }

    #[test]
    fn what_comes_once_is_there_from_the_start() {
        let objects = [(object("a", "01", "05"), None), (object("b", "", ""), None)];
        assert_eq!(plan(&objects), ["5 a=", "5 b="]);
        assert_eq!(plan(&[(object("b", "", ""), None)]), ["now b="]);
    }

    #[test]
    fn later_versions_come_when_they_were_written() {
        let objects = [
            (object("a", "01", "05"), None),
            (object("a", "01", "09"), None),
            (object("a", "01", ""), None),
            (object("related", "02", "03"), None),
        ];
        assert_eq!(plan(&objects), ["5 a=", "5 related=", "9 a", "9 a"]);
    }

    #[test]
    fn what_was_created_later_comes_later() {
        let objects = [
            (object("a", "01", "05"), None),
            (object("a", "01", "06"), None),
            (object("b", "08", "08"), None),
            (object("a", "01", "09"), None),
        ];
        assert_eq!(plan(&objects), ["5 a=", "6 a", "8 b", "9 a"]);
    }

    #[test]
    fn events_say_what_is_new_and_what_is_gone() {
        let (added, deleted) = (Some(SavedEvent::Added), Some(SavedEvent::Deleted));
        let objects = [
            (object("a", "", "01"), added),
            (object("b", "", "02"), added),
            (object("a", "", "04"), deleted),
            (object("c", "", "05"), added),
            (object("a", "", "06"), added),
        ];
        assert_eq!(plan(&objects), ["2 a=", "2 b=", "4 a-", "5 c", "6 a"]);
        assert_eq!(plan(&[(object("a", "", "01"), deleted)]), ["1 a=", "1 a-"]);
    }

    #[test]
    fn the_files_of_several_watches_are_one_history() {
        let version = |name: &str, version: &str| json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": name, "resourceVersion": version}});
        let order = |objects: &[(&str, &str)]| {
            let objects = objects.iter().map(|(name, it)| SavedObject::new("f", version(name, it)));
            let ordered = in_order(objects.collect());
            ordered.iter().map(|it| key(&it.value).name.to_string()).collect::<String>()
        };
        assert_eq!(order(&[("a", "5"), ("b", "9"), ("c", "7"), ("d", "10")]), "acbd");
        assert_eq!(order(&[("a", "5"), ("b", "9"), ("c", "7"), ("d", "x")]), "abcd", "as they were saved");
    }

    #[test]
    fn a_later_version_has_a_greater_resource_version_or_none() {
        let version = |version: &str| json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a", "resourceVersion": version}});
        let objects = ["5", "5", "x", "4", "7"].map(|it| SavedObject::new("f", version(it)));
        let (versions, _) = timeline(objects.to_vec(), NOW);
        let versions: Vec<_> = versions
            .iter()
            .map(|it| it.object.as_ref().unwrap()["metadata"]["resourceVersion"].as_str())
            .collect();
        assert_eq!(versions, [Some("5"), None, None, None, Some("7")]);
    }
}
