//! `equivalent(a, b)` is whether two values are equal when a field that is empty (false, 0, `''`, `[]`,
//! `{}`, or a map of such) counts as one that is not there, at any depth. So is a spec compared with
//! the copy of it that a controller wrote, as Go programs leave such fields out and put others in.

use cel::common::types::{CelBool, DYN_TYPE, Kind};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::arguments::{Args, Outcome, held, take, unexpected};
use crate::budget::charge;
use crate::equality::equal;

pub(super) const FUNCTIONS: &[&str] = &["equivalent"];

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload("equivalent", "equivalent_dyn_dyn", vec![DYN_TYPE, DYN_TYPE], equivalent)
}

fn equivalent<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [left, right] = take(args)?;
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
        _ => equal(left, right),
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
