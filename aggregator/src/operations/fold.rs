//! Looks in, operations out: what a cluster did about a package, and what of it nobody saw.

use serde::Serialize;
use statusbridge_contract::{ApplyState, Fingerprint, Health};

use super::follow::{Link, Look};
use super::sight::State;
use crate::clock::Seconds;

/// Transitions of one operation that are kept; what fails and is tried for days makes many.
const MOST_TRANSITIONS: usize = 50;
/// Operations and gaps of one cluster that are kept: the newest.
pub(super) const MOST_ENTRIES: usize = 100;

/// When something happened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moment {
    /// At this time, or no later.
    pub(super) at: Seconds,
    /// How well that is known.
    pub(super) known: Known,
}

/// How well a time is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Known {
    /// To the second, as the cluster says it.
    Exactly,
    /// By scrapes: it was after the one at this time.
    After(Seconds),
    /// It had happened by then.
    By,
}

impl Moment {
    const fn exact(at: Seconds) -> Self {
        Self { at, known: Known::Exactly }
    }

    const fn within(after: Seconds, at: Seconds) -> Self {
        Self { at, known: Known::After(after) }
    }

    /// The earliest time that it may have been, where that is known.
    pub(super) fn not_before(&self) -> Option<Seconds> {
        match self.known {
            Known::Exactly => Some(self.at),
            Known::After(after) => Some(after),
            Known::By => None,
        }
    }
}

/// Why an operation began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Trigger {
    /// It was under way when the time range began.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Outcome {
    /// It goes on.
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

/// A change of apply state, health or healthy revision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Transition {
    /// When.
    pub(super) moment: Moment,
    /// Apply state from then on.
    pub(super) apply: ApplyState,
    /// Health from then on.
    pub(super) health: Health,
    /// Healthy revision from then on.
    pub(super) healthy: Fingerprint,
    /// Code of the reason; 0 is none.
    pub(super) reason: u64,
}

/// One thing that a cluster did about a package.
#[derive(Debug, Clone, PartialEq)]
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
    /// The transitions that were seen, in order.
    pub(super) transitions: Vec<Transition>,
    /// How many more there were.
    pub(super) more_transitions: u64,
    /// The look that the outcome rests on.
    pub(super) evidence: Evidence,
}

/// What an outcome rests on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Evidence {
    /// When it was stamped.
    pub(super) at: Seconds,
    /// The package then; None: it was not there.
    pub(super) package: Option<State>,
}

/// A time in which something happened that no sample shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Gap {
    /// The last sample before it.
    pub(super) after: Seconds,
    /// The first one after it.
    pub(super) before: Seconds,
    /// So many transitions were counted and not seen.
    pub(super) missing: u64,
    /// There was a time in which nobody counted: there may be more of them.
    pub(super) uncounted: bool,
    /// That was because the exporter did not see its cluster, and not because there was none.
    pub(super) blind: bool,
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
    /// The package as it was last seen, and when that was; None: it was not there at last.
    pub(super) now: Option<(State, Seconds)>,
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
    looks.into_iter().for_each(|look| fold.take(&look));
    fold.finish()
}

#[derive(Default)]
struct Fold {
    story: Story,
    /// The operation that has not ended.
    open: Option<Operation>,
    last: Option<Look>,
}

/// What two looks in a row tell.
struct Step {
    at: Seconds,
    /// When the state became what it is: only of use where it is another one.
    moment: Moment,
    /// When what the counter does not count became what it is.
    span: Moment,
    changed: bool,
    /// Whether there is something between the two that no sample shows.
    hides: bool,
}

