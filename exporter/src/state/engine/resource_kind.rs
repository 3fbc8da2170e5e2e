//! A kind whose objects are looked at because packages consist of them: what kstatus says of each
//! that some package names, and nothing of any other.
//!
//! An object counts as read for a package only if it was read after the package was applied: by a
//! list or a single read that was asked for later. What a watch said earlier may be of the previous
//! revision. Times are counts of the engine's updates.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;
use statusbridge_contract::Health;

use super::{
    held::Stamp,
    key::{Key, Referrer},
    listing::Listing,
};
use crate::{
    clock::Moment,
    source::{ResourceHealth, ResourceState},
    state::soak::Known,
};

/// A label and its value.
pub(super) type Label = (Arc<str>, Arc<str>);

/// What brings an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    List,
    Watch,
    /// A read beside the watch.
    Read,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct ResourceKind {
    /// When the list was asked for that is being read, or was read.
    pub(super) asked: u64,
    health: Option<Arc<ResourceHealth>>,
    /// When the newest complete list was asked for.
    listed: u64,
    resources: HashMap<Key, Resource>,
    /// By label and value.
    labels: HashMap<Arc<str>, HashMap<Arc<str>, Labelled>>,
    /// Which permission is missing.
    pub(super) forbidden: Option<String>,
    /// Reads that were not answered yet; and what the watch said meanwhile is gone, and when.
    reads: usize,
    gone: HashMap<Key, u64>,
}

#[derive(Debug, Default)]
struct Resource {
    status: Option<(Health, Box<str>)>,
    /// Resource version of the object that `status` was read from.
    version: u64,
    /// The same with the object's UID.
    stamp: Stamp,
    /// When it was first asked about: lists asked for earlier may have passed it over.
    created: u64,
    /// When the newest single read was asked for that has been answered, and that has not.
    read: u64,
    requested: u64,
    /// When the watch, or a list, last brought it.
    heard: u64,
    /// Packages that name it.
    referrers: Vec<Referrer>,
    /// Labels by which it is looked for.
    labels: Vec<Label>,
}

#[derive(Debug, Default)]
struct Labelled {
    members: HashSet<Key>,
    created: u64,
    read: u64,
    requested: u64,
    referrers: Vec<Referrer>,
}

impl ResourceKind {
    /// A kind whose first list is asked for now; `health` where kstatus does not tell it.
    pub(super) fn new(asked: u64, health: Option<Arc<ResourceHealth>>) -> Self {
        Self { asked, health, ..Self::default() }
    }

    /// Something is asked for beside the watch.
    pub(super) fn begin_read(&mut self) {
        self.reads += 1;
    }

    /// What was asked for at `asked` has been answered: leaves out what the watch has said since to be gone. An answer may
    /// come later than what happened after it.
    pub(super) fn end_read(&mut self, objects: &mut Vec<(Key, Value)>, asked: u64) {
        objects.retain(|(key, _)| self.gone.get(key).is_none_or(|at| *at <= asked));
        self.reads = self.reads.saturating_sub(1);
        if self.reads == 0 {
            self.gone = HashMap::new();
        }
    }

    /// The watch, or a list, has brought an object.
    pub(super) fn heard(&mut self, key: &Key, now: u64) {
        if let Some(resource) = self.resources.get_mut(key) {
            resource.heard = now;
        }
    }

    /// The watch has said that an object is gone. Returns the packages for which this is news.
    pub(super) fn deleted(&mut self, key: &Key, now: u64) -> Vec<Referrer> {
        if self.reads > 0 {
            self.gone.insert(key.clone(), now);
        }
        self.gone(key)
    }

    fn was_heard_since(&self, key: &Key, asked: u64) -> bool {
        self.resources.get(key).is_some_and(|resource| resource.status.is_some() && resource.heard > asked)
    }

    /// Whether no package is interested any more.
    pub(super) fn unused(&self) -> bool {
        self.resources.is_empty() && self.labels.is_empty()
    }

