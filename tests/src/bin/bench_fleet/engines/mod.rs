//! What the metrics engine underneath needs: a real Mimir, Thanos and VictoriaMetrics cluster, one after another. Each gets
//! the generated fleet from a real Prometheus, and then, started anew, what kube-state-metrics would say of the same packages.

mod engine;
mod feed;
mod load;
mod needs;
mod page;
mod plan;
mod reading;
mod sender;
mod small;
mod state_metrics;
mod stored;
mod table;

use anyhow::Result;
use feed::Feed;
use plan::Plan;
use statusbridge_tests::bench::say;
use statusbridge_tests::{program, usage};

/// Measures the engines that the environment names, and gives a table of each.
pub(crate) async fn measure() -> Result<String> {
    let plan = Plan::read()?;
    // One that is not built yet is to be noticed before anything is measured.
    for name in plan.kinds.iter().flat_map(|kind| kind.programs()) {
        program(name)?;
    }
    let mut tables = Vec::new();
    for kind in &plan.kinds {
        let machine = usage::machine();
        let ours = needs::measure(&plan, *kind, Feed::StatusBridge).await?;
        let theirs = needs::measure(&plan, *kind, Feed::StateMetrics).await?;
        let table = table::render(&plan, *kind, &machine, &ours, &theirs);
        say(&format!("\n{table}"));
        tables.push(table);
    }
    Ok(tables.join("\n"))
}
