//! Which clusters an object is about, and what may be said of each: the one place where targets
//! come from, so that whatever its namespace may not see has no way into a status.

use std::collections::BTreeSet;
use std::sync::Arc;

use statusbridge_api::common::Choice;
use statusbridge_api::{ClusterSet, LabelSelector, PackageRef};

use crate::decide::excused::{Excused, Excuses};
use crate::decide::{Backend, HIDDEN, Membership, Target, unclear_profiles};
use crate::fleet::Fleet;
use crate::fleet::observation::{Observation, Standing, reason};
use crate::reconcile::observation_cache::ObservationCache;
use crate::reconcile::profiles::{Doubt, Profiles, Selected};
use crate::reconcile::tenancy::Grant;
use crate::time::Seconds;

/// What targets are chosen from.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    /// What the clusters report.
    pub(crate) fleet: &'a Fleet,
    /// The clusters that the hub knows.
    pub(crate) profiles: &'a Profiles,
    /// What was found out about the fleet, as it is now.
    pub(crate) observations: &'a ObservationCache,
    /// What the namespace may see of the package.
    pub(crate) grant: &'a Grant<'a>,
    /// Evaluation time in the backend's clock.
    pub(crate) t: Seconds,
}

/// The clusters that are meant, as far as they may be seen.
pub(crate) struct Chosen {
    /// By name; each once.
    pub(crate) targets: Arc<[Target]>,
    /// Whether they are all that are meant.
    pub(crate) membership: Membership,
}

/// The same, of which nothing is asked but who they are.
pub(crate) struct Named {
    /// In their order; each once.
    pub(crate) clusters: Arc<[String]>,
    /// Whether they are all that are meant.
    pub(crate) membership: Membership,
    /// That it is not clear which clusters some ClusterProfiles mean.
    pub(crate) unclear: Option<String>,
}

/// The same, where some need not be healthy now.
pub(crate) struct Counted<'a> {
    /// Those that count, by name; each once.
    pub(crate) targets: Arc<[Target]>,
    /// Those that do not.
    pub(crate) excused: Excused<'a>,
    /// Whether they are all that are meant, and may be excused still.
    pub(crate) membership: Membership,
}

impl Counted<'_> {
    /// Nobody is meant.
    pub(crate) fn nobody() -> Self {
        let Chosen { targets, membership } = Chosen::nobody();
        Self { targets, excused: Excused::nobody(), membership }
    }
}

impl Chosen {
    /// Nobody is meant.
    pub(crate) fn nobody() -> Self {
        Self { targets: Arc::from([]), membership: Membership::Known }
    }
}

impl Named {
    /// Nobody is meant.
    pub(crate) fn nobody() -> Self {
        Self { clusters: Arc::from([]), membership: Membership::Known, unclear: None }
    }
}

