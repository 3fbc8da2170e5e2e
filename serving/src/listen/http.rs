//! HTTP/1.1 over TCP or TLS, in which no client keeps another one out.
//!
//! One peer has only so many connections. When there is no room for another one, the peer with the most connections gives one up. So a client that needs few is
//! served whatever another one does with many: half a handshake, half a header, requests that take long, pages that it does
//! or does not read. Of one peer's connections, or where all have as many, the one on which nothing has moved for the longest
//! time gives way; one whose request is being answered does so only where all are like that.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::listen::descriptors;
use crate::listen::peer::Peer;
use crate::listen::tls::Tls;

/// How long requests under way may take once the server is to stop: whoever keeps a connection open must not keep the
/// process.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes that are kept for a connection, in each direction.
const BUFFER: usize = 32 << 10;

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// So many at the same time, or as many as half of the files that the process may have open.
    pub connections: usize,
    /// How long one may be without a whole header of a request.
    pub header: Duration,
    /// How long nothing may move on one.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 256, header: Duration::from_secs(10), silence: Duration::from_secs(30) }
    }
}

/// What answers requests.
pub trait Answers<B>:
    Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<B, S> Answers<B> for S where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// Serves until `stop`; requests under way are finished first. All connections end with the future.
pub async fn serve<B>(
    listener: TcpListener,
    tls: Option<Tls>,
    limits: Limits,
    service: impl Answers<B>,
    stop: CancellationToken,
) where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let (graceful, mut connections) = (GracefulShutdown::new(), JoinSet::new());
    let mut open = Open { began: Instant::now(), connections: HashMap::new(), of_peer: HashMap::new() };
    // Half of what the process may have open is for others than clients of one server.
    let most = limits.connections.min(descriptors::available() / 2);
    let mut look = interval(limits.silence / 2);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (connection, peer) = tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next_with_id() => {
                open.remove(ended.map_or_else(|error| error.id(), |(id, ())| id));
                continue;
            }
            _ = look.tick() => {
                open.end_silent(limits.silence);
                continue;
            }
            connection = accept(&listener) => connection,
        };
        open.make_room(most);
        let signs =
            Arc::new(Signs { moved: AtomicU64::new(open.now()), answering: AtomicUsize::new(0), peer });
        let connection = Moving { inner: connection, began: open.began, signs: signs.clone() };
        let service = Answering { inner: service.clone(), signs: signs.clone() };
        let (tls, watcher, stop) = (tls.clone(), graceful.watcher(), stop.clone());
        // A handshake takes as long as the other side likes, so it is none of this loop's business.
        let task = connections.spawn(async move {
            let Some(tls) = tls else { return converse(connection, limits, service, watcher).await };
            let shaken = tokio::select! {
                () = stop.cancelled() => return,
                shaken = tls.accept(connection) => shaken,
            };
            match shaken {
                Ok(connection) => converse(connection, limits, service, watcher).await,
                Err(error) => debug!(%error, "a TLS handshake failed"),
            }
        });
        open.insert(signs, task);
    }
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}

/// What is known of a connection.
struct Signs {
    /// When something last moved on it, in milliseconds since the server began.
    moved: AtomicU64,
    /// Requests of which no answer is there yet.
    answering: AtomicUsize,
    peer: Peer,
}

struct Open {
    began: Instant,
    connections: HashMap<Id, (Arc<Signs>, AbortHandle)>,
    of_peer: HashMap<Peer, usize>,
}

impl Open {
    fn now(&self) -> u64 {
        millis(self.began)
    }

    fn insert(&mut self, signs: Arc<Signs>, task: AbortHandle) {
        *self.of_peer.entry(signs.peer).or_default() += 1;
        self.connections.insert(task.id(), (signs, task));
    }

