//! Everything at once for hours: does anything grow that nothing makes larger?
//!
//! ```text
//!   each 2 s         Life       packages, revisions, failures, gates, rollouts: new ones come, as many go
//!   each 10 s        readers    the page, verdicts, gates, metrics
//!   each 2 minutes   World      a connection is cut
//!   each minute      measure    a row of figures      -> TO (docs/soak.tsv)
//!   at the end       trend, graph                     -> the verdict, and the drawing beside TO
//! ```
//!
//! `make soak` runs a stretch and adds its rows to those of the stretches before; `make soak-graph` only draws. See
//! docs/soak.md.

#![allow(clippy::indexing_slicing, clippy::string_slice)] // what cannot be ends it

mod graph;
mod life;
mod measure;
mod readers;
mod rows;
mod trend;
mod world;

use anyhow::{Context, Result, bail, ensure};
use life::Life;
use rows::{Row, Table};
use statusbridge_tests::bench::{number, say, setting};
use statusbridge_tests::fake_fleet::unix_now;
use statusbridge_tests::{Rig, bench, usage};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use world::World;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => bench::run("soak", stretch),
        Some("graph") => match report(&table()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
        Some(other) => {
            eprintln!(
                "error: there is no command `{other}`: run a stretch without one, or draw with `graph`"
            );
            ExitCode::FAILURE
        }
    }
}

/// Where the rows are.
fn table() -> Table {
    Table::at(PathBuf::from(setting("TO").unwrap_or_else(|| "docs/soak.tsv".to_owned())))
}

/// Runs one stretch.
async fn stretch(rig: &Rig) -> Result<()> {
    let (minutes, seed) = (number("MINUTES", 60)?, number("SEED", unix_now())?);
    let every = Duration::from_secs(number("EVERY", 60)?);
    let clusters = number("CLUSTERS", 200)?;
    ensure!(minutes > 0 && !every.is_zero(), "MINUTES and EVERY have to be at least 1");
    ensure!(clusters >= 20, "CLUSTERS is {clusters}; the waves of a rollout need at least 20");
    let table = table();
    let stretch = table.next_stretch()?;
    let (date, commit) = (jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(), commit());
    say(&format!("stretch {stretch} for {minutes} minutes, SEED={seed}, {}: starting", usage::machine()));
    let world = World::start(rig, clusters).await?;
    let mut life = Life::begin(&world, fastrand::Rng::with_seed(seed)).await?;
    life.is_judged().await?;
    say("everything runs");

    let began = Instant::now();
    let until = began + Duration::from_secs(60) * minutes;
    let record = async {
        let mut at = began;
        while at + every <= until {
            at += every;
            sleep_until(at).await;
            let figures = measure::figures(&world).await?;
            let seconds = (at - began).as_secs();
            let row = Row { stretch, seconds, date: date.clone(), commit: commit.clone(), figures };
            table.append(&row)?;
            say(&format!("{:4} min: {}", seconds / 60, row.text()));
        }
        Ok(())
    };
    let own_work = usage::processor(std::process::id())?;
    let ((), reads, cuts, ()) = tokio::try_join!(
        life.live(until),
        async { Ok(readers::read(&world, fastrand::Rng::with_seed(seed.wrapping_add(1)), until).await) },
        world.is_cut(fastrand::Rng::with_seed(seed.wrapping_add(2)), until),
        record,
    )?;
    let spent = measure::processor(&world)?;
    // Figures are worth something only of programs that kept up.
    life.is_shown().await?;
    life.is_judged().await?;
    say(&format!("\n{:?}, {reads:?}, {cuts} connections cut", life.done()));
    let share = |spent: Duration| spent.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
    say(&format!(
        "of one processor: this program {:.1} %, exporter {:.1} %, aggregator {:.1} %\n",
        share(usage::processor(std::process::id())? - own_work),
        share(spent[0]),
        share(spent[1]),
    ));
    report(&table)
}

/// Draws all stretches and prints the verdict.
fn report(table: &Table) -> Result<()> {
    let rows = table.rows()?;
    let drawing = table.path().with_extension("svg");
    std::fs::write(&drawing, graph::draw(&rows)).with_context(|| format!("writing {}", drawing.display()))?;
    say(&format!("{}\n{} is drawn", trend::markdown(&rows), drawing.display()));
    let growing = trend::growing(&rows);
    if !growing.is_empty() {
        bail!("not flat: {}", growing.join(", "));
    }
    Ok(())
}

/// The commit that is checked out.
fn commit() -> String {
    let git = Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let text = git.ok().filter(|it| it.status.success()).and_then(|it| String::from_utf8(it.stdout).ok());
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
