//! Exporter.
fn main() {}
