//! The hub's API server: the gate, the lease of the leader, the heartbeat, and what is on its way there.

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;
use statusbridge_api::RolloutGateStatus;
use statusbridge_core::reconcile::calls::CALL_TIMEOUT;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::store::GateObject;
use statusbridge_core::testing::package;
use statusbridge_core::time::Seconds;

use super::PACKAGE;

/// A write that was sent.
#[derive(Debug)]
pub(super) struct Flight {
    sent: Seconds,
    /// The version that it was decided upon; none where any will do.
    over: Option<u64>,
    status: RolloutGateStatus,
    /// When it arrives; `None` when it is lost.
    lands: Option<Seconds>,
    /// When its answer comes; `None` when that is lost.
    answers: Option<Seconds>,
    /// What became of it.
    outcome: Option<Outcome>,
}

/// How the API server answers a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is this version now.
    Done(u64),
    /// It had another version.
    Conflict,
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

/// The hub.
pub(super) struct Hub {
    /// Every version of the gate and when it came to be, the newest last.
    versions: Vec<(Seconds, GateObject)>,
    flights: Vec<(u64, Flight)>,
    sent: u64,
    /// The Lease of the leader.
    lease: Lease,
    pub(super) heartbeat: Seconds,
    /// Whether the heartbeat names the gate as one that has to close.
    pub(super) unclosed: bool,
    pub(super) mishaps: Mishaps,
    /// Of the FleetPackage.
    pub(super) stale_after: Seconds,
}

impl Hub {
    pub(super) fn new(now: Seconds, gate: GateObject, stale_after: Seconds) -> Self {
        Self {
            versions: vec![(now, gate)],
            flights: Vec::new(),
            sent: 0,
            lease: Lease::default(),
            heartbeat: now,
            unclosed: false,
            mishaps: Mishaps::default(),
            stale_after,
        }
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

    pub(super) fn gate(&self) -> &GateObject {
        &self.versions.last().expect("never empty").1
    }

    pub(super) fn version(&self) -> u64 {
        version(self.gate())
    }

    /// The gate as it was at a time.
    pub(super) fn gate_at(&self, at: Seconds) -> &GateObject {
        let known = self.versions.iter().rev().find(|(since, _)| *since <= at);
        &known.unwrap_or(&self.versions[0]).1
    }

    /// What watchers know by now.
    pub(super) fn news(&self, now: Seconds) -> &GateObject {
        let (old, until) = self.mishaps.late_news;
        self.gate_at(if now < until { now - old } else { now })
    }

    /// Changes the gate.
    pub(super) fn change(&mut self, now: Seconds, change: impl FnOnce(&mut GateObject)) {
        let mut gate = self.gate().clone();
        change(&mut gate);
        gate.resource_version = (self.version() + 1).to_string();
        self.versions.push((now, gate));
    }

    /// Takes in a request to write a status; its number.
    pub(super) fn send(
        &mut self,
        now: Seconds,
        over: Option<u64>,
        status: RolloutGateStatus,
        isolated: bool,
    ) -> u64 {
        let mishaps = &mut self.mishaps;
        let (slow, until) = mishaps.slow;
        let takes = mishaps.late.take().unwrap_or(if now < until { slow } else { 0.0 });
        let lost = std::mem::take(&mut mishaps.lost) || isolated;
        let lands = (!lost).then_some(now + takes);
        let answers = lands.filter(|_| now >= mishaps.no_answers);
        self.sent += 1;
        self.flights.push((self.sent, Flight { sent: now, over, status, lands, answers, outcome: None }));
        self.sent
    }

    /// Lets arrive what arrives now.
    pub(super) fn arrive(&mut self, now: Seconds) {
        for i in 0..self.flights.len() {
            let flight = &self.flights[i].1;
            if flight.outcome.is_some() || flight.lands.is_none_or(|lands| now < lands) {
                continue;
            }
            let outcome = if flight.over.is_none_or(|over| over == self.version()) {
                let status = flight.status.clone();
                self.change(now, |gate| gate.status = Some(status));
                Outcome::Done(self.version())
            } else {
                Outcome::Conflict
            };
            self.flights[i].1.outcome = Some(outcome);
        }
    }

    /// What the answer to a request says, once it has come.
    pub(super) fn answer(&self, now: Seconds, number: u64) -> Option<Outcome> {
        let (_, flight) = self.flights.iter().find(|(n, _)| *n == number)?;
        flight.answers.filter(|at| *at <= now).and(flight.outcome)
    }

    /// The gate of a version that was written.
    pub(super) fn written(&self, number: u64) -> &GateObject {
        let known = self.versions.iter().rev().find(|(_, gate)| version(gate) == number);
        known.map_or(self.gate(), |(_, gate)| gate)
    }

    /// Whether writes take their time, or were lost within the last seconds.
    pub(super) fn has_trouble(&self, now: Seconds) -> bool {
        let (_, slow) = self.mishaps.slow;
        let unanswered = |flight: &Flight| flight.answers.is_none_or(|at| at > flight.sent + 1.0);
        let lately = |flight: &Flight| now - flight.sent <= CALL_TIMEOUT.as_secs_f64();
        now < slow || self.flights.iter().rev().take(8).any(|(_, it)| lately(it) && unanswered(it))
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

/// The gate as the API server sends it.
pub(super) fn object(gate: &GateObject) -> LazyObject {
    let object = json!({
        "metadata": {
            "namespace": gate.key.namespace,
            "name": gate.key.name,
            "uid": gate.uid,
            "resourceVersion": gate.resource_version,
            "generation": gate.generation,
        },
        "spec": gate.spec.as_ref().ok(),
        "status": gate.status,
    });
    serde_json::from_str(&object.to_string()).expect("a gate")
}

/// The number of a version.
pub(super) fn version(gate: &GateObject) -> u64 {
    gate.resource_version.parse().unwrap_or_default()
}

/// The FleetPackage.
pub(super) fn fleet_package(stale_after: Seconds) -> LazyObject {
    let id = package(PACKAGE);
    serde_json::from_value(json!({
        "apiVersion": "statusbridge.dev/v1alpha1",
        "kind": "FleetPackage",
        "metadata": {"namespace": "fleet", "name": PACKAGE, "resourceVersion": "1", "generation": 1},
        "spec": {
            "package": {"source": id.source, "namespace": id.namespace, "name": id.name},
            "staleAfter": format!("{stale_after}s"),
        },
    }))
    .expect("a FleetPackage")
}
