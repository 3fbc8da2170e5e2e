//! Words that stand for states in expressions.

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use statusbridge_contract::ApplyState;

use super::program::APPLY;

/// Refuses a comparison of the variable `apply` with a text that it never has.
pub(super) fn check(node: &IdedExpr) -> Result<(), String> {
    match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => Ok(()),
        Expr::Select(select) => check(&select.operand),
        Expr::List(list) => list.elements.iter().try_for_each(check),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => check(&entry.key).and_then(|()| check(&entry.value)),
            EntryExpr::StructField(field) => check(&field.value),
        }),
        Expr::Call(call) => {
            compared(call).try_for_each(check_word)?;
            call.target.as_deref().into_iter().chain(&call.args).try_for_each(check)
        }
        Expr::Comprehension(c) => {
            let parts = [&c.loop_cond, &c.loop_step, &c.result];
            let hidden = [Some(&c.iter_var), c.iter_var2.as_ref()].into_iter().flatten().any(|v| v == APPLY);
            check(&c.iter_range)?;
            check(&c.accu_init)?;
            if hidden { Ok(()) } else { parts.into_iter().try_for_each(check) }
        }
    }
}

/// What a call compares `apply` with.
fn compared(call: &CallExpr) -> impl Iterator<Item = &IdedExpr> {
    let is_apply = |node: &IdedExpr| matches!(&node.expr, Expr::Ident(name) if name == APPLY);
    let with: &[IdedExpr] = match (call.func_name.as_str(), call.args.as_slice()) {
        (operators::EQUALS | operators::NOT_EQUALS, [apply, with]) if is_apply(apply) => {
            std::slice::from_ref(with)
        }
        (operators::EQUALS | operators::NOT_EQUALS, [with, apply]) if is_apply(apply) => {
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
