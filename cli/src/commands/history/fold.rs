//! Looks in, operations out: what a cluster did about a package, and what of it nobody saw.

use serde::Serialize;
use serde_with::skip_serializing_none;
use statusbridge_contract::{ApplyState, Fingerprint};
use statusbridge_core::time::Seconds;

use super::follow::{Because, Look};
use super::sight::State;

/// Transitions of one operation that are kept; what fails and is tried for days makes many.
const MOST_TRANSITIONS: usize = 50;
/// Operations and gaps of one cluster that are kept: the newest.
pub(super) const MOST_ENTRIES: usize = 100;

/// Clusters count whole seconds.
const WHOLE_SECOND: Seconds = 1.0;

/// When something happened.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Moment<T = Seconds> {
    /// At this time, or no later.
    pub(super) at: T,
    /// Whether it was at that time, to the second, as the exporter saw it.
    pub(super) exact: bool,
    /// The last look before it, if there is one.
    pub(super) after: Option<T>,
}

impl Moment {
    const fn within(after: Seconds, at: Seconds) -> Self {
        Self { at, exact: false, after: Some(after) }
    }

    /// The earliest time that it may have been, where that is known.
    pub(super) fn not_before(&self) -> Option<Seconds> {
        if self.exact { Some(self.at) } else { self.after }
    }
}

/// Why an operation began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) enum Trigger {
    /// It was under way when the time range began.
    #[default]
    UnderWay,
    /// The package appeared.
    New,
    /// The cluster was told another revision.
    Revision,
    /// The revision that it had was applied anew: another plan of KUDO, other parameters.
    Apply,
    /// What was applied stopped working, or nobody could tell.
    Health,
    /// The package is being deleted.
    Deletion,
}

/// How far an operation has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) enum Outcome {
    /// It goes on.
    #[default]
    InProgress,
    /// Applied in full, and nobody checks whether it works.
    Applied,
    /// Applied in full, and it works.
    Healthy,
    /// It failed, and has not come right since.
    Failed,
    /// The cluster was told another revision before it was done.
    Superseded,
    /// The package is not there any more.
    Gone,
}

/// A change of apply state, health or a revision that two looks in a row show: how it was at the later one. There may
/// have been others before it in between.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Transition {
    /// Since when it was so.
    pub(super) moment: Moment,
    /// How it was from then on.
    pub(super) state: State,
}

/// One thing that a cluster did about a package.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Operation {
    /// What the cluster was to run.
    pub(super) revision: Fingerprint,
    /// Why it began.
    pub(super) trigger: Trigger,
    /// When it began; None: before the time range.
    pub(super) started: Option<Moment>,
    /// When the revision was first applied in full.
    pub(super) applied: Option<Moment>,
    /// When it was first healthy.
    pub(super) healthy: Option<Moment>,
    /// When it first failed, and the code of the reason that it failed for last.
    pub(super) failed: Option<(Moment, u64)>,
    /// How it stands, or ended.
    pub(super) outcome: Outcome,
    /// When it ended; None: it goes on, or has failed and may be tried again.
    pub(super) ended: Option<Moment>,
    /// What was seen of it, in order.
    pub(super) transitions: Vec<Transition>,
    /// How many more there were.
    pub(super) more_transitions: usize,
    /// The look that the outcome rests on.
    pub(super) evidence: Evidence,
}

/// What an outcome rests on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Evidence {
    /// When it was stamped.
    pub(super) at: Seconds,
    /// The package then; None: it was not there.
    pub(super) package: Option<State>,
}

/// A time in which the package moved, or may have moved, and no sample shows how.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Gap<T = Seconds> {
    /// The last sample before it.
    pub(super) after: T,
    /// The first one after it.
    pub(super) before: T,
    /// Why that is all that is known.
    pub(super) because: Because,
}

