//! Deliveries to real servers that refuse, hang, and lose answers.

use std::sync::Mutex as Lock;

use reqwest::Url;
use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_core::decide::transition::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::super::message::About;
use super::super::message::tests::message;
use super::super::settings::tests::sink;
use super::*;

/// What a receiver was asked.
#[derive(Debug, Clone)]
struct Asked {
    /// Method and path with query.
    line: String,
    head: String,
    body: Value,
}

/// What it does.
enum Does {
    Answers(u16, &'static str, Value),
    /// It reads the request and never answers.
    Hangs,
    /// It does what it was asked, and the connection ends before the answer.
    LosesTheAnswer,
}

type Acts = Box<dyn Fn(&[Asked]) -> Does + Send + Sync>;

/// A server on this machine.
struct Receiver {
    asked: Arc<Lock<Vec<Asked>>>,
    port: u16,
    _task: JoinSet<()>,
}

impl Receiver {
    /// `acts` sees all that was asked, the present request last.
    async fn start(acts: impl Fn(&[Asked]) -> Does + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Lock::new(Vec::new()));
        let (mut task, acts, seen) = (JoinSet::new(), Arc::new(Box::new(acts) as Acts), asked.clone());
        task.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(answer(stream, acts.clone(), seen.clone()));
            }
        });
        Self { asked, port, _task: task }
    }

    fn lines(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|asked| asked.line.clone()).collect()
    }

    fn asked(&self, at: usize) -> Asked {
        self.asked.lock().unwrap()[at].clone()
    }

    /// Delivers a message to it.
    async fn tell(&self, fields: &str, message: &Message) -> Option<&'static str> {
        self.tell_until(fields, message, &CancellationToken::new()).await
    }

    async fn tell_until(
        &self,
        fields: &str,
        message: &Message,
        stop: &CancellationToken,
    ) -> Option<&'static str> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = format!("http://127.0.0.1:{}/base", self.port);
        let sink = sink(&format!("[{{name: a, url: \"{url}\", {fields}}}]"));
        let http = Http::new(Url::parse(&url).unwrap(), &sink.tls, Duration::from_millis(300));
        let hub = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let metrics = Metrics::aggregator();
        let result = deliver(&hub, &http, &Mutex::default(), &sink, message, &metrics, stop).await?;
        Some(match result {
            MessageResult::Sent => "sent",
            MessageResult::Skipped => "skipped",
            MessageResult::Failed => "failed",
            other => panic!("{other:?}"),
        })
    }
}

async fn answer(mut stream: TcpStream, acts: Arc<Acts>, seen: Arc<Lock<Vec<Asked>>>) {
    let mut bytes = Vec::new();
    let (head, body) = loop {
        let mut chunk = [0; 4096];
        let Ok(read @ 1..) = stream.read(&mut chunk).await else { return };
        bytes.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if rest.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            let body = &bytes[bytes.len() - rest.len()..];
            break (head.to_owned(), serde_json::from_slice(body).unwrap_or_default());
        }
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let line = text.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let does = {
        let mut seen = seen.lock().unwrap();
        seen.push(Asked { line, head, body });
        acts(&seen)
    };
    match does {
        Does::Hangs => std::future::pending().await,
        Does::LosesTheAnswer => {}
        Does::Answers(status, headers, body) => {
            let body = body.to_string();
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status} X\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    }
}

fn ok() -> Does {
    Does::Answers(200, "", json!({}))
}

fn secret_file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[rstest]
#[case::takes_it(|_: usize| ok(), "sent", 1)]
#[case::refuses_for_a_while(|n| if n < 2 { Does::Answers(503, "retry-after: 0\r\n", json!({})) } else { ok() }, "sent", 2)]
#[case::hangs_once(|n| if n < 2 { Does::Hangs } else { ok() }, "sent", 2)]
#[case::loses_its_answer(|n| if n < 2 { Does::LosesTheAnswer } else { ok() }, "sent", 2)]
#[case::refuses_for_good(|_| Does::Answers(422, "", json!({"message": "no"})), "failed", 1)]
#[case::sends_elsewhere(|_| Does::Answers(302, "location: http://127.0.0.1:1/\r\n", json!({})), "failed", 1)]
#[tokio::test]
async fn a_webhook_is_told_until_it_takes_it(
    #[case] acts: fn(usize) -> Does,
    #[case] expected: &str,
    #[case] times: usize,
) {
    let receiver = Receiver::start(move |asked| acts(asked.len())).await;
    let message = message(Outcome::Succeeded, 1);
    assert_eq!(receiver.tell("to: webhook", &message).await, Some(expected));
    assert_eq!(receiver.lines(), vec!["POST /base"; times]);
    for at in 0..times {
        assert_eq!(receiver.asked(at).body["id"], message.id, "whoever gets it twice knows it by its id");
    }
}

