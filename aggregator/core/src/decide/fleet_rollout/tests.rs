use std::collections::BTreeSet;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_api::conditions::{find, is_true};

use super::*;

const NOW: Moment = Moment { t: 1000.0, now: 1000.0 };

/// How the gate of a wave stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    Closed,
    Open,
    Stalled,
    /// Closed by a person.
    Held,
}

/// A rollout, the fleet that it is for, and what has been done so far, as the reconciler would do it.
struct Fleet {
    spec: Value,
    /// The package's clusters that no wave names or selects, and what each such wave means.
    rest: Vec<String>,
    explicit: Vec<Option<Vec<String>>>,
    revision: String,
    gates: BTreeMap<usize, (Vec<String>, Stand)>,
    admitted: BTreeMap<String, String>,
    settled: BTreeSet<String>,
    unseen: BTreeSet<String>,
    excused: BTreeSet<String>,
    status: Option<FleetRolloutStatus>,
    obstacle: Option<Obstacle>,
    hold: Option<Obstacle>,
    refusal: Option<Obstacle>,
    hindrances: BTreeMap<usize, Obstacle>,
}

fn names(all: &str) -> Vec<String> {
    all.split_whitespace().map(str::to_owned).collect()
}

impl Fleet {
    /// Waves as `name: clusters`, where clusters are `3`, `50%` or `=a b`.
    fn new(waves: &[&str], rest: &str) -> Self {
        let mut explicit = Vec::new();
        let mut wave = |text: &&str| {
            let (name, clusters) = text.split_once(": ").unwrap();
            let (name, most) = name.split_once('/').unwrap_or((name, ""));
            explicit.push(clusters.strip_prefix('=').map(names));
            let clusters = match clusters.parse::<i64>() {
                Ok(count) => json!({"count": count}),
                Err(_) if clusters.ends_with('%') => json!({"percentage": clusters}),
                Err(_) => json!({"selector": {}}),
            };
            let mut wave = json!({"name": name, "clusters": clusters});
            if let Ok(most) = most.parse::<i64>() {
                wave["maxConcurrency"] = json!(most);
            }
            wave
        };
        let waves: Vec<Value> = waves.iter().map(&mut wave).collect();
        Self {
            spec: json!({"fleetPackageRef": {"name": "p"}, "waves": waves}),
            rest: names(rest),
            explicit,
            revision: "r1".into(),
            gates: BTreeMap::new(),
            admitted: BTreeMap::new(),
            settled: BTreeSet::new(),
            unseen: BTreeSet::new(),
            excused: BTreeSet::new(),
            status: None,
            obstacle: None,
            hold: None,
            refusal: None,
            hindrances: BTreeMap::new(),
        }
    }

    /// The gate of a wave that has started.
    fn gate(&self, wave: usize) -> Option<&(Vec<String>, Stand)> {
        let said = &known(self.status.as_ref(), &self.revision)?.waves[wave];
        self.gates.get(&wave).filter(|(members, _)| has_started(said, members.iter().map(String::as_str)))
    }

