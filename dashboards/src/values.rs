//! What differs from one platform to another.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The values that ship.
const DEFAULTS: &str = include_str!("../values.yaml");

/// The values of `values.yaml`, some of them changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Values(Value);

impl Values {
    /// The values that ship.
    ///
    /// # Errors
    /// Never, unless the file in the repository is broken.
    #[allow(clippy::should_implement_trait, reason = "it can fail")]
    pub fn default() -> Result<Self> {
        let values = Self(serde_saphyr::from_str(DEFAULTS).context("values.yaml")?);
        values.check()?;
        Ok(values)
    }

    /// The values that ship, changed by those in a YAML text.
    ///
    /// # Errors
    /// When the text is no YAML, or names a value that there is none of.
    pub fn with(text: &str) -> Result<Self> {
        let mut values = Self::default()?;
        merge(&mut values.0, serde_saphyr::from_str(text)?, "")?;
        values.check()?;
        Ok(values)
    }

    /// All of them.
    pub fn json(&self) -> &Value {
        &self.0
    }

    /// A value that is text; empty when there is none.
    pub fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// These stand in expressions.
    fn check(&self) -> Result<()> {
        let label = |name: &str| {
            let rest = name.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '_');
            rest.len() < name.len() && rest.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let (cluster, team) = (self.text("/clusterLabel"), self.text("/teamLabel"));
        ensure!(label(cluster), "clusterLabel {cluster:?} is not the name of a label");
        ensure!(team.is_empty() || label(team), "teamLabel {team:?} is not the name of a label");
        Ok(())
    }
}

/// Puts `other` over `values`. What is of another shape is a mistake.
fn merge(values: &mut Value, other: Value, path: &str) -> Result<()> {
    match (values, other) {
        (Value::Object(values), Value::Object(other)) => {
            for (name, value) in other {
                let path = format!("{path}/{name}");
                let Some(old) = values.get_mut(&name) else { bail!("there is no value {path}") };
                merge(old, value, &path)?;
            }
        }
        (old @ Value::String(_), new @ Value::String(_))
        | (old @ Value::Number(_), new @ Value::Number(_)) => {
            *old = new;
        }
        (old, new) => bail!("{path}: {new} does not suit, the default is {old}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn some_values_are_changed_and_the_others_stay() {
        let values = Values::with("{clusterLabel: k8s, alerts: {PackageFailed: {for: 1h}}}").unwrap();
        assert_eq!(values.text("/clusterLabel"), "k8s");
        assert_eq!(values.text("/alerts/PackageFailed/for"), "1h");
        assert_eq!(values.text("/alerts/PackageFailed/severity"), "warning");
        assert_eq!(values.text("/alerts/ApplyStuck/for"), "30m");
    }

    #[test]
    fn what_is_misspelt_is_refused() {
        for wrong in [
            "{clusterlabel: k8s}",
            "{alerts: {PackageFailed: 1h}}",
            "{alerts: {PackageFailed: {for: 3}}}",
            "{clusterLabel: a-b}",
            "{clusterLabel: \"\"}",
        ] {
            assert!(Values::with(wrong).is_err(), "{wrong}");
        }
    }
}