#[tokio::test]
async fn a_message_is_signed_with_what_is_in_the_file_now() {
    let receiver = Receiver::start(|_| ok()).await;
    let file = secret_file("first\n");
    let fields = format!("to: webhook, secretFile: \"{}\"", file.path().display());
    receiver.tell(&fields, &message(Outcome::Succeeded, 1)).await;
    receiver.tell(&fields, &message(Outcome::Succeeded, 1)).await;
    std::fs::write(file.path(), "second").unwrap();
    receiver.tell(&fields, &message(Outcome::Succeeded, 1)).await;
    let signature = |at| {
        let head = receiver.asked(at).head;
        head.lines().find_map(|line| line.strip_prefix("x-signature: sha256=")).unwrap().to_owned()
    };
    assert_eq!(signature(0), signature(1));
    assert_ne!(signature(1), signature(2));
    assert!(receiver.asked(0).head.contains("content-type: application/cloudevents+json"));
}

#[tokio::test]
async fn a_namespace_whose_message_is_refused_keeps_no_other_waiting() {
    let receiver =
        Receiver::start(|asked| match asked.last().unwrap().body["data"]["customData"]["namespace"] {
            Value::String(ref namespace) if namespace == "refused" => {
                Does::Answers(503, "retry-after: 3600\r\n", json!({}))
            }
            _ => ok(),
        })
        .await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("http://127.0.0.1:{}/", receiver.port);
    let sink = sink(&format!("[{{name: a, to: webhook, url: \"{url}\"}}]"));
    let hub = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let metrics = Arc::new(Metrics::aggregator());
    let shelf = Arc::new(Shelf::new(&hub, "hub", std::slice::from_ref(&sink), metrics.clone()));
    shelf.read_as_empty();
    let of =
        |namespace: &str, at| Message { namespace: namespace.to_owned(), ..message(Outcome::Succeeded, at) };
    for told in [of("refused", 1), of("refused", 2), of("fleet", 3), of("fleet", 4)] {
        shelf.offer(&told);
    }
    let stop = CancellationToken::new();
    let sends = tokio::spawn(run(hub, sink, shelf, metrics, stop.clone()));
    let ids = || receiver.asked.lock().unwrap().iter().map(|it| it.body["id"].clone()).collect::<Vec<_>>();
    let told = async {
        while ids().len() < 3 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, told).await.unwrap();
    stop.cancel();
    tokio::time::timeout(TIMEOUT, sends).await.unwrap().unwrap();
    assert_eq!(ids(), [1, 3, 4].map(|at| message(Outcome::Succeeded, at).id));
}

#[tokio::test]
async fn who_is_told_to_stop_does_not_wait_for_the_next_try() {
    let stop = CancellationToken::new();
    let told = stop.clone();
    let receiver = Receiver::start(move |_| {
        told.cancel();
        Does::Answers(429, "retry-after: 3600\r\n", json!({}))
    })
    .await;
    let ended = receiver.tell_until("to: webhook", &message(Outcome::Succeeded, 1), &stop).await;
    assert_eq!(ended, None);
}

/// GitHub, as far as it is asked: it keeps one deployment. At the request with this number it loses its answer.
async fn github(loses: usize) -> Receiver {
    Receiver::start(move |asked| {
        let now = &asked.last().unwrap().line;
        let is_there = asked.iter().any(|it| it.line == "POST /base/repos/acme/fleet/deployments");
        match () {
            () if asked.len() == loses => Does::LosesTheAnswer,
            () if now.starts_with("GET") && is_there => Does::Answers(200, "", json!([{"id": 7}])),
            () if now.starts_with("GET") => Does::Answers(200, "", json!([])),
            () => Does::Answers(201, "", json!({"id": 7})),
        }
    })
    .await
}

const SHA: &str = "4f0e2a91c3d5b7e6f80912a4b6c8d0e2f4a6b8c0";

