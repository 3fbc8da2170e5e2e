//! The benchmark: the exporter beside kube-state-metrics with Flux's published configuration, reading the same Flux
//! Kustomizations from the same real API server, with a plain paged LIST as the yardstick.
//!
//! Run it with `make bench`; `PACKAGES` and `UPDATES` change how many there are, `KEEP=1` leaves the API server and the
//! exporter running afterwards, to profile. What the numbers mean is in docs/bench.md.

mod cluster;
mod figures;
mod fleet;
mod report;
mod subject;
mod usage;

use anyhow::{Context, Result, ensure};
use cluster::Cluster;
use figures::{Figures, Run};
use statusbridge_tests::Rig;
use std::process::ExitCode;
use std::time::Instant;
use subject::Program;

fn main() -> ExitCode {
    let done = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
        .and_then(|runtime| runtime.block_on(run()));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let rig = Rig::new("bench")?;
    tokio::select! {
        measured = measure(&rig) => measured.inspect_err(|_| rig.mark_failed()),
        stopped = tokio::signal::ctrl_c() => stopped.context("listening for Ctrl-C"),
    }
}

async fn measure(rig: &Rig) -> Result<()> {
    let packages = setting("PACKAGES", 20_000)?;
    let updates = setting("UPDATES", packages / 4)?;
    ensure!(0 < updates && updates <= packages, "UPDATES has to be between 1 and PACKAGES");
    for program in [Program::Exporter, Program::Peer] {
        program.prepare().await?;
    }
    let loaded = usage::load();
    say(&format!("writing {packages} Kustomizations, each with its status"));
    let started = Instant::now();
    let mut cluster = Cluster::start(rig, packages).await?;
    let seconds = started.elapsed().as_secs();
    say(&format!("written in {seconds} s; the API server is {}", cluster.api.kubeconfig().display()));

    let run = Run { updates, rate: 200, scrapes: 20, starts: 3 };
    let exporter = Figures::measure(rig, Program::Exporter, &mut cluster, &run, 2).await?;
    let peer = Figures::measure(rig, Program::Peer, &mut cluster, &run, 3).await?;
    say("");
    say(&report::render(&report::Report {
        packages,
        updates,
        processors: usage::processors(),
        load: loaded,
        exporter: &exporter,
        peer: &peer,
    }));
    if std::env::var("KEEP").is_ok_and(|v| !matches!(v.as_str(), "" | "0")) {
        let subject = Program::Exporter.start(rig, cluster.api.kubeconfig()).await?;
        say(&format!("the API server and the exporter (process {}) run until Ctrl-C", subject.pid()?));
        std::future::pending::<()>().await;
    }
    Ok(())
}

fn setting(name: &str, default: usize) -> Result<usize> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text.parse().with_context(|| format!("{name} is no number")),
        _ => Ok(default),
    }
}

/// Prints a line of progress or of the result.
pub(crate) fn say(text: &str) {
    println!("{text}");
}
