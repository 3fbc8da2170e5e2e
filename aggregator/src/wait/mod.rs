//! `wait gate/NAME --revision R`: for pipelines and Jobs, until a gate is open for one revision.
//!
//! ```text
//!   watch of the gate ─┐
//!   every few seconds ─┴─> look (read gate and FleetPackage anew) ─> reading ─> Patience ─> exit code
//! ```
//!
//! A watch only says that it is time to look: what counts is read anew from the hub's API server,
//! with its answer's own date as the present, so neither a watch that has died nor a wrong clock of
//! this machine makes an old verdict look like a new one.

mod look;
mod patience;

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use futures::StreamExt;
use futures::future::OptionFuture;
use jiff::Timestamp;
use kube::Client;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use serde_json::json;
use statusbridge_api::common::duration;
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::store::{Key, Kind};
use statusbridge_serving::signals::told_to_stop;
use tokio::time::{Instant, sleep_until};

use crate::hub::access::Access;
use look::{Seen, look};
use patience::{Outcome, Patience};

/// How long between two looks when nothing seems to happen.
const TICK: Duration = Duration::from_secs(5);

/// Flags of `wait`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub struct WaitArgs {
    /// What to wait for: gate/NAME until it is open, fleetpackage/NAME until it is Ready
    #[arg(value_name = "KIND/NAME", value_parser = target)]
    target: (Kind, String),
    /// The revision that it has to be open for: in the delivery system's words, or 12 hex digits
    #[arg(long, value_parser = revision)]
    revision: Fingerprint,
    #[command(flatten)]
    access: Access,
    /// Namespace of the object [default: that of the context or of the pod]
    #[arg(long, short, value_parser = name)]
    namespace: Option<String>,
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
    /// Form of the lines on standard output
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  open (a FleetPackage: Ready) at the revision
  1  the hub cannot be asked
  2  wrong arguments
  3  stalled: it will not open by itself
  4  the time is over
  5  nobody keeps its status up to date, or its evidence is too old
  6  it is for another revision
  7  there is no such object";

/// Form of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

fn target(text: &str) -> Result<(Kind, String), String> {
    let (kind, name) = text.split_once('/').unwrap_or_default();
    let kind = Kind::meant_by(kind).ok_or("write gate/NAME or fleetpackage/NAME")?;
    Ok((kind, self::name(name)?))
}

fn name(text: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    match !text.is_empty() && text.bytes().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} cannot be a name")),
    }
}

fn revision(text: &str) -> Result<Fingerprint, String> {
    match Fingerprint::of(text) {
        fingerprint if !fingerprint.is_none() && text.trim() == text => Ok(fingerprint),
        _ => Err("a revision is not empty and does not begin or end with white space".to_owned()),
    }
}

/// Waits, printing a line whenever what it waits for changes, and gives the exit code.
///
/// # Errors
/// When there is no way to reach the hub's API server.
pub async fn wait(args: WaitArgs) -> Result<u8> {
    let until = deadline(&args)?;
    let (client, namespace) = args.access.connect(args.namespace.as_deref()).await?;
    let (kind, name) = args.target.clone();
    let mut printer = Printer { kind, key: Key { namespace, name }, output: args.output, last: None };
    let stopped = told_to_stop()?;
    let outcome = tokio::select! {
        outcome = follow(&client, &args, &mut printer) => outcome,
        Some(()) = OptionFuture::from(until.map(sleep_until)) => Outcome::TimedOut,
        () = stopped => bail!("told to stop"),
    };
    printer.end(outcome);
    Ok(outcome as u8)
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

async fn follow(client: &Client, args: &WaitArgs, printer: &mut Printer) -> Outcome {
    let (kind, key) = (printer.kind, printer.key.clone());
    let slack = args.slack.as_secs_f64();
    let mut patience = Patience::new(args.grace, slack);
    let only = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
    let mut changes =
        watcher(crate::hub::write::within(client, kind, &key.namespace), only).default_backoff().boxed();
    loop {
        let seen = look(client, kind, &key, args.revision, slack).await.unwrap_or_else(|seen| seen);
        if let Some(outcome) = patience.see(&seen, Instant::now()) {
            printer.last = Some(seen);
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

/// Whoever reads may have stopped reading; the exit code still counts.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints what changes, once.
struct Printer {
    kind: Kind,
    key: Key,
    output: Output,
    last: Option<Seen>,
}

impl Printer {
    /// As `kubectl -o name` writes it, less the group.
    fn name(&self) -> String {
        format!("{}/{}", self.kind.name().to_lowercase(), self.key.name)
    }

    fn tell(&mut self, seen: Seen) {
        if self.last.as_ref().is_none_or(|last| last.words() != seen.words()) {
            match self.output {
                Output::Text => say(&format!("{}: {}", self.name(), seen.text())),
                Output::Json => say(&seen.json(&self.key).to_string()),
            }
        }
        self.last = Some(seen);
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a field of an object is set, which what was seen is as JSON"
    )]
    fn end(&self, outcome: Outcome) {
        let last = self.last.as_ref();
        match self.output {
            Output::Text => {
                let said = last.map_or_else(|| "the hub has not answered yet".to_owned(), Seen::text);
                say(&format!("{}: {}: {said}", self.name(), outcome.words()));
            }
            Output::Json => {
                let mut line = last.map_or_else(|| json!({}), |last| last.json(&self.key));
                line["outcome"] = json!(outcome);
                line["exitCode"] = json!(outcome as u8);
                say(&line.to_string());
            }
        }
    }
}
