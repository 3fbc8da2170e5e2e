//! Which namespaces of the hub may see what: a pure function of the configuration.
//!
//! ```text
//!   rules of the namespace that name the package's source and namespace
//!        └─> Grant: globs of clusters ─> targets are chosen among these only; what names others is refused
//! ```
//!
//! Everything that a status says of clusters comes from its targets, so what is not granted has no
//! way into a status. A refusal depends on the configuration and the spec alone: it is the same
//! whether or not what it speaks of exists.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer};
use statusbridge_api::{ClusterSet, PackageRef};
use statusbridge_contract::Fingerprint;

use crate::decide::list;
use crate::glob::{Glob, any};

/// What each namespace may see. By default there is one tenant, who may see everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tenancy {
    /// `None` when no tenants are configured.
    rules: Option<Vec<Rule>>,
}

/// What some namespaces may see. All that one rule says belongs together; several rules add up.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// Namespaces of the hub that the rule is for.
    pub namespaces: Vec<Glob>,
    /// Clusters that they may see.
    pub clusters: Vec<Glob>,
    /// Namespaces in the workload clusters whose packages they may see; a cluster-scoped package
    /// has the empty name, which `*` stands for too.
    pub package_namespaces: Vec<Glob>,
    /// Sources whose packages they may see.
    pub sources: Vec<Glob>,
    /// What their gates may ask the metrics backend.
    #[serde(default)]
    pub checks: CheckRule,
}

/// What the gates of some namespaces may ask the metrics backend.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CheckRule {
    /// Templates that they may use.
    pub templates: Vec<Glob>,
    /// Whether they may write queries of their own, which can read every metric of the backend.
    pub queries: bool,
}

impl<'de> Deserialize<'de> for Tenancy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(|rules| Self { rules: Some(rules) })
    }
}

impl Tenancy {
    /// Whether tenants are configured.
    pub fn is_configured(&self) -> bool {
        self.rules.is_some()
    }

    /// What `namespace` may see of a package.
    pub fn grant(&self, namespace: &str, package: &PackageRef) -> Grant<'_> {
        let Some(rules) = &self.rules else { return Grant::Everything };
        let package_namespace = package.namespace.as_deref().unwrap_or_default();
        let granted = rules.iter().filter(|rule| {
            any(&rule.namespaces, namespace)
                && any(&rule.sources, &package.source)
                && any(&rule.package_namespaces, package_namespace)
        });
        Grant::Clusters(granted.flat_map(|rule| &rule.clusters).collect())
    }

    /// What may be seen of a package of which nothing can be read.
    pub(crate) fn grant_for_unreadable(&self) -> Grant<'_> {
        if self.rules.is_none() { Grant::Everything } else { Grant::Clusters(BTreeSet::new()) }
    }

    /// Whether a gate in `namespace` may use this template, or with `None` a query of its own.
    pub(crate) fn may_query(&self, namespace: &str, template: Option<&str>) -> bool {
        let Some(rules) = &self.rules else { return true };
        rules.iter().filter(|rule| any(&rule.namespaces, namespace)).any(|rule| match template {
            Some(template) => any(&rule.checks.templates, template),
            None => rule.checks.queries,
        })
    }

    /// Why a gate in `namespace` may not ask this, if it may not; to be said before it is looked
    /// whether there is such a template.
    pub(crate) fn refuses_query(&self, namespace: &str, template: Option<&str>) -> Option<Refusal> {
        let refusal = || template.map_or(Refusal::Query, |name| Refusal::Template(name.to_owned()));
        (!self.may_query(namespace, template)).then(refusal)
    }
}

/// In which clusters a namespace may see a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant<'a> {
    /// In all there are: no tenants are configured.
    Everything,
    /// In those that one of these stands for; without any the package is not to be seen at all.
    Clusters(BTreeSet<&'a Glob>),
}

/// Why a namespace does not get what a spec asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It may see the package nowhere.
    #[error("this namespace may not see {}", alike(.0))]
    Package(PackageRef),
    /// It may not see these clusters.
    #[error("this namespace may not see {}", list(.0))]
    Clusters(Vec<String>),
    /// It may not use this template in a check.
    #[error("this namespace may not use the template {0:?}")]
    Template(String),
    /// It may not write queries of its own in checks.
    #[error("this namespace may not use queries of its own, only templates")]
    Query,
}

/// All packages that are granted or refused together with this one.
fn alike(PackageRef { source, namespace, .. }: &PackageRef) -> String {
    match namespace {
        Some(namespace) => format!("packages of source {source:?} in namespace {namespace:?}"),
        None => format!("cluster-scoped packages of source {source:?}"),
    }
}

