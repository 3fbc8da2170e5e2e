//! From an object to a verdict.

use std::sync::Arc;

use serde_json::Value;
use statusbridge_contract::{ApplyState, Fingerprint, Health, reason};
use statusbridge_expression::{EvaluationError, Expression, MAX_MESSAGE, MAX_REASON, Scope};
use statusbridge_kstatus as kstatus;

use super::{
    join::RelatedObjects,
    program::{APPLY, Source},
    resources::{ResourceSet, ResourceSummary},
    rule::{HealthState, Rule, Time},
    verdict::{Counts, Detail, Evaluation, Hold, HoldKey, Verdict},
};

/// Reason of a package to which none of its source's rules applies.
pub(crate) const NO_RULE_MATCHED: &str = "NoRuleMatched";

/// A state with what is said about it.
struct Found<S> {
    state: S,
    reason: Option<Arc<str>>,
    message: Option<String>,
}

impl Source {
    /// The state of a package at a time in unix seconds, when nothing is known of the objects that it consists of.
    pub fn evaluate<'v>(&'v self, object: &'v Value, related: &RelatedObjects<'v>, now: i64) -> Evaluation {
        self.evaluate_with(object, related, now, &mut |_| ResourceSummary::default())
    }

    /// The state of a package at a time in unix seconds; `look` is asked what the objects say that it consists of, where they
    /// are to be looked at. Pure, and total: where an expression fails, everything is Unknown,
    /// the reason is `EvaluationFailed`, and the error says which expression it was.
    pub(crate) fn evaluate_with<'v>(
        &'v self,
        object: &'v Value,
        related: &RelatedObjects<'v>,
        now: i64,
        look: &mut dyn FnMut(ResourceSet) -> ResourceSummary,
    ) -> Evaluation {
        self.try_evaluate(object, related, now, look).unwrap_or_else(|error| self.failure(error))
    }

    /// The state of a package that several objects claim to be; `rivals` names them.
    pub(crate) fn conflict(&self, rivals: &str) -> Evaluation {
        let detail =
            Detail { message: format!("several objects are this package: {rivals}"), ..Detail::default() };
        Evaluation {
            verdict: self.unknown(reason::IDENTITY_CONFLICT),
            detail,
            hold: None,
            again: None,
            error: None,
        }
    }

    fn failure(&self, error: EvaluationError) -> Evaluation {
        let detail = Detail { message: error.to_string(), ..Detail::default() };
        Evaluation {
            verdict: self.unknown(reason::EVALUATION_FAILED),
            detail,
            hold: None,
            again: None,
            error: Some(error),
        }
    }

    fn unknown(&self, reason: &str) -> Verdict {
        Verdict {
            apply: ApplyState::Unknown,
            health: Health::Unknown,
            desired: Fingerprint::NONE,
            applied: Fingerprint::NONE,
            healthy: Fingerprint::NONE,
            reason: Some(Arc::from(reason)),
            since: None,
            resources: self.counts_resources().then(Counts::default),
        }
    }

    fn try_evaluate<'v>(
        &'v self,
        object: &'v Value,
        related: &RelatedObjects<'v>,
        now: i64,
        look: &mut dyn FnMut(ResourceSet) -> ResourceSummary,
    ) -> Result<Evaluation, EvaluationError> {
        let program = &self.program;
        // Objects of another cluster are not to be found in this one.
        let is_here = self.identity(object)?.cluster.is_none();
        self.order(object)?;
        let mut scope = self.scope(object, related);
        let mut time = Time { now, next: None };
        let desired = revisions(&program.desired, &mut scope)?;
        let attempted = revisions(&program.attempted, &mut scope)?;
        let applied = revisions(&program.applied, &mut scope)?;
        let apply = match &program.apply {
            Some(rules) => match Rule::first(rules, &mut scope, &mut time)? {
                Some(rule) => found(rule.state, rule, &mut scope)?,
                None => Found::no_rule(ApplyState::Unknown),
            },
            None => {
                let (state, status) = kstatus::apply_of_package(object);
                Found::by_kstatus(state, status)
            }
        };
        let applied = match &program.apply {
            // All that says that this revision is in is that everything is.
            None if apply.state != ApplyState::Applied => Vec::new(),
            _ => applied,
        };
        scope.bind_text(APPLY, apply.state.name());
        let fingerprint = |revisions: &[String]| Fingerprint::of_all(revisions.iter().map(String::as_str));
        let applied_fingerprint = fingerprint(&applied);
        let resources = match &program.watch {
            Some(watch) if is_here => {
                let generation = object.get("metadata").and_then(|m| m.get("generation")?.as_i64());
                let about = (applied_fingerprint.value(), generation);
                watch.set(&mut scope, apply.state == ApplyState::Applied, about)?.map(look)
            }
            _ => None,
        };
        let health = match &program.health {
            Some(rules) => health(rules, resources.as_ref(), &mut scope, &mut time)?,
            None => {
                let status = kstatus::of_package(object);
                Found::by_kstatus(status.health, status)
            }
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
                let from_object = text(&program.reason, &mut scope, MAX_REASON)?.map(Arc::from);
                Some(from_object.unwrap_or_else(|| match apply.state {
                    ApplyState::Applied => Arc::from(health.state.name()),
                    state => Arc::from(state.name()),
                }))
            }
        };
        let message = match own_message {
            Some(message) => Some(message),
            None => text(&program.message, &mut scope, MAX_MESSAGE)?,
        };
        let since = match &program.since {
            Some(since) => since.time(&mut scope)?,
            None => None,
        };
        let counts = match &program.counts {
            Some(counts) => Some(Counts {
                total: counts.total.count(&mut scope)?,
                current: counts.current.count(&mut scope)?,
                failed: counts.failed.count(&mut scope)?,
            }),
            None if self.watches_resources() => {
                Some(resources.as_ref().map(|resources| resources.counts).unwrap_or_default())
            }
            None => None,
        };
        let hold = match &program.hold {
            Some(hold) => {
                // What becomes of the resources is news, whatever the controller is busy with.
                let resources = resources.as_ref().map(|l| (l.health.code(), l.reason));
                let key = HoldKey::of((hold.key.hash_of(&mut scope)?, resources));
                Some(Hold { undecided: hold.when.truth(&mut scope)?, key })
            }
            None => None,
        };
        let worst_resource = match resources.and_then(|l| l.worst) {
            _ if good => None,
            Some(worst) => Some(worst),
            None => text(&program.worst_resource, &mut scope, MAX_MESSAGE)?,
        };
        let verdict = Verdict {
            apply: apply.state,
            health: health.state,
            desired: fingerprint(&desired),
            applied: applied_fingerprint,
            healthy: if good { applied_fingerprint } else { Fingerprint::NONE },
            reason,
            since,
            resources: counts,
        };
        let detail = Detail {
            message: message.unwrap_or_default(),
            worst_resource,
            operation: text(&program.operation, &mut scope, MAX_MESSAGE)?,
            desired_revision: joined(desired),
            attempted_revision: joined(attempted),
            applied_revision: joined(applied),
        };
        Ok(Evaluation { verdict, detail, hold, again: time.next, error: None })
    }
}

