//! Gates that depend on each other, against an API server of a few lines.

use std::collections::BTreeMap;
use std::sync::Mutex;

use kube::Config;
use serde_json::{Value, json};
use statusbridge_core::testing::{Exposition, healthy, tell};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::feed::Feed;
use crate::feed::promql::poll::PollReport;

/// Gates by name, and what was asked: `GET wave-1`, `PATCH wave-1 True`, `BEAT` with the gates that the heartbeat names.
#[derive(Default)]
struct Hub {
    gates: Mutex<BTreeMap<String, Value>>,
    asked: Mutex<Vec<String>>,
    /// Reads are refused.
    broken: bool,
    /// Writes of this gate are never answered.
    hangs: Mutex<String>,
}

impl Hub {
    fn answer(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let name =
            path.split(['/', '?']).skip_while(|part| *part != "rolloutgates").nth(1).unwrap_or_default();
        if path.contains("/leases/") {
            let named = &body["metadata"]["annotations"]["statusbridge.dev/unclosed-gates"];
            self.asked.lock().unwrap().push(format!("BEAT {}", named.as_str().unwrap()));
            let mut lease = body.clone();
            lease["metadata"]["resourceVersion"] = json!("1");
            return (200, lease);
        }
        let mut gates = self.gates.lock().unwrap();
        let set = |path: &str| {
            let mut all = body.as_array().into_iter().flatten();
            all.find(|it| it["path"] == path).map(|it| it["value"].clone()).unwrap_or_default()
        };
        let status = set("/status");
        let asked = match method {
            "PATCH" => format!("PATCH {name} {}", status["conditions"][1]["status"].as_str().unwrap_or("-")),
            _ => format!("{method} {name}"),
        };
        self.asked.lock().unwrap().push(asked);
        match gates.get_mut(name) {
            Some(_) if method == "GET" && self.broken => {
                (500, json!({"code": 500, "message": "no", "reason": ""}))
            }
            Some(gate) if method == "GET" => (200, gate.clone()),
            Some(gate) if gate["metadata"]["resourceVersion"] != set("/metadata/resourceVersion") => {
                (409, json!({"code": 409, "message": "it has changed", "reason": "Conflict"}))
            }
            Some(gate) => {
                let version: u64 = gate["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
                gate["metadata"]["resourceVersion"] = json!((version + 1).to_string());
                gate["status"] = status;
                (200, gate.clone())
            }
            None => (404, json!({"code": 404, "message": "no such gate", "reason": "NotFound"})),
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
                if let Some(size) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = size.trim().parse().ok()?;
                }
                if line == "\r\n" {
                    break;
                }
                head += &line;
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.ok()?;
            let mut words = head.split_whitespace();
            let (method, path) = (words.next()?, words.next()?);
            let (code, answer) =
                self.answer(method, path, &serde_json::from_slice(&body).unwrap_or_default());
            let hangs = self.hangs.lock().unwrap().clone();
            if method == "PATCH" && !hangs.is_empty() && path.contains(&format!("/{hangs}/")) {
                std::future::pending::<()>().await;
            }
            let answer = answer.to_string();
            let head = format!(
                "HTTP/1.1 {code} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                answer.len()
            );
            stream.write_all((head + &answer).as_bytes()).await.ok()?;
        }
    }

    async fn listen(self: &Arc<Self>) -> Client {
        // An error only says that a provider was chosen before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let hub = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(hub.clone().serve(stream));
            }
        });
        Client::try_from(Config::new(format!("http://{address}").parse().unwrap())).unwrap()
    }
}

fn gate(name: &str, generation: i64, depends_on: &[&str], status: Value) -> Value {
    let depends_on: Vec<Value> = depends_on.iter().map(|name| json!({"name": name})).collect();
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
        "metadata": {"namespace": "fleet", "name": name, "uid": name, "resourceVersion": "10", "generation": generation},
        "spec": {"fleetPackageRef": {"name": "p"}, "revision": "r1", "clusters": {"names": ["a"]}, "dependsOn": depends_on},
        "status": status,
    })
}

fn open(generation: i64) -> Value {
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "Healthy", "message": "", "observedGeneration": generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({"observedGeneration": generation, "conditions": [condition("Ready"), condition("Open"), condition("Succeeded")]})
}

fn object(value: Value) -> LazyObject {
    serde_json::from_value(value).unwrap()
}

