//! Lets a synchronous parser read a response body that arrives asynchronously.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

/// Chunks in flight between the connection and the parser.
const CHUNKS: usize = 8;

/// The parser's end. Reading blocks: use it on a blocking thread.
#[derive(Debug)]
pub(super) struct BodyReader {
    chunks: mpsc::Receiver<Bytes>,
    current: Bytes,
}

/// The connection's end and the parser's. Dropping the sender is the end of the body.
pub(super) fn pipe() -> (mpsc::Sender<Bytes>, BodyReader) {
    let (sender, chunks) = mpsc::channel(CHUNKS);
    (sender, BodyReader { chunks, current: Bytes::new() })
}

impl Read for BodyReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => self.current = chunk,
                None => return Ok(0),
            }
        }
        let n = self.current.len().min(out.len());
        self.current.copy_to_slice(&mut out[..n]);
        Ok(n)
    }
}
