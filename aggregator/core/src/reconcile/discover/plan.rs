//! Which FleetPackages are to be made and removed.

use std::collections::BTreeSet;

use jiff::Timestamp;
use statusbridge_api::PackageRef;

use super::Settings;
use super::name::{name, with_hash};
use crate::reconcile::labels::{DISCOVERED_LABEL, NOT_REPORTED_SINCE};
use crate::reconcile::object::{HubObject, PackageObject, Version};
use crate::time::Seconds;

/// How long polls must have been good before anything is removed: after a start or a failure not all
/// clusters may be verified yet.
const PROBATION: Seconds = 600.0;

/// All that discovery depends on.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Every package of which some cluster has verified data.
    pub reported: &'a BTreeSet<PackageRef>,
    /// The FleetPackages in the namespace.
    pub present: &'a [&'a PackageObject],
    /// Where and how much.
    pub settings: &'a Settings,
    /// Since when every poll was good.
    pub good_since: Seconds,
    /// Wall clock.
    pub now: Seconds,
}

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// One by one.
    pub changes: Vec<Change>,
    /// How many FleetPackages discovery has made that are there.
    pub discovered: usize,
    /// How many reported packages get none.
    pub left_out: usize,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Make a FleetPackage that reports on a package.
    Create {
        /// Its name.
        name: String,
        /// The package.
        package: PackageRef,
    },
    /// Note since when the package is not reported, or that it is.
    Note {
        /// On this object.
        version: Version,
        /// Since when; `None`: it is reported.
        since: Option<Timestamp>,
    },
    /// Remove a FleetPackage whose package was not reported for long.
    Delete(Version),
}

/// What follows from what is reported and what is there.
pub fn plan(input: &Input<'_>) -> Plan {
    let ours: Vec<&PackageObject> = input.present.iter().copied().filter(|it| is_discovered(it)).collect();
    let mut changes: Vec<Change> = ours.iter().filter_map(|object| follow(input, object)).collect();

    let known: BTreeSet<PackageRef> = input.present.iter().filter_map(|object| package(object)).collect();
    let mut taken: BTreeSet<String> = input.present.iter().map(|it| it.key.name.clone()).collect();
    let (mut room, mut left_out) = (input.settings.limit.saturating_sub(ours.len()), 0);
    for id in input.reported.difference(&known) {
        let name = [name(id), with_hash(id)].into_iter().find(|name| !taken.contains(name));
        match name.filter(|_| room > 0 && is_valid(id)) {
            Some(name) => {
                room -= 1;
                taken.insert(name.clone());
                changes.push(Change::Create { name, package: id.clone() });
            }
            None => left_out += 1,
        }
    }
    Plan { changes, discovered: ours.len(), left_out }
}

/// Whether discovery made it, and nobody took the label away.
fn is_discovered(object: &PackageObject) -> bool {
    object.labels.get(DISCOVERED_LABEL).is_some_and(|value| value == "true")
}

fn package(object: &PackageObject) -> Option<PackageRef> {
    object.spec.as_deref().ok().map(|spec| spec.package.clone())
}

/// What is to be done about a FleetPackage that discovery made.
fn follow(input: &Input<'_>, object: &PackageObject) -> Option<Change> {
    let id = package(object)?;
    let noted = object.annotations.get(NOT_REPORTED_SINCE);
    let version = object.version();
    if input.reported.contains(&id) {
        return noted.map(|_| Change::Note { version, since: None });
    }
    let since = noted.and_then(|text| text.parse::<Timestamp>().ok());
    match since.map(|since| input.now - since.as_second() as Seconds) {
        // What lies ahead was noted by another clock.
        Some(age) if age >= 0.0 => {
            let probation = PROBATION.min(input.settings.forget_after);
            let over = age >= input.settings.forget_after && input.now - input.good_since >= probation;
            over.then_some(Change::Delete(version))
        }
        _ => Some(Change::Note { version, since: Timestamp::from_second(input.now as i64).ok() }),
    }
}

