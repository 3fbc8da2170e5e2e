use rstest::rstest;
use serde_json::{Value, json};
use std::fs::File;

use crate::example::{self, NOW, objects, read};
use crate::rollout::RolloutState;
use crate::tree::whole;

use super::text;

#[test]
fn a_rollout_is_shown_wave_by_wave() {
    let mut sent = example::all();
    sent[1]["spec"]["paused"] = json!(true);
    let rollout = read(&objects(&sent));
    let tree = text::tree(&rollout, &[], Some("ticket\n4711"), NOW);
    insta::assert_snapshot!(whole(&tree, &File::open("/dev/null").unwrap()).join("\n"));
    insta::assert_snapshot!("table", text::all(&[rollout], NOW));
}

#[test]
fn programs_read_the_same() {
    let rollout = read(&objects(&example::all()));
    insta::assert_snapshot!(serde_json::to_string_pretty(&rollout).unwrap());
}

#[rstest]
#[case::stalled(|_: &mut Value| {}, RolloutState::Stalled)]
#[case::waits(|it: &mut Value| it["status"]["conditions"] = ready("False"), RolloutState::Waiting)]
#[case::done(|it: &mut Value| it["status"]["conditions"] = ready("True"), RolloutState::RolledOut)]
#[case::of_an_older_spec(
    |it: &mut Value| { it["status"]["conditions"] = ready("True"); it["metadata"]["generation"] = json!(2); },
    RolloutState::NotJudged
)]
#[case::of_another_revision_than_the_package_wants(
    |it: &mut Value| {
        it["status"]["conditions"] = ready("True");
        it["status"]["revision"] = json!("main@sha1:3333333333333333333333333333333333333333");
        it["spec"].as_object_mut().unwrap().remove("revision");
    },
    RolloutState::NotJudged
)]
#[case::stalled_at_another_revision_than_the_package_wants(
    |it: &mut Value| {
        it["status"]["revision"] = json!("main@sha1:3333333333333333333333333333333333333333");
        it["spec"].as_object_mut().unwrap().remove("revision");
    },
    RolloutState::NotJudged
)]
#[case::not_judged(|it: &mut Value| it["status"] = json!({}), RolloutState::NotJudged)]
#[case::not_readable(|it: &mut Value| it["spec"]["waves"] = json!("all"), RolloutState::Stalled)]
fn states(#[case] change: fn(&mut Value), #[case] expected: RolloutState) {
    let mut sent = example::all();
    change(&mut sent[1]);
    let rollout = read(&objects(&sent));
    assert_eq!(rollout.state, expected, "{}", rollout.message);
}

fn ready(status: &str) -> Value {
    json!([{"type": "Ready", "status": status, "reason": "RollingOut", "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z"}])
}
