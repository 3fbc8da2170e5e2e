//! `source rbac`: the least rights that the exporter needs for its sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::Result;
use statusbridge_exporter::source::{PackageKinds, Source, SourceArgs};

/// Arguments of `source rbac`.
#[derive(Debug, clap::Args)]
pub(crate) struct RbacArgs {
    #[command(flatten)]
    sources: SourceArgs,
    /// Name of the ClusterRole
    #[arg(long, default_value = "statusbridge-exporter")]
    name: String,
    /// A resource that a source finds by category, as xdatabases.example.org. May be given more
    /// than once
    #[arg(long = "resource", value_name = "PLURAL.GROUP", value_delimiter = ',')]
    resources: Vec<String>,
    /// A resource that packages consist of, as deployments.apps, for resource health. May be given more
    /// than once; the usual ones when left out
    #[arg(long = "watched-resource", value_name = "PLURAL.GROUP", value_delimiter = ',')]
    watched_resources: Vec<String>,
    /// Add what `statusbridge-exporter serve --authorize-scrapes` needs
    #[arg(long)]
    authorize_scrapes: bool,
}

/// Prints the ClusterRole.
pub(super) fn run(args: &RbacArgs) -> Result<()> {
    let sources = args.sources.load()?;
    let role = cluster_role(&args.name, &sources, &args.resources, &args.watched_resources);
    let reviews = if args.authorize_scrapes { REVIEWS } else { "" };
    Ok(io::stdout().write_all((role + reviews).as_bytes())?)
}

/// Kinds that packages consist of more often than not, by group: what the exporter may read when the
/// objects of packages are looked at and nothing else is said. Secrets are not among them.
const USUAL_RESOURCES: &[(&str, &[&str])] = &[
    ("", &["configmaps", "namespaces", "persistentvolumeclaims", "pods", "serviceaccounts", "services"]),
    ("admissionregistration.k8s.io", &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]),
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
    ("apiregistration.k8s.io", &["apiservices"]),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("batch", &["cronjobs", "jobs"]),
    ("networking.k8s.io", &["ingresses", "networkpolicies"]),
    ("policy", &["poddisruptionbudgets"]),
    ("rbac.authorization.k8s.io", &["clusterrolebindings", "clusterroles", "rolebindings", "roles"]),
];

/// A ClusterRole as YAML: list and watch of every kind that the sources read, joined ones included,
/// and the one namespace whose UID tells clusters apart. What cannot be told from the sources is
/// named (as `deployments.apps`): `resources` of kinds that are found by category, and `watched` that
/// packages consist of, for which the usual ones are taken where there are none.
fn cluster_role(name: &str, sources: &[Source], resources: &[String], watched: &[String]) -> String {
    let mut rules: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut found = Vec::new();
    for source in sources {
        if let PackageKinds::Categories(names) = &source.kinds {
            found.push(format!("{}: every kind of category {}", source.name, names.join(" or ")));
        }
        for kind in source.kinds.listed().iter().chain(source.related.iter().flat_map(|r| &r.kinds)) {
            rules.entry(&kind.group).or_default().insert(kind.resource());
        }
        if source.watches_resources() {
            found.push(format!("{}: every kind that its packages consist of", source.name));
        }
    }
    for resource in resources.iter().chain(watched) {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        rules.entry(group).or_default().insert(plural.to_owned());
    }
    if watched.is_empty() && sources.iter().any(Source::watches_resources) {
        for (group, plurals) in USUAL_RESOURCES {
            rules.entry(group).or_default().extend(plurals.iter().map(ToString::to_string));
        }
    }
    let mut yaml = String::new();
    if !found.is_empty() {
        yaml.push_str(
            "# Which kinds these sources need depends on the cluster (--resource and --watched-resource list them):\n",
        );
        found.iter().for_each(|line| {
            let _ = writeln!(yaml, "#   {line}");
        });
    }
    let _ = write!(
        yaml,
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {name}\nrules:\n"
    );
    for (group, resources) in rules {
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

/// Two more rules at the end of a [`cluster_role`]: with them the exporter may ask who somebody is and
/// what they may do.
const REVIEWS: &str = "  # Asking whether a scrape is allowed.
  - apiGroups: [\"authentication.k8s.io\"]
    resources: [tokenreviews]
    verbs: [create]
  - apiGroups: [\"authorization.k8s.io\"]
    resources: [subjectaccessreviews]
    verbs: [create]
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_need_this_and_no_more() {
        let presets = Some("configsync,flux-kustomization".to_owned());
        let args = SourceArgs { presets, ..SourceArgs::default() };
        let sources = args.load().expect("presets compile");
        insta::assert_snapshot!(cluster_role("statusbridge-exporter", &sources, &[], &[]), @r#"
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

    #[test]
    fn what_the_cluster_has_can_be_named() {
        let args = SourceArgs { presets: Some("kpt-resourcegroup".to_owned()), ..SourceArgs::default() };
        let sources = args.load().expect("presets compile");
        let role = cluster_role(
            "r",
            &sources,
            &["doors.example.org".to_owned()],
            &["deployments.apps".to_owned(), "services".to_owned()],
        );
        insta::assert_snapshot!(role, @r#"
        # Which kinds these sources need depends on the cluster (--resource and --watched-resource list them):
        #   kpt-resourcegroup: every kind that its packages consist of
        apiVersion: rbac.authorization.k8s.io/v1
        kind: ClusterRole
        metadata:
          name: r
        rules:
          - apiGroups: [""]
            resources: [configmaps, services]
            verbs: [get, list, watch]
          - apiGroups: ["apps"]
            resources: [deployments]
            verbs: [get, list, watch]
          - apiGroups: ["example.org"]
            resources: [doors]
            verbs: [get, list, watch]
          - apiGroups: ["kpt.dev"]
            resources: [resourcegroups]
            verbs: [get, list, watch]
          # Its UID is the identity of the cluster.
          - apiGroups: [""]
            resources: [namespaces]
            resourceNames: [kube-system]
            verbs: [get]
        "#);
        let usual = cluster_role("r", &sources, &["doors.example.org".to_owned()], &[]);
        assert!(usual.contains("[daemonsets, deployments, replicasets, statefulsets]"), "{usual}");
        assert!(!usual.contains("secrets"), "{usual}");
    }

    #[test]
    fn rules_for_reviews_go_behind_the_others() {
        let yaml = cluster_role("r", &[], &[], &[]) + REVIEWS;
        let role: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
        let rules = role["rules"].as_array().unwrap();
        assert_eq!(rules.len(), 3, "{yaml}");
        assert!(rules[1..].iter().all(|r| r["verbs"] == serde_json::json!(["create"])), "{yaml}");
    }
}
