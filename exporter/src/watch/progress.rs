//! Whether a watch keeps up with its API server. Pure: times and versions are passed in.
//!
//! Being heard from is no progress: one object may write so much that the news of all others waits behind it. A watch
//! has kept up once everything was taken in that the server had to tell at some moment, which is what each method gives
//! back: milliseconds by the `boot` clock, or `None` where that is not known.

use super::fault::Fault;

/// How far one connection of a watch has come.
#[derive(Debug)]
pub(super) struct Progress {
    /// When it was opened.
    opened: i64,
    /// Whether the server has shown that it has not gone back behind the version that the watch goes on from.
    proven: bool,
    /// After how long in which nothing came nothing is on its way, in milliseconds.
    quiet: i64,
    /// A version that the server named beside the watch, and when it was asked.
    named: Option<(u64, i64)>,
    /// When something came for the last time, or the beginning.
    heard: i64,
    /// When nothing was left to be read for the last time, or the beginning.
    empty: i64,
    /// From when on what has come may have had news of others behind it.
    since: Option<i64>,
}

impl Progress {
    /// A connection that was asked for at `opened` and is there at `now`; one that goes on from a version has to be shown
    /// that this is still one of the server's.
    pub(super) const fn new(resumed: bool, quiet: i64, opened: i64, now: i64) -> Self {
        Self { opened, proven: !resumed, quiet, named: None, heard: now, empty: now, since: None }
    }

    pub(super) const fn is_proven(&self) -> bool {
        self.proven
    }

    /// Something has come.
    pub(super) fn hear(&mut self, at: i64) {
        self.heard = at;
        self.since.get_or_insert(at);
    }

    /// Nothing is left to be read.
    pub(super) const fn empty(&mut self, at: i64) {
        self.empty = at;
    }

    /// When it will be quiet, unless something comes.
    pub(super) const fn quiet_at(&self) -> i64 {
        self.empty + self.quiet
    }

    /// It is quiet at `at`: what was on its way when nothing was left to be read would be there. Of the silence itself
    /// nothing is known; the connection may be half open.
    pub(super) fn dry(&mut self, at: i64) -> Option<i64> {
        (at >= self.quiet_at()).then(|| self.kept_up(self.empty))?
    }

    /// The initial events are complete. What has happened since the watch was opened may lie behind them.
    pub(super) fn listed(&mut self) -> Option<i64> {
        self.kept_up(self.opened)
    }

    /// A bookmark of this version that had come by `at` was taken in; where much came before it, it may be an old one.
    pub(super) fn bookmark(&mut self, version: u64, at: i64) -> Option<i64> {
        match self.named {
            Some(_) => self.version(version),
            None if self.is_flooded(at) => None,
            None => self.kept_up(at),
        }
    }

    /// An object's version was taken in.
    pub(super) fn version(&mut self, version: u64) -> Option<i64> {
        let (_, at) = self.named.take_if(|(named, _)| version >= *named)?;
        self.kept_up(at)
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
    pub(super) fn is_flooded(&self, now: i64) -> bool {
        self.named.is_none() && self.since.is_some_and(|since| now - since > self.quiet / 2)
    }

    fn kept_up(&mut self, at: i64) -> Option<i64> {
        if !self.proven {
            return None;
        }
        self.since = self.since.and((self.heard > at).then_some(at));
        self.named = self.named.filter(|(_, asked)| *asked > at);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_kept_up_with_what_was_before_it() {
        let mut progress = Progress::new(false, 500, 100, 200);
        progress.hear(300);
        progress.empty(300);
        assert_eq!((progress.listed(), progress.dry(799), progress.dry(800)), (Some(100), None, Some(300)));
    }

    #[test]
    fn a_resumed_watch_has_kept_up_only_once_the_server_is_known_not_to_have_gone_back() {
        let mut progress = Progress::new(true, 50, 100, 100);
        assert_eq!((progress.dry(200), progress.bookmark(9, 300), progress.version(9)), (None, None, None));
        progress.named(8, 8, 250).unwrap();
        assert_eq!(progress.dry(400), Some(100), "however long it took to ask");
        assert!(matches!(progress.named(7, 8, 500), Err(Fault::Restored)));
    }

    #[test]
    fn silence_is_no_contact() {
        let cases = [
            // Opened and there at, asked and answered (when, version), quiet at: kept up to.
            (0, Some((10, 8)), 2_000, Some(0)),
            (0, Some((3_000, 8)), 5_000, Some(0)),
            (0, Some((10, 99)), 60_000, Some(0)),
            (0, None, 60_000, None),
            (0, Some((10, 8)), 1_999, None),
        ];
        for (opened, named, quiet, kept_up) in cases {
            let mut progress = Progress::new(true, 2_000, opened, opened);
            if let Some((at, version)) = named {
                progress.named(version, 8, at).unwrap();
            }
            assert_eq!(progress.dry(quiet), kept_up, "{named:?} {quiet}");
        }
    }

    #[test]
    fn a_server_that_is_no_further_than_the_watch_has_nothing_more_to_tell() {
        let mut progress = Progress::new(true, 2_000, 0, 0);
        progress.named(8, 8, 3_000).unwrap();
        assert_eq!(progress.version(8), Some(3_000), "whatever becomes of the connection");
    }

    #[test]
    fn what_comes_now_and_then_may_have_more_behind_it() {
        let mut progress = Progress::new(false, 500, 0, 0);
        for at in [400, 800, 1_200] {
            assert_eq!(progress.dry(at), None);
            progress.hear(at);
            progress.empty(at + 50);
        }
        assert_eq!(
            (progress.quiet_at(), progress.dry(1_750)),
            (1_750, Some(1_250)),
            "from when it was empty"
        );
    }

    #[test]
    fn a_bookmark_behind_much_else_may_be_an_old_one() {
        let mut progress = Progress::new(false, 500, 0, 0);
        progress.hear(1_000);
        assert_eq!(progress.bookmark(10, 1_250), Some(1_250));
        progress.hear(2_000);
        assert_eq!(progress.bookmark(20, 2_251), None);
        progress.named(50, 20, 2_300).unwrap();
        assert_eq!((progress.bookmark(30, 2_400), progress.bookmark(50, 9_000)), (None, Some(2_300)));
    }

    #[test]
    fn a_flooded_watch_has_kept_up_when_it_reaches_what_the_server_named() {
        let mut progress = Progress::new(false, 2_000, 0, 0);
        progress.hear(60_000);
        assert!(!progress.is_flooded(61_000) && progress.is_flooded(61_001), "from the first that came");
        progress.hear(61_001);
        progress.named(50, 20, 61_100).unwrap();
        assert!(!progress.is_flooded(69_000), "it is known how far to go");
        progress.hear(62_000);
        assert_eq!(
            (progress.version(49), progress.version(50)),
            (None, Some(61_100)),
            "when it was asked, not now"
        );
        assert_eq!(progress.version(51), None, "every answer counts once");
        assert!(!progress.is_flooded(62_100) && progress.is_flooded(62_101), "from when it was asked");
        progress.named(60, 20, 62_200).unwrap();
        progress.empty(62_300);
        assert_eq!(progress.dry(64_300), Some(62_300));
        assert!(!progress.is_flooded(90_000));
        progress.hear(90_000);
        assert_eq!(progress.version(61), None, "what was named before counts no longer");
    }

    #[test]
    fn the_servers_answer_alone_is_no_progress() {
        let mut progress = Progress::new(true, 500, 0, 0);
        progress.named(5, 5, 10).unwrap();
        assert_eq!(progress.dry(20), None, "the connection may be half open");
    }
}
