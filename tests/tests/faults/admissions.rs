//! Holds what FleetRollouts admitted against what was true.
//!
//! 1. **A row is there because a plan had it so, and the waves before were healthy.** At some time between when the row may
//!    have been decided and when it was stored there stood a plan with this revision, in whose wave of this name the cluster
//!    is; and every cluster of the waves before was healthy at the revision while its evidence could still count: as long
//!    before that as the evidence of an open gate may be old. A decision that waited for as long as a call may take is not
//!    sent, and what a slowed network holds back lands as much later.
//! 2. **The record never shrinks**: no slice is deleted, and no cluster leaves the slice that it is in.

use crate::faults::check::{ReceiptLog, Rules, Violation, was_healthy};
use crate::faults::timeline::{Part, ROLLOUTS, SLICES, Seconds, Timeline, Trouble, Version};
use serde_json::Value;
use std::collections::BTreeMap;

/// Name of the plan by which a slice was made.
pub(crate) fn plan_of(slice: &Version) -> &str {
    slice.object["fleetRolloutRef"]["name"].as_str().unwrap_or_default()
}

/// Checks every version of every slice so far, and counts the rows that were put down.
pub(crate) fn check(timeline: &Timeline, rules: &Rules, tally: &mut ReceiptLog) -> Vec<Violation> {
    let mut violations = Vec::new();
    let plans = timeline.of(ROLLOUTS);
    for (name, versions) in timeline.of(SLICES) {
        let mut rows: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
        for version in versions {
            let mut broken = |what: String| {
                violations.push(Violation { at: version.at, what: format!("slice {name}: {what}") });
            };
            let now: BTreeMap<&str, (&str, &str)> =
                version.rows().map(|(cluster, revision, wave)| (cluster, (revision, wave))).collect();
            for (cluster, row) in &rows {
                if !now.contains_key(cluster) {
                    broken(format!("{cluster}, {row:?}, was taken back"));
                }
            }
            let plan = plans.get(plan_of(version)).map(Vec::as_slice).unwrap_or_default();
            let decided = decided_after(timeline, rules, version.at);
            for (cluster, row) in now.iter().filter(|(cluster, row)| rows.get(*cluster) != Some(*row)) {
                tally.admissions += 1;
                let stood = standing(plan, decided, version.at);
                let waves: Vec<Vec<&str>> =
                    stood.filter_map(|plan| waves_before(plan, cluster, *row)).collect();
                let (revision, _) = row;
                let evidence = decided - longest_evidence(rules);
                let healthy = |it: &&str| was_healthy(timeline, it, revision, 0.0, evidence, version.at);
                if waves.is_empty() {
                    broken(format!("{cluster} was admitted, {row:?}, by no plan that stood then"));
                } else if !waves.iter().any(|before| before.iter().all(healthy)) {
                    broken(format!(
                        "{cluster} was admitted, {row:?}, but not all of {waves:?} before it had been healthy there \
                         within {:.1} s",
                        version.at - evidence
                    ));
                }
            }
            rows = now;
        }
    }
    violations
}

/// The versions of a plan that stood at some time within the span.
fn standing<'a>(plan: &'a [&'a Version], from: Seconds, to: Seconds) -> impl Iterator<Item = &'a Version> {
    let ends = plan.iter().skip(1).map(|next| next.at).chain([Seconds::INFINITY]);
    plan.iter().copied().zip(ends).filter(move |(it, end)| it.at <= to && *end >= from).map(|(it, _)| it)
}

/// The clusters in the waves before the one by which a plan lets a cluster have a revision; none where it does not.
fn waves_before<'a>(plan: &'a Version, cluster: &str, row: (&str, &str)) -> Option<Vec<&'a str>> {
    let (revision, wave) = row;
    let waves = plan.object["spec"]["waves"].as_array().filter(|_| plan.revision() == revision)?;
    let names = |wave: &'a Value| -> Vec<&'a str> {
        let names = wave["clusters"]["names"].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).collect()
    };
    let at = waves.iter().position(|it| it["name"] == wave && names(it).contains(&cluster))?;
    Some(waves.iter().take(at).flat_map(names).collect())
}

/// When a row may have been decided at the earliest that was stored at this time.
fn decided_after(timeline: &Timeline, rules: &Rules, stored: Seconds) -> Seconds {
    let stalls = timeline.stalls.iter().filter(|(at, _)| (stored - rules.call_timeout..=stored).contains(at));
    let waits = rules.call_timeout + rules.slack + stalls.map(|(_, length)| length).sum::<Seconds>();
    let mut decided = stored - waits;
    // What was held back was decided before that, and may have been held back again.
    for trouble in timeline.troubles.iter().rev().filter(|it| it.delays_writes()) {
        if trouble.from <= stored && trouble.until >= decided {
            decided = decided.min(trouble.from - waits);
        }
    }
    decided
}

