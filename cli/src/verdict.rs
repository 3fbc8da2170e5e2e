//! What an object of the hub tells now, by the rules of the gate page and in the words of its kind.

use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::gate_verdict::{self, Gate, GateVerdict, Question, State};
use statusbridge_core::reconcile::object::{Kind, PackageObject};
use statusbridge_core::time::Seconds;

use crate::text::Colour;

/// The verdict on a gate, or on a FleetPackage, which reads as the gate that is open while it is Ready.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) kind: Kind,
    pub(crate) reading: GateVerdict,
}

/// Who asks, and when: for which revision, where one has to be meant, and how much older than `staleAfter` evidence may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) revision: Option<Fingerprint>,
    pub(crate) slack: Seconds,
    pub(crate) now: Seconds,
}

impl Asked {
    /// For whichever revision the object is at, without slack.
    pub(crate) fn at(now: Seconds) -> Self {
        Self { revision: None, slack: 0.0, now }
    }
}

impl Verdict {
    /// The verdict on a gate; its FleetPackage says how old evidence may be.
    pub(crate) fn of_gate(gate: &Gate, package: Option<&PackageObject>, asked: Asked) -> Self {
        let Asked { revision, slack, now } = asked;
        let spec = package.and_then(|package| package.spec.as_deref().ok());
        let stale_after = spec.and_then(gate_verdict::stale_after);
        let question = Question { revision, stale_after, slack, now };
        Self { kind: gate.kind, reading: gate_verdict::read(gate, &question) }
    }

    pub(crate) fn of_package(package: &PackageObject, asked: Asked) -> Self {
        Self::of_gate(&Gate::from(package), Some(package), asked)
    }

    /// Its state in the words of its kind.
    pub(crate) fn state(&self) -> &'static str {
        match (self.kind, self.reading.state) {
            (Kind::FleetPackage, State::Open) => "Ready",
            (_, state) => state.name(),
        }
    }

    /// The colour of that.
    pub(crate) fn colour(&self) -> Colour {
        match self.reading.state {
            State::Open => Colour::Green,
            State::Waiting | State::OtherRevision => Colour::Yellow,
            State::Stalled | State::NotJudged | State::Stale => Colour::Red,
        }
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serde_json::to_value(&self.reading).map_err(S::Error::custom)?;
        if let Value::Object(fields) = &mut fields {
            fields.insert("kind".to_owned(), json!(self.kind.name()));
            fields.insert("state".to_owned(), json!(self.state()));
        }
        fields.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use statusbridge_core::reconcile::lazy_object::LazyObject;

    use super::*;

    /// 2026-01-01T00:00:10Z
    const NOW: Seconds = 1_767_225_610.0;

    #[rstest]
    #[case::ready("True", "Ready", true)]
    #[case::waiting("False", "Waiting", false)]
    fn a_fleet_package_is_told_in_its_own_words(
        #[case] ready: &str,
        #[case] state: &str,
        #[case] open: bool,
    ) {
        let condition = json!({"type": "Ready", "status": ready, "reason": "Healthy", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let object: LazyObject = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "fleet", "generation": 1},
            "spec": {"package": {"source": "s", "name": "p"}, "clusters": {}, "staleAfter": "60s"},
            "status": {"observedGeneration": 1, "asOf": "2026-01-01T00:00:00Z", "conditions": [condition]},
        }))
        .unwrap();
        let verdict = Verdict::of_package(&PackageObject::read(object).unwrap(), Asked::at(NOW));
        let json = json!(verdict);
        assert_eq!(
            (&json["kind"], &json["state"], &json["open"]),
            (&json!("FleetPackage"), &json!(state), &json!(open))
        );
    }
}
