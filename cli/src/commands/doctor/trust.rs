//! Which labels tell exporters from others that are scraped.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_contract::stream::StreamLabels;

/// Labels of targets that whoever runs a pod cannot choose freely, each under the names that pipelines give it.
const TELLING: [&[&str]; 2] = [&["namespace", "k8s_namespace_name", "kubernetes_namespace"], &["job"]];

/// What could be believed.
#[derive(Debug, PartialEq)]
pub(super) struct Proposal {
    /// As PromQL writes it.
    pub(super) matchers: String,
    /// In how many clusters streams bear it.
    pub(super) clusters: usize,
}

/// The namespace and job that are borne in most clusters, if any are: one that speaks often is one all the same. Texts that
/// could do something to a shell or a terminal are proposed to nobody.
pub(super) fn propose<'a>(
    streams: impl Iterator<Item = &'a StreamLabels>,
    cluster_label: &str,
) -> Option<Proposal> {
    let mut groups = BTreeMap::<Vec<(&str, &str)>, BTreeSet<Option<&String>>>::new();
    let is_safe = |value: &&String| {
        !value.is_empty() && !value.chars().any(|c| c.is_control() || matches!(c, '\'' | '"' | '\\'))
    };
    for labels in streams {
        let find = |name: &&'static str| Some((*name, labels.get(*name).filter(is_safe)?.as_str()));
        let group = TELLING.iter().filter_map(|names| names.iter().find_map(find)).collect();
        groups.entry(group).or_default().insert(labels.get(cluster_label));
    }
    let groups = groups.into_iter().filter(|(labels, _)| !labels.is_empty());
    let (labels, clusters) = groups.max_by_key(|(_, clusters)| clusters.len())?;
    let matchers: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    Some(Proposal { matchers: matchers.join(","), clusters: clusters.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use statusbridge_core::testing::stream;

    #[test]
    fn what_is_borne_in_most_clusters_is_proposed() {
        let of = |cluster, namespace, more| {
            stream(&[("cluster", cluster), ("namespace", namespace), ("job", "statusbridge"), ("more", more)])
        };
        let ours = [of("a", "statusbridge-system", ""), of("b", "statusbridge-system", "")];
        let theirs = ["1", "2", "3", "4"].map(|more| of("c", "tenant", more));
        let matchers = r#"namespace="statusbridge-system",job="statusbridge""#.to_owned();
        let proposed = propose(ours.iter().chain(&theirs), "cluster");
        assert_eq!(proposed, Some(Proposal { matchers, clusters: 2 }));
        let collected = stream(&[("cluster", "c"), ("k8s_namespace_name", "x"), ("instance", "y")]);
        let matchers = r#"k8s_namespace_name="x""#.to_owned();
        assert_eq!(propose([&collected].into_iter(), "cluster"), Some(Proposal { matchers, clusters: 1 }));
    }

    #[test]
    fn what_could_harm_who_copies_it_is_not_proposed() {
        for namespace in ["a'; reboot; '", "a\u{1b}[2J", "a\"b"] {
            let labels = stream(&[("cluster", "c"), ("namespace", namespace)]);
            assert_eq!(propose([&labels].into_iter(), "cluster"), None);
        }
    }
}
