//! A gzip stream put together from parts that were compressed apart, so that a part that did not
//! change need not be compressed again.

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress};

/// Header of a stream without name or time, written on no system in particular (RFC 1952, 2.3).
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// A deflate block that is empty and the last one (RFC 1951, 3.2.3 and 3.2.6).
const LAST: [u8; 2] = [3, 0];

/// Part of a text, compressed: whole deflate blocks that refer to nothing before them.
#[derive(Debug)]
pub(crate) struct Part {
    deflate: Bytes,
    crc: Crc,
}

/// Compresses parts.
#[derive(Debug)]
pub(crate) struct Packer {
    deflate: Compress,
}

impl Default for Packer {
    fn default() -> Self {
        // Label blocks repeat so much that the fastest level already takes nine tenths away.
        Self { deflate: Compress::new(Compression::fast(), false) }
    }
}

impl Packer {
    /// Compresses a part.
    pub(crate) fn pack(&mut self, text: &[u8]) -> Part {
        let mut crc = Crc::new();
        crc.update(text);
        self.deflate.reset();
        let (mut deflate, mut rest) = (Vec::with_capacity(text.len() / 8 + 64), text);
        loop {
            let before = self.deflate.total_in();
            // Only a stream that has ended can refuse input, and this one never ends.
            let _ = self.deflate.compress_vec(rest, &mut deflate, FlushCompress::Sync);
            let read = usize::try_from(self.deflate.total_in() - before).unwrap_or(0);
            rest = rest.get(read..).unwrap_or_default();
            // Room that is left says that there was nothing more to write.
            if rest.is_empty() && deflate.len() < deflate.capacity() {
                break;
            }
            deflate.reserve(deflate.capacity().max(64));
        }
        deflate.shrink_to_fit();
        Part { deflate: deflate.into(), crc }
    }
}

/// A stream being put together.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    crc: Crc,
}

impl Stream {
    /// Begins a stream.
    pub(crate) fn begin(out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&HEADER);
        Self::default()
    }

    /// Appends a part.
    pub(crate) fn add(&mut self, part: &Part, out: &mut Vec<u8>) {
        out.extend_from_slice(&part.deflate);
        self.crc.combine(&part.crc);
    }

    /// Ends the stream.
    pub(crate) fn end(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&LAST);
        out.extend_from_slice(&self.crc.sum().to_le_bytes());
        out.extend_from_slice(&self.crc.amount().to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_stream_is_the_text_of_its_parts(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..6),
            repeats in 1_usize..40,
        ) {
            let mut packer = Packer::default();
            let (mut out, mut text) = (Vec::new(), Vec::new());
            let mut stream = Stream::begin(&mut out);
            for part in parts {
                let part = part.repeat(repeats);
                stream.add(&packer.pack(&part), &mut out);
                text.extend_from_slice(&part);
            }
            stream.end(&mut out);
            let mut read = Vec::new();
            // One member, and nothing after it: not every reader goes on to a second one.
            let mut decoder = flate2::bufread::GzDecoder::new(out.as_slice());
            decoder.read_to_end(&mut read).unwrap();
            prop_assert_eq!(read, text);
            prop_assert!(decoder.into_inner().is_empty());
        }
    }
}
