//! How long a program lets its probe wait.

use anyhow::{Context, Result, anyhow, ensure};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// Pause between an answer and the next question.
const PAUSE: Duration = Duration::from_millis(10);
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks `/healthz` again and again, as a kubelet does over a connection for each question. It has a thread of its own, so
/// that it waits for nobody but the program.
pub(crate) struct Prober {
    is_over: Arc<AtomicBool>,
    asking: JoinHandle<Result<Duration>>,
}

impl Prober {
    pub(crate) fn start(address: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        Self { is_over, asking: spawn(move || slowest(address, &over)) }
    }

    /// The slowest answer.
    ///
    /// # Errors
    /// When there was none, or another one than 200 after the first.
    pub(crate) fn stop(self) -> Result<Duration> {
        self.is_over.store(true, Ordering::Relaxed);
        self.asking.join().map_err(|_| anyhow!("the prober is gone"))?
    }
}

fn slowest(address: SocketAddr, is_over: &AtomicBool) -> Result<Duration> {
    let mut slowest = None;
    while !is_over.load(Ordering::Relaxed) {
        match (ask(address), slowest) {
            (Ok(took), before) => slowest = before.max(Some(took)),
            // Until it listens.
            (Err(_), None) => {}
            (Err(error), Some(_)) => return Err(error.context("the probe was answered no more")),
        }
        sleep(PAUSE);
    }
    slowest.context("the probe was never answered")
}

fn ask(address: SocketAddr) -> Result<Duration> {
    let started = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200 "), "the probe is answered {answer:?}");
    Ok(started.elapsed())
}
