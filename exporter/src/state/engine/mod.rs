//! From what watches hear to what the store publishes: keeps lean objects, finds what belongs
//! together, evaluates, holds, and vouches for what it has watched.
//!
//! ```text
//!   Update ──> kinds (objects | resource_kind) ──> evaluate ──> hold ──> soak ──> store
//!                                  └──> Command: watch this kind, read that object
//! ```
//!
//! One engine runs in one task; only the store is shared. Time is passed in.
//!
//! One update may concern every package. So what follows from it is queued, and [`Engine::go_on`] does it piece by piece;
//! whoever drives the engine lets others have their turn in between, and hands in the next update when nothing is left.

#[cfg(test)]
mod after_tests;
mod command;
mod deadlines;
mod due;
mod held;
#[cfg(test)]
mod identity_tests;
mod journal;
mod kept;
mod key;
mod kind;
mod label_index;
mod listing;
mod names;
mod published;
mod resource_kind;
#[cfg(test)]
mod resource_tests;
mod resources;
#[cfg(test)]
mod soak_tests;
mod source_state;
mod sources;
#[cfg(test)]
mod tests;

pub(crate) use command::Command;
pub(crate) use journal::Entry;
pub(crate) use published::SharedPublished;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use tracing::{info, warn};

use super::{
    hold::{self, Settled},
    soak::{self, Known, Shown},
    store::{Limits, Store},
    table::Table,
};
use crate::{
    clock::Moment,
    metrics::OwnMetrics,
    source::{Detail, JoinKey, RelatedObject, RelatedObjects, ResourceSet, Source},
    watch::{Change, KindId, PackageKey, Reading, SourceId, Update},
};
use deadlines::Deadlines;
use due::Due;
use held::{Held, Stamp};
use kept::PackedObject;
use key::{Key, Referrer};
use kind::KindState;
use listing::Listing;
use published::{Published, Visibility};
use source_state::{Package, PackageResources, SourceState};

/// Most holds that end at one go.
const MOST_EXPIRED: usize = 500;

/// What has to be shown of a package, and what it was made of.
struct Look {
    settled: Settled,
    detail: Detail,
    /// What the package looks for and consists of now; `None` for no news.
    parts: Option<(Vec<JoinKey>, Option<Box<PackageResources>>)>,
    known: Known,
    /// When time alone may make another verdict of it, in milliseconds by the `boot` clock.
    again: Option<i64>,
    /// Since when the object itself says so, where the verdict rests on it alone.
    own: Option<i64>,
}

/// Group, kind and, where they are a source's own, the rules for its health.
type ResourceName = (Box<str>, Box<str>, Box<str>);

/// The module says how it works.
pub(crate) struct Engine {
    /// By [`SourceId`].
    readers: Table<SourceState>,
    /// By [`KindId`].
    kinds: Table<KindState>,
    resource_kinds: HashMap<ResourceName, KindId>,
    published: SharedPublished,
    deadlines: Deadlines,
    /// How far the wall clock was from the `run` clock when the deadlines were set.
    offset: i64,
    /// What still follows from the last update, in order.
    due: VecDeque<Due>,
    commands: Vec<Command>,
    /// Objects to read once more, by kind.
    to_read: HashMap<KindId, Vec<Reading>>,
    /// How many updates have come: the clock of what is fresh.
    count: u64,
    metrics: Arc<OwnMetrics>,
    /// What was said and shown of packages, where somebody wants to know.
    journal: Option<Vec<Entry>>,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub(crate) fn new(sources: Vec<Arc<Source>>, limits: Limits, metrics: Arc<OwnMetrics>) -> Self {
        let published = Published { store: Store::new(limits), standing: Table::new() };
        let mut engine = Self {
            readers: Table::new(),
            kinds: Table::new(),
            resource_kinds: HashMap::new(),
            published: Arc::new(Mutex::new(published)),
            deadlines: Deadlines::default(),
            offset: 0,
            due: VecDeque::new(),
            commands: Vec::new(),
            to_read: HashMap::new(),
            count: 0,
            metrics,
            journal: None,
        };
        engine.use_sources(sources);
        engine
    }

