//! The result as a table in Markdown.

use crate::cluster::Bench;
use crate::figures::Figures;
use std::time::Duration;

/// What there is to report.
pub(crate) struct Report<'a> {
    pub(crate) bench: Bench,
    pub(crate) packages: usize,
    pub(crate) updates: usize,
    /// How long it took to write the objects.
    pub(crate) written: Duration,
    pub(crate) machine: String,
    pub(crate) exporter: &'a Figures,
    /// Missing when it could not be measured.
    pub(crate) peer: Option<&'a Figures>,
}

/// What a row asks for: in words, and whether the exporter's value is good enough.
type Aim = Option<(&'static str, fn(f64) -> bool)>;

/// The table, with the yardstick above it.
pub(crate) fn render(report: &Report<'_>) -> String {
    let ours = report.exporter;
    let listed = ours.starts.first().map(|(listed, _)| *listed);
    let (objects, bytes) = listed.map_or((0, 0), |l| (l.objects, l.bytes / l.objects.max(1)));
    let what = report.bench.what(report.packages, objects);
    let mut lists = format!("{} beside the exporter's starts", millis(ours.list().as_secs_f64()));
    if let Some(peer) = report.peer {
        lists += &format!(", {} beside kube-state-metrics'", millis(peer.list().as_secs_f64()));
    }
    let head = format!(
        "{what} ({bytes} bytes each as JSON), written in {:.0} s. {}. A plain paged LIST of them takes {lists}.\n\n\
         | | statusbridge-exporter | kube-state-metrics | ratio | aim | met |\n|---|---|---|---|---|---|\n",
        report.written.as_secs_f64(),
        report.machine,
    );
    rows(report).iter().fold(head, |table, row| table + row)
}

fn rows(report: &Report<'_>) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = |what: &str, value: &dyn Fn(&Figures) -> f64, show: fn(f64) -> String, aim: Aim| {
        let (ours, theirs) = (value(report.exporter), report.peer.map(value));
        let ratio =
            theirs.filter(|theirs| *theirs > 0.0).map_or(String::new(), |t| format!("{:.2}", ours / t));
        let theirs = theirs.map_or("not measured".to_owned(), show);
        let (aim, met) = aim.map_or(("", ""), |(aim, met)| (aim, if met(ours) { "yes" } else { "**no**" }));
        rows.push(format!("| {what} | {} | {theirs} | {ratio} | {aim} | {met} |\n", show(ours)));
    };
    let (packages, updates) = (report.packages as f64, report.updates as f64);
    // The aims are about packages that say themselves how they are; of memory, about the largest run.
    let of_packages = |aim: Aim| aim.filter(|_| report.bench == Bench::Packages);

    row("resident memory after the first complete scrape", &|f| f.resident[0] as f64, mega, None);
    row("resident memory after the updates", &|f| f.resident[1] as f64, mega, None);
    let memory = of_packages(Some(("300 MB for 100,000", |v| v <= 300e6)));
    row("resident memory at most", &|f| f.resident[2] as f64, mega, memory);
    row("start to first complete scrape", &|f| f.start().as_secs_f64(), millis, None);
    let lists = of_packages(Some(("1.3", |v| v <= 1.3)));
    let to_list = |f: &Figures| f.start().as_secs_f64() / f.list().as_secs_f64();
    row("the same in plain paged LISTs", &to_list, |v| format!("{v:.2}"), lists);
    row("CPU from start to first complete scrape", &|f| f.start_processor.as_secs_f64(), millis, None);
    row("GETs and LISTs until then (watches not counted)", &|f| f.reads as f64, whole, None);

    let update = format!("CPU for an update of {}", report.bench.updated());
    let each = |f: &Figures| f.updates.as_secs_f64() / updates;
    row(&update, &each, micros, of_packages(Some(("under 60 µs", |v| v < 60e-6))));
    row("updates a second", &|f| updates / f.updates_took.as_secs_f64(), whole, None);
    if report.exporter.sources.0 > 0 {
        let what = format!("CPU for {} sources' new revisions", report.exporter.sources.0);
        row(&what, &|f| f.sources.1.as_secs_f64(), millis, None);
    }
    for (n, how) in ["", ", compressed", ", compressed, during updates"].iter().enumerate() {
        let scrape = of_packages(Some(("40 ms", |v| v <= 40e-3)));
        row(&format!("CPU for a scrape{how}"), &|f| f.scrapes[n].processor.as_secs_f64(), millis, scrape);
        row(&format!("time of a scrape{how}"), &|f| f.scrapes[n].took.as_secs_f64(), millis, None);
    }
    row("size of a scrape", &|f| f.scrapes[0].size as f64, mega, None);
    row("size of a scrape, compressed", &|f| f.scrapes[1].size as f64, mega, None);
    let bytes = of_packages(Some(("350", |v| v <= 350.0)));
    row("bytes of exposition per package", &|f| f.scrapes[0].size as f64 / packages, whole, bytes);
    row("series per package", &|f| f.series as f64 / packages, |v| format!("{v:.2}"), None);
    // A reason that nothing had before is a new series, too.
    let none = of_packages(Some(("none", |v| v == 0.0)));
    row("new series after all updates", &|f| f.new_series as f64, whole, none);
    rows
}

fn whole(number: f64) -> String {
    format!("{number:.0}")
}

pub(crate) fn millis(seconds: f64) -> String {
    let ms = seconds * 1e3;
    if ms < 100.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

pub(crate) fn micros(seconds: f64) -> String {
    format!("{:.0} µs", seconds * 1e6)
}

pub(crate) fn mega(bytes: f64) -> String {
    if bytes < 1e5 { format!("{:.1} KB", bytes / 1e3) } else { format!("{:.1} MB", bytes / 1e6) }
}
