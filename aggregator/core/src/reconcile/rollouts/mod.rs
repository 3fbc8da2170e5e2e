//! FleetRollouts: puts together what one is decided by, and makes of the decision what is to be written.
//!
//! ```text
//!   gates of the waves ──open, now?──┐                 ┌─> gates: one for each wave that has started
//!   record (slices) ─────────────────┼─> decide::fleet_rollout ─> record: who may have which revision
//!   clusters of the package ─────────┘                 └─> status, once all of that has landed
//! ```

mod anew;
mod changes;
mod detail;
mod judged;
pub mod placements;
mod record;

use std::collections::{BTreeMap, HashSet};

use statusbridge_api::conditions::{STALLED, is_true};
use statusbridge_api::fleet_rollout::{self as api, LONGEST_REVISION, WaveState, WaveStatus};
use statusbridge_api::fleet_rollout_slice::WAVE_LABEL;
use statusbridge_api::names::{LONGEST_NAME, is_subdomain};
use statusbridge_api::rollout_gate::{Override, OverrideState};
use statusbridge_api::window::Approval;
use statusbridge_api::{
    ClusterSet, FleetRolloutSpec, FleetRolloutStatus, PackageRef, Reason, RolloutGateSpec, RolloutGateStatus,
};
use statusbridge_contract::{Fingerprint, wanted};

use self::changes::Changes;
pub use self::detail::{MembersOf, Unseen};
use self::record::{Record, Unusable};
use super::judge::{World, carries_over, stale_after};
use super::object::{GateObject, HubObject, Key, Kind, Owner, PackageObject, RolloutObject};
use super::owned::Change;
use super::targets::Named;
use super::verdict_cache::Still;
use crate::decide::excused::Excuses;
use crate::decide::fleet_package::Wanted;
use crate::decide::fleet_rollout::{self as decide, Decision, Gate, Wave};
use crate::decide::hold::{Standing, held};
use crate::decide::{Backend, Membership, Obstacle, rollout_gate, time, worth_writing};

/// What is to be done about a FleetRollout now: the first of these that is not empty.
pub(super) enum Work {
    /// Its gates.
    Gates(Vec<Change>),
    /// Its record.
    Record(Vec<Change>),
    /// Its status.
    Status(Box<FleetRolloutStatus>),
    /// Nothing.
    Nothing,
}

impl Work {
    /// Whether the rollout goes on by it: a wave gets its gate or other terms, or clusters are admitted.
    pub(super) fn goes_on(&self) -> bool {
        match self {
            Self::Gates(changes) | Self::Record(changes) => !changes.iter().all(Change::is_delete),
            Self::Status(_) | Self::Nothing => false,
        }
    }
}

/// What comes of a look at a FleetRollout.
struct Outcome {
    /// Of its gates or its record; nothing else.
    changes: Work,
    /// Its status, where that is worth a write.
    news: Option<Box<FleetRolloutStatus>>,
    /// Whether something that was decided could not be written.
    is_refused: bool,
}

impl Outcome {
    /// Whether the rollout goes on by it, or it tells with which clusters a wave starts. Whether it does, whatever else is to be
    /// told first, since each of two ways to take the gates would take back what the other has told, for ever.
    fn rests_on_gates(&self) -> bool {
        let tells = |wave: &WaveStatus| wave.gate.is_none() && wave.members_fingerprint.is_some();
        self.changes.goes_on() || self.news.iter().any(|status| status.waves.iter().any(tells))
    }

    fn work(self) -> Work {
        match (self.news, self.changes) {
            // Else nobody would hear that nothing else can be written.
            (Some(status), _) if self.is_refused => Work::Status(status),
            (Some(status), Work::Nothing) => Work::Status(status),
            (_, changes) => changes,
        }
    }
}

/// How the gates of waves are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gates {
    /// As the hub has them, with no cluster on the way.
    AsWritten,
    /// As they are judged now, where the hub says that they are open.
    Now,
}

/// Everything about one FleetRollout that a decision refers to.
struct Parts<'a> {
    package: Option<&'a PackageObject>,
    record: Result<Record<'a>, Unusable>,
    /// The gates that are its own, by wave.
    gates: BTreeMap<&'a str, &'a GateObject>,
    /// The revision to roll out, or why nothing can be.
    revision: Result<String, Obstacle>,
    /// The clusters that may have it, as far as the record is known.
    admitted: HashSet<&'a str>,
}

