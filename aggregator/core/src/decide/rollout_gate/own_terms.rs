//! What a gate's own terms come to: windows, pause, freezes of its namespace, approval.

use statusbridge_api::{FleetPackageSpec, RolloutGateSpec, common};

use super::{Input, PackageSpec, was_open};
use crate::decide::hold::{Hold, Standing, approval, held};
use crate::time::Seconds;

/// What they come to.
///
/// # Errors
/// What is wrong with a window, in words.
pub(super) fn hold(input: &Input<'_>, spec: &RolloutGateSpec) -> Result<Hold, String> {
    let stale_after = match input.package {
        PackageSpec::Found(package) => stale_after(package),
        PackageSpec::NotFound | PackageSpec::Unreadable(_) => 0.0,
    };
    let standing = Standing { moment: input.moment, was_open: was_open(input), stale_after };
    let mut hold = held(&spec.terms.windows, spec.terms.paused, &input.freezes, &standing)?;
    if let Some(waiting) = approval(spec.terms.approval, &input.approvals, &standing) {
        hold.waiting.insert(0, waiting);
        hold.open_until = None;
    }
    Ok(hold)
}

fn stale_after(package: &FleetPackageSpec) -> Seconds {
    common::seconds(&package.stale_after).unwrap_or(0.0)
}
