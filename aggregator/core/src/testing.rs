//! Expositions as an exporter would render them, and what surrounds decisions: for the tests of this workspace.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "for tests"
)]

pub mod hub;

use std::collections::BTreeMap;
use std::time::Duration;

use statusbridge_api::PackageRef;
use statusbridge_contract::stream::StreamLabels;
use statusbridge_contract::{CONTRACT_VERSION, Digest, Fingerprint, Metric, label, reason, sample};

use crate::fleet::{DigestSample, Digests, FeedName, Fleet, Heard, StreamId};
use crate::reconcile::feeds::{Failure, Feeds, Planned, Polled};
use crate::reconcile::holds::Holds;
use crate::reconcile::profiles::Settings;
use crate::reconcile::references::{Ledger, ReadObject, Sent, Shelf};
use crate::reconcile::state::{Rules, State};
use crate::sample::Sample;
use crate::time::{Now, Seconds};
use crate::verify::{Attested, Content, Gathered, verify};

/// Own labels and value of one sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub metric: Metric,
    pub own: Vec<(&'static str, String)>,
    pub value: u64,
}

impl Line {
    pub fn hash(&self) -> u64 {
        sample::hash(self.metric.name(), &self.own(), self.value)
    }

    pub fn own(&self) -> Vec<(&'static str, &str)> {
        self.own.iter().map(|(n, v)| (*n, v.as_str())).collect()
    }
}

/// The samples of a package.
pub type Values = Vec<(Metric, u64)>;

/// What one exporter has to say.
#[derive(Debug, Clone, Default)]
pub struct Exposition {
    pub uid: u64,
    pub process: u64,
    pub down: Vec<String>,
    pub sources: Vec<String>,
    pub packages: BTreeMap<PackageRef, Values>,
    /// Packages that run in other clusters, by cluster.
    pub elsewhere: BTreeMap<(String, PackageRef), Values>,
    pub words: Vec<String>,
}

/// A package of the source and namespace that most tests use.
pub fn package(name: &str) -> PackageRef {
    PackageRef { source: "flux".into(), namespace: Some("ns".into()), name: name.into() }
}

/// Applied, Current and healthy at `revision` since `since`.
pub fn healthy(revision: &str, since: u64) -> Values {
    let r = Fingerprint::of(revision).value();
    vec![(Metric::PackageHealthyRevision, r), (Metric::PackageTransitionTimestamp, since)]
}

/// Applied at `revision` and failed since `since`.
pub fn failed(revision: &str, since: u64) -> Values {
    vec![
        (Metric::PackageHealthyRevision, 0),
        (Metric::PackageTransitionTimestamp, since),
        (Metric::PackageHealth, 5),
        (Metric::PackageAppliedRevision, Fingerprint::of(revision).value()),
        (Metric::PackageReason, reason::code("HealthCheckFailed")),
    ]
}

/// What a package that wants `desired` and has `applied` says, as an exporter leaves out what follows.
pub fn said(
    (apply, health): (u64, u64),
    [desired, applied, healthy]: [Fingerprint; 3],
    since: u64,
    reason: u64,
) -> Values {
    let all = [
        (Metric::PackageHealthyRevision, healthy.value(), true),
        (Metric::PackageTransitionTimestamp, since, true),
        (Metric::PackageApplyState, apply, apply > 0),
        (Metric::PackageHealth, health, health > 0),
        (Metric::PackageAppliedRevision, applied.value(), healthy.is_none() && !applied.is_none()),
        (Metric::PackageDesiredRevision, desired.value(), !desired.is_none() && desired != applied),
        (Metric::PackageReason, reason, reason > 0),
    ];
    all.into_iter().filter(|(.., is_said)| *is_said).map(|(metric, value, _)| (metric, value)).collect()
}

impl Exposition {
    pub fn new(uid: u64) -> Self {
        let words = vec!["HealthCheckFailed".to_owned()];
        Self { uid, process: 1, sources: vec!["flux".into()], words, ..Self::default() }
    }

    pub fn with(mut self, name: &str, values: Values) -> Self {
        self.packages.insert(package(name), values);
        self
    }

