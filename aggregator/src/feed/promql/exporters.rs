//! The exporters in a backend: who they are, and how their samples are selected.

use std::fmt::Write as _;

use promql_parser::label::Matcher;
use statusbridge_api::PackageRef;
use statusbridge_contract::{Metric, label};
use statusbridge_core::fleet::IdentityLabels;

use super::trust::Trust;

/// Common beginning of every metric of the contract.
const PREFIX: &str = "statusbridge_";

/// Which streams of a backend are exporters', and where they bear their cluster's name.
#[derive(Debug, Clone, PartialEq)]
pub struct Exporters {
    /// The label by which the pipeline names the cluster.
    pub cluster_label: String,
    /// Who is believed.
    pub trust: Trust,
}

/// Where a package runs of which an exporter tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// In the exporter's own cluster.
    Own,
    /// In this other one.
    In(&'a str),
    /// In any other one.
    Elsewhere,
}

impl Exporters {
    /// Refuses labels that tell exporters from nobody: a cluster's name is given to all that is scraped in it.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), String> {
        match &self.trust {
            Trust::Matching(matchers) if !matchers.iter().any(|it| self.tells_apart(it)) => Err(format!(
                "`{}` holds for all that is scraped in a cluster: add a label and a value that only exporters bear",
                self.trust
            )),
            _ => Ok(()),
        }
    }

    /// Whether something that is scraped in a cluster can fail to match.
    fn tells_apart(&self, matcher: &Matcher) -> bool {
        matcher.name != self.cluster_label && !matcher.is_match("of nobody's target")
    }

    /// Selects samples of some metrics, of some clusters or of all.
    pub fn select<'a>(&self, metrics: &[Metric], clusters: impl IntoIterator<Item = &'a str>) -> String {
        self.with_labels(metrics, clusters, &[])
    }

    /// Selects every sample that the digests of some clusters attest, but for when they were rendered.
    pub fn attested<'a>(&self, clusters: impl IntoIterator<Item = &'a str>) -> String {
        let metrics: Vec<Metric> = Metric::ALL.iter().copied().filter(|m| m.in_state()).collect();
        self.select(&metrics, clusters)
    }

    /// The same of one cluster, only what it says of itself and of these other clusters.
    pub(crate) fn attested_of<'a>(&self, cluster: &str, others: impl IntoIterator<Item = &'a str>) -> String {
        let mut selector = self.attested([cluster]);
        selector.pop();
        // A label that is missing is empty.
        let _ = write!(selector, ",{}=~\"{}|\"}}", label::PACKAGE_CLUSTER, any_of(others));
        selector
    }

    /// Selects samples of one package by these metrics, as the exporters of some clusters or of all say.
    pub fn package<'a>(
        &self,
        metrics: &[Metric],
        clusters: impl IntoIterator<Item = &'a str>,
        labels: &IdentityLabels,
        package: &PackageRef,
        place: Place<'_>,
    ) -> String {
        let namespace = package.namespace.as_deref().unwrap_or_default();
        let identity = [
            (&*labels.name, &*package.name),
            (&*labels.namespace, namespace),
            (&*labels.source, &*package.source),
        ];
        let mut selector = self.with_labels(metrics, clusters, &identity);
        selector.pop();
        let (is, cluster) = match place {
            Place::Own => ("=", ""),
            Place::In(cluster) => ("=", cluster),
            Place::Elsewhere => ("!=", ""),
        };
        let _ = write!(selector, ",{}{is}{}}}", label::PACKAGE_CLUSTER, quoted(cluster));
        selector
    }

    /// Selects samples of one source by these metrics, in some clusters or in all.
    pub fn source<'a>(
        &self,
        metrics: &[Metric],
        clusters: impl IntoIterator<Item = &'a str>,
        labels: &IdentityLabels,
        source: &str,
    ) -> String {
        self.with_labels(metrics, clusters, &[(&labels.source, source)])
    }

    fn with_labels<'a>(
        &self,
        metrics: &[Metric],
        clusters: impl IntoIterator<Item = &'a str>,
        labels: &[(&str, &str)],
    ) -> String {
        let mut selector = format!("{{__name__=~\"{}\"{}", names(metrics), self.matchers(clusters));
        for (label, value) in labels {
            let _ = write!(selector, ",{label}={}", quoted(value));
        }
        selector.push('}');
        selector
    }

    /// What every selector has besides a name: matchers that tell exporters from others, each after a comma, and those
    /// of some clusters.
    pub fn matchers<'a>(&self, clusters: impl IntoIterator<Item = &'a str>) -> String {
        let mut matchers = String::new();
        let clusters = any_of(clusters);
        if !clusters.is_empty() {
            let _ = write!(matchers, ",{}=~\"{clusters}\"", self.cluster_label);
        }
        if self.trust != Trust::All {
            let _ = write!(matchers, ",{}", self.trust);
        }
        matchers
    }
}

