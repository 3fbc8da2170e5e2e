//! A revision on its way through stages.

use std::sync::Arc;

use proptest::prelude::*;
use rstest::rstest;
use statusbridge_api::Reason;
use statusbridge_api::trace::{Output, StageBefore, StageStatus, TraceStage};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_core::decide::trace::{Stage, Trace, check, follow, holds};
use statusbridge_core::decide::{Backend, Membership, Moment, unix};
use statusbridge_core::fleet::observation::{Observation, Row, Standing};

use crate::gate::Case;
use crate::laws::row;
use crate::made::*;

const IMAGE: &str =
    "registry.example.com/payments@sha256:5555555555555555555555555555555555555555555555555555555555555555";
const IMAGE_2: &str =
    "registry.example.com/payments@sha256:6666666666666666666666666666666666666666666666666666666666666666";

fn described(stage: &str, output: Output) -> TraceStage {
    TraceStage {
        stage: stage.into(),
        cluster: Some(format!("{stage}-1")),
        selector: None,
        source: "cartographer-workload".into(),
        namespace: Some("web".into()),
        name: "payments".into(),
        revision: None,
        output,
    }
}

/// Built in the first stage, run as it is in the second.
pub fn stages() -> [TraceStage; 2] {
    [described("build", Output::Built), described("staging", Output::Same)]
}

fn seen<'a>(spec: &'a TraceStage, observations: &[Observation]) -> Stage<'a> {
    let targets = Arc::from(targets(observations.iter().cloned()));
    Stage { spec, targets, membership: Membership::Known, unanswered: None }
}

/// A builder that has made `made` of `of`, and calls that healthy.
fn built(of: &str, made: &str) -> Observation {
    fresh(Row { desired: Fingerprint::of(of), ..healthy(made) })
}

struct Way {
    spec: [TraceStage; 2],
    known: Vec<StageStatus>,
    moment: Moment,
}

impl Way {
    fn new() -> Self {
        Self { spec: stages(), known: Vec::new(), moment: NOW }
    }

    /// A poll, half a minute after the last one.
    fn poll(&mut self, revision: &str, build: &[Observation], staging: &[Observation]) -> Trace {
        self.moment = Moment { t: self.moment.t + 30.0, now: self.moment.now + 30.0 };
        let stages = [seen(&self.spec[0], build), seen(&self.spec[1], staging)];
        let trace = follow(&stages, revision, &self.known, 180.0, self.moment);
        self.known.clone_from(&trace.stages);
        trace
    }
}

fn states(trace: &Trace) -> [&str; 2] {
    [&trace.stages[0].state, &trace.stages[1].state]
}

#[test]
fn a_revision_is_followed_from_commit_to_image_to_cluster() {
    let mut way = Way::new();
    let old = || fresh(healthy(IMAGE_2));

    let trace = way.poll(R2, &[fresh(moving(R1, R1))], &[old()]);
    assert_eq!(states(&trace), ["NotUpdated", "ArtifactUnknown"]);
    assert_eq!(trace.artifact.unwrap_err(), "stage build: 1 cluster not at the revision yet: c00");

    let trace = way.poll(R2, &[fresh(moving(R1, R2))], &[old()]);
    assert_eq!(states(&trace), ["Progressing", "ArtifactUnknown"]);
    assert!(trace.stages[0].arrived_at.is_some() && trace.stages[0].applied_at.is_none());

    let trace = way.poll(R2, &[built(R2, IMAGE)], &[old()]);
    assert_eq!(states(&trace), ["Healthy", "NotUpdated"]);
    assert_eq!(trace.artifact, Ok(Fingerprint::of(IMAGE)));
    let build = &trace.stages[0];
    assert_eq!(build.input.as_deref(), Some("222222222222"));
    assert_eq!(build.output.as_deref(), Some("555555555555"));
    assert_eq!(trace.stages[1].input, build.output, "what comes out of one goes into the next");

    let trace = way.poll(R2, &[built(R2, IMAGE)], &[fresh(healthy(IMAGE))]);
    assert_eq!(states(&trace), ["Healthy", "Healthy"]);
    let times: Vec<f64> = trace
        .stages
        .iter()
        .flat_map(|it| [&it.arrived_at, &it.applied_at, &it.healthy_at])
        .map(|at| unix(at.as_ref().unwrap()) - NOW.now)
        .collect();
    assert_eq!(times, [60.0, 90.0, 90.0, 120.0, 120.0, 120.0]);
    assert!(trace.stages.iter().all(holds));
}

