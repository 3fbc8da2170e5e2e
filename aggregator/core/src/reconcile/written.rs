//! What stands in the hub of each cluster: for a reader that has no evidence of its own.

use statusbridge_api::Reason;
use statusbridge_api::fleet_package::Problem;
use statusbridge_api::fleet_package_slice::{ClusterRow, RolloutStatus};

use super::gate_verdict::{self, Gate, Question};
use super::judge::World;
use super::object::PackageObject;
use crate::decide::rows::Evident;
use crate::decide::unix;
use crate::time::Seconds;

/// How much older than `staleAfter` evidence may be, in seconds, for clocks that differ.
const SLACK: Seconds = 15.0;

impl World<'_> {
    /// Whether there is no evidence but what stands in the hub.
    pub(super) fn reads_the_hub_alone(&self) -> bool {
        self.state.feeds.are_none()
    }

    /// What the hub says of each cluster of a FleetPackage: its slices, or else the clusters where something is wrong. None
    /// while nobody keeps the FleetPackage up to date.
    pub(super) fn written(&self, object: &PackageObject) -> Option<Vec<Evident>> {
        let stale_after = object.spec.as_deref().ok().and_then(gate_verdict::stale_after);
        let question = Question { revision: None, stale_after, slack: SLACK, now: self.moment.now };
        if gate_verdict::read(&Gate::from(object), &question).is_silent(SLACK) {
            return None;
        }
        let slices = self.state.slices.within(&object.key.namespace);
        let own = slices.filter(|slice| {
            slice.owner.as_ref().is_some_and(|owner| owner.name == object.key.name && owner.uid == object.uid)
        });
        let contents = own.filter_map(|slice| slice.content.as_ref());
        let mut rows = Vec::new();
        for content in contents.filter(|it| it.fleet_package_generation == object.generation) {
            let as_of = content.as_of.as_ref().map(unix);
            rows.extend(content.clusters.iter().map(|row| Evident { row: row.clone(), as_of }));
        }
        if rows.is_empty() {
            let problems = object.status.iter().flat_map(|status| &status.problems);
            rows.extend(problems.map(|problem| Evident { row: row(problem), as_of: None }));
        }
        Some(rows)
    }
}

/// The revision that a FleetPackage wants, as the hub has it.
pub(super) fn wanted_revision(object: &PackageObject) -> Option<String> {
    let spec = object.spec.as_deref().ok()?;
    spec.wanted(object.status.as_ref()).map(str::to_owned)
}

fn row(problem: &Problem) -> ClusterRow {
    let status = if state(&problem.state) == Reason::Failed {
        RolloutStatus::Failed
    } else {
        RolloutStatus::Progressing
    };
    ClusterRow {
        cluster_name: problem.cluster_name.clone(),
        status,
        state: problem.state.clone(),
        reason: problem.reason.clone(),
        desired_revision: None,
        applied_revision: None,
        healthy_revision: None,
        last_transition_time: problem.since.clone(),
        reported_by: None,
        excused: problem.excused.clone(),
    }
}

/// The state of this name; a name that this program does not know says nothing.
pub(super) fn state(name: &str) -> Reason {
    Reason::ALL.iter().copied().find(|reason| reason.name() == name).unwrap_or(Reason::Pending)
}