/// A controller that knows these gates, and a cluster where the package is healthy at their revision.
async fn controller(hub: &Arc<Hub>, known: impl IntoIterator<Item = Value>) -> Controller {
    let client = hub.listen().await;
    let silent = || Feed {
        name: "".into(),
        settle: 5.0,
        asker: None,
        run: Box::new(|_| Box::pin(std::future::pending())),
    };
    let mut fleet = Fleet::default();
    let (said, at) = (Exposition::new(1).with("p", healthy("r1", 10)), clock::now() - 10.0);
    tell(&mut fleet, &[("cluster", "a")], &said, at);
    let mut controller = Controller::new(
        client.clone(),
        ConfigFile::default(),
        Arc::new(move |_| Ok(vec![silent()])),
        FleetSettings::default(),
        Pace { poll_interval: Duration::from_secs(3600), writes_per_second: 1000 },
        Heartbeat::new(client, "fleet", "test".into(), 60),
        Arc::new(Metrics::aggregator()),
        Health::new(Duration::from_secs(3600)),
        GateCache::new(Duration::from_secs(3600)),
    )
    .unwrap();
    controller.fleet = fleet;
    let package = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
        "metadata": {"namespace": "fleet", "name": "p", "resourceVersion": "1", "generation": 1},
        // What it says of itself is not at stake here.
        "spec": {"package": {"source": "flux", "namespace": "ns", "name": "p"}, "staleAfter": "1h"},
    });
    controller.packages.apply(Event::Init);
    controller.packages.apply(Event::InitApply(object(package)));
    controller.packages.apply(Event::InitDone);
    controller.gates.apply(Event::Init);
    for gate in known {
        controller.gates.apply(Event::InitApply(object(gate)));
    }
    let all = controller.gates.apply(Event::InitDone);
    controller.concerned(all);
    let report = PollReport { ok: true, ..PollReport::default() };
    controller.polled(0, Polled { t: at, settle: 5.0, report, ..Polled::default() });
    (controller.judged_all, controller.beat_due) = (true, false);
    controller
}

/// Looks at a gate, and writes all that this leads to.
async fn look(controller: &mut Controller, gate: &str) {
    let key = Key { namespace: "fleet".into(), name: gate.into() };
    controller.judge(BTreeSet::new(), BTreeSet::from([key])).await;
    for _ in 0..100 {
        if controller.backlog.is_empty() {
            return;
        }
        controller.write_next().await;
    }
    panic!("the queue does not become empty");
}

fn patches(hub: &Hub) -> Vec<String> {
    hub.asked
        .lock()
        .unwrap()
        .iter()
        .filter_map(|asked| asked.strip_prefix("PATCH ").map(Into::into))
        .collect()
}

fn hub(broken: bool, gates: &[Value]) -> Arc<Hub> {
    let named = |gate: &Value| (gate["metadata"]["name"].as_str().unwrap().to_owned(), gate.clone());
    Arc::new(Hub { gates: Mutex::new(gates.iter().map(named).collect()), broken, ..Hub::default() })
}

#[tokio::test]
async fn a_gate_opens_once_the_one_before_it_was_seen_to_be_open() {
    let gates = [gate("wave-1", 1, &[], open(1)), gate("wave-2", 1, &["wave-1"], Value::Null)];
    let hub = hub(false, &gates);
    let mut controller = controller(&hub, gates).await;
    look(&mut controller, "wave-2").await;
    assert!(hub.asked.lock().unwrap().contains(&"GET wave-1".to_owned()));
    assert!(patches(&hub).contains(&"wave-2 True".to_owned()), "{:?}", patches(&hub));
}

#[tokio::test]
async fn a_watch_that_lags_does_not_open_a_gate() {
    // Be it that the second was never judged, or was open for its spec of before.
    for second in [gate("wave-2", 1, &["wave-1"], Value::Null), gate("wave-2", 2, &["wave-1"], open(1))] {
        // The first has another spec by now, for which it has not been judged.
        let mut first = gate("wave-1", 2, &["nobody"], open(1));
        first["metadata"]["resourceVersion"] = json!("20");
        let hub = hub(false, &[first, second.clone()]);
        let mut controller = controller(&hub, [gate("wave-1", 1, &[], open(1)), second]).await;
        look(&mut controller, "wave-2").await;
        let asked = hub.asked.lock().unwrap().clone();
        assert!(asked.contains(&"GET wave-1".to_owned()), "{asked:?}");
        let after: Vec<String> = patches(&hub);
        assert!(
            after.contains(&"wave-2 False".to_owned()) && !after.contains(&"wave-2 True".to_owned()),
            "{after:?}"
        );
        assert!(after.contains(&"wave-1 False".to_owned()), "it is judged for what it is now: {after:?}");
    }
}

