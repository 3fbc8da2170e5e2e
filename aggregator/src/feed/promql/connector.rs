//! Connections to a backend, made anew when the files that TLS is made of change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Client, ClientBuilder, Identity, Url, header};
use tracing::{info, warn};

use super::{FeedConfig, FeedError, TlsFiles, chain};

/// What is in the files of authorities, certificate and key, as far as they are named; or why one cannot be read.
pub(crate) type PemFiles = [Option<Result<Vec<u8>, String>>; 3];

/// Reads the files of authorities, certificate and key, as far as they are named.
pub(crate) fn read_pem(files: [&Option<PathBuf>; 3]) -> PemFiles {
    let read = |file: &PathBuf| std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()));
    files.map(|file| file.as_ref().map(read))
}

/// What a client shows of itself.
///
/// # Errors
/// When certificate and key, both PEM, cannot be used.
pub(crate) fn identity(certificate: &[u8], key: &[u8]) -> Result<Identity, String> {
    Identity::from_pem(&[certificate, b"\n", key].concat()).map_err(|error| chain(&error))
}

/// What all clients have in common.
pub(crate) fn client_builder() -> ClientBuilder {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("statusbridge-aggregator/", env!("CARGO_PKG_VERSION")))
}

/// Makes connections, always with what is in the files now.
pub(super) struct Connector {
    url: Url,
    headers: header::HeaderMap,
    config: FeedConfig,
    state: Mutex<State>,
}

struct State {
    seen: PemFiles,
    /// Or why there is none; files may come later.
    client: Result<Client, String>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Neither headers nor what was found in files is for logs.
        f.debug_struct("Connector").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

impl Connector {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// When the configuration is of no use, whatever is in the files.
    pub(super) fn new(config: &FeedConfig) -> Result<Self, FeedError> {
        let bad = |e: &dyn std::fmt::Display| FeedError::Config(e.to_string());
        let mut url = config.url.url().map_err(|e| bad(&e))?;
        let mut headers = header::HeaderMap::new();
        for (name, value) in &config.headers {
            let name: header::HeaderName = name.parse().map_err(|e| bad(&format!("header `{name}`: {e}")))?;
            let mut value: header::HeaderValue =
                value.parse().map_err(|e| bad(&format!("value of header `{name}`: {e}")))?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        if let Some(name) = &config.tls.server_name {
            serve_as(&mut url, &mut headers, name)
                .ok_or_else(|| bad(&format!("server name `{name}` is of no use for `{}`", config.url)))?;
        }
        let seen = read(&config.tls);
        let client = client(config, &headers, &seen);
        if !names_files(&config.tls) {
            client.as_ref().map_err(|e| bad(e))?;
        }
        Ok(Self { url, headers, config: config.clone(), state: Mutex::new(State { seen, client }) })
    }

    /// Address of an end point of the query API, such as `query`.
    pub(super) fn endpoint(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/api/v1/{path}", self.url.path().trim_end_matches('/')));
        url
    }

    /// A client with what is in the files now. Whatever cannot be used leaves the client of before at
    /// work, which includes the moment in which one of two files has changed.
    ///
    /// # Errors
    /// When nothing usable was ever in the files.
    pub(super) async fn client(&self) -> Result<Client, FeedError> {
        let tls = &self.config.tls;
        let found = if names_files(tls) {
            let files = tls.clone();
            tokio::task::spawn_blocking(move || read(&files)).await.ok()
        } else {
            None
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = found.filter(|found| *found != state.seen) {
            let backend = self.url.host_str().unwrap_or_default();
            match client(&self.config, &self.headers, &found) {
                Ok(client) => {
                    info!(backend, "the files of TLS have changed");
                    state.client = Ok(client);
                }
                Err(error) if state.client.is_ok() => {
                    warn!(
                        backend,
                        error, "the files of TLS have changed and cannot be used: those of before are"
                    );
                }
                Err(error) => state.client = Err(error),
            }
            state.seen = found;
        }
        state.client.clone().map_err(FeedError::Config)
    }
}

fn client(config: &FeedConfig, headers: &header::HeaderMap, files: &PemFiles) -> Result<Client, String> {
    let mut client = client_builder().default_headers(headers.clone()).timeout(config.timeout);
    if config.tls.server_name.is_some() {
        // Every name is looked up as if it were the URL's. A proxy would look up the name itself.
        let url = config.url.url()?;
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        client = client.no_proxy().dns_resolver(Arc::new(Always(host.into())));
    }
    let [authorities, certificate, key] = files;
    if let (Some(path), Some(authorities)) = (&config.tls.ca_file, authorities) {
        let bundle = Certificate::from_pem_bundle(authorities.as_ref()?)
            .map_err(|e| format!("{}: {}", path.display(), chain(&e)))?;
        if bundle.is_empty() {
            return Err(format!("{}: there is no certificate in it", path.display()));
        }
        client = client.tls_certs_merge(bundle);
    }
    if let (Some(certificate), Some(key)) = (certificate, key) {
        let path = |file: &Option<PathBuf>| file.clone().unwrap_or_default().display().to_string();
        let paths = [&config.tls.cert_file, &config.tls.key_file].map(path).join(" with ");
        let identity = identity(certificate.as_ref()?, key.as_ref()?).map_err(|e| format!("{paths}: {e}"))?;
        client = client.identity(identity);
    }
    client.build().map_err(|e| chain(&e))
}

fn names_files(tls: &TlsFiles) -> bool {
    tls.ca_file.is_some() || tls.cert_file.is_some()
}

fn read(tls: &TlsFiles) -> PemFiles {
    read_pem([&tls.ca_file, &tls.cert_file, &tls.key_file])
}

/// Has requests go to a host by another name: that is what a certificate is compared with. The backend is
/// told the host's own name.
fn serve_as(url: &mut Url, headers: &mut header::HeaderMap, name: &str) -> Option<()> {
    let host = url.host_str().map(|host| match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })?;
    headers.entry(header::HOST).or_insert(host.parse().ok()?);
    url.set_host(Some(name)).ok()?;
    // An address is never looked up, so that it could not stand for another.
    (url.scheme() == "https" && url.domain().is_some()).then_some(())
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
