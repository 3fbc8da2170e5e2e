//! Queries that are written once in the configuration and filled in by gates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use regex::Regex;
use serde::Deserialize;
use statusbridge_api::check::Check;

/// Placeholder for the gate's namespace.
const NAMESPACE: &str = "namespace";
/// Placeholder for a regular expression that matches the names of the gate's clusters and nothing else.
const CLUSTERS: &str = "clusters";
/// Placeholders that no parameter fills in.
const BOUND: [&str; 2] = [NAMESPACE, CLUSTERS];
/// Longest regular expression for a gate's clusters, in bytes: about a thousand of them.
const MAX_CLUSTERS: usize = 16 * 1024;
/// Matches nothing, not even a label that is not there.
const NO_CLUSTER: &str = "$.";

/// What a parameter's value must look like unless the template says otherwise.
const PATTERN: &str = "[a-zA-Z0-9_.:/-]{1,253}";

/// Templates by name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Templates(BTreeMap<String, Template>);

/// PromQL with `{{placeholders}}`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
pub(crate) struct Template {
    parts: Vec<Part>,
    parameters: BTreeMap<String, Pattern>,
}

#[derive(Debug, Clone, PartialEq)]
struct Part {
    text: String,
    /// Comes after the text, but for the last part.
    parameter: Option<String>,
}

/// A regular expression for a whole value.
#[derive(Debug, Clone)]
struct Pattern {
    text: String,
    whole: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// A template as it stands in the configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    query: String,
    #[serde(default)]
    parameters: BTreeMap<String, Option<Parameter>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameter {
    pattern: Option<String>,
}

/// What is wrong with a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadTemplate {
    /// A `{{` without a name and `}}` after it.
    #[error("`{{{{` must be followed by the name of a parameter and `}}}}`")]
    Open,
    /// A placeholder that is not among the parameters.
    #[error("`{{{{{0}}}}}` is not among the parameters")]
    Undeclared(String),
    /// A parameter with the name of what the aggregator fills in.
    #[error("`{0}` cannot be a parameter: the aggregator fills in `{{{{{0}}}}}` itself")]
    Bound(String),
    /// A parameter without a placeholder.
    #[error("parameter `{0}` does not occur in the query")]
    Unused(String),
    /// A pattern that is not a regular expression.
    #[error("pattern of parameter `{0}`: {1}")]
    Pattern(String, String),
}

impl TryFrom<Written> for Template {
    type Error = BadTemplate;

    fn try_from(written: Written) -> Result<Self, BadTemplate> {
        let parts = parts(&written.query)?;
        let used: BTreeSet<&str> = parts.iter().filter_map(|part| part.parameter.as_deref()).collect();
        if let Some(name) = BOUND.into_iter().find(|name| written.parameters.contains_key(*name)) {
            return Err(BadTemplate::Bound(name.to_owned()));
        }
        let is_filled = |name: &str| BOUND.contains(&name) || written.parameters.contains_key(name);
        if let Some(name) = used.iter().find(|name| !is_filled(name)) {
            return Err(BadTemplate::Undeclared((*name).to_owned()));
        }
        if let Some(name) = written.parameters.keys().find(|name| !used.contains(name.as_str())) {
            return Err(BadTemplate::Unused(name.clone()));
        }
        let parameters = written
            .parameters
            .into_iter()
            .map(|(name, parameter)| {
                let text = parameter.and_then(|it| it.pattern).unwrap_or_else(|| PATTERN.to_owned());
                match Regex::new(&format!("^(?:{text})$")) {
                    Ok(whole) => Ok((name, Pattern { text, whole })),
                    Err(error) => Err(BadTemplate::Pattern(name, error.to_string())),
                }
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { parts, parameters })
    }
}

fn parts(query: &str) -> Result<Vec<Part>, BadTemplate> {
    let mut parts = Vec::new();
    let mut rest = query;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").ok_or(BadTemplate::Open)?;
        let name = name.trim();
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(BadTemplate::Open);
        }
        parts.push(Part { text: before.to_owned(), parameter: Some(name.to_owned()) });
        rest = after;
    }
    parts.push(Part { text: rest.to_owned(), parameter: None });
    Ok(parts)
}

