//! Which clusters need not be healthy now, and why.
//!
//! ```text
//!   targets ──split──┬──> those that count: everything is decided by them alone
//!                    └──> Excused: counted apart, and shown
//! ```
//!
//! How an excused cluster fares decides nothing. So that excuses do not make a fleet of nobody healthy, enough of all
//! targets must be seen and not excused ([`least_observed`]). Where it is not known what excuses a cluster, it counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use statusbridge_api::excuse::{Excuse, ExcusedCluster};
use statusbridge_api::label_selector::{LabelSelector, Labels};
use statusbridge_api::{FleetPackageSpec, Reason};

use super::{Target, clusters, list_by, shorten, unix};
use crate::time::Seconds;

/// Most clusters that a status names as excused.
const MOST_LISTED: usize = 10;

/// What ClusterProfiles say of clusters.
pub trait Profiled {
    /// The labels of the one ClusterProfile of a cluster; none where there is no such or several.
    fn labels(&self, cluster: &str) -> Option<&Labels>;
    /// Why the configuration excuses a cluster for its one ClusterProfile, if it does.
    fn excuse(&self, cluster: &str) -> Option<&str>;
    /// Whether the configuration excuses clusters at all.
    fn may_excuse(&self) -> bool;
    /// Whether they have never been read, so that nothing is known of any.
    fn is_unread(&self) -> bool;
}

/// There are no ClusterProfiles.
#[derive(Debug, Clone, Copy)]
pub struct Nowhere;

impl Profiled for Nowhere {
    fn labels(&self, _: &str) -> Option<&Labels> {
        None
    }

    fn excuse(&self, _: &str) -> Option<&str> {
        None
    }

    fn may_excuse(&self) -> bool {
        false
    }

    fn is_unread(&self) -> bool {
        false
    }
}

/// The excuses that are in force.
#[derive(Clone)]
pub struct Excuses<'a> {
    named: BTreeMap<&'a str, &'a Excuse>,
    selecting: Vec<(&'a LabelSelector, &'a Excuse)>,
    profiles: &'a dyn Profiled,
    /// When the next of them ends.
    until: Seconds,
}

/// Why a cluster is excused.
struct Ground<'a> {
    reason: &'a str,
    until: Option<&'a Time>,
    /// A ClusterProfile says so.
    by_profile: bool,
}

/// A target that does not count now.
#[derive(Debug, Clone, PartialEq)]
pub struct ExcusedTarget {
    /// The cluster, and what is known of the package there all the same.
    pub target: Target,
    /// Why.
    pub reason: String,
    /// From when on it counts again, where that is known.
    pub until: Option<Time>,
}

/// The targets that do not count now, and what excuses them.
#[derive(Clone)]
pub struct Excused<'a> {
    targets: Vec<ExcusedTarget>,
    excuses: Excuses<'a>,
    /// A ClusterProfile excuses one of them.
    by_profile: bool,
}

impl<'a> Excuses<'a> {
    /// Those of a FleetPackage and of ClusterProfiles that are in force at `now`.
    pub fn new(spec: &'a [Excuse], profiles: &'a dyn Profiled, now: Seconds) -> Self {
        let mut excuses =
            Self { named: BTreeMap::new(), selecting: Vec::new(), profiles, until: Seconds::INFINITY };
        for excuse in spec {
            let until = excuse.until.as_ref().map_or(Seconds::INFINITY, unix);
            if now >= until {
                continue;
            }
            excuses.until = excuses.until.min(until);
            match (&excuse.cluster, &excuse.selector) {
                (Some(cluster), None) => {
                    let known = excuses.named.entry(cluster).or_insert(excuse);
                    if lasts_longer(excuse.until.as_ref(), known.until.as_ref()) {
                        *known = excuse;
                    }
                }
                (None, Some(selector)) if selector.error().is_none() => {
                    excuses.selecting.push((selector, excuse));
                }
                // The API server lets nothing else pass; what makes no sense excuses nobody.
                _ => {}
            }
        }
        excuses
    }

    /// Nobody is excused.
    pub fn none() -> Self {
        Self::new(&[], &Nowhere, 0.0)
    }

    fn is_empty(&self) -> bool {
        self.named.is_empty() && !self.rests_on_profiles()
    }

    /// Whether it depends on ClusterProfiles who is excused.
    fn rests_on_profiles(&self) -> bool {
        !self.selecting.is_empty() || self.profiles.may_excuse()
    }

