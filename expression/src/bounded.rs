//! What in an expression can cost more than a step, made to count its steps.
//!
//! The language's library evaluates a tree of nodes and knows no limits. So the tree that runs is
//! not the one that was parsed: what loops, compares, copies, joins or searches is replaced by, or
//! wrapped into, a function of this module that pays first. What costs a step at most is left alone:
//! to compare with a literal, to pass on what lies in the object. Nothing is given another meaning.

use std::cell::RefCell;
use std::collections::HashMap;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue,
    MapEntryExpr, MapExpr, SelectExpr, operators,
};
use cel::common::types::{
    CelBool, CelBytes, CelInt, CelOptional, CelString, DYN_TYPE, INT_TYPE, Kind, STRING_TYPE,
};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};
use regex::{Regex, RegexBuilder};

use super::budget::{charge, charge_for, check_size, steps_of_bytes};

/// Name of the variable that holds the object that an expression is about.
pub const OBJECT: &str = "object";

/// Names that no expression can spell.
const SIZED: &str = "@bounded_sized";
const LOOP: &str = "@bounded_loop";
const EQUAL: &str = "@bounded_equal";
const UNEQUAL: &str = "@bounded_unequal";
const MEMBER: &str = "@bounded_in";
const ADD: &str = "@bounded_add";
const MATCHES: &str = "@bounded_matches";

/// Functions and operators whose outcome is small, whatever they are given.
const SCALAR: &[&str] = &[
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::NOT_STRICTLY_FALSE,
    operators::IN,
    "bool",
    "contains",
    "double",
    "endsWith",
    "hasValue",
    "int",
    "matches",
    "size",
    "startsWith",
    "type",
    "uint",
];

/// Bytes of a pattern's program that make it a small one, of which matching takes a step for a byte.
const SMALL_PATTERN: usize = 4 << 10;
/// Longest pattern, in bytes.
const MAX_PATTERN_TEXT: usize = 1024;
/// Most bytes of a pattern's program.
const MAX_PATTERN: usize = 128 << 10;
/// Steps for a byte of text with a pattern that is not small.
const LARGE_PATTERN_STEPS: u64 = 8;
/// Steps for a pattern that is only known when the expression runs.
const COMPILE_STEPS: u64 = 20_000;
/// Patterns that are kept compiled.
const KEPT_PATTERNS: usize = 64;

/// Adds the functions to an environment.
pub(super) fn declare(env: &mut Env) -> Result<(), cel::DeclarationError> {
    let two = || vec![DYN_TYPE, DYN_TYPE];
    env.add_overload(SIZED, SIZED, vec![DYN_TYPE], sized)?;
    env.add_overload(LOOP, LOOP, vec![DYN_TYPE, INT_TYPE], enter_loop)?;
    env.add_overload(EQUAL, EQUAL, two(), |args| compare(args).map(CelBool::from).map(CowVal::owned))?;
    env.add_overload(UNEQUAL, UNEQUAL, two(), |args| {
        compare(args).map(|equal| CowVal::owned(CelBool::from(!equal)))
    })?;
    env.add_overload(MEMBER, MEMBER, two(), member)?;
    env.add_overload(ADD, ADD, two(), add)?;
    env.add_overload(MATCHES, MATCHES, vec![STRING_TYPE, STRING_TYPE, INT_TYPE], matches)
}

/// The tree to run in place of a tree that was parsed, and its number of nodes.
pub(super) fn bounded(parsed: &IdedExpr) -> Result<(IdedExpr, u64), String> {
    let mut rewriter = Rewriter { names: vec![(OBJECT.to_owned(), true)] };
    Ok((rewriter.node(parsed)?, nodes(parsed)))
}

struct Rewriter {
    /// Variables, innermost last, and whether they stand for something that lies in the object.
    names: Vec<(String, bool)>,
}

