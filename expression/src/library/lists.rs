//! Lists, as cel-go's lists extension and Kubernetes' list library have them, and the two functions on lists of
//! cel-go's optionals.

use std::cmp::Ordering;

use cel::common::ast::{CallExpr, Expr, IdedExpr};
use cel::common::types::{
    CelBool, CelBytes, CelInt, CelList, CelOptional, CelString, DYN_TYPE, INT_TYPE, Kind, LIST_TYPE,
};
use cel::common::value::{CowVal, Val};
use cel::parser::{Macro, MacroExprHelper, ParseError};
use cel::{DeclarationError, Env, ExecutionError, add_overload};

use super::arguments::{Args, Outcome, count, failed, int, items, list_of, take};
use super::{bindings, comprehensions};
use crate::budget::{charge, charge_for_small, check_depth, check_size, steps_of_bytes};
use crate::equality::equal;

pub(super) const FUNCTIONS: &[&str] = &[
    "distinct",
    "first",
    "flatten",
    "includes",
    "indexOf",
    "isSorted",
    "last",
    "lastIndexOf",
    "lists.range",
    "max",
    "min",
    "reverse",
    "slice",
    "sort",
    "sum",
];

pub(super) const MACROS: &[&str] = &["sortBy"];

/// Sorts a list by a list of as many keys: what `sortBy` stands for.
const SORT_BY_KEYS: &str = "@sorted_by_keys";
/// The variable that holds the list while its keys are made.
const SORTED: &str = "@sorted";

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_member_overload("slice", "list_slice", LIST_TYPE, vec![INT_TYPE, INT_TYPE], slice)?;
    env.add_member_overload("flatten", "list_flatten", LIST_TYPE, vec![], |args| {
        let [list] = take(args)?;
        flatten(list.as_ref(), 1)
    })?;
    env.add_member_overload("flatten", "list_flatten_int", LIST_TYPE, vec![INT_TYPE], |args| {
        let [list, depth] = take(args)?;
        flatten(list.as_ref(), int(&depth)?)
    })?;
    env.add_member_overload("distinct", "list_distinct", LIST_TYPE, vec![], distinct)?;
    env.add_member_overload("reverse", "list_reverse", LIST_TYPE, vec![], |args| {
        let [list] = take(args)?;
        Ok(list_of(items(list.as_ref())?.into_iter().rev().map(Val::clone_as_boxed).collect()))
    })?;
    env.add_member_overload("sort", "list_sort", LIST_TYPE, vec![], |args| {
        let [list] = take(args)?;
        let items = items(list.as_ref())?;
        sort("sort", items.iter().map(|&item| (item, item)).collect())
    })?;
    env.add_overload(SORT_BY_KEYS, SORT_BY_KEYS, vec![LIST_TYPE, LIST_TYPE], |args| {
        let [list, keys] = take(args)?;
        sort("sortBy", items(keys.as_ref())?.into_iter().zip(items(list.as_ref())?).collect())
    })?;
    add_overload!(env, fn range: (CelInt) -> Result<CelList>, name = "lists.range")?;
    env.add_member_overload("first", "list_first", LIST_TYPE, vec![], |args| {
        let [list] = take(args)?;
        optional(items(list.as_ref())?.first())
    })?;
    env.add_member_overload("last", "list_last", LIST_TYPE, vec![], |args| {
        let [list] = take(args)?;
        optional(items(list.as_ref())?.last())
    })?;
    env.add_member_overload("isSorted", "list_is_sorted", LIST_TYPE, vec![], is_sorted)?;
    env.add_member_overload("sum", "list_sum", LIST_TYPE, vec![], sum)?;
    env.add_member_overload("min", "list_min", LIST_TYPE, vec![], |args| {
        extreme("min", Ordering::Less, args)
    })?;
    env.add_member_overload("max", "list_max", LIST_TYPE, vec![], |args| {
        extreme("max", Ordering::Greater, args)
    })?;
    env.add_member_overload("indexOf", "list_index_of", LIST_TYPE, vec![DYN_TYPE], |args| {
        let [list, wanted] = take(args)?;
        let items = items(list.as_ref())?;
        position(items.iter().enumerate(), &*wanted)
    })?;
    env.add_member_overload("lastIndexOf", "list_last_index_of", LIST_TYPE, vec![DYN_TYPE], |args| {
        let [list, wanted] = take(args)?;
        let items = items(list.as_ref())?;
        position(items.iter().enumerate().rev(), &*wanted)
    })?;
    env.add_member_overload("includes", "list_includes", DYN_TYPE, vec![DYN_TYPE], includes)?;
    env.add_macro(Macro::receiver("sortBy", 2, sort_by))
}