    /// What scrapes read.
    pub(crate) fn published(&self) -> SharedPublished {
        self.published.clone()
    }

    /// Writes down what it makes of packages from now on.
    pub(crate) fn keep_journal(&mut self) {
        self.journal = Some(Vec::new());
    }

    /// What was written down since it was last asked.
    pub(crate) fn journal(&mut self) -> Vec<Entry> {
        self.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn write_down(&mut self, entry: impl FnOnce() -> Entry) {
        if let Some(journal) = &mut self.journal {
            journal.push(entry());
        }
    }

    /// What has to be done since it was last asked.
    pub(crate) fn commands(&mut self) -> Vec<Command> {
        self.commands_to_read();
        std::mem::take(&mut self.commands)
    }

    /// When [`Engine::expire`] is due next, in milliseconds by the `boot` clock.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.deadlines.next()
    }

    /// Does the next piece of what follows from the last update; whether there was any. Each takes as long as evaluating
    /// one package, or looking which packages were not evaluated yet.
    pub(crate) fn go_on(&mut self, now: Moment) -> bool {
        if self.offset != now.offset {
            self.offset = now.offset;
            self.wall_clock_was_set();
        }
        match self.due.pop_front() {
            Some(Due::Evaluate(source, package, known)) => self.evaluate_kept(source, &package, known, now),
            Some(Due::Refresh(source)) => self.refresh(source),
            Some(Due::Reveal(source)) => self.reveal(source),
            None => {
                self.due = VecDeque::new();
                return false;
            }
        }
        true
    }

    /// Takes in what a watch heard; [`Engine::go_on`] does what follows from it.
    pub(crate) fn apply(&mut self, update: Update, now: Moment) {
        self.count += 1;
        let kind = update.kind;
        let state = &mut self.kinds[kind];
        if state.retired {
            return;
        }
        if let Change::Contact(at) = update.change {
            return state.contact.note(at);
        }
        if state.resources.is_some() {
            return self.apply_to_resources(kind, update.change, now);
        }
        match update.change {
            Change::ListStarted { server, restored } => {
                state.start_list(server, restored);
                self.refresh_visibility(kind);
            }
            Change::Object(key, object) => self.object(kind, Arc::new(key), object, now),
            Change::Deleted(key) => self.deleted(kind, &Arc::new(key), Known::Watched),
            Change::ListDone => {
                let gone = state.finish_list();
                gone.iter().for_each(|key| self.deleted(kind, key, Known::Anew));
                self.doubt_what_has_no_version(kind);
                self.refresh_visibility(kind);
            }
            Change::Absent if state.listing != Listing::Absent => {
                state.listing = Listing::Absent;
                state.named = None;
                let gone: Vec<Key> = state.objects.keys().cloned().collect();
                gone.iter().for_each(|key| self.deleted(kind, key, Known::Anew));
                self.refresh_visibility(kind);
            }
            Change::Read { reading, objects, asked } => self.confirmed(kind, &reading, objects, asked),
            // That a source's own kind may not be read shows in its contact.
            Change::Absent | Change::Forbidden(_) | Change::Contact(_) => {}
        }
    }

    /// Ends the holds that have run out at `now`, and has packages evaluated of which time makes another verdict: so many
    /// of them that others have to wait for milliseconds at most. The next deadline is in the past while there are more.
    pub(crate) fn expire(&mut self, now: Moment) {
        for _ in 0..MOST_EXPIRED {
            let Some((source, key)) = self.deadlines.pop(now.boot) else { return };
            let Some(package) = self.readers[source].packages.get_mut(&key) else { continue };
            let is_due = package.again.take_if(|at| *at <= now.boot).is_some();
            let (again, expired) = (package.again, hold::expire(&package.settled, now.boot));
            self.deadlines.set(source, &key, None, package.deadline());
            if let Some(settled) = expired {
                let (detail, parts, known, own) = (Detail::default(), None, Known::Watched, None);
                self.show(source, &key, Look { settled, detail, parts, known, again, own }, now);
            }
            if is_due {
                self.due.push_back(Due::Evaluate(source, key, Known::Watched));
            }
        }
    }