#[test]
fn where_an_artifact_comes_from_stays_known_when_the_builder_moves_on() {
    let mut way = Way::new();
    way.poll(R2, &[built(R2, IMAGE)], &[fresh(healthy(IMAGE_2))]);
    let trace = way.poll(R2, &[built(R3, IMAGE_2)], &[fresh(healthy(IMAGE))]);
    assert_eq!(states(&trace), ["Superseded", "Healthy"]);
    assert_eq!(trace.artifact, Ok(Fingerprint::of(IMAGE)));
    assert!(holds(&trace.stages[0]), "it was healthy there, and what fares there now is another");
    let trace = way.poll(R2, &[fresh(failed(R2, R3))], &[unobserved(Standing::Stale, None)]);
    assert_eq!(states(&trace), ["Superseded", "Stale"], "another revision's failure is not this one's");
    assert_eq!(trace.artifact, Ok(Fingerprint::of(IMAGE)));
    assert!(!holds(&trace.stages[1]), "what cannot be seen is not vouched for");
}

#[test]
fn another_revision_marks_what_was_known_as_older_and_keeps_it() {
    let mut way = Way::new();
    way.poll(R2, &[built(R2, IMAGE)], &[fresh(healthy(IMAGE))]);
    let trace = way.poll(R3, &[built(R2, IMAGE)], &[fresh(healthy(IMAGE))]);
    assert_eq!(states(&trace), ["NotUpdated", "ArtifactUnknown"]);
    assert!(trace.artifact.is_err());
    let before = trace.stages[0].before.as_ref().unwrap();
    assert_eq!((before.revision.as_str(), before.output.as_deref()), (R2, Some("555555555555")));
    assert_eq!(trace.stages[0].revision, R3);
    let staging = &trace.stages[1];
    assert_eq!(staging.before.as_ref().unwrap().input, "555555555555");
    assert!(staging.healthy_at.is_none());
    // And back again, before the builder has looked.
    let trace = way.poll(R2, &[built(R2, IMAGE)], &[fresh(healthy(IMAGE))]);
    assert_eq!(states(&trace), ["Healthy", "Healthy"]);
    assert_eq!(trace.artifact, Ok(Fingerprint::of(IMAGE)));
}

/// The next revision fails in staging, and the one before it is asked for again: the builder has left it.
#[rstest]
#[case::it_never_worked(failed(IMAGE_2, IMAGE_2))]
#[case::it_worked_first(healthy(IMAGE_2))]
fn who_rolls_back_finds_what_was_known(#[case] staging: Row) {
    let mut way = Way::new();
    let first = way.poll(R2, &[built(R2, IMAGE)], &[fresh(healthy(IMAGE))]);
    way.poll(R3, &[built(R3, IMAGE_2)], &[fresh(staging.clone())]);
    let trace = way.poll(R2, &[built(R3, IMAGE_2)], &[fresh(staging)]);
    assert_eq!(trace.artifact, Ok(Fingerprint::of(IMAGE)));
    assert_eq!(states(&trace), ["Superseded", "Superseded"]);
    for (stage, known) in trace.stages.iter().zip(&first.stages) {
        assert_eq!((&stage.output, &stage.healthy_at), (&known.output, &known.healthy_at));
        assert!(holds(stage), "it was healthy there, and has been left for another one");
        assert!(stage.before.as_ref().is_none_or(|before| before.revision == R3));
    }
    // A stage that is another one by now has not been through anything.
    let mut elsewhere = Way { spec: stages(), known: way.known.clone(), moment: NOW };
    elsewhere.known.iter_mut().for_each(|stage| stage.revision = R3.into());
    for stage in &mut elsewhere.known {
        stage.before = first.stages.iter().find(|it| it.stage == stage.stage).map(|it| StageBefore {
            revision: R2.into(),
            description: "another".into(),
            input: it.input.clone().unwrap(),
            output: it.output.clone(),
            healthy_at: it.healthy_at.clone().unwrap(),
        });
    }
    let trace = elsewhere.poll(R2, &[built(R3, IMAGE_2)], &[]);
    assert!(trace.artifact.is_err() && trace.stages.iter().all(|stage| stage.healthy_at.is_none()));
    // What is not the same content is not the same.
    let other = way.poll(R1, &[built(R3, IMAGE_2)], &[]);
    assert!(other.artifact.is_err() && other.stages.iter().all(|stage| stage.healthy_at.is_none()));
}

