//! The package that is rolled out, and its three revisions.

use sha2::{Digest, Sha256};
use statusbridge_tests::deployment_manifest;
use std::fmt;

/// Name of the package, of its Kustomization and of its Deployment.
pub(crate) const NAME: &str = "payments";

/// One revision of the package.
pub(crate) struct Revision {
    /// What the story calls it.
    pub(crate) nick: &'static str,
    /// The only file in it.
    pub(crate) manifest: String,
    /// The image that its Deployment runs.
    pub(crate) image: String,
    digest: String,
    version: &'static str,
}

impl Revision {
    /// Revision `version` with an image of the same version.
    pub(crate) fn new(nick: &'static str, version: &'static str) -> Self {
        let image = format!("registry.example/payments:{version}");
        let manifest = deployment_manifest(NAME, &image);
        let digest = Sha256::digest(&manifest).iter().map(|b| format!("{b:02x}")).collect();
        Self { nick, manifest, image, digest, version }
    }

    /// As Flux writes it: the version and the digest of the content.
    pub(crate) fn full(&self) -> String {
        format!("{}@sha256:{}", self.version, self.digest)
    }

    /// The 12 hex digits that a status shows and that a spec takes as well.
    pub(crate) fn short(&self) -> &str {
        &self.digest[..12]
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.nick, self.short())
    }
}
