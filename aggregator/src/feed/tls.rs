//! TLS of the connections that feeds and messages make: the files that it is made of, and clients that follow them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderValue;
use reqwest::{Certificate, Client, ClientBuilder, Identity, Url};
use serde::Deserialize;
use tracing::{info, warn};

/// Files that TLS is made of, all PEM. They are looked at with every request and used anew when they changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TlsFiles {
    /// Certificate authorities trusted besides the system's.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate, followed by those that it was signed with, if any.
    pub cert_file: Option<PathBuf>,
    /// Its private key; of use only together with the certificate.
    pub key_file: Option<PathBuf>,
    /// The name that the server's certificate must be for, when it is not that of the address.
    pub server_name: Option<String>,
}

/// What is in the files of authorities, certificate and key, as far as they are named; or why one cannot be read.
type Contents = [Option<Result<Vec<u8>, String>>; 3];

impl TlsFiles {
    /// Fails where they cannot be used, whatever is in them.
    pub(super) fn check(&self) -> Result<(), String> {
        let both = self.cert_file.is_some() == self.key_file.is_some();
        both.then_some(()).ok_or_else(|| "certFile and keyFile are of use only together".to_owned())
    }

    /// Where to send requests for a URL, and the host that they are for if that is not where they seem to go: what the
    /// server's certificate is compared with is the name in the address.
    ///
    /// # Errors
    /// When the name cannot stand for the URL's host.
    pub(super) fn address(&self, url: &Url) -> Result<(Url, Option<HeaderValue>), String> {
        let Some(name) = &self.server_name else { return Ok((url.clone(), None)) };
        let mut named = url.clone();
        let host = || {
            let host = url.host_str()?;
            let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
            HeaderValue::from_str(&host).ok()
        };
        let host = host().filter(|_| {
            // An address is never looked up, so that it could not stand for another.
            named.set_host(Some(name)).is_ok() && named.scheme() == "https" && named.domain().is_some()
        });
        match host {
            Some(host) => Ok((named, Some(host))),
            None => Err(format!("server name `{name}` is of no use")),
        }
    }

    fn names_any(&self) -> bool {
        self.ca_file.is_some() || self.cert_file.is_some()
    }

    fn read(&self) -> Contents {
        let read =
            |file: &PathBuf| std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()));
        [&self.ca_file, &self.cert_file, &self.key_file].map(|file| file.as_ref().map(read))
    }
}

/// What all clients have in common.
pub(crate) fn client_builder() -> ClientBuilder {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("statusbridge-aggregator/", env!("CARGO_PKG_VERSION")))
}

type Builder = Box<dyn Fn() -> ClientBuilder + Send + Sync>;

/// A client that is made anew when the files change.
pub(crate) struct Connector {
    parts: Parts,
    state: Mutex<State>,
}

/// What a client is made of, besides what is in the files.
struct Parts {
    tls: TlsFiles,
    /// The host to which requests go by another name.
    host: Option<Arc<str>>,
    builder: Builder,
}

struct State {
    seen: Contents,
    /// Or why there is none; files may come later.
    client: Result<Client, String>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Neither headers nor what was found in files is for logs.
        f.debug_struct("Connector").field("tls", &self.parts.tls).finish_non_exhaustive()
    }
}

impl Connector {
    /// Nothing is sent yet. `url` is that of the server.
    pub(crate) fn new(tls: &TlsFiles, url: &Url, builder: Builder) -> Self {
        let host = url.host_str().filter(|_| tls.server_name.is_some());
        let host = host.map(|host| host.trim_matches(['[', ']']).into());
        let parts = Parts { tls: tls.clone(), host, builder };
        let seen = tls.read();
        let client = parts.client(&seen);
        Self { parts, state: Mutex::new(State { seen, client }) }
    }

    /// Fails when there can be no client, whatever comes to be in the files.
    pub(super) fn check(&self) -> Result<(), String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.parts.tls.names_any() { Ok(()) } else { state.client.clone().map(drop) }
    }

    /// A client with what is in the files now. Whatever cannot be used leaves the client of before at work, which includes
    /// the moment in which one of two files has changed.
    ///
    /// # Errors
    /// When nothing usable was ever in the files.
    pub(crate) async fn client(&self) -> Result<Client, String> {
        let tls = &self.parts.tls;
        let found = if tls.names_any() {
            let files = tls.clone();
            tokio::task::spawn_blocking(move || files.read()).await.ok()
        } else {
            None
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = found.filter(|found| *found != state.seen) {
            match self.parts.client(&found) {
                Ok(client) => {
                    info!(?tls, "the files of TLS have changed");
                    state.client = Ok(client);
                }
                Err(error) if state.client.is_ok() => {
                    warn!(
                        ?tls,
                        error, "the files of TLS have changed and cannot be used: those of before are"
                    );
                }
                Err(error) => state.client = Err(error),
            }
            state.seen = found;
        }
        state.client.clone()
    }
}

