//! Commands that read files, as people use them: the real program on real files.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use statusbridge_exporter::source::PRESETS;

struct Run {
    code: i32,
    out: String,
    err: String,
}

fn statusbridge(args: &[&str], input: Option<&str>) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statusbridge"));
    command.args(args).env_remove("STATUSBRIDGE_SOURCES").env_remove("STATUSBRIDGE_PRESETS");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("its input");
    stdin.write_all(input.unwrap_or_default().as_bytes()).expect("it reads its input");
    drop(stdin);
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
    Run {
        code: status.code().expect("it ends by itself"),
        out: String::from_utf8(stdout).expect("text"),
        err: String::from_utf8(stderr).expect("text"),
    }
}

fn here(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).display().to_string()
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    fn path(&self) -> String {
        self.0.path().display().to_string()
    }
}

const PACKAGE: &str = r#"
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: payments, namespace: flux-system, generation: 1}
spec: {sourceRef: {kind: GitRepository, name: fleet}, wait: true}
status:
  lastAttemptedRevision: main@sha1:4f0e2a9c81d3b7650e4f0e2a9c81d3b7650e1234
  lastAppliedRevision: main@sha1:4f0e2a9c81d3b7650e4f0e2a9c81d3b7650e1234
  conditions:
    - {type: Ready, status: "True", reason: ReconciliationSucceeded, observedGeneration: 1}
    - {type: Healthy, status: "True", reason: Succeeded, observedGeneration: 1}
"#;

const SOURCE_OBJECT: &str = r#"
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: fleet, namespace: flux-system}
status: {artifact: {revision: "main@sha1:4f0e2a9c81d3b7650e4f0e2a9c81d3b7650e1234"}}
"#;

const NOW: &str = "2026-11-21T01:00:00Z";

#[test]
fn check_prints_a_table_and_what_metrics_would_say() {
    let files = Files::new();
    // The joined object may come before or after the package, in the same file or another.
    let package = files.write("b.yaml", PACKAGE);
    let source = files.write("a.yaml", SOURCE_OBJECT);
    let both = files.write("both.yml", &format!("{PACKAGE}---{SOURCE_OBJECT}"));
    let check = |more: &[&str], stdin: Option<&str>| {
        let run = statusbridge(&[&["source", "check", "--now", NOW], more].concat(), stdin);
        assert_eq!((run.code, run.err.as_str()), (0, ""));
        run.out
    };
    let table = check(&[&package, &source], None);
    insta::assert_snapshot!("check_text", table);
    assert_eq!(check(&[&both], None), table);
    let stdin = format!("{SOURCE_OBJECT}---{PACKAGE}");
    assert_eq!(check(&["-"], Some(&stdin)), table);
    insta::assert_snapshot!("check_metrics", check(&["-o", "metrics", &both], None));
    let json: serde_json::Value = serde_json::from_str(&check(&["-o", "json", &both], None)).expect("JSON");
    insta::assert_snapshot!("check_json", format!("{json:#}"));
    let yaml: serde_json::Value = serde_saphyr::from_str(&check(&["-o", "yaml", &both], None)).expect("YAML");
    assert_eq!(yaml, json);
    let nothing = statusbridge(&["source", "check", "--presets", "", &source], None);
    assert_eq!(nothing.out, "there is no package among the objects\n");
}

#[test]
fn replay_prints_the_transitions_of_a_history() {
    let trace = here("../exporter/tests/traces/flux-kustomization-1.7.3.jsonl");
    let run = statusbridge(&["source", "replay", &trace], None);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    insta::assert_snapshot!("replay_text", run.out);
    let fixed = statusbridge(&["source", "replay", "--now", NOW, &trace], None);
    assert_eq!(fixed.out.lines().count(), run.out.lines().count());
    let json = statusbridge(&["source", "replay", "-o", "json", &trace], None);
    let last = |field: &str| column(&json, field).pop().expect("a line");
    assert_eq!((last("applyState"), last("health")), ("Failed".to_owned(), "Unknown".to_owned()));
    assert_eq!(json.out.lines().count() + 1, run.out.lines().count());
}

