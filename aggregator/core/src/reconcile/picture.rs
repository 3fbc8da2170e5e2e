//! A picture of the fleet for people who look at it: packages by clusters, small and always the newest, and what of it has
//! changed since somebody looked.
//!
//! ```text
//!   World ──update──> Picture ──view(since)──> all of it, or what came later
//! ```
//!
//! Each cell knows the version in which it changed. So a viewer that comes back gets exactly what came later, however
//! long ago it left, and nothing is kept for viewers.

mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use statusbridge_api::label_selector::Labels;
use statusbridge_api::{FleetPackageSpec, Reason};
use statusbridge_contract::Fingerprint;

use super::gate_verdict::{self, Gate, GateVerdict, Question};
use super::judge::again::{NEVER, fleet_key};
use super::judge::{Rows, World, stale_after};
use super::object::{GateObject, Key, Kind, PackageObject, RolloutObject};
use super::tenancy::Tenancy;
use super::verdict_cache::{Basis, Found, Still, VerdictCache};
use super::written;
use crate::decide::excused::Profiled;
use crate::decide::rows::Evident;
use crate::decide::{Moment, Target, rows, time, unix};
use crate::fleet::{Mark, serial};
use crate::time::Seconds;

pub(super) use view::{RolloutView, metadata};
pub use view::{Silence, View};

/// Clusters of packages that one update looks at, at most: then it goes on with the next one. A look takes about half a
/// microsecond.
const LOOKS: usize = 200_000;
/// For so many seconds no cluster is looked at while nothing is heard: time alone makes evidence old, too.
const IDLE: Seconds = 5.0;
/// Most objects that have gone and are remembered, before a picture is worn.
const GONE: usize = 4096;
/// Most clusters that are remembered beside those that are shown, before a picture is worn.
const SPARE: usize = 1000;

/// What a cluster comes to for a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    state: Reason,
    /// Place of the revision that it has applied among the package's revisions, if one is known.
    revision: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Dated<T> {
    it: T,
    version: u64,
}

/// A cluster; its place is its number.
#[derive(Debug)]
struct Cluster {
    name: String,
    labels: Labels,
}

/// What is shown of a FleetPackage.
#[derive(Debug)]
struct Package {
    object: PackageObject,
    wanted: Option<String>,
    /// Revisions in words where these are known, else as fingerprints.
    revisions: Vec<String>,
    places: HashMap<Fingerprint, u32>,
    /// By the numbers of clusters; `None` where the package is not meant to be.
    cells: Vec<Dated<Option<Cell>>>,
    /// The clusters that need not be healthy, by their numbers, and why.
    excused: BTreeMap<String, Vec<usize>>,
    /// In which version one of the cells was last other.
    filled: u64,
    /// How many clusters it is meant to be in.
    meant: usize,
    /// Whether all of its clusters are looked at in the next update, whatever is known of them.
    looks: bool,
}

/// What is shown of a gate.
#[derive(Debug)]
struct ShownGate {
    object: GateObject,
    verdict: GateVerdict,
}

/// What was looked at in the last whole update.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    fleet: Mark,
    packages: u64,
    gates: u64,
    rollouts: u64,
    profiles: u64,
    /// Where these are all that is known of clusters.
    slices: Option<u64>,
    unclosed: BTreeSet<Key>,
    answers: bool,
}

impl Seen {
    /// Whether objects of the hub are all that may be other.
    fn hears_the_same(&self, other: &Self) -> bool {
        let Self { fleet, packages: _, gates: _, rollouts: _, profiles, slices, unclosed, answers } = self;
        (fleet, profiles, slices, unclosed, answers)
            == (&other.fleet, &other.profiles, &other.slices, &other.unclosed, &other.answers)
    }
}

/// The picture for those who may see all of one namespace, or of all.
#[derive(Debug)]
pub struct Picture {
    id: u64,
    namespace: Option<String>,
    version: u64,
    clusters: Vec<Dated<Cluster>>,
    numbers: HashMap<String, usize>,
    /// Of which revision of ClusterProfiles the labels are, and of how many clusters.
    labelled: Option<(u64, usize)>,
    packages: BTreeMap<Key, Dated<Package>>,
    gates: BTreeMap<Key, Dated<ShownGate>>,
    rollouts: BTreeMap<Key, Dated<RolloutObject>>,
    /// Versions in which an object went.
    gone: BTreeMap<(Kind, Key), u64>,
    verdicts: VerdictCache,
    tenancy: Tenancy,
    seen: Option<(Seen, Seconds)>,
    /// Where the next update goes on, while one is not whole.
    next: Option<Key>,
    worn: bool,
    as_of: Option<Time>,
    evaluated_at: Option<Time>,
}

