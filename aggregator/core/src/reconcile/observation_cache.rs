//! What the fleet says of packages at one moment: found out once, however many gates depend on it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use statusbridge_api::PackageRef;
use statusbridge_contract::Fingerprint;

use crate::decide::Target;
use crate::fleet::{Fleet, Observation};
use crate::time::Seconds;

/// Packages that are remembered at a time: those that depend on the same package are judged together.
const PACKAGES: usize = 32;
/// The same in observations, each of some hundred bytes: beyond so many, the packages that were asked for longest ago are
/// forgotten. Several packages of ten thousand clusters are judged at a time.
const OBSERVATIONS: usize = 65_536;
/// However many observations they are, so many packages are remembered: one for each thread that judges, and the next.
const AT_LEAST: usize = 3;

/// What was found out so far. It belongs to one state of the fleet and of the ClusterProfiles.
#[derive(Debug, Default)]
pub struct ObservationCache {
    /// The one that was asked for last comes last.
    packages: Mutex<VecDeque<(Subject, Arc<Survey>)>>,
    slowest: Mutex<Option<Seconds>>,
}

/// What a survey is about; times as bits, so that only the very same is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Subject {
    package: PackageRef,
    t: u64,
    stale_after: u64,
}

/// What the fleet says of one package.
#[derive(Debug)]
pub struct Survey {
    package: PackageRef,
    t: Seconds,
    stale_after: Seconds,
    observed: Mutex<HashMap<String, Observation>>,
    reporting: OnceLock<Arc<[String]>>,
    /// The clusters that were seen to want or have each revision, as places in `reporting`.
    revisions: OnceLock<BTreeMap<Fingerprint, Vec<usize>>>,
    /// What was made of the reporting clusters for those who may see everything.
    targets: OnceLock<Arc<[Target]>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ObservationCache {
    /// The survey of a package, at a moment in the backend's clock.
    pub fn of(&self, package: PackageRef, t: Seconds, stale_after: Seconds) -> Arc<Survey> {
        let subject = Subject { package, t: t.to_bits(), stale_after: stale_after.to_bits() };
        let mut surveys = lock(&self.packages);
        let known = surveys.iter().position(|(known, _)| *known == subject);
        if let Some((subject, survey)) = known.and_then(|at| surveys.remove(at)) {
            surveys.push_back((subject, survey.clone()));
            return survey;
        }
        let mut observations: usize = surveys.iter().map(|(_, survey)| survey.len()).sum();
        while surveys.len() >= PACKAGES || (surveys.len() >= AT_LEAST && observations >= OBSERVATIONS) {
            let Some((_, oldest)) = surveys.pop_front() else { break };
            observations = observations.saturating_sub(oldest.len());
        }
        let survey = Arc::new(Survey {
            package: subject.package.clone(),
            t,
            stale_after,
            observed: Mutex::default(),
            reporting: OnceLock::new(),
            revisions: OnceLock::new(),
            targets: OnceLock::new(),
        });
        surveys.push_back((subject, survey.clone()));
        survey
    }

    /// Forgets everything: what it was found out from has changed.
    pub fn clear(&self) {
        lock(&self.packages).clear();
        lock(&self.slowest).take();
    }

    /// The longest scrape interval of any cluster; 0 when none is known.
    pub fn slowest_scrapes(&self, fleet: &Fleet) -> Seconds {
        *lock(&self.slowest).get_or_insert_with(|| fleet.slowest_scrapes())
    }
}

impl Survey {
    /// How many observations it holds.
    fn len(&self) -> usize {
        lock(&self.observed).len() + self.targets.get().map_or(0, |targets| targets.len())
    }

    /// What is known of the package in every cluster that reports it, without being remembered.
    pub(crate) fn look_at_all<'f>(&self, fleet: &'f Fleet) -> impl Iterator<Item = (&'f str, Observation)> {
        fleet.observe_all(&self.package, self.t, self.stale_after)
    }

    /// What is known of the package in a cluster.
    pub fn observe(&self, fleet: &Fleet, cluster: &str) -> Observation {
        let all = self.targets.get().map(AsRef::as_ref).unwrap_or_default();
        let at = all.binary_search_by(|target| target.cluster.as_str().cmp(cluster));
        if let Some(target) = at.ok().and_then(|at| all.get(at)) {
            return target.observation.clone();
        }
        let mut observed = lock(&self.observed);
        if let Some(observation) = observed.get(cluster) {
            return observation.clone();
        }
        let observation = fleet.observe(cluster, &self.package, self.t, self.stale_after);
        observed.insert(cluster.to_owned(), observation.clone());
        observation
    }

