//! Expressions from arbitrary bytes: the expression, a line feed, and the object that it reads. `cargo test` reads the corpora
//! beside this file, and some bytes at random; `make fuzz` looks for more.

use serde_json::Value;

use crate::{Expression, MAX_MESSAGE, OBJECT, Scope};

#[test]
fn an_expression_comes_to_an_end_whatever_it_reads() {
    bolero::check!(name = "expression").for_each(|bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let (text, object) = text.split_once('\n').unwrap_or((text, "null"));
        let object: Value = serde_json::from_str(object).unwrap_or_default();
        match Expression::compile("field", text, &[OBJECT]) {
            Err(error) => assert!(!error.is_empty() && error.len() <= MAX_MESSAGE, "{error}"),
            Ok(expression) => {
                let mut scope = Scope::default();
                scope.bind(OBJECT, &object);
                if let Err(error) = expression.text_of(&mut scope, 100) {
                    assert!(error.to_string().len() <= 16 << 10, "{error}");
                }
            }
        }
    });
}
