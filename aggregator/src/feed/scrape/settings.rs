//! Section `feeds.scrape` of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::Url;
use serde::Deserialize;

use crate::feed::fields::span;
use crate::feed::tls::TlsFiles;

/// Which exporters are scraped, and how.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Time from one scrape of an exporter to the next.
    #[serde(deserialize_with = "span")]
    pub interval: Duration,
    /// Longest time for one scrape.
    #[serde(deserialize_with = "span")]
    pub timeout: Duration,
    /// Largest exposition, in bytes, unpacked.
    pub max_bytes: usize,
    /// Exporters that are named here.
    pub targets: Vec<Target>,
    /// Exporters that ClusterProfiles name.
    pub cluster_profiles: Option<FromProfiles>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(15),
            timeout: Duration::from_secs(10),
            max_bytes: 64 << 20,
            targets: Vec::new(),
            cluster_profiles: None,
        }
    }
}

/// One exporter.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    /// Name of its cluster.
    pub cluster: String,
    /// Where it answers, with the path.
    pub url: String,
    /// File with a bearer token for it; read again for every scrape.
    pub bearer_token_file: Option<PathBuf>,
    /// What it is trusted by, and what it is shown.
    #[serde(default)]
    pub tls: TlsFiles,
}

/// Exporters that ClusterProfiles name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FromProfiles {
    /// Name of the property in `status.properties` whose value is the exporter's URL.
    pub property: String,
    /// File with a bearer token for all of them, which is sent over HTTPS only.
    pub bearer_token_file: Option<PathBuf>,
    /// What they are trusted by, and what they are shown.
    #[serde(default)]
    pub tls: TlsFiles,
}

impl Settings {
    /// Fails with the field's name when they cannot be used.
    pub fn check(&self) -> Result<()> {
        ensure!(
            !self.targets.is_empty() || self.cluster_profiles.is_some(),
            "feeds.scrape names neither targets nor clusterProfiles"
        );
        for (number, target) in self.targets.iter().enumerate() {
            let place = || format!("feeds.scrape.targets[{number}]");
            target.check().with_context(place)?;
            let is_same = |it: &Target| it.cluster == target.cluster && it.url == target.url;
            ensure!(!self.targets.iter().take(number).any(is_same), "{}: the same as one before it", place());
        }
        if let Some(profiles) = &self.cluster_profiles {
            ensure!(!profiles.property.is_empty(), "feeds.scrape.clusterProfiles.property is empty");
            let tls = profiles.tls.check().map_err(anyhow::Error::msg);
            tls.context("feeds.scrape.clusterProfiles.tls")?;
        }
        Ok(())
    }

    /// Everything that is to be scraped, with what ClusterProfiles say of where exporters answer.
    pub fn all_targets(&self, addresses: Vec<(String, String)>) -> Vec<Target> {
        let from_profiles = self.cluster_profiles.iter().flat_map(move |profiles| {
            addresses.clone().into_iter().map(|(cluster, url)| Target {
                cluster,
                url,
                bearer_token_file: profiles.bearer_token_file.clone(),
                tls: profiles.tls.clone(),
            })
        });
        self.targets.iter().cloned().chain(from_profiles).collect()
    }
}

impl Target {
    fn check(&self) -> Result<()> {
        ensure!(!self.cluster.is_empty(), "cluster is empty");
        let tls = self.tls.check().and(self.tls.address(&check_url(&self.url)?));
        tls.map(drop).map_err(anyhow::Error::msg).context("tls")
    }
}

/// Fails unless it is a URL that can be scraped.
pub(super) fn check_url(url: &str) -> Result<Url> {
    let parsed = Url::parse(url).with_context(|| format!("url {url:?}"))?;
    ensure!(matches!(parsed.scheme(), "http" | "https"), "url {url:?} is neither http nor https");
    let names_somebody = !parsed.username().is_empty() || parsed.password().is_some();
    ensure!(!names_somebody, "url has a user or a password: bearerTokenFile says who asks");
    Ok(parsed)
}
