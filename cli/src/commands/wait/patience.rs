//! When a wait ends: at once when the gate is open or stalled, and after a while when something is
//! wrong that may pass.

use std::time::Duration;

use serde::Serialize;
use statusbridge_core::reconcile::gate_verdict::State;
use statusbridge_core::reconcile::object::Kind;
use statusbridge_core::time::Seconds;
use tokio::time::Instant;

use crate::exit::Exit;
use crate::look::Seen;

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Outcome {
    Open,
    Failed,
    Stalled,
    TimedOut,
    Stale,
    OtherRevision,
    NotFound,
}

impl Outcome {
    /// The exit code for it.
    pub(super) const fn exit(self) -> Exit {
        match self {
            Self::Open => Exit::Done,
            Self::Failed => Exit::Failed,
            Self::Stalled => Exit::Stalled,
            Self::TimedOut => Exit::TimedOut,
            Self::Stale => Exit::Stale,
            Self::OtherRevision => Exit::OtherRevision,
            Self::NotFound => Exit::NotFound,
        }
    }

    /// For people.
    pub(super) const fn words(self, kind: Kind) -> &'static str {
        match self {
            Self::Open if matches!(kind, Kind::FleetPackage) => "ready",
            Self::Open => "open",
            Self::Failed | Self::NotFound => "gave up",
            Self::Stalled => "stalled",
            Self::TimedOut => "the time is over",
            Self::Stale => "gave up, nobody keeps it up to date",
            Self::OtherRevision => "gave up, it is for another revision",
        }
    }
}

/// How long what may be wrong has been wrong.
#[derive(Debug)]
pub(super) struct Patience {
    grace: Duration,
    slack: Seconds,
    wrong: Option<(Outcome, Instant)>,
    reached: bool,
}

impl Patience {
    pub(super) fn new(grace: Duration, slack: Seconds) -> Self {
        Self { grace, slack, wrong: None, reached: false }
    }

    /// Takes note of a look, and says whether the wait ends.
    pub(super) fn see(&mut self, seen: &Seen, at: Instant) -> Option<Outcome> {
        let wrong = match seen {
            Seen::Gate(verdict, _) => match verdict.reading.state {
                State::Open => return Some(Outcome::Open),
                State::Stalled => return Some(Outcome::Stalled),
                State::OtherRevision => Some(Outcome::OtherRevision),
                _ if verdict.reading.is_silent(self.slack) => Some(Outcome::Stale),
                _ => None,
            },
            Seen::NotFound => Some(Outcome::NotFound),
            Seen::Refused(_) => Some(Outcome::Failed),
            // Once it has answered, an API server may take its time to come back.
            Seen::Unreachable(_) if self.reached => None,
            Seen::Unreachable(_) => Some(Outcome::Failed),
        };
        self.reached |= !matches!(seen, Seen::Unreachable(_));
        self.wrong = wrong.map(|wrong| match self.wrong {
            Some((before, since)) if before == wrong => (wrong, since),
            _ => (wrong, at),
        });
        self.wrong.filter(|(_, since)| at.duration_since(*since) >= self.grace).map(|(wrong, _)| wrong)
    }

