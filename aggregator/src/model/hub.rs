//! The hub's API server: the gate, the FleetRollout with what was made for it, the lease of the leader, the heartbeat, and what
//! is on its way there.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};
use statusbridge_api::RolloutGateStatus;
use statusbridge_core::reconcile::calls::CALL_TIMEOUT;
use statusbridge_core::reconcile::command::{Answer, StatusWrite};
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::{GateObject, Key, Kind};
use statusbridge_core::reconcile::owned::{Change, OwnedWrite};
use statusbridge_core::reconcile::store::Event;
use statusbridge_core::testing::hub::{Hub as Objects, object};
use statusbridge_core::testing::package;
use statusbridge_core::time::Seconds;

use super::PACKAGE;

/// Name of the FleetRollout.
const ROLLOUT: &str = "roll";
/// Its last wave has this cluster alone, of which nobody ever tells.
pub(super) const LAST: &str = "last";

/// Writes of all replicas within a second, at most.
const MOST_AT_ONCE: usize = 100;

/// A write that was sent.
#[derive(Debug)]
struct Flight {
    sent: Seconds,
    /// What it is, until it has arrived.
    write: Option<Sent>,
    /// When it arrives; `None` when it is lost.
    lands: Option<Seconds>,
    /// When its answer comes; `None` when that is lost.
    answers: Option<Seconds>,
    /// What became of it.
    outcome: Option<Answer>,
}

/// What is written.
#[derive(Debug)]
pub(super) enum Sent {
    /// The status of the gate, decided upon this version; none where any will do.
    Gate(Option<u64>, Box<RolloutGateStatus>),
    /// Another status.
    Status(Box<StatusWrite>),
    /// An object that belongs to the FleetRollout.
    Owned(Box<OwnedWrite>),
}

/// What happens to requests.
#[derive(Debug, Default)]
pub(super) struct Mishaps {
    /// Writes take so long, until then.
    pub(super) slow: (Seconds, Seconds),
    /// Answers are lost until then.
    pub(super) no_answers: Seconds,
    /// The next write arrives so late.
    pub(super) late: Option<Seconds>,
    /// The next write is lost.
    pub(super) lost: bool,
    /// News are so old, until then.
    pub(super) late_news: (Seconds, Seconds),
}

/// A version of the gate.
pub(super) struct Version {
    /// When it came to be.
    since: Seconds,
    gate: GateObject,
    /// The same as the API server sends it.
    pub(super) sent: LazyObject,
}

impl Version {
    fn new(since: Seconds, gate: GateObject) -> Self {
        let sent = object(&json!({
            "metadata": {
                "namespace": gate.key.namespace,
                "name": gate.key.name,
                "uid": gate.uid,
                "resourceVersion": gate.resource_version,
                "generation": gate.generation,
            },
            "spec": gate.spec.as_deref().ok(),
            "status": gate.status,
        }));
        Self { since, gate, sent }
    }

    pub(super) fn number(&self) -> u64 {
        self.gate.resource_version.parse().unwrap_or_default()
    }
}

/// The hub.
pub(super) struct Hub {
    /// Every version of the gate, the newest last.
    versions: Vec<Version>,
    /// All other objects.
    objects: Objects,
    /// What became of them, and when.
    news: Vec<(Seconds, Kind, Event<LazyObject>)>,
    flights: Vec<(u64, Flight)>,
    sent: u64,
    /// The Lease of the leader.
    lease: Lease,
    pub(super) heartbeat: Seconds,
    /// Whether the heartbeat names the gate as one that has to close.
    pub(super) unclosed: bool,
    pub(super) mishaps: Mishaps,
}

impl Hub {
    /// `first` has the terms of the first wave, as a gate has them.
    pub(super) fn new(now: Seconds, gate: GateObject, stale_after: Seconds, first: &Value) -> Self {
        let mut objects = Objects::default();
        let id = package(PACKAGE);
        let package = json!({
            "package": {"source": id.source, "namespace": id.namespace, "name": id.name},
            "staleAfter": format!("{stale_after}s"),
        });
        objects.make(Kind::FleetPackage, gate.key.beside(PACKAGE), package);
        let spec = gate.spec.as_deref().expect("a gate");
        let plan = json!({
            "fleetPackageRef": {"name": PACKAGE}, "revision": spec.revision,
            "waves": [
                {"name": "first", "clusters": {"names": spec.clusters.names}, "gate": first},
                {"name": "last", "clusters": {"names": [LAST]}},
            ],
        });
        objects.make(Kind::FleetRollout, gate.key.beside(ROLLOUT), plan);
        Self {
            versions: vec![Version::new(now, gate)],
            objects,
            news: Vec::new(),
            flights: Vec::new(),
            sent: 0,
            lease: Lease::default(),
            heartbeat: now,
            unclosed: false,
            mishaps: Mishaps::default(),
        }
    }