#[test]
fn replay_tells_of_packages_that_are_gone() {
    let event = |kind: &str, object: &str| {
        let object: serde_json::Value = serde_saphyr::from_str(object).expect("YAML");
        format!("{}\n", serde_json::json!({"type": kind, "object": object}))
    };
    let events = event("ADDED", PACKAGE) + &event("DELETED", PACKAGE);
    let args = ["source", "replay", "--presets", "flux-kustomization", "--now", NOW, "-"];
    let run = statusbridge(&args, Some(&events));
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert!(run.out.lines().last().is_some_and(|line| line.contains("   Gone")), "{}", run.out);
    let json = statusbridge(&[&args[..], &["-o", "json"]].concat(), Some(&events));
    assert_eq!(column(&json, "applyState"), ["Applied", "-"]);
}

#[test]
fn what_no_source_reads_is_named_and_is_no_failure() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: n}\n";
    // Some presets may look at any kind.
    let args = ["source", "check", "--presets", "flux-kustomization", "--now", NOW, "-"];
    let run = statusbridge(&args, Some(&format!("{pod}---{PACKAGE}")));
    assert_eq!(run.code, 0);
    assert_eq!(run.err, "standard input, document 1: v1 Pod n/p is read by no source\n");
    assert!(run.out.contains("flux-system/payments "), "{}", run.out);
}

#[test]
fn what_is_broken_is_named_fails_in_the_end_and_stops_nothing() {
    let files = Files::new();
    files.write("a.yaml", "broken: [\n");
    files.write("b.yaml", PACKAGE);
    let rubbish = PACKAGE.replace("name: payments", "name: rubbish").replace("status: \"True\"", "status: 5");
    files.write("c.yaml", &rubbish);
    let run = statusbridge(&["source", "check", "--now", NOW, &files.path(), "/nonexistent"], None);
    assert_eq!(run.code, 1);
    let states: Vec<Vec<&str>> =
        run.out.lines().skip(1).map(|line| line.split_whitespace().skip(1).take(3).collect()).collect();
    assert_eq!(
        states,
        [["flux-system/payments", "Applied", "Current"], ["flux-system/rubbish", "Unknown", "Unknown"]]
    );
    for named in [
        "a.yaml: ",
        "/nonexistent: ",
        "c.yaml: Kustomization flux-system/rubbish: source flux-kustomization: ",
    ] {
        assert!(run.err.contains(named), "{named} in {}", run.err);
    }
}

#[test]
fn a_source_that_is_wrong_is_refused_with_file_and_field() {
    let files = Files::new();
    let yaml = statusbridge(&["source", "show", "flux-kustomization"], None).out;
    let wrong = files
        .write("wrong.yaml", &yaml.replace("ready.status == 'Unknown'\n", "raedy.status == 'Unknown'\n"));
    let run = statusbridge(&["source", "check", "--sources", &wrong, "-"], Some(PACKAGE));
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert!(
        run.err.contains("wrong.yaml: line 84: source flux-kustomization: ")
            && run.err.contains("no variable `raedy`"),
        "{}",
        run.err
    );
    assert_eq!(statusbridge(&["source", "check"], None).code, 2, "check needs a file");
    assert_eq!(statusbridge(&["source", "check", "--presets", "nope", "-"], None).code, 2);
}