impl Grant<'_> {
    /// Whether this cluster may be seen.
    pub fn allows(&self, cluster: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Clusters(globs) => globs.iter().any(|glob| glob.matches(cluster)),
        }
    }

    /// Whether every cluster may be seen, those included whose name is not known.
    pub(crate) fn allows_all(&self) -> bool {
        match self {
            Self::Everything => true,
            Self::Clusters(globs) => globs.iter().any(|glob| glob.is_everything()),
        }
    }

    /// Whether tenants are configured, so that texts which may speak of what belongs to others must
    /// not be shown.
    pub(crate) fn is_one_of_several(&self) -> bool {
        *self != Self::Everything
    }

    /// Why this choice of clusters is not granted, if it is not.
    pub fn refuses(&self, package: &PackageRef, clusters: &ClusterSet) -> Option<Refusal> {
        let Self::Clusters(globs) = self else { return None };
        if globs.is_empty() {
            return Some(Refusal::Package(package.clone()));
        }
        let named = clusters.names.iter().flatten();
        let refused: Vec<String> = named.filter(|name| !self.allows(name)).cloned().collect();
        (!refused.is_empty()).then_some(Refusal::Clusters(refused))
    }

    /// Stands for all that is granted, for a status to remember; `None` when that is everything.
    pub(crate) fn mark(&self) -> Option<String> {
        let Self::Clusters(globs) = self else { return None };
        let text: Vec<String> = globs.iter().map(|glob| format!("{:?}", glob.as_str())).collect();
        Some(Fingerprint::of(&format!("clusters {}", text.join(" "))).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn tenancy() -> Tenancy {
        serde_saphyr::from_str(
            r#"
            - namespaces: [team-a]
              clusters: [a-*, shared]
              packageNamespaces: [apps-a]
              sources: [flux-*]
              checks: {templates: [error-rate, "slo-*"]}
            - namespaces: [team-a, team-b]
              clusters: [shared]
              packageNamespaces: [common, ""]
              sources: [flux-kustomization]
            - namespaces: ["platform*"]
              clusters: ["*"]
              packageNamespaces: ["*"]
              sources: ["*"]
              checks: {queries: true}
            "#,
        )
        .unwrap()
    }

    fn package(source: &str, namespace: Option<&str>) -> PackageRef {
        PackageRef { source: source.into(), namespace: namespace.map(Into::into), name: "p".into() }
    }

    #[rstest]
    #[case::own_rule("team-a", "flux-helm", Some("apps-a"), "a-1", true)]
    #[case::another_cluster("team-a", "flux-helm", Some("apps-a"), "b-1", false)]
    #[case::another_source("team-a", "argocd", Some("apps-a"), "a-1", false)]
    #[case::another_package_namespace("team-a", "flux-helm", Some("apps-b"), "a-1", false)]
    #[case::rules_add_up("team-a", "flux-kustomization", Some("common"), "shared", true)]
    #[case::but_are_not_mixed("team-a", "flux-kustomization", Some("common"), "a-1", false)]
    #[case::cluster_scoped("team-b", "flux-kustomization", None, "shared", true)]
    #[case::not_cluster_scoped("team-a", "flux-helm", None, "a-1", false)]
    #[case::everything("platform-1", "argocd", None, "b-1", true)]
    #[case::no_rule("team-c", "flux-kustomization", Some("common"), "shared", false)]
    #[case::whole_names("team-aa", "flux-helm", Some("apps-a"), "a-1", false)]
    fn what_is_granted(
        #[case] namespace: &str,
        #[case] source: &str,
        #[case] package_namespace: Option<&str>,
        #[case] cluster: &str,
        #[case] expected: bool,
    ) {
        let package = package(source, package_namespace);
        assert_eq!(tenancy().grant(namespace, &package).allows(cluster), expected);
        assert!(Tenancy::default().grant(namespace, &package).allows(cluster), "one tenant sees everything");
        let nobody: Tenancy = serde_saphyr::from_str("[]").unwrap();
        assert!(!nobody.grant(namespace, &package).allows(cluster), "no rule, nothing to see");
    }

    #[rstest]
    #[case("team-a", Some("error-rate"), true)]
    #[case("team-a", Some("slo-latency"), true)]
    #[case("team-a", Some("cost"), false)]
    #[case("team-a", None, false)]
    #[case("team-b", Some("error-rate"), false)]
    #[case("platform-x", None, true)]
    #[case("platform-x", Some("error-rate"), false)]
    #[case("team-c", None, false)]
    fn what_may_be_asked(#[case] namespace: &str, #[case] template: Option<&str>, #[case] expected: bool) {
        assert_eq!(tenancy().may_query(namespace, template), expected);
        assert!(Tenancy::default().may_query(namespace, template));
        let refusal = tenancy().refuses_query(namespace, template);
        assert_eq!(refusal.is_none(), expected);
        assert!(refusal.is_none_or(|it| it.to_string().contains(template.unwrap_or("queries of its own"))));
    }

    #[test]
    fn a_refusal_says_what_was_asked_and_nothing_else() {
        let tenancy = tenancy();
        let names = |names: &[&str]| ClusterSet::named(names.iter().map(|name| (*name).to_owned()).collect());
        let refusal = |namespace: &str, package: PackageRef, clusters: &ClusterSet| {
            tenancy.grant(namespace, &package).refuses(&package, clusters).map(|it| it.to_string())
        };
        let own = || package("flux-helm", Some("apps-a"));
        assert_eq!(refusal("team-a", own(), &names(&["a-1", "shared"])), None);
        assert_eq!(refusal("team-a", own(), &ClusterSet::any_reporting()), None);
        assert_eq!(
            refusal("team-a", own(), &names(&["a-1", "x", "b", "c", "d"])).unwrap(),
            "this namespace may not see x, b, c and 1 more"
        );
        assert_eq!(
            refusal("team-b", own(), &ClusterSet::any_reporting()).unwrap(),
            "this namespace may not see packages of source \"flux-helm\" in namespace \"apps-a\""
        );
        assert_eq!(
            refusal("team-b", package("argocd", None), &names(&["shared"])).unwrap(),
            "this namespace may not see cluster-scoped packages of source \"argocd\""
        );
    }

    #[test]
    fn the_mark_changes_with_what_is_granted_and_only_then() {
        let tenancy = tenancy();
        let mark = |namespace: &str, package: &PackageRef| tenancy.grant(namespace, package).mark();
        let common = package("flux-kustomization", Some("common"));
        assert_eq!(mark("team-a", &common), mark("team-b", &common));
        assert_ne!(mark("team-a", &common), mark("platform", &common));
        assert_ne!(mark("team-a", &common), mark("team-c", &common));
        assert_eq!(Tenancy::default().grant("team-a", &common).mark(), None);
    }
}
