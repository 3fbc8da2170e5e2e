//! A thread that writes lines to standard output, so that no provider waits for it.

mod buffer;

use std::{
    io::{ErrorKind, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tracing::{error, info, warn};

use crate::metrics::Metrics;
use buffer::Buffer;
pub(crate) use buffer::Full;

/// Pause before the next attempt when standard output is non-blocking and full.
const PAUSE: Duration = Duration::from_millis(10);

/// Takes lines for standard output.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the thread when there is something to write.
    filled: Condvar,
    /// Wakes [`Output::drained`] when nothing is left to write.
    emptied: Condvar,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct State {
    buffer: Buffer,
    /// Lines dropped since the buffer became full; 0 once half of it is free again.
    dropped: u64,
    /// Why the last write failed.
    failing: Option<String>,
}

impl Output {
    /// Starts to write to `sink`. At most `limit` bytes wait for it.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(
        sink: impl Write + Send + 'static,
        limit: usize,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Self> {
        let state = State { buffer: Buffer::new(limit), dropped: 0, failing: None };
        let (filled, emptied) = Default::default();
        let shared = Arc::new(Shared { state: Mutex::new(state), filled, emptied, metrics });
        shared.metrics.buffer_limit(limit);
        let writer = shared.clone();
        thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || writer.write(sink))
            .context("cannot start the thread that writes")?;
        Ok(Self { shared })
    }

    /// Hands over a line without waiting.
    ///
    /// # Errors
    /// When the buffer is full. The line is then dropped, and counted as such.
    pub(crate) fn offer(&self, line: &[u8]) -> Result<(), Full> {
        let mut state = self.shared.lock();
        let offered = state.buffer.offer(line);
        match offered {
            Ok(()) => {
                // Not before half of the buffer is free: otherwise the warning would come and go with every line.
                if state.dropped > 0 && state.buffer.bytes() < state.buffer.limit() / 2 {
                    info!(dropped = state.dropped, "standard output is fast enough again");
                    state.dropped = 0;
                }
                self.shared.filled.notify_one();
            }
            Err(Full) => {
                if state.dropped == 0 {
                    warn!(
                        bytes = state.buffer.bytes(),
                        "standard output is too slow: entries are dropped, though counted"
                    );
                }
                state.dropped += 1;
                self.shared.metrics.dropped("buffer_full", 1);
            }
        }
        self.shared.metrics.buffered(state.buffer.bytes());
        offered
    }

    /// `Err` with the reason while standard output fails.
    pub(crate) fn healthy(&self) -> Result<(), String> {
        self.shared.lock().failing.clone().map_or(Ok(()), Err)
    }

    /// Waits until all lines are written, for `patience` at most. Returns how many bytes are left.
    pub(crate) fn drained(&self, patience: Duration) -> usize {
        let deadline = Instant::now() + patience;
        let mut state = self.shared.lock();
        while state.buffer.bytes() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.emptied.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.buffer.bytes()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until the process ends.
    fn write(&self, mut sink: impl Write) {
        // Whether a failure has left a line without its end.
        let mut torn = false;
        loop {
            let chunk = {
                let mut state = self.lock();
                loop {
                    if let Some(chunk) = state.buffer.take() {
                        break chunk;
                    }
                    state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            };
            let mut result = Ok(());
            if torn {
                result = write_all(&mut sink, b"\n").1;
                torn = result.is_err();
            }
            let mut written = 0;
            if result.is_ok() {
                (written, result) = write_all(&mut sink, &chunk.text);
            }
            let head = chunk.text.get(..written).unwrap_or_default();
            let lines = match &result {
                Ok(()) => chunk.lines,
                Err(_) => head.iter().fold(0, |lines, byte| lines + u64::from(*byte == b'\n')),
            };
            torn = torn || head.last().is_some_and(|byte| *byte != b'\n');
            self.metrics.written(lines, written);
            self.metrics.dropped("output_failed", chunk.lines - lines);

            let mut state = self.lock();
            state.buffer.done(chunk.text.len());
            self.metrics.buffered(state.buffer.bytes());
            match (result, &state.failing) {
                (Ok(()), None) | (Err(_), Some(_)) => {}
                (Ok(()), Some(_)) => {
                    info!("standard output can be written to again");
                    state.failing = None;
                }
                (Err(failure), None) => {
                    error!(error = %failure, "standard output cannot be written to: entries are dropped, though counted");
                    state.failing = Some(format!("standard output cannot be written to: {failure}"));
                }
            }
            if state.buffer.bytes() == 0 {
                self.emptied.notify_all();
            }
        }
    }
}

/// Writes a text until the end or a failure. Returns how many bytes are written.
fn write_all(sink: &mut impl Write, text: &[u8]) -> (usize, std::io::Result<()>) {
    let mut written = 0;
    while let Some(rest) = text.get(written..).filter(|rest| !rest.is_empty()) {
        match sink.write(rest) {
            Ok(0) => return (written, Err(ErrorKind::WriteZero.into())),
            Ok(bytes) => written += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Another process that shares standard output may have made it non-blocking.
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(error) => return (written, Err(error)),
        }
    }
    (written, sink.flush())
}

#[cfg(test)]
mod tests {
    use std::{io, sync::mpsc};

    use statusbridge_serving::format::Format;

    use super::*;

    /// Takes from each write as much as the next step says, everything when there are no more steps, and hands that on.
    struct Script {
        steps: mpsc::Receiver<io::Result<usize>>,
        took: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Script {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let bytes = self.steps.recv().unwrap_or(Ok(usize::MAX))?.min(text.len());
            let _ = self.took.send(text[..bytes].to_vec());
            Ok(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Rig {
        output: Output,
        metrics: Arc<Metrics>,
        steps: mpsc::Sender<io::Result<usize>>,
        took: mpsc::Receiver<Vec<u8>>,
    }

    const LONG: Duration = Duration::from_secs(60);

    fn rig(limit: usize) -> Rig {
        let (steps, next) = mpsc::channel();
        let (hand, took) = mpsc::channel();
        let metrics = Arc::new(Metrics::new(0));
        let output = Output::start(Script { steps: next, took: hand }, limit, metrics.clone()).unwrap();
        Rig { output, metrics, steps, took }
    }

    impl Rig {
        fn sample(&self, name: &str) -> u64 {
            let text = self.metrics.render(Format::Text).unwrap();
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
        }

        fn all(self) -> String {
            drop(self.steps);
            assert_eq!(self.output.drained(LONG), 0);
            String::from_utf8(self.took.try_iter().flatten().collect()).unwrap()
        }
    }

    #[test]
    fn an_output_that_blocks_holds_up_nobody_and_dropped_lines_are_counted() {
        let rig = rig(8);
        let offered: Vec<bool> =
            (0..6).map(|n| rig.output.offer(format!("l{n}\n").as_bytes()).is_ok()).collect();
        assert_eq!(offered, [true, true, false, false, false, false]);
        assert_eq!(rig.sample("statusbridge_changelog_dropped_total{cause=\"buffer_full\"}"), 4);
        assert_eq!(rig.sample("statusbridge_changelog_buffered_bytes"), 6);
        assert_eq!(rig.all(), "l0\nl1\n");
    }

    #[test]
    fn a_pause_or_an_interruption_loses_nothing() {
        let rig = rig(1000);
        for step in [Ok(1), Err(ErrorKind::WouldBlock.into()), Err(ErrorKind::Interrupted.into()), Ok(2)] {
            rig.steps.send(step).unwrap();
        }
        rig.output.offer(b"first\n").unwrap();
        rig.output.offer(b"second\n").unwrap();
        let metrics = rig.metrics.clone();
        assert_eq!(rig.all(), "first\nsecond\n");
        let text = metrics.render(Format::Text).unwrap();
        assert!(text.contains("statusbridge_changelog_written_total 2\n"), "{text}");
        assert!(text.contains("statusbridge_changelog_written_bytes_total 13\n"), "{text}");
    }

    #[test]
    fn a_failure_is_reported_and_a_torn_line_is_ended_before_the_next() {
        let rig = rig(1000);
        rig.output.offer(b"torn line\n").unwrap();
        rig.steps.send(Ok(4)).unwrap();
        rig.steps.send(Err(ErrorKind::BrokenPipe.into())).unwrap();
        assert_eq!(rig.output.drained(LONG), 0);
        assert!(rig.output.healthy().is_err_and(|why| why.contains("pipe")));
        assert_eq!(rig.sample("statusbridge_changelog_dropped_total{cause=\"output_failed\"}"), 1);
        assert_eq!(rig.sample("statusbridge_changelog_written_total"), 0);

        rig.output.offer(b"whole\n").unwrap();
        let (output, metrics) = (rig.output.clone(), rig.metrics.clone());
        assert_eq!(rig.all(), "torn\nwhole\n");
        assert_eq!(output.healthy(), Ok(()));
        assert!(metrics.render(Format::Text).unwrap().contains("statusbridge_changelog_written_total 1\n"));
    }

    #[test]
    fn the_wait_for_an_output_that_blocks_ends() {
        let rig = rig(1000);
        rig.output.offer(b"line\n").unwrap();
        assert_eq!(rig.output.drained(Duration::from_millis(20)), 5);
    }
}
