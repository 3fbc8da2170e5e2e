//! The aggregator's own metrics. No label names a cluster, a package or a gate, but for gates that have to be closed and
//! cannot be, and those that the gate cache shows: how many other series there are does not depend on what is watched. What is said of them here is what
//! docs/metrics.md says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use statusbridge_core::reconcile::object::{Key, Kind};
use statusbridge_core::time::Seconds;
use statusbridge_serving::metrics::ServerMetrics;

use crate::gate_cache::GateCache;

/// Name and value of a label.
type Label = (&'static str, &'static str);

/// Series of a metric by one label.
type By<M> = Family<[Label; 1], M>;

/// Most gates that could not be closed and are named.
const MOST_UNCLOSED: usize = 500;

/// What a poll came to, for counting.
#[derive(Debug, Clone, Copy, Default)]
pub struct Poll {
    /// Whether every query was answered.
    pub ok: bool,
    /// Samples received.
    pub samples: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Streams whose samples were read again.
    pub reread: usize,
}

/// How a call ended.
const fn outcome(ok: bool) -> [Label; 1] {
    [("result", if ok { "success" } else { "failure" })]
}

/// An enum whose variants are all values of a label.
macro_rules! label_values {
    ($(#[$about:meta])+ $type:ident { $($(#[$doc:meta])+ $variant:ident = $name:literal,)+ }) => {
        $(#[$about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$doc])+ $variant,)+
        }

        impl $type {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

label_values! {
    /// What became of a status write.
    WriteResult {
        /// Accepted.
        Done = "done",
        /// The object had changed; decided again.
        Conflict = "conflict",
        /// The object was gone.
        Gone = "gone",
        /// Not sent, because another replica may lead before it is answered, or what was decided is old by now.
        Fenced = "fenced",
        /// Refused or not answered.
        Error = "error",
    }
}

label_values! {
    /// What became of a push.
    PushResult {
        /// It adds up.
        Verified = "verified",
        /// It does not add up, or cannot be used for another reason.
        Unverified = "unverified",
        /// What is known is younger.
        Old = "old",
        /// The token is not known.
        Unauthorized = "unauthorized",
        /// It is no exposition, or came in another way than it should.
        Malformed = "malformed",
        /// It is too large.
        TooLarge = "too_large",
        /// It did not come in time.
        Slow = "slow",
        /// There was no room for it.
        Busy = "busy",
        /// Pushes with the same token were refused before.
        Slowed = "slowed",
        /// This replica does not lead.
        Standby = "standby",
    }
}

label_values! {
    /// What became of an Event.
    EventResult {
        /// It was written.
        Written = "written",
        /// Another process had written it, or this one before it was restarted.
        Known = "known",
        /// There was no room for it, or the object had too many.
        Dropped = "dropped",
        /// The hub did not take it.
        Failed = "failed",
    }
}

label_values! {
    /// What became of a message, or of a try to send it.
    MessageResult {
        /// It was sent.
        Sent = "sent",
        /// It is not for this sink: no commit is known, or the FleetPackage is not selected.
        Skipped = "skipped",
        /// It was not taken, and is tried again.
        Retried = "retried",
        /// It was refused, or not taken for an hour, and is given up.
        Failed = "failed",
        /// Too many waited.
        Dropped = "dropped",
    }
}

label_values! {
    /// What a gate is, for counting: each gate is one of these.
    GateState {
        /// Open, by its own merits.
        Open = "open",
        /// Closed, waiting.
        Closed = "closed",
        /// Closed, and only a person or a new spec can change it.
        Stalled = "stalled",
        /// A person's word stands, be it open or closed.
        Overridden = "overridden",
    }
}

label_values! {
    /// How far a FleetRollout is, for counting: each is one of these.
    RolloutState {
        /// Its waves go on, or wait for their gates; or it has not been judged yet.
        RollingOut = "rolling_out",
        /// The revision was rolled out to all waves.
        RolledOut = "rolled_out",
        /// Paused, outside its windows or frozen.
        Held = "held",
        /// The hub does not take what was decided.
        NotWritten = "not_written",
        /// Only a person or a new spec can change it.
        Stalled = "stalled",
    }
}

/// Which ages are shown; the last is the greatest.
const QUANTILES: [(&str, f64); 4] = [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99), ("1", 1.0)];

/// What is said of status writes: the aggregator has them, and the sweeper.
const WRITES: &str = "Status writes to the hub: done; conflict, decided again; gone, the object is no more; fenced, not \
                      sent because the lease might have ended or it was decided long ago; error";

/// What is said of Events: the aggregator has them, and the sweeper.
const EVENTS: &str = "Events of verdicts that have changed: written; known, it was written before a restart or by another replica; \
                      dropped, as too many waited or the object has changed too often; failed, as the hub did not take it";

/// How long polls take, in seconds.
#[derive(Debug)]
struct PollSeconds(Histogram);

impl Default for PollSeconds {
    fn default() -> Self {
        Self(Histogram::new(exponential_buckets(0.01, 2.0, 14)))
    }
}

/// Everything that `/metrics` shows.
#[derive(Debug, Default)]
pub struct Metrics {
    registry: Registry,
    /// Those of the server.
    pub server: ServerMetrics,
    polls: By<Counter>,
    poll_seconds: PollSeconds,
    samples: Counter,
    bytes: Counter,
    reread: Counter,
    streams: By<Gauge>,
    writes: Family<[Label; 2], Counter>,
    heartbeats: By<Counter>,
    gates: By<Gauge>,
    rollouts: By<Gauge>,
    unclosed: Family<[(&'static str, String); 2], Gauge>,
    foreign: By<Counter>,
    queue: Gauge,
    newest_evidence: Gauge<f64, AtomicU64>,
    clusters: Gauge,
    ages: By<Gauge<f64, AtomicU64>>,
    invalid: By<Gauge>,
    leader: Gauge,
    stands_back: Gauge,
    renewals: By<Counter>,
    sweeps: By<Counter>,
    discovered: By<Gauge>,
    scrapes: By<Counter>,
    pushes: By<Counter>,
    events: By<Counter>,
    messages: Family<[(&'static str, String); 2], Counter>,
    messages_waiting: Family<[(&'static str, String); 1], Gauge>,
}

impl Metrics {
    /// The aggregator's metrics.
    pub fn aggregator() -> Self {
        let (mut registry, it) = (Registry::default(), Self::default());
        let own = registry.sub_registry_with_prefix("statusbridge_aggregator");
        own.register("polls", "Polls of the metrics backend", it.polls.clone());
        own.register("poll_duration_seconds", "How long polls took", it.poll_seconds.0.clone());
        own.register("poll_samples", "Samples received from the metrics backend", it.samples.clone());
        own.register("poll_bytes", "Bytes received from the metrics backend", it.bytes.clone());
        own.register("streams_reread", "Streams that did not add up and were read again", it.reread.clone());
        own.register("streams", "Streams at the last good poll, by whether they add up", it.streams.clone());
        own.register("hub_writes", WRITES, it.writes.clone());
        own.register("heartbeats", "Renewals of the heartbeat", it.heartbeats.clone());
        own.register("gates", "Rollout gates by state; an overridden one may be closed", it.gates.clone());
        own.register(
            "rollouts",
            "FleetRollouts by state: rolling_out; rolled_out, as far as the plan goes; held, paused, outside its windows or frozen; \
             not_written, as the hub does not take what was decided; stalled, until a person changes it",
            it.rollouts.clone(),
        );
        own.register(
            "unclosed_gate",
            "1 for each gate that is open in the hub, has to be closed and could not be; the first 500",
            it.unclosed.clone(),
        );
        own.register(
            "foreign_statuses",
            "Statuses that somebody else wrote, be it the sweeper, and that were written anew",
            it.foreign.clone(),
        );
        own.register("pending_writes", "Status writes that wait for --writes-per-second", it.queue.clone());
        own.register(
            "newest_evidence_timestamp_seconds",
            "Time of the newest verified evidence of any cluster, 0 when there is none",
            it.newest_evidence.clone(),
        );
        own.register(
            "discovered_packages",
            "Packages with --discover-into: discovered ones have a FleetPackage, those left out have none",
            it.discovered.clone(),
        );
        own.register("clusters", "Clusters of which something was verified", it.clusters.clone());
        own.register(
            "evidence_age_seconds",
            "Age of the newest verified evidence of a cluster, as quantiles over all clusters, of which 1 is the oldest; NaN without clusters",
            it.ages.clone(),
        );
        own.register("invalid_objects", "Objects whose spec is invalid (InvalidSpec)", it.invalid.clone());
        own.register("is_leader", "Whether this process leads: 1 or 0", it.leader.clone());
        own.register(
            "stands_back",
            "Whether this process stands back because another installation serves the hub: 1 or 0",
            it.stands_back.clone(),
        );
        own.register("scrapes", "Scrapes of exporters by the aggregator itself", it.scrapes.clone());
        own.register("pushes", "Expositions that exporters pushed, by outcome", it.pushes.clone());
        own.register("lease_renewals", "Renewals of the leader's lease", it.renewals.clone());
        own.register("events", EVENTS, it.events.clone());
        own.register(
            "messages",
            "Messages to the sinks of `notify`: sent; skipped, as no commit is known or the FleetPackage is not selected; \
             retried, not taken and tried again; failed, given up; dropped, as too many waited",
            it.messages.clone(),
        );
        own.register("messages_waiting", "Messages that wait for a sink", it.messages_waiting.clone());
        it.serves(own);
        it.begin_events();
        for outcomes in [&it.polls, &it.heartbeats, &it.renewals, &it.scrapes] {
            begin(outcomes);
        }
        for result in PushResult::ALL {
            drop(it.pushes.get_or_create(&[("result", result.name())]));
        }
        for kind in [
            Kind::FleetPackage,
            Kind::FleetPackageSlice,
            Kind::FleetRollout,
            Kind::FleetRolloutSlice,
            Kind::RolloutGate,
        ] {
            it.count_writes(kind);
        }
        for kind in [Kind::FleetPackage, Kind::FleetRollout, Kind::RolloutGate] {
            it.foreign(kind, 0);
        }
        it.stand_by();
        Self { registry, ..it }
    }

    /// The same, and the series of each gate on the board.
    #[must_use]
    pub fn with_gates(mut self, board: Option<Arc<GateCache>>) -> Self {
        if let Some(board) = board {
            self.registry.register_collector(Box::new(board));
        }
        self
    }

    fn serves(&self, registry: &mut Registry) {
        self.server.register(registry, "");
        self.server.begin();
    }

    fn begin_events(&self) {
        for result in EventResult::ALL {
            drop(self.events.get_or_create(&[("result", result.name())]));
        }
    }

    /// An Event was written, or not.
    pub(crate) fn event(&self, result: EventResult) {
        self.events.get_or_create(&[("result", result.name())]).inc();
    }

    /// These are the sinks of messages from now on.
    pub fn sinks<'a>(&self, sinks: impl Iterator<Item = &'a str>) {
        self.messages_waiting.clear();
        for sink in sinks {
            self.messages_waiting(sink, 0);
            for result in MessageResult::ALL {
                drop(
                    self.messages
                        .get_or_create(&[("sink", sink.to_owned()), ("result", result.name().to_owned())]),
                );
            }
        }
    }

    /// A message, or a try to send it, came to this.
    pub(crate) fn message(&self, sink: &str, result: MessageResult) {
        self.messages.get_or_create(&[("sink", sink.to_owned()), ("result", result.name().to_owned())]).inc();
    }

    /// So many messages wait for a sink.
    pub(crate) fn messages_waiting(&self, sink: &str, count: usize) {
        self.messages_waiting.get_or_create(&[("sink", sink.to_owned())]).set(whole(count));
    }

    /// Forgets what only a leader knows.
    fn stand_by(&self) {
        self.found(0, 0, None);
        self.gates([]);
        self.rollouts([]);
        self.unclosed(&BTreeSet::new());
        self.queued(0);
        self.ages(Vec::new());
        self.discovered(0, 0);
        self.messages_waiting.clear();
        for kind in [Kind::FleetPackage, Kind::FleetRollout, Kind::RolloutGate] {
            self.invalid(kind, 0);
        }
    }

    /// So that a result that never came up reads 0.
    fn count_writes(&self, kind: Kind) {
        for result in WriteResult::ALL {
            drop(self.writes.get_or_create(&[("kind", kind.name()), ("result", result.name())]));
        }
    }

    /// The sweeper's metrics.
    pub fn sweeper() -> Self {
        let (mut registry, it) = (Registry::default(), Self::default());
        let own = registry.sub_registry_with_prefix("statusbridge_sweeper");
        own.register("hub_writes", WRITES, it.writes.clone());
        own.register(
            "sweeps",
            "Rounds in which the sweeper looked for open gates; a success when all was closed that had to be",
            it.sweeps.clone(),
        );
        own.register("events", EVENTS, it.events.clone());
        it.serves(own);
        it.begin_events();
        begin(&it.sweeps);
        it.count_writes(Kind::RolloutGate);
        Self { registry, ..it }
    }

    /// A poll ended after so many seconds.
    pub fn polled(&self, polled: Poll, seconds: f64) {
        self.polls.get_or_create(&outcome(polled.ok)).inc();
        self.samples.inc_by(polled.samples);
        self.bytes.inc_by(polled.bytes);
        self.reread.inc_by(polled.reread as u64);
        self.poll_seconds.0.observe(seconds);
    }

    /// What the last good poll found.
    pub fn found(&self, verified: usize, unverified: usize, newest_evidence: Option<f64>) {
        set_states(&self.streams, [("verified", verified), ("unverified", unverified)]);
        self.newest_evidence.set(newest_evidence.unwrap_or(0.0));
    }

    /// An exporter was scraped, or could not be.
    pub fn scraped(&self, ok: bool) {
        self.scrapes.get_or_create(&outcome(ok)).inc();
    }

    /// An exporter pushed.
    pub fn pushed(&self, result: PushResult) {
        self.pushes.get_or_create(&[("result", result.name())]).inc();
    }

    /// How many packages discovery has made a FleetPackage for, and for how many it did not.
    pub fn discovered(&self, discovered: usize, left_out: usize) {
        set_states(&self.discovered, [("discovered", discovered), ("left_out", left_out)]);
    }

    /// A status write ended.
    pub fn wrote(&self, kind: Kind, result: WriteResult) {
        self.writes.get_or_create(&[("kind", kind.name()), ("result", result.name())]).inc();
    }

    /// A heartbeat was or was not renewed.
    pub(crate) fn beat(&self, ok: bool) {
        self.heartbeats.get_or_create(&outcome(ok)).inc();
    }

    /// What all gates are.
    pub fn gates(&self, states: impl IntoIterator<Item = GateState>) {
        let counts: [_; GateState::ALL.len()] = count(states.into_iter().map(|state| state as usize));
        set_states(&self.gates, GateState::ALL.iter().map(|state| state.name()).zip(counts));
    }

    /// How far all FleetRollouts are.
    pub fn rollouts(&self, states: impl IntoIterator<Item = RolloutState>) {
        let counts: [_; RolloutState::ALL.len()] = count(states.into_iter().map(|state| state as usize));
        set_states(&self.rollouts, RolloutState::ALL.iter().map(|state| state.name()).zip(counts));
    }

    /// Somebody else wrote so many statuses of this kind.
    pub fn foreign(&self, kind: Kind, count: u64) {
        self.foreign.get_or_create(&[("kind", kind.name())]).inc_by(count);
    }

    /// Which gates have to be closed and could not be.
    pub fn unclosed(&self, gates: &BTreeSet<Key>) {
        self.unclosed.clear();
        for Key { namespace, name } in gates.iter().take(MOST_UNCLOSED) {
            let labels = [("gate_namespace", namespace.clone()), ("gate", name.clone())];
            self.unclosed.get_or_create(&labels).set(1);
        }
    }

    /// How many objects of a kind cannot be judged.
    pub fn invalid(&self, kind: Kind, count: usize) {
        self.invalid.get_or_create(&[("kind", kind.name())]).set(whole(count));
    }

    /// How old what is known of each cluster is. Without clusters there are no quantiles.
    pub fn ages(&self, mut ages: Vec<Seconds>) {
        ages.sort_by(Seconds::total_cmp);
        self.clusters.set(whole(ages.len()));
        for (quantile, share) in QUANTILES {
            let age = nearest_rank(&ages, share).unwrap_or(f64::NAN);
            self.ages.get_or_create(&[("quantile", quantile)]).set(age);
        }
    }

    /// This process leads, or stands by.
    pub fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
        if !leads {
            self.stand_by();
        }
    }

    /// This process stands back, because another installation serves the hub.
    pub fn stands_back(&self, back: bool) {
        self.stands_back.set(back.into());
    }

    /// The leader's lease was or was not renewed.
    pub fn renewed(&self, ok: bool) {
        self.renewals.get_or_create(&outcome(ok)).inc();
    }

    /// How many writes wait.
    pub(crate) fn queued(&self, count: usize) {
        self.queue.set(whole(count));
    }

    /// A round of the sweeper ended.
    pub fn swept(&self, ok: bool) {
        self.sweeps.get_or_create(&outcome(ok)).inc();
    }

    /// All of it as OpenMetrics text.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut body = String::new();
        text::encode(&mut body, &self.registry)?;
        Ok(body)
    }
}

/// So that an outcome that never came up reads 0.
fn begin(outcomes: &By<Counter>) {
    for ok in [true, false] {
        drop(outcomes.get_or_create(&outcome(ok)));
    }
}

/// How often each number comes.
fn count<const N: usize>(numbers: impl Iterator<Item = usize>) -> [usize; N] {
    let mut counts = [0; N];
    for number in numbers {
        if let Some(count) = counts.get_mut(number) {
            *count += 1;
        }
    }
    counts
}

/// Says how many are in each state.
fn set_states(gauges: &By<Gauge>, counts: impl IntoIterator<Item = (&'static str, usize)>) {
    for (state, count) in counts {
        gauges.get_or_create(&[("state", state)]).set(whole(count));
    }
}

/// A count as a gauge takes it.
fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The smallest value that is not exceeded by this share of all.
fn nearest_rank(sorted: &[Seconds], share: f64) -> Option<Seconds> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn there_are_always_the_same_series() {
        let series = |metrics: &Metrics| -> BTreeMap<String, String> {
            let text = metrics.render().unwrap();
            let samples = text.lines().filter(|line| !line.starts_with('#'));
            samples.filter_map(|line| line.rsplit_once(' ')).map(|(n, v)| (n.into(), v.into())).collect()
        };
        let metrics = Metrics::aggregator();
        let fresh = series(&metrics);
        metrics.leads(true);
        metrics.polled(Poll { ok: true, samples: 7, ..Poll::default() }, 0.5);
        metrics.found(2, 1, Some(5.0));
        metrics.ages(vec![3.0, 1.0, 2.0]);
        metrics.gates([GateState::Open, GateState::Stalled, GateState::Open]);
        metrics.rollouts([RolloutState::RolledOut, RolloutState::Stalled, RolloutState::RolledOut]);
        metrics.invalid(Kind::RolloutGate, 1);
        metrics.invalid(Kind::FleetRollout, 2);
        metrics.queued(9);
        metrics.beat(true);
        metrics.renewed(false);
        for kind in [Kind::FleetPackage, Kind::RolloutGate] {
            WriteResult::ALL.iter().for_each(|result| metrics.wrote(kind, *result));
        }
        let later = series(&metrics);
        assert!(fresh.keys().eq(later.keys()), "{fresh:?}\n{later:?}");
        for (name, value) in [
            ("gates{state=\"open\"}", "2"),
            ("gates{state=\"closed\"}", "0"),
            ("gates{state=\"stalled\"}", "1"),
            ("rollouts{state=\"rolled_out\"}", "2"),
            ("rollouts{state=\"rolling_out\"}", "0"),
            ("invalid_objects{kind=\"FleetRollout\"}", "2"),
            ("evidence_age_seconds{quantile=\"0.5\"}", "2.0"),
            ("evidence_age_seconds{quantile=\"1\"}", "3.0"),
            ("clusters", "3"),
            ("is_leader", "1"),
            ("hub_writes_total{kind=\"RolloutGate\",result=\"fenced\"}", "1"),
        ] {
            assert_eq!(later[&format!("statusbridge_aggregator_{name}")], value, "{name}");
        }
        // What was known as a leader is not shown as if it were still so.
        metrics.leads(false);
        let standing_by = series(&metrics);
        assert_eq!(standing_by["statusbridge_aggregator_gates{state=\"open\"}"], "0");
        assert_eq!(standing_by["statusbridge_aggregator_rollouts{state=\"stalled\"}"], "0");
        assert_eq!(standing_by["statusbridge_aggregator_clusters"], "0");
        assert_eq!(standing_by["statusbridge_aggregator_polls_total{result=\"success\"}"], "1");
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let ages: Vec<f64> = (1..=100).map(f64::from).collect();
        let ranks = QUANTILES.map(|(_, share)| nearest_rank(&ages, share));
        assert_eq!(ranks, [Some(50.0), Some(90.0), Some(99.0), Some(100.0)]);
        assert_eq!(nearest_rank(&[4.0], 0.5), Some(4.0));
        assert_eq!(nearest_rank(&[], 1.0), None);
    }
}
