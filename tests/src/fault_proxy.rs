//! A small proxy in front of a server that can spoil the way there.
//!
//! It passes bytes, so it can stand before TLS servers too; only the faults that are answers, from
//! [`Fault::ServerError`] on, read plain HTTP.

use crate::{Port, Rig};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
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
    /// Whatever passes is held back for so long first, 16 KB at a time: what is on the way is late by up to twice
    /// as much.
    Slow(Duration),
    /// Every request is answered 500 and its own first line. Connections that exist are cut. Plain HTTP only.
    ServerError,
    /// Every request is answered 429 and its own first line. Connections that exist are cut. Plain HTTP only.
    TooManyRequests,
    /// Every answer breaks off after half of its body. Connections that exist are cut. Plain HTTP only.
    HalfBody,
    /// What a query was answered first is its answer for ever, whatever time it asks about and however far back it looks
    /// from there. Connections that exist are cut. Query APIs and pages over plain HTTP only.
    OldAnswers,
    /// What a client sends first is sent for ever in place of what it sends. Connections that exist are cut. Plain HTTP only.
    OldRequests,
    /// Every series comes twice, the second time with the label `replica="twin"`, as from two servers that scrape
    /// the same. Connections that exist are cut. Query APIs over plain HTTP only.
    Twins,
    /// Every answer says of itself that it is partial, in the way of VictoriaMetrics' cluster: data that looks whole,
    /// and a field. Connections that exist are cut. Query APIs over plain HTTP only.
    Partial,
    /// Every series comes twice, with the same labels. Connections that exist are cut. Query APIs over plain HTTP
    /// only.
    Doubles,
}

impl Fault {
    /// Whether bytes pass unchanged, if late: then connections outlive it.
    const fn keeps_connections(self) -> bool {
        matches!(self, Self::Pass | Self::Freeze | Self::Slow(_))
    }
}

/// Old answers by request, or the first request.
type Memory = Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    fault: Fault,
    /// Connections of an older round are cut.
    round: u64,
    /// Connections of an older age stay open, and nothing passes.
    age: u64,
}

/// The proxy. It runs in this process.
#[derive(Debug)]
pub struct FaultProxy {
    port: Port,
    setting: watch::Sender<Setting>,
    passed: Arc<AtomicU64>,
    memory: Memory,
    task: JoinHandle<()>,
    _rig: Rig,
}

impl FaultProxy {
    /// A proxy in front of `upstream` that passes everything.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(rig: &Rig, upstream: SocketAddr) -> Result<Self> {
        Self::balance(rig, &[upstream]).await
    }

    /// A proxy that connects to each of these in turn, and passes everything.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn balance(rig: &Rig, upstreams: &[SocketAddr]) -> Result<Self> {
        let port = Port::reserve()?;
        let listener = TcpListener::bind(port.address()).await.context("listening")?;
        let (setting, receiver) = watch::channel(Setting { fault: Fault::Pass, round: 0, age: 0 });
        let (passed, memory) = (Arc::default(), Memory::default());
        let way = Way {
            upstreams: upstreams.into(),
            turn: Arc::default(),
            passed: Arc::clone(&passed),
            memory: Arc::clone(&memory),
        };
        let task = tokio::spawn(accept(listener, port.address(), way, receiver));
        Ok(Self { port, setting, passed, memory, task, _rig: rig.clone() })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The same as an HTTP URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Switches. Going between [`Fault::Pass`], [`Fault::Freeze`] and [`Fault::Slow`] keeps the connections, all else
    /// cuts them. Old answers and requests are forgotten.
    pub fn set(&self, fault: Fault) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.setting.send_modify(|s| {
            if !(fault.keeps_connections() && s.fault.keeps_connections()) {
                s.round += 1;
            }
            s.fault = fault;
        });
    }

    /// Cuts every connection once; what happens to new ones stays as it is.
    pub fn cut(&self) {
        self.setting.send_modify(|s| s.round += 1);
    }

    /// Forgets every connection, as a firewall does: neither side hears of it, and nothing passes any more. What happens to
    /// new ones stays as it is. For [`Fault::Pass`] and what can be reached from it with connections kept.
    pub fn forget(&self) {
        self.setting.send_modify(|s| s.age += 1);
    }

    /// Whether there is something that [`Fault::OldAnswers`] or [`Fault::OldRequests`] repeats.
    pub fn remembers(&self) -> bool {
        !self.memory.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
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

/// What a connection needs to know besides the setting.
#[derive(Debug, Clone)]
struct Way {
    upstreams: Arc<[SocketAddr]>,
    /// How many connections were made.
    turn: Arc<AtomicUsize>,
    passed: Arc<AtomicU64>,
    memory: Memory,
}

impl Way {
    async fn connect(&self) -> Result<TcpStream> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        Ok(TcpStream::connect(self.upstreams[turn % self.upstreams.len()]).await?)
    }

    /// What is answered to a request that asks for the connection to be closed.
    async fn exchange(&self, head: &[u8], body: &[u8]) -> Result<Vec<u8>> {
        let mut server = self.connect().await?;
        server.write_all(head).await?;
        server.write_all(body).await?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).await?;
        Ok(answer)
    }
}

