//! Whatever the input: a gate is open only if a second, blunter reading of the rules says so too.

use proptest::prelude::*;
use statusbridge_api::check::Check;
use statusbridge_api::common::Amount;
use statusbridge_api::conditions::{OPEN, OPENED_ONCE, READY, STALLED, find, is_true};
use statusbridge_api::excuse::Excuse;
use statusbridge_api::rollout_gate::{Approved, GateRef, GateTerms, Override, OverrideState, Require};
use statusbridge_api::window::{Approval, Window};
use statusbridge_api::{FleetPackageSpec, RolloutGateSpec, RolloutGateStatus, common};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_core::checks::answer::Value;
use statusbridge_core::checks::{Answer, Answered, Fault, Said};
use statusbridge_core::decide::dependencies::{Dependencies, Dependency};
use statusbridge_core::decide::excused::{Excuses, Nowhere};
use statusbridge_core::decide::hold::{Approvals, Freeze, Freezes, Knowledge};
use statusbridge_core::decide::rollout_gate::{Asked, Input, PackageSpec, decide};
use statusbridge_core::decide::{Backend, Membership, time};
use statusbridge_core::fleet::observation::{Observation, Standing};

use crate::laws;
use crate::made::*;

const STALE_AFTER: f64 = 180.0;

#[derive(Debug, Clone)]
struct World {
    spec: RolloutGateSpec,
    generation: i64,
    /// Seconds since the gate was first judged, for which generation, and whether it was open.
    previous: Option<(f64, i64, bool)>,
    seen: Vec<Observation>,
    /// Of each cluster: after how many seconds its excuse ends, if it has one.
    excuses: Vec<Option<f64>>,
    min_observed: Option<Amount>,
    dependencies: Vec<Dependency>,
    cycle: bool,
    /// Of each check: how long ago it was asked, and what was said.
    answers: Vec<Option<(f64, Said)>>,
    backend: Backend<'static>,
    freezes: Vec<Freeze>,
    freezes_are_known: bool,
    /// Whether there is an approval of the revision, and one of another.
    approved: (bool, bool),
}

/// One that never ends, one that has not begun by a second, one that has ended this second, and one that has begun.
fn freeze() -> impl Strategy<Value = Freeze> {
    prop_oneof![
        1 => Just((None, f64::INFINITY)),
        3 => Just((Some(1.0), 60.0)),
        3 => Just((None, 0.0)),
        1 => Just((Some(0.0), 1.0)),
    ]
    .prop_map(|(from, until)| Freeze {
        name: "f".into(),
        reason: "because".into(),
        from: from.map(|from| NOW.now + from),
        until: NOW.now + until,
    })
}

const ALWAYS: &str = "* * * * *";
const NEVER_NOW: &str = "17 3 29 2 *";

fn windows() -> impl Strategy<Value = Vec<Window>> {
    let schedule = prop::sample::select(vec![ALWAYS, ALWAYS, NEVER_NOW]);
    let window = schedule.prop_map(|schedule| Window {
        schedule: schedule.into(),
        duration: "1m".into(),
        time_zone: "Europe/Berlin".into(),
    });
    prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(window, 1..3)]
}

prop_compose! {
    fn own_terms()(
        windows in windows(),
        paused in prop::bool::weighted(0.1),
        required in prop::bool::weighted(0.3),
        freezes in prop::collection::vec(freeze(), 0..3),
        freezes_are_known in prop::bool::weighted(0.9),
        approved in (prop::bool::weighted(0.7), prop::bool::ANY),
    ) -> OwnTerms {
        let approval = if required { Approval::Required } else { Approval::NotRequired };
        OwnTerms { windows, paused, approval, freezes, freezes_are_known, approved }
    }
}

#[derive(Debug, Clone)]
struct OwnTerms {
    windows: Vec<Window>,
    paused: bool,
    approval: Approval,
    freezes: Vec<Freeze>,
    freezes_are_known: bool,
    approved: (bool, bool),
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![8 => -1.0..3.0f64, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)]
}

fn said() -> impl Strategy<Value = Said> {
    let value = prop_oneof![9 => number().prop_map(Value::Number), 1 => Just(Value::Several)];
    prop_oneof![
        5 => number().prop_map(|value| Ok(Answer::One(value))),
        3 => prop::collection::btree_map((0..4u32).prop_map(|at| format!("c{at:02}")), value, 0..5).prop_map(|all| Ok(Answer::Clusters(all))),
        1 => Just(Err(Fault::Answer("no data".to_owned()))),
    ]
}

