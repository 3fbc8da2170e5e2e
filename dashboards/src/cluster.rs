//! Cluster: all packages of one cluster, what fails and for how long.

use serde_json::Value;

use crate::grafana::{
    Board, Column, From, Panel, apply_states, common, healths, label_values, link_to, log_link, yes_or_no,
};
use crate::{Values, derived};

const HERE: &str = r#"${cluster_label}="$cluster""#;
const PACKAGE: &str = "package_source, package_namespace, package";

pub(crate) fn board(values: &Values) -> Value {
    let mut variables = common(values);
    variables.extend([
        label_values("cluster", "${cluster_label}", "Cluster", "statusbridge_source_up", false),
        label_values(
            "source",
            "package_source",
            "Source",
            "statusbridge_source_up{${cluster_label}=\"$cluster\"}",
            true,
        ),
    ]);
    let text = "All packages of one cluster: what fails, and for how long.";
    Board::new("cluster", "Status Bridge / Cluster", text, variables)
        .add(4, 4, heard())
        .add(4, 4, packages())
        .add(4, 4, failed())
        .add(4, 4, waiting())
        .add(4, 4, oldest_failure())
        .add(4, 4, resources())
        .add(24, 12, all(values))
        .row("Over time, a row for each package")
        .add(
            24,
            10,
            timeline("Apply state", "How far the cluster has got with applying each.", "apply_state")
                .words(apply_states()),
        )
        .add(24, 10, timeline("Health", "Whether what was applied works.", "health").words(healths()))
        .row("The exporter")
        .add(10, 8, sources())
        .add(7, 8, errors())
        .add(7, 8, moves())
        .row("Change logs of Crossplane's providers")
        .add(6, 8, changes())
        .add(6, 8, failed_changes())
        .add(6, 8, corrected_again())
        .add(6, 8, printed())
        .json()
}

fn selected() -> String {
    format!("{{{HERE}, package_source=~\"$source\"}}")
}

/// A metric of packages, one sample for each.
fn each(metric: &str) -> String {
    format!("max by ({PACKAGE}) (statusbridge_package_{metric}{})", selected())
}

fn failures() -> String {
    format!(
        "(time() - {}) and on ({PACKAGE}) (({} == <<apply.Failed>>) or ({} == <<health.Failed>>))",
        each("transition_timestamp_seconds"),
        each("apply_state"),
        each("health")
    )
}

fn heard() -> Panel {
    Panel::stat(
        "Last heard of",
        "How old what its exporter last said is. What is older than a few scrapes says nothing about now.",
        &format!("time() - max(last_over_time(statusbridge_rendered_timestamp_seconds{{{HERE}}}[1d]))"),
    )
    .unit("s")
    .thresholds(&[(None, "green"), (Some(180.0), "yellow"), (Some(300.0), "red")])
    .nothing("not within a day")
}

fn packages() -> Panel {
    Panel::stat(
        "Packages",
        "Packages that the cluster reports.",
        &format!("count({})", each("healthy_revision")),
    )
}

fn failed() -> Panel {
    Panel::stat("Failed", "Applying or health has failed.", &format!("count({}) or vector(0)", failures()))
        .zero_is_good("red")
}

fn waiting() -> Panel {
    let query = format!("count({}) or vector(0)", derived::waiting(each));
    Panel::stat(
        "Not there yet",
        "Not healthy at the revision that they were told to run, failed or not.",
        &query,
    )
    .zero_is_good("yellow")
}

fn oldest_failure() -> Panel {
    Panel::stat(
        "Oldest failure",
        "For how long the package that failed first has been failing.",
        &format!("max({})", failures()),
    )
    .unit("s")
    .nothing("none")
}

fn resources() -> Panel {
    let query = format!("sum({}) / sum({})", derived::resources_current(each), each("resources"));
    Panel::stat("Resources current", "Of the resources in the inventories of packages that have one.", &query)
        .unit("percentunit")
        .nothing("no inventories")
}

