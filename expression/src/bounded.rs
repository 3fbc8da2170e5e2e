//! What in an expression can cost more than a step, made to count its steps.
//!
//! The language's library evaluates a tree of nodes and knows no limits. So the tree that runs is
//! not the one that was parsed: what loops, compares, copies, joins or searches is replaced by, or
//! wrapped into, a function of this module that pays first. What costs a step at most is left alone:
//! to compare with a literal, to pass on what lies in the object. Nothing is given another meaning.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue,
    MapEntryExpr, MapExpr, SelectExpr, operators,
};
use cel::common::types::{CelBool, CelInt, CelString, DYN_TYPE, INT_TYPE, Kind};
use cel::common::value::CowVal;
use cel::{Env, ExecutionError};

use crate::budget::{charge, charge_for, check_size, steps_of_bytes};
use crate::equality::equal;
use crate::library::arguments::{Args, Outcome, take};
use crate::library::{self, comprehensions, regex};

/// Name of the variable that holds the object that an expression is about.
pub const OBJECT: &str = "object";

/// Names that no expression can spell.
const SIZED: &str = "@bounded_sized";
const LOOP: &str = "@bounded_loop";
const EQUAL: &str = "@bounded_equal";
const UNEQUAL: &str = "@bounded_unequal";
const MEMBER: &str = "@bounded_in";
const ADD: &str = "@bounded_add";

/// Operators whose outcome is small, whatever they are given.
const SCALAR: [&str; 11] = [
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
];

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
    env.add_overload(ADD, ADD, two(), add)
}

/// The tree to run in place of a tree that was parsed, and its number of nodes.
pub(super) fn bounded(parsed: &IdedExpr) -> Result<(IdedExpr, u64), String> {
    let object = Name { name: OBJECT.to_owned(), view: true, stands_for: None };
    let mut rewriter = Rewriter { names: vec![object] };
    Ok((rewriter.node(parsed)?, nodes(parsed)))
}

struct Rewriter {
    /// Innermost last.
    names: Vec<Name>,
}

/// A variable.
struct Name {
    name: String,
    /// Whether it is something that lies in the object.
    view: bool,
    /// What it is in the tree that runs, where that has no such variable.
    stands_for: Option<Expr>,
}

impl Rewriter {
    fn node(&mut self, node: &IdedExpr) -> Result<IdedExpr, String> {
        let expr = match &node.expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Struct(_) => node.expr.clone(),
            Expr::Ident(name) => {
                let half = self.find(name).and_then(|name| name.stands_for.clone());
                half.unwrap_or_else(|| node.expr.clone())
            }
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

    fn find(&self, name: &str) -> Option<&Name> {
        self.names.iter().rev().find(|n| n.name == name)
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
        let namespaced = library::has_namespace(c);
        let target = c.target.as_deref().filter(|_| !namespaced);
        let given: Vec<&IdedExpr> = target.into_iter().chain(&c.args).collect();
        if let (Some(name), [text, pattern, rest @ ..]) = (library::searches(c), given.as_slice()) {
            return self.search(name, text, pattern, rest);
        }
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
            (name, args, _) => {
                let passes = target.is_some() && matches!(name, "hasValue" | "value" | "or" | "orValue");
                let mut argument = |node: &IdedExpr| match passes {
                    true => self.passed(node),
                    false => self.sized(node),
                };
                let target = match c.target.as_deref() {
                    Some(namespace) if namespaced => Some(namespace.clone()),
                    target => target.map(&mut argument).transpose()?,
                };
                let args = args.iter().map(argument).collect::<Result<_, _>>()?;
                Expr::Call(CallExpr { func_name: name.to_owned(), target: target.map(Box::new), args })
            }
        })
    }

    fn search(
        &mut self,
        name: &str,
        text: &IdedExpr,
        pattern: &IdedExpr,
        rest: &[&IdedExpr],
    ) -> Result<Expr, String> {
        let steps = match &pattern.expr {
            Expr::Literal(LiteralValue::String(literal)) => {
                regex::check(literal.inner())?;
                0
            }
            _ => regex::COMPILE_STEPS,
        };
        let mut args = vec![self.node(text)?, self.sized(pattern)?, number(steps)];
        for one in rest {
            args.push(self.sized(one)?);
        }
        Ok(call(name, args).expr)
    }

    fn comprehension(&mut self, c: &ComprehensionExpr) -> Result<ComprehensionExpr, String> {
        // `optMap` expands to a loop over nothing.
        let binds = matches!(&c.iter_range.expr, Expr::List(list) if list.elements.is_empty());
        let body = 1 + nodes(&c.loop_cond) + nodes(&c.loop_step);
        let mut iter_range = self.node(&c.iter_range)?;
        if c.iter_var2.is_some() {
            iter_range = call(comprehensions::ENTRIES, vec![iter_range]);
        }
        if !binds {
            iter_range = call(LOOP, vec![iter_range, number(body)]);
        }
        let accu_init = self.passed(&c.accu_init)?;
        let (item_view, init_view) = (self.is_view(&c.iter_range), self.is_view(&c.accu_init));
        let outside = self.names.len();
        let iter_var = match &c.iter_var2 {
            Some(value) => {
                let entry = format!("@entry{outside}");
                let half = |n| call(operators::INDEX, vec![ident(&entry), number(n)]).expr;
                let key = Name { name: c.iter_var.clone(), view: false, stands_for: Some(half(0)) };
                let value = Name { name: value.clone(), view: item_view, stands_for: Some(half(1)) };
                self.names.extend([key, value]);
                entry
            }
            None => {
                self.names.push(Name { name: c.iter_var.clone(), view: item_view, stands_for: None });
                c.iter_var.clone()
            }
        };
        let view = binds && init_view;
        self.names.push(Name { name: c.accu_var.clone(), view, stands_for: None });
        let rewritten = ComprehensionExpr {
            iter_range,
            iter_var,
            iter_var2: None,
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
            Expr::Ident(name) => self.find(name).is_some_and(|name| name.view),
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

fn ident(name: &str) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Ident(name.to_owned()) }
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
        Expr::Call(call) => SCALAR.contains(&call.func_name.as_str()) || library::gives_scalar(call),
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