/// `list.sortBy(item, key)` becomes `cel.bind(@sorted, list, @sorted_by_keys(@sorted, @sorted.map(item, key)))`.
fn sort_by(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    let (Some(list), Some(key), Some(item)) = (target.take(), args.pop(), args.pop()) else {
        return Ok(None);
    };
    let item = comprehensions::variable(helper, &item)?;
    let sorted = |helper: &mut MacroExprHelper<'_>| helper.next_expr(Expr::Ident(SORTED.to_owned()));
    let range = sorted(helper);
    let keys = comprehensions::list(helper, range, (item, None), None, key);
    let call =
        CallExpr { func_name: SORT_BY_KEYS.to_owned(), target: None, args: vec![sorted(helper), keys] };
    let call = helper.next_expr(Expr::Call(call));
    Ok(Some(bindings::bind(helper, SORTED, list, call)))
}

fn slice<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [list, start, end] = take(args)?;
    let (start, end) = (int(&start)?, int(&end)?);
    let items = items(list.as_ref())?;
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let part = range.and_then(|(start, end)| items.get(start..end)).ok_or_else(|| {
        let length = items.len();
        failed("slice", format!("there is no slice({start}, {end}) of a list of {length}"))
    })?;
    Ok(list_of(part.iter().map(|item| item.clone_as_boxed()).collect()))
}

fn flatten<'b, 'v>(list: &(dyn Val + 'v), depth: i64) -> Outcome<'b, 'v> {
    let depth =
        usize::try_from(depth).map_err(|_| failed("flatten", format!("the level {depth} is negative")))?;
    let mut flat = Vec::new();
    flatten_into(list, depth, 0, &mut flat)?;
    Ok(list_of(flat))
}

fn flatten_into<'v>(
    list: &(dyn Val + 'v),
    depth: usize,
    down: usize,
    flat: &mut Vec<Box<dyn Val + 'v>>,
) -> Result<(), ExecutionError> {
    check_depth(down)?;
    for item in items(list)? {
        if down < depth && item.get_type().kind() == Kind::List {
            flatten_into(item, depth, down + 1, flat)?;
        } else {
            check_size(flat.len() as u64)?;
            flat.push(item.clone_as_boxed());
        }
    }
    Ok(())
}

fn distinct<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [list] = take(args)?;
    let mut unique: Vec<&dyn Val> = Vec::new();
    for item in items(list.as_ref())? {
        if position_of(unique.iter().enumerate(), item)?.is_none() {
            unique.push(item);
        }
    }
    Ok(list_of(unique.into_iter().map(Val::clone_as_boxed).collect()))
}

fn range(end: &CelInt) -> Result<CelList<'static>, ExecutionError> {
    let end = u64::try_from(*end.inner())
        .map_err(|_| failed("lists.range", format!("the size {} is negative", end.inner())))?;
    check_size(end)?;
    charge(end)?;
    let ints = (0..end).map(|n| Box::new(CelInt::from(n.cast_signed())) as Box<dyn Val>);
    Ok(CelList::from(ints.collect::<Vec<_>>()))
}

