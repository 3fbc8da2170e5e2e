//! Dashboards, from what `boards/` says of their panels and `grafana.yaml` of Grafana.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use statusbridge_contract::{ApplyState, Health};

use crate::placeholder::Placeholders;
use crate::values::Values;

/// Width of a dashboard in grid units.
const WIDTH: u64 = 24;
const GRAFANA: &str = include_str!("grafana.yaml");

/// What is the same for all dashboards.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Grafana {
    board: Map<String, Value>,
    variables: Vec<Value>,
    /// By the kind of a panel, what it has besides what its board says.
    panels: BTreeMap<String, Value>,
    fields: BTreeMap<String, Value>,
    columns: BTreeMap<String, Vec<Value>>,
    parts: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Board {
    title: String,
    description: String,
    #[serde(default)]
    variables: Vec<Variable>,
    parts: BTreeMap<String, String>,
    rows: Vec<Row>,
}

/// A variable with the values that a label has in series, with some choices, the first of them chosen, or with what a
/// person writes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    title: String,
    #[serde(default)]
    label: String,
    #[serde(default)]
    of: String,
    #[serde(default)]
    several: bool,
    #[serde(default)]
    choices: Vec<(String, String)>,
    /// What stands in a text box before anybody writes into it.
    text: Option<String>,
}

/// Panels from left to right, and below each other, under a headline.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    title: Option<String>,
    panels: Vec<Panel>,
}

/// A panel: besides these fields it has its kind with its title.
#[derive(Deserialize)]
struct Panel {
    #[serde(flatten)]
    kind: BTreeMap<String, Value>,
    size: (u64, u64),
    description: String,
    query: Option<String>,
    #[serde(default)]
    queries: Vec<String>,
    /// Legends and queries.
    #[serde(default)]
    lines: Vec<(String, String)>,
    /// Colours, each from a value on.
    thresholds: Option<Vec<(Option<f64>, String)>>,
    words: Option<Words>,
    style: Option<String>,
    /// What else is said of its values.
    #[serde(default)]
    field: Value,
    /// A label that holds a number becomes one.
    number_from: Option<String>,
    /// From left to right; all others are hidden.
    columns: Option<Vec<Column>>,
    /// The column that rows are sorted by, and whether downwards.
    sorted: Option<(String, bool)>,
}

/// A column of a table: of a label, or of the value of a query, which is `Value` where there is one query, else `Value #A`, …
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    of: String,
    title: String,
    #[serde(default)]
    links: Vec<Link>,
    /// What the link to the log store takes along, if there is one.
    log: Option<BTreeMap<String, String>>,
    words: Option<Words>,
    style: Option<String>,
    unit: Option<String>,
    width: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    title: String,
    url: String,
}

/// Words and colours for values: those of the contract's codes, or these.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase", untagged)]
enum Words {
    Contract(Codes),
    These(BTreeMap<u64, (String, String)>),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Codes {
    Apply,
    Health,
}

/// The dashboard of this name, as Grafana reads it.
///
/// # Errors
/// When its file names what there is not.
pub(crate) fn render(name: &str, file: &str, values: &Values) -> Result<Value> {
    let grafana: Grafana = serde_saphyr::from_str(GRAFANA).context("grafana.yaml")?;
    let Board { title, description, variables, parts, rows } = serde_saphyr::from_str(file)?;
    let mut board = grafana.board.clone();
    let variables = grafana.variables.iter().cloned().chain(variables.iter().map(Variable::json));
    board.extend([
        ("uid".to_owned(), json!(format!("statusbridge-{name}"))),
        ("title".to_owned(), json!(title)),
        ("description".to_owned(), json!(description)),
        ("templating".to_owned(), json!({"list": Vec::from_iter(variables)})),
        ("panels".to_owned(), Value::Array(grafana.rows(rows, values)?)),
    ]);
    let mut board = Value::Object(board);
    let parts = grafana.parts.into_iter().chain(parts).collect();
    Placeholders::new(values, parts)?.fill_json(&mut board)?;
    Ok(board)
}

impl Grafana {
    fn rows(&self, rows: Vec<Row>, values: &Values) -> Result<Vec<Value>> {
        let (mut panels, mut y) = (Vec::new(), 0);
        for row in rows {
            if let Some(title) = row.title {
                let place = json!({"x": 0, "y": y, "w": WIDTH, "h": 1});
                panels.push(json!({
                    "type": "row", "id": panels.len() + 1, "title": title, "collapsed": false, "panels": [],
                    "gridPos": place,
                }));
                y += 1;
            }
            let (mut x, mut height) = (0, 0);
            for panel in row.panels {
                let (w, h) = panel.size;
                if x + w > WIDTH {
                    (x, y, height) = (0, y + height, 0);
                }
                let mut json = self.panel(panel, values)?;
                json["id"] = json!(panels.len() + 1);
                json["gridPos"] = json!({"x": x, "y": y, "w": w, "h": h});
                panels.push(json);
                (x, height) = (x + w, height.max(h));
            }
            y += height;
        }
        Ok(panels)
    }