    /// Every package that has objects of this kind.
    pub(super) fn referrers(&self) -> HashSet<Referrer> {
        let named = self.resources.values().flat_map(|l| &l.referrers);
        let labelled = self.labels.values().flat_map(HashMap::values).flat_map(|l| &l.referrers);
        named.chain(labelled).cloned().collect()
    }

    pub(super) fn link(&mut self, key: &Key, referrer: &Referrer, now: u64) {
        let new = || Resource { created: now, ..Resource::default() };
        self.resources.entry(key.clone()).or_insert_with(new).referrers.push(referrer.clone());
    }

    pub(super) fn unlink(&mut self, key: &Key, referrer: &Referrer) {
        if let Some(resource) = self.resources.get_mut(key) {
            remove_one(&mut resource.referrers, referrer);
            self.drop_unused(key);
        }
    }

    pub(super) fn link_label(&mut self, label: &str, value: &str, referrer: &Referrer, now: u64) {
        let values = self.labels.entry(label.into()).or_default();
        let new = || Labelled { created: now, ..Labelled::default() };
        values.entry(value.into()).or_insert_with(new).referrers.push(referrer.clone());
    }

    pub(super) fn unlink_label(&mut self, label: &str, value: &str, referrer: &Referrer) {
        let Some(values) = self.labels.get_mut(label) else { return };
        let Some(labelled) = values.get_mut(value) else { return };
        remove_one(&mut labelled.referrers, referrer);
        if !labelled.referrers.is_empty() {
            return;
        }
        let members = std::mem::take(&mut labelled.members);
        values.remove(value);
        if values.is_empty() {
            self.labels.remove(label);
        }
        for key in members {
            if let Some(resource) = self.resources.get_mut(&key) {
                resource.labels.retain(|(l, v)| (&**l, &**v) != (label, value));
                self.drop_unused(&key);
            }
        }
    }

    fn drop_unused(&mut self, key: &Key) {
        if self
            .resources
            .get(key)
            .is_some_and(|resource| resource.referrers.is_empty() && resource.labels.is_empty())
        {
            self.resources.remove(key);
        }
    }

    /// The API server has gone back in time: versions of before say nothing.
    pub(super) fn forget_versions(&mut self) {
        for resource in self.resources.values_mut() {
            (resource.version, resource.stamp) = (0, Stamp::NONE);
        }
    }

    /// Takes in an object as it is now. Returns the packages for which this is news, and whether all that happened to the
    /// object since the last version is known.
    pub(super) fn object(
        &mut self,
        key: &Key,
        object: &Value,
        from: Origin,
        now: Moment,
    ) -> (Vec<Referrer>, Known) {
        let labels = self.labels_of(object);
        if !self.resources.contains_key(key) && labels.is_empty() {
            return (Vec::new(), Known::Watched);
        }
        let resource = self.resources.entry(key.clone()).or_default();
        let version = object.get("metadata").and_then(|m| m.get("resourceVersion")?.as_str()?.parse().ok());
        let version = version.unwrap_or(resource.version);
        let found = match &self.health {
            Some(health) => health.status(object),
            None => statusbridge_kstatus::of_resource(object, now.unix_seconds()),
        };
        let status = Some((found.health, found.reason.into_boxed_str()));
        let changed = resource.status != status || resource.labels != labels;
        let stamp = Stamp::of(object);
        // A single read may have been quicker than the watch, and have passed over what this version says.
        if version < resource.version {
            let news = if changed || from == Origin::List { resource.referrers.clone() } else { Vec::new() };
            return (news, Known::Anew);
        }
        let is_same = resource.stamp == stamp;
        let known = if from == Origin::List && !is_same { Known::Anew } else { Known::Watched };
        // A read passes over what the watch has still to bring: if the watch never does, the next list has missed it.
        let is_skip = from == Origin::Read && !is_same && resource.status.is_some();
        resource.stamp = if is_skip { Stamp::NONE } else { stamp };
        (resource.status, resource.version) = (status, version);
        if !changed && known == Known::Watched {
            return (Vec::new(), known);
        }
        let mut news = resource.referrers.clone();
        let before = std::mem::replace(&mut resource.labels, labels.clone());
        for (label, value) in &before {
            if let Some(labelled) = self.labelled(label, value) {
                news.extend(labelled.referrers.iter().cloned());
                if !labels.iter().any(|(l, v)| (l, v) == (label, value)) {
                    labelled.members.remove(key);
                }
            }
        }
        for (label, value) in &labels {
            if let Some(labelled) = self.labelled(label, value)
                && labelled.members.insert(key.clone())
            {
                news.extend(labelled.referrers.iter().cloned());
            }
        }
        self.drop_unused(key);
        (news, known)
    }

