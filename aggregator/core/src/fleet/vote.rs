//! Which streams of a cluster count: the live ones, of which the worst decides.
//!
//! A stream has a vote until it has been silent for two of its own intervals while another one that reads the same
//! source goes on. So nothing is gained by speaking last, and a process that was replaced is outvoted by nobody but
//! time.

use super::digest_sample::StreamId;
use super::stream::{Stream, Verified};
use super::{Cluster, Seconds};

/// A stream and what was verified of it, if anything was.
#[derive(Clone, Copy)]
pub(super) struct Vote<'a> {
    pub(super) id: &'a StreamId,
    pub(super) stream: &'a Stream,
    pub(super) verified: Option<&'a Verified>,
}

impl Vote<'_> {
    fn reads(&self, source: &str) -> bool {
        self.verified.is_none_or(|verified| verified.content.source(source).is_some())
    }

    /// Whether it says that the source is up.
    pub(super) fn is_up(&self, source: &str) -> bool {
        self.verified.is_some_and(|verified| verified.content.is_up(source))
    }
}

/// The streams that are live among these.
fn live<'a>(all: &[Vote<'a>]) -> Vec<Vote<'a>> {
    let is_live = |it: &&Vote<'a>| {
        !all.iter().any(|other| it.stream.is_silent_beside(other.stream, it.id.uid == other.id.uid))
    };
    all.iter().filter(is_live).copied().collect()
}

impl Cluster {
    fn all_votes(&self) -> Vec<Vote<'_>> {
        let mut votes = Vec::with_capacity(self.streams.len());
        for (id, stream) in &self.streams {
            votes.push(Vote { id, stream, verified: stream.verified.as_ref() });
        }
        votes
    }

    /// The live streams, whatever they read.
    pub(super) fn live(&self) -> Vec<Vote<'_>> {
        live(&self.all_votes())
    }

    /// Every stream that reads a source, or of which that is not known.
    pub(super) fn readers(&self, source: &str) -> Vec<Vote<'_>> {
        self.all_votes().into_iter().filter(|vote| vote.reads(source)).collect()
    }

    /// Those of them that are live.
    pub(super) fn votes(&self, source: &str) -> Vec<Vote<'_>> {
        live(&self.readers(source))
    }

    /// Time of the evidence about a source's packages: of the oldest that counts.
    pub(super) fn evidence(&self, source: &str) -> Option<Seconds> {
        if let (1, Some(only)) = (self.streams.len(), self.streams.values().next()) {
            return only.evidence_so_far();
        }
        oldest(self.votes(source).iter().filter(|vote| vote.is_up(source)))
    }
}

/// Time of the oldest evidence of streams, of those that have any.
pub(super) fn oldest<'a>(votes: impl Iterator<Item = &'a Vote<'a>>) -> Option<Seconds> {
    votes.filter_map(|vote| vote.stream.evidence_so_far()).reduce(Seconds::min)
}
