//! A health with what made it so.

use statusbridge_contract::Health;

use super::object::{Condition, Malformed};

/// A health with what made it so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The health.
    pub health: Health,
    /// The reason of the condition that decided, which need not have one, or kstatus's own, or one of ours where that has none
    /// (`Terminating`, `Malformed` and longer, `UnknownPhase`); empty when Current.
    pub reason: String,
    /// The message of the condition that decided, or kstatus's own.
    pub message: String,
}

impl Status {
    /// Any health.
    pub fn new(health: Health, reason: &str, message: impl Into<String>) -> Self {
        Self { health, reason: reason.to_owned(), message: message.into() }
    }

    /// Current, for which there is no reason.
    pub fn current(message: impl Into<String>) -> Self {
        Self::new(Health::Current, "", message)
    }

    /// InProgress.
    pub fn in_progress(reason: &str, message: impl Into<String>) -> Self {
        Self::new(Health::InProgress, reason, message)
    }

    pub(super) fn by(health: Health, condition: &Condition<'_>) -> Self {
        Self::new(health, condition.reason, condition.message)
    }
}

impl From<Malformed> for Status {
    fn from(malformed: Malformed) -> Self {
        Self::new(Health::Unknown, malformed.reason, malformed.message)
    }
}
