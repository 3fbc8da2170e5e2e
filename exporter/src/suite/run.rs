//! Running tests.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    definition::{Case, Suite},
    difference::{Seen, differences, transition_differences},
    objects::{change, objects},
};
use crate::{
    recording::{Kinds, beginning, group_kind, key},
    rehearsal::{Clock, Package, PackageId, Rehearsal, Transition, rehearse},
    saved::{Remark, Saved, SavedObject},
    source::{Expectation, Source},
    state::Limits,
};

/// What came of a case for one source.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Name of the suite.
    pub suite: String,
    /// Name of the source.
    pub source: String,
    /// Name of the case.
    pub case: String,
    /// What is not as expected, line by line; nothing when the test has passed.
    pub problems: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// Finds sources by their names: as they are, or with or without a look at the objects that their packages consist of.
pub type SourceFinder<'a> = dyn Fn(&str, Option<bool>) -> Result<Arc<Source>, String> + 'a;

impl Suite {
    /// Runs every case for every source.
    pub fn run(&self, find: &SourceFinder<'_>) -> Vec<Outcome> {
        let cases = self.sources.iter().flat_map(|source| self.cases.iter().map(move |case| (source, case)));
        let outcome = |(source, case): (&String, &Case)| {
            let begun = Instant::now();
            let problems = match find(source, case.resource_health) {
                Ok(source) => self.problems(&source, case).unwrap_or_else(|problem| vec![problem]),
                Err(problem) => vec![problem],
            };
            Outcome {
                suite: self.name.clone(),
                source: source.clone(),
                case: case.name.clone(),
                problems,
                took: begun.elapsed(),
            }
        };
        cases.map(outcome).collect()
    }

    /// The objects of a case, each with what it is to the case: `object`, `related.source`, `others.front`.
    ///
    /// # Errors
    /// When one of them is no object.
    pub fn objects(&self, source: &Source, case: &Case) -> Result<Vec<(String, Value)>, String> {
        objects(source, &self.changed(case)?)
    }

    /// What differs between what is expected of a case and what is shown when these are its objects.
    ///
    /// # Errors
    /// When it cannot be told.
    pub fn differences(
        &self,
        source: &Arc<Source>,
        case: &Case,
        objects: Vec<Value>,
    ) -> Result<Vec<String>, String> {
        let saved: Vec<SavedObject> =
            objects.iter().map(|object| SavedObject::new("the case", object.clone())).collect();
        let now = self.beginning(&saved);
        let (rehearsal, _) =
            Rehearsal::begin(vec![source.clone()], Limits::default(), Kinds::of(&saved), objects, now);
        check(&case.expect.or(&self.expect), rehearsal.packages(), now)
    }

    fn problems(&self, source: &Arc<Source>, case: &Case) -> Result<Vec<String>, String> {
        if case.files.is_empty() { self.run_base(source, case) } else { self.run_files(source, case) }
    }

    /// The base as a case changes it.
    fn changed(&self, case: &Case) -> Result<Value, String> {
        let mut base = self.base.clone();
        change(&mut base, &case.patch, &case.replace)?;
        Ok(base)
    }

    /// When the objects of a case are there.
    fn beginning(&self, objects: &[SavedObject]) -> i64 {
        let now = self.now.map(jiff::Timestamp::as_millisecond);
        now.or_else(|| beginning(objects)).unwrap_or_default()
    }

    fn run_files(&self, source: &Arc<Source>, case: &Case) -> Result<Vec<String>, String> {
        let paths: Vec<PathBuf> = case.files.iter().map(|file| self.directory.join(file)).collect();
        let Saved { objects, broken } = Saved::read(&paths);
        let clock = match self.now {
            Some(now) => Clock::Fixed(now.as_millisecond()),
            None => Clock::FromObjects(0),
        };
        let history = rehearse(vec![source.clone()], objects, Limits::default(), clock);
        let mut problems: Vec<String> = broken.iter().map(ToString::to_string).collect();
        let now = history.transitions.last().map_or(0, |transition| transition.at);
        let expected = case.expect.or(&self.expect);
        if case.transitions.is_none() || case.expect != Expectation::default() {
            problems.extend(check(&expected, &history.packages, now)?);
        }
        if let Some(expected) = &case.transitions {
            problems.extend(transition_differences(expected, &history.transitions));
        }
        if !problems.is_empty() && history.packages.is_empty() {
            problems.extend(history.unread.iter().map(Remark::to_string));
        }
        Ok(problems)
    }

