//! The board of gates, its page and its metric: what they say, and when they say nothing.

use std::collections::BTreeSet;
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
use statusbridge_api::{FleetPackageSpec, FleetPackageStatus};
use statusbridge_core::decide::time;
use statusbridge_core::reconcile::store::{GateObject, Key, Object, PackageObject};

use crate::made::{R1, R2};
use crate::reading::{open, with};

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
    let text = Metrics::aggregator().with_gates(Some(board.clone())).render().unwrap();
    text.lines().filter(|line| line.starts_with("statusbridge_gate_open")).map(str::to_owned).collect()
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