fn all(values: &Values) -> Panel {
    let reason = format!(
        "count_values by ({PACKAGE}) (\"code\", {}) * on (package_source, code) group_left (reason) max by (package_source, code, reason) (statusbridge_reason_info{})",
        each("reason"),
        selected()
    );
    let (cluster, source) = (From::Variable("cluster"), From::Column("Source"));
    let (namespace, package) = (From::Column("Namespace"), From::Column("Package"));
    let mut links = vec![link_to(
        "package",
        "The package in all clusters",
        &[("source", source), ("namespace", namespace), ("package", package)],
    )];
    links.extend(log_link(values, cluster, source, namespace, package));
    Panel::table(
        "Packages",
        "What the cluster has now, the worst first. A click on a package leads on, also to the log.",
    )
    .target(&derived::state(each, "apply_state"), "", true)
    .target(&derived::state(each, "health"), "", true)
    .target(&derived::wanted(each), "", true)
    .target(&derived::applied(each), "", true)
    .target(&each("healthy_revision"), "", true)
    .target(&format!("time() - {}", each("transition_timestamp_seconds")), "", true)
    .target(&derived::resources_failed(each), "", true)
    .target(&format!("max by ({PACKAGE}, reason) ({reason})"), "", true)
    .columns(vec![
        Column::new("package", "Package").links(links),
        Column::new("package_namespace", "Namespace"),
        Column::new("package_source", "Source"),
        Column::new("Value #A", "Applied?").words(apply_states()),
        Column::new("Value #B", "Health").words(healths()),
        Column::new("reason", "Reason"),
        Column::new("Value #F", "For").unit("s").width(110),
        Column::new("Value #C", "Wanted").revision("-"),
        Column::new("Value #D", "Applied").revision("-"),
        Column::new("Value #E", "Healthy").revision("-"),
        Column::new("Value #G", "Resources failed").alarming().width(130),
    ])
    .sorted("Health", true)
}

fn timeline(title: &str, description: &str, metric: &str) -> Panel {
    Panel::timeline(title, description, &derived::state(each, metric), "{{package_namespace}}/{{package}}")
}

fn sources() -> Panel {
    let by = "package_source";
    let of = |metric: &str| format!("max by ({by}) ({metric}{})", selected());
    Panel::table("Sources", "What the exporter reads, and whether it is in touch with it.")
        .target(&of("statusbridge_source_up"), "", true)
        .target(&of("statusbridge_source_packages"), "", true)
        .target(&format!("time() - {}", of("statusbridge_source_last_contact_timestamp_seconds")), "", true)
        .columns(vec![
            Column::new("package_source", "Source"),
            Column::new("Value #A", "Up").words(yes_or_no("up", "down")),
            Column::new("Value #B", "Packages").width(100),
            Column::new("Value #C", "Last contact").unit("s").width(120),
        ])
}

fn errors() -> Panel {
    Panel::series(
        "Watches",
        "Lists and watches of the exporter that ended with an error, and lists begun anew, a second.",
    )
    .line(
        &format!(
            "sum(rate(statusbridge_exporter_watch_errors_total{{{HERE}}}[$__rate_interval])) or vector(0)"
        ),
        "errors",
    )
    .line(
        &format!("sum(rate(statusbridge_exporter_relists_total{{{HERE}}}[$__rate_interval])) or vector(0)"),
        "lists",
    )
    .unit("ops")
}

fn moves() -> Panel {
    let query = format!(
        "sum by (package_source) (max by ({PACKAGE}) (changes(statusbridge_package_transition_timestamp_seconds{}[1h])))",
        selected()
    );
    Panel::series(
        "Moved lately",
        "How often packages were seen to have changed within the last hour, by source. Changes between two scrapes count once.",
    )
    .line(&query, "{{package_source}}")
}

/// Changes an hour, of the ten kinds that have most.
fn hourly(metric: &str, matchers: &str, by: &str) -> String {
    format!(
        "topk(10, 3600 * sum by ({by}) (rate(statusbridge_changelog_{metric}{{{HERE}{matchers}}}[$__rate_interval])))"
    )
}

fn changes() -> Panel {
    Panel::series("Changes", "Resources that providers created, updated or deleted, an hour, by kind.").line(
        &hourly("entries_total", ", result=\"success\"", "group, kind, operation"),
        "{{kind}}.{{group}} {{operation}}",
    )
}

fn failed_changes() -> Panel {
    Panel::series("Changes that failed", "Changes that providers tried to make, an hour, by kind.").line(
        &hourly("entries_total", ", result=\"failure\"", "group, kind, operation"),
        "{{kind}}.{{group}} {{operation}}",
    )
}

fn corrected_again() -> Panel {
    Panel::series(
        "Corrected again and again",
        "Updates of a resource that had been updated within the 30 minutes before, an hour, by kind: somebody else keeps changing it.",
    )
    .line(&hourly("repeated_updates_total", "", "group, kind"), "{{kind}}.{{group}}")
}

fn printed() -> Panel {
    let rate =
        |metric: &str| format!("sum(rate(statusbridge_changelog_{metric}{{{HERE}}}[$__rate_interval]))");
    Panel::series(
        "Entries printed",
        "A second; what standard output is too slow for is dropped, but counted in the panels beside this one.",
    )
    .line(&rate("written_total"), "written")
    .line(&rate("dropped_total"), "dropped")
    .unit("ops")
}