impl World<'_> {
    /// What is to be done about a FleetRollout.
    pub(super) fn rollout_work(&self, object: &RolloutObject) -> Work {
        // Whoever deletes a plan ends it, even while a finalizer keeps it.
        if object.is_going {
            return Work::Nothing;
        }
        let parts = self.parts(object);
        if let (Ok(spec), Ok(revision)) = (&object.spec, &parts.revision) {
            let stale = parts.stale_gates(spec, revision);
            if !stale.is_empty() {
                return Work::Gates(stale);
            }
        }
        // Most looks find that nothing can go on, by what the hub says of the gates. Before it goes on, all of them are judged now.
        match self.decide_rollout(object, &parts, Gates::AsWritten) {
            outcome if outcome.rests_on_gates() => self.decide_rollout(object, &parts, Gates::Now).work(),
            outcome => outcome.work(),
        }
    }

    /// The gates of FleetRollouts that had this name and are gone, to be removed. Their slices stay: they are all that is known
    /// of who was admitted.
    pub(super) fn left_behind(&self, key: &Key, rollout: Option<&RolloutObject>) -> Vec<Change> {
        let is_left = |owner: &Option<Owner>| {
            owner.as_ref().is_some_and(|owner| rollout.is_none_or(|rollout| rollout.uid != owner.uid))
        };
        let gates = self.state.gates.of(key).filter(|gate| is_left(&gate.owner));
        gates.filter(|gate| may_be_removed(gate)).map(|gate| Change::Delete(gate.version())).collect()
    }

    /// The gates that a FleetRollout controls.
    fn own_gates(&self, object: &RolloutObject) -> impl Iterator<Item = &GateObject> {
        let is_own = |gate: &&GateObject| gate.owner.as_ref().is_some_and(|owner| owner.uid == object.uid);
        self.state.gates.of(&object.key).filter(is_own)
    }

    fn parts(&self, object: &RolloutObject) -> Parts<'_> {
        let spec = object.spec.as_deref().ok();
        let package =
            spec.and_then(|it| self.state.packages.get(&object.key.beside(&it.fleet_package_ref.name)));
        let package_name = spec.map(|it| it.fleet_package_ref.name.as_str());
        let record = Record::of(&self.state.rollout_slices, &object.key, package_name);
        // Labels and owners are anybody's to write who may write gates: a wave's gate has the wave's name, and its package.
        let gates = self.own_gates(object).filter_map(|gate| {
            let wave = gate.labels.get(WAVE_LABEL)?.as_str();
            let is_its = gate.key.name == gate_name(&object.key.name, wave)
                && gate.package() == spec.map(|it| object.key.beside(&it.fleet_package_ref.name));
            is_its.then_some((wave, gate))
        });
        let gates = gates.collect();
        let revision = self.rollout_revision(object, package, record.as_ref().err());
        let admitted = match (&record, &revision) {
            (Ok(record), Ok(revision)) => record.admitted(revision),
            _ => HashSet::new(),
        };
        Parts { package, record, gates, revision, admitted }
    }

    fn rollout_revision(
        &self,
        object: &RolloutObject,
        package: Option<&PackageObject>,
        unusable: Option<&Unusable>,
    ) -> Result<String, Obstacle> {
        let no = |reason, message: String, stalled| Obstacle { reason, message, stalled };
        let spec = match &object.spec {
            Ok(spec) => spec,
            Err(error) => return Err(no(Reason::InvalidSpec, error.clone(), true)),
        };
        let name = &spec.fleet_package_ref.name;
        let Some(package) = package else {
            let message = format!("there is no FleetPackage {name:?} in this namespace");
            return Err(no(Reason::FleetPackageNotFound, message, false));
        };
        let of_package = match &package.spec {
            Ok(package) if package.managed_by.is_some() => {
                let message = format!("FleetPackage {name:?} is filled by another reporter");
                return Err(no(Reason::ExternallyManaged, message, true));
            }
            Ok(package) => package,
            Err(error) => {
                let message = format!("FleetPackage {name:?}: {error}");
                return Err(no(Reason::InvalidSpec, message, true));
            }
        };
        let revision = match &spec.revision {
            Some(revision) => revision.clone(),
            None => match self.wanted(&package.key, of_package) {
                Some(Wanted::Unresolved(obstacle)) => return Err(obstacle.clone()),
                Some(wanted) => match wanted.text() {
                    Some(revision) => revision.to_owned(),
                    None => {
                        let message = format!("neither this nor FleetPackage {name:?} names a revision");
                        return Err(no(Reason::NoRevision, message, false));
                    }
                },
                None => {
                    let message = format!("what FleetPackage {name:?} refers to has not been read yet");
                    return Err(no(Reason::Pending, message, false));
                }
            },
        };
        if revision.len() > LONGEST_REVISION {
            let message = format!("the revision has {} bytes, at most {LONGEST_REVISION}", revision.len());
            return Err(no(Reason::InvalidSpec, message, true));
        }
        wanted::fingerprint(&revision).map_err(|error| no(Reason::InvalidSpec, error.to_string(), true))?;
        match unusable {
            None => Ok(revision),
            Some(unusable) => Err(no(Reason::RecordUnavailable, unusable.to_string(), true)),
        }
    }

    /// What no gate can change: why nothing goes on.
    fn rollout_obstacle(&self, object: &RolloutObject) -> Option<Obstacle> {
        let package = |of: &RolloutObject| -> Option<&PackageRef> {
            let spec = of.spec.as_deref().ok()?;
            let package = self.state.packages.get(&of.key.beside(&spec.fleet_package_ref.name))?;
            Some(&package.spec.as_deref().ok()?.package)
        };
        // The hub knows the second only.
        let rank = |of: &RolloutObject| (of.created.clone().map(|it| it.0), of.key.name.clone());
        let others = self.state.rollouts.within(&object.key.namespace).filter(|it| it.uid != object.uid);
        let earlier = others
            .filter(|it| package(it).is_some() && package(it) == package(object) && rank(it) < rank(object))
            .min_by_key(|it| rank(it))?;
        let message = format!(
            "FleetRollout {} was there first, and rolls the same package out: delete one of the two",
            earlier.key.name
        );
        Some(Obstacle { reason: Reason::OtherRollout, message, stalled: true })
    }

    /// What of that which was decided could not be written.
    fn refusal(&self, rollout: &Key) -> Option<&String> {
        self.state.refused.get(rollout).or_else(|| self.state.not_handed_over.get(rollout))
    }

    /// What windows and the namespace's freezes hold a rollout back by.
    fn rollout_hold(&self, object: &RolloutObject) -> Option<Obstacle> {
        let spec = object.spec.as_deref().ok()?;
        let freezes = self.state.holds.freezes(&object.key.namespace).0;
        let standing = Standing { moment: self.moment, was_open: false, stale_after: 0.0 };
        let hold = match held(&spec.windows, false, &freezes, &standing) {
            Ok(hold) => hold,
            Err(message) => return Some(Obstacle { reason: Reason::InvalidSpec, message, stalled: true }),
        };
        let first = hold.waiting.into_iter().next()?;
        let reason = Reason::ALL.iter().copied().find(|reason| reason.name() == first.reason)?;
        Some(Obstacle { reason, message: first.message, stalled: false })
    }

    fn decide_rollout(&self, object: &RolloutObject, parts: &Parts<'_>, gates: Gates) -> Outcome {
        let package = parts.package.and_then(|it| Some((it, it.spec.as_deref().ok()?)));
        let grant = match package {
            Some((_, spec)) => self.state.rules.tenancy.grant(&object.key.namespace, &spec.package),
            None => self.state.rules.tenancy.grant_for_unreadable(),
        };
        let tenancy = grant.mark();
        let previous = object.status.as_ref().filter(|status| carries_over(&tenancy, &status.tenancy));
        // After a restart, what was said of this very spec stands until the revision was read again.
        let revision = parts.revision.as_deref();
        let is_unread = revision.as_ref().is_err_and(|obstacle| obstacle.reason == Reason::Pending);
        if is_unread && previous.is_some_and(|it| it.observed_generation == Some(object.generation)) {
            return Outcome { changes: Work::Nothing, news: None, is_refused: false };
        }
        let choose = |clusters: &ClusterSet| match package {
            Some((_, spec)) => self.sources(&grant).name(&spec.package, clusters, stale_after(spec)),
            None => Named::nobody(),
        };
        // Clusters of the waves that name or select theirs.
        let plan = object.spec.as_deref().map(|spec| spec.waves.as_slice()).unwrap_or_default();
        let chosen: Vec<Option<Named>> =
            plan.iter().map(|wave| explicit(&wave.clusters).map(|clusters| choose(&clusters))).collect();
        let package_ref = package.map(|(_, spec)| &spec.package);
        let all = package.map(|(_, spec)| (choose(&spec.clusters), spec));
        let claimed: HashSet<&str> =
            chosen.iter().flatten().flat_map(|it| it.clusters.iter().map(String::as_str)).collect();
        let rest = all.as_ref().map_or(Ok(Vec::new()), |(all, spec)| {
            known(all)?;
            self.all_report(&spec.clusters)?;
            chosen.iter().flatten().try_for_each(known)?;
            let names = all.clusters.iter().map(String::as_str);
            Ok(names.filter(|cluster| !claimed.contains(cluster)).collect())
        });
        let waves: Vec<Wave<'_>> = plan
            .iter()
            .zip(&chosen)
            .map(|(wave, chosen)| {
                let explicit = chosen.as_ref().map(|chosen| {
                    known(chosen)?;
                    Ok(chosen.clusters.iter().map(String::as_str).collect())
                });
                let gate = parts.gates.get(wave.name.as_str()).and_then(|gate| {
                    let spec = gate.spec.as_deref().ok()?;
                    let revision = revision.ok().filter(|it| wanted::is_same(&spec.revision, it))?;
                    let known = decide::known(previous, revision)?;
                    let known = known.waves.iter().find(|it| it.name == wave.name)?;
                    let names = spec.clusters.names.iter().flatten().map(String::as_str);
                    // By silence a wave that has failed is not mended, so that each of its clusters is looked at.
                    let gates = if known.state == WaveState::Failed { Gates::Now } else { gates };
                    decide::has_started(known, names)
                        .then(|| self.gate_of_wave(gate, spec, wave, &parts.admitted, gates))
                });
                Wave { explicit, gate, hindrance: self.hindrance(&object.key, &wave.name, parts) }
            })
            .collect();
        let refusal = all.as_ref().and_then(|(all, _)| known(all).err());
        let refusal = refusal.filter(|refusal| refusal.reason == Reason::Forbidden);
        let held = object.spec.as_deref().ok().and_then(|spec| parts.held_without_a_wave(spec));
        let package_key = package_ref.map(crate::fleet::key).unwrap_or_default();
        // At random, but always the same for the same package, whichever other clusters there are.
        let order = |cluster: &str| Fingerprint::of(&format!("{package_key} {cluster}"));
        let excuses = package.map_or_else(Excuses::none, |(_, spec)| self.excuses(spec));
        let is_excused = |cluster: &str| excuses.reason(cluster).is_some();
        let is_admitted = |cluster: &str| parts.admitted.contains(cluster);
        let input = decide::Input {
            spec: object.spec.as_deref().map_err(String::as_str),
            generation: object.generation,
            previous,
            revision: revision.map_err(Clone::clone),
            obstacle: self.rollout_obstacle(object).or(held).or(refusal),
            hold: self.rollout_hold(object),
            refusal: self.refusal(&object.key).map(|message| Obstacle {
                reason: Reason::NotWritten,
                message: message.clone(),
                stalled: false,
            }),
            waves: &waves,
            rest: rest.as_deref().map_err(Clone::clone),
            order: &order,
            is_excused: &is_excused,
            is_admitted: &is_admitted,
            last_healthy: package
                .and_then(|(package, _)| package.status.as_ref()?.last_healthy_revision.as_deref()),
            moment: self.moment,
        };
        let Decision { mut status, steps } = decide::decide(&input);
        status.tenancy = tenancy;
        status.epoch = Some(self.state.epoch);
        let patience = package.map_or(0.0, |(_, spec)| stale_after(spec));
        let patience = self.patience(Kind::FleetRollout, &object.key, patience);
        let news = worth_writing(object.status.as_ref(), &status, patience).then(|| Box::new(status));
        let is_refused = input.refusal.is_some();
        let changes = Changes { object, parts, plan, now: time(self.moment.now) };
        let gates = changes.gates(&steps);
        let record = if gates.is_empty() { changes.record(&steps) } else { Vec::new() };
        let changes = match () {
            () if !gates.is_empty() => Work::Gates(gates),
            () if !record.is_empty() => Work::Record(record),
            () => Work::Nothing,
        };
        Outcome { changes, news, is_refused }
    }

    /// Why a wave cannot have its gate, if it cannot.
    fn hindrance(&self, rollout: &Key, wave: &str, parts: &Parts<'_>) -> Option<Obstacle> {
        let name = gate_name(&rollout.name, wave);
        let (reason, message) = if !is_subdomain(&name) {
            let message = format!(
                "the name of its RolloutGate would have {} characters, at most {LONGEST_NAME}: give the wave or the FleetRollout \
                 a shorter one",
                name.len()
            );
            (Reason::InvalidSpec, message)
        } else if !parts.gates.contains_key(wave) && self.state.gates.get(&rollout.beside(&name)).is_some() {
            let message = format!(
                "RolloutGate {name} is not this FleetRollout's: rename the wave, or delete that gate"
            );
            (Reason::GateTaken, message)
        } else {
            return None;
        };
        Some(Obstacle { reason, message, stalled: true })
    }

    /// Whether all clusters of a package that is wherever it is reported are known.
    fn all_report(&self, clusters: &ClusterSet) -> Result<(), Obstacle> {
        let feeds = &self.state.feeds;
        let error = match (feeds.unheard(), feeds.backend()) {
            _ if clusters.reporting.is_none() => return Ok(()),
            (Some(error), _) | (None, Backend::Unknown(error) | Backend::Fails(error)) => error,
            (None, Backend::Answers) => return Ok(()),
        };
        let message = format!("which clusters report the package is not known: {error}");
        Err(Obstacle { reason: Reason::BackendUnavailable, message, stalled: false })
    }

    fn gate_of_wave<'g>(
        &self,
        gate: &'g GateObject,
        spec: &'g RolloutGateSpec,
        wave: &api::Wave,
        admitted: &HashSet<&str>,
        gates: Gates,
    ) -> Gate<'g> {
        let names = spec.clusters.names.as_deref().unwrap_or_default();
        let members: Vec<&str> = names.iter().map(String::as_str).collect();
        let status = gate.status.as_ref();
        let written = Gate {
            name: &gate.key.name,
            members,
            is_open: gate.is_open_now() && !self.closing.contains(&gate.key),
            is_stalled: status.is_some_and(|status| is_true(&status.conditions, STALLED)),
            is_held: spec.terms.paused || spec.override_.as_ref().is_some_and(|word| self.closes(word)),
            message: status.and_then(|it| it.waiting_for.first()).map(|it| it.message.as_str()),
            as_of: status.and_then(|status| status.as_of.as_ref()),
            on_the_way: 0,
            unseen: Vec::new(),
        };
        if gates == Gates::AsWritten {
            return written;
        }
        // The hub does not say how each cluster stands.
        let asks_each =
            wave.max_concurrency.is_some() && !written.members.iter().all(|member| admitted.contains(member));
        if !asks_each && written.is_open && self.stands_open(gate, spec) {
            debug_assert!(self.with_input(gate, |input, _, _| opens(input, &rollout_gate::decide(input))));
            return written;
        }
        // As it is now: the hub may not know yet that a cluster has failed.
        let (would_open, is_stalled, each) = self.with_input(gate, |input, _, _| {
            let now = rollout_gate::decide(input);
            let each = if asks_each { rollout_gate::each_cluster(input) } else { Vec::new() };
            let each: BTreeMap<String, Reason> =
                each.into_iter().map(|(reason, cluster)| (cluster, reason)).collect();
            (opens(input, &now), is_true(&now.conditions, STALLED), each)
        });
        // Who is excused is not waited for.
        let is_on_the_way = |it: &&str| {
            each.get(*it).is_some_and(|it| !matches!(it, Reason::Healthy | Reason::Failed | Reason::TimeOut))
        };
        let is_unseen = |it: &&str| each.get(*it).is_some_and(|it| rollout_gate::is_out_of_sight(*it));
        let members = || written.members.iter().copied().filter(|member| admitted.contains(member));
        let on_the_way = members().filter(is_on_the_way).count();
        let unseen = members().filter(is_unseen).collect();
        // By whichever it has failed, it has: else its status would say both in turn while the gate's write is under way.
        let is_stalled = is_stalled || written.is_stalled;
        Gate { is_open: would_open && written.is_open, is_stalled, on_the_way, unseen, ..written }
    }

    /// Whether a gate that the hub says is open still [opens], as nothing has changed that its verdict rests on.
    fn stands_open(&self, gate: &GateObject, spec: &RolloutGateSpec) -> bool {
        let (Some(status), Some((basis, package))) = (&gate.status, self.basis_of_gate(gate)) else {
            return false;
        };
        // By an override it would be open on no evidence at all.
        spec.override_.is_none()
            && matches!(
                self.still(Kind::RolloutGate, gate, (&basis, package), status.as_of.as_ref()),
                Still::Stands | Still::Refreshed(_)
            )
    }

    /// Whether an override closes a gate now.
    fn closes(&self, word: &Override) -> bool {
        word.state == OverrideState::Closed && rollout_gate::holds(word, self.moment.now)
    }
}