    /// One that has ended, or is to end.
    fn remove(&mut self, id: Id) -> Option<AbortHandle> {
        let (signs, task) = self.connections.remove(&id)?;
        if let Entry::Occupied(mut count) = self.of_peer.entry(signs.peer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(task)
    }

    /// When there are as many as there may be, ends the stillest connection of a peer that has the most. One that waits for us
    /// ends only if all of these do.
    fn make_room(&mut self, most: usize) {
        if self.connections.len() < most {
            return;
        }
        let largest = self.of_peer.values().max();
        let gives_way = |signs: &Signs| self.of_peer.get(&signs.peer) == largest;
        let candidates = self.connections.iter().filter(|(_, (signs, _))| gives_way(signs));
        let moved = |(_, (signs, _)): &(&Id, &(Arc<Signs>, AbortHandle))| {
            let is_answered = signs.answering.load(Ordering::Relaxed) > 0;
            (is_answered, signs.moved.load(Ordering::Relaxed))
        };
        if let Some(stillest) = candidates.min_by_key(moved).map(|(id, _)| *id)
            && let Some(task) = self.remove(stillest)
        {
            task.abort();
        }
    }

    /// Ends connections on which nothing has moved for so long.
    fn end_silent(&mut self, silence: Duration) {
        let since = self.now().saturating_sub(silence.as_millis() as u64);
        let is_silent = |signs: &Signs| signs.moved.load(Ordering::Relaxed) < since;
        let silent: Vec<Id> =
            self.connections.iter().filter(|(_, (signs, _))| is_silent(signs)).map(|(id, _)| *id).collect();
        for id in silent {
            if let Some(task) = self.remove(id) {
                task.abort();
            }
        }
    }
}

fn millis(began: Instant) -> u64 {
    began.elapsed().as_millis() as u64
}

/// A connection that notes when something moved on it.
struct Moving {
    inner: TcpStream,
    began: Instant,
    signs: Arc<Signs>,
}

impl Moving {
    fn note(&self, written: &Poll<io::Result<usize>>) {
        if matches!(written, Poll::Ready(Ok(bytes)) if *bytes > 0) {
            self.signs.moved.store(millis(self.began), Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Moving {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        self.note(&Poll::Ready(Ok(buffer.filled().len() - before)));
        read
    }
}

impl AsyncWrite for Moving {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Answers the requests of one connection, which are told their peer, and notes while one is under way.
#[derive(Clone)]
struct Answering<S> {
    inner: S,
    signs: Arc<Signs>,
}

impl<S: Service<Request<Incoming>, Future: Send + 'static>> Service<Request<Incoming>> for Answering<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.signs.peer);
        let under_way = UnderWay::new(self.signs.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let _under_way = under_way;
            answer.await
        })
    }
}

/// A request that is being answered.
struct UnderWay(Arc<Signs>);

impl UnderWay {
    fn new(signs: Arc<Signs>) -> Self {
        signs.answering.fetch_add(1, Ordering::Relaxed);
        Self(signs)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The next connection that can be accepted.
async fn accept(listener: &TcpListener) -> (TcpStream, Peer) {
    loop {
        match listener.accept().await {
            Ok((connection, address)) => return (connection, address.ip().into()),
            Err(error) => {
                debug!(%error, "a connection was not accepted");
                // Out of file descriptors, most likely: give others time to close theirs.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Answers the requests of one connection.
async fn converse<B>(
    connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    limits: Limits,
    service: impl Answers<B>,
    watcher: Watcher,
) where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(connection), service);
    if let Err(error) = watcher.watch(connection).await {
        debug!(%error, "a connection ended badly");
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;
    use tokio::sync::Notify;

    use super::*;

    /// Larger than what sockets keep.
    const LARGE: usize = 64 << 20;
    /// One request for `/late` is answered for each.
    static ANSWER_LATE: Notify = Notify::const_new();
    const ASK: &[u8] = b"GET /small HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    const ASK_FOR_MUCH: &[u8] = b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n";

    /// A server that answers a word, or much; or a word once a test says so, or never.
    async fn serving(limits: Limits) -> (std::net::SocketAddr, JoinSet<()>, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let service = service_fn(async |request: Request<Incoming>| {
            match request.uri().path() {
                "/late" => ANSWER_LATE.notified().await,
                "/never" => std::future::pending().await,
                _ => {}
            }
            let size = if request.uri().path() == "/large" { LARGE } else { 5 };
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![b'a'; size]))))
        });
        let mut server = JoinSet::new();
        server.spawn(serve(listener, None, limits, service, stop.clone()));
        (address, server, stop)
    }

    #[tokio::test]
    async fn whoever_is_being_answered_gives_way_to_nobody_but_where_all_are() {
        let (address, _server, _) = serving(limits(8, Duration::from_secs(600))).await;
        let ask_late = async || {
            let mut connection = TcpStream::connect(address).await.unwrap();
            let late = String::from_utf8_lossy(ASK).replace("/small", "/late");
            connection.write_all(late.as_bytes()).await.unwrap();
            connection
        };
        let mut waiting = ask_late().await;
        let mut others = Vec::new();
        for n in 0..40 {
            others.push(TcpStream::connect(address).await.unwrap());
            assert!(ask(address).await.ends_with("aaaaa"), "{n}");
        }
        ANSWER_LATE.notify_one();
        let mut answer = String::new();
        waiting.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("aaaaa"), "{answer}");
        // Nor do those keep others out who wait for ever.
        for _ in 0..20 {
            others.push(ask_late().await);
        }
        assert!(ask(address).await.ends_with("aaaaa"));
    }