    /// Decides once and does it. What was done, in words.
    fn step(&mut self) -> String {
        let spec: FleetRolloutSpec = serde_json::from_value(self.spec.clone()).unwrap();
        let is_admitted = |cluster: &str| self.admitted.get(cluster) == Some(&self.revision);
        let gate_names: Vec<String> = spec.waves.iter().map(|wave| format!("p-{}", wave.name)).collect();
        let waves: Vec<Wave<'_>> = (0..spec.waves.len())
            .map(|at| Wave {
                explicit: self.explicit[at].as_ref().map(|all| Ok(all.iter().map(String::as_str).collect())),
                gate: self.gate(at).map(|(members, stand)| {
                    let among = |some: &BTreeSet<String>| -> Vec<&str> {
                        members.iter().filter(|it| some.contains(*it)).map(String::as_str).collect()
                    };
                    Gate {
                        name: &gate_names[at],
                        members: members.iter().map(String::as_str).collect(),
                        is_open: *stand == Stand::Open,
                        is_stalled: *stand == Stand::Stalled,
                        is_held: *stand == Stand::Held,
                        message: (*stand != Stand::Open).then_some("waits"),
                        as_of: None,
                        on_the_way: members
                            .iter()
                            .filter(|it| is_admitted(it) && !self.settled.contains(*it))
                            .count(),
                        unseen: among(&self.unseen),
                    }
                }),
                hindrance: self.hindrances.get(&at).cloned(),
            })
            .collect();
        let rest: Vec<&str> = self.rest.iter().map(String::as_str).collect();
        let input = Input {
            spec: Ok(&spec),
            generation: 1,
            previous: self.status.as_ref(),
            revision: Ok(&self.revision),
            obstacle: self.obstacle.clone(),
            hold: self.hold.clone(),
            refusal: self.refusal.clone(),
            waves: &waves,
            rest: Ok(&rest),
            // By name.
            order: &|_| Fingerprint::NONE,
            is_excused: &|cluster| self.excused.contains(cluster),
            is_admitted: &is_admitted,
            last_healthy: Some("r0"),
            moment: NOW,
        };
        let Decision { status, steps } = decide(&input);
        let steps: Vec<(bool, usize, Vec<String>)> = steps
            .into_iter()
            .map(|step| {
                let owned = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect();
                match step {
                    Step::Start(at, members) => (true, at, owned(members)),
                    Step::Admit(at, clusters) => (false, at, owned(clusters)),
                }
            })
            .collect();
        self.status = Some(status);
        let mut done = Vec::new();
        for (starts, at, clusters) in steps {
            let word = if starts { "start" } else { "admit" };
            done.push(format!("{word} {at} {}", clusters.join(" ")));
            if starts {
                self.gates.insert(at, (clusters, Stand::Closed));
            } else {
                self.admitted.extend(clusters.into_iter().map(|it| (it, self.revision.clone())));
            }
        }
        done.join(", ")
    }

    /// Steps until nothing is done, and nothing else is said.
    fn run(&mut self) -> String {
        let mut all = Vec::new();
        for _ in 0..50 {
            let before = self.status.clone();
            let done = self.step();
            let stands = done.is_empty() && before == self.status;
            all.extend(Some(done).filter(|done| !done.is_empty()));
            if stands {
                break;
            }
        }
        all.join(", ")
    }

    fn set(&mut self, wave: usize, stand: Stand) -> &mut Self {
        self.gates.get_mut(&wave).unwrap().1 = stand;
        self
    }

    fn ready(&self) -> (String, String) {
        let status = self.status.as_ref().unwrap();
        let ready = find(&status.conditions, READY).unwrap();
        (ready.reason.clone(), ready.message.clone())
    }

    fn is_stalled(&self) -> bool {
        is_true(&self.status.as_ref().unwrap().conditions, STALLED)
    }
}

#[test]
fn a_wave_starts_when_the_gate_before_is_open_and_ends_when_all_are() {
    let mut fleet = Fleet::new(&["canary: 1", "half: 50%", "all: 100%"], "a b c d e");
    assert_eq!(fleet.run(), "start 0 a, admit 0 a");
    assert_eq!(fleet.ready().1, "wave canary (1 of 3), 1 of 1 admitted: waits");
    assert_eq!(fleet.run(), "", "nothing grows while the gate is closed");
    assert_eq!(fleet.set(0, Stand::Open).run(), "start 1 b c, admit 1 b c");
    // A gate that closes again takes nothing back and lets nothing on.
    fleet.set(0, Stand::Closed).set(1, Stand::Open);
    assert_eq!(fleet.run(), "");
    assert_eq!(fleet.set(0, Stand::Open).run(), "start 2 d e, admit 2 d e");
    let status = fleet.status.clone().unwrap();
    assert_eq!((status.wave.as_deref(), status.admitted.as_deref()), (Some("all (3/3)"), Some("5/5")));
    assert!(status.completed_at.is_none() && status.recommended_revision.is_none());
    fleet.set(2, Stand::Open).run();
    assert_eq!(
        fleet.ready(),
        ("RolledOut".into(), "all 5 clusters admitted, the gates of all 3 waves were open".into())
    );
    // What happens later is the package's and the gates' to tell.
    fleet.set(1, Stand::Stalled).run();
    assert_eq!(fleet.ready().0, "RolledOut");
    let status = fleet.status.as_ref().unwrap();
    assert!(status.completed_at.is_some());
    assert_eq!(status.last_completed_revision.as_deref(), Some("r1"));
}

