//! Nothing outlives the test process, however it ends.
//!
//! One small shell per test process reads what was started from a pipe. When the pipe closes, which the kernel sees
//! to even after `kill -9`, it kills the process groups that are still listed and removes the directories. It
//! ignores Ctrl-C itself; servers run in process groups of their own and so never see it.

use anyhow::{Context, Result};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

const SCRIPT: &str = r#"
trap '' HUP INT TERM
pids=' '
dirs=
newline='
'
while IFS= read -r line; do
  case $line in
  "start "*) pids="$pids${line#start } " ;;
  "stop "*) p=${line#stop }; case $pids in *" $p "*) pids="${pids%%" $p "*} ${pids#*" $p "}" ;; esac ;;
  "dir "*) dirs="$dirs${line#dir }$newline" ;;
  "keep "*) d=${line#keep }; case $dirs in *"$d$newline"*) dirs="${dirs%%"$d$newline"*}${dirs#*"$d$newline"}" ;; esac ;;
  esac
done
for p in $pids; do kill -9 "-$p" 2>/dev/null; done
[ -z "$dirs" ] || sleep 0.2
printf '%s' "$dirs" | while IFS= read -r d; do rm -rf -- "$d"; done
"#;

static WATCHDOG: Mutex<Option<Child>> = Mutex::new(None);

fn tell(line: &str) -> Result<()> {
    let mut watchdog = WATCHDOG.lock().unwrap_or_else(PoisonError::into_inner);
    if watchdog.is_none() {
        let child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "statusbridge-watchdog"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("starting the watchdog shell")?;
        *watchdog = Some(child);
    }
    let input = watchdog.as_mut().and_then(|w| w.stdin.as_mut()).context("the watchdog has no input")?;
    writeln!(input, "{line}").context("telling the watchdog")
}

/// Puts the process group of `pid` under watch.
pub(crate) fn started(pid: u32) -> Result<()> {
    tell(&format!("start {pid}"))
}

/// Takes it off again: it has ended.
pub(crate) fn stopped(pid: u32) {
    let _ = tell(&format!("stop {pid}"));
}

/// A directory to remove when this process ends without having done so.
pub(crate) fn directory(path: &Path) -> Result<()> {
    tell(&format!("dir {}", path.display()))
}

/// A directory to leave alone: removed already, or kept on purpose.
pub(crate) fn keep(path: &Path) {
    let _ = tell(&format!("keep {}", path.display()));
}
