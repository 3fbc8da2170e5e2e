//! What a namespace may not see has no way into a status, whatever the policy was before.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use statusbridge_contract::Fingerprint;

use super::*;
use crate::checks::answer::Value as Valued;
use crate::checks::{Answer, Answers, Fault};
use crate::fleet::{Fleet, FleetSettings};
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::profiles::{News, Profiles, Settings};
use crate::reconcile::store::Event;
use crate::reconcile::tenancy::Tenancy;
use crate::testing::{self, Exposition, digests, failed, feeds, healthy, tell};
use crate::time::Seconds;

/// What a cluster is like; each runs a revision of its own name.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Like {
    Absent,
    Silent,
    Healthy,
    Failed,
    AtWanted,
    Torn,
}

const CLUSTERS: [&str; 6] = ["alpha-1", "alpha-2", "beta-1", "beta-2", "gamma", "delta"];
const GLOBS: [&str; 9] =
    ["*", "alpha-*", "beta-*", "alpha-1", "beta-2", "gamma", "?????-2", "delta", "nothing"];
const T: Seconds = 10_000.0;

fn own_revision(cluster: &str) -> String {
    format!("revision-of-{cluster}")
}

fn fleet(likes: &BTreeMap<&str, Like>) -> Fleet {
    let mut fleet = Fleet::new(FleetSettings::default());
    for (cluster, like) in likes {
        let package = match like {
            Like::Absent => continue,
            Like::AtWanted | Like::Torn => healthy("wanted", 10),
            Like::Failed => failed(&own_revision(cluster), 10),
            Like::Silent | Like::Healthy => healthy(&own_revision(cluster), 10),
        };
        let exposition = Exposition::new(Fingerprint::of(cluster).value()).with("p", package);
        let at = if matches!(like, Like::Silent | Like::Torn) { T - 1000.0 } else { T - 10.0 };
        let labels = [("cluster", *cluster)];
        tell(&mut fleet, &labels, &exposition, at);
        if *like == Like::Torn {
            let mut torn = digests(&labels, &exposition, &[T - 5.0]);
            torn.samples[0].exposition.digest ^= 1;
            fleet.hear(&torn, T);
            let fault = format!("packages of {CLUSTERS:?} are missing");
            fleet.reject((&torn.cluster, &torn.stream), fault);
        }
    }
    fleet
}

fn profiles(likes: &BTreeMap<&str, Like>) -> Profiles {
    let mut profiles = Profiles::new(Settings::default());
    let made = likes.iter().map(|(cluster, like)| -> kube_core::DynamicObject {
        let healthy = if *like == Like::Silent { "False" } else { "True" };
        serde_json::from_value(json!({
            "metadata": {"namespace": "fleet", "name": cluster, "labels": {"half": cluster.split('-').next_back()}},
            "status": {"conditions": [
                {"type": "ControlPlaneHealthy", "status": healthy, "reason": format!("Lost-{cluster}")},
            ]},
        }))
        .unwrap()
    });
    let events = [Event::Init].into_iter().chain(made.map(Event::InitApply)).chain([Event::InitDone]);
    profiles.apply(events.map(News::from), T);
    profiles
}

fn likes() -> impl Strategy<Value = BTreeMap<&'static str, Like>> {
    let like = prop_oneof![
        1 => Just(Like::Absent),
        1 => Just(Like::Silent),
        1 => Just(Like::Torn),
        2 => Just(Like::Healthy),
        2 => Just(Like::Failed),
        3 => Just(Like::AtWanted),
    ];
    prop::collection::vec(like, CLUSTERS.len()).prop_map(|likes| CLUSTERS.into_iter().zip(likes).collect())
}

fn tenancy() -> impl Strategy<Value = Tenancy> {
    let rule = (
        prop::sample::subsequence(GLOBS.to_vec(), 0..3),
        prop::sample::select(vec!["*", "ns", "other"]),
        prop::sample::select(vec!["tenant", "ten*", "*", "another"]),
        any::<bool>(),
    );
    let rule = rule.prop_map(|(clusters, package_namespace, namespace, queries)| {
        json!({
            "namespaces": [namespace], "clusters": clusters, "checks": {"queries": queries},
            "packageNamespaces": [package_namespace], "sources": ["flux"],
        })
    });
    prop::collection::vec(rule, 0..4).prop_map(|rules| serde_json::from_value(json!(rules)).unwrap())
}

fn clusters() -> impl Strategy<Value = Value> {
    prop_oneof![
        prop::sample::subsequence(CLUSTERS.to_vec(), 1..3).prop_map(|names| json!({"names": names})),
        Just(json!({"selector": {}})),
        Just(json!({"selector": {"matchLabels": {"half": "1"}}})),
        (1..4).prop_map(|least| json!({"reporting": {"minClusters": least}})),
    ]
}

