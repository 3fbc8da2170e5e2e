//! One history of a FleetRollout: clusters, a hub whose watches may lag, and the reconciler between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use statusbridge_api::conditions::{READY, find};
use statusbridge_api::fleet_rollout_slice::{AdmittedCluster, FLEET_ROLLOUT_LABEL, WAVE_LABEL};
use statusbridge_api::rollout_gate::GateTerms;
use statusbridge_api::{FleetRolloutSlice, FleetRolloutStatus};

use super::{Landing, Step};
use crate::decide::fleet_rollout::mark;
use crate::decide::time;
use crate::fleet::{Fleet, FleetSettings};
use crate::reconcile::command::{Answer, Command, Status, StatusWrite};
use crate::reconcile::feeds::{Failure, Polled};
use crate::reconcile::holds::News;
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::object::{GateObject, Key, Kind};
use crate::reconcile::owned::{Change, OwnedWrite, label};
use crate::reconcile::profiles;
use crate::reconcile::reconciler::Reconciler;
use crate::reconcile::state::{Rules, State};
use crate::reconcile::store::Event;
use crate::testing::hub::{Hub, object};
use crate::testing::{Exposition, failed, healthy, package, tell};
use crate::time::{Now, Seconds};

const START: Seconds = 1_800_000_000.0;
pub(super) const CLUSTERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const KINDS: [Kind; 5] =
    [Kind::FleetPackage, Kind::RolloutGate, Kind::FleetRollout, Kind::FleetRolloutSlice, Kind::RolloutFreeze];
/// Evidence counts for so long, in seconds.
const STALE_AFTER: Seconds = 120.0;
/// A poll comes at least so often while time passes.
const ROUND: Seconds = 15.0;
/// No step leads to more than this.
const MOST_TURNS: usize = 500;

/// How the package stands in a cluster.
struct Stand {
    revision: String,
    is_healthy: bool,
    since: Seconds,
    /// When it was last healthy at each revision, until now where it still is.
    healthy_at: BTreeMap<String, Seconds>,
}

pub(super) struct History {
    reconciler: Reconciler,
    pub(super) hub: Hub,
    clusters: BTreeMap<&'static str, Stand>,
    /// What the watches have not brought yet, while they lag.
    unheard: Vec<(Kind, Event<LazyObject>)>,
    lags: bool,
    /// The backend gives no answers.
    silent: bool,
    /// The last status that was written, whatever became of it in the hub since.
    told: FleetRolloutStatus,
    /// What was sent, and has not arrived.
    on_its_way: Vec<OwnedWrite>,
    epoch: i64,
    t: Seconds,
    /// What the promise would have been broken by.
    broken: Option<String>,
}

fn key(name: &str) -> Key {
    Key { namespace: "fleet".into(), name: name.into() }
}

fn at(t: Seconds) -> Now {
    Now { wall: t, passed: Duration::from_secs_f64(t - START) }
}

fn leader(hub: &Hub, epoch: i64, now: Now) -> Reconciler {
    let fleet = Fleet::new(FleetSettings::default());
    let state = State::new(fleet, profiles::Settings::default(), Rules::default(), epoch);
    let mut reconciler = hub.leader(state, &KINDS, now);
    reconciler.approvals(News::NotServed, now);
    reconciler
}

/// Waves of the plans between which somebody may change.
fn plan(number: usize) -> Value {
    [
        json!([
            {"name": "canary", "clusters": {"count": 1}, "gate": {"minSuccessTime": "40s"}},
            {"name": "half", "clusters": {"percentage": "50%"}, "maxConcurrency": 1, "gate": {"progressDeadline": "2h"}},
            {"name": "rest", "clusters": {"percentage": "100%"}},
        ]),
        json!([
            {"name": "canary", "clusters": {"names": ["b", "c"]}},
            {"name": "rest", "clusters": {"percentage": "100%"}, "maxConcurrency": 2},
        ]),
    ][number]
        .clone()
}

