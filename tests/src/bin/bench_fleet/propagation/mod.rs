//! How long a change takes from a cluster to its gate in the hub, and what of that is ours.
//!
//! ```text
//!   scraped    object --ours--> /metrics --scrape interval--> Prometheus --settle delay, poll interval--> poll --ours--> gate
//!   generated                   /metrics --scrape interval--> backend ----settle delay, poll interval--> poll --ours--> gate
//!   pushed     object --ours--> /metrics ------------------------------------------------------------------ours--> gate
//! ```

mod clock;
mod gates;
mod generated;
mod others;
mod polls;
mod real;

use anyhow::{Result, bail};
use clock::Seconds;
use statusbridge_tests::bench::{number, say, setting};
use statusbridge_tests::{Rig, usage};
use std::time::Duration;

/// Packages that change, one after another.
const PACKAGES: usize = 20;
/// Longest time for one change to arrive.
const PATIENCE: Duration = Duration::from_secs(120);
/// `staleAfter` of the packages.
const STALE_AFTER: &str = "180s";
/// Time between two scrapes, and between two pushes without a change.
const INTERVAL: Duration = Duration::from_secs(15);

/// How changes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Road {
    /// A real exporter, and others beside it, that a real Prometheus scrapes.
    Scraped,
    /// What ten thousand exporters would say, in a backend that computes it.
    Generated,
    /// A real exporter, and others beside it, that push.
    Pushed,
}

/// What a change's way took, in seconds.
#[derive(Debug, Default)]
struct Way {
    /// From the write until the exporter shows it.
    exporter: Seconds,
    /// From there to the scrape that found it.
    scrape: Seconds,
    /// From that scrape until a poll asked about a time at which it counts.
    poll: Seconds,
    /// From that poll's first query, or from /metrics where no poll is, until the gate was written.
    aggregator: Seconds,
}

impl Way {
    fn ours(&self) -> Seconds {
        self.exporter + self.aggregator
    }

    fn total(&self) -> Seconds {
        self.ours() + self.scrape + self.poll
    }
}

/// Measures every road, or the one that ROAD names, and gives the tables.
pub(crate) async fn measure(rig: &Rig) -> Result<String> {
    let roads = match setting("ROAD").as_deref() {
        None => vec![Road::Scraped, Road::Generated, Road::Pushed],
        Some("scraped") => vec![Road::Scraped],
        Some("generated") => vec![Road::Generated],
        Some("pushed") => vec![Road::Pushed],
        Some(other) => bail!("ROAD is `{other}`; it has to be `scraped`, `generated` or `pushed`"),
    };
    let (changes, machine) = (number("CHANGES", 200)?, usage::machine());
    let mut tables = Vec::new();
    for road in roads {
        let clusters = match road {
            Road::Generated => number("CLUSTERS", 10_000)?,
            Road::Scraped | Road::Pushed => number("EXPORTERS", 1_000)?,
        };
        say(&format!("{road:?}: {changes} changes in {clusters} clusters"));
        let ways = match road {
            Road::Generated => generated::changes(rig, changes, clusters).await?,
            Road::Scraped => real::scraped(rig, changes, clusters).await?,
            Road::Pushed => real::pushed(rig, changes, clusters).await?,
        };
        let table = road.table(&ways, clusters, &machine);
        say(&table);
        tables.push(table);
    }
    Ok(tables.join("\n"))
}

impl Road {
    /// Time between two changes, so that one has arrived before its package changes again. It goes into no interval, so that
    /// changes come at every moment between scrapes and polls.
    fn pause(self) -> Duration {
        match self {
            Self::Scraped | Self::Generated => Duration::from_millis(2_371),
            Self::Pushed => Duration::from_millis(371),
        }
    }

    fn table(self, ways: &[Way], clusters: usize, machine: &str) -> String {
        let of = match self {
            Self::Scraped => {
                "exporters that a real Prometheus scrapes every 15 s, one real and the others their expositions"
            }
            Self::Generated => "clusters of a hundred packages in a generated backend, scraped every 15 s",
            Self::Pushed => {
                "exporters that push every 15 s and when something changes, one real and the others their expositions"
            }
        };
        let mut table = format!(
            "{} changes in one of {clusters} {of}. {machine}.\n\n\
             | | median | 99th percentile | aim | met |\n|---|---|---|---|---|\n",
            ways.len()
        );
        let quantile = |of: fn(&Way) -> Seconds, share: f64| -> Seconds {
            let mut all: Vec<Seconds> = ways.iter().map(of).collect();
            all.sort_by(Seconds::total_cmp);
            let rank = (share * all.len() as f64).ceil() as usize;
            all.get(rank.max(1) - 1).copied().unwrap_or_default()
        };
        let mut row = |what: &str, of: fn(&Way) -> Seconds, aim: Option<u32>| {
            let (median, most) = (quantile(of, 0.5), quantile(of, 0.99));
            let met = aim.map_or("", |aim| if most < f64::from(aim) { "yes" } else { "**no**" });
            let aim = aim.map_or_else(String::new, |aim| format!("under {aim} s"));
            table += &format!("| {what} | {:.0} ms | {:.0} ms | {aim} | {met} |\n", median * 1e3, most * 1e3);
        };
        if self == Self::Pushed {
            row("from the object to the gate, all of it ours", Way::total, Some(2));
            row("of it: from the object to /metrics", |way| way.exporter, None);
            row("of it: from /metrics to the gate, the push included", |way| way.aggregator, None);
            return table;
        }
        let is_real = self == Self::Scraped;
        row(
            if is_real { "from the object to the gate" } else { "from /metrics to the gate" },
            Way::total,
            None,
        );
        row("of it: from /metrics to the scrape (interval 15 s)", |way| way.scrape, None);
        row("of it: from the scrape to the poll (settle delay 5 s, interval 15 s)", |way| way.poll, None);
        row("of it ours", Way::ours, Some(1));
        if is_real {
            row("of that: from the object to /metrics", |way| way.exporter, None);
        }
        row("of that: from the poll to the gate, the backend's answers included", |way| way.aggregator, None);
        table
    }
}

/// Name of a package.
fn package(number: usize) -> String {
    format!("package-{number:03}")
}
