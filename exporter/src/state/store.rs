//! What is published: one small row per package, and the digest of every source's rows, kept up to
//! date in constant time as packages change.
//!
//! Blocks of rows are shared: a [`Snapshot`] clones pointers under the lock and is rendered without
//! it, so a scrape is one consistent view however long it takes to send. A block that changes
//! meanwhile is copied first.

use std::{collections::BTreeMap, sync::Arc};

use statusbridge_contract::{CONTRACT_VERSION, Digest, Fingerprint, Metric, label, reason, sample};
use tracing::warn;

use super::{
    digests::Digests,
    row::{Block, Row},
    soak::Shown,
    table::Table,
};
use crate::watch::PackageKey;

/// How much of a source may become series. Past a limit the rest is left out, and the source is not
/// up, so that nobody takes a part for the whole.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Limits {
    /// Most packages of one source that become series.
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_packages)]
    pub max_packages: usize,
    /// Most distinct reasons that packages of one source may have at a time; further ones are `Other`.
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_reasons)]
    pub max_reasons: usize,
    /// Longest name of a package, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().max_label_length)]
    pub max_label_length: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // No name in Kubernetes is longer, not even with its resource and group before it.
        Self { max_packages: 50_000, max_reasons: 128, max_label_length: 512 }
    }
}

/// Where a package's row is; stays the same for as long as the package is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(u32);

#[derive(Debug)]
struct SourceRows {
    name: Arc<str>,
    blocks: Vec<Arc<Block>>,
    /// How many slots were ever given away.
    slots: u32,
    free: Vec<u32>,
    digests: Digests,
    /// By code, the word for each reason and how many packages have it. A word that none has any more stays until
    /// there is no room for another one.
    reasons: BTreeMap<u64, (Arc<str>, usize)>,
    /// How many packages have which apply state and health. Pairs that some package has had stay,
    /// also when they are 0 again, so that no series comes and goes.
    states: BTreeMap<(u64, u64), usize>,
}

/// The rows of all sources.
#[derive(Debug)]
pub(crate) struct Store {
    sources: Table<SourceRows>,
    limits: Limits,
    /// What to add to the times of packages for unix time, in milliseconds.
    offset: i64,
}

impl Store {
    /// A store without sources, in which times of packages are unix time.
    pub(crate) fn new(limits: Limits) -> Self {
        Self { sources: Table::new(), limits, offset: 0 }
    }

    /// Adds `offset` (milliseconds) to the times of all packages from now on, in place of the last one.
    pub(crate) fn use_offset(&mut self, offset: i64) {
        if std::mem::replace(&mut self.offset, offset) != offset {
            self.sources.iter_mut().for_each(|rows| rows.use_offset(offset));
        }
    }

    /// A source more; it is known by its index from then on.
    pub(crate) fn add_source(&mut self, name: &str) {
        self.sources.push(SourceRows {
            name: Arc::from(name),
            blocks: Vec::new(),
            slots: 0,
            free: Vec::new(),
            digests: Digests::default(),
            reasons: BTreeMap::new(),
            states: BTreeMap::new(),
        });
    }

    /// Forgets everything about a source; its index is not used again.
    pub(crate) fn remove_source(&mut self, source: usize) {
        let rows = &mut self.sources[source];
        (rows.blocks, rows.slots, rows.free, rows.digests, rows.reasons) = Default::default();
        rows.states.values_mut().for_each(|count| *count = 0);
    }

    /// Whether a source may have another package.
    pub(crate) fn has_room(&self, source: usize) -> bool {
        self.sources[source].packages() < self.limits.max_packages
    }

    /// Whether a package's cluster, namespace and name are short enough.
    pub(crate) fn can_name(&self, key: &PackageKey) -> bool {
        let namespace = key.namespace.as_ref().map_or(0, |namespace| namespace.len());
        let cluster = key.cluster.as_ref().map_or(0, |cluster| cluster.len());
        key.name.len().max(namespace).max(cluster) <= self.limits.max_label_length
    }

