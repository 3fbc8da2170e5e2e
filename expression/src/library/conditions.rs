//! `condition(object, 'Ready')` is the condition of that type in `object.status.conditions`. Its
//! `type`, `status`, `reason` and `message` are there even when the condition is not (then they are
//! empty, and `type` is what was asked for); every other field is only there when the condition has
//! it. The object may be an optional, as related objects are.

use cel::common::traits::Indexer;
use cel::common::types::{CelString, DYN_TYPE, Kind, MAP_TYPE, STRING_TYPE, Type};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::arguments::{Args, Outcome, held, take, text, unexpected};
use crate::budget::{charge, charge_for_small};

pub(super) const FUNCTIONS: &[&str] = &["condition"];

/// Fields that a condition always has.
const CONDITION_FIELDS: [&str; 4] = ["type", "status", "reason", "message"];

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload("condition", "condition_dyn_string", vec![DYN_TYPE, STRING_TYPE], condition)
}

fn condition<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [object, wanted] = take(args)?;
    let wanted = text(&wanted)?.to_owned();
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
