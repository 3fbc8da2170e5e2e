//! The part of an object that a source reads, and a parser that keeps nothing else.
//!
//! An object of a package kind is kilobytes, most of it of no use here; a lean one is a few hundred
//! bytes and several times cheaper to make. Whatever is kept has the type it had, and what is not
//! looked into keeps its kind and loses its contents, so expressions cannot tell a lean object from a
//! whole one, not even when it is rubbish.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// What to keep of a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Projection {
    /// Everything below.
    whole: bool,
    /// All keys of a map, whatever is kept of their values.
    keys: bool,
    /// Of each item of a list.
    items: Option<Box<Projection>>,
    /// Of a map's fields.
    fields: BTreeMap<String, Projection>,
}

impl Projection {
    /// What is kept of every object: what identifies it, and what watches need.
    pub(crate) fn of_object() -> Self {
        let mut object = Self::default();
        for field in ["apiVersion", "kind"] {
            object.field(field).keep();
        }
        let metadata = object.field("metadata");
        for field in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
        ] {
            metadata.field(field).keep();
        }
        object
    }

    /// What is kept of every object, and these fields; `[]` is every item of a list.
    pub fn of_fields(fields: impl IntoIterator<Item = &'static str>) -> Self {
        let mut object = Self::of_object();
        for field in fields {
            let at = field.split('.').fold(&mut object, |at, part| match part.strip_suffix("[]") {
                Some(list) => at.field(list).items(),
                None => at.field(part),
            });
            at.keep();
        }
        object
    }

    /// Whether nothing of an object is kept but what its metadata says.
    pub(crate) fn is_of_metadata(&self) -> bool {
        let of_metadata = |field: &String| ["apiVersion", "kind", "metadata"].contains(&field.as_str());
        !self.whole && !self.keys && self.items.is_none() && self.fields.keys().all(of_metadata)
    }

    /// The same without these fields.
    pub(crate) fn without(mut self, fields: &[&str]) -> Self {
        fields.iter().for_each(|field| drop(self.fields.remove(*field)));
        self
    }

    /// Keeps everything below.
    pub fn keep(&mut self) {
        *self = Self { whole: true, ..Self::default() };
    }

    /// Keeps a map's keys.
    pub(crate) fn keep_keys(&mut self) {
        self.keys |= !self.whole;
    }

    /// What is kept of a field; that the field exists is kept by asking.
    pub fn field(&mut self, name: &str) -> &mut Self {
        if self.whole {
            return self;
        }
        self.fields.entry(name.to_owned()).or_default()
    }

    /// What is kept of each item of a list.
    pub fn items(&mut self) -> &mut Self {
        if self.whole {
            return self;
        }
        self.items.get_or_insert_default()
    }

    /// Keeps what `other` keeps, too: one watch may serve several sources.
    pub fn merge(&mut self, other: &Self) {
        if self.whole {
            return;
        }
        if other.whole {
            return self.keep();
        }
        self.keys |= other.keys;
        if let Some(items) = &other.items {
            self.items().merge(items);
        }
        for (name, kept) in &other.fields {
            self.field(name).merge(kept);
        }
    }

    /// What is kept of each item of a list, if it is looked into.
    pub(crate) fn read_items(&self) -> Option<&Self> {
        self.items.as_deref()
    }

    /// What is kept of the fields of a map that are looked into.
    pub(crate) fn read_fields(&self) -> impl Iterator<Item = (&String, &Self)> {
        self.fields.iter()
    }

    /// The fields that are kept whole or whose existence matters, as paths for people; `[]` stands
    /// for the items of a list.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, path: &str, paths: &mut Vec<String>) {
        if self.fields.is_empty() && self.items.is_none() {
            paths.push(path.to_owned());
        }
        if let Some(items) = &self.items {
            items.collect(&format!("{path}[]"), paths);
        }
        for (name, kept) in &self.fields {
            let dot = if path.is_empty() { "" } else { "." };
            kept.collect(&format!("{path}{dot}{name}"), paths);
        }
    }

    /// Parses what is kept straight from a deserializer, skipping the rest without building it.
    ///
    /// Takes anything that is JSON. Fields that are null are dropped: for the API server and for
    /// expressions they are fields that are not there.
    pub fn seed(&self) -> impl for<'de> DeserializeSeed<'de, Value = Value> + '_ {
        Lean(self)
    }

    /// The part of a whole value that is kept.
    pub fn project(&self, value: &Value) -> Value {
        if self.whole {
            return value.clone();
        }
        match value {
            Value::Object(map) => Value::Object(
                map.iter()
                    .filter(|(_, v)| !v.is_null())
                    .filter_map(|(k, v)| Some((k.clone(), self.kept(k)?.project(v))))
                    .collect(),
            ),
            Value::Array(items) => Value::Array(items.iter().map(|v| self.of_items().project(v)).collect()),
            scalar => scalar.clone(),
        }
    }

    /// What to keep of the field `name`; `None` when nothing, not even that it exists.
    fn kept(&self, name: &str) -> Option<&Self> {
        if self.whole {
            return Some(self);
        }
        self.fields.get(name).or_else(|| self.keys.then_some(&SHELL))
    }

    fn of_items(&self) -> &Self {
        if self.whole {
            return self;
        }
        self.items.as_deref().unwrap_or(&SHELL)
    }
}

