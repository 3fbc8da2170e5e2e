//! Packages whose health cannot become known: they are applied, and nothing looks at whether they work.

use std::collections::BTreeMap;

use statusbridge_api::PackageRef;
use statusbridge_contract::reason::{self, NO_HEALTH_CHECKS};
use statusbridge_contract::{ApplyState, Health};
use statusbridge_core::fleet::key;
use statusbridge_core::verify::{Content, Package};

use super::finding::{Check, Finding, list};
use super::survey::{Expectation, StreamSeen};

const FIX: &str = "docs/presets/README.md says under \"Health that nothing checks\" how to have it checked; where applied is enough, \
                   set `require: Applied` in the gates";

/// A package wherever an exposition has it: in which cluster, where that is not the exporter's own, and whether nothing checks
/// its health.
pub(super) fn of_package<'a>(
    content: &'a Content,
    package: &PackageRef,
) -> impl Iterator<Item = (Option<&'a str>, bool)> {
    let key = key(package);
    let is_up = content.is_up(&package.source);
    let elsewhere: Vec<_> =
        content.find_elsewhere(&key).map(|(cluster, seen)| (Some(cluster), seen)).collect();
    let own = content.find(&key).map(|(_, seen)| (None, seen));
    own.into_iter().chain(elsewhere).map(move |(cluster, seen)| (cluster, is_up && is_unchecked(&seen)))
}

/// Whether it is applied as its cluster wants it and its reason says that nothing checks its health. Any other reason for
/// Unknown may go away by itself.
fn is_unchecked(seen: &Package) -> bool {
    let (desired, applied) = (seen.desired(), seen.applied());
    let is_applied = seen.apply() == ApplyState::Applied && !applied.is_none();
    let is_wanted = desired.is_none() || desired == applied;
    let is_said = seen.health() == Health::Unknown && seen.reason() == reason::code(NO_HEALTH_CHECKS);
    is_applied && is_wanted && is_said
}

/// FleetPackages that such a package keeps from ever being healthy.
pub(super) fn unchecked<'a>(
    expectations: &[Expectation],
    streams: impl Iterator<Item = &'a StreamSeen> + Clone,
) -> Vec<Finding> {
    expectations.iter().filter_map(|expectation| of_one(expectation, streams.clone())).collect()
}

fn of_one<'a>(expectation: &Expectation, streams: impl Iterator<Item = &'a StreamSeen>) -> Option<Finding> {
    let Expectation { who, clusters, speakers, package, gates, .. } = expectation;
    let package = package.as_ref()?;
    let counts = |stream: &StreamSeen, cluster: &str| {
        let is_own = stream.cluster == cluster;
        clusters.has(cluster) && (is_own || speakers.believes(&stream.cluster, &package.source, cluster))
    };
    // A cluster with several streams is unchecked when any of them says so, as the worst counts.
    let mut seen = BTreeMap::<&str, bool>::new();
    for stream in streams {
        let said = stream.packages.get(package).into_iter().flatten();
        let said = said.filter(|(cluster, _)| counts(stream, cluster));
        said.for_each(|(cluster, is_unchecked)| *seen.entry(cluster).or_default() |= is_unchecked);
    }
    let unchecked: Vec<&str> = seen.iter().filter(|(_, it)| **it).map(|(cluster, _)| *cluster).collect();
    let example = unchecked.first()?;
    let closed = gates.iter().filter(|gate| unchecked.iter().any(|cluster| gate.clusters.has(cluster)));
    let closed: Vec<&str> = closed.map(|gate| gate.name.as_str()).collect();
    let mut message = format!(
        "{who}: nothing checks the health of {} {} in {} of {} clusters, for instance `{example}` ({NO_HEALTH_CHECKS}): \
         it is applied, and its health stays Unknown",
        package.source,
        named(package),
        unchecked.len(),
        seen.len(),
    );
    if !closed.is_empty() {
        message.push_str(&format!("; gates that stay closed: {}", list(&closed)));
    }
    Some(Finding::problem_if(!closed.is_empty(), Check::NoHealthChecks, message, FIX))
}

