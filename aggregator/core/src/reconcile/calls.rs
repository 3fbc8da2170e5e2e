//! How long a call of the hub's API server may take, and a decision may wait for it.

use std::time::Duration;

use crate::time::Now;

/// Longest time for one call of the hub's API server. A decision that is older is not sent: it may no longer be true.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a decision of this time may be sent now.
pub(super) fn is_young(decided: Duration, now: Now) -> bool {
    now.passed.saturating_sub(decided) < CALL_TIMEOUT
}
