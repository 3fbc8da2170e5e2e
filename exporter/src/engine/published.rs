//! What scrapes read of the engine's work.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use statusbridge_contract::Fingerprint;

use super::Plan;
use crate::{
    store::{Snapshot, SourceStanding, Store},
    watch::Contacts,
};

/// Whether a source's packages are to be seen, by source index; shared with scrapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visibility {
    /// Its kind was never served.
    NeverServed,
    /// The first lists are being read.
    Loading,
    Visible,
}

/// What scrapes read: the store and what is known about each source.
#[derive(Debug)]
pub struct Published {
    pub(super) store: Store,
    pub(super) visible: Vec<Visibility>,
}

/// Shared by the engine, which writes, and scrapes, which clone row pointers.
pub type SharedPublished = Arc<Mutex<Published>>;

impl Published {
    /// One consistent view at `now` (unix seconds): a source is up when every kind that it reads was
    /// heard from within `timeout`.
    pub fn snapshot(
        &self,
        plan: &Plan,
        contacts: &Contacts,
        cluster_uid: Option<Fingerprint>,
        timeout: Duration,
        now: i64,
    ) -> Snapshot {
        let standing: Vec<SourceStanding> = self
            .visible
            .iter()
            .enumerate()
            .map(|(source, visible)| {
                let ages: Option<Vec<_>> = plan.kinds_of(source).map(|kind| contacts.age(kind)).collect();
                let age = ages.and_then(|ages| ages.into_iter().max());
                let seconds = |age: Duration| i64::try_from(age.as_secs()).unwrap_or(now);
                let last_contact = age.map_or(0, |age| now - seconds(age));
                match visible {
                    Visibility::NeverServed => SourceStanding::Unpublished,
                    Visibility::Loading => SourceStanding::Loading { last_contact },
                    Visibility::Visible => {
                        SourceStanding::Published { up: age.is_some_and(|age| age <= timeout), last_contact }
                    }
                }
            })
            .collect();
        self.store.snapshot(cluster_uid, &standing)
    }

    /// Whether nothing is being read for the first time.
    pub fn settled(&self) -> bool {
        !self.visible.contains(&Visibility::Loading)
    }
}