fn named(PackageRef { namespace, name, .. }: &PackageRef) -> String {
    namespace.as_ref().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use statusbridge_contract::Fingerprint;
    use statusbridge_core::testing::{Exposition, Values, healthy, package, said};

    use super::super::finding::Level;
    use super::super::survey::{GateSeen, Named};
    use super::*;

    fn states(apply: ApplyState, health: Health, word: &str, [desired, applied]: [&str; 2]) -> Values {
        let revisions = [desired, applied, ""].map(Fingerprint::of);
        said((apply.code(), health.code()), revisions, 1, reason::code(word))
    }

    #[rstest]
    #[case::as_wanted(states(ApplyState::Applied, Health::Unknown, NO_HEALTH_CHECKS, ["r1", "r1"]), true)]
    #[case::nobody_says_what_is_wanted(
        states(ApplyState::Applied, Health::Unknown, NO_HEALTH_CHECKS, ["", "r1"]),
        true
    )]
    #[case::on_the_way_to_another(
        states(ApplyState::Applied, Health::Unknown, NO_HEALTH_CHECKS, ["r2", "r1"]),
        false
    )]
    #[case::nothing_is_applied(
        states(ApplyState::Applied, Health::Unknown, NO_HEALTH_CHECKS, ["", ""]),
        false
    )]
    #[case::being_applied(states(ApplyState::Applying, Health::Unknown, NO_HEALTH_CHECKS, ["r1", "r1"]), false)]
    #[case::rubbish(states(ApplyState::Unknown, Health::Unknown, reason::EVALUATION_FAILED, ["r1", "r1"]), false)]
    #[case::its_expression_of_health_fails(
        states(ApplyState::Applied, Health::Unknown, reason::EVALUATION_FAILED, ["r1", "r1"]),
        false
    )]
    #[case::not_looked_at_yet(
        states(ApplyState::Applied, Health::Unknown, "ResourcesNotRead", ["r1", "r1"]),
        false
    )]
    #[case::without_a_word(states(ApplyState::Applied, Health::Unknown, "", ["r1", "r1"]), false)]
    #[case::failed(states(ApplyState::Applied, Health::Failed, NO_HEALTH_CHECKS, ["r1", "r1"]), false)]
    #[case::healthy(healthy("r1", 1), false)]
    fn only_what_says_so_itself_is_unchecked(#[case] values: Values, #[case] expected: bool) {
        let said = Exposition::new(7).with("p", values.clone());
        let told = said.with_in("eu-1", "p", values);
        let of = |said: &Exposition, name: &str| -> Vec<(Option<String>, bool)> {
            let content = said.content();
            of_package(&content, &package(name)).map(|(it, is)| (it.map(str::to_owned), is)).collect()
        };
        let both = |is: bool| vec![(None, is), (Some("eu-1".to_owned()), is)];
        assert_eq!((of(&told, "p"), of(&told, "q")), (both(expected), vec![]));
        assert_eq!(of(&told.down("flux"), "p"), both(false));
    }

    fn stream(cluster: &str, name: &str, is_unchecked: bool) -> StreamSeen {
        let packages = [(package(name), [(cluster.to_owned(), is_unchecked)].into())].into();
        StreamSeen { cluster: cluster.to_owned(), packages, ..StreamSeen::default() }
    }

    fn only(clusters: &[&str]) -> Named {
        Named(Some(clusters.iter().map(|it| (*it).to_owned()).collect()))
    }

    fn gate(name: &str, clusters: Named) -> GateSeen {
        GateSeen { name: name.to_owned(), clusters }
    }

    fn expects(clusters: Named, gates: Vec<GateSeen>) -> Expectation {
        let who = "FleetPackage a/b".to_owned();
        Expectation { who, clusters, package: Some(package("p")), gates, ..Expectation::default() }
    }

    #[rstest]
    #[case::no_gate(expects(Named(None), vec![]), Level::Advice, "in 2 of 3 clusters, for instance `c1` (NoHealthChecks)", "stays Unknown")]
    #[case::a_gate(expects(Named(None), vec![gate("all", Named(None))]), Level::Problem, "in 2 of 3 clusters", "; gates that stay closed: all")]
    #[case::gates_of_waves(expects(Named(None), vec![gate("one", only(&["c1"])), gate("two", only(&["c2"]))]), Level::Problem, "in 2 of 3 clusters", "; gates that stay closed: one")]
    #[case::a_gate_of_others(expects(Named(None), vec![gate("two", only(&["c2"]))]), Level::Advice, "in 2 of 3 clusters", "stays Unknown")]
    #[case::clusters_that_count(expects(only(&["c2", "c3", "c9"]), vec![]), Level::Advice, "in 1 of 2 clusters, for instance `c3`", "stays Unknown")]
    fn a_fleet_package_is_named_once_with_its_clusters_and_gates(
        #[case] expectation: Expectation,
        #[case] level: Level,
        #[case] clusters: &str,
        #[case] end: &str,
    ) {
        // The second stream of c1 sees it checked; c4 has another package.
        let streams = [
            stream("c1", "p", true),
            stream("c1", "p", false),
            stream("c2", "p", false),
            stream("c3", "p", true),
            stream("c4", "q", true),
        ];
        let findings = unchecked(&[expectation], streams.iter());
        let [finding] = findings.as_slice() else { panic!("{findings:#?}") };
        let begin = "FleetPackage a/b: nothing checks the health of flux ns/p in ";
        assert!(finding.message.starts_with(begin), "{}", finding.message);
        assert!(finding.message.contains(clusters) && finding.message.ends_with(end), "{}", finding.message);
        assert_eq!((finding.level, finding.check), (level, Check::NoHealthChecks));
    }

    #[test]
    fn of_what_another_cluster_tells_only_a_speaker_is_asked() {
        let told = |speaker: &str, cluster: &str| {
            let packages = [(package("p"), [(cluster.to_owned(), true)].into())].into();
            StreamSeen { cluster: speaker.to_owned(), packages, ..StreamSeen::default() }
        };
        let streams =
            [told("hub", "eu-1"), told("hub", "us-1"), told("rogue", "eu-1"), told("rogue", "eu-2")];
        let speakers = serde_json::json!([{"cluster": "hub", "sources": ["flux"], "clusters": ["eu-*"]}]);
        let mut expectation = expects(only(&["eu-1", "eu-2", "us-1"]), vec![gate("one", only(&["eu-1"]))]);
        expectation.speakers = serde_json::from_value(speakers).unwrap();
        let findings = unchecked(&[expectation], streams.iter());
        assert!(findings[0].message.contains("in 1 of 1 clusters, for instance `eu-1`"), "{findings:#?}");
        assert!(findings[0].message.ends_with("; gates that stay closed: one"), "{findings:#?}");
    }

    #[test]
    fn nothing_is_said_of_what_is_checked_or_expected_by_nobody() {
        let checked = [stream("c1", "p", false)];
        assert_eq!(unchecked(&[expects(Named(None), vec![])], checked.iter()), []);
        let unknown = [stream("c1", "p", true)];
        assert_eq!(unchecked(&[Expectation::default()], unknown.iter()), []);
        assert_eq!(unchecked(&[expects(only(&["c2"]), vec![])], unknown.iter()), []);
    }

    #[test]
    fn a_thousand_clusters_and_gates_are_a_few_and_a_number() {
        let streams: Vec<StreamSeen> = (0..1000).map(|n| stream(&format!("c{n}"), "p", true)).collect();
        let gates = (0..1000).map(|n| gate(&format!("g{n}"), Named(None))).collect();
        let findings = unchecked(&[expects(Named(None), gates)], streams.iter());
        assert!(findings[0].message.ends_with("g4 and 995 more") && findings[0].message.len() < 300);
    }

    /// What the advice names is there.
    #[test]
    fn the_page_that_the_advice_names_has_the_cures() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/presets/README.md");
        let page = std::fs::read_to_string(path).unwrap();
        assert!(page.contains("\n## Health that nothing checks\n"), "docs/presets/README.md");
    }
}
