//! Faults of every process and every connection on real servers, held against what was true at each time.
//!
//! `make test` makes each fault once; `make faults MINUTES=30 SEED=1` lets a storm of them follow: see docs/proof.md for
//! what came of it.

mod admissions;
mod check;
mod fault;
mod record;
mod rounds;
mod storm;
mod system;
mod timeline;

use anyhow::{Context, Result, bail, ensure};
use check::ReceiptLog;
use fault::Transport;
use statusbridge_tests::{Rig, run};
use std::time::Duration;
use system::{CLUSTERS, System, revision};
use timeline::Truth;

/// A system in which everything is healthy at the first revision, and all gates are open.
async fn healthy(rig: &Rig, transport: Transport) -> Result<System> {
    let system = System::start(rig, transport).await?;
    for cluster in 0..CLUSTERS.len() {
        system.becomes(cluster, Truth::Healthy(revision(1)));
    }
    system.report().await?;
    system.ask_for(&revision(1)).await?;
    system.are(&System::quick_gates(), true, Duration::from_secs(120)).await?;
    println!("{:6.1} s  all gates are open", timeline::now() - system.started);
    Ok(system)
}

/// What went wrong, with what happened before it.
fn told<T>(system: &System, result: Result<T>) -> Result<T> {
    result.inspect_err(|_| println!("{}", system.tell()))
}

/// Makes every fault that is in these of all rounds.
async fn every_fault(system: &System, these: impl Fn(usize) -> bool) -> Result<()> {
    let (count, mut made) = (rounds::rounds(0, system.transport()).len(), 0);
    for i in (0..count).filter(|i| these(*i)) {
        let leader = statusbridge_tests::eventually(statusbridge_tests::SOON, "one leads", async || {
            system.leader().await
        })
        .await?;
        let round = &rounds::rounds(leader, system.transport())[i];
        let names: Vec<String> = round.faults.iter().map(ToString::to_string).collect();
        let only = std::env::var("STATUSBRIDGE_FAULTS_ONLY").unwrap_or_default();
        if !names.join(", ").contains(&only) {
            continue;
        }
        made += 1;
        println!("{:6.1} s  {}", timeline::now() - system.started, names.join(", "));
        let plan = format!("round-{i}");
        told(system, round.run(system, 1, &plan).await.with_context(|| names.join(", ")))?;
    }
    let tally = system.check().await?;
    println!("{:6.1} s  {made} of {count} rounds: {tally:?}", timeline::now() - system.started);
    Ok(())
}

async fn storm(system: &System, seed: u64, lasts: Duration) -> Result<()> {
    println!("{:6.1} s  a storm of {lasts:?}, SEED={seed}", timeline::now() - system.started);
    let record = storm::rage(system, seed, lasts, 100).await.with_context(|| format!("SEED={seed}"));
    let record = told(system, record)?;
    println!("{:6.1} s  {record:#?}", timeline::now() - system.started);
    let ReceiptLog { openings, closings, admissions, .. } = record.tally;
    ensure!(openings > 0 && closings > 0 && admissions > 0, "nothing happened");
    Ok(())
}

/// A number that the environment gives.
fn setting(name: &str) -> Option<f64> {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse().expect(name))
}

fn seed() -> u64 {
    setting("STATUSBRIDGE_FAULTS_SEED").map_or_else(|| timeline::now() as u64, |seed| seed as u64)
}

/// With Prometheus two tests make every fault between them, each on servers of its own, so that they can run side by side.
async fn every_second_fault(name: &str, first: usize) {
    run(name, async |rig| {
        let system = healthy(rig, Transport::Prometheus).await?;
        every_fault(&system, |round| round % 2 == first).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_gate_opens_on_a_lie_whatever_fails_and_all_open_when_it_is_over() {
    every_second_fault("faults-even", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_gate_opens_on_a_lie_whatever_else_fails_and_all_open_when_it_is_over() {
    every_second_fault("faults-odd", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_gate_opens_on_a_lie_whatever_fails_where_exporters_push() {
    run("faults-push", async |rig| {
        let system = healthy(rig, Transport::Push).await?;
        every_fault(&system, |_| true).await
    })
    .await;
}

// One thread more than for the others: after hours the check takes a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[ignore = "as long as one likes: make faults MINUTES=30"]
async fn every_fault_and_a_long_storm() {
    run("faults-long", async |rig| {
        let transport = match std::env::var("STATUSBRIDGE_FAULTS_TRANSPORT").as_deref() {
            Err(_) | Ok("" | "prometheus") => Transport::Prometheus,
            Ok("victoria-metrics") => Transport::VictoriaMetrics,
            Ok("push") => Transport::Push,
            Ok(other) => bail!("there is no transport {other:?}: prometheus, victoria-metrics or push"),
        };
        let minutes = setting("STATUSBRIDGE_FAULTS_MINUTES").unwrap_or(10.0);
        let system = healthy(rig, transport).await?;
        every_fault(&system, |_| true).await?;
        storm(&system, seed(), Duration::from_secs_f64(minutes * 60.0)).await
    })
    .await;
}