/// Why a check has no query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// It must have exactly one of both.
    #[error("exactly one of query and template must be set")]
    QueryOrTemplate,
    /// There is no template of this name.
    #[error("there is no template {0:?}")]
    NoTemplate(String),
    /// The template has no parameter of this name.
    #[error("template {0:?} has no parameter {1:?}")]
    UnknownParameter(String, String),
    /// The check gives what only the aggregator fills in.
    #[error("parameter {0:?} cannot be set: the aggregator fills in `{{{{{0}}}}}` itself")]
    BoundParameter(String),
    /// The gate has more clusters than can be asked about by name.
    #[error(
        "the names of {clusters} clusters are too long for `{{{{clusters}}}}` of template {template:?}, \
         which takes {MAX_CLUSTERS} bytes: split the gate, or use a template without it"
    )]
    TooManyClusters {
        /// The template.
        template: String,
        /// How many clusters the gate has.
        clusters: usize,
    },
    /// The template has a parameter that the check does not give.
    #[error("template {0:?} needs parameter {1:?}")]
    MissingParameter(String, String),
    /// A value that the template does not allow.
    #[error("parameter {parameter:?} of template {template:?} must match {pattern}")]
    BadValue {
        /// The template.
        template: String,
        /// The parameter.
        parameter: String,
        /// What it must look like as a whole.
        pattern: String,
    },
}

/// The gate that a template is filled in for.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// The names of its clusters.
    pub clusters: &'a [&'a str],
}

/// The query of a check: its own, or its template's filled in.
pub fn resolve(check: &Check, templates: &Templates, gate: Asking<'_>) -> Result<String, Unresolved> {
    match (&check.query, &check.template) {
        (Some(query), None) if check.parameters.is_empty() => Ok(query.clone()),
        (None, Some(name)) => match templates.0.get(name) {
            Some(template) => template.fill(name, &check.parameters, gate),
            None => Err(Unresolved::NoTemplate(name.clone())),
        },
        _ => Err(Unresolved::QueryOrTemplate),
    }
}

impl Template {
    fn fill(
        &self,
        own: &str,
        values: &BTreeMap<String, String>,
        gate: Asking<'_>,
    ) -> Result<String, Unresolved> {
        if let Some(bound) = BOUND.into_iter().find(|name| values.contains_key(*name)) {
            return Err(Unresolved::BoundParameter(bound.to_owned()));
        }
        if let Some(unknown) = values.keys().find(|name| !self.parameters.contains_key(*name)) {
            return Err(Unresolved::UnknownParameter(own.to_owned(), unknown.clone()));
        }
        for (name, pattern) in &self.parameters {
            match values.get(name) {
                None => return Err(Unresolved::MissingParameter(own.to_owned(), name.clone())),
                Some(value) if !pattern.whole.is_match(value) => {
                    let (template, parameter) = (own.to_owned(), name.clone());
                    return Err(Unresolved::BadValue { template, parameter, pattern: pattern.text.clone() });
                }
                Some(_) => {}
            }
        }
        let mut query = String::new();
        for Part { text, parameter } in &self.parts {
            query.push_str(text);
            match parameter.as_deref() {
                Some(NAMESPACE) => escape(gate.namespace, &mut query),
                Some(CLUSTERS) => escape(&gate.clusters(own)?, &mut query),
                Some(name) => values.get(name).into_iter().for_each(|value| escape(value, &mut query)),
                None => {}
            }
        }
        Ok(query)
    }
}

impl Asking<'_> {
    /// A regular expression that matches the names of its clusters and nothing else.
    fn clusters(&self, template: &str) -> Result<String, Unresolved> {
        let all: Vec<String> = self.clusters.iter().map(|name| literal(name)).collect();
        let all = if all.is_empty() { NO_CLUSTER.to_owned() } else { all.join("|") };
        if all.len() > MAX_CLUSTERS {
            let template = template.to_owned();
            return Err(Unresolved::TooManyClusters { template, clusters: self.clusters.len() });
        }
        Ok(all)
    }
}

/// A regular expression for a text as it is. Without a backslash where there is another way, which needs no
/// escaping within a PromQL string and is easier to read.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        // Writing to a string does not fail.
        let _ = match c {
            '^' | '\\' => write!(pattern, "\\x{:02x}", u32::from(c)),
            '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '$' => write!(pattern, "[{c}]"),
            c => write!(pattern, "{c}"),
        };
    }
    pattern
}

