//! Recognizes an exposition by its digest alone: it says the same as the last one if the difference to that one's state is
//! the hash of the time about which it must have been rendered. So nobody has to ask when that was.

use std::sync::Arc;

use statusbridge_contract::Digest;
use statusbridge_core::fleet::{DigestSample, Digests, Exposition};

use super::part_digests::Speech;
use super::window::milliseconds;

/// Values with their timestamps in milliseconds.
pub(super) type Series = Vec<(i64, u64)>;

/// By how many seconds the time from a scrape to the rendering varies, from the likeliest on.
const VARIES: [i64; 3] = [0, 1, -1];

/// By what the next digest of a stream is recognized: what the last one was.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) speech: Arc<Speech>,
    /// The number of the exporter's process.
    pub(super) process: u64,
    state: Digest,
    /// How long after the second of its stamp it was rendered, in seconds.
    after: i64,
}

impl Last {
    /// The newest of a stream; None where it has none of use.
    pub(super) fn of(stream: &Digests, speech: Arc<Speech>) -> Option<Self> {
        let DigestSample { at, exposition: Exposition { digest, rendered } } = stream.samples.last()?;
        Some(Self {
            speech,
            process: stream.stream.process,
            state: Digest::of_state(*digest, *rendered),
            after: i64::try_from(*rendered).ok()?.checked_sub(milliseconds(*at).div_euclid(1000))?,
        })
    }

    /// When each of these digests was rendered, by its stamp; None unless all are of the same state.
    pub(super) fn rendered(&self, samples: &[(i64, Option<u64>)]) -> Option<Series> {
        samples.iter().map(|(at, digest)| Some((*at, self.rendered_at(*at, (*digest)?)?))).collect()
    }

    fn rendered_at(&self, at: i64, digest: u64) -> Option<u64> {
        let likely = at.div_euclid(1000).checked_add(self.after)?;
        let mut times = VARIES.iter().filter_map(|by| u64::try_from(likely.checked_add(*by)?).ok());
        times.find(|time| Digest::of_state(digest, *time) == self.state)
    }
}
