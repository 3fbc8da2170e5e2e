//! From what watches hear to what the store publishes: keeps lean objects, finds what belongs
//! together, evaluates, holds, counts transitions.
//!
//! One engine runs in one task; only the store is shared. Time is passed in.

mod kept;
mod plan;
mod published;
#[cfg(test)]
mod tests;

pub use plan::Plan;
pub use published::{Published, SharedPublished};

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use tracing::{info, warn};

use crate::{
    hold::{self, Settled},
    own_metrics::OwnMetrics,
    source::{JoinKey, RelatedObject, RelatedObjects, Source},
    store::{PackageKey, Slot, Store},
    transition::{self, Shown},
    verdict::Detail,
    watch::{Change, KindId, Update},
};
use kept::{Kept, Packer};
use published::Visibility;

type Key = Arc<PackageKey>;

/// How much of a kind is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    /// Nothing yet.
    Unheard,
    /// A first list is being read.
    First,
    /// All objects are known.
    Complete,
    /// There is no such kind.
    Absent,
}

#[derive(Debug)]
struct KindState {
    listing: Listing,
    /// While a list is being read: what it has named.
    named: Option<HashSet<Key>>,
    objects: HashMap<Key, Kept>,
    packer: Packer,
    /// Packages that look for objects of this kind, by what they look for.
    by_name: HashMap<Key, HashSet<Referrer>>,
    by_labels: HashMap<Referrer, Vec<JoinKey>>,
}

type Referrer = (usize, Key);

#[derive(Debug)]
struct Package {
    settled: Settled,
    shown: Shown,
    slot: Slot,
    joins: Box<[JoinKey]>,
}

/// See the [module](self).
pub struct Engine {
    sources: Vec<Arc<Source>>,
    plan: Arc<Plan>,
    kinds: Vec<KindState>,
    packages: Vec<HashMap<Key, Box<Package>>>,
    published: SharedPublished,
    deadlines: BinaryHeap<Reverse<(i64, usize, Key)>>,
    metrics: Arc<OwnMetrics>,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(sources: Vec<Arc<Source>>, plan: Arc<Plan>, metrics: Arc<OwnMetrics>) -> Self {
        let kind = || KindState {
            listing: Listing::Unheard,
            named: None,
            objects: HashMap::new(),
            packer: Packer::default(),
            by_name: HashMap::new(),
            by_labels: HashMap::new(),
        };
        let published = Published {
            store: Store::new(sources.iter().map(|s| s.name.as_str())),
            visible: vec![Visibility::NeverServed; sources.len()],
        };
        Self {
            kinds: plan.kinds.iter().map(|_| kind()).collect(),
            packages: sources.iter().map(|_| HashMap::new()).collect(),
            published: Arc::new(Mutex::new(published)),
            deadlines: BinaryHeap::new(),
            sources,
            plan,
            metrics,
        }
    }

    /// What scrapes read.
    pub fn published(&self) -> SharedPublished {
        self.published.clone()
    }

