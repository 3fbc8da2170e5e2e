//! Metrics as an OpenMetrics exposition shows them, one entry for each family.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// Stands for a value that a label may have, where there are any number of them.
pub(crate) const ANY: &str = "…";

/// What an exposition says of a metric.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Family {
    /// Name, of a counter with `_total`.
    pub(crate) name: String,
    /// Type.
    pub(crate) kind: String,
    /// What it says.
    pub(crate) help: String,
    /// Its labels, with all values that they have.
    pub(crate) labels: BTreeMap<String, Vec<String>>,
}

impl Family {
    /// Leaves out which values its labels have.
    pub(crate) fn any_label_value(&mut self) {
        self.labels.values_mut().for_each(|values| *values = vec![ANY.to_owned()]);
    }
}

/// Every metric of an exposition.
///
/// # Errors
/// When a metric has no help, no type or no sample: then nothing can be said of its labels.
pub(crate) fn read(exposition: &str) -> Result<Vec<Family>> {
    let mut families: Vec<Family> = Vec::new();
    let mut seen: Vec<usize> = Vec::new();
    for line in exposition.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').context("a help without text")?;
            let (name, help) = (name.to_owned(), help.trim_end_matches('.').to_owned());
            families.push(Family { name, help, kind: String::new(), labels: BTreeMap::new() });
            seen.push(0);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').context("a type without a word")?;
            let family = families.last_mut().with_context(|| format!("{name} has no help"))?;
            ensure!(family.name == name, "{name} has no help");
            family.kind = kind.to_owned();
            if kind == "counter" {
                family.name.push_str("_total");
            }
        } else if !line.starts_with('#') {
            let family = families.last_mut().with_context(|| format!("{line} belongs to nothing"))?;
            *seen.last_mut().context("a sample before any metric")? += 1;
            for (name, value) in labels(line) {
                // The bounds of a histogram are no label to know about.
                if name == "le" && family.kind == "histogram" {
                    continue;
                }
                let values = family.labels.entry(name.to_owned()).or_default();
                if !values.iter().any(|known| known == value) {
                    values.push(value.to_owned());
                }
            }
        }
    }
    for (family, samples) in families.iter().zip(seen) {
        ensure!(samples > 0, "{} has no sample", family.name);
        ensure!(!family.kind.is_empty() && !family.help.is_empty(), "{} is not described", family.name);
    }
    // They come in no order.
    families.iter_mut().flat_map(|family| family.labels.values_mut()).for_each(|values| values.sort());
    families.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(families)
}

/// The labels of a sample. None of our values has a quotation mark or a comma in it.
fn labels(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let inside =
        line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(inside, _)| inside);
    inside.split(',').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((name, value.trim_matches('"')))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_types_and_labels_are_read() {
        let text = "# HELP a_polls Polls.\n# TYPE a_polls counter\na_polls_total{result=\"ok\"} 1\n\
                    a_polls_total{result=\"bad\"} 0\n# HELP b_seconds Time.\n# TYPE b_seconds histogram\n\
                    b_seconds_bucket{le=\"1\"} 3\n# EOF\n";
        let families = read(text).unwrap();
        assert_eq!((families[0].name.as_str(), families[0].kind.as_str()), ("a_polls_total", "counter"));
        assert_eq!(families[0].help, "Polls");
        assert_eq!(families[0].labels["result"], ["bad", "ok"]);
        assert!(families[1].labels.is_empty());
    }

    #[test]
    fn a_metric_without_samples_is_not_passed_over() {
        assert!(read("# HELP a Something.\n# TYPE a gauge\n# EOF\n").is_err());
    }
}