#[test]
fn a_source_of_ones_own_is_read_from_a_file() {
    let files = Files::new();
    let own = statusbridge(&["source", "show", "flux-kustomization"], None)
        .out
        .replace("name: flux-kustomization", "name: mine");
    let own = files.write("mine.yaml", &own);
    let run = statusbridge(
        &["source", "check", "--presets", "", "--sources", &own, "--now", NOW, "-"],
        Some(PACKAGE),
    );
    assert!(
        run.out.lines().last().is_some_and(|line| line.starts_with("mine "))
            && !run.out.contains("flux-kustomization"),
        "{}",
        run.out
    );
    let rbac =
        statusbridge(&["source", "rbac", "--presets", "", "--sources", &own, "--name", "reader"], None);
    assert!(rbac.out.contains("name: reader") && rbac.out.contains("[kustomizations]"), "{}", rbac.out);
    assert!(!rbac.out.contains("rootsyncs"), "{}", rbac.out);
}

#[test]
fn presets_are_listed_and_one_is_printed() {
    let list = statusbridge(&["source", "list"], None).out;
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>());
    let described = list.lines().find(|line| line.starts_with("flux-kustomization "));
    assert!(
        described.is_some_and(|line| line.ends_with("Flux Kustomizations (kustomize.toolkit.fluxcd.io)")),
        "{list}"
    );
    let printed = statusbridge(&["source", "show", "configsync"], None);
    assert_eq!(
        printed.out,
        fs::read_to_string(here("../exporter/sources/configsync.yaml")).expect("the preset")
    );
    let unknown = statusbridge(&["source", "show", "nope"], None);
    assert_eq!(unknown.code, 7);
    assert!(unknown.err.contains("there is no preset `nope`; there are "), "{}", unknown.err);
}

/// The values of a field, line by line.
fn column(run: &Run, field: &str) -> Vec<String> {
    let value = |line: &str| -> serde_json::Value { serde_json::from_str(line).expect("a line is JSON") };
    run.out.lines().map(|line| value(line)[field].as_str().unwrap_or("-").to_owned()).collect()
}

#[test]
fn kstatus_prints_a_line_for_each_object() {
    let input = r#"
{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"shop"},"status":{"phase":"Pending"}}
{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}]}
{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1"},"status":{"phase":
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w, generation: two}
"#;
    let run = statusbridge(&["kstatus"], Some(input));
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    insta::assert_snapshot!(run.out, @r#"
    {"apiVersion":"v1","kind":"Pod","namespace":"shop","name":"web-0","status":"InProgress","reason":"PodPending","message":"Pod is in the Pending phase"}
    {"apiVersion":"v1","kind":"Namespace","namespace":null,"name":"shop","status":"Current","reason":"","message":"Resource is current"}
    {"apiVersion":null,"kind":null,"namespace":null,"name":null,"status":"Unknown","reason":"Malformed","message":"standard input, line 4: EOF while parsing a value"}
    {"apiVersion":"example.com/v1","kind":"Widget","namespace":null,"name":"w","status":"Unknown","reason":"MalformedMetadata","message":".metadata.generation is a string, expected an integer"}
    "#);
    assert_eq!(statusbridge(&["kstatus", "-"], Some(input)).out, run.out);
}

#[test]
fn kstatus_reads_files_and_directories_and_goes_on_after_a_missing_one() {
    let files = Files::new();
    files.write("a.yaml", PACKAGE);
    files.write("b.jsonl", "rubbish\n{\"kind\": \"ConfigMap\"}\n");
    files.write("c.txt", "no objects");
    let other = files.write("other.json", "[]");
    let missing = here("no/such/file");
    let run = statusbridge(&["kstatus", &missing, &files.path(), &other], None);
    assert_eq!(run.code, 1);
    assert!(run.err.starts_with(&format!("{missing}: ")) && run.err.lines().count() == 1, "{}", run.err);
    assert_eq!(column(&run, "status"), ["Current", "Unknown", "Current"]);
    assert_eq!(column(&run, "kind"), ["Kustomization", "-", "ConfigMap"]);
    let at = format!("{}/b.jsonl, line 1: ", files.path());
    assert!(column(&run, "message")[1].starts_with(&at), "{}", run.out);
}

