//! Revisions that FleetPackages read from objects of the hub (`revisionFrom`), as plain data.
//!
//! A [`Ledger`] knows which FleetPackage refers to what, what is known of it, and what follows. A value lives no longer
//! than its reference works, and counts for no other reference. Whoever may make a FleetPackage writes expressions: each
//! is evaluated once for a version of an object, in fair turns of namespaces. Whoever may make objects makes large ones: a
//! [`Shelf`] keeps what fits into the [`Room`] of their namespace.

mod evaluation;
mod ledger;
#[cfg(test)]
mod ledger_tests;
mod object;
mod reference;
mod resolution;
mod turns;

pub use evaluation::{Evaluated, Evaluation};
pub use ledger::{Change, Failure, Ledger, News};
pub use object::{Object, ReadObject, Refusal, Room, Sent, Shelf};
pub use reference::{Place, Reference};
pub use resolution::Resolution;
