//! The change-log sidecar under a provider that sends as fast as it can, with crossplane-runtime's own client.

use anyhow::{Context, Result, ensure};
use statusbridge_tests::{Changelog, Rig, usage};

/// Reconcilers that send at once. Crossplane's providers have 10 by default, and commonly up to 100.
const WORKERS: usize = 32;

/// Sends so many entries and tells what that took.
pub(crate) async fn measure(rig: &Rig, entries: u64) -> Result<String> {
    let machine = usage::machine();
    let out = rig.dir().join("changes.jsonl");
    let sidecar = Changelog::start(rig, "changelog", &out, &[]).await?;
    let pid = sidecar.process().pid().context("it is gone")?;
    let before = usage::processor(pid)?;
    let sent = sidecar.load(entries, WORKERS).await?;
    usage::until_idle(pid).await?;
    let processor = usage::processor(pid)? - before;

    ensure!(sent.failed == 0, "{} entries were not taken", sent.failed);
    let says = sidecar.says().await?;
    let lines = std::fs::read(&out)?.iter().filter(|byte| **byte == b'\n').count() as u64;
    let counted = says.sum("statusbridge_changelog_entries_total") as u64;
    ensure!(lines == entries && counted == entries, "{lines} lines, {counted} counted, of {entries} entries");
    let bytes = std::fs::metadata(&out)?.len() / entries;
    let rows = [
        ("entries a second", format!("{:.0}", entries as f64 / sent.took.as_secs_f64())),
        ("CPU for an entry", format!("{:.0} µs", processor.as_secs_f64() * 1e6 / entries as f64)),
        (
            "longest that an entry waited for its answer",
            format!("{:.1} ms", sent.slowest.as_secs_f64() * 1e3),
        ),
        ("resident memory at most", format!("{:.1} MB", usage::highest_resident(pid)? as f64 / 1e6)),
        ("lines lost", "0".to_owned()),
    ];
    let table: String = rows.iter().map(|(what, value)| format!("| {what} | {value} |\n")).collect();
    Ok(format!(
        "{entries} entries of {bytes} bytes from {WORKERS} reconcilers at once. {machine}.\n\n\
         | | statusbridge-changelog |\n|---|---|\n{table}"
    ))
}
