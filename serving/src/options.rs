//! How a server is reached: with which certificate, and by whom.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use kube::Client;
use tracing::warn;

use crate::authorize::Guard;
use crate::listen::tls::{Certificate, Tls};
use crate::metrics::ServerMetrics;

/// Flags of every server, named as Kubernetes' components name theirs.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServerArgs {
    /// Serve HTTPS with this certificate (PEM), followed by those that it was signed with, if any. It is read again when it
    /// changes.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// The private key (PEM) of the certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Answer only those who may get it: the API server is asked whose the bearer token is (TokenReview) and what they may
    /// get (SubjectAccessReview). /healthz and /readyz stay open.
    #[arg(long)]
    pub authorize_scrapes: bool,
}

/// What lies between the network and the answers; nothing by default.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// TLS for all paths.
    pub tls: Option<Tls>,
    /// Decides who is answered.
    pub guard: Option<Arc<Guard>>,
}

impl ServerArgs {
    /// The options that these flags ask for. From now on the certificate's files are followed. `client` is needed only
    /// to authorize.
    ///
    /// # Errors
    /// When the certificate cannot be used, or there is no client.
    pub async fn options(
        &self,
        metrics: &ServerMetrics,
        client: impl AsyncFnOnce() -> Result<Client>,
    ) -> Result<ServerOptions> {
        let mut options = ServerOptions::default();
        match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => {
                let certificate = Certificate::new(certificate.clone(), key.clone())?;
                options.tls = Some(certificate.tls());
                let metrics = metrics.clone();
                tokio::spawn(certificate.follow(move |good| metrics.certificate_reloaded(good)));
            }
            (None, None) => {}
            _ => anyhow::bail!("a certificate and a private key are of use only together"),
        }
        if self.authorize_scrapes {
            if options.tls.is_none() {
                warn!("bearer tokens come without TLS: whoever listens on the way can use them");
            }
            options.guard = Some(Arc::new(Guard::new(client().await?, metrics.clone())));
        }
        Ok(options)
    }
}