async fn accept(listener: TcpListener, address: SocketAddr, way: Way, mut setting: watch::Receiver<Setting>) {
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
                connections.spawn(connection(client, way.clone(), setting.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection until it ends or its round does.
async fn connection(client: TcpStream, way: Way, setting: watch::Receiver<Setting>) {
    let Setting { fault, round, age } = *setting.borrow();
    let mut rounds = setting.clone();
    let work = async {
        match fault {
            Fault::Pass | Fault::Freeze | Fault::Slow(_) => pass(client, &way, setting, age).await,
            Fault::Refuse | Fault::Cut => Ok(()),
            Fault::ServerError => refuse(client, "500 Internal Server Error").await,
            Fault::TooManyRequests => refuse(client, "429 Too Many Requests").await,
            Fault::HalfBody => half_body(client, &way).await,
            Fault::OldAnswers => old_answers(client, &way).await,
            Fault::OldRequests => old_requests(client, &way).await,
            Fault::Partial => partial(client, &way).await,
            Fault::Twins => twice(client, &way, Some("twin")).await,
            Fault::Doubles => twice(client, &way, None).await,
        }
    };
    // Dropping the work closes both connections.
    tokio::select! {
        _ = work => {}
        _ = rounds.wait_for(|s| s.round != round) => {}
    }
}

/// Waits until bytes of a connection of this age may pass, and gives how long they are held back.
async fn thawed(setting: &mut watch::Receiver<Setting>, age: u64) -> Result<Duration> {
    match setting.wait_for(|s| s.fault != Fault::Freeze && s.age == age).await?.fault {
        Fault::Slow(delay) => Ok(delay),
        _ => Ok(Duration::ZERO),
    }
}

async fn pass(client: TcpStream, way: &Way, mut setting: watch::Receiver<Setting>, age: u64) -> Result<()> {
    thawed(&mut setting, age).await?;
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = way.connect().await?.into_split();
    let nothing = AtomicU64::new(0);
    let up = copy(client_read, server_write, setting.clone(), age, &nothing);
    let down = copy(server_read, client_write, setting, age, &way.passed);
    tokio::try_join!(up, down)?;
    Ok(())
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut setting: watch::Receiver<Setting>,
    age: u64,
    passed: &AtomicU64,
) -> Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        // The end of a connection is held back like everything else: the other side must not notice.
        let delay = thawed(&mut setting, age).await?;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
            thawed(&mut setting, age).await?;
        }
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

async fn refuse(mut client: TcpStream, status: &str) -> Result<()> {
    let request = read_request(&mut client).await?;
    let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
    let length = line.len();
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{line}");
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await?;
    Ok(())
}

/// What is answered to a request as it is, but that the server ends its answer with the connection.
async fn last_answer(request: &[u8], way: &Way) -> Result<Vec<u8>> {
    let (head, body) = request.split_at(head_length(request).context("no head")?);
    way.exchange(&[&head[..head.len() - 2], b"Connection: close\r\n\r\n"].concat(), body).await
}

async fn half_body(mut client: TcpStream, way: &Way) -> Result<()> {
    let full = last_answer(&read_request(&mut client).await?, way).await?;
    let head = head_length(&full).context("no head in the answer")?;
    answer(client, way, &full[..head + (full.len() - head) / 2]).await
}

async fn old_requests(mut client: TcpStream, way: &Way) -> Result<()> {
    let request = read_request(&mut client).await?;
    let first = {
        let mut memory = way.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.entry(Vec::new()).or_insert(request).clone()
    };
    let said = last_answer(&first, way).await?;
    answer(client, way, &said).await
}

/// An answer that is neither in chunks nor compressed.
struct Answer {
    status: String,
    content_type: String,
    body: Vec<u8>,
}

/// Passes a request on so that its answer comes plain and in one piece.
async fn ask(request: &[u8], way: &Way) -> Result<Answer> {
    let head = head_length(request).context("no head")?;
    let text = String::from_utf8_lossy(&request[..head]);
    // An old client is answered neither in chunks nor compressed.
    let kept = |line: &&str| {
        let line = line.to_ascii_lowercase();
        !line.is_empty() && !line.starts_with("accept-encoding:") && !line.starts_with("connection:")
    };
    let lines: Vec<String> =
        text.lines().filter(kept).map(|line| line.replace(" HTTP/1.1", " HTTP/1.0")).collect();
    let mut answer = way.exchange((lines.join("\r\n") + "\r\n\r\n").as_bytes(), &request[head..]).await?;
    let head = head_length(&answer).context("no head in the answer")?;
    let body = answer.split_off(head);
    let head = String::from_utf8(answer)?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split_once(' ')).context("no status")?.1.to_owned();
    let mut fields = lines.filter_map(|line| line.split_once(": "));
    let content_type = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let content_type = content_type.context("no content type")?.1.to_owned();
    Ok(Answer { status, content_type, body })
}

impl Answer {
    /// As it is sent.
    fn whole(&self) -> Vec<u8> {
        let Self { status, content_type, body } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    }

    /// What it says, as JSON.
    fn said(&self) -> Result<Value> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// The same answer that says something else.
    fn saying(self, said: &Value) -> Vec<u8> {
        Self { body: said.to_string().into_bytes(), ..self }.whole()
    }
}

async fn answer(mut client: TcpStream, way: &Way, answer: &[u8]) -> Result<()> {
    way.passed.fetch_add(answer.len() as u64, Ordering::Relaxed);
    client.write_all(answer).await?;
    client.shutdown().await?;
    Ok(())
}

async fn old_answers(mut client: TcpStream, way: &Way) -> Result<()> {
    let request = read_request(&mut client).await?;
    let key = timeless(&request).context("not a query")?;
    let memory = || way.memory.lock().unwrap_or_else(PoisonError::into_inner);
    let known = memory().get(&key).cloned();
    let old = match known {
        Some(old) => old,
        None => {
            let first = ask(&request, way).await?.whole();
            memory().entry(key).or_insert(first).clone()
        }
    };
    answer(client, way, &old).await
}

/// Path and parameters of a query without the time that it asks about, and without how far back it looks from there.
fn timeless(request: &[u8]) -> Option<Vec<u8>> {
    let head = head_length(request)?;
    let line = request.split(|byte| *byte == b'\r').next()?;
    let text = format!("{}&{}", String::from_utf8_lossy(line), String::from_utf8_lossy(&request[head..]));
    let parts = text.split(['&', '?', ' ']).filter(|part| !part.starts_with("time=")).map(|part| {
        let window = ["ms]", "ms%5D"].iter().find_map(|end| part.strip_suffix(end));
        window.map_or(part, |part| part.trim_end_matches(|c: char| c.is_ascii_digit()))
    });
    Some(parts.collect::<Vec<_>>().join("&").into_bytes())
}

async fn partial(mut client: TcpStream, way: &Way) -> Result<()> {
    let request = read_request(&mut client).await?;
    let plain = ask(&request, way).await?;
    let mut said = plain.said()?;
    if said["status"] == "success" {
        said["isPartial"] = json!(true);
    }
    answer(client, way, &plain.saying(&said)).await
}

async fn twice(mut client: TcpStream, way: &Way, replica: Option<&str>) -> Result<()> {
    let request = read_request(&mut client).await?;
    let plain = ask(&request, way).await?;
    let mut said = plain.said()?;
    if let Some(series) = said.pointer_mut("/data/result").and_then(Value::as_array_mut) {
        let mut copies = series.clone();
        for copy in copies.iter_mut().filter(|copy| copy["metric"].is_object()) {
            if let Some(replica) = replica {
                copy["metric"]["replica"] = json!(replica);
            }
        }
        series.extend(copies);
    }
    answer(client, way, &plain.saying(&said)).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_query_is_the_same_whatever_time_and_window_it_is_about() {
        let key =
            |body: &str| timeless(format!("POST /api/v1/query HTTP/1.1\r\n\r\n{body}").as_bytes()).unwrap();
        let first = key("query=%7Ba%3D%22b%22%7D%5B4500ms%5D&time=17.5");
        assert_eq!(first, key("query=%7Ba%3D%22b%22%7D%5B173ms%5D&time=18"));
        assert_ne!(first, key("query=%7Ba%3D%22c%22%7D%5B4500ms%5D&time=17.5"));
    }
}
