//! What both halves of Status Bridge need to serve HTTPS.

pub mod tls;
