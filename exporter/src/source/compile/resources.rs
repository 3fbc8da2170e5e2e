//! What a source says of the objects that a package consists of.

use std::sync::Arc;

use statusbridge_expression::OBJECT;

use super::{
    super::{
        error::SourceProblem,
        format::{CountsDefinition, HealthRuleDefinition, WatchDefinition},
        kind::GroupKind,
        program::CountsProgram,
        resource_health::ResourceHealth,
        resource_program::{LabelledProgram, WatchProgram},
    },
    Compiler,
};

impl Compiler<'_> {
    pub(super) fn counts(
        &self,
        d: &CountsDefinition,
        variables: &[&str],
    ) -> Result<CountsProgram, SourceProblem> {
        let count = |name: &str, text: &str| {
            self.expression(&format!("spec.resources.counts.{name}"), text, variables)
        };
        Ok(CountsProgram {
            total: count("totalExpression", &d.total_expression)?,
            current: count("currentExpression", &d.current_expression)?,
            failed: count("failedExpression", &d.failed_expression)?,
        })
    }

    pub(super) fn watch(
        &self,
        d: WatchDefinition,
        variables: &[&str],
    ) -> Result<WatchProgram, SourceProblem> {
        let optional = |name: &str, text: Option<&String>| {
            self.optional(&format!("spec.resources.watch.{name}"), text, variables)
        };
        if d.references_expression.is_none() && d.labelled.is_none() {
            return Err(self.wrong("spec.resources.watch", "needs `referencesExpression` or `labelled`"));
        }
        let labelled = match d.labelled {
            None => None,
            Some(l) => {
                let part = |name: &str, text: &str| {
                    self.expression(&format!("spec.resources.watch.labelled.{name}"), text, variables)
                };
                Some(LabelledProgram {
                    label: part("labelExpression", &l.label_expression)?,
                    kinds: part("kindsExpression", &l.kinds_expression)?,
                })
            }
        };
        // Secrets are not read unless somebody says that they should be.
        let secrets = || vec![GroupKind { group: String::new(), kind: "Secret".to_owned() }];
        Ok(WatchProgram {
            enabled: d.enabled,
            when: optional("whenExpression", d.when_expression.as_ref())?,
            references: optional("referencesExpression", d.references_expression.as_ref())?,
            labelled,
            basis: optional("basisExpression", d.basis_expression.as_ref())?,
            ignore: d.ignore.unwrap_or_else(secrets),
        })
    }

    pub(super) fn resource_health(
        &self,
        rules: Vec<HealthRuleDefinition>,
        watches: bool,
    ) -> Result<Vec<Arc<ResourceHealth>>, SourceProblem> {
        if !rules.is_empty() && !watches {
            let message = "are for resources that are watched: say which these are in `watch`";
            return Err(self.wrong("spec.resources.healthRules", message));
        }
        let mut compiled: Vec<Arc<ResourceHealth>> = Vec::new();
        for (i, d) in rules.into_iter().enumerate() {
            let field = format!("spec.resources.healthRules[{i}]");
            if d.kind.is_empty() {
                return Err(self.wrong(&format!("{field}.kind"), "is empty"));
            }
            if compiled.iter().any(|other| other.is_of(&d.group, &d.kind)) {
                return Err(self.wrong(&field, format!("there is already a rule for the kind `{}`", d.kind)));
            }
            let optional = |name: &str, text: Option<&String>| {
                self.optional(&format!("{field}.{name}"), text, &[OBJECT])
            };
            let current = format!("{field}.currentExpression");
            compiled.push(Arc::new(ResourceHealth {
                in_progress: optional("inProgressExpression", d.in_progress_expression.as_ref())?,
                failed: optional("failedExpression", d.failed_expression.as_ref())?,
                current: self.expression(&current, &d.current_expression, &[OBJECT])?,
                of: GroupKind { group: d.group, kind: d.kind },
            }));
        }
        Ok(compiled)
    }
}
