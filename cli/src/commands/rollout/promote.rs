//! `rollout promote`: lets a FleetRollout go on although the gate of a wave is closed, by an override that ends.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use kube::Error;
use serde_json::json;
use statusbridge_aggregator::hub::write::{HubError, Written};
use statusbridge_api::common::duration;
use statusbridge_api::rollout_gate::{Override, OverrideState};
use statusbridge_core::decide::rollout_gate::holds;
use statusbridge_core::decide::time;
use statusbridge_core::reconcile::object::{GateObject, HubObject, Kind};
use statusbridge_core::time::Seconds;

use super::one::{One, wave};
use super::pause::reason;
use crate::exit::Exit;
use crate::hub::Access;
use crate::output::say;
use crate::target::name;
use crate::text::one_line;

/// Longest time that a gate is opened for by hand.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// Flags of `rollout promote`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PromoteArgs {
    /// Name of the FleetRollout
    #[arg(value_parser = name)]
    rollout: String,
    /// Name of the wave whose gate is to open
    #[arg(long, value_name = "NAME", value_parser = name)]
    wave: String,
    /// Why, for those who read it later
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,
    /// For how long the gate is open by hand, at most 168h
    #[arg(long = "for", value_name = "DURATION", value_parser = span_of_override)]
    how_long: Duration,
    /// Only say what would be done; the API server checks it, but keeps nothing
    #[arg(long)]
    dry_run: bool,
}

fn span_of_override(text: &str) -> Result<Duration, String> {
    let span = duration(text).map_err(|error| error.to_string())?;
    match span {
        Duration::ZERO => Err("it must be longer than 0s".to_owned()),
        span if span > LONGEST => Err("at most 168h".to_owned()),
        span => Ok(span),
    }
}

/// Writes the override, on top of the gate that was looked at.
///
/// # Errors
/// When the gate is open already, is for another revision or is not the wave's, or may not be opened by hand.
pub(super) async fn run(access: &Access, args: PromoteArgs) -> Result<Exit> {
    let hub = access.connect().await?;
    let one = One::begin(&hub, &args.rollout).await?;
    let rollout = one.read()?;
    let wave = wave(&rollout, &args.wave)?;
    let gate = one.gate(&rollout, wave)?;
    let (which, now) = (format!("rolloutgate/{}", gate.key.name), one.watched.now());
    if let Some(refusal) = refusal(gate, wave.verdict.as_ref().is_some_and(|it| it.reading.is_open()), now) {
        bail!("{which} {refusal}");
    }
    if let Some(verdict) = &wave.verdict {
        let reading = &verdict.reading;
        let revision = reading.revision.as_deref().unwrap_or_default();
        let line = format!("{which} at {revision}: {}: {}", reading.reason, reading.message);
        say(&one_line(&line));
    }
    let until = time(now + args.how_long.as_secs_f64());
    let word = Override { state: OverrideState::Open, reason: args.reason, until: Some(until.clone()) };
    let change = json!({"spec": {"override": word}});
    let how = if args.dry_run { " (dry run)" } else { "" };
    match hub.patch(Kind::RolloutGate, &gate.version(), change, args.dry_run).await {
        Ok(Written::Done(_)) => {
            say(&format!("{which} is open by hand until {}{how}: the next wave may start", until.0));
            Ok(Exit::Done)
        }
        Ok(Written::Conflict) => bail!("{which} has changed meanwhile: look at it, and run this again"),
        Ok(Written::Gone) => Err(Exit::NotFound.error(format!("{which} is gone"))),
        Err(HubError::Api(Error::Api(status))) if status.code == 403 => Err(anyhow!(
            "{}\nopening a gate by hand takes the verb override on rolloutgates.statusbridge.dev in namespace {}, beside \
             the right to patch gates: the ClusterRole statusbridge-override has both",
            status.message,
            hub.namespace
        )),
        Err(HubError::Api(Error::Api(status))) => bail!("{which}: {}", status.message),
        Err(error) => Err(anyhow!(error).context(which)),
    }
}

/// Why a gate is not opened by hand.
fn refusal(gate: &GateObject, is_open: bool, now: Seconds) -> Option<String> {
    let word = gate.spec.as_ref().ok().and_then(|spec| spec.override_.as_ref());
    match word.filter(|word| holds(word, now)) {
        Some(word) => {
            let until = word.until.as_ref().map(|until| format!(" until {}", until.0)).unwrap_or_default();
            let (state, reason) = match word.state {
                OverrideState::Open => ("open", &word.reason),
                OverrideState::Closed => ("closed", &word.reason),
            };
            Some(format!(
                "is {state} by hand already{until} ({}): take that override away first",
                one_line(reason)
            ))
        }
        None if is_open => Some("is open already: the rollout waits for something else".to_owned()),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::example;

    #[rstest]
    #[case::closed(json!(null), false, None)]
    #[case::open(json!(null), true, Some("is open already: the rollout waits for something else"))]
    #[case::an_override_that_has_ended(
        json!({"state": "Closed", "reason": "x", "until": "2026-01-01T02:00:00Z"}), false, None
    )]
    #[case::closed_by_hand(
        json!({"state": "Closed", "reason": "freeze", "until": "2026-01-01T02:00:01Z"}), false,
        Some("is closed by hand already until 2026-01-01T02:00:01Z (freeze): take that override away first")
    )]
    #[case::open_by_hand(
        json!({"state": "Open", "reason": "a\u{1b}b"}), false,
        Some("is open by hand already (a b): take that override away first")
    )]
    fn gates_that_are_not_opened(#[case] word: Value, #[case] is_open: bool, #[case] expected: Option<&str>) {
        let mut gate = example::gate("half", None, false, json!({}));
        gate["spec"]["override"] = word;
        let objects = example::objects(&[gate]);
        let gate = objects.gates.iter().next().unwrap();
        assert_eq!(refusal(gate, is_open, example::NOW).as_deref(), expected);
    }

    #[rstest]
    #[case("1h", Ok(3600))]
    #[case("168h", Ok(604_800))]
    #[case("168h1s", Err("at most 168h"))]
    #[case("0s", Err("it must be longer than 0s"))]
    fn spans(#[case] text: &str, #[case] expected: Result<u64, &str>) {
        let span = span_of_override(text).map(|span| span.as_secs());
        assert_eq!(span, expected.map_err(str::to_owned));
    }
}
