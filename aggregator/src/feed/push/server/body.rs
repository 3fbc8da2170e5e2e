//! Receives and unpacks a body, within limits.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bodies that are unpacked, read and taken into the fleet at the same time.
pub(super) const READ_AT_ONCE: usize = 2;
/// Largest bodies for which there is room while they arrive.
pub(super) const ROOM: usize = 2;
/// What is made of an exposition while it is read and taken into the fleet, in bytes. Measured with 200,000 packages in 62 MiB
/// of text: 68 MiB of one that adds up, 83 MiB of the most expensive one found that does not; musl's allocator takes a
/// sixth more.
pub(in crate::feed) const MADE_OF_ONE: usize = 112 << 20;

/// Memory that pushes take at most, in bytes, where an exposition has at most `max_bytes`: bodies as they arrive, and of
/// those that are read the text and what is made of it.
pub const fn most_memory(max_bytes: usize) -> usize {
    ROOM * with_overhead(max_bytes) + READ_AT_ONCE * (max_bytes + MADE_OF_ONE)
}

/// What all pushes share, whoever leads.
pub(super) struct Limits {
    /// Turns to unpack and read.
    pub(super) reading: Arc<Semaphore>,
    arrival: Duration,
}

/// Room for bodies as they arrive.
#[derive(Clone)]
pub(super) struct Room {
    bytes: Arc<Semaphore>,
}

impl Room {
    /// Room for so many of the largest bodies.
    pub(super) fn new(bodies: usize, max_bytes: usize) -> Self {
        let bytes = bodies.saturating_mul(with_overhead(max_bytes)).min(Semaphore::MAX_PERMITS);
        Self { bytes: Arc::new(Semaphore::new(bytes)) }
    }

    fn take(&self, chunk: usize) -> Result<OwnedSemaphorePermit, NoBody> {
        let bytes = u32::try_from(chunk + CHUNK).unwrap_or(u32::MAX);
        self.bytes.clone().try_acquire_many_owned(bytes).map_err(|_| NoBody::Busy)
    }
}

/// What a chunk of a body takes besides its bytes, at most.
const CHUNK: usize = 128;

/// A body with its chunks, if these are not much smaller than connections make them.
const fn with_overhead(bytes: usize) -> usize {
    bytes + bytes / 16
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

/// A body that arrived, and the room that it takes.
pub(super) struct Arrived {
    chunks: VecDeque<Bytes>,
    _room: Vec<OwnedSemaphorePermit>,
}

impl Limits {
    /// A body may take so long to arrive.
    pub(super) fn new(arrival: Duration) -> Self {
        Self { reading: Arc::new(Semaphore::new(READ_AT_ONCE)), arrival }
    }

    /// Receives a body of at most `max` bytes, for which there has to be room in all of these.
    pub(super) async fn receive(
        &self,
        body: Incoming,
        rooms: &[Room],
        max: usize,
    ) -> Result<Arrived, NoBody> {
        tokio::time::timeout(self.arrival, gather(body, rooms, max)).await.unwrap_or(Err(NoBody::Slow))
    }
}

async fn gather(mut body: Incoming, rooms: &[Room], max: usize) -> Result<Arrived, NoBody> {
    let too_large = |bytes: u64| usize::try_from(bytes).is_ok_and(|bytes| bytes > max);
    if body.size_hint().upper().is_some_and(too_large) {
        return Err(NoBody::TooLarge);
    }
    let (mut chunks, mut taken, mut length) = (VecDeque::new(), Vec::<OwnedSemaphorePermit>::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame.map_err(|_| NoBody::Broken)?.into_data() else { continue };
        length += chunk.len();
        if length > max {
            return Err(NoBody::TooLarge);
        }
        for (place, room) in rooms.iter().enumerate() {
            let permit = room.take(chunk.len())?;
            match taken.get_mut(place) {
                Some(taken) => taken.merge(permit),
                None => taken.push(permit),
            }
        }
        chunks.push_back(chunk);
    }
    Ok(Arrived { chunks, _room: taken })
}

impl Arrived {
    /// The body as it was before it was packed, of at most `max` bytes. Takes a while when it is large.
    pub(super) fn unpack(mut self, gzip: bool, max: usize) -> Result<Vec<u8>, NoBody> {
        let mut text = Vec::new();
        let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
        let read = match gzip {
            true => MultiGzDecoder::new(&mut self).take(limit).read_to_end(&mut text),
            false => self.take(limit).read_to_end(&mut text),
        };
        read.map_err(|error| NoBody::NotPacked(error.to_string()))?;
        if text.len() > max { Err(NoBody::TooLarge) } else { Ok(text) }
    }
}

/// What is read is gone.
impl Read for Arrived {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        while self.chunks.front().is_some_and(Bytes::is_empty) {
            self.chunks.pop_front();
        }
        self.chunks.front_mut().map_or(Ok(0), |chunk| chunk.reader().read(out))
    }
}

#[cfg(test)]
mod fuzz;
