//! Loops with two variables, as cel-go's two-variable comprehensions have them: the index and the item of a list,
//! or the key and the value of a map.
//!
//! The expression language evaluates loops with one variable only. So the tree that runs loops over the
//! [entries] of the list or map, and a variable is a half of an entry: see [`bounded`](crate::bounded).

use std::collections::HashMap;

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators};
use cel::common::traits::Indexer;
use cel::common::types::{CelInt, CelList, CelMap, CelMapKey, DYN_TYPE, Kind, LIST_TYPE, Type};
use cel::common::value::{CowVal, Val};
use cel::parser::{Macro, MacroExprHelper, ParseError};
use cel::{DeclarationError, Env, ExecutionError};

use super::arguments::{Args, Outcome, count, failed, items, list_of, take, unexpected};
use crate::budget::charge_for;

pub(super) const MACROS: &[&str] = &["transformList", "transformMap", "transformMapEntry"];

/// The entries of a list or map, to loop over.
pub(crate) const ENTRIES: &str = "@entries";
/// A map of pairs of key and value: what `transformMap` stands for.
pub const MAP_OF_PAIRS: &str = "@map_of_pairs";
/// A map of all that some maps hold: what `transformMapEntry` stands for.
pub const MAP_OF_MAPS: &str = "@map_of_maps";

/// The accumulator of a loop, as the library's own macros call it.
const RESULT: &str = "@result";

type Target = Option<IdedExpr>;
type Expansion = Result<Option<IdedExpr>, ParseError>;

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(ENTRIES, ENTRIES, vec![DYN_TYPE], entries)?;
    env.add_overload(MAP_OF_PAIRS, MAP_OF_PAIRS, vec![LIST_TYPE], map_of_pairs)?;
    env.add_overload(MAP_OF_MAPS, MAP_OF_MAPS, vec![LIST_TYPE], map_of_maps)?;
    env.add_macro(Macro::receiver("all", 3, all))?;
    env.add_macro(Macro::receiver("exists", 3, exists))?;
    env.add_macro(Macro::receiver("existsOne", 3, exists_one))?;
    env.add_macro(Macro::receiver("exists_one", 3, exists_one))?;
    for arguments in [3, 4] {
        env.add_macro(Macro::receiver("transformList", arguments, transform_list))?;
        env.add_macro(Macro::receiver("transformMap", arguments, transform_map))?;
        env.add_macro(Macro::receiver("transformMapEntry", arguments, transform_map_entry))?;
    }
    Ok(())
}

fn ident(helper: &mut MacroExprHelper<'_>, name: &str) -> IdedExpr {
    helper.next_expr(Expr::Ident(name.to_owned()))
}

fn call(helper: &mut MacroExprHelper<'_>, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    helper.next_expr(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
}

fn truth(helper: &mut MacroExprHelper<'_>, truth: bool) -> IdedExpr {
    helper.next_expr(Expr::Literal(LiteralValue::Boolean(truth.into())))
}

fn number(helper: &mut MacroExprHelper<'_>, number: i64) -> IdedExpr {
    helper.next_expr(Expr::Literal(LiteralValue::Int(number.into())))
}

fn list_literal(helper: &mut MacroExprHelper<'_>, elements: Vec<IdedExpr>) -> IdedExpr {
    helper.next_expr(Expr::List(ListExpr::new(elements)))
}

/// The name of a variable that a macro is given.
pub(super) fn variable(helper: &MacroExprHelper<'_>, node: &IdedExpr) -> Result<String, ParseError> {
    match &node.expr {
        Expr::Ident(name) => Ok(name.clone()),
        _ => Err(helper.new_error(node.id, "argument must be a simple name")),
    }
}

/// What a macro with two variables is given.
struct Loop {
    range: IdedExpr,
    names: (String, Option<String>),
    filter: Option<IdedExpr>,
    body: IdedExpr,
}

impl Loop {
    fn of(
        helper: &MacroExprHelper<'_>,
        target: &mut Target,
        args: &mut Vec<IdedExpr>,
    ) -> Result<Option<Self>, ParseError> {
        let (Some(range), Some(body)) = (target.take(), args.pop()) else { return Ok(None) };
        let filter = if args.len() > 2 { args.pop() } else { None };
        let (Some(second), Some(first)) = (args.pop(), args.pop()) else { return Ok(None) };
        let names = (variable(helper, &first)?, variable(helper, &second)?);
        if names.0 == names.1 {
            let message = format!("duplicate variable name: {}", names.0);
            return Err(helper.new_error(second.id, message));
        }
        Ok(Some(Self { range, names: (names.0, Some(names.1)), filter, body }))
    }
}

