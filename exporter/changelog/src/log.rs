//! The sidecar's own log, on standard error, written by a thread of its own so that no provider waits for it: standard error
//! often goes where standard output goes, and is as slow. tracing-appender would serve, but it reports its own errors on
//! standard output, which must have nothing but entries.

use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread,
    time::Duration,
};

use anyhow::Context as _;

/// Lines that may wait. Lines beyond that are dropped.
const LINES: usize = 256;
/// How long the end of the process waits for the last lines.
const GRACE: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    /// Answered when all lines before it are written.
    Flush(SyncSender<()>),
}

/// Takes lines without waiting.
#[derive(Debug, Clone)]
pub(crate) struct Log(SyncSender<Message>);

/// Waits a moment for the last lines when it is dropped.
#[derive(Debug)]
pub(crate) struct FlushOnDrop(Log);

impl Log {
    /// Starts to write to `sink`.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(sink: impl Write + Send + 'static) -> anyhow::Result<(Self, FlushOnDrop)> {
        let (sender, lines) = sync_channel(LINES);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write(sink, &lines))
            .context("cannot start the thread that writes the log")?;
        let log = Self(sender);
        Ok((log.clone(), FlushOnDrop(log)))
    }
}

fn write(mut sink: impl Write, lines: &Receiver<Message>) {
    for message in lines {
        match message {
            // There is nowhere left to report a failure.
            Message::Line(line) => drop(sink.write_all(&line).and_then(|()| sink.flush())),
            Message::Flush(done) => drop(done.try_send(())),
        }
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.0.try_send(Message::Line(line.to_vec())) {
            Ok(()) | Err(TrySendError::Full(_)) => Ok(line.len()),
            Err(TrySendError::Disconnected(_)) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for FlushOnDrop {
    fn drop(&mut self) {
        let (done, flushed) = sync_channel(1);
        // When the queue is full, the thread is stuck.
        if self.0.0.try_send(Message::Flush(done)).is_ok() {
            let _ = flushed.recv_timeout(GRACE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use super::*;

    #[derive(Clone, Default)]
    struct Recorded(Arc<Mutex<Vec<u8>>>);

    impl Write for Recorded {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Blocks for ever, like a pipe without a reader.
    struct Stuck(mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_written_in_order_by_the_end() {
        let kept = Recorded::default();
        let (mut log, rest) = Log::start(kept.clone()).unwrap();
        for line in 0..100 {
            log.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
        drop(rest);
        let expected: String = (0..100).map(|line| format!("{line}\n")).collect();
        assert_eq!(String::from_utf8(kept.0.lock().unwrap().clone()).unwrap(), expected);
    }

    #[test]
    fn nobody_waits_for_a_stuck_output() {
        let (_held, never) = mpsc::channel();
        let (mut log, rest) = Log::start(Stuck(never)).unwrap();
        for _ in 0..10 * LINES {
            log.write_all(b"line\n").unwrap();
        }
        drop(rest);
    }
}