impl<S> Found<S> {
    fn no_rule(state: S) -> Self {
        Self { state, reason: Some(Arc::from(NO_RULE_MATCHED)), message: None }
    }

    fn by_kstatus(state: S, status: kstatus::Status) -> Self {
        let words = |text: String| (!text.is_empty()).then_some(text);
        Self { state, reason: words(status.reason).map(Arc::from), message: words(status.message) }
    }
}

/// What a rule that holds says, beside its state.
fn found<S, R>(state: S, rule: &Rule<R>, scope: &mut Scope<'_>) -> Result<Found<S>, EvaluationError> {
    Ok(Found { state, reason: rule.reason(scope)?, message: rule.message(scope)? })
}

fn health(
    rules: &[Rule<HealthState>],
    resources: Option<&ResourceSummary>,
    scope: &mut Scope<'_>,
    time: &mut Time,
) -> Result<Found<Health>, EvaluationError> {
    let Some(rule) = Rule::first(rules, scope, time)? else { return Ok(Found::no_rule(Health::Unknown)) };
    match (&rule.state, resources) {
        (HealthState::Is(health), _) => found(*health, rule, scope),
        (HealthState::Resources(unwatched), None) => Ok(Found {
            state: unwatched.health,
            reason: unwatched.reason.clone(),
            message: unwatched.message.clone(),
        }),
        (HealthState::Resources(_), Some(resources)) => {
            let own = found(resources.health, rule, scope)?;
            let reason = (!resources.reason.is_empty()).then(|| Arc::from(resources.reason));
            Ok(Found {
                reason: own.reason.or(reason),
                message: own.message.or(resources.worst.clone()),
                ..own
            })
        }
    }
}

fn revisions(expression: &Option<Expression>, scope: &mut Scope<'_>) -> Result<Vec<String>, EvaluationError> {
    expression.as_ref().map_or(Ok(Vec::new()), |e| e.revisions(scope))
}

fn text(
    expression: &Option<Expression>,
    scope: &mut Scope<'_>,
    limit: usize,
) -> Result<Option<String>, EvaluationError> {
    expression.as_ref().map_or(Ok(None), |e| e.text_of(scope, limit))
}

fn joined(revisions: Vec<String>) -> Option<String> {
    (!revisions.is_empty()).then(|| revisions.join(", "))
}
