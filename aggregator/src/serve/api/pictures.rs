//! Pictures of the fleet, one for each namespace that somebody looks at and one of all; each is kept up to date while it is
//! looked at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use statusbridge_core::reconcile::picture::Picture;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::failure::Failure;
use crate::serve::desk::{Desk, Unanswered};

/// Most pictures at a time.
const MOST: usize = 64;
/// Time between two updates of a picture.
const PACE: Duration = Duration::from_millis(250);
/// How long a picture is kept that nobody looks at.
const UNSEEN: Duration = Duration::from_secs(60);
/// How long somebody waits for a new picture.
const PATIENCE: Duration = Duration::from_secs(10);

/// All pictures.
pub(super) struct Pictures {
    desk: Arc<Desk>,
    shown: Mutex<HashMap<Option<String>, Arc<Shown>>>,
}

/// A picture that somebody looks at.
pub(super) struct Shown {
    picture: Mutex<Picture>,
    seen: Mutex<Instant>,
    state: watch::Sender<State>,
}

/// How up to date a picture is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    /// Updates so far that changed something.
    changes: u64,
    whole: bool,
    unanswered: Option<Unanswered>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pictures {
    pub(super) fn new(desk: Arc<Desk>) -> Arc<Self> {
        Arc::new(Self { desk, shown: Mutex::default() })
    }

    /// The picture of a namespace, or of all, once it is whole.
    pub(super) async fn of(self: &Arc<Self>, namespace: Option<String>) -> Result<Arc<Shown>, Failure> {
        let shown = self.begin(namespace)?;
        shown.is_seen();
        let mut state = shown.state.subscribe();
        let settled = state.wait_for(|state| state.whole || state.unanswered.is_some());
        let state = match timeout(PATIENCE, settled).await {
            Ok(Ok(state)) => *state,
            _ => State { unanswered: Some(Unanswered::Busy), ..State::default() },
        };
        match state.unanswered {
            Some(unanswered) => Err(unanswered.into()),
            None => Ok(shown),
        }
    }

    fn begin(self: &Arc<Self>, namespace: Option<String>) -> Result<Arc<Shown>, Failure> {
        let mut all = lock(&self.shown);
        if let Some(shown) = all.get(&namespace) {
            return Ok(shown.clone());
        }
        if all.len() >= MOST {
            return Err(Failure::silent(format!("{MOST} namespaces are looked at already")));
        }
        let shown = Arc::new(Shown {
            picture: Mutex::new(Picture::new(namespace.clone())),
            seen: Mutex::new(Instant::now()),
            state: watch::Sender::default(),
        });
        all.insert(namespace.clone(), shown.clone());
        tokio::spawn(keep_up_to_date(self.clone(), namespace, shown.clone()));
        Ok(shown)
    }
}

async fn keep_up_to_date(pictures: Arc<Pictures>, namespace: Option<String>, shown: Arc<Shown>) {
    while lock(&shown.seen).elapsed() < UNSEEN {
        let updated = shown.clone();
        let answer = pictures.desk.ask(move |world| {
            // The loop waits for nobody who reads.
            let mut picture = match updated.picture.try_lock() {
                Ok(picture) => picture,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            let changed = picture.update(world);
            Some((changed, picture.is_whole()))
        });
        let answer = answer.await;
        let mut goes_on = false;
        shown.state.send_if_modified(|state| {
            let before = *state;
            match answer {
                Ok(Some((changed, whole))) => {
                    goes_on = !whole;
                    *state = State { changes: state.changes + u64::from(changed), whole, unanswered: None };
                }
                Ok(None) => goes_on = true,
                Err(unanswered) => state.unanswered = Some(unanswered),
            }
            *state != before
        });
        // Others get their turn with the loop either way.
        sleep(if goes_on { PACE / 25 } else { PACE }).await;
    }
    lock(&pictures.shown).remove(&namespace);
}

impl Shown {
    /// Somebody looks at it now.
    pub(super) fn is_seen(&self) {
        *lock(&self.seen) = Instant::now();
    }

    /// What it shows.
    pub(super) fn picture(&self) -> MutexGuard<'_, Picture> {
        lock(&self.picture)
    }

    /// Why it is not up to date, if it is not.
    pub(super) fn silent(&self) -> Option<String> {
        self.state.borrow().unanswered.map(|unanswered| unanswered.to_string())
    }

    /// From now on tells when something has changed.
    pub(super) fn follow(&self) -> Follower {
        Follower(self.state.subscribe())
    }
}

/// Tells when a picture changes.
pub(super) struct Follower(watch::Receiver<State>);

impl Follower {
    /// Ends when the picture has changed since this ended before, or after `most`.
    pub(super) async fn changed(&mut self, most: Duration) {
        // An error would say that the picture is gone, and this keeps it.
        let _ = timeout(most, self.0.changed()).await;
    }
}
