use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn profile(name: &str, labels: Value, status: Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"namespace": "fleet", "name": name, "labels": labels},
        "spec": {"clusterManager": {"name": "tests"}},
        "status": status,
    }))
    .unwrap()
}

fn id(name: &str) -> Value {
    json!({"properties": [{"name": "other", "value": "x"}, {"name": "id", "value": name}]})
}

fn by_property() -> Profiles {
    let cluster_name = ClusterName::Property("id".into());
    Profiles::new(Settings { cluster_name, ..Settings::default() })
}

fn list(profiles: &mut Profiles, objects: impl IntoIterator<Item = DynamicObject>) -> bool {
    let listed = objects.into_iter().map(Event::InitApply);
    let events = [Event::Init].into_iter().chain(listed).chain([Event::InitDone]);
    profiles.apply(events.map(News::from), 0.0)
}

fn selector(value: Value) -> LabelSelector {
    serde_json::from_value(value).unwrap()
}

fn names(profiles: &Profiles, labels: Value) -> Vec<String> {
    let selected = profiles.select(&selector(labels));
    selected
        .into_iter()
        .map(|it| format!("{}{}", it.cluster, if it.doubt.is_some() { "?" } else { "" }))
        .collect()
}

#[test]
fn nothing_is_selected_before_the_list_is_whole() {
    let mut profiles = Profiles::new(Settings::default());
    assert!(matches!(profiles.membership(), Membership::Unlisted(_)));
    profiles.apply(
        [News::from(Event::Init), News::from(Event::InitApply(profile("a", json!({}), json!({}))))],
        0.0,
    );
    assert!(names(&profiles, json!({})).is_empty());
    assert!(matches!(profiles.membership(), Membership::Unlisted(_)));
    assert!(profiles.apply([News::from(Event::InitDone)], 0.0), "now there is something to choose from");
    assert_eq!(names(&profiles, json!({})), ["a"]);
    assert_eq!(profiles.membership(), Membership::Known);
}

#[test]
fn an_empty_list_is_a_list() {
    let mut profiles = Profiles::new(Settings::default());
    assert!(list(&mut profiles, []));
    assert_eq!(profiles.membership(), Membership::Known);
    assert!(!list(&mut profiles, []), "the same again");
}

#[rstest]
#[case::own_name(ClusterName::Name, "one")]
#[case::property(ClusterName::Property("id".into()), "eu-1")]
#[case::label(ClusterName::Label("cluster".into()), "eu-one")]
fn what_a_profile_stands_for(#[case] cluster_name: ClusterName, #[case] expected: &str) {
    let mut profiles = Profiles::new(Settings { cluster_name, ..Settings::default() });
    list(&mut profiles, [profile("one", json!({"cluster": "eu-one"}), id("eu-1"))]);
    assert_eq!(names(&profiles, json!({})), [expected]);
}

#[test]
fn a_profile_without_a_name_is_selected_and_in_doubt() {
    let mut profiles = by_property();
    list(
        &mut profiles,
        [profile("a", json!({"env": "prod"}), id("a")), profile("b", json!({"env": "prod"}), json!({}))],
    );
    assert_eq!(names(&profiles, json!({"matchLabels": {"env": "prod"}})), ["ClusterProfile/fleet/b?", "a"]);
    let doubts: Vec<_> =
        profiles.select(&LabelSelector::default()).into_iter().filter_map(|it| it.doubt).collect();
    assert_eq!(doubts, [Doubt::Unnamed("its ClusterProfile has no property id".into())]);
    assert_eq!(
        profiles.complaints(),
        ["ClusterProfile/fleet/b stands for no cluster: its ClusterProfile has no property id"]
    );
    // The property comes later.
    assert!(profiles.apply([News::from(Event::Apply(profile("b", json!({"env": "prod"}), id("b"))))], 1.0));
    assert_eq!(names(&profiles, json!({})), ["a", "b"]);
    assert!(profiles.complaints().is_empty());
}

#[test]
fn two_profiles_of_one_cluster_are_in_doubt_though_only_one_is_selected() {
    let mut profiles = by_property();
    let all = [("a", "prod", "x"), ("b", "dev", "x"), ("c", "prod", "y")];
    list(&mut profiles, all.map(|(name, env, cluster)| profile(name, json!({"env": env}), id(cluster))));
    assert_eq!(names(&profiles, json!({"matchLabels": {"env": "prod"}})), ["x?", "y"]);
    assert_eq!(names(&profiles, json!({"matchLabels": {"env": "dev"}})), ["x?"]);
    assert_eq!(
        profiles.complaints(),
        ["cluster x: 2 ClusterProfiles stand for this cluster: fleet/a and fleet/b"]
    );
    profiles.apply([News::from(Event::Delete(profile("b", json!({}), json!({}))))], 1.0);
    assert_eq!(names(&profiles, json!({})), ["x", "y"]);
}

