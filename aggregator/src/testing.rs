//! Expositions as an exporter would render them, for the tests of this crate.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_contract::{
    CONTRACT_VERSION, Digest, Fingerprint, Metric, PACKAGE_METRICS, label, reason, sample,
    stream::StreamLabels,
};

use crate::checks::{Answers, Templates};
use crate::clock::Seconds;
use crate::decide::{Backend, Moment};
use crate::dependencies::Graph;
use crate::judge::{Gates, Packages, World};
use crate::profiles::{Profiles, Settings};
use crate::references::Ledger;
use crate::store::Key;
use crate::survey::Surveys;
use crate::tenancy::Tenancy;
use crate::verdicts::Verdicts;
use crate::write::Kind;
use crate::{
    feed::Sample,
    fleet::{Beat, Fleet, Heard, PackageId},
    verify::{Gathered, verify},
};

/// Own labels and value of one sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) metric: Metric,
    pub(crate) own: Vec<(&'static str, String)>,
    pub(crate) value: u64,
}

impl Line {
    pub(crate) fn hash(&self) -> u64 {
        sample::hash(self.metric.name(), &self.own(), self.value)
    }

    pub(crate) fn own(&self) -> Vec<(&'static str, &str)> {
        self.own.iter().map(|(n, v)| (*n, v.as_str())).collect()
    }
}

/// The values of a package, in the order of [`PACKAGE_METRICS`]; without the last three it has no
/// inventory.
pub(crate) type Values = Vec<u64>;

/// What one exporter has to say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exposition {
    pub(crate) uid: u64,
    pub(crate) down: Vec<String>,
    pub(crate) sources: Vec<String>,
    pub(crate) packages: BTreeMap<PackageId, Values>,
    pub(crate) words: Vec<String>,
}

/// A package of the source and namespace that most tests use.
pub(crate) fn package(name: &str) -> PackageId {
    PackageId { source: "flux".into(), namespace: Some("ns".into()), name: name.into() }
}

/// Applied, Current and healthy at `revision` since `since`, after so many transitions.
pub(crate) fn healthy(revision: &str, since: u64, transitions: u64) -> Values {
    let r = Fingerprint::of(revision).value();
    vec![0, 0, r, r, r, since, transitions, 0]
}

/// Applied at `revision` and failed since `since`.
pub(crate) fn failed(revision: &str, since: u64, transitions: u64) -> Values {
    let r = Fingerprint::of(revision).value();
    vec![0, 5, r, r, 0, since, transitions, reason::code("HealthCheckFailed")]
}

impl Exposition {
    pub(crate) fn new(uid: u64) -> Self {
        let words = vec!["HealthCheckFailed".to_owned()];
        Self { uid, sources: vec!["flux".into()], words, ..Self::default() }
    }

    pub(crate) fn with(mut self, name: &str, values: Values) -> Self {
        self.packages.insert(package(name), values);
        self
    }

    pub(crate) fn down(mut self, source: &str) -> Self {
        self.down.push(source.into());
        self
    }

    /// Every sample that the digest covers.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for (id, values) in &self.packages {
            let mut own = vec![(label::PACKAGE, id.name.clone()), (label::PACKAGE_SOURCE, id.source.clone())];
            if let Some(namespace) = &id.namespace {
                own.insert(1, (label::PACKAGE_NAMESPACE, namespace.clone()));
            }
            for (metric, value) in PACKAGE_METRICS.iter().zip(values) {
                lines.push(Line { metric: *metric, own: own.clone(), value: *value });
            }
        }
        for source in &self.sources {
            let own = vec![(label::PACKAGE_SOURCE, source.clone())];
            let up = u64::from(!self.down.contains(source));
            let count = self.packages.keys().filter(|id| id.source == *source).count() as u64;
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
        lines.push(Line { metric: Metric::ClusterUid, own: Vec::new(), value: self.uid });
        lines
    }

    pub(crate) fn digest(&self) -> u64 {
        digest(&self.lines())
    }
}