#[tokio::test]
async fn a_dependency_that_is_gone_or_cannot_be_read_does_not_open_a_gate() {
    let known = [gate("wave-1", 1, &[], open(1)), gate("wave-2", 1, &["wave-1"], Value::Null)];
    for (hub, expected) in [(hub(false, &known[1..]), "wave-2 False"), (hub(true, &known), "")] {
        let mut controller = controller(&hub, known.clone()).await;
        look(&mut controller, "wave-2").await;
        let patches = patches(&hub);
        let second: Vec<&String> = patches.iter().filter(|it| it.starts_with("wave-2")).collect();
        assert!(second.iter().all(|it| *it == expected), "{patches:?}");
    }
}

#[tokio::test]
async fn a_whole_row_closes_in_one_go() {
    const GATES: usize = 300;
    let name = |at: usize| format!("g{at:03}");
    let mut gates: Vec<Value> = (1..GATES).map(|at| gate(&name(at), 1, &[&name(at - 1)], open(1))).collect();
    // The first has lost what it rests on.
    gates.push(gate(&name(0), 1, &["nobody"], open(1)));
    let hub = hub(false, &gates);
    let mut controller = controller(&hub, gates).await;
    let first = Key { namespace: "fleet".into(), name: name(0) };
    controller.judge(BTreeSet::new(), BTreeSet::from([first])).await;
    let mut closed = patches(&hub);
    closed.sort();
    let expected: Vec<String> = (0..GATES).map(|at| format!("{} False", name(at))).collect();
    assert_eq!(closed, expected);
    assert!(controller.closings.is_empty());
}

fn named(hub: &Hub) -> Vec<String> {
    let asked = hub.asked.lock().unwrap();
    asked.iter().filter_map(|asked| asked.strip_prefix("BEAT ").map(Into::into)).collect()
}

#[tokio::test]
async fn a_closing_that_hangs_takes_the_heartbeat_from_its_gate_alone() {
    let gates = [gate("a-hangs", 1, &["nobody"], open(1)), gate("other", 1, &["nobody"], open(1))];
    let hub = hub(false, &gates);
    *hub.hangs.lock().unwrap() = "a-hangs".into();
    let mut controller = controller(&hub, gates).await;
    let all: BTreeSet<Key> = controller.gates.iter().map(|gate| gate.key.clone()).collect();
    let begun = std::time::Instant::now();
    controller.beat_due = true;
    controller.judge(BTreeSet::new(), all.clone()).await;
    assert_eq!(named(&hub), ["fleet/a-hangs"]);
    assert_eq!(patches(&hub), ["a-hangs False", "other False"]);
    for _ in 0..5 {
        controller.beat_due = true;
        controller.judge(BTreeSet::new(), all.clone()).await;
    }
    assert_eq!(named(&hub), ["fleet/a-hangs"; 6]);
    assert_eq!(patches(&hub).len(), 2, "it is left alone for a while");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());

    // Once it hangs no longer, it is closed, and named no longer.
    hub.hangs.lock().unwrap().clear();
    while !controller.closings.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", patches(&hub));
        tokio::time::sleep(Duration::from_millis(50)).await;
        controller.close().await;
    }
    assert_eq!((patches(&hub).len(), named(&hub).last().unwrap().as_str()), (3, ""));
}

#[tokio::test]
async fn a_status_that_hung_is_not_written_for_a_while() {
    let gates = [gate("wave-1", 1, &[], Value::Null)];
    let hub = hub(false, &gates);
    let mut controller = controller(&hub, gates).await;
    let key = Key { namespace: "fleet".into(), name: "wave-1".into() };
    controller.hanging_statuses.hung(&(Kind::RolloutGate, key), std::time::Instant::now());
    look(&mut controller, "wave-1").await;
    assert_eq!(patches(&hub), [""; 0]);
}

#[tokio::test]
async fn a_verdict_does_not_outlive_the_rules_that_it_was_given_under() {
    let gates = [gate("wave-1", 1, &[], Value::Null)];
    let hub = hub(false, &gates);
    let mut controller = controller(&hub, gates).await;
    let rules = tempfile::NamedTempFile::new().unwrap();
    controller.config = ConfigFile::open(Some(rules.path().to_owned())).unwrap();
    look(&mut controller, "wave-1").await;
    look(&mut controller, "wave-1").await;
    let stood = controller.verdicts.counts[0].load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((patches(&hub), stood), (vec!["wave-1 True".to_owned()], 1), "it is given once, and stands");

    std::fs::write(rules.path(), "tenants: []\n").unwrap();
    assert!(controller.reread_config());
    look(&mut controller, "wave-1").await;
    assert_eq!(patches(&hub), ["wave-1 True", "wave-1 False"], "its namespace may see nothing any more");
}
