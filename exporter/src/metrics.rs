//! The exporter's metrics about itself. None of them is part of the contract. What is said of them here is what
//! docs/metrics.md says.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::Registry,
};

use statusbridge_serving::{
    format::Format,
    metrics::{Process, ServerMetrics, build_info, encode},
};

use crate::source::KindRef;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    group: String,
    kind: String,
}

impl From<&KindRef> for OfKind {
    fn from(kind: &KindRef) -> Self {
        Self { group: kind.group.clone(), kind: kind.kind.clone() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfWatchError {
    group: String,
    kind: String,
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfSource {
    package_source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPush {
    result: &'static str,
}

/// Counters and histograms about this process.
pub struct OwnMetrics {
    registry: Registry,
    watch_errors: Family<OfWatchError, Counter>,
    relists: Family<OfKind, Counter>,
    events: Family<OfKind, Counter>,
    evaluations: Family<OfSource, Counter>,
    evaluation_errors: Family<OfSource, Counter>,
    left_out: Family<OfSource, Gauge>,
    sources_good: Gauge,
    /// Those of the server.
    pub server: ServerMetrics,
    scrapes: Histogram,
    pushes: Family<OfPush, Counter>,
    last_push: Gauge,
}

impl Default for OwnMetrics {
    fn default() -> Self {
        let buckets = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
        let own = Self {
            registry: Registry::default(),
            watch_errors: Family::default(),
            relists: Family::default(),
            events: Family::default(),
            evaluations: Family::default(),
            evaluation_errors: Family::default(),
            left_out: Family::default(),
            sources_good: Gauge::default(),
            server: ServerMetrics::default(),
            scrapes: Histogram::new(buckets),
            pushes: Family::default(),
            last_push: Gauge::default(),
        };
        own.registered()
    }
}

impl OwnMetrics {
    /// Metrics of which each has a series, with `value` for each label that may have any, and errors of watches with these
    /// causes: for the reference.
    pub fn with_every_series(value: &str, watch_errors: &[&'static str]) -> Self {
        let own = Self::default();
        let kind = OfKind { group: value.to_owned(), kind: value.to_owned() };
        for &cause in watch_errors {
            let OfKind { group, kind } = kind.clone();
            drop(own.watch_errors.get_or_create(&OfWatchError { group, kind, cause }));
        }
        for family in [&own.relists, &own.events] {
            drop(family.get_or_create(&kind));
        }
        own.evaluated(value, true);
        own.left_out(value, 0);
        own.server.begin();
        own.pushed(true);
        own.pushed(false);
        own
    }

    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register("statusbridge_exporter_build_info", "Version of the exporter", build_info());
        registry.register(
            "statusbridge_exporter_watch_errors",
            "Lists and watches that ended with an error, by kind and cause",
            self.watch_errors.clone(),
        );
        registry.register(
            "statusbridge_exporter_relists",
            "Lists of all objects of a kind that were begun",
            self.relists.clone(),
        );
        registry.register(
            "statusbridge_exporter_watch_events",
            "Objects that lists and watches brought",
            self.events.clone(),
        );
        registry.register(
            "statusbridge_exporter_evaluations",
            "Evaluations of a package, by source",
            self.evaluations.clone(),
        );
        registry.register(
            "statusbridge_exporter_evaluation_errors",
            "Evaluations in which an expression failed, by source",
            self.evaluation_errors.clone(),
        );
        registry.register(
            "statusbridge_exporter_packages_left_out",
            "Packages that a limit keeps out of the series; their source is not up",
            self.left_out.clone(),
        );
        // Counters of the contract begin with the process: this tells one from the next.
        registry.register(
            "statusbridge_exporter_start_time_seconds",
            "When this process started, in unix seconds",
            ConstGauge::new(jiff::Timestamp::now().as_second()),
        );
        self.sources_good.set(1);
        registry.register(
            "statusbridge_exporter_sources_last_reload_successful",
            "Whether the files of sources could be used when they last changed; 0 = earlier ones are at work",
            self.sources_good.clone(),
        );
        self.server.register(registry, "statusbridge_exporter_");
        registry.register(
            "statusbridge_exporter_scrape_duration_seconds",
            "Time from a scrape's request to the last byte handed to the connection",
            self.scrapes.clone(),
        );
        registry.register(
            "statusbridge_exporter_pushes",
            "Pushes to an aggregator that got through, or did not",
            self.pushes.clone(),
        );
        registry.register(
            "statusbridge_exporter_last_successful_push_timestamp_seconds",
            "When a push last got through, in unix seconds; 0 when none ever did",
            self.last_push.clone(),
        );
        registry.register_collector(Box::new(Process));
        self
    }

    /// A list or watch of a kind ended with an error.
    pub(crate) fn watch_error(&self, kind: &KindRef, cause: &'static str) {
        let labels = OfWatchError { group: kind.group.clone(), kind: kind.kind.clone(), cause };
        self.watch_errors.get_or_create(&labels).inc();
    }

    /// A list of all objects of a kind begins.
    pub(crate) fn relist(&self, kind: &KindRef) {
        self.relists.get_or_create(&kind.into()).inc();
    }

    /// A list or watch brought an object.
    pub fn event(&self, kind: &KindRef) {
        self.events.get_or_create(&kind.into()).inc();
    }

    /// A package was evaluated.
    pub fn evaluated(&self, source: &str, failed: bool) {
        let labels = OfSource { package_source: source.to_owned() };
        self.evaluations.get_or_create(&labels).inc();
        let errors = self.evaluation_errors.get_or_create(&labels);
        if failed {
            errors.inc();
        }
    }

    /// So many packages of a source are left out of the series.
    pub fn left_out(&self, source: &str, packages: usize) {
        let labels = OfSource { package_source: source.to_owned() };
        self.left_out.get_or_create(&labels).set(i64::try_from(packages).unwrap_or(i64::MAX));
    }

    /// The files of sources have changed and could be used, or not.
    pub fn reloaded(&self, successful: bool) {
        self.sources_good.set(successful.into());
    }

    /// A scrape was answered.
    pub fn scraped(&self, took: Duration) {
        self.scrapes.observe(took.as_secs_f64());
    }

    /// A push got through, or did not.
    pub fn pushed(&self, through: bool) {
        let result = if through { "success" } else { "failure" };
        self.pushes.get_or_create(&OfPush { result }).inc();
        if through {
            self.last_push.set(jiff::Timestamp::now().as_second());
        }
    }

    /// All of it in a format, without OpenMetrics' end mark.
    pub fn render(&self, format: Format) -> Result<String, std::fmt::Error> {
        encode(&self.registry, format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_keep_their_samples_names_in_the_text_format() {
        let own = OwnMetrics::default();
        own.evaluated("s", true);
        let text = own.render(Format::Text).unwrap();
        assert!(text.contains("# TYPE statusbridge_exporter_evaluations_total counter\n"), "{text}");
        assert!(text.contains("statusbridge_exporter_evaluations_total{package_source=\"s\"} 1\n"));
        assert!(text.contains("# TYPE statusbridge_exporter_build_info gauge\n"));
        assert!(text.contains("process_resident_memory_bytes "));
        assert!(!text.contains("# EOF"));
        let open = own.render(Format::OpenMetrics).unwrap();
        assert!(open.contains("# TYPE statusbridge_exporter_evaluations counter\n"), "{open}");
    }

    #[test]
    fn none_of_them_is_taken_for_the_contract() {
        let own = OwnMetrics::default().render(Format::Text).unwrap();
        for line in own.lines().filter(|l| !l.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            assert_eq!(statusbridge_contract::Metric::from_name(name), None, "{name}");
        }
    }
}