#[test]
fn what_stops_a_rollout_takes_back_nothing_but_what_it_may_not_say() {
    let mut fleet = Fleet::new(&["all: 100%"], "a");
    fleet.run();
    fleet.set(0, Stand::Open).run();
    // The reconciler sets these whenever it writes a status.
    let (epoch, tenancy) = (Some(3), Some("t".to_owned()));
    let previous = FleetRolloutStatus { epoch, tenancy, ..fleet.status.clone().unwrap() };
    let spec: FleetRolloutSpec = serde_json::from_value(fleet.spec.clone()).unwrap();
    let stopped = |spec, revision| {
        let input = Input {
            spec,
            generation: 2,
            previous: Some(&previous),
            revision,
            obstacle: None,
            hold: None,
            refusal: None,
            waves: &[],
            rest: Ok(&[]),
            order: &|_| Fingerprint::NONE,
            is_excused: &|_| false,
            is_admitted: &|_| false,
            last_healthy: None,
            moment: NOW,
        };
        decide(&input).status
    };
    let obstacle = |reason| Err(Obstacle { reason, message: "no".to_owned(), stalled: true });
    for (status, reason) in [
        (stopped(Err("no"), Ok("r2")), "InvalidSpec"),
        (stopped(Ok(&spec), obstacle(Reason::RevisionNotFound)), "RevisionNotFound"),
        (stopped(Ok(&spec), obstacle(Reason::Forbidden)), "Forbidden"),
    ] {
        let ready = find(&status.conditions, READY).unwrap();
        assert_eq!((ready.reason.as_str(), ready.message.as_str()), (reason, "no"));
        assert_eq!((status.observed_generation, status.epoch, status.tenancy), (Some(2), None, None));
        assert_eq!(status.last_completed_revision.as_deref(), Some("r1"));
        let stays = reason != "Forbidden";
        assert_eq!((status.waves == previous.waves, status.revision.is_some()), (stays, stays), "{reason}");
    }
}

#[test]
fn so_many_of_a_wave_are_on_the_way_at_a_time() {
    let mut fleet = Fleet::new(&["all/2: 100%"], "a b c d e");
    assert_eq!(fleet.run(), "start 0 a b c d e, admit 0 a b");
    fleet.settled = names("b").into_iter().collect();
    assert_eq!(fleet.run(), "admit 0 c");
    let told = &fleet.status.as_ref().unwrap().waves;
    assert_eq!((told[0].clusters, told[0].admitted), (5, 3));
    fleet.settled = names("a b c").into_iter().collect();
    assert_eq!(fleet.run(), "admit 0 d e");
}

#[rstest]
#[case::as_many_as_may_be(MOST_NAMES, 5, true)]
#[case::one_more(MOST_NAMES + 1, 5, false)]
#[case::as_long_as_may_be(MOST_OF_NAMES / 128, 128, true)]
#[case::longer(MOST_OF_NAMES / 128 + 1, 128, false)]
fn a_wave_that_no_gate_can_name_is_to_be_split(
    #[case] count: usize,
    #[case] length: usize,
    #[case] fits: bool,
) {
    let mut fleet = Fleet::new(&["all: 100%"], "");
    fleet.rest = (0..count).map(|n| format!("{n:a>length$}")).collect();
    fleet.run();
    assert_eq!(fleet.gates.len(), usize::from(fits));
    if !fits {
        let (reason, message) = fleet.ready();
        assert_eq!((reason.as_str(), fleet.is_stalled()), ("InvalidSpec", true));
        assert!(message.starts_with(&format!("wave all has {count} clusters, at most ")), "{message}");
    }
}

