//! Fleet: how far is each rollout, what is broken where, which clusters are silent.

use serde_json::Value;

use crate::grafana::{
    Board, Column, From, Panel, by_cluster, choice, common, label_values, link_to, log_link,
};
use crate::{Values, derived};

/// What identifies a package in a cluster.
const PACKAGE: &str = "${cluster_label}, package_source, package_namespace, package";
const SELECTED: &str = r#"{${cluster_label}=~"$cluster", package_source=~"$source"}"#;

pub(crate) fn board(values: &Values) -> Value {
    let mut variables = common(values);
    variables.extend([
        label_values("source", "package_source", "Source", "statusbridge_source_up", true),
        label_values("cluster", "${cluster_label}", "Cluster", "statusbridge_source_up", true),
        choice(
            "silent_after",
            "Silent after",
            &[("5 minutes", "300"), ("1 hour", "3600"), ("1 minute", "60")],
        ),
    ]);
    let text = "How far each rollout is, what is broken where, and which clusters are silent.";
    Board::new("fleet", "Status Bridge / Fleet", text, variables)
        .add(3, 4, clusters())
        .add(3, 4, silent())
        .add(3, 4, packages())
        .add(3, 4, failed())
        .add(3, 4, waiting())
        .add(3, 4, paused())
        .add(3, 4, sources_down())
        .add(3, 4, oldest_failure())
        .row("Rollouts")
        .add(24, 10, rollouts())
        .add(12, 8, states())
        .add(6, 8, time_to_healthy())
        .add(6, 8, gates())
        .row("What is broken")
        .add(16, 10, broken(values))
        .add(8, 10, reasons())
        .row("Who is silent")
        .add(12, 8, silent_clusters())
        .add(12, 8, lost_sources())
        .json()
}

/// A metric of packages, one sample for each package in each cluster.
fn each(metric: &str) -> String {
    format!("max by ({PACKAGE}) (statusbridge_package_{metric}{SELECTED})")
}

/// The packages that failed, each with the time of its last transition taken by `time`.
fn failures(what: &str) -> String {
    format!(
        "({what}) and on ({PACKAGE}) (statusbridge_package_apply_state{SELECTED} == <<apply.Failed>> or statusbridge_package_health{SELECTED} == <<health.Failed>>)"
    )
}

fn age() -> String {
    format!("time() - {}", each("transition_timestamp_seconds"))
}

fn clusters() -> Panel {
    Panel::stat(
        "Clusters",
        "Clusters that are heard of now.",
        r#"count(count by (${cluster_label}) (statusbridge_digest{${cluster_label}=~"$cluster"}))"#,
    )
}

fn silent() -> Panel {
    Panel::stat(
        "Silent clusters",
        "Clusters that were heard of within a day, but not lately. Who was never heard of is not among them: compare with the clusters that you have.",
        &format!("count({}) or vector(0)", silence()),
    )
    .zero_is_good("red")
}

fn silence() -> String {
    r#"(time() - max by (${cluster_label}) (last_over_time(statusbridge_rendered_timestamp_seconds{${cluster_label}=~"$cluster"}[1d]))) > $silent_after"#.to_owned()
}

fn packages() -> Panel {
    let query = format!("count({})", each("healthy_revision"));
    Panel::stat("Packages", "Packages of all clusters; one that is in ten clusters counts ten times.", &query)
}

fn failed() -> Panel {
    let query = format!("count({}) or vector(0)", failures(&age()));
    Panel::stat("Failed", "Applying or health has failed.", &query).zero_is_good("red")
}

fn waiting() -> Panel {
    let query = format!("count({}) or vector(0)", derived::waiting(each));
    Panel::stat(
        "Not there yet",
        "Not healthy at the revision that their cluster was told to run, failed or not.",
        &query,
    )
    .zero_is_good("yellow")
}

fn paused() -> Panel {
    let query = format!("count({} == <<apply.Paused>>) or vector(0)", each("apply_state"));
    Panel::stat("Paused", "A person told the controller to leave them alone.", &query).zero_is_good("purple")
}

fn sources_down() -> Panel {
    let query = format!(
        "count(max by (${{cluster_label}}, package_source) (statusbridge_source_up{SELECTED}) == 0) or vector(0)"
    );
    Panel::stat(
        "Sources down",
        "Exporters that are out of touch with what they read: what they show is the last known.",
        &query,
    )
    .zero_is_good("red")
}

fn oldest_failure() -> Panel {
    let query = format!("max({})", failures(&age()));
    Panel::stat("Oldest failure", "For how long the package that failed first has been failing.", &query)
        .unit("s")
        .nothing("none")
}