    /// Publishes a package's state: in its own slot, or in a new one. `None` when a limit leaves it
    /// out.
    pub(crate) fn put(
        &mut self,
        source: usize,
        slot: Option<Slot>,
        key: &PackageKey,
        shown: &Shown,
    ) -> Option<Slot> {
        if !self.can_name(key) || (slot.is_none() && !self.has_room(source)) {
            return None;
        }
        let rows = &mut self.sources[source];
        let reason = shown.verdict.reason.as_ref();
        let code = reason.map_or(0, |reason| rows.reason_code(reason, self.limits.max_reasons));
        let row = Row::new(&rows.name, key, shown, code, self.offset);
        let slot = slot.unwrap_or_else(|| rows.new_slot());
        rows.set(slot, Some(row));
        Some(slot)
    }

    /// Takes a package away. Its slot may be given to another one.
    pub(crate) fn remove(&mut self, source: usize, slot: Slot) {
        let rows = &mut self.sources[source];
        if rows.set(slot, None) {
            rows.free.push(slot.0);
        }
    }

    /// One consistent view of the sources that `standing` (by source index) says are published.
    pub(crate) fn snapshot(&self, publisher: Publisher, standing: &[SourceStanding]) -> Snapshot {
        let mut sources = Vec::new();
        for (rows, standing) in self.sources.iter().zip(standing) {
            let (up, last_contact, hidden) = match *standing {
                SourceStanding::Unpublished => continue,
                SourceStanding::Loading { last_contact } => (false, last_contact, true),
                SourceStanding::Published { up, last_contact } => (up, last_contact, false),
            };
            sources.push(if hidden {
                SourceSnapshot::empty(rows.name.clone(), up, last_contact)
            } else {
                SourceSnapshot {
                    name: rows.name.clone(),
                    up,
                    last_contact,
                    packages: rows.packages(),
                    blocks: rows.blocks.clone(),
                    reasons: rows.words(),
                    states: rows.states.clone(),
                    digests: rows.digests.clone(),
                }
            });
        }
        Snapshot { publisher, sources }
    }
}

impl SourceRows {
    fn use_offset(&mut self, offset: i64) {
        self.digests = Digests::default();
        for block in &mut self.blocks {
            let block = Arc::make_mut(block);
            block.use_offset(offset);
            block.rows().for_each(|row| self.digests.add(row));
        }
    }

    fn new_slot(&mut self) -> Slot {
        if let Some(free) = self.free.pop() {
            return Slot(free);
        }
        self.slots += 1;
        Slot(self.slots - 1)
    }

    fn packages(&self) -> usize {
        self.slots as usize - self.free.len()
    }

    /// Puts a row into its slot, or takes it away; whether there was one.
    fn set(&mut self, slot: Slot, row: Option<Row>) -> bool {
        if let Some(row) = &row {
            self.digests.add(row);
            *self.states.entry(row.state()).or_default() += 1;
            self.has_reason(row, 1);
        }
        let slot = slot.0 as usize;
        if self.blocks.len() <= slot / Block::ROWS {
            self.blocks.resize_with(slot / Block::ROWS + 1, Arc::default);
        }
        #[expect(clippy::indexing_slicing, reason = "resized to hold it just now")]
        let block = Arc::make_mut(&mut self.blocks[slot / Block::ROWS]);
        let Some(old) = block.set(slot % Block::ROWS, row) else { return false };
        self.digests.remove(&old);
        if let Some(count) = self.states.get_mut(&old.state()) {
            *count -= 1;
        }
        self.has_reason(&old, -1);
        true
    }

    fn has_reason(&mut self, row: &Row, packages: isize) {
        if let Some((_, count)) = row.reason().and_then(|code| self.reasons.get_mut(&code)) {
            *count = count.saturating_add_signed(packages);
        }
    }

    /// The words of all reasons, in order.
    fn words(&self) -> Vec<Arc<str>> {
        let mut words: Vec<Arc<str>> = self.reasons.values().map(|(word, _)| word.clone()).collect();
        words.sort();
        words
    }

