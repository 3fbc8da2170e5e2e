//! Dashboards in Grafana's own words (schema version 41, which Grafana 11.6 and later read, and earlier ones but for
//! what they do not know). The JSON is held against Grafana's types by tests/grafana.

use serde_json::{Map, Value, json};
use statusbridge_contract::{ApplyState, Health};

use crate::Values;

/// Width of a dashboard in grid units.
const WIDTH: u64 = 24;
/// A revision is 48 bits.
const LARGEST_REVISION: u64 = statusbridge_contract::MAX_48_BITS;

/// A dashboard that is being put together. Panels are laid out from left to right, and below each other.
pub(crate) struct Board {
    json: Value,
    panels: Vec<Value>,
    x: u64,
    y: u64,
    height: u64,
}

impl Board {
    pub(crate) fn new(name: &str, title: &str, description: &str, variables: Vec<Value>) -> Self {
        let json = json!({
            "uid": format!("statusbridge-{name}"),
            "title": title,
            "description": description,
            "tags": ["statusbridge"],
            "schemaVersion": 41,
            "version": 1,
            "editable": true,
            "graphTooltip": 1,
            "refresh": "1m",
            "time": {"from": "now-6h", "to": "now"},
            "timezone": "",
            "annotations": {"list": []},
            "links": [{
                "title": "Status Bridge", "type": "dashboards", "tags": ["statusbridge"], "asDropdown": false,
                "icon": "external link", "includeVars": true, "keepTime": true, "targetBlank": false, "tooltip": "", "url": "",
            }],
            "templating": {"list": variables},
        });
        Self { json, panels: Vec::new(), x: 0, y: 0, height: 0 }
    }

    /// A headline over the panels that follow.
    pub(crate) fn row(mut self, title: &str) -> Self {
        self.end_line();
        let id = self.panels.len() + 1;
        let place = json!({"x": 0, "y": self.y, "w": WIDTH, "h": 1});
        self.panels.push(
            json!({"type": "row", "id": id, "title": title, "collapsed": false, "panels": [], "gridPos": place}),
        );
        self.y += 1;
        self
    }

    /// A panel, beside the one before while there is room.
    pub(crate) fn add(mut self, w: u64, h: u64, panel: Panel) -> Self {
        if self.x + w > WIDTH {
            self.end_line();
        }
        let mut json = panel.0;
        json["id"] = json!(self.panels.len() + 1);
        json["gridPos"] = json!({"x": self.x, "y": self.y, "w": w, "h": h});
        self.panels.push(json);
        self.x += w;
        self.height = self.height.max(h);
        self
    }

    fn end_line(&mut self) {
        self.y += self.height;
        (self.x, self.height) = (0, 0);
    }

    pub(crate) fn json(mut self) -> Value {
        self.json["panels"] = Value::Array(self.panels);
        self.json
    }
}

/// A panel that is being put together.
pub(crate) struct Panel(Value);

fn data_source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

impl Panel {
    fn new(kind: &str, title: &str, description: &str, options: Value, custom: Value) -> Self {
        Self(json!({
            "type": kind,
            "title": title,
            "description": description,
            "datasource": data_source(),
            "targets": [],
            "options": options,
            "fieldConfig": {"defaults": {"custom": custom}, "overrides": []},
        }))
    }

    /// One number.
    pub(crate) fn stat(title: &str, description: &str, query: &str) -> Self {
        let options = json!({
            "colorMode": "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto",
            "percentChangeColorMode": "standard", "showPercentChange": false, "textMode": "auto", "wideLayout": true,
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
        });
        Self::new("stat", title, description, options, json!({}))
            .target(query, "", true)
            .thresholds(&[(None, "text")])
    }

    /// Rows, one for each set of labels.
    pub(crate) fn table(title: &str, description: &str) -> Self {
        let options = json!({"cellHeight": "sm", "frameIndex": 0, "showHeader": true});
        let custom =
            json!({"align": "auto", "cellOptions": {"type": "auto"}, "inspect": false, "filterable": true});
        Self::new("table", title, description, options, custom)
            .with("/fieldConfig/defaults/noValue", json!("-"))
    }