/// Whether a gate opens by what it is judged by, and that is fresh: nothing of it is carried over from before a restart.
fn opens(input: &rollout_gate::Input<'_>, now: &RolloutGateStatus) -> bool {
    now.says_open()
        && input.backend == Backend::Answers
        && *input.membership == Membership::Known
        && !input.excused.is_unread()
        && input.checks.iter().all(|check| check.answer.is_some())
}

/// That the clusters that were chosen are all that are meant, or why they may not be.
fn known(chosen: &Named) -> Result<(), Obstacle> {
    if let Some(obstacle) = chosen.membership.obstacle() {
        return Err(obstacle);
    }
    match chosen.membership.doubt().or_else(|| chosen.unclear.clone()) {
        None => Ok(()),
        Some(message) => {
            Err(Obstacle { reason: Reason::ClusterProfilesUnavailable, message, stalled: false })
        }
    }
}

/// The clusters that a wave names or selects.
fn explicit(clusters: &api::WaveClusters) -> Option<ClusterSet> {
    match (&clusters.names, &clusters.selector) {
        (None, None) => None,
        (names, selector) => {
            Some(ClusterSet { names: names.clone(), selector: selector.clone(), ..ClusterSet::default() })
        }
    }
}

/// The name of a wave's gate.
fn gate_name(rollout: &str, wave: &str) -> String {
    format!("{rollout}-{wave}")
}