    /// The code to publish for a reason: its own, or that of `Other` while packages have too many others. It decides
    /// nothing, so the source is whole without it.
    fn reason_code(&mut self, word: &Arc<str>, limit: usize) -> u64 {
        let (code, other) = (reason::code(word), reason::code(reason::OTHER));
        let named = |reasons: &BTreeMap<_, _>| reasons.len() - usize::from(reasons.contains_key(&other));
        if !self.reasons.contains_key(&code) && named(&self.reasons) >= limit {
            self.reasons.retain(|_, (_, packages)| *packages > 0);
            if named(&self.reasons) >= limit {
                self.reasons.entry(other).or_insert_with(|| {
                    warn!(
                        source = &*self.name,
                        reason = &**word,
                        limit,
                        "more reasons than may be named: they are Other"
                    );
                    (Arc::from(reason::OTHER), 0)
                });
                return other;
            }
        }
        self.reasons.entry(code).or_insert_with(|| (word.clone(), 0));
        code
    }
}

/// What is to be said about a source as a whole. Times in unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceStanding {
    /// Its kind has never been served here: nothing is said.
    Unpublished,
    /// Its first lists are not complete: it is not up, and has no packages yet.
    Loading {
        /// When the watch that is furthest behind had last kept up.
        last_contact: i64,
    },
    /// Its packages are published.
    Published {
        /// Whether every watch has kept up lately.
        up: bool,
        /// When the watch that is furthest behind had last kept up.
        last_contact: i64,
    },
}

/// Who publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Publisher {
    /// Fingerprint of the kube-system namespace's UID, once known. Without it nothing is attested.
    pub cluster_uid: Option<Fingerprint>,
    /// Number of the process, from 1 to 2^32 - 1; `None` where no process serves this.
    pub process_number: Option<u64>,
}

/// One consistent view of all that is published.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) publisher: Publisher,
    pub(crate) sources: Vec<SourceSnapshot>,
}

#[derive(Debug, Clone)]
pub(crate) struct SourceSnapshot {
    pub(crate) name: Arc<str>,
    pub(crate) up: bool,
    pub(crate) last_contact: i64,
    packages: usize,
    pub(crate) blocks: Vec<Arc<Block>>,
    pub(crate) reasons: Vec<Arc<str>>,
    states: BTreeMap<(u64, u64), usize>,
    digests: Digests,
}

impl SourceSnapshot {
    fn empty(name: Arc<str>, up: bool, last_contact: i64) -> Self {
        let (digests, states) = Default::default();
        Self { name, up, last_contact, packages: 0, blocks: vec![], reasons: vec![], states, digests }
    }
}

impl Snapshot {
    /// How many packages there are in it.
    pub fn packages(&self) -> usize {
        self.sources.iter().map(|s| s.packages).sum()
    }

    /// Calls `visit` with the labels and value of each sample of a metric that is not per package.
    /// The digest's own sample and the rendered time are not among them.
    pub(crate) fn for_each_sample(&self, metric: Metric, mut visit: impl FnMut(&[(&str, &str)], u64)) {
        match metric {
            Metric::ProcessNumber => {
                if let Some(number) = self.publisher.process_number {
                    visit(&[], number);
                }
            }
            Metric::SourceUp => self.by_source(|s, label| visit(&[label], u64::from(s.up))),
            Metric::SourcePackages => self.by_source(|s, label| visit(&[label], s.packages as u64)),
            Metric::SourceLastContact => {
                self.by_source(|s, label| visit(&[label], u64::try_from(s.last_contact).unwrap_or(0)));
            }
            Metric::ReasonInfo => self.by_source(|s, source| {
                for word in &s.reasons {
                    let code = reason::code(word).to_string();
                    visit(&[source, (label::REASON, word), (label::CODE, &code)], 1);
                }
            }),
            Metric::Packages => self.by_source(|s, source| s.for_each_count(source, &mut visit)),
            _ => {}
        }
    }

    fn by_source(&self, mut visit: impl FnMut(&SourceSnapshot, (&str, &str))) {
        for source in &self.sources {
            visit(source, (label::PACKAGE_SOURCE, &source.name));
        }
    }

