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

/// What a field of an object holds as text: not the user's own, so within the parser's budget.
pub(crate) fn from_field(text: &str) -> Result<serde_json::Value, Error> {
    let mut options = options();
    options.budget = Options::default().budget;
    serde_saphyr::from_str_with_options(text, options)
}

fn options() -> Options {
    let mut options = Options::default();
    // A namespace may be called `n` or `no`; tools that mean a bool write `true` or `false`.
    options.strict_booleans = true;
    // The files are the user's own, and a list of all packages of a cluster is large.
    options.budget = None;
    options
}

#[cfg(test)]
mod tests {
    use super::from_field;

    #[test]
    fn a_field_cannot_grow_without_bounds() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(", "));
        }
        assert!(from_field(&bomb).is_err());
        assert!(from_field("a: &a [x]\nb: *a").is_ok());
    }
}