    /// Every cluster that reports the package, or did so lately, by name.
    pub fn reporting(&self, fleet: &Fleet) -> Arc<[String]> {
        self.reporting.get_or_init(|| fleet.reporting(&self.package).into()).clone()
    }

    /// What is made of the reporting clusters for those who may see everything, in order of their names.
    pub fn all_targets(&self, make: impl FnOnce() -> Arc<[Target]>) -> Arc<[Target]> {
        self.targets.get_or_init(make).clone()
    }

    /// Whether any cluster that may be looked at was seen to want, have applied or have healthy this
    /// revision.
    pub(crate) fn seen_anywhere(
        &self,
        fleet: &Fleet,
        revision: Fingerprint,
        may_look: impl Fn(&str) -> bool,
    ) -> bool {
        let reporting = self.reporting(fleet);
        let revisions = self.revisions.get_or_init(|| {
            let places = |names: Vec<&str>| {
                // Both are in order.
                let mut at = 0;
                let place = |name: &str| {
                    at += reporting.iter().skip(at).position(|known| known == name)?;
                    Some(at)
                };
                names.into_iter().filter_map(place).collect()
            };
            fleet.revisions(&self.package).into_iter().map(|(r, names)| (r, places(names))).collect()
        });
        let clusters = revisions.get(&revision).into_iter().flatten();
        clusters.filter_map(|at| reporting.get(*at)).any(|cluster| may_look(cluster))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Exposition, healthy, package, tell};

    const T: Seconds = 10_000.0;

    #[test]
    fn what_is_known_of_a_package_is_found_out_once() {
        let (mut fleet, observations) = (Fleet::default(), ObservationCache::default());
        for cluster in ["c0", "c1", "c2"] {
            tell(&mut fleet, &[("cluster", cluster)], &Exposition::new(7).with("p", healthy("r1", 10)), T);
        }
        let survey = |stale_after| observations.of(package("p"), T, stale_after);
        assert!(Arc::ptr_eq(&survey(180.0), &survey(180.0)));
        assert!(!Arc::ptr_eq(&survey(180.0), &survey(60.0)));
        assert!(Arc::ptr_eq(&survey(180.0).reporting(&fleet), &survey(180.0).reporting(&fleet)));
        assert_eq!(survey(180.0).observe(&fleet, "c2"), fleet.observe("c2", &package("p"), T, 180.0));
        assert!(survey(180.0).seen_anywhere(&fleet, Fingerprint::of("r1"), |cluster| cluster == "c1"));
        assert!(!survey(180.0).seen_anywhere(&fleet, Fingerprint::of("r1"), |cluster| cluster == "c9"));
        assert!(!survey(180.0).seen_anywhere(&fleet, Fingerprint::of("r2"), |_| true));
        let before = survey(180.0);
        observations.clear();
        assert!(!Arc::ptr_eq(&before, &survey(180.0)));
    }

    #[test]
    fn the_packages_that_were_asked_for_longest_ago_are_forgotten() {
        let cache = ObservationCache::default();
        let of = |name: &str| cache.of(package(name), T, 180.0);
        let all = |survey: &Survey| {
            let target = Target {
                cluster: "c".to_owned(),
                observation: Fleet::default().observe("c", &package("p"), T, 180.0),
            };
            survey.all_targets(|| vec![target; OBSERVATIONS].into());
        };
        let known: Vec<_> = ["a", "b", "c"].iter().map(|name| of(name)).collect();
        known.iter().for_each(|survey| all(survey));
        // Large ones are kept for those who judge them at the same time.
        assert!(["b", "c", "a"].iter().zip([1, 2, 0]).all(|(name, at)| Arc::ptr_eq(&of(name), &known[at])));
        let new = of("d");
        assert!(
            [&known[2], &known[0], &new]
                .iter()
                .zip(["c", "a", "d"])
                .all(|(it, name)| Arc::ptr_eq(it, &of(name)))
        );
        assert!(!Arc::ptr_eq(&known[1], &of("b")));
        // Of small ones there are more.
        cache.clear();
        let first = of("0");
        (1..PACKAGES).for_each(|n| drop(of(&n.to_string())));
        assert!(Arc::ptr_eq(&first, &of("0")));
        let second = of("1");
        (0..PACKAGES).for_each(|n| drop(of(&format!("more {n}"))));
        assert!(!Arc::ptr_eq(&second, &of("1")));
    }
}
