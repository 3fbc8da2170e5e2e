//! Which clusters an object is about, and what may be said of each: the one place where targets
//! come from, so that whatever its namespace may not see has no way into a status.

use std::collections::BTreeSet;

use crate::api::common::Choice;
use crate::api::{ClusterSet, FleetPackageSpec};
use crate::clock::Seconds;
use crate::decide::{Backend, Membership, Target};
use crate::fleet::observation::{Observation, Standing, reason};
use crate::fleet::{Fleet, PackageId};
use crate::profiles::{Doubt, Profiles};
use crate::tenancy::Grant;

/// In place of a text that may speak of what belongs to another tenant.
const HIDDEN: &str = "the aggregator's log says why";

/// What targets are chosen from.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    /// What the clusters report.
    pub(crate) fleet: &'a Fleet,
    /// The clusters that the hub knows.
    pub(crate) profiles: &'a Profiles,
    /// What the namespace may see of the package.
    pub(crate) grant: &'a Grant<'a>,
    /// Evaluation time in the backend's clock.
    pub(crate) t: Seconds,
}

/// The clusters that are meant, as far as they may be seen.
pub(crate) struct Chosen {
    /// By name; each once.
    pub(crate) targets: Vec<Target>,
    /// Whether they are all that are meant.
    pub(crate) membership: Membership,
}

impl Sources<'_> {
    /// The clusters that `clusters` means, and what is known of the package there.
    pub(crate) fn choose(
        &self,
        package: &FleetPackageSpec,
        clusters: &ClusterSet,
        stale_after: Seconds,
    ) -> Chosen {
        let nobody = |membership| Chosen { targets: Vec::new(), membership };
        if let Some(refusal) = self.grant.refuses(&package.package, clusters) {
            return nobody(Membership::Forbidden(refusal.to_string()));
        }
        let id = PackageId::from(&package.package);
        let look = |cluster: &str| self.look(cluster, &id, stale_after);
        let all = |names: BTreeSet<&str>| Chosen {
            targets: names.into_iter().map(look).collect(),
            membership: Membership::Known,
        };
        match clusters.choice() {
            // Deciding says what is wrong.
            Err(_) => nobody(Membership::Known),
            Ok(Choice::Names(names)) => all(names.iter().map(String::as_str).collect()),
            Ok(Choice::Reporting(_)) => {
                let names = self.fleet.reporting(&id);
                all(names.iter().map(String::as_str).filter(|name| self.grant.allows(name)).collect())
            }
            Ok(Choice::Selector(selector)) => {
                let selected = self.profiles.select(selector).into_iter();
                let targets = selected.filter_map(|it| match it.doubt {
                    None => self.grant.allows(it.cluster).then(|| look(it.cluster)),
                    Some(Doubt::Ambiguous(why)) => self.grant.allows(it.cluster).then(|| {
                        in_doubt(it.cluster, Standing::Conflict, reason::CLUSTER_PROFILE_CONFLICT, why)
                    }),
                    // Whose cluster it is cannot be told, so it is nobody's.
                    Some(Doubt::Unnamed(why)) => self
                        .grant
                        .allows_all()
                        .then(|| in_doubt(it.cluster, Standing::Missing, reason::CLUSTER_NAME_UNKNOWN, why)),
                });
                let targets = targets.collect();
                Chosen { targets, membership: self.shown_membership() }
            }
        }
    }

    fn look(&self, cluster: &str, package: &PackageId, stale_after: Seconds) -> Target {
        let mut observation = self.fleet.observe(cluster, package, self.t, stale_after);
        if self.grant.is_one_of_several() {
            // It may name packages or streams of others.
            observation.message.clear();
        }
        let silent = [reason::CLUSTER_NOT_FOUND, reason::EXPORTER_SILENT, reason::SOURCE_DOWN];
        if silent.contains(&observation.reason)
            && let Some(unhealthy) = self.profiles.unhealthy(cluster)
        {
            if observation.reason == reason::SOURCE_DOWN {
                // Moves with every poll.
                observation.as_of = None;
            }
            observation.reason = reason::CONTROL_PLANE_UNHEALTHY;
            observation.message = unhealthy.to_owned();
        }
        Target { cluster: cluster.to_owned(), observation }
    }

    fn shown_membership(&self) -> Membership {
        let shown = |error| if self.grant.is_one_of_several() { HIDDEN.to_owned() } else { error };
        match self.profiles.membership() {
            Membership::Outdated { since, error } => Membership::Outdated { since, error: shown(error) },
            Membership::Unlisted(error) => Membership::Unlisted(shown(error)),
            known => known,
        }
    }
}

fn in_doubt(cluster: &str, standing: Standing, reason: &'static str, message: String) -> Target {
    let observation = Observation { standing, as_of: None, row: None, reason, message };
    Target { cluster: cluster.to_owned(), observation }
}

/// What may be said of the backend: an error may repeat a query, which names clusters.
pub(crate) fn shown_backend<'a>(backend: Backend<'a>, grant: &Grant<'_>) -> Backend<'a> {
    match backend {
        Backend::Fails(_) if grant.is_one_of_several() => Backend::Fails(HIDDEN),
        Backend::Unknown(_) if grant.is_one_of_several() => Backend::Unknown(HIDDEN),
        other => other,
    }
}
