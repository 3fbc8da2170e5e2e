//! A FleetRollout, wave by wave.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use statusbridge_api::fleet_package::Problem;
use statusbridge_api::fleet_rollout::{WaveState, WaveStatus};
use statusbridge_core::decide::unix;
use statusbridge_core::time::Seconds;

use super::{Branch, of_gate};
use crate::rollout::{Rollout, RolloutState, Wave};
use crate::text::{Colour, span};

/// What a FleetRollout tells; `problems` are those of its FleetPackage.
pub(crate) fn of_rollout(rollout: &Rollout, problems: &[Problem], now: Seconds) -> Branch {
    let colour = match rollout.state {
        RolloutState::RolledOut => Colour::Green,
        RolloutState::Waiting => Colour::Yellow,
        RolloutState::Stalled | RolloutState::NotJudged => Colour::Red,
    };
    let admitted = rollout.admitted.as_ref().map(|admitted| format!(", {admitted} admitted"));
    let revision = rollout.fingerprint.as_deref().unwrap_or("no revision");
    let (reason, message) = (&rollout.reason, &rollout.message);
    let ages = match (&rollout.completed_at, &rollout.started_at) {
        (Some(at), _) => format!("done {} ago", age(at, now)),
        (None, Some(at)) => format!("for {}", age(at, now)),
        (None, None) => String::new(),
    };
    Branch {
        name: format!("rollout/{}", rollout.name),
        state: Some((rollout.state.name(), Some(colour))),
        text: format!("{revision}{}: {reason}: {message}", admitted.unwrap_or_default()),
        ages,
        is_done: rollout.state == RolloutState::RolledOut,
        end: "Gone",
        branches: rollout.waves.iter().map(|wave| of_wave(wave, problems, now)).collect(),
    }
}

fn of_wave(wave: &Wave, problems: &[Problem], now: Seconds) -> Branch {
    let WaveStatus { name, state, clusters, admitted, message, .. } = &wave.status;
    let (word, colour) = match state {
        WaveState::Pending => ("Pending", None),
        WaveState::Progressing => ("Progressing", Some(Colour::Yellow)),
        WaveState::Open => ("Open", Some(Colour::Green)),
        WaveState::Failed => ("Failed", Some(Colour::Red)),
    };
    let mut text = match state {
        WaveState::Pending => format!("{clusters} cluster{}", if *clusters == 1 { "" } else { "s" }),
        _ => format!("{admitted}/{clusters} admitted"),
    };
    // The gate tells it, where there is one.
    if let Some(message) = message.as_ref().filter(|_| wave.verdict.is_none()) {
        text += &format!(": {message}");
    }
    let ages = match (&wave.status.opened_at, &wave.status.started_at) {
        (Some(at), _) if *state == WaveState::Open => format!("open for {}", age(at, now)),
        (_, Some(at)) => format!("started {} ago", age(at, now)),
        (_, None) => String::new(),
    };
    Branch {
        name: format!("wave {name}"),
        state: Some((word, colour)),
        text,
        ages,
        is_done: *state == WaveState::Open && admitted == clusters,
        end: "Gone",
        branches: wave.verdict.iter().map(|verdict| of_gate(verdict, problems, now)).collect(),
    }
}

/// How long ago something was.
pub(crate) fn age(at: &Time, now: Seconds) -> String {
    span((now - unix(at)).max(0.0))
}