impl Sources<'_> {
    /// Tells those that count from those that are excused.
    pub(crate) fn count<'e>(&self, chosen: Chosen, excuses: Excuses<'e>) -> Counted<'e> {
        let Chosen { targets, mut membership } = chosen;
        let (targets, excused) = excuses.split(targets);
        if excused.is_by_profile() && membership == Membership::Known {
            // Who was excused when profiles could last be read may not be so any more.
            membership = self.shown_membership();
        }
        Counted { targets, excused, membership }
    }

    /// The clusters that `clusters` means, and what is known of the package there.
    pub(crate) fn choose(&self, package: &PackageRef, clusters: &ClusterSet, stale_after: Seconds) -> Chosen {
        if let Some(refusal) = self.grant.refuses(package, clusters) {
            return Chosen { membership: Membership::Forbidden(refusal.to_string()), ..Chosen::nobody() };
        }
        let survey = self.observations.of(package.clone(), self.t, stale_after);
        let look = |cluster: &str| self.target(cluster, survey.observe(self.fleet, cluster));
        let known = |targets| Chosen { targets, membership: Membership::Known };
        match clusters.choice() {
            // Deciding says what is wrong.
            Err(_) => Chosen::nobody(),
            Ok(Choice::Names(names)) => {
                let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
                known(names.into_iter().map(look).collect())
            }
            Ok(Choice::Reporting(_)) if *self.grant == Grant::Everything => {
                let all = || survey.look_at_all(self.fleet);
                known(survey.all_targets(|| all().map(|(name, seen)| self.target(name, seen)).collect()))
            }
            Ok(Choice::Reporting(_)) => {
                let names = survey.reporting(self.fleet);
                known(names.iter().filter(|name| self.grant.allows(name)).map(|name| look(name)).collect())
            }
            Ok(Choice::Selector(selector)) => {
                let targets = self.select(selector).map(|it| match it.doubt {
                    None => look(it.cluster),
                    Some(Doubt::Ambiguous(why)) => {
                        in_doubt(it.cluster, Standing::Conflict, reason::CLUSTER_PROFILE_CONFLICT, why)
                    }
                    Some(Doubt::Unnamed(why)) => {
                        in_doubt(it.cluster, Standing::Missing, reason::CLUSTER_NAME_UNKNOWN, why)
                    }
                });
                let targets = targets.collect();
                Chosen { targets, membership: self.shown_membership() }
            }
        }
    }

    /// The clusters that `clusters` means.
    pub(crate) fn name(&self, package: &PackageRef, clusters: &ClusterSet, stale_after: Seconds) -> Named {
        let known = |clusters| Named { clusters, ..Named::nobody() };
        if let Some(refusal) = self.grant.refuses(package, clusters) {
            return Named { membership: Membership::Forbidden(refusal.to_string()), ..Named::nobody() };
        }
        match clusters.choice() {
            // Deciding says what is wrong.
            Err(_) => Named::nobody(),
            Ok(Choice::Names(names)) => {
                known(names.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect())
            }
            Ok(Choice::Reporting(_)) => {
                let names = self.observations.of(package.clone(), self.t, stale_after).reporting(self.fleet);
                match self.grant {
                    Grant::Everything => known(names),
                    grant => known(names.iter().filter(|name| grant.allows(name)).cloned().collect()),
                }
            }
            Ok(Choice::Selector(selector)) => {
                let (clear, unclear): (Vec<_>, Vec<_>) =
                    self.select(selector).partition(|it| it.doubt.is_none());
                let named = |all: Vec<Selected<'_>>| -> Vec<String> {
                    all.into_iter().map(|it| it.cluster.to_owned()).collect()
                };
                Named {
                    clusters: named(clear).into(),
                    membership: self.shown_membership(),
                    unclear: unclear_profiles(&named(unclear)),
                }
            }
        }
    }

    fn select(&self, selector: &LabelSelector) -> impl Iterator<Item = Selected<'_>> {
        self.profiles.select(selector).into_iter().filter(|it| match it.doubt {
            None | Some(Doubt::Ambiguous(_)) => self.grant.allows(it.cluster),
            // Whose cluster it is cannot be told, so it is nobody's.
            Some(Doubt::Unnamed(_)) => self.grant.allows_all(),
        })
    }

    /// The clusters that a selector selects, by name; none where nothing can be selected now.
    pub(crate) fn selected(&self, selector: &LabelSelector) -> Option<Vec<String>> {
        self.profiles
            .membership()
            .obstacle()
            .is_none()
            .then(|| self.select(selector).map(|it| it.cluster.to_owned()).collect())
    }

    /// What is known of the package in a cluster, without being remembered.
    pub(crate) fn see(&self, cluster: &str, package: &PackageRef, stale_after: Seconds) -> Target {
        self.target(cluster, self.fleet.observe(cluster, package, self.t, stale_after))
    }

    /// What is made of an observation; the same when it was made before.
    fn target(&self, cluster: &str, mut observation: Observation) -> Target {
        let is_made = observation.reason == reason::CONTROL_PLANE_UNHEALTHY;
        if self.grant.is_one_of_several() && !is_made {
            // It may name packages or streams of others.
            observation.message.clear();
        }
        let silent =
            [reason::CLUSTER_NOT_FOUND, reason::EXPORTER_SILENT, reason::SCRAPE_FAILED, reason::SOURCE_DOWN];
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
    let observation = Observation { standing, as_of: None, row: None, reason, message, told_by: None };
    Target { cluster: cluster.to_owned(), observation }
}

