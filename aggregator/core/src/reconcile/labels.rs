//! The labels and annotations of the hub's objects that decisions rest on: no others are kept.

/// Label of the FleetPackages that discovery made.
pub const DISCOVERED_LABEL: &str = "statusbridge.dev/discovered";
/// Annotation: since when no cluster has reported the package.
pub const NOT_REPORTED_SINCE: &str = "statusbridge.dev/not-reported-since";
