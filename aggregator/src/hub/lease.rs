//! Leader election: of all replicas, only the holder of one Lease works.
//!
//! ```text
//!   stand by: look at the Lease ──free, or unchanged for as long as it lasts──> take it
//!      ▲                                                                         │
//!      └── renewals fail until the deadline, or another holds it ── lead: work, renew
//!                                                                                │ stop
//!                                                              give it back once work has ended
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use statusbridge_api::common::duration;
use statusbridge_core::reconcile::calls::CALL_TIMEOUT;
use statusbridge_core::reconcile::election::{CLAIM, Candidate, Held, Holder, Seen, Term};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::clock;
use crate::health::Health;
use crate::hub::hub_clock::{ClocksDisagree, HubClock};
use crate::hub::leadership_guard::LeadershipGuard;
use crate::hub::write::{FIELD_MANAGER, HubError, in_time, making};
use crate::metrics::Metrics;

/// Name of the Lease.
pub const LEASE: &str = "statusbridge-aggregator-leader";

/// The times of an election, named as in Kubernetes' own components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct Times {
    /// How long after its last sign of life a leader is left alone
    #[arg(
        long = "leader-elect-lease-duration",
        env = "STATUSBRIDGE_LEADER_ELECT_LEASE_DURATION",
        value_name = "DURATION",
        default_value = "15s",
        value_parser = duration
    )]
    pub lease_duration: Duration,
    /// How long a leader goes on working without a renewal
    #[arg(
        long = "leader-elect-renew-deadline",
        env = "STATUSBRIDGE_LEADER_ELECT_RENEW_DEADLINE",
        value_name = "DURATION",
        default_value = "10s",
        value_parser = duration
    )]
    pub renew_deadline: Duration,
    /// Time between two tries of renewing or taking over
    #[arg(
        long = "leader-elect-retry-period",
        env = "STATUSBRIDGE_LEADER_ELECT_RETRY_PERIOD",
        value_name = "DURATION",
        default_value = "2s",
        value_parser = duration
    )]
    pub retry_period: Duration,
}

/// Times that do not fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadTimes {
    /// A leader would hammer on the API server.
    #[error("the retry period must be at least 100ms")]
    Retry,
    /// One failed renewal would end a leadership.
    #[error("the renew deadline must be at least twice the retry period")]
    Renew,
    /// A leader would still work when another may already do.
    #[error("the lease duration must exceed the renew deadline by a second at least")]
    Lease,
    /// There would be no time to write between two renewals.
    #[error("the lease duration must be at least {} s and twice the retry period: that long a write may last", CALL_TIMEOUT.as_secs())]
    Call,
    /// A Lease counts whole seconds.
    #[error("the lease duration must be at most a day, in whole seconds")]
    Whole,
}

impl Times {
    /// Whether they fit together.
    ///
    /// # Errors
    /// When they do not.
    pub fn check(&self) -> Result<(), BadTimes> {
        let Self { lease_duration, renew_deadline, retry_period } = *self;
        let day = Duration::from_secs(24 * 3600);
        match () {
            () if retry_period < Duration::from_millis(100) => Err(BadTimes::Retry),
            () if lease_duration.subsec_nanos() != 0 || lease_duration > day => Err(BadTimes::Whole),
            () if renew_deadline / 2 < retry_period => Err(BadTimes::Renew),
            () if lease_duration < renew_deadline + Duration::from_secs(1) => Err(BadTimes::Lease),
            () if lease_duration < CALL_TIMEOUT + 2 * retry_period => Err(BadTimes::Call),
            () => Ok(()),
        }
    }

    /// How long a lease lasts.
    pub fn term(&self) -> Term {
        Term { work: self.renew_deadline, lease: self.lease_duration }
    }
}

/// Why a Lease was not looked at, or does not count as renewed.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Hub(#[from] HubError),
    #[error("{0}")]
    Clocks(#[from] ClocksDisagree),
}

impl Trouble {
    /// The same as long as it is the same trouble.
    fn what(&self) -> String {
        match self {
            Self::Hub(error) => error.to_string(),
            // By how much may be told as another second each time.
            Self::Clocks(_) => "clocks".to_owned(),
        }
    }
}

/// Takes part in the election for one candidate.
#[derive(Clone)]
pub(crate) struct Election {
    api: Api<Lease>,
    candidate: Candidate,
    retry_period: Duration,
    fence: LeadershipGuard,
    clock: HubClock,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
}

