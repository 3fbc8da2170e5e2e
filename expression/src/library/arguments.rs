//! What the functions are given and what they give.

use cel::ExecutionError;
use cel::common::types::{CelInt, CelList, CelOptional, CelString, Kind};
use cel::common::value::{CowVal, Val};

use crate::budget::{charge, check_size, steps_of_bytes};

pub(crate) type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
pub(crate) type Outcome<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// The arguments, exactly `N` of them.
pub(crate) fn take<'b, 'v, const N: usize>(
    args: Args<'b, 'v>,
) -> Result<[CowVal<'b, 'v>; N], ExecutionError> {
    <[CowVal<'b, 'v>; N]>::try_from(args)
        .map_err(|args| ExecutionError::invalid_argument_count(N, args.len()))
}

pub(crate) fn text<'t>(value: &'t CowVal<'_, '_>) -> Result<&'t str, ExecutionError> {
    let text = value.downcast_ref::<CelString>().map(CelString::inner);
    text.ok_or_else(|| unexpected("string", value.as_ref()))
}

pub(crate) fn int(value: &CowVal<'_, '_>) -> Result<i64, ExecutionError> {
    value.downcast_ref::<CelInt>().map(|i| *i.inner()).ok_or_else(|| unexpected("int", value.as_ref()))
}

/// What an optional holds; any other value itself.
pub(super) fn held<'b, 'v>(value: &'b (dyn Val + 'v)) -> Option<&'b (dyn Val + 'v)> {
    match value.downcast_ref::<CelOptional>() {
        Some(optional) => optional.option(),
        None => Some(value),
    }
}

/// The items of a list, where they lie. Going over a list that lies in the object is paid for here.
pub(super) fn items<'b, 'v>(list: &'b (dyn Val + 'v)) -> Result<Vec<&'b (dyn Val + 'v)>, ExecutionError> {
    let iterable = match list.as_iterable() {
        Some(iterable) if list.get_type().kind() == Kind::List => iterable,
        _ => return Err(unexpected("list", list)),
    };
    let mut items = Vec::new();
    let mut iterator = iterable.iter();
    while let Some(item) = iterator.next() {
        items.push(item);
    }
    // A list that could not be paid for looks empty.
    charge(1 + items.len() as u64)?;
    Ok(items)
}

pub(super) fn list_of<'b, 'v>(items: Vec<Box<dyn Val + 'v>>) -> CowVal<'b, 'v> {
    CowVal::owned(CelList::from(items))
}

/// Pays for a text of so many bytes before it is made.
pub(super) fn reserve(bytes: usize) -> Result<(), ExecutionError> {
    let steps = steps_of_bytes(bytes);
    check_size(steps)?;
    charge(steps)
}

/// A length or a position as the language counts.
pub(super) fn count(n: usize) -> CelInt {
    CelInt::from(i64::try_from(n).unwrap_or(i64::MAX))
}

pub(crate) fn failed(function: &str, message: impl Into<String>) -> ExecutionError {
    ExecutionError::function_error(function, message.into())
}

pub(crate) fn unexpected(want: &str, got: &dyn Val) -> ExecutionError {
    ExecutionError::UnexpectedType { got: got.get_type().name().to_owned(), want: want.to_owned() }
}