    /// Times that objects give are times of the wall clock: what waits for them waits for another moment now.
    fn wall_clock_was_set(&mut self) {
        for (source, reader) in self.readers.iter().enumerate().filter(|(_, reader)| reader.source.waits()) {
            let packages = reader.packages.keys().cloned();
            self.due.extend(packages.map(|key| Due::Evaluate(source, key, Known::Watched)));
        }
    }

    fn object(&mut self, kind: KindId, key: Key, mut object: Value, now: Moment) {
        let again = self.is_read_again(kind);
        let state = &mut self.kinds[kind];
        let stamp = Stamp::of(&object);
        state.strip(&mut object);
        if let Some(named) = &mut state.named {
            named.insert(key.clone());
        }
        let kept = if again { state.packer.pack(&object) } else { PackedObject::hash(&object) };
        let before = state.objects.get_mut(&key);
        let same_version = before.as_ref().is_some_and(|before| before.stamp == stamp);
        // A list brings the versions that there are, and not those that there were since the last one.
        let known = if state.named.is_some() && !same_version { Known::Anew } else { Known::Watched };
        if let Some(before) = before
            && before.kept == kept
            && known == Known::Watched
        {
            before.stamp = stamp;
            return;
        }
        // Everything that is kept about an object shares one key.
        let key = state.objects.get_key_value(&key).map_or(key, |(known, _)| known.clone());
        state.objects.insert(key.clone(), Held { kept, stamp });
        let referrers = state.referrers(&key, Some(&object));
        for source in self.sources_of(kind) {
            let Some(package) = self.name(source, kind, &key, &object, known) else { continue };
            if !self.can_evaluate(source, kind) {
                continue;
            }
            if self.object_of(source, &package) == Some((kind, key.clone())) {
                self.evaluate(source, &package, &object, known, now);
            } else {
                self.evaluate_kept(source, &package, known, now);
            }
        }
        self.evaluate_again(referrers, known);
    }

    fn deleted(&mut self, kind: KindId, key: &Key, known: Known) {
        let state = &mut self.kinds[kind];
        if let Some(named) = &mut state.named {
            named.remove(key);
        }
        if state.objects.remove(key).is_none() {
            return;
        }
        let referrers = state.referrers(key, None);
        for source in self.sources_of(kind) {
            self.unname(source, kind, key, known);
        }
        self.evaluate_again(referrers, known);
    }

    /// After a list of a kind: evaluates the packages that look for objects by label, or for one that there is not, or whose object
    /// another one may have taken the place of. What
    /// came and went between two lists leaves no version behind that would tell.
    fn doubt_what_has_no_version(&mut self, kind: KindId) {
        let state = &self.kinds[kind];
        let missing = state.by_name.iter().filter(|(name, _)| !state.objects.contains_key(*name));
        let referrers = missing.flat_map(|(_, referrers)| referrers).chain(state.labels.referrers());
        let mut doubted: BTreeSet<Referrer> = referrers.cloned().collect();
        for source in self.sources_of(kind) {
            let reader = &self.readers[source];
            if reader.source.has_order() {
                doubted.extend(reader.packages.keys().map(|key| (source, key.clone())));
            }
        }
        self.evaluate_again(doubted, Known::Anew);
    }