impl Picture {
    /// One that shows nothing yet; of all namespaces where none is given.
    pub fn new(namespace: Option<String>) -> Self {
        Self {
            id: serial::next(),
            namespace,
            version: 0,
            clusters: Vec::new(),
            numbers: HashMap::new(),
            labelled: None,
            packages: BTreeMap::new(),
            gates: BTreeMap::new(),
            rollouts: BTreeMap::new(),
            gone: BTreeMap::new(),
            verdicts: VerdictCache::default(),
            tenancy: Tenancy::default(),
            seen: None,
            next: None,
            worn: false,
            as_of: None,
            evaluated_at: None,
        }
    }

    /// When it was brought up to date, in seconds of the world's clock.
    pub fn evaluated_at(&self) -> Option<Seconds> {
        self.evaluated_at.as_ref().map(unix)
    }

    /// Whether it shows everything: one that is new is made in several updates.
    pub fn is_whole(&self) -> bool {
        self.seen.is_some()
    }

    /// The FleetPackages that are meant to be in this cluster.
    pub fn packages_in(&self, cluster: &str) -> Vec<Key> {
        let Some(number) = self.numbers.get(cluster) else { return Vec::new() };
        let is_there = |package: &Package| package.cells.get(*number).is_some_and(|cell| cell.it.is_some());
        self.packages.iter().filter(|(_, it)| is_there(&it.it)).map(|(key, _)| key.clone()).collect()
    }

    /// The labels of a cluster that is shown.
    pub fn labels_of(&self, cluster: &str) -> Option<&Labels> {
        Some(&self.clusters.get(*self.numbers.get(cluster)?)?.it.labels)
    }

    /// Brings it up to date. Whoever looks from now on sees the new one. Whether anything has changed but the time.
    pub fn update(&mut self, world: &World<'_>) -> bool {
        let state = world.state;
        if self.worn || self.tenancy != state.rules.tenancy {
            *self = Self { tenancy: state.rules.tenancy.clone(), ..Self::new(self.namespace.take()) };
        }
        let seen = Seen {
            fleet: state.fleet.mark(),
            packages: state.packages.revision(),
            gates: state.gates.revision(),
            rollouts: state.rollouts.revision(),
            profiles: state.profiles.revision(),
            slices: world.reads_the_hub_alone().then(|| state.slices.revision()),
            unclosed: world.closing.clone(),
            answers: state.feeds.all_answer(),
        };
        self.evaluated_at = Some(time(world.moment.now));
        // A tenant is not told when the clusters of others were heard.
        let told = !state.rules.tenancy.is_configured();
        self.as_of = state.fleet.newest_evidence().filter(|_| told).map(time);
        let lately = |at: Seconds| (0.0..IDLE).contains(&(world.moment.now - at));
        let before = self.seen.as_ref().filter(|(_, at)| lately(*at));
        if before.is_some_and(|(before, _)| *before == seen) {
            return false;
        }
        // When all clusters were looked at.
        let looked = before.filter(|(before, _)| before.hears_the_same(&seen)).map(|(_, at)| *at);
        let version = self.version + 1;
        let mut changed = self.update_gates(world, version);
        changed |= self.update_rollouts(world, version);
        changed |= self.update_packages(world, version, looked.is_some());
        changed |= self.update_labels(world, version);
        if changed {
            self.version = version;
        }
        if self.next.is_none() {
            self.seen = Some((seen, looked.unwrap_or(world.moment.now)));
            self.worn = changed && self.is_worn();
        }
        changed
    }

    /// Whether so much more is remembered than shown that it is better begun anew.
    fn is_worn(&self) -> bool {
        let most = self.packages.values().map(|package| package.it.meant).max().unwrap_or_default();
        self.gone.len() > GONE || self.clusters.len() > SPARE + 2 * most
    }

