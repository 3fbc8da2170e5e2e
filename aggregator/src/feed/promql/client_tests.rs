//! The client against literal bytes on a socket: what no well-behaved server can be made to say.

use std::time::Duration;

use rstest::rstest;
use statusbridge_core::sample::{Labels, Sample, Sink};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{Credentials, FeedConfig, FeedError, PromFeed, QueryApi as _};

struct Count(usize);

impl Sink for Count {
    fn series(&mut self, _: &Labels, _: &[Sample]) {
        self.0 += 1;
    }
}

const EMPTY: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;

const REFUSED: &str = r#"{"status":"error","errorType":"execution","error":"too many..."}"#;

fn http_date(offset: i64) -> String {
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(offset);
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&at).unwrap()
}

/// Answers one request with these bytes; the request's text comes back.
async fn serve_once(answer: Vec<u8>, hold_open: bool) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/prometheus?tenant=a", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !String::from_utf8_lossy(&request).contains("timeout=") {
            let mut part = [0; 4096];
            let n = socket.read(&mut part).await.unwrap();
            request.extend_from_slice(&part[..n]);
        }
        socket.write_all(&answer).await.unwrap();
        if hold_open {
            std::future::pending::<()>().await;
        }
        String::from_utf8(request).unwrap()
    });
    (url, server)
}

fn feed(url: &str) -> PromFeed {
    feed_of(FeedConfig::new(url))
}

fn feed_of(config: FeedConfig) -> PromFeed {
    let _ = rustls::crypto::ring::default_provider().install_default();
    PromFeed::new(config).unwrap()
}

fn answer(status: &str, date: &str, length: usize, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nDate: {date}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

#[rstest]
#[case::half_a_body("200 OK", 0, EMPTY.len(), &EMPTY[..20], "truncated")]
#[case::longer_than_it_says("200 OK", 0, 20, EMPTY, "truncated")]
#[case::server_error("500 Internal Server Error", 0, 4, "oops", "http")]
#[case::refused(
    "422 Unprocessable Entity",
    0, REFUSED.len(), REFUSED,
    "api"
)]
#[case::moved("302 Found", 0, 0, "", "http")]
#[case::no_content("204 No Content", 0, 0, "", "http")]
#[case::their_clock_lags("200 OK", -60, EMPTY.len(), EMPTY, "clock")]
#[case::their_clock_is_ahead("200 OK", 60, EMPTY.len(), EMPTY, "clock")]
#[tokio::test]
async fn faults_are_told_apart(
    #[case] status: &str,
    #[case] clock: i64,
    #[case] length: usize,
    #[case] body: &str,
    #[case] kind: &str,
) {
    let (url, _server) = serve_once(answer(status, &http_date(clock), length, body), false).await;
    let error = feed(&url).query("up", 1.0, Count(0)).await.err().unwrap();
    assert_eq!(error.kind(), kind, "{error}");
}

#[tokio::test]
async fn a_backend_that_says_nothing_more_times_out() {
    let (url, server) = serve_once(answer("200 OK", &http_date(0), EMPTY.len(), &EMPTY[..20]), true).await;
    let mut config = FeedConfig::new(&url);
    config.timeout = Duration::from_millis(300);
    let error = feed_of(config).query("up", 1.0, Count(0)).await.err().unwrap();
    assert_eq!(error, FeedError::Timeout { seconds: 0.3 });
    server.abort();
}

#[tokio::test]
async fn nobody_there_is_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    assert_eq!(feed(&url).query("up", 1.0, Count(0)).await.err().unwrap().kind(), "connect");
}

#[tokio::test]
async fn a_query_says_what_when_and_that_partial_answers_are_no_answers() {
    let (url, server) = serve_once(answer("200 OK", &http_date(0), EMPTY.len(), EMPTY), false).await;
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "secret\n").unwrap();
    let mut config = FeedConfig::new(&url);
    config.headers = vec![("X-Scope-OrgID".into(), "team".into())];
    config.credentials = Credentials::BearerTokenFile(token.path().into());
    let sink = feed_of(config).query("up{a=\"b\"}", 1_700_000_000.5, Count(0)).await.unwrap();
    assert_eq!(sink.0, 0);
    let request = server.await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /prometheus/api/v1/query?tenant=a HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("x-scope-orgid: team") && head.contains("authorization: Bearer secret"), "{head}");
    assert_eq!(
        body,
        "query=up%7Ba%3D%22b%22%7D&time=1700000000.500&timeout=30000ms\
         &partial_response=false&dedup=false&deny_partial_response=1&nocache=1"
    );
}
