//! Placeholders in templates: `<<alerts.PackageFailed.for>>` is a value, `<<health.Failed>>` a code of the contract, and
//! `<<each reason>>` a part of a dashboard's texts, in which `<<_>>` stands for what follows its name.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use statusbridge_contract::{ApplyState, Health};

use crate::values::Values;

/// Placeholders in one text are at most so many: parts name parts.
const MOST: usize = 10_000;

/// What placeholders stand for.
pub(crate) struct Placeholders {
    values: Value,
    parts: BTreeMap<String, String>,
}

impl Placeholders {
    /// Those of these values, of the contract and of these parts.
    pub(crate) fn new(values: &Values, parts: BTreeMap<String, String>) -> Result<Self> {
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
        Ok(Self { values: all, parts })
    }

    /// Whether a value is a text that is not empty.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values[name].as_str().is_some_and(|text| !text.is_empty())
    }

    /// A text with all placeholders filled in, the innermost first.
    pub(crate) fn fill(&self, template: &str) -> Result<String> {
        let mut text = template.to_owned();
        for _ in 0..MOST {
            let Some((inside, after)) = text.split_once(">>") else {
                ensure!(!text.contains("<<"), "a placeholder has no end: {text}");
                return Ok(text);
            };
            let (before, name) =
                inside.rsplit_once("<<").with_context(|| format!("{inside}>> has no beginning"))?;
            text = format!("{before}{}{after}", self.find(name)?);
        }
        bail!("{template} names itself")
    }

    fn find(&self, name: &str) -> Result<String> {
        let (part, rest) = name.split_once(' ').unwrap_or((name, ""));
        if let Some(text) = self.parts.get(part) {
            return Ok(text.replace("<<_>>", rest));
        }
        match self.values.pointer(&format!("/{}", name.replace('.', "/"))) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            _ => bail!("there is no value <<{name}>>"),
        }
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
        let parts = [("each", "max(<<_>>)"), ("state", "<<each <<_>>_state>> or 0"), ("ring", "<<ring>>")];
        let parts = parts.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let plain = Placeholders::new(&Values::default().unwrap(), parts).unwrap();
        assert_eq!(plain.fill("a == <<apply.Failed>> <<by>><<team>>!").unwrap(), "a == 6 cluster!");
        assert_eq!(
            plain.fill("(<<state apply>>) <<each <<by>>>>").unwrap(),
            "(max(apply_state) or 0) max(cluster)"
        );
        let team = Placeholders::new(&Values::with("{teamLabel: owner}").unwrap(), BTreeMap::new()).unwrap();
        assert_eq!(team.fill("<<by>> <<team>>").unwrap(), "cluster, owner owner, ");
        for wrong in ["<<health.Broken>>", "<<alerts>>", "<<by", "by>>", "<<ring>>"] {
            assert!(plain.fill(wrong).is_err(), "{wrong}");
        }
    }
}
