//! Bytes on disk.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What an engine has on disk. Chunks and index are told apart: an index is written once for each block, however many
/// samples are in it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stored {
    /// Samples.
    pub(super) samples: u64,
    /// Bytes that they take.
    pub(super) bytes: u64,
    /// Series, each as often as there are blocks with it.
    pub(super) series: u64,
    /// Bytes of the index.
    pub(super) index: u64,
}

impl Stored {
    /// Bytes for a sample, without the index.
    pub(super) fn each_sample(&self) -> f64 {
        self.bytes as f64 / self.samples.max(1) as f64
    }

    /// Bytes of the index for a series.
    pub(super) fn each_series(&self) -> f64 {
        self.index as f64 / self.series.max(1) as f64
    }
}

/// All blocks of Prometheus' format below a directory.
pub(super) fn blocks(dir: &Path) -> Result<Stored> {
    let mut all = Stored::default();
    let mut seen = BTreeSet::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        let file = dir.join("meta.json");
        if !file.exists() {
            left.extend(entries(&dir)?.into_iter().filter(|path| path.is_dir()));
        } else if seen.insert(dir.file_name().map(ToOwned::to_owned)) {
            let text = std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
            let meta: Value = serde_json::from_slice(&text).with_context(|| format!("{}", file.display()))?;
            let count = |what: &str| meta["stats"][what].as_u64().unwrap_or_default();
            all.samples += count("numSamples");
            all.series += count("numSeries");
            all.index += size(&dir.join("index"))?;
            for chunks in entries(&dir.join("chunks"))? {
                all.bytes += size(&chunks)?;
            }
        }
    }
    anyhow::ensure!(all.samples > 0, "no samples in the blocks below {}", dir.display());
    Ok(all)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn size(file: &Path) -> Result<u64> {
    Ok(std::fs::metadata(file).with_context(|| format!("looking at {}", file.display()))?.len())
}