    fn panel(&self, panel: Panel, values: &Values) -> Result<Value> {
        let [(kind, title)] = Vec::from_iter(&panel.kind)[..] else {
            bail!("a panel has one kind, and no fields that there are not: {:?}", panel.kind);
        };
        let mut json = self.panels.get(kind).with_context(|| format!("there is no panel {kind}"))?.clone();
        let queries = panel.query.into_iter().chain(panel.queries).map(|it| ("__auto".to_owned(), it));
        let queries: Vec<_> = queries.chain(panel.lines).collect();
        let targets = ('A'..).zip(&queries).map(|(name, (legend, query))| target(kind, name, legend, query));
        json["title"] = title.clone();
        json["description"] = json!(panel.description);
        json["datasource"] = data_source();
        json["targets"] = targets.collect();
        json["fieldConfig"]["overrides"] = json!([]);
        let defaults = &mut json["fieldConfig"]["defaults"];
        let style = panel.style.as_deref().or(panel.words.is_some().then_some("words"));
        if let Some(style) = style {
            merge(defaults, self.fields.get(style).with_context(|| format!("there is no style {style}"))?);
        }
        if let Some(words) = panel.words {
            defaults["mappings"] = words.mappings();
        }
        if let Some(steps) = panel.thresholds {
            let steps: Vec<_> =
                steps.iter().map(|(from, color)| json!({"value": from, "color": color})).collect();
            defaults["thresholds"] = json!({"mode": "absolute", "steps": steps});
        }
        merge(defaults, &panel.field);
        if let Some((column, desc)) = panel.sorted {
            json["options"]["sortBy"] = json!([{"displayName": column, "desc": desc}]);
        }
        if let Some(columns) = panel.columns {
            json["transformations"] = transformations(&columns, queries.len(), panel.number_from);
            let overrides = columns.into_iter().map(|column| self.column(column, values));
            let overrides = overrides.filter_map(Result::transpose).collect::<Result<Vec<_>>>()?;
            json["fieldConfig"]["overrides"] = Value::Array(overrides);
        }
        Ok(json)
    }

    /// What is said of the cells of a column, if anything is.
    fn column(&self, column: Column, values: &Values) -> Result<Option<Value>> {
        let mut properties = Vec::new();
        let mut say = |id: &str, value: Value| properties.push(json!({"id": id, "value": value}));
        let links =
            column.links.iter().map(|it| json!({"title": it.title, "url": it.url, "targetBlank": false}));
        let links: Vec<Value> = links.chain(column.log.and_then(|log| log_link(values, &log))).collect();
        if !links.is_empty() {
            say("links", Value::Array(links));
        }
        let style = column.style.as_deref().or(column.words.is_some().then_some("words"));
        if let Some(words) = column.words {
            say("mappings", words.mappings());
        }
        if let Some(style) = style {
            let style = self.columns.get(style).with_context(|| format!("there is no style {style}"))?;
            properties.extend(style.iter().cloned());
        }
        let mut say = |id: &str, value: Value| properties.push(json!({"id": id, "value": value}));
        if let Some(unit) = column.unit {
            say("unit", json!(unit));
            say("decimals", json!(0));
        }
        if let Some(width) = column.width {
            say("custom.width", json!(width));
        }
        let matcher = json!({"id": "byName", "options": column.title});
        Ok((!properties.is_empty()).then(|| json!({"matcher": matcher, "properties": properties})))
    }
}

fn data_source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

/// A query of a panel; a table, a number and bars ask it at an instant.
fn target(kind: &str, name: char, legend: &str, query: &str) -> Value {
    let instant = matches!(kind, "table" | "stat" | "bars");
    json!({
        "refId": name, "datasource": data_source(), "editorMode": "code", "expr": query,
        "instant": instant, "range": !instant, "format": if kind == "table" { "table" } else { "time_series" },
        "legendFormat": legend,
    })
}

/// Makes one table of a panel's queries, with these columns.
fn transformations(columns: &[Column], queries: usize, number_from: Option<String>) -> Value {
    let numbered = || columns.iter().enumerate();
    let only: Map<_, _> = numbered().map(|(_, it)| (it.of.clone(), json!(true))).collect();
    let order: Map<_, _> = numbered().map(|(place, it)| (it.of.clone(), json!(place))).collect();
    let names: Map<_, _> = numbered().map(|(_, it)| (it.of.clone(), json!(it.title))).collect();
    let merged = (queries > 1).then(|| json!({"id": "merge", "options": {}}));
    let converted = number_from.map(|field| {
        let conversion = json!({"targetField": field, "destinationType": "number"});
        json!({"id": "convertFieldType", "options": {"conversions": [conversion], "fields": {}}})
    });
    let organized = json!({
        "id": "organize",
        "options": {"excludeByName": {"Time": true}, "includeByName": only, "indexByName": order, "renameByName": names},
    });
    merged.into_iter().chain(converted).chain([organized]).collect()
}

/// Puts fields into an object, at any depth.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (into, from) => from.clone_into(into),
    }
}

