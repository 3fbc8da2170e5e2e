//! Leader election: of all replicas, only the holder of one Lease works.
//!
//! ```text
//!   stand by: look at the Lease ──free, or unchanged for as long as it lasts──> take it
//!      ▲                                                                         │
//!      └── renewals fail until the deadline, or another holds it ── lead: work, renew
//!                                                                                │ stop
//!                                                              give it back once work has ended
//! ```
//!
//! Every change of the Lease replaces the very version that was read, so of two candidates one
//! wins. A candidate counts a Lease's age from when it first saw that version, by its own clock:
//! another machine's clock says nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use statusbridge_api::common::duration;
use statusbridge_core::reconcile::command::CALL_TIMEOUT;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::clock;
use crate::health::Health;
use crate::hub::leadership_guard::{LeadershipGuard, Term};
use crate::hub::write::{FIELD_MANAGER, HubError, in_time};
use crate::metrics::Metrics;

/// Name of the Lease.
pub const LEASE: &str = "statusbridge-aggregator-leader";

/// Annotation of the Lease: the installation whose replicas may lead.
const INSTALLATION: &str = "statusbridge.dev/installation";

/// How long the hub stays an installation's after the last sign of life of any of its leaders. Until then others stand
/// back, so that what an upgrade or an outage of some minutes interrupts is not taken over.
const CLAIM: Duration = Duration::from_secs(600);

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

    fn term(&self) -> Term {
        Term { work: self.renew_deadline, lease: self.lease_duration }
    }
}

/// A version of the Lease, and when this process first saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    uid: String,
    resource_version: String,
    first: Instant,
}

impl Seen {
    /// Looks at the Lease at `now`, after the version that was seen before.
    fn look(before: Option<Self>, lease: &Lease, now: Instant) -> Self {
        let uid = lease.metadata.uid.clone().unwrap_or_default();
        let resource_version = lease.metadata.resource_version.clone().unwrap_or_default();
        match before {
            Some(seen) if seen.uid == uid && seen.resource_version == resource_version => seen,
            _ => Self { uid, resource_version, first: now },
        }
    }
}

/// The other installation than `own` that the hub belongs to, where the Lease was not seen to change for `unchanged`.
fn claimed<'a>(lease: &'a Lease, own: &str, unchanged: Duration) -> Option<&'a str> {
    let installation = lease.metadata.annotations.as_ref()?.get(INSTALLATION)?;
    (installation != own && unchanged < CLAIM).then_some(installation)
}

/// Whether a Lease that was not seen to change for `unchanged` may be taken by `identity`, whose own
/// leases last for `own`.
fn is_free(spec: &LeaseSpec, identity: &str, unchanged: Duration, own: Duration) -> bool {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    // Another replica may have been started with a longer lease.
    let stated = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
    // What this very process held before it has given up.
    holder.is_empty() || holder == identity || unchanged >= own.max(Duration::from_secs(stated))
}

/// The Lease as its new holder writes it.
fn taken(before: &LeaseSpec, identity: &str, times: &Times, now: Timestamp) -> LeaseSpec {
    let seconds = i32::try_from(times.lease_duration.as_secs()).unwrap_or(i32::MAX);
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(seconds),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(before.lease_transitions.unwrap_or_default().saturating_add(1)),
        ..before.clone()
    }
}

/// A Lease that this process holds, as last written.
#[derive(Debug, Clone)]
struct Held(Lease);

impl Held {
    /// Which change of holders this is.
    fn epoch(&self) -> i64 {
        self.0.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default().into()
    }

    /// Whether the Lease as it is now is still that of this leadership.
    fn is(&self, other: &Lease) -> bool {
        let who = |lease: &Lease| {
            let spec = lease.spec.clone().unwrap_or_default();
            let installation = lease.annotations().get(INSTALLATION).cloned();
            (lease.metadata.uid.clone(), installation, spec.holder_identity, spec.lease_transitions)
        };
        who(&self.0) == who(other)
    }
}