impl History {
    pub(super) fn new() -> Self {
        let stand = |_| Stand {
            revision: "r0".into(),
            is_healthy: true,
            since: START - 600.0,
            healthy_at: BTreeMap::new(),
        };
        let mut hub = Hub::default();
        let id = package("p");
        let spec = json!({
            "package": {"source": id.source, "namespace": id.namespace, "name": id.name},
            "clusters": {"names": CLUSTERS}, "staleAfter": "2m",
        });
        hub.make(Kind::FleetPackage, key("p"), spec);
        let spec = json!({"fleetPackageRef": {"name": "p"}, "revision": "r1", "waves": plan(0)});
        hub.make(Kind::FleetRollout, key("roll"), spec);
        let (epoch, t) = (1, START);
        Self {
            reconciler: leader(&hub, epoch, at(t)),
            hub,
            clusters: CLUSTERS.iter().map(|name| (*name, stand(name))).collect(),
            unheard: Vec::new(),
            lags: false,
            silent: false,
            told: FleetRolloutStatus::default(),
            on_its_way: Vec::new(),
            epoch,
            t,
            broken: None,
        }
    }

    fn now(&self) -> Now {
        at(self.t)
    }

    /// Another process leads, and reads everything.
    fn leads(&mut self) {
        self.epoch += 1;
        self.reconciler = leader(&self.hub, self.epoch, self.now());
        self.unheard.clear();
    }

    fn hears(&mut self, kind: Kind, event: Event<LazyObject>) {
        if self.lags {
            self.unheard.push((kind, event));
        } else {
            self.reconciler.heard(kind, event, self.now());
        }
    }

    /// Makes an object, or gives it another spec.
    fn put(&mut self, kind: Kind, name: &str, spec: Value) {
        let made = self.hub.make(kind, key(name), spec);
        self.hears(kind, Event::Apply(made));
    }

    /// Somebody edits the spec of an object, if it is there.
    fn edit(&mut self, kind: Kind, name: &str, edit: impl FnOnce(&mut Value)) {
        let Some(it) = self.hub.get(kind, &key(name)) else { return };
        let mut spec = it["spec"].clone();
        edit(&mut spec);
        self.put(kind, name, spec);
    }

    fn gone(&mut self, kind: Kind, name: &str) {
        if let Some(gone) = self.hub.remove(kind, key(name)) {
            self.hears(kind, Event::Delete(gone));
        }
    }

    fn stands(&mut self, cluster: &'static str, revision: String, is_healthy: bool) {
        let (t, stand) = (self.t, self.clusters.get_mut(cluster).unwrap());
        if stand.is_healthy {
            stand.healthy_at.insert(stand.revision.clone(), t);
        }
        (stand.revision, stand.is_healthy, stand.since) = (revision, is_healthy, t);
    }

    /// The delivery system brings each cluster to the revision that it may have.
    fn delivers(&mut self) {
        for (cluster, row) in self.record() {
            let name = CLUSTERS.iter().find(|name| **name == cluster);
            let Some(name) = name.filter(|name| self.clusters[**name].revision != row.revision) else {
                continue;
            };
            self.stands(name, row.revision, true);
        }
    }

    /// Time passes, and the backend is polled.
    fn round(&mut self) {
        self.t += ROUND;
        if !self.silent {
            let t = self.t;
            for (uid, (name, stand)) in (1..).zip(&self.clusters) {
                let say = if stand.is_healthy { healthy } else { failed };
                let exposition = Exposition::new(uid).with("p", say(&stand.revision, stand.since as u64));
                tell(self.reconciler.fleet(), &[("cluster", name)], &exposition, t - 5.0);
            }
        }
        let silent = Failure { error: "refused".into(), clock_lags: None };
        let outcome = if self.silent { Err(silent) } else { Ok((6, 0)) };
        self.reconciler.polled(0, Polled { t: self.t - 5.0, settle: 5.0, outcome }, self.now());
    }

