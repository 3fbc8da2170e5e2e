//! Lets a synchronous parser read a response body that arrives asynchronously.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

/// Parcels in flight between the connection and the parser.
const PARCELS: usize = 4;
/// Bytes of a parcel: the parser is woken for each, which costs more than parsing a small one.
const PARCEL: usize = 128 << 10;

/// The parser's end. Reading blocks: use it on a blocking thread.
#[derive(Debug)]
pub(super) struct BodyReader {
    parcels: mpsc::Receiver<Vec<Bytes>>,
    parcel: std::vec::IntoIter<Bytes>,
    current: Bytes,
}

/// The connection's end. Finishing is the end of the body.
#[derive(Debug)]
pub(super) struct BodyWriter {
    parcels: mpsc::Sender<Vec<Bytes>>,
    parcel: Vec<Bytes>,
    size: usize,
}

/// The parser is gone.
#[derive(Debug)]
pub(super) struct NobodyReads;

/// Both ends.
pub(super) fn pipe() -> (BodyWriter, BodyReader) {
    let (sender, parcels) = mpsc::channel(PARCELS);
    let writer = BodyWriter { parcels: sender, parcel: Vec::new(), size: 0 };
    (writer, BodyReader { parcels, parcel: Vec::new().into_iter(), current: Bytes::new() })
}

impl BodyWriter {
    /// Hands on what arrived, once there is enough of it.
    pub(super) async fn write(&mut self, chunk: Bytes) -> Result<(), NobodyReads> {
        self.size += chunk.len();
        self.parcel.push(chunk);
        if self.size < PARCEL { Ok(()) } else { self.send().await }
    }

    /// Hands on what is left.
    pub(super) async fn finish(mut self) {
        // Its own error says why nobody reads.
        let _ = self.send().await;
    }

    async fn send(&mut self) -> Result<(), NobodyReads> {
        self.size = 0;
        self.parcels.send(std::mem::take(&mut self.parcel)).await.map_err(|_| NobodyReads)
    }
}

impl Read for BodyReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            if let Some(chunk) = self.parcel.next() {
                self.current = chunk;
            } else if let Some(parcel) = self.parcels.blocking_recv() {
                self.parcel = parcel.into_iter();
            } else {
                return Ok(0);
            }
        }
        (&mut self.current).reader().read(out)
    }
}
