//! Tells every change of a verdict once, with the reason, and says who else is to be told of it.
//!
//! What is told is what stands in the hub, as the watch or an accepted write shows it: a write that
//! was tried again, or whose answer got lost, is one change. A leader tells nothing of a status before it has judged the
//! object itself and its own epoch stands there; the status that it finds is where the next change begins. Then it also
//! passes on a change that is young and that the leader before may not have told any more: whoever is told knows by its
//! time and name whether it was.

use std::collections::BTreeMap;

use statusbridge_core::decide::transition::{Report, Reported, Transition, transition};
use statusbridge_core::decide::{Evidence, unix};
use statusbridge_core::reconcile::judged::Judged;
use statusbridge_core::reconcile::object::{Key, Kind, Object};
use statusbridge_core::time::Seconds;
use tracing::info;

/// For so long a change may be told again by a leader that does not know whether it was: shorter than Events are kept.
const YOUNG: Seconds = 600.0;

/// Which object, and what it said when last seen.
#[derive(Debug, PartialEq)]
struct Known {
    uid: String,
    report: Option<Report>,
    /// Whether this leader has judged it.
    is_own: bool,
}

/// A change that others are told of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// What the object said before, where it said anything.
    pub(crate) before: Option<Report>,
    /// What it says.
    pub(crate) now: Report,
    /// What of it is new, or may not have been told.
    pub(crate) what: Transition,
}

/// Remembers what was told.
#[derive(Debug)]
pub(crate) struct Announcer {
    epoch: i64,
    known: BTreeMap<(Kind, Key), Known>,
}

impl Announcer {
    /// One that knows nothing, of the leadership with this epoch.
    pub(crate) fn new(epoch: i64) -> Self {
        Self { epoch, known: BTreeMap::new() }
    }

