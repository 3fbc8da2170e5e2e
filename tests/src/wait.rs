//! Waiting for conditions instead of sleeping.

use anyhow::{Context, Result, anyhow};
use std::time::{Duration, Instant};

/// How long what must never happen rests between two looks, and what the last look at a condition may take.
const PAUSE: Duration = Duration::from_millis(50);
/// For what has no time of its own to keep. Long, as a busy machine may need a minute for what else takes a second, and only
/// a test that fails waits for the end of it.
pub const SOON: Duration = Duration::from_secs(180);

/// How long a condition rests between two looks: a tenth of the time it has been waited for, as many tests look at the same
/// processor's servers, which need that time themselves.
fn pause(waited: Duration) -> Duration {
    (waited / 10).clamp(Duration::from_millis(20), Duration::from_millis(250))
}

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
    let started = Instant::now();
    let mut last = anyhow!("the first look at it did not come to an end");
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        match tokio::time::timeout(left.max(PAUSE), condition()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(not_yet)) => last = not_yet,
            Err(_) => {}
        }
        let waited = started.elapsed();
        if waited >= deadline {
            return Err(last.context(format!("not within {deadline:?}: {what}")));
        }
        tokio::time::sleep(pause(waited).min(deadline - waited)).await;
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
