//! How to reach a metrics backend.

use std::{path::PathBuf, time::Duration};

/// Which backend answers; decides the parameters that make partial answers failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flavour {
    /// Not known: parameters of all, which those that do not know them ignore.
    #[default]
    Any,
    /// Prometheus, Mimir, Cortex: an answer is whole or an error.
    Prometheus,
    /// Thanos: `partial_response=false`.
    Thanos,
    /// VictoriaMetrics: `deny_partial_response=1`, and `nocache=1` because its cache moves the time
    /// of evaluation (VictoriaMetrics/VictoriaMetrics, `app/vmselect/prometheus/prometheus.go`).
    VictoriaMetrics,
}

impl Flavour {
    /// Parameters sent with every query.
    pub const fn parameters(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Any => &[("partial_response", "false"), ("deny_partial_response", "1"), ("nocache", "1")],
            Self::Prometheus => &[],
            Self::Thanos => &[("partial_response", "false")],
            Self::VictoriaMetrics => &[("deny_partial_response", "1"), ("nocache", "1")],
        }
    }
}

impl Flavour {
    /// The word for it, which parses back.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Prometheus => "prometheus",
            Self::Thanos => "thanos",
            Self::VictoriaMetrics => "victoriametrics",
        }
    }
}

impl std::str::FromStr for Flavour {
    type Err = String;
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "any" => Ok(Self::Any),
            "prometheus" => Ok(Self::Prometheus),
            "thanos" => Ok(Self::Thanos),
            "victoriametrics" => Ok(Self::VictoriaMetrics),
            _ => Err(format!("`{word}` is none of any, prometheus, thanos, victoriametrics")),
        }
    }
}

/// Where the backend is and how to talk to it.
#[derive(Debug, Clone)]
pub struct FeedConfig {
    /// Address below which `/api/v1/query` lies, for instance `http://prometheus:9090` or
    /// `https://mimir/prometheus`. A query string is kept and sent along.
    pub url: String,
    /// What kind of backend it is.
    pub flavour: Flavour,
    /// Longest time for one query, from connecting to the last byte.
    pub timeout: Duration,
    /// Largest difference between the backend's clock and ours before answers are refused.
    pub max_clock_skew: Duration,
    /// Headers sent along, for instance `X-Scope-OrgID`.
    pub headers: Vec<(String, String)>,
    /// File holding a bearer token; read again for every query, so it may be rotated.
    pub bearer_token_file: Option<PathBuf>,
    /// PEM file with certificate authorities trusted besides the system's.
    pub ca_file: Option<PathBuf>,
}

impl FeedConfig {
    /// The defaults for a backend at `url`: any flavour, 30 s for a query, 10 s of clock skew.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            flavour: Flavour::Any,
            timeout: Duration::from_secs(30),
            max_clock_skew: Duration::from_secs(10),
            headers: Vec::new(),
            bearer_token_file: None,
            ca_file: None,
        }
    }
}
