//! Pushes what `/metrics` says to an aggregator that cannot come for it.
//!
//! ```text
//!   interval, or a state that changed ──> the newest exposition ──POST, gzip──> aggregator
//!                         failed: a pause that grows, then the newest again ──┘
//! ```
//!
//! Nothing is ever queued: what could not be sent is out of date by the next try.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use reqwest::{Certificate, Client, StatusCode, Url, header};
use statusbridge_serving::{address::Address, format::Format};
use tracing::{info, warn};

use super::{duration::duration, http::ServerState};
use crate::metrics::OwnMetrics;

/// Header by which exporters of one cluster tell themselves apart.
const INSTANCE: &str = "statusbridge-instance";
/// Time between looks at whether something has changed; also the least between two pushes.
const LOOK: Duration = Duration::from_millis(500);
/// Longest time for one push.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The first pause after a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after failures, unless the interval is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// By this part of itself a pause may be shorter, so that not all come at the same time.
const JITTER: f64 = 0.2;
/// How much of a refusal is read, in bytes.
const REFUSAL: usize = 16 << 10;
/// How much of a refusal is told, in bytes.
const EXCERPT: usize = 300;

/// Where to push to, and how often.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PushArgs {
    /// Push to an aggregator: the URL of its endpoint, as https://hub:8443/v1alpha1/push.
    /// /metrics goes on being served.
    #[arg(long, value_name = "URL", requires = "push_token_file")]
    pub push_url: Option<Address>,
    /// File with the bearer token that stands for this cluster; read again for every push.
    #[arg(long, value_name = "FILE", requires = "push_url")]
    pub push_token_file: Option<PathBuf>,
    /// PEM file with certificate authorities to trust for it besides the system's; read again when a
    /// push has failed.
    #[arg(long, value_name = "FILE", requires = "push_url")]
    pub push_ca_file: Option<PathBuf>,
    /// Time between pushes while nothing changes; what changes is pushed within a second.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration, requires = "push_url")]
    pub push_interval: Option<Duration>,
    /// Name of this process, which tells it from others in the same cluster.
    #[arg(long, env = "HOSTNAME", default_value = "", hide = true)]
    pub push_instance: String,
}

impl PushArgs {
    /// Who pushes, if anybody is to.
    ///
    /// # Errors
    /// When the flags or files cannot be used.
    pub fn pusher(&self) -> anyhow::Result<Option<Pusher>> {
        let (Some(url), Some(token_file)) = (&self.push_url, &self.push_token_file) else { return Ok(None) };
        let (address, url) = (url, url.url::<Url>().map_err(anyhow::Error::msg).context("--push-url")?);
        ensure!(matches!(url.scheme(), "http" | "https"), "--push-url {address} is neither http nor https");
        let names_somebody = !url.username().is_empty() || url.password().is_some();
        ensure!(!names_somebody, "--push-url has a user or a password: --push-token-file says who pushes");
        if url.scheme() == "http" {
            warn!("the token is pushed without TLS: whoever listens on the way can use it");
        }
        let pusher = Pusher {
            client: client(self.push_ca_file.as_ref())?,
            ca_file: self.push_ca_file.clone(),
            address: address.clone(),
            url,
            token_file: token_file.clone(),
            interval: self.push_interval.unwrap_or(Duration::from_secs(15)),
            instance: self.push_instance.chars().filter(char::is_ascii_graphic).take(128).collect(),
        };
        Ok(Some(pusher))
    }
}

/// Pushes until it is stopped.
#[derive(Debug)]
pub struct Pusher {
    client: Client,
    address: Address,
    url: Url,
    token_file: PathBuf,
    ca_file: Option<PathBuf>,
    interval: Duration,
    instance: String,
}

/// Why a push did not get through.
struct Failure {
    text: String,
    /// How long the other side asks to be left alone.
    retry_after: Option<Duration>,
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self { text, retry_after: None }
    }
}

impl Pusher {
    /// Pushes the exposition, for ever.
    pub(super) async fn run(mut self, state: Arc<ServerState>, metrics: Arc<OwnMetrics>) {
        let mut pace = Pace::new(self.interval, Instant::now());
        let mut told: Option<String> = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let digest = state.state_digest();
            if digest.is_none() || !pace.is_due(digest, Instant::now()) {
                continue;
            }
            let result = self.push(&state).await;
            metrics.pushed(result.is_ok());
            match &result {
                Ok(()) => {
                    if told.take().is_some() {
                        info!("pushes get through again");
                    }
                }
                Err(failure) => {
                    if told.as_ref() != Some(&failure.text) {
                        warn!(error = failure.text, "a push did not get through");
                        told = Some(failure.text.clone());
                    }
                    // Its authority may have changed.
                    if self.ca_file.is_some()
                        && let Ok(client) = client(self.ca_file.as_ref())
                    {
                        self.client = client;
                    }
                }
            }
            pace.pushed(
                digest,
                result.map_err(|failure| failure.retry_after),
                fastrand::f64(),
                Instant::now(),
            );
        }
    }

    async fn push(&self, state: &ServerState) -> Result<(), Failure> {
        let token = tokio::fs::read_to_string(&self.token_file).await;
        let token = token.map_err(|error| format!("{}: {error}", self.token_file.display()))?;
        let body: Vec<Bytes> = state.exposition(Format::Text)?.gzip().collect();
        let request = self
            .client
            .post(self.url.clone())
            .bearer_auth(token.trim())
            .header(header::CONTENT_TYPE, Format::Text.content_type())
            .header(header::CONTENT_ENCODING, "gzip")
            .header(INSTANCE, &self.instance)
            .body(body.concat());
        // An error's own message leaves out its causes, and names the address, which may hold secrets.
        let mut response = request
            .send()
            .await
            .map_err(|error| format!("{:#}", anyhow::Error::from(error.without_url())))?;
        let status = response.status();
        if status == StatusCode::NO_CONTENT || status == StatusCode::OK {
            return Ok(());
        }
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|it| it.to_str().ok()?.parse().ok());
        let retry_after = retry_after.map(|seconds| Duration::from_secs(seconds).min(LONGEST_PAUSE));
        let mut said = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            said.extend_from_slice(&chunk);
            if said.len() > REFUSAL {
                break;
            }
        }
        let mut said = self.address.without_query(&String::from_utf8_lossy(&said)).into_bytes();
        said.truncate(EXCERPT);
        let said = String::from_utf8_lossy(&said);
        Err(Failure { text: format!("HTTP {}: {}", status.as_u16(), said.trim()), retry_after })
    }
}