impl Rewriter {
    fn node(&mut self, node: &IdedExpr) -> Result<IdedExpr, String> {
        let expr = match &node.expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => node.expr.clone(),
            Expr::Select(select) => Expr::Select(SelectExpr {
                operand: Box::new(self.node(&select.operand)?),
                field: select.field.clone(),
                test: select.test,
            }),
            Expr::List(list) => Expr::List(ListExpr {
                elements: list.elements.iter().map(|e| self.passed(e)).collect::<Result<_, _>>()?,
                optional_indices: list.optional_indices.clone(),
            }),
            Expr::Map(map) => Expr::Map(MapExpr {
                entries: map.entries.iter().map(|e| self.entry(e)).collect::<Result<_, _>>()?,
            }),
            Expr::Call(call) => self.call(call)?,
            Expr::Comprehension(comprehension) => {
                Expr::Comprehension(Box::new(self.comprehension(comprehension)?))
            }
        };
        Ok(IdedExpr { id: node.id, expr })
    }

    fn entry(&mut self, entry: &IdedEntryExpr) -> Result<IdedEntryExpr, String> {
        let expr = match &entry.expr {
            EntryExpr::MapEntry(e) => EntryExpr::MapEntry(MapEntryExpr {
                key: self.sized(&e.key)?,
                value: self.passed(&e.value)?,
                optional: e.optional,
            }),
            field @ EntryExpr::StructField(_) => field.clone(),
        };
        Ok(IdedEntryExpr { id: entry.id, expr })
    }

    /// A value of which all may be looked at.
    fn sized(&mut self, node: &IdedExpr) -> Result<IdedExpr, String> {
        let inner = self.node(node)?;
        Ok(if is_scalar(node) { inner } else { call(SIZED, vec![inner]) })
    }

    /// A value that may be copied, which for what lies in the object costs nothing.
    fn passed(&mut self, node: &IdedExpr) -> Result<IdedExpr, String> {
        if self.is_view(node) { self.node(node) } else { self.sized(node) }
    }

    fn all(&mut self, args: &[IdedExpr]) -> Result<Vec<IdedExpr>, String> {
        args.iter().map(|arg| self.node(arg)).collect()
    }

    fn call(&mut self, c: &CallExpr) -> Result<Expr, String> {
        let plain =
            |args: Vec<IdedExpr>| Expr::Call(CallExpr { func_name: c.func_name.clone(), target: None, args });
        let target = c.target.as_deref();
        Ok(match (c.func_name.as_str(), c.args.as_slice(), target) {
            (
                operators::CONDITIONAL
                | operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::NOT_STRICTLY_FALSE,
                args,
                None,
            ) => plain(self.all(args)?),
            (operators::EQUALS | operators::NOT_EQUALS, [a, b], None) if is_literal(a) || is_literal(b) => {
                plain(vec![self.node(a)?, self.node(b)?])
            }
            (operators::EQUALS, args @ [_, _], None) => call(EQUAL, self.all(args)?).expr,
            (operators::NOT_EQUALS, args @ [_, _], None) => call(UNEQUAL, self.all(args)?).expr,
            (operators::IN, [item, list], None) if is_list_of_literals(list) => {
                plain(vec![self.node(item)?, list.clone()])
            }
            (operators::IN, args @ [_, _], None) => call(MEMBER, self.all(args)?).expr,
            (operators::ADD, [a, b], None) if is_scalar(a) && is_scalar(b) => {
                plain(vec![self.node(a)?, self.node(b)?])
            }
            (operators::ADD, args @ [_, _], None) => call(ADD, self.all(args)?).expr,
            (operators::INDEX, [base, index], None) if is_key(index) => {
                plain(vec![self.node(base)?, index.clone()])
            }
            (operators::OPT_INDEX | operators::OPT_SELECT, [base, index], None) if is_key(index) => {
                plain(vec![self.passed(base)?, index.clone()])
            }
            ("condition", [object, kind], None) => plain(vec![self.passed(object)?, self.sized(kind)?]),
            ("matches", [pattern], Some(text)) | ("matches", [text, pattern], None) => {
                self.matches(text, pattern)?
            }
            (name, args, Some(target)) => {
                let passes = matches!(name, "hasValue" | "value" | "or" | "orValue");
                let mut argument = |node: &IdedExpr| match passes {
                    true => self.passed(node),
                    false => self.sized(node),
                };
                let target = if is_optional_namespace(target) { target.clone() } else { argument(target)? };
                let args = args.iter().map(argument).collect::<Result<_, _>>()?;
                Expr::Call(CallExpr { func_name: name.to_owned(), target: Some(Box::new(target)), args })
            }
            (_, args, None) => plain(args.iter().map(|arg| self.sized(arg)).collect::<Result<_, _>>()?),
        })
    }

    fn matches(&mut self, text: &IdedExpr, pattern: &IdedExpr) -> Result<Expr, String> {
        let steps = match &pattern.expr {
            Expr::Literal(LiteralValue::String(literal)) => {
                Pattern::compile(literal.inner())?;
                0
            }
            _ => COMPILE_STEPS,
        };
        Ok(call(MATCHES, vec![self.node(text)?, self.sized(pattern)?, number(steps)]).expr)
    }

    fn comprehension(&mut self, c: &ComprehensionExpr) -> Result<ComprehensionExpr, String> {
        // `optMap` expands to a loop over nothing.
        let binds = matches!(&c.iter_range.expr, Expr::List(list) if list.elements.is_empty());
        let body = 1 + nodes(&c.loop_cond) + nodes(&c.loop_step);
        let iter_range = self.node(&c.iter_range)?;
        let iter_range = if binds { iter_range } else { call(LOOP, vec![iter_range, number(body)]) };
        let accu_init = self.passed(&c.accu_init)?;
        let (item_view, init_view) = (self.is_view(&c.iter_range), self.is_view(&c.accu_init));
        let outside = self.names.len();
        self.names.push((c.iter_var.clone(), item_view));
        self.names.push((c.accu_var.clone(), binds && init_view));
        let rewritten = ComprehensionExpr {
            iter_range,
            iter_var: c.iter_var.clone(),
            iter_var2: c.iter_var2.clone(),
            accu_var: c.accu_var.clone(),
            accu_init,
            loop_cond: self.node(&c.loop_cond)?,
            loop_step: self.step(&c.loop_step, &c.accu_var)?,
            result: if binds { self.passed(&c.result)? } else { self.node(&c.result)? },
        };
        self.names.truncate(outside);
        Ok(rewritten)
    }

    /// A step of a loop: the library appends in place only where it sees that the accumulator is what
    /// is appended to.
    fn step(&mut self, node: &IdedExpr, accumulator: &str) -> Result<IdedExpr, String> {
        let is_accumulator = |e: &IdedExpr| matches!(&e.expr, Expr::Ident(name) if name == accumulator);
        if let Expr::Call(c) = &node.expr {
            let args = match (c.func_name.as_str(), c.args.as_slice()) {
                (operators::ADD, [accu, added]) if is_accumulator(accu) => {
                    Some(vec![accu.clone(), self.node(added)?])
                }
                (operators::CONDITIONAL, [guard, step, accu]) if is_accumulator(accu) => {
                    Some(vec![self.node(guard)?, self.step(step, accumulator)?, accu.clone()])
                }
                _ => None,
            };
            if let Some(args) = args {
                let func_name = c.func_name.clone();
                return Ok(IdedExpr {
                    id: node.id,
                    expr: Expr::Call(CallExpr { func_name, target: None, args }),
                });
            }
        }
        self.node(node)
    }

    /// Whether a value lies in the object, so that it is never copied.
    fn is_view(&self, node: &IdedExpr) -> bool {
        match &node.expr {
            Expr::Ident(name) => {
                self.names.iter().rev().find(|(n, _)| n == name).is_some_and(|(_, view)| *view)
            }
            Expr::Select(select) => !select.test && self.is_view(&select.operand),
            Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice(), &call.target) {
                (operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT, [base, _], None) => {
                    self.is_view(base)
                }
                ("value", [], Some(optional)) => self.is_view(optional),
                _ => false,
            },
            _ => false,
        }
    }
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }) }
}

