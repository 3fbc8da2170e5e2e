//! What a process uses, from /proc: for benchmarks.

use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// Ticks of the clock in which /proc tells processor time (USER_HZ, 100 on every Linux).
const TICKS: u64 = 100;

/// Resident memory in bytes.
///
/// # Errors
/// When the process is gone.
pub fn resident(pid: u32) -> Result<u64> {
    memory(pid, "VmRSS:")
}

/// The most memory in bytes that was ever resident.
///
/// # Errors
/// When the process is gone.
pub fn highest_resident(pid: u32) -> Result<u64> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, field: &str) -> Result<u64> {
    let status = read(pid, "status")?;
    let line = status.lines().find_map(|l| l.strip_prefix(field)).context("a field is missing")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().context("no number")?;
    Ok(kilobytes * 1024)
}

/// Processor time used so far, user and system.
///
/// # Errors
/// When the process is gone.
pub fn processor(pid: u32) -> Result<Duration> {
    let stat = read(pid, "stat")?;
    // The name, in parentheses, may hold anything; the fields after it are numbers.
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    let field = |n: usize| fields.split_whitespace().nth(n).and_then(|f| f.parse::<u64>().ok());
    let ticks = field(11).zip(field(12)).map(|(user, system)| user + system).context("no times")?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS))
}

/// Waits until a process has nothing more to do: it used next to nothing for a second.
///
/// # Errors
/// When it does not come to rest within three minutes, or is gone.
pub async fn until_idle(pid: u32) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(180);
    let mut before = processor(pid)?;
    while Instant::now() < deadline {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let after = processor(pid)?;
        if after - before <= Duration::from_millis(10) {
            return Ok(());
        }
        before = after;
    }
    anyhow::bail!("the process does not come to rest");
}

/// This machine, and how busy it was over the last minute.
pub fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (cpu, load) = (read("/proc/cpuinfo"), read("/proc/loadavg"));
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("processors of an unknown model", |(_, model)| model);
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{count} × {model}, load {} at the start", load.split(' ').next().unwrap_or("?"))
}

fn read(pid: u32, file: &str) -> Result<String> {
    std::fs::read_to_string(format!("/proc/{pid}/{file}"))
        .with_context(|| format!("reading /proc/{pid}/{file}"))
}
