//! Writes of objects that belong to others, some at the same time.

use super::Reconciler;
use super::flight::Flight;
use crate::decide::Moment;
use crate::reconcile::command::{Answer, Command};
use crate::reconcile::judge::World;
use crate::reconcile::object::{Key, Kind};
use crate::reconcile::owned::{Change, OwnedWrite};
use crate::reconcile::slice_changes;
use crate::reconcile::state::State;
use crate::reconcile::store::Event;
use crate::reconcile::write_queue::Urgency;
use crate::time::Now;

/// Objects that belong to one other that are written at the same time, before it is decided again.
const AT_ONCE: usize = 8;

impl Reconciler {
    /// Writes some of the slices of a FleetPackage.
    pub(super) fn write_slices(&mut self, package: &Key, moment: Moment, now: Now) -> u32 {
        let State { slices, packages, .. } = &self.state;
        let changes = slice_changes::changes(&World::new(&self.state, moment), slices, package);
        let controller = packages.get(package).map(|it| it.uid.clone());
        let changes = changes.into_iter().map(|change| change.owned(&package.name)).collect();
        let (kind, owner) = (Kind::FleetPackageSlice, (Kind::FleetPackage, package.clone()));
        self.write_owned(kind, (owner, controller), kind, changes, now)
    }

    /// Writes some of the objects of this kind that belong to another one.
    pub(super) fn write_owned(
        &mut self,
        job: Kind,
        (owner, controller): ((Kind, Key), Option<String>),
        kind: Kind,
        changes: Vec<Change>,
        now: Now,
    ) -> u32 {
        // Removals only once all else has landed.
        let removing = changes.first().is_some_and(Change::is_delete);
        let all = changes.len();
        let changes: Vec<Change> =
            changes.into_iter().take_while(|it| it.is_delete() == removing).take(AT_ONCE).collect();
        let left = changes.len();
        if left == 0 {
            return 0;
        }
        for change in changes {
            let (owner, controller, decided) = (owner.clone(), controller.clone(), now.passed);
            let write = OwnedWrite { owner, controller, job, kind, change, decided };
            self.commands.push(Command::WriteOwned(Box::new(write)));
        }
        let number = self.number();
        // A FleetRollout always has another look: its next step follows from this one.
        let more = left < all || job == Kind::FleetRollout;
        self.flights.begin((job, owner.1), number, Flight::Owned { left, landed: true, more });
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// How a change of an object that belongs to another one ended: the object where there is one.
    pub fn wrote_owned(&mut self, write: &OwnedWrite, answer: Answer, now: Now) {
        let job = (write.job, write.owner.1.clone());
        let has_landed = match (answer, &write.change) {
            (Answer::Done(object), _) => {
                self.heard(write.kind, Event::Apply(*object), now);
                true
            }
            (Answer::Gone, Change::Update(version, _) | Change::Delete(version)) => {
                self.is_gone(write.kind, &version.key, now);
                true
            }
            (Answer::Refused(why), _) => {
                // Only a FleetRollout has a place to tell of it.
                let is_news = write.job == Kind::FleetRollout
                    && self.state.refused.insert(write.owner.1.clone(), why.clone()).as_ref() != Some(&why);
                if is_news {
                    self.queue.push(job.clone(), Urgency::News);
                }
                false
            }
            // The namespace is going. Else the watch brings what it is now, and the next poll finds it again.
            (Answer::Gone, Change::Create(..))
            | (Answer::Conflict | Answer::NotSent | Answer::Unconfirmed, _) => false,
        };
        let Some(flight) = self.flights.get_mut(&job) else { return };
        let Flight::Owned { left, landed, more } = &mut flight.what else { return };
        (*left, *landed) = (left.saturating_sub(1), *landed && has_landed);
        if *left == 0 {
            let (landed, again, number) = (*landed, *landed && *more, flight.number);
            self.end(&job, number);
            if landed && job.0 == Kind::FleetRollout {
                self.state.refused.remove(&job.1);
            }
            if again {
                let urgency = if job.0 == Kind::FleetRollout { Urgency::News } else { Urgency::Refresh };
                self.queue.push(job, urgency);
            }
        }
        self.go_on(now);
    }
}
