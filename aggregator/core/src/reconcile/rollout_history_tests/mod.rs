//! A FleetRollout through random histories: nobody is admitted but behind gates that are open, by the plan that the hub has at
//! that moment; no row is ever lost; and once all is well again, it comes to its end.

use proptest::prelude::*;

mod history;

use history::{CLUSTERS, History};

/// Something that happens.
#[derive(Debug, Clone)]
enum Step {
    /// Some seconds pass, and the backend is polled.
    Round,
    /// The backend gives no answers, or does.
    Silent(bool),
    /// Each cluster comes to the revision that it may have.
    Delivers,
    /// The package fails in a cluster.
    Fails(usize),
    /// The package is healthy in all clusters again.
    Recovers,
    /// Somebody pauses the rollout, or lets it go on.
    Paused(bool),
    /// Somebody asks for another revision.
    Revision(u8),
    /// Somebody changes the waves.
    Plan(usize),
    /// Somebody deletes a wave's gate.
    GateGone(&'static str),
    /// Somebody gives a wave's gate another cluster.
    GateNames(&'static str, usize),
    /// Somebody pauses a wave's gate.
    GatePaused(&'static str),
    /// Somebody who may opens a wave's gate, or closes it.
    GateOverridden(&'static str, bool),
    /// Somebody makes a gate that looks as if it were a wave's, for this cluster.
    GateForged(&'static str, usize),
    /// Somebody freezes the namespace, or ends that.
    Frozen(bool),
    /// The watches bring nothing new, or all that they have missed.
    Lags(bool),
    /// The status is gone, as after a restore.
    StatusLost,
    /// Another process leads.
    Leads,
    /// What was sent, and has not arrived, does now.
    Arrives,
}

/// What becomes of what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Landing {
    /// The hub has it.
    Whole,
    /// It is on its way, for nobody knows how long.
    Late,
    /// The hub does not take it.
    Refused,
}

fn steps() -> impl Strategy<Value = Vec<(Step, Landing)>> {
    let wave = || prop::sample::select(vec!["canary", "half", "rest"]);
    let cluster = || 0..CLUSTERS.len();
    let step = prop_oneof![
        40 => Just(Step::Round),
        25 => Just(Step::Delivers),
        4 => any::<bool>().prop_map(Step::Silent),
        4 => cluster().prop_map(Step::Fails),
        4 => Just(Step::Recovers),
        4 => any::<bool>().prop_map(Step::Paused),
        4 => (1..4_u8).prop_map(Step::Revision),
        2 => (0..2_usize).prop_map(Step::Plan),
        3 => wave().prop_map(Step::GateGone),
        3 => (wave(), cluster()).prop_map(|(wave, at)| Step::GateNames(wave, at)),
        2 => wave().prop_map(Step::GatePaused),
        2 => (wave(), any::<bool>()).prop_map(|(wave, opens)| Step::GateOverridden(wave, opens)),
        4 => (wave(), cluster()).prop_map(|(wave, at)| Step::GateForged(wave, at)),
        3 => any::<bool>().prop_map(Step::Frozen),
        5 => any::<bool>().prop_map(Step::Lags),
        2 => Just(Step::StatusLost),
        3 => Just(Step::Leads),
        3 => Just(Step::Arrives),
    ];
    let landing =
        prop_oneof![12 => Just(Landing::Whole), 2 => Just(Landing::Late), 1 => Just(Landing::Refused)];
    prop::collection::vec((step, landing), 1..80)
}

fn play(history: &mut History, steps: impl IntoIterator<Item = (Step, Landing)>) -> Result<(), String> {
    for (step, landing) in steps {
        history.happens(step);
        history.acts(landing)?;
    }
    Ok(())
}

/// All is well from now on, and gates that somebody has changed are made anew.
fn end(history: &mut History) -> Result<(), String> {
    let well = [
        Step::Lags(false),
        Step::Silent(false),
        Step::Paused(false),
        Step::Frozen(false),
        Step::Recovers,
        Step::Arrives,
        Step::GateGone("canary"),
        Step::GateGone("half"),
        Step::GateGone("rest"),
    ];
    play(history, well.map(|step| (step, Landing::Whole)))?;
    for _ in 0..60 {
        play(history, [Step::Round, Step::Delivers].map(|step| (step, Landing::Whole)))?;
    }
    Ok(())
}

/// Found at random: by the gate as it is written the wave had failed, as judged now it had not, and its status said the one and
/// the other in turn until the gate's write arrived.
#[test]
fn a_wave_has_failed_until_its_gate_says_otherwise_in_the_hub_too() {
    let mut history = History::new();
    let steps = [
        (Step::Round, Landing::Whole),
        (Step::GateForged("canary", 0), Landing::Whole),
        (Step::Delivers, Landing::Whole),
        (Step::Fails(4), Landing::Whole),
        (Step::Round, Landing::Whole),
        (Step::GateOverridden("canary", false), Landing::Late),
        (Step::Delivers, Landing::Whole),
    ];
    play(&mut history, steps).unwrap();
    end(&mut history).unwrap();
}

/// Found at random: while a write was refused, the status said of a gate that is open by hand alone that it is open and that it is
/// not, in turn and without end.
#[test]
fn what_is_told_of_a_wave_comes_to_rest_while_a_write_is_refused() {
    let mut history = History::new();
    let steps = [
        (Step::Round, Landing::Whole),
        (Step::GateNames("canary", 0), Landing::Whole),
        (Step::GateOverridden("canary", true), Landing::Whole),
        (Step::Silent(true), Landing::Whole),
        (Step::Leads, Landing::Whole),
        (Step::Round, Landing::Whole),
        (Step::GateForged("half", 0), Landing::Refused),
        (Step::Round, Landing::Whole),
    ];
    play(&mut history, steps).unwrap();
    end(&mut history).unwrap();
}

/// Found at random: the history took a forged gate for that of a wave for which nobody is left.
#[test]
fn a_wave_for_which_nobody_is_left_has_no_gate_whatever_somebody_forges() {
    let mut history = History::new();
    let steps = [
        Step::Plan(1),
        Step::Round,
        Step::Delivers,
        Step::Round,
        Step::Plan(0),
        Step::GateForged("half", 0),
        Step::Round,
        Step::Round,
    ];
    play(&mut history, steps.map(|step| (step, Landing::Whole))).unwrap();
    end(&mut history).unwrap();
    assert_eq!(history.reason(), "RolledOut");
}

proptest! {
    #![proptest_config(crate::testing::histories())]

    #[test]
    fn the_record_grows_behind_open_gates_alone_and_the_rollout_ends(steps in steps()) {
        let mut history = History::new();
        play(&mut history, steps).and_then(|()| end(&mut history)).map_err(TestCaseError::fail)?;
        prop_assert_eq!(history.reason(), "RolledOut");
        prop_assert_eq!(history.record().len(), CLUSTERS.len());
    }
}