/// Whether the API server takes a FleetPackage of this package.
fn is_valid(id: &PackageRef) -> bool {
    let within = |text: &str, most: usize| (1..=most).contains(&text.chars().count());
    within(&id.source, 253)
        && id.namespace.as_deref().is_none_or(|it| within(it, 63))
        && within(&id.name, 512)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    const NOW: Seconds = 1_800_000_000.0;
    const DAY: Seconds = 86_400.0;

    fn id(name: &str) -> PackageRef {
        PackageRef { source: "flux".into(), namespace: Some("apps".into()), name: name.into() }
    }

    fn object(name: &str, package: &str, metadata: Value) -> PackageObject {
        let mut object = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
            "metadata": {"namespace": "found", "name": name, "uid": format!("uid of {name}"), "resourceVersion": "7"},
            "spec": {"package": {"source": "flux", "namespace": "apps", "name": package}},
        });
        for (field, value) in metadata.as_object().unwrap() {
            object["metadata"][field] = value.clone();
        }
        PackageObject::read(serde_json::from_value(object).unwrap()).unwrap()
    }

    fn made(package: &str, not_reported_since: Option<Seconds>) -> PackageObject {
        let mut metadata = json!({"labels": {DISCOVERED_LABEL: "true"}});
        if let Some(since) = not_reported_since {
            let since = Timestamp::from_second(since as i64).unwrap().to_string();
            metadata["annotations"] = json!({NOT_REPORTED_SINCE: since});
        }
        object(&name(&id(package)), package, metadata)
    }

    fn settings(limit: usize) -> Settings {
        Settings { namespace: "found".into(), limit, forget_after: DAY }
    }

    fn judge(reported: &[&str], present: &[PackageObject], limit: usize) -> Plan {
        let reported = reported.iter().map(|name| id(name)).collect();
        let present: Vec<&PackageObject> = present.iter().collect();
        let settings = settings(limit);
        plan(&Input {
            reported: &reported,
            present: &present,
            settings: &settings,
            good_since: NOW - DAY,
            now: NOW,
        })
    }

    fn words(plan: &Plan) -> Vec<String> {
        let word = |change: &Change| match change {
            Change::Create { name, .. } => format!("make {name}"),
            Change::Note { version, since: Some(_) } => format!("note {}", version.key.name),
            Change::Note { version, since: None } => format!("unnote {}", version.key.name),
            Change::Delete(version) => format!("remove {}", version.key.name),
        };
        plan.changes.iter().map(word).collect()
    }

    #[rstest]
    #[case::nothing(vec![], vec![], vec![])]
    #[case::new(vec!["a", "b"], vec![], vec!["make flux.apps.a", "make flux.apps.b"])]
    #[case::there_already(vec!["a"], vec![made("a", None)], vec![])]
    #[case::a_persons(vec!["a"], vec![object("mine", "a", json!({}))], vec![])]
    #[case::a_persons_that_is_gone(vec![], vec![object("mine", "a", json!({}))], vec![])]
    #[case::gone_now(vec![], vec![made("a", None)], vec!["note flux.apps.a"])]
    #[case::gone_for_a_while(vec![], vec![made("a", Some(NOW - DAY + 1.0))], vec![])]
    #[case::gone_for_long(vec![], vec![made("a", Some(NOW - DAY))], vec!["remove flux.apps.a"])]
    #[case::noted_ahead_of_time(vec![], vec![made("a", Some(NOW + 5.0))], vec!["note flux.apps.a"])]
    #[case::back(vec!["a"], vec![made("a", Some(NOW - 2.0 * DAY))], vec!["unnote flux.apps.a"])]
    #[case::label_taken_away(vec![], vec![object("flux.apps.a", "a", json!({"annotations": {NOT_REPORTED_SINCE: "2020-01-01T00:00:00Z"}}))], vec![])]
    fn one_package(
        #[case] reported: Vec<&str>,
        #[case] present: Vec<PackageObject>,
        #[case] expected: Vec<&str>,
    ) {
        assert_eq!(words(&judge(&reported, &present, 10)), expected);
    }

    #[test]
    fn a_name_that_another_package_has_is_not_taken_from_it() {
        let plan = judge(&["a"], &[object("flux.apps.a", "z", json!({}))], 10);
        let [Change::Create { name, package }] = &plan.changes[..] else { panic!("{plan:?}") };
        assert!(name.starts_with("flux-apps-a-"), "{name}");
        assert_eq!(package.name, "a");
        let both = [object("flux.apps.a", "z", json!({})), object(name, "y", json!({}))];
        let plan = judge(&["a"], &both, 10);
        assert_eq!((words(&plan), plan.left_out), (vec![], 1));
    }

    #[test]
    fn past_the_limit_nothing_is_made_and_nothing_removed() {
        let plan = judge(&["a", "b", "c", "d"], &[made("d", None)], 3);
        assert_eq!(words(&plan), ["make flux.apps.a", "make flux.apps.b"]);
        assert_eq!((plan.discovered, plan.left_out), (1, 1));
        let plan = judge(&["a", "b", "c", "d"], &[made("c", None), made("d", None)], 1);
        assert_eq!((words(&plan), plan.discovered, plan.left_out), (vec![], 2, 2));
    }

    #[test]
    fn what_persons_made_does_not_count_against_the_limit() {
        let persons = [object("one", "x", json!({})), object("two", "y", json!({}))];
        assert_eq!(words(&judge(&["a"], &persons, 1)), ["make flux.apps.a"]);
    }

    #[test]
    fn identities_that_no_fleet_package_can_have_are_left_out() {
        let long = "n".repeat(64);
        let reported = BTreeSet::from([PackageRef { namespace: Some(long), ..id("a") }]);
        let settings = settings(10);
        let input =
            Input { reported: &reported, present: &[], settings: &settings, good_since: NOW, now: NOW };
        assert_eq!(plan(&input), Plan { changes: vec![], discovered: 0, left_out: 1 });
    }

    #[test]
    fn shortly_after_a_start_or_a_failure_nothing_is_removed() {
        let gone = made("a", Some(NOW - 3.0 * DAY));
        let settings = settings(10);
        let removed = |good_since| {
            let reported = BTreeSet::new();
            let input =
                Input { reported: &reported, present: &[&gone], settings: &settings, good_since, now: NOW };
            !plan(&input).changes.is_empty()
        };
        assert!(!removed(NOW) && !removed(NOW - 599.0));
        assert!(removed(NOW - 600.0));
    }

    #[test]
    fn one_that_cannot_be_read_is_left_alone() {
        let mut object = made("a", Some(NOW - 2.0 * DAY));
        object.spec = Err("of tomorrow".into());
        assert!(judge(&[], &[object], 10).changes.is_empty());
    }
}
