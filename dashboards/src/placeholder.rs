//! Placeholders in templates: `<<alerts.PackageFailed.for>>` is a value, `<<health.Failed>>` a code of the contract.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use statusbridge_contract::{ApplyState, Health};

use crate::Values;

/// What placeholders stand for.
pub(crate) struct Placeholders(Value);

impl Placeholders {
    /// Those of these values and of the contract.
    pub(crate) fn new(values: &Values) -> Result<Self> {
        let mut all = values.json().clone();
        let own = all.as_object_mut().context("values are no object")?;
        let (cluster, team) = (values.text("/clusterLabel"), values.text("/teamLabel"));
        let by = if team.is_empty() { cluster.to_owned() } else { format!("{cluster}, {team}") };
        let team = if team.is_empty() { String::new() } else { format!("{team}, ") };
        let apply: Map<_, _> =
            ApplyState::ALL.iter().map(|s| (s.name().to_owned(), json!(s.code()))).collect();
        let health: Map<_, _> = Health::ALL.iter().map(|h| (h.name().to_owned(), json!(h.code()))).collect();
        own.extend([
            ("by".to_owned(), json!(by)),
            ("team".to_owned(), json!(team)),
            ("apply".to_owned(), Value::Object(apply)),
            ("health".to_owned(), Value::Object(health)),
        ]);
        Ok(Self(all))
    }

    /// Whether a value is a text that is not empty.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0[name].as_str().is_some_and(|text| !text.is_empty())
    }

    /// A text with all placeholders filled in.
    pub(crate) fn fill(&self, template: &str) -> Result<String> {
        let mut out = String::with_capacity(template.len());
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("<<") {
            let (name, after) = after.split_once(">>").with_context(|| format!("<<{after} has no end"))?;
            out.push_str(before);
            match self.0.pointer(&format!("/{}", name.replace('.', "/"))) {
                Some(Value::String(text)) => out.push_str(text),
                Some(Value::Number(number)) => out.push_str(&number.to_string()),
                _ => bail!("there is no value <<{name}>>"),
            }
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    /// The same in every text of a document.
    pub(crate) fn fill_json(&self, document: &mut Value) -> Result<()> {
        match document {
            Value::String(text) if text.contains("<<") => *text = self.fill(text)?,
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.fill_json(item))?,
            Value::Object(fields) => fields.values_mut().try_for_each(|field| self.fill_json(field))?,
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn values_and_codes_are_filled_in() {
        let plain = Placeholders::new(&Values::default().unwrap()).unwrap();
        assert_eq!(plain.fill("a == <<apply.Failed>> <<by>><<team>>!").unwrap(), "a == 6 cluster!");
        let team = Placeholders::new(&Values::with("{teamLabel: owner}").unwrap()).unwrap();
        assert_eq!(team.fill("<<by>> <<team>>").unwrap(), "cluster, owner owner, ");
        for wrong in ["<<health.Broken>>", "<<alerts>>", "<<by"] {
            assert!(plain.fill(wrong).is_err(), "{wrong}");
        }
    }
}