#[test]
fn only_what_may_choose_differently_is_news() {
    let mut profiles = Profiles::new(Settings::default());
    let apply = |profiles: &mut Profiles, labels: Value, status: Value| {
        profiles.apply([News::from(Event::Apply(profile("a", labels, status)))], 0.0)
    };
    list(&mut profiles, [profile("a", json!({"env": "prod"}), json!({}))]);
    assert!(!apply(&mut profiles, json!({"env": "prod"}), json!({"version": {"kubernetes": "1.36"}})));
    assert!(apply(&mut profiles, json!({"env": "dev"}), json!({})));
    assert!(!profiles.apply([News::from(Event::Delete(profile("z", json!({}), json!({}))))], 0.0));
}

#[rstest]
#[case::healthy(json!([{"type": "ControlPlaneHealthy", "status": "True", "reason": "Ok"}]), None)]
#[case::not_healthy(
    json!([{"type": "Joined", "status": "False"}, {"type": "ControlPlaneHealthy", "status": "False", "reason": "NoLease"}]),
    Some("control plane not healthy: NoLease")
)]
#[case::without_a_reason(
    json!([{"type": "ControlPlaneHealthy", "status": "False"}]),
    Some("control plane not healthy")
)]
#[case::not_known(json!([{"type": "ControlPlaneHealthy", "status": "Unknown", "reason": "NoLease"}]), None)]
#[case::of_another_shape(json!({"controlPlaneHealthy": false}), None)]
fn what_the_control_plane_is_said_to_be(#[case] conditions: Value, #[case] expected: Option<&str>) {
    let mut profiles = Profiles::new(Settings::default());
    list(&mut profiles, [profile("a", json!({}), json!({"conditions": conditions}))]);
    assert_eq!(profiles.unhealthy("a"), expected);
    assert_eq!(profiles.unhealthy("b"), None);
}

#[test]
fn the_configuration_excuses_clusters_of_one_profile_alone() {
    let settings = json!({"excused": [{"label": {"key": "out"}}], "clusterName": {"property": "id"}});
    let mut profiles = Profiles::new(serde_json::from_value(settings).unwrap());
    assert!(profiles.may_excuse() && Profiled::is_unread(&profiles));
    let out = json!({"out": "yes"});
    list(&mut profiles, [profile("a", out.clone(), id("x")), profile("b", json!({}), id("y"))]);
    assert!(!Profiled::is_unread(&profiles));
    assert_eq!((profiles.excuse("x"), profiles.excuse("y")), (Some("ClusterProfile: label out"), None));
    // Whose word counts cannot be told.
    assert!(profiles.apply([News::from(Event::Apply(profile("c", json!({}), id("x"))))], 1.0));
    assert_eq!((profiles.excuse("x"), Profiled::labels(&profiles, "x")), (None, None));
    profiles.apply([News::from(Event::Delete(profile("c", json!({}), json!({}))))], 2.0);
    assert!(profiles.apply([News::from(Event::Apply(profile("b", out, id("y"))))], 3.0), "this is news");
    assert_eq!(profiles.excuse("y"), Some("ClusterProfile: label out"));
    profiles.apply([News::NotInstalled], 4.0);
    assert_eq!(profiles.excuse("y"), None);
    assert!(!Profiles::new(Settings::default()).may_excuse());
}

#[test]
fn a_broken_watch_keeps_what_is_known_and_says_since_when() {
    let mut profiles = Profiles::new(Settings::default());
    profiles.apply([News::Broken("refused".into())], 1.0);
    assert_eq!(profiles.membership(), Membership::Unlisted("refused".into()));
    list(&mut profiles, [profile("a", json!({}), json!({}))]);
    profiles.apply([News::Broken("cut off".into())], 5.0);
    profiles.apply([News::Broken("still cut off".into())], 9.0);
    assert_eq!(profiles.membership(), Membership::Outdated { since: 5.0, error: "cut off".into() });
    assert_eq!(names(&profiles, json!({})), ["a"]);
    // A list that is interrupted proves nothing.
    profiles.apply([News::from(Event::Init), News::Broken("again".into())], 10.0);
    assert_eq!(names(&profiles, json!({})), ["a"]);
    assert!(list(&mut profiles, [profile("a", json!({}), json!({}))]), "what had to wait need not any more");
    assert_eq!(profiles.membership(), Membership::Known);
}

#[test]
fn what_is_no_longer_installed_selects_nothing() {
    let mut profiles = Profiles::new(Settings::default());
    list(&mut profiles, [profile("a", json!({}), json!({}))]);
    assert!(profiles.apply([News::NotInstalled], 1.0));
    assert!(!profiles.apply([News::NotInstalled], 2.0));
    assert!(names(&profiles, json!({})).is_empty());
    assert_eq!(profiles.membership(), Membership::NotInstalled);
    profiles.apply([News::Broken("a moment later".into())], 3.0);
    assert!(matches!(profiles.membership(), Membership::Unlisted(_)));
}
