//! Rules for apply and health.

use std::{str::FromStr, sync::Arc};

use jiff::SignedDuration;
use statusbridge_contract::{ApplyState, Health};
use statusbridge_expression::{Expression, MAX_MESSAGE, MAX_REASON};

use super::{
    super::{
        error::SourceProblem,
        format::{AfterDefinition, RuleDefinition, UnwatchedDefinition},
        reach::unreachable,
        rule::{After, HealthState, RESOURCES, Rule, Unwatched, Words},
    },
    Compiler,
};

/// Longest time that a rule may wait, in seconds: 30 days.
const LONGEST_AFTER: i64 = 30 * 24 * 3600;

impl Compiler<'_> {
    pub(super) fn apply(
        &self,
        rules: Vec<RuleDefinition>,
        variables: &[&str],
    ) -> Result<Vec<Rule<ApplyState>>, SourceProblem> {
        self.rules("spec.apply", rules, variables, |field, rule| {
            if rule.unwatched.is_some() {
                let message = format!("is for the state `{RESOURCES}` of health rules");
                return Err(self.wrong(&format!("{field}.unwatched"), message));
            }
            self.state(field, &rule.state, ApplyState::ALL, &[])
        })
    }

    pub(super) fn health(
        &self,
        rules: Vec<RuleDefinition>,
        watches: bool,
        variables: &[&str],
    ) -> Result<Vec<Rule<HealthState>>, SourceProblem> {
        self.rules("spec.health", rules, variables, |field, rule| {
            if watches && rule.state == RESOURCES {
                let Some(unwatched) = &rule.unwatched else {
                    let message =
                        format!("`{RESOURCES}` needs `unwatched`: what holds where they are not watched");
                    return Err(self.wrong(&format!("{field}.state"), message));
                };
                return self.unwatched(field, unwatched).map(HealthState::Resources);
            }
            if rule.unwatched.is_some() {
                let message = format!("stands beside the state `{}`: it is for `{RESOURCES}`", rule.state);
                return Err(self.wrong(&format!("{field}.unwatched"), message));
            }
            let also: &[&str] = if watches { &[RESOURCES] } else { &[] };
            self.state(field, &rule.state, Health::ALL, also).map(HealthState::Is)
        })
    }

    fn unwatched(&self, field: &str, d: &UnwatchedDefinition) -> Result<Unwatched, SourceProblem> {
        let field = format!("{field}.unwatched");
        Ok(Unwatched {
            health: self.state(&field, &d.state, Health::ALL, &[])?,
            reason: d.reason.as_ref().map(|word| self.reason(&field, word)).transpose()?,
            message: d.message.as_ref().map(|text| self.message(&field, text)).transpose()?,
        })
    }

    fn state<S: FromStr + Copy + ToString>(
        &self,
        field: &str,
        text: &str,
        states: &[S],
        also: &[&str],
    ) -> Result<S, SourceProblem> {
        text.parse().map_err(|_| {
            let mut known: Vec<String> = states.iter().map(S::to_string).collect();
            known.extend(also.iter().map(ToString::to_string));
            self.wrong(&format!("{field}.state"), format!("`{text}` is none of {}", known.join(", ")))
        })
    }

    fn rules<S>(
        &self,
        field: &str,
        rules: Vec<RuleDefinition>,
        variables: &[&str],
        state: impl Fn(&str, &RuleDefinition) -> Result<S, SourceProblem>,
    ) -> Result<Vec<Rule<S>>, SourceProblem> {
        if rules.is_empty() {
            return Err(self.wrong(field, "needs at least one rule"));
        }
        let mut compiled: Vec<Rule<S>> = Vec::new();
        for (i, rule) in rules.into_iter().enumerate() {
            let field = format!("{field}[{i}]");
            let state = state(&field, &rule)?;
            let optional = |name: &str, text: Option<&String>| {
                self.optional(&format!("{field}.{name}"), text, variables)
            };
            let reason_from = optional("reasonExpression", rule.reason_expression.as_ref())?;
            let reason = match (&rule.reason, reason_from) {
                (Some(_), Some(_)) => {
                    let message = "stands beside `reasonExpression`";
                    return Err(self.wrong(&format!("{field}.reason"), message));
                }
                (Some(word), None) => Some(Words::Fixed(self.reason(&field, word)?)),
                (None, from) => from.map(Box::new).map(Words::From),
            };
            let message_from = optional("messageExpression", rule.message_expression.as_ref())?;
            let message = match (&rule.message, message_from) {
                (Some(_), Some(_)) => {
                    let message = "stands beside `messageExpression`";
                    return Err(self.wrong(&format!("{field}.message"), message));
                }
                (Some(text), None) => Some(Words::Fixed(self.message(&field, text)?)),
                (None, from) => from.map(Box::new).map(Words::From),
            };
            let when = optional("whenExpression", rule.when_expression.as_ref())?;
            let after = rule.after.as_ref().map(|after| self.after(&field, after, variables)).transpose()?;
            compiled.push(Rule { when, after, state, reason, message });
        }
        // What holds only after some time covers nothing.
        let mut earlier: Vec<(usize, Option<&Expression>)> = Vec::new();
        for (i, rule) in compiled.iter().enumerate() {
            let field = format!("{field}[{i}]");
            if compiled.iter().take(i).any(Rule::always_holds) {
                let message = "is never reached: a rule before it has no `whenExpression`";
                return Err(self.wrong(&field, message));
            }
            if let Some(why) = unreachable(&earlier, rule.when.as_ref()) {
                self.warn(&field, format!("is never reached: {why}"));
            }
            if rule.after.is_none() {
                earlier.push((i, rule.when.as_ref()));
            }
        }
        Ok(compiled)
    }

    fn after(&self, field: &str, d: &AfterDefinition, variables: &[&str]) -> Result<After, SourceProblem> {
        let field = format!("{field}.after");
        let since = self.expression(&format!("{field}.sinceExpression"), &d.since_expression, variables)?;
        let duration: Option<SignedDuration> = d.duration.parse().ok();
        let whole = duration.filter(|duration| duration.subsec_nanos() == 0);
        match whole.map(|it| it.as_secs()).filter(|seconds| (1..=LONGEST_AFTER).contains(seconds)) {
            Some(seconds) => Ok(After { since, seconds }),
            None => {
                let message = format!(
                    "`{}` is no time of whole seconds from `1s` to `720h`, such as `10m`",
                    d.duration
                );
                Err(self.wrong(&format!("{field}.duration"), message))
            }
        }
    }

    fn reason(&self, field: &str, word: &str) -> Result<Arc<str>, SourceProblem> {
        if is_reason(word) {
            return Ok(Arc::from(word));
        }
        let message = format!("`{word}` is no CamelCase word; an expression belongs into `reasonExpression`");
        Err(self.wrong(&format!("{field}.reason"), message))
    }

    fn message(&self, field: &str, text: &str) -> Result<String, SourceProblem> {
        if text.len() > MAX_MESSAGE {
            let message = format!("is longer than {MAX_MESSAGE} bytes");
            return Err(self.wrong(&format!("{field}.message"), message));
        }
        Ok(text.to_owned())
    }
}

/// Whether a text is a word as conditions have them for a reason.
fn is_reason(text: &str) -> bool {
    text.len() <= MAX_REASON
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|b| b.is_ascii_alphanumeric())
}
