//! What a document holds, as values of the expression language, and the other way round.

use std::collections::HashMap;

use cel::ExecutionError;
use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt, Kind,
};
use cel::common::value::Val;
use serde_json::{Map, Value};

use super::arguments::{failed, items};
use crate::budget::{charge, check_depth};

/// A JSON value as a value of the expression language that borrows nothing. As everywhere, a field
/// that is null is a field that is not there.
pub(super) fn owned(value: Value) -> Box<dyn Val + 'static> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(b) => Box::new(CelBool::from(b)),
        Value::String(s) => Box::new(CelString::from(s)),
        Value::Array(items) => Box::new(CelList::from(items.into_iter().map(owned).collect::<Vec<_>>())),
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, v)| !v.is_null());
            let map: HashMap<_, _> = fields.map(|(key, v)| (CelMapKey::from(key), owned(v))).collect();
            Box::new(CelMap::from(map))
        }
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Box::new(CelInt::from(i)),
            (None, Some(u)) => Box::new(CelUInt::from(u)),
            (None, None) => Box::new(CelDouble::from(n.as_f64().unwrap_or(f64::NAN))),
        },
    }
}

/// A value of the expression language as JSON, for this function. Who calls it has paid for looking at all of it.
pub(super) fn json(function: &str, value: &dyn Val) -> Result<Value, ExecutionError> {
    below(function, value, 0)
}

fn below(function: &str, value: &dyn Val, depth: usize) -> Result<Value, ExecutionError> {
    check_depth(depth)?;
    if let Some(scalar) = scalar(value) {
        return Ok(scalar);
    }
    match (value.get_type().kind(), value.as_iterable(), value.as_indexer()) {
        (Kind::List, ..) => items(value)?.into_iter().map(|item| below(function, item, depth + 1)).collect(),
        (Kind::Map, Some(keys), Some(fields)) => {
            let mut map = Map::new();
            let mut iterator = keys.iter();
            while let Some(key) = iterator.next() {
                charge(1)?;
                map.insert(name_of(function, key)?, below(function, fields.get(key)?.as_ref(), depth + 1)?);
            }
            Ok(Value::Object(map))
        }
        _ => Err(no_json(function, value)),
    }
}

/// A number that JSON cannot hold is none.
fn scalar(value: &dyn Val) -> Option<Value> {
    if let Some(text) = value.downcast_ref::<CelString>() {
        return Some(Value::from(text.inner()));
    }
    if let Some(double) = value.downcast_ref::<CelDouble>() {
        return serde_json::Number::from_f64(*double.inner()).map(Value::Number);
    }
    let int = value.downcast_ref::<CelInt>().map(|int| Value::from(*int.inner()));
    let uint = || value.downcast_ref::<CelUInt>().map(|uint| Value::from(*uint.inner()));
    let truth = || value.downcast_ref::<CelBool>().map(|truth| Value::from(*truth.inner()));
    let null = || value.downcast_ref::<CelNull>().map(|_| Value::Null);
    int.or_else(uint).or_else(truth).or_else(null)
}

fn name_of(function: &str, key: &dyn Val) -> Result<String, ExecutionError> {
    match scalar(key) {
        Some(Value::String(name)) => Ok(name),
        Some(other) => Ok(other.to_string()),
        None => Err(no_json(function, key)),
    }
}

fn no_json(function: &str, value: &dyn Val) -> ExecutionError {
    let hint = if value.downcast_ref::<CelBytes>().is_some() {
        "give base64.encode(…) of it"
    } else {
        "give string(…) of it"
    };
    failed(function, format!("JSON cannot hold this {}: {hint}", value.get_type().name()))
}