fn check() -> impl Strategy<Value = Check> {
    let bounds = prop_oneof![
        3 => Just((Some(-1.0), Some(3.0))),
        1 => Just((None, Some(1.0))),
        1 => Just((Some(0.0), None)),
    ];
    let window = prop::sample::select(vec!["0s", "1m", "20m"]);
    (bounds, window).prop_map(|((min, max), window)| Check {
        name: "x".into(),
        query: Some("q".into()),
        template: None,
        parameters: Default::default(),
        min,
        max,
        window: window.into(),
    })
}

fn world() -> impl Strategy<Value = World> {
    let deadline = prop::option::of(prop::sample::select(vec!["1m", "1h"]));
    let word = prop::option::weighted(
        0.1,
        (prop::bool::ANY, prop::option::of(-60.0..60.0f64)).prop_map(|(open, until)| Override {
            state: if open { OverrideState::Open } else { OverrideState::Closed },
            reason: "because".into(),
            until: until.map(|after| time(NOW.now + after)),
        }),
    );
    let dependency = prop_oneof![
        6 => Just(Dependency::Open),
        1 => Just(Dependency::NotOpen),
        1 => Just(Dependency::NotFound),
        1 => Just(Dependency::AtAnotherRevision),
    ];
    let checks = prop::collection::vec((check(), prop::option::weighted(0.9, (0.0..250.0f64, said()))), 0..3);
    let spec = (laws::spec(), deadline, word).prop_map(|(mut spec, deadline, word)| {
        spec.terms.progress_deadline = deadline.map(Into::into);
        spec.override_ = word;
        spec
    });
    (
        (spec, own_terms()),
        1..3i64,
        prop::option::of((0.0..7200.0f64, 1..3i64, prop::bool::ANY)),
        prop::collection::vec(
            (
                prop_oneof![2 => Just(fresh(healthy(R2))), 1 => laws::observation()],
                prop::option::weighted(0.2, -60.0..120.0f64),
            ),
            0..5,
        ),
        laws::amount(1),
        prop::collection::vec(dependency, 0..3),
        prop::bool::weighted(0.05),
        checks,
        prop_oneof![8 => Just(Backend::Answers), 1 => Just(Backend::Fails("down")), 1 => Just(Backend::Unknown("not yet"))],
    )
        .prop_map(|((mut spec, own), generation, previous, seen, min_observed, dependencies, cycle, checks, backend)| {
            let (seen, excuses) = seen.into_iter().unzip();
            let (mut list, answers): (Vec<Check>, Vec<_>) = checks.into_iter().unzip();
            list.iter_mut().enumerate().for_each(|(at, check)| check.name = format!("x{at}"));
            spec.terms.checks = list;
            spec.depends_on = (0..dependencies.len()).map(|at| GateRef { name: NAMES[at].into() }).collect();
            spec.terms.windows = own.windows;
            spec.terms.paused = own.paused;
            spec.terms.approval = own.approval;
            let OwnTerms { freezes, freezes_are_known, approved, .. } = own;
            World {
                spec,
                generation,
                previous,
                seen,
                excuses,
                min_observed,
                dependencies,
                cycle,
                answers,
                backend,
                freezes,
                freezes_are_known,
                approved,
            }
        })
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn previous(world: &World) -> Option<RolloutGateStatus> {
    let (ago, generation, was_open) = world.previous?;
    let condition = |kind: &str| {
        serde_json::from_value(serde_json::json!({
            "type": kind, "status": if was_open { "True" } else { "False" }, "reason": "Healthy", "message": "",
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    };
    Some(RolloutGateStatus {
        observed_generation: Some(generation),
        as_of: Some(time(T - 20.0)),
        revision: Some(R2.into()),
        started_at: Some(time(NOW.now - ago)),
        conditions: [READY, OPEN, OPENED_ONCE].map(condition).to_vec(),
        ..RolloutGateStatus::default()
    })
}

fn package_of(world: &World) -> FleetPackageSpec {
    let excused = world.excuses.iter().enumerate().filter_map(|(at, after)| {
        Some(Excuse {
            cluster: Some(format!("c{at:02}")),
            selector: None,
            reason: "maintenance".into(),
            until: Some(time(NOW.now + (*after)?)),
        })
    });
    FleetPackageSpec { excused: excused.collect(), min_observed: world.min_observed.clone(), ..package() }
}

/// The clusters that count, by their numbers.
fn counted(world: &World) -> Vec<usize> {
    let is_over = |after: f64| (NOW.now + after).floor() <= NOW.now;
    (0..world.seen.len()).filter(|at| world.excuses[*at].is_none_or(is_over)).collect()
}

fn judge(world: &World) -> RolloutGateStatus {
    let dependencies = Dependencies {
        gates: NAMES.into_iter().zip(world.dependencies.iter().copied()).collect(),
        cycle: world.cycle.then(|| "a -> a".to_owned()),
    };
    let asked: Vec<Asked<'_>> = world
        .answers
        .iter()
        .map(|answer| Asked {
            query: Ok("q".into()),
            answer: answer.as_ref().map(|(ago, said)| Answered { at: T - ago, said }),
            discreet: false,
        })
        .collect();
    let package = package_of(world);
    let (counted, excused) =
        Excuses::new(&package.excused, &Nowhere, NOW.now).split(targets(world.seen.clone()).into());
    let approved = Approved { name: "a".into(), user: "anna".into(), at: None };
    decide(&Input {
        spec: Ok(&world.spec),
        generation: world.generation,
        previous: previous(world).as_ref(),
        package: PackageSpec::Found(&package),
        targets: &counted,
        excused: &excused,
        membership: &Membership::Known,
        selected: None,
        unheard: None,
        artifact: Ok(Fingerprint::of(&world.spec.revision)),
        stages: &[],
        seen_anywhere: &|| true,
        dependencies: &dependencies,
        checks: &asked,
        freezes: Freezes {
            all: &world.freezes,
            knowledge: if world.freezes_are_known {
                Knowledge::Whole
            } else {
                Knowledge::Unsure { since: NOW.now - 1.0, error: "refused" }
            },
        },
        approvals: Approvals {
            valid: world.approved.0.then_some(&approved),
            others: world.approved.1,
            knowledge: Knowledge::Whole,
        },
        backend: world.backend,
        moment: NOW,
    })
}

/// For how long the evidence proves that a cluster has been at the revision, or `None` if it is not.
fn there(spec: &RolloutGateSpec, seen: &Observation, at: f64) -> Option<f64> {
    let (row, wanted) = (seen.row.as_ref()?, Fingerprint::of(R2));
    let revision = if spec.terms.require == Require::Healthy { row.healthy } else { row.applied };
    let fails = row.apply == ApplyState::Failed
        || (spec.terms.require == Require::Healthy && row.health == Health::Failed);
    let elsewhere = !row.desired.is_none() && row.desired != wanted;
    let busy = matches!(row.apply, ApplyState::Paused | ApplyState::Deleting);
    if seen.standing != Standing::Fresh || revision != wanted || fails || elsewhere || busy {
        return None;
    }
    Some(seen.as_of.map_or(f64::NEG_INFINITY, |as_of| as_of.min(at)) - row.since)
}

/// Whether a cluster is out of sight, has failed, or has not come by the deadline and did not move on.
fn is_lost(world: &World, seen: &Observation) -> bool {
    let Some(row) = seen.row.as_ref().filter(|_| seen.standing == Standing::Fresh) else { return true };
    let spec = &world.spec;
    let wanted = Fingerprint::of(R2);
    let wants_it = row.desired.is_none() || row.desired == wanted;
    let failed = wants_it
        && (row.apply == ApplyState::Failed
            || (spec.terms.require == Require::Healthy && row.health == Health::Failed));
    let was_there = [row.applied, row.healthy, row.previously_applied].contains(&wanted);
    let started = world.previous.map_or(0.0, |(ago, ..)| ago.ceil());
    let late = spec
        .terms
        .progress_deadline
        .as_deref()
        .is_some_and(|text| started > common::seconds(text).unwrap() + 1.0);
    failed || (late && there(spec, seen, T).is_none() && !was_there)
}

/// What keeps the gate closed beside the clusters.
fn is_held(world: &World) -> Option<&'static str> {
    let terms = &world.spec.terms;
    let was_open = world.previous.is_some_and(|(_, generation, open)| open && generation == world.generation);
    let in_force = |freeze: &Freeze| freeze.from.is_none_or(|from| from <= NOW.now) && freeze.until > NOW.now;
    match () {
        () if terms.paused => Some("paused"),
        () if world.freezes.iter().any(in_force) => Some("frozen"),
        () if !world.freezes_are_known && !was_open => Some("freezes are not known"),
        () if terms.approval == Approval::Required && !world.approved.0 => Some("nobody has approved"),
        () if !terms.windows.is_empty() && terms.windows.iter().all(|it| it.schedule == NEVER_NOW) => {
            Some("not the time")
        }
        () => None,
    }
}

fn must_be_closed(world: &World) -> Option<&'static str> {
    if let Some(why) = is_held(world) {
        return Some(why);
    }
    let spec = &world.spec;
    let counted = counted(world);
    let seen: Vec<&Observation> = counted.iter().map(|at| &world.seen[*at]).collect();
    let total = seen.len() as u64;
    let soak = spec.terms.min_success_time.as_deref().map_or(0.0, |text| common::seconds(text).unwrap());
    let long_enough =
        |seen: &&Observation| there(spec, seen, T).is_some_and(|held| soak == 0.0 || held >= soak);
    let healthy: Vec<&Observation> = seen.iter().copied().filter(long_enough).collect();
    let lost = seen.iter().filter(|seen| is_lost(world, seen)).count() as u64;
    let observed = seen.iter().filter(|seen| seen.standing == Standing::Fresh && seen.row.is_some()).count();
    let all = world.seen.len();
    if 2 * observed <= all && world.min_observed.is_none()
        || world
            .min_observed
            .as_ref()
            .is_some_and(|least| (observed as u64) < least.of_rounded_up(all as u64).unwrap())
    {
        return Some("too few are observed");
    }
    let budget = spec.terms.max_failures.as_ref().map_or(0, |most| most.of_rounded_down(total).unwrap());
    let need = match &spec.terms.min_healthy {
        Some(least) => least.of_rounded_up(total).unwrap(),
        None => total.saturating_sub(budget),
    };
    let was_open = world.previous.is_some_and(|(_, generation, open)| open && generation == world.generation);
    if total == 0 || total < spec.clusters.reporting.as_ref().map_or(1, |it| it.min_clusters as u64) {
        return Some("too few clusters");
    }
    if healthy.is_empty() || (healthy.len() as u64) < need {
        return Some("too few are healthy");
    }
    if lost > budget {
        return Some("too many are lost");
    }
    if world.cycle || world.dependencies.iter().any(|standing| *standing != Dependency::Open) {
        return Some("a dependency");
    }
    if !was_open && world.backend != Backend::Answers {
        return Some("nothing opens without the backend");
    }
    for (check, answer) in spec.terms.checks.iter().zip(&world.answers) {
        // What has not been asked passes only if it had passed before, which is never so here.
        let Some((ago, said)) = answer else { return Some("a check is not answered") };
        let window = common::seconds(&check.window).unwrap();
        let held = |seen: &&Observation| there(spec, seen, T - ago).is_some_and(|held| held >= window);
        if *ago > STALE_AFTER || (window > 0.0 && !healthy.iter().all(held)) {
            return Some("a check is too old or too early");
        }
        let fits = |value: f64| {
            value.is_finite()
                && check.min.is_none_or(|min| value >= min)
                && check.max.is_none_or(|max| value <= max)
        };
        let passes = match said {
            Err(_) => false,
            Ok(Answer::One(value)) => fits(*value),
            Ok(Answer::Clusters(values)) => counted.iter().all(
                |at| matches!(values.get(&format!("c{at:02}")), Some(Value::Number(value)) if fits(*value)),
            ),
        };
        if !passes {
            return Some("a check fails");
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn how_an_excused_cluster_fares_decides_nothing(
        world in world(),
        other in prop::collection::vec(laws::observation(), 5),
    ) {
        let counted = counted(&world);
        let status = judge(&world);
        let mut changed = world.clone();
        for (at, other) in other.into_iter().enumerate().take(changed.seen.len()) {
            if !counted.contains(&at) {
                changed.seen[at] = other;
            }
        }
        prop_assert_eq!(status, judge(&changed));
    }

    #[test]
    fn excusing_more_never_opens_a_gate_that_sees_too_few(world in world(), at in any::<prop::sample::Index>()) {
        let spec = RolloutGateSpec { override_: None, ..world.spec };
        let mut world = World { spec, backend: Backend::Answers, ..world };
        if world.seen.is_empty() {
            return Ok(());
        }
        let at = at.index(world.seen.len());
        world.excuses[at] = Some(60.0);
        let status = judge(&world);
        let observed = crate::model::counted(&world).into_iter().filter(|at| {
            world.seen[*at].standing == Standing::Fresh && world.seen[*at].row.is_some()
        });
        let all = world.seen.len() as u64;
        let least = world.min_observed.as_ref().map_or(all / 2 + 1, |least| least.of_rounded_up(all).unwrap());
        prop_assert!(!is_true(&status.conditions, OPEN) || observed.count() as u64 >= least.max(1));
    }

    #[test]
    fn an_open_gate_is_open_by_the_model_too(world in world()) {
        let status = judge(&world);
        let open = is_true(&status.conditions, OPEN);
        let word = world.spec.override_.as_ref().filter(|word| {
            word.until.as_ref().is_none_or(|until| NOW.now < until.0.as_second() as f64)
        });
        match word {
            Some(word) => prop_assert_eq!(open, word.state == OverrideState::Open),
            // Until the backend answers for the first time, an open gate stands as it is.
            None if matches!(world.backend, Backend::Unknown(_)) => {
                let met = !world.cycle && world.dependencies.iter().all(|standing| *standing == Dependency::Open);
                let stands = world.previous.is_some_and(|(_, generation, open)| open && generation == world.generation);
                prop_assert_eq!(open, met && stands && world.spec.override_.is_none() && is_held(&world).is_none());
            }
            None => prop_assert!(!open || must_be_closed(&world).is_none(), "{:?}", must_be_closed(&world)),
        }
        // And what is said of it hangs together.
        if word.is_none() {
            prop_assert_eq!(open, status.waiting_for.is_empty() || matches!(world.backend, Backend::Unknown(_)) && open);
        }
        if let Some(c) = status.clusters {
            prop_assert_eq!(c.total, c.healthy + c.progressing + c.failed + c.superseded + c.stale + c.missing + c.unverified + c.conflicting);
            prop_assert!(c.timed_out <= c.failed && c.soaking <= c.progressing);
            prop_assert_eq!((c.total, c.total + c.excused), (counted(&world).len() as u64, world.seen.len() as u64));
        }
        // Whatever holds the gate hides no failure, and delays none.
        if let Some(first) = status.waiting_for.first().filter(|_| word.is_none() && is_held(&world).is_some()) {
            let unheld = World { freezes: Vec::new(), freezes_are_known: true, approved: (true, false), ..world.clone() };
            let unheld = judge(&World {
                spec: RolloutGateSpec {
                    terms: GateTerms { windows: Vec::new(), paused: false, approval: Approval::NotRequired, ..world.spec.terms.clone() },
                    ..world.spec.clone()
                },
                ..unheld
            });
            let stalls = |status: &RolloutGateStatus| is_true(&status.conditions, STALLED);
            prop_assert_eq!((stalls(&status), status.clusters, &status.checks), (stalls(&unheld), unheld.clusters, &unheld.checks));
            if stalls(&unheld) {
                prop_assert_eq!(Some(first), unheld.waiting_for.first());
            }
        }
        let latched = find(&status.conditions, OPENED_ONCE).unwrap();
        prop_assert!(!open || latched.status == "True");
        prop_assert!(!(open && is_true(&status.conditions, STALLED)));
    }

    #[test]
    fn a_gate_that_the_model_lets_pass_is_open(world in world()) {
        // A deadline within a second of now may be read either way.
        let spec = RolloutGateSpec {
            override_: None,
            terms: GateTerms { progress_deadline: None, ..world.spec.terms },
            ..world.spec
        };
        let world = World { spec, backend: Backend::Answers, ..world };
        let status = judge(&world);
        prop_assert_eq!(is_true(&status.conditions, OPEN), must_be_closed(&world).is_none(), "{:?}", status.waiting_for);
    }
}
