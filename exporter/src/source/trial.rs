//! Trying out every expression of a source, whether its rule's turn would have come or not.

use serde_json::Value;
use statusbridge_contract::ApplyState;
use statusbridge_expression::{EvaluationError, Expression, MAX_MESSAGE, MAX_REASON, OBJECT, Scope};

use super::{
    join::{By, Related, RelatedObjects},
    program::{APPLY, InventoryProgram, Program, Source},
    rule::Rule,
};

/// Runs every expression, each in the way in which its outcome is used.
pub(super) fn try_all<'v>(
    source: &Source,
    object: &'v Value,
    related: &RelatedObjects<'v>,
) -> Result<(), EvaluationError> {
    let p = &source.program;
    let mut own = Scope::default();
    own.bind(OBJECT, object);
    p.filter.iter().try_for_each(|e| e.truth(&own).map(drop))?;
    for r in &source.related {
        r.expressions().try_for_each(|e| e.text_of(&own, MAX_REASON).map(drop))?;
    }
    let mut scope = source.scope(object, related)?;
    for revision in p.revisions() {
        revision.revisions(&scope)?;
    }
    try_rules(p.apply.as_deref().unwrap_or_default(), &scope)?;
    for state in ApplyState::ALL {
        scope.bind_text(APPLY, state.name());
        try_rules(p.health.as_deref().unwrap_or_default(), &scope)?;
        for text in p.texts() {
            text.text_of(&scope, MAX_MESSAGE)?;
        }
        if let Some(time) = &p.since {
            time.time(&scope)?;
        }
        if let Some(counts) = &p.inventory {
            counts.expressions().try_for_each(|e| e.count(&scope).map(drop))?;
        }
        if let Some(resources) = &p.resources {
            resources.try_all(&scope)?;
        }
        if let Some(hold) = &p.hold {
            hold.when.truth(&scope)?;
            hold.key.hash_of(&scope)?;
        }
    }
    Ok(())
}

fn try_rules<S: Copy>(rules: &[Rule<S>], scope: &Scope<'_>) -> Result<(), EvaluationError> {
    for rule in rules {
        if let Some(when) = &rule.when {
            when.truth(scope)?;
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
            By::Labels { namespace, labels } => ([None, namespace.as_deref(), None], &labels[..]),
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

impl InventoryProgram {
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        [&self.total, &self.current, &self.failed].into_iter()
    }
}