    pub(super) fn happens(&mut self, step: Step) {
        match step {
            Step::Round => self.round(),
            Step::Silent(silent) => self.silent = silent,
            Step::Delivers => self.delivers(),
            Step::Fails(at) => {
                let cluster = CLUSTERS[at];
                let revision = self.clusters[cluster].revision.clone();
                self.stands(cluster, revision, false);
            }
            Step::Recovers => {
                for cluster in CLUSTERS {
                    let Stand { revision, is_healthy: false, .. } = &self.clusters[cluster] else { continue };
                    self.stands(cluster, revision.clone(), true);
                }
            }
            Step::Paused(paused) => {
                self.edit(Kind::FleetRollout, "roll", |spec| spec["paused"] = json!(paused))
            }
            Step::Revision(number) => {
                self.edit(Kind::FleetRollout, "roll", |spec| spec["revision"] = json!(format!("r{number}")));
            }
            Step::Plan(number) => self.edit(Kind::FleetRollout, "roll", |spec| spec["waves"] = plan(number)),
            Step::GateGone(wave) => self.gone(Kind::RolloutGate, &format!("roll-{wave}")),
            Step::GateNames(wave, at) => self.edit(Kind::RolloutGate, &format!("roll-{wave}"), |spec| {
                let names = spec["clusters"]["names"].as_array_mut().unwrap();
                if !names.contains(&json!(CLUSTERS[at])) {
                    names.push(json!(CLUSTERS[at]));
                }
            }),
            Step::GatePaused(wave) => {
                self.edit(Kind::RolloutGate, &format!("roll-{wave}"), |spec| spec["paused"] = json!(true));
            }
            Step::GateOverridden(wave, opens) => {
                let state = if opens { "Open" } else { "Closed" };
                self.edit(Kind::RolloutGate, &format!("roll-{wave}"), |spec| {
                    spec["override"] = json!({"state": state, "reason": spec["revision"]});
                });
            }
            Step::GateForged(wave, at) => {
                let name = format!("roll-{wave}");
                let rollout = self.rollout();
                let (uid, revision) =
                    (rollout["metadata"]["uid"].clone(), rollout["spec"]["revision"].clone());
                if self.hub.get(Kind::RolloutGate, &key(&name)).is_none() {
                    let spec = json!({"fleetPackageRef": {"name": "p"}, "revision": revision,
                        "clusters": {"names": [CLUSTERS[at]]}});
                    self.put(Kind::RolloutGate, &name, spec);
                    let forged = self.hub.touch(Kind::RolloutGate, key(&name), |it| {
                        it["metadata"]["labels"] =
                            json!({FLEET_ROLLOUT_LABEL: label("roll"), WAVE_LABEL: wave});
                        it["metadata"]["ownerReferences"] = json!([{"apiVersion": "statusbridge.dev/v1alpha1",
                            "kind": "FleetRollout", "name": "roll", "uid": uid, "controller": true}]);
                    });
                    self.hears(Kind::RolloutGate, Event::Apply(forged.unwrap()));
                }
            }
            Step::Frozen(true) => {
                let until = time(self.t + 300.0);
                self.put(Kind::RolloutFreeze, "freeze", json!({"reason": "night", "until": until}));
            }
            Step::Frozen(false) => self.gone(Kind::RolloutFreeze, "freeze"),
            Step::Lags(lags) => {
                self.lags = lags;
                if !lags {
                    let now = self.now();
                    for (kind, event) in std::mem::take(&mut self.unheard) {
                        self.reconciler.heard(kind, event, now);
                    }
                }
            }
            Step::StatusLost => {
                let it = self.hub.touch(Kind::FleetRollout, key("roll"), |it| {
                    it.as_object_mut().unwrap().remove("status");
                });
                self.hears(Kind::FleetRollout, Event::Apply(it.unwrap()));
            }
            Step::Leads => self.leads(),
            Step::Arrives => {
                for write in std::mem::take(&mut self.on_its_way) {
                    if let Answer::Done(object) = self.arrives(&write) {
                        self.hears(write.kind, Event::Apply(*object));
                    }
                }
            }
        }
    }

