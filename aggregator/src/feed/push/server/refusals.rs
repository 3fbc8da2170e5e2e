//! Tokens whose pushes had to be refused, and how long they have to wait.
//!
//! A push that is too large or cannot be read costs the aggregator memory and time. After one, the token waits, after
//! each further one longer, whatever is taken in between, until none was refused for [`FORGOTTEN`]. One that does not
//! add up, or does not arrive, may happen to good exporters, too: the first is forgiven. Other tokens, of the same
//! cluster too, wait for nothing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::tokens::{TokenId, Tokens};

/// The first wait; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait. An exporter that is refused comes back after so long, too.
const LONGEST: Duration = Duration::from_secs(30);
/// A token that was not refused for so long after it had to wait begins anew.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// The tokens that have to wait: each is one that is known, so that there are not more of them than in the file.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    tokens: Mutex<HashMap<TokenId, Refused>>,
}

#[derive(Debug, Clone, Copy)]
struct Refused {
    /// How often.
    times: u32,
    until: Instant,
    /// Whether none was taken since.
    is_last: bool,
}

impl Refusals {
    fn tokens(&self) -> MutexGuard<'_, HashMap<TokenId, Refused>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long this token still has to wait.
    pub(super) fn wait(&self, token: &TokenId, now: Instant) -> Option<Duration> {
        let until = self.tokens().get(token)?.until;
        Some(until.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Whether a push with this token was refused, or failed, and none was taken since.
    pub(super) fn remembers(&self, token: &TokenId, now: Instant) -> bool {
        self.tokens().get(token).is_some_and(|it| it.is_last && now < it.until + FORGOTTEN)
    }

    /// A push with this token was refused.
    pub(super) fn refused(&self, token: TokenId, now: Instant) {
        self.note(token, now, false);
    }

    /// A push with this token did not arrive, or did not add up.
    pub(super) fn failed(&self, token: TokenId, now: Instant) {
        self.note(token, now, true);
    }

    fn note(&self, token: TokenId, now: Instant, is_first_forgiven: bool) {
        let mut tokens = self.tokens();
        let before = tokens.get(&token).copied().filter(|it| now < it.until + FORGOTTEN);
        // It was under way when another one was refused.
        if before.is_some_and(|it| now < it.until) {
            return;
        }
        if before.is_none() && is_first_forgiven {
            tokens.insert(token, Refused { times: 0, until: now, is_last: true });
            return;
        }
        let times = before.map_or(0, |it| it.times);
        let wait = (FIRST * 2_u32.saturating_pow(times.min(10))).min(LONGEST);
        tokens.insert(token, Refused { times: times + 1, until: now + wait, is_last: true });
    }

    /// A push with this token was taken.
    pub(super) fn taken(&self, token: &TokenId) {
        if let Some(refused) = self.tokens().get_mut(token) {
            refused.is_last = false;
        }
    }

    /// Forgets all but tokens that are known.
    pub(super) fn keep(&self, known: &Tokens) {
        self.tokens().retain(|token, _| known.has(token));
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::feed::yaml_file::FromYaml;

    fn id(token: &str) -> TokenId {
        let hash: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
        Tokens::from_yaml(&format!("- {{cluster: c, sha256: {hash}}}")).unwrap().find(token).unwrap().0
    }

    #[test]
    fn each_refusal_in_a_row_makes_a_token_wait_longer_and_no_other() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let (one, other, refusals) = (id("one"), id("other"), Refusals::default());
        assert_eq!(refusals.wait(&one, begin), None);
        let mut now = 0;
        for wait in [1, 2, 4, 8, 16, 30, 30, 30] {
            refusals.refused(one, at(now));
            // Those that were under way make nothing worse.
            refusals.refused(one, at(now));
            assert_eq!(refusals.wait(&one, at(now)), Some(Duration::from_secs(wait)));
            assert_eq!(refusals.wait(&other, at(now)), None);
            now += wait;
            assert_eq!(refusals.wait(&one, at(now)), None);
        }
        refusals.taken(&one);
        refusals.refused(one, at(now));
        assert_eq!(
            refusals.wait(&one, at(now)),
            Some(LONGEST),
            "a push that is taken in between does not help"
        );
        refusals.refused(one, at(now + 30 + 300));
        assert_eq!(refusals.wait(&one, at(now + 30 + 300)), Some(FIRST), "it was forgotten");
    }

    #[test]
    fn the_first_that_fails_is_forgiven_and_remembered() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let (one, refusals) = (id("one"), Refusals::default());
        assert!(!refusals.remembers(&one, begin));
        refusals.failed(one, begin);
        assert_eq!((refusals.wait(&one, begin), refusals.remembers(&one, begin)), (None, true));
        let mut now = 15;
        for wait in [1, 2, 4, 8, 16, 30, 30] {
            refusals.failed(one, at(now));
            assert_eq!(refusals.wait(&one, at(now)), Some(Duration::from_secs(wait)));
            now += wait;
        }
        refusals.taken(&one);
        assert!(!refusals.remembers(&one, at(now)));
        refusals.failed(one, at(now));
        assert_eq!(refusals.wait(&one, at(now)), Some(LONGEST), "it is not the first");
        let until = now + 30;
        assert!(refusals.remembers(&one, at(until + 299)) && !refusals.remembers(&one, at(until + 300)));
        refusals.failed(one, at(until + 300));
        assert_eq!(refusals.wait(&one, at(until + 300)), None, "the first again");
    }

    #[test]
    fn nothing_is_remembered_of_tokens_that_are_no_longer_known() {
        let refusals = Refusals::default();
        refusals.refused(id("one"), Instant::now());
        refusals.keep(&Tokens::default());
        assert!(refusals.tokens().is_empty());
    }
}
