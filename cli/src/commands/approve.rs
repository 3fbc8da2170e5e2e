//! `approve`: makes the RolloutApproval that a gate waits for.
//!
//! It names the revision that the gate had when it was read: where the gate moves meanwhile, the approval is void.

use anyhow::{Context, Result};
use clap::Args;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use statusbridge_aggregator::hub::write::{self, in_time};
use statusbridge_api::conditions::{OPEN, find};
use statusbridge_api::names::shortened;
use statusbridge_api::rollout_approval::{ApprovedBy, Seen};
use statusbridge_api::rollout_gate::{Approved, GateRef};
use statusbridge_api::window::Approval;
use statusbridge_api::{RolloutApproval, RolloutApprovalSpec, RolloutGateSpec};
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::object::{GateObject, Key, Kind};

use crate::exit::Exit;
use crate::hub::Access;
use crate::output::say;
use crate::target::{name, revision};

/// Longest beginning of the name of an approval that the API server completes.
const LONGEST_NAME: usize = 200;
/// Most characters of a message that are kept in an approval.
const MOST_SHOWN: usize = 1024;

/// Flags of `approve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ApproveArgs {
    /// Name of the gate
    #[arg(value_parser = name)]
    gate: String,
    #[command(flatten)]
    approval: ApprovalArgs,
}

/// Flags of an approval.
#[derive(Debug, Clone, Args)]
pub(super) struct ApprovalArgs {
    /// The revision that you mean; refuses where the gate is for another one [default: that of the gate]
    #[arg(long, value_parser = revision)]
    revision: Option<String>,
    /// Why, for those who read it later
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only say what would be approved; the API server checks it, but keeps nothing
    #[arg(long)]
    dry_run: bool,
}

/// Shows what the gate says, and approves it.
///
/// # Errors
/// When there is no such gate, it is for another revision, or it may not be approved.
pub(crate) async fn run(access: &Access, args: ApproveArgs) -> Result<Exit> {
    let hub = access.connect().await?;
    let key = Key { namespace: hub.namespace.clone(), name: args.gate };
    let object = write::read(&hub.client, Kind::RolloutGate, &key).await.context("RolloutGate")?;
    let gate = object.and_then(GateObject::read).ok_or_else(|| {
        Exit::NotFound.error(format!("there is no RolloutGate {:?} in namespace {}", key.name, key.namespace))
    })?;
    approve(&hub.client, &gate, args.approval).await
}

/// The approval that counts for a gate's present spec.
pub(super) fn approved(gate: &GateObject) -> Option<&Approved> {
    let spec = gate.spec.as_ref().ok()?;
    let status = gate.status.as_ref().filter(|status| {
        status.observed_generation == Some(gate.generation)
            && status.revision.as_ref() == Some(&spec.revision)
    });
    status.and_then(|status| status.approved_by.as_ref())
}

/// Shows what a gate says, and approves it.
///
/// # Errors
/// When it is for another revision, or may not be approved.
pub(super) async fn approve(client: &Client, gate: &GateObject, args: ApprovalArgs) -> Result<Exit> {
    let key = &gate.key;
    let spec = gate.spec.as_ref().map_err(|error| anyhow::anyhow!("rolloutgate/{}: {error}", key.name))?;
    let own = Fingerprint::of(&spec.revision);
    if let Some(meant) = args.revision.as_ref().filter(|meant| Fingerprint::of(meant) != own) {
        let message = format!("rolloutgate/{} is for revision {}, not {meant}", key.name, spec.revision);
        return Err(Exit::OtherRevision.error(message));
    }
    let seen = seen(gate);
    say(&describe(&key.name, spec, &seen));
    if spec.terms.approval == Approval::NotRequired {
        eprintln!("note: rolloutgate/{} does not ask for an approval (spec.approval)", key.name);
    }
    if let Some(approved) = approved(gate) {
        say(&format!("{} has approved it already: rolloutapproval/{}", approved.user, approved.name));
        return Ok(Exit::Done);
    }
    let user = who(client).await?;
    let approval = RolloutApproval {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-{own}-", shortened(&key.name, LONGEST_NAME))),
            ..ObjectMeta::default()
        },
        spec: RolloutApprovalSpec {
            gate_ref: GateRef { name: key.name.clone() },
            revision: spec.revision.clone(),
            by: ApprovedBy { user: user.clone() },
            reason: args.reason,
            seen: Some(seen),
        },
    };
    let approvals = Api::<RolloutApproval>::namespaced(client.clone(), &key.namespace);
    let params = PostParams { dry_run: args.dry_run, ..PostParams::default() };
    let made = in_time(approvals.create(&params, &approval)).await;
    let made = made.with_context(|| format!("rolloutgate/{} could not be approved as {user}", key.name))?;
    let how = if args.dry_run { " (dry run)" } else { "" };
    say(&format!("approved as {user}: rolloutapproval/{}{how}", made.name_any()));
    Ok(Exit::Done)
}

