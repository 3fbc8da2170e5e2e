//! What may happen.

use proptest::prelude::*;
use serde_json::{Value, json};

pub(super) const CLUSTERS: [&str; 3] = ["a", "b", "c"];
pub(super) const FEEDS: [&str; 2] = ["x", "y"];
pub(super) const NAMESPACES: [&str; 2] = ["fleet", "team"];
/// The packages that clusters report.
pub(super) const REPORTED: [&str; 2] = ["p", "q"];
pub(super) const PACKAGES: [(&str, &str); 3] = [("fleet", "p"), ("fleet", "q"), ("team", "p")];
pub(super) const GATES: [(&str, &str); 6] =
    [("fleet", "g0"), ("fleet", "g1"), ("fleet", "g2"), ("fleet", "g3"), ("team", "g0"), ("team", "g1")];
/// The objects of each namespace that hold revisions.
pub(super) const REFERENCES: [&str; 2] = ["stable", "next"];

/// Something that happens.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Time passes, every feed that answers is polled, and tells of every exporter that is scraped.
    Round(u16),
    /// One feed is polled.
    Polled(usize),
    /// Time passes in silence.
    Wait(u16),
    /// An exporter is heard, so many seconds late.
    Beat { cluster: usize, instance: usize, late: u16 },
    /// What it says does not add up.
    Torn { cluster: usize, instance: usize },
    /// A package is other from now on.
    Change { cluster: usize, package: usize, to: Change },
    /// A source is cut off, or is no longer.
    Down { cluster: usize },
    /// Another cluster has the name.
    Uid { cluster: usize, uid: u64 },
    /// An exporter is scraped, or is no longer.
    Scraped { cluster: usize, instance: usize },
    /// An exporter counts from zero.
    Restart { cluster: usize },
    /// Clocks of a cluster are so much behind.
    Clock { cluster: usize, behind: i16 },
    /// A feed answers or fails from now on: the fleet hears of it first, and all else not before the next round
    /// if the poll has not ended yet.
    Feed { feed: usize, answers: bool, ended: bool },
    /// The feeds are other ones, of which nothing was heard yet.
    Replanned,
    /// A gate has another spec.
    Gate(usize, Value),
    /// A FleetPackage has another spec.
    Package(usize, Value),
    /// What a gate says was written by the sweeper.
    Swept(usize),
    /// Somebody has changed what nobody judges by: a label.
    Touched(usize),
    /// A gate is gone.
    GateGone(usize),
    /// A FleetPackage is gone.
    PackageGone(usize),
    /// What was sent, and has not arrived, does now.
    Arrives,
    /// Something is heard of what `revisionFrom` refers to.
    Reference { namespace: usize, news: Read },
    /// Namespaces may see something else.
    Tenants(Value),
    /// There are other ClusterProfiles.
    Profile { cluster: usize, label: bool, unhealthy: bool },
    /// ClusterProfiles are to be read anew, by other rules.
    Reread,
    /// ClusterProfiles cannot be read.
    Unlisted,
    /// There is a freeze from and until so many seconds after now, or none of this name.
    Freeze { namespace: usize, name: usize, span: Option<(i16, i16)> },
    /// There is an approval of a gate's revision, or none of this name.
    Approval { name: usize, of: Option<(usize, bool)> },
    /// Freezes, or else approvals, are listed and are none, are not served, or cannot be read.
    Holds { freezes: bool, news: Holds },
    /// Our own clock is set.
    OwnClock(i16),
    /// Another process leads, and knows nothing yet.
    Leads,
    /// An exporter cannot be scraped from here, for one reason or another, or it can.
    Unscraped { cluster: usize, why: u8 },
}

/// What becomes of what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Landing {
    /// The hub has it.
    Whole,
    /// The hub has it but for who wrote it, of which an older CRD knows nothing.
    Pruned,
    /// Nobody knows yet.
    None,
}

/// What becomes of a package.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Healthy(bool),
    Failed,
    Counts,
    Gone,
    Undated,
}

/// What is heard of the objects that hold revisions.
#[derive(Debug, Clone, Copy)]
pub(super) enum Read {
    /// Those that hold one, by [`REFERENCES`]; there are no others.
    Listed([Option<bool>; 2]),
    /// One holds a revision, or has none to be read.
    Holds(usize, Option<bool>),
    /// One is gone.
    Deleted(usize),
    /// None can be read.
    Failed { forbidden: bool },
}

/// What is heard of all freezes or approvals.
#[derive(Debug, Clone, Copy)]
pub(super) enum Holds {
    Listed,
    NotServed,
    Broken,
}

pub(super) fn steps() -> impl Strategy<Value = Vec<(Step, Landing)>> {
    let step = prop_oneof![
        30 => prop_oneof![4 => Just(15), 2 => 1..90_u16, 1 => 100..200_u16].prop_map(Step::Round),
        45 => of_clusters(),
        18 => of_objects(),
        10 => of_hub(),
        6 => of_holds(),
        6 => of_feeds(),
        1 => (-100..100_i16).prop_map(Step::OwnClock),
    ];
    let landing =
        prop_oneof![20 => Just(Landing::Whole), 1 => Just(Landing::Pruned), 5 => Just(Landing::None)];
    prop::collection::vec((step, landing), 1..60)
}

