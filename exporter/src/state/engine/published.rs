//! What scrapes read of the engine's work.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    clock::Moment,
    state::{
        store::{Publisher, Snapshot, SourceStanding, Store},
        table::Table,
    },
    watch::Contact,
};

/// Whether a source's packages are to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visibility {
    /// Its kind was never served.
    NeverServed,
    /// The first lists are being read.
    Loading,
    Visible,
}

/// What is known about a source as a whole.
#[derive(Debug)]
pub(super) struct PublishedSource {
    pub(super) visibility: Visibility,
    /// What it reads, by kind for people, and when the watch of each last kept up.
    pub(super) contacts: Vec<(String, Contact)>,
    /// Whether packages had to be left out of the series.
    pub(super) short: bool,
}

/// What scrapes read: the store and what is known about each source, by its index; `None` for one
/// that is no longer used.
#[derive(Debug)]
pub(crate) struct Published {
    pub(super) store: Store,
    pub(super) standing: Table<Option<PublishedSource>>,
}

/// Shared by the engine, which writes, and scrapes, which clone row pointers.
pub(crate) type SharedPublished = Arc<Mutex<Published>>;

impl Published {
    /// One consistent view at `now`: a source is up when the watch of every kind that it reads kept up with its API
    /// server within `timeout` and since the last pause, nothing that was heard waits for long, and none of its packages
    /// is left out.
    pub(crate) fn snapshot(&mut self, publisher: Publisher, timeout: Duration, now: Moment) -> Snapshot {
        self.store.use_offset(now.offset);
        let timeout = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        let standing = |standing: &Option<PublishedSource>| {
            let Some(standing) = standing else { return SourceStanding::Unpublished };
            let contacts: Option<Vec<i64>> =
                standing.contacts.iter().map(|(_, contact)| contact.at()).collect();
            let contact = contacts.and_then(|contacts| contacts.into_iter().min());
            let last_contact = contact.map_or(0, |at| now.unix_seconds() - (now.boot - at).div_euclid(1000));
            let timely = |at: i64| at >= now.resumed && now.boot - at <= timeout;
            let is_behind = standing.contacts.iter().any(|(_, contact)| contact.is_behind(now.boot));
            match standing.visibility {
                Visibility::NeverServed => SourceStanding::Unpublished,
                Visibility::Loading => SourceStanding::Loading { last_contact },
                Visibility::Visible => {
                    let up = contact.is_some_and(timely) && !is_behind && !standing.short;
                    SourceStanding::Published { up, last_contact }
                }
            }
        };
        let standing: Vec<SourceStanding> = self.standing.iter().map(standing).collect();
        self.store.snapshot(publisher, &standing)
    }

    /// What is still being waited for: a kind that nothing was heard of yet, or a first list.
    pub(crate) fn waiting(&self) -> Option<String> {
        let mut standing = self.standing.iter().flatten();
        let silent = standing.clone().flat_map(|s| &s.contacts).find(|(_, c)| c.at().is_none());
        match silent {
            Some((kind, _)) => Some(format!("nothing heard yet of {kind}")),
            None => standing
                .any(|s| s.visibility == Visibility::Loading)
                .then(|| "the first lists are not complete".to_owned()),
        }
    }
}
