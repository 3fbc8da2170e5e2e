//! A metrics backend, polled.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::pause::pause;
use super::{Feed, FeedHandle, Polled};
use crate::clock;
use crate::feed::checks::Asker;
use crate::feed::promql::poll::Poller;

/// A backend that is polled once an interval, from the beginning of one poll to that of the next.
pub fn query(poller: Poller, interval: Duration) -> Feed {
    Feed {
        name: poller.feed_name(),
        settle: poller.settle_delay(),
        asker: Some(Asker::new(
            poller.backend().clone(),
            poller.cluster_label(),
            poller.backend().timeout() * 2,
        )),
        run: Box::new(move |desk| Box::pin(run(poller, interval, desk))),
    }
}

async fn run(mut poller: Poller, interval: Duration, mut desk: FeedHandle) {
    let mut failures = 0_u32;
    loop {
        let began = Instant::now();
        let t = clock::now() - poller.settle_delay();
        let report = poller.poll(&mut desk, t).await;
        let took = began.elapsed().as_secs_f64();
        failures = if report.ok { 0 } else { failures.saturating_add(1) };
        desk.polled(Polled { t, settle: poller.settle_delay(), took, report }).await;
        sleep_until(began + pause(interval, failures, fastrand::f64())).await;
    }
}
