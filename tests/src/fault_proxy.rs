//! A small proxy in front of a server that can spoil the way there.
//!
//! It passes bytes, so it can stand before TLS servers too; only [`Fault::ServerError`] and [`Fault::HalfBody`]
//! read plain HTTP.

use crate::{Port, Rig};
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What the proxy does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: passes everything.
    Pass,
    /// Nobody listens; connections that exist are cut.
    Refuse,
    /// Connections are taken and closed at once; those that exist are cut.
    Cut,
    /// Connections stay open, new ones are taken, and no byte passes either way: a half-open connection. What was
    /// held back passes when this ends.
    Freeze,
    /// Every request is answered 500. Connections that exist are cut. Plain HTTP only.
    ServerError,
    /// Every answer breaks off after half of its body. Connections that exist are cut. Plain HTTP only.
    HalfBody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    fault: Fault,
    /// Connections of an older round are cut.
    round: u64,
}

/// The proxy. It runs in this process.
#[derive(Debug)]
pub struct FaultProxy {
    port: Port,
    setting: watch::Sender<Setting>,
    passed: Arc<AtomicU64>,
    task: JoinHandle<()>,
    _rig: Rig,
}

impl FaultProxy {
    /// A proxy in front of `upstream` that passes everything.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(rig: &Rig, upstream: SocketAddr) -> Result<Self> {
        let port = Port::reserve()?;
        let listener = TcpListener::bind(port.address()).await.context("listening")?;
        let (setting, receiver) = watch::channel(Setting { fault: Fault::Pass, round: 0 });
        let passed = Arc::default();
        let task = tokio::spawn(accept(listener, port.address(), upstream, receiver, Arc::clone(&passed)));
        Ok(Self { port, setting, passed, task, _rig: rig.clone() })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The same as an HTTP URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Switches. Going from or to [`Fault::Freeze`] keeps the connections, all else cuts them.
    pub fn set(&self, fault: Fault) {
        self.setting.send_modify(|s| {
            if fault != Fault::Freeze && s.fault != Fault::Freeze {
                s.round += 1;
            }
            s.fault = fault;
        });
    }

    /// Cuts every connection once; what happens to new ones stays as it is.
    pub fn cut(&self) {
        self.setting.send_modify(|s| s.round += 1);
    }

    /// How many bytes came back from upstream and were passed: to see that something got through, or nothing did.
    pub fn bytes_returned(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    address: SocketAddr,
    upstream: SocketAddr,
    mut setting: watch::Receiver<Setting>,
    passed: Arc<AtomicU64>,
) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let now = *setting.borrow_and_update();
        if now.fault == Fault::Refuse {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
        }
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = setting.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            accepted = accepted => {
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(connection(client, upstream, setting.clone(), Arc::clone(&passed)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection until it ends or its round does.
async fn connection(
    client: TcpStream,
    upstream: SocketAddr,
    setting: watch::Receiver<Setting>,
    passed: Arc<AtomicU64>,
) {
    let Setting { fault, round } = *setting.borrow();
    let mut rounds = setting.clone();
    let work = async {
        match fault {
            Fault::Pass | Fault::Freeze => pass(client, upstream, setting, &passed).await,
            Fault::Refuse | Fault::Cut => Ok(()),
            Fault::ServerError => server_error(client).await,
            Fault::HalfBody => half_body(client, upstream, &passed).await,
        }
    };
    // Dropping the work closes both connections.
    tokio::select! {
        _ = work => {}
        _ = rounds.wait_for(|s| s.round != round) => {}
    }
}

async fn pass(
    client: TcpStream,
    upstream: SocketAddr,
    mut setting: watch::Receiver<Setting>,
    passed: &AtomicU64,
) -> Result<()> {
    let thawed = setting.wait_for(|s| s.fault != Fault::Freeze).await?;
    drop(thawed);
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = TcpStream::connect(upstream).await?.into_split();
    let nothing = AtomicU64::new(0);
    let up = copy(client_read, server_write, setting.clone(), &nothing);
    let down = copy(server_read, client_write, setting, passed);
    tokio::try_join!(up, down)?;
    Ok(())
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut setting: watch::Receiver<Setting>,
    passed: &AtomicU64,
) -> Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        // The end of a connection is held back like everything else: the other side must not notice.
        drop(setting.wait_for(|s| s.fault != Fault::Freeze).await?);
        if read == 0 {
            to.shutdown().await?;
            return Ok(());
        }
        passed.fetch_add(read as u64, Ordering::Relaxed);
        to.write_all(&buffer[..read]).await?;
    }
}

/// Reads one request: its head, and as much of a body as its length says.
async fn read_request(client: &mut TcpStream) -> Result<Vec<u8>> {
    let mut request = Vec::new();
    loop {
        if let Some(head) = head_length(&request) {
            let text = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
            let body = text
                .lines()
                .find_map(|l| l.strip_prefix("content-length:"))
                .and_then(|l| l.trim().parse::<usize>().ok())
                .unwrap_or(0);
            if request.len() >= head + body {
                return Ok(request);
            }
        }
        anyhow::ensure!(client.read_buf(&mut request).await? > 0, "the request broke off");
    }
}

/// Length of an HTTP head with its empty line, once it is complete.
fn head_length(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4)
}

async fn server_error(mut client: TcpStream) -> Result<()> {
    read_request(&mut client).await?;
    let answer =
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 6\r\nConnection: close\r\n\r\nfault\n";
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await?;
    Ok(())
}

async fn half_body(mut client: TcpStream, upstream: SocketAddr, passed: &AtomicU64) -> Result<()> {
    let request = read_request(&mut client).await?;
    let head = head_length(&request).context("no head")?;
    let mut server = TcpStream::connect(upstream).await?;
    // Asked to close, the server ends its answer with the connection.
    server.write_all(&request[..head - 2]).await?;
    server.write_all(b"Connection: close\r\n\r\n").await?;
    server.write_all(&request[head..]).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    let head = head_length(&answer).context("no head in the answer")?;
    let half = head + (answer.len() - head) / 2;
    passed.fetch_add(half as u64, Ordering::Relaxed);
    client.write_all(&answer[..half]).await?;
    client.shutdown().await?;
    Ok(())
}
