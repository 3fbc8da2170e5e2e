//! An expression that is compiled once and run on many objects, and the variables that it sees.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, IdedExpr};
use cel::common::types::{CelList, CelOptional};
use cel::common::value::{CowVal, Val};
use cel::{Context, ParseErrors, Program};
use serde_json::Value;

use crate::budget::{self, Budget, charge, charge_for};
use crate::environment::environment;
use crate::{bounded, library, value};

/// Longest expression, in bytes.
const MAX_SOURCE: usize = 8 * 1024;

/// Longest message, in bytes; a longer one is cut.
pub const MAX_MESSAGE: usize = 1024;

/// Stack for parsing an expression of [`MAX_SOURCE`] bytes, four times what the worst of them take.
const PARSER_STACK: usize = 64 << 20;

/// How deep the parts of an expression may be nested: evaluation goes down on the stack.
const MAX_DEPTH: usize = 24;

/// How deep `exists`, `map` and their like may be nested: each level multiplies the cost.
const MAX_COMPREHENSIONS: usize = 2;

/// Names of types, to compare with `type(x)`.
const TYPES: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "optional_type",
    "string",
    "type",
    "uint",
];

/// An expression that failed on an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct EvaluationError {
    /// The field that the expression stands in, such as `apply[2].when`.
    pub field: String,
    /// The expression.
    pub expression: String,
    /// What went wrong.
    pub message: String,
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} in `{}`", self.field, self.message, self.expression)
    }
}

/// An expression that compiles.
#[derive(Debug)]
pub struct Expression {
    field: String,
    text: String,
    program: Program,
    /// What runs in place of the program.
    bounded: IdedExpr,
    nodes: u64,
    /// The variables that it names, each once.
    reads: Vec<String>,
}

/// The variables that expressions see, and what all of them together may cost.
pub struct Scope<'v> {
    context: Context<'v, 'v>,
    budget: Cell<Budget>,
    /// Variables that nothing has named yet.
    defined: Vec<(&'v str, &'v Expression)>,
    /// Variables that could not be evaluated, and why.
    failed: Vec<(&'v str, EvaluationError)>,
}

impl Default for Scope<'_> {
    fn default() -> Self {
        Self {
            context: Context::with_env(environment()),
            budget: Cell::default(),
            defined: Vec::new(),
            failed: Vec::new(),
        }
    }
}

impl<'v> Scope<'v> {
    /// A scope whose expressions take at most so many steps together, where the default is too generous.
    pub fn with_steps(steps: u64) -> Self {
        Self { budget: Cell::new(Budget::of(steps)), ..Self::default() }
    }

    /// Binds a JSON value, read where it lies.
    pub fn bind(&mut self, name: &str, value: &'v Value) {
        self.context.add_variable_as_val(name, value::wrap(value));
    }

    /// Binds an optional: the value, or nothing.
    pub fn bind_optional(&mut self, name: &str, value: Option<&'v Value>) {
        self.context.add_variable_as_val(name, Box::new(CelOptional::from(value.map(value::wrap))));
    }

    /// Binds a list.
    pub fn bind_list(&mut self, name: &str, values: &[&'v Value]) {
        let items: Vec<Box<dyn Val + 'v>> = values.iter().map(|v| value::wrap(v)).collect();
        self.context.add_variable_as_val(name, Box::new(CelList::from(items)));
    }

    /// Binds a text.
    pub fn bind_text(&mut self, name: &str, text: &'v str) {
        self.context.add_variable_as_val(name, Box::new(cel::common::types::CelString::from(text)));
    }

    /// Defines a variable, which is evaluated once, when an expression that names it is. Where that
    /// fails, every expression fails that comes to it.
    pub fn define(&mut self, name: &'v str, expression: &'v Expression) {
        self.defined.push((name, expression));
    }

    /// Evaluates what an expression names. Goes down as deep as definitions name each other. An error when that costs
    /// too much.
    fn prepare(&mut self, expression: &Expression) -> Result<(), EvaluationError> {
        for name in &expression.reads {
            let Some(at) = self.defined.iter().position(|(defined, _)| defined == name) else { continue };
            let (name, definition) = self.defined.swap_remove(at);
            let value = definition.run_to(self, |value| {
                charge_for(&*value)?;
                Ok(value.into_owned())
            });
            match value {
                Ok(value) => self.context.add_variable_as_val(name, value),
                Err(error) if self.budget.get().is_exceeded() => return Err(error),
                Err(error) => self.failed.push((name, error)),
            }
        }
        Ok(())
    }
}

impl Expression {
    /// Compiles an expression; `field` says where it stands and `variables` what it may
    /// name. The error says what is wrong in words for the person who wrote it, of [`MAX_MESSAGE`] bytes at most.
    pub fn compile(field: &str, text: &str, variables: &[&str]) -> Result<Self, String> {
        Self::compiled(field, text, variables).map_err(|error| cut(error, MAX_MESSAGE))
    }

