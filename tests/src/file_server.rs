//! Bytes served over HTTP on 127.0.0.1 from within the test: Flux artifacts, metrics pages written by hand.

use crate::Port;
use anyhow::{Context, Result};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Makes a page when it is asked for; `None` is a 404.
type Page = Arc<dyn Fn() -> BoxFuture<'static, Option<Bytes>> + Send + Sync>;
type Files = Arc<Mutex<HashMap<String, Page>>>;

/// An HTTP server whose pages the test sets and changes while it runs.
pub struct FileServer {
    port: Port,
    files: Files,
    task: JoinHandle<()>,
}

impl FileServer {
    /// Starts one without pages.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> Result<Self> {
        let port = Port::reserve()?;
        let listener = TcpListener::bind(port.address()).await.context("listening")?;
        let files = Files::default();
        let task = tokio::spawn(serve(listener, files.clone()));
        Ok(Self { port, files, task })
    }

    /// Sets what `path` (with its leading slash) answers.
    pub fn put(&self, path: &str, body: impl Into<Bytes>) {
        let body = body.into();
        self.put_with(path, move || std::future::ready(Some(body.clone())));
    }

    /// Sets that `path` (with its leading slash) answers what `page` makes at every request; `None` is a 404.
    pub fn put_with<F>(&self, path: &str, page: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Option<Bytes>> + Send + 'static,
    {
        let page: Page = Arc::new(move || page().boxed());
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), page);
    }

    /// From now on `path` answers 404.
    pub fn remove(&self, path: &str) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> std::net::SocketAddr {
        self.port.address()
    }

    /// URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }
}

impl std::fmt::Debug for FileServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileServer({})", self.address())
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, files: Files) {
    // The connections end with this set, and the set ends with the server.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let files = files.clone();
                connections.spawn(async move {
                    let answer = service_fn(move |request| answer(request, files.clone()));
                    let io = TokioIo::new(stream);
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, answer).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(request: Request<Incoming>, files: Files) -> Result<Response<Full<Bytes>>, Infallible> {
    let page = files.lock().unwrap_or_else(PoisonError::into_inner).get(request.uri().path()).cloned();
    let body = match page {
        Some(page) => page().await,
        None => None,
    };
    let mut response = Response::new(Full::new(body.clone().unwrap_or_default()));
    if body.is_none() {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    // What Prometheus wants for pages without a type of their own; Flux does not look at it.
    let text = http::HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(http::header::CONTENT_TYPE, text);
    Ok(response)
}