    /// Takes note of an object as it is now; `None` when it is gone. What others are to be told, if anything.
    pub(crate) fn see<S: Judged>(
        &mut self,
        key: &Key,
        object: Option<&Object<S, S::Status>>,
        now: Seconds,
    ) -> Option<Change> {
        let place = (S::KIND, key.clone());
        let Some(object) = object else {
            self.known.remove(&place);
            return None;
        };
        let known = self.known.remove(&place).filter(|known| known.uid == object.uid);
        let report = object.status.as_ref().and_then(S::Status::report);
        let uid = object.uid.clone();
        let Some(report) = report else {
            let known = known.unwrap_or(Known { uid, report: None, is_own: false });
            self.known.insert(place, known);
            return None;
        };
        let is_own = object.status.clone().is_some_and(|mut status| *status.epoch() == Some(self.epoch));
        let (before, was_own) = known.map_or((None, false), |known| (known.report, known.is_own));
        let changed = transition(before.as_ref(), &report);
        self.known.insert(place, Known { uid, report: Some(report.clone()), is_own: is_own || was_own });
        if !is_own {
            return None;
        }
        let is_young = report.verdict_since.as_ref().is_none_or(|since| now - unix(since) < YOUNG);
        if is_young && changed.is_some_and(|it| it.verdict) {
            let verdict = &report.condition;
            info!(
                kind = S::KIND.name(),
                object = %key,
                generation = object.generation,
                condition = verdict.type_,
                status = verdict.status,
                reason = verdict.reason,
                why = verdict.message,
                "verdict"
            );
        }
        // The leader before may not have come to tell what it wrote.
        let mut what = if was_own { changed? } else { transition(None, &report)? };
        what.verdict &= is_young;
        (what.verdict || what.outcome).then(|| Change {
            before: before.filter(|it| transition(Some(it), &report).is_some()),
            now: report,
            what,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use statusbridge_api::{RolloutGateSpec, RolloutGateStatus};

    type Gate = Object<RolloutGateSpec, RolloutGateStatus>;

    const BEGIN: &str = "2026-01-01T00:00:00Z";

    fn now(seconds: Seconds) -> Seconds {
        BEGIN.parse::<jiff::Timestamp>().unwrap().as_second() as Seconds + seconds
    }

    fn gate(uid: &str, epoch: i64, open: Option<(&str, &str)>) -> Gate {
        let conditions: Vec<_> = open
            .map(|(status, reason)| {
                json!({"type": "Open", "status": status, "reason": reason, "message": "because",
                    "lastTransitionTime": BEGIN})
            })
            .into_iter()
            .collect();
        let object = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
            "metadata": {"namespace": "fleet", "name": "wave", "uid": uid, "generation": 1},
            "spec": {"fleetPackageRef": {"name": "p"}, "revision": "r", "clusters": {"names": ["a"]}},
            "status": {"observedGeneration": 1, "epoch": epoch, "revision": "r", "verdictSince": BEGIN,
                "conditions": conditions},
        });
        Object::read(serde_json::from_value(object).unwrap()).unwrap()
    }

    /// What an announcer of epoch 7 says of the verdict, of the outcome, and what there was before.
    fn told(announcer: &mut Announcer, gate: &Gate, at: Seconds) -> Option<(bool, bool, Option<String>)> {
        let change = announcer.see(&gate.key.clone(), Some(gate), now(at))?;
        Some((change.what.verdict, change.what.outcome, change.before.map(|it| it.condition.reason)))
    }

    #[test]
    fn each_change_is_told_once() {
        let mut announcer = Announcer::new(7);
        let mut see = |gate: &Gate| told(&mut announcer, gate, 1.0);
        assert_eq!(see(&gate("u1", 7, None)), None);
        assert_eq!(see(&gate("u1", 7, Some(("True", "Healthy")))), Some((true, true, None)));
        assert_eq!(see(&gate("u1", 7, Some(("True", "Healthy")))), None, "nothing but asOf has changed");
        let stale = Some((true, false, Some("Healthy".to_owned())));
        assert_eq!(see(&gate("u1", 7, Some(("False", "Stale")))), stale);
        assert_eq!(see(&gate("u1", 7, Some(("False", "Stale")))), None, "the watch brings what was written");
        // Another object of the same name starts anew, from before its first verdict.
        assert_eq!(see(&gate("u2", 7, None)), None);
        assert_eq!(see(&gate("u2", 7, Some(("False", "Stale")))), Some((true, true, None)));
        let key = gate("u2", 7, None).key;
        assert_eq!(announcer.see::<RolloutGateSpec>(&key, None, now(1.0)), None);
        assert!(announcer.known.is_empty(), "what is gone is forgotten");
    }

    #[test]
    fn a_leader_tells_what_it_has_judged_itself_and_what_the_one_before_may_not_have_told() {
        for (at, young) in [(1.0, true), (599.0, true), (601.0, false)] {
            let mut announcer = Announcer::new(7);
            let mut see = |gate: &Gate| told(&mut announcer, gate, at);
            assert_eq!(see(&gate("u1", 6, Some(("True", "Healthy")))), None, "another leader's");
            assert_eq!(see(&gate("u1", 7, Some(("True", "Healthy")))), Some((young, true, None)));
            assert_eq!(see(&gate("u1", 7, Some(("True", "Healthy")))), None);
        }
    }

    #[test]
    fn a_leader_that_finds_another_verdict_tells_what_there_was() {
        let mut announcer = Announcer::new(7);
        assert_eq!(told(&mut announcer, &gate("u1", 6, Some(("True", "Healthy"))), 1.0), None);
        let stale = Some((true, true, Some("Healthy".to_owned())));
        assert_eq!(told(&mut announcer, &gate("u1", 7, Some(("False", "Stale"))), 1.0), stale);
    }

    #[test]
    fn what_somebody_else_wrote_is_not_told() {
        let mut announcer = Announcer::new(7);
        told(&mut announcer, &gate("u1", 7, Some(("False", "Stale"))), 1.0);
        let mut forged = gate("u1", 7, Some(("True", "Healthy")));
        forged.status.as_mut().unwrap().observed_generation = None;
        assert_eq!(told(&mut announcer, &forged, 1.0), None);
        assert_eq!(told(&mut announcer, &gate("u1", 7, Some(("False", "Stale"))), 1.0), None);
    }
}