/// How old the evidence of an open gate may be when it is relied on, with what an exporter may not have heard yet.
fn longest_evidence(rules: &Rules) -> Seconds {
    // Whole seconds, rounded down.
    let rounding = 1.0;
    rules.settle_delay
        + rules.stale_after
        + rules.contact_timeout
        + rules.network_delay
        + rules.slack
        + rounding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::check::tests::{healthy, moved, rules};
    use crate::faults::timeline::Truth;
    use serde_json::json;

    fn version(resource: &str, name: &str, at: Seconds, object: Value) -> Version {
        Version { resource: resource.to_owned(), name: name.to_owned(), at, object: object.into() }
    }

    fn plan(at: Seconds, revision: &str) -> Version {
        let waves = ["c1", "c2"].map(|it| json!({"name": it, "clusters": {"names": [it]}}));
        version(ROLLOUTS, "way", at, json!({"spec": {"revision": revision, "waves": waves}}))
    }

    fn slice(at: Seconds, rows: &[(&str, &str)]) -> Version {
        let row = |(cluster, revision): &(&str, &str)| json!({"clusterName": cluster, "revision": revision, "wave": cluster});
        let rows: Vec<Value> = rows.iter().map(row).collect();
        version(SLICES, "s", at, json!({"fleetRolloutRef": {"name": "way"}, "clusters": rows}))
    }

    /// The second cluster follows the first at 102.
    fn rolled_out() -> Timeline {
        Timeline {
            moves: vec![healthy("c1", 90.0)],
            versions: vec![
                plan(90.0, "r1"),
                slice(91.0, &[("c1", "r1")]),
                slice(102.0, &[("c1", "r1"), ("c2", "r1")]),
            ],
            ..Timeline::default()
        }
    }

    fn found(timeline: &Timeline) -> Vec<String> {
        let mut tally = ReceiptLog::default();
        check(timeline, &rules(), &mut tally).into_iter().map(|it| it.what).collect()
    }

    #[test]
    fn clusters_that_follow_one_another_are_right() {
        let mut tally = ReceiptLog::default();
        let violations = check(&rolled_out(), &rules(), &mut tally);
        assert!(violations.is_empty(), "{violations:?}");
        assert_eq!(tally.admissions, 2);
    }

    #[test]
    fn one_that_follows_a_cluster_that_is_not_healthy_is_found() {
        let failed = |at| moved("c1", Truth::Failed("r1".to_owned()), at);
        let mut timeline = rolled_out();
        // 11 s may pass from the decision, and its evidence may be 1 + 6 + 4 + 1 + 1 s old.
        timeline.moves = vec![healthy("c1", 60.0), failed(79.0)];
        assert_eq!(found(&timeline), [] as [&str; 0]);
        timeline.moves[1] = failed(77.0);
        assert!(found(&timeline)[0].contains("c2 was admitted"));
        timeline.moves[0].truth = Truth::Healthy("r0".to_owned());
        assert!(found(&timeline)[0].contains("c2 was admitted"));
        // It may have been held back.
        timeline.moves[0].truth = Truth::Healthy("r1".to_owned());
        timeline.troubles = vec![Trouble {
            what: "slow".to_owned(),
            part: Part::Hub,
            holds_back: true,
            from: 99.0,
            until: 101.0,
        }];
        assert_eq!(found(&timeline), [] as [&str; 0]);
    }

    #[test]
    fn a_row_that_no_plan_has_is_found() {
        let mut timeline = rolled_out();
        timeline.versions.insert(1, plan(90.5, "r2"));
        timeline.moves.push(healthy("c1", 90.0));
        // It stood until shortly before the first row was stored, but not until the second was.
        timeline.versions[0].at = 60.0;
        timeline.versions[3].at = 103.0;
        assert!(found(&timeline)[0].contains("c2 was admitted, (\"r1\", \"c2\"), by no plan"));
        timeline.versions.remove(0);
        timeline.versions.remove(0);
        assert_eq!(found(&timeline).len(), 2);
    }

    #[test]
    fn a_row_that_is_taken_back_is_found() {
        let mut timeline = rolled_out();
        timeline.versions.push(slice(103.0, &[("c1", "r1")]));
        assert!(found(&timeline)[0].contains("c2, (\"r1\", \"c2\"), was taken back"));
        timeline.versions.pop();
        timeline.versions.push(version(SLICES, "s", 103.0, Value::Null));
        assert_eq!(found(&timeline).len(), 2);
    }
}
