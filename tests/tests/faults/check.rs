//! Holds what the gates said against what was true.
//!
//! Two things are asked of every version of a gate that lets pass, and together they are the promise:
//!
//! 1. **Its evidence is true.** As many targets as `minHealthy` asks for were healthy at the gate's revision at some
//!    time between `asOf`, less what an exporter may not have heard yet, and when the version was stored. An exporter
//!    calls its source up while it has heard from the API server within `--contact-timeout`, so what it shows was true
//!    that long before it was rendered, at most. Besides, whatever a slowed network held back is late by as much.
//! 2. **It stands no longer than its evidence counts.** When it was judged, the evidence was at most `staleAfter` old
//!    at the time that the backend was asked about, which is the settle delay back; `asOf` may lag behind the evidence
//!    by a third of `staleAfter`. A leader judges at every poll and then renews the heartbeat; when that has not changed
//!    for its timeout, the sweeper closes the gate. So at no time is `asOf` older than
//!    settle delay + 4/3 `staleAfter` + heartbeat timeout + one round of the sweeper. A heartbeat that the network
//!    holds up can land just before the sweeper would have closed, so where that may have happened, the sweeper's part
//!    counts twice.
//!
//! The second has limits that the documentation states: with the hub's API away, or with both aggregator and sweeper
//! away, nobody can close. Such time is not counted, and the check says how much of it there was.
//!
//! The third law: the status of an open gate speaks of the revision of its very generation, and `OpenedOnce` is only
//! said of a generation that was open.

use crate::faults::timeline::{GATES, Part, Seconds, Timeline, Trouble, Truth, Version};
use std::collections::BTreeSet;

/// The settings that bounds follow from, in seconds.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) stale_after: Seconds,
    pub(crate) settle_delay: Seconds,
    pub(crate) contact_timeout: Seconds,
    pub(crate) heartbeat_timeout: Seconds,
    /// Between two looks of the sweeper.
    pub(crate) sweep_period: Seconds,
    /// From when a leader goes until the next has polled.
    pub(crate) takeover: Seconds,
    /// Longest a call of the hub may take.
    pub(crate) call_timeout: Seconds,
    /// How late a slowed network delivers, at most.
    pub(crate) network_delay: Seconds,
    /// What programs need to do what they do on a busy machine, besides the stalls that were measured.
    pub(crate) slack: Seconds,
}

/// What a gate asks for.
struct Terms<'a> {
    targets: Vec<&'a str>,
    /// How many of them it needs: its `minHealthy`, a number or all.
    need: usize,
    /// Its `minSuccessTime`, in seconds.
    soak: Seconds,
}

impl<'a> Terms<'a> {
    fn of(gate: &'a Version) -> Self {
        let spec = &gate.object["spec"];
        let names = spec["clusters"]["names"].as_array().into_iter().flatten();
        let targets: Vec<&str> = names.filter_map(|name| name.as_str()).collect();
        let need = spec["minHealthy"].as_u64().map_or(targets.len(), |number| number as usize);
        let soak = spec["minSuccessTime"].as_str().and_then(|text| text.strip_suffix('s')?.parse().ok());
        Self { targets, need, soak: soak.unwrap_or_default() }
    }
}

/// A version that breaks a promise.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    /// When the broken version was stored.
    pub(crate) at: Seconds,
    pub(crate) what: String,
}

/// What there was to check.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceiptLog {
    pub(crate) openings: usize,
    pub(crate) closings: usize,
    /// Seconds in which a gate stood open, over all gates.
    pub(crate) open: Seconds,
    /// Of these, seconds that nobody could have ended.
    pub(crate) unguarded: Seconds,
    /// The largest part of its bound that the age of an open gate's evidence came to.
    pub(crate) closest: Seconds,
    /// Rows that FleetRollouts put down.
    pub(crate) admissions: usize,
}