fn fold(
    helper: &mut MacroExprHelper<'_>,
    (range, names): (IdedExpr, (String, Option<String>)),
    [accu_init, loop_cond, loop_step, result]: [IdedExpr; 4],
) -> IdedExpr {
    let (iter_var, iter_var2) = names;
    let accu_var = RESULT.to_owned();
    let comprehension = ComprehensionExpr {
        iter_range: range,
        iter_var,
        iter_var2,
        accu_var,
        accu_init,
        loop_cond,
        loop_step,
        result,
    };
    helper.next_expr(Expr::Comprehension(Box::new(comprehension)))
}

/// A loop that makes a list.
pub(super) fn list(
    helper: &mut MacroExprHelper<'_>,
    range: IdedExpr,
    names: (String, Option<String>),
    filter: Option<IdedExpr>,
    item: IdedExpr,
) -> IdedExpr {
    let args = vec![ident(helper, RESULT), list_literal(helper, vec![item])];
    let mut step = call(helper, operators::ADD, args);
    if let Some(filter) = filter {
        let args = vec![filter, step, ident(helper, RESULT)];
        step = call(helper, operators::CONDITIONAL, args);
    }
    let parts = [list_literal(helper, Vec::new()), truth(helper, true), step, ident(helper, RESULT)];
    fold(helper, (range, names), parts)
}

fn all(helper: &mut MacroExprHelper<'_>, target: &mut Target, args: &mut Vec<IdedExpr>) -> Expansion {
    let Some(of) = Loop::of(helper, target, args)? else { return Ok(None) };
    let so_far = ident(helper, RESULT);
    let condition = call(helper, operators::NOT_STRICTLY_FALSE, vec![so_far]);
    let args = vec![ident(helper, RESULT), of.body];
    let step = call(helper, operators::LOGICAL_AND, args);
    let parts = [truth(helper, true), condition, step, ident(helper, RESULT)];
    Ok(Some(fold(helper, (of.range, of.names), parts)))
}

fn exists(helper: &mut MacroExprHelper<'_>, target: &mut Target, args: &mut Vec<IdedExpr>) -> Expansion {
    let Some(of) = Loop::of(helper, target, args)? else { return Ok(None) };
    let so_far = ident(helper, RESULT);
    let none = call(helper, operators::LOGICAL_NOT, vec![so_far]);
    let condition = call(helper, operators::NOT_STRICTLY_FALSE, vec![none]);
    let args = vec![ident(helper, RESULT), of.body];
    let step = call(helper, operators::LOGICAL_OR, args);
    let parts = [truth(helper, false), condition, step, ident(helper, RESULT)];
    Ok(Some(fold(helper, (of.range, of.names), parts)))
}

fn exists_one(helper: &mut MacroExprHelper<'_>, target: &mut Target, args: &mut Vec<IdedExpr>) -> Expansion {
    let Some(of) = Loop::of(helper, target, args)? else { return Ok(None) };
    let args = vec![ident(helper, RESULT), number(helper, 1)];
    let more = call(helper, operators::ADD, args);
    let args = vec![of.body, more, ident(helper, RESULT)];
    let step = call(helper, operators::CONDITIONAL, args);
    let args = vec![ident(helper, RESULT), number(helper, 1)];
    let result = call(helper, operators::EQUALS, args);
    let parts = [number(helper, 0), truth(helper, true), step, result];
    Ok(Some(fold(helper, (of.range, of.names), parts)))
}

fn transform_list(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Target,
    args: &mut Vec<IdedExpr>,
) -> Expansion {
    let Some(of) = Loop::of(helper, target, args)? else { return Ok(None) };
    Ok(Some(list(helper, of.range, of.names, of.filter, of.body)))
}

/// A list of pairs that becomes a map: to put one entry after the other into a map would copy it each time.
fn transform_map(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Target,
    args: &mut Vec<IdedExpr>,
) -> Expansion {
    let Some(of) = Loop::of(helper, target, args)? else { return Ok(None) };
    let pair = vec![ident(helper, &of.names.0), of.body];
    let pair = list_literal(helper, pair);
    let pairs = list(helper, of.range, of.names, of.filter, pair);
    Ok(Some(call(helper, MAP_OF_PAIRS, vec![pairs])))
}