    /// What a watch of a kind begins with.
    pub(super) fn listed(&self, kind: Kind) -> Vec<Event<LazyObject>> {
        let mut listed = self.objects.listed(kind);
        if kind == Kind::RolloutGate {
            listed.insert(1, Event::InitApply(self.newest().sent.clone()));
        }
        listed
    }

    /// What objects beside the gate there are.
    pub(super) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// An object, whichever it is.
    pub(super) fn object(&self, kind: Kind, key: &Key) -> Option<LazyObject> {
        match kind == Kind::RolloutGate && *key == self.gate().key {
            true => Some(self.newest().sent.clone()),
            false => self.objects.get(kind, key).map(object),
        }
    }

    /// What watchers have heard by now of objects beside the gate, after so many news.
    pub(super) fn more_news(&self, now: Seconds, heard: usize) -> &[(Seconds, Kind, Event<LazyObject>)] {
        let known = self.known_at(now);
        let new = self.news.get(heard..).unwrap_or_default();
        &new[..new.iter().take_while(|(at, ..)| *at <= known).count()]
    }

    /// How many news there were of objects beside the gate.
    pub(super) fn all_news(&self) -> usize {
        self.news.len()
    }

    /// The plan gets this revision. Says which one it had before, if it was another.
    pub(super) fn replan(&mut self, now: Seconds, revision: String) -> Option<String> {
        let key = self.gate().key.beside(ROLLOUT);
        let plan = self.objects.get(Kind::FleetRollout, &key).expect("it stays");
        let before = plan["spec"]["revision"].as_str().filter(|before| *before != revision)?.to_owned();
        let mut spec = plan["spec"].clone();
        spec["revision"] = json!(revision);
        let plan = self.objects.make(Kind::FleetRollout, key, spec);
        self.news.push((now, Kind::FleetRollout, Event::Apply(plan)));
        Some(before)
    }