fn object(kind: &str, name: &str, spec: Value, status: &Value) -> LazyObject {
    serde_json::from_value(json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
        "metadata": {"namespace": "tenant", "name": name, "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": spec, "status": status,
    }))
    .unwrap()
}

/// The statuses that stand after judging, when `before` stood there.
fn judge(
    likes: &BTreeMap<&str, Like>,
    tenancy: &Tenancy,
    specs: &[Value; 2],
    before: &[Value; 2],
    backend: Backend<'_>,
) -> [Value; 2] {
    let mut state = testing::state(fleet(likes));
    state.packages.insert(object("FleetPackage", "p", specs[0].clone(), &before[0]));
    let gate = GateObject::read(object("RolloutGate", "g", specs[1].clone(), &before[1])).unwrap();
    // What the backend says to checks is about all clusters.
    let each = CLUSTERS.map(|cluster| (cluster.to_owned(), Valued::Number(0.1)));
    let said = match backend {
        Backend::Answers => Ok(Answer::Clusters(each.into())),
        Backend::Fails(error) | Backend::Unknown(error) => Err(Fault::Backend(error.to_owned())),
    };
    let answers = Answers { said: [("q".to_owned(), (T - 2.0, said))].into() };
    state.checks.begin([("tenant".to_owned(), ["q".to_owned()].into())].into(), 1);
    state.checks.take("tenant", &["q".to_owned()], vec![answers]);
    let polls: &[_] = match backend {
        Backend::Answers => &[Ok(())],
        Backend::Fails(error) => &[Ok(()), Err(error)],
        Backend::Unknown(error) => &[Err(error)],
    };
    state.feeds = feeds(&[("", polls)]);
    state.profiles = profiles(likes);
    state.rules.tenancy = tenancy.clone();
    let world = World::new(&state, Moment { t: T, now: T + 5.0 });
    let package = world.package(state.packages.iter().next().unwrap());
    let gate = world.gate(&gate);
    [
        package.map_or_else(|| before[0].clone(), |status| serde_json::to_value(status).unwrap()),
        gate.map_or_else(|| before[1].clone(), |status| serde_json::to_value(status).unwrap()),
    ]
}

fn backend() -> impl Strategy<Value = Backend<'static>> {
    const ERROR: &str = "bad query {cluster=~\"alpha-1|alpha-2|beta-1|beta-2|gamma|delta\"}";
    prop_oneof![4 => Just(Backend::Answers), 1 => Just(Backend::Fails(ERROR)), 1 => Just(Backend::Unknown(ERROR))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn what_may_not_be_seen_changes_nothing_and_is_nowhere(
        likes in likes(),
        policies in prop::collection::vec((tenancy(), backend()), 1..4),
        chosen in [clusters(), clusters()],
        wanted in any::<bool>(),
        checked in any::<bool>(),
        frozen in any::<bool>(),
    ) {
        let mut package = json!({
            "package": {"source": "flux", "namespace": "ns", "name": "p"}, "clusters": chosen[0], "staleAfter": "3m",
        });
        if wanted {
            package["revision"] = json!("wanted");
        }
        let mut gate = json!({
            "fleetPackageRef": {"name": "p"}, "revision": "wanted", "clusters": chosen[1],
            "minHealthy": 1, "maxFailures": "100%",
        });
        if frozen && !chosen[1]["selector"].is_null() {
            gate["clusters"]["freeze"] = json!(true);
        }
        if checked {
            gate["checks"] = json!([{"name": "errors", "query": "q", "max": 0.5, "window": "0s"}]);
        }
        let specs = [package, gate];
        // At first there was one tenant.
        let everything = Tenancy::default();
        let mut before = judge(&likes, &everything, &specs, &[Value::Null, Value::Null], Backend::Answers);
        for (tenancy, backend) in &policies {
            let package = statusbridge_api::package_ref::PackageRef {
                source: "flux".into(), namespace: Some("ns".into()), name: "p".into(),
            };
            let grant = tenancy.grant("tenant", &package);
            let after = judge(&likes, tenancy, &specs, &before, *backend);
            // The same as if there were nothing else.
            let visible = likes.iter().filter(|(name, _)| grant.allows(name)).map(|(n, l)| (*n, *l)).collect();
            let alone = judge(&visible, tenancy, &specs, &before, *backend);
            prop_assert_eq!(&after, &alone);
            // And what stood there before has gone.
            for (status, asked) in after.iter().zip(&chosen) {
                let text = status.to_string();
                for hidden in CLUSTERS.iter().filter(|name| !grant.allows(name)) {
                    let revision = Fingerprint::of(&own_revision(hidden)).to_string();
                    prop_assert!(!text.contains(&revision), "{} in {}", revision, text);
                    let asked_for = asked.to_string().contains(*hidden);
                    prop_assert!(asked_for || !text.contains(*hidden), "{} in {}", hidden, text);
                }
            }
            before = after;
        }
    }
}

