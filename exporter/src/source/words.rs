//! Words that stand for states in expressions.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};
use statusbridge_contract::{ApplyState, Health};
use statusbridge_expression::children;

use super::program::APPLY;

/// Refuses a comparison of the variable `apply`, or of the status that `kstatus(…)` gives, with a text that it never is.
pub(super) fn check(node: &IdedExpr) -> Result<(), String> {
    match &node.expr {
        Expr::Call(call) => check_comparison(call)?,
        // In the loop the name is another variable's.
        Expr::Comprehension(c) if c.iter_var == APPLY || c.iter_var2.as_deref() == Some(APPLY) => {
            return check(&c.iter_range).and_then(|()| check(&c.accu_init));
        }
        _ => {}
    }
    children(node).into_iter().try_for_each(check)
}

fn check_comparison(call: &CallExpr) -> Result<(), String> {
    let (compared, with): (&IdedExpr, &[IdedExpr]) = match (call.func_name.as_str(), call.args.as_slice()) {
        (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => match words(left) {
            Some(_) => (left, std::slice::from_ref(right)),
            None => (right, std::slice::from_ref(left)),
        },
        (operators::IN, [item, IdedExpr { expr: Expr::List(list), .. }]) => (item, &list.elements),
        _ => return Ok(()),
    };
    let Some((name, known)) = words(compared) else { return Ok(()) };
    let text = |node: &IdedExpr| match &node.expr {
        Expr::Literal(LiteralValue::String(word)) => Some(word.inner().to_owned()),
        _ => None,
    };
    match with.iter().filter_map(text).find(|word| !known.contains(&word.as_str())) {
        Some(word) => Err(format!("`{name}` is never `{word}`: it is one of {}", known.join(", "))),
        None => Ok(()),
    }
}

/// The words that an expression may give, if it is one of those that give a state, and its name.
fn words(node: &IdedExpr) -> Option<(&'static str, Vec<&'static str>)> {
    let is_kstatus = |node: &IdedExpr| matches!(&node.expr, Expr::Call(call) if call.func_name == "kstatus");
    match &node.expr {
        Expr::Ident(name) if name == APPLY => {
            Some((APPLY, ApplyState::ALL.iter().map(|state| state.name()).collect()))
        }
        Expr::Select(select) if select.field == "status" && is_kstatus(&select.operand) => {
            Some(("kstatus(…).status", Health::ALL.iter().map(|health| health.name()).collect()))
        }
        _ => None,
    }
}
