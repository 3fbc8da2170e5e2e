//! Fields that settings of several feeds have.

use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// Name of the backend that flags name, where there are others.
pub(super) const FLAGS: &str = "default";

/// Reads a duration such as `15s`.
pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    statusbridge_api::common::duration(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Reads a duration such as `15s`, which is more than nothing.
pub(super) fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match duration(deserializer)? {
        Duration::ZERO => Err(D::Error::custom("must be more than 0s")),
        span => Ok(span),
    }
}
