//! What can go wrong, and where: every process, every connection between two of them.

use crate::faults::timeline::Part;
use statusbridge_tests::Fault as Network;
use std::fmt;
use std::time::Duration;

/// How what exporters say comes to the aggregators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// It scrapes exporters, and is queried.
    Prometheus,
    /// It is queried, and gets from Prometheus, by remote write, what that scrapes.
    VictoriaMetrics,
    /// Exporters push to whichever replica they are led to.
    Push,
}

/// How long a slowed connection holds back what passes.
pub(crate) const DELAY: Duration = Duration::from_millis(300);

/// A process or a connection. Clusters and replicas are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Exporter(usize),
    WorkloadApi(usize),
    /// One for all workload clusters.
    WorkloadEtcd,
    Prometheus,
    /// VictoriaMetrics, where there is one.
    Store,
    Aggregator(usize),
    Sweeper,
    HubApi,
    HubEtcd,
    ExporterToApi(usize),
    PrometheusToExporter(usize),
    /// Pushes.
    ExporterToAggregator(usize),
    PrometheusToStore,
    AggregatorToBackend(usize),
    AggregatorToHub(usize),
    SweeperToHub,
}

/// What goes wrong there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum How {
    /// SIGKILL; it is started again when this is over.
    Killed,
    /// SIGSTOP until this is over.
    Frozen,
    /// Its wall clock is so many seconds ahead of all others.
    Clock(i16),
    /// Etcd goes back to what it held when this was made last, and its API servers are away meanwhile.
    Restored,
    /// Connections are cut, and nobody answers new ones.
    Cut,
    /// Whatever passes is late.
    Slowed,
    /// Connections stay, and nothing passes.
    HalfOpen,
    /// Every query or push is answered 500.
    Errors,
    /// Every query or push is answered 429.
    TooManyRequests,
    /// Every answer breaks off in the middle.
    HalfBodies,
    /// Every query or scrape gets the answer that it got first.
    OldAnswers,
    /// The first push is sent again in place of each later one.
    OldRequests,
    /// Every series comes from a second replica too.
    Twins,
    /// Every series comes twice.
    Doubles,
}

const PROCESS: &[How] = &[How::Killed, How::Frozen];
/// What is believed of clocks is less than an hour, and more than twenty seconds.
const OURS: &[How] = &[How::Killed, How::Frozen, How::Clock(3600), How::Clock(-3600), How::Clock(20)];
const ETCD: &[How] = &[How::Killed, How::Frozen, How::Restored];
const CONNECTION: &[How] = &[How::Cut, How::Slowed, How::HalfOpen];
/// A gateway may stand there.
const SCRAPES: &[How] = &[How::Cut, How::Slowed, How::HalfOpen, How::OldAnswers];
/// So it may here.
const PUSHES: &[How] =
    &[How::Cut, How::Slowed, How::HalfOpen, How::Errors, How::TooManyRequests, How::OldRequests];
const BACKEND: &[How] = &[
    How::Cut,
    How::Slowed,
    How::HalfOpen,
    How::Errors,
    How::TooManyRequests,
    How::HalfBodies,
    How::OldAnswers,
    How::Twins,
    How::Doubles,
];

impl Place {
    /// Every place in a system of so many clusters and replicas.
    pub(crate) fn all(clusters: usize, replicas: usize, transport: Transport) -> Vec<Self> {
        let mut all =
            vec![Self::WorkloadEtcd, Self::Sweeper, Self::HubApi, Self::HubEtcd, Self::SweeperToHub];
        all.extend(Self::between(transport));
        for i in 0..clusters {
            all.extend(Self::of_a_cluster(transport).map(|of| of(i)));
        }
        for i in 0..replicas {
            all.extend([Self::Aggregator(i), Self::AggregatorToHub(i)]);
            if transport != Transport::Push {
                all.push(Self::AggregatorToBackend(i));
            }
        }
        all
    }

    /// Those that each cluster has.
    pub(crate) const fn of_a_cluster(transport: Transport) -> [fn(usize) -> Self; 4] {
        let metrics = match transport {
            Transport::Push => Self::ExporterToAggregator,
            Transport::Prometheus | Transport::VictoriaMetrics => Self::PrometheusToExporter,
        };
        [Self::Exporter, Self::WorkloadApi, Self::ExporterToApi, metrics]
    }

    /// Those between the clusters and what aggregators query.
    pub(crate) const fn between(transport: Transport) -> &'static [Self] {
        match transport {
            Transport::Prometheus => &[Self::Prometheus],
            Transport::VictoriaMetrics => &[Self::Prometheus, Self::Store, Self::PrometheusToStore],
            Transport::Push => &[],
        }
    }

    /// All that can go wrong there.
    pub(crate) const fn ways(self) -> &'static [How] {
        match self {
            Self::Exporter(_) | Self::Aggregator(_) => OURS,
            Self::WorkloadEtcd => ETCD,
            Self::WorkloadApi(_)
            | Self::Prometheus
            | Self::Store
            | Self::Sweeper
            | Self::HubApi
            | Self::HubEtcd => PROCESS,
            Self::ExporterToApi(_)
            | Self::PrometheusToStore
            | Self::AggregatorToHub(_)
            | Self::SweeperToHub => CONNECTION,
            Self::PrometheusToExporter(_) => SCRAPES,
            Self::ExporterToAggregator(_) => PUSHES,
            Self::AggregatorToBackend(_) => BACKEND,
        }
    }

    /// Whose work suffers.
    pub(crate) const fn part(self) -> Part {
        match self {
            Self::HubApi | Self::HubEtcd => Part::Hub,
            Self::Sweeper | Self::SweeperToHub => Part::Sweeper,
            Self::Aggregator(_) | Self::AggregatorToHub(_) => Part::Aggregator,
            _ => Part::Data,
        }
    }
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) how: How,
}

impl Fault {
    /// What a connection's proxy does; `None` for what happens to processes.
    pub(crate) const fn on_the_network(self) -> Option<Network> {
        Some(match self.how {
            How::Killed | How::Frozen | How::Clock(_) | How::Restored => return None,
            How::Cut => Network::Refuse,
            How::Slowed => Network::Slow(DELAY),
            How::HalfOpen => Network::Freeze,
            How::Errors => Network::ServerError,
            How::TooManyRequests => Network::TooManyRequests,
            How::HalfBodies => Network::HalfBody,
            How::OldAnswers => Network::OldAnswers,
            How::OldRequests => Network::OldRequests,
            How::Twins => Network::Twins,
            How::Doubles => Network::Doubles,
        })
    }

    /// Whether everything stands still, and goes on later.
    pub(crate) const fn stands_still(self) -> bool {
        matches!(self.how, How::Frozen | How::HalfOpen)
    }

    /// Whether what is on the way may arrive late, and not only be lost.
    pub(crate) const fn holds_back(self) -> bool {
        self.stands_still() || matches!(self.how, How::Slowed)
    }

    /// Its kind, in which clusters and replicas are all the same.
    pub(crate) fn kind(self) -> String {
        let place = format!("{:?}", self.place);
        format!("{} {:?}", place.split('(').next().unwrap_or_default(), self.how)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.place, self.how)
    }
}
