//! The metrics backends that the configuration file names.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Deserializer, de};
use statusbridge_serving::address::Address;
use tracing::warn;

use super::fields::{FLAGS, duration};
use super::{Feed, push, query, scrape};
use crate::feed::promql::poll::{PollConfig, Poller};
use crate::feed::promql::{Credentials, Exporters, FeedConfig, Flavour, PromFeed, Trust};
use crate::feed::tls::TlsFiles;

/// Longest time that may be given for one query: a poll is several, and must end while it is of use.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest time that a backend may be asked behind the present.
const LONGEST_SETTLE: Duration = Duration::from_secs(600);

/// Backends with names that tell them apart.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(try_from = "Vec<Backend>")]
pub struct Backends(Vec<Backend>);

impl std::ops::Deref for Backends {
    type Target = [Backend];
    fn deref(&self) -> &[Backend] {
        &self.0
    }
}

impl TryFrom<Vec<Backend>> for Backends {
    type Error = String;

    fn try_from(backends: Vec<Backend>) -> Result<Self, String> {
        let mut names = BTreeSet::new();
        for (i, backend) in backends.iter().enumerate() {
            let field = |field: &str, error: &str| Err(format!("backends[{i}].{field}: {error}"));
            if !names.insert(&backend.name) {
                return field("name", &format!("`{}` is the name of another one too", backend.name));
            }
            if let Err((wrong, error)) = backend.check_name().and_then(|()| backend.check()) {
                return field(wrong, &error);
            }
        }
        Ok(Self(backends))
    }
}

/// One backend.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Backend {
    /// What it is called in messages, and what tells its streams from those of others.
    pub name: String,
    /// Base address of its query API.
    pub url: Address,
    /// What kind it is.
    #[serde(default, deserialize_with = "flavour")]
    pub flavour: Flavour,
    /// Headers sent with every query, such as a tenant's.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// File with a bearer token; read again for every query.
    pub bearer_token_file: Option<PathBuf>,
    /// User and password; not beside a bearer token.
    pub basic_auth: Option<BasicAuth>,
    /// Whom to trust, and with which certificate to come.
    #[serde(default)]
    pub tls: TlsFiles,
    /// Longest time for one query.
    #[serde(default = "timeout", deserialize_with = "duration")]
    pub timeout: Duration,
    /// Label that the metrics pipeline gives the cluster's name.
    #[serde(default = "cluster_label")]
    pub cluster_label: String,
    /// Labels that the metrics pipeline gives exporters and nobody else, as PromQL writes them: only such streams
    /// count; `all` lets every stream count, whoever says it.
    #[serde(deserialize_with = "trust")]
    pub trust: Trust,
    /// Labels that do not tell streams apart.
    #[serde(default)]
    pub ignore_labels: Vec<String>,
    /// How far behind the present it is asked; left out: what the flag says.
    #[serde(default, deserialize_with = "some_duration")]
    pub settle_delay: Option<Duration>,
    /// Samples asked for in one query, at most if clusters are not larger themselves.
    pub batch_samples: Option<NonZeroU64>,
    /// Whether it is asked the queries of checks.
    #[serde(default = "yes")]
    pub checks: bool,
}

/// User and password.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BasicAuth {
    /// The user.
    pub username: String,
    /// File with the password; read again for every query.
    pub password_file: PathBuf,
}

impl Backend {
    fn check_name(&self) -> Result<(), (&'static str, String)> {
        let wrong = |error: &str| Err(("name", error.to_owned()));
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || self.name.len() > 63 || !self.name.chars().all(plain) {
            return wrong("has to be of 1 to 63 letters, digits, `-`, `_` and `.`");
        }
        if [FLAGS, scrape::NAME, push::NAME].contains(&self.name.as_str()) {
            return wrong(&format!("`{}` is what another feed is called", self.name));
        }
        Ok(())
    }

