//! A server as a process: started, stopped, frozen, killed, started again.

use crate::{Rig, watchdog};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A server's process. Methods take `&self`, so that a test can freeze one server while it talks to others.
#[derive(Debug)]
pub struct Process {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(String, OsString)>,
    log: PathBuf,
    child: Mutex<Option<Child>>,
    // Declared last: the directory may go only after the process has gone.
    rig: Rig,
}

impl Process {
    /// Starts `program`. Its output is appended to `<rig>/<name>.log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(
        rig: &Rig,
        name: &str,
        program: &Path,
        args: impl IntoIterator<Item = impl Into<OsString>>,
        env: impl IntoIterator<Item = (&'static str, OsString)>,
    ) -> Result<Self> {
        let process = Self {
            name: name.to_owned(),
            program: program.to_owned(),
            args: args.into_iter().map(Into::into).collect(),
            env: env.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
            log: rig.log_path(name),
            child: Mutex::new(None),
            rig: rig.clone(),
        };
        process.start()?;
        Ok(process)
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it (again) with the arguments, data and ports that it had.
    ///
    /// # Errors
    /// When it is running already or cannot be started.
    pub fn start(&self) -> Result<()> {
        let mut slot = self.child();
        ensure!(slot.is_none(), "{} is running already", self.name);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("opening {}", self.log.display()))?;
        let child = Command::new(&self.program)
            .args(&self.args)
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing the log")?)
            .stderr(log)
            .process_group(0)
            .current_dir(self.rig.dir())
            .spawn()
            .with_context(|| format!("starting {} ({})", self.name, self.program.display()))?;
        watchdog::started(child.id())?;
        *slot = Some(child);
        Ok(())
    }

    /// The process's id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// Name and log file, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its output goes.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// All it has written so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }

    /// The rig it belongs to.
    pub fn rig(&self) -> &Rig {
        &self.rig
    }

    /// Fails, with the end of its log, when the process has ended by itself.
    ///
    /// # Errors
    /// When it does not run.
    pub fn ensure_running(&self) -> Result<()> {
        let mut slot = self.child();
        let Some(child) = slot.as_mut() else { bail!("{} is not running", self.name) };
        let pid = child.id();
        if let Some(status) = child.try_wait().with_context(|| format!("looking at {}", self.name))? {
            watchdog::stopped(pid);
            *slot = None;
            drop(slot);
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            bail!("{} ended by itself ({status}); its log ends with\n{}", self.name, tail.join("\n"));
        }
        Ok(())
    }

    /// Sends a signal by name, such as `TERM`, to the process.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.pid().with_context(|| format!("{} is not running", self.name))?;
        let status = Command::new("/bin/sh")
            .args(["-c", "kill -\"$0\" \"$1\"", signal, &pid.to_string()])
            .status()
            .context("running kill")?;
        ensure!(status.success(), "kill -{signal} of {} failed", self.name);
        Ok(())
    }

    /// Stops its clock: connections stay open and nobody answers (SIGSTOP). Waits until all of its threads stand still,
    /// which on a busy machine takes a while.
    ///
    /// # Errors
    /// When it does not run.
    pub fn freeze(&self) -> Result<()> {
        self.signal("STOP")?;
        let tasks = format!("/proc/{}/task", self.pid().context("it has ended")?);
        let stands_still = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            // A thread that has ended stands still, too.
            stat.map_or(true, |stat| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T')))
        };
        let began = Instant::now();
        while !std::fs::read_dir(&tasks)?.all(stands_still) {
            ensure!(began.elapsed() < Duration::from_secs(10), "it does not stand still");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Ends [`Process::freeze`].
    ///
    /// # Errors
    /// When it does not run.
    pub fn thaw(&self) -> Result<()> {
        self.signal("CONT")
    }

    /// Kills it (SIGKILL) and waits until it is gone. No error when it does not run.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            let pid = child.id();
            // The group first, for what the server itself may have started.
            let _ = Command::new("/bin/sh")
                .args(["-c", "kill -9 \"-$0\"", &pid.to_string()])
                .stderr(Stdio::null())
                .status();
            let _ = child.kill();
            let _ = child.wait();
            watchdog::stopped(pid);
        }
    }

    /// Asks it to stop (SIGTERM) and gives the status it ended with.
    ///
    /// # Errors
    /// When it does not run, or has not ended by the deadline.
    pub async fn terminate(&self, deadline: Duration) -> Result<ExitStatus> {
        self.signal("TERM")?;
        crate::eventually(deadline, &format!("{} ends after SIGTERM", self.name), async || {
            let mut slot = self.child();
            let child = slot.as_mut().context("it is gone")?;
            let pid = child.id();
            let status = child.try_wait()?.context("it still runs")?;
            watchdog::stopped(pid);
            *slot = None;
            Ok(status)
        })
        .await
    }

    /// Waits until the server answers, or says why it never will.
    ///
    /// # Errors
    /// When it ends by itself, or does not answer [soon](crate::SOON).
    pub(crate) async fn ready(&self, mut answers: impl AsyncFnMut() -> Result<()>) -> Result<()> {
        let mut ended = None;
        let ready = crate::eventually(crate::SOON, &format!("{} answers", self.name), async || {
            if let Err(error) = self.ensure_running() {
                ended = Some(error);
                return Ok(());
            }
            answers().await
        })
        .await;
        if let Some(error) = ended {
            self.rig.mark_failed();
            return Err(error);
        }
        ready
            .with_context(|| format!("its log is {}", self.log.display()))
            .inspect_err(|_| self.rig.mark_failed())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
