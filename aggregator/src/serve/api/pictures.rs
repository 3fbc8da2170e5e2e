//! Pictures of the fleet, one for each namespace that somebody looks at and one of all; each is kept up to date while it is
//! looked at.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use statusbridge_core::reconcile::picture::Picture;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::failure::Failure;
use crate::serve::desk::{Desk, Unanswered};

/// Most pictures at a time.
const MOST: usize = 64;
/// Time between two updates of a picture: whoever looks at it sees a change within a second, and what many clusters
/// change within it costs one message.
const PACE: Duration = Duration::from_secs(1);
/// How long a picture is kept that nobody looks at.
const UNSEEN: Duration = Duration::from_secs(60);
/// How old a picture may be before it no longer counts.
const OLD: Duration = Duration::from_secs(5);
/// How long somebody waits for a new picture: that of 40 packages in 100,000 clusters each takes more than ten seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// All pictures.
pub(super) struct Pictures {
    desk: Arc<Desk>,
    shown: Mutex<HashMap<Option<String>, Arc<Shown>>>,
}

/// A picture that somebody looks at.
pub(super) struct Shown {
    picture: Mutex<Picture>,
    seen: Mutex<Instant>,
    /// When it was brought up to date.
    updated: Mutex<Instant>,
    state: watch::Sender<State>,
    /// Nobody keeps it up to date any longer.
    ends: AtomicBool,
    /// What was last sent of it, and to whom that fits.
    sent: Mutex<Option<(Asked, Bytes)>>,
}

/// What is sent, to those who have seen a cursor or nothing, while it is silent or not; within a second.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    since: Option<String>,
    cursor: String,
    second: i64,
    silent: Option<String>,
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
        let unanswered = match timeout(PATIENCE, settled).await {
            Ok(state) => state.map_or(Some(Unanswered::Nobody), |state| state.unanswered),
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                return Err(Failure::silent(format!("the picture was not whole after {seconds} s")));
            }
        };
        match unanswered {
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
            // Nobody waits for one that nobody follows.
            let unseen = all.iter().filter(|(_, shown)| shown.state.receiver_count() == 0);
            let oldest =
                unseen.min_by_key(|(_, shown)| *lock(&shown.seen)).map(|(namespace, _)| namespace.clone());
            if let Some(shown) = oldest.and_then(|namespace| all.remove(&namespace)) {
                shown.ends.store(true, Ordering::Relaxed);
            }
        }
        if all.len() >= MOST {
            return Err(Failure::silent(format!("{MOST} namespaces are looked at already")));
        }
        let shown = Arc::new(Shown {
            picture: Mutex::new(Picture::new(namespace.clone())),
            seen: Mutex::new(Instant::now()),
            updated: Mutex::new(Instant::now()),
            state: watch::Sender::default(),
            ends: AtomicBool::new(false),
            sent: Mutex::default(),
        });
        all.insert(namespace.clone(), shown.clone());
        tokio::spawn(keep_up_to_date(self.clone(), namespace, shown.clone()));
        Ok(shown)
    }
}

async fn keep_up_to_date(pictures: Arc<Pictures>, namespace: Option<String>, shown: Arc<Shown>) {
    while lock(&shown.seen).elapsed() < UNSEEN && !shown.ends.load(Ordering::Relaxed) {
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
                    *lock(&shown.updated) = Instant::now();
                    *state = State { changes: state.changes + u64::from(changed), whole, unanswered: None };
                }
                Ok(None) => goes_on = true,
                Err(unanswered) => state.unanswered = Some(unanswered),
            }
            *state != before
        });
        // Others get their turn with the loop either way.
        sleep(if goes_on { PACE / 100 } else { PACE }).await;
    }
    let mut all = lock(&pictures.shown);
    if all.get(&namespace).is_some_and(|it| Arc::ptr_eq(it, &shown)) {
        all.remove(&namespace);
    }
    // Whoever still reads it is told.
    shown.state.send_modify(|state| state.unanswered = Some(Unanswered::Nobody));
}

impl Shown {
    /// Somebody looks at it now.
    pub(super) fn is_seen(&self) {
        *lock(&self.seen) = Instant::now();
    }

    /// What it shows.
    ///
    /// # Errors
    /// While nobody brings it up to date.
    pub(super) fn picture(&self) -> Result<MutexGuard<'_, Picture>, Failure> {
        match self.silent() {
            Some(silent) => Err(Failure::silent(silent)),
            None => Ok(lock(&self.picture)),
        }
    }

    /// What is sent to somebody who has seen the picture of a cursor, or nothing: JSON, and the cursor that it
    /// leads to. None where the cursor is not known. Those who ask for the same share the bytes.
    pub(super) fn send(&self, since: Option<&str>, silent: Option<String>) -> Option<(String, Bytes)> {
        let picture = lock(&self.picture);
        let silent = silent.or_else(|| self.silent());
        let second = picture.evaluated_at().unwrap_or_default() as i64;
        let cursor = picture.cursor();
        let asked = Asked { since: since.map(str::to_owned), cursor: cursor.clone(), second, silent };
        let mut sent = lock(&self.sent);
        if let Some((before, body)) = &*sent
            && *before == asked
        {
            return Some((cursor, body.clone()));
        }
        let silent = asked.silent.as_deref();
        let view = match since {
            Some(since) => picture.since(since, silent)?,
            None => picture.all(silent),
        };
        let body = Bytes::from(serde_json::to_vec(&view).ok()?);
        *sent = Some((asked, body.clone()));
        Some((cursor, body))
    }

    /// Why it is not up to date, if it is not.
    fn silent(&self) -> Option<String> {
        let unanswered = self.state.borrow().unanswered.map(|unanswered| unanswered.to_string());
        let age = lock(&self.updated).elapsed();
        let old = || format!("this aggregator has not looked at its fleet for {} s", age.as_secs());
        unanswered.or_else(|| (age > OLD).then(old))
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