    /// The field that is wrong, its name aside, and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        let wrong = |field, error: &str| Err((field, error.to_owned()));
        if self.bearer_token_file.is_some() && self.basic_auth.is_some() {
            return wrong("basicAuth", "cannot be used beside bearerTokenFile");
        }
        let authorizes = self.bearer_token_file.is_some() || self.basic_auth.is_some();
        if authorizes && self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            return wrong("headers", "Authorization cannot be used beside bearerTokenFile or basicAuth");
        }
        self.tls.check().map_err(|error| ("tls", error))?;
        if self.timeout.is_zero() || self.timeout > LONGEST_TIMEOUT {
            return wrong("timeout", "has to be more than 0s and at most 2m");
        }
        if self.settle_delay.is_some_and(|delay| delay > LONGEST_SETTLE) {
            return wrong("settleDelay", "has to be at most 10m");
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if self.cluster_label.is_empty() || !self.cluster_label.chars().all(is_word) {
            return wrong("clusterLabel", "has to be of letters, digits and `_`");
        }
        if self.ignore_labels.contains(&self.cluster_label) {
            return wrong("ignoreLabels", "has the label that names the cluster");
        }
        self.exporters().check().map_err(|error| ("trust", error))?;
        // What address, headers and server name are worth, the client knows.
        PromFeed::new(self.config()).map(drop).or_else(|error| wrong("url", &error.to_string()))
    }

    fn exporters(&self) -> Exporters {
        Exporters { cluster_label: self.cluster_label.clone(), trust: self.trust.clone() }
    }

    /// How to talk to it.
    pub fn config(&self) -> FeedConfig {
        let basic_auth = self.basic_auth.clone().map(|it| (it.username, it.password_file));
        FeedConfig {
            flavour: self.flavour,
            timeout: self.timeout,
            headers: self.headers.clone().into_iter().collect(),
            credentials: Credentials::new(self.bearer_token_file.clone(), basic_auth),
            tls: self.tls.clone(),
            ..FeedConfig::new(self.url.clone())
        }
    }

    /// The feed that polls it once an `interval`, so far behind the present unless it says otherwise.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn feed(&self, settle: Duration, interval: Duration) -> anyhow::Result<Feed> {
        let client = PromFeed::new(self.config()).with_context(|| format!("backend {}", self.name))?;
        if self.trust.is_weak(&self.cluster_label) {
            warn!(
                backend = self.name,
                trust = %self.trust,
                "trust names only labels that tenants can often choose for their pods: add their namespace"
            );
        }
        let feed = query(Poller::new(self.poll(settle), client), interval);
        Ok(if self.checks { feed } else { Feed { asker: None, ..feed } })
    }

    /// How it is polled, so far behind the present unless it says otherwise.
    pub fn poll(&self, settle: Duration) -> PollConfig {
        let defaults = PollConfig::new(self.exporters());
        let settle = self.settle_delay.unwrap_or(settle).as_secs_f64();
        PollConfig {
            feed: self.name.as_str().into(),
            ignored_labels: self.ignore_labels.clone(),
            batch_samples: self.batch_samples.map_or(defaults.batch_samples, NonZeroU64::get),
            settle,
            max_settle: defaults.max_settle.max(settle),
            ..defaults
        }
    }
}

fn timeout() -> Duration {
    Duration::from_secs(10)
}

fn cluster_label() -> String {
    "cluster".to_owned()
}

fn yes() -> bool {
    true
}

fn flavour<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Flavour, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

fn trust<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Trust, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "all" => Ok(Trust::All),
        matchers => matchers.parse().map_err(|error| de::Error::custom(format!("trust: {error}"))),
    }
}

