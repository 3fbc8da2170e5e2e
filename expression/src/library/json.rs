//! `json.unmarshal(text)` is what a JSON document holds, and `json.marshal(value)` a value as JSON. Neither cel-go nor
//! Kubernetes has such functions; names and meanings are those that other Kubernetes controllers use.

use cel::common::types::{CelString, DYN_TYPE, STRING_TYPE};
use cel::common::value::CowVal;
use cel::{DeclarationError, Env};
use serde_json::Value;

use super::arguments::{Args, Outcome, failed, take, text};
use super::{data, rendered};
use crate::budget::{charge, charge_for, check_size, steps_of_bytes};

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
    let json = data::json("json.marshal", value.as_ref())?;
    Ok(CowVal::owned(CelString::from(json.to_string())))
}
