//! What ends a list or a watch before its time.

use std::time::Duration;

/// Why a list or a watch ended.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The kind is not served at this path.
    #[error("not served")]
    NotServed,
    /// The resource version is too old to go on from: a new list is due.
    #[error("resource version expired")]
    Expired,
    /// The server knows only older versions than it has told of: its etcd was restored. A new list is due.
    #[error("the API server has gone back in time")]
    Restored,
    /// The server does not do streaming lists.
    #[error("streaming list refused: {0}")]
    StreamingRefused(String),
    /// The server answered with an error.
    #[error("server said {code}: {message}")]
    Server {
        /// HTTP status code.
        code: u16,
        /// What the server said.
        message: String,
    },
    /// The server was not reached, or the connection broke.
    #[error("connection: {0}")]
    Connection(String),
    /// Nothing was heard for so long that the connection counts as dead.
    #[error("nothing heard for {0:?}")]
    Silent(Duration),
    /// The server sent something that is not what the protocol says.
    #[error("malformed answer: {0}")]
    Malformed(String),
    /// Nobody listens any more: the process is stopping.
    #[error("stopping")]
    Stopping,
}

impl Fault {
    /// Every word that [`Self::cause`] has: for the reference.
    pub const CAUSES: [&str; 10] = [
        "not_served",
        "expired",
        "restored",
        "streaming_refused",
        "forbidden",
        "server",
        "connection",
        "silent",
        "malformed",
        "stopping",
    ];

    /// Whether the server refuses the request to this account.
    pub(super) const fn is_forbidden(&self) -> bool {
        matches!(self, Self::Server { code: 401 | 403, .. })
    }

    /// Whether the server does not understand the request, so that it will refuse the same one again.
    pub(super) const fn refuses_request(&self) -> bool {
        matches!(self, Self::Server { code: 400 | 422, .. })
    }

    /// Whether the same request may be answered a moment later.
    pub(super) const fn may_pass(&self) -> bool {
        matches!(self, Self::Server { code: 429 | 500..=599, .. } | Self::Connection(_) | Self::Silent(_))
    }

    /// One word for metrics.
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::NotServed => "not_served",
            Self::Expired => "expired",
            Self::Restored => "restored",
            Self::StreamingRefused(_) => "streaming_refused",
            Self::Server { code: 401 | 403, .. } => "forbidden",
            Self::Server { .. } => "server",
            Self::Connection(_) => "connection",
            Self::Silent(_) => "silent",
            Self::Malformed(_) => "malformed",
            Self::Stopping => "stopping",
        }
    }

    /// The fault that a Status object's code and message stand for.
    pub(super) fn from_status(code: u16, message: &str) -> Self {
        match code {
            404 => Self::NotServed,
            410 => Self::Expired,
            _ => Self::Server { code, message: message.to_owned() },
        }
    }
}

impl From<kube::Error> for Fault {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_status(status.code, &status.message),
            other => Self::Connection(other.to_string()),
        }
    }
}