    /// Which clusters may have which revision.
    pub(super) fn admitted(&self) -> BTreeMap<String, String> {
        let rows = self.objects.of(Kind::FleetRolloutSlice).filter_map(|it| it["clusters"].as_array());
        let text = |value: &Value| value.as_str().expect("a row").to_owned();
        rows.flatten().map(|row| (text(&row["clusterName"]), text(&row["revision"]))).collect()
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Writes the Lease over the version that it was made from; None when that version is no more.
    pub(super) fn replace(&mut self, mut lease: Lease) -> Option<Lease> {
        let version = &self.lease.metadata.resource_version;
        if lease.metadata.resource_version != *version {
            return None;
        }
        let number: u64 = version.as_ref().map_or(0, |text| text.parse().expect("a number"));
        lease.metadata.resource_version = Some((number + 1).to_string());
        self.lease = lease;
        Some(self.lease.clone())
    }

    fn newest(&self) -> &Version {
        self.versions.last().expect("never empty")
    }

    pub(super) fn gate(&self) -> &GateObject {
        &self.newest().gate
    }

    pub(super) fn version(&self) -> u64 {
        self.newest().number()
    }

    /// What watchers know by now.
    pub(super) fn news(&self, now: Seconds) -> &Version {
        let known_at = self.known_at(now);
        let known = self.versions.iter().rev().find(|version| version.since <= known_at);
        known.unwrap_or(&self.versions[0])
    }

    /// Of which time watchers know by now.
    fn known_at(&self, now: Seconds) -> Seconds {
        let (old, until) = self.mishaps.late_news;
        if now < until { now - old } else { now }
    }

    /// Changes the gate.
    pub(super) fn change(&mut self, now: Seconds, change: impl FnOnce(&mut GateObject)) {
        let mut gate = self.gate().clone();
        change(&mut gate);
        gate.resource_version = (self.version() + 1).to_string();
        self.versions.push(Version::new(now, gate));
    }

    /// Takes in a request to write; its number.
    pub(super) fn send(&mut self, now: Seconds, write: Sent, isolated: bool) -> u64 {
        let mishaps = &mut self.mishaps;
        let (slow, until) = mishaps.slow;
        let takes = mishaps.late.take().unwrap_or(if now < until { slow } else { 0.0 });
        let lost = std::mem::take(&mut mishaps.lost) || isolated;
        let lands = (!lost).then_some(now + takes);
        let answers = lands.filter(|_| now >= mishaps.no_answers);
        self.sent += 1;
        // Whoever tries again at once, again and again, would do so at the API server.
        let busy = self.flights.iter().rev().take_while(|(_, it)| it.sent == now).count();
        assert!(busy < MOST_AT_ONCE, "{busy} writes within a second, at last {write:?}");
        self.flights
            .push((self.sent, Flight { sent: now, write: Some(write), lands, answers, outcome: None }));
        self.sent
    }

    /// Lets arrive what arrives now, and forgets what was over long ago.
    pub(super) fn arrive(&mut self, now: Seconds) {
        let goes_on =
            |flight: &Flight| now - flight.sent < 60.0 || flight.lands.is_some_and(|at| at > now - 2.0);
        if self.flights.first().is_some_and(|(_, flight)| !goes_on(flight)) {
            self.flights.retain(|(_, flight)| goes_on(flight));
        }
        for i in 0..self.flights.len() {
            let flight = &mut self.flights[i].1;
            if flight.lands.is_none_or(|lands| now < lands) {
                continue;
            }
            if let Some(write) = flight.write.take() {
                let outcome = self.take(now, write);
                self.flights[i].1.outcome = Some(outcome);
            }
        }
    }

    fn take(&mut self, now: Seconds, write: Sent) -> Answer {
        let (kind, answer, removed) = match write {
            Sent::Gate(over, _) if over.is_some_and(|over| over != self.version()) => {
                return Answer::Conflict;
            }
            Sent::Gate(_, status) => {
                self.change(now, |gate| gate.status = Some(*status));
                return Answer::Done(Box::new(self.newest().sent.clone()));
            }
            Sent::Status(write) => (write.kind, self.objects.write_status(&write, json!(write.status)), None),
            Sent::Owned(write) => {
                let removed = match &write.change {
                    Change::Delete(of) => self.object(write.kind, &of.key),
                    _ => None,
                };
                (write.kind, self.objects.write_owned(&write), removed)
            }
        };
        match (&answer, removed) {
            (Answer::Done(object), _) => self.news.push((now, kind, Event::Apply(*object.clone()))),
            (Answer::Gone, Some(object)) => self.news.push((now, kind, Event::Delete(object))),
            _ => {}
        }
        answer
    }

    /// The answer to a request, once it has come.
    pub(super) fn answer(&self, now: Seconds, number: u64) -> Option<Answer> {
        let (_, flight) = self.flights.iter().find(|(n, _)| *n == number)?;
        flight.answers.filter(|at| *at <= now).and(flight.outcome.clone())
    }

    /// Whether writes take their time, or were lost within the last seconds.
    pub(super) fn has_trouble(&self, now: Seconds) -> bool {
        let (_, slow) = self.mishaps.slow;
        let unanswered = |flight: &Flight| flight.answers.is_none_or(|at| at > flight.sent + 1.0);
        let lately = |flight: &Flight| now - flight.sent <= CALL_TIMEOUT.as_secs_f64();
        now < slow || self.flights.iter().rev().take_while(|(_, it)| lately(it)).any(|(_, it)| unanswered(it))
    }

    /// How long a write is on its way, or was when it arrived just now, that nobody waits for any more.
    pub(super) fn is_late(&self, now: Seconds) -> Option<Seconds> {
        let late = |flight: &Flight| {
            let lands = flight.lands.filter(|lands| *lands > flight.sent + 1.0 && now <= lands + 1.0)?;
            Some(lands - flight.sent)
        };
        self.flights.iter().filter_map(|(_, it)| late(it)).reduce(Seconds::max)
    }

    /// Ends all mishaps.
    pub(super) fn heal(&mut self) {
        self.mishaps = Mishaps::default();
    }
}
