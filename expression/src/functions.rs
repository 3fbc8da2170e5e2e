//! The language's standard library, one function of its strings extension (`substring`), and those
//! that Status Bridge adds.
//!
//! `condition(object, 'Ready')` is the condition of that type in `object.status.conditions`. Its
//! `type`, `status`, `reason` and `message` are there even when the condition is not (then they are
//! empty, and `type` is what was asked for); every other field is only there when the condition has
//! it. The object may be an optional, as related objects are.
//!
//! `equivalent(a, b)` is whether two values are equal when a field that is empty (false, 0, `''`, `[]`,
//! `{}`, or a map of such) counts as one that is not there, at any depth. So is a spec compared with
//! the copy of it that a controller wrote, as Go programs leave such fields out and put others in.
//!
//! `yaml(text)` is what a YAML document holds: some controllers report as a text what they mean as data.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::common::traits::Indexer;
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelOptional, CelString, CelUInt,
    DYN_TYPE, Kind, MAP_TYPE, STRING_TYPE, Type,
};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};
use serde_json::Value;

use crate::yaml;

/// Longest text that `yaml` reads, in bytes.
const MAX_YAML: usize = 64 * 1024;
/// Steps for a byte of it, which may be a value: to parse one takes as long as so many steps.
const YAML_STEPS: u64 = 8;

use super::{
    bounded,
    budget::{charge, charge_for, charge_for_small},
};

/// Fields that a condition always has.
pub(super) const CONDITION_FIELDS: [&str; 4] = ["type", "status", "reason", "message"];

/// Every function that an expression may call, beside operators and macros. The library itself finds
/// out about an unknown one only when it is called.
pub(super) const FUNCTIONS: &[&str] = &[
    "bool",
    "bytes",
    "condition",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "equivalent",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "hasValue",
    "int",
    "matches",
    "none",
    "of",
    "ofNonZeroValue",
    "or",
    "orValue",
    "size",
    "startsWith",
    "string",
    "substring",
    "timestamp",
    "type",
    "uint",
    "value",
    "yaml",
];

/// The environment that every expression is compiled for and runs in.
pub(super) fn environment() -> Arc<Env> {
    static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
        let mut env = Env::stdlib();
        // These names are new to the standard library, so declaring them cannot fail. Of the
        // extension, only what is in FUNCTIONS can be called.
        let _ = cel::extensions::strings(&mut env);
        let _ = env.add_overload("condition", "condition_dyn_string", vec![DYN_TYPE, STRING_TYPE], condition);
        let _ = env.add_overload("equivalent", "equivalent_dyn_dyn", vec![DYN_TYPE, DYN_TYPE], equivalent);
        let _ = env.add_overload("yaml", "yaml_dyn", vec![DYN_TYPE], read_yaml);
        let _ = bounded::declare(&mut env);
        Arc::new(env)
    });
    Arc::clone(&ENVIRONMENT)
}

fn condition<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [object, wanted] = args.as_slice() else {
        return Err(ExecutionError::function_error("condition", "takes an object and a type"));
    };
    let wanted = wanted
        .downcast_ref::<CelString>()
        .map(|w| w.inner().to_owned())
        .ok_or_else(|| unexpected("string", wanted.as_ref()))?;
    let found = match held(object.as_ref()) {
        Some(object) => match field(object, "status")? {
            Some(status) => match field(&*status, "conditions")? {
                Some(conditions) => find_condition(&*conditions, &wanted)?,
                None => None,
            },
            None => None,
        },
        None => None,
    };
    Ok(CowVal::owned(Condition { wanted, found }))
}

/// What an optional holds; any other value itself.
fn held<'b, 'v>(value: &'b (dyn Val + 'v)) -> Option<&'b (dyn Val + 'v)> {
    match value.downcast_ref::<CelOptional>() {
        Some(optional) => optional.option(),
        None => Some(value),
    }
}

fn equivalent<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [left, right] = args.as_slice() else {
        return Err(ExecutionError::function_error("equivalent", "takes two values"));
    };
    let equivalent = match (held(left.as_ref()), held(right.as_ref())) {
        (Some(left), Some(right)) => are_equivalent_fields(left, right)?,
        (Some(one), None) | (None, Some(one)) => is_empty(one)?,
        (None, None) => true,
    };
    Ok(CowVal::owned(CelBool::from(equivalent)))
}

fn are_equivalent(left: &(dyn Val + '_), right: &(dyn Val + '_)) -> Result<bool, ExecutionError> {
    charge(1)?;
    match (left.get_type().kind(), right.get_type().kind()) {
        (Kind::Map, Kind::Map) => {
            Ok(is_covered(left, right, are_equivalent_fields)? && is_covered(right, left, |_, _| Ok(true))?)
        }
        (Kind::List, Kind::List) => {
            let (Some(left), Some(right)) = (left.as_iterable(), right.as_iterable()) else {
                return Ok(false);
            };
            let (mut left, mut right) = (left.iter(), right.iter());
            loop {
                match (left.next(), right.next()) {
                    (None, None) => return Ok(true),
                    (Some(one), Some(other)) if are_equivalent(one, other)? => {}
                    _ => return Ok(false),
                }
            }
        }
        _ => bounded::equal(left, right),
    }
}

/// What would be left out on both sides is equivalent, whatever it is; an item of a list is never left out.
fn are_equivalent_fields(left: &(dyn Val + '_), right: &(dyn Val + '_)) -> Result<bool, ExecutionError> {
    Ok(are_equivalent(left, right)? || (is_empty(left)? && is_empty(right)?))
}

