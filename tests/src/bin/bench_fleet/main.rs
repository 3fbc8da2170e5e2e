//! The benchmark of the aggregator: a real hub, and a fleet of ten thousand clusters with a hundred packages each behind a
//! backend that computes its answers; then a smaller fleet in a real VictoriaMetrics.
//!
//! Run it with `make bench-fleet`; settings and what the numbers mean are in docs/bench-fleet.md.

#![allow(clippy::indexing_slicing, clippy::string_slice)] // what cannot be ends it

mod backend;
mod engines;
mod exporters;
mod exposition;
mod figures;
mod generated;
mod hub;
mod propagation;
mod query;
mod report;
mod victoria;
mod viewers;

use anyhow::{Result, bail, ensure};
use backend::Backend;
use figures::{Figures, Run};
use generated::{Generated, Millis};
use hub::poll_interval;
use statusbridge_tests::bench::{number, say, setting};
use statusbridge_tests::{Rig, bench, own_program, usage};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use victoria::Victoria;

fn main() -> ExitCode {
    bench::run("bench-fleet", measure)
}

async fn measure(rig: &Rig) -> Result<()> {
    own_program("statusbridge-aggregator").await?;
    if setting("BENCH").as_deref() == Some("propagation") {
        say(&format!("All of it:\n\n{}", propagation::measure(rig).await?));
        return Ok(());
    }
    if setting("BENCH").as_deref() == Some("engines") {
        say(&format!("All of it:\n\n{}", engines::measure().await?));
        return Ok(());
    }
    let parts = match setting("BENCH").as_deref() {
        None => vec![Part::Generated, Part::Victoria],
        Some("generated") => vec![Part::Generated],
        Some("victoria") => vec![Part::Victoria],
        Some(other) => {
            bail!("BENCH is `{other}`; it has to be `generated`, `victoria`, `propagation` or `engines`")
        }
    };
    let mut tables = Vec::new();
    for part in parts {
        let table = part.measure(rig).await?;
        say(&format!("\n{table}"));
        tables.push(table);
    }
    if tables.len() > 1 {
        say(&format!("All of it:\n\n{}", tables.join("\n")));
    }
    Ok(())
}

/// What is measured.
#[derive(Clone, Copy)]
enum Part {
    /// Against a backend that computes its answers.
    Generated,
    /// Against a real VictoriaMetrics.
    Victoria,
}

/// The backend of a part.
enum Source {
    Generated(Backend),
    Victoria(Victoria),
}

impl Part {
    async fn measure(self, rig: &Rig) -> Result<String> {
        let (clusters, interval, spread, stale_after, speakers) = match self {
            // All within a second, so that a wave arrives at once.
            Self::Generated => {
                (number("CLUSTERS", 10_000)?, 15_000, 1_000, Duration::from_secs(180), number("SPEAKERS", 0)?)
            }
            Self::Victoria => {
                (number("VICTORIA_CLUSTERS", 1_000)?, 60_000, 60_000, Duration::from_secs(300), 0)
            }
        };
        let packages = number("PACKAGES", 100)?;
        ensure!(speakers <= clusters.min(100), "at most a hundred speakers, and a cluster for each");
        ensure!(packages >= 3 && clusters >= 10, "at least ten clusters with three packages each");
        let fleet_packages = number("FLEET_PACKAGES", packages)?.clamp(2, packages);
        let run = Run {
            fleet_packages,
            wave: number("WAVE", 1_000)?,
            waves: number("TIMES", 1)?.clamp(1, fleet_packages - 1),
            poll: poll_interval()?,
            quiet: number("QUIET", 8)? as u64,
            stale_after,
            rollouts: (number("ROLLOUTS", 0)?.min(packages - 2), number("WAVES", 100)?.clamp(1, 100)),
        };
        let machine = usage::machine();
        let began = Instant::now();
        let fleet = Arc::new(Generated::new(clusters, packages, interval as Millis, spread, speakers));
        say(&format!(
            "{clusters} clusters with {packages} packages each computed in {:.1?}",
            began.elapsed()
        ));
        let source = match self {
            Self::Generated => Source::Generated(Backend::start(fleet.clone()).await?),
            Self::Victoria => Source::Victoria(Victoria::start(rig, fleet.clone()).await?),
        };
        let figures = Figures::measure(rig, &fleet, &source, &run).await?;
        Ok(report::render(&source.name()?, &machine, &fleet, &run, &figures))
    }
}

impl Source {
    fn url(&self) -> String {
        match self {
            Self::Generated(backend) => backend.url(),
            Self::Victoria(victoria) => victoria.url(),
        }
    }

    fn name(&self) -> Result<String> {
        Ok(match self {
            Self::Generated(backend) => {
                let (plain, sent) = backend.bytes();
                format!(
                    "a backend that computes them (its answers compress to {} %)",
                    sent * 100 / plain.max(1)
                )
            }
            Self::Victoria(victoria) => {
                let resident = victoria.usage()?.1 / 1_000_000;
                let late = victoria.late().as_secs_f64();
                format!("VictoriaMetrics ({resident} MB resident, scrapes up to {late:.1} s late)")
            }
        })
    }

    /// Processor time used so far.
    fn processor(&self) -> Result<Duration> {
        match self {
            Self::Generated(_) => usage::processor(std::process::id()),
            Self::Victoria(victoria) => Ok(victoria.usage()?.0),
        }
    }

    /// Whether clusters are scraped at any time and not all at once.
    fn is_spread(&self) -> bool {
        matches!(self, Self::Victoria(_))
    }

    /// Whether all went well so far.
    fn check(&self) -> Result<()> {
        match self {
            Self::Generated(backend) => match backend.refused() {
                Some(refused) => bail!("the aggregator asked what this benchmark does not know: {refused}"),
                None => Ok(()),
            },
            Self::Victoria(victoria) => victoria.check(),
        }
    }
}
