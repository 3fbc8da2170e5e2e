//! Leader election without I/O: whose the Lease is that all replicas want, and what its holder writes.
//!
//! A candidate counts a Lease's age from when it first saw that version, by its own clock: another machine's clock says
//! nothing. Every change replaces the very version that was read, so of two candidates one wins.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// Annotation of the Lease: the installation whose replicas may lead.
const INSTALLATION: &str = "statusbridge.dev/installation";

/// How long the hub stays an installation's after the last sign of life of any of its leaders. Until then others stand
/// back, so that what an upgrade or an outage of some minutes interrupts is not taken over.
pub const CLAIM: Duration = Duration::from_secs(600);

/// How long a lease lasts from before its renewal was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// Until then the holder works.
    pub work: Duration,
    /// From then on another may hold it.
    pub lease: Duration,
}

impl Term {
    /// Whether the holder still works, so long after the renewal was sent.
    pub fn works(self, elapsed: Duration) -> bool {
        elapsed < self.work
    }

    /// Whether a call that may last for so long is over before another may hold the lease.
    pub fn admits(self, elapsed: Duration, call: Duration) -> bool {
        self.works(elapsed) && elapsed.saturating_add(call) < self.lease
    }
}

/// One of the processes that want to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Of several installations on a hub only one works.
    pub installation: String,
    /// No other process has it.
    pub identity: String,
    /// How long its leases last.
    pub term: Term,
}

/// Who else has the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// Another process of the installation.
    Process(String),
    /// Another installation.
    Installation(String),
}

impl Candidate {
    /// The Lease as this candidate takes it, where it was not seen to change for `unchanged`.
    ///
    /// # Errors
    /// When somebody else has it.
    pub fn take(&self, mut lease: Lease, unchanged: Duration, now: Timestamp) -> Result<Lease, Holder> {
        if let Some(other) = self.claimed(&lease, unchanged) {
            return Err(Holder::Installation(other.to_owned()));
        }
        let spec = lease.spec.take().unwrap_or_default();
        if !self.may_take(&spec, unchanged) {
            return Err(Holder::Process(spec.holder_identity.unwrap_or_default()));
        }
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(INSTALLATION.to_owned(), self.installation.clone());
        lease.spec = Some(self.taken(&spec, now));
        Ok(lease)
    }

    /// The other installation that the hub belongs to.
    fn claimed<'a>(&self, lease: &'a Lease, unchanged: Duration) -> Option<&'a str> {
        let installation = lease.metadata.annotations.as_ref()?.get(INSTALLATION)?;
        (*installation != self.installation && unchanged < CLAIM).then_some(installation)
    }

    fn may_take(&self, spec: &LeaseSpec, unchanged: Duration) -> bool {
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        // Another replica may have been started with a longer lease.
        let stated = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        // This process has given up what it held before.
        holder.is_empty()
            || holder == self.identity
            || unchanged >= self.term.lease.max(Duration::from_secs(stated))
    }

    /// The Lease as its new holder writes it.
    fn taken(&self, before: &LeaseSpec, now: Timestamp) -> LeaseSpec {
        let seconds = i32::try_from(self.term.lease.as_secs()).unwrap_or(i32::MAX);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(seconds),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(before.lease_transitions.unwrap_or_default().saturating_add(1)),
            ..before.clone()
        }
    }
}

/// The version of the Lease that this process saw last, by UID and resource version, and when it saw it first.
#[derive(Debug, Clone, Default)]
pub struct Seen(Option<([Option<String>; 2], Instant)>);

impl Seen {
    /// Looks at the Lease at `now`; for how long it has not changed.
    pub fn look(&mut self, lease: &Lease, now: Instant) -> Duration {
        let version = [lease.metadata.uid.clone(), lease.metadata.resource_version.clone()];
        let first = match self.0.take() {
            Some((known, first)) if known == version => first,
            _ => now,
        };
        self.0 = Some((version, first));
        now.saturating_duration_since(first)
    }
}

