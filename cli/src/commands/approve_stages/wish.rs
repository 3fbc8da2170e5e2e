//! What the annotations of an update run ask for, and whether what was seen of the gate allows it.

use std::collections::BTreeMap;

use statusbridge_contract::{Fingerprint, wanted};
use statusbridge_core::reconcile::object::Key;
use statusbridge_core::time::Seconds;

use crate::look::Seen;
use crate::target::name;
use crate::text::{cut, one_line};

/// Before the name of a stage: the annotation that names its gate.
const GATE: &str = "gate.statusbridge.dev";
/// The annotation that names the revision.
const REVISION: &str = "statusbridge.dev/revision";
/// Most characters of a message, and of what it quotes.
const LONGEST_MESSAGE: usize = 1024;
const LONGEST_QUOTE: usize = 100;

/// The gate that has to be open before a stage is approved, and the revision that it has to be open for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wish {
    pub(super) gate: Key,
    pub(super) revision: Fingerprint,
}

/// What a run asks for about a stage; `None`: that a person approves it.
///
/// # Errors
/// In words for a user, when that makes no sense.
pub(super) fn wish(annotations: &BTreeMap<String, String>, stage: &str) -> Result<Option<Wish>, String> {
    let annotation = format!("{GATE}/{stage}");
    let Some(gate) = annotations.get(&annotation) else { return Ok(None) };
    let key = gate
        .split_once('/')
        .and_then(|(namespace, gate)| Some(Key { namespace: name(namespace).ok()?, name: name(gate).ok()? }));
    let quoted = |text: &str| format!("{:?}", cut(text, LONGEST_QUOTE));
    let gate =
        key.ok_or_else(|| format!("its annotation {annotation} is {}, not NAMESPACE/NAME", quoted(gate)))?;
    let revision = annotations.get(REVISION).ok_or_else(|| {
        format!("it has an annotation {annotation}, and none {REVISION} that says for which revision")
    })?;
    let revision = wanted::fingerprint(revision).map_err(|error| {
        format!("its annotation {REVISION} names no revision: {}", cut(&error.to_string(), LONGEST_MESSAGE))
    })?;
    Ok(Some(Wish { gate, revision }))
}

/// Whether a stage is approved now.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Decision {
    Approve {
        message: String,
        /// The hub's present, when the gate was open.
        at: Seconds,
    },
    Wait {
        message: String,
        /// What would be news if it changed.
        state: String,
    },
}

