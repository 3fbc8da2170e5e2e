//! `rollout approve`: approves the gate of the wave that waits for an approval.

use anyhow::{Result, anyhow, bail};
use clap::Args;
use statusbridge_api::window::Approval;
use statusbridge_core::reconcile::object::GateObject;

use super::one::{One, wave};
use crate::commands::approve::{ApprovalArgs, approve, approved};
use crate::exit::Exit;
use crate::hub::Access;
use crate::rollout::Rollout;
use crate::target::name;

/// Flags of `rollout approve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RolloutApproveArgs {
    /// Name of the FleetRollout
    #[arg(value_parser = name)]
    rollout: String,
    /// Name of the wave [default: the latest that has started and waits for an approval]
    #[arg(long, value_name = "NAME", value_parser = name)]
    wave: Option<String>,
    #[command(flatten)]
    approval: ApprovalArgs,
}

/// Shows what the wave's gate says, and approves it.
///
/// # Errors
/// When no wave waits for an approval, the gate is for another revision, or it may not be approved.
pub(super) async fn run(access: &Access, args: RolloutApproveArgs) -> Result<Exit> {
    let hub = access.connect().await?;
    let one = One::begin(&hub, &args.rollout).await?;
    let rollout = one.read()?;
    let gate = match &args.wave {
        Some(name) => one.gate(&rollout, wave(&rollout, name)?)?,
        None => latest(&one, &rollout)?,
    };
    if !is_required(gate) {
        bail!("rolloutgate/{} does not ask for an approval (gate.approval of its wave)", gate.key.name);
    }
    approve(&hub.client, gate, args.approval).await
}

/// The gate of the latest wave that waits for an approval.
fn latest<'o>(one: &'o One, rollout: &Rollout) -> Result<&'o GateObject> {
    let started = rollout.waves.iter().rev().filter(|wave| wave.status.gate.is_some());
    let gates = started.map(|wave| one.gate(rollout, wave)).collect::<Result<Vec<_>>>()?;
    let waits = gates.iter().find(|gate| is_required(gate) && approved(gate).is_none());
    waits.copied().ok_or_else(|| {
        let why = match gates.iter().find_map(|gate| Some((gate, approved(gate)?))) {
            Some((gate, by)) => format!("{} has approved rolloutgate/{}", by.user, gate.key.name),
            None if gates.is_empty() => "none has started".to_owned(),
            None => "no gate of those that have started asks for one".to_owned(),
        };
        anyhow!("no wave of rollout/{} waits for an approval: {why}", rollout.name)
    })
}

fn is_required(gate: &GateObject) -> bool {
    gate.spec.as_ref().is_ok_and(|spec| spec.terms.approval == Approval::Required)
}
