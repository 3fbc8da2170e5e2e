//! Whether a watch keeps up with its API server. Pure: times and versions are passed in.
//!
//! Being heard from is no progress: one object may write so much that the news of all others waits behind it. A watch
//! has kept up once everything was taken in that the server had to tell at some moment, which is what each method gives
//! back: milliseconds by the `boot` clock, or `None` where that is not known.

use super::Fault;

/// How far one connection of a watch has come.
#[derive(Debug)]
pub(super) struct Progress {
    /// Whether the server has shown that it has not gone back behind the version that the watch goes on from.
    proven: bool,
    /// Whether all is known that happened before the connection.
    caught_up: bool,
    /// A version that the server named beside the watch, and when it was asked.
    named: Option<(u64, i64)>,
    /// The last moment that was given back, or the beginning.
    last: i64,
}

impl Progress {
    /// A connection that was opened at `now`; one that goes on from a version has to be shown that this is still one of
    /// the server's.
    pub(super) const fn new(resumed: bool, now: i64) -> Self {
        Self { proven: !resumed, caught_up: false, named: None, last: now }
    }

    pub(super) const fn caught_up(&self) -> bool {
        self.caught_up
    }

    /// The initial events are complete, or nothing has come for so long that nothing more is to be caught up on.
    pub(super) const fn catch_up(&mut self) {
        self.caught_up = true;
    }

    /// Nothing was left to be read of what had come by `at`.
    pub(super) fn dry(&mut self, at: i64) -> Option<i64> {
        self.kept_up(self.caught_up, at)
    }

    /// A bookmark that had come by `at` was taken in.
    pub(super) fn bookmark(&mut self, at: i64) -> Option<i64> {
        self.caught_up |= self.proven;
        self.kept_up(true, at)
    }

    /// An object's version was taken in.
    pub(super) fn version(&mut self, version: u64) -> Option<i64> {
        let (_, at) = self.named.take_if(|(named, _)| version >= *named)?;
        self.caught_up |= self.proven;
        self.kept_up(true, at)
    }

    /// The server, asked at `at`, has named the version that it was at; `known` is the newest one that was known then.
    ///
    /// # Errors
    /// When that is an older one.
    pub(super) fn named(&mut self, version: u64, known: u64, at: i64) -> Result<(), Fault> {
        if version < known {
            return Err(Fault::Restored);
        }
        self.proven = true;
        self.named = Some((version, at));
        Ok(())
    }

    /// Whether the server should be asked which version it is at: there is so much to read that no end of it comes, and
    /// the version that it named last has been reached.
    pub(super) const fn is_flooded(&self, now: i64) -> bool {
        self.named.is_none() && now - self.last > FLOODED
    }

    fn kept_up(&mut self, so_it_seems: bool, at: i64) -> Option<i64> {
        let kept_up = so_it_seems && self.proven;
        if kept_up {
            self.last = self.last.max(at);
        }
        kept_up.then_some(at)
    }
}

/// A watch that did not run dry for so long, in milliseconds, has much to say.
const FLOODED: i64 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_kept_up_once_it_is_complete() {
        let mut progress = Progress::new(false, 100);
        assert_eq!(progress.dry(200), None);
        progress.catch_up();
        assert_eq!((progress.bookmark(300), progress.dry(400)), (Some(300), Some(400)));
    }

    #[test]
    fn a_resumed_watch_has_kept_up_only_once_the_server_is_known_not_to_have_gone_back() {
        let mut progress = Progress::new(true, 100);
        progress.catch_up();
        assert_eq!((progress.dry(200), progress.bookmark(300), progress.version(9)), (None, None, None));
        progress.named(8, 8, 250).unwrap();
        assert_eq!(progress.dry(400), Some(400));
        assert!(matches!(progress.named(7, 8, 500), Err(Fault::Restored)));
    }

    #[test]
    fn a_flooded_watch_has_kept_up_when_it_reaches_what_the_server_named() {
        let mut progress = Progress::new(false, 0);
        progress.catch_up();
        assert_eq!(progress.dry(1_000), Some(1_000));
        assert!(!progress.is_flooded(3_000) && progress.is_flooded(3_001));
        progress.named(50, 20, 3_100).unwrap();
        assert!(!progress.is_flooded(9_000), "it is known how far to go");
        assert_eq!(
            (progress.version(49), progress.version(50)),
            (None, Some(3_100)),
            "when it was asked, not now"
        );
        assert_eq!(progress.version(51), None, "every answer counts once");
        assert!(!progress.is_flooded(5_000));
    }

    #[test]
    fn the_servers_answer_alone_is_no_progress() {
        let mut progress = Progress::new(true, 0);
        progress.named(5, 5, 10).unwrap();
        assert_eq!(progress.dry(20), None, "the connection may be half open");
    }
}
