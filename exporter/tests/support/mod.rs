//! Replaying recordings of real controllers.

use serde_json::Value;
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_exporter::{
    source::{RelatedObject, RelatedObjects, Source},
    state::{
        hold::{self, Settled},
        soak::{self, Known, Shown},
    },
};

/// The versions in a recording, one object a line.
#[allow(dead_code)] // a sequence may be made by hand
pub(crate) fn recording(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

/// What one entry of a source's `related` finds.
#[allow(dead_code)] // not every recording needs both
pub(crate) enum Related {
    One(Option<Value>),
    Many(Vec<Value>),
}

/// The transitions among what was shown: version, apply state, health, healthy revision, reason.
#[allow(dead_code)] // not every recording is told like this
pub(crate) fn transitions<F>(
    shown: &[(F, Shown, bool)],
) -> Vec<(usize, ApplyState, Health, Fingerprint, String)> {
    let told = |(version, (_, shown, _)): (usize, &(F, Shown, bool))| {
        let v = &shown.verdict;
        (version, v.apply, v.health, v.healthy, v.reason.as_deref().unwrap_or_default().to_owned())
    };
    shown.iter().enumerate().filter(|(_, (_, _, changed))| *changed).map(told).collect()
}

/// Since when the object itself says that it is in the state that is shown; `-` when it does not say.
#[allow(dead_code)] // not every source has a time
pub(crate) fn own_time(shown: &Shown) -> String {
    let time = |since| jiff::Timestamp::from_second(since).expect("a time").to_string();
    shown.verdict.since.map_or_else(|| "-".to_owned(), time)
}

/// What is shown of one package while versions of it go by.
#[derive(Default)]
pub(crate) struct Replay {
    settled: Option<Settled>,
    shown: Option<Shown>,
}

impl Replay {
    /// What is shown after a version seen at `at` (unix milliseconds), and whether that is a
    /// transition. `related` is in the order of the source. An expression that fails is a panic.
    pub(crate) fn step(
        &mut self,
        source: &Source,
        object: &Value,
        related: &[Related],
        at: i64,
    ) -> (Shown, bool) {
        let found = related.iter().map(|related| match related {
            Related::One(object) => RelatedObject::One(object.as_ref()),
            Related::Many(objects) => RelatedObject::Many(objects.iter().collect()),
        });
        let evaluation = source.evaluate(object, &RelatedObjects(found.collect()));
        assert_eq!(evaluation.error, None);
        let next = hold::settle(self.settled.as_ref(), evaluation, at);
        let (after, changed) =
            soak::advance(self.shown.as_ref(), next.shown.clone(), Known::Watched, None, at);
        self.settled = Some(next);
        self.shown = Some(after.clone());
        (after, changed)
    }
}
