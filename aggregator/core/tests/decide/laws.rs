//! What holds of a gate whatever the fleet looks like.

use proptest::prelude::*;
use statusbridge_api::common::{Amount, ClusterSet, Reporting};
use statusbridge_api::conditions::{OPEN, READY, RECONCILING, STALLED, find, is_true};
use statusbridge_api::rollout_gate::{GateTerms, Require};
use statusbridge_api::{RolloutGateSpec, RolloutGateStatus};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_core::decide::Target;
use statusbridge_core::decide::excused::Excused;
use statusbridge_core::decide::rollout_gate::{Input, decide};
use statusbridge_core::fleet::observation::{Observation, Row, Standing};

use crate::made::*;

fn revision() -> impl Strategy<Value = Fingerprint> {
    prop_oneof![
        1 => Just(Fingerprint::NONE),
        2 => Just(Fingerprint::of(R1)),
        6 => Just(Fingerprint::of(R2)),
        1 => Just(Fingerprint::of(R3)),
    ]
}

pub fn row() -> impl Strategy<Value = Row> {
    let any = (
        prop::sample::select(ApplyState::ALL),
        prop::sample::select(Health::ALL),
        [revision(), revision(), revision(), revision()],
        -100.0..2000.0f64,
    )
        .prop_map(|(apply, health, [desired, applied, healthy, previously_applied], age)| Row {
            apply,
            health,
            desired,
            applied,
            healthy,
            reason: None,
            since: T - age,
            previously_applied,
        });
    prop_oneof![2 => Just(healthy(R2)), 1 => any]
}

pub fn observation() -> impl Strategy<Value = Observation> {
    let standing = prop_oneof![
        8 => Just(Standing::Fresh),
        1 => Just(Standing::Stale),
        1 => Just(Standing::Missing),
        1 => Just(Standing::Unverified),
        1 => Just(Standing::Conflict),
        1 => Just(Standing::ClockSkew),
    ];
    (standing, prop::option::weighted(0.9, row()), prop::option::weighted(0.95, -10.0..180.0f64)).prop_map(
        |(standing, row, age)| Observation { as_of: age.map(|age| T - age), ..unobserved(standing, row) },
    )
}

pub fn amount(least: i64) -> impl Strategy<Value = Option<Amount>> {
    prop_oneof![
        Just(None),
        (least..8).prop_map(|n| Some(Amount::Count(n))),
        (least..=100).prop_map(|n| Some(Amount::Percent(format!("{n}%")))),
    ]
}

pub fn spec() -> impl Strategy<Value = RolloutGateSpec> {
    (
        amount(1),
        amount(0),
        prop::option::of(prop::sample::select(vec!["0s", "5m", "30m"])),
        prop::sample::select(vec![Require::Healthy, Require::Applied]),
        1..5i64,
    )
        .prop_map(|(min_healthy, max_failures, soak, require, min_clusters)| RolloutGateSpec {
            terms: GateTerms {
                min_healthy,
                max_failures,
                min_success_time: soak.map(Into::into),
                require,
                ..GateTerms::default()
            },
            clusters: ClusterSet { reporting: Some(Reporting { min_clusters }), ..ClusterSet::default() },
            ..gate()
        })
}

fn judge(
    spec: &RolloutGateSpec,
    generation: i64,
    previous: Option<&RolloutGateStatus>,
    wave: &[Target],
) -> RolloutGateStatus {
    decide(&Input { generation, previous, ..asked(spec, &package(), wave, &Excused::nobody()) })
}

fn open(status: &RolloutGateStatus) -> bool {
    is_true(&status.conditions, OPEN)
}

