//! Why a client does not get what it asks for.

use std::fmt;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;

use crate::answer::response::{PLAIN, respond};

/// Why somebody does not get what they want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no token, or the API server does not know whose it is.
    Unauthenticated,
    /// Who may not get what.
    Forbidden(String),
    /// The API server cannot be asked, for this reason.
    Unavailable(String),
}

impl Refusal {
    /// The status to answer with.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The answer, as plain text.
    pub fn respond(&self) -> Response<Full<Bytes>> {
        respond(self.status(), PLAIN, format!("{self}\n"))
    }

    /// Every word for a cause that there is.
    pub(crate) const CAUSES: [&str; 3] = ["unauthenticated", "forbidden", "unavailable"];

    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden(_) => "forbidden",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unauthenticated => write!(f, "a bearer token is needed that the API server accepts"),
            Self::Forbidden(who) => f.write_str(who),
            Self::Unavailable(why) => {
                write!(f, "the API server cannot be asked whether this is allowed: {why}")
            }
        }
    }
}
