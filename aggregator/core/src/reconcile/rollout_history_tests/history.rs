//! One history of a FleetRollout: clusters, a hub whose watches may lag, and the reconciler between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use statusbridge_api::conditions::{READY, find};
use statusbridge_api::fleet_rollout::WaveStatus;
use statusbridge_api::fleet_rollout_slice::AdmittedCluster;
use statusbridge_api::{FleetRolloutSlice, FleetRolloutStatus};

use super::{Landing, Step};
use crate::decide::fleet_rollout::mark;
use crate::decide::time;
use crate::fleet::{Fleet, FleetSettings};
use crate::reconcile::command::{Answer, Command, Head, Listing, Status, StatusWrite, Which};
use crate::reconcile::feeds::{Failure, Planned, Polled};
use crate::reconcile::holds::News;
use crate::reconcile::judging::Judges;
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::owned::{Change, OwnedWrite};
use crate::reconcile::profiles;
use crate::reconcile::reconciler::Reconciler;
use crate::reconcile::state::{Rules, State};
use crate::reconcile::store::{Event, GateObject, Key, Kind, Version};
use crate::reconcile::test_hub::{Hub, object, over};
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
    versions: u64,
    /// What the promise would have been broken by.
    broken: Option<String>,
}

fn key(name: &str) -> Key {
    Key { namespace: "fleet".into(), name: name.into() }
}

fn fleet() -> Fleet {
    Fleet::new(FleetSettings::default())
}

