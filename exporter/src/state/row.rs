//! What one package publishes, and blocks of such rows with what was last compressed of them.

use std::sync::{Arc, OnceLock};

use statusbridge_contract::{ApplyState, Digest, Health, Metric, PACKAGE_METRICS, label, sample};

use super::{
    gzip::{Packer, Part},
    soak::Shown,
};
use crate::{source::Verdict, watch::PackageKey};

/// Everything that one package publishes.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// The own labels as an exposition has them, braces included.
    labels: Box<str>,
    /// The cluster in which the package runs, where that is not the exporter's own.
    cluster: Option<Arc<str>>,
    /// Codes of apply state and health.
    state: (u64, u64),
    /// Since when it is vouched for, in milliseconds by the `run` clock.
    since: i64,
    /// Values of [`PACKAGE_METRICS`].
    values: [u64; PACKAGE_METRICS.len()],
    /// Bit n is set when `values[n]` is published.
    published: u16,
    /// Sum of the hashes of the row's samples.
    digest: Digest,
}

impl Row {
    /// The row of a package of `source` that shows `shown`, with times that are `offset` milliseconds behind unix time. A
    /// sample that follows from the others is left out.
    pub(crate) fn new(source: &str, key: &PackageKey, shown: &Shown, reason_code: u64, offset: i64) -> Self {
        let mut own = vec![(label::PACKAGE_SOURCE, source), (label::PACKAGE, &key.name)];
        if let Some(namespace) = &key.namespace {
            own.push((label::PACKAGE_NAMESPACE, namespace));
        }
        if let Some(cluster) = &key.cluster {
            own.push((label::PACKAGE_CLUSTER, cluster));
        }
        let mut labels = String::with_capacity(128);
        sample::write_labels(&mut labels, &own);
        let verdict = &shown.verdict;
        let Verdict { apply, health, desired, applied, healthy, .. } = *verdict;
        let resources = verdict.resources.unwrap_or_default();
        let value = |metric: Metric| match metric {
            Metric::PackageHealthyRevision => (true, healthy.value()),
            Metric::PackageTransitionTimestamp => (true, unix_seconds(shown.since + offset)),
            Metric::PackageApplyState => (apply != ApplyState::Applied, apply.code()),
            Metric::PackageHealth => (health != Health::Current, health.code()),
            Metric::PackageAppliedRevision => (healthy.is_none() && !applied.is_none(), applied.value()),
            Metric::PackageDesiredRevision => (!desired.is_none() && desired != applied, desired.value()),
            Metric::PackageReason => (reason_code != 0, reason_code),
            Metric::PackageResources => (verdict.resources.is_some(), resources.total),
            Metric::PackageResourcesCurrent => (resources.current < resources.total, resources.current),
            Metric::PackageResourcesFailed => (resources.failed > 0, resources.failed),
            _ => (false, 0),
        };
        let all = PACKAGE_METRICS.map(value);
        let values = all.map(|(_, value)| value);
        let published = all.iter().enumerate().map(|(i, (published, _))| u16::from(*published) << i).sum();
        let state = (apply.code(), health.code());
        let mut row = Self {
            labels: labels.into_boxed_str(),
            cluster: key.cluster.clone(),
            state,
            since: shown.since,
            values,
            published,
            digest: Digest::default(),
        };
        row.digest = (0..values.len()).filter_map(|index| row.hash(index)).collect();
        row
    }

    /// The hash of the sample of `PACKAGE_METRICS[index]`, if the row has one.
    fn hash(&self, index: usize) -> Option<u64> {
        let mut line = Vec::with_capacity(224);
        self.write_sample(index, &mut line).then(|| sample::hash_canonical(&line))
    }

    /// Moves its time, as [`Row::new`] with this offset would have it.
    fn use_offset(&mut self, offset: i64) {
        if let Some(old) = self.hash(TIME) {
            self.digest.remove(old);
        }
        self.values[TIME] = unix_seconds(self.since + offset);
        if let Some(new) = self.hash(TIME) {
            self.digest.add(new);
        }
    }

    /// Appends the canonical form of the sample of `PACKAGE_METRICS[index]`, if the row has one.
    fn write_sample(&self, index: usize, out: &mut Vec<u8>) -> bool {
        let (Some(metric), Some(value)) = (PACKAGE_METRICS.get(index), self.value(index)) else {
            return false;
        };
        out.extend_from_slice(metric.name().as_bytes());
        out.extend_from_slice(self.labels.as_bytes());
        out.push(b' ');
        out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        true
    }

    /// The value of `PACKAGE_METRICS[index]`, if it is published.
    fn value(&self, index: usize) -> Option<u64> {
        self.values.get(index).copied().filter(|_| self.published & (1 << index) != 0)
    }

    /// Code of the reason, if it has one.
    pub(crate) fn reason(&self) -> Option<u64> {
        self.value(REASON)
    }

    /// Codes of apply state and health.
    pub(crate) fn state(&self) -> (u64, u64) {
        self.state
    }

    /// The cluster in which the package runs, where that is not the exporter's own.
    pub(crate) fn cluster(&self) -> Option<&Arc<str>> {
        self.cluster.as_ref()
    }

    /// Sum of the hashes of the row's samples.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }
}

/// The indices of the time and the reason in [`PACKAGE_METRICS`].
const TIME: usize = 1;
const REASON: usize = 6;

/// Rounded up, so that no package seems to be in its state for longer than it is.
fn unix_seconds(millis: i64) -> u64 {
    u64::try_from((millis + 999).div_euclid(1000)).unwrap_or(0)
}

