//! The result as a table in Markdown.

use crate::figures::Figures;
use std::time::Duration;

/// What there is to report.
pub(crate) struct Report<'a> {
    pub(crate) packages: usize,
    pub(crate) updates: usize,
    pub(crate) processors: usize,
    pub(crate) load: String,
    pub(crate) exporter: &'a Figures,
    pub(crate) peer: &'a Figures,
}

struct Row {
    what: String,
    exporter: String,
    peer: String,
    ratio: String,
    aim: &'static str,
    met: Option<bool>,
}

/// The table, with the yardstick above it.
pub(crate) fn render(report: &Report<'_>) -> String {
    let (ours, theirs) = (report.exporter, report.peer);
    let (listed, _) = ours.start();
    let mut out = format!(
        "{} Kustomizations of {} bytes as JSON, {} of which move to a new revision; {} processors, load {} at the start.\n\
         A plain paged LIST of them all takes {} beside the exporter's starts and {} beside kube-state-metrics'.\n\n\
         | | statusbridge-exporter | kube-state-metrics | ratio | aim | met |\n|---|---|---|---|---|---|\n",
        report.packages,
        listed.bytes / report.packages,
        report.updates,
        report.processors,
        report.load,
        millis(ours.list()),
        millis(theirs.list()),
    );
    for Row { what, exporter, peer, ratio, aim, met } in rows(report) {
        let met = met.map_or("", |met| if met { "yes" } else { "**no**" });
        out.push_str(&format!("| {what} | {exporter} | {peer} | {ratio} | {aim} | {met} |\n"));
    }
    out
}

fn rows(report: &Report<'_>) -> Vec<Row> {
    let (ours, theirs) = (report.exporter, report.peer);
    let row = |what: &str, exporter, peer, (ratio, met): (f64, Option<bool>), aim| {
        let ratio = format!("{ratio:.2}");
        Row { what: what.to_owned(), exporter, peer, ratio, aim, met }
    };
    let tenth = |a: f64, b: f64| (a / b, Some(a <= b / 10.0));
    let no_more = |a: f64, b: f64| (a / b, Some(a <= b));
    let plain = |a: f64, b: f64| (a / b, None);
    let mut rows = Vec::new();
    for (n, when) in ["after the first complete scrape", "after the updates", "at most"].iter().enumerate() {
        let (a, b) = (ours.resident[n] as f64, theirs.resident[n] as f64);
        rows.push(row(&format!("resident memory {when}"), mega(a), mega(b), tenth(a, b), "a tenth"));
    }
    let to_list = |f: &Figures| f.start().1.as_secs_f64() / f.list().as_secs_f64();
    let (a, b) = (ours.start().1, theirs.start().1);
    let against_list = |f: &Figures, t| format!("{}, {:.2} × LIST", millis(t), to_list(f));
    let (ratio, _) = plain(a.as_secs_f64(), b.as_secs_f64());
    let met = (ratio, Some(to_list(ours) <= 1.3));
    let what = "start to first complete scrape";
    rows.push(row(what, against_list(ours, a), against_list(theirs, b), met, "1.3 × LIST"));
    let (a, b) = (ours.start_processor, theirs.start_processor);
    let met = plain(a.as_secs_f64(), b.as_secs_f64());
    rows.push(row("CPU from start to first complete scrape", millis(a), millis(b), met, ""));

    let (a, b) = (each(ours.updates, report.updates), each(theirs.updates, report.updates));
    let micros = |t: f64| format!("{:.0} µs", t * 1e6);
    rows.push(row("CPU for an update of a package", micros(a), micros(b), tenth(a, b), "a tenth"));
    let rate = |f: &Figures| format!("{:.0}", report.updates as f64 / f.updates_took.as_secs_f64());
    let what = "updates a second".to_owned();
    rows.push(Row {
        what,
        exporter: rate(ours),
        peer: rate(theirs),
        ratio: String::new(),
        aim: "",
        met: None,
    });
    let moved = |f: &Figures| format!("{} for {}", millis(f.repositories.1), f.repositories.0);
    let what = "CPU for their sources' new revisions";
    rows.push(Row { ratio: String::new(), ..row(what, moved(ours), moved(theirs), plain(0.0, 1.0), "") });
    for (n, how) in ["", ", compressed"].iter().enumerate() {
        let ((a, a_size), (b, b_size)) = (ours.scrape[n], theirs.scrape[n]);
        let met = no_more(a.as_secs_f64(), b.as_secs_f64());
        rows.push(row(&format!("a scrape{how} (median)"), millis(a), millis(b), met, "no slower"));
        let (a, b) = (a_size as f64, b_size as f64);
        rows.push(row(&format!("size of a scrape{how}"), mega(a), mega(b), plain(a, b), ""));
    }
    let per_package = |f: &Figures| f.scrape[0].1 as f64 / report.packages as f64;
    let (a, b) = (per_package(ours), per_package(theirs));
    let met = (a / b, Some(a < 2048.0));
    rows.push(row(
        "bytes of exposition per package",
        format!("{a:.0}"),
        format!("{b:.0}"),
        met,
        "under 2 KB",
    ));
    let per_package = |f: &Figures| f.series as f64 / report.packages as f64;
    let (a, b) = (per_package(ours), per_package(theirs));
    rows.push(row("series per package", format!("{a:.2}"), format!("{b:.2}"), plain(a, b), ""));
    let met = Some(ours.new_series == 0);
    let (a, b) = (ours.new_series.to_string(), theirs.new_series.to_string());
    let what = format!("new series when {} packages move", report.updates);
    rows.push(Row { what, exporter: a, peer: b, ratio: String::new(), aim: "none", met });
    rows
}

fn each(total: Duration, count: usize) -> f64 {
    total.as_secs_f64() / count as f64
}

fn millis(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 100.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

fn mega(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}
