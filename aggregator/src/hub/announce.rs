//! Tells every change of a verdict once, with the reason.
//!
//! What is told is what stands in the hub, as the watch or an accepted write shows it: a write that
//! was tried again, or whose answer got lost, is one change. What the first list shows was told
//! by whoever wrote it, so neither a restart nor a new leader tells it again.

use std::collections::BTreeMap;

use statusbridge_core::reconcile::judged::Judged;
use statusbridge_core::reconcile::store::{Key, Kind, Object};
use tracing::info;

/// Which object, and its verdict when last seen: status and reason, nothing before the first.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    uid: String,
    verdict: Option<(String, String)>,
}

/// Remembers what was told.
#[derive(Debug, Default)]
pub(crate) struct Announcer {
    known: BTreeMap<(Kind, Key), Known>,
}

impl Announcer {
    /// Takes note of an object as it is now; `None` when it is gone. Says whether that was told.
    pub(crate) fn see<S: Judged>(&mut self, key: &Key, object: Option<&Object<S, S::Status>>) -> bool {
        let place = (S::KIND, key.clone());
        let Some(object) = object else {
            self.known.remove(&place);
            return false;
        };
        let verdict = object.status.as_ref().and_then(S::verdict);
        let now = Known {
            uid: object.uid.clone(),
            verdict: verdict.map(|verdict| (verdict.status.clone(), verdict.reason.clone())),
        };
        let before = self.known.get(&place).filter(|before| before.uid == now.uid);
        let Some(verdict) = verdict.filter(|_| before.is_some_and(|before| *before != now)) else {
            self.known.insert(place, now);
            return false;
        };
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
        self.known.insert(place, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use statusbridge_api::{RolloutGateSpec, RolloutGateStatus};

    type Gate = Object<RolloutGateSpec, RolloutGateStatus>;

    fn gate(uid: &str, open: Option<(&str, &str)>) -> Gate {
        let conditions: Vec<_> = open
            .map(|(status, reason)| {
                json!({"type": "Open", "status": status, "reason": reason, "message": "because",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .into_iter()
            .collect();
        let object = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
            "metadata": {"namespace": "fleet", "name": "wave", "uid": uid, "generation": 1},
            "spec": {"fleetPackageRef": {"name": "p"}, "revision": "r", "clusters": {"names": ["a"]}},
            "status": {"conditions": conditions},
        });
        Object::read(serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn each_change_is_told_once_and_what_was_there_is_not() {
        let mut announcer = Announcer::default();
        let mut see = |gate: &Gate| announcer.see(&gate.key.clone(), Some(gate));
        // A restart finds an open gate.
        assert!(!see(&gate("u1", Some(("True", "Healthy")))));
        assert!(!see(&gate("u1", Some(("True", "Healthy")))), "nothing but asOf has changed");
        assert!(see(&gate("u1", Some(("False", "Stale")))));
        assert!(!see(&gate("u1", Some(("False", "Stale")))), "the watch brings what was written");
        assert!(see(&gate("u1", Some(("False", "Failed")))), "another reason");
        // Another object of the same name starts anew, from before its first verdict.
        assert!(!see(&gate("u2", None)));
        assert!(see(&gate("u2", Some(("False", "Failed")))));
        let key = gate("u2", None).key;
        assert!(!announcer.see::<RolloutGateSpec>(&key, None));
        assert!(announcer.known.is_empty(), "what is gone is forgotten");
    }
}