#[rstest]
#[case::never(0)]
#[case::of_the_commit_status(1)]
#[case::of_the_question(2)]
#[case::of_the_deployment(3)]
#[case::of_its_status(4)]
#[tokio::test]
async fn github_gets_one_deployment_whichever_answer_is_lost(#[case] loses: usize) {
    let (github, file) = (github(loses).await, secret_file("token"));
    let fields = format!(
        "to: github, namespaces: [fleet], repository: acme/fleet, tokenFile: \"{}\"",
        file.path().display()
    );
    assert_eq!(github.tell(&fields, &message(Outcome::Succeeded, 1)).await, Some("sent"));
    let lines = github.lines();
    let count = |line: &str| lines.iter().filter(|it| it.as_str() == line).count();
    assert_eq!(count("POST /base/repos/acme/fleet/deployments"), 1, "{lines:#?}");
    let statuses = format!("POST /base/repos/acme/fleet/statuses/{SHA}");
    assert_eq!(count(&statuses), if loses == 1 { 2 } else { 1 }, "{lines:#?}");
    assert_eq!(lines.last().map(String::as_str), Some("POST /base/repos/acme/fleet/deployments/7/statuses"));
    assert!(github.asked(0).head.contains("authorization: bearer token"));
    let question = format!("sha={SHA}&environment=payments-wave-1&per_page=1");
    assert_eq!(
        count(&format!("GET /base/repos/acme/fleet/deployments?{question}")),
        if loses == 0 || loses == 1 { 1 } else { 2 }
    );
}

#[tokio::test]
async fn a_rollout_has_a_deployment_of_its_own_beside_that_of_its_package() {
    let (github, file) = (github(0).await, secret_file("token"));
    let fields = format!(
        "to: github, namespaces: [fleet], repository: acme/fleet, tokenFile: \"{}\"",
        file.path().display()
    );
    let (name, about) = ("payments".to_owned(), About::FleetRollout);
    let message = Message { about, name, ..message(Outcome::Succeeded, 1) };
    assert_eq!(github.tell(&fields, &message).await, Some("sent"));
    assert_eq!(github.asked(0).body["context"], "statusbridge/fleet/payments/rollout");
    assert!(github.lines()[1].contains("environment=payments%2Frollout&"), "{:?}", github.lines());
}

#[rstest]
#[case::it_sets_off(Outcome::Started, json!([]), "POST", "running")]
#[case::it_goes_on(Outcome::Succeeded, json!([{"id": 5, "sha": SHA, "status": "running"}]), "PUT", "success")]
#[case::it_fails(Outcome::Failed, json!([{"id": 5, "sha": SHA, "status": "running"}]), "PUT", "failed")]
#[tokio::test]
async fn gitlab_gets_a_deployment_that_goes_on(
    #[case] outcome: Outcome,
    #[case] known: Value,
    #[case] method: &str,
    #[case] status: &str,
) {
    let gitlab = Receiver::start(move |asked| match asked.last().unwrap().line.starts_with("GET") {
        true => Does::Answers(200, "", known.clone()),
        false => Does::Answers(201, "", json!({"id": 5})),
    })
    .await;
    let file = secret_file("token");
    let fields = format!(
        "to: gitlab, namespaces: [fleet], repository: acme/sub/fleet, tokenFile: \"{}\", environment: production",
        file.path().display()
    );
    assert_eq!(gitlab.tell(&fields, &message(outcome, 1)).await, Some("sent"));
    let lines = gitlab.lines();
    let project = "/base/projects/acme%2Fsub%2Ffleet";
    assert_eq!(lines[0], format!("POST {project}/statuses/{SHA}"));
    assert!(
        lines[1].starts_with(&format!("GET {project}/deployments?environment=production&")),
        "{lines:#?}"
    );
    assert!(lines[2].starts_with(&format!("{method} {project}/deployments")), "{lines:#?}");
    assert_eq!(gitlab.asked(2).body["status"], status);
}

#[tokio::test]
async fn a_forge_is_told_nothing_of_a_revision_without_a_commit() {
    let forge = Receiver::start(|_| ok()).await;
    let file = secret_file("token");
    let fields = format!(
        "to: github, namespaces: [fleet], repository: acme/fleet, tokenFile: \"{}\"",
        file.path().display()
    );
    let message = Message { commit: None, ..message(Outcome::Succeeded, 1) };
    assert_eq!(forge.tell(&fields, &message).await, Some("skipped"));
    assert_eq!(forge.lines(), Vec::<String>::new());
}
