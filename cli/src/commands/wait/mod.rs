//! `wait gate/NAME --revision R`: for pipelines and Jobs, until a gate is open for one revision.
//!
//! ```text
//!   watch of the gate ─┐
//!   every few seconds ─┴─> look (read gate and FleetPackage anew) ─> reading ─> Patience ─> exit code
//!                                                                      └─> Printer ─> lines, progress
//! ```
//!
//! A watch only says that it is time to look: what counts is read anew from the hub's API server,
//! with its answer's own date as the present, so neither a watch that has died nor a wrong clock of
//! this machine makes an old verdict look like a new one.

mod patience;
mod printer;
mod progress;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use futures::StreamExt;
use futures::future::OptionFuture;
use jiff::Timestamp;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use statusbridge_aggregator::hub::write;
use statusbridge_api::common::duration;
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::object::Key;
use statusbridge_serving::signals::told_to_stop;
use tokio::time::{Instant, sleep_until};

use crate::exit::Exit;
use crate::hub::{Access, Hub};
use crate::look::look;
use crate::output::OutputArgs;
use crate::target::{Target, revision, target, warn_of};
use patience::{Outcome, Patience};
use printer::Printer;

/// How long between two looks when nothing seems to happen.
const TICK: Duration = Duration::from_secs(5);

/// Flags of `wait`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitArgs {
    /// What to wait for: gate/NAME until it is open, package/NAME until it is Ready
    #[arg(value_name = "KIND/NAME", value_parser = target)]
    target: Target,
    /// The revision that it has to be open for: in the delivery system's words, or 12 hex digits
    #[arg(long, value_parser = revision)]
    revision: String,
    /// How long to wait at most [default: as long as it takes]
    #[arg(long, value_parser = duration)]
    timeout: Option<Duration>,
    /// When to give up, for instance 2026-11-21T10:00:00Z: unlike --timeout it does not start again
    /// when a Job does
    #[arg(long, value_name = "TIME")]
    deadline: Option<Timestamp>,
    /// How long the object may be missing, at another revision, or without anybody who keeps it up to
    /// date before the wait ends
    #[arg(long, default_value = "1m", value_parser = duration)]
    grace: Duration,
    /// How much older than staleAfter evidence may be, for clocks that differ
    #[arg(long, default_value = "15s", value_parser = duration)]
    slack: Duration,
    #[command(flatten)]
    output: OutputArgs,
}

/// Waits. Prints a line on standard output whenever the state changes, and on standard error how far the clusters are.
///
/// # Errors
/// When there is no way to reach the hub's API server.
pub(crate) async fn run(access: &Access, args: WaitArgs) -> Result<Exit> {
    warn_of(&args.revision);
    let until = deadline(&args)?;
    let hub = access.connect().await?;
    let key = Key { namespace: hub.namespace.clone(), name: args.target.name.clone() };
    let mut printer = Printer::new(args.target.clone(), key, args.output.output);
    let stopped = told_to_stop()?;
    let outcome = tokio::select! {
        outcome = follow(&hub, &args, &mut printer) => outcome,
        Some(()) = OptionFuture::from(until.map(sleep_until)) => Outcome::TimedOut,
        () = stopped => bail!("told to stop"),
    };
    printer.end(outcome);
    Ok(outcome.exit())
}

/// The earlier of the two limits; `None`: none is set.
fn deadline(args: &WaitArgs) -> Result<Option<Instant>> {
    let now = Instant::now();
    let after = |span: Duration| now.checked_add(span);
    let left = args.deadline.map(|deadline| Timestamp::now().duration_until(deadline));
    let left = left.map(|left| Duration::try_from(left).unwrap_or(Duration::ZERO));
    let by_time = left.map(|left| after(left).context("--deadline is too far away")).transpose()?;
    Ok(args.timeout.and_then(after).into_iter().chain(by_time).min())
}

async fn follow(hub: &Hub, args: &WaitArgs, printer: &mut Printer) -> Outcome {
    let (kind, key) = (args.target.kind, printer.key().clone());
    let (revision, slack) = (Fingerprint::of(&args.revision), args.slack.as_secs_f64());
    let mut patience = Patience::new(args.grace, slack);
    let only = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
    let mut changes =
        watcher(write::within(&hub.client, kind, &key.namespace), only).default_backoff().boxed();
    loop {
        let seen = look(hub, kind, &key, revision, slack).await.unwrap_or_else(|seen| seen);
        if let Some(outcome) = patience.see(&seen, Instant::now()) {
            printer.keep(seen);
            return outcome;
        }
        printer.tell(seen);
        // Errors of the watch are those that the next look meets itself.
        tokio::select! {
            _ = changes.next() => {}
            () = tokio::time::sleep(TICK.min(patience.rest(Instant::now()))) => {}
        }
    }
}
