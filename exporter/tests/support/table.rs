//! Tables of cases in tests/cases: what presets say about objects.

#![allow(dead_code)] // not every test needs all of it

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use serde::Deserialize;
use serde_json::Value;
use statusbridge_contract::Fingerprint;
use statusbridge_exporter::source::{
    Evaluation, RelatedObject, RelatedObjects, ResourceState, ResourceSummary, Source,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// The presets that it is about.
    pub(crate) of: Vec<String>,
    /// `object`, under `related` what each entry of the preset's `related` finds, and under `leaves` the
    /// health of each object that the package consists of.
    pub(crate) base: Value,
    pub(crate) expect: Expected,
    pub(crate) cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Case {
    pub(crate) name: String,
    #[serde(default)]
    patch: Value,
    #[serde(default)]
    replace: BTreeMap<String, Value>,
    #[serde(default)]
    expect: Expected,
    /// With leaf health turned on.
    #[serde(default)]
    pub(crate) leaf_health: bool,
    /// An API server with the system's own CRD would refuse it or drop a part of it.
    #[serde(default)]
    pub(crate) rubbish: bool,
}

impl Table {
    /// All tables in a directory, in order of their files.
    pub(crate) fn all(directory: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(directory).expect("the directory of tables");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("a directory entry").path()).collect();
        paths.sort();
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        paths.iter().map(|path| read(path)).collect()
    }

    /// The objects of a case.
    pub(crate) fn objects(&self, case: &Case) -> Value {
        let mut objects = self.base.clone();
        if !case.patch.is_null() {
            merge(&mut objects, &case.patch);
        }
        for (pointer, value) in &case.replace {
            replace(&mut objects, pointer, value);
        }
        objects
    }

    /// What is expected of a case, in the words of [`describe`].
    pub(crate) fn expected(&self, case: &Case) -> String {
        case.expect.clone().or(&self.expect)
    }
}

/// What a case expects; what it leaves out is as in the base.
#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    pub(crate) apply: Option<String>,
    pub(crate) health: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) desired: Option<String>,
    pub(crate) applied: Option<String>,
    pub(crate) healthy: Option<String>,
    pub(crate) since: Option<String>,
    pub(crate) undecided: Option<bool>,
    pub(crate) resources: Option<String>,
    pub(crate) error: Option<String>,
}

impl Expected {
    fn or(self, base: &Self) -> String {
        let or = |own: Option<String>, base: &Option<String>| own.or(base.clone()).unwrap_or_default();
        let revision = |text: String| Fingerprint::of(&text).to_string();
        // An object that cannot be evaluated is not held.
        let undecided = self.undecided.or(base.undecided).unwrap_or_default() && self.error.is_none();
        lines([
            ("apply", or(self.apply, &base.apply)),
            ("health", or(self.health, &base.health)),
            ("reason", or(self.reason, &base.reason)),
            ("desired", revision(or(self.desired, &base.desired))),
            ("applied", revision(or(self.applied, &base.applied))),
            ("healthy", revision(or(self.healthy, &base.healthy))),
            ("since", or(self.since, &base.since)),
            ("undecided", undecided.to_string()),
            ("resources", or(self.resources, &base.resources)),
            ("error", or(self.error, &base.error)),
        ])
    }
}

fn lines<const N: usize>(fields: [(&str, String); N]) -> String {
    fields.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name}: {value}");
        text
    })
}

pub(crate) fn describe(evaluation: &Evaluation) -> String {
    let verdict = &evaluation.verdict;
    let time = |seconds| jiff::Timestamp::from_second(seconds).expect("a time that fits").to_string();
    let counts = |i: statusbridge_exporter::source::Counts| format!("{}/{}/{}", i.total, i.current, i.failed);
    lines([
        ("apply", verdict.apply.to_string()),
        ("health", verdict.health.to_string()),
        ("reason", verdict.reason.as_deref().unwrap_or_default().to_owned()),
        ("desired", verdict.desired.to_string()),
        ("applied", verdict.applied.to_string()),
        ("healthy", verdict.healthy.to_string()),
        ("since", verdict.since.map(time).unwrap_or_default()),
        ("undecided", evaluation.hold.is_some_and(|hold| hold.undecided).to_string()),
        ("resources", verdict.resources.map(counts).unwrap_or_default()),
        ("error", evaluation.error.as_ref().map(|e| e.field.clone()).unwrap_or_default()),
    ])
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Default::default());
    }
    for (key, value) in patch {
        let fields = target.as_object_mut().expect("made an object above");
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Puts a value at a JSON pointer, making the last field if it is not there.
fn replace(target: &mut Value, pointer: &str, value: &Value) {
    let (parent, key) = pointer.rsplit_once('/').expect("a JSON pointer");
    let parent = target.pointer_mut(parent).unwrap_or_else(|| panic!("there is no {parent}"));
    match parent {
        Value::Object(fields) => {
            fields.insert(key.to_owned(), value.clone());
        }
        Value::Array(items) => items[key.parse::<usize>().expect("an index")] = value.clone(),
        _ => panic!("{parent} is no map or list"),
    }
}

/// What a source says of a case's object, when what the package consists of has the health that is
/// listed under `leaves` of the case.
pub(crate) fn evaluate(source: &Source, objects: &Value) -> Evaluation {
    let mut look = |_| {
        let mut summary = ResourceSummary::default();
        for health in objects.get("leaves").and_then(Value::as_array).into_iter().flatten() {
            let health = health.as_str().and_then(|h| h.parse().ok()).expect("a health");
            summary.add(&ResourceState::Found(health, "Because".to_owned()), || "Thing a".to_owned());
        }
        summary
    };
    source.evaluate_with(&objects["object"], &related(source, objects), &mut look)
}

pub(crate) fn related<'a>(source: &Source, objects: &'a Value) -> RelatedObjects<'a> {
    let find = |name: &str| objects.get("related")?.get(name).filter(|v| !v.is_null());
    let all = source.related.iter().map(|r| match find(&r.name) {
        Some(Value::Array(objects)) => RelatedObject::Many(objects.iter().collect()),
        None if !r.by_reference() => RelatedObject::Many(Vec::new()),
        one => RelatedObject::One(one),
    });
    RelatedObjects(all.collect())
}