/// What became of a package in one cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Story {
    /// Its operations, oldest first.
    pub(super) operations: Vec<Operation>,
    /// What was not seen, oldest first.
    pub(super) gaps: Vec<Gap>,
    /// Operations and gaps that are left out, being the oldest.
    pub(super) left_out: usize,
    /// The first look, if the package was there by then.
    pub(super) began: Option<Seconds>,
    /// The first and the last look.
    pub(super) seen: Option<(Seconds, Seconds)>,
    /// The package as it was last seen; None: it was not there at last.
    pub(super) now: Option<State>,
    /// Since when the package is not there.
    pub(super) gone: Option<Moment>,
    /// The backend's clock minus the cluster's.
    pub(super) offset: Seconds,
}

impl Story {
    /// Until when, and since when, nothing is known, where that is not all from `from` on and up to `to`.
    pub(super) fn unknown(&self, from: Seconds, to: Seconds) -> (Option<Seconds>, Option<Seconds>) {
        let last = self.seen.map(|(_, last)| last);
        (self.began.filter(|at| *at > from), last.filter(|at| *at < to))
    }
}

/// Folds looks in order of time.
pub(super) fn fold(looks: impl IntoIterator<Item = Look>) -> Story {
    let mut fold = Fold::default();
    for look in looks {
        fold.take(&look);
    }
    fold.finish()
}

#[derive(Default)]
struct Fold {
    story: Story,
    /// The operation that has not ended.
    open: Option<Operation>,
    last: Option<Look>,
}

impl Fold {
    fn take(&mut self, look: &Look) {
        let last = self.last.replace(*look);
        self.story.offset = look.offset;
        self.story.seen.get_or_insert((look.at, look.at)).1 = look.at;
        self.story.now = look.package;
        match (last, look.package) {
            (None, Some(state)) => self.begin(look, state),
            (Some(last), Some(state)) => {
                self.story.gone = None;
                match last.package {
                    Some(before) => self.go_on(last.at, before, look, state),
                    None => self.appear(last.at, look, state),
                }
            }
            (Some(last), None) if last.package.is_some() => {
                let moment = Moment::within(last.at, look.at);
                self.story.gone = Some(moment);
                self.end(Some(Outcome::Gone), moment, look);
            }
            (_, None) => {}
        }
    }

    /// The first look of all: what came before is not asked for.
    fn begin(&mut self, look: &Look, state: State) {
        self.story.began = Some(look.at);
        if state.is_settled() {
            return;
        }
        self.open = Some(operation(state, Trigger::UnderWay, None, look));
        // It has been what it is since the time that it says, or longer: an exporter that was started anew may
        // not know better.
        let since = if state.since == 0 { look.at } else { look.local(state.since) };
        let moment = Moment { at: since.min(look.at), exact: false, after: None };
        self.note(look, state, moment, false);
    }

    /// The package is there and was not before.
    fn appear(&mut self, before: Seconds, look: &Look, state: State) {
        let moment = moment(before, look, state);
        let started = Moment::within(before, moment.at);
        self.open = Some(operation(state, Trigger::New, Some(started), look));
        self.note(look, state, moment, false);
    }

    fn go_on(&mut self, at: Seconds, before: State, look: &Look, state: State) {
        let changed = state.differs(&before);
        // Nothing moves the time of a package that stays what it is; but another process may have seen it first at
        // another time.
        let rested = state.since == before.since || look.soak >= look.at - at + WHOLE_SECOND;
        if let Some(because) = look.unwatched.or((!changed).then_some(Because::Moved))
            && (changed || !rested)
        {
            self.story.gaps.push(Gap { after: at, before: look.at, because });
            bound(&mut self.story.gaps, &mut self.story.left_out);
        }
        let moment = if changed { moment(at, look, state) } else { Moment::within(at, look.at) };
        if let Some(trigger) = self.trigger(before, state) {
            let started = Moment::within(at, moment.at);
            self.end(None, started, look);
            self.open = Some(operation(state, trigger, Some(started), look));
        }
        self.note(look, state, moment, changed);
    }

