//! What keeps a gate closed that is no cluster's word: it is not the time, it is paused, its namespace is frozen, nobody
//! has approved.
//!
//! None of it ever keeps a gate open, and all of it comes after what clusters have failed in.

mod schedule;
pub mod window;

use statusbridge_api::Reason;
use statusbridge_api::rollout_gate::{Approved, Waiting};
use statusbridge_api::window::{Approval, Window};

use super::{Moment, shorten, time};
use crate::time::Seconds;
use window::Present;

/// A RolloutFreeze.
#[derive(Debug, Clone, PartialEq)]
pub struct Freeze {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
    /// When it begins, if not at once.
    pub from: Option<Seconds>,
    /// When it ends.
    pub until: Seconds,
}

impl Freeze {
    fn is_in_force(&self, now: Seconds) -> bool {
        self.from.is_none_or(|from| from <= now) && now < self.until
    }

    /// When it begins or ends next.
    fn next_change(&self, now: Seconds) -> Seconds {
        [self.from, Some(self.until)].into_iter().flatten().find(|at| *at > now).unwrap_or(Seconds::INFINITY)
    }
}

/// How well the objects of a kind are known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Knowledge<'a> {
    /// All of them are.
    #[default]
    Whole,
    /// The hub serves no such kind: there are none.
    NotServed,
    /// They cannot be read, for this reason; what is known of them is how they were.
    Unsure {
        /// Since when, by the wall clock.
        since: Seconds,
        /// Why.
        error: &'a str,
    },
}

impl Knowledge<'_> {
    /// Whether the doubt forbids a gate to be open: always one that was not, and in the end also one that was.
    fn forbids(self, was_open: bool, now: Seconds, stale_after: Seconds) -> bool {
        match self {
            Self::Unsure { since, .. } => !was_open || now - since > stale_after,
            Self::Whole | Self::NotServed => false,
        }
    }
}

/// The freezes of a namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Freezes<'a> {
    /// Those that are known.
    pub all: &'a [Freeze],
    /// Whether these are all.
    pub knowledge: Knowledge<'a>,
}

/// The approvals of a gate.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Approvals<'a> {
    /// The oldest of those that are for the gate's revision.
    pub valid: Option<&'a Approved>,
    /// Whether there are any for other revisions.
    pub others: bool,
    /// Whether all approvals are known.
    pub knowledge: Knowledge<'a>,
}

/// The present, for one that may be open already.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// When.
    pub moment: Moment,
    /// Whether it was open until now.
    pub was_open: bool,
    /// How old what is known may be.
    pub stale_after: Seconds,
}

/// What windows, a pause and freezes come to.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// What is waited for, most important first; empty where nothing is.
    pub waiting: Vec<Waiting>,
    /// Until when nothing of this changes by itself, by the wall clock.
    pub holds_until: Seconds,
    /// Where nothing is waited for: when something will be by itself, where that is known.
    pub open_until: Option<Seconds>,
}

