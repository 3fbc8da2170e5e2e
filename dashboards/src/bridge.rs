//! Bridge: the health of Status Bridge itself.

use serde_json::Value;

use crate::Values;
use crate::grafana::{Board, Panel, common, yes_or_no};

pub(crate) fn board(values: &Values) -> Value {
    let text = "Status Bridge itself: how fresh its evidence is, what does not add up, what polls cost, how many series there are.";
    Board::new("bridge", "Status Bridge / Bridge", text, common(values))
        .add(4, 4, leader())
        .add(4, 4, oldest())
        .add(4, 4, unverified())
        .add(4, 4, polls_failed())
        .add(4, 4, writes_failed())
        .add(4, 4, heartbeat())
        .row("Evidence")
        .add(8, 8, ages())
        .add(8, 8, streams())
        .add(8, 8, clusters())
        .row("Polls of the metrics backend")
        .add(8, 8, poll_duration())
        .add(8, 8, polls())
        .add(8, 8, cost())
        .row("Exporters that the aggregator hears itself")
        .add(12, 6, scraped())
        .add(12, 6, pushed())
        .row("The hub")
        .add(8, 8, gates())
        .add(8, 8, writes())
        .add(8, 8, sweeper())
        .row("What it costs the metrics backend")
        .add(8, 8, series_total())
        .add(8, 8, series_by_metric())
        .add(8, 8, scrapes())
        .json()
}

fn leader() -> Panel {
    Panel::stat(
        "Leader",
        "One replica of the aggregator has to lead.",
        "sum(max by (instance) (statusbridge_aggregator_is_leader))",
    )
    .thresholds(&[(None, "red"), (Some(1.0), "green"), (Some(2.0), "red")])
    .nothing("not running")
}

fn oldest() -> Panel {
    Panel::stat(
        "Oldest evidence",
        "How old what is known of the cluster with the oldest evidence is. Gates close where it is older than staleAfter.",
        "max(statusbridge_aggregator_evidence_age_seconds{quantile=\"1\"})",
    )
    .unit("s")
    .thresholds(&[(None, "green"), (Some(90.0), "yellow"), (Some(180.0), "red")])
    .nothing("nothing is known")
}

fn unverified() -> Panel {
    Panel::stat(
        "Unverified streams",
        "Streams of which what arrived does not add up to what the exporter attests. `statusbridge doctor` says what differs.",
        "max(statusbridge_aggregator_streams{state=\"unverified\"})",
    )
    .zero_is_good("red")
}

fn polls_failed() -> Panel {
    Panel::stat(
        "Polls that fail",
        "Of the polls of the metrics backend in the last 5 minutes.",
        "sum(rate(statusbridge_aggregator_polls_total{result=\"failure\"}[5m])) / sum(rate(statusbridge_aggregator_polls_total[5m]))",
    )
    .unit("percentunit")
    .zero_is_good("red")
    .nothing("no polls")
}

fn writes_failed() -> Panel {
    Panel::stat(
        "Writes that failed",
        "Status writes that the hub refused or did not answer, in the last hour.",
        "sum(increase(statusbridge_aggregator_hub_writes_total{result=\"error\"}[1h]))",
    )
    .zero_is_good("red")
}

fn heartbeat() -> Panel {
    Panel::stat(
        "Heartbeat",
        "Whether the aggregator renews the heartbeat without which the sweeper closes all gates.",
        "sum(rate(statusbridge_aggregator_heartbeats_total{result=\"success\"}[5m])) > bool 0",
    )
    .words(yes_or_no("beating", "silent"))
    .nothing("not running")
}

fn ages() -> Panel {
    Panel::series(
        "Age of evidence",
        "How old the newest verified evidence of a cluster is, over all clusters; 1 is the oldest.",
    )
    .line("max by (quantile) (statusbridge_aggregator_evidence_age_seconds)", "{{quantile}}")
    .unit("s")
}

fn streams() -> Panel {
    Panel::series(
        "Streams",
        "A stream is one exporter as one replica of the backend saw it. Read again: did not add up at first.",
    )
    .line("max by (state) (statusbridge_aggregator_streams)", "{{state}}")
    .line("sum(rate(statusbridge_aggregator_streams_reread_total[$__rate_interval]))", "read again, a second")
}

