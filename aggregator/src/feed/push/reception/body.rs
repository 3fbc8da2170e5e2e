//! Receives and unpacks a body, within limits.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Packed bytes of all pushes that are under way, in kilobytes.
const BUDGET: usize = 256 << 10;
/// Bodies that are unpacked and read at the same time.
pub(super) const READ_AT_ONCE: usize = 4;

/// What all pushes share.
pub(super) struct Limits {
    budget: Arc<Semaphore>,
    /// Turns to unpack and read.
    pub(super) reading: Arc<Semaphore>,
    arrival: Duration,
}

/// Why there is no body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoBody {
    /// It is larger than it may be.
    TooLarge,
    /// It did not arrive in time.
    Slow,
    /// There are too many others.
    Busy,
    /// The connection broke.
    Broken,
    /// It is not packed as it says.
    NotPacked(String),
}

/// A body that arrived, and what it takes up of the budget.
pub(super) struct Arrived {
    chunks: Vec<Bytes>,
    _room: Vec<OwnedSemaphorePermit>,
}

impl Limits {
    /// A body may take so long to arrive.
    pub(super) fn new(arrival: Duration) -> Self {
        let [budget, reading] = [BUDGET, READ_AT_ONCE].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { budget, reading, arrival }
    }

    /// Receives a body of at most `max` bytes.
    pub(super) async fn receive(&self, body: Incoming, max: usize) -> Result<Arrived, NoBody> {
        tokio::time::timeout(self.arrival, self.gather(body, max)).await.unwrap_or(Err(NoBody::Slow))
    }

    async fn gather(&self, mut body: Incoming, max: usize) -> Result<Arrived, NoBody> {
        let too_large = |bytes: u64| usize::try_from(bytes).is_ok_and(|bytes| bytes > max);
        if body.size_hint().upper().is_some_and(too_large) {
            return Err(NoBody::TooLarge);
        }
        let (mut chunks, mut room, mut length) = (Vec::new(), Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let Ok(chunk) = frame.map_err(|_| NoBody::Broken)?.into_data() else { continue };
            length += chunk.len();
            if length > max {
                return Err(NoBody::TooLarge);
            }
            let kilobytes = u32::try_from(chunk.len().div_ceil(1024)).unwrap_or(u32::MAX);
            let permit = self.budget.clone().try_acquire_many_owned(kilobytes);
            room.push(permit.map_err(|_| NoBody::Busy)?);
            chunks.push(chunk);
        }
        Ok(Arrived { chunks, _room: room })
    }
}

impl Arrived {
    /// The body as it was before it was packed, of at most `max` bytes. Takes a while when it is large.
    pub(super) fn unpack(self, gzip: bool, max: usize) -> Result<Vec<u8>, NoBody> {
        let packed = self.chunks.concat();
        if !gzip {
            return Ok(packed);
        }
        let mut text = Vec::new();
        let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
        let read = MultiGzDecoder::new(packed.as_slice()).take(limit).read_to_end(&mut text);
        read.map_err(|error| NoBody::NotPacked(error.to_string()))?;
        if text.len() > max { Err(NoBody::TooLarge) } else { Ok(text) }
    }
}
