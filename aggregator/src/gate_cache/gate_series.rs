//! What `/metrics` says of each gate: the same number of series for each, whatever revisions it goes through. Of gates
//! past a budget it only says whether they are open: whoever makes gates must not make the page any size.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use statusbridge_api::rollout_gate::GateCounts;
use statusbridge_api::{PackageRef, Reason};
use statusbridge_contract::{Fingerprint, reason};
use statusbridge_core::reconcile::gate_verdict::{GateVerdict, State};
use statusbridge_core::reconcile::object::Key;

/// Bytes of all samples but those of the first metric, of all gates together: room for 1,500 gates with names of 20 letters.
const BUDGET: usize = 2 << 20;

/// Samples of a gate besides the first.
const DETAILS: usize = 15;

/// Bytes of a sample besides the gate's names, about.
const SAMPLE: usize = 80;

/// A metric with one sample for each gate; 0 stands for what this process cannot say.
type PerGate = (&'static str, &'static str, fn(&GateVerdict) -> u64);

const PER_GATE: [PerGate; 5] = [
    (
        "statusbridge_gate_open",
        "Fingerprint of the revision that the rollout gate is open for; 0 while it is closed or this process cannot say",
        GateVerdict::open_for,
    ),
    (
        "statusbridge_gate_state",
        "Where the rollout gate stands: 1 open, 2 waiting, 3 not judged yet, 4 closed because its evidence is too old, 5 stalled; 0 while this process cannot say",
        |verdict| match verdict.state {
            State::Open => 1,
            State::Waiting => 2,
            State::NotJudged => 3,
            State::Stale => 4,
            State::Stalled => 5,
            // Nobody asks for a revision here.
            State::OtherRevision => 0,
        },
    ),
    (
        "statusbridge_gate_reason",
        "Code of the reason why the rollout gate is open or closed, see statusbridge_gate_reason_info; 0 while this process cannot say",
        |verdict| reason::code(&verdict.reason),
    ),
    (
        "statusbridge_gate_target_revision",
        "Fingerprint of the revision that the rollout gate is for, open or not; 0 while this process cannot say",
        |verdict| verdict.revision.as_deref().map_or(0, |revision| Fingerprint::of(revision).value()),
    ),
    (
        "statusbridge_gate_since_timestamp_seconds",
        "When the rollout gate last opened or closed; 0 while it is not judged or this process cannot say",
        |verdict| {
            let since = verdict.since.as_ref().filter(|_| is_judged(verdict));
            since.and_then(|since| u64::try_from(since.0.as_second()).ok()).unwrap_or(0)
        },
    ),
];

/// A gate and what is to be said of it.
pub(super) struct GateSample<'a> {
    /// The gate.
    pub(super) key: &'a Key,
    /// Name of its FleetPackage, if its spec can be read.
    pub(super) fleet_package: Option<&'a str>,
    /// What that FleetPackage is about, if there is one.
    pub(super) package: Option<&'a PackageRef>,
    /// None while this process cannot say.
    pub(super) verdict: Option<GateVerdict>,
}

/// Writes the samples of all gates, and the dictionary of their reasons.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, gates: &[GateSample<'_>]) -> fmt::Result {
    let detailed = detailed(gates);
    for (place, (name, help, value)) in PER_GATE.into_iter().enumerate() {
        let shown = if place == 0 { gates } else { detailed };
        let values = shown.iter().map(|gate| (gate.labels(), gate.verdict.as_ref().map_or(0, value)));
        family(encoder, name, help, values)?;
    }
    let by_state = detailed.iter().flat_map(|gate| {
        let counts = gate.verdict.as_ref().filter(|it| is_judged(it)).and_then(|it| it.clusters);
        clusters(&counts.unwrap_or_default())
            .map(|(state, count)| ([gate.labels().as_slice(), &[("state", state)]].concat(), count))
    });
    let help = "Clusters of the rollout gate by state, each in one; 0 while it is not judged or this process cannot say";
    family(encoder, "statusbridge_gate_clusters", help, by_state)?;
    let info = detailed.iter().map(|gate| {
        let package = gate.package;
        let own = [
            ("fleet_package", gate.fleet_package.unwrap_or_default()),
            ("package_source", package.map_or("", |it| &it.source)),
            ("package_namespace", package.and_then(|it| it.namespace.as_deref()).unwrap_or_default()),
            ("package", package.map_or("", |it| &it.name)),
        ];
        ([gate.labels().as_slice(), &own].concat(), 1)
    });
    let help = "Always 1: which FleetPackage the rollout gate refers to, and which package that is about";
    family(encoder, "statusbridge_gate_info", help, info)?;
    let dictionary = Reason::ALL.iter().map(|it| (reason::code(it.name()).to_string(), it.name()));
    let dictionary: Vec<_> = dictionary.collect();
    let dictionary =
        dictionary.iter().map(|(code, reason)| ([("code", code.as_str()), ("reason", *reason)], 1));
    let help = "Always 1: which code in statusbridge_gate_reason stands for which reason";
    family(encoder, "statusbridge_gate_reason_info", help, dictionary)
}

impl<'a> GateSample<'a> {
    fn labels(&self) -> [(&'static str, &'a str); 2] {
        [("gate_namespace", &self.key.namespace), ("gate", &self.key.name)]
    }

    /// Bytes of its details, about.
    fn size(&self) -> usize {
        let package = self
            .package
            .map_or(0, |it| it.source.len() + it.name.len() + it.namespace.as_ref().map_or(0, String::len));
        let names = self.key.namespace.len() + self.key.name.len();
        DETAILS * (SAMPLE + names) + self.fleet_package.map_or(0, str::len) + package
    }
}

/// The gates that there is room for, in order.
fn detailed<'a, 'b>(gates: &'a [GateSample<'b>]) -> &'a [GateSample<'b>] {
    let sizes = gates.iter().scan(0, |sum, gate| {
        *sum += gate.size();
        Some(*sum)
    });
    let room = sizes.take_while(|sum| *sum <= BUDGET).count();
    gates.get(..room).unwrap_or(gates)
}

/// Whether what the status counts was counted for the present spec, on evidence that is young enough.
fn is_judged(verdict: &GateVerdict) -> bool {
    matches!(verdict.state, State::Open | State::Waiting | State::Stalled)
}

/// How many clusters are in which state. Each is in one: the sum is the number of targets, those included that are excused.
fn clusters(counts: &GateCounts) -> [(&'static str, u64); 10] {
    [
        ("healthy", counts.healthy),
        ("soaking", counts.soaking),
        ("progressing", counts.progressing.saturating_sub(counts.soaking)),
        ("failed", counts.failed),
        ("superseded", counts.superseded),
        ("stale", counts.stale),
        ("missing", counts.missing),
        ("unverified", counts.unverified),
        ("conflicting", counts.conflicting),
        ("excused", counts.excused),
    ]
}

fn family<'a, L: AsRef<[(&'static str, &'a str)]>>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        gauge.encode(family.encode_family(&labels.as_ref())?)?;
    }
    Ok(())
}