    fn labelled(&mut self, label: &str, value: &str) -> Option<&mut Labelled> {
        self.labels.get_mut(label)?.get_mut(value)
    }

    /// The labels of an object by which somebody looks for it.
    fn labels_of(&self, object: &Value) -> Vec<Label> {
        if self.labels.is_empty() {
            return Vec::new();
        }
        let labels = object.get("metadata").and_then(|m| m.get("labels"));
        let wanted = |(label, values): (&Arc<str>, &HashMap<Arc<str>, Labelled>)| {
            let (value, _) = values.get_key_value(labels?.get(&**label)?.as_str()?)?;
            Some((label.clone(), value.clone()))
        };
        self.labels.iter().filter_map(wanted).collect()
    }

    /// An object is gone. Returns the packages for which this is news.
    fn gone(&mut self, key: &Key) -> Vec<Referrer> {
        let Some(resource) = self.resources.get_mut(key) else { return Vec::new() };
        if resource.status.take().is_none() {
            return Vec::new();
        }
        let mut news = resource.referrers.clone();
        for (label, value) in std::mem::take(&mut resource.labels) {
            if let Some(labelled) = self.labelled(&label, &value) {
                labelled.members.remove(key);
                news.extend(labelled.referrers.iter().cloned());
            }
        }
        self.drop_unused(key);
        news
    }

    /// A list is complete: what it has not named is gone. Returns the packages for which this is news, and those that
    /// look for objects by label or for one that there is not: what came and went since the last list leaves no version
    /// behind that would tell.
    pub(super) fn listed(&mut self, named: &HashSet<Key>) -> Vec<Referrer> {
        self.listed = self.listed.max(self.asked);
        let gone: Vec<Key> = self.resources.keys().filter(|key| !named.contains(*key)).cloned().collect();
        let mut news: Vec<Referrer> = gone.iter().flat_map(|key| self.gone(key)).collect();
        let missing = self
            .resources
            .values()
            .filter(|resource| resource.status.is_none())
            .flat_map(|resource| &resource.referrers);
        let labelled = self.labels.values().flat_map(HashMap::values).flat_map(|l| &l.referrers);
        news.extend(missing.chain(labelled).cloned());
        news
    }

    /// A read of all objects that was asked for at `asked` is complete.
    pub(super) fn read_all(&mut self, asked: u64) {
        self.listed = self.listed.max(asked);
    }

    /// A single read that was asked for at `asked` is answered: after [`ResourceKind::object`], or with
    /// nothing. Returns the packages for which this is news.
    pub(super) fn read(&mut self, key: &Key, found: bool, asked: u64) -> Vec<Referrer> {
        let is_there = found || self.was_heard_since(key, asked);
        let mut news = if is_there { Vec::new() } else { self.gone(key) };
        if let Some(resource) = self.resources.get_mut(key) {
            resource.read = resource.read.max(asked);
            news.extend(resource.referrers.iter().cloned());
        }
        news
    }