    /// The digest of all that is said, but for when it is said.
    pub fn state_digest(&self) -> Digest {
        let mut digest = Digest::default();
        self.sources.iter().for_each(|s| digest.merge(s.digests.all()));
        for metric in Metric::ALL.iter().filter(|m| m.in_state() && !m.per_package()) {
            self.for_each_sample(*metric, |labels, value| {
                digest.add(sample::hash(metric.name(), labels, value));
            });
        }
        digest
    }

    /// Calls `visit` with the labels and value of each digest of an exposition that is rendered at `rendered` (unix
    /// seconds), that of all of it and the parts by cluster, if the own cluster's UID is known.
    pub(crate) fn attest(&self, rendered: u64, mut visit: impl FnMut(&[(&str, &str)], u64)) {
        let Some(uid) = self.publisher.cluster_uid else { return };
        let uid = uid.to_string();
        let labels = [(label::CONTRACT, CONTRACT_VERSION), (label::CLUSTER_UID, &*uid)];
        visit(&labels, self.state_digest().rendered(rendered).value());
        for (cluster, part) in Digests::parts(self.sources.iter().map(|source| &source.digests)) {
            let labels = [labels[0], (label::PACKAGE_CLUSTER, cluster), labels[1]];
            visit(&labels, part.value());
        }
    }
}

