//! The gates as they stand in the hub, and what their FleetPackages were delivered, for readers other than the main loop.
//!
//! ```text
//!   controller --gate, package, closing--> GateCache <--answer-- /v1alpha1/gates, statusbridge_gate_…
//!   heartbeat  --landed------------------>   │
//!   whoever takes the hub away --silence-->  │  whether this process speaks for the hub at all
//! ```

mod deliveries;
mod gate_series;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use statusbridge_api::fleet_package::HistoryEntry;
use statusbridge_api::{FleetPackageStatus, PackageRef};
use statusbridge_contract::Fingerprint;
use statusbridge_core::decide::time;
use statusbridge_core::reconcile::gate_verdict::{self, Gate, GateVerdict, Question, Wish};
use statusbridge_core::reconcile::object::{GateObject, Key, Kind, PackageObject};
use statusbridge_core::time::Seconds;
use tracing::{info, warn};

use crate::clock;

use deliveries::Deliveries;
use gate_series::GateSample;

/// The gates, and whether this process may speak of them.
pub struct GateCache {
    inner: Mutex<Inner>,
    patience: Duration,
    /// Whether whoever asks for a gate is authorized first.
    authorized: bool,
    hides_gates: AtomicBool,
}

/// Why gates are hidden.
pub(crate) const NOT_AUTHORIZED: &str = "the configuration has tenants, and nobody is asked who may see which gate: \
                                         start the aggregator with --authorize-scrapes";

/// Whether this process speaks for the hub.
#[derive(Debug, Clone)]
enum Voice {
    /// Everything that had to be closed was closed, and the hub confirmed it, at this moment.
    Spoke(Instant),
    /// It does not, and why.
    Silent(String),
}

struct Inner {
    voice: Voice,
    gates: BTreeMap<Key, Gate>,
    packages: BTreeMap<Key, Package>,
    deliveries: Deliveries,
    closing: BTreeSet<Key>,
}

/// What of a FleetPackage matters to its gates.
struct Package {
    package: PackageRef,
    stale_after: Option<Seconds>,
}

/// What the board answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// There is such a gate.
    Known(Box<GateVerdict>),
    /// There is none.
    Unknown,
    /// This process cannot say, and why.
    Silent(String),
}

impl GateCache {
    /// A board that says nothing before [`GateCache::spoke`] was called, and nothing any more once that
    /// was longer ago than `patience`.
    pub fn new(patience: Duration) -> Arc<Self> {
        Self::authorized(patience, false)
    }

    /// The same; `authorized` says whether whoever asks for a gate is authorized first.
    pub fn authorized(patience: Duration, authorized: bool) -> Arc<Self> {
        let (inner, hides_gates) = (Mutex::new(Inner::new()), AtomicBool::new(false));
        Arc::new(Self { inner, patience, authorized, hides_gates })
    }

    /// A board with one gate and one FleetPackage, all of whose labels are `any`: for the reference of metrics.
    pub fn with_every_series(any: &str) -> Arc<Self> {
        let board = Self::new(Duration::ZERO);
        let key = Key { namespace: any.to_owned(), name: any.to_owned() };
        let package =
            PackageRef { source: any.to_owned(), namespace: Some(any.to_owned()), name: any.to_owned() };
        let wish = Wish { revision: any.to_owned(), package: any.to_owned(), word: None };
        let gate =
            Gate { kind: Kind::RolloutGate, key: key.clone(), generation: 1, spec: Ok(wish), status: None };
        let mut inner = board.inner();
        let wanted = HistoryEntry {
            revision: any.to_owned(),
            started_at: time(0.0),
            applied_at: None,
            healthy_at: None,
            failed_at: None,
            restored_at: None,
        };
        let status = FleetPackageStatus { history: vec![wanted], ..FleetPackageStatus::default() };
        inner.deliveries.see(&key, any, Some(&status));
        inner.packages.insert(key.clone(), Package { package, stale_after: None });
        inner.gates.insert(key, gate);
        drop(inner);
        board
    }

    /// Hides gates where there are tenants, unless whoever asks is authorized first.
    pub fn has_tenants(&self, tenants: bool) {
        let hides = tenants && !self.authorized;
        if hides != self.hides_gates.swap(hides, Ordering::Relaxed) {
            if hides {
                warn!("gates are not shown by name: {NOT_AUTHORIZED}");
            } else {
                info!("gates are shown by name again: the configuration has no tenants");
            }
        }
    }

    /// Whether nobody may see gates by name.
    pub(crate) fn hides_gates(&self) -> bool {
        self.hides_gates.load(Ordering::Relaxed)
    }

