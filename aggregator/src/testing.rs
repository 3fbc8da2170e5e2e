//! What many tests of this crate ask.

use crate::feed::promql::poll::PollConfig;
use crate::feed::promql::{Exporters, Trust};

/// Every stream of a backend, by the usual label.
pub fn everybody() -> Exporters {
    Exporters { cluster_label: "cluster".to_owned(), trust: Trust::All }
}

/// How such a backend is polled.
pub fn poll_config() -> PollConfig {
    PollConfig::new(everybody())
}
