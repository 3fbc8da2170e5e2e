//! Package: one package across clusters.

use serde_json::Value;

use crate::grafana::{
    Board, Column, From, Panel, apply_states, by_cluster, common, healths, label_values, link_to, log_link,
};
use crate::{Values, derived};

const SELECTED: &str = r#"{${cluster_label}=~"$cluster", package_source=~"$source", package_namespace=~"$namespace", package="$package"}"#;

pub(crate) fn board(values: &Values) -> Value {
    let mut variables = common(values);
    let of_source = r#"statusbridge_package_healthy_revision{package_source=~"$source"}"#;
    let of_package =
        r#"statusbridge_package_healthy_revision{package_source=~"$source", package="$package"}"#;
    variables.extend([
        label_values("source", "package_source", "Source", "statusbridge_source_up", true),
        label_values("package", "package", "Package", of_source, false),
        label_values("namespace", "package_namespace", "Namespace", of_package, true),
        label_values("cluster", "${cluster_label}", "Cluster", of_package, true),
    ]);
    let text = "One package across clusters: states, revisions, time to healthy.";
    Board::new("package", "Status Bridge / Package", text, variables)
        .add(4, 4, clusters())
        .add(4, 4, healthy())
        .add(4, 4, failed())
        .add(4, 4, running())
        .add(4, 4, time_to_healthy())
        .add(4, 4, slowest())
        .add(9, 8, revisions())
        .add(15, 8, progress())
        .add(24, 7, by_revision())
        .add(24, 10, in_clusters(values))
        .row("Over time, a row for each cluster")
        .add(
            24,
            9,
            timeline(
                "Apply state",
                "How far the cluster has got with applying it.",
                &derived::state(each, "apply_state"),
            )
            .words(apply_states()),
        )
        .add(
            24,
            9,
            timeline("Health", "Whether what was applied works.", &derived::state(each, "health"))
                .words(healths()),
        )
        .add(
            24,
            9,
            timeline("Applied revision", "The revision last applied in full.", &derived::applied(each))
                .revisions(),
        )
        .add(
            24,
            9,
            timeline(
                "Healthy revision",
                "The revision that is applied in full and works, while it does.",
                &each("healthy_revision"),
            )
            .revisions(),
        )
        .json()
}

/// A metric of the package, one sample for each cluster.
fn each(metric: &str) -> String {
    format!("max by (${{cluster_label}}) (statusbridge_package_{metric}{SELECTED})")
}

fn bad() -> String {
    format!("({} == <<apply.Failed>>) or ({} == <<health.Failed>>)", each("apply_state"), each("health"))
}

fn clusters() -> Panel {
    Panel::stat(
        "Clusters",
        "Clusters that report the package.",
        &format!("count({})", each("healthy_revision")),
    )
}

fn healthy() -> Panel {
    let query =
        format!("(count({}) or vector(0)) / count({})", derived::there(each), each("healthy_revision"));
    Panel::stat(
        "Healthy",
        "Share of them that is healthy at the revision that they were told to run.",
        &query,
    )
    .unit("percentunit")
    .thresholds(&[(None, "red"), (Some(0.5), "yellow"), (Some(1.0), "green")])
}

fn failed() -> Panel {
    let query = format!("count({}) or vector(0)", bad());
    Panel::stat("Failed", "Clusters where applying or health has failed.", &query).zero_is_good("red")
}

fn running() -> Panel {
    let query = format!("count(count_values(\"revision\", {} > 0))", derived::applied(each));
    Panel::stat("Revisions", "How many revisions of it are running.", &query)
        .thresholds(&[(None, "green"), (Some(2.0), "yellow")])
        .nothing("not known")
}

/// How long each cluster was not healthy at the revision that it wanted, for each that it was told, in the time range.
fn waits() -> String {
    let wanted = derived::wanted(each);
    let at = format!("({} == bool {wanted})", each("healthy_revision"));
    format!(
        "(1 - avg_over_time({at}[$__range:$__interval])) * $__range_s / (changes(({wanted} > 0)[$__range:$__interval]) > 0)"
    )
}

fn time_to_healthy() -> Panel {
    Panel::stat(
        "Time to healthy",
        "From being told a revision to being healthy at it: the time without, divided by the revisions told, within the time range of the dashboard, on the average of the clusters.",
        &format!("avg({})", waits()),
    )
    .unit("s")
    .nothing("no new revision")
}

fn slowest() -> Panel {
    Panel::stat(
        "Slowest cluster",
        "The same for the cluster where it takes longest.",
        &format!("max({})", waits()),
    )
    .unit("s")
    .nothing("no new revision")
}

/// When something that has a revision was first so within the time range, by revision.
fn first(what: &str) -> String {
    format!("min_over_time((0 * {what} + time())[$__range:$__interval])")
}