    fn compiled(field: &str, text: &str, variables: &[&str]) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("the expression is empty".to_owned());
        }
        if text.len() > MAX_SOURCE {
            return Err(format!("the expression is longer than {MAX_SOURCE} bytes"));
        }
        let program = parse(text)?;
        let mut check = Check { variables, inner: Vec::new(), reads: Vec::new() };
        check.node(program.expression(), 0)?;
        let reads = check.reads.into_iter().map(str::to_owned).collect();
        let (bounded, nodes) = bounded::bounded(program.expression())?;
        Ok(Self { field: field.to_owned(), text: text.to_owned(), program, bounded, nodes, reads })
    }

    /// The variables that it names, each once.
    pub fn reads(&self) -> &[String] {
        &self.reads
    }

    /// Where the expression stands.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What was parsed. What runs is another tree, which means the same.
    pub fn tree(&self) -> &IdedExpr {
        self.program.expression()
    }

    /// An error about what the expression gave.
    pub fn error(&self, message: impl Into<String>) -> EvaluationError {
        let message = cut(message.into(), MAX_MESSAGE);
        EvaluationError { field: self.field.clone(), expression: self.text.clone(), message }
    }

    pub(super) fn run<'e, 'v>(&'e self, scope: &'e mut Scope<'v>) -> Result<CowVal<'e, 'v>, EvaluationError> {
        self.run_to(scope, Ok)
    }

    /// Evaluates on the scope's budget. The library is not known to panic; should it, then only this
    /// object cannot be told.
    pub(super) fn run_to<'e, 'v, T>(
        &'e self,
        scope: &'e mut Scope<'v>,
        then: impl FnOnce(CowVal<'e, 'v>) -> Result<T, cel::ExecutionError>,
    ) -> Result<T, EvaluationError> {
        scope.prepare(self)?;
        let scope = &*scope;
        let evaluate = || {
            charge(self.nodes)?;
            cel::Value::resolve_val(&self.bounded, &scope.context).and_then(then)
        };
        let outcome = budget::spend(&scope.budget, || catch_unwind(AssertUnwindSafe(evaluate)));
        match outcome {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(cel::ExecutionError::UndeclaredReference(name)))) => {
                let failed = scope.failed.iter().find(|(failed, _)| **failed == **name);
                Err(failed.map_or_else(
                    || self.error(format!("there is no variable `{name}`")),
                    |(_, error)| error.clone(),
                ))
            }
            Ok(Ok(Err(error))) => Err(self.error(error.to_string())),
            Ok(Err(_panic)) => Err(self.error("cannot be evaluated: the expression language panicked")),
            Err(excess) => Err(self.error(excess.to_string())),
        }
    }
}

/// Parses on a stack of its own: the parser goes down as deep as a text asks for, and so does
/// whoever drops what it made.
fn parse(text: &str) -> Result<Program, String> {
    std::thread::scope(|scope| {
        let parser = std::thread::Builder::new().stack_size(PARSER_STACK).spawn_scoped(scope, || {
            // Each names the whole text, and there may be one for each of its bytes.
            let first =
                |errors: ParseErrors| errors.errors.first().map(ToString::to_string).unwrap_or_default();
            let program = environment().compile(text).map_err(first)?;
            check_depth(program.expression(), 0)?;
            Ok(program)
        });
        let parser = parser.map_err(|error| format!("no thread to parse the expression on: {error}"))?;
        parser.join().unwrap_or_else(|_panic| Err("the expression cannot be parsed".to_owned()))
    })
}

