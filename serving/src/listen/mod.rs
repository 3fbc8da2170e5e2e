//! Connections that come in: how many, how long, and how they are made secret.

mod descriptors;
pub mod http;
pub(crate) mod peer;
pub mod places;
pub mod tls;
