//! The clusters that the hub knows as ClusterProfiles (`multicluster.x-k8s.io`), for selectors.
//!
//! ```text
//!   discovery ─> list and watch ──News──> Profiles ──select(labels)──> cluster names, each with its doubts
//! ```
//!
//! Of a profile only labels, the name of its cluster, ControlPlaneHealthy, what excuses it and the address of its exporter are kept, whatever the
//! version of the API. What cannot be told stays in sight: a profile without a cluster's name, or
//! two for one cluster, are selected and close; while there is no whole list nothing is selected,
//! and [`Profiles::membership`] says so.

mod excused_by;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use kube_core::DynamicObject;
use serde_json::Value;
use statusbridge_api::label_selector::{LabelSelector, Labels};
use statusbridge_api::{ClusterSet, FleetPackageSpec};

use crate::decide::Membership;
use crate::decide::excused::Profiled;
use crate::fleet::serial;
use crate::reconcile::object::Key;
use crate::reconcile::store::Event;
use crate::time::Seconds;

pub use excused_by::ExcusedBy;
pub use settings::{ClusterName, Settings};

/// API group of ClusterProfiles.
pub const GROUP: &str = "multicluster.x-k8s.io";
/// Their kind.
pub const KIND: &str = "ClusterProfile";
/// Most profiles that are complained about by name.
const MOST_COMPLAINTS: usize = 16;

/// What is heard of ClusterProfiles.
#[derive(Debug)]
pub enum News {
    /// The hub does not serve the kind.
    NotInstalled,
    /// They cannot be listed or watched. When that ends, a whole list follows.
    Broken(String),
    /// Something in a list or a watch.
    Event(Box<Event<DynamicObject>>),
}

impl From<Event<DynamicObject>> for News {
    fn from(event: Event<DynamicObject>) -> Self {
        Self::Event(Box::new(event))
    }
}

/// What counts of one profile.
#[derive(Debug, Clone, PartialEq)]
struct Profile {
    labels: Labels,
    /// Name of its cluster, or why it has none.
    cluster: Result<String, String>,
    /// Why its control plane is said to be unhealthy, if it is.
    unhealthy: Option<String>,
    /// Why the configuration excuses its cluster, if it does.
    excused: Option<String>,
    /// Where its exporter answers, if anybody wants to know.
    address: Option<String>,
}

impl Profile {
    fn read(object: &DynamicObject, settings: &Settings) -> Self {
        let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
        let unhealthy = conditions
            .into_iter()
            .flatten()
            .find(|it| it["type"] == "ControlPlaneHealthy" && it["status"] == "False")
            .map(|it| match it["reason"].as_str() {
                Some(reason) if !reason.is_empty() => format!("control plane not healthy: {reason}"),
                _ => "control plane not healthy".to_owned(),
            });
        Self {
            labels: object.metadata.labels.clone().unwrap_or_default(),
            cluster: settings.cluster_name.of(object),
            unhealthy,
            excused: settings.excused.iter().find_map(|rule| rule.reason_for(object)),
            address: settings
                .address_property
                .as_ref()
                .and_then(|name| settings::property(object, name))
                .map(str::to_owned),
        }
    }
}

/// How well the list is known.
#[derive(Debug, Clone, PartialEq)]
enum State {
    /// It has never been whole; why not.
    Unlisted(String),
    NotInstalled,
    Listed,
    /// It was whole; since when, and why, it may no longer be so.
    Broken(Seconds, String),
}

/// A selected cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected<'a> {
    /// Its name; that of the profile, marked as such, when the cluster's is not known.
    pub cluster: &'a str,
    /// Why it cannot be told what the cluster reports, if so.
    pub doubt: Option<Doubt>,
}

/// Why it cannot be told what a selected cluster reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// The profile does not say which cluster it stands for.
    Unnamed(String),
    /// Several profiles stand for this cluster.
    Ambiguous(String),
}

/// All profiles, by the cluster they stand for.
#[derive(Debug)]
pub struct Profiles {
    settings: Settings,
    known: BTreeMap<Key, Profile>,
    listing: Option<BTreeMap<Key, Profile>>,
    /// Keys of the profiles of one cluster; a profile without a cluster's name is by itself.
    clusters: BTreeMap<String, Vec<Key>>,
    state: State,
    revision: u64,
}

