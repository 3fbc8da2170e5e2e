//! Connections to a backend, made anew when the files that TLS is made of change.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use reqwest::{
    Certificate, Client, ClientBuilder, Identity, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header,
};
use tracing::{info, warn};

use super::{FeedConfig, FeedError, TlsFiles, chain};

/// What was found in a file, or why nothing was.
type Found = Result<Vec<u8>, String>;

/// What was found in each of the files that there are.
#[derive(Debug, Clone, Default, PartialEq)]
struct Files {
    ca: Option<Found>,
    client: Option<(Found, Found)>,
}

/// Makes connections, always with what is in the files now.
pub(super) struct Connector {
    url: Url,
    headers: header::HeaderMap,
    config: FeedConfig,
    state: Mutex<State>,
}

struct State {
    seen: Files,
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
        let mut url = Url::parse(&config.url).map_err(|e| bad(&format!("url `{}`: {e}", config.url)))?;
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
        if config.tls.ca.is_none() && config.tls.client.is_none() {
            client.as_ref().map_err(|e| bad(e))?;
        }
        Ok(Self { url, headers, config: config.clone(), state: Mutex::new(State { seen, client }) })
    }

    /// The address that was configured, as requests have to name it.
    pub(super) fn base(&self) -> &Url {
        &self.url
    }

    /// The same with another path.
    pub(super) fn url(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(path);
        url
    }

    /// A client with what is in the files now. Whatever cannot be used leaves the client of before at
    /// work, which includes the moment in which one of two files has changed.
    ///
    /// # Errors
    /// When nothing usable was ever in the files.
    pub(super) async fn client(&self) -> Result<Client, FeedError> {
        let tls = &self.config.tls;
        let found = if tls.ca.is_some() || tls.client.is_some() {
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

fn client(config: &FeedConfig, headers: &header::HeaderMap, files: &Files) -> Result<Client, String> {
    let mut client = Client::builder()
        .default_headers(headers.clone())
        .timeout(config.timeout)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("statusbridge-aggregator/", env!("CARGO_PKG_VERSION")));
    if config.tls.server_name.is_some() {
        client = resolving(client, &config.url)?;
    }
    let found =
        |path: &Path, found: &Found| found.clone().map_err(|error| format!("{}: {error}", path.display()));
    if let (Some(path), Some(ca)) = (&config.tls.ca, &files.ca) {
        let bundle = Certificate::from_pem_bundle(&found(path, ca)?)
            .map_err(|e| format!("{}: {}", path.display(), chain(&e)))?;
        if bundle.is_empty() {
            return Err(format!("{}: there is no certificate in it", path.display()));
        }
        client = client.tls_certs_merge(bundle);
    }
    if let (Some(paths), Some((certificate, key))) = (&config.tls.client, &files.client) {
        let mut pem = found(&paths.certificate, certificate)?;
        pem.push(b'\n');
        pem.extend(found(&paths.key, key)?);
        let (certificate, key) = (paths.certificate.display(), paths.key.display());
        let identity =
            Identity::from_pem(&pem).map_err(|e| format!("{certificate} with {key}: {}", chain(&e)))?;
        client = client.identity(identity);
    }
    client.build().map_err(|e| chain(&e))
}

fn read(tls: &TlsFiles) -> Files {
    let read = |path: &Path| std::fs::read(path).map_err(|e| e.to_string());
    Files {
        ca: tls.ca.as_deref().map(read),
        client: tls.client.as_ref().map(|client| (read(&client.certificate), read(&client.key))),
    }
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

/// Looks up every name as if it were the URL's.
fn resolving(client: ClientBuilder, url: &str) -> Result<ClientBuilder, String> {
    let url = Url::parse(url).map_err(|e| e.to_string())?;
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    // A proxy would look up the name itself.
    Ok(client.no_proxy().dns_resolver(Arc::new(Always(host.into()))))
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