fn rollouts() -> Panel {
    let identity = "package_source, package_namespace, package";
    let healthy = format!("count by ({identity}) ({})", derived::there(each));
    let total = format!("count by ({identity}) ({})", each("healthy_revision"));
    let revisions = format!(
        "count by ({identity}) (count_values by ({identity}) (\"revision\", {} > 0))",
        derived::wanted(each)
    );
    let share = format!("(({healthy}) or on ({identity}) 0 * ({total})) / on ({identity}) ({total})");
    let package = vec![link_to(
        "package",
        "The package in all clusters",
        &[
            ("source", From::Column("Source")),
            ("namespace", From::Column("Namespace")),
            ("package", From::Column("Package")),
        ],
    )];
    Panel::table(
        "Packages",
        "Each package over the clusters that have it. Healthy: at the revision that its cluster was told to run. More than one wanted revision: a rollout is under way, or clusters differ.",
    )
    .target(&share, "", true)
    .target(&total, "", true)
    .target(&revisions, "", true)
    .target(&format!("count by ({identity}) ({})", failures(&age())), "", true)
    .target(&format!("max by ({identity}) ({})", failures(&age())), "", true)
    .columns(vec![
        Column::new("package", "Package").links(package),
        Column::new("package_namespace", "Namespace"),
        Column::new("package_source", "Source"),
        Column::new("Value #A", "Healthy").share(),
        Column::new("Value #B", "Clusters").width(90),
        Column::new("Value #C", "Wanted revisions").width(140),
        Column::new("Value #D", "Failed").alarming().width(90),
        Column::new("Value #E", "Oldest failure").unit("s").width(140),
    ])
    .sorted("Healthy", false)
}

fn states() -> Panel {
    Panel::stacked("Packages by state", "All packages of all clusters, by apply state and health.").line(
        &format!("sum by (apply_state, health) (max by (${{cluster_label}}, package_source, apply_state, health) (statusbridge_packages{SELECTED}))"),
        "{{apply_state}}, {{health}}",
    )
}

fn time_to_healthy() -> Panel {
    Panel::series(
        "Time to healthy",
        "From being told a revision to being healthy at it, on the average of the last day, by source. Needs the recording rules.",
    )
    .line("avg by (package_source) (statusbridge:package_time_to_healthy_seconds:mean1d{package_source=~\"$source\"})", "{{package_source}}")
    .unit("s")
}

fn gates() -> Panel {
    Panel::table("Gates", "The revision that each rollout gate is open for. Needs the aggregator's own metrics in this data source.")
        .target("max by (gate_namespace, gate) (statusbridge_gate_open)", "", true)
        .columns(vec![
            Column::new("gate_namespace", "Namespace"),
            Column::new("gate", "Gate"),
            Column::new("Value", "Open for").revision("closed"),
        ])
        .sorted("Gate", false)
}

fn broken(values: &Values) -> Panel {
    let since = failures(&age());
    let reason = format!(
        "({since}) * on ({PACKAGE}) group_left (reason) (count_values by ({PACKAGE}) (\"code\", {}) * on (${{cluster_label}}, package_source, code) group_left (reason) max by (${{cluster_label}}, package_source, code, reason) (statusbridge_reason_info{SELECTED}))",
        each("reason")
    );
    let query = format!("({reason}) or on ({PACKAGE}) ({since})");
    let (cluster, source) = (From::Column("Cluster"), From::Column("Source"));
    let (namespace, package) = (From::Column("Namespace"), From::Column("Package"));
    let package_link = link_to(
        "package",
        "The package in all clusters",
        &[("source", source), ("namespace", namespace), ("package", package)],
    );
    let mut links = vec![package_link];
    links.extend(log_link(values, cluster, source, namespace, package));
    let to_cluster = vec![link_to("cluster", "All packages of the cluster", &[("cluster", cluster)])];
    Panel::table(
        "Failed packages",
        "What has failed, why, and for how long. A click leads on, also to the log.",
    )
    .target(&by_cluster("package_source, package_namespace, package, reason", &query), "", true)
    .columns(vec![
        Column::new("cluster", "Cluster").links(to_cluster),
        Column::new("package", "Package").links(links),
        Column::new("package_namespace", "Namespace"),
        Column::new("package_source", "Source"),
        Column::new("reason", "Reason"),
        Column::new("Value", "For").unit("s").width(120),
    ])
    .sorted("For", true)
    .nothing("nothing has failed")
}

fn reasons() -> Panel {
    Panel::bars(
        "Reasons",
        "Why packages are not Applied and Current, the most frequent first. Needs the recording rules.",
        "topk(12, sum by (package_source, reason) (statusbridge:package_reasons:count{package_source=~\"$source\"}))",
        "{{reason}} ({{package_source}})",
    )
}

fn silent_clusters() -> Panel {
    let links = vec![link_to("cluster", "The cluster", &[("cluster", From::Column("Cluster"))])];
    Panel::table("Silent clusters", "Heard of within a day, but not lately.")
        .target(&by_cluster("", &silence()), "", true)
        .columns(vec![
            Column::new("cluster", "Cluster").links(links),
            Column::new("Value", "Silent for").unit("s").width(160),
        ])
        .sorted("Silent for", true)
        .nothing("no cluster is silent")
}

fn lost_sources() -> Panel {
    let query = format!(
        "(time() - max by (${{cluster_label}}, package_source) (statusbridge_source_last_contact_timestamp_seconds{SELECTED})) and on (${{cluster_label}}, package_source) (max by (${{cluster_label}}, package_source) (statusbridge_source_up{SELECTED}) == 0)"
    );
    let links = vec![link_to("cluster", "The cluster", &[("cluster", From::Column("Cluster"))])];
    Panel::table(
        "Sources out of touch",
        "The exporter is heard of, but has not heard of these itself: what it shows is the last known.",
    )
    .target(&by_cluster("package_source", &query), "", true)
    .columns(vec![
        Column::new("cluster", "Cluster").links(links),
        Column::new("package_source", "Source"),
        Column::new("Value", "Last contact").unit("s").width(160),
    ])
    .sorted("Last contact", true)
    .nothing("all sources are up")
}