    fn run_base(&self, source: &Arc<Source>, case: &Case) -> Result<Vec<String>, String> {
        // Every version that the objects have, so that each kind is there from the start.
        let mut base = self.changed(case)?;
        let mut moments = vec![objects(source, &base)?];
        for (number, step) in case.then.iter().enumerate() {
            let at = |error: String| format!("then[{number}]: {error}");
            change(&mut base, &step.patch, &step.replace).map_err(at)?;
            moments.push(objects(source, &base).map_err(at)?);
        }
        let saved = |(_, object): &(String, Value)| SavedObject::new("the case", object.clone());
        let all: Vec<SavedObject> = moments.iter().flatten().map(saved).collect();
        let mut moments = moments.into_iter().map(by_name);
        let mut there = moments.next().unwrap_or_default();
        let first: Vec<SavedObject> =
            there.values().map(|object| SavedObject::new("the case", object.clone())).collect();
        let mut now = self.beginning(&first);
        let first = there.values().cloned().collect();
        let (mut rehearsal, mut transitions) =
            Rehearsal::begin(vec![source.clone()], Limits::default(), Kinds::of(&all), first, now);
        let mut expected = case.expect.or(&self.expect);
        let mut problems = check(&expected, rehearsal.packages(), now)?;
        for (number, (step, next)) in case.then.iter().zip(moments).enumerate() {
            now = now.saturating_add(i64::try_from(step.after.as_millis()).unwrap_or(i64::MAX));
            transitions.extend(rehearsal.wait(now));
            transitions.extend(go_on(&mut rehearsal, &there, &next, now));
            there = next;
            expected = step.expect.or(&expected);
            let wrong = check(&expected, rehearsal.packages(), now)?;
            problems.extend(wrong.iter().map(|problem| format!("then[{number}]: {problem}")));
        }
        if let Some(expected) = &case.transitions {
            problems.extend(transition_differences(expected, &transitions));
        }
        Ok(problems)
    }
}

/// Kind, namespace and name.
type Name = ((String, String), crate::watch::PackageKey);

fn by_name(objects: Vec<(String, Value)>) -> BTreeMap<Name, Value> {
    objects.into_iter().map(|(_, object)| ((group_kind(&object), key(&object)), object)).collect()
}

/// Has what is there become what comes next.
fn go_on(
    rehearsal: &mut Rehearsal,
    there: &BTreeMap<Name, Value>,
    next: &BTreeMap<Name, Value>,
    now: i64,
) -> Vec<Transition> {
    let mut transitions = Vec::new();
    for gone in there.iter().filter(|(name, _)| !next.contains_key(*name)).map(|(_, object)| object) {
        transitions.extend(rehearsal.remove(gone, now));
    }
    let changed = next.iter().filter(|(name, object)| there.get(*name) != Some(*object));
    for (_, object) in changed {
        transitions.extend(rehearsal.put(object.clone(), now));
    }
    transitions
}

/// What is not as expected of the package that is meant.
fn check(
    expected: &Expectation,
    packages: &BTreeMap<PackageId, Package>,
    now: i64,
) -> Result<Vec<String>, String> {
    let is_meant = |id: &&PackageId| expected.package.as_ref().is_none_or(|name| id.to_string() == *name);
    let meant: Vec<&PackageId> = packages.keys().filter(is_meant).collect();
    let names = |ids: &[&PackageId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match meant.as_slice() {
        [] if expected.shown == Some(false) => Ok(Vec::new()),
        [] => {
            let all: Vec<&PackageId> = packages.keys().collect();
            let there = if all.is_empty() { "none".to_owned() } else { names(&all) };
            let wanted = expected.package.as_deref().unwrap_or("a package");
            Ok(vec![format!("expected {wanted}, found {there}")])
        }
        [id] => Ok(differences(expected, &Seen { id, package: packages.get(id), at: now })),
        several => Err(format!("there are several packages ({}): `expect` needs `package`", names(several))),
    }
}