    /// Forgets everything: whoever fills the board begins anew, and knows nothing yet.
    pub fn begin(&self) {
        *self.inner() = Inner::new();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At this moment everything that had to be closed was closed, but for what is told to [`GateCache::closing`], and the
    /// hub has confirmed it since: the same that the heartbeat says.
    pub fn spoke(&self, at: Instant) {
        self.inner().voice = Voice::Spoke(at);
    }

    /// From now on this process does not speak for the hub; `why` is told to whoever asks.
    pub fn silence(&self, why: impl Into<String>) {
        self.inner().voice = Voice::Silent(why.into());
    }

    /// A gate as it stands in the hub, or that it is gone.
    pub fn gate(&self, key: &Key, gate: Option<&GateObject>) {
        let mut inner = self.inner();
        match gate {
            Some(gate) => drop(inner.gates.insert(key.clone(), gate.into())),
            None => drop(inner.gates.remove(key)),
        }
    }

    /// A FleetPackage as it stands in the hub, or that it is gone.
    pub fn package(&self, key: &Key, package: Option<&PackageObject>) {
        let spec = package.and_then(|package| package.spec.as_deref().ok());
        let mut inner = self.inner();
        match package {
            Some(package) => inner.deliveries.see(key, &package.uid, package.status.as_ref()),
            None => inner.deliveries.forget(key),
        }
        match spec {
            Some(spec) => {
                let (package, stale_after) = (spec.package.clone(), gate_verdict::stale_after(spec));
                drop(inner.packages.insert(key.clone(), Package { package, stale_after }));
            }
            None => drop(inner.packages.remove(key)),
        }
    }

    /// Gates that are known to have to close, while the hub does not know it yet.
    pub fn closing(&self, gates: &BTreeSet<Key>) {
        let mut inner = self.inner();
        if inner.closing != *gates {
            inner.closing.clone_from(gates);
        }
    }

    /// Why this process does not speak for the hub at this moment, if it does not.
    pub(crate) fn silent(&self, at: Instant) -> Option<String> {
        self.inner().silent(self.patience, at)
    }

    /// What is to be said of a gate, for a revision or for whichever it is for. `now` is the wall
    /// clock, `at` the same moment for what this process itself has done.
    pub fn answer(&self, key: &Key, revision: Option<Fingerprint>, now: Seconds, at: Instant) -> Answer {
        let inner = self.inner();
        if let Some(why) = inner.silent(self.patience, at) {
            return Answer::Silent(why);
        }
        match inner.gates.get(key) {
            Some(gate) => Answer::Known(Box::new(inner.read(gate, revision, now))),
            None => Answer::Unknown,
        }
    }
}

impl Inner {
    fn new() -> Self {
        Self {
            voice: Voice::Silent("this aggregator has not judged anything yet".to_owned()),
            gates: BTreeMap::new(),
            packages: BTreeMap::new(),
            deliveries: Deliveries::default(),
            closing: BTreeSet::new(),
        }
    }

    /// The one place that decides whether this process speaks for the hub: why it does not.
    fn silent(&self, patience: Duration, at: Instant) -> Option<String> {
        match &self.voice {
            Voice::Silent(why) => Some(why.clone()),
            Voice::Spoke(spoke) if at.saturating_duration_since(*spoke) > patience => Some(format!(
                "this aggregator has not been able to judge all gates and tell the hub for {} s",
                at.saturating_duration_since(*spoke).as_secs()
            )),
            Voice::Spoke(_) => None,
        }
    }

    fn package_of(&self, gate: &Gate) -> Option<&Package> {
        let wish = gate.spec.as_ref().ok()?;
        self.packages.get(&gate.key.beside(&wish.package))
    }

    fn read(&self, gate: &Gate, revision: Option<Fingerprint>, now: Seconds) -> GateVerdict {
        let stale_after = self.package_of(gate).and_then(|package| package.stale_after);
        let question = Question { revision, stale_after, slack: 0.0, now };
        gate_verdict::present(gate, &question, self.closing.contains(&gate.key))
    }
}

impl fmt::Debug for GateCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateCache").field("patience", &self.patience).finish_non_exhaustive()
    }
}

/// The same series for each gate and FleetPackage that this process knows of. While it cannot say how a gate is, they are
/// 0 rather than left out: a newer sample replaces an older one wherever it was sent, a missing one does not. Deliveries
/// that were counted stay counted.
impl Collector for GateCache {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (now, at) = (clock::now(), Instant::now());
        let inner = self.inner();
        if self.hides_gates() {
            return Ok(());
        }
        inner.deliveries.encode(&mut encoder)?;
        if inner.gates.is_empty() {
            return Ok(());
        }
        let speaks = inner.silent(self.patience, at).is_none();
        let samples = inner.gates.iter().map(|(key, gate)| GateSample {
            key,
            fleet_package: gate.spec.as_ref().ok().map(|wish| wish.package.as_str()),
            package: inner.package_of(gate).map(|it| &it.package),
            verdict: speaks.then(|| inner.read(gate, None, now)),
        });
        let samples: Vec<_> = samples.collect();
        gate_series::encode(&mut encoder, &samples)
    }
}