    /// How long until patience ends, if nothing changes.
    pub(super) fn rest(&self, at: Instant) -> Duration {
        let Some((_, since)) = self.wrong else { return Duration::MAX };
        (since + self.grace).saturating_duration_since(at).max(Duration::from_millis(10))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use statusbridge_core::reconcile::gate_verdict::Gate;
    use statusbridge_core::reconcile::object::{GateObject, Object, PackageObject};

    use crate::verdict::{Asked, Verdict};

    /// A reading in this state.
    fn reading(state: State) -> Seen {
        let status = |open: &str, kind: &str| {
            let condition = |kind: &str, status: &str| {
                json!({"type": kind, "status": status, "reason": "Progressing", "message": "", "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            json!({"observedGeneration": 1, "revision": "r", "asOf": "2026-01-01T00:00:00Z",
                "conditions": [condition("Open", open), condition(kind, "True")]})
        };
        let mut object = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
            "metadata": {"name": "wave", "namespace": "fleet", "generation": 1},
            "spec": {"fleetPackageRef": {"name": "p"}, "revision": "r", "clusters": {"names": ["a"]}},
            "status": status("False", "Reconciling"),
        });
        match state {
            State::Open | State::Stale => object["status"] = status("True", "Ready"),
            State::Stalled => object["status"] = status("False", "Stalled"),
            State::NotJudged => object["metadata"]["generation"] = json!(2),
            State::OtherRevision => object["spec"]["revision"] = json!("s"),
            State::Waiting => {}
        }
        let object: GateObject = Object::read(serde_json::from_value(object).unwrap()).unwrap();
        let revision = Some(statusbridge_contract::Fingerprint::of("r"));
        let asked = Asked { revision, slack: 0.0, now: 1_767_225_610.0 };
        let package = json!({
            "metadata": {"name": "p", "namespace": "fleet", "generation": 1},
            "spec": {"package": {"source": "s", "name": "p"}, "clusters": {}, "staleAfter": "60s"},
        });
        let package = PackageObject::read(serde_json::from_value(package).unwrap());
        // Where there is no FleetPackage, nobody can say how old evidence may be.
        let package = package.filter(|_| state != State::Stale);
        let verdict = Verdict::of_gate(&Gate::from(&object), package.as_ref(), asked);
        assert_eq!(verdict.reading.state, state);
        Seen::Gate(Box::new(verdict), 0.0)
    }

    fn unreachable() -> Seen {
        Seen::Unreachable("connection refused".into())
    }

    #[rstest]
    #[case(reading(State::Open), Some(Outcome::Open), Some(Outcome::Open))]
    #[case(reading(State::Stalled), Some(Outcome::Stalled), Some(Outcome::Stalled))]
    #[case(reading(State::Waiting), None, None)]
    #[case(reading(State::NotJudged), None, Some(Outcome::Stale))]
    #[case(reading(State::Stale), None, Some(Outcome::Stale))]
    #[case(reading(State::OtherRevision), None, Some(Outcome::OtherRevision))]
    #[case(Seen::NotFound, None, Some(Outcome::NotFound))]
    #[case(Seen::Refused("forbidden".into()), None, Some(Outcome::Failed))]
    #[case::never_reached(unreachable(), None, Some(Outcome::Failed))]
    fn what_may_pass_is_given_time(
        #[case] seen: Seen,
        #[case] at_once: Option<Outcome>,
        #[case] in_the_end: Option<Outcome>,
    ) {
        let grace = Duration::from_secs(60);
        let (mut patience, start) = (Patience::new(grace, 0.0), Instant::now());
        assert_eq!(patience.see(&seen, start), at_once);
        assert!(patience.rest(start) >= grace);
        if at_once.is_none() {
            assert_eq!(patience.see(&seen, start + grace - Duration::from_millis(1)), None);
        }
        assert_eq!(patience.see(&seen, start + grace), in_the_end);
    }

    #[test]
    fn what_has_passed_begins_anew_and_an_api_server_may_restart() {
        let grace = Duration::from_secs(60);
        let (mut patience, start) = (Patience::new(grace, 0.0), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (second, seen) in [
            (0, reading(State::OtherRevision)),
            (50, reading(State::Waiting)),
            (55, reading(State::OtherRevision)),
            (100, Seen::NotFound),
            (150, unreachable()),
            (1500, unreachable()),
            (1510, Seen::Refused("not ready".into())),
            (1520, reading(State::NotJudged)),
        ] {
            assert_eq!(patience.see(&seen, at(second)), None, "{second}");
        }
        assert_eq!(patience.rest(at(1570)), Duration::from_secs(10));
        assert_eq!(patience.see(&reading(State::Open), at(1571)), Some(Outcome::Open));
    }
}
