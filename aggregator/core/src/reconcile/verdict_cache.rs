//! Verdicts that still stand: what each object was judged to be, what that rests on, and until when it holds if
//! nothing is heard. So a poll looks at what has changed, and a fleet that is quiet costs next to nothing.
//!
//! ```text
//!   judge in full ──note──> Verdict ──ask──> Stands    nothing is to be written
//!                              ^              Refreshed only asOf is worth a write
//!   write has landed ──────────┘              Due       it is still to be written
//!                                             Unknown   judge in full
//! ```
//!
//! A verdict stands as long as each of these is what it was: the version of the object, its [`Basis`], the package in
//! every cluster where it was fresh ([`Fleet::since`]), and what a look at every other cluster shows. What only time
//! changes has a time: evidence that grows too old, a soak or a deadline that ends. Whatever is not known to be
//! unaffected is judged in full, and a verdict is only ever noted where all of that can be told.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use statusbridge_api::rollout_gate::Approved;
use statusbridge_api::{FleetPackageStatus, RolloutGateStatus};

use crate::decide::dependencies::Dependency;
use crate::decide::excused::Excused;
use crate::decide::{Moment, Target, refreshed, time, words};
use crate::fleet::observation::{Standing, reason};
use crate::fleet::{Clusters, Fleet, Mark, Since};
use crate::reconcile::object::{Key, Kind, Object};
use crate::reconcile::references::Resolution;
use crate::time::Seconds;

/// Clusters where a package is not fresh, that a verdict may have: each is looked at whenever it is asked for.
const OTHERS: usize = 1024;

/// What a verdict rests on besides the object itself, the fleet and the time.
#[derive(Debug, Clone, PartialEq)]
pub struct Basis {
    /// The terms of the FleetPackage that is judged by.
    pub terms: u64,
    /// How the gates stand that it depends on, in the order of the spec.
    pub dependencies: Vec<Dependency>,
    /// The gates by way of which it waits for itself.
    pub cycle: Option<String>,
    /// What its reference comes to, if it has one.
    pub revision: Option<Resolution>,
    /// Which freezes of the namespace are known.
    pub freezes: u64,
    /// The approval that counts, whether there are any for other revisions, and whether there can be any.
    pub approvals: (Option<Approved>, bool, bool),
    /// Which ClusterProfiles are known.
    pub profiles: u64,
    /// How far behind the present is looked, in whole seconds: a text may say so.
    pub settle: i64,
}

/// What is asked: whether the verdict on this version of an object stands.
pub struct Question<'a> {
    /// Kind and name of the object.
    pub kind: Kind,
    /// Where it lives.
    pub key: &'a Key,
    /// Which object of this name, and which version of it.
    pub version: (&'a str, &'a str),
    /// What it rests on now.
    pub basis: &'a Basis,
    /// What the clusters report.
    pub fleet: &'a Fleet,
    /// What is known of the package in a cluster.
    pub look: &'a dyn Fn(&str) -> Target,
    /// When.
    pub moment: Moment,
}

/// What was found by judging in full.
pub struct Found<'a> {
    /// The package's key in the fleet.
    pub package: String,
    /// The clusters that count.
    pub targets: &'a [Target],
    /// Those that do not now, but are shown.
    pub excused: &'a Excused<'a>,
    /// Evidence older than this is not relied upon.
    pub stale_after: Seconds,
    /// The age of the evidence, as the status says it.
    pub as_of: Option<&'a Time>,
    /// Until when it holds by either clock, whatever the age of the evidence.
    pub until: Moment,
    /// The status that says it, unless the object does already.
    pub due: Option<Decided>,
}

/// A status that was decided.
#[derive(Debug, Clone, PartialEq)]
pub enum Decided {
    /// That of a FleetPackage.
    Package(Box<FleetPackageStatus>),
    /// That of a RolloutGate.
    Gate(Box<RolloutGateStatus>),
}

impl Decided {
    /// That of a FleetPackage, if it is one.
    pub fn package(self) -> Option<FleetPackageStatus> {
        if let Self::Package(status) = self { Some(*status) } else { None }
    }

    /// That of a RolloutGate, if it is one.
    pub fn gate(self) -> Option<RolloutGateStatus> {
        if let Self::Gate(status) = self { Some(*status) } else { None }
    }

    fn dated(mut self, as_of: Option<Time>) -> Self {
        match &mut self {
            Self::Package(status) => status.as_of = as_of,
            Self::Gate(status) => status.as_of = as_of,
        }
        self
    }
}

