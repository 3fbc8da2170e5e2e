//! The queries in a dashboard, for whoever wants to run them.

use serde_json::Value;

/// One query of a panel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Title of the panel.
    pub panel: String,
    /// The query as it stands in the dashboard, variables and all.
    pub expr: String,
    /// Whether it is asked at an instant, not over a range.
    pub instant: bool,
}

/// The queries of all panels of a dashboard.
pub fn of_panels(dashboard: &Value) -> Vec<Query> {
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    panels
        .flat_map(|panel| {
            panel["targets"].as_array().into_iter().flatten().map(move |target| (panel, target))
        })
        .map(|(panel, target)| Query {
            panel: panel["title"].as_str().unwrap_or_default().to_owned(),
            expr: target["expr"].as_str().unwrap_or_default().to_owned(),
            instant: target["instant"] == true,
        })
        .collect()
}

/// The variables of a dashboard that ask for the values of a label: name, series, label.
pub fn of_variables(dashboard: &Value) -> Vec<(String, String, String)> {
    let variables = dashboard["templating"]["list"].as_array().into_iter().flatten();
    variables
        .filter_map(|variable| {
            let inside =
                variable["query"]["query"].as_str()?.strip_prefix("label_values(")?.strip_suffix(')')?;
            let (series, label) = inside.rsplit_once(", ")?;
            Some((variable["name"].as_str()?.to_owned(), series.to_owned(), label.to_owned()))
        })
        .collect()
}

/// Puts values for variables, written as `$name` or `${name}`. The longest names go first.
pub fn substitute(expr: &str, variables: &[(&str, &str)]) -> String {
    let mut sorted = variables.to_vec();
    sorted.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    sorted.iter().fold(expr.to_owned(), |text, (name, value)| {
        text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
    })
}
