//! What one look at a package says: plain data between evaluation, hold, transition and store.

use std::sync::Arc;

use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_expression::EvaluationError;

/// How many objects a package consists of, and how many of them work and do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Counts {
    /// All of them.
    pub total: u64,
    /// Those that are as they should be.
    pub current: u64,
    /// Those that failed.
    pub failed: u64,
}

/// The state of a package at one moment: all that the metrics say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// How far the cluster has got with applying it.
    pub apply: ApplyState,
    /// Whether what was applied works.
    pub health: Health,
    /// The revision that the cluster has been told to run.
    pub desired: Fingerprint,
    /// The revision last applied in full.
    pub applied: Fingerprint,
    /// `applied` while it is applied in full and Current at once, else none.
    pub healthy: Fingerprint,
    /// Why the package is not Applied and Current; `None` exactly when it is.
    pub reason: Option<Arc<str>>,
    /// Since when the object itself says that it is in this state, in unix seconds.
    pub since: Option<i64>,
    /// Counts of resources; `Some` for every package of a source that counts them, else `None`.
    pub resources: Option<Counts>,
}

impl Verdict {
    /// Whether applying failed or what was applied does not work.
    pub fn failed(&self) -> bool {
        self.apply == ApplyState::Failed || self.health == Health::Failed
    }

    /// Whether the package is applied in full and works.
    pub fn good(&self) -> bool {
        self.apply == ApplyState::Applied && self.health == Health::Current
    }
}

/// What people want to read when a package changes its state. Goes to the log, is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Detail {
    /// What the system says, cut to a bounded length.
    pub message: String,
    /// The thing that is worst off, where the system names it.
    pub worst_resource: Option<String>,
    /// The run of the controller that it is about, where the system names it.
    pub operation: Option<String>,
    /// The wanted revision as the system writes it.
    pub desired_revision: Option<String>,
    /// The revision that was last tried.
    pub attempted_revision: Option<String>,
    /// The revision that was last applied in full.
    pub applied_revision: Option<String>,
}

/// Whether a fingerprint is that of a revision as [`Detail`] has it, or of several. While an earlier verdict is held,
/// the object may say another one.
pub fn stands_for(fingerprint: Fingerprint, written: &str) -> bool {
    [Fingerprint::of(written), Fingerprint::of_all(written.split(", "))].contains(&fingerprint)
}

/// What a verdict was made about: attempted revision, generation, plan. A hash, compared only for
/// equality, within one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HoldKey(
    /// Hash of the key's text.
    pub u64,
);

impl HoldKey {
    /// The key that stands for `basis`.
    pub fn of(basis: impl std::hash::Hash) -> Self {
        use std::hash::Hasher as _;
        let mut hasher = std::hash::DefaultHasher::new();
        basis.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Whether a controller is in the middle of looking again, and at what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The object says nothing about the outcome at the moment: its controller is at work.
    pub undecided: bool,
    /// What it is at work on, or what it decided about.
    pub key: HoldKey,
}

/// All that came out of evaluating a source on one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// The state of the package.
    pub verdict: Verdict,
    /// For the log.
    pub detail: Detail,
    /// `None` when the source holds nothing, or an expression failed.
    pub hold: Option<Hold>,
    /// When time alone may make another verdict of it, in unix seconds.
    pub again: Option<i64>,
    /// The expression that failed, when one did; the verdict then says Unknown.
    pub error: Option<EvaluationError>,
}