fn of_clusters() -> BoxedStrategy<Step> {
    let cluster = || 0..CLUSTERS.len();
    let package = || 0..2_usize;
    let instance = || 0..2_usize;
    let change = prop_oneof![
        4 => any::<bool>().prop_map(Change::Healthy),
        2 => Just(Change::Failed),
        1 => Just(Change::Counts),
        1 => Just(Change::Gone),
        1 => Just(Change::Undated),
    ];
    prop_oneof![
        4 => (1..200_u16).prop_map(Step::Wait),
        6 => (cluster(), instance(), 0..30_u16).prop_map(|(cluster, instance, late)| Step::Beat { cluster, instance, late }),
        3 => (cluster(), instance()).prop_map(|(cluster, instance)| Step::Torn { cluster, instance }),
        10 => (cluster(), package(), change).prop_map(|(cluster, package, to)| Step::Change { cluster, package, to }),
        2 => cluster().prop_map(|cluster| Step::Down { cluster }),
        1 => (cluster(), 1..3_u64).prop_map(|(cluster, uid)| Step::Uid { cluster, uid }),
        4 => (cluster(), instance()).prop_map(|(cluster, instance)| Step::Scraped { cluster, instance }),
        2 => cluster().prop_map(|cluster| Step::Restart { cluster }),
        2 => (cluster(), prop_oneof![Just(0), -90..90_i16]).prop_map(|(cluster, behind)| Step::Clock { cluster, behind }),
        2 => (cluster(), 0..3_u8).prop_map(|(cluster, why)| Step::Unscraped { cluster, why }),
    ]
    .boxed()
}

fn of_feeds() -> BoxedStrategy<Step> {
    prop_oneof![
        6 => (0..FEEDS.len(), prop::bool::weighted(0.7), any::<bool>())
            .prop_map(|(feed, answers, ended)| Step::Feed { feed, answers, ended }),
        3 => (0..FEEDS.len()).prop_map(Step::Polled),
        2 => Just(Step::Replanned),
    ]
    .boxed()
}

/// What the hub says besides specs.
fn of_hub() -> BoxedStrategy<Step> {
    let name = || 0..REFERENCES.len();
    let revision = || prop::option::weighted(0.8, any::<bool>());
    let read = prop_oneof![
        3 => (revision(), revision()).prop_map(|(a, b)| Read::Listed([a, b])),
        3 => (name(), revision()).prop_map(|(name, revision)| Read::Holds(name, revision)),
        1 => name().prop_map(Read::Deleted),
        1 => any::<bool>().prop_map(|forbidden| Read::Failed { forbidden }),
    ];
    let profile = (0..CLUSTERS.len(), any::<bool>(), any::<bool>());
    prop_oneof![
        5 => (0..NAMESPACES.len(), read).prop_map(|(namespace, news)| Step::Reference { namespace, news }),
        3 => tenants().prop_map(Step::Tenants),
        2 => profile.prop_map(|(cluster, label, unhealthy)| Step::Profile { cluster, label, unhealthy }),
        1 => Just(Step::Unlisted),
        1 => Just(Step::Reread),
        1 => Just(Step::Leads),
    ]
    .boxed()
}

fn of_holds() -> BoxedStrategy<Step> {
    let span = (-60..120_i16, 1..300_i16).prop_map(|(from, length)| (from, from.saturating_add(length)));
    let freeze = (0..NAMESPACES.len(), 0..2_usize, prop::option::weighted(0.7, span));
    let approval = (0..3_usize, prop::option::weighted(0.8, (0..GATES.len(), any::<bool>())));
    let news = prop_oneof![4 => Just(Holds::Listed), 1 => Just(Holds::NotServed), 1 => Just(Holds::Broken)];
    prop_oneof![
        4 => freeze.prop_map(|(namespace, name, span)| Step::Freeze { namespace, name, span }),
        4 => approval.prop_map(|(name, of)| Step::Approval { name, of }),
        1 => (any::<bool>(), news).prop_map(|(freezes, news)| Step::Holds { freezes, news }),
    ]
    .boxed()
}

fn of_objects() -> BoxedStrategy<Step> {
    let gate = || 0..GATES.len();
    let package = || 0..PACKAGES.len();
    prop_oneof![
        8 => (gate(), gates()).prop_map(|(at, spec)| Step::Gate(at, spec)),
        6 => (package(), packages()).prop_map(|(at, spec)| Step::Package(at, spec)),
        2 => gate().prop_map(Step::Swept),
        1 => gate().prop_map(Step::Touched),
        1 => gate().prop_map(Step::GateGone),
        1 => package().prop_map(Step::PackageGone),
        2 => Just(Step::Arrives),
    ]
    .boxed()
}

