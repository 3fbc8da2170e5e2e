//! A page of metrics that somebody else's server serves about itself. Only names, labels and values are looked at: such pages
//! have what an exporter's reader need not accept.

use anyhow::Result;

/// The text.
pub(super) struct Page {
    text: String,
}

impl Page {
    /// Reads the one of a server.
    pub(super) async fn read(http: &reqwest::Client, url: &str) -> Result<Self> {
        let answer = http.get(format!("{url}/metrics")).send().await?.error_for_status()?;
        Ok(Self { text: answer.text().await? })
    }

    /// The sum of all samples of a metric; 0 when there is none.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.samples(name).map(|(_, value)| value).sum()
    }

    /// The same of those whose label `type` is one of these.
    pub(super) fn sum_of(&self, name: &str, types: &[&str]) -> f64 {
        let types: Vec<String> = types.iter().map(|it| format!("type=\"{it}\"")).collect();
        let of = |labels: &str| types.iter().any(|it| labels.contains(it.as_str()));
        self.samples(name).filter(|(labels, _)| of(labels)).map(|(_, value)| value).sum()
    }

    /// Labels as they are written, and values.
    fn samples(&self, name: &str) -> impl Iterator<Item = (&str, f64)> {
        self.text.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
            let (labels, value) = rest.rsplit_once(' ')?;
            Some((labels, value.parse().ok()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_name_and_type() {
        let text = "# TYPE rows gauge\nrows{type=\"a\", path=\"x y\"} 1\nrows{type=\"b\"} 2e1\nrows_total 400\nsize 5\n";
        let page = Page { text: text.to_owned() };
        assert_eq!([page.sum("rows"), page.sum("size"), page.sum("none")], [21.0, 5.0, 0.0]);
        assert_eq!(page.sum_of("rows", &["b", "c"]), 20.0);
    }
}
