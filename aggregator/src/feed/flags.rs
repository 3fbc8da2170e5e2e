//! Flags about one metrics backend.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use statusbridge_api::common::duration;
use statusbridge_core::fleet::FleetSettings;
use statusbridge_serving::address::Address;

use super::{Backend, BasicAuth, Settings};
use crate::feed::promql::{Flavour, Trust};
use crate::feed::tls::TlsFiles;

/// Flags about the metrics backend.
#[derive(Debug, Clone, Args)]
pub struct BackendArgs {
    /// Base address of the Prometheus query API, for instance http://prometheus:9090
    #[arg(long = "backend", env = "STATUSBRIDGE_BACKEND", hide_env_values = true, value_name = "URL")]
    url: Option<Address>,
    /// What kind of backend it is: any, prometheus, thanos, victoriametrics
    #[arg(long = "backend-flavour", env = "STATUSBRIDGE_BACKEND_FLAVOUR", default_value = "any")]
    flavour: Flavour,
    /// Header sent with every query, for instance "X-Scope-OrgID: fleet"; may be repeated
    #[arg(long = "backend-header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// File with a bearer token for the backend; read again for every query
    #[arg(
        long = "backend-bearer-token-file",
        env = "STATUSBRIDGE_BACKEND_BEARER_TOKEN_FILE",
        conflicts_with = "username"
    )]
    bearer_token_file: Option<PathBuf>,
    /// User for HTTP basic authentication at the backend
    #[arg(
        long = "backend-basic-auth-username",
        env = "STATUSBRIDGE_BACKEND_BASIC_AUTH_USERNAME",
        requires = "password_file"
    )]
    username: Option<String>,
    /// File with that user's password; read again for every query
    #[arg(
        long = "backend-basic-auth-password-file",
        env = "STATUSBRIDGE_BACKEND_BASIC_AUTH_PASSWORD_FILE",
        requires = "username",
        value_name = "FILE"
    )]
    password_file: Option<PathBuf>,
    /// PEM file with certificate authorities to trust for the backend; read again when it changes
    #[arg(long = "backend-ca-file", env = "STATUSBRIDGE_BACKEND_CA_FILE")]
    ca_file: Option<PathBuf>,
    /// PEM file with the certificate to show to the backend; read again when it changes
    #[arg(
        long = "backend-client-cert-file",
        env = "STATUSBRIDGE_BACKEND_CLIENT_CERT_FILE",
        requires = "client_key_file"
    )]
    client_cert_file: Option<PathBuf>,
    /// PEM file with the private key of that certificate
    #[arg(
        long = "backend-client-key-file",
        env = "STATUSBRIDGE_BACKEND_CLIENT_KEY_FILE",
        requires = "client_cert_file"
    )]
    client_key_file: Option<PathBuf>,
    /// Longest time for one query
    #[arg(long = "backend-timeout", env = "STATUSBRIDGE_BACKEND_TIMEOUT", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Label that the metrics pipeline gives the cluster's name
    #[arg(long, env = "STATUSBRIDGE_CLUSTER_LABEL", default_value = "cluster")]
    cluster_label: String,
    /// Labels that the metrics pipeline gives exporters and nobody else, for instance
    /// 'namespace="statusbridge-system",job="statusbridge-exporter"': only such streams count. `doctor` proposes some
    #[arg(long, env = "STATUSBRIDGE_TRUST", value_name = "MATCHERS", conflicts_with = "trust_all")]
    trust: Option<Trust>,
    /// Let every stream count: whoever is scraped in a cluster, or writes to the backend, can open its gates
    #[arg(long, env = "STATUSBRIDGE_TRUST_ALL")]
    trust_all: bool,
    /// Labels that do not tell streams apart, separated by commas
    #[arg(long, env = "STATUSBRIDGE_IGNORE_LABELS", value_delimiter = ',')]
    ignore_labels: Vec<String>,
    /// Largest believable difference between the backend's clock and a cluster's
    #[arg(long, env = "STATUSBRIDGE_MAX_CLOCK_SKEW", default_value = "60s", value_parser = duration)]
    max_clock_skew: Duration,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is written NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl BackendArgs {
    /// Every backend: the one that flags name, and those of the configuration file.
    ///
    /// # Errors
    /// When flags do not say who is believed, or cannot be used.
    pub fn backends(&self, feeds: &Settings) -> Result<Vec<Backend>> {
        let trust = || {
            self.trust().context(
                "nothing says whose samples count: --trust names labels that only exporters bear, for instance \
                 --trust 'namespace=\"statusbridge-system\",job=\"statusbridge-exporter\"' (`doctor` proposes some); \
                 --trust-all believes whoever is scraped",
            )
        };
        let flags = if self.has_url() { self.backend(trust()?, feeds)? } else { None };
        Ok(flags.into_iter().chain(feeds.backends.iter().cloned()).collect())
    }

    fn has_url(&self) -> bool {
        self.url.as_ref().is_some_and(|url| !url.is_empty())
    }

    /// Who is believed, where flags say it.
    pub fn trust(&self) -> Option<Trust> {
        self.trust_all.then_some(Trust::All).or_else(|| self.trust.clone())
    }

    /// The backend that flags name, if they do, where these are believed.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn backend(&self, trust: Trust, feeds: &Settings) -> Result<Option<Backend>> {
        let Some(url) = self.url.clone().filter(|_| self.has_url()) else { return Ok(None) };
        let basic_auth = self.username.clone().zip(self.password_file.clone());
        let backend = Backend {
            name: feeds.name_of_flags().to_owned(),
            url,
            flavour: self.flavour,
            headers: self.headers.iter().cloned().collect(),
            bearer_token_file: self.bearer_token_file.clone(),
            basic_auth: basic_auth.map(|(username, password_file)| BasicAuth { username, password_file }),
            tls: TlsFiles {
                ca_file: self.ca_file.clone(),
                cert_file: self.client_cert_file.clone(),
                key_file: self.client_key_file.clone(),
                server_name: None,
            },
            timeout: self.timeout,
            cluster_label: self.cluster_label.clone(),
            trust,
            ignore_labels: self.ignore_labels.iter().filter(|label| !label.is_empty()).cloned().collect(),
            settle_delay: None,
            batch_samples: None,
            checks: true,
        };
        match backend.check() {
            Ok(()) => Ok(Some(backend)),
            Err((field, error)) => bail!("the backend that flags name: {field}: {error}"),
        }
    }

    /// By which limits evidence is judged.
    pub fn fleet(&self) -> FleetSettings {
        FleetSettings { max_clock_skew: self.max_clock_skew.as_secs_f64(), ..FleetSettings::default() }
    }
}
