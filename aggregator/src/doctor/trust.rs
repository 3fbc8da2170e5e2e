//! Which labels tell exporters from others that are scraped.

use std::collections::BTreeMap;

use statusbridge_contract::{sample::escape_label_value, stream::StreamLabels};

/// Labels of targets that whoever runs a pod cannot choose freely, each under the names that pipelines give it.
const TELLING: [&[&str]; 2] = [&["namespace", "k8s_namespace_name", "kubernetes_namespace"], &["job"]];

/// What could be believed.
#[derive(Debug, PartialEq)]
pub(super) struct Proposal {
    /// As PromQL writes it.
    pub(super) matchers: String,
    /// How many streams bear it.
    pub(super) covers: usize,
}

/// The namespace and job that most of the streams bear, if these bear any.
pub(super) fn propose<'a>(streams: impl Iterator<Item = &'a StreamLabels>) -> Option<Proposal> {
    let mut groups = BTreeMap::<Vec<(&str, &str)>, usize>::new();
    for labels in streams {
        let find =
            |name: &&'static str| Some((*name, labels.get(*name).filter(|it| !it.is_empty())?.as_str()));
        *groups
            .entry(TELLING.iter().filter_map(|names| names.iter().find_map(find)).collect())
            .or_default() += 1;
    }
    let (labels, covers) =
        groups.into_iter().filter(|(it, _)| !it.is_empty()).max_by_key(|(_, count)| *count)?;
    let mut matchers = String::new();
    for (name, value) in labels {
        matchers.push_str(if matchers.is_empty() { "" } else { "," });
        matchers.push_str(name);
        matchers.push_str("=\"");
        escape_label_value(&mut matchers, value);
        matchers.push('"');
    }
    Some(Proposal { matchers, covers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stream;

    #[test]
    fn what_most_streams_bear_is_proposed() {
        let ours =
            |cluster| stream(&[("cluster", cluster), ("namespace", "statusbridge-system"), ("job", "a\"b")]);
        let theirs = stream(&[("cluster", "c"), ("namespace", "tenant"), ("job", "a\"b")]);
        let all = [ours("a"), theirs, ours("b")];
        let matchers = r#"namespace="statusbridge-system",job="a\"b""#.to_owned();
        assert_eq!(propose(all.iter()), Some(Proposal { matchers, covers: 2 }));
        let collected = stream(&[("cluster", "c"), ("k8s_namespace_name", "x"), ("instance", "y")]);
        let matchers = r#"k8s_namespace_name="x""#.to_owned();
        assert_eq!(propose([&collected].into_iter()), Some(Proposal { matchers, covers: 1 }));
        assert_eq!(propose([&stream(&[("cluster", "c")])].into_iter()), None);
    }
}