#[test]
fn what_a_builder_made_of_another_revision_is_not_taken_for_this_one() {
    let mut way = Way::new();
    way.poll(R2, &[built(R2, IMAGE)], &[]);
    // It has taken in the new commit, and still shows the image of the old one as healthy.
    let trace = way.poll(R3, &[built(R3, IMAGE)], &[]);
    assert_eq!(trace.stages[0].state, "ArtifactUnknown");
    assert!(trace.stages[0].message.contains("was made of revision main@sha1:2222"));
    assert!(trace.artifact.is_err() && !holds(&trace.stages[0]));
    let trace = way.poll(R3, &[built(R3, IMAGE_2)], &[]);
    assert_eq!(trace.artifact, Ok(Fingerprint::of(IMAGE_2)));
}

#[rstest]
#[case::another_clusters_image(vec![built(R2, IMAGE), built(R2, IMAGE_2)], "ArtifactUnknown")]
#[case::not_in_all(vec![built(R2, IMAGE), built(R1, IMAGE_2)], "NotUpdated")]
#[case::out_of_sight(vec![built(R2, IMAGE), unobserved(Standing::Unverified, None)], "Unverified")]
#[case::nothing_made(vec![fresh(Row { applied: Fingerprint::NONE, healthy: Fingerprint::NONE, ..healthy(R2) })], "Progressing")]
#[case::still_applying(vec![fresh(Row { apply: ApplyState::Applying, desired: Fingerprint::of(R2), ..healthy(IMAGE) })], "Progressing")]
#[case::health_unknown(vec![fresh(Row { desired: Fingerprint::of(R2), ..applied(IMAGE, Health::Unknown) })], "HealthUnknown")]
#[case::failed(vec![fresh(failed(IMAGE, R2))], "Failed")]
#[case::paused(vec![fresh(Row { apply: ApplyState::Paused, desired: Fingerprint::of(R2), ..healthy(IMAGE) })], "Paused")]
#[case::nobody(vec![], "NoTargets")]
fn nothing_comes_out_of_a_builder_that(#[case] build: Vec<Observation>, #[case] expected: &str) {
    let trace = Way::new().poll(R2, &build, &[]);
    assert_eq!(trace.stages[0].state, expected);
    assert!(trace.artifact.is_err_and(|why| why.starts_with("stage build: ")));
    assert_eq!(trace.stages[0].output, None);
    assert_eq!(trace.stages[1].state, "ArtifactUnknown");
}

#[test]
fn a_stage_that_gives_on_what_it_got_must_run_just_that() {
    let spec = described("staging", Output::Same);
    let at = |observation| follow(&[seen(&spec, &[observation])], R2, &[], 180.0, NOW);
    let other = at(built(R2, IMAGE));
    assert_eq!(other.stages[0].state, "Progressing", "it says that it runs something else");
    assert_eq!(other.artifact, Ok(Fingerprint::of(R2)), "and yet nobody makes another artifact of it");
    assert_eq!(at(fresh(healthy(R2))).stages[0].state, "Healthy");
}

