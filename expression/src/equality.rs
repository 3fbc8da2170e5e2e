//! Whether two values are equal, wherever each of them lies.

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelOptional, CelString, Kind};
use cel::common::value::Val;

use crate::budget::{charge, charge_for, steps_of_bytes};

/// The language's equality, paid for by what is looked at.
pub(crate) fn equal(a: &dyn Val, b: &dyn Val) -> Result<bool, ExecutionError> {
    charge(1)?;
    match (a.get_type().kind(), b.get_type().kind()) {
        (Kind::List, Kind::List) => {
            let (Some(sizes), Some(items)) =
                (a.as_sizer().zip(b.as_sizer()), a.as_iterable().zip(b.as_iterable()))
            else {
                return Ok(false);
            };
            if sizes.0.size() != sizes.1.size() {
                return Ok(false);
            }
            let (mut left, mut right) = (items.0.iter(), items.1.iter());
            while let (Some(x), Some(y)) = (left.next(), right.next()) {
                if !equal(x, y)? {
                    return Ok(false);
                }
            }
            // A list that could not be paid for looks empty.
            charge(1)?;
            Ok(true)
        }
        (Kind::Map, Kind::Map) => {
            let (Some(sizes), Some(keys), Some(maps)) =
                (a.as_sizer().zip(b.as_sizer()), a.as_iterable(), a.as_indexer().zip(b.as_indexer()))
            else {
                return Ok(false);
            };
            if sizes.0.size() != sizes.1.size() {
                return Ok(false);
            }
            let mut keys = keys.iter();
            while let Some(key) = keys.next() {
                charge_for(key)?;
                match (maps.0.get(key), maps.1.get(key)) {
                    (Ok(x), Ok(y)) if equal(&*x, &*y)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        // Also keeps a view, which comes here to be compared, from being asked again.
        (Kind::List | Kind::Map, _) | (_, Kind::List | Kind::Map) => Ok(false),
        (Kind::Opaque, Kind::Opaque) => {
            match (a.downcast_ref::<CelOptional>(), b.downcast_ref::<CelOptional>()) {
                (Some(a), Some(b)) => match (a.option(), b.option()) {
                    (Some(a), Some(b)) => equal(a, b),
                    (a, b) => Ok(a.is_none() && b.is_none()),
                },
                _ => Ok(a.equals(b)),
            }
        }
        _ => {
            let length = |value: &dyn Val| {
                let text = value.downcast_ref::<CelString>().map(|text| text.inner().len());
                text.or_else(|| value.downcast_ref::<CelBytes>().map(|bytes| bytes.inner().len()))
            };
            charge(steps_of_bytes(length(a).zip(length(b)).map_or(0, |(a, b)| a.min(b))))?;
            Ok(a.equals(b))
        }
    }
}
