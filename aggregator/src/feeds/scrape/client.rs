//! One scrape over HTTP.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Certificate, Client, Identity, StatusCode, header};

use super::settings::{Target, Tls};
use crate::feed::{chain, excerpt};

/// How much of a refusal is shown, in bytes.
const EXCERPT: usize = 200;

type Found = Result<Vec<u8>, String>;

/// Clients by what they trust and show.
#[derive(Debug, Default)]
pub(super) struct Clients {
    by_files: HashMap<Tls, ([Option<Found>; 3], Result<Client, String>)>,
}

impl Clients {
    /// A client with what is in the files now; only made anew when that has changed.
    pub(super) fn get(&mut self, tls: &Tls) -> Result<Client, String> {
        let read = |file: &Option<PathBuf>| {
            let read =
                |file: &PathBuf| std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()));
            file.as_ref().map(read)
        };
        let found = [&tls.ca_file, &tls.cert_file, &tls.key_file].map(read);
        if let Some((_, client)) = self.by_files.get(tls).filter(|(seen, _)| *seen == found) {
            return client.clone();
        }
        let client = client(&found);
        self.by_files.insert(tls.clone(), (found, client.clone()));
        client
    }
}

fn client([authorities, certificate, key]: &[Option<Found>; 3]) -> Result<Client, String> {
    let mut builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("statusbridge-aggregator/", env!("CARGO_PKG_VERSION")));
    if let Some(authorities) = authorities {
        let bundle = Certificate::from_pem_bundle(authorities.as_ref().map_err(Clone::clone)?);
        builder = builder.tls_certs_merge(bundle.map_err(|error| format!("caFile: {}", chain(&error)))?);
    }
    if let (Some(certificate), Some(key)) = (certificate, key) {
        let (certificate, key) =
            (certificate.as_ref().map_err(Clone::clone)?, key.as_ref().map_err(Clone::clone)?);
        let pair = [certificate.as_slice(), b"\n", key.as_slice()].concat();
        let identity =
            Identity::from_pem(&pair).map_err(|error| format!("certFile and keyFile: {}", chain(&error)))?;
        builder = builder.identity(identity);
    }
    builder.build().map_err(|error| chain(&error))
}

/// The exposition of one exporter, unpacked.
///
/// # Errors
/// In words, when it is not got as a whole.
pub(super) async fn fetch(
    client: &Client,
    target: &Target,
    timeout: Duration,
    max_bytes: usize,
) -> Result<Vec<u8>, String> {
    let mut request =
        client.get(&target.url).header(header::ACCEPT, "text/plain;version=0.0.4").timeout(timeout);
    if let Some(file) = &target.bearer_token_file {
        let token = tokio::fs::read_to_string(file).await;
        let token = token.map_err(|error| format!("{}: {error}", file.display()))?;
        request = request.bearer_auth(token.trim());
    }
    let told = |error: reqwest::Error| match error.is_timeout() {
        true => format!("no whole answer within {} s", timeout.as_secs_f64()),
        // The URL is told anyway.
        false => chain(&error.without_url()),
    };
    let mut response = request.send().await.map_err(told)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(told)? {
        if body.len() + chunk.len() > max_bytes {
            return Err(format!("it is larger than maxBytes ({max_bytes})"));
        }
        body.extend_from_slice(&chunk);
    }
    match status {
        StatusCode::OK => Ok(body),
        _ => Err(format!("HTTP {}: {}", status.as_u16(), excerpt(&String::from_utf8_lossy(&body), EXCERPT))),
    }
}