fn some_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::feed::Settings;

    fn parse(yaml: &str) -> Result<Settings, String> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        serde_saphyr::from_str(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_left_out_is_as_the_flags_have_it() {
        let settings = parse("backends: [{name: eu, url: 'http://thanos:9090', trust: all}]").unwrap();
        let [backend] = &*settings.backends else { panic!("{settings:?}") };
        assert_eq!((backend.flavour, backend.timeout, backend.checks), (Flavour::Any, timeout(), true));
        assert_eq!((backend.cluster_label.as_str(), backend.settle_delay), ("cluster", None));
        let feed = backend.feed(Duration::from_secs(7), Duration::from_secs(15)).unwrap();
        assert_eq!((&*feed.name, feed.settle, feed.asker.is_some()), ("eu", 7.0, true));
        assert_eq!((settings.name_of_flags(), parse("{}").unwrap().name_of_flags()), (FLAGS, ""));
    }

    #[test]
    fn everything_can_be_said() {
        let settings = parse(
            "
            backends:
            - name: eu
              url: https://10.0.0.1/prometheus
              flavour: thanos
              trust: job=\"statusbridge\",namespace=~\"a|b\"
              headers: {X-Scope-OrgID: fleet}
              basicAuth: {username: reader, passwordFile: /secrets/password}
              tls: {caFile: /ca, certFile: /cert, keyFile: /key, serverName: thanos.example}
              timeout: 1m
              clusterLabel: k8s_cluster
              ignoreLabels: [replica]
              settleDelay: 1500ms
              batchSamples: 1000
              checks: false
            ",
        )
        .unwrap();
        let config = settings.backends[0].config();
        assert_eq!(config.headers, [("X-Scope-OrgID".to_owned(), "fleet".to_owned())]);
        assert_eq!(config.tls.key_file.unwrap(), PathBuf::from("/key"));
        let (username, password_file) = ("reader".to_owned(), "/secrets/password".into());
        assert_eq!(config.credentials, Credentials::Basic { username, password_file });
        let feed = settings.backends[0].feed(Duration::ZERO, Duration::from_secs(15)).unwrap();
        assert_eq!((feed.settle, feed.asker.is_some()), (1.5, false));
    }

    #[rstest]
    #[case::no_name("url: http://a", "name")]
    #[case::empty_name("name: '', url: http://a", "backends[0].name: has to be")]
    #[case::odd_name("name: 'a b', url: http://a", "backends[0].name: has to be")]
    #[case::name_of_flags("name: default, url: http://a", "backends[0].name: `default` is")]
    #[case::name_of_another_feed("name: push, url: http://a", "backends[0].name: `push` is")]
    #[case::name_twice(
        "name: a, url: http://a, trust: all}, {name: a, url: http://b",
        "backends[1].name: `a` is"
    )]
    #[case::no_address("name: a", "url")]
    #[case::bad_address("name: a, url: thanos", "backends[0].url: backend is misconfigured: url `thanos`")]
    #[case::bad_flavour("name: a, url: http://a, flavour: graphite", "`graphite` is none of")]
    #[case::bad_header("name: a, url: http://a, headers: {'a b': c}", "header `a b`")]
    #[case::two_credentials(
        "name: a, url: http://a, bearerTokenFile: /t, basicAuth: {username: u, passwordFile: /p}",
        "backends[0].basicAuth: cannot be used beside bearerTokenFile"
    )]
    #[case::authorization_twice(
        "name: a, url: http://a, bearerTokenFile: /t, headers: {authorization: x}",
        "backends[0].headers: "
    )]
    #[case::no_key("name: a, url: 'https://a', tls: {certFile: /c}", "backends[0].tls: certFile and keyFile")]
    #[case::bad_timeout("name: a, url: http://a, timeout: soon", "\"soon\" is not a duration")]
    #[case::no_time("name: a, url: http://a, timeout: 0s", "backends[0].timeout: ")]
    #[case::no_batch("name: a, url: http://a, batchSamples: 0", "nonzero")]
    #[case::no_label("name: a, url: http://a, clusterLabel: ''", "backends[0].clusterLabel: has to be of")]
    #[case::odd_label(
        "name: a, url: http://a, clusterLabel: k8s.cluster",
        "backends[0].clusterLabel: has to be of"
    )]
    #[case::ignored(
        "name: a, url: http://a, ignoreLabels: [cluster]",
        "backends[0].ignoreLabels: has the label"
    )]
    #[case::trusts_everybody(
        "name: a, url: http://a, trust: 'job=~\".+\",cluster=\"c\"'}, {name: b, url: http://b",
        "holds for all that is scraped"
    )]
    #[case::no_such_field("name: a, url: http://a, proxy: b", "proxy")]
    #[case::cluster_alone(
        "name: a, url: http://a, clusterLabel: k, trust: 'k=\"x\"'}, {name: b, url: http://b",
        "backends[0].trust: `k=\"x\"` holds for all"
    )]
    #[case::no_matcher("name: a, url: http://a, trust: namespace}, {name: b", "trust: ")]
    fn what_is_wrong_is_said_with_the_field(#[case] backends: &str, #[case] expected: &str) {
        let error = parse(&format!("backends: [{{{backends}, trust: all}}]")).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn nobody_is_believed_without_a_word() {
        let error = parse("backends: [{name: a, url: http://a}]").unwrap_err();
        assert!(error.contains("missing field `trust`"), "{error}");
    }

    #[rstest]
    #[case::of_an_address("10.0.0.2", "https://a")]
    #[case::without_tls("b.example", "http://a")]
    fn a_server_name_is_a_name_for_tls(#[case] name: &str, #[case] url: &str) {
        let settings =
            parse(&format!("backends: [{{name: a, url: '{url}', trust: all, tls: {{serverName: {name}}}}}]"));
        let error = settings.unwrap_err();
        assert!(error.contains(&format!("server name `{name}` is of no use for `{url}`")), "{error}");
    }
}