    /// States over time, one row for each series.
    pub(crate) fn timeline(title: &str, description: &str, query: &str, legend: &str) -> Self {
        let options = json!({
            "alignValue": "left", "mergeValues": true, "rowHeight": 0.9, "showValue": "auto", "perPage": 25,
            "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": false},
            "tooltip": {"mode": "single", "sort": "none"},
        });
        let custom = json!({"fillOpacity": 70, "lineWidth": 0});
        Self::new("state-timeline", title, description, options, custom).target(query, legend, false)
    }

    /// Lines over time.
    pub(crate) fn series(title: &str, description: &str) -> Self {
        let options = json!({
            "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": true},
            "tooltip": {"mode": "multi", "sort": "desc"},
        });
        let custom = json!({"drawStyle": "line", "fillOpacity": 10, "lineWidth": 1, "showPoints": "never"});
        Self::new("timeseries", title, description, options, custom)
            .with("/fieldConfig/defaults/min", json!(0))
    }

    /// The same, one upon the other.
    pub(crate) fn stacked(title: &str, description: &str) -> Self {
        Self::series(title, description)
            .with("/fieldConfig/defaults/custom/stacking", json!({"mode": "normal", "group": "A"}))
            .with("/fieldConfig/defaults/custom/fillOpacity", json!(60))
    }

    /// Bars for the greatest.
    pub(crate) fn bars(title: &str, description: &str, query: &str, legend: &str) -> Self {
        let options = json!({
            "displayMode": "basic", "maxVizHeight": 300, "minVizHeight": 16, "minVizWidth": 8, "namePlacement": "auto",
            "orientation": "horizontal", "showUnfilled": true, "sizing": "auto", "valueMode": "color",
            "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": false},
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
        });
        Self::new("bargauge", title, description, options, json!({})).target(query, legend, true)
    }

    fn with(mut self, pointer: &str, value: Value) -> Self {
        let mut at = &mut self.0;
        for name in pointer.split('/').skip(1) {
            at = &mut at[name];
        }
        *at = value;
        self
    }

    /// Another query; what is asked at an instant comes as a table.
    pub(crate) fn target(mut self, query: &str, legend: &str, instant: bool) -> Self {
        let table = instant && self.0["type"] == "table";
        if let Some(targets) = self.0["targets"].as_array_mut() {
            let name = char::from(b'A' + targets.len() as u8).to_string();
            targets.push(json!({
                "refId": name, "datasource": data_source(), "editorMode": "code", "expr": query,
                "instant": instant, "range": !instant, "format": if table { "table" } else { "time_series" },
                "legendFormat": if legend.is_empty() { "__auto" } else { legend },
            }));
        }
        self
    }

    /// A line of a time series.
    pub(crate) fn line(self, query: &str, legend: &str) -> Self {
        self.target(query, legend, false)
    }

    /// The unit of all values, as Grafana calls it.
    pub(crate) fn unit(self, unit: &str) -> Self {
        self.with("/fieldConfig/defaults/unit", json!(unit))
    }

    /// Values are fingerprints of revisions.
    pub(crate) fn revisions(self) -> Self {
        self.with("/fieldConfig/defaults/unit", json!("hex"))
            .with("/fieldConfig/defaults/decimals", json!(0))
            .with("/fieldConfig/defaults/mappings", no_revision("-"))
            .with("/fieldConfig/defaults/min", json!(0))
            .with("/fieldConfig/defaults/max", json!(LARGEST_REVISION))
            .with("/fieldConfig/defaults/color", json!({"mode": "continuous-BlPu"}))
    }

    /// What is shown where there is nothing.
    pub(crate) fn nothing(self, text: &str) -> Self {
        self.with("/fieldConfig/defaults/noValue", json!(text))
    }

    /// Words and colours for values.
    pub(crate) fn words(self, mappings: Value) -> Self {
        self.with("/fieldConfig/defaults/mappings", mappings)
            .with("/fieldConfig/defaults/color", json!({"mode": "thresholds"}))
            .thresholds(&[(None, "text")])
    }

    /// Colours, each from a value on.
    pub(crate) fn thresholds(self, steps: &[(Option<f64>, &str)]) -> Self {
        let steps: Vec<Value> =
            steps.iter().map(|(from, color)| json!({"value": from, "color": color})).collect();
        self.with("/fieldConfig/defaults/thresholds", json!({"mode": "absolute", "steps": steps}))
    }

    /// Green while it is 0, else in this colour.
    pub(crate) fn zero_is_good(self, other: &str) -> Self {
        self.thresholds(&[(None, "green"), (Some(1e-9), other)])
    }

    /// The columns of a table, from left to right; all others are hidden.
    pub(crate) fn columns(mut self, columns: Vec<Column>) -> Self {
        let mut names = Map::new();
        let mut order = Map::new();
        let mut only = Map::new();
        let mut overrides = Vec::new();
        for (place, column) in columns.into_iter().enumerate() {
            order.insert(column.field.clone(), json!(place));
            only.insert(column.field.clone(), json!(true));
            names.insert(column.field, json!(column.title));
            if !column.properties.is_empty() {
                overrides.push(json!({
                    "matcher": {"id": "byName", "options": column.title},
                    "properties": column.properties,
                }));
            }
        }
        let mut steps = match &mut self.0["transformations"] {
            Value::Array(steps) => std::mem::take(steps),
            _ => Vec::new(),
        };
        if self.0["targets"].as_array().is_some_and(|targets| targets.len() > 1) {
            steps.insert(0, json!({"id": "merge", "options": {}}));
        }
        steps.push(json!({
            "id": "organize",
            "options": {"excludeByName": {"Time": true}, "includeByName": only, "indexByName": order, "renameByName": names},
        }));
        self.with("/transformations", Value::Array(steps))
            .with("/fieldConfig/overrides", Value::Array(overrides))
    }

    /// A label that holds a number becomes one.
    pub(crate) fn number_from(self, field: &str) -> Self {
        let conversion = json!({"targetField": field, "destinationType": "number"});
        self.with(
            "/transformations",
            json!([{"id": "convertFieldType", "options": {"conversions": [conversion], "fields": {}}}]),
        )
    }

    /// Rows are sorted by this column.
    pub(crate) fn sorted(self, column: &str, desc: bool) -> Self {
        self.with("/options/sortBy", json!([{"displayName": column, "desc": desc}]))
    }
}