fn transform_map_entry(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Target,
    args: &mut Vec<IdedExpr>,
) -> Expansion {
    let Some(of) = Loop::of(helper, target, args)? else { return Ok(None) };
    if !matches!(of.body.expr, Expr::Map(_) | Expr::Call(_) | Expr::Comprehension(_)) {
        return Err(helper.new_error(of.body.id, "transformMapEntry makes maps, such as {key: value}"));
    }
    let maps = list(helper, of.range, of.names, of.filter, of.body);
    Ok(Some(call(helper, MAP_OF_MAPS, vec![maps])))
}

static ENTRY: Type = Type::new_unspecified_type("entry");

/// An index and an item, or a key and a value.
#[derive(Debug)]
struct Entry<'v> {
    key: Box<dyn Val + 'v>,
    value: Box<dyn Val + 'v>,
}

impl Val for Entry<'_> {
    fn get_type(&self) -> &Type {
        &ENTRY
    }

    fn cel_type() -> &'static Type {
        &ENTRY
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
        Box::new(Entry { key: self.key.clone_as_boxed(), value: self.value.clone_as_boxed() })
    }
}

impl Indexer for Entry<'_> {
    fn get<'b, 'w>(&'b self, half: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        match half.downcast_ref::<CelInt>().map(|half| *half.inner()) {
            Some(0) => Ok(CowVal::Borrowed(&*self.key)),
            Some(1) => Ok(CowVal::Borrowed(&*self.value)),
            _ => Err(unexpected("0 or 1", half)),
        }
    }

    fn steal<'w>(self: Box<Self>, half: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(half).map(CowVal::into_owned)
    }
}

/// Every value is copied here, and once more when the loop comes to it.
fn entries<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [range] = take(args)?;
    charge_for(&*range)?;
    charge_for(&*range)?;
    let mut entries: Vec<Box<dyn Val + 'v>> = Vec::new();
    match (range.get_type().kind(), range.as_iterable(), range.as_indexer()) {
        (Kind::List, ..) => {
            for (index, item) in items(range.as_ref())?.into_iter().enumerate() {
                entries.push(Box::new(Entry { key: Box::new(count(index)), value: item.clone_as_boxed() }));
            }
        }
        (Kind::Map, Some(keys), Some(fields)) => {
            let mut keys = keys.iter();
            while let Some(key) = keys.next() {
                let value = fields.get(key)?.into_owned();
                entries.push(Box::new(Entry { key: key.clone_as_boxed(), value }));
            }
        }
        _ => return Err(unexpected("list or map", &*range)),
    }
    Ok(list_of(entries))
}

fn map_of_pairs<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [pairs] = take(args)?;
    let mut map = HashMap::new();
    for pair in items(pairs.as_ref())? {
        match pair.downcast_ref::<CelList>().map(CelList::inner) {
            Some([key, value]) => insert("transformMap", &mut map, &**key, &**value)?,
            _ => return Err(unexpected("list of two", pair)),
        }
    }
    Ok(CowVal::owned(CelMap::from(map)))
}

fn map_of_maps<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [maps] = take(args)?;
    let mut map = HashMap::new();
    for one in items(maps.as_ref())? {
        let (Some(keys), Some(fields)) = (one.as_iterable(), one.as_indexer()) else {
            return Err(unexpected("map", one));
        };
        let mut keys = keys.iter();
        while let Some(key) = keys.next() {
            insert("transformMapEntry", &mut map, key, fields.get(key)?.as_ref())?;
        }
    }
    Ok(CowVal::owned(CelMap::from(map)))
}

/// Refuses a key that is there, also as a number of another type.
fn insert<'v>(
    function: &str,
    map: &mut HashMap<CelMapKey<'v>, Box<dyn Val + 'v>>,
    key: &(dyn Val + 'v),
    value: &(dyn Val + 'v),
) -> Result<(), ExecutionError> {
    let name = CelMapKey::try_from(CowVal::Owned(key.clone_as_boxed()))?;
    let other = match &name {
        CelMapKey::Int(n) => u64::try_from(*n.inner()).ok().map(CelMapKey::from),
        CelMapKey::UInt(n) => i64::try_from(*n.inner()).ok().map(CelMapKey::from),
        _ => None,
    };
    if map.contains_key(&name) || other.is_some_and(|other| map.contains_key(&other)) {
        return Err(failed(function, format!("the key {name:?} is there twice")));
    }
    map.insert(name, value.clone_as_boxed());
    Ok(())
}
