//! Queries for what an exporter leaves out because it follows from other samples: docs/contract.md has the table.
//!
//! `each` gives a query for a metric of packages by the end of its name, aggregated to one sample for each package
//! that is looked at, with the same labels for every metric.

/// A state, 0 where its sample is left out: `apply_state` or `health`.
pub(crate) fn state(each: impl Fn(&str) -> String, metric: &str) -> String {
    format!("({} or 0 * {})", each(metric), each("healthy_revision"))
}

/// The revision that was last applied in full; 0 where none is known.
pub(crate) fn applied(each: impl Fn(&str) -> String) -> String {
    format!("({} or {})", each("applied_revision"), each("healthy_revision"))
}

/// The revision that the cluster was told to run, as far as that is known; 0 where it is not.
pub(crate) fn wanted(each: impl Fn(&str) -> String) -> String {
    format!("({} or {})", each("desired_revision"), applied(&each))
}

/// The packages that are healthy at the revision that the cluster was told to run.
pub(crate) fn there(each: impl Fn(&str) -> String) -> String {
    format!("({} > 0 unless {})", each("healthy_revision"), each("desired_revision"))
}

/// The packages that have another revision before them, or a revision that is applied and not healthy.
pub(crate) fn waiting(each: impl Fn(&str) -> String) -> String {
    format!("({} or {})", each("desired_revision"), each("applied_revision"))
}

/// How many resources of packages with an inventory are Current.
pub(crate) fn resources_current(each: impl Fn(&str) -> String) -> String {
    format!("({} or {})", each("resources_current"), each("resources"))
}

/// How many of them have failed.
pub(crate) fn resources_failed(each: impl Fn(&str) -> String) -> String {
    format!("({} or 0 * {})", each("resources_failed"), each("resources"))
}
