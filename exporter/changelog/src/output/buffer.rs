//! Lines that wait for standard output, bounded in bytes.

use std::collections::VecDeque;

/// Bytes that are written at a time, unless one line is longer: the capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// Whole lines that are written at once.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) text: Vec<u8>,
    pub(super) lines: u64,
}

/// The buffer has no room for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// A queue of lines in the order in which they came.
#[derive(Debug)]
pub(super) struct Buffer {
    /// In bytes.
    limit: usize,
    chunks: VecDeque<Chunk>,
    /// Bytes of all chunks, including the chunk that is being written.
    bytes: usize,
}

impl Buffer {
    /// A buffer for `limit` bytes. An empty buffer takes one line of any length.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, chunks: VecDeque::new(), bytes: 0 }
    }

    /// Adds a line, if there is room for it.
    pub(super) fn offer(&mut self, line: &[u8]) -> Result<(), Full> {
        if self.bytes > 0 && self.bytes + line.len() > self.limit {
            return Err(Full);
        }
        self.bytes += line.len();
        match self.chunks.back_mut() {
            Some(chunk) if chunk.text.len() + line.len() <= CHUNK => {
                chunk.text.extend_from_slice(line);
                chunk.lines += 1;
            }
            _ => self.chunks.push_back(Chunk { text: line.to_vec(), lines: 1 }),
        }
        Ok(())
    }

    /// Takes the lines to write next. They take up room until [`Buffer::done`].
    pub(super) fn take(&mut self) -> Option<Chunk> {
        self.chunks.pop_front()
    }

    /// Frees the room of `bytes` that were taken, and are written or given up by now.
    pub(super) fn done(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_buffer_takes_a_line_of_any_length() {
        let mut buffer = Buffer::new(4);
        assert_eq!(buffer.offer(b"longer\n"), Ok(()));
        assert_eq!(buffer.offer(b"x\n"), Err(Full));
        // It takes up room until it is written.
        let chunk = buffer.take().unwrap();
        assert_eq!(buffer.offer(b"x\n"), Err(Full));
        buffer.done(chunk.text.len());
        assert_eq!(buffer.offer(b"x\n"), Ok(()));
    }

    proptest! {
        /// Steps: a line to offer, or a chunk to write.
        #[test]
        fn accepted_lines_come_out_once_in_order_and_the_bound_holds(
            limit in 1_usize..300_000,
            steps in prop::collection::vec(prop::option::weighted(0.8, 1_usize..60_000), 0..80),
        ) {
            let mut buffer = Buffer::new(limit);
            let (mut accepted, mut came, mut lines) = (Vec::new(), Vec::new(), 0);
            let mut write = |buffer: &mut Buffer| {
                let Some(chunk) = buffer.take() else { return false };
                assert_eq!(chunk.lines, chunk.text.iter().filter(|b| **b == b'\n').count() as u64);
                buffer.done(chunk.text.len());
                came.extend(chunk.text);
                true
            };
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Some(length) => {
                        let mut line = vec![b'a' + (number % 26) as u8; length - 1];
                        line.push(b'\n');
                        let before = buffer.bytes();
                        match buffer.offer(&line) {
                            Ok(()) => {
                                lines += 1;
                                accepted.extend(line);
                                prop_assert!(buffer.bytes() <= limit || before == 0);
                            }
                            Err(Full) => prop_assert!(before + length > limit),
                        }
                    }
                    None => {
                        write(&mut buffer);
                    }
                }
            }
            while write(&mut buffer) {}
            prop_assert_eq!(came.iter().filter(|b| **b == b'\n').count(), lines);
            prop_assert!(came == accepted);
            prop_assert_eq!(buffer.bytes(), 0);
        }
    }
}
