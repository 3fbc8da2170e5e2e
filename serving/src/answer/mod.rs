//! What a request is answered: pages, refusals, and the forms of metrics.

pub mod format;
pub mod page;
pub mod refusal;
pub mod response;
