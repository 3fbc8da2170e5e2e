//! FleetRollouts for people.

use std::io;

use statusbridge_api::fleet_package::Problem;
use statusbridge_api::fleet_rollout::PreviousRollout;
use statusbridge_core::time::Seconds;

use crate::rollout::Rollout;
use crate::text::{cut, one_line, table};
use crate::tree::{Branch, age, of_rollout, whole};

/// Most letters of a message in a table.
const LONGEST_MESSAGE: usize = 200;

/// What a FleetRollout is, in a line.
pub(super) fn head(rollout: &Rollout) -> String {
    let admitted = rollout.admitted.as_ref().map(|admitted| format!(" ({admitted} admitted)"));
    let Rollout { name, state, reason, message, .. } = rollout;
    let revision = rollout.revision.as_deref().unwrap_or("no revision");
    one_line(&format!(
        "rollout/{name} at {revision}: {}: {reason}: {message}{}",
        state.name(),
        admitted.unwrap_or_default()
    ))
}

/// All FleetRollouts.
pub(super) fn all(rollouts: &[Rollout], now: Seconds) -> String {
    if rollouts.is_empty() {
        return "there are no FleetRollouts\n".to_owned();
    }
    let head = ["NAME", "PACKAGE", "STATE", "REVISION", "WAVE", "ADMITTED", "AGE", "WAITING FOR"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    lines.extend(rollouts.iter().map(|rollout| {
        let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let waits = if rollout.completed_at.is_some() { "" } else { &rollout.message };
        vec![
            rollout.name.clone(),
            dash(&rollout.fleet_package),
            rollout.state.name().to_owned(),
            dash(&rollout.fingerprint),
            dash(&rollout.wave),
            dash(&rollout.admitted),
            dash(&rollout.started_at.as_ref().map(|at| age(at, now))),
            cut(waits, LONGEST_MESSAGE),
        ]
    }));
    table(&lines)
}

/// One FleetRollout, wave by wave.
pub(super) fn one(tree: &[Branch]) -> String {
    whole(tree, &io::stdout()).into_iter().map(|line| line + "\n").collect()
}

/// A FleetRollout, and what else there is to know of it; `why` it is paused.
pub(super) fn tree(rollout: &Rollout, problems: &[Problem], why: Option<&str>, now: Seconds) -> Vec<Branch> {
    let mut root = of_rollout(rollout, problems, now);
    let waves = std::mem::take(&mut root.branches);
    let revision = rollout.revision.clone().unwrap_or_else(|| "none".to_owned());
    root.branches.push(Branch::told("revision", revision));
    if rollout.paused {
        root.branches.push(Branch::told("paused", why.unwrap_or("nobody has said why").to_owned()));
    }
    root.branches.extend(waves);
    if let Some(left_out) = rollout.clusters.map(|it| it.left_out).filter(|left_out| *left_out > 0) {
        root.branches.push(Branch::told("in no wave", format!("{left_out} of the package's clusters")));
    }
    if let Some(previous) = &rollout.previous {
        root.branches.push(before(previous, now));
    }
    if let Some(revision) = &rollout.recommended_revision {
        let text = format!("{revision} is recommended: set it to go back; nothing goes back by itself");
        root.branches.push(Branch::told("go back to", text));
    }
    vec![root]
}

fn before(previous: &PreviousRollout, now: Seconds) -> Branch {
    let PreviousRollout { revision, completed_at, replaced_at, admitted, wave, message, .. } = previous;
    let how = match (completed_at, admitted, wave) {
        (Some(_), ..) => "rolled out to all waves".to_owned(),
        (None, admitted, wave) => {
            let admitted = admitted.as_ref().map(|admitted| format!(", {admitted} admitted"));
            let wave = wave.as_ref().map(|wave| format!(", in wave {wave}"));
            format!("not rolled out{}{}", admitted.unwrap_or_default(), wave.unwrap_or_default())
        }
    };
    let message = message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    let ages = format!("replaced {} ago", age(replaced_at, now));
    Branch { ages, ..Branch::told("before", format!("{revision}, {how}{message}")) }
}
