//! Ordered rules: the first whose condition holds gives the state.

use std::sync::Arc;

use statusbridge_expression::{EvaluationError, Expression, MAX_MESSAGE, MAX_REASON, Scope};

/// When an object is in a state, and what is said about it then.
#[derive(Debug)]
pub(crate) struct Rule<S> {
    /// `None`: always.
    pub(crate) when: Option<Expression>,
    pub(crate) state: S,
    pub(crate) reason: Option<Words<Arc<str>>>,
    pub(crate) message: Option<Words<String>>,
}

/// Fixed words, or an expression that gives them.
#[derive(Debug)]
pub(crate) enum Words<T> {
    Fixed(T),
    From(Box<Expression>),
}

impl<S: Copy> Rule<S> {
    /// The first rule of `rules` that holds and whose state is `usable`.
    pub(crate) fn first<'r>(
        rules: &'r [Self],
        scope: &Scope<'_>,
        usable: impl Fn(S) -> bool,
    ) -> Result<Option<&'r Self>, EvaluationError> {
        for rule in rules.iter().filter(|rule| usable(rule.state)) {
            match &rule.when {
                Some(when) if !when.truth(scope)? => {}
                _ => return Ok(Some(rule)),
            }
        }
        Ok(None)
    }

    /// The rule's own reason, if it gives one.
    pub(crate) fn reason(&self, scope: &Scope<'_>) -> Result<Option<Arc<str>>, EvaluationError> {
        match &self.reason {
            None => Ok(None),
            Some(Words::Fixed(reason)) => Ok(Some(Arc::clone(reason))),
            Some(Words::From(expression)) => Ok(expression.text_of(scope, MAX_REASON)?.map(Arc::from)),
        }
    }

    /// The rule's own message, if it gives one.
    pub(crate) fn message(&self, scope: &Scope<'_>) -> Result<Option<String>, EvaluationError> {
        match &self.message {
            None => Ok(None),
            Some(Words::Fixed(message)) => Ok(Some(message.clone())),
            Some(Words::From(expression)) => expression.text_of(scope, MAX_MESSAGE),
        }
    }

    /// The expressions in the rule.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let reason = match &self.reason {
            Some(Words::From(expression)) => Some(&**expression),
            _ => None,
        };
        let message = match &self.message {
            Some(Words::From(expression)) => Some(&**expression),
            _ => None,
        };
        self.when.iter().chain(reason).chain(message)
    }
}
