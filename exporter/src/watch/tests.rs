//! A watch and an API server that refuses it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{Client, Config};
use rstest::rstest;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::{Change, Contact, Discovery, Event, Watcher, WatcherSettings};
use crate::{
    clock::Clock,
    source::{KindRef, Projection},
};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Stream,
    List,
    Watch,
}

/// What the next request of this sort is answered; those that are left out are answered as they should be.
type Answer = (Request, u16, &'static str);

const KINDS: &str = r#"{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "test.dev/v1", "resources": [
    {"name": "packages", "singularName": "package", "namespaced": true, "kind": "Package", "verbs": ["list", "watch"]}]}"#;
const PAGE: &str = r#"{"kind": "PackageList", "apiVersion": "test.dev/v1", "metadata": {"resourceVersion": "7"}, "items": []}"#;
const END_OF_LIST: &str = r#"{"type": "BOOKMARK", "object": {"kind": "Package", "metadata": {"resourceVersion": "7",
    "annotations": {"k8s.io/initial-events-end": "true"}}}}"#;
const NO_PROGRESS: &str =
    r#"{"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "no progress"}}"#;
const EXPIRED: &str = r#"{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}"#;
const REFUSED: &str = r#"{"kind": "Status", "message": "sendInitialEvents is forbidden"}"#;

/// Watches at a server with this script; gives what was asked for until `enough` of it was.
async fn asked(script: &[Answer], enough: usize) -> Vec<Request> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    let client = Client::try_from(config).unwrap();
    let ((updates, mut heard), clock) = (mpsc::channel(64), Arc::new(Clock::default()));
    let settings = WatcherSettings {
        discovery: Arc::new(Discovery::new(client.clone())),
        metrics: Arc::default(),
        life: Duration::from_secs(10),
        idle: Duration::from_secs(15),
        look: Duration::from_millis(700),
        updates,
        client,
        clock,
    };
    let kind = KindRef {
        group: "test.dev".to_owned(),
        kind: "Package".to_owned(),
        versions: vec!["v1".to_owned()],
        resource: None,
        selector: None,
    };
    let watcher = Watcher::new(settings, 0, kind, Projection::of_object(), Contact::default());
    let watching = tokio::spawn(watcher.run());
    let script = Mutex::new(script.iter().copied().collect::<VecDeque<_>>());
    let mut asked = Vec::new();
    let mut lists = 0;
    while asked.len() < enough {
        tokio::select! {
            connection = listener.accept() => asked.extend(answer(connection.unwrap().0, &script).await),
            Some(Event::Heard(update)) = heard.recv() => lists += usize::from(matches!(update.change, Change::ListDone)),
        }
    }
    watching.abort();
    assert!(lists > 0, "no list came to its end");
    asked
}

/// Answers one request; gives what it asked for, unless it was about kinds or versions.
async fn answer(connection: TcpStream, script: &Mutex<VecDeque<Answer>>) -> Option<Request> {
    let mut connection = BufReader::new(connection);
    let (mut first, mut line) = (String::new(), String::new());
    connection.read_line(&mut first).await.unwrap();
    while connection.read_line(&mut line).await.unwrap() > 2 {
        line.clear();
    }
    let (asked, usual) = match first.split(' ').nth(1).unwrap() {
        path if path.contains("sendInitialEvents=true") => (Some(Request::Stream), END_OF_LIST),
        path if path.contains("watch=1") => (Some(Request::Watch), ""),
        path if path.contains("limit=500") => (Some(Request::List), PAGE),
        path if path.contains("limit=1") => (None, PAGE),
        _ => (None, KINDS),
    };
    let next = {
        let mut script = script.lock().unwrap();
        if script.front().is_some_and(|(request, ..)| Some(*request) == asked) {
            script.pop_front()
        } else {
            None
        }
    };
    let (status, body) = next.map_or((200, usual), |(_, status, body)| (status, body));
    let body = if asked == Some(Request::List) || asked.is_none() {
        body.to_owned()
    } else {
        body.replace('\n', " ") + "\n"
    };
    let head = format!("HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\nconnection: close\r\n");
    let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    connection.get_mut().write_all(answer.as_bytes()).await.unwrap();
    asked
}

use Request::{List, Stream, Watch};

#[rstest]
#[case::a_server_that_does_not_know_them(400, REFUSED)]
#[case::one_that_has_them_turned_off(422, REFUSED)]
#[case::one_in_trouble(500, REFUSED)]
#[case::one_with_an_old_etcd(200, NO_PROGRESS)]
#[tokio::test]
async fn a_streaming_list_that_is_refused_is_asked_for_again_at_the_next_list(
    #[case] status: u16,
    #[case] said: &'static str,
) {
    let script =
        [(Stream, status, said), (Watch, 200, EXPIRED), (Stream, status, said), (Watch, 200, EXPIRED)];
    assert_eq!(asked(&script, 7).await, [Stream, List, Watch, Stream, List, Watch, Stream]);
}

#[tokio::test]
async fn a_plain_list_that_fails_is_asked_for_again_and_no_streaming_one_in_between() {
    let script = [(Stream, 422, REFUSED), (List, 500, REFUSED), (List, 500, REFUSED), (Watch, 200, EXPIRED)];
    assert_eq!(asked(&script, 6).await, [Stream, List, List, List, Watch, Stream]);
}

#[tokio::test]
async fn a_version_that_a_server_refuses_for_good_gives_way_to_a_list() {
    let script: Vec<Answer> = (0..9).map(|_| (Watch, 400, REFUSED)).collect();
    let asked = asked(&script, 9).await;
    let again = asked.iter().skip(1).position(|request| *request == Stream);
    assert!(
        asked.first() == Some(&Stream) && again.is_some_and(|at| at >= 2),
        "{asked:?}: not at once, and not never"
    );
}
