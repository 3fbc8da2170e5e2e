//! Durations on the command line.

use std::time::Duration;

/// Seconds, or a number with a unit like 2m.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse::<u32>() {
        Ok(seconds) => Duration::from_secs(seconds.into()),
        Err(_) => text
            .parse::<jiff::SignedDuration>()
            .map_err(|e| e.to_string())
            .and_then(|d| Duration::try_from(d).map_err(|_| "must not be negative".to_owned()))?,
    };
    if parsed < Duration::from_secs(1) { Err("must be at least 1s".to_owned()) } else { Ok(parsed) }
}
