//! The aggregator's HTTP API. Only GET is ever sent.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Url};
use serde_json::Value;
use statusbridge_core::time::Seconds;
use tokio::io::AsyncReadExt;

use super::bound::quoted;
use crate::hub;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest answer that is read, in bytes.
const MOST_ANSWER: usize = 64 << 20;
/// Longest query that is sent, in bytes.
const MOST_QUERY: usize = 16 << 10;
/// Longest file of a token or of certificates, in bytes.
const MOST_FILE: u64 = 1 << 20;

/// How to reach the aggregator.
#[derive(Debug, Clone, Args)]
pub(super) struct ApiArgs {
    /// Address of the aggregator, which must run with --serve-fleet
    #[arg(long, value_name = "URL", value_parser = server)]
    server: Url,
    /// File with the bearer token that the aggregator asks for; it is read again for every question
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with certificate authorities to trust besides the system's; it is read again for every question
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// The API, as the bearer of the token may see it.
#[derive(Debug)]
pub(super) struct Api(ApiArgs);

/// What the aggregator answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
    /// When it did so, by its own clock.
    pub(super) now: Seconds,
}

fn server(text: &str) -> Result<Url, String> {
    let url =
        Url::parse(text).map_err(|error| format!("{error}: it has to begin with https:// or http://"))?;
    if !["http", "https"].contains(&url.scheme()) || !url.has_host() {
        return Err("it has to begin with https:// or http://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "it must have no user and no password: the aggregator takes a token, see --token-file".to_owned()
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it must have no query and no fragment".to_owned());
    }
    Ok(url)
}

fn is_on_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Api {
    /// Nothing is sent or read yet.
    ///
    /// # Errors
    /// When the token would cross a network that others can read.
    pub(super) fn new(args: ApiArgs) -> Result<Self, String> {
        let url = &args.server;
        if args.token_file.is_some() && url.scheme() == "http" && !is_on_this_machine(url) {
            let host = url.host_str().unwrap_or_default();
            return Err(format!(
                "--token-file needs https: http would show the token to everybody on the way to {host}"
            ));
        }
        Ok(Self(args))
    }

    /// What the aggregator says about a path below `/v1alpha1/`, whatever the status.
    ///
    /// # Errors
    /// In words for the client, when there is no answer in JSON.
    pub(super) async fn ask(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Answer, String> {
        let url = self.address(path, query)?;
        let address = self.0.server.as_str();
        let mut request = self.client().await?.get(url);
        if let Some(file) = &self.0.token_file {
            request = request.bearer_auth(token(file).await?);
        }
        let unreachable = |error: reqwest::Error| {
            let error = chain(&error.without_url());
            format!(
                "the aggregator at {address} cannot be asked: {error}. Is it running, and is --server its address?"
            )
        };
        let mut answer = request.send().await.map_err(unreachable)?;
        let (status, now) = (answer.status(), hub::time(answer.headers()));
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
            body.extend_from_slice(&chunk);
            if body.len() > MOST_ANSWER {
                return Err(format!("the answer has more than {} MiB: name a namespace", MOST_ANSWER >> 20));
            }
        }
        match serde_json::from_slice(&body) {
            Ok(body) => Ok(Answer { status: status.as_u16(), body, now }),
            Err(_) if status == StatusCode::NOT_FOUND => Err(format!(
                "there is no fleet API at {address}: the aggregator has to run with --serve-fleet, and --server has to \
                 be its address"
            )),
            Err(_) => Err(format!(
                "{address} answered {status}, and no JSON: --server has to be the address of the aggregator"
            )),
        }
    }

    /// The same, when the aggregator answers as it is asked.
    ///
    /// # Errors
    /// In words for the client, that say what to do.
    pub(super) async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Answer, String> {
        let answer = self.ask(path, query).await?;
        if answer.status == 200 { Ok(answer) } else { Err(self.refusal(&answer)) }
    }

    /// Why the aggregator did not answer as it was asked, and what to do about it.
    pub(super) fn refusal(&self, answer: &Answer) -> String {
        let said = quoted(answer.body.get("message").and_then(Value::as_str).unwrap_or("nothing more"));
        match (answer.status, &self.0.token_file) {
            (400, _) => {
                format!("the aggregator does not understand the question: {said}. Change the arguments")
            }
            (401, None) => {
                "the aggregator asks for a token: start `statusbridge mcp` with --token-file FILE".to_owned()
            }
            (401, Some(file)) => format!(
                "the aggregator does not accept the token in {}: write one into it that has not expired. The file is \
                 read again for every question",
                file.display()
            ),
            (403, _) => format!(
                "the aggregator refuses: {said}. Name a namespace that the token may read; \
                 `kubectl auth can-i list fleetpackages -n NAMESPACE` tells which"
            ),
            (404, _) => format!("not found: {said}. fleet_status lists what there is"),
            (503, _) => format!("the aggregator cannot answer now: {said}. Ask again in some seconds"),
            (status, _) => format!("the aggregator answered with HTTP status {status}: {said}"),
        }
    }

    fn address(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Url, String> {
        let mut url = self.0.server.clone();
        url.path_segments_mut()
            .map_err(|()| "--server is no address")?
            .pop_if_empty()
            .push("v1alpha1")
            .extend(path);
        // Spaces must not become plus signs, which stand for themselves in this API.
        let pair =
            |(name, value): &(&str, &str)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
        let query = query.iter().map(pair).collect::<Vec<_>>().join("&");
        if query.len() > MOST_QUERY {
            return Err(format!(
                "the arguments have more than {MOST_QUERY} bytes: name fewer clusters, or a selector"
            ));
        }
        url.set_query(Some(query.as_str()).filter(|query| !query.is_empty()));
        Ok(url)
    }

    async fn client(&self) -> Result<Client, String> {
        let mut client = Client::builder()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .user_agent(concat!("statusbridge/", env!("CARGO_PKG_VERSION")));
        if is_on_this_machine(&self.0.server) {
            // A proxy would be another machine.
            client = client.no_proxy();
        }
        if let Some(file) = &self.0.ca_file {
            let error = |error: reqwest::Error| format!("--ca-file {}: {}", file.display(), chain(&error));
            let bundle = Certificate::from_pem_bundle(&read("--ca-file", file).await?).map_err(error)?;
            if bundle.is_empty() {
                return Err(format!("--ca-file {}: there is no certificate in it", file.display()));
            }
            client = client.tls_certs_merge(bundle);
        }
        client.build().map_err(|error| chain(&error))
    }
}

async fn read(flag: &str, file: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let read = async { tokio::fs::File::open(file).await?.take(MOST_FILE).read_to_end(&mut text).await };
    read.await.map_err(|error| format!("{flag} {}: {error}", file.display()))?;
    Ok(text)
}

/// What is wrong with a token is told without it.
async fn token(file: &Path) -> Result<String, String> {
    let text = read("--token-file", file).await?;
    let token = text.trim_ascii();
    match std::str::from_utf8(token) {
        Ok(token) if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(token.to_owned())
        }
        _ => Err(format!("--token-file {}: one token is expected in it, and nothing else", file.display())),
    }
}

/// An error with its causes; reqwest's own message leaves them out.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn api(server: &str, token_file: Option<&str>) -> Result<Api, String> {
        let server = super::server(server)?;
        Api::new(ApiArgs { server, token_file: token_file.map(PathBuf::from), ca_file: None })
    }

    #[rstest]
    #[case::https("https://hub.example.org", "t", None)]
    #[case::own_machine("http://127.0.0.1:8080", "t", None)]
    #[case::own_machine_v6("http://[::1]:8080", "t", None)]
    #[case::own_machine_by_name("http://localhost:8080", "t", None)]
    #[case::token_in_the_open("http://10.0.0.1:8080", "t", Some("needs https"))]
    #[case::no_token("http://10.0.0.1:8080", "", None)]
    #[case::no_scheme("hub:8080", "", Some("has to begin with https://"))]
    #[case::nothing_like_it("hub", "", Some("has to begin with https://"))]
    #[case::user("https://me:secret@hub", "", Some("no user and no password"))]
    #[case::query("https://hub/?a=b", "", Some("no query"))]
    fn servers(#[case] server: &str, #[case] token: &str, #[case] wrong: Option<&str>) {
        let made = api(server, Some(token).filter(|token| !token.is_empty()));
        match (made, wrong) {
            (Ok(_), None) => {}
            (Err(error), Some(part)) => assert!(error.contains(part) && !error.contains("secret"), "{error}"),
            (made, _) => panic!("{made:?}"),
        }
    }

    #[test]
    fn values_of_a_question_are_encoded_and_bounded() {
        let api = api("https://hub/base/", None).unwrap();
        let url = api.address(&["packages", "a b", "x/y"], &[("revision", "v1+b 2&c=d")]).unwrap();
        assert_eq!(
            url.as_str(),
            "https://hub/base/v1alpha1/packages/a%20b/x%2Fy?revision=v1%2Bb%202%26c%3Dd"
        );
        assert!(api.address(&["verdict"], &[("clusters", &"c".repeat(MOST_QUERY))]).is_err());
    }

    #[rstest]
    #[case(400, None, "does not understand the question: \"why\"")]
    #[case(401, None, "--token-file FILE")]
    #[case(401, Some("/t"), "does not accept the token in /t")]
    #[case(403, None, "\"why\". Name a namespace")]
    #[case(404, None, "fleet_status lists")]
    #[case(503, None, "Ask again")]
    #[case(500, None, "HTTP status 500: \"why\"")]
    fn a_refusal_says_what_to_do(#[case] status: u16, #[case] token: Option<&str>, #[case] part: &str) {
        let answer =
            Answer { status, body: json!({"open": false, "reason": "x", "message": "why"}), now: 0.0 };
        let refusal = api("https://hub", token).unwrap().refusal(&answer);
        assert!(refusal.contains(part), "{refusal}");
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_token_is_told_without_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in ["", "s3cret two", "s3cret\nline", "s3crét"] {
            std::fs::write(file.path(), text).unwrap();
            let error = token(file.path()).await.unwrap_err();
            assert!(error.contains("one token is expected") && !error.contains("s3cr"), "{error}");
        }
        std::fs::write(file.path(), " s3cret\n").unwrap();
        assert_eq!(token(file.path()).await.as_deref(), Ok("s3cret"));
    }
}