    /// Does all that the reconciler wants done.
    pub(super) fn acts(&mut self, landing: Landing) -> Result<(), String> {
        for _ in 0..MOST_TURNS {
            let now = self.now();
            let mut commands = self.reconciler.commands();
            if commands.is_empty() {
                if !self.reconciler.has_writes() {
                    return self.broken.take().map_or(Ok(()), Err);
                }
                self.reconciler.next_write(now);
                commands = self.reconciler.commands();
            }
            for command in commands {
                match command {
                    Command::Write(write) => {
                        let answer = match landing {
                            Landing::Whole => self.takes(&write),
                            _ => Answer::NotSent,
                        };
                        self.reconciler.wrote(write.number, write.kind, &write.version.key, answer, now);
                    }
                    Command::WriteOwned(write) => {
                        self.is_right(&write);
                        let answer = match landing {
                            Landing::Whole => self.arrives(&write),
                            Landing::Late => {
                                self.on_its_way.push(*write.clone());
                                Answer::Unconfirmed
                            }
                            Landing::Refused => Answer::Refused("quota".into()),
                        };
                        self.reconciler.wrote_owned(&write, answer, now);
                    }
                    Command::List(number, key, listings) => {
                        let found = listings.iter().flat_map(|it| self.hub.heads(it)).collect();
                        self.reconciler.listed(number, &key, &Ok(found), now);
                    }
                    Command::Read(number, kind, key) => {
                        let found = self.hub.get(kind, &key).map(object);
                        self.reconciler.read(number, kind, &key, Ok(found), now);
                    }
                    Command::Beat(_) => _ = self.reconciler.beaten(true, now),
                    _ => {}
                }
            }
        }
        Err("it does not come to rest".into())
    }

    /// The hub takes a status.
    fn takes(&mut self, write: &StatusWrite) -> Answer {
        let answer = self.hub.write_status(write, json!(write.status));
        if let (Answer::Done(_), Status::Rollout(status)) = (&answer, &write.status) {
            self.told = *status.clone();
        }
        answer
    }

    /// A change of an owned object arrives in the hub.
    fn arrives(&mut self, write: &OwnedWrite) -> Answer {
        let before = self.record();
        let answer = self.hub.write_owned(write);
        let now = self.record();
        if let Some(lost) = before.keys().find(|cluster| !now.contains_key(*cluster)) {
            self.breaks(format!("the row of {lost} is gone"));
        }
        answer
    }

    /// The record in the hub.
    pub(super) fn record(&self) -> BTreeMap<String, AdmittedCluster> {
        let rows = self.hub.of(Kind::FleetRolloutSlice).flat_map(|it| {
            let mut content = it.clone();
            content.as_object_mut().unwrap().remove("metadata");
            serde_json::from_value::<FleetRolloutSlice>(content).unwrap().clusters
        });
        rows.map(|row| (row.cluster_name.clone(), row)).collect()
    }

    fn rollout(&self) -> &Value {
        self.hub.get(Kind::FleetRollout, &key("roll")).unwrap()
    }

    fn status(&self) -> FleetRolloutStatus {
        serde_json::from_value(self.rollout()["status"].clone()).unwrap_or_default()
    }

    pub(super) fn reason(&self) -> String {
        find(&self.status().conditions, READY).map(|it| it.reason.clone()).unwrap_or_default()
    }

