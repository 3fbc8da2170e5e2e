//! What was measured of an engine, and what follows from it for larger fleets, as tables in Markdown.

use super::engine::Kind;
use super::feed::Feed;
use super::load::{self, Load};
use super::needs::Needs;
use super::plan::Plan;
use super::reading::{Read, Reading};

/// Clusters from which larger fleets can be reckoned: in smaller ones memory differs more by chance than by series.
const ENOUGH: usize = 300;
/// Clusters of the fleets that are reckoned.
const FLEETS: [usize; 3] = [1_000, 10_000, 100_000];
/// Copies of every sample that engines are usually told to keep.
const COPIES: f64 = 3.0;
/// Days of data that are reckoned.
const DAYS: f64 = 30.0;

/// The table with a column for each feed.
struct Table<'a> {
    text: String,
    feeds: [&'a Needs; 2],
}

impl Table<'_> {
    fn row(&mut self, what: &str, of: impl Fn(&Needs) -> String) {
        let [ours, theirs] = self.feeds.map(of);
        self.text += &format!("| {what} | {ours} | {theirs} |\n");
    }

    /// A row for each process, where there are several.
    fn rows(&mut self, of: impl Fn(&Load) -> String) {
        let roles: Vec<&str> = self.feeds[0].rest.iter().map(|load| load.role).collect();
        for role in roles.iter().filter(|_| roles.len() > 1) {
            self.row(&format!("of it {role}"), |needs| {
                needs.rest.iter().find(|load| load.role == *role).map_or_else(String::new, &of)
            });
        }
    }

    /// What some of the aggregator's reading took, where it had something to read.
    fn reading(&mut self, what: &str, which: impl Fn(&Reading) -> Read) {
        let mut row = |what: &str, of: &dyn Fn(Read) -> String| {
            let read = |reading: &Reading| of(which(reading));
            self.row(what, |needs| needs.reading.as_ref().map_or_else(|| "–".to_owned(), read));
        };
        row(&format!("{what}: time"), &|read| format!("{:.2} s", read.took.as_secs_f64()));
        row("samples in the answers", &|read| format!("{:.0}", read.samples));
        row("bytes of the answers, before compression", &|read| match read.bytes {
            bytes if bytes < 1e6 => kilo(bytes),
            bytes => mega(bytes),
        });
        row("the engine's CPU for it", &|read| format!("{:.0} ms", read.engine.as_secs_f64() * 1e3));
    }
}

/// The table, and where the fleet is large enough for it, one of what follows.
pub(super) fn render(plan: &Plan, kind: Kind, machine: &str, ours: &Needs, theirs: &Needs) -> String {
    let [bridge, state] = [Feed::StatusBridge, Feed::StateMetrics].map(Feed::name);
    let text = format!(
        "{}. One Prometheus scrapes {} clusters with {} packages each every {} s and writes to it; {} minutes. \
         {machine}.\n\n| | {bridge} | {state} |\n|---|---|---|\n",
        kind.title(),
        plan.clusters,
        plan.packages,
        plan.interval.as_secs(),
        plan.rest.as_secs() / 60,
    );
    let mut table = Table { text, feeds: [ours, theirs] };
    let packages = (plan.clusters * plan.packages) as f64;
    table.row("series in memory", |it| format!("{:.0}", it.series));
    table.row("the same for a package", |it| format!("{:.2}", it.series / packages));
    table.row("samples a second that were accepted", |it| format!("{:.0}", it.rate));
    table.row("the same in those that were due", |it| format!("{:.1} %", 100.0 * it.share));
    table.row("samples that were lost on the way", |it| format!("{:.0}", it.lost));
    let few = plan.few();
    table.row(&format!("resident memory with {few} clusters"), |it| mega(it.small.resident as f64));
    table.row("resident memory at most", |it| mega(load::resident(&it.rest) as f64));
    table.rows(|load| mega(load.resident as f64));
    table.row("resident memory for each further series", |it| kilo(it.each_series()));
    table.row("the same for a package", |it| kilo(it.each_series() * it.series / packages));
    table.row("CPU", |it| cores(load::cores(&it.rest)));
    table.rows(|load| cores(load.cores));
    table.row("CPU for 10,000 samples a second", |it| cores(load::cores(&it.rest) * 1e4 / it.rate));
    table.row("on disk for a sample, without the index", |it| {
        format!("{:.2} bytes", it.small.stored.each_sample())
    });
    table.row("index on disk for a series", |it| format!("{:.0} bytes", it.small.stored.each_series()));
    table.row("sent for a sample, compressed", |it| format!("{:.1} bytes", it.sent));
    table.row("the sending Prometheus: resident memory at most", |it| mega(it.sender.resident as f64));
    table.row("the same, CPU", |it| cores(it.sender.cores));
    table.row("series in memory after a new revision of all packages", |it| format!("{:.0}", it.rolled_out));
    table.row("resident memory then", |it| mega(it.rolled_out_resident as f64));
    table.reading("the aggregator's first synchronisation", |reading| reading.first);
    table.reading("the aggregator's poll without changes", |reading| reading.quiet);
    table.row("resident memory at most, the aggregator's reading included", |it| mega(it.read as f64));
    let reckoned = if plan.clusters < ENOUGH {
        format!("Nothing is reckoned from fewer than {ENOUGH} clusters.\n")
    } else {
        reckoned(plan, ours, theirs)
    };
    table.text + "\n" + &reckoned
}

/// The same for larger fleets with three copies of everything, each figure in proportion to what was measured.
fn reckoned(plan: &Plan, ours: &Needs, theirs: &Needs) -> String {
    let mut table = format!(
        "Reckoned from it, {COPIES:.0} copies of everything, {} packages in each cluster, scraped every {} s:\n\n\
         | clusters | | series | samples a second | memory | CPU | disk, {DAYS:.0} days |\n|---|---|---|---|---|---|---|\n",
        plan.packages,
        plan.interval.as_secs(),
    );
    for clusters in FLEETS {
        for (feed, it) in [(Feed::StatusBridge, ours), (Feed::StateMetrics, theirs)] {
            let series = it.series / plan.clusters as f64 * clusters as f64;
            let rate = series / plan.interval.as_secs_f64();
            let memory = COPIES * it.memory(series);
            let busy = COPIES * load::cores(&it.rest) * rate / it.rate;
            // An index is written for each day.
            let day =
                rate * 86_400.0 * it.small.stored.each_sample() + series * it.small.stored.each_series();
            table += &format!(
                "| {clusters} | {} | {series:.0} | {rate:.0} | {:.1} GB | {} | {:.0} GB |\n",
                feed.name(),
                memory / 1e9,
                cores(busy),
                COPIES * DAYS * day / 1e9,
            );
        }
    }
    table
}

fn mega(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}

fn kilo(bytes: f64) -> String {
    format!("{:.1} KB", bytes / 1e3)
}

fn cores(busy: f64) -> String {
    format!("{busy:.2} cores")
}
