//! Waiting for conditions instead of sleeping.

use anyhow::{Context, Result, anyhow};
use std::time::{Duration, Instant};

/// How long a condition rests between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// For what has no time of its own to keep. Long, as a busy machine may need a minute for what else takes a second, and only
/// a test that fails waits for the end of it.
pub const SOON: Duration = Duration::from_secs(180);

/// Looks until `condition` gives a value, at most for `deadline`. `Err` means "not yet" and says why: the last one
/// is part of the failure, so `ensure!(ready == 3, "{ready} of 3 are ready")` is all a test needs to write.
///
/// # Errors
/// When the deadline passes first.
pub async fn eventually<T>(
    deadline: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let until = Instant::now() + deadline;
    let mut last = anyhow!("the first look at it did not come to an end");
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left.max(PAUSE), condition()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(not_yet)) => last = not_yet,
            Err(_) => {}
        }
        if Instant::now() + PAUSE >= until {
            return Err(last.context(format!("not within {deadline:?}: {what}")));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Looks for the whole of `span` that `condition` stays true: for what must never happen.
///
/// # Errors
/// The first time that `condition` is `Err`.
pub async fn holds_for(
    span: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<()>,
) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < span {
        condition()
            .await
            .with_context(|| format!("after {:.1?} no longer true: {what}", started.elapsed()))?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
