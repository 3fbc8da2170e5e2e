//! Whom to believe: exporters are known by labels that the metrics pipeline gives them and nobody else.

use std::fmt;
use std::str::FromStr;

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{self, Expr};
use statusbridge_contract::label;

/// Longest text, in bytes.
const LONGEST: usize = 1_000;
/// Labels of a target whose value the owner of a pod often chooses: `job` is the name of a Service, or what a monitor's
/// `jobLabel` names.
const OFTEN_CHOSEN: [&str; 6] = ["job", "instance", "pod", "container", "service", "endpoint"];

/// Which streams of a backend are believed.
#[derive(Debug, Clone, PartialEq)]
pub enum Trust {
    /// All that speak the contract, whichever target says it.
    All,
    /// Those whose labels match each of these, of which there is one at least.
    Matching(Vec<Matcher>),
}

impl Trust {
    /// Whether all labels that it names, besides the one of the cluster, are such as a tenant often can choose for a pod
    /// that is scraped.
    pub fn is_weak(&self, cluster_label: &str) -> bool {
        let Self::Matching(matchers) = self else { return false };
        let names = || matchers.iter().map(|matcher| matcher.name.as_str());
        names().all(|name| name == cluster_label || OFTEN_CHOSEN.contains(&name))
    }
}

/// As PromQL's matchers; empty for all.
impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trust::Matching(matchers) = self else { return Ok(()) };
        for (i, matcher) in matchers.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{matcher}")?;
        }
        Ok(())
    }
}

impl FromStr for Trust {
    type Err = String;

    /// Reads matchers such as `namespace="statusbridge-system",job=~"statusbridge-.+"`.
    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = r#"namespace="statusbridge-system",job="statusbridge-exporter""#;
        if text.len() > LONGEST {
            return Err(format!("is longer than {LONGEST} bytes"));
        }
        let expected = || format!("write labels and values as PromQL does, for instance {EXAMPLE}");
        let parsed = parser::parse(&format!("{{{text}}}"));
        let selector = match parsed {
            Ok(Expr::VectorSelector(it)) if it.offset.is_none() && it.at.is_none() => it,
            Ok(_) => return Err(expected()),
            Err(error) => return Err(format!("{error}; {}", expected())),
        };
        if !selector.matchers.or_matchers.is_empty() {
            return Err("`or` is not understood here: name several values of one label with =~".to_owned());
        }
        let matchers = selector.matchers.matchers;
        matchers.iter().try_for_each(check)?;
        Ok(Trust::Matching(matchers))
    }
}

/// Refuses what tells exporters from nobody.
fn check(matcher: &Matcher) -> Result<(), String> {
    let Matcher { op, name, .. } = matcher;
    if !matches!(op, MatchOp::Equal | MatchOp::Re(_)) {
        return Err(format!(
            "`{matcher}` says whom not to believe, and believes everybody else: use = or =~"
        ));
    }
    if matcher.is_match("") {
        return Err(format!("`{matcher}` holds for whoever does not bear the label, too"));
    }
    if name == "__name__" || name.starts_with("exported_") || is_own(name) {
        return Err(format!(
            "`{name}` is a label that whoever is scraped can set: use one that the pipeline gives"
        ));
    }
    Ok(())
}

/// Whether exporters say it themselves.
fn is_own(name: &str) -> bool {
    label::ALL.iter().any(|(own, _)| *own == name)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(r#"namespace="statusbridge-system",job="statusbridge-exporter""#)]
    #[case(r#"namespace=~"a|b",job="it's \"so\"""#)]
    fn what_can_be_said_is_asked_for_as_it_was_written(#[case] text: &str) {
        assert_eq!(text.parse::<Trust>().unwrap().to_string(), text);
    }

    #[rstest]
    #[case(r#"job="statusbridge-exporter""#, true)]
    #[case(r#"job="statusbridge-exporter",service=~"s.*""#, true)]
    #[case(r#"namespace="statusbridge-system",job="statusbridge-exporter""#, false)]
    #[case(r#"cluster=~"eu-.+",job="statusbridge-exporter""#, true)]
    #[case(r#"tenant="platform""#, false)]
    fn what_tenants_choose_is_weak(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(text.parse::<Trust>().unwrap().is_weak("cluster"), expected);
        assert!(!Trust::All.is_weak("cluster"));
    }

    #[rstest]
    #[case::nothing("", "empty")]
    #[case::no_quotes("namespace=a", "for instance namespace=")]
    #[case::of_another_selector(r#"a="b"} or {c="d""#, "write labels and values")]
    #[case::of_another_time(r#"a="b"} offset 5m or {c="d""#, "write labels and values")]
    #[case::or(r#"a="b" or c="d""#, "with =~")]
    #[case::denial(r#"namespace!="tenants",job="a""#, "says whom not to believe")]
    #[case::denial_of_many(r#"namespace!~"tenants|others",job="a""#, "says whom not to believe")]
    #[case::absent(r#"namespace="",job="a""#, "does not bear the label")]
    #[case::absent_or_anything(r#"namespace=~".*",job="a""#, "does not bear the label")]
    #[case::name(r#"__name__="statusbridge_digest""#, "can set")]
    #[case::quoted_name(r#""statusbridge_digest",job="a""#, "can set")]
    #[case::own_label(r#"contract="2""#, "can set")]
    #[case::renamed_label(r#"exported_namespace="a""#, "can set")]
    fn what_tells_exporters_from_nobody_is_refused(#[case] text: &str, #[case] expected: &str) {
        let error = text.parse::<Trust>().unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
