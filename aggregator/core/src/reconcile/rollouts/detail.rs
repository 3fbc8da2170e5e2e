//! One FleetRollout for people who ask about it, and the clusters of one of its waves.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_with::skip_serializing_none;
use statusbridge_api::{Reason, RolloutGateSpec};
use statusbridge_contract::wanted::is_same;

use super::Parts;
use super::record::Record;
use crate::decide::fleet_package::Wanted;
use crate::decide::rollout_gate::{self, is_fault};
use crate::decide::{Backend, Target, rows};
use crate::reconcile::detail::{ClusterDetail, detail};
use crate::reconcile::judge::World;
use crate::reconcile::object::{GateObject, Key, RolloutObject};
use crate::reconcile::picture::RolloutView;
use crate::reconcile::written::{self, wanted_revision};

/// Which clusters of a FleetRollout are asked for.
#[derive(Debug, Clone)]
pub struct MembersOf {
    /// Those of this wave.
    pub wave: String,
    /// So many at most.
    pub limit: usize,
}

/// Why nothing is told of a FleetRollout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unseen {
    /// There is none, or no such wave.
    #[error("{0}")]
    NotFound(String),
    /// Which clusters were admitted is not known.
    #[error("the record of admitted clusters cannot be read")]
    Unread,
}

/// A FleetRollout, and the clusters that were asked for.
#[derive(Debug, Serialize)]
pub struct FleetRolloutDetail<'a> {
    #[serde(flatten)]
    rollout: RolloutView<'a>,
    #[serde(flatten)]
    members: Option<Members>,
}

/// Clusters of a wave; none before it has started.
#[derive(Debug, Default, Serialize)]
struct Members {
    clusters: Vec<Member>,
    /// There are more.
    more: bool,
}

/// A cluster of a wave.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Member {
    cluster_name: String,
    /// Since when it may have the revision; left out while it may not.
    admitted: Option<Time>,
    /// What the package does there, by the revision of the rollout.
    #[serde(flatten)]
    known: Option<ClusterDetail>,
}

