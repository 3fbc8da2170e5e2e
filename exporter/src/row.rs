//! What one package publishes, and blocks of such rows with what was last compressed of them.

use std::sync::{Arc, OnceLock};

use statusbridge_contract::{Digest, Metric, PACKAGE_METRICS, label, sample};

use crate::{
    gzip::{Packer, Part},
    store::{Limits, PackageKey},
    transition::Shown,
};

/// Everything that one package publishes.
#[derive(Debug, Clone)]
pub struct Row {
    /// The own labels as an exposition has them, braces included.
    labels: Box<str>,
    /// Values of [`PACKAGE_METRICS`].
    values: [u64; PACKAGE_METRICS.len()],
    /// Bit n is set when `values[n]` is published.
    published: u16,
    /// Sum of the hashes of the row's samples.
    digest: Digest,
}

impl Row {
    /// The row of a package of `source` that shows `shown`.
    pub fn new(source: &str, key: &PackageKey, shown: &Shown, reason_code: u64, limits: &Limits) -> Self {
        let mut own = vec![(label::PACKAGE_SOURCE, source), (label::PACKAGE, &key.name)];
        if let Some(namespace) = &key.namespace {
            own.push((label::PACKAGE_NAMESPACE, namespace));
        }
        let mut labels = String::with_capacity(128);
        sample::write_labels(&mut labels, &own);
        let verdict = &shown.verdict;
        let inventory = verdict.inventory.unwrap_or_default();
        let values = [
            verdict.apply.code(),
            verdict.health.code(),
            verdict.desired.value(),
            verdict.applied.value(),
            verdict.healthy.value(),
            u64::try_from(shown.transition_timestamp).unwrap_or(0),
            shown.transitions,
            reason_code,
            inventory.total,
            inventory.current,
            inventory.failed,
        ];
        let has = |metric: Metric| !metric.of_inventory() || verdict.inventory.is_some();
        let bit = |(i, metric): (usize, &Metric)| u16::from(has(*metric) && limits.admit(*metric)) << i;
        let published = PACKAGE_METRICS.iter().enumerate().map(bit).sum();
        let mut row = Self { labels: labels.into_boxed_str(), values, published, digest: Digest::default() };
        let mut line = Vec::with_capacity(224);
        row.digest = (0..values.len())
            .filter_map(|i| {
                line.clear();
                row.write_sample(i, &mut line).then(|| sample::hash_canonical(&line))
            })
            .collect();
        row
    }

    /// Appends the canonical form of the sample of `PACKAGE_METRICS[index]`, if the row has one.
    fn write_sample(&self, index: usize, out: &mut Vec<u8>) -> bool {
        let Some(value) = self.value(index) else { return false };
        out.extend_from_slice(PACKAGE_METRICS[index].name().as_bytes());
        out.extend_from_slice(self.labels.as_bytes());
        out.push(b' ');
        out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        true
    }

    /// The value of `PACKAGE_METRICS[index]`, if it is published.
    fn value(&self, index: usize) -> Option<u64> {
        (self.published & (1 << index) != 0).then_some(self.values[index])
    }

    /// Codes of apply state and health.
    pub fn state(&self) -> (u64, u64) {
        (self.values[0], self.values[1])
    }

    /// Sum of the hashes of the row's samples.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

/// Rows side by side. What is compressed of a metric is kept until one of its samples changes, so a
/// scrape pays for what has changed since the last one.
#[derive(Debug, Clone, Default)]
pub struct Block {
    rows: Vec<Option<Row>>,
    packed: [OnceLock<Arc<Part>>; PACKAGE_METRICS.len()],
}

impl Block {
    /// How many rows a block has: few enough that a changed one costs little, and enough that they
    /// compress as well together as more would.
    pub const ROWS: usize = 128;

    /// Puts a row in its place, or takes it away; returns what was there.
    pub fn set(&mut self, at: usize, row: Option<Row>) -> Option<Row> {
        if self.rows.len() <= at {
            self.rows.resize(at + 1, None);
        }
        let old = std::mem::replace(&mut self.rows[at], row);
        let (old_row, new_row) = (old.as_ref(), self.rows[at].as_ref());
        let same_labels = old_row.map(|r| &r.labels) == new_row.map(|r| &r.labels);
        for (index, packed) in self.packed.iter_mut().enumerate() {
            let value = |row: Option<&Row>| row.and_then(|r| r.value(index));
            if !same_labels || value(old_row) != value(new_row) {
                packed.take();
            }
        }
        old
    }

    /// Whether any row has a sample of `PACKAGE_METRICS[index]`.
    pub fn has(&self, index: usize) -> bool {
        self.rows.iter().flatten().any(|row| row.value(index).is_some())
    }

    /// Appends the lines of all samples of `PACKAGE_METRICS[index]`.
    pub fn write(&self, index: usize, out: &mut Vec<u8>) {
        for row in self.rows.iter().flatten() {
            if row.write_sample(index, out) {
                out.push(b'\n');
            }
        }
    }

    /// What [`Block::write`] appends, compressed.
    pub fn packed(&self, index: usize, packer: &mut Packer) -> &Part {
        self.packed[index].get_or_init(|| {
            let mut text = Vec::new();
            self.write(index, &mut text);
            Arc::new(packer.pack(&text))
        })
    }
}
