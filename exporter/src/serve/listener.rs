//! The threads that serve. Anybody may have them do TLS handshakes and write pages all the time, and the engine on the main
//! thread must keep up all the same: so handshakes, pages and the questions about tokens are made here.

use std::{net::SocketAddr, sync::Arc, thread};

use anyhow::{Context as _, Result};
use kube::Client;
use statusbridge_serving::{
    endpoints,
    options::{ServerArgs, ServerOptions},
};
use tokio::{net::TcpListener, runtime, sync::oneshot};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::http::ServerState;
use crate::metrics::OwnMetrics;

/// Serves `state` at `address` until `stop` on threads of its own. What is given back is ready when it has ended.
///
/// # Errors
/// When it cannot listen, or the certificate cannot be used.
pub(super) async fn start(
    address: SocketAddr,
    args: ServerArgs,
    client: impl AsyncFnOnce() -> Result<Client> + Send + 'static,
    state: Arc<ServerState>,
    metrics: Arc<OwnMetrics>,
    stop: CancellationToken,
) -> Result<oneshot::Receiver<()>> {
    let ((begun, listening), (ended, end)) = (oneshot::channel(), oneshot::channel());
    let serve = move || {
        let served = async {
            match listen(address, &args, client, &metrics).await {
                Ok((listener, options)) => {
                    let _ = begun.send(Ok(()));
                    endpoints::serve(listener, options, state, stop).await;
                }
                Err(error) => drop(begun.send(Err(error))),
            }
        };
        // It accepts connections on this thread, and does all else on another one: a connection that waits in the kernel for
        // as long as a thousand handshakes take may find the queue there full.
        match runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
            Ok(runtime) => runtime.block_on(served),
            // Nobody has begun, which says as much.
            Err(error) => tracing::error!(%error, "cannot serve"),
        }
        let _ = ended.send(());
    };
    thread::Builder::new().name("listener".to_owned()).spawn(serve).context("cannot start a thread")?;
    listening.await.context("the server failed")??;
    Ok(end)
}

async fn listen(
    address: SocketAddr,
    args: &ServerArgs,
    client: impl AsyncFnOnce() -> Result<Client>,
    metrics: &OwnMetrics,
) -> Result<(TcpListener, ServerOptions)> {
    let options = args.options(&metrics.server, client).await?;
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    info!(address = %listener.local_addr()?, "serving");
    Ok((listener, options))
}