/// What a look at the Lease came to.
enum Look {
    Won(Box<Held>),
    /// Another one holds it.
    Held(String),
    /// The hub is another installation's.
    Claimed(String),
    /// Another one was quicker.
    Beaten,
}

/// One of the replicas that want to lead.
#[derive(Clone)]
pub struct Candidate {
    api: Api<Lease>,
    installation: String,
    identity: String,
    times: Times,
    fence: LeadershipGuard,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
}

impl Candidate {
    /// A candidate of an installation that calls itself `identity`, which no other process may do. `client` must not be
    /// fenced: it is what opens the fence.
    #[expect(clippy::too_many_arguments, reason = "each is a part of its own")]
    pub fn new(
        client: Client,
        namespace: &str,
        installation: String,
        identity: String,
        times: Times,
        fence: LeadershipGuard,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
    ) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, installation, identity, times, fence, metrics, health }
    }

    /// Does `work` whenever this process leads, each time with the epoch that its leadership is, and
    /// until `stop`. Work that is dropped in the middle has lost the lease; work that is told to
    /// stop ends by itself, and then the lease is given back.
    ///
    /// # Errors
    /// Those of the work.
    pub async fn run<E>(
        &self,
        stop: &CancellationToken,
        mut work: impl AsyncFnMut(i64) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(held) = self.stand_by(stop).await {
            info!(identity = self.identity, epoch = held.epoch(), "leading");
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
                    warn!(identity = self.identity, "the lease is lost: another one may lead");
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
        let mut seen = None;
        let mut leader = None;
        let mut trouble = None;
        // Replicas that are started together should not always ask together.
        let pause = self.times.retry_period.mul_f64(1.0 + jitter(&self.identity));
        loop {
            self.health.alive();
            let look = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                look = self.look(&mut seen) => look,
            };
            self.metrics.stands_back(matches!(look, Ok(Look::Claimed(_))));
            match look {
                Ok(Look::Won(held)) => return Some(*held),
                Ok(Look::Claimed(installation)) => {
                    self.health.ready(false);
                    trouble = None;
                    if leader.as_ref() != Some(&installation) {
                        error!(
                            own = self.installation,
                            other = installation,
                            "another installation serves this hub: this one stands back, until the other's Lease \
                             {LEASE} has not changed for {} s or is deleted",
                            CLAIM.as_secs()
                        );
                        leader = Some(installation);
                    }
                }
                Ok(Look::Held(holder)) => {
                    self.health.ready(true);
                    trouble = None;
                    if leader.as_ref() != Some(&holder) {
                        info!(identity = self.identity, leader = holder, "standing by");
                        leader = Some(holder);
                    }
                }
                Ok(Look::Beaten) => {}
                Err(error) => {
                    self.health.ready(false);
                    let error = error.to_string();
                    if trouble.as_ref() != Some(&error) {
                        warn!(error, "the leader's lease could not be looked at");
                    }
                    trouble = Some(error);
                }
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = sleep(pause) => {}
            }
        }
    }

    /// Looks at the Lease, and takes it if it is free.
    async fn look(&self, seen: &mut Option<Seen>) -> Result<Look, HubError> {
        let mut lease = match in_time(self.api.get_opt(LEASE)).await? {
            Some(lease) => lease,
            None => self.make().await?,
        };
        let now = Instant::now();
        let known = Seen::look(seen.take(), &lease, now);
        let unchanged = now.saturating_duration_since(known.first);
        *seen = Some(known);
        if let Some(other) = claimed(&lease, &self.installation, unchanged) {
            return Ok(Look::Claimed(other.to_owned()));
        }
        lease.annotations_mut().insert(INSTALLATION.to_owned(), self.installation.clone());
        let spec = lease.spec.unwrap_or_default();
        if !is_free(&spec, &self.identity, unchanged, self.times.lease_duration) {
            return Ok(Look::Held(spec.holder_identity.unwrap_or_default()));
        }
        lease.spec = Some(taken(&spec, &self.identity, &self.times, Timestamp::now()));
        Ok(self.claim(lease, CALL_TIMEOUT).await?.map_or(Look::Beaten, |held| Look::Won(Box::new(held))))
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
    async fn claim(&self, lease: Lease, within: Duration) -> Result<Option<Held>, HubError> {
        // Before it is sent: that is when the time begins that others let pass.
        let sent = clock::Timestamp::now();
        let written = self.replace(lease, within).await?;
        if written.is_some() {
            self.fence.renewed(sent, self.times.term());
        }
        Ok(written.map(Held))
    }

    /// Writes the Lease over the version that was read; `None` when that version is no more.
    async fn replace(&self, lease: Lease, within: Duration) -> Result<Option<Lease>, HubError> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let call = in_time(self.api.replace(LEASE, &params, &lease));
        match timeout(within, call).await.unwrap_or(Err(HubError::Timeout)) {
            Ok(lease) => Ok(Some(lease)),
            Err(HubError::Api(kube::Error::Api(refusal))) if [404, 409].contains(&refusal.code) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Renews until told that work is done, then gives the Lease as last written; `None` when it is
    /// lost.
    async fn keep(self, mut held: Held, done: CancellationToken) -> Option<Held> {
        loop {
            tokio::select! {
                () = done.cancelled() => return Some(held),
                () = sleep(self.times.retry_period) => {}
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
    async fn renew(&self, held: &Held) -> Result<Option<Held>, HubError> {
        let within = self.times.renew_deadline / 2;
        if let Some(renewed) = self.claim(renewal(&held.0), within).await? {
            return Ok(Some(renewed));
        }
        // Somebody has touched it, or an earlier renewal has arrived after all.
        match timeout(within, in_time(self.api.get_opt(LEASE))).await.unwrap_or(Err(HubError::Timeout))? {
            Some(lease) if held.is(&lease) => {
                // A second refusal is no loss yet: the next renewal looks again.
                let renewed = self.claim(renewal(&lease), within).await?;
                Ok(Some(renewed.unwrap_or(Held(lease))))
            }
            _ => Ok(None),
        }
    }

    /// Lets the next one lead at once.
    async fn give_back(&self, held: Held) {
        let mut lease = held.0;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        match self.replace(lease, self.times.renew_deadline / 2).await {
            Ok(_) => info!(identity = self.identity, "the lease is given back"),
            Err(error) => warn!(%error, "the lease could not be given back: it ends by itself"),
        }
    }
}

fn renewal(lease: &Lease) -> Lease {
    let mut lease = lease.clone();
    lease.spec.get_or_insert_default().renew_time = Some(MicroTime(Timestamp::now()));
    lease
}

/// From 0 to 0.2, always the same for the same name.
fn jitter(identity: &str) -> f64 {
    let sum: u64 = identity.bytes().map(u64::from).sum();
    (sum % 21) as f64 / 100.0
}

#[cfg(test)]
mod simulation_tests;
#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const TIMES: Times = Times {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };

    fn held_by(holder: Option<&str>, seconds: Option<i32>) -> LeaseSpec {
        LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: seconds,
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        }
    }

    #[rstest]
    #[case::nobody(held_by(None, None), 0, true)]
    #[case::given_back(held_by(Some(""), Some(15)), 0, true)]
    #[case::own(held_by(Some("me"), Some(15)), 0, true)]
    #[case::just_seen(held_by(Some("other"), Some(15)), 0, false)]
    #[case::not_yet(held_by(Some("other"), Some(15)), 14, false)]
    #[case::over(held_by(Some("other"), Some(15)), 15, true)]
    #[case::theirs_is_longer(held_by(Some("other"), Some(60)), 59, false)]
    #[case::theirs_is_longer_and_over(held_by(Some("other"), Some(60)), 60, true)]
    #[case::theirs_is_shorter(held_by(Some("other"), Some(1)), 14, false)]
    #[case::nonsense(held_by(Some("other"), Some(-5)), 14, false)]
    fn when_a_lease_may_be_taken(#[case] spec: LeaseSpec, #[case] unchanged: u64, #[case] free: bool) {
        let unchanged = Duration::from_secs(unchanged);
        assert_eq!(is_free(&spec, "me", unchanged, TIMES.lease_duration), free);
    }

    #[rstest]
    #[case::nobodys(None, 0, None)]
    #[case::own(Some("own"), 0, None)]
    #[case::anothers(Some("other"), 0, Some("other"))]
    #[case::anothers_that_restarts(Some("other"), 599, Some("other"))]
    #[case::anothers_that_is_gone(Some("other"), 600, None)]
    fn whose_a_hub_is(
        #[case] installation: Option<&str>,
        #[case] unchanged: u64,
        #[case] expected: Option<&str>,
    ) {
        let mut lease = Lease::default();
        let annotations = installation.map(|name| (INSTALLATION.to_owned(), name.to_owned()));
        lease.metadata.annotations = Some(annotations.into_iter().collect());
        assert_eq!(claimed(&lease, "own", Duration::from_secs(unchanged)), expected);
    }

    #[test]
    fn age_counts_from_when_a_version_was_first_seen_whatever_it_says_of_itself() {
        let mut lease = Lease::default();
        lease.metadata.uid = Some("u".into());
        lease.metadata.resource_version = Some("1".into());
        // Renewed in the year 1970, or in the future: that is the holder's clock.
        for renewed in [Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            lease.spec.get_or_insert_default().renew_time = Some(MicroTime(renewed));
            let start = Instant::now();
            let seen = Seen::look(None, &lease, start);
            assert_eq!(seen.first, start);
            let later = start + Duration::from_secs(14);
            let seen = Seen::look(Some(seen), &lease, later);
            assert_eq!(seen.first, start, "the same version");
            let mut renewed = lease.clone();
            renewed.metadata.resource_version = Some("2".into());
            assert_eq!(Seen::look(Some(seen.clone()), &renewed, later).first, later, "another version");
            renewed.metadata = lease.metadata.clone();
            renewed.metadata.uid = Some("v".into());
            assert_eq!(Seen::look(Some(seen), &renewed, later).first, later, "made anew");
        }
    }

    #[test]
    fn every_leadership_has_an_epoch_of_its_own() {
        let now = Timestamp::now();
        for holder in [None, Some("other"), Some("me")] {
            let spec = taken(&held_by(holder, Some(60)), "me", &TIMES, now);
            assert_eq!(spec.lease_transitions, Some(5), "also when the holder stays the same");
            assert_eq!(spec.holder_identity.as_deref(), Some("me"));
            assert_eq!(spec.lease_duration_seconds, Some(15));
        }
        assert_eq!(taken(&LeaseSpec::default(), "me", &TIMES, now).lease_transitions, Some(1));
    }

    #[test]
    fn a_lease_that_another_leadership_wrote_is_not_held() {
        let lease = Lease { spec: Some(held_by(Some("me"), Some(15))), ..Lease::default() };
        let held = Held(lease.clone());
        assert_eq!(held.epoch(), 4);
        assert!(held.is(&renewal(&lease)), "touched by somebody, or renewed");
        for change in [
            |spec: &mut LeaseSpec| spec.holder_identity = Some("other".into()),
            |spec: &mut LeaseSpec| spec.holder_identity = None,
            |spec: &mut LeaseSpec| spec.lease_transitions = Some(5),
        ] {
            let mut other = lease.clone();
            change(other.spec.as_mut().unwrap());
            assert!(!held.is(&other), "{other:?}");
        }
    }

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
