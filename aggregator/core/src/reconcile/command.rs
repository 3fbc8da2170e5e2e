//! What the reconciler wants done, and how that ends.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Serialize, Serializer};
use statusbridge_api::{FleetPackageStatus, FleetRolloutStatus, RolloutGateStatus};

use super::calls::is_young;
use super::discover;
use super::lazy_object::LazyObject;
use super::object::{Key, Kind, Version};
use super::owned::OwnedWrite;
use super::references::{self, Evaluation};
use crate::checks::Round;
use crate::time::Now;

/// Tells the answer to a call from those to all others.
pub type Number = u64;

/// One thing to do.
#[derive(Debug)]
pub enum Command {
    /// Write a status; [`Reconciler::wrote`](super::reconciler::Reconciler::wrote) takes the answer.
    Write(Box<StatusWrite>),
    /// Read an object; [`Reconciler::read`](super::reconciler::Reconciler::read) takes the answer.
    Read(Number, Kind, Key),
    /// Read anew what this FleetRollout goes on by, in its namespace; [`Reconciler::listed`](super::reconciler::Reconciler::listed) takes the
    /// answer.
    List(Number, Key, Vec<Listing>),
    /// Change an object that belongs to another one; [`Reconciler::wrote_owned`](super::reconciler::Reconciler::wrote_owned)
    /// takes the answer.
    WriteOwned(Box<OwnedWrite>),
    /// Make, note or remove a FleetPackage in a namespace;
    /// [`Reconciler::discovered`](super::reconciler::Reconciler::discovered) takes the answer.
    Discover(String, discover::Change),
    /// Give the sign of life, which names the gates that have to be closed and could not be;
    /// [`Reconciler::beaten`](super::reconciler::Reconciler::beaten) takes the answer.
    Beat(BTreeSet<Key>),
    /// Ask the backends the queries of these namespaces, in this order;
    /// [`Reconciler::checked`](super::reconciler::Reconciler::checked) takes what each namespace gets.
    Ask(Vec<Round>),
    /// Follow an object that a FleetPackage refers to, or follow it no longer.
    Follow(references::Change),
    /// Evaluate an expression; [`Reconciler::evaluated`](super::reconciler::Reconciler::evaluated) takes the answer.
    Evaluate(Box<Evaluation>),
    /// Show this object as it is known now: it is another, or gone.
    Show(Kind, Key),
}

/// A status, to be written over one version of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusWrite {
    /// Of this call.
    pub number: Number,
    /// Of which kind the object is.
    pub kind: Kind,
    /// Which object, and which version of it. Any other is not touched.
    pub version: Version,
    /// What to write.
    pub status: Status,
    /// When it was decided.
    pub(super) decided: Duration,
}

impl StatusWrite {
    /// Whether it may be sent now: what was decided long ago may no longer be true.
    pub fn may_be_sent(&self, now: Now) -> bool {
        is_young(self.decided, now)
    }
}

/// Objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Their kind.
    pub kind: Kind,
    /// Which of them.
    pub which: Which,
}

/// Some of all objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// Each of them.
    All,
    /// The one of this name.
    Named(String),
    /// Those with this label.
    Labelled(&'static str, String),
}

/// What of an object tells whether it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its kind.
    pub kind: Kind,
    /// Which version it is.
    pub version: Version,
    /// Generation of its spec.
    pub generation: i64,
}

/// What some listings gave together.
pub type Listed = Result<Vec<Head>, Unreadable>;

/// A status of any kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Status {
    /// A FleetPackage's.
    Package(Box<FleetPackageStatus>),
    /// A FleetRollout's.
    Rollout(Box<FleetRolloutStatus>),
    /// A gate's.
    Gate {
        /// The status.
        status: Box<RolloutGateStatus>,
        /// What to write where the hub has no room for that: only for one that closes.
        least: Option<Box<RolloutGateStatus>>,
    },
}

impl Status {
    /// Whether it closes an open gate.
    pub(super) fn closes(&self) -> bool {
        self.least().is_some()
    }

    /// What to write where the hub has no room for all of it.
    pub fn least(&self) -> Option<&RolloutGateStatus> {
        if let Self::Gate { least, .. } = self { least.as_deref() } else { None }
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Package(status) => status.serialize(serializer),
            Self::Rollout(status) => status.serialize(serializer),
            Self::Gate { status, .. } => status.serialize(serializer),
        }
    }
}

/// How a write ended.
#[derive(Debug, Clone)]
pub enum Answer {
    /// It was accepted; the object as it is now.
    Done(Box<LazyObject>),
    /// The object has changed since it was read.
    Conflict,
    /// There is no such object any more.
    Gone,
    /// The API server does not take it as it is, and says why. It has not arrived, and will not.
    Refused(String),
    /// It was not sent: it came too late, or another replica may lead before the answer.
    NotSent,
    /// The API server answered with an error, or did not answer in time: the write may arrive yet.
    Unconfirmed,
}

/// How reading an object ended: it is gone where there is none. Where it could not be read, nothing is known.
pub type Found = Result<Option<LazyObject>, Unreadable>;

/// An object could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;
