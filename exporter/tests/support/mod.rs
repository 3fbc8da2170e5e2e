//! Replaying recordings of real controllers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_exporter::{
    recording::Kinds,
    rehearsal::Rehearsal,
    saved::SavedObject,
    source::Preset,
    state::{Limits, Shown},
};

/// The versions in a recording, one object a line.
#[allow(dead_code)] // a sequence may be made by hand
pub(crate) fn recording(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
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
pub(crate) struct Replay {
    rehearsal: Rehearsal,
    /// What is related to it now, by kind and name.
    related: BTreeMap<(String, String), Value>,
}

impl Replay {
    /// Of a preset's package and of what is related to it; `kinds` has an object of each kind that ever comes.
    pub(crate) fn of(preset: &str, kinds: &[Value]) -> Self {
        let source = Preset::find(preset).expect("a preset").source().expect("it compiles");
        let kinds: Vec<_> = kinds.iter().map(|value| SavedObject::new("recording", value.clone())).collect();
        let kinds = Kinds::of(&kinds);
        let begun = Rehearsal::begin(vec![Arc::new(source)], Limits::default(), kinds, Vec::new(), 0);
        Self { rehearsal: begun.0, related: BTreeMap::new() }
    }

    /// What is shown after a version seen at `at` (unix milliseconds), with these related objects and no others, and whether
    /// that is a transition. An expression that fails is a panic.
    pub(crate) fn step(&mut self, object: &Value, related: &[Value], at: i64) -> (Shown, bool) {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let name = |object: &Value| (text(&object["kind"]), text(&object["metadata"]["name"]));
        let related: BTreeMap<_, Value> =
            related.iter().map(|object| (name(object), object.clone())).collect();
        let mut changed = false;
        for (_, gone) in self.related.iter().filter(|(name, _)| !related.contains_key(*name)) {
            changed |= !self.rehearsal.remove(gone, at).is_empty();
        }
        let new = related.iter().filter(|(name, object)| self.related.get(*name) != Some(object));
        for object in new.map(|(_, object)| object).chain([object]) {
            changed |= !self.rehearsal.put(object.clone(), at).is_empty();
        }
        self.related = related;
        let package = self.rehearsal.packages().values().next().expect("a package");
        assert_eq!(package.error, None);
        (package.shown.clone(), changed)
    }
}
