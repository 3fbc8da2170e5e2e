//! Lists taken for sets, as cel-go's sets extension has them.

use cel::common::types::{CelBool, LIST_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::arguments::{items, take};
use crate::equality::equal;

pub(super) const FUNCTIONS: &[&str] = &["sets.contains", "sets.equivalent", "sets.intersects"];

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    let two = || vec![LIST_TYPE, LIST_TYPE];
    env.add_overload("sets.contains", "list_sets_contains_list", two(), |args| {
        let [a, b] = take(args)?;
        let (a, b) = (items(a.as_ref())?, items(b.as_ref())?);
        Ok(CowVal::owned(CelBool::from(contains(&a, &b)?)))
    })?;
    env.add_overload("sets.equivalent", "list_sets_equivalent_list", two(), |args| {
        let [a, b] = take(args)?;
        let (a, b) = (items(a.as_ref())?, items(b.as_ref())?);
        Ok(CowVal::owned(CelBool::from(contains(&a, &b)? && contains(&b, &a)?)))
    })?;
    env.add_overload("sets.intersects", "list_sets_intersects_list", two(), |args| {
        let [a, b] = take(args)?;
        let (a, b) = (items(a.as_ref())?, items(b.as_ref())?);
        let mut intersects = false;
        for item in a {
            intersects = intersects || has(&b, item)?;
        }
        Ok(CowVal::owned(CelBool::from(intersects)))
    })
}

fn contains(set: &[&dyn Val], part: &[&dyn Val]) -> Result<bool, ExecutionError> {
    for item in part {
        if !has(set, *item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has(set: &[&dyn Val], wanted: &dyn Val) -> Result<bool, ExecutionError> {
    for item in set {
        if equal(*item, wanted)? {
            return Ok(true);
        }
    }
    Ok(false)
}