impl Parts {
    fn client(&self, [authorities, certificate, key]: &Contents) -> Result<Client, String> {
        let mut client = (self.builder)();
        if let Some(host) = &self.host {
            // Every name is looked up as if it were this host's. A proxy would look up the name itself.
            client = client.no_proxy().dns_resolver(Arc::new(Always(Arc::clone(host))));
        }
        let path = |file: &Option<PathBuf>| file.clone().unwrap_or_default().display().to_string();
        if let Some(authorities) = authorities {
            let path = path(&self.tls.ca_file);
            let bundle = Certificate::from_pem_bundle(authorities.as_ref()?);
            let bundle = bundle.map_err(|error| format!("{path}: {}", chain(&error)))?;
            if bundle.is_empty() {
                return Err(format!("{path}: there is no certificate in it"));
            }
            client = client.tls_certs_merge(bundle);
        }
        if let (Some(certificate), Some(key)) = (certificate, key) {
            let paths = [&self.tls.cert_file, &self.tls.key_file].map(path).join(" with ");
            let identity = Identity::from_pem(&[certificate.as_ref()?, &b"\n"[..], key.as_ref()?].concat());
            client = client.identity(identity.map_err(|error| format!("{paths}: {}", chain(&error)))?);
        }
        client.build().map_err(|error| chain(&error))
    }
}

/// Looks up this name whatever it is asked for.
struct Always(Arc<str>);

impl Resolve for Always {
    fn resolve(&self, _: Name) -> Resolving {
        let host = Arc::clone(&self.0);
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((&*host, 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// An error with its causes; reqwest's own message leaves them out.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn connector(tls: &TlsFiles) -> Connector {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Connector::new(tls, &Url::parse("https://10.0.0.1/").unwrap(), Box::new(client_builder))
    }

    #[tokio::test]
    async fn a_client_is_made_anew_when_its_files_change_and_the_one_before_stays_where_that_fails() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let tls = TlsFiles { ca_file: Some(file.path().to_owned()), ..TlsFiles::default() };
        std::fs::write(file.path(), "# none\n").unwrap();
        let followed = connector(&tls);
        assert!(followed.client().await.unwrap_err().contains("there is no certificate in it"));
        let authority = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
        std::fs::write(file.path(), &authority).unwrap();
        assert!(followed.client().await.is_ok());
        let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(file.path(), damaged).unwrap();
        assert!(followed.client().await.is_ok(), "that of before");
        assert!(connector(&tls).client().await.is_err());
        let gone = TlsFiles { ca_file: Some("/nowhere/ca.crt".into()), ..TlsFiles::default() };
        let gone = connector(&gone);
        assert!(gone.check().is_ok(), "it may come later");
        assert!(gone.client().await.unwrap_err().contains("/nowhere/ca.crt"));
    }

    #[rstest]
    #[case::of_the_url(None, "https://10.0.0.1:9477/metrics", Some(("https://10.0.0.1:9477/metrics", None)))]
    #[case::another(Some("a.example"), "https://10.0.0.1:9477/metrics",
        Some(("https://a.example:9477/metrics", Some("10.0.0.1:9477"))))]
    #[case::without_a_port(Some("a.example"), "https://b/m", Some(("https://a.example/m", Some("b"))))]
    #[case::of_an_address(Some("10.0.0.2"), "https://a/", None)]
    #[case::without_tls(Some("a.example"), "http://a/", None)]
    #[case::no_name(Some("a b"), "https://a/", None)]
    fn a_certificate_is_for_the_name_in_the_address(
        #[case] server_name: Option<&str>,
        #[case] url: &str,
        #[case] expected: Option<(&str, Option<&str>)>,
    ) {
        let tls = TlsFiles { server_name: server_name.map(str::to_owned), ..TlsFiles::default() };
        let address = tls.address(&Url::parse(url).unwrap()).ok();
        let host = |host: Option<HeaderValue>| host.map(|host| host.to_str().unwrap().to_owned());
        let expected = expected.map(|(url, host)| (url.to_owned(), host.map(str::to_owned)));
        assert_eq!(address.map(|(url, it)| (url.to_string(), host(it))), expected);
    }
}