/// How many clusters have which revision, of a query for one revision of each.
fn at_revision(what: &str) -> String {
    format!("count_values(\"revision\", {what} > 0)")
}

fn by_revision() -> Panel {
    // What was wanted before the time range began took longer than it shows.
    let then = |metric: &str| {
        format!("max by (${{cluster_label}}) (statusbridge_package_{metric}{SELECTED} offset $__range)")
    };
    let before = at_revision(&derived::wanted(then));
    let told = format!("{} unless on (revision) {before}", first(&at_revision(&derived::wanted(each))));
    let healthy = at_revision(&each("healthy_revision"));
    let everywhere = format!("({healthy} == on () group_left () count({}))", each("healthy_revision"));
    let after = |first: &str| format!("{first} - on (revision) ({told})");
    Panel::table(
        "Time to healthy by revision",
        "For each revision that any cluster was first told within the time range of the dashboard: from then until the first cluster was healthy at it, and until all were at the same time. `statusbridge history` tells it cluster by cluster.",
    )
    .target(&format!("1000 * ({told})"), "", true)
    .target(&after(&first(&healthy)), "", true)
    .target(&after(&first(&everywhere)), "", true)
    .number_from("revision")
    .columns(vec![
        Column::new("revision", "Revision").revision("-"),
        Column::new("Value #A", "First wanted").unit("dateTimeAsIso"),
        Column::new("Value #B", "First cluster healthy after").unit("s"),
        Column::new("Value #C", "All clusters healthy after").unit("s"),
    ])
    .sorted("First wanted", true)
}

fn revisions() -> Panel {
    Panel::table("Revisions", "How many clusters want, run, and are healthy at each revision.")
        .target(&at_revision(&derived::wanted(each)), "", true)
        .target(&at_revision(&derived::applied(each)), "", true)
        .target(&at_revision(&each("healthy_revision")), "", true)
        .number_from("revision")
        .columns(vec![
            Column::new("revision", "Revision").revision("-"),
            Column::new("Value #A", "Wanted").width(90),
            Column::new("Value #B", "Applied").width(90),
            Column::new("Value #C", "Healthy").width(90),
        ])
        .sorted("Wanted", true)
}

fn progress() -> Panel {
    Panel::series("Progress", "How far the clusters are.")
        .line(&format!("count({})", each("healthy_revision")), "clusters")
        .line(&format!("count({}) or vector(0)", derived::there(each)), "healthy at the wanted revision")
        .line(&format!("count({}) or vector(0)", bad()), "failed")
}

fn in_clusters(values: &Values) -> Panel {
    let cell = |query: &str| by_cluster("", query);
    let reason = format!(
        "count_values by (${{cluster_label}}, package_source) (\"code\", max by (${{cluster_label}}, package_source) (statusbridge_package_reason{SELECTED})) * on (${{cluster_label}}, package_source, code) group_left (reason) max by (${{cluster_label}}, package_source, code, reason) (statusbridge_reason_info{{${{cluster_label}}=~\"$cluster\", package_source=~\"$source\"}})"
    );
    let (cluster, source) = (From::Column("Cluster"), From::Variable("source"));
    let (namespace, package) = (From::Variable("namespace"), From::Variable("package"));
    let mut links = vec![link_to("cluster", "All packages of the cluster", &[("cluster", cluster)])];
    links.extend(log_link(values, cluster, source, namespace, package));
    Panel::table(
        "In each cluster",
        "The package as each cluster has it now. A click on a cluster leads on, also to the log.",
    )
    .target(&cell(&derived::state(each, "apply_state")), "", true)
    .target(&cell(&derived::state(each, "health")), "", true)
    .target(&cell(&derived::wanted(each)), "", true)
    .target(&cell(&derived::applied(each)), "", true)
    .target(&cell(&each("healthy_revision")), "", true)
    .target(&cell(&format!("time() - {}", each("transition_timestamp_seconds"))), "", true)
    .target(&cell(&each("resources")), "", true)
    .target(&cell(&derived::resources_current(each)), "", true)
    .target(&by_cluster("reason", &reason), "", true)
    .columns(vec![
        Column::new("cluster", "Cluster").links(links),
        Column::new("Value #A", "Applied?").words(apply_states()),
        Column::new("Value #B", "Health").words(healths()),
        Column::new("reason", "Reason"),
        Column::new("Value #F", "For").unit("s").width(110),
        Column::new("Value #C", "Wanted").revision("-"),
        Column::new("Value #D", "Applied").revision("-"),
        Column::new("Value #E", "Healthy").revision("-"),
        Column::new("Value #G", "Resources").width(100),
        Column::new("Value #H", "Current").width(90),
    ])
    .sorted("Health", true)
}

fn timeline(title: &str, description: &str, query: &str) -> Panel {
    Panel::timeline(title, description, &by_cluster("", query), "{{cluster}}")
}