/// What windows, a pause and freezes come to at a moment.
///
/// # Errors
/// What is wrong with a window, in words.
pub fn held(
    windows: &[Window],
    paused: bool,
    freezes: &Freezes<'_>,
    standing: &Standing,
) -> Result<Hold, String> {
    let windows = window::read(windows)?;
    let now = standing.moment.now;
    let mut hold = Hold { waiting: Vec::new(), holds_until: Seconds::INFINITY, open_until: None };
    if paused {
        hold.waits(Reason::GatePaused, "the gate is paused (spec.paused)".to_owned(), None);
    }
    let in_force: Vec<&Freeze> = freezes.all.iter().filter(|freeze| freeze.is_in_force(now)).collect();
    if let Some(last) = in_force.iter().copied().reduce(|a, b| if b.until > a.until { b } else { a }) {
        let until = Some(last.until).filter(|until| until.is_finite());
        hold.waits(Reason::Frozen, frozen(last, in_force.len()), until);
    }
    let changes = freezes.all.iter().map(|freeze| freeze.next_change(now)).reduce(Seconds::min);
    hold.ends(changes.filter(|at| at.is_finite()));
    if freezes.knowledge.forbids(standing.was_open, now, standing.stale_after)
        && let Knowledge::Unsure { error, .. } = freezes.knowledge
    {
        let message = format!("whether a RolloutFreeze is in force cannot be told: {}", shorten(error));
        hold.waits(Reason::FreezesUnavailable, message, None);
    }
    match window::present(&windows, now) {
        _ if windows.is_empty() => {}
        Present::Inside { at_least, until } => {
            hold.holds_until = hold.holds_until.min(at_least);
            hold.ends(until);
        }
        Present::Outside { next } => {
            let when = next.map(|at| format!("; the next begins {}", time(at).0)).unwrap_or_default();
            hold.waits(Reason::OutsideWindow, format!("outside all windows{when}"), next);
            hold.holds_until = next.unwrap_or(Seconds::INFINITY).min(hold.holds_until);
        }
    }
    if !hold.waiting.is_empty() {
        hold.open_until = None;
    }
    hold.waiting.sort_by_key(|entry| Reason::ALL.iter().position(|reason| reason.name() == entry.reason));
    Ok(hold)
}

impl Hold {
    fn waits(&mut self, reason: Reason, message: String, until: Option<Seconds>) {
        self.waiting.push(waiting(reason, message, until));
    }

    /// Something that does not hold a gate now may do so from then on.
    fn ends(&mut self, at: Option<Seconds>) {
        self.holds_until = at.map_or(self.holds_until, |at| at.min(self.holds_until));
        self.open_until = [self.open_until, at].into_iter().flatten().reduce(Seconds::min);
    }
}

/// What an approval that is asked for comes to.
pub fn approval(asked: Approval, approvals: &Approvals<'_>, standing: &Standing) -> Option<Waiting> {
    if asked == Approval::NotRequired {
        return None;
    }
    let now = standing.moment.now;
    let message = match (approvals.valid, approvals.knowledge) {
        (_, Knowledge::NotServed) => {
            "nobody can approve: the hub does not serve RolloutApprovals, apply the CRDs of this version"
                .to_owned()
        }
        (_, Knowledge::Unsure { error, .. })
            if approvals.valid.is_none()
                || approvals.knowledge.forbids(standing.was_open, now, standing.stale_after) =>
        {
            format!("whether anybody has approved the revision cannot be told: {}", shorten(error))
        }
        (Some(_), _) => return None,
        (None, _) if approvals.others => {
            "nobody has approved the revision yet; approvals of other revisions are void".to_owned()
        }
        (None, _) => "nobody has approved the revision yet".to_owned(),
    };
    Some(waiting(Reason::ApprovalRequired, message, None))
}

/// Where among what keeps a gate closed its own terms belong: after all that has failed, before what passes by itself.
pub(super) fn insert(waiting: &mut Vec<Waiting>, hold: Vec<Waiting>) {
    let passes = |entry: &Waiting| {
        let passing = [
            Reason::NotUpdated,
            Reason::RevisionNeverSeen,
            Reason::Paused,
            Reason::Deleting,
            Reason::HealthUnknown,
            Reason::Progressing,
            Reason::Soaking,
            Reason::CheckPending,
        ];
        passing.iter().any(|reason| reason.name() == entry.reason)
    };
    let at = waiting.iter().position(passes).unwrap_or(waiting.len());
    waiting.splice(at..at, hold);
}

fn frozen(last: &Freeze, count: usize) -> String {
    let until = if last.until.is_finite() { format!(" until {}", time(last.until).0) } else { String::new() };
    let more = match count {
        1 => String::new(),
        count => format!(", and {} more in force", count - 1),
    };
    format!("frozen{until} by RolloutFreeze {}{more}: {}", last.name, shorten(&last.reason))
}

fn waiting(reason: Reason, message: String, until: Option<Seconds>) -> Waiting {
    Waiting {
        reason: reason.name().to_owned(),
        message,
        count: 0,
        until: until.map(time),
        clusters: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
