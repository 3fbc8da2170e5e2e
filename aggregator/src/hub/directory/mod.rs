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

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use tokio::sync::watch;
use tower::Layer;
use tracing::{info, warn};

use crate::hub::leadership_guard::LeadershipGuard;
use api::Api;
use files::Files;
use store::Store;

/// Time between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);
/// Folder of the directory that this program writes.
const STATUS: &str = "status";

/// A directory that this process alone works on.
pub(crate) struct Directory {
    api: Api,
    _lock: File,
}

impl Directory {
    /// Reads the directory, and follows its files from then on.
    ///
    /// # Errors
    /// When it is not there, cannot be written, or another process has it.
    pub(crate) async fn open(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            bail!("--hub dir:{}: there is no such directory", path.display());
        }
        let status = path.join(STATUS);
        let lock = lock(&status)?;
        let mut files = Files::new(path.to_owned(), schema::Schemas::new()?);
        let (changed, _) = watch::channel(0);
        let mut store = Store::open(status, changed)?;
        // What is being written while this begins shows by a second look.
        files.look().with_context(|| format!("reading {}", path.display()))?;
        tokio::time::sleep(LOOK).await;
        files.look().with_context(|| format!("reading {}", path.display()))?;
        store.take(files.read());
        info!(directory = %path.display(), objects = store.len(), "a directory is the hub");
        let store = Arc::new(Mutex::new(store));
        tokio::spawn(follow(files, Arc::downgrade(&store)));
        Ok(Self { api: Api(store), _lock: lock })
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
}

/// Takes the directory for this process.
fn lock(status: &Path) -> Result<File> {
    std::fs::create_dir_all(status).with_context(|| format!("making {}", status.display()))?;
    let path: PathBuf = status.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "{} is locked: another aggregator works on this directory, and only one may",
                path.display()
            )
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("locking {}", path.display())),
    }
}

/// Looks at the files again and again, as long as anybody uses the store.
async fn follow(mut files: Files, store: std::sync::Weak<Mutex<Store>>) {
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut said = String::new();
    loop {
        ticks.tick().await;
        let Some(store) = store.upgrade() else { return };
        let looked = tokio::task::spawn_blocking(move || {
            let changed = files.look();
            if changed.as_ref().is_ok_and(|changed| *changed) {
                store.lock().unwrap_or_else(PoisonError::into_inner).take(files.read());
            }
            (files, changed)
        });
        let Ok((back, changed)) = looked.await else { return };
        files = back;
        let error = changed.err().map(|error| error.to_string()).unwrap_or_default();
        if error != said && !error.is_empty() {
            warn!(error, "the directory cannot be read: what it said before stays");
        }
        said = error;
    }
}