/// Refuses a tree that is too deep to be walked.
fn check_depth(node: &IdedExpr, depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("the expression is nested more than {MAX_DEPTH} deep"));
    }
    children(node).into_iter().try_for_each(|child| check_depth(child, depth + 1))
}

/// The parts of an expression's node.
pub fn children(node: &IdedExpr) -> Vec<&IdedExpr> {
    match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => Vec::new(),
        Expr::Select(select) => vec![&*select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => {
            let parts = map.entries.iter().map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                EntryExpr::StructField(field) => vec![&field.value],
            });
            parts.flatten().collect()
        }
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(c) => {
            vec![&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result]
        }
    }
}

/// Refuses names and functions that do not exist, and what would cost too much. The library finds
/// out about these only when it runs into them, which may be on one object in a thousand.
struct Check<'e, 'n> {
    /// What may be named.
    variables: &'n [&'n str],
    /// Variables of the loops around.
    inner: Vec<&'e str>,
    /// Which of `variables` are named.
    reads: Vec<&'e str>,
}

impl<'e> Check<'e, '_> {
    fn node(&mut self, node: &'e IdedExpr, loops: usize) -> Result<(), String> {
        match &node.expr {
            Expr::Unspecified => Err("a part of the expression is missing".to_owned()),
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.node(&select.operand, loops),
            Expr::List(list) => list.elements.iter().try_for_each(|e| self.node(e, loops)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.node(&entry.key, loops)?;
                    self.node(&entry.value, loops)
                }
                EntryExpr::StructField(_) => Err("messages cannot be made here".to_owned()),
            }),
            Expr::Struct(message) => Err(format!("there is no message type `{}`", message.type_name)),
            Expr::Call(call) => {
                if !library::has_function(call) {
                    let name = library::written(call);
                    let nearest = library::nearest(&name);
                    let hint = nearest.map(|nearest| format!(" (nearest: `{nearest}`)")).unwrap_or_default();
                    return Err(format!("there is no function `{name}`{hint}"));
                }
                if let Some(target) = call.target.as_deref().filter(|_| !library::has_namespace(call)) {
                    self.node(target, loops)?;
                }
                call.args.iter().try_for_each(|arg| self.node(arg, loops))
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, loops),
        }
    }

    fn name(&mut self, name: &'e str) -> Result<(), String> {
        if self.inner.contains(&name) {
            return Ok(());
        }
        if self.variables.contains(&name) {
            if !self.reads.contains(&name) {
                self.reads.push(name);
            }
            return Ok(());
        }
        TYPES.contains(&name).then_some(()).ok_or_else(|| format!("there is no variable `{name}`"))
    }

    fn comprehension(&mut self, c: &'e ComprehensionExpr, loops: usize) -> Result<(), String> {
        self.node(&c.iter_range, loops)?;
        self.node(&c.accu_init, loops)?;
        // `optMap` expands to a loop over nothing, which costs nothing.
        let binding = matches!(&c.iter_range.expr, Expr::List(list) if list.elements.is_empty());
        let loops = if binding { loops } else { loops + 1 };
        if loops > MAX_COMPREHENSIONS {
            return Err(format!("loops are nested more than {MAX_COMPREHENSIONS} deep"));
        }
        let outside = self.inner.len();
        self.inner.extend([c.iter_var.as_str(), c.accu_var.as_str()]);
        self.inner.extend(c.iter_var2.as_deref());
        let result =
            [&c.loop_cond, &c.loop_step, &c.result].into_iter().try_for_each(|part| self.node(part, loops));
        self.inner.truncate(outside);
        result
    }
}

/// `text` cut to at most `limit` bytes, between characters.
pub fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod conformance_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