    fn shows(&self, key: &Key) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }

    fn update_gates(&mut self, world: &World<'_>, version: u64) -> bool {
        let mut changed = self.forget(Kind::RolloutGate, version, |key| world.state.gates.get(key).is_some());
        for object in world.state.gates.iter() {
            if !self.shows(&object.key) {
                continue;
            }
            let unclosed = world.closing.contains(&object.key);
            let known = self.gates.get(&object.key);
            let is_same = known.is_some_and(|it| it.it.object.resource_version == object.resource_version);
            // Time alone closes what is open, and changes nothing else.
            if is_same && !unclosed && known.is_some_and(|it| !it.it.verdict.is_open()) {
                continue;
            }
            let spec = world.package_of(object).and_then(|package| package.spec.as_deref().ok());
            let stale_after = spec.and_then(gate_verdict::stale_after);
            let question = Question { revision: None, stale_after, slack: 0.0, now: world.moment.now };
            // The picture is looked at later: what it says of the evidence is its time.
            let verdict = gate_verdict::present(&Gate::from(object), &question, unclosed).undated();
            let says_the_same = known.is_some_and(|it| it.it.verdict == verdict);
            if is_same && says_the_same {
                continue;
            }
            changed = true;
            self.gone.remove(&(Kind::RolloutGate, object.key.clone()));
            let shown = ShownGate { object: object.clone(), verdict };
            self.gates.insert(object.key.clone(), Dated { it: shown, version });
        }
        changed
    }

    fn update_rollouts(&mut self, world: &World<'_>, version: u64) -> bool {
        let rollouts = &world.state.rollouts;
        let mut changed = self.forget(Kind::FleetRollout, version, |key| rollouts.get(key).is_some());
        for object in rollouts.iter() {
            let known = self.rollouts.get(&object.key);
            let is_same = known.is_some_and(|it| it.it.resource_version == object.resource_version);
            if is_same || !self.shows(&object.key) {
                continue;
            }
            changed = true;
            self.gone.remove(&(Kind::FleetRollout, object.key.clone()));
            self.rollouts.insert(object.key.clone(), Dated { it: object.clone(), version });
        }
        changed
    }

    fn update_packages(&mut self, world: &World<'_>, version: u64, only_changed: bool) -> bool {
        let mut changed =
            self.forget(Kind::FleetPackage, version, |key| world.state.packages.get(key).is_some());
        let (first, mut looks) = (self.next.take(), 0);
        for object in world.state.packages.iter() {
            if !self.shows(&object.key) || first.as_ref().is_some_and(|first| object.key < *first) {
                continue;
            }
            let is_same = |known: &Dated<Package>| {
                known.it.object.resource_version == object.resource_version && !known.it.looks
            };
            if only_changed && self.packages.get(&object.key).is_some_and(is_same) {
                continue;
            }
            if looks >= LOOKS {
                self.next = Some(object.key.clone());
                break;
            }
            let (looked, other) = self.update_package(world, object, version);
            looks += looked;
            changed |= other;
        }
        changed
    }

    /// How many clusters were looked at, and whether anything has changed.
    fn update_package(&mut self, world: &World<'_>, object: &PackageObject, version: u64) -> (usize, bool) {
        let mut shown = match self.packages.remove(&object.key) {
            Some(shown) if shown.it.object.uid == object.uid => shown,
            _ => Dated { it: Package::new(object), version },
        };
        let mut changed = shown.version == version;
        if shown.it.object.resource_version != object.resource_version {
            // Where the status alone is other, each cluster still is what it was.
            if let Some(status) = &object.status {
                let number = self.verdicts.number(Kind::FleetPackage, &object.key);
                self.verdicts.landed(Kind::FleetPackage, number, &shown.it.object, status, object);
            }
            shown.it.object = object.clone();
            changed = true;
        }
        let own = World { verdicts: &self.verdicts, ..*world };
        let basis = own.basis_of_package(object);
        let basis = basis.as_ref().map(|(basis, spec)| (basis, *spec));
        let stands =
            basis.is_some_and(|basis| own.still(Kind::FleetPackage, object, basis, None) == Still::Stands);
        let mut looked = 0;
        if !stands || shown.it.looks {
            let told = if own.reads_the_hub_alone() {
                as_written(&own, object)
            } else {
                as_heard(&own, object, basis)
            };
            let told = match told {
                Rows::Known(told) => Some(told),
                // What is known of no cluster now must not look like what was known before.
                Rows::Unknown => Some((shown.it.wanted.clone(), self.unknown(&shown.it), Vec::new())),
                Rows::NotOurs => None,
            };
            let is_unknown = |told: &Told| told.1.iter().any(|it| it.1 == UNKNOWN);
            shown.it.looks = own.reads_the_hub_alone() || told.as_ref().is_none_or(is_unknown);
            let (wanted, states, excused) = told.unwrap_or_default();
            looked = states.len();
            let words = self.words(world, object, wanted.as_deref());
            changed |= shown.it.wanted != wanted;
            shown.it.wanted = wanted;
            changed |= self.fill(&mut shown.it, &states, &words, version);
            let excused = self.by_reason(excused);
            changed |= shown.it.excused != excused;
            shown.it.excused = excused;
        }
        if changed {
            shown.version = version;
            self.gone.remove(&(Kind::FleetPackage, object.key.clone()));
        }
        self.packages.insert(object.key.clone(), shown);
        (looked.max(1), changed)
    }

    /// The clusters of a package of which nothing can be told any more.
    fn unknown(&self, package: &Package) -> Vec<(String, Reason, Fingerprint)> {
        let meant = self.clusters.iter().zip(&package.cells).filter(|(_, cell)| cell.it.is_some());
        meant.map(|(cluster, _)| (cluster.it.name.clone(), UNKNOWN, Fingerprint::NONE)).collect()
    }

    /// The numbers of clusters that are excused, by why they are.
    fn by_reason(&self, excused: Vec<(String, String)>) -> BTreeMap<String, Vec<usize>> {
        let mut reasons = BTreeMap::<String, Vec<usize>>::new();
        for (cluster, reason) in excused {
            reasons.entry(reason).or_default().extend(self.numbers.get(&cluster));
        }
        reasons
    }

    /// The words of revisions, by fingerprint, as far as the hub has them.
    fn words(
        &self,
        world: &World<'_>,
        object: &PackageObject,
        wanted: Option<&str>,
    ) -> HashMap<Fingerprint, String> {
        let gates = world.state.gates.within(&object.key.namespace);
        let gates = gates.filter(|gate| gate.package().as_ref() == Some(&object.key));
        let of_gates = gates.filter_map(|gate| gate.spec.as_deref().ok()).map(|spec| spec.revision.as_str());
        of_gates.chain(wanted).map(|words| (Fingerprint::of(words), words.to_owned())).collect()
    }

    /// Takes over what a package comes to in each cluster. Whether anything is other than before.
    fn fill(
        &mut self,
        package: &mut Package,
        states: &[(String, Reason, Fingerprint)],
        words: &HashMap<Fingerprint, String>,
        version: u64,
    ) -> bool {
        let mut changed = false;
        // Most revisions of long ago are nowhere any more.
        if package.revisions.len() > 64 + 2 * states.len().min(512) {
            package.revisions.clear();
            package.places.clear();
            // A place may mean another revision from now on, in cells that say the same.
            changed = true;
        }
        for (fingerprint, place) in &package.places {
            if let (Some(words), Some(known)) =
                (words.get(fingerprint), package.revisions.get_mut(*place as usize))
                && known != words
            {
                known.clone_from(words);
                changed = true;
            }
        }
        let mut cells = vec![None; self.clusters.len()];
        for (cluster, state, revision) in states {
            let number = match self.numbers.get(cluster) {
                Some(number) => *number,
                None => {
                    let number = self.clusters.len();
                    self.numbers.insert(cluster.clone(), number);
                    let it = Cluster { name: cluster.clone(), labels: Labels::new() };
                    self.clusters.push(Dated { it, version });
                    cells.push(None);
                    number
                }
            };
            let revision = (!revision.is_none()).then(|| {
                *package.places.entry(*revision).or_insert_with(|| {
                    let known = words.get(revision).cloned();
                    package.revisions.push(known.unwrap_or_else(|| revision.to_string()));
                    (package.revisions.len() - 1) as u32
                })
            });
            if let Some(cell) = cells.get_mut(number) {
                *cell = Some(Cell { state: *state, revision });
            }
        }
        // A viewer may still have the cells of an earlier package of this name.
        let since = if package.cells.is_empty() { version } else { 0 };
        let mut filled = package.cells.len() < cells.len() && since == version;
        package.cells.resize(cells.len(), Dated { it: None, version: since });
        for (known, cell) in package.cells.iter_mut().zip(cells) {
            if known.it != cell {
                *known = Dated { it: cell, version };
                filled = true;
            }
        }
        if filled {
            package.meant = package.cells.iter().filter(|cell| cell.it.is_some()).count();
            package.filled = version;
            changed = true;
        }
        changed
    }

    fn update_labels(&mut self, world: &World<'_>, version: u64) -> bool {
        let labelled = Some((world.state.profiles.revision(), self.clusters.len()));
        if self.labelled == labelled {
            return false;
        }
        self.labelled = labelled;
        let mut changed = false;
        for cluster in &mut self.clusters {
            let labels = Profiled::labels(&world.state.profiles, &cluster.it.name);
            if labels.unwrap_or(&Labels::new()) != &cluster.it.labels {
                cluster.it.labels = labels.cloned().unwrap_or_default();
                cluster.version = version;
                changed = true;
            }
        }
        changed
    }

    /// Forgets the objects of a kind that are not there any more. Whether there were any.
    fn forget(&mut self, kind: Kind, version: u64, is_there: impl Fn(&Key) -> bool) -> bool {
        let gone: Vec<Key> = match kind {
            Kind::RolloutGate => self.gates.keys().filter(|key| !is_there(key)).cloned().collect(),
            Kind::FleetRollout => self.rollouts.keys().filter(|key| !is_there(key)).cloned().collect(),
            _ => self.packages.keys().filter(|key| !is_there(key)).cloned().collect(),
        };
        for key in &gone {
            match kind {
                Kind::RolloutGate => drop(self.gates.remove(key)),
                Kind::FleetRollout => drop(self.rollouts.remove(key)),
                _ => drop(self.packages.remove(key)),
            }
            self.verdicts.forget(kind, key);
            self.gone.insert((kind, key.clone()), version);
        }
        !gone.is_empty()
    }
}

