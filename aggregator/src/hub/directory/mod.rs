//! A directory of YAML files instead of a hub: for trying out, and for pipelines that have no cluster.
//!
//! ```text
//!   PATH/*.yaml ──files──> schema ──> Store <──requests── api <──kube::Client── all that works on a hub
//!                                       └──> PATH/status/PLURAL/NAMESPACE/NAME.yaml
//! ```
//!
//! All that watches and writes a hub does so by a [`Client`], from the loop to the messages to forges. So the directory is
//! put behind one, in this process and without a socket: those requests that this program sends are answered, and nothing
//! else is imitated of an API server.

mod api;
mod files;
mod schema;
mod store;
mod stored;

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower::Layer;
use tracing::{error, info};

use crate::hub::leadership_guard::LeadershipGuard;
use api::Api;
use files::{Files, Looked};
use store::Store;

/// Time between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);
/// Folder of the directory that this program writes.
const STATUS: &str = "status";

/// After so long without a look that shows what the files say, they say nothing any more.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that this process alone works on.
pub(crate) struct Directory {
    api: Api,
    followed: JoinHandle<anyhow::Error>,
}

impl Directory {
    /// Reads the directory, and follows its files from then on.
    ///
    /// # Errors
    /// When it is not there, cannot be written, another process has it, or its files do not keep still.
    pub(crate) async fn open(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            bail!("--hub dir:{}: there is no such directory", path.display());
        }
        let status = path.join(STATUS);
        let lock = Lock::take(&status)?;
        let mut files = Files::new(path.to_owned(), schema::Schemas::new()?);
        let (changed, changes) = watch::channel(0);
        let mut store = Store::open(status, changed)?;
        let begun = Instant::now();
        while files.look().with_context(|| format!("reading {}", path.display()))? != Looked::Changed {
            if begun.elapsed() > PATIENCE {
                bail!(
                    "{}: its files change without end: write them elsewhere and rename them",
                    path.display()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
        store.take(files.read());
        info!(directory = %path.display(), objects = store.len(), "a directory is the hub");
        let store = Arc::new(Mutex::new(store));
        let follower = Follower { files, lock, good: Instant::now(), said: String::new() };
        let followed = tokio::spawn(follow(follower, store.clone()));
        Ok(Self { api: Api::new(store, changes), followed })
    }

    /// A client of it, and one that passes what changes something only while the fence holds.
    pub(crate) fn clients(&self, fence: &LeadershipGuard, call: Duration) -> (Client, Client) {
        let service = || {
            let api = self.api.clone();
            tower::service_fn(move |request| api.clone().answer(request))
        };
        let fenced = fence.layer(call).layer(service());
        (Client::new(fenced, "default"), Client::new(service(), "default"))
    }

    /// Ends when this process cannot work on the directory any more, and says why.
    pub(crate) async fn lost(self) -> anyhow::Error {
        self.followed.await.unwrap_or_else(|error| anyhow!("following the files of the directory: {error}"))
    }
}

/// The lock by which this process has the directory.
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    fn take(status: &Path) -> Result<Self> {
        std::fs::create_dir_all(status).with_context(|| format!("making {}", status.display()))?;
        let path: PathBuf = status.join("lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.with_context(|| format!("opening {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path, file }),
            Err(TryLockError::WouldBlock) => {
                bail!(
                    "{} is locked: another aggregator works on this directory, and only one may",
                    path.display()
                )
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("locking {}", path.display()))
            }
        }
    }

    /// Whether another process would find the same file locked. Somebody may have removed it.
    fn check(&self) -> Result<()> {
        let place = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let there = std::fs::metadata(&self.path).map(place);
        if there.ok() == Some(place(self.file.metadata()?)) {
            return Ok(());
        }
        bail!(
            "{} was removed or replaced, so that another aggregator could work on this directory: start this one again",
            self.path.display()
        )
    }
}

/// Keeps a store up to date with the files.
struct Follower {
    files: Files,
    lock: Lock,
    /// When a look last showed what they say.
    good: Instant,
    /// What was last logged.
    said: String,
}

impl Follower {
    /// Looks at the files once.
    ///
    /// # Errors
    /// When the directory is no longer this process's own.
    fn look(&mut self) -> Result<io::Result<Looked>> {
        self.lock.check()?;
        Ok(self.files.look())
    }

    /// Takes in what a look has shown that began `now`.
    fn take(&mut self, looked: io::Result<Looked>, store: &Mutex<Store>, now: Instant) {
        let locked = || store.lock().unwrap_or_else(PoisonError::into_inner);
        let why = match looked {
            Ok(looked) if looked != Looked::Unsettled => {
                self.good = now;
                let is_behind = locked().is_behind();
                if looked == Looked::Changed || is_behind {
                    let declared = self.files.read();
                    locked().take(declared);
                }
                self.said.clear();
                return;
            }
            Ok(_) => "the files of the directory change without end".to_owned(),
            Err(error) => format!("the directory cannot be read: {error}"),
        };
        if now.saturating_duration_since(self.good) < PATIENCE {
            return;
        }
        locked().take(self.files.lose(&why));
        if self.said != why {
            error!(error = why, "all gates are closed");
            self.said = why;
        }
    }
}

/// Looks at the files again and again, until that makes no sense any more.
async fn follow(mut follower: Follower, store: Arc<Mutex<Store>>) -> anyhow::Error {
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        let looked = in_time(PATIENCE, move || {
            let looked = follower.look();
            looked.map(|looked| (follower, looked))
        });
        let (mut back, looked) = match looked.await.flatten() {
            Ok(looked) => looked,
            Err(error) => return error,
        };
        // However long writing takes, nobody else gets at the store meanwhile, so that no heartbeat is written.
        let store = store.clone();
        let taken = tokio::task::spawn_blocking(move || {
            back.take(looked, &store, now);
            back
        });
        match taken.await {
            Ok(back) => follower = back,
            Err(error) => return anyhow!("taking in the files of the directory: {error}"),
        }
    }
}

/// What a look gives, which may wait for a disk, but not for ever: nothing else would notice that nobody looks any more.
async fn in_time<T: Send + 'static>(
    patience: Duration,
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    match tokio::time::timeout(patience, tokio::task::spawn_blocking(look)).await {
        Ok(looked) => looked.context("looking at the files of the directory"),
        Err(_) => bail!("the directory could not be read within {patience:?}: see whether its disk answers"),
    }
}

#[cfg(test)]
mod tests;
