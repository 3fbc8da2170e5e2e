//! The labels of an entry: provider, group and kind, in bounded number. The name of a resource is never among them.

use std::collections::HashSet;

use prometheus_client::encoding::EncodeLabelSet;

use crate::entry::Entry;

/// Stands for names beyond a bound, and for text that cannot be a name.
const OTHER: &str = "Other";
/// How many providers keep their names. A pod has one provider.
const PROVIDERS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct KindLabels {
    /// Name of the provider without its version, so that an upgrade adds no series.
    pub(super) provider: String,
    /// API group of the resource without the API's version.
    pub(super) group: String,
    pub(super) kind: String,
}

/// The kinds and providers that keep their names: the first that came.
#[derive(Debug)]
pub(super) struct KnownKinds {
    limit: usize,
    kinds: HashSet<KindLabels>,
    providers: HashSet<String>,
}

impl KnownKinds {
    /// At most `limit` kinds.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, kinds: HashSet::new(), providers: HashSet::new() }
    }

    pub(super) fn labels(&mut self, entry: &Entry) -> KindLabels {
        let mut provider = provider(&entry.provider).unwrap_or(OTHER).to_owned();
        if !self.providers.contains(&provider) {
            if self.providers.len() < PROVIDERS {
                self.providers.insert(provider.clone());
            } else {
                provider = OTHER.to_owned();
            }
        }
        let other = KindLabels { provider: provider.clone(), group: String::new(), kind: OTHER.to_owned() };
        let group = entry.group();
        if !(is_group(group) && is_kind(&entry.kind)) {
            return other;
        }
        let labels = KindLabels { provider, group: group.to_owned(), kind: entry.kind.clone() };
        if self.kinds.contains(&labels) {
            return labels;
        }
        if self.kinds.len() >= self.limit {
            return other;
        }
        self.kinds.insert(labels.clone());
        labels
    }
}

/// The name in `name:version` or `name@digest`.
fn provider(text: &str) -> Option<&str> {
    let name = text.split('@').next().unwrap_or_default();
    let name = match name.rsplit_once(':') {
        Some((before, version)) if !version.contains('/') => before,
        _ => name,
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
    (!name.is_empty() && name.len() <= 128 && name.chars().all(fits)).then_some(name)
}

fn is_group(text: &str) -> bool {
    text.len() <= 253
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c))
}

fn is_kind(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn entry(provider: &str, api_version: &str, kind: &str) -> Entry {
        Entry {
            provider: provider.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            ..Entry::default()
        }
    }

    #[rstest]
    #[case("provider-aws-s3:v1.2.0", "s3.aws.upbound.io/v1beta1", "Bucket", ("provider-aws-s3", "s3.aws.upbound.io", "Bucket"))]
    #[case("provider-x", "v1", "Pod", ("provider-x", "", "Pod"))]
    #[case("registry:5000/org/provider-x:v1", "v1", "Pod", ("registry:5000/org/provider-x", "", "Pod"))]
    #[case("registry:5000/org/provider-x", "v1", "Pod", ("registry:5000/org/provider-x", "", "Pod"))]
    #[case("provider-x@sha256:abc", "v1", "Pod", ("provider-x", "", "Pod"))]
    #[case("", "v1", "Pod", ("Other", "", "Pod"))]
    #[case("two words", "v1", "Pod", ("Other", "", "Pod"))]
    #[case("p", "v1", "", ("p", "", "Other"))]
    #[case("p", "v1", "not a kind", ("p", "", "Other"))]
    #[case("p", "Not a group/v1", "Pod", ("p", "", "Other"))]
    fn labels(
        #[case] provider: &str,
        #[case] version: &str,
        #[case] kind: &str,
        #[case] expected: (&str, &str, &str),
    ) {
        let labels = KnownKinds::new(10).labels(&entry(provider, version, kind));
        assert_eq!((labels.provider.as_str(), labels.group.as_str(), labels.kind.as_str()), expected);
    }

    #[test]
    fn the_first_kinds_keep_their_names() {
        let mut known = KnownKinds::new(2);
        let kinds: Vec<String> =
            ["A", "B", "C", "A", "C", "B"].map(|kind| known.labels(&entry("p:v1", "g/v1", kind)).kind).into();
        assert_eq!(kinds, ["A", "B", "Other", "A", "Other", "B"]);
        // An upgrade of the provider or of the API adds nothing.
        assert_eq!(known.labels(&entry("p:v2", "g/v2", "A")).kind, "A");
    }

    proptest! {
        #[test]
        fn the_number_of_labels_is_bounded_whatever_is_sent(
            most in 0_usize..5,
            entries in prop::collection::vec(("[a-z]{0,2}(:v[0-9])?", "([a-z]/)?v1", "[A-Z ]{0,2}"), 0..300),
        ) {
            let mut known = KnownKinds::new(most);
            let labels: HashSet<KindLabels> =
                entries.iter().map(|(p, version, kind)| known.labels(&entry(p, version, kind))).collect();
            prop_assert!(labels.len() <= most + PROVIDERS + 1, "{labels:?}");
        }
    }
}
