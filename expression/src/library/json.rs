//! `json.unmarshal(text)` is what a JSON document holds, and `json.marshal(value)` a value as JSON. Neither cel-go nor
//! Kubernetes has such functions; names and meanings are those that other Kubernetes controllers use.

use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelInt, CelNull, CelString, CelUInt, DYN_TYPE, Kind, STRING_TYPE,
};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};
use serde_json::Value;

use super::arguments::{Args, Outcome, failed, items, take, text};
use super::{data, rendered};
use crate::budget::{charge, charge_for, check_depth, check_size, steps_of_bytes};

pub(super) const FUNCTIONS: &[&str] = &["json.marshal", "json.unmarshal"];

/// Longest text that is read, in bytes.
const MAX_JSON: usize = 64 * 1024;
/// Steps for a byte of it, of which two may be a value.
const JSON_STEPS: u64 = 4;
/// Deepest nesting of lists and maps: that of what expressions build.
const MAX_DEPTH: usize = 32;

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload("json.unmarshal", "json_unmarshal_string", vec![STRING_TYPE], unmarshal)?;
    env.add_overload("json.marshal", "json_marshal_dyn", vec![DYN_TYPE], marshal)
}

fn unmarshal<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [document] = take(args)?;
    let document = text(&document)?;
    if document.len() > MAX_JSON {
        return Err(failed("json.unmarshal", format!("the text is longer than {MAX_JSON} bytes")));
    }
    charge(document.len() as u64 * JSON_STEPS)?;
    if depth_of(document) > MAX_DEPTH {
        return Err(failed("json.unmarshal", format!("the text is nested more than {MAX_DEPTH} deep")));
    }
    let value: Value =
        serde_json::from_str(document).map_err(|error| failed("json.unmarshal", error.to_string()))?;
    let value = data::owned(value);
    charge_for(&*value)?;
    Ok(CowVal::Owned(value))
}

/// How deep the lists and maps of a text are nested, were it JSON.
fn depth_of(text: &str) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn marshal<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [value] = take(args)?;
    // A control character becomes six bytes.
    let longest = rendered::bytes(value.as_ref())?.saturating_mul(2);
    check_size(steps_of_bytes(longest))?;
    charge(steps_of_bytes(longest))?;
    let mut json = String::new();
    write(&mut json, value.as_ref(), 0)?;
    Ok(CowVal::owned(CelString::from(json)))
}

fn write(json: &mut String, value: &dyn Val, depth: usize) -> Result<(), ExecutionError> {
    check_depth(depth)?;
    if let Some(scalar) = scalar(value) {
        json.push_str(&scalar.to_string());
        return Ok(());
    }
    match (value.get_type().kind(), value.as_iterable(), value.as_indexer()) {
        (Kind::List, ..) => {
            let mut before = '[';
            for item in items(value)? {
                json.push(before);
                write(json, item, depth + 1)?;
                before = ',';
            }
            json.push_str(if before == '[' { "[]" } else { "]" });
            Ok(())
        }
        (Kind::Map, Some(keys), Some(fields)) => {
            let mut sorted = Vec::new();
            let mut iterator = keys.iter();
            while let Some(key) = iterator.next() {
                sorted.push((name_of(key)?, key));
            }
            charge(sorted.len() as u64 * u64::from(1 + sorted.len().max(1).ilog2()))?;
            sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
            let mut before = '{';
            for (name, key) in sorted {
                json.push(before);
                json.push_str(&Value::from(name).to_string());
                json.push(':');
                write(json, fields.get(key)?.as_ref(), depth + 1)?;
                before = ',';
            }
            json.push_str(if before == '{' { "{}" } else { "}" });
            Ok(())
        }
        _ => Err(no_json(value)),
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

fn name_of(key: &dyn Val) -> Result<String, ExecutionError> {
    match scalar(key) {
        Some(Value::String(name)) => Ok(name),
        Some(other) => Ok(other.to_string()),
        None => Err(no_json(key)),
    }
}

fn no_json(value: &dyn Val) -> ExecutionError {
    let hint = if value.downcast_ref::<CelBytes>().is_some() {
        "give base64.encode(…) of it"
    } else {
        "give string(…) of it"
    };
    failed("json.marshal", format!("JSON cannot hold this {}: {hint}", value.get_type().name()))
}