fn clusters() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![
        Just(json!({"names": ["a", "b"]})),
        Just(json!({"names": ["b", "z"]})),
        Just(json!({"names": ["c"]})),
        Just(json!({"reporting": {"minClusters": 1}})),
        Just(json!({"selector": {"matchLabels": {"in": "true"}}})),
    ]
}

/// Clusters of a gate, which can be frozen.
fn of_gates() -> impl Strategy<Value = Value> + Clone {
    let frozen = |labels: Value| json!({"selector": labels, "freeze": true});
    prop_oneof![
        3 => clusters(),
        1 => Just(frozen(json!({"matchLabels": {"in": "true"}}))),
        1 => Just(frozen(json!({}))),
        1 => Just(json!({"names": ["a", "b"], "freeze": true})),
    ]
}

fn gates() -> BoxedStrategy<Value> {
    (of_gates(), any::<bool>(), 0..13_u8, prop::bool::weighted(0.7))
        .prop_map(|(clusters, first, more, of_p)| {
            let (revision, package) = (if first { "r1" } else { "r2" }, if of_p { "p" } else { "q" });
            let mut spec =
                json!({"fleetPackageRef": {"name": package}, "revision": revision, "clusters": clusters});
            let more = match more {
                0 | 6 => json!({"minSuccessTime": "90s"}),
                7 => json!({"minSuccessTime": "5m"}),
                1 => json!({"progressDeadline": "2m", "maxFailures": 1}),
                2 => json!({"override": {"state": "Open", "reason": "trust me", "until": "2027-01-15T08:05:00Z"}}),
                3 => json!({"dependsOn": [{"name": "g0"}]}),
                4 => json!({"minHealthy": 1, "maxFailures": 2}),
                8 => json!({"requireStage": "first"}),
                9 | 10 => json!({"approval": "Required"}),
                11 => json!({"windows": [{"schedule": "*/5 * * * *", "duration": "2m"}, {"schedule": "11 8 * * *", "duration": "3m"}]}),
                12 => json!({"paused": true}),
                _ => json!({}),
            };
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        })
        .boxed()
}

fn packages() -> BoxedStrategy<Value> {
    let more = prop_oneof![3 => Just(0), 5 => 1..5_u8, 4 => Just(5), 4 => 6..9_u8];
    let from = prop::option::weighted(0.7, 0..REFERENCES.len());
    (clusters(), more, from)
        .prop_map(|(clusters, more, from)| {
            let mut spec = json!({"clusters": clusters, "staleAfter": "2m"});
            match more {
                0 => spec["revision"] = json!("r1"),
                1 => spec["staleAfter"] = json!("50s"),
                2 => spec["managedBy"] = json!("example.com/somebody"),
                3 => {
                    let id = crate::testing::package("p");
                    spec["revision"] = json!("r2");
                    spec["trace"] = json!([{"stage": "first", "cluster": "a", "source": id.source, "namespace": id.namespace, "name": id.name}]);
                }
                6 => {
                    let until = "2027-01-15T08:05:00Z";
                    spec["excused"] = json!([{"cluster": "b", "reason": "repair", "until": until}]);
                }
                7 => {
                    let selector = json!({"matchLabels": {"in": "false"}});
                    spec["excused"] = json!([{"selector": selector, "reason": "lab"}]);
                    spec["minObserved"] = json!(1);
                }
                8 => {
                    spec["excused"] = json!([{"cluster": "a", "reason": "lost"}]);
                    spec["minObserved"] = json!("30%");
                }
                _ => {}
            }
            if let Some(from) = from.filter(|_| more != 0) {
                spec.as_object_mut().unwrap().remove("revision");
                spec["revisionFrom"] = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "name": REFERENCES[from], "expression": "object.data.revision"});
            }
            spec
        })
        .boxed()
}

/// What the configuration says of tenants; nothing when there is one who may see everything.
fn tenants() -> BoxedStrategy<Value> {
    let clusters = prop_oneof![
        3 => Just(json!(["*"])),
        2 => Just(json!(["a", "b"])),
        2 => Just(json!(["b", "z"])),
        1 => Just(json!(["?"])),
        1 => Just(json!([])),
    ];
    let namespaces =
        prop_oneof![2 => Just(json!(["*"])), 1 => Just(json!(["fleet"])), 1 => Just(json!(["team"]))];
    let sources = prop_oneof![5 => Just(json!(["*"])), 1 => Just(json!(["other"]))];
    let rule = (namespaces, clusters, sources).prop_map(|(namespaces, clusters, sources)| {
        json!({"namespaces": namespaces, "clusters": clusters, "packageNamespaces": ["*"], "sources": sources})
    });
    let rules = prop::collection::vec(rule, 0..3).prop_map(Value::from);
    prop_oneof![1 => Just(Value::Null), 3 => rules].boxed()
}