/// Waves of the plans between which somebody may change.
fn plan(number: usize) -> Value {
    [
        json!([
            {"name": "canary", "clusters": {"count": 1}},
            {"name": "half", "clusters": {"percentage": "50%"}, "maxConcurrency": 1},
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
        let mut history = Self {
            reconciler: Reconciler::new(
                State::new(fleet(), profiles::Settings::default(), Rules::default(), 1),
                Judges::default(),
                None,
            ),
            hub: BTreeMap::new(),
            clusters: CLUSTERS.iter().map(|name| (*name, stand(name))).collect(),
            unheard: Vec::new(),
            lags: false,
            silent: false,
            told: FleetRolloutStatus::default(),
            on_its_way: Vec::new(),
            epoch: 0,
            t: START,
            versions: 0,
            broken: None,
        };
        let id = package("p");
        history.put(
            Kind::FleetPackage,
            "p",
            json!({
                "package": {"source": id.source, "namespace": id.namespace, "name": id.name},
                "clusters": {"names": CLUSTERS}, "staleAfter": "2m",
            }),
        );
        let spec = json!({"fleetPackageRef": {"name": "p"}, "revision": "r1", "waves": plan(0)});
        history.put(Kind::FleetRollout, "roll", spec);
        history.leads();
        history
    }

    fn now(&self) -> Now {
        Now { wall: self.t, passed: Duration::from_secs_f64(self.t - START) }
    }

    /// Another process leads, and reads everything.
    fn leads(&mut self) {
        self.epoch += 1;
        let state = State::new(fleet(), profiles::Settings::default(), Rules::default(), self.epoch);
        self.reconciler = Reconciler::new(state, Judges::default(), None);
        self.reconciler.planned(vec![Planned { name: "".into(), settle: 5.0, asked: false }], fleet());
        self.unheard.clear();
        let now = self.now();
        for kind in KINDS {
            let all = self.hub.iter().filter(|((of, _), _)| *of == kind);
            let objects: Vec<_> = all.map(|(_, it)| Event::InitApply(object(it))).collect();
            for event in [Event::Init].into_iter().chain(objects).chain([Event::InitDone]) {
                self.reconciler.heard(kind, event, now);
            }
        }
        self.reconciler.approvals(News::NotServed, now);
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
        self.versions += 1;
        let id = (kind, key(name));
        let before = self.hub.get(&id);
        let generation = before.map_or(0, |it| it["metadata"]["generation"].as_i64().unwrap());
        let mut made = before.cloned().unwrap_or_else(|| {
            json!({"metadata": {"namespace": "fleet", "name": name, "uid": self.versions.to_string(),
                "creationTimestamp": "2027-01-01T00:00:00Z"}})
        });
        made["spec"] = spec;
        made["metadata"]["generation"] = json!(generation + 1);
        made["metadata"]["resourceVersion"] = json!(self.versions.to_string());
        self.hub.insert(id, made.clone());
        self.hears(kind, Event::Apply(object(&made)));
    }

    /// Somebody edits the spec of an object, if it is there.
    fn edit(&mut self, kind: Kind, name: &str, edit: impl FnOnce(&mut Value)) {
        let Some(it) = self.hub.get(&(kind, key(name))) else { return };
        let mut spec = it["spec"].clone();
        edit(&mut spec);
        self.put(kind, name, spec);
    }

    fn gone(&mut self, kind: Kind, name: &str) {
        if let Some(gone) = self.hub.remove(&(kind, key(name))) {
            self.hears(kind, Event::Delete(object(&gone)));
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
            Step::Frozen(true) => {
                let until = time(self.t + 300.0);
                self.put(Kind::RolloutFreeze, "freeze", json!({"reason": "night", "until": until}));
            }
            Step::Frozen(false) => self.gone(Kind::RolloutFreeze, "freeze"),
            Step::Lags(lags) => {
                self.lags = lags;
                if !lags {
                    let now = self.now();
                    std::mem::take(&mut self.unheard)
                        .into_iter()
                        .for_each(|(kind, event)| self.reconciler.heard(kind, event, now));
                }
            }
            Step::StatusLost => {
                self.versions += 1;
                let version = self.versions.to_string();
                let rollout = self.hub.get_mut(&(Kind::FleetRollout, key("roll"))).unwrap();
                rollout.as_object_mut().unwrap().remove("status");
                rollout["metadata"]["resourceVersion"] = json!(version);
                let event = Event::Apply(object(rollout));
                self.hears(Kind::FleetRollout, event);
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
                        let found = listings.iter().flat_map(|it| self.heads(it)).collect();
                        self.reconciler.listed(number, &key, &Ok(found), now);
                    }
                    Command::Read(number, kind, key) => {
                        let found = self.hub.get(&(kind, key.clone())).map(object);
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
        self.versions += 1;
        let version = self.versions.to_string();
        let it = match over(&mut self.hub, write) {
            Ok(it) => it,
            Err(answer) => return answer,
        };
        it["status"] = json!(write.status);
        if let Status::Rollout(status) = &write.status {
            self.told = *status.clone();
        }
        it["metadata"]["resourceVersion"] = json!(version);
        Answer::Done(Box::new(object(it)))
    }

    /// A change of an owned object arrives in the hub.
    fn arrives(&mut self, write: &OwnedWrite) -> Answer {
        self.versions += 1;
        let version = self.versions.to_string();
        let before = self.record();
        let at = |name: &str| (write.kind, key(name));
        let is_it = |it: Option<&Value>, of: &Version| {
            it.is_some_and(|it| {
                it["metadata"]["uid"] == of.uid && it["metadata"]["resourceVersion"] == of.resource_version
            })
        };
        let (id, content) = match &write.change {
            Change::Create(name, _) if self.hub.contains_key(&at(name)) => return Answer::Conflict,
            Change::Update(of, _) | Change::Delete(of) if !self.hub.contains_key(&at(&of.key.name)) => {
                return Answer::Gone;
            }
            Change::Update(of, _) | Change::Delete(of) if !is_it(self.hub.get(&at(&of.key.name)), of) => {
                return Answer::Conflict;
            }
            Change::Delete(of) => {
                self.hub.remove(&at(&of.key.name));
                self.has_all_of(before);
                return Answer::Gone;
            }
            Change::Create(name, content) => (at(name), content),
            Change::Update(of, content) => (at(&of.key.name), content),
        };
        let old = self.hub.get(&id);
        let generation = old.map_or(0, |it| it["metadata"]["generation"].as_i64().unwrap());
        let mut made = Value::Object(content.fields.clone());
        if let Some(old) = old {
            made["status"] = old["status"].clone();
        }
        let uid = old.map_or(json!(version), |it| it["metadata"]["uid"].clone());
        made["metadata"] = json!({"namespace": "fleet", "name": id.1.name, "uid": uid, "resourceVersion": version,
            "generation": generation + 1, "labels": content.labels, "annotations": content.annotations});
        if let Some(controller) = &write.controller {
            made["metadata"]["ownerReferences"] = json!([{"apiVersion": "statusbridge.dev/v1alpha1",
                "kind": "FleetRollout", "name": write.owner.1.name, "uid": controller, "controller": true}]);
        }
        self.hub.insert(id, made.clone());
        self.has_all_of(before);
        Answer::Done(Box::new(object(&made)))
    }

    fn heads(&self, Listing { kind, which, .. }: &Listing) -> Vec<Head> {
        let is_meant = |id: &&(Kind, Key), it: &Value| match which {
            Which::All => true,
            Which::Named(name) => id.1.name == *name,
            Which::Labelled(label, value) => it["metadata"]["labels"][label] == *value,
        };
        let all = self.hub.iter().filter(|(id, it)| id.0 == *kind && is_meant(id, it));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        all.map(|((kind, key), it)| Head {
            kind: *kind,
            version: Version {
                key: key.clone(),
                uid: text(&it["metadata"]["uid"]),
                resource_version: text(&it["metadata"]["resourceVersion"]),
            },
            generation: it["metadata"]["generation"].as_i64().unwrap(),
        })
        .collect()
    }

    /// The record in the hub.
    pub(super) fn record(&self) -> BTreeMap<String, AdmittedCluster> {
        let slices = self.hub.iter().filter(|((kind, _), _)| *kind == Kind::FleetRolloutSlice);
        let rows = slices.flat_map(|(_, it)| {
            let mut content = it.clone();
            content.as_object_mut().unwrap().remove("metadata");
            serde_json::from_value::<FleetRolloutSlice>(content).unwrap().clusters
        });
        rows.map(|row| (row.cluster_name.clone(), row)).collect()
    }

    fn status(&self) -> FleetRolloutStatus {
        let rollout = &self.hub[&(Kind::FleetRollout, key("roll"))];
        serde_json::from_value(rollout["status"].clone()).unwrap_or_default()
    }

    pub(super) fn reason(&self) -> String {
        find(&self.status().conditions, READY).map(|it| it.reason.clone()).unwrap_or_default()
    }

    fn breaks(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    fn has_all_of(&mut self, before: BTreeMap<String, AdmittedCluster>) {
        let now = self.record();
        if let Some(lost) = before.keys().find(|cluster| !now.contains_key(*cluster)) {
            self.breaks(format!("the row of {lost} is gone"));
        }
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
        let rollout = self.hub[&(Kind::FleetRollout, key("roll"))].clone();
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
        let freeze = self.hub.get(&(Kind::RolloutFreeze, key("freeze")));
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
            let gate = GateObject::read(object(self.hub.get(&(Kind::RolloutGate, key(&name)))?)).unwrap();
            let members = gate.spec.as_ref().unwrap().clusters.names.clone().unwrap();
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
            let Some((gate, members)) = gate(wave) else {
                // Nobody is left for it, or nobody was.
                let is_over = |it: &WaveStatus| wave["name"] == it.name.as_str() && it.opened_at.is_some();
                let taken: BTreeSet<String> =
                    waves.iter().filter_map(gate).flat_map(|(_, names)| names).collect();
                if taken.len() == CLUSTERS.len() || status.waves.iter().any(is_over) {
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
