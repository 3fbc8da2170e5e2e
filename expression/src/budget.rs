//! What evaluating may cost, counted in steps and not in time, so that the same object ends in the
//! same way on every machine.
//!
//! A [`Scope`](super::expression::Scope) has one [`Budget`], which all expressions that run in it share. A step
//! is a node of an expression, an item that a loop visits, or 64 bytes of text that are looked at;
//! [`bounded`](super::bounded) has the places where they are counted. What is used up stays used
//! up: an expression cannot pass over that as it can over an error, with `||` or `.?`.
//!
//! The functions of the expression language are plain functions that know nothing of the scope they
//! run for, so that its budget lies in a variable of the thread while an expression runs.

use std::cell::Cell;

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelList, CelMap, CelOptional, CelString};
use cel::common::value::Val;

/// Most steps that the expressions of one evaluation take together, unless its scope has fewer.
pub(super) const MAX_STEPS: u64 = 1_000_000;
/// Largest value that expressions build, in steps.
const MAX_SIZE: u64 = 1 << 16;
/// Largest value that expressions build and put into an optional: reading through one copies it.
const MAX_OPTIONAL: u64 = 64;
/// Deepest nesting of lists, maps and optionals that expressions build.
const MAX_DEPTH: usize = 32;
/// Bytes of text that are looked at or copied in one step.
const BYTES: usize = 64;

/// Which limit an evaluation ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess {
    /// It had so many.
    Steps(u64),
    Size,
    Depth,
}

impl std::fmt::Display for Excess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Steps(limit) => {
                write!(f, "takes more than {limit} steps, together with the expressions before it")
            }
            Self::Size => {
                write!(f, "builds a value larger than {MAX_SIZE} steps, or {MAX_OPTIONAL} in an optional")
            }
            Self::Depth => write!(f, "builds a value nested more than {MAX_DEPTH} deep"),
        }
    }
}

/// What is left for the expressions of a scope.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    left: u64,
    limit: u64,
    excess: Option<Excess>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(MAX_STEPS)
    }
}

impl Budget {
    pub(super) const fn of(steps: u64) -> Self {
        Self { left: steps, limit: steps, excess: None }
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.excess.is_some()
    }
}

thread_local! {
    /// What is left for the expression that runs; without end while none does.
    static CURRENT: Cell<Budget> = const { Cell::new(Budget::of(u64::MAX)) };
}

/// Puts back what was there before, also when an expression panics.
struct Running<'b> {
    of: &'b Cell<Budget>,
    before: Budget,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.of.set(CURRENT.replace(self.before));
    }
}

/// Runs something on a budget; an excess that is already there, or found now, is the outcome.
pub(super) fn spend<T>(of: &Cell<Budget>, run: impl FnOnce() -> T) -> Result<T, Excess> {
    let running = Running { of, before: CURRENT.replace(of.get()) };
    let outcome = if of.get().excess.is_none() { Some(run()) } else { None };
    drop(running);
    match (of.get().excess, outcome) {
        (None, Some(outcome)) => Ok(outcome),
        (excess, _) => Err(excess.unwrap_or(Excess::Steps(of.get().limit))),
    }
}

fn exceed(excess: Excess) -> ExecutionError {
    let current = CURRENT.get();
    CURRENT.set(Budget { excess: current.excess.or(Some(excess)), ..current });
    ExecutionError::InternalError(excess.to_string())
}

/// Takes steps off the budget.
pub(super) fn charge(steps: u64) -> Result<(), ExecutionError> {
    let current = CURRENT.get();
    match current.left.checked_sub(steps) {
        Some(left) if current.excess.is_none() => {
            CURRENT.set(Budget { left, ..current });
            Ok(())
        }
        _ => Err(exceed(Excess::Steps(current.limit))),
    }
}

/// Whether nothing may be done any more.
pub(super) fn is_exceeded() -> bool {
    CURRENT.get().is_exceeded()
}

/// Steps for so many bytes of text.
pub(super) fn steps_of_bytes(bytes: usize) -> u64 {
    1 + (bytes / BYTES) as u64
}

/// Pays for looking at a value or copying it once, and refuses one that grew too large or too deep.
/// What lies in an object is not built and may be of any size: it is never copied.
pub(super) fn charge_for(value: &dyn Val) -> Result<(), ExecutionError> {
    let mut looked = 0;
    let built = measure(value, &mut looked, 0)?;
    if built > MAX_SIZE {
        return Err(exceed(Excess::Size));
    }
    charge(looked)
}

/// Pays for a value that is kept where reading copies it, and refuses one that is not small.
pub(super) fn charge_for_small(value: &dyn Val) -> Result<(), ExecutionError> {
    let mut looked = 0;
    let built = measure(value, &mut looked, 0)?;
    if built > MAX_OPTIONAL {
        return Err(exceed(Excess::Size));
    }
    charge(looked)
}

/// Refuses a value that would be too large before it is built.
pub(super) fn check_size(steps: u64) -> Result<(), ExecutionError> {
    if steps > MAX_SIZE { Err(exceed(Excess::Size)) } else { Ok(()) }
}

/// Refuses a value that would be nested too deep.
pub(super) fn check_depth(depth: usize) -> Result<(), ExecutionError> {
    if depth > MAX_DEPTH { Err(exceed(Excess::Depth)) } else { Ok(()) }
}

/// The size of what was built; adds what looking at all of it takes to `looked`.
fn measure(value: &dyn Val, looked: &mut u64, depth: usize) -> Result<u64, ExecutionError> {
    check_depth(depth)?;
    let mut built = 1;
    if let Some(text) = value.downcast_ref::<CelString>() {
        let steps = steps_of_bytes(text.inner().len());
        *looked += steps;
        return Ok(if text.as_borrowed().is_some() { 1 } else { steps });
    }
    *looked += 1;
    if let Some(list) = value.downcast_ref::<CelList>() {
        for item in list.iter() {
            built += measure(&**item, looked, depth + 1)?;
        }
    } else if let Some(optional) = value.downcast_ref::<CelOptional>() {
        if let Some(held) = optional.option() {
            built += measure(held, looked, depth + 1)?;
        }
        if built > MAX_OPTIONAL {
            return Err(exceed(Excess::Size));
        }
    } else if let Some(map) = value.downcast_ref::<CelMap>() {
        for (key, value) in map.inner().iter() {
            if let cel::common::types::CelMapKey::String(text) = key {
                built += steps_of_bytes(text.len());
            }
            built += measure(&**value, looked, depth + 1)?;
        }
        *looked += built;
    } else if let Some(bytes) = value.downcast_ref::<CelBytes>() {
        built = steps_of_bytes(bytes.inner().len());
        *looked += built;
    }
    Ok(built)
}