/// Decides: only a gate that is open for the revision, as `wait` judges it, approves.
pub(super) fn decide(wish: &Wish, seen: &Seen) -> Decision {
    let Wish { gate, revision } = wish;
    let said = |how: &str| {
        let text = format!("gate {gate} {how} {revision}: {}", seen.text());
        cut(&one_line(&text), LONGEST_MESSAGE)
    };
    match seen {
        Seen::Gate(verdict, now) if verdict.reading.is_open() => {
            Decision::Approve { message: said("is open for revision"), at: *now }
        }
        _ => {
            let (state, reason, _) = seen.words();
            Decision::Wait {
                message: said("is not open for revision"),
                state: format!("{gate} {state} {reason}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use statusbridge_core::reconcile::gate_verdict::Gate;
    use statusbridge_core::reconcile::object::{GateObject, PackageObject};

    use super::*;
    use crate::verdict::{Asked, Verdict};

    /// 2026-01-01T00:00:10Z
    const NOW: Seconds = 1_767_225_610.0;
    const COMMIT: &str = "main@sha1:4f0e2a91c3d5b7e6f80912a4b6c8d0e2f4a6b8c0";

    fn asked(gate: Option<&str>, revision: Option<&str>) -> Result<Option<Wish>, String> {
        let mut annotations = BTreeMap::from([("gate.statusbridge.dev/other".to_owned(), "x".to_owned())]);
        annotations.extend(gate.map(|gate| ("gate.statusbridge.dev/wave1".to_owned(), gate.to_owned())));
        annotations.extend(revision.map(|it| ("statusbridge.dev/revision".to_owned(), it.to_owned())));
        wish(&annotations, "wave1")
    }

    #[rstest]
    #[case(Some("default/wave-1"), Some(COMMIT), Some("default/wave-1"))]
    #[case::a_person_approves(None, None, None)]
    #[case::so_too(None, Some("no revision@"), None)]
    fn a_run_names_the_gate_of_a_stage(
        #[case] gate: Option<&str>,
        #[case] revision: Option<&str>,
        #[case] expected: Option<&str>,
    ) {
        let wish = asked(gate, revision).unwrap();
        assert_eq!(wish.as_ref().map(|wish| wish.gate.to_string()).as_deref(), expected);
        if let Some(wish) = wish {
            assert_eq!(wish.revision, Fingerprint::of(COMMIT));
        }
    }

    #[rstest]
    #[case("wave-1", Some(COMMIT), "gate.statusbridge.dev/wave1 is \"wave-1\", not NAMESPACE/NAME")]
    #[case("default/wave/1", Some(COMMIT), "not NAMESPACE/NAME")]
    #[case("../wave-1", Some(COMMIT), "not NAMESPACE/NAME")]
    #[case("", Some(COMMIT), "not NAMESPACE/NAME")]
    #[case("default/wave-1", None, "none statusbridge.dev/revision")]
    #[case("default/wave-1", Some(""), "names no revision")]
    #[case("default/wave-1", Some("main@sha1:489d0f70"), "names no revision")]
    fn annotations_that_make_no_sense_are_told_of(
        #[case] gate: &str,
        #[case] revision: Option<&str>,
        #[case] expected: &str,
    ) {
        let error = asked(Some(gate), revision).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_message_quotes_no_more_than_fits_a_line() {
        let error = asked(Some(&"x\n".repeat(100_000)), Some(COMMIT)).unwrap_err();
        assert!(error.len() < 500 && !error.contains('\n'), "{error}");
        let error =
            asked(Some("default/wave-1"), Some(&format!("main@sha1:{}", "a".repeat(100_000)))).unwrap_err();
        assert!(error.len() < 5000, "{}", error.len());
    }

    /// The gate as it is told of at revision `v2`, changed like this.
    fn gate(change: &[(&str, Value)], revision: &str) -> Seen {
        let mut gate = json!({
            "metadata": {"namespace": "default", "name": "wave-1", "generation": 1},
            "spec": {"fleetPackageRef": {"name": "p"}, "revision": "v2", "clusters": {"names": ["a"]}},
            "status": {"observedGeneration": 1, "revision": "v2", "asOf": "2026-01-01T00:00:00Z", "healthy": "1/1",
                "conditions": [{"type": "Open", "status": "True", "reason": "Healthy", "message": "1 of 1 clusters",
                    "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        for (path, value) in change {
            *gate.pointer_mut(path).unwrap() = value.clone();
        }
        let gate = GateObject::read(serde_json::from_value(gate).unwrap()).unwrap();
        let package = json!({
            "metadata": {"name": "p", "namespace": "default", "generation": 1},
            "spec": {"package": {"source": "s", "name": "p"}, "clusters": {}, "staleAfter": "60s"},
        });
        let package = PackageObject::read(serde_json::from_value(package).unwrap());
        let asked = Asked { revision: Some(Fingerprint::of(revision)), slack: 5.0, now: NOW };
        Seen::Gate(Box::new(Verdict::of_gate(&Gate::from(&gate), package.as_ref(), asked)), NOW)
    }

    #[rstest]
    #[case(gate(&[], "v2"), None)]
    #[case(gate(&[("/status/conditions/0/status", json!("False"))], "v2"), Some("Waiting Healthy"))]
    #[case(gate(&[], "v3"), Some("OtherRevision OtherRevision"))]
    #[case::moved(gate(&[("/metadata/generation", json!(2))], "v2"), Some("NotJudged Pending"))]
    #[case::old(gate(&[("/status/asOf", json!("2025-12-31T23:59:04Z"))], "v2"), Some("Stale Stale"))]
    #[case::undated(gate(&[("/status/asOf", json!(null))], "v2"), Some("Stale Stale"))]
    #[case::ahead(gate(&[("/status/asOf", json!("2026-01-01T00:02:00Z"))], "v2"), Some("Stale ClockSkew"))]
    #[case(Seen::NotFound, Some("NotFound "))]
    #[case(Seen::Refused("forbidden".to_owned()), Some("Refused forbidden"))]
    #[case(Seen::Unreachable("refused".to_owned()), Some("Unreachable "))]
    fn only_an_open_gate_approves(#[case] seen: Seen, #[case] waits: Option<&str>) {
        let wish = Wish {
            gate: Key { namespace: "default".to_owned(), name: "wave-1".to_owned() },
            revision: Fingerprint::of("v2"),
        };
        match (decide(&wish, &seen), waits) {
            (Decision::Approve { message, at }, None) => {
                let revision = Fingerprint::of("v2");
                let expected = format!(
                    "gate default/wave-1 is open for revision {revision}: Healthy: 1 of 1 clusters (1/1)"
                );
                assert_eq!((message, at), (expected, NOW));
            }
            (Decision::Wait { message, state }, Some(expected)) => {
                assert_eq!(state, format!("default/wave-1 {expected}"));
                assert!(message.starts_with("gate default/wave-1 is not open for revision"), "{message}");
            }
            (decision, _) => panic!("{decision:?}"),
        }
    }
}
