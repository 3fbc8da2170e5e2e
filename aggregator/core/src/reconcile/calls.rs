//! How long a call of the hub's API server may take, and a decision may wait for it.

use std::time::Duration;

use crate::time::Now;

/// Longest time for one call of the hub's API server. A decision that is older is not sent: it may no longer be true.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether what was decided then may be sent now, and what was read then decides.
pub fn is_young(then: Duration, now: Now) -> bool {
    now.passed.saturating_sub(then) < CALL_TIMEOUT
}