#[test]
fn a_wave_for_which_no_cluster_is_left_is_open() {
    let mut fleet = Fleet::new(&["named: =a", "rest: 100%"], "");
    fleet.run();
    fleet.set(0, Stand::Open).run();
    let waves = &fleet.status.as_ref().unwrap().waves;
    assert_eq!(
        (waves[1].state, waves[1].message.as_deref()),
        (WaveState::Open, Some("no cluster is left for it"))
    );
    assert_eq!(fleet.ready().0, "RolledOut");
}

#[test]
fn a_wave_that_has_failed_stops_all_and_says_where_to_go_back_to() {
    let mut fleet = Fleet::new(&["canary: 1", "rest/1: 100%"], "a b c");
    fleet.run();
    fleet.set(0, Stand::Open).run();
    assert_eq!(fleet.admitted.len(), 2);
    fleet.settled = names("a b").into_iter().collect();
    fleet.set(0, Stand::Stalled);
    assert_eq!(fleet.run(), "");
    assert_eq!(fleet.ready(), ("WaveFailed".into(), "wave canary: waits".into()));
    assert!(fleet.is_stalled());
    assert_eq!(fleet.status.as_ref().unwrap().recommended_revision.as_deref(), Some("r0"));
}

#[test]
fn neither_silence_nor_a_person_s_hand_lets_a_failed_wave_go_on() {
    let mut fleet = Fleet::new(&["all/1: 100%"], "a b c");
    fleet.run();
    fleet.settled = names("a").into_iter().collect();
    assert_eq!(fleet.set(0, Stand::Held).run(), "");
    fleet.set(0, Stand::Stalled).run();
    // The aggregator hears nothing more of the cluster that failed.
    fleet.unseen = names("a").into_iter().collect();
    assert_eq!(fleet.set(0, Stand::Closed).run(), "");
    let why = "wave all: it had failed, and nothing is known of a now";
    assert_eq!((fleet.ready(), fleet.is_stalled()), (("WaveFailed".into(), why.into()), true));
    fleet.unseen.clear();
    assert_eq!(fleet.run(), "admit 0 b");
    // A cluster that has not failed may be out of sight until it has what it may have.
    fleet.unseen = names("b").into_iter().collect();
    fleet.settled = names("a b").into_iter().collect();
    assert_eq!(fleet.run(), "admit 0 c");
}

#[test]
fn a_gate_that_somebody_made_beforehand_is_no_wave_s() {
    let mut fleet = Fleet::new(&["one: 1", "two: 100%"], "a b c");
    fleet.gates.insert(1, (names("a evil"), Stand::Open));
    assert_eq!(fleet.run(), "start 0 a, admit 0 a");
    assert_eq!(fleet.set(0, Stand::Open).run(), "start 1 b c, admit 1 b c");
    assert_eq!(fleet.gates[&1].1, Stand::Closed);
}

#[test]
fn another_revision_begins_at_the_first_wave_and_says_what_became_of_the_one_before() {
    let mut fleet = Fleet::new(&["canary: 1", "rest: 100%"], "a b c");
    fleet.run();
    fleet.set(0, Stand::Open).run();
    fleet.revision = "r2".into();
    fleet.gates.clear();
    assert_eq!(fleet.run(), "start 0 a, admit 0 a");
    let admitted: Vec<String> =
        fleet.admitted.iter().map(|(cluster, at)| format!("{cluster}={at}")).collect();
    assert_eq!(admitted, ["a=r2", "b=r1", "c=r1"], "who may have the one before keeps it");
    let previous = fleet.status.as_ref().unwrap().previous.clone().unwrap();
    assert_eq!((previous.revision.as_str(), previous.completed_at), ("r1", None));
    assert_eq!(previous.admitted.as_deref(), Some("3/3"));
    assert_eq!(previous.wave.as_deref(), Some("rest (2/2)"));
    assert_eq!(
        previous.message.as_deref(),
        Some("wave rest (2 of 2), 3 of 3 admitted: waits")
            .map(|_| "wave rest (2 of 2), 2 of 2 admitted: waits")
    );
}