/// The revision that a package wants; of each of its clusters its state and the revision that it has applied; and the
/// clusters that are excused, and why.
type Told = (Option<String>, Vec<(String, Reason, Fingerprint)>, Vec<(String, String)>);

/// By the evidence; which verdict that is, is noted.
fn as_heard(
    own: &World<'_>,
    object: &PackageObject,
    basis: Option<(&Basis, &FleetPackageSpec)>,
) -> Rows<Told> {
    own.each_cluster(object, |wanted, targets, excused| {
        let spec = object.spec.as_deref().ok();
        let found = Found {
            package: spec.map(fleet_key).unwrap_or_default(),
            targets,
            excused,
            stale_after: spec.map_or(0.0, stale_after),
            as_of: None,
            until: Moment { t: NEVER, now: excused.until() },
            due: None,
        };
        own.keep(Kind::FleetPackage, object, basis, found);
        let state = |target: &Target| {
            let (state, applied) = rows::state(target, wanted);
            (target.cluster.clone(), state, applied)
        };
        let all = targets.iter().chain(excused.targets().iter().map(|it| &it.target));
        let reasons = excused.targets().iter().map(|it| (it.target.cluster.clone(), it.reason.clone()));
        (wanted.text().map(str::to_owned), all.map(state).collect(), reasons.collect())
    })
}

/// By what stands in the hub.
fn as_written(own: &World<'_>, object: &PackageObject) -> Rows<Told> {
    let Some(rows) = own.written(object) else { return Rows::Unknown };
    let excused = rows.iter().filter_map(|it| Some((it.row.cluster_name.clone(), it.row.excused.clone()?)));
    let excused = excused.collect();
    let state = |Evident { row, .. }: Evident| {
        let applied = row.applied_revision.as_deref().map_or(Fingerprint::NONE, Fingerprint::of);
        (row.cluster_name, written::state(&row.state), applied)
    };
    Rows::Known((written::wanted_revision(object), rows.into_iter().map(state).collect(), excused))
}

/// The state of a cluster of which nothing can be told any more.
const UNKNOWN: Reason = Reason::BackendUnavailable;

impl Package {
    fn new(object: &PackageObject) -> Self {
        Self {
            object: object.clone(),
            wanted: None,
            revisions: Vec::new(),
            places: HashMap::new(),
            cells: Vec::new(),
            excused: BTreeMap::new(),
            filled: 0,
            meant: 0,
            looks: true,
        }
    }
}

#[cfg(test)]
mod tests;
