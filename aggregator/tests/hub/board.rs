//! The board of gates, its page and its metric: what they say, and when they say nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_aggregator::clock;
use statusbridge_aggregator::gate_cache::GateCache;
use statusbridge_aggregator::metrics::Metrics;
use statusbridge_aggregator::serve::api::gates;
use statusbridge_api::{FleetPackageSpec, FleetPackageStatus, Reason};
use statusbridge_core::decide::time;
use statusbridge_core::reconcile::object::{GateObject, Key, Object, PackageObject};

use crate::reading::{R1, R2, open, with};

const PATIENCE: Duration = Duration::from_secs(60);

fn key(name: &str) -> Key {
    Key { namespace: "fleet".into(), name: name.into() }
}

/// A gate that is open now.
fn gate(changes: &[(&str, Value)]) -> GateObject {
    let young = with(open(), &[("/status/asOf", json!(time(clock::now())))]);
    Object::read(serde_json::from_value(with(young, changes)).unwrap()).unwrap()
}

fn package() -> PackageObject {
    let package = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
        "metadata": {"namespace": "fleet", "name": "payments", "generation": 1, "resourceVersion": "1"},
        "spec": {"package": {"source": "s", "name": "payments"}, "staleAfter": "60s"},
    });
    Object::<FleetPackageSpec, FleetPackageStatus>::read(serde_json::from_value(package).unwrap()).unwrap()
}

/// A board with an open gate that speaks.
fn board(at: Instant) -> Arc<GateCache> {
    let board = GateCache::new(PATIENCE);
    board.gate(&key("wave"), Some(&gate(&[])));
    board.package(&key("payments"), Some(&package()));
    board.spoke(at);
    board
}

async fn ask(board: &GateCache, method: &str, uri: &str, at: Instant) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(uri).body(()).unwrap();
    let (head, body) = gates::answer(board, None, &request, clock::now(), at).await.into_parts();
    assert_eq!(head.headers["content-type"], "application/json");
    assert_eq!(head.headers["cache-control"], "no-store");
    (head.status, serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap())
}

fn metric(board: &Arc<GateCache>) -> Vec<String> {
    series(board).into_iter().filter(|line| line.starts_with("statusbridge_gate_open")).collect()
}

/// All that is said of gates, without the dictionary.
fn series(board: &Arc<GateCache>) -> Vec<String> {
    let text = Metrics::aggregator().with_gates(Some(board.clone())).render().unwrap();
    let of_gates = |line: &&str| line.starts_with("statusbridge_gate_") && line.contains("gate=");
    text.lines().filter(of_gates).map(str::to_owned).collect()
}

/// The value of a metric of the only gate, with these labels besides its own.
fn value(board: &Arc<GateCache>, metric: &str, labels: &str) -> u64 {
    let sample = format!(r#"statusbridge_gate_{metric}{{gate_namespace="fleet",gate="wave"{labels}}} "#);
    let line = series(board).into_iter().find_map(|line| line.strip_prefix(&sample).map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {sample}: {:?}", series(board))).parse().unwrap()
}

#[rstest]
#[case::the_gate("GET", "/v1alpha1/gates/fleet/wave", 200, true)]
#[case::its_head("HEAD", "/v1alpha1/gates/fleet/wave", 200, true)]
#[case::for_its_revision("GET", &format!("/v1alpha1/gates/fleet/wave?revision={R2}"), 200, true)]
#[case::in_other_words("GET", "/v1alpha1/gates/fleet/wave?revision=222222222222", 200, true)]
#[case::escaped(
    "GET",
    "/v1alpha1/gates/fleet/wave?revision=main%40sha1%3A2222222222222222222222222222222222222222",
    200,
    true
)]
#[case::for_another("GET", &format!("/v1alpha1/gates/fleet/wave?revision={R1}"), 200, false)]
#[case::for_none("GET", "/v1alpha1/gates/fleet/wave?revision=", 400, false)]
#[case::for_two("GET", &format!("/v1alpha1/gates/fleet/wave?revision={R2}&revision={R2}"), 400, false)]
#[case::a_typing_error("GET", &format!("/v1alpha1/gates/fleet/wave?revison={R2}"), 400, false)]
#[case::no_text("GET", "/v1alpha1/gates/fleet/wave?revision=%ff", 400, false)]
#[case::unknown("GET", "/v1alpha1/gates/fleet/wave-2", 404, false)]
#[case::another_namespace("GET", "/v1alpha1/gates/default/wave", 404, false)]
#[case::no_name("GET", "/v1alpha1/gates/fleet/", 404, false)]
#[case::too_much("GET", "/v1alpha1/gates/fleet/wave/status", 404, false)]
#[case::a_wish("POST", "/v1alpha1/gates/fleet/wave", 405, false)]
#[tokio::test]
async fn an_address_is_answered(
    #[case] method: &str,
    #[case] uri: &str,
    #[case] status: u16,
    #[case] open: bool,
) {
    let at = Instant::now();
    let (code, body) = ask(&board(at), method, uri, at).await;
    assert_eq!((code.as_u16(), &body["open"]), (status, &json!(open)), "{body}");
}