/// What may be said of an error of the backend: it may repeat a query, which names clusters.
pub(crate) fn shown<'a>(error: &'a str, grant: &Grant<'_>) -> &'a str {
    if grant.is_one_of_several() { HIDDEN } else { error }
}

/// The same of the backend.
pub(crate) fn shown_backend<'a>(backend: Backend<'a>, grant: &Grant<'_>) -> Backend<'a> {
    match backend {
        Backend::Answers => Backend::Answers,
        Backend::Fails(error) => Backend::Fails(shown(error, grant)),
        Backend::Unknown(error) => Backend::Unknown(shown(error, grant)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::store::Event;
    use rstest::rstest;
    use serde_json::{Value, json};

    use crate::fleet::FleetSettings;
    use crate::reconcile::profiles::{ClusterName, News, Settings};
    use crate::reconcile::tenancy::Tenancy;
    use crate::testing::{Exposition, healthy, tell};
    use statusbridge_api::{Excuse, FleetPackageSpec};

    const T: Seconds = 10_000.0;

    fn fleet(heard: Option<(&Exposition, Seconds)>) -> Fleet {
        let mut fleet = Fleet::new(FleetSettings::default());
        if let Some((exposition, at)) = heard {
            tell(&mut fleet, &[("cluster", "c")], exposition, at);
        }
        fleet
    }

    fn profiles(status: &[(&str, Value)]) -> Profiles {
        let cluster_name = ClusterName::Property("id".into());
        let mut profiles = Profiles::new(Settings { cluster_name, ..Settings::default() });
        let made = status.iter().map(|(name, status)| {
            let object = json!({"metadata": {"namespace": "fleet", "name": name}, "status": status});
            Event::InitApply(serde_json::from_value(object).unwrap())
        });
        let events = [Event::Init].into_iter().chain(made).chain([Event::InitDone]);
        profiles.apply(events.map(News::from), T);
        profiles
    }

    fn choose(fleet: &Fleet, profiles: &Profiles, clusters: Value, tenancy: &Tenancy) -> Chosen {
        let package: FleetPackageSpec = serde_json::from_value(json!({
            "package": {"source": "flux", "namespace": "ns", "name": "p"}, "clusters": clusters,
        }))
        .unwrap();
        let grant = tenancy.grant("tenant", &package.package);
        let observations = ObservationCache::default();
        Sources { fleet, profiles, observations: &observations, grant: &grant, t: T }.choose(
            &package.package,
            &package.clusters,
            180.0,
        )
    }

    fn unhealthy() -> Profiles {
        let conditions = json!([{"type": "ControlPlaneHealthy", "status": "False", "reason": "NoLease"}]);
        profiles(&[("c", json!({"properties": [{"name": "id", "value": "c"}], "conditions": conditions}))])
    }

    #[rstest]
    #[case::never_seen(None, false, reason::CONTROL_PLANE_UNHEALTHY)]
    #[case::the_backend_is_silent(None, true, reason::BACKEND_UNAVAILABLE)]
    #[case::silent(Some((Exposition::new(1).with("p", healthy("r", 10)), T - 1000.0)), false, reason::CONTROL_PLANE_UNHEALTHY)]
    #[case::cut_off(Some((Exposition::new(1).with("p", healthy("r", 10)).down("flux"), T - 5.0)), false, reason::CONTROL_PLANE_UNHEALTHY)]
    #[case::it_speaks(Some((Exposition::new(1).with("p", healthy("r", 10)), T - 5.0)), false, reason::REPORTED)]
    #[case::it_speaks_of_others(Some((Exposition::new(1).with("q", healthy("r", 10)), T - 5.0)), false, reason::PACKAGE_NOT_FOUND)]
    fn an_unhealthy_control_plane_explains_silence_and_nothing_else(
        #[case] heard: Option<(Exposition, Seconds)>,
        #[case] unanswered: bool,
        #[case] expected: &str,
    ) {
        let mut fleet = fleet(heard.as_ref().map(|(exposition, at)| (exposition, *at)));
        if unanswered {
            fleet.unanswered("", "refused".into());
        }
        let (plain, unhealthy) = (profiles(&[]), unhealthy());
        let named = json!({"names": ["c"]});
        let without = choose(&fleet, &plain, named.clone(), &Tenancy::default()).targets;
        for clusters in [named, json!({"selector": {}})] {
            let with = choose(&fleet, &unhealthy, clusters, &Tenancy::default()).targets;
            assert_eq!((with.len(), with[0].observation.reason), (1, expected));
            assert_eq!(with[0].observation.standing, without[0].observation.standing, "no verdict changes");
            if expected == reason::CONTROL_PLANE_UNHEALTHY {
                assert_eq!(with[0].observation.message, "control plane not healthy: NoLease");
            }
        }
    }

    #[test]
    fn a_profile_of_an_unknown_cluster_is_nobodys() {
        let id = |name: &str| json!({"properties": [{"name": "id", "value": name}]});
        let profiles = profiles(&[("a", id("a-1")), ("b", id("b-1")), ("c", json!({})), ("d", id("b-1"))]);
        let names = |policy: &str| -> Vec<String> {
            let tenancy = serde_json::from_value(json!([
                {"namespaces": ["tenant"], "clusters": [policy], "packageNamespaces": ["*"], "sources": ["*"]},
            ]))
            .unwrap();
            let chosen = choose(&fleet(None), &profiles, json!({"selector": {}}), &tenancy);
            chosen.targets.iter().map(|it| format!("{} {:?}", it.cluster, it.observation.standing)).collect()
        };
        assert_eq!(names("*"), ["ClusterProfile/fleet/c Missing", "a-1 Missing", "b-1 Conflict"]);
        assert_eq!(names("a-*"), ["a-1 Missing"]);
        assert_eq!(names("b-*"), ["b-1 Conflict"]);
        assert_eq!(names("Cluster*"), Vec::<String>::new(), "its stand-in is no name to be granted");
    }

    #[test]
    fn who_is_excused_by_a_list_that_may_be_out_of_date_makes_the_choice_out_of_date() {
        let fleet = fleet(None);
        let mut profiles = profiles(&[("c", json!({"properties": [{"name": "id", "value": "c"}]}))]);
        let tenancy = Tenancy::default();
        let package = crate::testing::package("p");
        let grant = tenancy.grant("tenant", &package);
        let observations = ObservationCache::default();
        let written: Vec<Excuse> = serde_json::from_value(json!([
            {"selector": {}, "reason": "lab"}, {"cluster": "d", "reason": "repair"},
        ]))
        .unwrap();
        let named = |names: Value| serde_json::from_value(json!({"names": names})).unwrap();
        let count = |profiles: &Profiles, names: Value| {
            let sources =
                Sources { fleet: &fleet, profiles, observations: &observations, grant: &grant, t: T };
            let chosen = sources.choose(&package, &named(names), 180.0);
            let counted = sources.count(chosen, Excuses::new(&written, profiles, T));
            (counted.targets.len(), counted.excused.count(), counted.membership)
        };
        assert_eq!(count(&profiles, json!(["b", "c", "d"])), (1, 2, Membership::Known));
        profiles.apply([News::Broken("cut off".into())], 5.0);
        let outdated = Membership::Outdated { since: 5.0, error: "cut off".into() };
        assert_eq!(count(&profiles, json!(["b", "c", "d"])), (1, 2, outdated));
        assert_eq!(count(&profiles, json!(["b", "d"])), (1, 1, Membership::Known), "no profile says so");
    }

    #[test]
    fn a_cluster_counts_once_however_often_it_is_named() {
        let chosen =
            choose(&fleet(None), &profiles(&[]), json!({"names": ["b", "a", "b"]}), &Tenancy::default());
        let names: Vec<String> = chosen.targets.iter().map(|it| it.cluster.clone()).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