#[rstest]
#[case::overlap(&["one: =a b", "two: =b c"], "", "WavesOverlap", true, "1 cluster in more than one wave: b (one and two)")]
#[case::nobody_selected(&["one: =", "two: 100%"], "a", "NoTargets", false, "wave one waits for a cluster: its selector matches no ClusterProfile")]
#[case::a_package_that_is_nowhere(&["one: 10%"], "", "NoTargets", false, "wave one waits for a cluster: FleetPackage p has none")]
#[case::all_are_claimed(&["one: 10%", "two: =a"], "", "NoTargets", false, "wave one waits for a cluster: FleetPackage p has none besides those that waves name or select")]
#[case::more_than_there_are(&["one: 5"], "a", "RollingOut", false, "wave one (1 of 1), 1 of 1 admitted: waits")]
fn plans_that_make_no_sense_are_shown(
    #[case] waves: &[&str],
    #[case] rest: &str,
    #[case] reason: &str,
    #[case] stalled: bool,
    #[case] message: &str,
) {
    let mut fleet = Fleet::new(waves, rest);
    fleet.run();
    assert_eq!((fleet.ready(), fleet.is_stalled()), ((reason.into(), message.into()), stalled));
}

#[test]
fn a_wave_for_which_nobody_is_left_is_passed_over_and_newcomers_wait_for_the_next_revision() {
    let mut fleet = Fleet::new(&["one: 100%", "two: 10%"], "a");
    fleet.run();
    fleet.set(0, Stand::Open).run();
    assert_eq!(fleet.ready().0, "RolledOut");
    fleet.rest.push("new".into());
    assert_eq!(fleet.run(), "");
    let status = fleet.status.as_ref().unwrap();
    assert_eq!((status.clusters.unwrap().left_out, status.left_out.clone()), (1, names("new")));
    assert_eq!(fleet.ready().0, "RolledOut");
    fleet.revision = "r2".into();
    fleet.gates.clear();
    fleet.run();
    fleet.set(0, Stand::Open).run();
    assert_eq!(fleet.admitted.len(), 2);
}

#[test]
fn paused_or_hindered_nothing_grows() {
    let mut fleet = Fleet::new(&["one: 1", "two: 100%"], "a b");
    fleet.run();
    fleet.set(0, Stand::Open);
    fleet.spec["paused"] = json!(true);
    assert_eq!((fleet.run().as_str(), fleet.ready().0.as_str()), ("", "GatePaused"));
    fleet.spec["paused"] = json!(false);
    let message = "no".to_owned();
    fleet.obstacle = Some(Obstacle { reason: Reason::OtherRollout, message, stalled: true });
    assert_eq!((fleet.run().as_str(), fleet.ready().0.as_str()), ("", "OtherRollout"));
    fleet.obstacle = None;
    let message = "frozen".to_owned();
    fleet.hold = Some(Obstacle { reason: Reason::Frozen, message, stalled: false });
    assert_eq!((fleet.run().as_str(), fleet.ready().0.as_str(), fleet.is_stalled()), ("", "Frozen", false));
    fleet.hold = None;
    assert_eq!(fleet.run(), "start 1 b, admit 1 b");
}

