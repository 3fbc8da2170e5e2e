//! Where exporters push to: an address with a certificate for it, and the aggregator's options for that.

use crate::{AggregatorOptions, Port, Rig};
use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// An address to push to, with a certificate for it.
#[derive(Debug)]
pub struct PushDoor {
    port: Port,
    /// File of the certificate.
    pub certificate: PathBuf,
    /// File of its key.
    pub key: PathBuf,
}

impl PushDoor {
    /// One whose certificate lies in the rig's directory.
    ///
    /// # Errors
    /// When no port can be had, or a file cannot be written.
    pub fn new(rig: &Rig) -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        Ok(Self {
            port: Port::reserve()?,
            certificate: rig.file("push.crt", made.cert.pem())?,
            key: rig.file("push.key", made.signing_key.serialize_pem())?,
        })
    }

    /// The aggregator's configuration, with tokens in a file.
    pub fn config(&self, tokens: &Path) -> Value {
        json!({"feeds": {"push": {
            "listen": self.port.address(), "certFile": self.certificate, "keyFile": self.key, "tokensFile": tokens,
        }}})
    }

    /// Where to push.
    pub fn url(&self) -> String {
        format!("https://{}/v1alpha1/push", self.port.address())
    }

    /// Arguments of an exporter that pushes here with the token in a file, every so many seconds.
    pub fn arguments(&self, token: &Path, every: u64) -> Vec<String> {
        let flags = [
            ("--push-url", self.url()),
            ("--push-token-file", token.display().to_string()),
            ("--push-ca-file", self.certificate.display().to_string()),
            ("--push-interval", format!("{every}s")),
        ];
        flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }
}

/// An entry of the file of tokens.
pub fn token_entry(cluster: &str, token: &str) -> Value {
    let hash: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    json!({"cluster": cluster, "sha256": hash})
}

impl AggregatorOptions {
    /// Those of an aggregator without a backend that goes by this configuration. YAML is JSON too.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn configured(rig: &Rig, name: &str, config: &Value) -> Result<Self> {
        let config = rig.file(&format!("{name}.yaml"), config.to_string())?;
        let more = vec!["--config".to_owned(), config.display().to_string()];
        Ok(Self { more, ..Self::new("") })
    }
}
