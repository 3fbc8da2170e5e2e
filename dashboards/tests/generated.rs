//! What is in the repository is what is generated, and every query in it says only what can be said.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use promql_parser::parser::{self, Expr, VectorMatchCardinality, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;
use statusbridge_contract::{ApplyState, Health, Metric};
use statusbridge_dashboards::{Files, Values, queries, render};

const BOARDS: [&str; 4] = ["bridge.json", "cluster.json", "fleet.json", "package.json"];

/// Metrics of our programs about themselves, with their labels. tests/tests/dashboards.rs sees them for real.
const OWN: [(&str, &[&str]); 44] = [
    ("statusbridge_aggregator_clusters", &[]),
    ("statusbridge_aggregator_evidence_age_seconds", &["quantile"]),
    ("statusbridge_aggregator_gates", &["state"]),
    ("statusbridge_aggregator_rollouts", &["state"]),
    ("statusbridge_aggregator_heartbeats_total", &["result"]),
    ("statusbridge_aggregator_hub_writes_total", &["kind", "result"]),
    ("statusbridge_aggregator_is_leader", &[]),
    ("statusbridge_aggregator_pending_writes", &[]),
    ("statusbridge_aggregator_poll_bytes_total", &[]),
    ("statusbridge_aggregator_poll_duration_seconds_bucket", &["le"]),
    ("statusbridge_aggregator_poll_samples_total", &[]),
    ("statusbridge_aggregator_polls_total", &["result"]),
    ("statusbridge_aggregator_pushes_total", &["result"]),
    ("statusbridge_aggregator_scrapes_total", &["result"]),
    ("statusbridge_aggregator_streams", &["state"]),
    ("statusbridge_aggregator_streams_reread_total", &[]),
    ("statusbridge_changelog_certificate_last_reload_successful", &[]),
    ("statusbridge_changelog_dropped_total", &["cause"]),
    ("statusbridge_changelog_entries_total", &["provider", "group", "kind", "operation", "result"]),
    ("statusbridge_changelog_repeated_updates_total", &["provider", "group", "kind"]),
    ("statusbridge_changelog_written_total", &[]),
    ("statusbridge_exporter_certificate_last_reload_successful", &[]),
    ("statusbridge_exporter_packages_left_out", &["package_source"]),
    ("statusbridge_exporter_relists_total", &["group", "kind"]),
    ("statusbridge_exporter_scrape_duration_seconds_bucket", &["le"]),
    ("statusbridge_exporter_sources_last_reload_successful", &[]),
    ("statusbridge_exporter_watch_errors_total", &["group", "kind", "cause"]),
    ("statusbridge_aggregator_unclosed_gate", &["gate", "gate_namespace"]),
    ("statusbridge_delivery_deployments_total", &["fleet_package", "fleet_package_namespace"]),
    ("statusbridge_delivery_failed_revisions_total", &["fleet_package", "fleet_package_namespace"]),
    ("statusbridge_delivery_time_to_healthy_seconds_count", &["fleet_package", "fleet_package_namespace"]),
    ("statusbridge_delivery_time_to_healthy_seconds_sum", &["fleet_package", "fleet_package_namespace"]),
    ("statusbridge_delivery_time_to_restore_seconds_count", &["fleet_package", "fleet_package_namespace"]),
    ("statusbridge_delivery_time_to_restore_seconds_sum", &["fleet_package", "fleet_package_namespace"]),
    ("statusbridge_gate_clusters", &["gate", "gate_namespace", "state"]),
    (
        "statusbridge_gate_info",
        &["fleet_package", "gate", "gate_namespace", "package", "package_namespace", "package_source"],
    ),
    ("statusbridge_gate_open", &["gate", "gate_namespace"]),
    ("statusbridge_gate_reason", &["gate", "gate_namespace"]),
    ("statusbridge_gate_reason_info", &["code", "reason"]),
    ("statusbridge_gate_since_timestamp_seconds", &["gate", "gate_namespace"]),
    ("statusbridge_gate_state", &["gate", "gate_namespace"]),
    ("statusbridge_gate_target_revision", &["gate", "gate_namespace"]),
    ("statusbridge_sweeper_hub_writes_total", &["kind", "result"]),
    ("statusbridge_sweeper_sweeps_total", &["result"]),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files() -> Files {
    render(&Values::default().unwrap()).unwrap()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// All rules of a set of files.
fn rules(files: &Files) -> Vec<Value> {
    let files = files.iter().filter(|(name, _)| name.starts_with("rules/")).map(|(_, text)| yaml(text));
    let groups = files.flat_map(|file| file["groups"].as_array().unwrap().clone());
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn board(name: &str) -> Value {
    serde_json::from_str(&files()[name]).unwrap()
}

#[test]
fn the_files_in_the_repository_are_those_that_are_generated() {
    let files = files();
    for (name, text) in &files {
        let there = std::fs::read_to_string(root().join(name)).unwrap_or_default();
        assert!(there == *text, "dashboards/{name} is not what `make dashboards` writes");
    }
    for dir in [".", "rules", "prometheus-operator"] {
        for entry in std::fs::read_dir(root().join(dir)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let hand_written = name == "values.yaml" || name.ends_with(".test.yaml");
            let generated = files.contains_key(&format!("{dir}/{name}")) || files.contains_key(&name);
            if name.ends_with(".json") || name.ends_with(".yaml") {
                assert!(generated || hand_written, "dashboards/{dir}/{name} is not written any more");
            }
        }
    }
}

/// What an expression names.
#[derive(Debug, Default)]
struct Named {
    metrics: BTreeSet<String>,
    labels: BTreeSet<String>,
    /// Labels that it makes itself.
    made: BTreeSet<String>,
}

impl ExprVisitor for Named {
    type Error = String;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, String> {
        match expr {
            Expr::VectorSelector(selector) => self.selector(selector),
            Expr::MatrixSelector(matrix) => self.selector(&matrix.vs),
            Expr::Aggregate(aggregate) => {
                self.labels.extend(aggregate.modifier.iter().flat_map(|m| m.labels().labels.clone()));
                if let (Some(Expr::StringLiteral(label)), "count_values") =
                    (aggregate.param.as_deref(), aggregate.op.to_string().as_str())
                {
                    self.made.insert(label.val.clone());
                }
            }
            Expr::Binary(binary) => {
                if let Some(modifier) = &binary.modifier {
                    self.labels.extend(modifier.matching.iter().flat_map(|m| m.labels().labels.clone()));
                    if let VectorMatchCardinality::ManyToOne(labels)
                    | VectorMatchCardinality::OneToMany(labels) = &modifier.card
                    {
                        self.labels.extend(labels.labels.clone());
                    }
                }
            }
            Expr::Call(call) if call.func.name == "label_replace" => {
                if let Some(Expr::StringLiteral(label)) = call.args.args.get(1).map(|arg| arg.as_ref()) {
                    self.made.insert(label.val.clone());
                }
            }
            _ => {}
        }
        Ok(true)
    }
}

impl Named {
    fn of(expr: &str) -> Self {
        let parsed = parser::parse(expr).unwrap_or_else(|error| panic!("{expr}: {error}"));
        let mut named = Self::default();
        walk_expr(&mut named, &parsed).unwrap();
        named
    }

    fn selector(&mut self, selector: &VectorSelector) {
        self.metrics.extend(selector.name.clone());
        for matcher in &selector.matchers.matchers {
            if matcher.name == "__name__" {
                // Only by a pattern for all metrics of packages.
                assert_eq!(matcher.value, "statusbridge_package_.+");
                self.metrics.insert(Metric::PackageHealth.name().to_owned());
            } else {
                self.labels.insert(matcher.name.clone());
            }
        }
    }
}

/// Every metric that a query may name, with its labels.
fn vocabulary() -> BTreeMap<String, BTreeSet<String>> {
    let own = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<BTreeSet<_>>();
    let mut all: BTreeMap<_, _> =
        Metric::ALL.iter().map(|m| (m.name().to_owned(), own(m.labels()))).collect();
    all.extend(OWN.iter().map(|(name, labels)| ((*name).to_owned(), own(labels))));
    for rule in rules(&files()) {
        if let Some(name) = rule["record"].as_str() {
            // What is left of the labels of what it reads.
            let named = Named::of(rule["expr"].as_str().unwrap());
            all.insert(name.to_owned(), named.labels.union(&named.made).cloned().collect());
        }
    }
    all
}

/// Fails unless an expression can be parsed and names only what there is.
fn check(expr: &str, vocabulary: &BTreeMap<String, BTreeSet<String>>, pipeline: &[&str]) {
    let named = Named::of(expr);
    assert!(!named.metrics.is_empty(), "{expr} reads nothing");
    let mut labels: BTreeSet<String> = pipeline.iter().map(|label| (*label).to_owned()).collect();
    for metric in &named.metrics {
        labels.extend(
            vocabulary.get(metric).unwrap_or_else(|| panic!("{expr}: there is no {metric}")).iter().cloned(),
        );
    }
    labels.extend(named.made.clone());
    // `count by (__name__)` tells metrics apart.
    labels.insert("__name__".to_owned());
    let unknown: Vec<_> = named.labels.difference(&labels).collect();
    assert!(unknown.is_empty(), "{expr}: none of {:?} has the labels {unknown:?}", named.metrics);
}

#[test]
fn queries_and_rules_name_only_metrics_and_labels_that_there_are() {
    let vocabulary = vocabulary();
    let numbers = [
        ("__interval", "1m"),
        ("__rate_interval", "5m"),
        ("__range", "1h"),
        ("__range_s", "3600"),
        ("silent_after", "300"),
        ("revision", "111111111111"),
    ];
    for name in BOARDS {
        let board = board(name);
        let variables = board["templating"]["list"].as_array().unwrap();
        let names: Vec<&str> = variables.iter().map(|v| v["name"].as_str().unwrap()).collect();
        let mut chosen: Vec<(&str, &str)> = names.iter().map(|name| (*name, "x")).collect();
        chosen.retain(|(name, _)| !["cluster_label", "silent_after", "revision"].contains(name));
        chosen.extend(numbers);
        // Another name of the label than usual, so that it cannot be written out anywhere.
        chosen.push(("cluster_label", "k8s_cluster"));
        let all = queries::of_panels(&board);
        assert!(all.len() > 8, "{name}");
        for query in all {
            let expr = queries::substitute(&query.expr, &chosen);
            assert!(!expr.replace("\"$1\"", "").contains('$'), "{name}: a variable is not there: {expr}");
            check(&expr, &vocabulary, &["k8s_cluster", "instance"]);
        }
        for (_, series, label) in queries::of_variables(&board) {
            let expr = queries::substitute(&format!("count by ({label}) ({series})"), &chosen);
            check(&expr, &vocabulary, &["k8s_cluster"]);
        }
    }
    let team = Values::with("{clusterLabel: k8s_cluster, teamLabel: owner}").unwrap();
    for rule in rules(&render(&team).unwrap()) {
        check(rule["expr"].as_str().unwrap(), &vocabulary, &["k8s_cluster", "owner", "instance"]);
    }
}

#[test]
fn a_query_about_something_that_is_not_there_is_found() {
    let vocabulary = vocabulary();
    for wrong in ["sum by (packag) (statusbridge_package_health)", "statusbridge_package_healt", "up{"] {
        let outcome = std::panic::catch_unwind(|| check(wrong, &vocabulary, &["cluster"]));
        assert!(outcome.is_err(), "{wrong}");
    }
}

#[test]
fn each_code_has_its_word_wherever_codes_are_shown() {
    let mut shown = 0;
    for name in BOARDS {
        let text = files()[name].clone();
        let board: Value = serde_json::from_str(&text).unwrap();
        let mut mappings = Vec::new();
        collect_mappings(&board, &mut mappings);
        for mapping in mappings {
            let words: Vec<(u64, &str)> = mapping
                .iter()
                .map(|(code, to)| (code.parse().unwrap(), to["text"].as_str().unwrap()))
                .collect();
            if words.contains(&(0, "Applied")) {
                let all: Vec<_> = ApplyState::ALL.iter().map(|s| (s.code(), s.name())).collect();
                assert_eq!(words, all);
                shown += 1;
            } else if words.contains(&(0, "Current")) {
                let all: Vec<_> = Health::ALL.iter().map(|h| (h.code(), h.name())).collect();
                assert_eq!(words, all);
                shown += 1;
            }
        }
    }
    assert_eq!(shown, 10, "timelines and tables of two dashboards");
}

fn collect_mappings<'a>(json: &'a Value, found: &mut Vec<&'a serde_json::Map<String, Value>>) {
    match json {
        Value::Object(fields) => {
            if fields.get("type").is_some_and(|kind| kind == "value") {
                found.extend(fields["options"].as_object());
            }
            fields.values().for_each(|value| collect_mappings(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_mappings(item, found)),
        _ => {}
    }
}

#[test]
fn links_lead_to_dashboards_and_variables_that_there_are() {
    let boards: Vec<Value> = BOARDS.iter().map(|name| board(name)).collect();
    let mut links = 0;
    for name in BOARDS {
        for part in files()[name].split("\"url\": \"/d/").skip(1) {
            let (uid, rest) = part.split_once('?').unwrap();
            let target =
                boards.iter().find(|b| b["uid"] == uid).unwrap_or_else(|| panic!("{name} links to {uid}"));
            let variables = target["templating"]["list"].as_array().unwrap();
            let url = rest.split_once("\",\n").unwrap().0;
            for variable in url.split("var-").skip(1) {
                let variable = variable.split_once('=').unwrap().0;
                assert!(
                    variables.iter().any(|v| v["name"] == variable),
                    "{name}: {uid} has no variable {variable}"
                );
            }
            links += 1;
        }
    }
    assert!(links >= 6, "{links}");
}

#[test]
fn links_to_the_log_store_are_what_the_values_say() {
    let values = Values::with(
        "{logs: {link: 'https://logs/?q={cluster}+{source}+{namespace}+{package}&t={from}-{to}'}}",
    );
    let files = render(&values.unwrap()).unwrap();
    let row = "https://logs/?q=${__data.fields[\\\"Cluster\\\"]:percentencode}+${__data.fields[\\\"Source\\\"]:percentencode}\
        +${__data.fields[\\\"Namespace\\\"]:percentencode}+${__data.fields[\\\"Package\\\"]:percentencode}&t=${__from}-${__to}";
    assert!(files["fleet.json"].contains(row), "{}", files["fleet.json"]);
    let none = render(&Values::with("{logs: {link: ''}}").unwrap()).unwrap();
    assert!(!none["fleet.json"].contains("in the log\""));
}

#[test]
fn panels_have_places_of_their_own() {
    for name in BOARDS {
        let board = board(name);
        let mut taken = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for panel in board["panels"].as_array().unwrap() {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: {}", panel["id"]);
            let at = |field: &str| panel["gridPos"][field].as_u64().unwrap();
            assert!(at("x") + at("w") <= 24, "{name}: {}", panel["title"]);
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{name}: {} lies upon another", panel["title"]);
                }
            }
        }
    }
}

#[test]
fn every_alert_says_how_bad_it_is_and_where_to_read_on() {
    let page = std::fs::read_to_string(root().join("../docs/troubleshooting.md")).unwrap();
    let headings: BTreeSet<String> =
        page.lines().filter_map(|l| l.strip_prefix("## ")).map(|h| h.trim().to_lowercase()).collect();
    let mut alerts = 0;
    let linked = Values::with("{runbooks: 'https://wiki.example.com/status-bridge'}").unwrap();
    for rule in rules(&render(&linked).unwrap()) {
        let Some(name) = rule["alert"].as_str() else { continue };
        assert!(
            ["info", "warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap()),
            "{name}"
        );
        for annotation in ["summary", "description"] {
            assert!(rule["annotations"][annotation].as_str().is_some_and(|text| text.len() > 20), "{name}");
        }
        let link = rule["annotations"]["runbook_url"].as_str().unwrap();
        let anchor = link.strip_prefix("https://wiki.example.com/status-bridge#").unwrap();
        assert_eq!(anchor, name.to_lowercase(), "{name}");
        assert!(headings.contains(anchor), "docs/troubleshooting.md has no section {name}");
        alerts += 1;
    }
    assert_eq!(alerts, 18);
}

#[test]
fn an_alert_links_nowhere_unless_it_is_said_where_to() {
    for (name, text) in files() {
        assert!(!text.contains("runbook_url"), "{name}");
    }
}

#[test]
fn every_rule_is_tested_firing_and_not_firing() {
    let mut firing = BTreeSet::new();
    let mut quiet = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("rules")).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_str().unwrap().ends_with(".test.yaml") {
            continue;
        }
        let file = yaml(&std::fs::read_to_string(path).unwrap());
        for test in file["tests"].as_array().unwrap() {
            for case in test["alert_rule_test"].as_array().into_iter().flatten() {
                let name = case["alertname"].as_str().unwrap().to_owned();
                let some = case["exp_alerts"].as_array().is_some_and(|all| !all.is_empty());
                if some { &mut firing } else { &mut quiet }.insert(name);
            }
            for case in test["promql_expr_test"].as_array().into_iter().flatten() {
                let names = Named::of(case["expr"].as_str().unwrap()).metrics;
                let some = case["exp_samples"].as_array().is_some_and(|all| !all.is_empty());
                if some { &mut firing } else { &mut quiet }.extend(names);
            }
        }
    }
    for rule in rules(&files()) {
        let name = rule["alert"].as_str().or(rule["record"].as_str()).unwrap();
        assert!(firing.contains(name), "no test in which {name} gives something");
        assert!(quiet.contains(name), "no test in which {name} gives nothing");
    }
}
