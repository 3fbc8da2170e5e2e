//! The worked vectors of the specification, held against this implementation.
#![allow(clippy::expect_used)] // a broken vectors.json is a failed test

use serde_json::Value;
use statusbridge_contract::{
    ALWAYS, ApplyState, CONTRACT_VERSION, Digest, Fingerprint, Health, Metric, PACKAGE_METRICS, exposition,
    label, reason, sample,
};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors.json")).expect("vectors.json is JSON")
}

fn list<'a>(all: &'a Value, name: &str) -> &'a [Value] {
    let list = all[name].as_array().unwrap_or_else(|| panic!("{name} is a list"));
    assert!(!list.is_empty(), "{name} is empty");
    list
}

fn text<'a>(v: &'a Value, name: &str) -> &'a str {
    v[name].as_str().unwrap_or_else(|| panic!("{name} is a string in {v}"))
}

fn number(v: &Value, name: &str) -> u64 {
    v[name].as_u64().unwrap_or_else(|| panic!("{name} is a whole number in {v}"))
}

fn labels(v: &Value) -> Vec<(&str, &str)> {
    v["labels"]
        .as_object()
        .expect("labels")
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str().expect("value")))
        .collect()
}

fn lines(v: &Value) -> Vec<&str> {
    let lines = v.as_array().expect("a list of samples");
    lines.iter().map(|line| line.as_str().expect("a sample in canonical form")).collect()
}

fn sum(lines: &[&str]) -> Digest {
    lines.iter().map(|line| sample::hash_canonical(line.as_bytes())).collect()
}

/// The metric of a sample in canonical form.
fn metric(line: &str) -> Metric {
    let name = line.split('{').next().expect("a name");
    Metric::from_name(name).unwrap_or_else(|| panic!("there is no {name}"))
}

#[test]
fn version() {
    assert_eq!(text(&vectors(), "contract"), CONTRACT_VERSION);
}

#[test]
fn fingerprints() {
    for v in list(&vectors(), "fingerprints") {
        let revisions: Vec<&str> =
            v["revisions"].as_array().expect("revisions").iter().filter_map(Value::as_str).collect();
        let got = Fingerprint::of_all(revisions.iter().copied());
        assert_eq!(got.value(), number(v, "value"), "{v}");
        assert_eq!(got.to_string(), text(v, "shown"), "{v}");
    }
}

#[test]
fn reasons() {
    for v in list(&vectors(), "reasons") {
        assert_eq!(reason::code(text(v, "reason")), number(v, "code"), "{v}");
    }
}

#[test]
fn states() {
    let all = vectors();
    for (i, name) in list(&all, "apply_states").iter().enumerate() {
        assert_eq!(ApplyState::ALL[i].name(), name);
    }
    for (i, name) in list(&all, "healths").iter().enumerate() {
        assert_eq!(Health::ALL[i].name(), name);
    }
}

#[test]
fn metrics() {
    let all = vectors();
    let listed = list(&all, "metrics");
    assert_eq!(listed.len(), Metric::ALL.len());
    for (v, m) in listed.iter().zip(Metric::ALL) {
        assert_eq!(text(v, "name"), m.name());
        assert_eq!(v["in_digest"], m.in_digest(), "{v}");
        let labels: Vec<&str> =
            v["labels"].as_array().expect("labels").iter().filter_map(Value::as_str).collect();
        assert_eq!(labels, m.labels(), "{v}");
    }
}

#[test]
fn samples_and_digests() {
    let all = vectors();
    for v in list(&all, "samples") {
        let (metric, labels, value) = (text(v, "metric"), labels(v), number(v, "value"));
        assert_eq!(sample::canonical(metric, &labels, value), text(v, "canonical"));
        let hash = sample::hash(metric, &labels, value);
        assert_eq!(format!("{hash:016x}"), text(v, "xxh3_64"), "{v}");
    }
    for v in list(&all, "digests") {
        assert_eq!(sum(&lines(&v["canonical"])).value(), number(v, "digest"), "{v}");
    }
}

