//! One scrape over HTTP.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::{StatusCode, Url, header};
use statusbridge_core::sample::excerpt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure::Failure;
use super::settings::{Target, check_url};
use crate::feed::tls::{Connector, TlsFiles, chain, client_builder};

/// How much of a refusal is looked at, in bytes.
const REFUSAL: usize = 16 << 10;
/// How much of a refusal is shown, in bytes.
const EXCERPT: usize = 200;

/// Clients by what they trust and show, and by the host that they reach by another name, if they do.
#[derive(Debug, Default)]
pub(super) struct Clients(HashMap<(TlsFiles, Option<String>), Arc<Connector>>);

/// How a target is asked.
#[derive(Debug)]
pub(super) struct Way {
    connector: Arc<Connector>,
    url: Url,
    /// The host that the question is for, where the URL has another name.
    host: Option<HeaderValue>,
}

impl Clients {
    /// How to ask a target.
    ///
    /// # Errors
    /// Where it must not be asked: a ClusterProfile must not bring about that a token is sent in the clear.
    pub(super) fn way(&mut self, target: &Target) -> Result<Way, Failure> {
        let url = check_url(&target.url).map_err(|error| Failure::plain(format!("{error:#}")))?;
        if target.bearer_token_file.is_some() && url.scheme() != "https" {
            return Err(Failure::plain("a bearer token is sent over https only"));
        }
        let (named, host) = target.tls.address(&url).map_err(Failure::plain)?;
        let new = || Arc::new(Connector::new(&target.tls, &url, Box::new(client_builder)));
        let connector = self.0.entry((target.tls.clone(), other_host(target))).or_insert_with(new).clone();
        Ok(Way { connector, url: named, host })
    }

    /// Forgets hosts that are not among these targets.
    pub(super) fn keep(&mut self, targets: &[Target]) {
        let hosts: BTreeSet<_> = targets.iter().map(other_host).collect();
        self.0.retain(|(_, host), _| host.is_none() || hosts.contains(host));
    }
}

/// The host of a target that is reached by another name.
fn other_host(target: &Target) -> Option<String> {
    target.tls.server_name.as_ref()?;
    check_url(&target.url).ok()?.host_str().map(str::to_owned)
}

/// An exposition beyond so many bytes is a large one.
pub(super) const SMALL: usize = 1 << 20;

