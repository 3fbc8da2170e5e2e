//! Whether this machine's clock is the hub's. All that a leader finds young, or still frozen, it finds so by its own clock, so one
//! whose clock is another does not lead.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{BoxFuture, FutureExt};
use http::Response;
use statusbridge_core::time::Seconds;
use tower::util::MapFutureLayer;

use crate::clock;

/// Largest difference with which one leads, in seconds: the same as between the clocks of this machine and of a backend.
const MAX_SKEW: Seconds = 10.0;

/// By how much the hub's clock is ahead of ours at least, as the last answer told that has a time. Clones share what they know.
#[derive(Debug, Clone, Default)]
pub(crate) struct HubClock(Arc<Mutex<Seconds>>);

/// The clocks are too far apart.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "clocks disagree: the hub's is {:.0} s {} this machine's; who is off by more than {MAX_SKEW} s does not lead: set this \
     machine's clock right, or the hub's",
    .0.abs(), if *.0 > 0.0 { "ahead of" } else { "behind" }
)]
pub(crate) struct ClocksDisagree(Seconds);

impl HubClock {
    /// Looks at the time in every answer that a client gets.
    pub(crate) fn layer<F, B, E>(
        &self,
    ) -> MapFutureLayer<impl Fn(F) -> BoxFuture<'static, Result<Response<B>, E>> + Clone + use<F, B, E>>
    where
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    {
        let known = self.0.clone();
        MapFutureLayer::new(move |call: F| {
            let (known, sent) = (known.clone(), clock::now());
            let look = move |answer: &Result<Response<B>, E>| {
                if let Some(told) = answer.as_ref().ok().and_then(|it| clock::told(it.headers())) {
                    let ahead = ahead(sent, told, clock::now());
                    *known.lock().unwrap_or_else(PoisonError::into_inner) = ahead;
                }
            };
            call.inspect(look).boxed()
        })
    }

    /// # Errors
    /// When the clocks are too far apart.
    pub(crate) fn agrees(&self) -> Result<(), ClocksDisagree> {
        let ahead = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ahead.abs() > MAX_SKEW { Err(ClocksDisagree(ahead)) } else { Ok(()) }
    }
}

/// By how much `told` is ahead of when the answer was received, or behind of when it was asked for. An answer may have been on its
/// way for long, or this process may have stood still.
fn ahead(sent: Seconds, told: Seconds, received: Seconds) -> Seconds {
    // The rest of its second is cut off.
    (told - received).max(0.0) + (told + 1.0 - sent).min(0.0)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::header;
    use rstest::rstest;
    use tower::{Layer, ServiceExt};

    use super::*;

    #[rstest]
    #[case::at_once(100.2, 100.0, 100.3, 0.0)]
    #[case::late(100.2, 100.0, 160.0, 0.0)]
    #[case::just_before_it_came(100.2, 160.0, 160.0, 0.0)]
    #[case::ahead(100.2, 200.0, 101.0, 99.0)]
    #[case::behind(100.5, 50.0, 101.0, -49.5)]
    #[case::set_back_meanwhile(100.0, 100.0, 40.0, 60.0)]
    fn what_a_time_says_of_ours(
        #[case] sent: Seconds,
        #[case] told: Seconds,
        #[case] received: Seconds,
        #[case] expected: Seconds,
    ) {
        assert_eq!(ahead(sent, told, received), expected);
    }

    #[tokio::test]
    async fn the_last_answer_that_tells_a_time_counts() {
        let clock = HubClock::default();
        let asked = async |date: Option<i64>| {
            let service = tower::service_fn(|date: Option<i64>| async move {
                let mut answer = Response::new(());
                if let Some(offset) = date {
                    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(offset);
                    let text = jiff::fmt::rfc2822::to_string(&at.to_zoned(jiff::tz::TimeZone::UTC)).unwrap();
                    answer.headers_mut().insert(header::DATE, text.parse().unwrap());
                }
                Ok::<_, Infallible>(answer)
            });
            clock.layer().layer(service).oneshot(date).await.unwrap();
            clock.agrees().is_ok()
        };
        assert!(clock.agrees().is_ok(), "nothing was said yet");
        for (date, agrees) in [
            (Some(0), true),
            (Some(8), true),
            (Some(20), false),
            (None, false),
            (Some(-8), true),
            (Some(-20), false),
            (Some(0), true),
        ] {
            assert_eq!(asked(date).await, agrees, "{date:?}");
        }
    }
}