    pub fn with_in(mut self, cluster: &str, name: &str, values: Values) -> Self {
        self.elsewhere.insert((cluster.to_owned(), package(name)), values);
        self
    }

    /// The same of another process.
    pub fn by(self, process: u64) -> Self {
        Self { process, ..self }
    }

    pub fn down(mut self, source: &str) -> Self {
        self.down.push(source.into());
        self
    }

    /// Every sample of the state.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        let here = self.packages.iter().map(|(id, values)| (None, id, values));
        let elsewhere = self.elsewhere.iter().map(|((cluster, id), values)| (Some(cluster), id, values));
        for (cluster, id, values) in here.chain(elsewhere) {
            let mut own = vec![(label::PACKAGE, id.name.clone()), (label::PACKAGE_SOURCE, id.source.clone())];
            if let Some(namespace) = &id.namespace {
                own.insert(1, (label::PACKAGE_NAMESPACE, namespace.clone()));
            }
            own.extend(cluster.map(|cluster| (label::PACKAGE_CLUSTER, cluster.clone())));
            for (metric, value) in values {
                lines.push(Line { metric: *metric, own: own.clone(), value: *value });
            }
        }
        for source in &self.sources {
            let own = vec![(label::PACKAGE_SOURCE, source.clone())];
            let up = u64::from(!self.down.contains(source));
            let ids = self.packages.keys().chain(self.elsewhere.keys().map(|(_, id)| id));
            let count = ids.filter(|id| id.source == *source).count() as u64;
            lines.push(Line { metric: Metric::SourceUp, own: own.clone(), value: up });
            lines.push(Line { metric: Metric::SourcePackages, own, value: count });
            for word in &self.words {
                let own = vec![
                    (label::CODE, reason::code(word).to_string()),
                    (label::PACKAGE_SOURCE, source.clone()),
                    (label::REASON, word.clone()),
                ];
                lines.push(Line { metric: Metric::ReasonInfo, own, value: 1 });
            }
        }
        lines.push(Line { metric: Metric::ProcessNumber, own: Vec::new(), value: self.process });
        lines
    }

    /// The sum over the state.
    pub fn state(&self) -> Digest {
        self.lines().iter().map(Line::hash).collect()
    }

    pub fn digest(&self, rendered: u64) -> u64 {
        self.state().rendered(rendered).value()
    }

    pub fn attested(&self) -> Attested {
        Attested { state: self.state(), process: self.process }
    }

    pub fn content(&self) -> Content {
        verify(gather(&self.lines()), self.attested()).unwrap()
    }

    /// One scrape of it, right when it was rendered.
    pub fn sample(&self, at: Seconds) -> DigestSample {
        let rendered = at as u64;
        let exposition = crate::fleet::Exposition { digest: self.digest(rendered), rendered };
        DigestSample { at, exposition }
    }

    pub fn stream(&self, labels: &[(&str, &str)]) -> StreamId {
        StreamId {
            labels: stream(labels).into(),
            feed: FeedName::default(),
            uid: Fingerprint::from_value(self.uid),
            process: self.process,
        }
    }
}

/// The text of an exposition that was rendered then.
pub fn text(exposition: &Exposition, rendered: Seconds) -> String {
    let mut text = String::from("# HELP of what is read\n");
    let mut say = |metric: Metric, labels: &[(&str, &str)], value: u64| {
        text += &(sample::canonical(metric.name(), labels, value) + "\n");
    };
    for line in exposition.lines() {
        say(line.metric, &line.own(), line.value);
    }
    let uid = Fingerprint::from_value(exposition.uid).unwrap().to_string();
    let labels = [(label::CONTRACT, CONTRACT_VERSION), (label::CLUSTER_UID, uid.as_str())];
    say(Metric::Digest, &labels, exposition.digest(rendered as u64));
    say(Metric::RenderedTimestamp, &[], rendered as u64);
    text + "statusbridge_exporter_scrapes_total 4\nprocess_cpu_seconds_total 0.25\n"
}

