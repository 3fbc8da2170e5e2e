//! A source's own way to tell the health of a kind of resource.

use serde_json::Value;
use statusbridge_contract::Health;
use statusbridge_expression::{EvaluationError, Expression, MAX_MESSAGE, OBJECT, Scope, cut};
use statusbridge_kstatus::Status;

use super::{footprint::Footprint, kind::GroupKind, projection::Projection};

/// One of `resources.healthRules` of a source. The expressions see the variable `object` only.
#[derive(Debug)]
pub(crate) struct ResourceHealth {
    pub(super) of: GroupKind,
    pub(super) in_progress: Option<Expression>,
    pub(super) failed: Option<Expression>,
    pub(super) current: Expression,
}

impl ResourceHealth {
    pub(super) fn is_of(&self, group: &str, kind: &str) -> bool {
        self.of.group == group && self.of.kind == kind
    }

    /// What the rules say, to tell whether others say the same.
    pub(crate) fn text(&self) -> String {
        let texts: Vec<&str> = self.expressions().map(Expression::text).collect();
        texts.join("\n")
    }

    /// What of an object is read.
    pub(crate) fn projection(&self) -> Projection {
        let mut footprint = Footprint::default();
        footprint.add_object(OBJECT);
        self.expressions().for_each(|expression| footprint.read(expression));
        let mut projection = footprint.projection(OBJECT);
        projection.field("status").field("observedGeneration").keep();
        projection
    }

    /// What they say of an object. Unknown where an expression fails.
    pub(crate) fn status(&self, object: &Value) -> Status {
        self.judge(object).unwrap_or_else(|error| {
            let message = cut(error.to_string(), MAX_MESSAGE);
            Status::new(Health::Unknown, statusbridge_contract::reason::EVALUATION_FAILED, message)
        })
    }

    fn judge(&self, object: &Value) -> Result<Status, EvaluationError> {
        let int = |part: &str, field: &str| object.get(part)?.get(field)?.as_i64();
        if object.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some()) {
            return Ok(Status::new(Health::Terminating, "Deleting", "it is being deleted"));
        }
        let observed = int("status", "observedGeneration");
        if observed.is_some() && observed != int("metadata", "generation") {
            let message = "its controller has not seen the newest generation";
            return Ok(Status::in_progress("LatestGenerationNotObserved", message));
        }
        let mut scope = Scope::default();
        scope.bind(OBJECT, object);
        let mut holds = |expression: &Option<Expression>| {
            expression.as_ref().map_or(Ok(false), |expression| expression.truth(&mut scope))
        };
        if holds(&self.in_progress)? {
            return Ok(Status::in_progress("HealthRule", "inProgressExpression is true"));
        }
        if holds(&self.failed)? {
            return Ok(Status::new(Health::Failed, "HealthRule", "failedExpression is true"));
        }
        if self.current.truth(&mut scope)? {
            return Ok(Status::current("currentExpression is true"));
        }
        Ok(Status::in_progress("HealthRule", "no expression is true"))
    }

    /// The expressions.
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.in_progress.iter().chain(&self.failed).chain([&self.current])
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn health(in_progress: Option<&str>, failed: Option<&str>) -> ResourceHealth {
        let compile = |text: &str| Expression::compile("f", text, &[OBJECT]).expect(text);
        ResourceHealth {
            of: GroupKind { group: "test.dev".into(), kind: "Thing".into() },
            in_progress: in_progress.map(compile),
            failed: failed.map(compile),
            current: compile("object.status.phase == 'Up'"),
        }
    }

    #[rstest]
    #[case(json!({"status": {"phase": "Up"}}), Health::Current, "")]
    #[case(json!({"status": {"phase": "Down"}}), Health::Failed, "HealthRule")]
    #[case(json!({"status": {"phase": "Up", "moving": true}}), Health::InProgress, "HealthRule")]
    #[case(json!({"status": {"phase": "Sideways"}}), Health::InProgress, "HealthRule")]
    #[case(json!({"status": {}}), Health::Unknown, "EvaluationFailed")]
    #[case(
        json!({"metadata": {"generation": 2}, "status": {"phase": "Up", "observedGeneration": 1}}),
        Health::InProgress,
        "LatestGenerationNotObserved"
    )]
    #[case(
        json!({"metadata": {"generation": 2}, "status": {"phase": "Up", "observedGeneration": 2}}),
        Health::Current,
        ""
    )]
    #[case(
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Up"}}),
        Health::Terminating,
        "Deleting"
    )]
    fn rules_tell_the_health(#[case] object: Value, #[case] expected: Health, #[case] reason: &str) {
        let health =
            health(Some("object.status.?moving.orValue(false)"), Some("object.status.phase == 'Down'"));
        let status = health.status(&object);
        assert_eq!((status.health, &*status.reason), (expected, reason), "{}", status.message);
        let lean = health.projection().project(&object);
        assert_eq!(health.status(&lean), status, "on the lean object");
    }
}
