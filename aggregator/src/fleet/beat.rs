//! A digest sample, as a poll finds it.

use statusbridge_contract::{Metric, stream::StreamLabels};

use crate::clock::Seconds;

/// Why a digest is of no use when nobody says whether its stream is one cluster's.
pub const TURNS_UNTOLD: &str =
    "the backend does not say whether another cluster writes under the same labels";

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
    pub turns: Turns,
    /// Whether the same exposition came more than once lately.
    pub repeats: bool,
}

/// Whether several clusters write as one stream, taking turns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Turns {
    /// None can: what was read is one exposition, and its UID is all that there is to know.
    #[default]
    Impossible,
    /// None did lately, as far as samples are known that came until then.
    None {
        /// Time of the newest of them.
        until: Seconds,
    },
    /// Several did lately.
    Taken {
        /// Time of the newest sample that is known.
        until: Seconds,
    },
    /// The backend did not say.
    Untold,
}

impl Turns {
    /// Of what is said of two parts of a stream, that which is worse.
    pub fn worse(self, other: Self) -> Self {
        match (self, other) {
            (Self::Untold, _) | (_, Self::Untold) => Self::Untold,
            (Self::Impossible, it) | (it, Self::Impossible) => it,
            (Self::None { until: a }, Self::None { until: b }) => Self::None { until: a.min(b) },
            (
                Self::Taken { until: a } | Self::None { until: a },
                Self::Taken { until: b } | Self::None { until: b },
            ) => Self::Taken { until: a.min(b) },
        }
    }
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

    /// Whether it is known that nobody but the cluster of this UID writes as the stream, or that somebody
    /// does. Who does not say who it is cannot be told from another.
    pub fn tells_turns(&self, uid: Option<u64>) -> bool {
        uid.is_none() || self.turns != Turns::Untold
    }

    /// Evidence of the cluster of this UID, no younger than what is known of who writes as the stream.
    pub(super) fn bound(&self, evidence: Seconds, uid: Option<u64>) -> Option<Seconds> {
        match (uid, self.turns) {
            (None, _) | (_, Turns::Impossible) => Some(evidence),
            (Some(_), Turns::None { until } | Turns::Taken { until }) => Some(evidence.min(until)),
            (Some(_), Turns::Untold) => None,
        }
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
