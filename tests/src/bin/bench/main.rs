//! The benchmark: the exporter beside kube-state-metrics, reading the same objects from the same real API server, with a
//! plain paged LIST as the yardstick. Once Flux Kustomizations, which say themselves how they are (kube-state-metrics has
//! Flux's published configuration for them), and once ResourceGroups whose objects have to be looked at (kube-state-metrics
//! has its own metrics of those kinds).
//!
//! Then packages that are joined with other objects by label, an Argo CD for many clusters with the aggregator behind it, what a Prometheus has to hold that scrapes either program,
//! and at last an hour in which names come and go, whether the memory of exporter and aggregator stays flat. Besides, on
//! request, the change-log sidecar.
//!
//! Run it with `make bench`; settings and what the numbers mean are in docs/bench.md.

#![allow(clippy::indexing_slicing, clippy::string_slice)] // what cannot be ends it

mod central;
mod changelog;
mod churn;
mod cluster;
mod figures;
mod fleet;
mod joins;
mod probe;
mod report;
mod resources;
mod series;
mod subject;

use anyhow::{Context, Result, bail, ensure};
use cluster::{Bench, Cluster};
use figures::{Figures, Run};
use statusbridge_tests::bench::{number, say, setting};
use statusbridge_tests::{Rig, bench, usage};
use std::process::ExitCode;
use std::time::Instant;
use subject::Program;

fn main() -> ExitCode {
    bench::run("bench", measure)
}

async fn measure(rig: &Rig) -> Result<()> {
    let packages = || of("PACKAGES", "20000 100000", Part::Beside(Bench::Packages));
    let resources = || of("RESOURCES", "2000", Part::Beside(Bench::Resources));
    let joins = || of("JOINS", "2000", Part::Joins);
    let central = || of("CENTRAL", "50000", Part::Central);
    let series = || of("SERIES", "20000", Part::Series);
    let wanted = setting("BENCH");
    let sizes = match wanted.as_deref() {
        None => [packages()?, resources()?, joins()?, central()?, series()?].concat(),
        Some("packages") => packages()?,
        Some("resources") => resources()?,
        Some("joins") => joins()?,
        Some("central") => central()?,
        Some("series") => series()?,
        Some("churn") => Vec::new(),
        Some("changelog") => {
            say(&changelog::measure(rig, number("ENTRIES", 100_000)?).await?);
            return Ok(());
        }
        Some(other) => {
            bail!(
                "BENCH is `{other}`; it has to be `packages`, `resources`, `joins`, `central`, `series`, `churn` or `changelog`"
            )
        }
    };
    if !sizes.is_empty() {
        Program::Exporter.prepare().await?;
    }
    if sizes.iter().any(|(part, _)| !matches!(part, Part::Joins | Part::Central)) {
        Program::Peer.prepare().await?;
    }
    let mut tables = Vec::new();
    for (part, packages) in sizes {
        let table = match part {
            Part::Beside(bench) => one(rig, bench, packages).await?,
            Part::Joins => joins::measure(rig, packages).await?,
            Part::Central => central::measure(rig, packages).await?,
            Part::Series => series::measure(rig, packages).await?,
        };
        say(&format!("\n{table}"));
        tables.push(table);
    }
    let mut is_flat = true;
    if wanted.is_none_or(|part| part == "churn") {
        let (table, flat) = churn::measure(rig, number("MINUTES", 60)?).await?;
        say(&format!("\n{table}"));
        tables.push(table);
        is_flat = flat;
    }
    if tables.len() > 1 {
        say(&format!("All of it:\n\n{}", tables.join("\n")));
    }
    ensure!(is_flat, "memory grew while names came and went");
    Ok(())
}

/// What is measured with so many packages.
#[derive(Clone, Copy)]
enum Part {
    /// Both programs, one beside the other.
    Beside(Bench),
    /// The exporter alone, with packages that are joined by label.
    Joins,
    /// The exporter beside a management cluster, and the aggregator behind it.
    Central,
    /// What Prometheus holds of each.
    Series,
}

/// Measures both programs with so many packages.
async fn one(rig: &Rig, bench: Bench, packages: usize) -> Result<String> {
    let most = bench.most_updates(packages);
    let updates = number("UPDATES", 5_000.min(most / 4))?;
    ensure!((2..=most).contains(&updates), "UPDATES has to be between 2 and {most}");
    let updates = updates - updates % 2;
    let machine = usage::machine();
    say(&format!("{packages} packages ({bench:?}): writing the objects"));
    let started = Instant::now();
    let cluster = Cluster::start(rig, bench, packages).await?;
    let written = started.elapsed();
    say(&format!(
        "written in {} s; the API server is {}",
        written.as_secs(),
        cluster.api.kubeconfig().display()
    ));

    let run = Run { updates, rate: 200, scrapes: 20, starts: 3 };
    let exporter = Figures::measure(rig, Program::Exporter, &cluster, &run, 2).await?;
    // It takes minutes to start where there is much to read, and no aim is about it.
    let run = Run { starts: if packages > 20_000 { 1 } else { 3 }, ..run };
    let peer = match setting("PEER").as_deref() {
        Some("0") => None,
        _ => {
            let measured = Figures::measure(rig, Program::Peer, &cluster, &run, 4).await;
            measured
                .inspect_err(|error| say(&format!("kube-state-metrics could not be measured: {error:#}")))
                .ok()
        }
    };
    let table = report::render(&report::Report {
        bench,
        packages,
        updates,
        written,
        machine,
        exporter: &exporter,
        peer: peer.as_ref(),
    });
    if setting("KEEP").is_some_and(|keep| keep != "0") {
        say(&table);
        let subject = Program::Exporter.start(rig, &cluster).await?;
        say(&format!("the API server and the exporter (process {}) run until Ctrl-C", subject.pid()?));
        std::future::pending::<()>().await;
    }
    Ok(table)
}

/// The sizes of one benchmark.
fn of(name: &str, default: &str, part: Part) -> Result<Vec<(Part, usize)>> {
    let text = setting(name).unwrap_or_else(|| default.to_owned());
    let number = |word: &str| word.parse().with_context(|| format!("{name}: `{word}` is no number"));
    text.split_whitespace().map(|word| Ok((part, number(word)?))).collect()
}
