//! A digest sample, as a poll finds it.

use statusbridge_contract::{Metric, stream::StreamLabels};

use crate::clock::Seconds;

/// Samples whose timestamps differ by less are of one scrape: backends keep milliseconds.
pub(super) const SAME_SCRAPE: Seconds = 0.000_5;

/// The newest digest sample of a stream at the time of a poll.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Beat {
    /// Name of the cluster, as the pipeline gives it.
    pub cluster: String,
    /// The stream.
    pub stream: StreamLabels,
    /// Contract version of the exposition.
    pub contract: String,
    /// The digest, unless the sample's value is no whole number.
    pub digest: Option<u64>,
    /// The sample's own timestamp.
    pub at: Seconds,
    /// Value and timestamp of the stream's rendered timestamp.
    pub rendered: Option<(Seconds, Seconds)>,
    /// Whether the stream had the UIDs of several clusters lately.
    pub takes_turns: bool,
    /// Whether the same exposition came more than once lately.
    pub repeats: bool,
}

/// What a digest sample calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It attests what was verified already.
    Confirmed,
    /// What it attests has to be read and verified.
    Unread,
    /// That was tried; only the next digest sample is another chance.
    Tried,
    /// It is older than what is known.
    Old,
    /// Nothing can be verified against it.
    Unusable,
}

impl Beat {
    /// Backend time minus cluster time. Only samples of the same scrape tell it.
    pub fn offset(&self) -> Option<Seconds> {
        let (rendered, stamped) = self.rendered?;
        ((stamped - self.at).abs() < SAME_SCRAPE).then_some(self.at - rendered)
    }

    /// What it lacks to be of use.
    pub(super) fn lack(&self) -> String {
        match self.digest {
            None => format!("the value of {} is no whole number", Metric::Digest.name()),
            Some(_) if self.rendered.is_none() => format!("{} is missing", Metric::RenderedTimestamp.name()),
            Some(_) => "an old exposition is being repeated, or its rendering time is not known".to_owned(),
        }
    }
}