impl Variable {
    fn json(&self) -> Value {
        let Self { name, title, label, of, several, choices, text } = self;
        let mut variable = json!({
            "name": name, "label": title, "hide": 0, "includeAll": several, "multi": several, "options": [],
            "skipUrlSync": false,
        });
        let more = if let Some((text, value)) = choices.first() {
            let option = |(text, chosen): &(String, String)| json!({"text": text, "value": chosen, "selected": chosen == value});
            let query: Vec<String> =
                choices.iter().map(|(text, value)| format!("{text} : {value}")).collect();
            json!({
                "type": "custom", "query": query.join(","), "current": {"text": text, "value": value},
                "options": choices.iter().map(option).collect::<Vec<_>>(),
            })
        } else if let Some(text) = text {
            let written = json!({"text": text, "value": text});
            json!({"type": "textbox", "query": text, "current": written, "options": [
                {"text": text, "value": text, "selected": true},
            ]})
        } else {
            json!({
                "type": "query", "datasource": data_source(), "refresh": 2, "sort": 7, "regex": "",
                "query": {"query": format!("label_values({of}, {label})"), "refId": format!("{name}-values")},
            })
        };
        merge(&mut variable, &more);
        if *several {
            merge(&mut variable, &json!({"allValue": ".*", "current": {"text": "All", "value": "$__all"}}));
        }
        variable
    }
}

/// The link to the log store, if there is a template for it.
fn log_link(values: &Values, takes: &BTreeMap<String, String>) -> Option<Value> {
    let template = Some(values.text("/logs/link")).filter(|template| !template.is_empty())?;
    let url =
        takes.iter().fold(template.to_owned(), |url, (name, from)| url.replace(&format!("{{{name}}}"), from));
    let url = url.replace("{from}", "${__from}").replace("{to}", "${__to}");
    Some(json!({"title": values.text("/logs/title"), "url": url, "targetBlank": true}))
}

impl Words {
    fn mappings(&self) -> Value {
        let words: Vec<(u64, &str, &str)> = match self {
            Self::Contract(Codes::Apply) => {
                ApplyState::ALL.iter().map(|it| (it.code(), it.name(), apply_colour(*it))).collect()
            }
            Self::Contract(Codes::Health) => {
                Health::ALL.iter().map(|it| (it.code(), it.name(), health_colour(*it))).collect()
            }
            Self::These(words) => {
                words.iter().map(|(code, (text, color))| (*code, text.as_str(), color.as_str())).collect()
            }
        };
        let option = |(index, (code, text, color)): (usize, (u64, &str, &str))| {
            (code.to_string(), json!({"text": text, "color": color, "index": index}))
        };
        let options: Map<_, _> = words.into_iter().enumerate().map(option).collect();
        json!([{"type": "value", "options": options}])
    }
}

fn apply_colour(state: ApplyState) -> &'static str {
    match state {
        ApplyState::Applied => "green",
        ApplyState::Applying => "blue",
        ApplyState::Pending => "super-light-blue",
        ApplyState::Paused => "purple",
        ApplyState::Deleting => "orange",
        ApplyState::Unknown => "yellow",
        ApplyState::Failed => "red",
    }
}

fn health_colour(health: Health) -> &'static str {
    match health {
        Health::Current => "green",
        Health::InProgress => "blue",
        Health::Terminating => "orange",
        Health::NotFound => "dark-orange",
        Health::Unknown => "yellow",
        Health::Failed => "red",
    }
}
