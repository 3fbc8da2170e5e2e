//! Ordered rules: the first whose condition holds gives the state.

use std::{fmt, sync::Arc};

use statusbridge_contract::Health;
use statusbridge_expression::{EvaluationError, Expression, MAX_MESSAGE, MAX_REASON, Scope};

/// When an object is in a state, and what is said about it then.
#[derive(Debug)]
pub(crate) struct Rule<S> {
    /// `None`: always.
    pub(crate) when: Option<Expression>,
    /// `None`: at once.
    pub(crate) after: Option<After>,
    pub(crate) state: S,
    pub(crate) reason: Option<Words<Arc<str>>>,
    pub(crate) message: Option<Words<String>>,
}

/// What time has to pass before a rule holds.
#[derive(Debug)]
pub(crate) struct After {
    pub(crate) since: Expression,
    pub(crate) seconds: i64,
}

/// What time it is, and when another rule would hold if nothing changes, in unix seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    pub(crate) now: i64,
    pub(crate) next: Option<i64>,
}

/// Fixed words, or an expression that gives them.
#[derive(Debug)]
pub(crate) enum Words<T> {
    Fixed(T),
    From(Box<Expression>),
}

/// What a health rule gives.
#[derive(Debug)]
pub(crate) enum HealthState {
    Is(Health),
    /// What the objects of the package say.
    Resources(Unwatched),
}

/// The name of [`HealthState::Resources`] in a source.
pub(super) const RESOURCES: &str = "Resources";

/// What holds where the objects of a package are not watched.
#[derive(Debug)]
pub(crate) struct Unwatched {
    pub(crate) health: Health,
    pub(crate) reason: Option<Arc<str>>,
    pub(crate) message: Option<String>,
}

impl fmt::Display for HealthState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(health) => health.fmt(f),
            Self::Resources(_) => f.write_str(RESOURCES),
        }
    }
}

impl<S> Rule<S> {
    /// The first rule of `rules` that holds.
    pub(crate) fn first<'r>(
        rules: &'r [Self],
        scope: &mut Scope<'_>,
        time: &mut Time,
    ) -> Result<Option<&'r Self>, EvaluationError> {
        for rule in rules {
            if rule.holds(scope, time)? {
                return Ok(Some(rule));
            }
        }
        Ok(None)
    }

    fn holds(&self, scope: &mut Scope<'_>, time: &mut Time) -> Result<bool, EvaluationError> {
        if let Some(when) = &self.when
            && !when.truth(scope)?
        {
            return Ok(false);
        }
        let Some(after) = &self.after else { return Ok(true) };
        let Some(since) = after.since.time(scope)? else { return Ok(false) };
        let due = since.saturating_add(after.seconds);
        if due > time.now {
            time.next = Some(time.next.map_or(due, |next| next.min(due)));
        }
        Ok(due <= time.now)
    }

    /// Whether it holds whatever there is.
    pub(crate) fn always_holds(&self) -> bool {
        self.when.is_none() && self.after.is_none()
    }

    /// The rule's own reason, if it gives one.
    pub(crate) fn reason(&self, scope: &mut Scope<'_>) -> Result<Option<Arc<str>>, EvaluationError> {
        match &self.reason {
            None => Ok(None),
            Some(Words::Fixed(reason)) => Ok(Some(Arc::clone(reason))),
            Some(Words::From(expression)) => Ok(expression.text_of(scope, MAX_REASON)?.map(Arc::from)),
        }
    }

    /// The rule's own message, if it gives one.
    pub(crate) fn message(&self, scope: &mut Scope<'_>) -> Result<Option<String>, EvaluationError> {
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
        let since = self.after.as_ref().map(|after| &after.since);
        self.when.iter().chain(since).chain(reason).chain(message)
    }
}