impl Profiles {
    /// Nothing is known yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            known: BTreeMap::new(),
            listing: None,
            clusters: BTreeMap::new(),
            state: State::Unlisted("they have not been listed yet".to_owned()),
            revision: serial::next(),
        }
    }

    /// Where they live and what they stand for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes in what was heard at `now`, and says whether selectors may choose differently for it.
    pub fn apply(&mut self, news: impl IntoIterator<Item = News>, now: Seconds) -> bool {
        let mut changed = false;
        let before = self.state.clone();
        for news in news {
            changed |= self.apply_one(news, now);
        }
        if changed {
            self.clusters = self.by_cluster();
        }
        if changed || self.state != before {
            self.revision = serial::next();
        }
        changed
    }

    /// Another one whenever anything is said of any cluster that was not said before.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn apply_one(&mut self, news: News, now: Seconds) -> bool {
        match news {
            News::NotInstalled => {
                self.known.clear();
                std::mem::replace(&mut self.state, State::NotInstalled) != State::NotInstalled
            }
            // The first error stays: a text that changes would be written each time.
            News::Broken(error) => {
                match self.state {
                    State::Listed => self.state = State::Broken(now, error),
                    State::Broken(..) => {}
                    State::Unlisted(_) | State::NotInstalled => self.state = State::Unlisted(error),
                }
                false
            }
            News::Event(event) => self.apply_event(*event),
        }
    }

    fn apply_event(&mut self, event: Event<DynamicObject>) -> bool {
        match event {
            Event::Apply(object) => {
                let Some(key) = key(&object) else { return false };
                let profile = Profile::read(&object, &self.settings);
                self.known.insert(key, profile.clone()) != Some(profile)
            }
            Event::Delete(object) => key(&object).is_some_and(|key| self.known.remove(&key).is_some()),
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                false
            }
            Event::InitApply(object) => {
                if let (Some(listing), Some(key)) = (&mut self.listing, key(&object)) {
                    listing.insert(key, Profile::read(&object, &self.settings));
                }
                false
            }
            Event::InitDone => {
                let Some(listing) = self.listing.take() else { return false };
                let before = std::mem::replace(&mut self.known, listing);
                let state = std::mem::replace(&mut self.state, State::Listed);
                before != self.known || state != State::Listed
            }
        }
    }

    fn by_cluster(&self) -> BTreeMap<String, Vec<Key>> {
        let mut clusters = BTreeMap::<String, Vec<Key>>::new();
        for (key, profile) in &self.known {
            let name = match &profile.cluster {
                Ok(name) => name.clone(),
                Err(_) => format!("{KIND}/{key}"),
            };
            clusters.entry(name).or_default().push(key.clone());
        }
        clusters
    }

    /// The clusters of which some profile has such labels, by name.
    pub fn select(&self, selector: &LabelSelector) -> Vec<Selected<'_>> {
        let selected = |key: &Key| self.known.get(key).is_some_and(|it| selector.matches(&it.labels));
        let chosen = self.clusters.iter().filter(|(_, keys)| keys.iter().any(selected));
        chosen.map(|(cluster, keys)| Selected { cluster, doubt: self.doubt(keys) }).collect()
    }

    fn doubt(&self, keys: &[Key]) -> Option<Doubt> {
        match keys {
            [only] => {
                let error = self.known.get(only)?.cluster.as_ref().err()?;
                Some(Doubt::Unnamed(error.clone()))
            }
            _ => {
                let shown: Vec<String> = keys.iter().take(4).map(Key::to_string).collect();
                let count = keys.len();
                let names = shown.join(" and ");
                Some(Doubt::Ambiguous(format!("{count} ClusterProfiles stand for this cluster: {names}")))
            }
        }
    }

    /// Whether it depends on them which clusters of a FleetPackage are meant by `clusters`, or are excused.
    pub(crate) fn choose(&self, package: &FleetPackageSpec, clusters: &ClusterSet) -> bool {
        clusters.selector.is_some()
            || self.may_excuse()
            || package.excused.iter().any(|excuse| excuse.selector.is_some())
    }

    /// The one ClusterProfile of a cluster; none where it has no profile or several.
    fn only(&self, cluster: &str) -> Option<&Profile> {
        self.known.get(self.profile(cluster)?)
    }

    /// Where the one ClusterProfile of a cluster is.
    pub(crate) fn profile(&self, cluster: &str) -> Option<&Key> {
        match self.clusters.get(cluster)?.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Where ClusterProfiles are.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.known.keys()
    }

    /// Why the control plane of this cluster is said to be unhealthy, if it is.
    pub fn unhealthy(&self, cluster: &str) -> Option<&str> {
        self.only(cluster)?.unhealthy.as_deref()
    }

    /// Clusters and where their exporters answer, of profiles that say so and leave no doubt about whose
    /// they are.
    ///
    /// # Errors
    /// In words, as long as the list has never been whole.
    pub fn addresses(&self) -> Result<Vec<(String, String)>, String> {
        if let State::Unlisted(error) = &self.state {
            return Err(error.clone());
        }
        let address = |(cluster, keys): (&String, &Vec<Key>)| match (self.doubt(keys), keys.as_slice()) {
            (None, [only]) => Some((cluster.clone(), self.known.get(only)?.address.clone()?)),
            _ => None,
        };
        Ok(self.clusters.iter().filter_map(address).collect())
    }

    /// Whether what is selected is all there is to be selected.
    pub fn membership(&self) -> Membership {
        match &self.state {
            State::Unlisted(error) => Membership::Unlisted(error.clone()),
            State::NotInstalled => Membership::NotInstalled,
            State::Listed => Membership::Known,
            State::Broken(since, error) => Membership::Outdated { since: *since, error: error.clone() },
        }
    }

    /// What is wrong with profiles or with reading them, for a log: bounded.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let unread = match &self.state {
            State::Unlisted(error) | State::Broken(_, error) => Some(format!("cannot be read: {error}")),
            State::NotInstalled | State::Listed => None,
        };
        let doubts = self.clusters.iter().filter_map(|(cluster, keys)| match self.doubt(keys)? {
            Doubt::Unnamed(why) => Some(format!("{cluster} stands for no cluster: {why}")),
            Doubt::Ambiguous(why) => Some(format!("cluster {cluster}: {why}")),
        });
        unread.into_iter().chain(doubts).take(MOST_COMPLAINTS).collect()
    }
}

impl Profiled for Profiles {
    fn labels(&self, cluster: &str) -> Option<&Labels> {
        self.only(cluster).map(|profile| &profile.labels)
    }

    fn excuse(&self, cluster: &str) -> Option<&str> {
        self.only(cluster)?.excused.as_deref()
    }

    fn may_excuse(&self) -> bool {
        !self.settings.excused.is_empty()
    }

    fn is_unread(&self) -> bool {
        matches!(self.state, State::Unlisted(_))
    }
}

fn key(object: &DynamicObject) -> Option<Key> {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    Some(Key { namespace, name: object.metadata.name.clone()? })
}