#[test]
fn kstatus_counts_a_pods_seconds_from_the_time_it_is_told() {
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"creationTimestamp":"2026-11-21T01:00:00Z"},
        "status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}}"#;
    let at = |now: &str| column(&statusbridge(&["kstatus", "--now", now], Some(pod)), "status");
    assert_eq!(at("2026-11-21T01:00:14Z"), ["InProgress"]);
    assert_eq!(at("2026-11-21T01:00:15Z"), ["Failed"]);
}

/// Whoever asks about an object has the answer before the next one: `kubectl get --watch` never ends.
#[test]
fn kstatus_answers_while_its_input_goes_on() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statusbridge"));
    command.arg("kstatus").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("its input");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    for name in ["a", "b"] {
        writeln!(stdin, "{{\n    \"kind\": \"Secret\",\n    \"metadata\": {{\"name\": \"{name}\"}}\n}}")
            .expect("it reads");
        let line = lines.next().expect("a line").expect("text");
        assert!(line.contains(&format!("\"name\":\"{name}\"")), "{line}");
    }
    drop(stdin);
    assert!(lines.next().is_none() && child.wait().expect("it ends").success());
}

/// Neither objects nor sources take a command down: they are told, and what stands beside them is read.
#[test]
fn hostile_yaml_is_told_and_stops_nothing() {
    let files = Files::new();
    let deep = |open: &str, close: &str| open.repeat(50_000) + "x" + &close.repeat(50_000);
    let laughs: String =
        (1..20).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", "))).collect();
    let hostile = [
        ("dashes", deep("- ", "")),
        ("brackets", deep("[", "]")),
        ("braces", deep("{a: ", "}")),
        ("keys", deep("? ", "")),
        ("mixed", "- ".repeat(100) + &deep("[{a: ", "}]")),
        ("open", "{".repeat(1 << 20)),
        ("lines", (0..2_000).map(|n| " ".repeat(n) + "a:\n").collect()),
        ("laughs", format!("a0: &a0 [x, x]\n{laughs}")),
        ("json", "[".repeat(1 << 20) + &"]".repeat(1 << 20)),
    ];
    for (name, text) in hostile {
        let file =
            files.write(&format!("{name}.yaml"), &format!("{PACKAGE}---\n{text}\n---\n{SOURCE_OBJECT}"));
        let run =
            statusbridge(&["source", "check", "--presets", "flux-kustomization", "--now", NOW, &file], None);
        assert_eq!(run.code, 1, "{name}: {}", run.err);
        assert!(run.err.starts_with(&format!("{file}, document 2: ")), "{name}: {}", run.err);
        assert!(run.out.contains("flux-system/payments "), "{name}: {}", run.out);
        let alone = files.write(&format!("{name}-alone.yaml"), &text);
        let run =
            statusbridge(&["source", "check", "--presets", "flux-kustomization", "--now", NOW, &alone], None);
        assert_eq!(run.code, 1, "{name}: {}", run.err);
        assert!(run.err.starts_with(&format!("{alone}: ")), "{name}: {}", run.err);

        let run = statusbridge(&["kstatus", &file], None);
        assert_eq!((run.code, run.out.lines().count()), (0, 3), "{name}: {} {}", run.out, run.err);
        let told = run.out.lines().nth(1).expect("a line");
        assert!(told.contains("Malformed") && told.contains("Unknown"), "{name}: {told}");

        let run = statusbridge(&["source", "check", "--presets", "", "--sources", &alone, &file], None);
        assert_eq!(run.code, 2, "{name}: {}", run.err);
        assert!(run.err.contains(&alone), "{name}: {}", run.err);
    }
}

