//! The least rights that the exporter needs for its sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use crate::source::Source;

/// A ClusterRole as YAML: list and watch of every kind that the sources read, joined ones included,
/// and the one namespace whose UID tells clusters apart.
pub fn cluster_role(name: &str, sources: &[Source]) -> String {
    let mut resources: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        for kind in source.kind.one().into_iter().chain(source.related.iter().flat_map(|r| &r.kinds)) {
            resources.entry(&kind.group).or_default().insert(kind.resource());
        }
    }
    let mut yaml = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {name}\nrules:\n"
    );
    for (group, resources) in resources {
        let list: Vec<&str> = resources.iter().map(String::as_str).collect();
        let _ = write!(
            yaml,
            "  - apiGroups: [\"{group}\"]\n    resources: [{}]\n    verbs: [get, list, watch]\n",
            list.join(", ")
        );
    }
    yaml.push_str("  # Its UID is the identity of the cluster.\n");
    yaml.push_str("  - apiGroups: [\"\"]\n    resources: [namespaces]\n    resourceNames: [kube-system]\n    verbs: [get]\n");
    yaml
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::SourceArgs;

    #[test]
    fn the_presets_need_this_and_no_more() {
        let sources = SourceArgs::default().load().expect("presets compile");
        insta::assert_snapshot!(cluster_role("statusbridge-exporter", &sources), @r#"
        apiVersion: rbac.authorization.k8s.io/v1
        kind: ClusterRole
        metadata:
          name: statusbridge-exporter
        rules:
          - apiGroups: ["configsync.gke.io"]
            resources: [reposyncs, rootsyncs]
            verbs: [get, list, watch]
          - apiGroups: ["kpt.dev"]
            resources: [resourcegroups]
            verbs: [get, list, watch]
          - apiGroups: ["kustomize.toolkit.fluxcd.io"]
            resources: [kustomizations]
            verbs: [get, list, watch]
          - apiGroups: ["source.toolkit.fluxcd.io"]
            resources: [buckets, externalartifacts, gitrepositories, ocirepositories]
            verbs: [get, list, watch]
          # Its UID is the identity of the cluster.
          - apiGroups: [""]
            resources: [namespaces]
            resourceNames: [kube-system]
            verbs: [get]
        "#);
    }
}