#[test]
fn a_stage_with_a_revision_of_its_own_gives_on_what_came_in() {
    let catalog = TraceStage { revision: Some(IMAGE.into()), ..described("catalog", Output::Same) };
    let staging = described("staging", Output::Same);
    let at = |serving: &str| {
        let stages = [seen(&catalog, &[fresh(healthy(serving))]), seen(&staging, &[fresh(healthy(R2))])];
        follow(&stages, R2, &[], 180.0, NOW)
    };
    let trace = at(IMAGE);
    assert_eq!(states(&trace), ["Healthy", "Healthy"]);
    assert_eq!((trace.stages[0].output.as_ref(), trace.artifact), (None, Ok(Fingerprint::of(R2))));
    assert_eq!(states(&at(IMAGE_2)), ["NotUpdated", "Healthy"], "whose catalog is another is told apart");
    // Another version out of the same catalog: what was known of the one before is kept.
    let next = follow(&[seen(&catalog, &[fresh(healthy(IMAGE))])], R3, &trace.stages, 180.0, NOW);
    let before = next.stages[0].before.as_ref().unwrap();
    assert_eq!((before.revision.as_str(), before.output.as_ref()), (R2, None));
    assert_eq!(Some(&before.healthy_at), trace.stages[0].healthy_at.as_ref());
    let builds = TraceStage { output: Output::Built, ..catalog.clone() };
    assert!(check(&[builds]).is_err());
}

#[test]
fn what_a_stage_was_under_another_description_is_told_and_not_built_upon() {
    let mut way = Way::new();
    way.poll(R2, &[built(R2, IMAGE)], &[fresh(healthy(IMAGE))]);
    way.spec[0].name = "orders".into();
    let trace = way.poll(R2, &[built(R3, IMAGE_2)], &[fresh(healthy(IMAGE))]);
    assert_eq!(trace.stages[0].state, "NotUpdated");
    assert!(trace.artifact.is_err() && trace.stages[0].healthy_at.is_none());
    let before = trace.stages[0].before.as_ref().unwrap();
    assert_eq!((before.revision.as_str(), &before.output), (R2, &Some(Fingerprint::of(IMAGE).to_string())));
}

#[test]
fn until_clusters_are_listed_and_the_backend_has_answered_the_past_is_kept() {
    let spec = described("build", Output::Built);
    let known = follow(&[seen(&spec, &[built(R2, IMAGE)])], R2, &[], 180.0, NOW).stages;
    let unlisted =
        Stage { membership: Membership::Unlisted("not yet".into()), ..seen(&spec, &[built(R2, IMAGE)]) };
    let unanswered = Stage { unanswered: Some("refused".into()), ..seen(&spec, &[]) };
    for (stage, state) in [(unlisted, "ClusterProfilesUnavailable"), (unanswered, "BackendUnavailable")] {
        let trace = follow(&[stage], R2, &known, 180.0, NOW);
        assert_eq!((trace.stages[0].state.as_str(), &trace.artifact), (state, &Ok(Fingerprint::of(IMAGE))));
        assert_eq!(trace.stages[0].healthy_at, known[0].healthy_at);
        assert_eq!((trace.stages[0].outdated, trace.stages[0].clusters), (true, known[0].clusters));
        assert_eq!((&trace.stages[0].as_of, trace.stages[0].evidence()), (&known[0].as_of, None));
        assert!(!holds(&trace.stages[0]));
    }
}

#[test]
fn while_the_list_of_clusters_is_old_no_time_is_noted() {
    let spec = described("staging", Output::Same);
    let known = |membership| {
        let stage = Stage { membership, ..seen(&spec, &[fresh(healthy(R2))]) };
        let stage = follow(&[stage], R2, &[], 180.0, NOW).stages.remove(0);
        [stage.arrived_at, stage.applied_at, stage.healthy_at].map(|at| at.is_some())
    };
    assert_eq!(known(Membership::Known), [true; 3]);
    let old = Membership::Outdated { since: NOW.now - 200.0, error: "refused".into() };
    assert_eq!(known(old), [false; 3]);
}

