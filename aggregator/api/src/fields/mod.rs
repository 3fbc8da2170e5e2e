//! Fields of the kinds: what is chosen, asked for and told within them.

pub mod check;
pub mod common;
pub mod excuse;
pub mod label_selector;
pub mod package_ref;
pub mod revision_from;
pub mod trace;
pub mod window;
