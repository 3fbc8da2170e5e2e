//! The log, on standard error, written by a thread of its own: who answers providers must not wait for it. It often
//! goes where standard output goes, and is as slow. tracing-appender would do, but that one complains on standard output,
//! which belongs to the entries.

use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread,
    time::Duration,
};

use anyhow::Context as _;

/// Lines that may wait. What comes beyond is not logged.
const LINES: usize = 256;
/// How long what is left has at the end.
const FAREWELL: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    /// To be answered when all before it is written.
    Flush(SyncSender<()>),
}

/// Takes lines, and returns at once.
#[derive(Debug, Clone)]
pub struct Log(SyncSender<Message>);

/// Gives what is left a moment to be written when it is dropped.
#[derive(Debug)]
pub struct Rest(Log);

impl Log {
    /// Starts to write to `sink`.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(sink: impl Write + Send + 'static) -> anyhow::Result<(Self, Rest)> {
        let (sender, lines) = sync_channel(LINES);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write(sink, &lines))
            .context("cannot start the thread that writes the log")?;
        let log = Self(sender);
        Ok((log.clone(), Rest(log)))
    }
}

fn write(mut sink: impl Write, lines: &Receiver<Message>) {
    for message in lines {
        match message {
            // Whom should it be told?
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

impl Drop for Rest {
    fn drop(&mut self) {
        let (done, flushed) = sync_channel(1);
        // One that is full is stuck.
        if self.0.0.try_send(Message::Flush(done)).is_ok() {
            let _ = flushed.recv_timeout(FAREWELL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Waits for ever, as a pipe that nobody reads.
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
    fn what_is_logged_is_written_in_order_by_the_end() {
        let kept = Kept::default();
        let (mut log, rest) = Log::start(kept.clone()).unwrap();
        for line in 0..100 {
            log.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
        drop(rest);
        let expected: String = (0..100).map(|line| format!("{line}\n")).collect();
        assert_eq!(String::from_utf8(kept.0.lock().unwrap().clone()).unwrap(), expected);
    }

    #[test]
    fn nobody_waits_for_one_that_is_stuck() {
        let (_held, never) = mpsc::channel();
        let (mut log, rest) = Log::start(Stuck(never)).unwrap();
        for _ in 0..10 * LINES {
            log.write_all(b"line\n").unwrap();
        }
        drop(rest);
    }
}
