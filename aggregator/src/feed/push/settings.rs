//! Section `feeds.push` of the configuration.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Deserialize;
use statusbridge_serving::tls::Certificate;

use crate::feed::fields::span;
use crate::feed::push::server::{Doors, TokensFile};

/// Where exporters may push, and who they are.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// PEM file with the certificate to serve with; read again when it changes.
    pub cert_file: Option<PathBuf>,
    /// PEM file with its private key.
    pub key_file: Option<PathBuf>,
    /// Serve plain HTTP, for behind a proxy that does TLS: whoever listens on the way gets the tokens.
    pub insecure: bool,
    /// File that says which cluster each token is for; read again when it changes.
    pub tokens_file: PathBuf,
    /// Largest exposition, in bytes, packed and unpacked.
    pub max_bytes: usize,
    /// How long after its start the feed may wait until every cluster has pushed once.
    #[serde(deserialize_with = "span")]
    pub expect_within: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8443)),
            cert_file: None,
            key_file: None,
            insecure: false,
            tokens_file: PathBuf::new(),
            max_bytes: 64 << 20,
            expect_within: Duration::from_secs(60),
        }
    }
}

impl Settings {
    /// Fails with the field's name when they cannot be used.
    pub fn check(&self) -> Result<()> {
        self.doors()?;
        ensure!(!self.tokens_file.as_os_str().is_empty(), "feeds.push.tokensFile is missing");
        Ok(())
    }

    /// The clusters that may push, after a look at all files that pushes need.
    pub fn look(&self) -> Result<BTreeSet<String>> {
        self.check()?;
        if let Some((certificate, key)) = self.doors()?.certificate {
            Certificate::new(certificate, key)?;
        }
        let tokens = TokensFile::open(Some(self.tokens_file.clone()))?;
        Ok(tokens.current().clusters().into_iter().map(str::to_owned).collect())
    }

    /// Where to listen, and with which certificate.
    pub(super) fn doors(&self) -> Result<Doors> {
        let certificate = match (&self.cert_file, &self.key_file, self.insecure) {
            (Some(certificate), Some(key), false) => Some((certificate.clone(), key.clone())),
            (None, None, true) => None,
            (_, _, true) => anyhow::bail!("feeds.push: insecure excludes certFile and keyFile"),
            _ => anyhow::bail!(
                "feeds.push: certFile and keyFile are needed, or insecure: true behind a proxy that does TLS"
            ),
        };
        Ok(Doors { listen: self.listen, certificate })
    }
}