    /// Why a cluster is excused, if it is: by what lasts longest.
    fn ground(&self, cluster: &str) -> Option<Ground<'_>> {
        let written = |excuse: &'a Excuse, by_profile| Ground {
            reason: &excuse.reason,
            until: excuse.until.as_ref(),
            by_profile,
        };
        let named = self.named.get(cluster).map(|excuse| written(excuse, false));
        let labels = if self.selecting.is_empty() { None } else { self.profiles.labels(cluster) };
        let selecting = labels.into_iter().flat_map(|labels| {
            let matching = self.selecting.iter().filter(|(selector, _)| selector.matches(labels));
            matching.map(|(_, excuse)| written(excuse, true))
        });
        let configured = self.profiles.excuse(cluster);
        let configured = configured.map(|reason| Ground { reason, until: None, by_profile: true });
        let all = named.into_iter().chain(selecting).chain(configured);
        all.reduce(|one, other| if lasts_longer(other.until, one.until) { other } else { one })
    }

    /// Takes those that are excused out of the targets.
    pub fn split(self, targets: Arc<[Target]>) -> (Arc<[Target]>, Excused<'a>) {
        let mut excused = Vec::new();
        let mut by_profile = false;
        let mut counted = Vec::new();
        if !self.is_empty() {
            for (at, target) in targets.iter().enumerate() {
                match self.ground(&target.cluster) {
                    Some(ground) => {
                        if excused.is_empty() {
                            counted.extend(targets.iter().take(at).cloned());
                        }
                        by_profile |= ground.by_profile;
                        excused.push(ExcusedTarget {
                            target: target.clone(),
                            reason: shorten(ground.reason),
                            until: ground.until.cloned(),
                        });
                    }
                    None if excused.is_empty() => {}
                    None => counted.push(target.clone()),
                }
            }
        }
        let counted = if excused.is_empty() { targets } else { counted.into() };
        (counted, Excused { targets: excused, excuses: self, by_profile })
    }

    /// Why a cluster is excused, in words for its row.
    pub fn reason(&self, cluster: &str) -> Option<String> {
        self.ground(cluster).map(|ground| shorten(ground.reason))
    }
}

fn lasts_longer(one: Option<&Time>, other: Option<&Time>) -> bool {
    let end = |until: Option<&Time>| until.map_or(Seconds::INFINITY, unix);
    end(one) > end(other)
}

impl Excused<'_> {
    /// Nobody.
    pub fn nobody() -> Self {
        Self { targets: Vec::new(), excuses: Excuses::none(), by_profile: false }
    }

    /// The targets, by name.
    pub fn targets(&self) -> &[ExcusedTarget] {
        &self.targets
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.targets.len() as u64
    }

    /// Whether a ClusterProfile excuses any of them.
    pub(crate) fn is_by_profile(&self) -> bool {
        self.by_profile
    }

    /// When, by the wall clock, the next excuse ends.
    pub fn until(&self) -> Seconds {
        self.excuses.until
    }

    /// Whether there may be more of them than is known, because ClusterProfiles have never been read.
    pub(crate) fn is_unread(&self) -> bool {
        self.excuses.rests_on_profiles() && self.excuses.profiles.is_unread()
    }

    /// The first of them, for a status.
    pub(super) fn list(&self) -> Vec<ExcusedCluster> {
        let mut all: Vec<&ExcusedTarget> = self.targets.iter().collect();
        let end = |it: &ExcusedTarget| it.until.as_ref().map_or(Seconds::INFINITY, unix);
        all.sort_by(|a, b| end(a).total_cmp(&end(b)).then_with(|| a.target.cluster.cmp(&b.target.cluster)));
        let listed = all.into_iter().take(MOST_LISTED).map(|it| ExcusedCluster {
            cluster_name: it.target.cluster.clone(),
            reason: it.reason.clone(),
            until: it.until.clone(),
        });
        listed.collect()
    }

    /// What is to be said of them along with a verdict.
    pub(super) fn words(&self) -> Option<String> {
        let name = |it: &ExcusedTarget| format!("{} ({})", it.target.cluster, it.reason);
        (!self.targets.is_empty())
            .then(|| format!("{} excused: {}", self.count(), list_by(&self.targets, name)))
    }

    /// Whether the clusters that a status says are excused may be so still: none of these excuses has ended or was
    /// taken away, as far as that can be told.
    pub(super) fn may_stand(&self, listed: &[ExcusedCluster], count: u64, now: Seconds) -> bool {
        let lasts = |it: &ExcusedCluster| it.until.as_ref().is_none_or(|until| now < unix(until));
        let is_excused =
            |it: &ExcusedCluster| self.is_unread() || self.excuses.ground(&it.cluster_name).is_some();
        listed.len() as u64 == count && listed.iter().all(|it| lasts(it) && is_excused(it))
    }

    /// Why too few are seen that count, if there are too few: `observed` of the `counted` targets that count have fresh,
    /// verified status.
    pub(super) fn too_few_observed(
        &self,
        least: u64,
        observed: u64,
        counted: u64,
    ) -> Option<(Reason, String)> {
        let total = counted + self.count();
        if total == 0 || observed >= least {
            return None;
        }
        let excused = self.words().map(|words| format!("; {words}")).unwrap_or_default();
        let message = format!(
            "{observed} of {} with fresh, verified status and not excused, at least {least} are needed (minObserved){excused}",
            clusters(total)
        );
        Some((Reason::TooFewObserved, message))
    }
}

/// How many of so many targets must have fresh, verified status and not be excused.
///
/// # Errors
/// When the amount cannot be read.
pub fn least_observed(package: &FleetPackageSpec, targets: u64) -> Result<u64, String> {
    match &package.min_observed {
        // Nobody can be all that is seen.
        Some(amount) => amount.of_rounded_up(targets).map(|it| it.max(1)).map_err(|error| error.to_string()),
        None => Ok(targets / 2 + 1),
    }
}
