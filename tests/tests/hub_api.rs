//! The hub API on a real API server: what it refuses, what a fresh object says, what `kubectl` shows, how status is
//! written, and that the sweeper closes gates with no more rights than it ships with.

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::path::{Path, PathBuf};
use std::time::Duration;

const REVISION: &str = "main@sha1:1111111111111111111111111111111111111111";
const DIGITS: &str = "111111111111";

fn package(name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "statusbridge.dev/v1alpha1",
        "kind": "FleetPackage",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"package": {"source": "flux-kustomization", "namespace": "flux-system", "name": "payments"}},
    });
    merge(&mut object["spec"], spec);
    object
}

fn gate(name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "statusbridge.dev/v1alpha1",
        "kind": "RolloutGate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "fleetPackageRef": {"name": "payments"},
            "revision": REVISION,
            "clusters": {"names": ["c1", "c2"]},
        },
    });
    merge(&mut object["spec"], spec);
    object
}

fn rollout(waves: Value) -> Value {
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1",
        "kind": "FleetRollout",
        "metadata": {"name": "r", "namespace": "default"},
        "spec": {"fleetPackageRef": {"name": "payments"}, "waves": waves},
    })
}

/// A gate with one check.
fn check(change: Value) -> Value {
    let mut check = json!({"name": "errors", "query": "up", "max": 1});
    merge(&mut check, change);
    gate("g", json!({"checks": [check]}))
}

fn slice(clusters: Vec<Value>) -> Value {
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1",
        "kind": "FleetPackageSlice",
        "metadata": {"name": "s", "namespace": "default"},
        "fleetPackageGeneration": 1,
        "clusters": clusters,
    })
}

fn row(state: &str) -> Value {
    json!({"clusterName": "c", "status": "Succeeded", "state": state, "reason": "Healthy"})
}

/// Replaces fields one by one; null takes a field away.
fn merge(into: &mut Value, from: Value) {
    for (key, value) in from.as_object().into_iter().flatten() {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            into[key] = value.clone();
        }
    }
}

async fn hub(rig: &Rig) -> Result<(Etcd, ApiServer)> {
    let etcd = Etcd::start(rig).await?;
    let api = ApiServer::start(rig, &etcd, "hub").await?;
    api.install_crds(&crds::own()?).await?;
    Ok((etcd, api))
}

fn kind(name: &str) -> GroupVersionKind {
    GroupVersionKind::gvk("statusbridge.dev", "v1alpha1", name)
}

async fn gates(api: &ApiServer) -> Result<Api<DynamicObject>> {
    api.dynamic(&kind("RolloutGate"), Some("default")).await
}

fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    object.data["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Applies an object that is to be refused, and gives back what the API server says.
async fn refusal(api: &ApiServer, object: &Value) -> String {
    match api.apply_object(object).await {
        Ok(_) => "accepted".to_owned(),
        Err(error) => format!("{error:#}"),
    }
}

#[tokio::test]
async fn bad_specs_are_refused_in_words_that_help() {
    run("hub-api-validation", async |rig| {
        let (_etcd, api) = hub(rig).await?;
        let one_of = "exactly one of names, selector and reporting must be set";
        let amount = "should match '^(100|[1-9][0-9]?)%$'";
        let expression = |expression: Value| {
            package("p", json!({"clusters": {"selector": {"matchExpressions": [expression]}}}))
        };
        let mut of_all = gate("g", json!({}));
        of_all["spec"]["clusters"] = json!({"reporting": {}, "freeze": true});
        let cases: Vec<(&str, Value, &str)> = vec![
            ("both", package("p", json!({"clusters": {"names": ["a"], "reporting": {}}})), one_of),
            ("neither", package("p", json!({"clusters": {}})), one_of),
            ("two", package("p", json!({"clusters": {"names": ["a"], "selector": {}}})), one_of),
            ("two", package("p", json!({"clusters": {"selector": {}, "reporting": {}}})), one_of),
            ("key", expression(json!({"key": "a b", "operator": "Exists"})), "key in body should match"),
            ("value", expression(json!({"key": "a", "operator": "In", "values": ["-"]})), "should match"),
            ("word", expression(json!({"key": "a", "operator": "Has"})), "Unsupported value: \"Has\""),
            ("values", expression(json!({"key": "a", "operator": "In"})), "values must be given"),
            (
                "values",
                expression(json!({"key": "a", "operator": "Exists", "values": ["b"]})),
                "values must not be given",
            ),
            (
                "label",
                package("p", json!({"clusters": {"selector": {"matchLabels": {"a b": "c"}}}})),
                "matchLabels has a key that no label can have",
            ),
            (
                "label",
                package("p", json!({"clusters": {"selector": {"matchLabels": {"a": "b c"}}}})),
                "should match",
            ),
            ("twice", package("p", json!({"clusters": {"names": ["a", "a"]}})), "duplicate entries for key"),
            ("nobody", package("p", json!({"clusters": {"names": []}})), "should have at least 1 items"),
            ("noname", package("p", json!({"clusters": {"names": [""]}})), "should be at least 1 chars long"),
            (
                "few",
                package("p", json!({"clusters": {"reporting": {"minClusters": 0}}})),
                "greater than or equal to 1",
            ),
            ("empty", package("p", json!({"revision": ""})), "should be at least 1 chars long"),
            ("space", package("p", json!({"revision": "main "})), "must not begin or end with white space"),
            ("short digest", package("p", json!({"revision": "main@sha1:489d0f70"})), "at least 12 hex digits"),
            (
                "word",
                package("p", json!({"staleAfter": "soon"})),
                "must be a duration such as 90s, 3m or 1h30m",
            ),
            (
                "minus",
                package("p", json!({"staleAfter": "-3m"})),
                "must be a duration such as 90s, 3m or 1h30m",
            ),
            (
                "nothing",
                package("p", json!({"staleAfter": ""})),
                "must be a duration such as 90s, 3m or 1h30m",
            ),
            ("zero", package("p", json!({"staleAfter": "0s"})), "staleAfter must be at least 1s"),
            (
                "detail",
                package("p", json!({"detail": "Some"})),
                "supported values: \"Problems\", \"All\", \"None\"",
            ),
            ("package", package("p", json!({"package": {"source": "", "name": "x"}})), "spec.package.source"),
            ("both", gate("g", json!({"clusters": {"names": ["a"], "reporting": {}}})), one_of),
            ("neither", gate("g", json!({"clusters": {}})), one_of),
            ("who reports", of_all, "only clusters that are named or selected can be frozen"),
            ("a package", package("p", json!({"clusters": {"selector": {}, "freeze": true}})), "only the clusters of a RolloutGate can be frozen"),
            ("no clusters", gate("g", json!({"clusters": null})), "spec.clusters: Required value"),
            ("no revision", gate("g", json!({"revision": null})), "spec.revision: Required value"),
            ("empty", gate("g", json!({"revision": ""})), "should be at least 1 chars long"),
            ("nobody", gate("g", json!({"minHealthy": 0})), "spec.minHealthy in body should be greater than or equal to 1"),
            ("none", gate("g", json!({"minHealthy": "0%"})), amount),
            ("more", gate("g", json!({"minHealthy": "101%"})), amount),
            ("text", gate("g", json!({"minHealthy": "most"})), amount),
            ("number", gate("g", json!({"minHealthy": "5"})), amount),
            ("minus", gate("g", json!({"maxFailures": -1})), "spec.maxFailures in body should be greater than or equal to 0"),
            ("more", gate("g", json!({"maxFailures": "200%"})), "should match '^(100|[1-9]?[0-9])%$'"),
            ("two ways", rollout(json!([{"name": "a", "clusters": {"count": 1, "percentage": "5%"}}])), "exactly one of names, selector, count and percentage"),
            ("no way", rollout(json!([{"name": "a", "clusters": {}}])), "exactly one of names, selector, count and percentage"),
            ("no wave", rollout(json!([])), "spec.waves in body should have at least 1 items"),
            ("twice", rollout(json!([{"name": "a", "clusters": {"count": 1}}, {"name": "a", "clusters": {"count": 1}}])), "duplicate entries for key"),
            ("a name", rollout(json!([{"name": "A", "clusters": {"count": 1}}])), "name must consist of a to z, 0 to 9 and hyphens"),
            ("nobody", rollout(json!([{"name": "a", "clusters": {"count": 0}}])), "should be greater than or equal to 1"),
            ("a share", rollout(json!([{"name": "a", "clusters": {"percentage": "0%"}}])), "a percentage must be from 1% to 100%"),
            ("at a time", rollout(json!([{"name": "a", "clusters": {"count": 1}, "maxConcurrency": "0%"}])), amount),
            ("terms", rollout(json!([{"name": "a", "clusters": {"count": 1}, "gate": {"minHealthy": "none"}}])), amount),
            (
                "soak",
                gate("g", json!({"minSuccessTime": "10 minutes"})),
                "must be a duration such as 90s, 10m or 1h30m",
            ),
            (
                "deadline",
                gate("g", json!({"progressDeadline": "an hour"})),
                "must be a duration such as 90s, 10m or 1h30m",
            ),
            ("no time", gate("g", json!({"progressDeadline": "0s"})), "progressDeadline must be at least 1s"),
            (
                "itself",
                gate("g", json!({"dependsOn": [{"name": "a"}, {"name": "g"}]})),
                "a gate cannot depend on itself",
            ),
            (
                "twice",
                gate("g", json!({"dependsOn": [{"name": "a"}, {"name": "a"}]})),
                "duplicate entries for key",
            ),
            ("noname", gate("g", json!({"dependsOn": [{}]})), "omits all key fields"),
            (
                "many",
                gate("g", json!({"dependsOn": (0..33).map(|at| json!({"name": format!("g{at}")})).collect::<Vec<_>>()})),
                "must have at most 32 items",
            ),
            ("no query", check(json!({"query": null})), "exactly one of query and template must be set"),
            ("two", check(json!({"template": "t"})), "exactly one of query and template must be set"),
            ("whose", check(json!({"parameters": {"a": "b"}})), "parameters belong to a template"),
            ("unbound", check(json!({"max": null})), "at least one of min and max must be set"),
            ("crossed", check(json!({"min": 2})), "min must not be more than max"),
            ("nan", check(json!({"max": "NaN"})), "expected numeric"),
            ("window", check(json!({"window": "a while"})), "window must be a duration"),
            ("name", check(json!({"name": "Error Rate"})), "should match"),
            (
                "twice",
                gate("g", json!({"checks": [{"name": "a", "query": "1", "max": 1}, {"name": "a", "query": "2", "max": 1}]})),
                "duplicate entries for key",
            ),
            (
                "require",
                gate("g", json!({"require": "Blessed"})),
                "supported values: \"Healthy\", \"Applied\"",
            ),
            (
                "why",
                gate("g", json!({"override": {"state": "Open"}})),
                "spec.override.reason: Required value",
            ),
            (
                "what",
                gate("g", json!({"override": {"state": "Ajar", "reason": "x"}})),
                "supported values: \"Open\", \"Closed\"",
            ),
            (
                "when",
                gate("g", json!({"override": {"state": "Open", "reason": "x", "until": "soon"}})),
                "date-time",
            ),
            ("many", slice(vec![row("Healthy"); 257]), "must have at most 256 items"),
            (
                "word",
                slice(vec![json!({"clusterName": "c", "status": "Done", "state": "x", "reason": "x"})]),
                "\"ToApply\"",
            ),
            ("state", slice(vec![row(&"x".repeat(65))]), "may not be more than 64"),
        ];
        let from = |changed: Value| {
            let mut from = json!({
                "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "name": "payments",
                "expression": "object.status.artifact.revision",
            });
            for (field, value) in changed.as_object().unwrap() {
                from[field] = value.clone();
            }
            package("p", json!({"revisionFrom": from}))
        };
        let both = {
            let mut both = from(json!({}));
            both["spec"]["revision"] = json!(REVISION);
            both
        };
        let secret = "a revision is never read from a Secret";
        let version = "apiVersion must be a version or group/version, such as v1";
        let references: Vec<(&str, Value, &str)> = vec![
            ("both", both, "revision and revisionFrom exclude each other"),
            ("a Secret", from(json!({"apiVersion": "v1", "kind": "Secret"})), secret),
            ("a secret", from(json!({"apiVersion": "v1", "kind": "sECRET"})), secret),
            ("another Secret", from(json!({"apiVersion": "example.com/v1", "kind": "Secret"})), secret),
            (
                "ours",
                from(json!({"apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage"})),
                "a revision is never read from a FleetPackage",
            ),
            ("no group", from(json!({"apiVersion": "/v1"})), version),
            ("a path", from(json!({"apiVersion": "../api/v1"})), version),
            ("a longer path", from(json!({"apiVersion": "apps/v1/x"})), version),
            ("upper case", from(json!({"apiVersion": "V1"})), version),
            ("no version", from(json!({"apiVersion": ""})), "should be at least 1 chars long"),
            ("a subresource", from(json!({"kind": "ConfigMap/status"})), "kind must be the name of a kind"),
            ("white space", from(json!({"kind": "Secret "})), "kind must be the name of a kind"),
            ("no kind", from(json!({"kind": null})), "spec.revisionFrom.kind"),
            ("no name", from(json!({"name": ""})), "should be at least 1 chars long"),
            ("no expression", from(json!({"expression": ""})), "should be at least 1 chars long"),
            ("a long one", from(json!({"expression": "x".repeat(4097)})), "may not be more than 4096"),
        ];
        let stage = |changed: Value| {
            let mut stage = json!({"stage": "build", "cluster": "b-1", "source": "s", "name": "n"});
            for (field, value) in changed.as_object().unwrap() {
                stage[field] = value.clone();
            }
            stage.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            stage
        };
        let traced = |stages: Vec<Value>| package("p", json!({"revision": REVISION, "trace": stages}));
        let traces: Vec<(&str, Value, &str)> = vec![
            (
                "no revision",
                package("p", json!({"trace": [stage(json!({}))]})),
                "a trace follows a revision: set revision or revisionFrom",
            ),
            ("nowhere", traced(vec![stage(json!({"cluster": null}))]), "exactly one of cluster and selector"),
            ("twice", traced(vec![stage(json!({})), stage(json!({}))]), "duplicate entries for key [stage="),
            (
                "both places",
                traced(vec![stage(json!({"selector": {}}))]),
                "exactly one of cluster and selector",
            ),
            ("its name", traced(vec![stage(json!({"stage": "Build"}))]), "stage must be a DNS label"),
            ("output", traced(vec![stage(json!({"output": "Other"}))]), "supported values: \"Same\", \"Built\""),
            (
                "its own revision",
                traced(vec![stage(json!({"output": "Built", "revision": "r"}))]),
                "a stage with a revision of its own gives on what came in",
            ),
            (
                "many stages",
                traced((0..9).map(|at| stage(json!({"stage": format!("s{at}")}))).collect()),
                "must have at most 8 items",
            ),
        ];
        let excused = |change: Value| {
            let mut excuse = json!({"cluster": "c", "reason": "maintenance"});
            merge(&mut excuse, change);
            package("p", json!({"excused": [excuse]}))
        };
        let one = "exactly one of cluster and selector must be set";
        let excuses: Vec<(&str, Value, &str)> = vec![
            ("nobody", excused(json!({"cluster": null})), one),
            ("both", excused(json!({"selector": {}})), one),
            ("no name", excused(json!({"cluster": ""})), "should be at least 1 chars long"),
            ("no reason", excused(json!({"reason": null})), "reason: Required value"),
            ("no words", excused(json!({"reason": ""})), "should be at least 1 chars long"),
            ("many words", excused(json!({"reason": "r".repeat(257)})), "may not be more than 256"),
            ("end", excused(json!({"until": "tomorrow"})), "must be of type date-time"),
            (
                "label",
                excused(json!({"cluster": null, "selector": {"matchLabels": {"a b": "c"}}})),
                "matchLabels has a key that no label can have",
            ),
            (
                "many",
                package("p", json!({"excused": vec![json!({"cluster": "c", "reason": "r"}); 101]})),
                "must have at most 100 items",
            ),
            ("none", package("p", json!({"minObserved": 0})), "minObserved must be a number of clusters from 1"),
            ("none", package("p", json!({"minObserved": "0%"})), "or a percentage from 1% to 100%"),
            ("share", package("p", json!({"minObserved": "most"})), "or a percentage from 1% to 100%"),
        ];
        let mut wrong = Vec::new();
        for (name, object, expected) in cases.iter().chain(&references).chain(&traces).chain(&excuses) {
            let said = refusal(&api, object).await;
            if !said.contains(expected) {
                wrong.push(format!("{} {name}: expected {expected:?}, got {said:?}", object["kind"]));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));

        // The most that is allowed is allowed: cost budgets of the rules hold.
        let names: Vec<String> = (0..2000).map(|at| format!("cluster-{at:04}")).collect();
        api.apply_object(&package(
            "most",
            json!({"clusters": {"names": names}, "revision": "r".repeat(4096),
            "staleAfter": "1h30m10s", "detail": "None", "managedBy": "me",
            "trace": (0..8).map(|at| stage(json!({"stage": format!("s{at}")}))).collect::<Vec<_>>()}),
        ))
        .await?;
        api.apply_object(&package(
            "refers",
            json!({"clusters": {"names": names}, "revisionFrom": {
                "apiVersion": format!("{}.example.com/v1", "g".repeat(63)), "kind": "K".repeat(63),
                "name": "n".repeat(253), "expression": "e".repeat(4096),
            }}),
        ))
        .await?;
        let others: Vec<Value> = (0..32).map(|at| json!({"name": format!("{at:02}{}", "g".repeat(251))})).collect();
        let checks: Vec<Value> = (0..16)
            .map(|at| {
                let parameters: serde_json::Map<_, _> =
                    (0..32).map(|at| (format!("p{at}"), json!("v".repeat(253)))).collect();
                json!({"name": format!("check-{at}"), "template": "t".repeat(253), "parameters": parameters,
                    "min": -1.5, "max": 1e300, "window": "1h30m10s"})
            })
            .collect();
        api.apply_object(&gate(
            "most",
            json!({"clusters": {"names": names}, "minHealthy": "95%", "maxFailures": 2,
            "progressDeadline": "1h", "dependsOn": others, "checks": checks,
            "minSuccessTime": "10m", "require": "Applied",
            "override": {"state": "Closed", "reason": "freeze", "until": "2030-01-01T00:00:00Z"}}),
        ))
        .await?;
        let labels: serde_json::Map<String, Value> =
            (0..32).map(|at| (format!("example.com/label-{at}"), json!("x".repeat(63)))).collect();
        let values: Vec<String> = (0..256).map(|at| format!("value-{at}")).collect();
        let expressions: Vec<Value> = (0..32)
            .map(|at| json!({"key": format!("example.com/key-{at}"), "operator": "In", "values": values}))
            .collect();
        let selector = json!({"matchLabels": labels, "matchExpressions": expressions});
        api.apply_object(&gate("most-labels", json!({"clusters": {"selector": selector}}))).await?;
        let few = json!({"matchLabels": labels, "matchExpressions": [
            {"key": "example.com/key", "operator": "In", "values": ["a", "b"]}
        ]});
        let excuse = json!({"selector": few, "reason": "r".repeat(256), "until": "2030-01-01T00:00:00Z"});
        api.apply_object(&package(
            "excuses",
            json!({"excused": vec![excuse; 100], "minObserved": "100%"}),
        ))
        .await?;
        api.apply_object(&slice(vec![row("Healthy"); 256])).await?;
        // A null counts as left out.
        let mut null = gate("null", json!({}));
        null["spec"]["minSuccessTime"] = Value::Null;
        null["spec"]["override"] = Value::Null;
        let file = rig.dir().join("null.json");
        std::fs::write(&file, null.to_string())?;
        api.kubectl(&["create", "-f", &file.display().to_string()]).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_an_object_is_about_cannot_be_changed() {
    run("hub-api-immutable", async |rig| {
        let (_etcd, api) = hub(rig).await?;
        api.apply_object(&package("own", json!({}))).await?;
        api.apply_object(&package("other", json!({"managedBy": "them"}))).await?;
        api.apply_object(&gate("g", json!({}))).await?;
        let another =
            json!({"package": {"source": "flux-kustomization", "namespace": "flux-system", "name": "x"}});
        for (object, expected) in [
            (package("own", another), "package is immutable"),
            (package("own", json!({"managedBy": "me"})), "managedBy is immutable"),
            (package("other", json!({"managedBy": "me"})), "managedBy is immutable"),
            (gate("g", json!({"fleetPackageRef": {"name": "x"}})), "fleetPackageRef is immutable"),
        ] {
            let said = refusal(&api, &object).await;
            ensure!(said.contains(expected), "expected {expected:?}, got {said:?}");
        }
        // Taking a field away needs a patch that says so.
        let away = api
            .kubectl_output(&[
                "patch",
                "fleetpackage",
                "other",
                "--type=merge",
                "-p",
                r#"{"spec":{"managedBy":null}}"#,
            ])
            .await?;
        let said = String::from_utf8_lossy(&away.stderr).into_owned();
        ensure!(said.contains("managedBy is immutable"), "{said:?}");
        let changed =
            api.apply_object(&package("own", json!({"revision": REVISION, "staleAfter": "1m"}))).await?;
        ensure!(changed.metadata.generation == Some(2));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_fresh_object_is_in_progress_and_nobody_takes_it_for_done() {
    run("hub-api-fresh", async |rig| {
        let (_etcd, api) = hub(rig).await?;
        let package = api.apply_object(&package("payments", json!({"revision": REVISION}))).await?;
        ensure!(package.data["spec"]["staleAfter"] == "3m", "{}", package.data);
        ensure!(package.data["spec"]["clusters"] == json!({"reporting": {"minClusters": 1}}));
        ensure!(package.data["spec"]["detail"] == "Problems");
        let gate = api.apply_object(&gate("wave-1", json!({}))).await?;
        ensure!(gate.data["spec"]["require"] == "Healthy");
        for object in [&package, &gate] {
            // kstatus: observedGeneration differs from the generation, so InProgress.
            ensure!(object.metadata.generation == Some(1));
            ensure!(object.data["status"]["observedGeneration"] == -1, "{}", object.data);
            let ready = condition(object, "Ready").context("no Ready")?;
            ensure!(
                (&ready["status"], &ready["reason"]) == (&json!("Unknown"), &json!("Pending")),
                "{ready}"
            );
        }
        for (object, waited) in [
            ("rolloutgate/wave-1", "OpenedOnce"),
            ("rolloutgate/wave-1", "Open"),
            ("rolloutgate/wave-1", "Ready"),
            ("fleetpackage/payments", "Ready"),
        ] {
            let out = api
                .kubectl_output(&["wait", &format!("--for=condition={waited}"), object, "--timeout=1s"])
                .await?;
            ensure!(!out.status.success(), "kubectl wait for {waited} of {object} passed");
            ensure!(String::from_utf8_lossy(&out.stderr).contains("timed out"), "{out:?}");
        }
        Ok(())
    })
    .await;
}

/// A status as the aggregator would write it for an open gate.
fn open_status(generation: i64, reason: &str) -> Value {
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": "2 of 2 clusters healthy at the revision",
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({
        "observedGeneration": generation, "healthy": "2/2", "revision": REVISION, "fingerprint": DIGITS,
        "conditions": [condition("Ready"), condition("Open"), condition("OpenedOnce")],
    })
}

async fn write_status(api: &ApiServer, object: &DynamicObject, status: Value) -> kube::Result<DynamicObject> {
    let patch = json!({
        "apiVersion": "statusbridge.dev/v1alpha1",
        "kind": "RolloutGate",
        "metadata": {
            "name": object.metadata.name, "namespace": object.metadata.namespace,
            "uid": object.metadata.uid, "resourceVersion": object.metadata.resource_version,
        },
        "status": status,
    });
    let params = PatchParams::apply("statusbridge-aggregator").force();
    let name = object.metadata.name.as_deref().unwrap();
    gates(api).await.unwrap().patch_status(name, &params, &Patch::Apply(&patch)).await
}

#[tokio::test]
async fn a_status_lands_only_on_the_version_that_was_judged() {
    run("hub-api-status", async |rig| {
        let (_etcd, api) = hub(rig).await?;
        let fresh = api.apply_object(&gate("wave-1", json!({}))).await?;
        let open = write_status(&api, &fresh, open_status(1, "Healthy")).await?;
        ensure!(condition(&open, "Open").is_some_and(|open| open["status"] == "True"));
        api.kubectl(&["wait", "--for=condition=OpenedOnce", "rolloutgate/wave-1", "--timeout=5s"]).await?;
        api.kubectl(&["wait", "--for=condition=Ready", "rolloutgate/wave-1", "--timeout=5s"]).await?;

        // The spec moves on: the old verdict no longer passes, and a verdict for the old spec is refused.
        let moved = api.apply_object(&gate("wave-1", json!({"revision": "v2"}))).await?;
        ensure!(moved.metadata.generation == Some(2));
        for waited in ["OpenedOnce", "Open", "Ready"] {
            let wait = ["wait", &format!("--for=condition={waited}"), "rolloutgate/wave-1", "--timeout=1s"];
            ensure!(
                !api.kubectl_output(&wait).await?.status.success(),
                "{waited} of the old generation passed"
            );
        }
        match write_status(&api, &open, open_status(1, "Healthy")).await {
            Err(kube::Error::Api(refused)) => ensure!(refused.code == 409, "{refused:?}"),
            other => anyhow::bail!("a write on top of an old version came to {other:?}"),
        }
        // The same name, another object.
        let name = "wave-1";
        gates(&api).await?.delete(name, &kube::api::DeleteParams::default()).await?;
        let again = api.apply_object(&gate(name, json!({}))).await?;
        ensure!(again.metadata.uid != moved.metadata.uid);
        ensure!(write_status(&api, &moved, open_status(2, "Healthy")).await.is_err());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn columns_answer_at_a_glance() {
    run("hub-api-columns", async |rig| {
        let (_etcd, api) = hub(rig).await?;
        api.apply_object(&package("payments", json!({"revision": REVISION}))).await?;
        let fresh = api.apply_object(&gate("wave-1", json!({}))).await?;
        let header = async |what: &str| -> Result<Vec<String>> {
            let table = api.kubectl(&["get", what]).await?;
            Ok(table.lines().next().unwrap_or_default().split_whitespace().map(str::to_owned).collect())
        };
        ensure!(
            header("fpkg").await?
                == [
                    "NAME", "PACKAGE", "REVISION", "TARGETS", "UPDATED", "HEALTHY", "FAILED", "STALE",
                    "EXCUSED", "READY", "REASON", "AGE"
                ]
        );
        api.apply_object(&slice(Vec::new())).await?;
        ensure!(header("fpkgslice").await? == ["NAME", "FLEETPACKAGE", "GENERATION", "EVIDENCE", "AGE"]);
        ensure!(
            header("rgate").await?
                == ["NAME", "PACKAGE", "OPEN", "REASON", "REVISION", "HEALTHY", "EXCUSED", "AGE", "WAITING"]
        );

        let waiting =
            json!([{"reason": "NotUpdated", "message": "1 cluster not at the revision yet: c2", "count": 1}]);
        let mut status = open_status(1, "NotUpdated");
        status["healthy"] = json!("1/2");
        status["waitingFor"] = waiting;
        status["conditions"][1]["status"] = json!("False");
        write_status(&api, &fresh, status).await?;
        let row = async |more: &[&str]| -> Result<Vec<String>> {
            let table = api.kubectl(&[&["get", "rgate", "wave-1"], more].concat()).await?;
            Ok(table.lines().last().unwrap_or_default().split_whitespace().map(str::to_owned).collect())
        };
        let waiting = "1 cluster not at the revision yet: c2";
        let normal = row(&[]).await?;
        ensure!(normal[..6] == ["wave-1", "payments", "False", "NotUpdated", DIGITS, "1/2"], "{normal:?}");
        ensure!(normal[7..].join(" ") == waiting, "{normal:?}");
        let wide = row(&["-o", "wide"]).await?;
        ensure!(wide[7] == REVISION && wide[8..].join(" ") == waiting, "{wide:?}");

        // A condition is there once, whoever writes it.
        let judged = gates(&api).await?.get("wave-1").await?;
        let mut twice = open_status(1, "Healthy");
        twice["conditions"][2] = twice["conditions"][1].clone();
        let refusal = write_status(&api, &judged, twice).await;
        ensure!(refusal.is_err(), "Open stands there twice: {refusal:?}");
        let everything = api.kubectl(&["get", "statusbridge"]).await?;
        ensure!(everything.contains("fleetpackage.statusbridge.dev/payments"), "{everything}");
        ensure!(everything.contains("rolloutgate.statusbridge.dev/wave-1"), "{everything}");
        ensure!(everything.contains("fleetpackageslice.statusbridge.dev/"), "{everything}");
        Ok(())
    })
    .await;
}

fn rbac(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac").join(name)
}

/// Installs what ships, and gives kubeconfig files with no more rights than that.
async fn shipped_accounts(api: &ApiServer) -> Result<(PathBuf, PathBuf)> {
    api.ensure_namespace("statusbridge-system").await?;
    for file in ["aggregator.yaml", "sweeper.yaml"] {
        api.apply(&std::fs::read_to_string(rbac(file))?).await?;
    }
    Ok((
        api.kubeconfig_of_service_account("statusbridge-system", "statusbridge-aggregator").await?,
        api.kubeconfig_of_service_account("statusbridge-system", "statusbridge-sweeper").await?,
    ))
}

async fn wait_for_open(api: &ApiServer, name: &str, status: &str, reason: &str) -> Result<DynamicObject> {
    let gates = gates(api).await?;
    eventually(SOON, &format!("{name} has Open={status}, {reason}"), async || {
        let gate = gates.get(name).await?;
        let open = condition(&gate, "Open").context("no Open yet")?;
        ensure!(open["status"] == status && open["reason"] == reason, "{open}");
        Ok(gate)
    })
    .await
}

#[tokio::test]
async fn the_sweeper_closes_what_a_dead_aggregator_left_open() {
    run("hub-api-sweeper", async |rig| {
        let (_etcd, api) = hub(rig).await?;
        let (aggregator_account, sweeper_account) = shipped_accounts(&api).await?;
        api.apply_object(&package("payments", json!({"revision": REVISION}))).await?;
        let by_hand = json!({"override": {"state": "Open", "reason": "we know"}});
        api.apply_object(&gate("by-hand", by_hand)).await?;
        api.apply_object(&gate("closed", json!({}))).await?;

        // No backend: the aggregator judges, beats its heart, and opens nothing by itself.
        let mut options = AggregatorOptions::new("http://127.0.0.1:1");
        options.namespace = hub::LEASES.to_owned();
        let aggregator = Aggregator::launch(rig, "aggregator", &aggregator_account, &options).await?;
        let sweeper_args = ["--heartbeat-timeout", "4s"];
        let sweeper = Sweeper::start(rig, "sweeper", &sweeper_account, hub::LEASES, &sweeper_args).await?;
        wait_for_open(&api, "by-hand", "True", "Overridden").await?;
        wait_for_open(&api, "closed", "False", "BackendUnavailable").await?;
        let lease = ["get", "lease", "-n", hub::LEASES, "statusbridge-aggregator-heartbeat", "-o"];
        let renewed = async || api.kubectl(&[&lease[..], &["jsonpath={.spec.renewTime}"]].concat()).await;
        let first = eventually(SOON, "a first heartbeat", async || {
            let time = renewed().await?;
            ensure!(!time.is_empty(), "no renewTime");
            Ok(time)
        })
        .await?;
        eventually(SOON, "a second heartbeat", async || {
            ensure!(renewed().await? != first, "the same still");
            Ok(())
        })
        .await?;

        // The aggregator dies; somebody had opened a gate before.
        aggregator.process().kill();
        let fresh = api.apply_object(&gate("wave-1", json!({}))).await?;
        write_status(&api, &fresh, open_status(1, "Healthy")).await?;
        let closed = wait_for_open(&api, "wave-1", "False", "AggregatorSilent").await?;
        ensure!(closed.data["status"]["waitingFor"][0]["reason"] == "AggregatorSilent", "{}", closed.data);
        ensure!(condition(&closed, "Ready").is_some_and(|ready| ready["status"] == "False"));
        ensure!(condition(&closed, "Reconciling").is_some_and(|it| it["status"] == "True"));
        ensure!(condition(&closed, "OpenedOnce").is_some_and(|it| it["status"] == "True"), "stays latched");
        ensure!(closed.data["status"]["healthy"] == "2/2", "what was known stays: {}", closed.data);
        wait_for_open(&api, "by-hand", "True", "Overridden").await?;
        sweeper.process().ensure_running()?;

        // It comes back and takes over what the sweeper wrote, with nothing left behind.
        aggregator.process().start()?;
        let back = wait_for_open(&api, "wave-1", "False", "BackendUnavailable").await?;
        let waiting = back.data["status"]["waitingFor"].as_array().context("waitingFor")?;
        ensure!(waiting.len() == 1 && waiting[0]["reason"] == "BackendUnavailable", "{waiting:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_spec_change_is_answered_at_once_and_stopping_is_graceful() {
    run("hub-api-controller", async |rig| {
        let (_etcd, api) = hub(rig).await?;
        let (account, _) = shipped_accounts(&api).await?;
        let mut options = AggregatorOptions::new("http://127.0.0.1:1");
        options.namespace = hub::LEASES.to_owned();
        // The first poll fails at once, the second is far away: what happens now comes from the watch.
        options.poll_interval = Duration::from_secs(3600);
        let aggregator = Aggregator::launch(rig, "aggregator", &account, &options).await?;
        api.apply_object(&gate("wave-1", json!({}))).await?;
        wait_for_open(&api, "wave-1", "False", "FleetPackageNotFound").await?;
        api.apply_object(&package("payments", json!({}))).await?;
        wait_for_open(&api, "wave-1", "False", "BackendUnavailable").await?;
        let word = json!({"override": {"state": "Open", "reason": "we know"}});
        api.apply_object(&gate("wave-1", word)).await?;
        wait_for_open(&api, "wave-1", "True", "Overridden").await?;
        let closed = api
            .apply_object(&gate("wave-1", json!({"override": {"state": "Closed", "reason": "freeze"}})))
            .await?;
        let judged = wait_for_open(&api, "wave-1", "False", "Overridden").await?;
        ensure!(judged.data["status"]["observedGeneration"] == json!(closed.metadata.generation));
        ensure!(judged.data["status"]["waitingFor"][0]["message"] == "closed by hand: freeze");

        // One that another reporter fills is left alone.
        api.apply_object(&package("theirs", json!({"managedBy": "them"}))).await?;
        api.apply_object(&gate("theirs", json!({"fleetPackageRef": {"name": "theirs"}}))).await?;
        wait_for_open(&api, "theirs", "False", "ExternallyManaged").await?;
        let theirs = api.dynamic(&kind("FleetPackage"), Some("default")).await?.get("theirs").await?;
        ensure!(theirs.data["status"]["observedGeneration"] == -1, "{}", theirs.data);

        let http = reqwest::Client::builder().no_proxy().build()?;
        eventually(SOON, "the metrics tell", async || {
            let metrics =
                http.get(format!("http://{}/metrics", aggregator.address())).send().await?.text().await?;
            for line in [
                "statusbridge_aggregator_polls_total{result=\"failure\"} 1",
                "statusbridge_aggregator_gates{state=\"overridden\"} 1",
                "statusbridge_aggregator_gates{state=\"stalled\"} 1",
                "statusbridge_aggregator_is_leader 1",
            ] {
                ensure!(metrics.contains(line), "{line} is missing:\n{metrics}");
            }
            Ok(())
        })
        .await?;
        let ready = http.get(format!("http://{}/readyz", aggregator.address())).send().await?;
        ensure!(ready.status() == 503, "without a backend it is not ready");
        let ended = aggregator.process().terminate(SOON).await?;
        ensure!(ended.success(), "{ended}");
        Ok(())
    })
    .await;
}