impl Fold {
    fn take(&mut self, look: &Look) {
        let last = self.last.replace(*look);
        self.story.offset = look.offset;
        if last.is_none() {
            self.story.began = look.package.map(|_| look.at);
        }
        let first = self.story.seen.map_or(look.at, |(first, _)| first);
        self.story.seen = Some((first, look.at));
        self.story.now = look.package.map(|state| (state, look.at));
        match (last, look.package) {
            (None, None) => {}
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
                self.end(Some(Outcome::Gone), moment, Evidence { at: look.at, package: None });
            }
            (Some(_), None) => {}
        }
    }

    /// The first look of all: what came before is not asked for.
    fn begin(&mut self, look: &Look, state: State) {
        if state.is_settled() {
            return;
        }
        self.open = Some(operation(state, Trigger::UnderWay, None, Evidence::of(look)));
        // It has been what it is since the time that it says, or longer: an exporter that was started anew may
        // not know better. Revisions have no time.
        let since = if state.since == 0 { look.at } else { state.since as Seconds + look.offset };
        let moment = Moment { at: since.min(look.at), known: Known::By };
        let span = Moment { at: look.at, ..moment };
        self.note(&Step { at: look.at, moment, span, changed: false, hides: true }, None, state);
    }

    /// The package is there and was not before.
    fn appear(&mut self, before: Seconds, look: &Look, state: State) {
        if let Link::Same(missing @ 1..) = look.link {
            self.story.gaps.push(Gap {
                after: before,
                before: look.at,
                missing,
                uncounted: look.blind,
                blind: look.blind,
            });
            bound(&mut self.story.gaps, &mut self.story.left_out);
        }
        let moment = moment(before, None, look, state);
        self.open = Some(operation(state, Trigger::New, Some(moment), Evidence::of(look)));
        self.note(&Step { at: look.at, moment, span: moment, changed: false, hides: false }, None, state);
    }

    fn go_on(&mut self, at: Seconds, before: State, look: &Look, state: State) {
        let changed = state.differs(&before);
        let seen = u64::from(changed);
        let moved_on = changed || state.since != before.since;
        let (missing, uncounted) = match look.link {
            // What came and went while the exporter saw nothing is counted by nobody.
            Link::Same(moved) => (moved.saturating_sub(seen), look.blind),
            // A new process that says the same since the same time has missed nothing.
            Link::Restarted(counted) => (counted.saturating_sub(seen), counted > 0 || moved_on),
            Link::Other => (0, moved_on),
            Link::First => (0, false),
        };
        if missing > 0 || uncounted {
            let blind = uncounted && matches!(look.link, Link::Same(_));
            self.story.gaps.push(Gap { after: at, before: look.at, missing, uncounted, blind });
            bound(&mut self.story.gaps, &mut self.story.left_out);
        }
        let span = Moment::within(at, look.at);
        let moment = if changed { moment(at, Some(before), look, state) } else { span };
        let step = Step { at: look.at, moment, span, changed, hides: missing > 0 || uncounted };
        if state.desired != before.desired && !state.desired.is_none() {
            // What is healthy was told before; else nothing but samples says when it was told.
            let told = if changed && state.healthy == state.desired { moment.at } else { look.at };
            let told = Moment::within(at, told);
            self.end(None, told, Evidence::of(look));
            self.open = Some(operation(state, Trigger::Revision, Some(told), Evidence::of(look)));
        } else if changed && self.begins_anew(before, state) {
            self.end(None, moment, Evidence::of(look));
            let trigger = match state.apply {
                ApplyState::Deleting => Trigger::Deletion,
                ApplyState::Applied => Trigger::Health,
                _ => Trigger::Apply,
            };
            self.open = Some(operation(state, trigger, Some(moment), Evidence::of(look)));
        }
        self.note(&step, Some(before), state);
    }

    /// Whether a change is the beginning of something else than what is going on.
    fn begins_anew(&self, before: State, state: State) -> bool {
        match &self.open {
            None => true,
            Some(open) if open.trigger == Trigger::Deletion => false,
            Some(_) if state.apply == ApplyState::Deleting => true,
            // What is applied and unchecked is done as far as anybody can tell.
            Some(open) => open.outcome == Outcome::Applied && before.is_settled() && !state.is_settled(),
        }
    }

    /// Takes note of where the operation stands.
    fn note(&mut self, step: &Step, before: Option<State>, state: State) {
        let Some(open) = &mut self.open else { return };
        if step.changed {
            let State { apply, health, healthy, reason, .. } = state;
            if open.transitions.len() < MOST_TRANSITIONS {
                open.transitions.push(Transition { moment: step.moment, apply, health, healthy, reason });
            } else {
                open.more_transitions += 1;
            }
        }
        if state.is_applied() && open.trigger != Trigger::Health {
            // Nobody counts or dates wanted and applied revisions, but for one that is healthy.
            let healthy = step.changed && state.healthy == state.desired;
            let became = healthy && before.is_some_and(|before| before.apply != state.apply) && !step.hides;
            let at = if healthy { step.moment.at } else { step.span.at };
            let when = if became { step.moment } else { Moment { at, ..step.span } };
            open.applied.get_or_insert(when);
        }
        if state.is_failed() {
            let (at, _) = *open.failed.get_or_insert((step.moment, state.reason));
            open.failed = Some((at, state.reason));
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
        let evidence = Evidence { at: step.at, package: Some(state) };
        if outcome != open.outcome || step.changed {
            open.evidence = evidence;
        }
        open.outcome = outcome;
        if outcome == Outcome::Healthy {
            let healthy = *open.healthy.get_or_insert(step.moment);
            self.end(None, healthy, evidence);
        }
    }

    /// Ends the operation that is open, if one is.
    fn end(&mut self, outcome: Option<Outcome>, moment: Moment, evidence: Evidence) {
        let Some(mut open) = self.open.take() else { return };
        match outcome {
            Some(outcome) => (open.outcome, open.evidence) = (outcome, evidence),
            None if open.outcome == Outcome::InProgress => {
                (open.outcome, open.evidence) = (Outcome::Superseded, evidence);
            }
            None => {}
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

fn operation(state: State, trigger: Trigger, started: Option<Moment>, evidence: Evidence) -> Operation {
    Operation {
        revision: state.desired,
        trigger,
        started,
        applied: None,
        healthy: None,
        failed: None,
        outcome: Outcome::InProgress,
        ended: None,
        transitions: Vec::new(),
        more_transitions: 0,
        evidence,
    }
}

/// When the state became what a look shows: as the cluster says, if that lies between this look and the
/// one before.
fn moment(after: Seconds, before: Option<State>, look: &Look, state: State) -> Moment {
    let theirs = state.since as Seconds + look.offset;
    let moved = before.is_none_or(|before| before.since != state.since);
    // The cluster counts whole seconds.
    if moved && state.since > 0 && theirs + 1.0 > after && theirs <= look.at {
        let at = theirs.max(after);
        if look.dated { Moment::exact(at) } else { Moment::within(after, at) }
    } else {
        Moment::within(after, look.at)
    }
}