/// A text as PromQL writes it.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    statusbridge_contract::sample::escape_label_value(&mut out, text);
    out.push('"');
    // Prometheus takes it for what is no UTF-8, wherever it stands in a query.
    out.replace('\u{fffd}', r"\ufffd")
}

fn names(metrics: &[Metric]) -> String {
    let rests: Vec<&str> = metrics.iter().filter_map(|m| m.name().strip_prefix(PREFIX)).collect();
    format!("{PREFIX}({})", rests.join("|"))
}

/// A regular expression, as it stands inside a PromQL string, that matches exactly these words.
pub(crate) fn any_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for (i, word) in words.into_iter().enumerate() {
        if i > 0 {
            out.push('|');
        }
        for c in word.chars() {
            match c {
                // RE2's special characters; each backslash is written twice inside a PromQL string.
                '\\' => out.push_str(r"\\\\"),
                '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => {
                    let _ = write!(out, r"\\{c}");
                }
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                '\u{fffd}' => out.push_str(r"\ufffd"),
                c => out.push(c),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exporters(trust: Trust) -> Exporters {
        Exporters { cluster_label: "cluster".into(), trust }
    }

    #[test]
    fn nobody_else_is_selected() {
        let exporters = exporters(r#"namespace="a\"b",job=~"x|y""#.parse().unwrap());
        assert_eq!(
            exporters.select(&[Metric::Digest], []),
            r#"{__name__=~"statusbridge_(digest)",namespace="a\"b",job=~"x|y"}"#
        );
        assert!(exporters.attested(["eu-1"]).ends_with(r#",cluster=~"eu-1",namespace="a\"b",job=~"x|y"}"#));
    }

    #[test]
    fn selectors_name_exactly_what_a_digest_covers() {
        insta::assert_snapshot!(
            exporters(Trust::All).attested(["eu-1", "us-1"]),
            @r#"{__name__=~"statusbridge_(package_healthy_revision|package_transition_timestamp_seconds|package_apply_state|package_health|package_applied_revision|package_desired_revision|package_reason|package_resources|package_resources_current|package_resources_failed|reason_info|source_up|source_packages|process_number)",cluster=~"eu-1|us-1"}"#
        );
    }

    #[test]
    fn a_package_is_asked_for_by_the_labels_that_it_arrives_with() {
        let labels = IdentityLabels {
            source: "package_source".into(),
            namespace: "package_namespace".into(),
            name: "exported_package".into(),
        };
        let package = PackageRef { source: "s".into(), namespace: None, name: "a\"b\\c\nd".into() };
        let select = |clusters: &[&str]| {
            let clusters = clusters.iter().copied();
            exporters(Trust::All).package(&[Metric::PackageHealth], clusters, &labels, &package, Place::Own)
        };
        assert_eq!(
            select(&["eu-1", "eu.2"]),
            r#"{__name__=~"statusbridge_(package_health)",cluster=~"eu-1|eu\\.2",exported_package="a\"b\\c\nd",package_namespace="",package_source="s",package_cluster=""}"#
        );
        assert!(!select(&[]).contains(",cluster="));
        let at =
            |place| exporters(Trust::All).package(&[Metric::PackageHealth], [], &labels, &package, place);
        assert!(at(Place::In("eu\"1")).ends_with(r#",package_cluster="eu\"1"}"#));
        assert!(at(Place::Elsewhere).ends_with(r#",package_cluster!=""}"#));
        assert_eq!(
            exporters(Trust::All).source(&[Metric::SourceUp], ["eu-1"], &labels, "s\""),
            r#"{__name__=~"statusbridge_(source_up)",cluster=~"eu-1",package_source="s\""}"#
        );
    }

    #[test]
    fn names_of_clusters_are_taken_literally() {
        assert_eq!(any_of(["a.b", "c|d", "e\"f\\g\u{fffd}"]), r#"a\\.b|c\\|d|e\"f\\\\g\ufffd"#);
    }
}
