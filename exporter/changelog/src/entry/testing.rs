//! Snapshots for tests.

use bytes::Bytes;
use prost::Message as _;
pub(crate) use serde_json::Value as Json;

use super::wire::{Field, Kind, List, Struct, Value};

/// An object as the bytes of a `google.protobuf.Struct`.
pub(crate) fn encoded(object: &Json) -> Bytes {
    let Json::Object(fields) = object else { panic!("{object} is no object") };
    let fields =
        fields.iter().map(|(key, value)| Field { key: key.clone(), value: of_value(value) }).collect();
    Struct { fields }.encode_to_vec().into()
}

fn of_value(value: &Json) -> Bytes {
    let kind = match value {
        Json::Null => Kind::Null(0),
        Json::Bool(value) => Kind::Bool(*value),
        Json::Number(value) => Kind::Number(value.as_f64().unwrap()),
        Json::String(value) => Kind::Text(value.clone()),
        Json::Array(items) => {
            Kind::List(List { values: items.iter().map(of_value).collect() }.encode_to_vec().into())
        }
        Json::Object(_) => Kind::Object(encoded(value)),
    };
    Value { kind: Some(kind) }.encode_to_vec().into()
}