    /// When [`Engine::expire`] is due next, in unix milliseconds.
    pub fn next_deadline(&self) -> Option<i64> {
        self.deadlines.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes in what a watch heard; `now` in unix milliseconds.
    pub fn apply(&mut self, update: Update, now: i64) {
        let kind = update.kind;
        match update.change {
            Change::ListStarted => {
                let state = &mut self.kinds[kind];
                state.named = Some(HashSet::new());
                if matches!(state.listing, Listing::Unheard | Listing::Absent) {
                    state.listing = Listing::First;
                }
                self.refresh_visibility(kind, now);
            }
            Change::Object(key, object) => self.object(kind, Arc::new(key), object, now),
            Change::Deleted(key) => self.deleted(kind, &Arc::new(key), now),
            Change::ListDone => {
                let state = &mut self.kinds[kind];
                let named = state.named.take().unwrap_or_default();
                let gone: Vec<Key> =
                    state.objects.keys().filter(|key| !named.contains(*key)).cloned().collect();
                state.listing = Listing::Complete;
                gone.iter().for_each(|key| self.deleted(kind, key, now));
                self.refresh_visibility(kind, now);
            }
            Change::Absent => {
                let state = &mut self.kinds[kind];
                if state.listing != Listing::Absent {
                    state.listing = Listing::Absent;
                    state.named = None;
                    let gone: Vec<Key> = state.objects.keys().cloned().collect();
                    gone.iter().for_each(|key| self.deleted(kind, key, now));
                    self.refresh_visibility(kind, now);
                }
            }
        }
    }

    /// Ends the holds that have run out at `now` (unix milliseconds).
    pub fn expire(&mut self, now: i64) {
        while let Some(Reverse((at, ..))) = self.deadlines.peek()
            && *at <= now
        {
            let Some(Reverse((_, source, key))) = self.deadlines.pop() else { return };
            let expired = self.packages[source].get(&key).and_then(|p| hold::expire(&p.settled, now));
            if let Some(settled) = expired {
                self.show(source, &key, settled, &Detail::default(), None, now);
            }
        }
    }

    fn object(&mut self, kind: KindId, key: Key, mut object: Value, now: i64) {
        // Both change without anything that a source reads having changed.
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
            metadata.remove("uid");
        }
        let kept = self.keep(kind, &object);
        let state = &mut self.kinds[kind];
        if let Some(named) = &mut state.named {
            named.insert(key.clone());
        }
        let key = match state.objects.get_key_value(&key) {
            Some((_, known)) if *known == kept => return,
            // Everything that is kept about an object shares one key.
            Some((known, _)) => known.clone(),
            None => key,
        };
        let before = state.objects.insert(key.clone(), kept);
        for source in 0..self.sources.len() {
            if self.plan.uses[source].0 == kind && self.joins_known(source) {
                self.evaluate(source, &key, &object, now);
            }
        }
        self.referrers_again(kind, &key, before.as_ref(), Some(&object), now);
    }

    fn deleted(&mut self, kind: KindId, key: &Key, now: i64) {
        let state = &mut self.kinds[kind];
        if let Some(named) = &mut state.named {
            named.remove(key);
        }
        let Some(before) = state.objects.remove(key) else { return };
        for source in 0..self.sources.len() {
            if self.plan.uses[source].0 == kind {
                self.forget(source, key);
            }
        }
        self.referrers_again(kind, key, Some(&before), None, now);
    }

    /// What to keep of an object of a kind: whole when something may look at it again.
    fn keep(&mut self, kind: KindId, object: &Value) -> Kept {
        let again = self.plan.uses.iter().any(|(own, related)| {
            related.iter().flatten().any(|k| *k == kind) || (*own == kind && !related.is_empty())
        });
        if again { self.kinds[kind].packer.pack(object) } else { Kept::hash(object) }
    }

    /// Whether everything that a source joins is known, so that evaluating makes sense.
    fn joins_known(&self, source: usize) -> bool {
        let known = |kind: &KindId| matches!(self.kinds[*kind].listing, Listing::Complete | Listing::Absent);
        self.visibility(source) == Visibility::Visible || self.plan.uses[source].1.iter().flatten().all(known)
    }

