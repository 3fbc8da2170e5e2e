//! Whose series an engine gets.

use super::state_metrics;
use crate::exporters::Exporters;
use crate::generated::Generated;
use anyhow::Result;
use std::sync::Arc;

/// Series that Prometheus adds for each target: `up` and four that begin with `scrape_`.
const OF_THE_SCRAPE: usize = 5;

/// Who says something of the packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feed {
    /// Our exporter.
    StatusBridge,
    /// kube-state-metrics.
    StateMetrics,
}

impl Feed {
    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::StatusBridge => "Status Bridge",
            Self::StateMetrics => "kube-state-metrics",
        }
    }

    /// Serves what it says of the fleet.
    pub(super) async fn serve(self, fleet: Arc<Generated>) -> Result<Exporters> {
        match self {
            Self::StatusBridge => Exporters::start(fleet).await,
            Self::StateMetrics => {
                Exporters::start_with(fleet, state_metrics::JOB, state_metrics::render).await
            }
        }
    }

    /// How many series a scrape of the whole fleet has, those that Prometheus adds included.
    pub(super) fn series(self, fleet: &Generated) -> usize {
        let said = match self {
            // Digest and rendered time are not counted among the samples of the state.
            Self::StatusBridge => fleet.samples() + 2 * fleet.exporters(),
            Self::StateMetrics => fleet.len() * fleet.packages.len(),
        };
        said + OF_THE_SCRAPE * fleet.exporters()
    }
}
