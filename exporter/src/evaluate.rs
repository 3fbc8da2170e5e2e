//! From an object to a verdict.

use std::sync::Arc;

use serde_json::Value;
use statusbridge_contract::{ApplyState, Fingerprint, Health, reason};

use crate::{
    expression::{Expression, MAX_MESSAGE, MAX_REASON, Scope},
    kstatus,
    source::{APPLY, RelatedObjects, Rule, Source},
    verdict::{Detail, Evaluation, EvaluationError, Hold, HoldKey, Inventory, Verdict},
};

/// Reason of a package to which none of its source's rules applies.
pub const NO_RULE_MATCHED: &str = "NoRuleMatched";

/// A state with what is said about it.
struct Found<S> {
    state: S,
    reason: Option<Arc<str>>,
    message: Option<String>,
}

impl Source {
    /// The state of a package. Pure, and total: where an expression fails, everything is Unknown,
    /// the reason is `EvaluationFailed`, and the error says which expression it was.
    pub fn evaluate<'v>(&self, object: &'v Value, related: &RelatedObjects<'v>) -> Evaluation {
        self.try_evaluate(object, related).unwrap_or_else(|error| self.failure(error))
    }

    fn failure(&self, error: EvaluationError) -> Evaluation {
        let verdict = Verdict {
            apply: ApplyState::Unknown,
            health: Health::Unknown,
            desired: Fingerprint::NONE,
            applied: Fingerprint::NONE,
            healthy: Fingerprint::NONE,
            reason: Some(Arc::from(reason::EVALUATION_FAILED)),
            since: None,
            inventory: self.has_inventory().then(Inventory::default),
        };
        let detail = Detail { message: error.to_string(), ..Detail::default() };
        Evaluation { verdict, detail, hold: None, error: Some(error) }
    }

    fn try_evaluate<'v>(
        &self,
        object: &'v Value,
        related: &RelatedObjects<'v>,
    ) -> Result<Evaluation, EvaluationError> {
        let program = &self.program;
        let mut scope = self.scope(object, related)?;
        let desired = revisions(&program.desired, &scope)?;
        let attempted = revisions(&program.attempted, &scope)?;
        let applied = revisions(&program.applied, &scope)?;
        let apply = found(&program.apply, ApplyState::Unknown, &scope)?;
        scope.bind_text(APPLY, apply.state.name());
        let health = match &program.health {
            Some(rules) => found(rules, Health::Unknown, &scope)?,
            None => by_kstatus(object),
        };
        let good = apply.state == ApplyState::Applied && health.state == Health::Current;
        let (own_reason, own_message) = match apply.state {
            ApplyState::Applied => (health.reason, health.message),
            _ => (apply.reason, apply.message),
        };
        let reason = match own_reason {
            _ if good => None,
            Some(reason) => Some(reason),
            None => {
                let from_object = text(&program.reason, &scope, MAX_REASON)?.map(Arc::from);
                Some(from_object.unwrap_or_else(|| match apply.state {
                    ApplyState::Applied => Arc::from(health.state.name()),
                    state => Arc::from(state.name()),
                }))
            }
        };
        let message = match own_message {
            Some(message) => Some(message),
            None => text(&program.message, &scope, MAX_MESSAGE)?,
        };
        let since = match &program.since {
            Some(since) => since.time(&scope)?,
            None => None,
        };
        let inventory = match &program.inventory {
            Some(counts) => Some(Inventory {
                total: counts.total.count(&scope)?,
                current: counts.current.count(&scope)?,
                failed: counts.failed.count(&scope)?,
            }),
            None => None,
        };
        let hold = match &program.hold {
            Some(hold) => {
                Some(Hold { undecided: hold.when.truth(&scope)?, key: HoldKey(hold.key.hash_of(&scope)?) })
            }
            None => None,
        };
        let worst_resource = if good { None } else { text(&program.worst_resource, &scope, MAX_MESSAGE)? };
        let fingerprint = |revisions: &[String]| Fingerprint::of_all(revisions.iter().map(String::as_str));
        let applied_fingerprint = fingerprint(&applied);
        let verdict = Verdict {
            apply: apply.state,
            health: health.state,
            desired: fingerprint(&desired),
            applied: applied_fingerprint,
            healthy: if good { applied_fingerprint } else { Fingerprint::NONE },
            reason,
            since,
            inventory,
        };
        let detail = Detail {
            message: message.unwrap_or_default(),
            worst_resource,
            desired_revision: joined(desired),
            attempted_revision: joined(attempted),
            applied_revision: joined(applied),
        };
        Ok(Evaluation { verdict, detail, hold, error: None })
    }
}

fn found<S: Copy>(rules: &[Rule<S>], otherwise: S, scope: &Scope<'_>) -> Result<Found<S>, EvaluationError> {
    Ok(match Rule::first(rules, scope)? {
        Some(rule) => Found { state: rule.state, reason: rule.reason(scope)?, message: rule.message(scope)? },
        None => Found { state: otherwise, reason: Some(Arc::from(NO_RULE_MATCHED)), message: None },
    })
}

fn by_kstatus(object: &Value) -> Found<Health> {
    let status = kstatus::compute(object);
    let words = |text: String| (!text.is_empty()).then_some(text);
    Found {
        state: status.health,
        reason: words(status.reason).map(Arc::from),
        message: words(status.message),
    }
}

fn revisions(expression: &Option<Expression>, scope: &Scope<'_>) -> Result<Vec<String>, EvaluationError> {
    expression.as_ref().map_or(Ok(Vec::new()), |e| e.revisions(scope))
}

fn text(
    expression: &Option<Expression>,
    scope: &Scope<'_>,
    limit: usize,
) -> Result<Option<String>, EvaluationError> {
    expression.as_ref().map_or(Ok(None), |e| e.text_of(scope, limit))
}

fn joined(revisions: Vec<String>) -> Option<String> {
    (!revisions.is_empty()).then(|| revisions.join(", "))
}
