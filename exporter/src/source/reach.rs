//! Rules that can never be reached.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use statusbridge_expression::Expression;

/// Why a rule is never reached after others with these places and conditions, if that can be told: wherever its own
/// condition holds, that of an earlier one does. `None` among the conditions always holds.
pub(super) fn unreachable(
    earlier: &[(usize, Option<&Expression>)],
    condition: Option<&Expression>,
) -> Option<String> {
    let own = condition.map(|condition| parts(operators::LOGICAL_AND, condition.tree())).unwrap_or_default();
    if own.iter().any(|part| is_literal(part, false)) {
        return Some("its condition never holds".to_owned());
    }
    let covers = |condition: &Option<&Expression>| {
        let Some(condition) = condition else { return true };
        parts(operators::LOGICAL_OR, condition.tree()).iter().any(|choice| {
            let wanted = parts(operators::LOGICAL_AND, choice);
            wanted.iter().all(|part| is_literal(part, true) || own.contains(part))
        })
    };
    let (at, _) = earlier.iter().find(|(_, condition)| covers(condition))?;
    Some(format!("rule [{at}] holds wherever this one does"))
}

/// The parts of a chain of `&&` or `||`, which can be compared: the numbers of their nodes are gone.
fn parts(operator: &str, node: &IdedExpr) -> Vec<IdedExpr> {
    match &node.expr {
        Expr::Call(call) if call.func_name == operator => {
            call.args.iter().flat_map(|arg| parts(operator, arg)).collect()
        }
        _ => {
            let mut node = node.clone();
            forget_numbers(&mut node);
            vec![node]
        }
    }
}

fn is_literal(node: &IdedExpr, wanted: bool) -> bool {
    matches!(&node.expr, Expr::Literal(LiteralValue::Boolean(value)) if *value.inner() == wanted)
}

fn forget_numbers(node: &mut IdedExpr) {
    node.id = 0;
    match &mut node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => {}
        Expr::Select(select) => forget_numbers(&mut select.operand),
        Expr::List(list) => list.elements.iter_mut().for_each(forget_numbers),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                entry.id = 0;
                match &mut entry.expr {
                    EntryExpr::MapEntry(entry) => {
                        forget_numbers(&mut entry.key);
                        forget_numbers(&mut entry.value);
                    }
                    EntryExpr::StructField(field) => forget_numbers(&mut field.value),
                }
            }
        }
        Expr::Call(call) => {
            call.target.as_deref_mut().into_iter().chain(&mut call.args).for_each(forget_numbers);
        }
        Expr::Comprehension(c) => {
            [&mut c.iter_range, &mut c.accu_init, &mut c.loop_cond, &mut c.loop_step, &mut c.result]
                .into_iter()
                .for_each(forget_numbers);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(&["a"], "a", Some("rule [0] holds"))]
    #[case(&["a"], "b && a", Some("rule [0] holds"))]
    #[case(&["c", "a && b"], "b && x == 1 && a", Some("rule [1] holds"))]
    #[case(&["c || x == 1"], "a && x == 1", Some("rule [0] holds"))]
    #[case(&["true"], "a", Some("rule [0] holds"))]
    #[case(&[], "a && false", Some("never holds"))]
    #[case(&["a && b"], "a", None)]
    #[case(&["x == 1"], "x == 2", None)]
    #[case(&["a"], "!a", None)]
    #[case(&["a"], "a || b", None)]
    #[case(&["[x].exists(i, i == 1)"], "a && [x].exists(i, i == 1)", Some("rule [0] holds"))]
    fn rules_behind_others(
        #[case] earlier: &[&str],
        #[case] condition: &str,
        #[case] expected: Option<&str>,
    ) {
        let compile =
            |text: &&str| Expression::compile("f", text, &["a", "b", "c", "x"]).expect("an expression");
        let compiled: Vec<Expression> = earlier.iter().map(compile).collect();
        let earlier: Vec<_> = compiled.iter().map(Some).enumerate().collect();
        let found = unreachable(&earlier, Some(&compile(&condition)));
        match expected {
            Some(expected) => assert!(found.as_ref().is_some_and(|f| f.contains(expected)), "{found:?}"),
            None => assert_eq!(found, None),
        }
    }

    #[test]
    fn nothing_is_reached_behind_a_rule_without_a_condition() {
        assert!(unreachable(&[(0, None)], None).is_some());
        assert!(unreachable(&[], None).is_none());
    }
}