#[test]
fn packages() {
    let all = vectors();
    let mut most = 0;
    for v in list(&all, "packages") {
        let lines = lines(&v["samples"]);
        let places: Vec<usize> = lines
            .iter()
            .map(|line| {
                PACKAGE_METRICS.iter().position(|m| *m == metric(line)).expect("a metric of packages")
            })
            .collect();
        let always: Vec<usize> = (0..ALWAYS).collect();
        assert!(places.starts_with(&always) && places.is_sorted_by(|a, b| a < b), "{v}");
        assert_eq!(sum(&lines).value(), number(v, "digest"), "{v}");

        let revisions = |name: &str| -> Fingerprint {
            Fingerprint::of_all(v[name].as_array().expect("revisions").iter().filter_map(Value::as_str))
        };
        let good = v["apply_state"] == "Applied" && v["health"] == "Current";
        let healthy = if good { revisions("applied") } else { Fingerprint::NONE };
        assert_eq!(healthy.value(), number(v, "healthy"), "{v}");
        most = most.max(lines.len());
    }
    assert_eq!(most, PACKAGE_METRICS.len(), "no package has every sample");
}

#[test]
fn expositions() {
    for v in list(&vectors(), "expositions") {
        let (state, at) = (sum(&lines(&v["canonical"])), number(v, "rendered"));
        assert_eq!(state.value(), number(v, "state"), "{v}");
        assert_eq!(state.rendered(at).value(), number(v, "digest"), "{v}");
        assert_eq!(Digest::of_state(number(v, "digest"), at), state, "{v}");
    }
}

#[test]
fn parts_by_cluster_add_up() {
    let all = &vectors()["parts"];
    let without = lines(&all["without_package_cluster"]);
    assert!(without.iter().all(|line| !line.contains(label::PACKAGE_CLUSTER)));
    let mut state = sum(&without);
    for part in list(all, "parts") {
        let (cluster, lines) = (text(part, "package_cluster"), lines(&part["canonical"]));
        let own = format!("{}=\"{cluster}\"", label::PACKAGE_CLUSTER);
        assert!(lines.iter().all(|line| line.contains(&own) && metric(line).per_package()), "{part}");
        assert_eq!(sum(&lines).value(), number(part, "digest"), "{part}");
        state.merge(sum(&lines));
    }
    assert_eq!(state.rendered(number(all, "rendered")).value(), number(all, "digest"));
}

#[test]
fn a_text_adds_up_to_the_digest_in_it() {
    let all = &vectors()["text"];
    let (mut state, mut rendered, mut digest) = (Digest::default(), None, None);
    exposition::read(text(all, "text"), |sample| {
        let Some(metric) = Metric::from_name(sample.name) else { return };
        let labels: Vec<(&str, &str)> = sample.labels.iter().map(|(n, v)| (*n, v.as_ref())).collect();
        let value = sample.value as u64;
        assert!(labels.iter().all(|(name, _)| metric.labels().contains(name)), "{sample:?}");
        match metric {
            Metric::RenderedTimestamp => rendered = Some(value),
            Metric::Digest => digest = Some(sample::canonical(sample.name, &labels, value)),
            metric if metric.in_state() => state.add(sample::hash(sample.name, &labels, value)),
            _ => {}
        }
    })
    .expect("an exposition");
    assert_eq!(rendered, Some(number(all, "rendered")));
    assert_eq!(state.value(), number(all, "state"));
    assert_eq!(digest.as_deref(), Some(text(all, "digest_line")));

    let labels: Vec<(&str, &str)> = all["digest_labels"]
        .as_object()
        .expect("labels")
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().expect("value")))
        .collect();
    assert_eq!(labels, [(label::CONTRACT, CONTRACT_VERSION), (label::CLUSTER_UID, "5a09531d2e66")]);
    let line =
        sample::canonical(Metric::Digest.name(), &labels, state.rendered(number(all, "rendered")).value());
    assert_eq!(line, text(all, "digest_line"));
}