#[test]
fn which_clusters_a_wave_starts_with_is_told_before_anything_is_done() {
    let mut fleet = Fleet::new(&["one: 2", "two: 100%"], "a b c");
    assert_eq!(fleet.step(), "");
    let told =
        |fleet: &Fleet, wave: usize| fleet.status.as_ref().unwrap().waves[wave].members_fingerprint.clone();
    assert_eq!((told(&fleet, 0), told(&fleet, 1)), (Some(mark(["a", "b"])), None));
    // Another one has joined before the gate was made.
    fleet.rest.push("A".into());
    assert_eq!(fleet.step(), "");
    assert_eq!(fleet.step(), "start 0 A a");
    // Somebody gives the gate other names before anybody was admitted: it gets those that were told.
    fleet.gates.get_mut(&0).unwrap().0.push("evil".into());
    assert_eq!(fleet.run(), "start 0 A a, admit 0 A a");
    // And later.
    fleet.gates.get_mut(&0).unwrap().0.push("evil".into());
    assert_eq!((fleet.run().as_str(), fleet.ready().0.as_str()), ("", "GateChanged"));
    // The aggregator tells again what a lost status had told.
    fleet.gates.get_mut(&0).unwrap().0.pop();
    fleet.status = None;
    assert_eq!((fleet.run().as_str(), fleet.ready().0.as_str()), ("", "RollingOut"));
    assert_eq!(told(&fleet, 0), Some(mark(["a", "A"])));
}

#[rstest]
#[case::nobody(&["one: 2", "two: 100%"], "", "start 0 a b, admit 0 a b", "start 1 c d e, admit 1 c d e")]
#[case::the_first(&["one: 2", "two: 100%"], "a", "start 0 b c, admit 0 b c", "start 1 d e a, admit 1 d e a")]
#[case::of_a_share(&["one: 40%", "two: 100%"], "a d", "start 0 b c, admit 0 b c", "start 1 e a d, admit 1 e a d")]
#[case::more_than_others_there_are(&["one: 2", "two: 100%"], "b c d e", "start 0 a b, admit 0 a b", "start 1 c d e, admit 1 c d e")]
#[case::by_name(&["one: =e a", "two: 100%"], "a", "start 0 e a, admit 0 e a", "start 1 b c d, admit 1 b c d")]
fn waves_take_those_that_are_excused_last(
    #[case] waves: &[&str],
    #[case] excused: &str,
    #[case] first: &str,
    #[case] second: &str,
) {
    let rest = if waves[0].contains('=') { "b c d" } else { "a b c d e" };
    let mut fleet = Fleet::new(waves, rest);
    fleet.excused = names(excused).into_iter().collect();
    assert_eq!(fleet.run(), first);
    // Whose excuse ends then goes with the wave that it has.
    fleet.excused.clear();
    assert_eq!(fleet.run(), "");
    fleet.excused = names(excused).into_iter().collect();
    assert_eq!(fleet.set(0, Stand::Open).run(), second);
}

#[test]
fn that_the_hub_does_not_take_a_write_is_told_and_it_is_tried_again() {
    let mut fleet = Fleet::new(&["one: 1"], "a");
    let message = "exceeded quota".to_owned();
    fleet.refusal = Some(Obstacle { reason: Reason::NotWritten, message, stalled: false });
    assert_eq!(fleet.run(), "start 0 a, admit 0 a");
    assert_eq!(fleet.ready(), ("NotWritten".into(), "exceeded quota".into()));
}

#[test]
fn a_wave_that_cannot_have_its_gate_stops_all_and_says_why() {
    let mut fleet = Fleet::new(&["one: 1", "two: 100%"], "a b");
    let message = "the gate is taken".to_owned();
    fleet.hindrances.insert(1, Obstacle { reason: Reason::GateTaken, message, stalled: true });
    assert_eq!(fleet.run(), "start 0 a, admit 0 a");
    assert_eq!(fleet.status.as_ref().unwrap().waves[1].message.as_deref(), Some("the gate is taken"));
    assert_eq!(fleet.set(0, Stand::Open).run(), "");
    assert_eq!(
        (fleet.ready(), fleet.is_stalled()),
        (("GateTaken".into(), "wave two: the gate is taken".into()), true)
    );
    fleet.hindrances.clear();
    assert_eq!(fleet.run(), "start 1 b, admit 1 b");
}

