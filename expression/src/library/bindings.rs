//! `cel.bind(name, value, expression)`: a name for a value, as cel-go's bindings extension has it.

use cel::common::ast::{ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue};
use cel::parser::{Macro, MacroExprHelper, ParseError};
use cel::{DeclarationError, Env};

use super::comprehensions;

pub(super) const MACROS: &[&str] = &["cel.bind"];

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_macro(Macro::receiver("bind", 3, expand))
}

fn expand(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    if !target.as_ref().is_some_and(|t| matches!(&t.expr, Expr::Ident(name) if name == "cel")) {
        return Ok(None);
    }
    let (Some(result), Some(value), Some(name)) = (args.pop(), args.pop(), args.pop()) else {
        return Ok(None);
    };
    let name = comprehensions::variable(helper, &name)?;
    Ok(Some(bind(helper, &name, value, result)))
}

/// A loop over nothing, whose accumulator is the name.
pub(super) fn bind(
    helper: &mut MacroExprHelper<'_>,
    name: &str,
    value: IdedExpr,
    result: IdedExpr,
) -> IdedExpr {
    let binding = ComprehensionExpr {
        iter_range: helper.next_expr(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.to_owned(),
        accu_init: value,
        loop_cond: helper.next_expr(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: helper.next_expr(Expr::Ident(name.to_owned())),
        result,
    };
    helper.next_expr(Expr::Comprehension(Box::new(binding)))
}
