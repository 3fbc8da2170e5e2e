//! YAML as Kubernetes tools write it.

use serde::de::DeserializeOwned;
use serde_saphyr::{Error, Options};

/// One document.
pub(crate) fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, options())
}

/// Several documents.
pub(crate) fn from_multiple<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, Error> {
    serde_saphyr::from_multiple_with_options(text, options())
}

fn options() -> Options {
    let mut options = Options::default();
    // A namespace may be called `n` or `no`; tools that mean a bool write `true` or `false`.
    options.strict_booleans = true;
    // The files are the user's own, and a list of all packages of a cluster is large.
    options.budget = None;
    options
}