impl World<'_> {
    /// A FleetRollout, and the clusters that are asked for.
    ///
    /// # Errors
    /// When there is no such FleetRollout or wave, or the record of who was admitted cannot be read.
    pub fn rollout_in_detail(
        &self,
        key: &Key,
        asked: Option<&MembersOf>,
    ) -> Result<FleetRolloutDetail<'_>, Unseen> {
        let object = self.state.rollouts.get(key);
        let object = object.ok_or_else(|| Unseen::NotFound(format!("there is no FleetRollout {key}")))?;
        let members = asked.map(|asked| self.members(object, asked)).transpose()?;
        Ok(FleetRolloutDetail { rollout: RolloutView::from(object), members })
    }

    fn members(&self, object: &RolloutObject, asked: &MembersOf) -> Result<Members, Unseen> {
        let mut waves = object.spec.iter().flat_map(|spec| &spec.waves);
        if !waves.any(|wave| wave.name == asked.wave) {
            let wave: String = asked.wave.chars().take(64).collect();
            return Err(Unseen::NotFound(format!("FleetRollout {} has no wave {wave:?}", object.key)));
        }
        let parts = self.parts(object);
        let record = parts.record.as_ref().ok().filter(|_| self.state.rollout_slices.complete());
        let record = record.ok_or(Unseen::Unread)?;
        let Some(wave) = StartedWave::of(&parts, record, &asked.wave) else { return Ok(Members::default()) };
        if self.reads_the_hub_alone() {
            return Ok(self.as_written(&parts, &wave, asked.limit));
        }
        Ok(self.with_input(wave.gate, |input, _, _| {
            let wanted = match input.artifact {
                Ok(artifact) => Wanted::Traced(&wave.spec.revision, artifact),
                Err(why) => Wanted::Untraced(&wave.spec.revision, why),
            };
            let excused = input.excused.targets().iter();
            let mut known = HashMap::<&str, (Reason, &Target, Option<&String>)>::new();
            // Of clusters that a backend was never asked about, nothing is said.
            if !matches!(input.backend, Backend::Unknown(_)) {
                let states = rollout_gate::each_cluster(input).into_iter().map(|(state, _)| state);
                let counted = input.targets.iter().zip(states);
                known.extend(counted.map(|(it, state)| (it.cluster.as_str(), (state, it, None))));
                known.extend(excused.map(|it| {
                    let state = rows::state(&it.target, wanted).0;
                    (it.target.cluster.as_str(), (state, &it.target, Some(&it.reason)))
                }));
            }
            wave.first(
                asked.limit,
                |cluster| known.get(cluster).map(|it| it.0),
                |cluster| {
                    let (state, target, excused) = known.get(cluster)?;
                    let mut told = detail(target, wanted, excused.cloned())?;
                    // As the gate counts it: a FleetPackage knows neither soaks nor deadlines.
                    if told.row.reason == told.row.state {
                        state.name().clone_into(&mut told.row.reason);
                    }
                    state.name().clone_into(&mut told.row.state);
                    Some(told)
                },
            )
        }))
    }

    /// By what stands in the hub, where that is about the same revision.
    fn as_written(&self, parts: &Parts<'_>, wave: &StartedWave<'_>, limit: usize) -> Members {
        let is_its = |wanted: &String| is_same(wanted, &wave.spec.revision);
        let package = parts.package.filter(|package| wanted_revision(package).as_ref().is_some_and(is_its));
        let rows = package.and_then(|package| self.written(package)).unwrap_or_default();
        let rows: HashMap<String, _> = rows.into_iter().map(|it| (it.row.cluster_name.clone(), it)).collect();
        wave.first(
            limit,
            |cluster| rows.get(cluster).map(|it| written::state(&it.row.state)),
            |cluster| rows.get(cluster).cloned().map(ClusterDetail::from),
        )
    }
}

/// A wave that has a gate.
struct StartedWave<'a> {
    gate: &'a GateObject,
    spec: &'a RolloutGateSpec,
    record: &'a Record<'a>,
}

impl<'a> StartedWave<'a> {
    fn of(parts: &'a Parts<'a>, record: &'a Record<'a>, wave: &str) -> Option<Self> {
        let gate: &GateObject = parts.gates.get(wave)?;
        let spec = gate.spec.as_deref().ok()?;
        Some(Self { gate, spec, record })
    }

    /// Since when a cluster may have the revision.
    fn admitted(&self, cluster: &str) -> Option<Time> {
        let row = self.record.get(cluster)?;
        is_same(&row.revision, &self.spec.revision).then(|| row.since.clone())
    }

    /// The first clusters of the wave: those in trouble before those on the way, those that wait, and those that are healthy.
    fn first(
        &self,
        limit: usize,
        state: impl Fn(&str) -> Option<Reason>,
        tell: impl Fn(&str) -> Option<ClusterDetail>,
    ) -> Members {
        let mut names: Vec<&str> = self.spec.clusters.names.iter().flatten().map(String::as_str).collect();
        names.sort_by_cached_key(|cluster| {
            let state = state(cluster);
            (urgency(state, self.admitted(cluster).is_some()), state)
        });
        let more = names.len() > limit;
        let member = |cluster: &str| Member {
            cluster_name: cluster.to_owned(),
            admitted: self.admitted(cluster),
            known: tell(cluster),
        };
        Members { clusters: names.into_iter().take(limit).map(member).collect(), more }
    }
}

/// How soon somebody should look at a cluster; 0 is first.
fn urgency(state: Option<Reason>, is_admitted: bool) -> u8 {
    match state {
        Some(Reason::Healthy) => 3,
        Some(state) if is_fault(state) => 0,
        _ if is_admitted => 1,
        _ => 2,
    }
}

#[cfg(test)]
pub(super) mod tests;