/// What has become of a verdict.
#[derive(Debug, Clone, PartialEq)]
pub enum Still {
    /// It stands, and is not worth a write.
    Stands,
    /// It stands, and its evidence is so much younger that this is worth a write.
    Refreshed(Time),
    /// It stands, and the object does not say so yet: this status does, with the age that the evidence has now.
    Due(Decided),
    /// It has to be given anew.
    Unknown,
}

/// All verdicts that may still stand.
#[derive(Debug, Default)]
pub struct VerdictCache {
    /// Verdicts that were noted so far.
    numbers: AtomicU64,
    known: Mutex<HashMap<Key, [Option<Box<Verdict>>; 2]>>,
    /// How often a verdict stood, was refreshed, was due, was not known.
    #[cfg(test)]
    pub(super) counts: [AtomicU64; 4],
}

#[derive(Debug)]
struct Verdict {
    number: u64,
    uid: String,
    resource_version: String,
    /// What is still to be written.
    due: Option<Decided>,
    basis: Basis,
    mark: Mark,
    given: Moment,
    until: Moment,
    package: String,
    stale_after: Seconds,
    /// Whether the status says how old the evidence is.
    dated: bool,
    fresh: Clusters,
    /// The other clusters, and what was seen there.
    others: Box<[(Box<str>, u64)]>,
}