    /// Why an operation begins with a change, if one does.
    fn trigger(&self, before: State, state: State) -> Option<Trigger> {
        match state.apply {
            _ if state.desired != before.desired && !state.desired.is_none() => Some(Trigger::Revision),
            _ if !self.begins_anew(before, state) => None,
            ApplyState::Deleting => Some(Trigger::Deletion),
            ApplyState::Applied if state.applied == before.applied => Some(Trigger::Health),
            _ => Some(Trigger::Apply),
        }
    }

    /// Whether a change is the beginning of something else than what is going on.
    fn begins_anew(&self, before: State, state: State) -> bool {
        if !state.shows_otherwise(&before) {
            return false;
        }
        match &self.open {
            None => true,
            Some(open) if open.trigger == Trigger::Deletion => false,
            Some(_) if state.apply == ApplyState::Deleting => true,
            // What is applied and unchecked is done as far as anybody can tell.
            Some(open) => open.outcome == Outcome::Applied && before.is_settled() && !state.is_settled(),
        }
    }

    /// Takes note of where the operation stands, and of the moment since when the package is what it is, where it
    /// changed.
    fn note(&mut self, look: &Look, state: State, moment: Moment, changed: bool) {
        let Some(open) = &mut self.open else { return };
        if changed {
            if open.transitions.len() < MOST_TRANSITIONS {
                open.transitions.push(Transition { moment, state });
            } else {
                open.more_transitions += 1;
            }
        }
        if state.is_applied() && open.trigger != Trigger::Health {
            // It may have been so before it became what else it is.
            open.applied.get_or_insert(Moment { exact: false, ..moment });
        }
        if state.is_failed() {
            open.failed.get_or_insert((moment, state.reason)).1 = state.reason;
        }
        let outcome = if state.is_healthy() {
            Outcome::Healthy
        } else if state.is_failed() {
            Outcome::Failed
        } else if state.is_settled() {
            Outcome::Applied
        } else {
            Outcome::InProgress
        };
        if outcome != open.outcome || changed {
            open.evidence = Evidence::of(look);
        }
        open.outcome = outcome;
        if outcome == Outcome::Healthy {
            let healthy = *open.healthy.get_or_insert(moment);
            self.end(None, healthy, look);
        }
    }

    /// Ends the operation that is open, if one is.
    fn end(&mut self, outcome: Option<Outcome>, moment: Moment, look: &Look) {
        let Some(mut open) = self.open.take() else { return };
        let superseded = (open.outcome == Outcome::InProgress).then_some(Outcome::Superseded);
        if let Some(outcome) = outcome.or(superseded) {
            (open.outcome, open.evidence) = (outcome, Evidence::of(look));
        }
        open.ended = Some(moment);
        self.story.operations.push(open);
        bound(&mut self.story.operations, &mut self.story.left_out);
    }

    fn finish(mut self) -> Story {
        self.story.operations.extend(self.open);
        bound(&mut self.story.operations, &mut self.story.left_out);
        self.story
    }
}

fn bound<T>(entries: &mut Vec<T>, left_out: &mut usize) {
    if entries.len() > MOST_ENTRIES {
        entries.remove(0);
        *left_out += 1;
    }
}

impl Evidence {
    const fn of(look: &Look) -> Self {
        Self { at: look.at, package: look.package }
    }
}

fn operation(state: State, trigger: Trigger, started: Option<Moment>, look: &Look) -> Operation {
    let evidence = Evidence::of(look);
    Operation { revision: state.desired, trigger, started, evidence, ..Operation::default() }
}

/// When the state became what a look shows: as the cluster says, if that lies between this look and the one before.
fn moment(after: Seconds, look: &Look, state: State) -> Moment {
    let theirs = look.local(state.since);
    if state.since > 0 && theirs + WHOLE_SECOND > after && theirs <= look.at {
        Moment { at: theirs.max(after), exact: look.unwatched.is_none(), after: Some(after) }
    } else {
        Moment::within(after, look.at)
    }
}