fn client(ca_file: Option<&PathBuf>) -> anyhow::Result<Client> {
    let mut builder = Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("statusbridge-exporter/", env!("CARGO_PKG_VERSION")));
    if let Some(file) = ca_file {
        let pem = std::fs::read(file).with_context(|| format!("--push-ca-file {}", file.display()))?;
        let bundle = Certificate::from_pem_bundle(&pem)
            .with_context(|| format!("--push-ca-file {}", file.display()))?;
        builder = builder.tls_certs_merge(bundle);
    }
    builder.build().context("cannot make a client to push with")
}

/// When to push.
#[derive(Debug)]
struct Pace {
    interval: Duration,
    /// The digest that last got through.
    sent: Option<u64>,
    failures: u32,
    /// When it is time even if nothing changes.
    next: Instant,
}

impl Pace {
    fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, sent: None, failures: 0, next: now }
    }

    /// Whether a push is due. What changes is worth one at once, unless the last one failed.
    fn is_due(&self, digest: Option<u64>, now: Instant) -> bool {
        now >= self.next || (self.failures == 0 && digest != self.sent)
    }

    /// A push got through, or did not, with how long the other side asks to be left alone.
    fn pushed(
        &mut self,
        digest: Option<u64>,
        result: Result<(), Option<Duration>>,
        chance: f64,
        now: Instant,
    ) {
        let pause = match result {
            Ok(()) => {
                (self.sent, self.failures) = (digest, 0);
                self.interval
            }
            Err(retry_after) => {
                let doubled = FIRST_PAUSE * 2_u32.saturating_pow(self.failures.min(10));
                self.failures = self.failures.saturating_add(1);
                let pause = retry_after.unwrap_or(doubled).min(LONGEST_PAUSE.max(self.interval));
                pause.mul_f64(1.0 - JITTER * chance)
            }
        };
        self.next = now + pause;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("hub?apikey=secret", "--push-url: url `hub?…`: relative URL without a base")]
    #[case("ftp://hub?apikey=secret", "--push-url ftp://hub?… is neither http nor https")]
    #[case(
        "http://user:secret@hub/?apikey=secret",
        "--push-url has a user or a password: --push-token-file says who pushes"
    )]
    fn a_url_that_cannot_be_used_is_refused_without_its_secrets(#[case] url: &str, #[case] refusal: &str) {
        let args = PushArgs {
            push_url: Some(url.into()),
            push_token_file: Some("token".into()),
            ..PushArgs::default()
        };
        assert_eq!(format!("{:#}", args.pusher().unwrap_err()), refusal);
    }

    #[test]
    fn changes_are_pushed_at_once_and_failures_are_left_alone_for_longer_and_longer() {
        let begin = Instant::now();
        let at = |seconds: f64| begin + Duration::from_secs_f64(seconds);
        let mut pace = Pace::new(Duration::from_secs(15), begin);
        assert!(pace.is_due(Some(1), at(0.0)));
        pace.pushed(Some(1), Ok(()), 0.5, at(0.0));
        assert!(!pace.is_due(Some(1), at(14.9)) && pace.is_due(Some(1), at(15.0)));
        assert!(pace.is_due(Some(2), at(0.5)));

        let mut now = 20.0;
        for pause in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            pace.pushed(Some(2), Err(None), 0.0, at(now));
            assert!(!pace.is_due(Some(3), at(now + pause - 0.1)), "{pause}");
            assert!(pace.is_due(Some(3), at(now + pause)), "{pause}");
            now += pause;
        }
        pace.pushed(Some(3), Ok(()), 0.0, at(now));
        assert!(!pace.is_due(Some(3), at(now + 1.0)) && pace.is_due(Some(4), at(now + 1.0)));

        pace.pushed(Some(4), Err(Some(Duration::from_secs(1))), 1.0, at(now));
        assert!(pace.is_due(Some(4), at(now + 0.8)) && !pace.is_due(Some(4), at(now + 0.7)));
    }

    #[test]
    fn an_interval_longer_than_every_pause_is_no_hurry() {
        let begin = Instant::now();
        let mut pace = Pace::new(Duration::from_secs(300), begin);
        (0..20).for_each(|_| pace.pushed(Some(1), Err(None), 0.0, begin));
        assert!(!pace.is_due(Some(1), begin + Duration::from_secs(299)));
    }
}