#[test]
fn a_selector_that_selects_who_is_in_another_wave_selects_nobody() {
    let mut fleet = Fleet::new(&["one: =a", "two: =b"], "");
    fleet.run();
    fleet.explicit[1] = Some(names("a"));
    fleet.set(0, Stand::Open).run();
    let message = "wave two waits for a cluster: all that it names or selects are in other waves";
    assert_eq!(fleet.ready(), ("NoTargets".into(), message.into()));
}

#[test]
fn a_wave_that_was_passed_over_starts_when_it_gets_names() {
    let mut fleet = Fleet::new(&["one: 100%", "two: 10%", "three: =z"], "a");
    fleet.run();
    fleet.set(0, Stand::Open).run();
    fleet.spec["waves"][1]["clusters"] = json!({"selector": {}});
    fleet.explicit[1] = Some(names("x"));
    assert_eq!(fleet.run(), "start 1 x, admit 1 x");
}

#[test]
fn a_gate_that_somebody_gave_other_clusters_admits_none() {
    let mut fleet = Fleet::new(&["one/1: 100%"], "a b");
    fleet.run();
    fleet.settled = names("a").into_iter().collect();
    fleet.gates.get_mut(&0).unwrap().0.push("evil".into());
    assert_eq!((fleet.run().as_str(), fleet.ready().0.as_str()), ("", "GateChanged"));
    // Deleted, its wave starts anew, with the clusters that there are by now.
    fleet.gates.clear();
    fleet.rest.push("c".into());
    assert_eq!(fleet.run(), "start 0 a b c, admit 0 b");
}

proptest! {
    /// Whatever happens: nobody is admitted unless the gates of all waves before theirs are open, and nothing is taken back.
    #[test]
    fn the_admitted_set_never_shrinks_and_grows_behind_open_gates_alone(
        waves in prop::collection::vec(prop::sample::select(vec!["1", "2", "30%", "100%", "=x y", "=z"]), 1..5),
        most in prop::collection::vec(0..3_u8, 5),
        events in prop::collection::vec((0..5_usize, 0..6_u8), 1..60),
    ) {
        let texts: Vec<String> = waves.iter().enumerate().map(|(at, wave)| match most[at] {
            0 => format!("w{at}: {wave}"),
            most => format!("w{at}/{most}: {wave}"),
        }).collect();
        let mut fleet = Fleet::new(&texts.iter().map(String::as_str).collect::<Vec<_>>(), "a b c d e f g");
        for (n, (wave, event)) in events.into_iter().enumerate() {
            match event {
                0..=2 if fleet.gates.contains_key(&wave) => {
                    fleet.set(wave, [Stand::Closed, Stand::Open, Stand::Stalled][usize::from(event)]);
                }
                3 => {
                    fleet.settled = fleet.admitted.keys().take(n % 8).cloned().collect();
                }
                4 => fleet.rest.insert(0, format!("n{n}")),
                5 if n % 3 == 0 => {
                    fleet.revision = format!("r{n}");
                    fleet.gates.clear();
                }
                _ => {}
            }
            let (before, revision) = (fleet.admitted.clone(), fleet.revision.clone());
            fleet.step();
            for (cluster, at) in &before {
                let now = &fleet.admitted[cluster];
                prop_assert!(now == at || *now == revision, "{} went from {} to {}", cluster, at, now);
            }
            for (cluster, at) in &fleet.admitted {
                if before.get(cluster) != Some(at) {
                    let wave = fleet.gates.iter().find(|(_, (members, _))| members.contains(cluster));
                    let (wave, _) = wave.expect("a member of a wave that has started");
                    for earlier in 0..*wave {
                        let stand = fleet.gates.get(&earlier).map(|(_, stand)| *stand);
                        let passed = fleet.status.as_ref().unwrap().waves[earlier].clusters == 0;
                        prop_assert!(stand == Some(Stand::Open) || passed, "wave {} of {}", earlier, wave);
                    }
                    prop_assert!(fleet.gates[wave].1 != Stand::Stalled);
                }
            }
        }
    }
}