/// Whether the aggregator removes a gate by itself: none that needs an approval or is closed by an override, which takes a
/// right that it must not lend to whoever changes a plan or an owner reference.
fn may_be_removed(gate: &GateObject) -> bool {
    gate.spec.as_deref().is_ok_and(|spec| {
        let is_closed = spec.override_.as_ref().is_some_and(|it| it.state == OverrideState::Closed);
        spec.terms.approval == Approval::NotRequired && !is_closed
    })
}

impl Parts<'_> {
    /// Gates of waves that the plan does not have, and of other revisions: a revision begins at the first wave.
    fn stale_gates(&self, spec: &FleetRolloutSpec, revision: &str) -> Vec<Change> {
        let is_current = |gate: &GateObject| {
            gate.spec.as_deref().is_ok_and(|spec| wanted::is_same(&spec.revision, revision))
        };
        let stale = self.gates.iter().filter(|(wave, gate)| !has_wave(spec, wave) || !is_current(gate));
        stale
            .filter(|(_, gate)| may_be_removed(gate))
            .map(|(_, gate)| Change::Delete(gate.version()))
            .collect()
    }

    /// A gate of a wave that the plan does not have, which a person holds closed: the plan must not be a way around that.
    fn held_without_a_wave(&self, spec: &FleetRolloutSpec) -> Option<Obstacle> {
        let (wave, gate) =
            self.gates.iter().find(|(wave, gate)| !has_wave(spec, wave) && !may_be_removed(gate))?;
        let message = format!(
            "RolloutGate {} is closed by hand or needs an approval, and no wave is called {wave}: give the plan that wave, or \
             delete the gate",
            gate.key.name
        );
        Some(Obstacle { reason: Reason::GateChanged, message, stalled: true })
    }
}

fn has_wave(spec: &FleetRolloutSpec, wave: &str) -> bool {
    spec.waves.iter().any(|it| it.name == wave)
}

#[cfg(test)]
mod obstacle_tests;
#[cfg(test)]
mod tests;