    /// A connection from another address of this machine than all others have.
    async fn connect_from_elsewhere(address: std::net::SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        socket.connect(address).await.unwrap()
    }

    #[tokio::test]
    async fn who_has_many_connections_takes_none_from_who_has_one() {
        let (address, _server, _) = serving(limits(8, Duration::from_secs(600))).await;
        let never = String::from_utf8_lossy(ASK).replace("/small", "/never");
        let (mut single, mut many) = (connect_from_elsewhere(address).await, Vec::new());
        single.write_all(&ASK[..10]).await.unwrap();
        for n in 0..40 {
            let mut other = TcpStream::connect(address).await.unwrap();
            // All of those are being answered: by the rule for one peer, they would stay.
            other.write_all(never.as_bytes()).await.unwrap();
            many.push(other);
            if n % 10 == 9 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        single.write_all(&ASK[10..]).await.unwrap();
        let mut answer = String::new();
        single.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("aaaaa"), "{answer}");
    }

    async fn ask(address: std::net::SocketAddr) -> String {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(ASK).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn limits(connections: usize, silence: Duration) -> Limits {
        Limits { connections, silence, header: Duration::from_secs(600) }
    }

    #[tokio::test]
    async fn whoever_asks_is_answered_however_many_say_nothing_or_do_not_read() {
        let (address, _server, _) = serving(limits(8, Duration::from_secs(600))).await;
        let mut others = Vec::new();
        for n in 0..40 {
            let mut other = TcpStream::connect(address).await.unwrap();
            if n % 2 == 0 {
                other.write_all(ASK_FOR_MUCH).await.unwrap();
            }
            others.push(other);
            assert!(ask(address).await.ends_with("aaaaa"), "{n}");
        }
    }

    #[tokio::test]
    async fn a_connection_on_which_nothing_moves_is_ended() {
        let (address, _server, _) = serving(limits(8, Duration::from_millis(100))).await;
        let mut silent = TcpStream::connect(address).await.unwrap();
        assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0, "it has ended");
        let mut unread = TcpStream::connect(address).await.unwrap();
        unread.write_all(ASK_FOR_MUCH).await.unwrap();
        // It is written to until its buffers are full, and ended then: what is left can still be read.
        tokio::time::timeout(Duration::from_secs(60), async {
            while unread.write_all(b"x").await.is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("it goes on for ever");
    }

    #[tokio::test]
    async fn it_stops_when_it_is_told_to_with_connections_open() {
        let (address, mut server, stop) = serving(limits(8, Duration::from_secs(600))).await;
        let _idle = TcpStream::connect(address).await.unwrap();
        assert!(ask(address).await.ends_with("aaaaa"));
        stop.cancel();
        server.join_next().await.unwrap().unwrap();
    }
}