fn optional<'b, 'v>(item: Option<&&(dyn Val + 'v)>) -> Outcome<'b, 'v> {
    if let Some(item) = item {
        charge_for_small(*item)?;
    }
    Ok(CowVal::owned(CelOptional::from(item.map(|item| item.clone_as_boxed()))))
}

/// What comparing a value with another one costs.
fn weight(value: &dyn Val) -> u64 {
    let text = value.downcast_ref::<CelString>().map(|text| text.inner().len());
    let bytes = value.downcast_ref::<CelBytes>().map(|bytes| bytes.inner().len());
    steps_of_bytes(text.or(bytes).unwrap_or(0))
}

/// How two values of the same type are ordered; an error when these have no order.
fn compare(function: &str, a: &dyn Val, b: &dyn Val) -> Result<Ordering, ExecutionError> {
    let (one, other) = (a.get_type(), b.get_type());
    if one != other {
        return Err(failed(function, format!("the list holds {} and {}", one.name(), other.name())));
    }
    let comparer = a.as_comparer().ok_or_else(|| failed(function, format!("{} has no order", one.name())))?;
    comparer
        .compare(b)
        .map_err(|_| failed(function, format!("the list holds a {} without order", one.name())))
}

/// The items in the order of their keys, those with equal keys as they were.
fn sort<'b, 'v>(function: &str, mut keyed: Vec<(&dyn Val, &(dyn Val + 'v))>) -> Outcome<'b, 'v> {
    // Sorting panics where there is no total order: keys that compare with the first one have one.
    if let Some(&(first, _)) = keyed.first() {
        for (key, _) in &keyed {
            compare(function, first, *key)?;
        }
    }
    let rounds = 1 + u64::from(keyed.len().max(1).ilog2());
    charge(keyed.iter().map(|(key, _)| weight(*key)).sum::<u64>().saturating_mul(rounds))?;
    keyed.sort_by(|(a, _), (b, _)| compare(function, *a, *b).unwrap_or(Ordering::Equal));
    Ok(list_of(keyed.into_iter().map(|(_, item)| item.clone_as_boxed()).collect()))
}

fn is_sorted<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [list] = take(args)?;
    let items = items(list.as_ref())?;
    let mut sorted = true;
    for (one, next) in items.iter().zip(items.iter().skip(1)) {
        charge(weight(*one).min(weight(*next)))?;
        sorted &= compare("isSorted", *one, *next)?.is_le();
    }
    if let [one] = items.as_slice() {
        compare("isSorted", *one, *one)?;
    }
    Ok(CowVal::owned(CelBool::from(sorted)))
}

fn extreme<'b, 'v>(function: &str, wanted: Ordering, args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [list] = take(args)?;
    let items = items(list.as_ref())?;
    let Some(&first) = items.first() else { return Err(failed(function, "the list is empty")) };
    let mut extreme = first;
    for item in items {
        charge(weight(extreme).min(weight(item)))?;
        if compare(function, item, extreme)? == wanted {
            extreme = item;
        }
    }
    Ok(CowVal::Owned(extreme.clone_as_boxed()))
}

fn sum<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [list] = take(args)?;
    let mut sum: Option<Box<dyn Val + 'v>> = None;
    for item in items(list.as_ref())? {
        let adder = match item.get_type().kind() {
            Kind::Int | Kind::UInt | Kind::Double | Kind::Duration => item.as_adder(),
            _ => None,
        };
        let adder = adder.ok_or_else(|| {
            failed("sum", format!("the list holds {}, not only numbers or durations", item.get_type().name()))
        })?;
        sum = Some(match sum {
            None => item.clone_as_boxed(),
            Some(sum) => adder.add(&*sum)?.into_owned(),
        });
    }
    Ok(CowVal::Owned(sum.unwrap_or_else(|| Box::new(CelInt::from(0)))))
}

/// Where the first of some items is that equals another one.
fn position_of<'i, 'v: 'i>(
    items: impl Iterator<Item = (usize, &'i &'i (dyn Val + 'v))>,
    wanted: &dyn Val,
) -> Result<Option<usize>, ExecutionError> {
    for (position, item) in items {
        if equal(*item, wanted)? {
            return Ok(Some(position));
        }
    }
    Ok(None)
}

fn position<'i, 'b, 'v, 'w: 'i>(
    items: impl Iterator<Item = (usize, &'i &'i (dyn Val + 'w))>,
    wanted: &dyn Val,
) -> Outcome<'b, 'v> {
    Ok(CowVal::owned(position_of(items, wanted)?.map_or(CelInt::from(-1), count)))
}

fn includes<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [target, wanted] = take(args)?;
    let includes = if target.get_type().kind() == Kind::List {
        position_of(items(target.as_ref())?.iter().enumerate(), &*wanted)?.is_some()
    } else {
        equal(&*target, &*wanted)?
    };
    Ok(CowVal::owned(CelBool::from(includes)))
}
