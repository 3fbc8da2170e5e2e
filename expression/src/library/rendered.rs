//! How long a value becomes as text.

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelString, Kind};
use cel::common::value::Val;

use crate::budget::{charge, check_depth, steps_of_bytes};

/// Bytes that a number, a time or punctuation takes at most.
const SCALAR: usize = 400;

/// Bytes of a value as text, at most. Looking at all of it is paid for, wherever it lies.
pub(super) fn bytes(value: &dyn Val) -> Result<usize, ExecutionError> {
    below(value, 0)
}

fn below(value: &dyn Val, depth: usize) -> Result<usize, ExecutionError> {
    check_depth(depth)?;
    charge(1)?;
    let text = value.downcast_ref::<CelString>().map(|text| text.inner().len());
    if let Some(length) = text.or_else(|| value.downcast_ref::<CelBytes>().map(|b| b.inner().len())) {
        charge(steps_of_bytes(length))?;
        // A byte that is no text becomes a character of three.
        return Ok(3 * length + 2);
    }
    let kind = value.get_type().kind();
    let (Kind::List | Kind::Map, Some(iterable)) = (kind, value.as_iterable()) else { return Ok(SCALAR) };
    let mut total = 2;
    let mut iterator = iterable.iter();
    while let Some(item) = iterator.next() {
        total += 4 + below(item, depth + 1)?;
        if let (Kind::Map, Some(fields)) = (kind, value.as_indexer()) {
            total += below(fields.get(item)?.as_ref(), depth + 1)?;
        }
    }
    Ok(total)
}