impl Election {
    /// `client` must not be fenced: it is what opens the fence. `clock` is what its answers tell.
    pub(crate) fn new(
        (client, clock): (Client, HubClock),
        namespace: &str,
        candidate: Candidate,
        retry_period: Duration,
        fence: LeadershipGuard,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            candidate,
            retry_period,
            fence,
            clock,
            metrics,
            health,
        }
    }

    /// Does `work` whenever this process leads, each time with the epoch that its leadership is, and
    /// until `stop`. Work that is dropped in the middle has lost the lease; work that is told to
    /// stop ends by itself, and then the lease is given back.
    ///
    /// # Errors
    /// Those of the work.
    pub(crate) async fn run<E>(
        &self,
        stop: &CancellationToken,
        mut work: impl AsyncFnMut(i64) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(held) = self.stand_by(stop).await {
            info!(identity = self.candidate.identity, epoch = held.epoch(), "leading");
            self.metrics.leads(true);
            self.health.ready(false);
            let done = CancellationToken::new();
            let mut renewals = tokio::spawn(self.clone().keep(held.clone(), done.clone()));
            let outcome = tokio::select! {
                biased;
                _ = &mut renewals => None,
                outcome = self.fence.guard(work(held.epoch())) => outcome,
            };
            self.metrics.leads(false);
            self.health.ready(false);
            match outcome {
                None => {
                    warn!(identity = self.candidate.identity, "the lease is lost: another one may lead");
                    if !renewals.is_finished() {
                        renewals.abort();
                        let _ = renewals.await;
                    }
                    self.fence.shut_again();
                }
                Some(outcome) => {
                    done.cancel();
                    let held = renewals.await;
                    self.fence.shut_again();
                    if let Ok(Some(held)) = held {
                        self.give_back(held).await;
                    }
                    return outcome;
                }
            }
        }
        Ok(())
    }

    /// Waits until the Lease is this process's; `None` when told to stop.
    async fn stand_by(&self, stop: &CancellationToken) -> Option<Held> {
        let mut seen = Seen::default();
        let mut leader = None;
        let mut trouble = None;
        // Replicas that are started together should not always ask together.
        let pause = self.retry_period.mul_f64(1.0 + jitter(&self.candidate.identity));
        loop {
            self.health.alive();
            let look = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                look = self.look(&mut seen) => look,
            };
            self.metrics.stands_back(matches!(look, Ok(Err(Holder::Installation(_)))));
            match look {
                Ok(Ok(Some(held))) => return Some(held),
                // Another one was quicker.
                Ok(Ok(None)) => {}
                Ok(Err(Holder::Installation(installation))) => {
                    self.health.ready(false);
                    trouble = None;
                    if leader.as_ref() != Some(&installation) {
                        error!(
                            own = self.candidate.installation,
                            other = installation,
                            "another installation serves this hub: this one stands back, until the other's Lease \
                             {LEASE} has not changed for {} s or is deleted",
                            CLAIM.as_secs()
                        );
                        leader = Some(installation);
                    }
                }
                Ok(Err(Holder::Process(holder))) => {
                    self.health.ready(true);
                    trouble = None;
                    if leader.as_ref() != Some(&holder) {
                        info!(identity = self.candidate.identity, leader = holder, "standing by");
                        leader = Some(holder);
                    }
                }
                Err(error) => {
                    self.health.ready(false);
                    let what = error.what();
                    if trouble.as_ref() != Some(&what) {
                        warn!(%error, "the leader's lease could not be looked at");
                    }
                    trouble = Some(what);
                }
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = sleep(pause) => {}
            }
        }
    }

    /// Looks at the Lease, and takes it unless somebody else has it; `None` when another one was quicker.
    async fn look(&self, seen: &mut Seen) -> Result<Result<Option<Held>, Holder>, Trouble> {
        let lease = match in_time(self.api.get_opt(LEASE)).await? {
            Some(lease) => lease,
            None => self.make().await?,
        };
        self.clock.agrees()?;
        let unchanged = seen.look(&lease, Instant::now());
        match self.candidate.take(lease, unchanged, Timestamp::now()) {
            Ok(lease) => Ok(Ok(self.claim(lease, CALL_TIMEOUT).await?)),
            Err(holder) => Ok(Err(holder)),
        }
    }

    /// Makes a Lease that nobody holds: to create it by name needs rights for this one name only,
    /// and it is harmless when two do it.
    async fn make(&self) -> Result<Lease, HubError> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE},
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        in_time(self.api.patch(LEASE, &params, &Patch::Apply(&lease))).await
    }

    /// Writes the Lease as its holder, which opens the fence; `None` as below.
    async fn claim(&self, lease: Lease, within: Duration) -> Result<Option<Held>, Trouble> {
        // Before it is sent: that is when the time begins that others let pass.
        let sent = clock::Timestamp::now();
        let written = self.replace(lease, within).await?;
        self.clock.agrees()?;
        if written.is_some() {
            self.fence.renewed(sent, self.candidate.term);
        }
        Ok(written.map(Held))
    }

    /// Writes the Lease over the version that was read; `None` when that version is no more.
    async fn replace(&self, lease: Lease, within: Duration) -> Result<Option<Lease>, HubError> {
        let params = making();
        let call = in_time(self.api.replace(LEASE, &params, &lease));
        match timeout(within, call).await.unwrap_or(Err(HubError::Timeout)) {
            Ok(lease) => Ok(Some(lease)),
            Err(HubError::Api(kube::Error::Api(refusal))) if [404, 409].contains(&refusal.code) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Renews until told that work is done, then gives the Lease as last written; `None` when it is lost. Nothing is sent
    /// from then on, whatever is busy.
    async fn keep(self, held: Held, done: CancellationToken) -> Option<Held> {
        let kept = self.renew_until(held, done).await;
        if kept.is_none() {
            self.fence.shut_again();
        }
        kept
    }

    async fn renew_until(&self, mut held: Held, done: CancellationToken) -> Option<Held> {
        loop {
            tokio::select! {
                () = done.cancelled() => return Some(held),
                () = sleep(self.retry_period) => {}
            }
            // It may have slept for longer than it meant to.
            if !self.fence.holds() {
                return None;
            }
            let renewed = self.renew(&held).await;
            self.metrics.renewed(matches!(renewed, Ok(Some(_))));
            match renewed {
                Ok(Some(renewed)) => held = renewed,
                Ok(None) => return None,
                Err(error) => warn!(%error, "the leader's lease could not be renewed"),
            }
            if !self.fence.holds() {
                return None;
            }
        }
    }

    /// Renews once; `None` when another one holds the Lease.
    async fn renew(&self, held: &Held) -> Result<Option<Held>, Trouble> {
        let within = self.candidate.term.work / 2;
        if let Some(renewed) = self.claim(held.renewal(Timestamp::now()), within).await? {
            return Ok(Some(renewed));
        }
        // Somebody has touched it, or an earlier renewal has arrived after all.
        match timeout(within, in_time(self.api.get_opt(LEASE))).await.unwrap_or(Err(HubError::Timeout))? {
            Some(lease) if held.is(&lease) => {
                // A second refusal is no loss yet: the next renewal looks again.
                let held = Held(lease);
                let renewed = self.claim(held.renewal(Timestamp::now()), within).await?;
                Ok(Some(renewed.unwrap_or(held)))
            }
            _ => Ok(None),
        }
    }

    /// Lets the next one lead at once.
    async fn give_back(&self, held: Held) {
        match self.replace(held.given_back(Timestamp::now()), self.candidate.term.work / 2).await {
            Ok(_) => info!(identity = self.candidate.identity, "the lease is given back"),
            Err(error) => warn!(%error, "the lease could not be given back: it ends by itself"),
        }
    }
}

/// From 0 to 0.2, always the same for the same name.
fn jitter(identity: &str) -> f64 {
    let sum: u64 = identity.bytes().map(u64::from).sum();
    (sum % 21) as f64 / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::default(15.0, 10.0, 2.0, Ok(()))]
    #[case::slow(60.0, 40.0, 5.0, Ok(()))]
    #[case::hammering(15.0, 10.0, 0.0, Err(BadTimes::Retry))]
    #[case::one_try(15.0, 3.0, 2.0, Err(BadTimes::Renew))]
    #[case::no_margin(15.0, 15.0, 2.0, Err(BadTimes::Lease))]
    #[case::no_room_for_writes(12.0, 10.0, 2.0, Err(BadTimes::Call))]
    #[case::halves(15.5, 10.0, 2.0, Err(BadTimes::Whole))]
    #[case::for_ever(1e6, 10.0, 2.0, Err(BadTimes::Whole))]
    fn times_must_fit_together(
        #[case] lease: f64,
        #[case] renew: f64,
        #[case] retry: f64,
        #[case] expected: Result<(), BadTimes>,
    ) {
        let times = Times {
            lease_duration: Duration::from_secs_f64(lease),
            renew_deadline: Duration::from_secs_f64(renew),
            retry_period: Duration::from_secs_f64(retry),
        };
        assert_eq!(times.check(), expected);
    }
}
