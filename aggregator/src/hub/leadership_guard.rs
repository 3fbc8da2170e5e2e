//! The fence between this process and the hub: who no longer leads for certain sends nothing.
//!
//! ```text
//!   renewal sent                   renew deadline       lease over
//!   ├── writes are sent ──┼── none ──┼── work stopped ──┤ others may lead
//!                         └ less is left than a call may last
//! ```
//!
//! All of it is counted from before a renewal was *sent*, by clocks of this machine. What is on its
//! way when leadership is lost nobody can call back: that is refused by the API server, because it
//! is bound to a version that the next leader has overwritten (see `epoch` in the status).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use http::{Method, Request};
use statusbridge_core::reconcile::election::Term;
use tower::filter::FilterLayer;

use crate::clock::Timestamp;

#[derive(Debug, Clone, Copy)]
enum Leadership {
    /// Somebody else may lead.
    Outside,
    /// The lease was renewed then.
    Leading(Timestamp, Term),
}

/// Whether this process leads, and for how long that is certain. Clones share what they know.
#[derive(Debug, Clone)]
pub(crate) struct LeadershipGuard(Arc<Mutex<Leadership>>);

impl LeadershipGuard {
    /// Nothing passes before the lease is held.
    pub(crate) fn shut() -> Self {
        Self(Arc::new(Mutex::new(Leadership::Outside)))
    }

    /// The lease was renewed, by a call that was sent at `sent`.
    pub(crate) fn renewed(&self, sent: Timestamp, term: Term) {
        self.set(Leadership::Leading(sent, term));
    }

    /// The lease was lost or given back.
    pub(crate) fn shut_again(&self) {
        self.set(Leadership::Outside);
    }

    fn set(&self, leadership: Leadership) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = leadership;
    }

    /// Whether work may go on.
    pub(crate) fn holds(&self) -> bool {
        self.is_certain(Term::works)
    }

    /// Whether a call that may last for so long is over before anybody else can lead.
    pub(crate) fn admits(&self, call: Duration) -> bool {
        self.is_certain(|term, elapsed| term.admits(elapsed, call))
    }

    /// Whether a leader may, so long after the renewal was sent.
    fn is_certain(&self, may: impl FnOnce(Term, Duration) -> bool) -> bool {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Leadership::Outside => false,
            Leadership::Leading(sent, term) => may(term, sent.elapsed()),
        }
    }

    /// Puts the fence around a client of the hub: whatever changes something is asked about at the moment it is
    /// sent. Reading is free. `call` is the longest time for one call.
    pub(crate) fn layer<B>(
        &self,
        call: Duration,
    ) -> FilterLayer<impl Fn(Request<B>) -> Result<Request<B>, NotLeading> + Clone + use<B>> {
        let fence = self.clone();
        FilterLayer::new(move |request: Request<B>| {
            let reads = matches!(*request.method(), Method::GET | Method::HEAD);
            if reads || fence.admits(call) { Ok(request) } else { Err(NotLeading) }
        })
    }

    /// Does `work` while the fence holds; `None` when it fell first. The work takes no step after that, not even the one for
    /// which a process that was frozen wakes up. Calls that it began in tasks of their own are for [`Self::layer`] to stop.
    pub(crate) async fn guard<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if !self.holds() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }
}

/// A call that was not sent.
#[derive(Debug, thiserror::Error)]
#[error("not sent: the leader's lease may end before the answer")]
pub struct NotLeading;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use tower::{Layer, Service};

    const SECOND: Duration = Duration::from_secs(1);
    const TERM: Term = Term { work: Duration::from_secs(10), lease: Duration::from_secs(15) };

    #[rstest]
    #[case::at_work(0, true, true)]
    #[case::nearly(4, true, true)]
    #[case::too_little_left(6, true, false)]
    #[case::over(11, false, false)]
    #[case::another_may_lead(16, false, false)]
    fn the_fence_closes_before_the_lease_ends(
        #[case] elapsed: u32,
        #[case] holds: bool,
        #[case] admits: bool,
    ) {
        let fence = LeadershipGuard::shut();
        fence.renewed(Timestamp::ago(SECOND * elapsed), TERM);
        assert_eq!((fence.holds(), fence.admits(10 * SECOND)), (holds, admits));
    }

    #[test]
    fn it_is_shut_until_the_lease_is_held_and_after_it_was_given_back() {
        let fence = LeadershipGuard::shut();
        assert!(!fence.holds() && !fence.admits(Duration::ZERO));
        fence.clone().renewed(Timestamp::now(), TERM);
        assert!(fence.holds() && fence.admits(SECOND));
        fence.shut_again();
        assert!(!fence.holds() && !fence.admits(Duration::ZERO));
    }

    #[tokio::test]
    async fn work_takes_no_step_once_the_fence_has_fallen() {
        let fence = LeadershipGuard::shut();
        fence.renewed(Timestamp::now(), TERM);
        let done = fence.guard(async { 1 }).await;
        assert_eq!(done, Some(1));
        let steps = std::cell::Cell::new(0);
        let work = async {
            steps.set(1);
            fence.shut_again();
            tokio::task::yield_now().await;
            steps.set(2);
        };
        assert_eq!(fence.guard(work).await, None);
        assert_eq!(steps.get(), 1);
    }

    #[tokio::test]
    async fn a_fenced_client_reads_and_does_not_write() {
        let inner = tower::service_fn(|request: Request<()>| async move {
            Ok::<_, std::convert::Infallible>(request.method().clone())
        });
        let fence = LeadershipGuard::shut();
        let mut client = fence.layer(SECOND).layer(inner);
        let mut send = |method: Method| {
            let mut request = Request::new(());
            *request.method_mut() = method;
            client.call(request)
        };
        assert!(send(Method::GET).await.is_ok());
        for method in [Method::PUT, Method::POST, Method::PATCH, Method::DELETE] {
            let refused = send(method.clone()).await.unwrap_err();
            assert!(refused.is::<NotLeading>(), "{method}");
            fence.renewed(Timestamp::now(), TERM);
            assert_eq!(send(method.clone()).await.unwrap(), method);
            fence.shut_again();
        }
    }
}
