//! The rig: typed handles for real servers.
