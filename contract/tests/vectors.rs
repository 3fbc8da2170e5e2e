//! The worked vectors of the specification, held against this implementation.
#![allow(clippy::expect_used)] // a broken vectors.json is a failed test

use serde_json::Value;
use statusbridge_contract::{ApplyState, Digest, Fingerprint, Health, Metric, reason, sample};

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
        let digest: Digest = v["canonical"]
            .as_array()
            .expect("canonical")
            .iter()
            .filter_map(Value::as_str)
            .map(|c| sample::hash_canonical(c.as_bytes()))
            .collect();
        assert_eq!(digest.value(), number(v, "digest"), "{v}");
    }
}
