//! What kube-state-metrics would say of the fleet's packages with Flux's published configuration for it: one series of each
//! package, with its revision in a label. Metric, labels and their order are those that docs/bench.md measured.

use crate::generated::{Generated, Millis, NAMESPACE, revision};
use std::fmt::Write as _;

/// The name of the scrape job.
pub(super) const JOB: &str = "kube-state-metrics";

/// The exposition of the cluster with this number when it is scraped.
pub(super) fn render(fleet: &Generated, cluster: usize, at: Millis) -> String {
    let mut page = String::from(
        "# HELP gotk_resource_info The current state of a Flux resource.\n# TYPE gotk_resource_info gauge\n",
    );
    for (package, number) in fleet.packages.iter().zip(fleet.revision_numbers(cluster, at)) {
        let revision = revision(package, number);
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "gotk_resource_info{{customresource_group=\"kustomize.toolkit.fluxcd.io\",\
             customresource_kind=\"Kustomization\",customresource_version=\"v1\",\
             exported_namespace=\"{NAMESPACE}\",name=\"{package}\",ready=\"True\",revision=\"{revision}\",\
             source_name=\"repository-000\"}} 1"
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_revision_is_another_series_of_the_same_length() {
        let fleet = Generated::new(2, 2, 30_000, 1_000, 0);
        fleet.deliver(1, 0, 1, 5_000);
        let [before, after] = [4_999, 5_000].map(|at| render(&fleet, 1, at));
        assert_eq!(render(&fleet, 0, 5_000), before);
        let differing = before.lines().zip(after.lines()).filter(|(before, after)| before != after);
        assert_eq!(differing.count(), 1);
        assert_eq!(before.len(), after.len());
        // docs/bench.md: 291 bytes, with a namespace of four letters less and a name of two letters more.
        assert!(before.lines().skip(2).all(|line| line.len() + 1 == 293), "{before}");
    }
}
