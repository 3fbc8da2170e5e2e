//! Which PlacementDecision names whom: who is placed stays where it is, newcomers fill up what has room.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_core::reconcile::object::Version;
use statusbridge_core::reconcile::rollouts::placements::Placed;

/// Most that one names, by both APIs.
const MOST: usize = 100;

/// A PlacementDecision of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    /// The set that it is a part of.
    pub(super) set: String,
    /// Whom it names.
    pub(super) placed: BTreeSet<Placed>,
    pub(super) version: Version,
}

/// One thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Make one of this name.
    Create { name: String, set: String, placed: BTreeSet<Placed> },
    /// Let one name these.
    Fill { version: Version, placed: BTreeSet<Placed> },
    /// Remove one.
    Delete(Version),
}

/// What is to be done next. Before all who are to be in a set are in it, nobody is taken out of any. Who `stays` is not taken
/// out of a set that there is.
pub(super) fn plan(
    sets: &[(String, BTreeSet<Placed>)],
    known: Vec<Decision>,
    stays: impl Fn(&Placed) -> bool,
) -> Vec<Change> {
    let names: BTreeSet<String> = known.iter().map(|it| it.version.key.name.clone()).collect();
    let mut by_set = BTreeMap::<String, Vec<Decision>>::new();
    for decision in known {
        by_set.entry(decision.set.clone()).or_default().push(decision);
    }
    let (mut more, mut less) = (Vec::new(), Vec::new());
    let mut over = Vec::new();
    for (set, wanted) in sets {
        let mut left = wanted.clone();
        let mut parts = Vec::new();
        for decision in by_set.remove(set).unwrap_or_default() {
            let keeps =
                |placed: &&Placed| left.contains(*placed) || !wanted.contains(*placed) && stays(placed);
            let kept: BTreeSet<Placed> = decision.placed.iter().filter(keeps).cloned().collect();
            left.retain(|placed| !kept.contains(placed));
            parts.push((decision, kept));
        }
        let mut left = left.into_iter();
        for (Decision { mut placed, version, .. }, kept) in parts {
            let new: Vec<Placed> = left.by_ref().take(MOST.saturating_sub(placed.len())).collect();
            match () {
                () if !new.is_empty() => {
                    placed.extend(new);
                    more.push(Change::Fill { version, placed });
                }
                () if kept == placed => {}
                () if kept.is_empty() => over.push(version),
                () => less.push(Change::Fill { version, placed: kept }),
            }
        }
        let mut free = (0..).map(|number| format!("{set}-{number}")).filter(|name| !names.contains(name));
        loop {
            let placed: BTreeSet<Placed> = left.by_ref().take(MOST).collect();
            let Some(name) = free.next().filter(|_| !placed.is_empty()) else { break };
            more.push(Change::Create { name, set: set.clone(), placed });
        }
    }
    // Sets that nobody has told of: of a record that was removed, or of a FleetRollout of before. Only who is in another one
    // by now leaves them.
    for Decision { placed, version, .. } in by_set.into_values().flatten() {
        let has_moved = |it: &&Placed| sets.iter().any(|(_, wanted)| wanted.contains(*it));
        let kept: BTreeSet<Placed> = placed.iter().filter(|it| !has_moved(it)).cloned().collect();
        match () {
            () if kept.is_empty() => over.push(version),
            () if kept != placed => less.push(Change::Fill { version, placed: kept }),
            () => {}
        }
    }
    if more.is_empty() {
        less.into_iter().chain(over.into_iter().map(Change::Delete)).collect()
    } else {
        more
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statusbridge_core::reconcile::object::Key;

    use super::*;

    fn clusters(names: impl IntoIterator<Item = String>) -> BTreeSet<Placed> {
        names.into_iter().map(Placed::Cluster).collect()
    }

    /// Does what is to be done: the sets that a reader sees after each change.
    fn apply(known: &mut Vec<Decision>, change: Change) {
        let at = |known: &[Decision], version: &Version| {
            known.iter().position(|it| it.version == *version).unwrap()
        };
        match change {
            Change::Create { name, set, placed } => {
                assert!(!known.iter().any(|it| it.version.key.name == name) && placed.len() <= MOST);
                let key = Key { namespace: "fleet".into(), name };
                known.push(Decision {
                    set,
                    placed,
                    version: Version { key, uid: "u".into(), resource_version: "1".into() },
                });
            }
            Change::Fill { version, placed } => {
                assert!(placed.len() <= MOST);
                let at = at(known, &version);
                known[at].placed = placed;
            }
            Change::Delete(version) => drop(known.remove(at(known, &version))),
        }
    }

    fn seen(known: &[Decision]) -> BTreeMap<String, BTreeSet<Placed>> {
        let mut sets = BTreeMap::<String, BTreeSet<Placed>>::new();
        for decision in known {
            sets.entry(decision.set.clone()).or_default().extend(decision.placed.iter().cloned());
        }
        sets
    }

    proptest! {
        /// Whoever goes from one set to another is in one of them all the time, and in the end each set is what it should be.
        #[test]
        fn nobody_is_in_no_set_meanwhile(steps in prop::collection::vec(prop::collection::vec(0..3_usize, 250), 1..5)) {
            let mut known = Vec::new();
            for step in steps {
                let set = |number: usize| {
                    let of = step.iter().enumerate().filter(move |(_, it)| **it == number);
                    (format!("r-{number}"), clusters(of.map(|(at, _)| format!("c{at}"))))
                };
                let sets: Vec<_> = (0..3).map(set).filter(|(_, it)| !it.is_empty()).collect();
                let before: BTreeSet<Placed> = seen(&known).into_values().flatten().collect();
                for _ in 0..2 {
                    for change in plan(&sets, known.clone(), |_| false) {
                        apply(&mut known, change);
                        let now: BTreeSet<Placed> = seen(&known).into_values().flatten().collect();
                        prop_assert!(before.is_subset(&now));
                    }
                }
                prop_assert_eq!(seen(&known), sets.iter().cloned().collect());
                prop_assert_eq!(plan(&sets, known.clone(), |_| false), vec![]);
            }
        }
    }

    #[test]
    fn who_is_not_known_now_stays_where_it_is_and_nobody_else_does() {
        let names = |all: &str| clusters(all.split(' ').map(str::to_owned));
        let mut known = Vec::new();
        for change in plan(&[("r-1".into(), names("a b c"))], Vec::new(), |_| false) {
            apply(&mut known, change);
        }
        let lost = |placed: &Placed| *placed == Placed::Cluster("c".into());
        let changes = plan(&[("r-1".into(), names("a"))], known.clone(), lost);
        changes.into_iter().for_each(|change| apply(&mut known, change));
        assert_eq!(seen(&known)["r-1"], names("a c"));
        // A record that is gone takes nobody out, and one that begins anew only those who are in it.
        assert_eq!(plan(&[], known.clone(), |_| false), vec![]);
        for _ in 0..2 {
            let changes = plan(&[("r-2".into(), names("a"))], known.clone(), |_| false);
            changes.into_iter().for_each(|change| apply(&mut known, change));
        }
        assert_eq!((&seen(&known)["r-1"], &seen(&known)["r-2"]), (&names("c"), &names("a")));
    }
}
