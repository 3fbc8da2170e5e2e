//! What every server counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::refusal::Refusal;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRefusal {
    cause: &'static str,
}

/// Metrics about a server's certificate and about those whom it does not answer.
#[derive(Debug, Clone)]
pub struct ServerMetrics {
    certificate_good: Gauge,
    refused: Family<OfRefusal, Counter>,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let (certificate_good, refused) = (Gauge::default(), Family::default());
        certificate_good.set(1);
        Self { certificate_good, refused }
    }
}

impl ServerMetrics {
    /// Registers them under names that begin with `prefix`.
    pub fn register(&self, registry: &mut Registry, prefix: &str) {
        registry.register(
            format!("{prefix}certificate_last_reload_successful"),
            "Whether the files of the TLS certificate could be used when they last changed; 0 = an earlier one is served",
            self.certificate_good.clone(),
        );
        registry.register(
            format!("{prefix}scrapes_refused"),
            "Requests for metrics or gates that were not let in, by cause",
            self.refused.clone(),
        );
    }

    /// Every refusal reads 0 from now on, until it happens.
    pub fn begin(&self) {
        for cause in Refusal::CAUSES {
            drop(self.refused.get_or_create(&OfRefusal { cause }));
        }
    }

    /// The files of the TLS certificate have changed and could be used, or not.
    pub(crate) fn certificate_reloaded(&self, successful: bool) {
        self.certificate_good.set(successful.into());
    }

    /// Somebody was not let in.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        self.refused.get_or_create(&OfRefusal { cause: refusal.cause() }).inc();
    }
}