/// The text of an exposition that was rendered then.
pub(crate) fn text(exposition: &Exposition, rendered: Seconds) -> String {
    let mut text = String::from("# HELP of what is read\n");
    let mut say = |metric: Metric, labels: &[(&str, &str)], value: u64| {
        text += &(sample::canonical(metric.name(), labels, value) + "\n");
    };
    for line in exposition.lines() {
        say(line.metric, &line.own(), line.value);
    }
    say(Metric::Digest, &[(label::CONTRACT, CONTRACT_VERSION)], exposition.digest());
    say(Metric::RenderedTimestamp, &[], rendered as u64);
    text + "statusbridge_exporter_scrapes_total 4\nprocess_cpu_seconds_total 0.25\n"
}

pub(crate) fn digest(lines: &[Line]) -> u64 {
    lines.iter().map(Line::hash).collect::<Digest>().value()
}

pub(crate) fn gather(lines: &[Line]) -> Gathered {
    let mut gathered = Gathered::default();
    for line in lines {
        gathered.add(line.metric, &line.own(), Sample { at: 0.0, value: line.value as f64 });
    }
    gathered
}

pub(crate) fn stream(labels: &[(&str, &str)]) -> StreamLabels {
    labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

/// The digest sample of an exposition that was rendered and scraped at `at`, of a stream that names its cluster.
pub(crate) fn beat(labels: &[(&str, &str)], said: &Exposition, at: Seconds) -> Beat {
    let stream = stream(labels);
    Beat {
        cluster: stream.get("cluster").cloned().unwrap_or_default(),
        stream,
        contract: CONTRACT_VERSION.to_owned(),
        digest: Some(said.digest()),
        at,
        rendered: Some((at, at)),
        ..Beat::default()
    }
}

/// Has a fleet know what a stream said at `at`, whole and right away.
pub(crate) fn tell(fleet: &mut Fleet, labels: &[(&str, &str)], said: &Exposition, at: Seconds) {
    let beat = beat(labels, said, at);
    if fleet.hear(&beat, at) == Heard::Unread {
        fleet.accept(&beat, verify(gather(&said.lines()), said.digest()).unwrap(), at);
    }
}

/// All that a [`World`] refers to but the fleet: nothing, unless a test says otherwise.
pub(crate) struct Surroundings {
    pub(crate) packages: Packages,
    pub(crate) profiles: Profiles,
    pub(crate) tenancy: Tenancy,
    pub(crate) gates: Gates,
    pub(crate) graph: Graph,
    pub(crate) closing: BTreeSet<Key>,
    pub(crate) templates: Templates,
    pub(crate) answers: Answers,
    pub(crate) references: Ledger,
    pub(crate) surveys: Surveys,
    pub(crate) doubtful: BTreeSet<(Kind, Key)>,
    pub(crate) verdicts: Verdicts,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            packages: Packages::default(),
            profiles: Profiles::new(Settings::default()),
            tenancy: Tenancy::default(),
            gates: Gates::default(),
            graph: Graph::default(),
            closing: BTreeSet::new(),
            templates: Templates::default(),
            answers: Answers::default(),
            references: Ledger::default(),
            surveys: Surveys::default(),
            doubtful: BTreeSet::new(),
            verdicts: Verdicts::default(),
        }
    }
}

impl Surroundings {
    pub(crate) fn world<'a>(&'a self, fleet: &'a Fleet, backend: Backend<'a>, moment: Moment) -> World<'a> {
        World {
            fleet,
            packages: &self.packages,
            profiles: &self.profiles,
            tenancy: &self.tenancy,
            gates: &self.gates,
            graph: &self.graph,
            closing: &self.closing,
            templates: &self.templates,
            answers: &self.answers,
            references: &self.references,
            surveys: &self.surveys,
            backend,
            unheard: None,
            epoch: None,
            doubtful: &self.doubtful,
            verdicts: &self.verdicts,
            moment,
        }
    }
}
