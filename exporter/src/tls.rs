//! Flags about TLS.

use std::path::PathBuf;

use statusbridge_serving::tls::Certificate;

/// Where the certificate is, named as Kubernetes' components name it.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TlsArgs {
    /// Serve HTTPS with this certificate (PEM), followed by those that it was signed with, if any. It
    /// is read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// The private key (PEM) of the certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
}

impl TlsArgs {
    /// The certificate, if one is asked for.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn certificate(&self) -> anyhow::Result<Option<Certificate>> {
        match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => Certificate::new(certificate.clone(), key.clone()).map(Some),
            (None, None) => Ok(None),
            _ => anyhow::bail!("a certificate and a private key are of use only together"),
        }
    }
}