    fn visibility(&self, source: usize) -> Visibility {
        self.lock().visible[source]
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kind's listing has moved on: sources that wait for it may be ready to be seen.
    fn refresh_visibility(&mut self, kind: KindId, now: i64) {
        for source in 0..self.sources.len() {
            if !self.plan.kinds_of(source).any(|k| k == kind) {
                continue;
            }
            let own = self.kinds[self.plan.uses[source].0].listing;
            match (self.visibility(source), own) {
                (Visibility::Visible, _) | (Visibility::NeverServed, Listing::Unheard | Listing::Absent) => {}
                (_, Listing::Complete) if self.joins_known(source) => {
                    if self.plan.has_joins(source) {
                        self.evaluate_missing(source, now);
                    }
                    self.lock().visible[source] = Visibility::Visible;
                    let packages = self.packages[source].len();
                    info!(source = self.sources[source].name, packages, "first lists are complete");
                }
                (_, Listing::Absent) => self.lock().visible[source] = Visibility::NeverServed,
                _ => self.lock().visible[source] = Visibility::Loading,
            }
        }
    }

    /// Evaluates the packages that came before everything that they join was known.
    fn evaluate_missing(&mut self, source: usize, now: i64) {
        let own = self.plan.uses[source].0;
        let missing: Vec<Key> = self.kinds[own]
            .objects
            .keys()
            .filter(|key| !self.packages[source].contains_key(*key))
            .cloned()
            .collect();
        missing.iter().for_each(|key| self.evaluate_kept(source, key, now));
    }

    fn evaluate_kept(&mut self, source: usize, key: &Key, now: i64) {
        if let Some(object) = self.kinds[self.plan.uses[source].0].objects.get(key).and_then(Kept::parse) {
            self.evaluate(source, key, &object, now);
        }
    }

    fn evaluate(&mut self, source: usize, key: &Key, object: &Value, now: i64) {
        let reader = self.sources[source].clone();
        let joins = reader.join_keys(object);
        let found: Vec<(usize, Vec<Value>)> =
            joins.iter().map(|join| (join.related(), self.look_up(source, join))).collect();
        let related = RelatedObjects(
            reader
                .related
                .iter()
                .enumerate()
                .map(|(index, r)| {
                    let mut objects =
                        found.iter().filter(|(related, _)| *related == index).flat_map(|(_, o)| o);
                    if r.by_reference() {
                        RelatedObject::One(objects.next())
                    } else {
                        RelatedObject::Many(objects.collect())
                    }
                })
                .collect(),
        );
        let mut evaluation = reader.evaluate(object, &related);
        self.metrics.evaluated(&reader.name, evaluation.error.is_some());
        let detail = std::mem::take(&mut evaluation.detail);
        let previous = self.packages[source].get(key).map(|p| &p.settled);
        if let Some(error) = &evaluation.error
            && previous.is_none_or(|p| p.shown != evaluation.verdict)
        {
            let (namespace, name) = (key.namespace.as_deref(), &key.name);
            warn!(source = reader.name, namespace, package = %name, %error, "an expression failed");
        }
        let settled = hold::settle(previous, evaluation, now);
        self.show(source, key, settled, &detail, Some(joins), now);
    }

    /// Publishes a package's state; `joins` are what it looks for now, `None` for no news.
    fn show(
        &mut self,
        source: usize,
        key: &Key,
        settled: Settled,
        detail: &Detail,
        joins: Option<Vec<JoinKey>>,
        now: i64,
    ) {
        let before = self.packages[source].remove(key);
        let (old_joins, old_until) =
            before.as_ref().map_or((&[] as &[JoinKey], None), |p| (&*p.joins, p.settled.until));
        let joins = match joins {
            Some(joins) if *joins != *old_joins => {
                let old = old_joins.to_vec();
                self.unlink(source, key, &old);
                self.link(source, key, &joins);
                joins.into_boxed_slice()
            }
            _ => old_joins.into(),
        };
        let (shown, changed) = transition::advance(
            before.as_ref().map(|p| &p.shown),
            settled.shown.clone(),
            now.div_euclid(1000),
        );
        // What the first lists bring is no news: a restart must not repeat it all.
        if changed && (before.is_some() || self.visibility(source) == Visibility::Visible) {
            self.log_transition(source, key, before.as_ref().map(|p| &p.shown), &shown, detail);
        }
        if let Some(until) = settled.until
            && old_until != Some(until)
        {
            self.deadlines.push(Reverse((until, source, key.clone())));
        }
        let same = before.as_ref().filter(|p| p.shown == shown).map(|p| p.slot);
        let slot = same
            .unwrap_or_else(|| self.lock().store.put(source, before.as_ref().map(|p| p.slot), key, &shown));
        self.packages[source].insert(key.clone(), Box::new(Package { settled, shown, slot, joins }));
    }

    fn forget(&mut self, source: usize, key: &Key) {
        if let Some(package) = self.packages[source].remove(key) {
            self.unlink(source, key, &package.joins);
            self.lock().store.remove(source, package.slot);
            let (namespace, name) = (key.namespace.as_deref(), &key.name);
            info!(
                target: "transition",
                source = self.sources[source].name, namespace, package = %name, "package is gone"
            );
        }
    }

    fn link(&mut self, source: usize, key: &Key, joins: &[JoinKey]) {
        for join in joins {
            let kind = &mut self.kinds[self.plan.join_kind(source, join)];
            match join_name(join) {
                Some(name) => {
                    kind.by_name.entry(name).or_default().insert((source, key.clone()));
                }
                None => kind.by_labels.entry((source, key.clone())).or_default().push(join.clone()),
            }
        }
    }

    fn unlink(&mut self, source: usize, key: &Key, joins: &[JoinKey]) {
        for join in joins {
            let kind = &mut self.kinds[self.plan.join_kind(source, join)];
            let referrer = (source, key.clone());
            match join_name(join) {
                Some(name) => {
                    if let Some(referrers) = kind.by_name.get_mut(&name) {
                        referrers.remove(&referrer);
                        if referrers.is_empty() {
                            kind.by_name.remove(&name);
                        }
                    }
                }
                None => {
                    kind.by_labels.remove(&referrer);
                }
            }
        }
    }

    fn look_up(&self, source: usize, join: &JoinKey) -> Vec<Value> {
        let objects = &self.kinds[self.plan.join_kind(source, join)].objects;
        match join_name(join) {
            Some(name) => objects.get(&name).and_then(Kept::parse).into_iter().collect(),
            None => objects.values().filter_map(Kept::parse).filter(|o| join.matches(o)).collect(),
        }
    }

    /// Evaluates the packages that look for an object which has changed.
    fn referrers_again(
        &mut self,
        kind: KindId,
        key: &Key,
        before: Option<&Kept>,
        after: Option<&Value>,
        now: i64,
    ) {
        let state = &self.kinds[kind];
        let mut again: Vec<Referrer> = state.by_name.get(key).into_iter().flatten().cloned().collect();
        if !state.by_labels.is_empty() {
            let before = before.and_then(Kept::parse);
            let concerns = |join: &JoinKey| {
                before.as_ref().is_some_and(|o| join.matches(o)) || after.is_some_and(|o| join.matches(o))
            };
            let concerned = state.by_labels.iter().filter(|(_, joins)| joins.iter().any(concerns));
            again.extend(concerned.map(|(referrer, _)| referrer.clone()));
        }
        for (source, key) in again {
            self.evaluate_kept(source, &key, now);
        }
    }

    fn log_transition(
        &self,
        source: usize,
        key: &PackageKey,
        before: Option<&Shown>,
        after: &Shown,
        detail: &Detail,
    ) {
        let verdict = &after.verdict;
        let (namespace, name) = (key.namespace.as_deref(), &key.name);
        info!(
            target: "transition",
            source = self.sources[source].name,
            namespace,
            package = %name,
            apply_state = %verdict.apply,
            health = %verdict.health,
            previous_apply_state = before.map(|b| b.verdict.apply.name()),
            previous_health = before.map(|b| b.verdict.health.name()),
            desired_revision = detail.desired_revision,
            applied_revision = detail.applied_revision,
            attempted_revision = detail.attempted_revision,
            healthy_fingerprint = %verdict.healthy,
            worst_resource = detail.worst_resource,
            reason = verdict.reason.as_deref(),
            message = detail.message,
        );
    }
}

/// The object that a join by reference means; `None` for one by labels.
fn join_name(join: &JoinKey) -> Option<Key> {
    match join {
        JoinKey::Reference { namespace, name, .. } => {
            Some(Arc::new(PackageKey::new(namespace.as_deref(), name)))
        }
        JoinKey::Labels { .. } => None,
    }
}