fn number(n: u64) -> IdedExpr {
    let int = CelInt::from(i64::try_from(n).unwrap_or(i64::MAX));
    IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::Int(int)) }
}

fn is_literal(node: &IdedExpr) -> bool {
    matches!(node.expr, Expr::Literal(_))
}

fn is_list_of_literals(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::List(list) if list.elements.iter().all(is_literal))
}

/// Whether an index is one that fits lists and maps: the library's words for another one hold all
/// that was to be indexed.
fn is_key(node: &IdedExpr) -> bool {
    use LiteralValue::{Int, String, UInt};
    matches!(node.expr, Expr::Literal(Int(_) | UInt(_) | String(_)))
}

fn is_scalar(node: &IdedExpr) -> bool {
    match &node.expr {
        Expr::Literal(_) => true,
        Expr::Select(select) => select.test,
        Expr::Call(call) => SCALAR.contains(&call.func_name.as_str()),
        _ => false,
    }
}

fn nodes(node: &IdedExpr) -> u64 {
    let all = |nodes_: &[IdedExpr]| nodes_.iter().map(nodes).sum::<u64>();
    1 + match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => 0,
        Expr::Select(select) => nodes(&select.operand),
        Expr::List(list) => all(&list.elements),
        Expr::Map(map) => map
            .entries
            .iter()
            .map(|entry| match &entry.expr {
                EntryExpr::MapEntry(e) => nodes(&e.key) + nodes(&e.value),
                EntryExpr::StructField(e) => nodes(&e.value),
            })
            .sum(),
        Expr::Call(call) => call.target.as_deref().map_or(0, nodes) + all(&call.args),
        Expr::Comprehension(c) => {
            [&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result].into_iter().map(nodes).sum()
        }
    }
}

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Outcome<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn sized<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [value] = take(args)?;
    charge_for(&*value)?;
    Ok(value)
}

/// Pays for every round in advance: what a loop costs does not depend on where it ends.
fn enter_loop<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [range, body] = take(args)?;
    charge_for(&*range)?;
    let rounds = range.as_sizer().map_or(0, |sizer| *sizer.size().inner()).unsigned_abs();
    let body = body.downcast_ref::<CelInt>().map_or(1, |body| body.inner().unsigned_abs());
    charge(rounds.saturating_mul(body))?;
    Ok(range)
}

