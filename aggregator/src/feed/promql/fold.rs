//! A query whose answer comes to one value.

use statusbridge_core::sample::{Labels, Sample, Sink};
use statusbridge_core::time::Seconds;

use crate::feed::promql::{FeedError, QueryApi};

struct Fold<T, F> {
    value: T,
    take: F,
}

impl<T: Send + 'static, F: FnMut(&mut T, &Labels, &[Sample]) + Send + 'static> Sink for Fold<T, F> {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        (self.take)(&mut self.value, labels, samples);
    }
}

/// Evaluates an expression at `at` and lets `take` put every series of the answer into a value, which is the default
/// at first.
///
/// # Errors
/// When the backend gives no whole answer.
pub async fn fold<T: Default + Send + 'static>(
    feed: &impl QueryApi,
    expression: &str,
    at: Seconds,
    take: impl FnMut(&mut T, &Labels, &[Sample]) + Send + 'static,
) -> Result<T, FeedError> {
    Ok(feed.query(expression, at, Fold { value: T::default(), take }).await?.value)
}
