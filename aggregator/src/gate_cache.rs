//! The gates as they stand in the hub, for readers other than the main loop.
//!
//! ```text
//!   controller --gate, package, closing--> GateCache <--answer-- /v1alpha1/gates, statusbridge_gate_open
//!   heartbeat  --landed------------------>   │
//!   whoever takes the hub away --silence-->  │  whether this process speaks for the hub at all
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::gate_verdict::{self, Gate, GateVerdict, Question};
use statusbridge_core::reconcile::store::{GateObject, Key, PackageObject};
use statusbridge_core::time::Seconds;
use tracing::{info, warn};

use crate::clock;

/// Name of the metric.
pub const METRIC: &str = "statusbridge_gate_open";

/// Its labels.
pub const LABELS: [&str; 2] = ["gate_namespace", "gate"];

/// What the metric says.
pub const HELP: &str = "Fingerprint of the revision that the rollout gate is open for; 0 while it is closed or this process cannot say";

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
    stale_after: BTreeMap<Key, Seconds>,
    closing: BTreeSet<Key>,
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
        let spec = package.and_then(|package| package.spec.as_ref().ok());
        let mut inner = self.inner();
        match spec.and_then(gate_verdict::stale_after) {
            Some(seconds) => drop(inner.stale_after.insert(key.clone(), seconds)),
            None => drop(inner.stale_after.remove(key)),
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
            stale_after: BTreeMap::new(),
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

    fn read(&self, gate: &Gate, revision: Option<Fingerprint>, now: Seconds) -> GateVerdict {
        let package = gate.spec.as_ref().ok().map(|wish| gate.key.beside(&wish.package));
        let stale_after = package.and_then(|package| self.stale_after.get(&package).copied());
        let question = Question { revision, stale_after, slack: 0.0, now };
        gate_verdict::present(gate, &question, self.closing.contains(&gate.key))
    }
}

impl fmt::Debug for GateCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateCache").field("patience", &self.patience).finish_non_exhaustive()
    }
}

/// One series for each gate that this process knows of. While it cannot say, they are 0 rather than
/// left out: a newer sample replaces an older one wherever it was sent, a missing one does not.
impl Collector for GateCache {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (now, at) = (clock::now(), Instant::now());
        let inner = self.inner();
        if inner.gates.is_empty() || self.hides_gates() {
            return Ok(());
        }
        let silent = inner.silent(self.patience, at).is_some();
        let mut family = encoder.encode_descriptor(METRIC, HELP, None, MetricType::Gauge)?;
        for (key, gate) in &inner.gates {
            let value = if silent { 0 } else { inner.read(gate, None, now).open_for() };
            let [namespace, gate_label] = LABELS;
            let labels = [(namespace, key.namespace.as_str()), (gate_label, key.name.as_str())];
            let gauge = prometheus_client::metrics::gauge::ConstGauge::new(i64::try_from(value).unwrap_or(0));
            gauge.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
