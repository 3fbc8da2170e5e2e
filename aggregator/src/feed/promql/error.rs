//! Why a query gave no usable answer.

/// Anything short of a whole, unreserved answer. None of these may ever be read as "no data".
#[derive(Debug, Clone, thiserror::Error, PartialEq)]
pub enum FeedError {
    /// The client's own configuration is unusable.
    #[error("backend is misconfigured: {0}")]
    Config(String),
    /// No connection to the backend.
    #[error("backend cannot be reached: {0}")]
    Connect(String),
    /// Connected, but no whole answer in time.
    #[error("backend did not answer within {seconds} s")]
    Timeout {
        /// The limit, in seconds.
        seconds: f64,
    },
    /// An answer that is not 200 and not an error of the query API either.
    #[error("backend answered HTTP {status}: {excerpt}")]
    Http {
        /// HTTP status code.
        status: u16,
        /// Start of the body.
        excerpt: String,
    },
    /// The body ended early or the connection broke while it was read.
    #[error("backend's answer broke off: {0}")]
    Truncated(String),
    /// The body is not what the query API answers.
    #[error("backend's answer is malformed: {0}")]
    Malformed(String),
    /// The query API says that the query failed.
    #[error("backend refused the query: {kind}: {message}")]
    Api {
        /// `errorType` of the answer.
        kind: String,
        /// `error` of the answer.
        message: String,
    },
    /// An answer with warnings: some part of the backend did not contribute.
    #[error("backend's answer comes with warnings: {}", .0.join("; "))]
    Warnings(Vec<String>),
    /// The backend says that the answer is partial (VictoriaMetrics' cluster version).
    #[error("backend's answer is partial")]
    Partial,
    /// The backend's clock and this machine's are too far apart to judge how old anything is.
    #[error("clocks disagree: the backend's is {ahead} s ahead of this machine's")]
    ClockDisagrees {
        /// The backend's clock minus ours, in seconds; negative when the backend lags.
        ahead: f64,
    },
}

impl FeedError {
    /// Name of the case, for metrics and conditions.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Config(_) => "config",
            Self::Connect(_) => "connect",
            Self::Timeout { .. } => "timeout",
            Self::Http { .. } => "http",
            Self::Truncated(_) => "truncated",
            Self::Malformed(_) => "malformed",
            Self::Api { .. } => "api",
            Self::Warnings(_) => "warnings",
            Self::Partial => "partial",
            Self::ClockDisagrees { .. } => "clock",
        }
    }

    /// By how much this machine's clock lags, when that is why there was no answer.
    pub fn clock_lags(&self) -> Option<f64> {
        match self {
            Self::ClockDisagrees { ahead } if *ahead > 0.0 => Some(*ahead),
            _ => None,
        }
    }

    /// Whether less to answer might be answered: backends bound samples, bytes and time in many ways and
    /// words. An overloaded or absent one is not helped by more queries.
    pub fn may_be_size(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Truncated(_) => true,
            // VictoriaMetrics says its status in the place of a word.
            Self::Api { kind, .. } => {
                !matches!(kind.as_str(), "unavailable" | "too_many_requests" | "429" | "503")
            }
            Self::Http { status, .. } => matches!(status, 400 | 413 | 414 | 422),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::prometheus_limit("execution", true)]
    #[case::mimir_answer_too_large("too_large_entry", true)]
    #[case::storage_gave_up("internal", true)]
    #[case::victoria_metrics_limit("422", true)]
    #[case::absent("unavailable", false)]
    #[case::mimir_overloaded("too_many_requests", false)]
    #[case::victoria_metrics_overloaded("503", false)]
    fn who_has_too_much_to_do_is_not_asked_more(#[case] kind: &str, #[case] less: bool) {
        let refusal = FeedError::Api { kind: kind.to_owned(), message: String::new() };
        assert_eq!(refusal.may_be_size(), less);
    }
}