    /// A read by label is answered, after [`ResourceKind::object`] of each. Returns the packages for
    /// which this is news.
    pub(super) fn read_labelled(
        &mut self,
        label: &str,
        value: &str,
        found: &HashSet<Key>,
        asked: u64,
    ) -> Vec<Referrer> {
        let Some(labelled) = self.labelled(label, value) else { return Vec::new() };
        labelled.read = labelled.read.max(asked);
        let mut news = labelled.referrers.clone();
        let missing: Vec<Key> = labelled.members.difference(found).cloned().collect();
        let gone = missing.into_iter().filter(|key| !self.was_heard_since(key, asked)).collect::<Vec<_>>();
        news.extend(gone.iter().flat_map(|key| self.gone(key)));
        news
    }

    /// What is known of an object for a package that was applied at `since`; and whether it has to
    /// be read once more, which is then taken as asked for at `now`.
    pub(super) fn state(
        &mut self,
        listing: Listing,
        key: &Key,
        since: u64,
        now: u64,
    ) -> (ResourceState, bool) {
        if let Some(known) = self.of_kind(listing) {
            return (known, false);
        }
        let (asked, listed) = (self.asked, self.listed);
        let Some(resource) = self.resources.get_mut(key) else { return (ResourceState::NotRead, false) };
        if fresh(listed, resource.created, resource.read) >= since.max(1) {
            return (status(resource), false);
        }
        let wanted = to_be_read(listing, asked, resource.created, resource.requested, since);
        resource.requested = if wanted { now } else { resource.requested };
        (ResourceState::NotRead, wanted)
    }

    /// The same for all objects that have a label, with their names.
    pub(super) fn states(
        &mut self,
        listing: Listing,
        (label, value): (&str, &str),
        since: u64,
        now: u64,
    ) -> (Vec<(Option<Key>, ResourceState)>, bool) {
        if let Some(known) = self.of_kind(listing) {
            return match known {
                // A kind that does not exist has no objects that could be missing.
                ResourceState::NotServed => (Vec::new(), false),
                known => (vec![(None, known)], false),
            };
        }
        let (asked, listed) = (self.asked, self.listed);
        let Some(labelled) = self.labelled(label, value) else {
            return (vec![(None, ResourceState::NotRead)], false);
        };
        if fresh(listed, labelled.created, labelled.read) < since.max(1) {
            let wanted = to_be_read(listing, asked, labelled.created, labelled.requested, since);
            labelled.requested = if wanted { now } else { labelled.requested };
            return (vec![(None, ResourceState::NotRead)], wanted);
        }
        let mut members: Vec<Key> = labelled.members.iter().cloned().collect();
        members.sort_unstable();
        let state = |key: Key| {
            let state = self.resources.get(&key).map_or(ResourceState::NotRead, status);
            (Some(key), state)
        };
        (members.into_iter().map(state).collect(), false)
    }

    /// What holds for every object of the kind.
    fn of_kind(&self, listing: Listing) -> Option<ResourceState> {
        match (&self.forbidden, listing) {
            (Some(permission), _) => Some(ResourceState::Forbidden(permission.clone())),
            (None, Listing::Absent) => Some(ResourceState::NotServed),
            (None, Listing::Unheard) => Some(ResourceState::NotRead),
            (None, Listing::First | Listing::Complete) => None,
        }
    }
}

/// A package that is looked at anew is linked before its old links go: it stands here twice then.
fn remove_one(referrers: &mut Vec<Referrer>, referrer: &Referrer) {
    if let Some(at) = referrers.iter().position(|r| r == referrer) {
        referrers.swap_remove(at);
    }
}

/// When what is known was asked for.
fn fresh(listed: u64, created: u64, read: u64) -> u64 {
    if created <= listed { listed.max(read) } else { read }
}

/// Whether a single read is needed: not if the list on its way will do, or one is on its way.
fn to_be_read(listing: Listing, asked: u64, created: u64, requested: u64, since: u64) -> bool {
    let list_will_do = listing != Listing::Complete && created <= asked && asked >= since;
    !list_will_do && requested < since.max(1)
}

fn status(resource: &Resource) -> ResourceState {
    match &resource.status {
        Some((health, reason)) => ResourceState::Found(*health, reason.to_string()),
        None => ResourceState::NotFound,
    }
}
