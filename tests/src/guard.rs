//! What stands in front of a backend where not everybody may read: TLS, certificates, passwords, tokens, tenants.

use crate::authority::{Authority, Certified};
use crate::{Port, Rig};
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// What a request has to have to be passed on.
#[derive(Clone)]
pub struct Demand {
    /// Headers with exactly these values.
    pub headers: Vec<(&'static str, String)>,
    tls: Arc<ServerConfig>,
}

impl Demand {
    /// These headers, over TLS with the guard's own certificate, from clients with a certificate of `clients` if there
    /// is one.
    ///
    /// # Errors
    /// When the certificate cannot be used.
    pub fn new(
        headers: &[(&'static str, &str)],
        own: &Certified,
        clients: Option<&Authority>,
    ) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let config = match clients {
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes())?)?;
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
                config.with_client_cert_verifier(verifier)
            }
            None => config.with_no_client_auth(),
        };
        let chain =
            CertificateDer::pem_slice_iter(own.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let tls = config.with_single_cert(chain, PrivateKeyDer::from_pem_slice(own.key.as_bytes())?)?;
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Ok(Self { headers, tls: Arc::new(tls) })
    }
}

#[derive(Default)]
struct Counts {
    passed: AtomicU64,
    refused: AtomicU64,
}

/// The guard: a reverse proxy in this process.
pub struct Guard {
    port: Port,
    demand: watch::Sender<Demand>,
    counts: Arc<Counts>,
    task: JoinHandle<()>,
    _rig: Rig,
}

impl Guard {
    /// A guard in front of `upstream`, which speaks plain HTTP.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(rig: &Rig, upstream: SocketAddr, demand: Demand) -> Result<Self> {
        let port = Port::reserve()?;
        let listener = TcpListener::bind(port.address()).await.context("listening")?;
        let (demand, receiver) = watch::channel(demand);
        let counts = Arc::<Counts>::default();
        let task = tokio::spawn(accept(listener, upstream, receiver, Arc::clone(&counts)));
        Ok(Self { port, demand, counts, task, _rig: rig.clone() })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("https://{}", self.port.address())
    }

    /// Demands this from now on. Connections are cut, and both counts begin anew.
    pub fn demand(&self, demand: Demand) {
        self.demand.send_replace(demand);
        self.counts.passed.store(0, Ordering::Relaxed);
        self.counts.refused.store(0, Ordering::Relaxed);
    }

    /// Requests that were passed on.
    pub fn passed(&self) -> u64 {
        self.counts.passed.load(Ordering::Relaxed)
    }

    /// Connections and requests that did not have what was demanded.
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    mut demand: watch::Receiver<Demand>,
    counts: Arc<Counts>,
) {
    let Ok(http) = crate::servers::http() else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            changed = demand.changed() => {
                if changed.is_err() {
                    return;
                }
                connections.abort_all();
            }
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                let demand = demand.borrow().clone();
                connections.spawn(connection(client, upstream, demand, http.clone(), Arc::clone(&counts)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(
    client: TcpStream,
    upstream: SocketAddr,
    demand: Demand,
    http: reqwest::Client,
    counts: Arc<Counts>,
) {
    let Ok(client) = TlsAcceptor::from(demand.tls.clone()).accept(client).await else {
        counts.refused.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let answer = service_fn(|request: Request<Incoming>| {
        let (demand, http, counts) = (demand.clone(), http.clone(), Arc::clone(&counts));
        async move {
            let has = |(name, value): &(&str, String)| {
                request.headers().get(*name).is_some_and(|it| it.as_bytes() == value.as_bytes())
            };
            if !demand.headers.iter().all(has) {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                let mut response = Response::new(Full::new(Bytes::from_static(b"who are you?\n")));
                *response.status_mut() = StatusCode::UNAUTHORIZED;
                return Ok(response);
            }
            counts.passed.fetch_add(1, Ordering::Relaxed);
            pass(request, upstream, &http).await
        }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(client), answer).await;
}

async fn pass(
    request: Request<Incoming>,
    upstream: SocketAddr,
    http: &reqwest::Client,
) -> Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |it| it.as_str());
    let mut passed =
        http.request(head.method, format!("http://{upstream}{path}")).body(body.collect().await?.to_bytes());
    if let Some(kind) = head.headers.get(http::header::CONTENT_TYPE) {
        passed = passed.header(http::header::CONTENT_TYPE, kind);
    }
    let answer = passed.send().await?;
    let mut response = Response::new(Full::default());
    *response.status_mut() = answer.status();
    *response.body_mut() = Full::new(answer.bytes().await?);
    Ok(response)
}