fn clusters() -> Panel {
    Panel::series(
        "Clusters",
        "Clusters of which something was verified, and those that the metrics backend has a digest of.",
    )
    .line("max(statusbridge_aggregator_clusters)", "verified")
    .line("count(count by (${cluster_label}) (statusbridge_digest))", "with a digest")
}

fn poll_duration() -> Panel {
    let quantile = |q: &str| {
        format!(
            "histogram_quantile({q}, sum by (le) (rate(statusbridge_aggregator_poll_duration_seconds_bucket[$__rate_interval])))"
        )
    };
    Panel::series("How long polls take", "From the first query to the last verdict.")
        .line(&quantile("0.5"), "median")
        .line(&quantile("0.99"), "99 %")
        .unit("s")
}

fn polls() -> Panel {
    Panel::series("Polls", "A second, by how they ended.")
        .line("sum by (result) (rate(statusbridge_aggregator_polls_total[$__rate_interval]))", "{{result}}")
        .unit("ops")
}

fn cost() -> Panel {
    let per_poll = |what: &str| {
        format!(
            "sum(rate(statusbridge_aggregator_poll_{what}_total[$__rate_interval])) / sum(rate(statusbridge_aggregator_polls_total[$__rate_interval]))"
        )
    };
    Panel::series(
        "What a poll brings",
        "Samples and bytes that a poll receives from the metrics backend, on the average.",
    )
    .line(&per_poll("samples"), "samples")
    .line(&per_poll("bytes"), "bytes")
    .unit("short")
}

fn scraped() -> Panel {
    Panel::series("Scrapes", "Scrapes of exporters by the aggregator itself, a second, by how they ended.")
        .line("sum by (result) (rate(statusbridge_aggregator_scrapes_total[$__rate_interval]))", "{{result}}")
        .unit("ops")
}

fn pushed() -> Panel {
    Panel::series("Pushes", "What exporters pushed to the aggregator, a second, by what became of it.")
        .line("sum by (result) (rate(statusbridge_aggregator_pushes_total[$__rate_interval]))", "{{result}}")
        .unit("ops")
}

fn gates() -> Panel {
    Panel::stacked("Gates", "Each gate is in one state. Stalled: it will not open by itself.")
        .line("max by (state) (statusbridge_aggregator_gates)", "{{state}}")
}

fn writes() -> Panel {
    Panel::series(
        "Status writes",
        "A second, by what became of them, and how many wait for the write budget.",
    )
    .line("sum by (result) (rate(statusbridge_aggregator_hub_writes_total[$__rate_interval]))", "{{result}}")
    .line("max(statusbridge_aggregator_pending_writes)", "waiting")
}

fn sweeper() -> Panel {
    Panel::series(
        "Sweeper",
        "Rounds in which it looked for open gates because the aggregator was silent, an hour.",
    )
    .line("3600 * sum by (result) (rate(statusbridge_sweeper_sweeps_total[$__rate_interval]))", "{{result}}")
}

fn series_total() -> Panel {
    Panel::series(
        "Series",
        "All series of packages. A rollout adds some while it is under way, and none for good.",
    )
    .line("count({__name__=~\"statusbridge_package_.+\"})", "of packages")
    .line("count(statusbridge_reason_info)", "words for reasons")
    .line("count(statusbridge_package_healthy_revision)", "packages")
}

fn series_by_metric() -> Panel {
    Panel::bars(
        "Series by metric",
        "Every package has a healthy revision and a transition time. It has the others only while they say something: the more, the more packages are in trouble.",
        "sort_desc(count by (__name__) ({__name__=~\"statusbridge_package_.+\"}))",
        "{{__name__}}",
    )
}

fn scrapes() -> Panel {
    Panel::series("Scrapes of exporters", "How long exporters take to answer, 99 % of scrapes, and packages that a limit keeps out.")
        .line("histogram_quantile(0.99, sum by (le) (rate(statusbridge_exporter_scrape_duration_seconds_bucket[$__rate_interval])))", "99 %")
        .line("sum(statusbridge_exporter_packages_left_out) or vector(0)", "left out")
        .unit("s")
}
