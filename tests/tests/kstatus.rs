//! Our kstatus and Go's, on random objects: they have to say the same of each of them.
//!
//! `STATUSBRIDGE_KSTATUS_CASES` and `STATUSBRIDGE_KSTATUS_SEED` (numbers) try more objects, or others.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    cell::RefCell,
    collections::BTreeSet,
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use proptest::{
    prelude::*,
    sample::select,
    strategy::Union,
    test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner},
};
use serde_json::{Map, Value, json};
use statusbridge_contract::Health;
use statusbridge_exporter::source::Projection;
use statusbridge_kstatus::{self as kstatus, Status};
use statusbridge_tests::program;

/// Go's kstatus (tests/servers/kstatus), a line in, a line out.
struct Go {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// What Go says, and as what it says it.
#[derive(Debug, serde::Deserialize)]
struct Answer {
    status: String,
    reason: String,
    message: String,
    #[serde(default)]
    error: String,
}

impl Go {
    fn start() -> Result<Self> {
        let mut child = Command::new(program("kstatus")?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting Go's kstatus")?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { child, input, output })
    }

    fn ask(&mut self, object: &str) -> Result<Answer> {
        self.input.write_all(format!("{object}\n").as_bytes())?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("Go said {line:?} of {object}"))
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Whether both say the same; where Go has an error, we say Unknown, and nowhere else.
fn agree(ours: &Status, go: &Answer) -> bool {
    if !go.error.is_empty() {
        return ours.health == Health::Unknown && !ours.reason.is_empty() && !ours.message.is_empty();
    }
    // Go has no condition for it, so no reason.
    let reason = if ours.health == Health::Terminating { "Terminating" } else { &go.reason };
    ours.health.name() == go.status && ours.reason == reason && ours.message == go.message
}

fn runner(cases: u32) -> TestRunner {
    let number = |name: &str| env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let cases = number("STATUSBRIDGE_KSTATUS_CASES").map_or(cases, |n| n as u32);
    let mut seed = [7; 32];
    if let Some(number) = number("STATUSBRIDGE_KSTATUS_SEED") {
        seed[..8].copy_from_slice(&number.to_le_bytes());
    }
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

fn check(runner: &mut TestRunner, test: impl Fn(Value) -> Result<(), TestCaseError>) -> Result<()> {
    match runner.run(&object(), test) {
        Ok(()) => Ok(()),
        Err(TestError::Fail(why, object)) => anyhow::bail!("{why}\nsmallest object: {object}"),
        Err(error) => Err(error.into()),
    }
}

#[test]
fn says_of_every_object_what_go_says() -> Result<()> {
    let go = RefCell::new(Go::start()?);
    let seen = RefCell::new(BTreeSet::new());
    check(&mut runner(12_000), |object| {
        let said = go.borrow_mut().ask(&object.to_string());
        let said = said.map_err(|error| TestCaseError::fail(format!("{error:#}")))?;
        let ours = kstatus::compute_at(&object, now());
        prop_assert!(agree(&ours, &said), "ours: {ours:?}\nGo's: {said:?}");
        seen.borrow_mut().insert(format!("{} {}: {}{}", said.status, said.reason, said.message, said.error));
        Ok(())
    })?;
    // That they agree says something only where there was something to agree on.
    let seen = seen.into_inner();
    let missing: Vec<_> = ANSWERS.iter().filter(|a| !seen.iter().any(|s| s.contains(**a))).collect();
    ensure!(missing.is_empty(), "no object made Go say {missing:?}");
    Ok(())
}

/// Something of everything that Go can say.
const ANSWERS: &[&str] = &[
    "Terminating : Resource scheduled for deletion",
    "InProgress LatestGenerationNotObserved: ",
    "InProgress Installing: Install in progress",
    "InProgress LessReplicas: Replicas: ",
    "InProgress LessReady: Ready: ",
    "InProgress LessCurrent: current: ",
    "InProgress LessCurrent: Current: ",
    "InProgress LessUpdated: Updated: ",
    "InProgress LessAvailable: Available: ",
    "InProgress LessLabelled: Labelled: ",
    "InProgress ExtraPods: Pending termination: ",
    "InProgress PartitionRollout: updated: ",
    "InProgress RevisionMismatch: ",
    "InProgress ReplicaSetNotAvailable: ",
    "InProgress DeploymentNotAvailable: ",
    "InProgress ReplicaFailure: ",
    "InProgress NoGeneration: ",
    "InProgress NoObservedGeneration: ",
    "InProgress NoDesiredNumber: ",
    "InProgress NotBound: PVC is not Bound. phase: ",
    "InProgress PodRunningNotReady: ",
    "InProgress PodNotScheduled: ",
    "InProgress PodPending: ",
    "InProgress PodNotObserved: ",
    "InProgress JobNotStarted: ",
    "InProgress NoIPAssigned: ",
    "Failed ProgressDeadlineExceeded: Progress deadline exceeded",
    "Failed ContainerCrashLooping: Containers in CrashLoop state: ",
    "Failed PodUnschedulable: ",
    "Failed JobFailed: Job Failed. failed: ",
    "Current : Resource is always ready",
    "Current : Resource is Ready",
    "Current : Resource is current",
    "Current : StatefulSet is using the ondelete update strategy",
    "Current : Partition rollout complete. updated: ",
    "Current : All replicas scheduled as expected. Replicas: ",
    "Current : Deployment is available. Replicas: ",
    "Current : ReplicaSet is available. Replicas: ",
    "Current : PVC is Bound",
    "Current : Pod has completed successfully",
    "Current : Pod has completed, but not successfully",
    "Current : Pod is Ready",
    "Current : AllowedDisruptions has been computed.",
    "Current : Job Completed. succeeded: ",
    "Current : Job is suspended",
    "Current : Job in progress. success:",
    "Current : Service is ready",
    "Current : CRD is established",
    "looking up metadata.deletionTimestamp",
    "looking up metadata.generation",
    "looking up status.observedGeneration",
    "cannot restore struct from",
    "cannot restore slice from",
    "unrecognized type: string",
    "cannot convert int64 to string",
    "unknown phase",
    "panic: interface conversion",
];

/// What no value that is printed can say: how numbers are written, keys that come twice.
#[test]
fn reads_odd_json_as_go_does() -> Result<()> {
    let mut go = Go::start()?;
    let generation = |written: &str| {
        format!(r#"{{"metadata":{{"generation":{written}}},"status":{{"observedGeneration":1}}}}"#)
    };
    let mut objects: Vec<String> =
        ["1", "1.0", "1e0", "10e-1", "0", "-1", "1.5", "9223372036854775807", "9223372036854775808"]
            .into_iter()
            .chain(["18446744073709551616", "-9223372036854775808", "-9223372036854775809", "1e400", "01"])
            .map(generation)
            .collect();
    objects.extend(
        [
            r#"{"status":{"conditions":[{"type":"Ready","status":"False","status":"True"}]}}"#,
            r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]},"status":null}"#,
            r#"{"Status":{"Conditions":[{"Type":"Stalled","Status":"True"}]}}"#,
            r#"{"status":{"conditions":[{"Type":"Stalled","type":"Ready","status":"False","REASON":"x"}]}}"#,
            r#"{"kind":"\u00e9\ud83d\ude00","metadata":{"generation":1},"status":{"observedGeneration":2}}"#,
            r#"{"metadata":{"generation":1},"status":{"observedGeneration":2},"x":"\ud800"}"#,
            "{}",
            "null",
        ]
        .map(str::to_owned),
    );
    for object in objects {
        let said = go.ask(&object)?;
        match serde_json::from_str::<Value>(&object) {
            // Go takes null for an object without fields, and half a surrogate pair for a character.
            Ok(Value::Null) => {}
            Ok(value) => {
                let ours = kstatus::compute_at(&value, now());
                ensure!(agree(&ours, &said), "{object}\nours: {ours:?}\nGo's: {said:?}");
            }
            Err(_) if object.contains("ud800") => {}
            Err(error) => ensure!(!said.error.is_empty(), "{object}\nours: {error}\nGo's: {said:?}"),
        }
    }
    Ok(())
}

/// Fifteen seconds count from the creation; the clocks of two programs are too far apart to compare
/// there, so this says when we look.
#[test]
fn a_pod_has_fifteen_seconds_to_be_scheduled() {
    let created: jiff::Timestamp = "2026-11-21T01:00:00Z".parse().unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"creationTimestamp": created.to_string()},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
    let after = |seconds: i64| kstatus::compute_at(&pod, created.as_second() + seconds).reason;
    assert_eq!([after(0), after(14), after(15)], ["PodNotScheduled", "PodNotScheduled", "PodUnschedulable"]);
}

/// Nulls are dropped from lean objects; apart from that, nobody can tell them from whole ones.
#[test]
fn lean_objects_say_the_same() -> Result<()> {
    let all = Projection::of_fields(kstatus::fields());
    let package = Projection::of_fields(kstatus::package_fields());
    let apply = Projection::of_fields(kstatus::apply_fields());
    check(&mut runner(4_000), |object| {
        let bare = without_nulls(object.clone());
        let now = now();
        prop_assert_eq!(kstatus::compute_at(&all.project(&object), now), kstatus::compute_at(&bare, now));
        let leaf = kstatus::of_resource(&object, now);
        let (group, kind) = group_kind(&object);
        let of_kind = Projection::of_fields(kstatus::resource_fields(group, kind));
        prop_assert_eq!(&kstatus::of_resource(&of_kind.project(&object), now), &leaf);
        prop_assert_eq!(&kstatus::of_resource(&all.project(&object), now), &leaf);
        prop_assert_eq!(kstatus::of_package(&package.project(&object)), kstatus::of_package(&object));
        let applied = kstatus::apply_of_package(&object);
        prop_assert_eq!(kstatus::apply_of_package(&apply.project(&object)), applied);
        Ok(())
    })
}

/// What the exporter uses is stricter than kstatus, never more lenient.
#[test]
fn a_leaf_or_package_is_current_only_where_kstatus_says_so() -> Result<()> {
    check(&mut runner(4_000), |object| {
        let bare = without_nulls(object);
        let plain = kstatus::compute_at(&bare, now());
        let leaf = kstatus::of_resource(&bare, now());
        if group_kind(&bare) != ("apiregistration.k8s.io", "APIService") {
            prop_assert_eq!(&leaf, &plain);
        }
        prop_assert!(leaf.health != Health::Current || plain.health == Health::Current);
        let mut other = bare.clone();
        other["kind"] = json!("Other");
        let (package, plain) = (kstatus::of_package(&bare), kstatus::compute_at(&other, now()));
        let nothing_known = package.reason == "NoConditions" && package.health == Health::Unknown;
        prop_assert!(package.health == plain.health || nothing_known, "{package:?} {plain:?}");
        Ok(())
    })
}

fn group_kind(object: &Value) -> (&str, &str) {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    (group, object["kind"].as_str().unwrap_or_default())
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect(),
        ),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        scalar => scalar,
    }
}