    fn evaluate_again(&mut self, packages: BTreeSet<Referrer>, known: Known) {
        self.due.extend(packages.into_iter().map(|(source, key)| Due::Evaluate(source, key, known)));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evaluates a package as it was last heard.
    fn evaluate_kept(&mut self, source: SourceId, package: &Key, known: Known, now: Moment) {
        let Some((kind, key)) = self.object_of(source, package) else {
            return self.forget(source, package);
        };
        if let Some(object) = self.kinds[kind].objects.get(&key).and_then(|held| held.kept.parse()) {
            self.evaluate(source, package, &object, known, now);
        }
    }

    fn evaluate(&mut self, source: SourceId, key: &Key, object: &Value, known: Known, now: Moment) {
        let reading = self.readers[source].source.clone();
        if !reading.takes(object) {
            return self.forget(source, key);
        }
        let rivals = self.rivals(source, key);
        let joins = if rivals.is_some() { Vec::new() } else { reading.join_keys(object) };
        let found: Vec<(usize, Vec<Value>)> = joins
            .iter()
            .map(|join| (join.related(), self.kinds[self.join_kind(source, join)].find(join)))
            .collect();
        let related = RelatedObjects(
            reading
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
        let mut resources = self.readers[source].packages.get_mut(key).and_then(|p| p.resources.take());
        let mut wanted = None;
        let mut look = |set: ResourceSet| {
            let (known, summary) = self.look_at_resources(source, key, resources.take(), set, now);
            wanted = Some(known);
            summary
        };
        let mut evaluation = match rivals {
            Some(rivals) => reading.conflict(&rivals),
            None => reading.evaluate_with(object, &related, now.unix_seconds(), &mut look),
        };
        if let Some(unwanted) = resources {
            self.unlink_resources(source, key, &unwanted);
        }
        self.metrics.evaluated(&reading.name, evaluation.error.is_some());
        self.write_down(|| Entry::evaluated(source, key, &evaluation));
        let detail = std::mem::take(&mut evaluation.detail);
        let reader = &mut self.readers[source];
        let previous = reader.packages.get(key).map(|p| &p.settled);
        let previous = previous.or_else(|| reader.carried.get(key).map(|(settled, _)| settled));
        if let Some(error) = &evaluation.error
            && previous.is_none_or(|p| p.shown != evaluation.verdict)
        {
            let (cluster, namespace, name) = (key.cluster.as_deref(), key.namespace.as_deref(), &key.name);
            warn!(source = reading.name, cluster, namespace, package = %name, %error, "an expression failed");
        }
        // A failure may have come and gone unseen: only a verdict that is no better is held over a gap.
        let previous = previous.filter(|p| known == Known::Watched || p.shown.failed());
        let since = evaluation.verdict.since;
        let again = evaluation.again.map(|at| now.boot_at(at));
        let settled = hold::settle(previous, evaluation, now.boot);
        let own = if known == Known::Anew && reading.rests_on_one_object() && !settled.held() {
            let server = self.object_of(source, key).and_then(|(kind, _)| self.kinds[kind].server);
            soak::own(object, since, server)
        } else {
            None
        };
        self.show(
            source,
            key,
            Look { settled, detail, parts: Some((joins, wanted)), known, again, own },
            now,
        );
    }

    /// Publishes a package's state.
    fn show(&mut self, source: SourceId, key: &Key, look: Look, now: Moment) {
        let Look { settled, detail, parts, known, again, own } = look;
        let visible = self.visibility(source) == Visibility::Visible;
        let reader = &mut self.readers[source];
        let mut before = reader.packages.remove(key);
        let old_joins = before.as_mut().map(|p| std::mem::take(&mut p.joins)).unwrap_or_default();
        let (joins, resources) = match parts {
            Some((joins, resources)) if *joins != *old_joins => {
                self.unlink(source, key, &old_joins);
                self.link(source, key, &joins);
                (joins.into_boxed_slice(), resources)
            }
            Some((_, resources)) => (old_joins, resources),
            None => (old_joins, before.as_mut().and_then(|p| p.resources.take())),
        };
        let reader = &mut self.readers[source];
        let carried = reader.carried.get(key).map(|(_, shown)| shown);
        // What the first lists bring is no news: a restart must not repeat it all, and nothing that
        // nobody could see counts as a change.
        let previous = match &before {
            Some(package) if visible => Some(&package.shown),
            _ => carried,
        };
        let last = before.as_ref().map(|package| &package.shown).or(carried);
        // Nobody watched between an earlier version of the source and this one. A package that a later list brings anew may have
        // been there and gone: no time of its own counts.
        let known = if before.is_some() { known } else { Known::Anew };
        let own = own.filter(|_| last.is_some() || !visible);
        let (shown, _) = soak::advance(last, settled.shown.clone(), known, own, now.run);
        if previous.map_or(visible, |previous| soak::is_news(&previous.verdict, &shown.verdict)) {
            log_transition(&reader.source.name, key, previous, &shown, &detail);
        }
        let slot = match &before {
            Some(package) if package.shown == shown => package.slot,
            _ => {
                let slot = before.as_ref().and_then(|p| p.slot);
                self.lock().store.put(source, slot, key, &shown)
            }
        };
        self.note_left_out(source, key, slot.is_none());
        self.write_down(|| Entry::Shown { source, package: key.clone(), shown: shown.clone() });
        let package = Package { settled, again, shown, slot, joins, resources };
        self.deadlines.set(source, key, before.and_then(|p| p.deadline()), package.deadline());
        self.readers[source].packages.insert(key.clone(), Box::new(package));
    }

    fn forget(&mut self, source: SourceId, key: &Key) {
        let reader = &mut self.readers[source];
        reader.unconfirmed.remove(key);
        let Some(package) = reader.packages.remove(key) else { return };
        let name = reader.source.name.clone();
        self.unlink(source, key, &package.joins);
        if let Some(resources) = &package.resources {
            self.unlink_resources(source, key, resources);
        }
        if let Some(slot) = package.slot {
            self.lock().store.remove(source, slot);
        }
        self.deadlines.set(source, key, package.deadline(), None);
        self.write_down(|| Entry::Gone { source, package: key.clone() });
        self.note_left_out(source, key, false);
        self.let_in(source);
        info!(
            target: "transition",
            source = name, cluster = key.cluster.as_deref(), namespace = key.namespace.as_deref(), package = %key.name,
            "package is gone"
        );
    }

    /// Takes note of whether a package is left out of the series.
    fn note_left_out(&mut self, source: SourceId, key: &Key, left_out: bool) {
        let can_be_named = self.lock().store.can_name(key);
        let reader = &mut self.readers[source];
        let set = if can_be_named { &mut reader.waiting } else { &mut reader.unnameable };
        let changed = if left_out { set.insert(key.clone()) } else { set.remove(key) };
        if !changed {
            return;
        }
        let (count, name) = (reader.waiting.len() + reader.unnameable.len(), reader.source.name.clone());
        if left_out && count == 1 {
            warn!(
                source = name, cluster = key.cluster.as_deref(), namespace = key.namespace.as_deref(), package = %key.name,
                "a limit is reached: packages are left out, and the source is not up"
            );
        }
        self.metrics.left_out(&name, count);
        if let Some(standing) = &mut self.lock().standing[source] {
            standing.short = count > 0;
        }
    }

    /// Gives the room that there is to packages that were left out for want of it.
    fn let_in(&mut self, source: SourceId) {
        while self.lock().store.has_room(source)
            && let Some(key) = self.readers[source].waiting.first().cloned()
        {
            if let Some(package) = self.readers[source].packages.get(&key) {
                let slot = self.lock().store.put(source, None, &key, &package.shown);
                if let Some(package) = self.readers[source].packages.get_mut(&key) {
                    package.slot = slot;
                }
            }
            self.note_left_out(source, &key, false);
        }
    }

    fn link(&mut self, source: SourceId, key: &Key, joins: &[JoinKey]) {
        for join in joins {
            let kind = self.join_kind(source, join);
            self.kinds[kind].link(join, (source, key.clone()));
        }
    }

    fn unlink(&mut self, source: SourceId, key: &Key, joins: &[JoinKey]) {
        let referrer = (source, key.clone());
        for join in joins {
            let kind = self.join_kind(source, join);
            self.kinds[kind].unlink(join, &referrer);
        }
    }
}

fn log_transition(source: &str, key: &PackageKey, before: Option<&Shown>, after: &Shown, detail: &Detail) {
    let verdict = &after.verdict;
    let (cluster, namespace, name) = (key.cluster.as_deref(), key.namespace.as_deref(), &key.name);
    info!(
        target: "transition",
        source,
        cluster,
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
        operation = detail.operation,
        reason = verdict.reason.as_deref(),
        message = detail.message,
    );
}
