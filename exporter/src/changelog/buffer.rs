//! Lines that wait for standard output, within a bound.

use std::collections::VecDeque;

/// About how much is written at a time, in bytes: as much as a pipe takes.
const CHUNK: usize = 64 * 1024;

/// Whole lines to be written at once.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The lines, each with its end.
    pub text: Vec<u8>,
    /// How many there are.
    pub lines: u64,
}

/// There is no room for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// A queue of lines in the order in which they came.
#[derive(Debug)]
pub struct Buffer {
    limit: usize,
    chunks: VecDeque<Chunk>,
    /// Bytes of all chunks, and of the one that is being written.
    bytes: usize,
}

impl Buffer {
    /// A buffer of so many bytes. A single line always has room, however long it is.
    pub fn new(limit: usize) -> Self {
        Self { limit, chunks: VecDeque::new(), bytes: 0 }
    }

    /// Adds a line, unless there is no room for it.
    ///
    /// # Errors
    /// When there is none.
    pub fn offer(&mut self, line: &[u8]) -> Result<(), Full> {
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

    /// The lines that are to be written next. They take up room until [`Buffer::done`].
    pub fn take(&mut self) -> Option<Chunk> {
        self.chunks.pop_front()
    }

    /// So many bytes that were taken have been written, or given up.
    pub fn done(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Bytes that wait or are being written.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many it may have.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_line_always_has_room() {
        let mut buffer = Buffer::new(4);
        assert_eq!(buffer.offer(b"longer\n"), Ok(()));
        assert_eq!(buffer.offer(b"x\n"), Err(Full));
        // Until it is written it takes up room.
        let chunk = buffer.take().unwrap();
        assert_eq!(buffer.offer(b"x\n"), Err(Full));
        buffer.done(chunk.text.len());
        assert_eq!(buffer.offer(b"x\n"), Ok(()));
    }

    proptest! {
        /// Steps: a line to offer, or a chunk to write.
        #[test]
        fn what_is_accepted_comes_out_once_in_order_and_the_bound_holds(
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