/// A column of a table.
pub(crate) struct Column {
    field: String,
    title: String,
    properties: Vec<Value>,
}

impl Column {
    /// Of a label, or of the value of a query: `Value` where there is one query, else `Value #A`, …
    pub(crate) fn new(field: &str, title: &str) -> Self {
        Self { field: field.to_owned(), title: title.to_owned(), properties: Vec::new() }
    }

    fn property(mut self, id: &str, value: Value) -> Self {
        self.properties.push(json!({"id": id, "value": value}));
        self
    }

    pub(crate) fn unit(self, unit: &str) -> Self {
        self.property("unit", json!(unit)).property("decimals", json!(0))
    }

    /// A fingerprint of a revision.
    pub(crate) fn revision(self, none: &str) -> Self {
        self.unit("hex").property("mappings", no_revision(none)).width(150)
    }

    pub(crate) fn words(self, mappings: Value) -> Self {
        self.property("mappings", mappings)
            .property("custom.cellOptions", json!({"type": "color-text"}))
            .property("color", json!({"mode": "thresholds"}))
            .property("thresholds", json!({"mode": "absolute", "steps": [{"value": null, "color": "text"}]}))
            .width(110)
    }

    /// Red when it is not 0.
    pub(crate) fn alarming(self) -> Self {
        let steps = json!([{"value": null, "color": "text"}, {"value": 1, "color": "red"}]);
        self.property("custom.cellOptions", json!({"type": "color-text"}))
            .property("color", json!({"mode": "thresholds"}))
            .property("thresholds", json!({"mode": "absolute", "steps": steps}))
    }

    /// A bar from 0 to 1.
    pub(crate) fn share(self) -> Self {
        let steps = json!([{"value": null, "color": "red"}, {"value": 0.5, "color": "yellow"}, {"value": 1, "color": "green"}]);
        self.unit("percentunit")
            .property("min", json!(0))
            .property("max", json!(1))
            .property("custom.cellOptions", json!({"type": "gauge", "mode": "basic"}))
            .property("color", json!({"mode": "thresholds"}))
            .property("thresholds", json!({"mode": "absolute", "steps": steps}))
    }

    pub(crate) fn width(self, width: u64) -> Self {
        self.property("custom.width", json!(width))
    }

    /// Links for whoever clicks on a cell. None where there is none.
    pub(crate) fn links(self, links: Vec<Value>) -> Self {
        if links.is_empty() { self } else { self.property("links", json!(links)) }
    }
}