#[rstest]
#[case::healthy(Way::new().poll(R2, &[built(R2, IMAGE)], &[]), None)]
#[case::not_there(Way::new().poll(R2, &[built(R1, IMAGE)], &[]), Some(Reason::StageNotHealthy))]
#[case::out_of_sight(Way::new().poll(R2, &[unobserved(Standing::Stale, None)], &[]), Some(Reason::StageNotHealthy))]
#[case::no_trace(Trace::none(R2), Some(Reason::StageNotFound))]
fn a_gate_requires_a_stage(#[case] trace: Trace, #[case] closed: Option<Reason>) {
    let mut case = Case::spec(|spec| spec.terms.require_stage = Some("build".into()));
    case.stages = trace.stages;
    let status = case.with(&targets([fresh(healthy(R2))]), Backend::Answers);
    let waiting: Vec<&str> = status.waiting_for.iter().map(|it| it.reason.as_str()).collect();
    assert_eq!(waiting, closed.map(Reason::name).into_iter().collect::<Vec<_>>());
}

#[test]
fn a_gate_is_as_old_as_the_evidence_of_the_stage_that_it_requires() {
    let mut case = Case::spec(|spec| spec.terms.require_stage = Some("build".into()));
    let old = Observation { as_of: Some(T - 100.0), ..built(R2, IMAGE) };
    case.stages = Way::new().poll(R2, &[old], &[]).stages;
    let status = case.with(&targets([fresh(healthy(R2))]), Backend::Answers);
    assert_eq!(status.as_of.map(|at| unix(&at)), Some(T - 100.0));
}

#[test]
fn while_the_artifact_is_not_known_no_cluster_counts() {
    let case = Case { untraced: Some("stage build: not there"), ..Case::default() };
    let status = case.with(&targets([fresh(healthy(R2)), fresh(healthy(IMAGE))]), Backend::Answers);
    let waiting: Vec<_> =
        status.waiting_for.iter().map(|it| (it.reason.as_str(), it.message.as_str())).collect();
    assert_eq!(waiting, [("ArtifactUnknown", "stage build: not there")]);
    assert_eq!(status.clusters.unwrap().healthy, 0);
}

#[test]
fn stages_that_make_no_sense() {
    let twice = [described("a", Output::Same), described("a", Output::Built)];
    assert_eq!(check(&twice).unwrap_err(), "trace: there are two stages \"a\"");
    let nowhere = [TraceStage { cluster: None, ..described("a", Output::Same) }];
    assert!(check(&nowhere).unwrap_err().starts_with("trace: stage \"a\": "));
    assert_eq!(check(&stages()), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever a builder says over time: what is said to come of a revision was at some time shown as
    /// applied and healthy by a builder that had taken in just that revision.
    #[test]
    fn nothing_is_said_to_come_of_a_revision_that_was_not_made_of_it(
        polls in prop::collection::vec((0_usize..2, row(), any::<bool>()), 1..12),
    ) {
        let revisions = [R1, R2];
        let mut way = Way::new();
        let mut made: [Vec<Fingerprint>; 2] = Default::default();
        for (wanted, row, visible) in polls {
            let observation =
                if visible { fresh(row.clone()) } else { unobserved(Standing::Stale, Some(row.clone())) };
            for (at, revision) in revisions.iter().enumerate() {
                let of_it = row.desired == Fingerprint::of(revision);
                if visible && of_it && row.apply == ApplyState::Applied && row.healthy == row.applied {
                    made[at].push(row.applied);
                }
            }
            let trace = way.poll(revisions[wanted], &[observation], &[]);
            if let Ok(artifact) = trace.artifact {
                prop_assert!(made[wanted].contains(&artifact));
            }
            prop_assert_eq!(trace.stages[0].healthy_at.is_some(), trace.stages[0].output.is_some());
        }
    }
}
