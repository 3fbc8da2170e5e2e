//! One test's world: its directory, and what becomes of it.

use crate::watchdog;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The directory that all servers of one test live in. Cloning is cheap; the directory goes when the last clone
/// and the last server are dropped, unless the test failed or `STATUSBRIDGE_KEEP_LOGS` is set.
#[derive(Debug, Clone)]
pub struct Rig {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    failed: AtomicBool,
}

impl Rig {
    /// A rig with a new directory. Also chooses the TLS provider, which every client in this process needs.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn new(name: &str) -> Result<Self> {
        // An error only says that a provider was chosen before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::Builder::new()
            .prefix(&format!("statusbridge-{name}-"))
            .tempdir()
            .context("creating the rig's directory")?
            .keep();
        watchdog::directory(&dir)?;
        Ok(Self { inner: Arc::new(Inner { dir, failed: AtomicBool::new(false) }) })
    }

    /// The rig's directory.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// A new file inside it, with this text.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.dir().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// A new directory inside it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn subdir(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir().join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }

    /// Where the log of the server `name` is written.
    pub fn log_path(&self, name: &str) -> PathBuf {
        self.dir().join(format!("{name}.log"))
    }

    /// Keeps the directory, because what happened here has to be looked into.
    pub fn mark_failed(&self) {
        self.inner.failed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        watchdog::keep(&self.dir);
        let failed = *self.failed.get_mut() || std::thread::panicking();
        if failed || std::env::var_os("STATUSBRIDGE_KEEP_LOGS").is_some() {
            eprintln!("logs and data of every server are kept in {}", self.dir.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// Runs a test in a rig of its own: an error fails it, and a failed test keeps its logs.
///
/// # Panics
/// When `test` returns an error, with the whole chain of causes.
pub async fn run(name: &str, test: impl AsyncFnOnce(&Rig) -> Result<()>) {
    let rig = match Rig::new(name) {
        Ok(rig) => rig,
        Err(error) => panic!("{error:?}"),
    };
    if let Err(error) = test(&rig).await {
        rig.mark_failed();
        // The causes without a backtrace, which would only show this line.
        let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
        panic!("{name}: {}", causes.join("\n  because "));
    }
}