    fn breaks(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    /// Whether the clusters that a write admits may be admitted, as the hub and the clusters are at this moment.
    fn is_right(&mut self, write: &OwnedWrite) {
        let (Kind::FleetRolloutSlice, Change::Create(_, content) | Change::Update(_, content)) =
            (write.kind, &write.change)
        else {
            return;
        };
        let slice: FleetRolloutSlice = serde_json::from_value(Value::Object(content.fields.clone())).unwrap();
        let known = self.record();
        let rollout = self.rollout().clone();
        for row in slice.clusters {
            if known.get(&row.cluster_name).is_some_and(|it| it.revision == row.revision) {
                continue;
            }
            if let Some(why) = self.forbids(&rollout["spec"], &row) {
                self.breaks(format!("{} is admitted to {}: {why}", row.cluster_name, row.revision));
            }
        }
    }

    fn forbids(&self, spec: &Value, row: &AdmittedCluster) -> Option<String> {
        if spec["revision"] != row.revision.as_str() {
            return Some(format!("the plan is for {}", spec["revision"]));
        }
        if spec["paused"] == true {
            return Some("the plan is paused".into());
        }
        let freeze = self.hub.get(Kind::RolloutFreeze, &key("freeze"));
        if freeze.is_some_and(|it| it["spec"]["until"].as_str() > Some(json!(time(self.t)).as_str().unwrap()))
        {
            return Some("it is frozen".into());
        }
        let status = &self.told;
        let waves = spec["waves"].as_array().unwrap();
        let Some(at) = waves.iter().position(|wave| wave["name"] == row.wave.as_str()) else {
            return Some(format!("the plan has no wave {}", row.wave));
        };
        let gate = |wave: &Value| {
            let name = format!("roll-{}", wave["name"].as_str().unwrap());
            let gate = GateObject::read(object(self.hub.get(Kind::RolloutGate, &key(&name))?)).unwrap();
            let members = gate.spec.as_deref().unwrap().clusters.names.clone().unwrap();
            Some((gate, members))
        };
        let told = |wave: &Value| {
            let told = status.waves.iter().find(|it| wave["name"] == it.name.as_str())?;
            told.members_fingerprint.clone()
        };
        let Some((_, members)) = gate(&waves[at]) else { return Some("its wave has no gate".into()) };
        if !members.contains(&row.cluster_name) {
            return Some("it is not in its wave".into());
        }
        for wave in &waves[..=at] {
            let tells = status.waves.iter().find(|it| wave["name"] == it.name.as_str());
            let others = waves.iter().filter(|other| other["name"] != wave["name"]).filter_map(gate);
            let others: BTreeSet<String> = others.flat_map(|(_, names)| names).collect();
            let is_left_nobody = others.len() == CLUSTERS.len();
            // Such a wave has no gate of its own, whatever gate somebody has made; one that names its clusters always has.
            let may_be_empty = wave["name"] != row.wave.as_str() && wave["clusters"]["names"].is_null();
            if may_be_empty && is_left_nobody && tells.is_some_and(|it| it.clusters == 0) {
                continue;
            }
            let Some((gate, members)) = gate(wave) else {
                if is_left_nobody || tells.is_some_and(|it| it.opened_at.is_some()) {
                    continue;
                }
                return Some(format!("wave {} has no gate", wave["name"]));
            };
            if told(wave) != Some(mark(members.iter().map(String::as_str))) {
                return Some(format!("wave {} was told to start with others", wave["name"]));
            }
            if wave["name"] == row.wave.as_str() {
                break;
            }
            if !gate.is_open_now() {
                return Some(format!("the gate of {} is closed", wave["name"]));
            }
            let spec = gate.spec.as_deref().unwrap();
            let asked: GateTerms = serde_json::from_value(wave["gate"].clone()).unwrap_or_default();
            // The aggregator leaves alone what a person closes a gate by.
            let GateTerms { paused, approval, .. } = spec.terms;
            if spec.terms != (GateTerms { paused, approval, ..asked }) {
                return Some(format!("the gate of {} asks for something else", wave["name"]));
            }
            // Whoever opened it did so for the revision that it had then.
            match &spec.override_ {
                Some(word) if word.reason == row.revision => continue,
                Some(_) => return Some(format!("the gate of {} was opened for another", wave["name"])),
                None => {}
            }
            for member in members {
                let stand = &self.clusters[member.as_str()];
                let is_healthy = stand.is_healthy && stand.revision == row.revision;
                let was =
                    stand.healthy_at.get(&row.revision).is_some_and(|at| self.t - at <= STALE_AFTER + ROUND);
                if !is_healthy && !was {
                    return Some(format!("{member} of wave {} is not healthy at it", wave["name"]));
                }
            }
        }
        None
    }
}