/// Writes a value so that it stays within the PromQL string that it stands in, whichever quotes
/// that has.
fn escape(value: &str, query: &mut String) {
    for c in value.chars() {
        match c {
            '"' | '\'' | '`' | '\\' | '\0'..='\x1f' | '\x7f' => {
                // Writing to a string does not fail.
                let _ = write!(query, "\\x{:02x}", u32::from(c));
            }
            c => query.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn templates(yaml: &str) -> Result<Templates, String> {
        serde_saphyr::from_str(yaml).map_err(|error| error.to_string())
    }

    fn check(template: &str, parameters: &[(&str, &str)]) -> Check {
        let parameters: serde_json::Map<_, _> =
            parameters.iter().map(|(n, v)| ((*n).to_owned(), (*v).into())).collect();
        serde_json::from_value(
            serde_json::json!({"name": "x", "template": template, "parameters": parameters, "max": 1}),
        )
        .unwrap()
    }

    fn resolve(check: &Check, templates: &Templates) -> Result<String, Unresolved> {
        super::resolve(check, templates, Asking { namespace: "team-a", clusters: &["c1"] })
    }

    fn filled(query: &str, namespace: &str, clusters: &[&str]) -> Result<String, Unresolved> {
        let templates = templates(&format!("bound: {{query: {query:?}}}")).unwrap();
        super::resolve(&check("bound", &[]), &templates, Asking { namespace, clusters })
    }

    #[rstest]
    #[case::one("eu-1", &["eu-1"])]
    #[case::several("eu-1|eu-2|us_1", &["eu-1", "eu-2", "us_1"])]
    #[case::a_dot_is_no_wildcard("prod[.]eu", &["prod.eu"])]
    #[case::whatever_means_something("a[+]b[*]c[?]d[(]e[)]f[|]g[[]h[]]i[{]j[}]k[$]", &["a+b*c?d(e)f|g[h]i{j}k$"])]
    #[case::what_needs_a_backslash(r"a\x5cx5eb\x5cx5cc", &[r"a^b\c"])]
    #[case::quotes(r"\x22 or up\x27\x60\x0a", &["\" or up'`\n"])]
    #[case::none("$.", &[])]
    fn the_clusters_of_a_gate_are_matched_and_no_others(#[case] pattern: &str, #[case] clusters: &[&str]) {
        let query = filled(r#"up{cluster=~"{{clusters}}",ns="{{ namespace }}"}"#, "team-a", clusters);
        assert_eq!(query.unwrap(), format!(r#"up{{cluster=~"{pattern}",ns="team-a"}}"#));
    }

    #[test]
    fn more_clusters_than_a_query_can_name_are_refused() {
        let names: Vec<String> = (0..1000).map(|n| format!("cluster-{n:07}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let query = r#"up{cluster=~"{{clusters}}"}"#;
        assert!(filled(query, "a", &names).is_ok());
        let more = [&names[..], &names[..]].concat();
        let error = filled(query, "a", &more).unwrap_err().to_string();
        assert_eq!(
            error,
            "the names of 2000 clusters are too long for `{{clusters}}` of template \"bound\", which takes \
             16384 bytes: split the gate, or use a template without it"
        );
        assert!(filled("up", "a", &more).is_ok(), "it does not name them");
        let longest = "c".repeat(MAX_CLUSTERS);
        assert!(filled(query, "a", &[&longest]).is_ok());
        assert!(filled(query, "a", &[&(longest.clone() + "c")]).is_err());
    }

    #[rstest]
    #[case::a_gate_sets_the_namespace("namespace")]
    #[case::a_gate_sets_the_clusters("clusters")]
    fn what_is_bound_cannot_be_set(#[case] name: &str) {
        let bound = templates(r#"a: {query: 'up{a="{{namespace}}",b=~"{{clusters}}"}'}"#).unwrap();
        for (template, templates) in [("a", bound), ("errors", templates(TWO).unwrap())] {
            let error = resolve(&check(template, &[(name, ".*")]), &templates).unwrap_err();
            assert_eq!(error, Unresolved::BoundParameter(name.to_owned()));
            let expected =
                format!("parameter {name:?} cannot be set: the aggregator fills in `{{{{{name}}}}}` itself");
            assert_eq!(error.to_string(), expected);
        }
    }

    const TWO: &str = r#"
errors:
  query: rate(errors{job="{{job}}"}[5m]) / rate(all{job="{{ job }}"}[{{range}}])
  parameters:
    job:
    range: {pattern: "[0-9]+[smh]"}
anything:
  query: up{job='{{job}}'}
  parameters: {job: {pattern: "(?s).*"}}
"#;

    #[test]
    fn placeholders_are_filled_in() {
        let query = resolve(&check("errors", &[("job", "a/b"), ("range", "10m")]), &templates(TWO).unwrap());
        assert_eq!(query.unwrap(), r#"rate(errors{job="a/b"}[5m]) / rate(all{job="a/b"}[10m])"#);
    }

    #[rstest]
    #[case::no_template(check("nothing", &[]), "there is no template \"nothing\"")]
    #[case::unknown(check("errors", &[("job", "a"), ("range", "1m"), ("x", "y")]), "has no parameter \"x\"")]
    #[case::missing(check("errors", &[("job", "a")]), "needs parameter \"range\"")]
    #[case::default_pattern(check("errors", &[("job", "a\"} or up{b=\""), ("range", "1m")]), "parameter \"job\" of template \"errors\" must match [a-zA-Z0-9_.:/-]{1,253}")]
    #[case::empty(check("errors", &[("job", ""), ("range", "1m")]), "must match")]
    #[case::a_line_more(check("errors", &[("job", "a\n"), ("range", "1m")]), "must match")]
    #[case::own_pattern(check("errors", &[("job", "a"), ("range", "5m] offset 1h")]), "must match [0-9]+[smh]")]
    fn what_does_not_fit_is_named(#[case] check: Check, #[case] expected: &str) {
        let error = resolve(&check, &templates(TWO).unwrap()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[rstest]
    #[case("quotes \" ' ` end", r"up{job='quotes \x22 \x27 \x60 end'}")]
    #[case("a\\\n", r"up{job='a\x5c\x0a'}")]
    #[case("grün", "up{job='grün'}")]
    fn a_value_stays_within_its_string(#[case] value: &str, #[case] expected: &str) {
        let query = resolve(&check("anything", &[("job", value)]), &templates(TWO).unwrap());
        assert_eq!(query.unwrap(), expected);
    }

    #[rstest]
    #[case("a: {query: 'up{{'}", "must be followed by the name of a parameter")]
    #[case("a: {query: 'up{{ }}'}", "must be followed by the name of a parameter")]
    #[case("a: {query: 'up{{job}}'}", "`{{job}}` is not among the parameters")]
    #[case("a: {query: 'up', parameters: {job: {}}}", "parameter `job` does not occur in the query")]
    #[case("a: {query: 'up{{job}}', parameters: {job: {pattern: '('}}}", "pattern of parameter `job`")]
    #[case("a: {query: 'up', pattern: 'x'}", "pattern")]
    #[case(
        "a: {query: 'up{{namespace}}', parameters: {namespace: {}}}",
        "`namespace` cannot be a parameter: the aggregator fills in `{{namespace}}` itself"
    )]
    #[case("a: {query: 'up', parameters: {clusters: {}}}", "`clusters` cannot be a parameter")]
    fn a_bad_template_is_refused_when_it_is_read(#[case] yaml: &str, #[case] expected: &str) {
        let error = templates(yaml).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_parameter_may_have_an_underscore_in_its_name() {
        let named = |name: &str| {
            templates(&format!("a: {{query: 'up[{{{{{name}}}}}]', parameters: {{{name}: {{}}}}}}"))
        };
        assert!(named("time_range").is_ok());
        assert!(named("time-range").unwrap_err().contains("must be followed by the name of a parameter"));
    }

    #[test]
    fn another_pattern_makes_another_template() {
        assert_eq!(templates(TWO), templates(TWO));
        assert_ne!(templates(TWO), templates(&TWO.replace("[smh]", "[sm]")));
    }

    #[test]
    fn a_query_of_its_own_is_taken_as_it_is() {
        let mut own = check("x", &[]);
        (own.template, own.query) = (None, Some("up{{x}}".to_owned()));
        assert_eq!(resolve(&own, &Templates::default()).unwrap(), "up{{x}}");
        own.parameters.insert("a".into(), "b".into());
        assert_eq!(resolve(&own, &Templates::default()), Err(Unresolved::QueryOrTemplate));
        assert_eq!(
            resolve(&Check { template: None, query: None, ..own }, &Templates::default()),
            Err(Unresolved::QueryOrTemplate)
        );
    }
}