pub fn gather(lines: &[Line]) -> Gathered {
    let mut gathered = Gathered::default();
    for line in lines {
        gathered.add(line.metric, &line.own(), Sample { at: 0.0, value: line.value as f64 });
    }
    gathered
}

pub fn stream(labels: &[(&str, &str)]) -> StreamLabels {
    labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

/// How far scrapes are apart in tests.
pub const SCRAPES: Seconds = 15.0;

/// The digest samples of a stream that names its cluster: one scrape after the other, each rendered right then.
pub fn digests(labels: &[(&str, &str)], said: &Exposition, at: &[Seconds]) -> Digests {
    let stream = said.stream(labels);
    Digests {
        cluster: stream.labels.get("cluster").map_or("", String::as_str).into(),
        stream,
        contract: CONTRACT_VERSION.into(),
        samples: at.iter().map(|at| said.sample(*at)).collect(),
        ..Digests::default()
    }
}

/// Has a fleet know what a stream says at `at`, and said a scrape before: whole and right away.
pub fn tell(fleet: &mut Fleet, labels: &[(&str, &str)], said: &Exposition, at: Seconds) {
    tell_by("", fleet, labels, said, at);
}

/// The same, by a feed of this name.
pub(crate) fn tell_by(
    feed: &str,
    fleet: &mut Fleet,
    labels: &[(&str, &str)],
    said: &Exposition,
    at: Seconds,
) {
    let mut digests = digests(labels, said, &[at - SCRAPES, at]);
    digests.stream.feed = feed.into();
    tell_digests(fleet, &digests, said, at);
}

/// Has a fleet hear digest samples, and read what they attest.
pub(crate) fn tell_digests(fleet: &mut Fleet, digests: &Digests, said: &Exposition, t: Seconds) {
    if let Heard::Unread(samples) = fleet.hear(digests, t) {
        fleet.accept((&digests.cluster, &digests.stream), &samples[0], said.content(), t);
    }
}

/// A hub of which nothing is known, with a fleet that the only feed has told of.
pub fn state(fleet: Fleet) -> State {
    let mut state = State::new(fleet, Settings::default(), Rules::default(), 1);
    state.holds = Holds::none();
    state.feeds = feeds(&[("", &[Ok(())])]);
    state
}

/// Feeds by name, with how their polls ended.
pub fn feeds(polls: &[(&str, &[Result<(), &str>])]) -> Feeds {
    let mut feeds = Feeds::default();
    let planned = |name: &str| Planned { name: name.into(), settle: 5.0, asked: false };
    feeds.plan(polls.iter().map(|(name, _)| planned(name)).collect());
    for (number, (_, polls)) in polls.iter().enumerate() {
        for poll in *polls {
            let failure = |error: &str| Failure { error: error.to_owned(), clock_lags: None };
            let outcome = poll.map(|()| (0, 0)).map_err(failure);
            let now = Now { wall: 0.0, passed: Duration::ZERO };
            feeds.polled(number, Polled { t: 0.0, settle: 5.0, outcome }, now);
        }
    }
    feeds
}

/// What is kept of an object that somebody refers to, in a namespace of its own.
pub fn kept(object: &serde_json::Value) -> ReadObject {
    Shelf::default().put(sent("it", object))
}

/// An object of this name as the API server sends it.
pub fn sent(name: &str, object: &serde_json::Value) -> Sent {
    let mut object = object.clone();
    object["metadata"]["name"] = name.into();
    serde_json::from_str(&object.to_string()).unwrap()
}

/// Evaluates every expression that waits for it.
pub fn evaluate_all(references: &mut Ledger) {
    while let Some(next) = references.next(Duration::from_secs(1 << 20)) {
        references.evaluated(next.run(), Duration::ZERO);
    }
}

/// Histories are long, so `cargo test` plays few. `PROPTEST_CASES` plays more: see `make histories`.
#[cfg(test)]
pub(crate) fn histories() -> proptest::prelude::ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").map_or(50, |given| given.parse().expect("a number"));
    proptest::prelude::ProptestConfig { cases, failure_persistence: None, ..Default::default() }
}
