//! How a process is told to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Ends when this process is told to stop. The first process of a container is not ended by signals that it does not
/// handle.
///
/// # Errors
/// When signals cannot be waited for.
pub fn told_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
