//! Time as this crate counts it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix seconds. Differences are seconds too.
pub type Seconds = f64;

/// The wall clock of this machine. Only the edges of the program read it;
/// everything that decides takes the time as an argument.
pub fn now() -> Seconds {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
