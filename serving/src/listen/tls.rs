//! TLS with a certificate from files, which may change at any time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context as _, ensure};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{error, info};

/// How often the files are looked at. By content: a mounted Secret changes by swapping a symbolic link,
/// and times of files may stand still.
const LOOK: Duration = Duration::from_secs(2);
/// How long the other side may take for its part of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What was found in a file, or why nothing was.
type Found = Result<Vec<u8>, String>;

/// A certificate and its key in files.
pub struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    seen: (Found, Found),
    config: watch::Sender<Arc<ServerConfig>>,
}

impl Certificate {
    /// The pair in these files.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn new(certificate: PathBuf, key: PathBuf) -> anyhow::Result<Self> {
        let seen = (read(&certificate), read(&key));
        let config = config(&seen)
            .with_context(|| format!("cannot serve with {} and {}", certificate.display(), key.display()))?;
        Ok(Self { certificate, key, seen, config: watch::Sender::new(config) })
    }

    /// What a server needs of it, always as new as it is.
    pub fn tls(&self) -> Tls {
        Tls(self.config.subscribe())
    }

    /// Looks at the files for ever, and tells each time that they have changed whether they could be used.
    pub async fn follow(mut self, changed: impl Fn(bool)) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.look(&changed);
        }
    }

    /// Uses what is in the files now. Whatever cannot be used leaves the pair of before at work, which
    /// includes the moment in which one of two files has changed.
    fn look(&mut self, changed: impl Fn(bool)) {
        let found = (read(&self.certificate), read(&self.key));
        if found == self.seen {
            return;
        }
        match config(&found) {
            Ok(config) => {
                info!("the TLS certificate has changed");
                changed(true);
                self.config.send_replace(config);
            }
            Err(error) => {
                let (certificate, key) = (self.certificate.display(), self.key.display());
                error!(
                    %certificate, %key, error = format!("{error:#}"),
                    "the TLS certificate has changed and cannot be used: the one of before is still served"
                );
                changed(false);
            }
        }
        self.seen = found;
    }
}

fn read(file: &PathBuf) -> Found {
    fs::read(file).map_err(|e| e.to_string())
}

/// Fails when the certificate is not the key's.
fn config((certificate, key): &(Found, Found)) -> anyhow::Result<Arc<ServerConfig>> {
    let certificate = certificate.as_deref().map_err(|e| anyhow::anyhow!("the certificate: {e}"))?;
    let key = key.as_deref().map_err(|e| anyhow::anyhow!("the private key: {e}"))?;
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .context("the certificate")?;
    ensure!(!chain.is_empty(), "the certificate: there is none in the file");
    let key = PrivateKeyDer::from_pem_slice(key).context("the private key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Makes connections secret.
#[derive(Clone)]
pub struct Tls(watch::Receiver<Arc<ServerConfig>>);

impl Tls {
    /// Does the server's part of a handshake, with the newest certificate.
    ///
    /// # Errors
    /// When the other side does not do its part, or not in time.
    pub async fn accept<C: AsyncRead + AsyncWrite + Unpin>(&self, connection: C) -> io::Result<TlsStream<C>> {
        let config = self.0.borrow().clone();
        tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(connection)).await?
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn pair(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn found(certificate: &str, key: &str) -> (Found, Found) {
        (Ok(certificate.into()), Ok(key.into()))
    }

    #[test]
    fn only_a_certificate_with_its_key_can_be_used() {
        let ((one, key), (other, other_key)) = (pair("one"), pair("other"));
        assert!(config(&found(&one, &key)).is_ok());
        // As a chain is written: the server's first.
        assert!(config(&found(&format!("{one}{other}"), &key)).is_ok());
        let half = &one[..one.len() / 2];
        let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let bad = [
            (found(&one, &other_key), "keys"),
            (found(&format!("{other}{one}"), &key), "keys"),
            (found("", &key), "there is none"),
            (found(&key, &key), "there is none"),
            (found(half, &key), "the certificate"),
            (found(damaged, &key), "invalid"),
            (found(&one, ""), "the private key"),
            (found(&one, &one), "the private key"),
            ((Err("gone".into()), Ok(key.clone().into())), "gone"),
            ((Ok(one.clone().into()), Err("gone".into())), "gone"),
        ];
        for (found, expected) in bad {
            let error = format!("{:#}", config(&found).unwrap_err());
            assert!(error.contains(expected), "{expected}: {error}");
            assert!(!error.contains("PRIVATE"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_used_leaves_the_pair_of_before_at_work() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
        let write = |(c, k): &(String, String)| {
            fs::write(&certificate, c).unwrap();
            fs::write(&key, k).unwrap();
        };
        let open = || Certificate::new(certificate.clone(), key.clone());
        assert!(open().is_err(), "there are no files yet");
        let (first, second) = (pair("first"), pair("second"));
        write(&first);
        let mut followed = open().unwrap();
        let Tls(mut tls) = followed.tls();
        let told = Cell::new(None);
        let mut look = |used: bool, good: Option<bool>| {
            told.set(None);
            followed.look(|good| told.set(Some(good)));
            assert_eq!((tls.has_changed().unwrap(), told.get()), (used, good));
            tls.mark_unchanged();
        };
        look(false, None);
        // One file before the other.
        fs::write(&certificate, &second.0).unwrap();
        look(false, Some(false));
        look(false, None);
        write(&second);
        look(true, Some(true));
        fs::remove_file(&key).unwrap();
        look(false, Some(false));
        write(&first);
        look(true, Some(true));
        look(false, None);
    }
}
