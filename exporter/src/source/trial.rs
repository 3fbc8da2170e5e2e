//! Trying out every expression of a source, whether its rule's turn would have come or not.

use serde_json::Value;
use statusbridge_contract::ApplyState;
use statusbridge_expression::{EvaluationError, Expression, MAX_MESSAGE, MAX_REASON, OBJECT, Scope};

use super::{
    join::{By, Related, RelatedObjects},
    program::{APPLY, CountsProgram, Program, Source},
    rule::Rule,
};

/// Runs every expression, each in the way in which its outcome is used.
pub(super) fn try_all<'v>(
    source: &'v Source,
    object: &'v Value,
    related: &RelatedObjects<'v>,
) -> Result<(), EvaluationError> {
    let p = &source.program;
    let mut own = Scope::default();
    own.bind(OBJECT, object);
    p.conditions.iter().try_for_each(|e| e.truth(&mut own).map(drop))?;
    source.identity(object)?;
    source.order(object)?;
    for r in &source.related {
        r.expressions().try_for_each(|e| e.text_of(&mut own, MAX_REASON).map(drop))?;
    }
    let mut scope = source.scope(object, related);
    for revision in p.revisions() {
        revision.revisions(&mut scope)?;
    }
    try_rules(p.apply.as_deref().unwrap_or_default(), &mut scope)?;
    for state in ApplyState::ALL {
        scope.bind_text(APPLY, state.name());
        try_rules(p.health.as_deref().unwrap_or_default(), &mut scope)?;
        for text in p.texts() {
            text.text_of(&mut scope, MAX_MESSAGE)?;
        }
        if let Some(time) = &p.since {
            time.time(&mut scope)?;
        }
        if let Some(counts) = &p.counts {
            counts.expressions().try_for_each(|e| e.count(&mut scope).map(drop))?;
        }
        if let Some(watch) = &p.watch {
            watch.try_all(&mut scope)?;
        }
        if let Some(hold) = &p.hold {
            hold.when.truth(&mut scope)?;
            hold.key.hash_of(&mut scope)?;
        }
    }
    Ok(())
}

fn try_rules<S>(rules: &[Rule<S>], scope: &mut Scope<'_>) -> Result<(), EvaluationError> {
    for rule in rules {
        if let Some(when) = &rule.when {
            when.truth(scope)?;
        }
        if let Some(after) = &rule.after {
            after.since.time(scope)?;
        }
        rule.reason(scope)?;
        rule.message(scope)?;
    }
    Ok(())
}

impl Related {
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let (options, labels) = match &self.by {
            By::Reference { kind, namespace, name } => {
                ([kind.as_deref(), namespace.as_deref(), Some(&**name)], &[][..])
            }
            By::Labels { kind, namespace, labels } => {
                ([kind.as_deref(), namespace.as_deref(), None], &labels[..])
            }
        };
        options.into_iter().flatten().chain(labels.iter().map(|(_, e)| e))
    }
}

impl Program {
    pub(super) fn revisions(&self) -> impl Iterator<Item = &Expression> {
        self.desired.iter().chain(&self.attempted).chain(&self.applied)
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &Expression> {
        self.reason.iter().chain(&self.message).chain(&self.worst_resource).chain(&self.operation)
    }
}

impl CountsProgram {
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        [&self.total, &self.current, &self.failed].into_iter()
    }
}