/// Checks every version of every gate so far; the last one of each stands until `now`.
pub(crate) fn check(timeline: &Timeline, rules: &Rules, now: Seconds) -> (Vec<Violation>, ReceiptLog) {
    let mut violations = Vec::new();
    let mut tally = ReceiptLog::default();
    let unguarded = unguarded(&timeline.troubles, rules);
    for (gate, versions) in timeline.of(GATES) {
        let mut opened = BTreeSet::new();
        let mut was_open = false;
        for (i, version) in versions.iter().enumerate() {
            let end = versions.get(i + 1).map_or(now, |next| next.at);
            let is_open = version.is_open();
            tally.openings += usize::from(is_open && !was_open);
            tally.closings += usize::from(!is_open && was_open);
            was_open = is_open;
            let mut broken = |what: String| {
                let (generation, status) = (version.generation(), &version.object["status"]);
                let what = format!("gate {gate}, generation {generation:?}: {what}: {status}");
                violations.push(Violation { at: version.at, what });
            };
            if is_open {
                let Terms { targets, need, soak } = Terms::of(version);
                opened.insert((version.uid(), version.generation()));
                tally.open += end - version.at;
                tally.unguarded += overlap(&unguarded, version.at, end);
                let judged = version.object["status"]["revision"].as_str();
                if judged != Some(version.revision()) {
                    broken(format!(
                        "open for revision {judged:?}, but {:?} is asked for",
                        version.revision()
                    ));
                }
                match version.as_of() {
                    None => broken("open without evidence".to_owned()),
                    Some(as_of) => {
                        let since = as_of - rules.contact_timeout - rules.network_delay - rules.slack;
                        // Times are told in whole seconds, and clocks are compared by them.
                        let soak = (soak - rules.slack).max(0.0);
                        let healthy = |cluster: &&&str| {
                            was_healthy(timeline, cluster, version.revision(), soak, since, version.at)
                        };
                        let count = targets.iter().filter(healthy).count();
                        if count < need {
                            let age = version.at - as_of;
                            broken(format!(
                                "open on evidence of {age:.1} s ago, and only {count} of the {need} targets that \
                                 it takes were healthy then or since, for {soak} s"
                            ));
                        }
                        let bound = longest_stand(timeline, rules, as_of, end);
                        let age = end - as_of - overlap(&unguarded, as_of, end);
                        tally.closest = tally.closest.max(age / bound);
                        if age > bound {
                            broken(format!("open on evidence {age:.1} s old; {bound:.1} s is the most"));
                        }
                    }
                }
            }
            if version.holds("OpenedOnce") && !opened.contains(&(version.uid(), version.generation())) {
                broken("OpenedOnce without ever having been open".to_owned());
            }
        }
    }
    violations.sort_by(|a, b| a.at.total_cmp(&b.at));
    (violations, tally)
}

/// Whether a cluster may, at some time within the span, have been healthy at a revision for so long.
pub(crate) fn was_healthy(
    timeline: &Timeline,
    cluster: &str,
    revision: &str,
    soak: Seconds,
    from: Seconds,
    to: Seconds,
) -> bool {
    let moves: Vec<_> = timeline.moves.iter().filter(|m| m.cluster == cluster).collect();
    let healthy = moves.iter().enumerate().filter_map(|(i, it)| {
        let until = moves.get(i + 1).map_or(Seconds::INFINITY, |next| next.until);
        (it.truth == Truth::Healthy(revision.to_owned())).then_some((it.from, until))
    });
    union(healthy.collect()).into_iter().any(|(start, end)| (start + soak).max(from) <= end.min(to))
}

/// How old the evidence of an open gate may get between `as_of` and `end`.
fn longest_stand(timeline: &Timeline, rules: &Rules, as_of: Seconds, end: Seconds) -> Seconds {
    let sweep = rules.heartbeat_timeout + rules.sweep_period + rules.slack;
    let held_up =
        timeline.troubles.iter().any(|it| it.delays_writes() && it.from <= end && it.until >= as_of);
    let stalls = timeline.stalls.iter().filter(|(at, _)| (as_of..=end).contains(at));
    // Whole seconds, rounded down.
    let rounding = 1.0;
    rules.settle_delay
        + rules.stale_after * 4.0 / 3.0
        + rounding
        + sweep * if held_up { 2.0 } else { 1.0 }
        + stalls.map(|(_, length)| length).sum::<Seconds>()
}

