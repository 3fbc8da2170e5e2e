//! Expressions of a source: compiled once, run on every version of an object, never able to crash
//! and bounded in what they give.
//!
//! ```text
//!   text ──Expression::compile──> Expression ──value/truth/text/…──> plain data | EvaluationError
//!                                     │
//!                                     └──Footprint::read──> the fields it reads (projection)
//! ```

mod footprint;
mod functions;
mod outcome;
mod value;

pub use footprint::Footprint;
pub use outcome::{MAX_MESSAGE, MAX_REASON, MAX_REVISION};

use cel::{
    Context, Program,
    common::{
        ast::{EntryExpr, Expr, IdedExpr},
        types::{CelList, CelOptional},
        value::Val,
    },
};
use serde_json::Value;

use crate::verdict::EvaluationError;

/// Longest expression that a source may have, in bytes.
const MAX_SOURCE: usize = 8 * 1024;

/// How deep `exists`, `map` and their like may be nested: each level multiplies the cost.
const MAX_COMPREHENSIONS: usize = 2;

/// Names of types, to compare with `type(x)`.
const TYPES: &[&str] =
    &["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

/// An expression of a source.
#[derive(Debug)]
pub struct Expression {
    field: String,
    text: String,
    program: Program,
}

/// The variables that expressions see.
pub struct Scope<'v> {
    context: Context<'v, 'v>,
}

impl<'v> Default for Scope<'v> {
    fn default() -> Self {
        Self { context: Context::with_env(functions::environment()) }
    }
}

impl<'v> Scope<'v> {
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

    /// Evaluates an expression and binds what comes out.
    pub fn define(&mut self, name: &str, expression: &Expression) -> Result<(), EvaluationError> {
        let value = expression.run(self)?.into_owned();
        self.context.add_variable_as_val(name, value);
        Ok(())
    }
}

impl Expression {
    /// Compiles an expression; `field` says where it stands in its source and `variables` what it may
    /// name. The error says what is wrong in words for the person who wrote it.
    pub fn compile(field: &str, text: &str, variables: &[&str]) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("the expression is empty".to_owned());
        }
        if text.len() > MAX_SOURCE {
            return Err(format!("the expression is longer than {MAX_SOURCE} bytes"));
        }
        let program = functions::environment().compile(text).map_err(|errors| errors.to_string())?;
        check(program.expression(), &mut variables.to_vec(), 0)?;
        Ok(Self { field: field.to_owned(), text: text.to_owned(), program })
    }

    /// Where the expression stands in its source.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// An error about what the expression gave.
    pub(crate) fn mistake(&self, message: impl Into<String>) -> EvaluationError {
        self.error(message)
    }

    fn error(&self, message: impl Into<String>) -> EvaluationError {
        let message = outcome::cut(message.into(), outcome::MAX_MESSAGE);
        EvaluationError { field: self.field.clone(), expression: self.text.clone(), message }
    }

    fn run<'e, 'v>(
        &'e self,
        scope: &'e Scope<'v>,
    ) -> Result<cel::common::value::CowVal<'e, 'v>, EvaluationError> {
        cel::Value::resolve_val(self.program.expression(), &scope.context)
            .map_err(|error| self.error(error.to_string()))
    }
}

/// Refuses names and functions that do not exist, and what would cost too much. The library finds
/// out about these only when it runs into them, which may be on one object in a thousand.
fn check<'e>(node: &'e IdedExpr, variables: &mut Vec<&'e str>, depth: usize) -> Result<(), String> {
    match &node.expr {
        Expr::Unspecified => Err("a part of the expression is missing".to_owned()),
        Expr::Literal(_) => Ok(()),
        Expr::Ident(name) if variables.contains(&name.as_str()) || TYPES.contains(&name.as_str()) => Ok(()),
        Expr::Ident(name) => Err(format!("there is no variable `{name}`")),
        Expr::Select(select) => check(&select.operand, variables, depth),
        Expr::List(list) => list.elements.iter().try_for_each(|e| check(e, variables, depth)),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                check(&entry.key, variables, depth)?;
                check(&entry.value, variables, depth)
            }
            EntryExpr::StructField(_) => Err("messages cannot be made here".to_owned()),
        }),
        Expr::Struct(message) => Err(format!("there is no message type `{}`", message.type_name)),
        Expr::Call(call) => {
            let operator = !call.func_name.starts_with(|c: char| c.is_ascii_alphabetic());
            if !operator && !functions::FUNCTIONS.contains(&call.func_name.as_str()) {
                return Err(format!("there is no function `{}`", call.func_name));
            }
            let namespace = call.target.as_ref().is_some_and(|t| is_optional_namespace(t));
            if let Some(target) = call.target.as_deref().filter(|_| !namespace) {
                check(target, variables, depth)?;
            }
            call.args.iter().try_for_each(|arg| check(arg, variables, depth))
        }
        Expr::Comprehension(c) => {
            check(&c.iter_range, variables, depth)?;
            check(&c.accu_init, variables, depth)?;
            // `optMap` expands to a loop over nothing, which costs nothing.
            let binding = matches!(&c.iter_range.expr, Expr::List(list) if list.elements.is_empty());
            let inner = if binding { depth } else { depth + 1 };
            if inner > MAX_COMPREHENSIONS {
                return Err(format!("loops are nested more than {MAX_COMPREHENSIONS} deep"));
            }
            let outside = variables.len();
            variables.extend([c.iter_var.as_str(), c.accu_var.as_str()]);
            variables.extend(c.iter_var2.as_deref());
            let result = [&c.loop_cond, &c.loop_step, &c.result]
                .into_iter()
                .try_for_each(|part| check(part, variables, inner));
            variables.truncate(outside);
            result
        }
    }
}

/// Whether a call's target is the `optional` of `optional.of(…)`.
fn is_optional_namespace(target: &IdedExpr) -> bool {
    matches!(&target.expr, Expr::Ident(name) if name == "optional")
}

#[cfg(test)]
mod tests;