/// Rows side by side. What is compressed of a metric is kept until one of its samples changes, so a
/// scrape pays for what has changed since the last one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    rows: Vec<Option<Row>>,
    /// How many rows have a sample of each metric.
    counts: [usize; PACKAGE_METRICS.len()],
    packed: [OnceLock<Arc<Part>>; PACKAGE_METRICS.len()],
}

impl Block {
    /// How many rows a block has: few enough that a changed one costs little, and enough that they
    /// compress as well together as more would.
    pub(crate) const ROWS: usize = 128;

    /// Puts a row in its place, or takes it away; returns what was there.
    pub(crate) fn set(&mut self, at: usize, row: Option<Row>) -> Option<Row> {
        if self.rows.len() <= at {
            self.rows.resize(at + 1, None);
        }
        #[expect(clippy::indexing_slicing, reason = "resized to hold it just now")]
        let place = &mut self.rows[at];
        let old = std::mem::replace(place, row);
        let (old_row, new_row) = (old.as_ref(), place.as_ref());
        let same_labels = old_row.map(|r| &r.labels) == new_row.map(|r| &r.labels);
        for (index, (packed, count)) in self.packed.iter_mut().zip(&mut self.counts).enumerate() {
            let [before, after] = [old_row, new_row].map(|row| row.and_then(|r| r.value(index)));
            *count += usize::from(after.is_some());
            *count -= usize::from(before.is_some());
            if !same_labels || before != after {
                packed.take();
            }
        }
        old
    }

    /// Moves the times of all rows.
    pub(crate) fn use_offset(&mut self, offset: i64) {
        self.rows.iter_mut().flatten().for_each(|row| row.use_offset(offset));
        self.packed[TIME].take();
    }

    /// The rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().flatten()
    }

    /// Whether any row has a sample of `PACKAGE_METRICS[index]`.
    pub(crate) fn has(&self, index: usize) -> bool {
        self.counts.get(index).is_some_and(|count| *count > 0)
    }

    /// Appends the lines of all samples of `PACKAGE_METRICS[index]`.
    pub(crate) fn write(&self, index: usize, out: &mut Vec<u8>) {
        for row in self.rows.iter().flatten() {
            if row.write_sample(index, out) {
                out.push(b'\n');
            }
        }
    }

    /// What [`Block::write`] appends, compressed.
    #[expect(clippy::indexing_slicing, reason = "there is one for each of PACKAGE_METRICS")]
    pub(crate) fn packed(&self, index: usize, packer: &mut Packer) -> &Part {
        self.packed[index].get_or_init(|| {
            let mut text = Vec::new();
            self.write(index, &mut text);
            Arc::new(packer.pack(&text))
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use statusbridge_contract::Fingerprint;

    use super::*;
    use crate::source::Counts;

    const R1: &str = "r1";
    const R2: &str = "r2";
    const NONE: &str = "";

    fn counts(total: u64, current: u64, failed: u64) -> Option<Counts> {
        Some(Counts { total, current, failed })
    }

    /// Names of the samples of a row, without what all have in common.
    fn published(row: &Row) -> Vec<&'static str> {
        let names = (0..PACKAGE_METRICS.len()).filter(|i| row.value(*i).is_some());
        names.map(|i| PACKAGE_METRICS[i].name().trim_start_matches("statusbridge_package_")).collect()
    }

    #[rstest]
    #[case::at_rest(ApplyState::Applied, Health::Current, [R1, R1, R1], None, &[])]
    #[case::at_rest_and_counted(
        ApplyState::Applied, Health::Current, [R1, R1, R1], counts(3, 3, 0), &["resources"])]
    #[case::nothing_to_apply(ApplyState::Applied, Health::Current, [R1, R1, R1], counts(0, 0, 0), &["resources"])]
    #[case::no_revision_is_known(ApplyState::Applied, Health::Current, [NONE, NONE, NONE], None, &[])]
    #[case::healthy_and_told_to_run_another_one(
        ApplyState::Applied, Health::Current, [R2, R1, R1], None, &["desired_revision"])]
    #[case::not_healthy(
        ApplyState::Applied, Health::Failed, [R1, R1, NONE], None, &["health", "applied_revision", "reason"])]
    #[case::never_applied(
        ApplyState::Pending, Health::Unknown, [R1, NONE, NONE], None,
        &["apply_state", "health", "desired_revision", "reason"])]
    #[case::all_there_can_be(
        ApplyState::Failed, Health::Failed, [R2, R1, NONE], counts(3, 1, 1),
        &["apply_state", "health", "applied_revision", "desired_revision", "reason", "resources", "resources_current",
          "resources_failed"])]
    fn what_follows_from_the_other_samples_is_left_out(
        #[case] apply: ApplyState,
        #[case] health: Health,
        #[case] revisions: [&str; 3],
        #[case] resources: Option<Counts>,
        #[case] more: &[&str],
    ) {
        let [desired, applied, healthy] = revisions.map(Fingerprint::of);
        let verdict =
            Verdict { apply, health, desired, applied, healthy, reason: None, since: None, resources };
        let code = u64::from(!verdict.good()) * 7;
        let shown = Shown { verdict, since: 1_699_996_400_001 };
        let row = Row::new("s", &PackageKey::new(Some("n"), "p"), &shown, code, 3_600_000);
        assert_eq!(published(&row), [&["healthy_revision", "transition_timestamp_seconds"], more].concat());
        assert_eq!(row.state(), (apply.code(), health.code()));
        assert_eq!(
            (PACKAGE_METRICS[TIME], row.value(TIME)),
            (Metric::PackageTransitionTimestamp, Some(1_700_000_001))
        );
    }
}