impl VerdictCache {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, [Option<Box<Verdict>>; 2]>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has become of the verdict on an object; `as_of` is the age of the evidence that its status states.
    pub fn ask(&self, question: &Question<'_>, as_of: Option<&Time>) -> Still {
        let Some(place) = place(question.kind) else { return Still::Unknown };
        let known = self.lock();
        let verdict = known.get(question.key).and_then(|all| all.get(place)?.as_deref());
        let still = verdict.and_then(|verdict| verdict.still(question, as_of)).unwrap_or(Still::Unknown);
        #[cfg(test)]
        {
            let [stood, refreshed, due, unknown] = &self.counts;
            let count = match still {
                Still::Stands => stood,
                Still::Refreshed(_) => refreshed,
                Still::Due(_) => due,
                Still::Unknown => unknown,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
        still
    }

    /// Keeps a verdict that was just given, if it can be told later whether it stands.
    pub fn note(&self, question: &Question<'_>, found: Found<'_>) {
        let Some(place) = place(question.kind) else { return };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let verdict = Verdict::given(question, found, number);
        let mut known = self.lock();
        if (verdict.is_some() || known.contains_key(question.key))
            && let Some(kept) = known.entry(question.key.clone()).or_default().get_mut(place)
        {
            *kept = verdict.map(Box::new);
        }
    }

    /// Which verdict on an object is kept, to tell it from later ones.
    pub fn number(&self, kind: Kind, key: &Key) -> Option<u64> {
        let known = self.lock();
        Some(known.get(key)?.get(place(kind)?)?.as_deref()?.number)
    }

    /// A status was written that says what the verdict with this number does: if the object now says what was `sent` and
    /// is otherwise what it was, the verdict is on its new version. One that was given since then is not.
    pub fn landed<S, T: PartialEq>(
        &self,
        kind: Kind,
        number: Option<u64>,
        before: &Object<S, T>,
        sent: &T,
        after: &Object<S, T>,
    ) {
        let same = before.terms == after.terms && after.status.as_ref() == Some(sent);
        let mut known = self.lock();
        let verdict =
            known.get_mut(&before.key).zip(place(kind)).and_then(|(all, at)| all.get_mut(at)?.as_deref_mut());
        if let Some(verdict) = verdict
            .filter(|it| same && Some(it.number) == number && it.resource_version == before.resource_version)
        {
            verdict.resource_version.clone_from(&after.resource_version);
            verdict.due = None;
        }
    }

    /// An object is gone.
    pub fn forget(&self, kind: Kind, key: &Key) {
        let mut known = self.lock();
        if let Some(all) = known.get_mut(key)
            && let Some(kept) = place(kind).and_then(|place| all.get_mut(place))
        {
            *kept = None;
            if all.iter().all(Option::is_none) {
                known.remove(key);
            }
        }
    }

    /// Something has changed that all verdicts may rest on.
    pub fn clear(&self) {
        self.lock().clear();
    }
}

fn place(kind: Kind) -> Option<usize> {
    match kind {
        Kind::FleetPackage => Some(0),
        Kind::RolloutGate => Some(1),
        _ => None,
    }
}

impl Verdict {
    fn given(question: &Question<'_>, found: Found<'_>, number: u64) -> Option<Self> {
        let (fleet, moment) = (question.fleet, question.moment);
        let (uid, resource_version) = question.version;
        if resource_version.is_empty() {
            return None;
        }
        let is_fresh = |target: &&Target| target.observation.standing == Standing::Fresh;
        let fresh = found.targets.iter().filter(is_fresh).map(|target| target.cluster.as_str());
        let fresh = fleet.clusters_of(fresh, &found.package)?;
        // How old the evidence of the excused ones is says nothing of the age of the verdict's.
        let excused = found.excused.targets().iter().map(|it| &it.target);
        let others = found.targets.iter().filter(|target| !is_fresh(target)).chain(excused);
        let others = others.filter(|target| !is_of_profiles(target));
        let others: Vec<(Box<str>, u64)> = others
            .take(OTHERS + 1)
            .map(|target| (target.cluster.as_str().into(), print(target, fleet)))
            .collect();
        if others.len() > OTHERS {
            return None;
        }
        let mark = fleet.mark();
        let Since::Same(oldest) = fleet.since(mark, &found.package, &fresh) else { return None };
        // Whoever says another age has counted something else.
        if found.as_of.is_some() && found.as_of != oldest.map(time).as_ref() {
            return None;
        }
        Some(Self {
            number,
            uid: uid.to_owned(),
            resource_version: resource_version.to_owned(),
            due: found.due,
            basis: question.basis.clone(),
            mark,
            given: moment,
            until: found.until,
            package: found.package,
            stale_after: found.stale_after,
            dated: found.as_of.is_some(),
            fresh,
            others: others.into(),
        })
    }

    /// None when it has to be given anew.
    fn still(&self, question: &Question<'_>, as_of: Option<&Time>) -> Option<Still> {
        let (fleet, moment) = (question.fleet, question.moment);
        let in_time = (self.given.t..self.until.t).contains(&moment.t)
            && (self.given.now..self.until.now).contains(&moment.now);
        let is_on = (self.uid.as_str(), self.resource_version.as_str()) == question.version;
        if !is_on || !in_time || self.basis != *question.basis {
            return None;
        }
        let Since::Same(oldest) = fleet.since(self.mark, &self.package, &self.fresh) else { return None };
        let is_fresh = |evidence: Seconds| moment.t - evidence <= self.stale_after;
        let looks_the_same =
            |(cluster, seen): &(Box<str>, u64)| print(&(question.look)(cluster), fleet) == *seen;
        if !oldest.is_none_or(is_fresh) || !self.others.iter().all(looks_the_same) {
            return None;
        }
        let now = oldest.filter(|_| self.dated).map(time);
        if let Some(due) = &self.due {
            return Some(Still::Due(due.clone().dated(now)));
        }
        Some(match now {
            Some(now) if refreshed(as_of, Some(&now), self.stale_after) => Still::Refreshed(now),
            _ => Still::Stands,
        })
    }
}

/// Whether what is said of a cluster follows from ClusterProfiles alone.
fn is_of_profiles(target: &Target) -> bool {
    [reason::CLUSTER_PROFILE_CONFLICT, reason::CLUSTER_NAME_UNKNOWN].contains(&target.observation.reason)
}

/// What of a cluster that is not fresh can be seen in any status.
fn print(target: &Target, fleet: &Fleet) -> u64 {
    let observation = &target.observation;
    let mut print = DefaultHasher::new();
    (observation.standing, observation.reason).hash(&mut print);
    if let Some(row) = &observation.row {
        (row.apply as u64, row.health as u64, row.desired, row.applied, row.healthy).hash(&mut print);
        (&row.reason, row.previously_applied).hash(&mut print);
        row.since.to_bits().hash(&mut print);
    }
    // Elsewhere it moves with every poll, and is not told.
    if matches!(observation.standing, Standing::Stale | Standing::Unverified)
        && observation.reason != reason::SOURCE_DOWN
    {
        observation.as_of.map(Seconds::to_bits).hash(&mut print);
    }
    if matches!(observation.standing, Standing::Unverified | Standing::Conflict)
        || words::EXPLAINED.contains(&observation.reason)
    {
        words::lasting(&observation.message).hash(&mut print);
    }
    observation.told_by.hash(&mut print);
    fleet.scrape_interval(target.exporter()).map(Seconds::to_bits).hash(&mut print);
    print.finish()
}
