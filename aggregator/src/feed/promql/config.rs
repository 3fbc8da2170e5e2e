//! How to reach a metrics backend.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::RequestBuilder;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use statusbridge_serving::address::Address;

use super::FeedError;
use crate::feed::tls::TlsFiles;

/// Which backend answers; decides the parameters that make partial answers failures.
///
/// Thanos is also asked for what each replica stored, and not for a mix of them: a digest attests the samples of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flavour {
    /// Not known: parameters of all, which those that do not know them ignore.
    #[default]
    Any,
    /// Prometheus, Mimir, Cortex: an answer is whole or an error. Caches are kept from answering, in case it is
    /// VictoriaMetrics.
    Prometheus,
    /// Thanos: `partial_response=false` and `dedup=false`.
    Thanos,
    /// VictoriaMetrics: `deny_partial_response=1`.
    VictoriaMetrics,
}

/// Sent to every backend, because a wrong flavour is to cost an error at most. VictoriaMetrics' cache moves the time
/// of evaluation, and its cluster version gives parts of partial answers out of it as whole ones, also where partial
/// answers are denied (VictoriaMetrics/VictoriaMetrics, `app/vmselect/prometheus/prometheus.go` and
/// `app/vmselect/promql/eval.go`).
const NO_CACHE: (&str, &str) = ("nocache", "1");

impl Flavour {
    const ALL: [Self; 4] = [Self::Any, Self::Prometheus, Self::Thanos, Self::VictoriaMetrics];

    /// Parameters sent with every query.
    pub const fn parameters(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Any => {
                &[("partial_response", "false"), ("dedup", "false"), ("deny_partial_response", "1"), NO_CACHE]
            }
            Self::Prometheus => &[NO_CACHE],
            Self::Thanos => &[("partial_response", "false"), ("dedup", "false"), NO_CACHE],
            Self::VictoriaMetrics => &[("deny_partial_response", "1"), NO_CACHE],
        }
    }

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
        let flavour = Self::ALL.into_iter().find(|flavour| flavour.name() == word);
        flavour.ok_or_else(|| format!("`{word}` is none of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// Where the backend is and how to talk to it.
#[derive(Debug, Clone)]
pub struct FeedConfig {
    /// Address below which `/api/v1/query` lies, for instance `http://prometheus:9090` or
    /// `https://mimir/prometheus`. A query string is kept and sent along.
    pub url: Address,
    /// What kind of backend it is.
    pub flavour: Flavour,
    /// Longest time for one query, from connecting to the last byte.
    pub timeout: Duration,
    /// Largest difference between the backend's clock and ours before answers are refused.
    pub max_clock_skew: Duration,
    /// Headers sent along, for instance `X-Scope-OrgID`.
    pub headers: Vec<(String, String)>,
    /// As whom to ask.
    pub credentials: Credentials,
    /// Whom to trust, and with which certificate to come.
    pub tls: TlsFiles,
}

/// As whom a backend is asked. Files are read for every query, so that what is in them may be rotated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// As nobody, or as whom a client certificate or a header says.
    #[default]
    None,
    /// With the bearer token in this file.
    BearerTokenFile(PathBuf),
    /// By HTTP basic authentication.
    Basic {
        /// The user.
        username: String,
        /// File holding the password.
        password_file: PathBuf,
    },
}

impl Credentials {
    /// Those that are named; a bearer token before user and password.
    pub fn new(bearer_token_file: Option<PathBuf>, basic_auth: Option<(String, PathBuf)>) -> Self {
        match (bearer_token_file, basic_auth) {
            (Some(file), _) => Self::BearerTokenFile(file),
            (None, Some((username, password_file))) => Self::Basic { username, password_file },
            (None, None) => Self::None,
        }
    }

    /// Adds them to a request.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) async fn sign(&self, request: RequestBuilder) -> Result<RequestBuilder, FeedError> {
        Ok(match self {
            Self::None => request,
            Self::BearerTokenFile(path) => request.bearer_auth(secret(path).await?.trim()),
            Self::Basic { username, password_file } => {
                let password = secret(password_file).await?;
                // A line's end, as editors and `echo` leave it, is not meant; blanks may be.
                request.basic_auth(username, Some(password.trim_end_matches(['\n', '\r'])))
            }
        })
    }
}

async fn secret(path: &Path) -> Result<String, FeedError> {
    let read = tokio::fs::read_to_string(path).await;
    read.map_err(|e| FeedError::Config(format!("{}: {e}", path.display())))
}

impl FeedConfig {
    /// The defaults for a backend at `url`: any flavour, 30 s for a query, 10 s of clock skew.
    pub fn new(url: impl Into<Address>) -> Self {
        Self {
            url: url.into(),
            flavour: Flavour::Any,
            timeout: Duration::from_secs(30),
            max_clock_skew: Duration::from_secs(10),
            headers: Vec::new(),
            credentials: Credentials::None,
            tls: TlsFiles::default(),
        }
    }

    pub(super) fn header_map(&self) -> Result<HeaderMap, FeedError> {
        let bad = |text: String| FeedError::Config(text);
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let name: HeaderName = name.parse().map_err(|e| bad(format!("header `{name}`: {e}")))?;
            let mut value: HeaderValue =
                value.parse().map_err(|e| bad(format!("value of header `{name}`: {e}")))?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Ok(headers)
    }
}