#[tokio::test]
async fn a_process_that_does_not_speak_for_the_hub_says_so() {
    let at = Instant::now();
    let board = board(at);
    let wave = "/v1alpha1/gates/fleet/wave";
    assert_eq!(
        metric(&board),
        [r#"statusbridge_gate_open{gate_namespace="fleet",gate="wave"} 37529996894754"#]
    );
    let zero = [r#"statusbridge_gate_open{gate_namespace="fleet",gate="wave"} 0"#];

    // Neither before it has judged …
    let young = GateCache::new(PATIENCE);
    young.gate(&key("wave"), Some(&gate(&[])));
    let (code, body) = ask(&young, "GET", wave, at).await;
    assert_eq!(
        (code.as_u16(), &body["open"], &body["reason"]),
        (503, &json!(false), &json!("AggregatorSilent"))
    );
    assert_eq!(metric(&young), zero);
    // … nor when it has not for long …
    assert_eq!(ask(&board, "GET", wave, at + PATIENCE).await.0, 200);
    let (code, body) = ask(&board, "GET", wave, at + PATIENCE + Duration::from_secs(1)).await;
    assert_eq!((code.as_u16(), &body["open"]), (503, &json!(false)), "{body}");
    // … nor when somebody else does; then not even what there is is told.
    board.silence("another replica leads");
    let (code, body) = ask(&board, "GET", "/v1alpha1/gates/fleet/unknown", at).await;
    assert_eq!((code.as_u16(), &body["message"]), (503, &json!("another replica leads")));
    assert_eq!(metric(&board), zero);
    board.spoke(at);
    assert_eq!(ask(&board, "GET", wave, at).await.0, 200);
}

#[tokio::test]
async fn with_tenants_gates_are_named_only_where_whoever_asks_is_authorized() {
    let at = Instant::now();
    let (board, authorized) = (board(at), GateCache::authorized(PATIENCE, true));
    authorized.gate(&key("wave"), Some(&gate(&[])));
    for tenants in [true, false, true] {
        board.has_tenants(tenants);
        authorized.has_tenants(tenants);
        for (name, status) in [("wave", 200), ("unknown", 404)] {
            let (code, body) = ask(&board, "GET", &format!("/v1alpha1/gates/fleet/{name}"), at).await;
            assert_eq!(code.as_u16(), if tenants { 403 } else { status }, "{body}");
            let says_why = body["message"].as_str().unwrap().contains("--authorize-scrapes");
            assert_eq!((says_why, body["open"] == json!(false)), (tenants, tenants || name == "unknown"));
        }
        assert_eq!((metric(&board).len(), metric(&authorized).len()), (usize::from(!tenants), 1));
    }
    // Who begins to lead anew does not forget it.
    board.begin();
    assert_eq!(ask(&board, "GET", "/v1alpha1/gates/fleet/wave", at).await.0, 403);
}

#[tokio::test]
async fn the_board_follows_the_hub_and_closes_before_it() {
    let at = Instant::now();
    let board = board(at);
    let open =
        async |board: &GateCache| ask(board, "GET", "/v1alpha1/gates/fleet/wave", at).await.1["open"].clone();
    board.closing(&BTreeSet::from([key("wave")]));
    assert_eq!(open(&board).await, json!(false), "the hub does not know yet that it has to close");
    board.closing(&BTreeSet::new());
    assert_eq!(open(&board).await, json!(true));

    board.package(&key("payments"), None);
    assert_eq!(open(&board).await, json!(false));
    board.package(&key("payments"), Some(&package()));
    board.gate(&key("wave"), Some(&gate(&[("/metadata/generation", json!(4))])));
    assert_eq!(open(&board).await, json!(false));
    assert!(metric(&board)[0].ends_with(" 0"));
    board.gate(&key("wave"), None);
    assert_eq!(ask(&board, "GET", "/v1alpha1/gates/fleet/wave", at).await.0, 404);
    assert!(metric(&board).is_empty());
}

/// A gate that is closed, for this reason.
fn closed(reason: &str, changes: &[(&str, Value)]) -> GateObject {
    let mut all = vec![
        ("/status/conditions/1/status", json!("False")),
        ("/status/conditions/1/reason", json!(reason)),
        ("/status/clusters/healthy", json!(1)),
        ("/status/clusters/progressing", json!(3)),
        ("/status/clusters/soaking", json!(2)),
        ("/status/clusters/failed", json!(1)),
    ];
    all.extend(changes.iter().cloned());
    gate(&all)
}

#[rstest]
#[case::open(gate(&[]), 1, "Healthy", true)]
#[case::waiting(closed("Soaking", &[]), 2, "Soaking", true)]
#[case::stalled(
    closed("FailureBudgetExceeded", &[("/status/conditions/2/type", json!("Stalled"))]), 5, "FailureBudgetExceeded", true
)]
#[case::another_generation(gate(&[("/metadata/generation", json!(4))]), 3, "Pending", false)]
#[case::too_old(gate(&[("/status/asOf", json!(time(clock::now() - 90.0)))]), 4, "Stale", false)]
fn a_gate_says_where_it_stands_and_why(
    #[case] gate: GateObject,
    #[case] state: u64,
    #[case] reason: &str,
    #[case] counts: bool,
) {
    let board = board(Instant::now());
    board.gate(&key("wave"), Some(&gate));
    assert_eq!(value(&board, "state", ""), state);
    assert_eq!(value(&board, "reason", ""), statusbridge_contract::reason::code(reason));
    assert_eq!(value(&board, "target_revision", ""), 0x2222_2222_2222);
    assert_eq!(value(&board, "open", ""), if state == 1 { 0x2222_2222_2222 } else { 0 });
    let status = gate.status.as_ref().unwrap();
    let since = u64::try_from(status.since.as_ref().unwrap().0.as_second()).unwrap();
    // What was counted for another spec, or long ago, is not shown as if it were so now.
    assert_eq!(value(&board, "since_timestamp_seconds", ""), if counts { since } else { 0 });
    let states = [
        "healthy",
        "soaking",
        "progressing",
        "failed",
        "superseded",
        "stale",
        "missing",
        "unverified",
        "conflicting",
    ];
    let shown = states.map(|state| value(&board, "clusters", &format!(r#",state="{state}""#)));
    let found = status.clusters.unwrap();
    let right =
        [found.healthy, found.soaking, found.progressing - found.soaking, found.failed, 0, 0, 0, 0, 0];
    assert_eq!(shown, if counts { right } else { [0; 9] });
    let about = r#",fleet_package="payments",package_source="s",package_namespace="",package="payments""#;
    assert_eq!(value(&board, "info", about), 1);
}

#[test]
fn a_gate_has_the_same_series_whatever_becomes_of_it() {
    let at = Instant::now();
    let names = |board: &Arc<GateCache>| -> Vec<String> {
        let mut names =
            Vec::from_iter(series(board).iter().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()));
        names.sort();
        names
    };
    let board = board(at);
    let fresh = names(&board);
    assert_eq!(fresh.len(), 16, "{fresh:?}");
    let revision = ("/spec/revision", json!(R1));
    for gate in [closed("Failed", &[]), closed("Stale", &[revision]), gate(&[("/status", Value::Null)])] {
        board.gate(&key("wave"), Some(&gate));
        assert_eq!(names(&board), fresh);
    }
    board.silence("another replica leads");
    assert_eq!(names(&board), fresh);
    let silent = series(&board);
    let speaks = |line: &&String| !line.ends_with(" 0") && !line.starts_with("statusbridge_gate_info{");
    assert_eq!(silent.iter().find(speaks), None, "what this process cannot say is 0");
    board.has_tenants(true);
    let text = Metrics::aggregator().with_gates(Some(board)).render().unwrap();
    assert!(!text.contains("wave") && !text.contains("payments"), "{text}");
}

#[test]
fn the_dictionary_has_every_reason_under_a_code_of_its_own() {
    let text = Metrics::aggregator().with_gates(Some(board(Instant::now()))).render().unwrap();
    for reason in Reason::ALL {
        let code = statusbridge_contract::reason::code(reason.name());
        let entry = format!(r#"statusbridge_gate_reason_info{{code="{code}",reason="{}"}} 1"#, reason.name());
        assert!(text.lines().any(|line| line == entry), "{entry}");
    }
    let codes: BTreeSet<_> =
        Reason::ALL.iter().map(|it| statusbridge_contract::reason::code(it.name())).collect();
    assert_eq!(codes.len(), Reason::ALL.len());
}

/// A FleetPackage with this history: revision, when it was first wanted, healthy, failed, and restored.
fn delivered(uid: &str, history: &[(&str, f64, [f64; 3])]) -> PackageObject {
    let entry = |(revision, started, times): &(&str, f64, [f64; 3])| {
        let mut entry = json!({"revision": revision, "startedAt": time(*started)});
        for (field, at) in ["healthyAt", "failedAt", "restoredAt"].into_iter().zip(times) {
            if *at > 0.0 {
                entry[field] = json!(time(*at));
            }
        }
        entry
    };
    let mut package = package();
    package.uid = uid.to_owned();
    let status = json!({"history": Vec::from_iter(history.iter().map(entry))});
    package.status = Some(serde_json::from_value(status).unwrap());
    package
}

/// What is said of deliveries of the only FleetPackage: by name without its prefix, and bound.
fn deliveries(board: &Arc<GateCache>) -> BTreeMap<String, f64> {
    let text = Metrics::aggregator().with_gates(Some(board.clone())).render().unwrap();
    let own = r#"fleet_package_namespace="fleet",fleet_package="payments""#;
    let samples =
        text.lines().filter_map(|line| line.strip_prefix("statusbridge_delivery_")?.rsplit_once(' '));
    let plain = |name: &str| name.replace(own, "").replace(['{', '}', ','], " ").trim().to_owned();
    samples.map(|(name, value)| (plain(name), value.parse().unwrap())).collect()
}

#[test]
fn a_delivery_counts_once_whoever_reads_it_how_often() {
    let board = GateCache::new(PATIENCE);
    let see = |package: &PackageObject| board.package(&key("payments"), Some(package));
    let all = |board: &Arc<GateCache>| {
        let found = deliveries(board);
        [
            "deployments_total",
            "failed_revisions_total",
            "time_to_healthy_seconds_sum",
            "time_to_restore_seconds_sum",
        ]
        .map(|it| found[it])
    };
    let (wanted, broken) = (("b", 1000.0, [0.0; 3]), ("b", 1000.0, [0.0, 1100.0, 0.0]));
    let (old, mended) = (("a", 500.0, [600.0, 0.0, 0.0]), ("b", 1000.0, [1400.0, 1100.0, 1400.0]));
    // What a process finds when it begins was counted by the one that wrote it.
    see(&delivered("1", &[old]));
    assert_eq!(all(&board), [0.0; 4]);
    let fresh = deliveries(&board);
    for history in [[wanted, old], [wanted, old], [broken, old], [broken, old], [mended, old], [mended, old]]
    {
        see(&delivered("1", &history));
    }
    assert_eq!(all(&board), [1.0, 1.0, 400.0, 300.0]);
    let found = deliveries(&board);
    assert_eq!(
        (
            found[r#"time_to_healthy_seconds_bucket le="300.0""#],
            found[r#"time_to_healthy_seconds_bucket le="900.0""#]
        ),
        (0.0, 1.0)
    );
    assert!(fresh.keys().eq(found.keys()) && fresh.len() == 22, "{fresh:?}\n{found:?}");
    // Another process, or this one when it leads again, begins at 0 …
    let another = GateCache::new(PATIENCE);
    another.package(&key("payments"), Some(&delivered("1", &[mended, old])));
    assert_eq!(all(&another), [0.0; 4]);
    board.begin();
    see(&delivered("1", &[mended, old]));
    assert_eq!(all(&board), [0.0; 4]);
    // … and so does another FleetPackage of that name.
    see(&delivered("1", &[("c", 2000.0, [2100.0, 0.0, 0.0]), mended, old]));
    assert_eq!(all(&board), [1.0, 0.0, 100.0, 0.0]);
    see(&delivered("2", &[("d", 3000.0, [3100.0, 0.0, 0.0])]));
    assert_eq!(all(&board), [0.0; 4]);
    // It is silent where gates are hidden, and about what is gone.
    board.has_tenants(true);
    assert!(deliveries(&board).is_empty());
    board.has_tenants(false);
    board.package(&key("payments"), None);
    assert!(deliveries(&board).is_empty());
}

#[test]
fn whoever_makes_gates_does_not_make_the_page_any_size() {
    let (board, at) = (GateCache::new(PATIENCE), Instant::now());
    board.spoke(at);
    let names = Vec::from_iter((0..4000).map(|n| key(&format!("{}-{n:04}", "a".repeat(230)))));
    for key in &names {
        board.gate(key, Some(&gate(&[])));
        board.package(key, Some(&delivered("1", &[("a", 500.0, [0.0; 3])])));
    }
    let text = Metrics::aggregator().with_gates(Some(board)).render().unwrap();
    let count = |metric: &str| text.lines().filter(|line| line.starts_with(metric)).count();
    assert_eq!(count("statusbridge_gate_open{"), names.len());
    let detailed = count("statusbridge_gate_state{");
    assert!(detailed > 400 && count("statusbridge_gate_clusters{") == 10 * detailed, "{detailed}");
    assert!(count("statusbridge_delivery_deployments_total{") > 200);
    assert!(text.len() < 7 << 20, "{} bytes", text.len());
}