impl SourceSnapshot {
    fn for_each_count(&self, source: (&str, &str), visit: &mut impl FnMut(&[(&str, &str)], u64)) {
        use statusbridge_contract::{ApplyState, Health};
        for (&(apply, health), &count) in &self.states {
            if let (Some(apply), Some(health)) = (ApplyState::from_code(apply), Health::from_code(health)) {
                let labels = [source, (label::APPLY_STATE, apply.name()), (label::HEALTH, health.name())];
                visit(&labels, count as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statusbridge_contract::{ApplyState, Health};
    use statusbridge_serving::format::Format;

    use super::*;
    use crate::{serve::exposition, source::Verdict};

    fn shown(apply: usize, revision: u64) -> Shown {
        let apply = ApplyState::ALL[apply];
        let verdict = Verdict {
            apply,
            health: Health::Unknown,
            desired: Fingerprint::of(&revision.to_string()),
            applied: Fingerprint::NONE,
            healthy: Fingerprint::NONE,
            reason: Some(Arc::from(format!("Reason{revision}"))),
            since: None,
            resources: revision.is_multiple_of(2).then(Default::default),
        };
        Shown { verdict, since: 1_700_000_000_000 }
    }

    /// A store with the sources `a` and `b`.
    fn store(limits: Limits) -> Store {
        let mut store = Store::new(limits);
        ["a", "b"].iter().for_each(|name| store.add_source(name));
        store
    }

    const UP: SourceStanding = SourceStanding::Published { up: true, last_contact: 1_700_000_000 };

    fn rendered(snapshot: &Snapshot) -> String {
        String::from_utf8(exposition::render(snapshot, Format::Text, Some(1))).unwrap()
    }

    fn uncompressed(snapshot: &Snapshot) -> String {
        let exposition =
            exposition::Exposition::new(snapshot.clone(), Format::Text, Some(1), bytes::Bytes::new());
        let packed: Vec<u8> = exposition.gzip().flatten().collect();
        std::io::read_to_string(flate2::read::GzDecoder::new(packed.as_slice())).unwrap()
    }

    /// The digests of a text exposition, by cluster.
    fn attested(text: &str) -> BTreeMap<String, u64> {
        let mut digests = BTreeMap::new();
        statusbridge_contract::exposition::read(text, |sample| {
            if sample.name == Metric::Digest.name() {
                let cluster = sample.labels.iter().find(|(name, _)| *name == label::PACKAGE_CLUSTER);
                let cluster = cluster.map(|(_, value)| value.to_string()).unwrap_or_default();
                assert!(digests.insert(cluster, sample.value as u64).is_none());
            }
        })
        .unwrap();
        digests
    }

    /// Adds up the samples of a text exposition as a reader would: all of them, or those about a cluster.
    fn recomputed(text: &str, cluster: Option<&str>) -> Digest {
        let mut digest = Digest::default();
        statusbridge_contract::exposition::read(text, |sample| {
            let labels: Vec<(&str, &str)> = sample.labels.iter().map(|(n, v)| (*n, v.as_ref())).collect();
            let is_about = |wanted| labels.contains(&(label::PACKAGE_CLUSTER, wanted));
            if Metric::from_name(sample.name).is_some_and(Metric::in_digest) && cluster.is_none_or(is_about) {
                digest.add(sample::hash(sample.name, &labels, sample.value as u64));
            }
        })
        .unwrap();
        digest
    }

    proptest! {
        #[test]
        fn the_kept_digest_is_the_digest_of_what_is_rendered(
            changes in prop::collection::vec((0usize..2, 0usize..6, prop::option::of((0usize..7, 0u64..90))), 1..60),
            offset in 0i64..3,
        ) {
            let mut store = store(Limits::default());
            let publisher = Publisher { cluster_uid: Some(Fingerprint::of("uid")), process_number: Some(5) };
            let mut slots = std::collections::HashMap::new();
            let mut earlier = Vec::new();
            for (step, (source, package, change)) in changes.into_iter().enumerate() {
                // Some run elsewhere, two of them in one cluster.
                let cluster = (package > 2).then(|| Arc::from(format!("c{}", package / 2)));
                let key = PackageKey { cluster, ..PackageKey::new(Some("ns"), &format!("p{package}")) };
                if step % 8 == 5 {
                    store.use_offset(offset * 1000);
                }
                match change {
                    Some((apply, revision)) => {
                        let slot = slots.get(&(source, package)).copied();
                        let slot = store.put(source, slot, &key, &shown(apply, revision)).expect("room");
                        slots.insert((source, package), slot);
                    }
                    None => {
                        if let Some(slot) = slots.remove(&(source, package)) {
                            store.remove(source, slot);
                        }
                    }
                }
                let snapshot = store.snapshot(publisher, &[UP, UP]);
                let text = rendered(&snapshot);
                if step % 16 == 3 {
                    // Compressed parts are kept from one snapshot to the next.
                    prop_assert_eq!(&uncompressed(&snapshot), &text);
                    earlier.push((text.clone(), snapshot.clone()));
                }
                let parts = attested(&text);
                prop_assert_eq!(recomputed(&text, None), snapshot.state_digest().rendered(1));
                prop_assert_eq!(parts.get(""), Some(&recomputed(&text, None).value()));
                for (cluster, part) in parts.iter().filter(|(cluster, _)| !cluster.is_empty()) {
                    prop_assert_eq!(*part, recomputed(&text, Some(cluster)).value());
                }
                let clusters = slots.keys().filter(|(_, package)| *package > 2).map(|(_, package)| package / 2);
                let clusters: std::collections::BTreeSet<usize> = clusters.collect();
                prop_assert_eq!(parts.len(), 1 + clusters.len());
                prop_assert_eq!(snapshot.packages(), slots.len());
            }
            for (text, snapshot) in earlier {
                prop_assert_eq!(rendered(&snapshot), text.clone(), "a snapshot stays as it was");
                prop_assert_eq!(uncompressed(&snapshot), text);
            }
        }
    }

    #[test]
    fn nothing_is_attested_while_nobody_knows_which_cluster_it_is_of() {
        let mut store = store(Limits::default());
        store.put(0, None, &PackageKey::new(None, "p"), &shown(0, 1)).expect("room");
        let attested = |cluster_uid| {
            let publisher = Publisher { cluster_uid, process_number: Some(5) };
            attested(&rendered(&store.snapshot(publisher, &[UP, UP]))).len()
        };
        assert_eq!((attested(None), attested(Some(Fingerprint::of("uid")))), (0, 1));
    }

    #[test]
    fn all_times_move_with_the_offset_and_the_digest_with_them() {
        let publisher = Publisher { cluster_uid: Some(Fingerprint::of("uid")), process_number: Some(5) };
        let filled = |offset| {
            let mut store = store(Limits::default());
            store.use_offset(offset);
            for n in 0..300 {
                store.put(0, None, &PackageKey::new(None, &format!("p{n}")), &shown(0, n));
            }
            store
        };
        let mut moved = filled(0);
        let before = uncompressed(&moved.snapshot(publisher, &[UP, UP]));
        moved.use_offset(-3_600_000);
        let after = moved.snapshot(publisher, &[UP, UP]);
        assert_eq!(rendered(&after), rendered(&filled(-3_600_000).snapshot(publisher, &[UP, UP])));
        assert_eq!(uncompressed(&after), rendered(&after));
        assert_eq!(recomputed(&rendered(&after), None), after.state_digest().rendered(1));
        assert!(before.contains("} 1700000000\n") && rendered(&after).contains("} 1699996400\n"));
    }

    #[test]
    fn reasons_past_the_limit_are_other() {
        let mut store = store(Limits { max_reasons: 20, ..Limits::default() });
        let snapshot = |store: &mut Store, reasons| {
            for n in 0..reasons {
                store.put(0, None, &PackageKey::new(None, &format!("p{n}")), &shown(6, n));
            }
            store.snapshot(Publisher::default(), &[UP, UP])
        };
        let words = |snapshot: &Snapshot| {
            let mut words = Vec::new();
            snapshot.for_each_sample(Metric::ReasonInfo, |labels, _| words.push(labels[1].1.to_owned()));
            words
        };
        assert_eq!(words(&snapshot(&mut store, 20)).len(), 20);
        let crowded = snapshot(&mut store, 25);
        assert!(crowded.sources[0].up, "reasons decide nothing");
        assert_eq!(words(&crowded).len(), 21);
        assert!(words(&crowded).iter().any(|w| w == reason::OTHER));
    }

    #[test]
    fn a_reason_that_nobody_has_any_more_gives_way_to_another() {
        let mut store = store(Limits { max_reasons: 2, ..Limits::default() });
        let (key, mut slot) = (PackageKey::new(None, "p"), None);
        for n in 0..100 {
            slot = store.put(0, slot, &key, &shown(6, n));
            let mut words = Vec::new();
            store.snapshot(Publisher::default(), &[UP]).for_each_sample(Metric::ReasonInfo, |labels, _| {
                words.push(labels[1].1.to_owned());
            });
            assert!(words.len() <= 2 && words.contains(&format!("Reason{n}")), "{words:?}");
        }
    }

    #[test]
    fn packages_past_a_limit_are_left_out_until_there_is_room() {
        let mut store = store(Limits { max_packages: 2, max_label_length: 5, ..Limits::default() });
        let mut put = |slot, name: &str| store.put(0, slot, &PackageKey::new(Some("ns"), name), &shown(0, 1));
        let first = put(None, "a").expect("room");
        assert!(put(None, "b").is_some() && put(None, "c").is_none());
        assert_eq!(put(Some(first), "a"), Some(first), "what is in stays in");
        store.remove(0, first);
        let mut put = |name: &str| store.put(0, None, &PackageKey::new(Some("ns"), name), &shown(0, 1));
        assert!(put("longer").is_none() && put("c").is_some() && put("d").is_none());
        assert_eq!(store.snapshot(Publisher::default(), &[UP, UP]).packages(), 2);
    }

    #[test]
    fn a_source_that_is_loading_shows_nothing_but_that() {
        let mut store = store(Limits::default());
        store.put(0, None, &PackageKey::new(None, "p"), &shown(0, 1));
        let standing = [SourceStanding::Loading { last_contact: 5 }, SourceStanding::Unpublished];
        let text = exposition::render(&store.snapshot(Publisher::default(), &standing), Format::Text, None);
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("statusbridge_source_up{package_source=\"a\"} 0\n"));
        assert!(text.contains("statusbridge_source_packages{package_source=\"a\"} 0\n"));
        assert!(!text.contains("package=\"p\"") && !text.contains("\"b\""), "{text}");
    }
}