fn compare(args: Args<'_, '_>) -> Result<bool, ExecutionError> {
    let [a, b] = take(args)?;
    equal(&*a, &*b)
}

/// Whether two values are equal, wherever each of them lies.
pub(super) fn equal(a: &dyn Val, b: &dyn Val) -> Result<bool, ExecutionError> {
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

fn member<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [item, container] = take(args)?;
    let no_overload = || {
        let types = [&item, &container].map(|value| value.get_type().name().to_owned());
        ExecutionError::no_such_overload("_in_", types.to_vec())
    };
    let found = match (container.get_type().kind(), container.as_iterable(), container.as_container()) {
        (Kind::List, Some(items), _) => {
            let mut items = items.iter();
            let mut found = false;
            while let (false, Some(other)) = (found, items.next()) {
                found = equal(other, &*item)?;
            }
            charge(1)?;
            found
        }
        (_, _, Some(container)) => {
            charge_for(&*item)?;
            container.contains(&*item).map_err(|_| no_overload())?
        }
        _ => return Err(no_overload()),
    };
    Ok(CowVal::owned(CelBool::from(found)))
}

fn add<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [a, b] = take(args)?;
    charge_for(&*a)?;
    charge_for(&*b)?;
    if let (Some(x), Some(y)) = (a.downcast_ref::<CelString>(), b.downcast_ref::<CelString>()) {
        check_size(steps_of_bytes(x.inner().len() + y.inner().len()))?;
        return Ok(CowVal::owned(CelString::from([x.inner(), y.inner()].concat())));
    }
    let no_overload = || {
        let types = [&a, &b].map(|value| value.get_type().name().to_owned());
        ExecutionError::no_such_overload(operators::ADD, types.to_vec())
    };
    let sum = a.as_adder().ok_or_else(no_overload)?.add(&*b)?.into_owned();
    charge_for(&*sum)?;
    Ok(CowVal::Owned(sum))
}

fn matches<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [text, pattern, steps] = take(args)?;
    let (Some(text), Some(pattern), Some(steps)) = (
        text.downcast_ref::<CelString>(),
        pattern.downcast_ref::<CelString>(),
        steps.downcast_ref::<CelInt>(),
    ) else {
        return Err(ExecutionError::function_error("matches", "takes a string and a pattern"));
    };
    charge(steps.inner().unsigned_abs())?;
    let found = Pattern::with(pattern.inner(), |pattern| {
        charge(1 + text.inner().len() as u64 * pattern.steps)?;
        Ok(pattern.regex.is_match(text.inner()))
    })?;
    Ok(CowVal::owned(CelBool::from(found)))
}

/// A pattern, compiled.
struct Pattern {
    regex: Regex,
    /// For a byte of text.
    steps: u64,
}

impl Pattern {
    fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATTERN_TEXT {
            return Err(format!("is a pattern longer than {MAX_PATTERN_TEXT} bytes"));
        }
        let build =
            |size: usize| RegexBuilder::new(text).size_limit(size).dfa_size_limit(MAX_PATTERN).build();
        match build(SMALL_PATTERN) {
            Ok(regex) => Ok(Self { regex, steps: 1 }),
            Err(regex::Error::CompiledTooBig(_)) => match build(MAX_PATTERN) {
                Ok(regex) => Ok(Self { regex, steps: LARGE_PATTERN_STEPS }),
                Err(error) => Err(format!("cannot be used as a pattern: {error}")),
            },
            Err(error) => Err(format!("cannot be used as a pattern: {error}")),
        }
    }

    /// Uses a pattern; compiled ones are kept, which makes no difference to what they cost.
    fn with(
        text: &str,
        run: impl FnOnce(&Self) -> Result<bool, ExecutionError>,
    ) -> Result<bool, ExecutionError> {
        thread_local! {
            static KEPT: RefCell<HashMap<String, Pattern>> = RefCell::default();
        }
        KEPT.with_borrow_mut(|kept| {
            if let Some(pattern) = kept.get(text) {
                return run(pattern);
            }
            let compiled =
                Self::compile(text).map_err(|error| ExecutionError::function_error("matches", error))?;
            if kept.len() >= KEPT_PATTERNS {
                kept.clear();
            }
            run(kept.entry(text.to_owned()).or_insert(compiled))
        })
    }
}

fn take<'b, 'v, const N: usize>(args: Args<'b, 'v>) -> Result<[CowVal<'b, 'v>; N], ExecutionError> {
    <[CowVal<'b, 'v>; N]>::try_from(args)
        .map_err(|args| ExecutionError::invalid_argument_count(N, args.len()))
}

/// Whether a call's target is the `optional` of `optional.of(…)`.
pub fn is_optional_namespace(target: &IdedExpr) -> bool {
    matches!(&target.expr, Expr::Ident(name) if name == "optional")
}