const TESTS: &str = r#"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: SourceTest
metadata: {name: flux}
spec:
  sources: [flux-source]
  base:
    object:
      apiVersion: source.toolkit.fluxcd.io/v1
      kind: GitRepository
      metadata: {name: fleet, namespace: flux-system, generation: 1}
      status:
        observedGeneration: 1
        artifact: {revision: "main@sha1:4f0e2a9c81d3b7650e4f0e2a9c81d3b7650e1234"}
        conditions: [{type: Ready, status: "True", reason: Succeeded, observedGeneration: 1}]
  cases:
    - {name: there, expect: {apply: Applied, healthyRevision: 4f0e2a9c81d3}}
    - {name: gone, patch: {object: null}, expect: {shown: false}}
"#;

#[test]
fn tests_pass_or_fail_by_what_is_expected() {
    let files = Files::new();
    let tests = files.write("tests.yaml", TESTS);
    // A preset that has to be asked for is found by its name.
    let run = statusbridge(&["source", "test", &tests], None);
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (0, "2 passed\n", ""));

    let wrong = files.write("wrong.yaml", &TESTS.replace("apply: Applied", "apply: Pending"));
    let junit = files.path() + "/report.xml";
    let run = statusbridge(&["source", "test", "--junit", &junit, &tests, &wrong], None);
    assert_eq!(run.code, 1, "{}", run.err);
    assert_eq!(
        run.out,
        "FAILED flux, flux-source: there\n  apply  expected Pending, found Applied\n3 passed, 1 failed\n"
    );
    let report = fs::read_to_string(&junit).expect("a report");
    assert!(report.contains("tests=\"4\" failures=\"1\""), "{report}");
    assert!(report.contains("<failure message=\"apply  expected Pending, found Applied\">"), "{report}");

    let json = statusbridge(&["source", "test", "-o", "json", &wrong], None);
    let json: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!((json["passed"].as_u64(), json["failed"].as_u64()), (Some(1), Some(1)));
    assert_eq!(json["tests"][0]["problems"][0], "apply  expected Pending, found Applied");
}

#[test]
fn what_is_no_test_or_none_at_all_is_a_wrong_argument() {
    let files = Files::new();
    let package = files.write("package.yaml", PACKAGE);
    let run = statusbridge(&["source", "test", &package], None);
    assert_eq!(run.code, 2);
    assert!(
        run.err.contains("package.yaml: needs `apiVersion: sources.statusbridge.dev/v1alpha1`"),
        "{}",
        run.err
    );
    let run = statusbridge(&["source", "test"], None);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("found no test"), "{}", run.err);
    let unknown = files.write("unknown.yaml", &TESTS.replace("[flux-source]", "[nope]"));
    let run = statusbridge(&["source", "test", &unknown], None);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("there is no source nope: give its file with --sources"), "{}", run.out);
    let resources =
        files.write("resources.yaml", &TESTS.replace("name: there,", "name: there, resourceHealth: true,"));
    let run = statusbridge(&["source", "test", &resources], None);
    assert!(run.out.contains("source flux-source does not say what its packages consist of"), "{}", run.out);
}

/// A definition among the objects tells which fields there are.
#[test]
fn fields_that_a_kind_does_not_have_are_warned_of() {
    let files = Files::new();
    let source = "
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata: {name: widgets}
spec:
  kinds: [{group: example.org, kind: Widget, versions: [v1]}]
  variables: [{name: stray, expression: '1'}]
  revisions: {appliedExpression: object.?status.?verzion}
";
    let definition = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {status: {type: object, properties: {version: {type: string}}}}}}
";
    let (source, definition) = (files.write("own.yaml", source), files.write("crd.yaml", definition));
    let run = statusbridge(&["source", "check", "--presets=", "--sources", &source, &definition], None);
    assert_eq!(run.code, 0, "{}", run.err);
    for warning in [
        "own.yaml: line 7: source widgets: spec.variables[stray]: is read by nothing",
        "source widgets: reads object.status.verzion, which Widget does not have",
    ] {
        assert!(
            run.err.lines().any(|line| line.starts_with("warning: ") && line.contains(warning)),
            "{}",
            run.err
        );
    }
}
