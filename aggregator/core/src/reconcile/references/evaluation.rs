//! One expression on one object: what it gave last, and the next time that it is evaluated.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use statusbridge_api::Reason;
use statusbridge_expression::Expression;

use super::object::Object;
use super::reference::{Reference, read};
use super::resolution::{Resolution, unresolved};
use crate::reconcile::object::Key;

/// An expression, compiled when it is evaluated for the first time.
type Compiled = OnceLock<Result<Expression, String>>;

/// What is known of an expression on an object.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The FleetPackages that have it.
    pub(super) askers: BTreeSet<Key>,
    compiled: Arc<Compiled>,
    /// What it gave on the newest version that it was evaluated on.
    pub(super) found: Resolution,
    /// Which version that is. Not kept by this, as each of many expressions may be behind by another version.
    of: Option<Weak<Object>>,
    /// When a version came that it was not evaluated on, if there is one.
    pub(super) since: Option<Duration>,
    /// Whether that is too long ago.
    pub(super) late: bool,
    /// Its place among those that wait for their turn.
    pub(super) due: Option<Duration>,
    not_before: Option<Duration>,
    running: Option<Weak<Object>>,
}

impl Reading {
    /// Keeps nothing of the object, which is not there. Where it had waited for its turn.
    pub(super) fn forget(&mut self) -> Option<Duration> {
        (self.found, self.of, self.since) = (Resolution::Pending, None, None);
        (self.late, self.running) = (false, None);
        self.due.take()
    }

    /// Takes note of the newest version. When to evaluate, if that is news.
    pub(super) fn wait(&mut self, newest: &Arc<Object>, since: Duration, now: Duration) -> Option<Duration> {
        if self.of.as_ref().is_some_and(|of| is(of, newest)) {
            return None;
        }
        self.since.get_or_insert(since);
        if self.due.is_some() || self.running.is_some() {
            return None;
        }
        self.due = Some(self.not_before.map_or(now, |it| it.max(now)));
        self.due
    }

    pub(super) fn begin(
        &mut self,
        reference: Arc<Reference>,
        object: Arc<Object>,
        now: Duration,
    ) -> Evaluation {
        self.due = None;
        self.running = Some(Arc::downgrade(&object));
        Evaluation { reference, compiled: self.compiled.clone(), object, began: now }
    }

    /// Takes in what came out, unless the object has been gone since it began.
    pub(super) fn end(&mut self, evaluation: Evaluation, found: Resolution, not_before: Duration) {
        if self.running.take_if(|it| is(it, &evaluation.object)).is_some() {
            (self.found, self.of, self.since) = (found, Some(Arc::downgrade(&evaluation.object)), None);
            (self.late, self.not_before) = (false, Some(not_before));
        }
    }
}

/// Whether it is this version. No later one lies where an earlier one lay while that is still remembered.
fn is(version: &Weak<Object>, object: &Arc<Object>) -> bool {
    std::ptr::eq(version.as_ptr(), Arc::as_ptr(object))
}

/// An expression that is to be evaluated on a version of an object.
#[derive(Debug)]
pub struct Evaluation {
    pub(super) reference: Arc<Reference>,
    compiled: Arc<Compiled>,
    object: Arc<Object>,
    pub(super) began: Duration,
}

/// What an evaluation gave, and how long it took.
#[derive(Debug)]
pub struct Evaluated {
    pub(super) evaluation: Evaluation,
    pub(super) found: Resolution,
    pub(super) took: Duration,
}

impl Evaluation {
    /// Evaluates, which takes milliseconds.
    pub fn run(self) -> Evaluated {
        let began = Instant::now();
        let Reference { place, name, .. } = &*self.reference;
        let found = match self.compiled.get_or_init(|| self.reference.compile()) {
            Err(error) => unresolved(Reason::InvalidSpec, true, error),
            Ok(expression) => match read(expression, place, self.object.json()) {
                Ok(revision) => Resolution::Revision(revision),
                Err(error) => {
                    let message = format!("{} {name:?}: {error}", place.kind);
                    unresolved(Reason::RevisionInvalid, false, &message)
                }
            },
        };
        Evaluated { found, took: began.elapsed(), evaluation: self }
    }
}