/// What a link may take from where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From {
    /// A column of the row, by its title.
    Column(&'static str),
    /// A variable of the dashboard.
    Variable(&'static str),
}

impl From {
    fn reference(self) -> String {
        match self {
            Self::Column(title) => format!("${{__data.fields[\"{title}\"]:percentencode}}"),
            Self::Variable(name) => format!("${{{name}:percentencode}}"),
        }
    }
}

/// A link to another of the dashboards, which takes data source, time and these variables along.
pub(crate) fn link_to(board: &str, title: &str, variables: &[(&str, From)]) -> Value {
    let mut url = format!(
        "/d/statusbridge-{board}?${{datasource:queryparam}}&${{cluster_label:queryparam}}&${{__url_time_range}}"
    );
    for (name, from) in variables {
        url += &format!("&var-{name}={}", from.reference());
    }
    json!({"title": title, "url": url, "targetBlank": false})
}

/// The link to the log store; none when there is no template for it.
pub(crate) fn log_link(
    values: &Values,
    cluster: From,
    source: From,
    namespace: From,
    package: From,
) -> Vec<Value> {
    let template = values.text("/logs/link");
    if template.is_empty() {
        return Vec::new();
    }
    let mut url = template.to_owned();
    for (name, from) in
        [("cluster", cluster), ("source", source), ("namespace", namespace), ("package", package)]
    {
        url = url.replace(&format!("{{{name}}}"), &from.reference());
    }
    let url = url.replace("{from}", "${__from}").replace("{to}", "${__to}");
    vec![json!({"title": values.text("/logs/title"), "url": url, "targetBlank": true})]
}

fn colored(states: impl Iterator<Item = (u64, &'static str, &'static str)>) -> Value {
    let words: Map<String, Value> = states
        .enumerate()
        .map(|(index, (code, text, color))| {
            (code.to_string(), json!({"text": text, "color": color, "index": index}))
        })
        .collect();
    json!([{"type": "value", "options": words}])
}

/// Words for the codes of apply states.
pub(crate) fn apply_states() -> Value {
    colored(ApplyState::ALL.iter().map(|state| {
        let color = match state {
            ApplyState::Applied => "green",
            ApplyState::Applying => "blue",
            ApplyState::Pending => "super-light-blue",
            ApplyState::Paused => "purple",
            ApplyState::Deleting => "orange",
            ApplyState::Unknown => "yellow",
            ApplyState::Failed => "red",
        };
        (state.code(), state.name(), color)
    }))
}

/// Words for the codes of healths.
pub(crate) fn healths() -> Value {
    colored(Health::ALL.iter().map(|health| {
        let color = match health {
            Health::Current => "green",
            Health::InProgress => "blue",
            Health::Terminating => "orange",
            Health::NotFound => "dark-orange",
            Health::Unknown => "yellow",
            Health::Failed => "red",
        };
        (health.code(), health.name(), color)
    }))
}

/// Words for 0 and 1.
pub(crate) fn yes_or_no(yes: &str, no: &str) -> Value {
    json!([{"type": "value", "options": {
        "0": {"text": no, "color": "red", "index": 0}, "1": {"text": yes, "color": "green", "index": 1},
    }}])
}

fn no_revision(text: &str) -> Value {
    json!([{"type": "value", "options": {"0": {"text": text, "index": 0}}}])
}

/// The variables that every dashboard has: where the metrics are, and which label names the cluster.
pub(crate) fn common(values: &Values) -> Vec<Value> {
    let label = values.text("/clusterLabel");
    vec![
        json!({"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1,
            "hide": 0, "includeAll": false, "multi": false, "options": [], "regex": "", "skipUrlSync": false}),
        json!({"name": "cluster_label", "label": "Cluster label", "type": "textbox", "query": label, "hide": 0,
            "description": "The label that the pipeline gives the cluster's name",
            "current": {"text": label, "value": label}, "options": [{"text": label, "value": label, "selected": true}],
            "skipUrlSync": false}),
    ]
}

/// A variable with the values that a label has.
pub(crate) fn label_values(name: &str, label: &str, title: &str, series: &str, several: bool) -> Value {
    let query = format!("label_values({series}, {label})");
    let mut variable = json!({
        "name": name, "label": title, "type": "query", "datasource": data_source(),
        "query": {"query": query, "refId": format!("{name}-values")}, "refresh": 2, "sort": 7, "hide": 0, "regex": "",
        "includeAll": several, "multi": several, "options": [], "skipUrlSync": false,
    });
    if several {
        variable["allValue"] = json!(".*");
        variable["current"] = json!({"text": "All", "value": "$__all"});
    }
    variable
}

/// A variable with these values, the first of them chosen.
pub(crate) fn choice(name: &str, title: &str, choices: &[(&str, &str)]) -> Value {
    let options: Vec<Value> = choices
        .iter()
        .enumerate()
        .map(|(i, (text, value))| json!({"text": text, "value": value, "selected": i == 0}))
        .collect();
    let query: Vec<String> = choices.iter().map(|(text, value)| format!("{text} : {value}")).collect();
    let current = choices.first().map(|(text, value)| json!({"text": text, "value": value}));
    json!({
        "name": name, "label": title, "type": "custom", "query": query.join(","), "current": current, "options": options,
        "hide": 0, "includeAll": false, "multi": false, "skipUrlSync": false,
    })
}

/// The expression with the cluster's name as the label `cluster`, whatever the pipeline calls it, and only these labels.
pub(crate) fn by_cluster(labels: &str, expression: &str) -> String {
    let comma = if labels.is_empty() { "" } else { ", " };
    format!(
        "max by (cluster{comma}{labels}) (label_replace({expression}, \"cluster\", \"$1\", \"${{cluster_label}}\", \"(.*)\"))"
    )
}