type Span = (Seconds, Seconds);

/// When nobody can close a gate: the hub is away, or both who could do it are.
fn unguarded(troubles: &[Trouble], rules: &Rules) -> Vec<Span> {
    let sweep = rules.heartbeat_timeout + rules.sweep_period + rules.slack;
    let of = |part: Part, tail: Seconds| {
        let own = troubles.iter().filter(|it| it.part == part);
        union(own.map(|it| (it.from, it.until + tail)).collect())
    };
    // Connections have to be made anew, and a call that got no answer is waited for.
    let hub = of(Part::Hub, sweep + rules.call_timeout);
    // One that starts anew waits for the whole timeout.
    let sweeper = of(Part::Sweeper, sweep + rules.call_timeout);
    let aggregator = of(Part::Aggregator, rules.takeover + rules.slack);
    let mut both: Vec<Span> = hub;
    for (a, b) in &sweeper {
        both.extend(
            aggregator.iter().map(|(c, d)| (a.max(*c), b.min(*d))).filter(|(from, until)| from < until),
        );
    }
    union(both)
}

fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut merged: Vec<Span> = Vec::new();
    for (from, until) in spans {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ => merged.push((from, until)),
        }
    }
    merged
}

/// How much of `from..to` the spans cover.
fn overlap(spans: &[Span], from: Seconds, to: Seconds) -> Seconds {
    spans.iter().map(|(a, b)| (b.min(to) - a.max(from)).max(0.0)).sum()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::faults::timeline::Move;
    use serde_json::json;
    use std::sync::Arc;

    pub(crate) fn rules() -> Rules {
        Rules {
            stale_after: 6.0,
            settle_delay: 1.0,
            contact_timeout: 4.0,
            heartbeat_timeout: 6.0,
            sweep_period: 1.0,
            takeover: 15.0,
            call_timeout: 10.0,
            network_delay: 0.0,
            slack: 1.0,
        }
    }

    pub(crate) fn moved(cluster: &str, truth: Truth, at: Seconds) -> Move {
        Move { cluster: cluster.to_owned(), truth, from: at, until: at }
    }

    pub(crate) fn healthy(cluster: &str, at: Seconds) -> Move {
        moved(cluster, Truth::Healthy("r1".to_owned()), at)
    }

    fn version(at: Seconds, open: bool, as_of: Seconds) -> Version {
        let as_of = jiff::Timestamp::from_second(as_of as i64).unwrap().to_string();
        let word = if open { "True" } else { "False" };
        let conditions: Vec<Value> = ["Open", "Ready"]
            .map(|kind| json!({"type": kind, "status": word, "observedGeneration": 1}))
            .to_vec();
        let object = json!({
            "metadata": {"generation": 1}, "spec": {"revision": "r1", "clusters": {"names": ["c1", "c2"]}},
            "status": {"observedGeneration": 1, "revision": "r1", "asOf": as_of, "conditions": conditions},
        });
        Version { resource: GATES.to_owned(), name: "g".to_owned(), at, object: object.into() }
    }

    use serde_json::Value;

    fn found(timeline: &Timeline, now: Seconds) -> Vec<String> {
        check(timeline, &rules(), now).0.into_iter().map(|it| it.what).collect()
    }

    /// Open from 101 on evidence of 100, closed at `closed`.
    fn opened_and(closed: Seconds) -> Timeline {
        Timeline {
            moves: vec![healthy("c1", 90.0), healthy("c2", 90.0)],
            versions: vec![version(101.0, true, 100.0), version(closed, false, 100.0)],
            ..Timeline::default()
        }
    }

    #[test]
    fn a_gate_that_opens_and_closes_in_time_is_right() {
        let (violations, tally) = check(&opened_and(110.0), &rules(), 120.0);
        assert!(violations.is_empty(), "{violations:?}");
        assert_eq!((tally.openings, tally.closings, tally.open), (1, 1, 9.0));
    }

    #[test]
    fn one_that_opens_on_a_lie_is_found() {
        let mut timeline = opened_and(110.0);
        // What is within the contact timeout may be told late.
        timeline.moves.push(moved("c2", Truth::Failed("r1".to_owned()), 96.0));
        assert_eq!(found(&timeline, 120.0).len(), 0);
        timeline.moves.pop();
        timeline.moves.push(moved("c2", Truth::Failed("r1".to_owned()), 94.0));
        assert!(found(&timeline, 120.0)[0].contains("only 1 of the 2"));
    }

    #[test]
    fn one_that_opens_before_the_soak_is_over_is_found() {
        let opens = |moves: &[Move]| {
            let mut timeline = opened_and(110.0);
            Arc::make_mut(&mut timeline.versions[0].object)["spec"]["minSuccessTime"] = json!("9s");
            timeline.moves.extend_from_slice(moves);
            check(&timeline, &rules(), 120.0).0.is_empty()
        };
        assert!(opens(&[]));
        assert!(!opens(&[moved("c1", Truth::Failed("r1".to_owned()), 92.0), healthy("c1", 94.0)]));
        // Delivered again, and healthy all the time.
        assert!(opens(&[healthy("c1", 94.0)]));
    }

    #[test]
    fn the_health_of_another_revision_counts_for_nothing() {
        let mut timeline = opened_and(110.0);
        timeline.moves[1].truth = Truth::Healthy("r0".to_owned());
        assert!(found(&timeline, 120.0)[0].contains("only 1 of the 2"));
        let mut timeline = opened_and(110.0);
        Arc::make_mut(&mut timeline.versions[0].object)["status"]["revision"] = json!("r0");
        assert!(found(&timeline, 120.0)[0].contains("open for revision"));
    }

    #[test]
    fn one_that_stands_too_long_is_found_unless_nobody_could_close_it() {
        // 1 + 8 + 1 + 8 after 100.
        assert_eq!(found(&opened_and(117.9), 130.0).len(), 0);
        assert!(found(&opened_and(118.1), 130.0)[0].contains("is the most"));
        let trouble =
            |part| Trouble { what: "gone".to_owned(), part, holds_back: false, from: 102.0, until: 130.0 };
        let mut timeline = opened_and(118.1);
        timeline.troubles = vec![trouble(Part::Sweeper)];
        assert_eq!(found(&timeline, 130.0).len(), 1, "the aggregator could");
        timeline.troubles = vec![trouble(Part::Data)];
        assert_eq!(found(&timeline, 130.0).len(), 1, "both could");
        timeline.troubles = vec![trouble(Part::Hub)];
        assert_eq!(found(&timeline, 130.0).len(), 0);
        timeline.troubles = vec![trouble(Part::Sweeper), trouble(Part::Aggregator)];
        assert_eq!(found(&timeline, 130.0).len(), 0);
        let mut timeline = opened_and(118.1);
        timeline.troubles = vec![trouble(Part::Aggregator)];
        assert_eq!(found(&timeline, 130.0).len(), 1, "the sweeper could");
        // A heartbeat that is held up gives the sweeper as long again, and no more.
        timeline.troubles[0].holds_back = true;
        assert_eq!(found(&timeline, 130.0).len(), 0);
        timeline.versions[1].at = 126.1;
        assert_eq!(found(&timeline, 130.0).len(), 1);
    }

    #[test]
    fn what_is_still_open_at_the_end_is_looked_at_too() {
        let mut timeline = opened_and(110.0);
        timeline.versions.pop();
        assert_eq!(found(&timeline, 110.0).len(), 0);
        assert_eq!(found(&timeline, 120.0).len(), 1);
    }

    #[test]
    fn success_takes_an_opening_of_the_same_generation() {
        let mut timeline = opened_and(110.0);
        let mut next = version(111.0, false, 100.0);
        Arc::make_mut(&mut next.object)["metadata"]["generation"] = json!(2);
        Arc::make_mut(&mut next.object)["status"]["observedGeneration"] = json!(2);
        Arc::make_mut(&mut next.object)["status"]["conditions"] =
            json!([{"type": "OpenedOnce", "status": "True", "observedGeneration": 2}]);
        timeline.versions.push(next);
        assert!(found(&timeline, 120.0)[0].contains("without ever having been open"));
    }
}
