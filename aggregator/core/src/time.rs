//! Time as the aggregator counts it. Nothing here reads a clock: whoever asks for a decision says what time it is.

/// Unix seconds. Differences are seconds too.
pub type Seconds = f64;