/// The rule for one cluster, said a second time and more bluntly.
fn surely_counts(spec: &RolloutGateSpec, seen: &Observation) -> bool {
    let wanted = Fingerprint::of(R2);
    let soak = match spec.terms.min_success_time.as_deref() {
        Some("5m") => 300.0,
        Some("30m") => 1800.0,
        _ => 0.0,
    };
    seen.standing == Standing::Fresh
        && seen.row.as_ref().is_some_and(|row| {
            let there = match spec.terms.require {
                Require::Healthy => row.healthy == wanted,
                Require::Applied => row.applied == wanted,
            };
            let proved = seen.as_of.map(|as_of| as_of.min(T) - row.since);
            there && (soak == 0.0 || proved.is_some_and(|proved| proved >= soak - 1e-6))
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_open_gate_has_its_need_and_keeps_its_budget(
        spec in spec(),
        seen in prop::collection::vec(observation(), 0..8),
    ) {
        let status = judge(&spec, 1, None, &targets(seen.clone()));
        if open(&status) {
            let total = seen.len() as u64;
            let sure = seen.iter().filter(|seen| surely_counts(&spec, seen)).count() as u64;
            let budget = spec.terms.max_failures.as_ref().map_or(0, |most| most.of_rounded_down(total).unwrap());
            let need = spec.terms.min_healthy.as_ref().map_or(total.saturating_sub(budget), |least| least.of_rounded_up(total).unwrap());
            let out_of_sight = seen.iter().filter(|seen| seen.standing != Standing::Fresh || seen.row.is_none()).count() as u64;
            let counts = status.clusters.unwrap();
            prop_assert!(2 * (total - out_of_sight) > total, "more than half are seen");
            prop_assert!(total > 0 && counts.healthy >= need && counts.healthy > 0);
            prop_assert!(counts.healthy <= sure);
            prop_assert!(counts.failed + out_of_sight <= budget);
            prop_assert!(status.waiting_for.is_empty());
        } else {
            prop_assert!(!status.waiting_for.is_empty());
        }
    }

    #[test]
    fn the_counts_add_up_and_the_conditions_agree(
        spec in spec(),
        seen in prop::collection::vec(observation(), 0..8),
    ) {
        let status = judge(&spec, 1, None, &targets(seen));
        let c = status.clusters.unwrap();
        prop_assert_eq!(
            c.total,
            c.healthy + c.progressing + c.failed + c.superseded + c.stale + c.missing + c.unverified + c.conflicting
        );
        let is = |kind| is_true(&status.conditions, kind);
        prop_assert_eq!(is(OPEN), is(READY));
        let busy = u8::from(is(RECONCILING)) + u8::from(is(STALLED));
        prop_assert_eq!(busy, u8::from(!is(OPEN)));
        prop_assert!(find(&status.conditions, RECONCILING).is_none_or(|condition| condition.status == "True"));
    }

    #[test]
    fn losing_or_worsening_a_cluster_never_opens_a_gate(
        spec in spec(),
        seen in prop::collection::vec(observation(), 1..8),
        at in any::<prop::sample::Index>(),
        worse in prop_oneof![
            Just(unobserved(Standing::Stale, Some(healthy(R2)))),
            Just(unobserved(Standing::Missing, None)),
            Just(unobserved(Standing::Unverified, Some(healthy(R2)))),
            Just(unobserved(Standing::Conflict, Some(healthy(R2)))),
            Just(unobserved(Standing::ClockSkew, Some(healthy(R2)))),
            Just(fresh(healthy(R1))),
            Just(fresh(healthy(R3))),
        ],
    ) {
        let at = at.index(seen.len());
        let was_well = surely_counts(&spec, &seen[at]);
        let before = judge(&spec, 1, None, &targets(seen.clone()));
        let mut seen = seen;
        let names_a_failure = seen[at].row.as_ref().is_some_and(|row| row.apply == ApplyState::Failed || row.health == Health::Failed);
        seen[at] = worse;
        let after = judge(&spec, 1, None, &targets(seen));
        if was_well && !names_a_failure && !open(&before) {
            prop_assert!(!open(&after));
        }
    }

    #[test]
    fn another_generation_is_never_answered_with_an_old_verdict(
        spec in spec(),
        seen in prop::collection::vec(observation(), 0..8),
        then in prop::collection::vec(observation(), 0..8),
    ) {
        let first = judge(&spec, 1, None, &targets(seen));
        let alone = judge(&spec, 2, None, &targets(then.clone()));
        let after = judge(&spec, 2, Some(&first), &targets(then));
        prop_assert_eq!(open(&after), open(&alone));
        prop_assert_eq!(after.observed_generation, Some(2));
        prop_assert!(after.conditions.iter().all(|condition| condition.observed_generation == Some(2)));
    }
}