/// Who the API server takes the caller for.
async fn who(client: &Client) -> Result<String> {
    let reviews = Api::<SelfSubjectReview>::all(client.clone());
    let review = in_time(reviews.create(&PostParams::default(), &SelfSubjectReview::default())).await;
    let review = review.context("asking the hub's API server who you are")?;
    let user = review.status.and_then(|status| status.user_info).and_then(|info| info.username);
    user.filter(|user| !user.is_empty()).context("the hub's API server does not say who you are")
}

/// What the gate's status says of its present spec.
fn seen(gate: &GateObject) -> Seen {
    let status = gate.status.as_ref().filter(|status| status.observed_generation == Some(gate.generation));
    let open = status.and_then(|status| find(&status.conditions, OPEN));
    let beginning = |text: &String| text.chars().take(MOST_SHOWN).collect();
    Seen {
        generation: Some(gate.generation),
        as_of: status.and_then(|status| status.as_of.clone()),
        healthy: status.and_then(|status| status.healthy.clone()),
        reason: open.map(|open| open.reason.clone()),
        message: open.map(|open| &open.message).map(beginning),
    }
}

fn describe(gate: &str, spec: &RolloutGateSpec, seen: &Seen) -> String {
    let mut text = format!("rolloutgate/{gate} at {}", spec.revision);
    match (&seen.reason, &seen.message) {
        (Some(reason), Some(message)) => text.push_str(&format!(": {reason}: {message}")),
        _ => text.push_str(": not judged yet"),
    }
    if let Some(healthy) = &seen.healthy {
        text.push_str(&format!(" ({healthy} healthy)"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gate(observed: i64) -> GateObject {
        let object = json!({
            "metadata": {"namespace": "fleet", "name": "wave-1", "generation": 2},
            "spec": {"fleetPackageRef": {"name": "p"}, "revision": "v1", "clusters": {"names": ["a"]}},
            "status": {"observedGeneration": observed, "healthy": "1/2", "asOf": "2026-05-04T08:00:00Z", "conditions": [
                {"type": "Open", "status": "False", "reason": "Failed", "message": "x".repeat(3_000),
                    "lastTransitionTime": "2026-05-04T08:00:00Z"},
            ]},
        });
        GateObject::read(serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn what_was_seen_is_of_the_present_spec_and_fits_an_approval() {
        let seen = super::seen(&gate(2));
        assert_eq!(
            (seen.generation, seen.healthy.as_deref(), seen.reason.as_deref()),
            (Some(2), Some("1/2"), Some("Failed"))
        );
        assert_eq!(seen.message.as_ref().map(String::len), Some(MOST_SHOWN));
        let old = super::seen(&gate(1));
        assert_eq!(old, Seen { generation: Some(2), ..Seen::default() });
        let text = describe("wave-1", gate(1).spec.as_ref().unwrap(), &old);
        assert_eq!(text, "rolloutgate/wave-1 at v1: not judged yet");
    }
}