#[test]
fn members_and_newcomers_are_those_that_may_be_seen() {
    let all =
        |names: &[&'static str]| names.iter().map(|name| (*name, Like::AtWanted)).collect::<BTreeMap<_, _>>();
    let specs = [
        json!({"package": {"source": "flux", "namespace": "ns", "name": "p"}, "revision": "wanted"}),
        json!({"fleetPackageRef": {"name": "p"}, "revision": "wanted", "clusters": {"selector": {}, "freeze": true}}),
    ];
    let seeing = |glob: &str| -> Tenancy {
        let rule = json!([{"namespaces": ["tenant"], "clusters": [glob], "packageNamespaces": ["ns"], "sources": ["*"]}]);
        serde_json::from_value(rule).unwrap()
    };
    let (few, more) = (all(&["alpha-1", "beta-1"]), all(&["alpha-1", "alpha-2", "beta-1", "beta-2"]));
    let mut before = [Value::Null, Value::Null];
    for (likes, tenancy, members, newcomers) in [
        (&few, seeing("alpha-*"), json!(["alpha-1"]), Value::Null),
        (&more, seeing("alpha-*"), json!(["alpha-1"]), json!(["alpha-2"])),
        // Who may see something else begins anew.
        (&more, seeing("beta-*"), json!(["beta-1", "beta-2"]), Value::Null),
    ] {
        before = judge(likes, &tenancy, &specs, &before, Backend::Answers);
        assert_eq!(before[1]["members"]["clusters"], members);
        assert_eq!(before[1]["newcomers"]["clusters"], newcomers);
    }
}

#[test]
fn a_status_that_is_no_longer_allowed_is_wiped() {
    let likes: BTreeMap<&str, Like> = [("alpha-1", Like::AtWanted), ("beta-1", Like::AtWanted)].into();
    let specs = [
        json!({"package": {"source": "flux", "namespace": "ns", "name": "p"}, "revision": "wanted"}),
        json!({"fleetPackageRef": {"name": "p"}, "revision": "wanted", "clusters": {"names": ["alpha-1"]}}),
    ];
    let policy = |text: &str| serde_saphyr::from_str::<Tenancy>(text).unwrap();
    let seeing =
        policy("[{namespaces: [tenant], clusters: [alpha-*], packageNamespaces: [ns], sources: ['*']}]");
    let first = judge(&likes, &seeing, &specs, &[Value::Null, Value::Null], Backend::Answers);
    assert_eq!(
        (&first[0]["clusters"]["total"], &first[0]["lastHealthyRevision"]),
        (&json!(1), &json!("wanted"))
    );
    assert_eq!(first[1]["healthy"], "1/1");
    assert_eq!(first[1]["conditions"][1]["status"], "True");
    assert_eq!(judge(&likes, &seeing, &specs, &first, Backend::Answers), first, "nothing to write");

    let blind = policy("[]");
    let wiped = judge(&likes, &blind, &specs, &first, Backend::Answers);
    for status in &wiped {
        let fields: Vec<&str> = status.as_object().unwrap().keys().map(String::as_str).collect();
        for gone in ["clusters", "healthy", "revisions", "problems", "lastHealthyRevision", "asOf", "history"]
        {
            assert!(!fields.contains(&gone), "{gone} is still there: {status}");
        }
        for condition in status["conditions"].as_array().unwrap() {
            let good = condition["status"] == "True" && condition["type"] != "Stalled";
            assert!(!good, "{condition}");
        }
        assert_eq!(status["conditions"][0]["reason"], "Forbidden");
    }
    assert_eq!(judge(&likes, &blind, &specs, &wiped, Backend::Answers), wiped, "nothing to write");
    // A name that is not granted is refused in the same words whether or not it exists.
    let other =
        policy("[{namespaces: [tenant], clusters: [beta-*], packageNamespaces: [ns], sources: ['*']}]");
    let there = judge(&likes, &other, &specs, &first, Backend::Answers);
    let absent = judge(&BTreeMap::new(), &other, &specs, &first, Backend::Answers);
    assert_eq!(there[1], absent[1]);
    assert_eq!(there[1]["waitingFor"][0]["message"], "this namespace may not see alpha-1");
    assert_eq!(there[0]["clusters"]["total"], 1);
}
