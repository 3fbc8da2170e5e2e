//! The functions and macros that an expression may call, a module for each library. Each function pays for what it
//! looks at, and for what it makes before it makes it.

use cel::common::ast::{CallExpr, Expr};
use cel::{DeclarationError, Env};

pub use comprehensions::{MAP_OF_MAPS, MAP_OF_PAIRS};

pub(super) mod arguments;
mod bindings;
pub(super) mod comprehensions;
mod conditions;
mod data;
mod equivalence;
mod json;
mod kstatus;
mod lists;
mod quantity;
pub(super) mod regex;
mod rendered;
mod semver;
mod sets;
mod strings;
mod yaml;

/// What the language's own library has.
const STANDARD: &[&str] = &[
    "bool",
    "bytes",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
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
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "or",
    "orValue",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
    "value",
];

const STANDARD_MACROS: &[&str] =
    &["all", "exists", "existsOne", "exists_one", "filter", "has", "map", "optFlatMap", "optMap"];

/// Of cel-go's math extension.
const MATH: &[&str] = &[
    "math.abs",
    "math.bitAnd",
    "math.bitNot",
    "math.bitOr",
    "math.bitShiftLeft",
    "math.bitShiftRight",
    "math.bitXor",
    "math.ceil",
    "math.floor",
    "math.isFinite",
    "math.isInf",
    "math.isNaN",
    "math.round",
    "math.sign",
    "math.sqrt",
    "math.trunc",
];

const MATH_MACROS: &[&str] = &["math.greatest", "math.least"];

/// Of cel-go's encoders extension.
const ENCODERS: &[&str] = &["base64.decode", "base64.encode"];

/// Every function, with its namespace. The language itself finds out about an unknown one only when it is called.
const FUNCTIONS: [&[&str]; 14] = [
    STANDARD,
    MATH,
    ENCODERS,
    conditions::FUNCTIONS,
    equivalence::FUNCTIONS,
    yaml::FUNCTIONS,
    json::FUNCTIONS,
    kstatus::FUNCTIONS,
    strings::FUNCTIONS,
    lists::FUNCTIONS,
    sets::FUNCTIONS,
    regex::FUNCTIONS,
    semver::FUNCTIONS,
    quantity::FUNCTIONS,
];

const MACROS: [&[&str]; 5] =
    [STANDARD_MACROS, MATH_MACROS, lists::MACROS, bindings::MACROS, comprehensions::MACROS];

/// Functions whose outcome is small, whatever they are given: all of math beside.
const SCALAR: &[&str] = &[
    "asApproximateFloat",
    "asInteger",
    "bool",
    "compareTo",
    "contains",
    "double",
    "endsWith",
    "equivalent",
    "hasValue",
    "includes",
    "indexOf",
    "int",
    "isGreaterThan",
    "isInteger",
    "isLessThan",
    "isQuantity",
    "isSemver",
    "isSorted",
    "lastIndexOf",
    "major",
    "matches",
    "minor",
    "patch",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "sign",
    "size",
    "startsWith",
    "type",
    "uint",
];

/// Adds all that the language's own library does not have.
pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    cel::extensions::math(env)?;
    cel::extensions::encoders(env)?;
    conditions::declare(env)?;
    equivalence::declare(env)?;
    yaml::declare(env)?;
    json::declare(env)?;
    kstatus::declare(env)?;
    strings::declare(env)?;
    lists::declare(env)?;
    sets::declare(env)?;
    regex::declare(env)?;
    semver::declare(env)?;
    quantity::declare(env)?;
    bindings::declare(env)?;
    comprehensions::declare(env)
}

fn functions() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.into_iter().flatten().copied()
}

/// Every function and macro, some of them more than once.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    functions().chain(MACROS.into_iter().flatten().copied())
}

/// The function of that name in the namespace that a call's target is.
fn in_namespace(call: &CallExpr) -> Option<&'static str> {
    let Expr::Ident(namespace) = &call.target.as_deref()?.expr else { return None };
    functions().find(|known| known.split_once('.') == Some((namespace.as_str(), call.func_name.as_str())))
}

/// Whether a call's target is no value, but the first part of the function's name, as in `optional.of(…)`.
pub fn has_namespace(call: &CallExpr) -> bool {
    in_namespace(call).is_some()
}

fn function_of(call: &CallExpr) -> Option<&'static str> {
    in_namespace(call).or_else(|| functions().find(|known| *known == call.func_name))
}

/// Whether there is such a function. What no expression can spell is: operators, and what macros expand to.
pub(super) fn has_function(call: &CallExpr) -> bool {
    let spelled =
        call.func_name.starts_with(|c: char| c.is_ascii_alphabetic()) && !call.func_name.contains('@');
    !spelled || function_of(call).is_some()
}

/// Whether what a call gives is small, whatever it is given.
pub(super) fn gives_scalar(call: &CallExpr) -> bool {
    call.func_name.starts_with("math.@")
        || function_of(call).is_some_and(|name| SCALAR.contains(&name) || MATH.contains(&name))
}

/// The name under which a search with a regular expression runs, if a call is one.
pub(super) fn searches(call: &CallExpr) -> Option<&'static str> {
    function_of(call).and_then(regex::runs_as)
}

/// A call's function as it was written.
pub(super) fn written(call: &CallExpr) -> String {
    let namespaces = || functions().filter_map(|known| known.split_once('.').map(|(namespace, _)| namespace));
    match call.target.as_deref().map(|target| &target.expr) {
        Some(Expr::Ident(name)) if namespaces().any(|namespace| namespace == name) => {
            format!("{name}.{}", call.func_name)
        }
        _ => call.func_name.clone(),
    }
}

/// The function or macro whose name is most like another one, if one is.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_lowercase();
    let wanted = last(name);
    let near = names().map(|known| (distance(&last(known), &wanted), distance(known, name), known));
    let nearest = near.min_by_key(|(of_last, of_all, _)| (*of_last, *of_all));
    nearest.filter(|(of_last, ..)| 3 * of_last <= wanted.len()).map(|(.., known)| known)
}

/// How many characters have to be put in, taken out or exchanged to make one word of another.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (n, c) in one.chars().enumerate() {
        let mut diagonal = n;
        let mut left = n + 1;
        for (above, d) in row.iter_mut().zip([None].into_iter().chain(other.chars().map(Some))) {
            let cost = match d {
                None => n + 1,
                Some(d) => (diagonal + usize::from(c != d)).min(*above + 1).min(left + 1),
            };
            diagonal = std::mem::replace(above, cost);
            left = cost;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
