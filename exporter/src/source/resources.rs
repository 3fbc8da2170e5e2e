//! The objects that a package consists of, where the exporter looks at them itself: which they are,
//! what is known of each, and what that says about the package. Plain data.

use statusbridge_contract::Health;

use super::verdict::Counts;

/// One object of a package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceRef {
    /// API group; empty for the core group.
    pub group: Box<str>,
    /// The kind.
    pub kind: Box<str>,
    /// `None` for a cluster-scoped object.
    pub namespace: Option<Box<str>>,
    /// Its name.
    pub name: Box<str>,
}

/// All objects of a kind that have a label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceLabel {
    /// API group; empty for the core group.
    pub group: Box<str>,
    /// The kind.
    pub kind: Box<str>,
    /// Name of the label.
    pub label: Box<str>,
    /// Its value.
    pub value: Box<str>,
}

/// What a package consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourceSet {
    /// By name.
    pub objects: Vec<ResourceRef>,
    /// By label.
    pub labelled: Vec<ResourceLabel>,
    /// Changes whenever the package was applied anew.
    pub basis: u64,
    /// Whether the package is applied in full.
    pub applied: bool,
}

/// What is known of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResourceState {
    /// It was read, and kstatus says this; the reason is empty when it is Current.
    Found(Health, String),
    /// There is no such object.
    NotFound,
    /// There is no such kind.
    NotServed,
    /// It has not been read since the package was last applied.
    NotRead,
    /// It may not be read; says which permission is missing.
    Forbidden(String),
}

/// What the objects of a package say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceSummary {
    /// The worst of them; Unknown when there are none.
    pub health: Health,
    /// One word: empty when all are Current.
    pub reason: &'static str,
    /// The worst one and why, for people.
    pub worst: Option<String>,
    /// Counts.
    pub counts: Counts,
}

impl Default for ResourceSummary {
    fn default() -> Self {
        Self { health: Health::Unknown, reason: "NoResources", worst: None, counts: Counts::default() }
    }
}

impl ResourceSummary {
    /// All are Current, but of which revision is not known for sure yet.
    pub(crate) fn wait(&mut self) {
        self.health = Health::Unknown;
        self.reason = "ResourcesNotRead";
        self.worst = None;
    }

    /// Takes in one object; `name` names it for people.
    pub(crate) fn add(&mut self, state: &ResourceState, name: impl FnOnce() -> String) {
        let (health, reason) = match state {
            ResourceState::Found(Health::Current, _) => (Health::Current, ""),
            ResourceState::Found(Health::InProgress, _) => (Health::InProgress, "ResourcesInProgress"),
            ResourceState::Found(Health::Terminating, _) => (Health::Terminating, "ResourcesTerminating"),
            ResourceState::Found(Health::NotFound, _)
            | ResourceState::NotFound
            | ResourceState::NotServed => (Health::NotFound, "ResourcesNotFound"),
            ResourceState::Found(Health::Unknown, _) => (Health::Unknown, "ResourcesUnknown"),
            ResourceState::Found(Health::Failed, _) => (Health::Failed, "ResourcesFailed"),
            ResourceState::NotRead => (Health::Unknown, "ResourcesNotRead"),
            ResourceState::Forbidden(_) => (Health::Unknown, "ResourcesForbidden"),
        };
        let first = self.counts.total == 0;
        self.counts.total += 1;
        self.counts.current += u64::from(health == Health::Current);
        self.counts.failed += u64::from(health == Health::Failed);
        // What may not be read stays that way until somebody acts: it is named before what is only
        // not read yet.
        let rank = |health: Health, reason| (health.code(), reason == "ResourcesForbidden");
        if first || rank(health, reason) > rank(self.health, self.reason) {
            self.health = health;
            self.reason = reason;
            self.worst = (health != Health::Current).then(|| {
                let why = match state {
                    ResourceState::Found(_, why) => why.as_str(),
                    ResourceState::NotFound => "not found",
                    ResourceState::NotServed => "there is no such kind",
                    ResourceState::NotRead => "not read yet",
                    ResourceState::Forbidden(permission) => permission,
                };
                format!("{}: {why}", name())
            });
        }
    }
}

impl ResourceRef {
    /// The object that an inventory id means: `<namespace>_<name>_<group>_<kind>`, where `__` in a
    /// name stands for a colon (kubernetes-sigs/cli-utils, `pkg/object/objmetadata.go`; Flux has the
    /// same in `status.inventory`).
    pub(crate) fn from_id(id: &str) -> Option<Self> {
        let (namespace, rest) = id.split_once('_')?;
        let (rest, kind) = rest.rsplit_once('_')?;
        let (name, group) = rest.rsplit_once('_')?;
        let name = name.replace("__", ":");
        (!kind.is_empty() && !name.is_empty()).then(|| Self::new(group, kind, namespace, &name))
    }

    /// An empty namespace is none.
    pub(crate) fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
            namespace: (!namespace.is_empty()).then(|| namespace.into()),
            name: name.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("web_front_apps_Deployment", Some(("apps", "Deployment", Some("web"), "front")))]
    #[case("web_front__Service", Some(("", "Service", Some("web"), "front")))]
    #[case("_web__Namespace", Some(("", "Namespace", None, "web")))]
    #[case(
        "_system__controller__x_rbac.authorization.k8s.io_ClusterRole",
        Some(("rbac.authorization.k8s.io", "ClusterRole", None, "system:controller:x"))
    )]
    #[case("web_front_apps_", None)]
    #[case("web__apps_Deployment", None)]
    #[case("front", None)]
    #[case("", None)]
    fn inventory_ids(#[case] id: &str, #[case] expected: Option<(&str, &str, Option<&str>, &str)>) {
        let found = ResourceRef::from_id(id);
        let found = found.as_ref().map(|l| (&*l.group, &*l.kind, l.namespace.as_deref(), &*l.name));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_worst_object_speaks_for_all() {
        let mut summary = ResourceSummary::default();
        assert_eq!((summary.health, summary.reason), (Health::Unknown, "NoResources"));
        let mut add = |state: ResourceState, name: &str| {
            summary.add(&state, || name.to_owned());
            (summary.health, summary.reason, summary.worst.clone().unwrap_or_default())
        };
        let found = |health, why: &str| ResourceState::Found(health, why.to_owned());
        assert_eq!(add(found(Health::Current, ""), "a"), (Health::Current, "", String::new()));
        let slow = (Health::InProgress, "ResourcesInProgress", "b: LessReplicas".to_owned());
        assert_eq!(add(found(Health::InProgress, "LessReplicas"), "b"), slow);
        assert_eq!(add(found(Health::InProgress, "Other"), "c"), slow, "the first of equals");
        let gone = (Health::NotFound, "ResourcesNotFound", "d: not found".to_owned());
        assert_eq!(add(ResourceState::NotFound, "d"), gone);
        let unread = (Health::Unknown, "ResourcesNotRead", "e: not read yet".to_owned());
        assert_eq!(add(ResourceState::NotRead, "e"), unread);
        let forbidden = (Health::Unknown, "ResourcesForbidden", "f: may not list pods".to_owned());
        assert_eq!(add(ResourceState::Forbidden("may not list pods".into()), "f"), forbidden);
        assert_eq!(add(ResourceState::NotRead, "g"), forbidden);
        let failed = (Health::Failed, "ResourcesFailed", "h: Crash".to_owned());
        assert_eq!(add(found(Health::Failed, "Crash"), "h"), failed);
        assert_eq!(summary.counts, Counts { total: 8, current: 1, failed: 1 });
    }
}
