//! Words that stand for states in expressions.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};
use statusbridge_contract::ApplyState;
use statusbridge_expression::children;

use super::program::APPLY;

/// Refuses a comparison of the variable `apply` with a text that it never has.
pub(super) fn check(node: &IdedExpr) -> Result<(), String> {
    match &node.expr {
        Expr::Call(call) => compared(call).try_for_each(check_word)?,
        // In the loop the name is another variable's.
        Expr::Comprehension(c) if c.iter_var == APPLY || c.iter_var2.as_deref() == Some(APPLY) => {
            return check(&c.iter_range).and_then(|()| check(&c.accu_init));
        }
        _ => {}
    }
    children(node).into_iter().try_for_each(check)
}

/// What a call compares `apply` with.
fn compared(call: &CallExpr) -> impl Iterator<Item = &IdedExpr> {
    let is_apply = |node: &IdedExpr| matches!(&node.expr, Expr::Ident(name) if name == APPLY);
    let with: &[IdedExpr] = match (call.func_name.as_str(), call.args.as_slice()) {
        (operators::EQUALS | operators::NOT_EQUALS, [apply, with] | [with, apply]) if is_apply(apply) => {
            std::slice::from_ref(with)
        }
        (operators::IN, [apply, IdedExpr { expr: Expr::List(list), .. }]) if is_apply(apply) => {
            &list.elements
        }
        _ => &[],
    };
    with.iter()
}

fn check_word(node: &IdedExpr) -> Result<(), String> {
    let Expr::Literal(LiteralValue::String(word)) = &node.expr else { return Ok(()) };
    let word = word.inner();
    let known: Vec<&str> = ApplyState::ALL.iter().map(|state| state.name()).collect();
    if known.contains(&word) {
        return Ok(());
    }
    Err(format!("`{APPLY}` is never `{word}`: it is one of {}", known.join(", ")))
}