/// A Lease that this process holds, as last written.
#[derive(Debug, Clone)]
pub struct Held(pub Lease);

impl Held {
    /// Which change of holders this is.
    pub fn epoch(&self) -> i64 {
        self.0.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default().into()
    }

    /// Whether the Lease as it is now is still that of this leadership.
    pub fn is(&self, other: &Lease) -> bool {
        let who = |lease: &Lease| {
            let spec = lease.spec.clone().unwrap_or_default();
            let annotations = lease.metadata.annotations.as_ref();
            let installation = annotations.and_then(|all| all.get(INSTALLATION)).cloned();
            (lease.metadata.uid.clone(), installation, spec.holder_identity, spec.lease_transitions)
        };
        who(&self.0) == who(other)
    }

    /// The Lease as its holder writes it anew.
    pub fn renewal(&self, now: Timestamp) -> Lease {
        let mut lease = self.0.clone();
        lease.spec.get_or_insert_default().renew_time = Some(MicroTime(now));
        lease
    }

    /// The Lease as its holder leaves it to the next one.
    pub fn given_back(&self, now: Timestamp) -> Lease {
        let mut lease = self.renewal(now);
        lease.spec.get_or_insert_default().holder_identity = None;
        lease
    }
}

#[cfg(test)]
mod simulation_tests;
#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn candidate(identity: &str) -> Candidate {
        let term = Term { work: Duration::from_secs(10), lease: Duration::from_secs(15) };
        Candidate { installation: "own".to_owned(), identity: identity.to_owned(), term }
    }

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
        assert_eq!(candidate("me").may_take(&spec, unchanged), free);
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
        assert_eq!(candidate("me").claimed(&lease, Duration::from_secs(unchanged)), expected);
    }

    #[test]
    fn age_counts_from_when_a_version_was_first_seen_whatever_it_says_of_itself() {
        let mut lease = Lease::default();
        lease.metadata.uid = Some("u".into());
        lease.metadata.resource_version = Some("1".into());
        // Renewed in the year 1970, or in the future: that is the holder's clock.
        for renewed in [Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            lease.spec.get_or_insert_default().renew_time = Some(MicroTime(renewed));
            let (mut seen, start, age) = (Seen::default(), Instant::now(), Duration::from_secs(14));
            assert_eq!(seen.look(&lease, start), Duration::ZERO);
            assert_eq!(seen.look(&lease, start + age), age, "the same version");
            let mut renewed = lease.clone();
            renewed.metadata.resource_version = Some("2".into());
            assert_eq!(seen.clone().look(&renewed, start + age), Duration::ZERO, "another version");
            renewed.metadata = lease.metadata.clone();
            renewed.metadata.uid = Some("v".into());
            assert_eq!(seen.look(&renewed, start + age), Duration::ZERO, "made anew");
        }
    }

    #[test]
    fn every_leadership_has_an_epoch_of_its_own() {
        let now = Timestamp::now();
        for holder in [None, Some("other"), Some("me")] {
            let spec = candidate("me").taken(&held_by(holder, Some(60)), now);
            assert_eq!(spec.lease_transitions, Some(5), "also when the holder stays the same");
            assert_eq!(spec.holder_identity.as_deref(), Some("me"));
            assert_eq!(spec.lease_duration_seconds, Some(15));
        }
        assert_eq!(candidate("me").taken(&LeaseSpec::default(), now).lease_transitions, Some(1));
    }

    #[test]
    fn a_lease_that_another_leadership_wrote_is_not_held() {
        let lease = Lease { spec: Some(held_by(Some("me"), Some(15))), ..Lease::default() };
        let held = Held(lease.clone());
        assert_eq!(held.epoch(), 4);
        assert!(held.is(&held.renewal(Timestamp::UNIX_EPOCH)), "touched by somebody, or renewed");
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
}