/// Whether every field of a map that is not empty is in another one, and `same` there.
fn is_covered(
    map: &(dyn Val + '_),
    other: &(dyn Val + '_),
    same: impl Fn(&(dyn Val + '_), &(dyn Val + '_)) -> Result<bool, ExecutionError>,
) -> Result<bool, ExecutionError> {
    let (Some(keys), Some(fields), Some(theirs)) = (map.as_iterable(), map.as_indexer(), other.as_indexer())
    else {
        return Err(unexpected("map", map));
    };
    let mut keys = keys.iter();
    while let Some(key) = keys.next() {
        let field = fields.get(key)?;
        let covered = match theirs.get(key) {
            Ok(their) => same(field.as_ref(), their.as_ref())?,
            Err(ExecutionError::NoSuchKey(_)) => is_empty(field.as_ref())?,
            Err(error) => return Err(error),
        };
        if !covered {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a value is what Go leaves out: false, 0, an empty text or list, a map with nothing in it.
fn is_empty(value: &(dyn Val + '_)) -> Result<bool, ExecutionError> {
    charge(1)?;
    if value.get_type().kind() != Kind::Map {
        return Ok(value.as_zeroer().is_some_and(|zeroer| zeroer.is_zero_value()));
    }
    let (Some(keys), Some(fields)) = (value.as_iterable(), value.as_indexer()) else {
        return Err(unexpected("map", value));
    };
    let mut keys = keys.iter();
    while let Some(key) = keys.next() {
        if !is_empty(fields.get(key)?.as_ref())? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn read_yaml<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [text] = args.as_slice() else {
        return Err(ExecutionError::function_error("yaml", "takes a text"));
    };
    let text = text.downcast_ref::<CelString>().ok_or_else(|| unexpected("string", text.as_ref()))?.inner();
    if text.len() > MAX_YAML {
        return Err(ExecutionError::function_error(
            "yaml",
            format!("the text is longer than {MAX_YAML} bytes"),
        ));
    }
    charge(yaml::field_work(text) as u64 * YAML_STEPS)?;
    let value = yaml::from_field(text).map_err(|error| ExecutionError::function_error("yaml", error))?;
    let value = owned(value);
    charge_for(&*value)?;
    Ok(CowVal::Owned(value))
}

/// A JSON value as a value of the expression language that borrows nothing. As everywhere, a field
/// that is null is a field that is not there.
fn owned(value: Value) -> Box<dyn Val + 'static> {
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

/// The field of a map, if it is there; an error when `map` is no map.
fn field<'b, 'v>(
    map: &'b (dyn Val + 'v),
    name: &'static str,
) -> Result<Option<CowVal<'b, 'v>>, ExecutionError> {
    let indexer = match map.as_indexer() {
        Some(indexer) if map.get_type().kind() == Kind::Map => indexer,
        _ => return Err(unexpected("map", map)),
    };
    match indexer.get(&CelString::from(name)) {
        Ok(value) => Ok(Some(value)),
        Err(ExecutionError::NoSuchKey(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn find_condition<'v>(
    conditions: &(dyn Val + 'v),
    wanted: &str,
) -> Result<Option<Box<dyn Val + 'v>>, ExecutionError> {
    let iterable = match conditions.as_iterable() {
        Some(iterable) if conditions.get_type().kind() == Kind::List => iterable,
        _ => return Err(unexpected("list", conditions)),
    };
    let mut conditions = iterable.iter();
    while let Some(condition) = conditions.next() {
        charge(1)?;
        let kind = field(condition, "type")?;
        if kind.is_some_and(|t| t.downcast_ref::<CelString>().is_some_and(|t| t.inner() == wanted)) {
            charge_for_small(condition)?;
            return Ok(Some(condition.clone_as_boxed()));
        }
    }
    Ok(None)
}

/// A condition that may be missing.
#[derive(Debug)]
struct Condition<'v> {
    wanted: String,
    found: Option<Box<dyn Val + 'v>>,
}

impl Val for Condition<'_> {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(Condition {
            wanted: self.wanted.clone(),
            found: self.found.as_ref().map(|c| c.clone_as_boxed()),
        })
    }
}

impl Indexer for Condition<'_> {
    fn get<'b, 'w>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let name = key.downcast_ref::<CelString>().ok_or_else(|| unexpected("string", key))?.inner();
        let standard = CONDITION_FIELDS.contains(&name);
        let found = match &self.found {
            Some(condition) => match condition.as_indexer() {
                Some(indexer) => indexer.get(key),
                None => Err(unexpected("map", &**condition)),
            },
            None => Err(ExecutionError::no_such_key(name)),
        };
        match found {
            Ok(value) if standard && value.downcast_ref::<CelString>().is_none() => {
                let problem = format!("`{name}` is {}, not string", value.get_type().name());
                Err(ExecutionError::function_error("condition", problem))
            }
            Err(ExecutionError::NoSuchKey(_)) if standard => {
                let text = if name == "type" { self.wanted.clone() } else { String::new() };
                Ok(CowVal::owned(CelString::from(text)))
            }
            found => found,
        }
    }

    fn steal<'w>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

fn unexpected(want: &str, got: &dyn Val) -> ExecutionError {
    ExecutionError::UnexpectedType { got: got.get_type().name().to_owned(), want: want.to_owned() }
}