/// The exposition of one exporter, unpacked, and its place among large ones if it is one: there is memory for it as long
/// as it has that.
///
/// # Errors
/// When it is not got as a whole, or has to wait for its place for longer than `timeout`.
pub(super) async fn fetch(
    way: &Way,
    target: &Target,
    timeout: Duration,
    max_bytes: usize,
    large: &Arc<Semaphore>,
) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), Failure> {
    let request = async {
        let client = way.connector.client().await;
        let client = client.map_err(|error| Failure::new("its TLS files cannot be used", error))?;
        let mut request =
            client.get(way.url.clone()).header(header::ACCEPT, "text/plain;version=0.0.4").timeout(timeout);
        if let Some(host) = &way.host {
            request = request.header(header::HOST, host);
        }
        if let Some(file) = &target.bearer_token_file {
            let token = tokio::fs::read_to_string(file).await;
            let unread = |error| {
                Failure::new("its bearer token cannot be read", format!("{}: {error}", file.display()))
            };
            let token = token.map_err(unread)?;
            request = request.bearer_auth(token.trim());
        }
        Ok(request)
    };
    let unread =
        |_| Failure::plain("its TLS files and its bearer token could not be read in time".to_owned());
    let request = tokio::time::timeout(timeout, request).await.map_err(unread)??;
    let told = |error: reqwest::Error| {
        if error.is_timeout() {
            return Failure::plain(format!("no whole answer within {} s", timeout.as_secs_f64()));
        }
        // The URL is told anyway.
        let error = error.without_url();
        Failure::of(&error, chain(&error))
    };
    let mut response = request.send().await.map_err(told)?;
    let status = response.status();
    let (mut body, mut place) = (Vec::new(), None);
    while let Some(chunk) = response.chunk().await.map_err(told)? {
        if body.len() + chunk.len() > max_bytes {
            return Err(Failure::plain(format!("it is larger than maxBytes ({max_bytes})")));
        }
        if body.len() + chunk.len() > SMALL && place.is_none() {
            let Ok(Ok(taken)) = tokio::time::timeout(timeout, large.clone().acquire_owned()).await else {
                return Err(Failure::plain(
                    "other exporters' large expositions took all the time".to_owned(),
                ));
            };
            place = Some(taken);
        }
        body.extend_from_slice(&chunk);
    }
    match status {
        StatusCode::OK => Ok((body, place)),
        _ => {
            let brief = format!("HTTP {}", status.as_u16());
            body.truncate(REFUSAL);
            let said = target.url.without_query(&String::from_utf8_lossy(&body));
            let text = format!("{brief}: {}", excerpt(&said, EXCERPT));
            Err(Failure::new(brief, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use flate2::{Compression, write::GzEncoder};
    use rstest::rstest;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const MAX: usize = 10_000;

    fn http(status: &str, headers: &str, length: usize, body: &[u8]) -> Vec<u8> {
        let head =
            format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n");
        [head.as_bytes(), body].concat()
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// What comes of a scrape that is answered like this; without an answer the server hangs.
    async fn scrape(answer: Option<Vec<u8>>, token: Option<PathBuf>) -> (Result<Vec<u8>, Failure>, String) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target {
            cluster: "c".into(),
            url: format!("http://{}/metrics", server.local_addr().unwrap()).into(),
            bearer_token_file: token,
            tls: TlsFiles::default(),
            number: 0,
        };
        let server = tokio::spawn(async move {
            let (mut connection, _) = server.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let read = connection.read(&mut request).await.unwrap();
            match answer {
                Some(answer) => drop(connection.write_all(&answer).await),
                None => std::future::pending().await,
            }
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        // A token is sent over https only, which is not what this is about.
        let way = Clients::default().way(&Target { bearer_token_file: None, ..target.clone() });
        let large = Arc::new(Semaphore::new(1));
        let way = match way {
            Ok(way) => way,
            Err(failure) => return (Err(failure), String::new()),
        };
        let found = fetch(&way, &target, Duration::from_millis(500), MAX, &large).await;
        let found = found.map(|(body, _)| body);
        let asked = match found {
            Ok(_) => server.await.unwrap(),
            Err(_) => String::new(),
        };
        (found, asked)
    }

    #[tokio::test]
    async fn what_is_answered_comes_unpacked_and_the_token_is_read_each_time() {
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), "secret\n").unwrap();
        let answer = http("200 OK", "", 4, b"a 1\n");
        let (found, asked) = scrape(Some(answer), Some(token.path().to_owned())).await;
        assert_eq!(found.unwrap(), b"a 1\n");
        assert!(asked.starts_with("GET /metrics HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("authorization: Bearer secret\r\n"), "{asked}");
        assert!(asked.contains("accept-encoding: gzip\r\n"), "{asked}");
        let body = packed(b"a 1\n");
        let answer = http("200 OK", "content-encoding: gzip\r\n", body.len(), &body);
        assert_eq!(scrape(Some(answer), None).await.0.unwrap(), b"a 1\n");
    }

    #[rstest]
    #[case::refused(Some(http("503 Service Unavailable", "", 8, b"not yet\n")), "HTTP 503: not yet")]
    #[case::sent_elsewhere(Some(http("302 Found", "location: http://127.0.0.1/\r\n", 0, b"")), "HTTP 302")]
    #[case::cut_off(Some(http("200 OK", "", 100, b"a 1\n")), "")]
    #[case::no_gzip(Some(http("200 OK", "content-encoding: gzip\r\n", 4, b"a 1\n")), "")]
    #[case::too_large(Some(http("200 OK", "", MAX + 1, &[b'#'; MAX + 1])), "larger than maxBytes (10000)")]
    #[case::nothing(None, "no whole answer within 0.5 s")]
    #[tokio::test]
    async fn what_is_not_the_whole_is_nothing(#[case] answer: Option<Vec<u8>>, #[case] expected: &str) {
        let error = scrape(answer, None).await.0.unwrap_err().text;
        assert!(error.contains(expected), "{error}");
    }

    #[tokio::test]
    async fn what_unpacks_to_too_much_is_refused() {
        let bomb = packed(&vec![b'#'; 1000 * MAX]);
        assert!(bomb.len() < 10 * MAX);
        let answer = http("200 OK", "content-encoding: gzip\r\n", bomb.len(), &bomb);
        let error = scrape(Some(answer), None).await.0.unwrap_err().text;
        assert!(error.contains("larger than maxBytes"), "{error}");
    }

    #[tokio::test]
    async fn a_large_exposition_waits_for_its_place_and_a_small_one_does_not() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        for (bytes, waits) in [(SMALL, false), (SMALL + 1, true)] {
            let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let target = Target {
                cluster: "c".into(),
                url: format!("http://{}/metrics", server.local_addr().unwrap()).into(),
                bearer_token_file: None,
                tls: TlsFiles::default(),
                number: 0,
            };
            let answer = http("200 OK", "", bytes, &vec![b'#'; bytes]);
            tokio::spawn(async move {
                let (mut connection, _) = server.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let _read = connection.read(&mut request).await.unwrap();
                let _ = connection.write_all(&answer).await;
                std::future::pending::<()>().await;
            });
            let way = Clients::default().way(&target);
            let large = Arc::new(Semaphore::new(1));
            let taken = large.clone().acquire_owned().await.unwrap();
            let found = fetch(&way.unwrap(), &target, Duration::from_secs(1), 2 * SMALL, &large).await;
            let said = found.map(|(body, _)| body.len()).map_err(|failure| failure.text);
            let expected = if waits { Err("large expositions took all the time") } else { Ok(bytes) };
            match (said, expected) {
                (Ok(length), Ok(bytes)) => assert_eq!(length, bytes),
                (Err(text), Err(words)) => assert!(text.contains(words), "{text}"),
                (said, _) => panic!("{bytes} bytes: {said:?}"),
            }
            drop(taken);
        }
    }
}