/// Keeps of a value only what kind of value it is.
static SHELL: Projection = Projection { whole: false, keys: false, items: None, fields: BTreeMap::new() };

#[derive(Clone, Copy)]
struct Lean<'p>(&'p Projection);

impl<'de> DeserializeSeed<'de> for Lean<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Lean<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Number::from_f64(v).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let of_items = self.0.of_items();
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Lean(of_items))? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key_seed(Key)? {
            let Some(kept) = self.0.kept(&key) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            match map.next_value_seed(Lean(kept))? {
                // The last of several equal keys counts, as it does in a whole parse.
                Value::Null => {
                    fields.remove(&*key);
                }
                value => {
                    fields.insert(key.into_owned(), value);
                }
            }
        }
        Ok(Value::Object(fields))
    }
}

/// A map's key, borrowed from the input where that is possible.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Self::Value, E> {
        Ok(Cow::Owned(v))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn parse(projection: &Projection, json: &str) -> Value {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let value = projection.seed().deserialize(&mut deserializer).expect("any JSON parses");
        deserializer.end().expect("nothing is left over");
        value
    }

    fn sample() -> Projection {
        let mut p = Projection::default();
        p.field("whole").keep();
        p.field("exists");
        p.field("map").field("inner").keep();
        p.field("list").items().field("inner").keep();
        p.field("keys").keep_keys();
        p
    }

    #[test]
    fn keeps_what_is_read_and_the_kind_of_what_only_has_to_exist() {
        let json = json!({
            "whole": {"a": [1, null]}, "exists": {"a": 1}, "map": {"inner": {"b": 2}, "other": 3},
            "list": [{"inner": 1, "other": 2}, null, "x", []], "keys": {"k": {"z": 1}, "gone": null},
            "skipped": {"very": "long"},
        });
        let lean = parse(&sample(), &json.to_string());
        assert_eq!(
            lean,
            json!({
                "whole": {"a": [1, null]}, "exists": {}, "map": {"inner": {"b": 2}},
                "list": [{"inner": 1}, null, "x", []], "keys": {"k": {}},
            })
        );
        assert_eq!(lean, sample().project(&json));
    }

    #[test]
    fn the_last_of_equal_keys_counts_also_when_it_is_null() {
        assert_eq!(parse(&sample(), r#"{"whole": 1, "whole": 2}"#), json!({"whole": 2}));
        assert_eq!(parse(&sample(), r#"{"whole": 1, "whole": null}"#), json!({}));
    }

    #[test]
    fn paths_are_for_people() {
        assert_eq!(sample().paths(), ["exists", "keys", "list[].inner", "map.inner", "whole"]);
    }

    /// As deep as JSON may be, kept or not, on the stack of the runtime's threads; no deeper.
    #[test]
    fn what_is_nested_without_end_is_an_error() {
        let nested = |field: &str, depth: usize, open: &str, close: &str| {
            format!("{{\"{field}\": {}1{}}}", open.repeat(depth), close.repeat(depth))
        };
        let read = move || {
            for (open, close) in [("[", "]"), ("{\"whole\": ", "}")] {
                for field in ["whole", "exists", "list", "skipped"] {
                    let value = parse(&sample(), &nested(field, 126, open, close));
                    assert_eq!(sample().project(&value), value);
                    let text = nested(field, 100_000, open, close);
                    let outcome = sample().seed().deserialize(&mut serde_json::Deserializer::from_str(&text));
                    // What is not kept is passed over without going down.
                    assert!(outcome.is_err() || field != "whole", "{field} {open}");
                    drop(outcome);
                }
            }
        };
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(read);
        thread.expect("a thread").join().expect("no panic");
    }

    fn value() -> impl Strategy<Value = Value> {
        let resource = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            "[a-z\"\\\\é]{0,4}".prop_map(Value::from),
        ];
        resource.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("whole|exists|map|list|keys|inner|\"|x", inner, 0..6)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_lean_parse_is_the_projection_of_a_whole_one(value in value()) {
            let p = sample();
            // Kept whole, nulls stay in a projection of a parsed value but not in a lean parse.
            let lean = parse(&p, &value.to_string());
            prop_assert_eq!(p.project(&lean), lean.clone());
            prop_assert_eq!(without_nulls(lean), without_nulls(p.project(&value)));
        }

        #[test]
        fn merged_projections_keep_what_each_keeps(value in value()) {
            let (mut a, mut b) = (Projection::default(), sample());
            a.field("map").keep();
            a.field("list").items().field("x").keep();
            let merged = { let mut m = a.clone(); m.merge(&b); m };
            let lean = merged.project(&value);
            prop_assert_eq!(a.project(&lean), a.project(&value));
            prop_assert_eq!(b.project(&lean), b.project(&value));
            b.merge(&a);
            prop_assert_eq!(b, merged);
        }
    }

    fn without_nulls(value: Value) -> Value {
        match value {
            Value::Object(m) => Value::Object(
                m.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect(),
            ),
            Value::Array(items) => items.into_iter().map(without_nulls).collect(),
            scalar => scalar,
        }
    }
}
