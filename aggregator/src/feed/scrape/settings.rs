//! Section `feeds.scrape` of the configuration.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::Url;
use serde::Deserialize;
use statusbridge_serving::address::Address;

use super::Id;
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
    pub url: Address,
    /// How many targets of its cluster come before it and are shown alike: their URLs differ in what is not shown.
    #[serde(skip)]
    pub(super) number: usize,
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
                url: url.into(),
                number: 0,
                bearer_token_file: profiles.bearer_token_file.clone(),
                tls: profiles.tls.clone(),
            })
        });
        let mut targets: Vec<Target> = self.targets.iter().cloned().chain(from_profiles).collect();
        let mut alike: HashMap<_, Vec<Address>> = HashMap::new();
        for target in &mut targets {
            let urls = alike.entry((target.cluster.clone(), target.url.to_string())).or_default();
            target.number = urls.iter().position(|url| *url == target.url).unwrap_or(urls.len());
            if target.number == urls.len() {
                urls.push(target.url.clone());
            }
        }
        targets
    }
}

impl Target {
    /// Its address without secrets, which tells it from the other targets of its cluster.
    pub fn instance(&self) -> String {
        match self.number {
            0 => self.url.to_string(),
            before => format!("{} ({})", self.url, before + 1),
        }
    }

    /// Its cluster and instance.
    pub(super) fn id(&self) -> Id {
        (self.cluster.clone(), self.instance())
    }

    fn check(&self) -> Result<()> {
        ensure!(!self.cluster.is_empty(), "cluster is empty");
        let tls = self.tls.check().and(self.tls.address(&check_url(&self.url)?));
        tls.map(drop).map_err(anyhow::Error::msg).context("tls")
    }
}

/// Fails unless it is a URL that can be scraped.
pub(super) fn check_url(url: &Address) -> Result<Url> {
    let parsed: Url = url.url().map_err(anyhow::Error::msg)?;
    ensure!(matches!(parsed.scheme(), "http" | "https"), "url `{url}` is neither http nor https");
    let names_somebody = !parsed.username().is_empty() || parsed.password().is_some();
    ensure!(!names_somebody, "url has a user or a password: bearerTokenFile says who asks");
    Ok(parsed)
}