const KINDS: &[(&str, &str)] = &[
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("v1", "Pod"),
    ("v1", "Pod"),
    ("batch/v1", "Job"),
    ("v1", "Service"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("apiregistration.k8s.io/v1", "APIService"),
    ("example.com/v1", "Widget"),
];
const MORE_KINDS: &[(&str, &str)] = &[
    ("v1", "PersistentVolumeClaim"),
    ("policy/v1", "PodDisruptionBudget"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("batch/v1", "CronJob"),
    ("extensions/v1beta1", "Deployment"),
    ("extensions/v1beta1", "DaemonSet"),
    ("extensions/v1beta1", "ReplicaSet"),
    ("extensions/v1beta1", "StatefulSet"),
    ("policy/v1beta1", "Job"),
    ("v1", "Deployment"),
    ("v1", "apps/Deployment"),
    ("/v1", "Pod"),
    ("/", "Pod"),
    ("", "Pod"),
    ("apps/", "Deployment"),
    ("apps/v1/x", "Deployment"),
    ("a/b/c", ""),
    ("apps/v1", "deployment"),
];

/// Fields that hold counts; in half of the objects most of them agree.
const COUNTS: &[&str] = &[
    "spec.replicas",
    "spec.parallelism",
    "spec.completions",
    "status.replicas",
    "status.readyReplicas",
    "status.currentReplicas",
    "status.updatedReplicas",
    "status.availableReplicas",
    "status.fullyLabeledReplicas",
    "status.desiredNumberScheduled",
    "status.currentNumberScheduled",
    "status.updatedNumberScheduled",
    "status.numberAvailable",
    "status.numberReady",
    "status.succeeded",
    "status.active",
    "status.failed",
];

/// Fields that are there or not, with what they may hold.
fn texts() -> Vec<(&'static str, u32, Vec<Value>)> {
    let values = |json: Value| json.as_array().cloned().unwrap();
    vec![
        ("metadata.deletionTimestamp", 1, values(json!(["2026-01-01T00:00:00Z", "", "x"]))),
        ("metadata.generation", 40, values(json!([2, 2, 2, 2, 0, 3]))),
        ("status.observedGeneration", 40, values(json!([2, 2, 2, 2, 2, 2, 2, 1, 0, -1]))),
        ("metadata.creationTimestamp", 40, values(json!(TIMES))),
        ("spec.progressDeadlineSeconds", 20, values(json!([600, 2147483647i64, 0]))),
        ("spec.suspend", 10, values(json!([true, false]))),
        ("spec.type", 20, values(json!(["LoadBalancer", "ClusterIP", ""]))),
        ("spec.clusterIP", 10, values(json!(["10.0.0.1", "", "None"]))),
        ("spec.updateStrategy.type", 20, values(json!(["RollingUpdate", "RollingUpdate", "OnDelete", ""]))),
        (
            "spec.updateStrategy.rollingUpdate.partition",
            8,
            values(json!([0, 1, 2, -1, -9223372036854775808i64])),
        ),
        ("status.startTime", 20, values(json!(["2026-01-01T00:00:00Z", ""]))),
        (
            "status.phase",
            60,
            values(json!([
                "Running",
                "Running",
                "Pending",
                "Pending",
                "Succeeded",
                "Failed",
                "Bound",
                "",
                "Lost"
            ])),
        ),
        ("status.currentRevision", 30, values(json!(["a", "a", "b"]))),
        ("status.updateRevision", 30, values(json!(["a", "a", "b"]))),
    ]
}

/// Times far from now, some of which only Go's parser or only others take.
const TIMES: &[&str] = &[
    "2099-01-01T00:00:00Z",
    "2099-01-01T00:00:00Z",
    "2020-01-01T00:00:00Z",
    "2020-01-01T00:00:00Z",
    "2099-01-01T00:00:00.123456789012Z",
    "2099-01-01T00:00:00,5Z",
    "2099-01-01T00:00:00.Z",
    "2099-01-01T0:00:00Z",
    "2099-01-01T00:0:00Z",
    "2099-1-01T00:00:00Z",
    "2099-01-01T00:00:00+01:00",
    "2099-01-01T00:00:00-24:00",
    "2099-01-01T00:00:00+24:60",
    "2099-01-01T00:00:00+25:00",
    "2099-01-01T00:00:00+0100",
    "2099-01-01T00:00:00+01",
    "2099-01-01T00:00:00",
    "2099-01-01t00:00:00z",
    "2099-01-01 00:00:00Z",
    "2099-01-01T24:00:00Z",
    "2099-01-01T00:00:60Z",
    "2099-02-29T00:00:00Z",
    "2096-02-29T00:00:00Z",
    "9999-12-31T23:59:59-23:59",
    "12099-01-01T00:00:00Z",
    "+2099-01-01T00:00:00Z",
    "2099-01-01T00:00:00Z ",
    "2099-01-01T00:00:00Z[UTC]",
    "2099-01-01",
    "null",
    "",
];

const CONDITIONS: &[&str] = &[
    "Ready",
    "Available",
    "Progressing",
    "ReplicaFailure",
    "Complete",
    "Failed",
    "Suspended",
    "NamesAccepted",
    "Established",
    "PodScheduled",
    "ready",
];
const REASONS: &[&str] = &[
    "",
    "Why",
    "ProgressDeadlineExceeded",
    "NewReplicaSetAvailable",
    "NewReplicaSetAvailable",
    "Unschedulable",
    "Unschedulable",
    "Installing",
];

/// What no field should hold, whatever the field.
fn junk() -> impl Strategy<Value = Value> {
    let all = json!([
        null, null, true, false, 0, 1, 2, -1, 1.0, 1.5, -0.5, 1e300, 9223372036854775807i64, -9223372036854775808i64,
        18446744073709551615u64, "", "2", "True", "x<&>\u{2028}é", [], {}, [null], [5], ["x"], [{}], {"x": 1},
        {"type": "Ready"}, [{"type": "Stalled", "status": "True"}]
    ]);
    select(all.as_array().cloned().unwrap())
}

/// A value, or none, or something else.
fn maybe(there: u32, value: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Option<Value>> {
    prop_oneof![
        there => value.prop_map(Some),
        4 => Just(None),
        1 => junk().prop_map(Some),
    ]
    .boxed()
}

fn from(values: &'static [&'static str]) -> impl Strategy<Value = Value> {
    select(values).prop_map(Value::from)
}

fn map(fields: Vec<(&'static str, Option<Value>)>) -> Value {
    let there = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(there.collect::<Map<_, _>>())
}

fn condition() -> impl Strategy<Value = Value> {
    let type_ = prop_oneof![10 => from(CONDITIONS), 1 => from(&["Reconciling", "Stalled"])];
    let status = from(&["True", "True", "False", "Unknown", "true", ""]);
    let fields =
        (maybe(200, type_), maybe(200, status), maybe(100, from(REASONS)), maybe(100, from(&["", "m"])));
    let good = fields.prop_map(|(type_, status, reason, message)| {
        map(vec![("type", type_), ("status", status), ("reason", reason), ("message", message)])
    });
    let usual = json!([
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"},
        {"type": "Available", "status": "True"},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
    ]);
    prop_oneof![60 => good, 30 => select(usual.as_array().cloned().unwrap()), 2 => junk()]
}

fn container() -> impl Strategy<Value = Value> {
    let reason = maybe(60, from(&["CrashLoopBackOff", "CrashLoopBackOff", "ContainerCreating"]));
    let waiting = reason.prop_map(|reason| map(vec![("reason", reason)]));
    let state = maybe(60, waiting).prop_map(|waiting| map(vec![("waiting", waiting)]));
    let fields = (maybe(60, from(&["a", "b", ""])), maybe(60, state));
    let good = fields.prop_map(|(name, state)| map(vec![("name", name), ("state", state)]));
    prop_oneof![30 => good, 1 => junk()]
}

fn list(item: impl Strategy<Value = Value> + 'static, longest: usize) -> BoxedStrategy<Value> {
    prop::collection::vec(item, 0..=longest).prop_map(Value::from).boxed()
}

/// A count: as many as elsewhere, or so many.
#[derive(Debug, Clone)]
enum Count {
    Same,
    Other(Option<Value>),
}

fn count() -> impl Strategy<Value = Count> {
    prop_oneof![
        16 => Just(Count::Same),
        2 => (0..4i64).prop_map(|n| Count::Other(Some(n.into()))),
        2 => Just(Count::Other(None)),
        1 => junk().prop_map(|v| Count::Other(Some(v))),
    ]
}

/// Objects of every kind that has rules, mostly as they may be, each now and then with something
/// missing or of another type somewhere.
fn object() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![10 => select(KINDS), 4 => select(MORE_KINDS)];
    let identity = (kind, prop::option::weighted(0.02, junk()), prop::option::weighted(0.02, junk()));
    let counts = (0..3i64, prop::collection::vec(count(), COUNTS.len()));
    let (mut paths, mut fields) = (Vec::new(), Vec::new());
    for (path, there, values) in texts() {
        paths.push(path);
        fields.push(match path {
            // Of these, anything but the right type is an error, which would hide the rest.
            "metadata.deletionTimestamp" => {
                prop_oneof![40 => Just(None), 1 => maybe(there, select(values))].boxed()
            }
            _ => maybe(there, select(values)),
        });
    }
    for (path, list) in
        [("status.conditions", list(condition(), 4)), ("status.containerStatuses", list(container(), 2))]
    {
        paths.push(path);
        fields.push(maybe(100, list));
    }
    // What lies above the fields is broken more rarely still.
    let above: &[&str] =
        &["metadata", "status", "spec", "spec.updateStrategy", "spec.updateStrategy.rollingUpdate"];
    let broken = Union::new_weighted(vec![
        (20, Just(None).boxed()),
        (1, (select(above), junk()).prop_map(Some).boxed()),
    ]);
    (identity, counts, fields, broken).prop_map(move |(identity, (same, counts), fields, broken)| {
        let ((version, kind), odd_version, odd_kind) = identity;
        let mut object = json!({
            "apiVersion": odd_version.unwrap_or_else(|| version.into()),
            "kind": odd_kind.unwrap_or_else(|| kind.into()),
            "metadata": {"name": "a", "namespace": "n"},
        });
        for (path, count) in COUNTS.iter().zip(counts) {
            let value = match count {
                Count::Same => Some(same.into()),
                Count::Other(value) => value,
            };
            set(&mut object, path, value);
        }
        for (path, value) in paths.iter().zip(fields) {
            set(&mut object, path, value);
        }
        if let Some((path, value)) = broken {
            set(&mut object, path, Some(value));
        }
        object
    })
}

fn set(object: &mut Value, path: &str, value: Option<Value>) {
    let Some(value) = value else { return };
    let mut at = object;
    for field in path.split('.') {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[field];
    }
    *at = value;
}
