//! Exporter library.
