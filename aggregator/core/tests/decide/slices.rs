//! Which cluster is in which slice, and what its row says.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rstest::rstest;
use statusbridge_api::fleet_package_slice::{ClusterRow, MOST_CLUSTERS, RolloutStatus};
use statusbridge_api::{FleetPackageSlice, FleetPackageSpec, Reason};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_core::decide::excused::Excused;
use statusbridge_core::decide::fleet_package::Wanted as Revision;
use statusbridge_core::decide::rows::{Evident, rows};
use statusbridge_core::decide::{Target, time};
use statusbridge_core::fleet::observation::{Observation, Row, Standing, reason};
use statusbridge_core::reconcile::object::Key;
use statusbridge_core::reconcile::object::Owner;
use statusbridge_core::reconcile::owned::label;
use statusbridge_core::reconcile::slices::{Change, Slice, Wanted, plan};

use crate::made::*;

fn one(spec: &FleetPackageSpec, observation: Observation) -> ClusterRow {
    rows(Revision::literal(spec), &targets([observation]), &Excused::nobody()).remove(0).row
}

#[rstest]
#[case::healthy(fresh(healthy(R2)), RolloutStatus::Succeeded, "Healthy")]
#[case::elsewhere(fresh(healthy(R1)), RolloutStatus::ToApply, "NotUpdated")]
#[case::on_the_way(fresh(moving(R1, R2)), RolloutStatus::Progressing, "Progressing")]
#[case::not_checked(fresh(applied(R2, Health::Unknown)), RolloutStatus::Progressing, "HealthUnknown")]
#[case::failed(fresh(failed(R1, R2)), RolloutStatus::Failed, "Failed")]
#[case::paused_there(fresh(Row { apply: ApplyState::Paused, ..healthy(R2) }), RolloutStatus::Progressing, "Paused")]
#[case::paused_before(fresh(Row { apply: ApplyState::Paused, ..healthy(R1) }), RolloutStatus::ToApply, "Paused")]
#[case::deleting(fresh(Row { apply: ApplyState::Deleting, ..healthy(R2) }), RolloutStatus::Progressing, "Deleting")]
#[case::missing(unobserved(Standing::Missing, None), RolloutStatus::ToApply, "Missing")]
#[case::stale(unobserved(Standing::Stale, Some(healthy(R2))), RolloutStatus::Progressing, "Stale")]
#[case::unverified(
    unobserved(Standing::Unverified, Some(healthy(R2))),
    RolloutStatus::Progressing,
    "Unverified"
)]
#[case::conflict(unobserved(Standing::Conflict, Some(healthy(R2))), RolloutStatus::Progressing, "Conflict")]
#[case::skew(unobserved(Standing::ClockSkew, Some(healthy(R2))), RolloutStatus::Progressing, "ClockSkew")]
fn a_row(#[case] seen: Observation, #[case] status: RolloutStatus, #[case] state: &str) {
    let row = one(&package(), seen.clone());
    assert_eq!((row.status, row.state.as_str()), (status, state));
    assert!(Reason::ALL.iter().any(|reason| reason.name() == row.state));
    let known = seen.standing == Standing::Fresh;
    assert_eq!(row.desired_revision.is_some(), known, "what is out of sight has no revision");
    assert_eq!(row.healthy_revision.is_some(), known && seen.row.is_some_and(|row| !row.healthy.is_none()));
}

#[test]
fn a_row_names_the_cluster_whose_exporter_says_so() {
    let told = Observation { told_by: Some("management-1".into()), ..fresh(healthy(R2)) };
    assert_eq!(one(&package(), told).reported_by.as_deref(), Some("management-1"));
    assert_eq!(one(&package(), fresh(healthy(R2))).reported_by, None);
}

#[test]
fn revisions_are_in_the_specs_words_when_they_are_short() {
    let row = one(&package(), fresh(moving(R1, R2)));
    assert_eq!(row.desired_revision.as_deref(), Some(R2));
    assert_eq!(row.applied_revision, Some(Fingerprint::of(R1).to_string()));
    assert_eq!(row.healthy_revision, None);
    let long = "r".repeat(4096);
    let spec = FleetPackageSpec { revision: Some(long.clone()), ..package() };
    assert_eq!(one(&spec, fresh(healthy(&long))).healthy_revision, Some(Fingerprint::of(&long).to_string()));
    let report = FleetPackageSpec { revision: None, ..package() };
    let row = one(&report, fresh(healthy(R1)));
    assert_eq!(row.status, RolloutStatus::Succeeded, "at its own revision");
    assert_eq!(row.healthy_revision, Some(Fingerprint::of(R1).to_string()));
}

#[test]
fn times_are_those_of_transitions_and_stand_still() {
    assert_eq!(one(&package(), fresh(healthy(R2))).last_transition_time, Some(time(T - 3600.0)));
    let stale = unobserved(Standing::Stale, Some(healthy(R2)));
    assert_eq!(one(&package(), stale.clone()).last_transition_time, Some(time(T - 600.0)));
    // The evidence of a source that is down goes on.
    let down = Observation { reason: reason::SOURCE_DOWN, ..stale };
    assert_eq!(one(&package(), down).last_transition_time, None);
    for standing in [Standing::Conflict, Standing::ClockSkew, Standing::Missing] {
        assert_eq!(one(&package(), unobserved(standing, None)).last_transition_time, None);
    }
}

const PACKAGE: &str = "payments";

/// A hub of slices of one FleetPackage, to which plans are applied.
#[derive(Debug, Clone, Default)]
struct Hub {
    slices: BTreeMap<String, Slice>,
    writes: usize,
}

#[derive(Debug, Clone)]
struct Ask {
    generation: i64,
    rows: Vec<Evident>,
}

fn slice(name: &str, content: FleetPackageSlice) -> Slice {
    Slice {
        key: Key { namespace: "fleet".into(), name: name.into() },
        uid: format!("uid of {name}"),
        resource_version: "1".into(),
        owner: Some(Owner { kind: "FleetPackage".into(), name: PACKAGE.into(), uid: "1-2-3".into() }),
        label: Some(label(PACKAGE)),
        content: Some(content),
    }
}

impl Hub {
    fn plan(&self, ask: &Ask) -> Vec<Change> {
        let old: Vec<&Slice> = self.slices.values().collect();
        let wanted = Wanted {
            name: PACKAGE,
            uid: "1-2-3",
            generation: ask.generation,
            stale_after: 180.0,
            rows: &ask.rows,
        };
        plan(&old, |name| self.slices.contains_key(name), &wanted)
    }

    fn apply(&mut self, ask: &Ask) -> Vec<Change> {
        let changes = self.plan(ask);
        self.writes = changes.len();
        for change in &changes {
            match change {
                Change::Create(name, content) => {
                    let before = self.slices.insert(name.clone(), slice(name, content.clone()));
                    assert!(before.is_none(), "{name} was there already");
                }
                Change::Update(old, content) => {
                    drop(self.slices.insert(old.key.name.clone(), slice(&old.key.name, content.clone())));
                }
                Change::Delete(old) => drop(self.slices.remove(&old.key.name)),
            }
        }
        changes
    }

    fn where_is(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for (name, slice) in &self.slices {
            for row in &slice.content.as_ref().unwrap().clusters {
                let twice = all.insert(row.cluster_name.clone(), name.clone());
                assert!(twice.is_none(), "{} is in two slices", row.cluster_name);
            }
        }
        all
    }
}

fn evident(cluster: &str, observation: Observation) -> Evident {
    let target = Target { cluster: cluster.into(), observation };
    rows(Revision::literal(&package()), &[target], &Excused::nobody()).remove(0)
}

fn many(count: usize) -> Vec<Evident> {
    (0..count).map(|at| evident(&format!("c{at:05}"), fresh(healthy(R2)))).collect()
}

#[test]
fn ten_thousand_clusters_are_forty_slices_and_one_change_is_one_write() {
    let mut hub = Hub::default();
    let mut ask = Ask { generation: 1, rows: many(10_000) };
    hub.apply(&ask);
    assert_eq!((hub.slices.len(), hub.writes), (40, 40));
    for slice in hub.slices.values() {
        let clusters = &slice.content.as_ref().unwrap().clusters;
        assert!(clusters.len() <= MOST_CLUSTERS && clusters.is_sorted_by_key(|row| &row.cluster_name));
        // What etcd takes is 1.5 MB.
        assert!(serde_json::to_string(slice.content.as_ref().unwrap()).unwrap().len() < 150_000);
    }
    assert_eq!(hub.plan(&ask), [], "nothing changed, nothing is written");

    ask.rows[7777] = evident("c07777", fresh(failed(R1, R2)));
    hub.apply(&ask);
    assert_eq!(hub.writes, 1, "one cluster changed");
    let place = hub.where_is();
    ask.rows.remove(5);
    hub.apply(&ask);
    assert_eq!(hub.writes, 1, "one cluster went");
    ask.rows.insert(0, evident("a-newcomer", fresh(healthy(R1))));
    hub.apply(&ask);
    assert_eq!((hub.writes, hub.slices.len()), (1, 40), "one cluster came");
    let now = hub.where_is();
    assert!(place.iter().all(|(cluster, slice)| now.get(cluster).is_none_or(|it| it == slice)));

    ask.generation = 2;
    hub.apply(&ask);
    assert_eq!(hub.writes, 40, "every slice answers the new generation");
}

#[test]
fn the_longest_rows_fit_into_what_the_api_server_takes() {
    assert_eq!(
        rows(
            Revision::literal(&package()),
            &[Target { cluster: "c".repeat(1025), observation: fresh(healthy(R2)) }],
            &Excused::nobody()
        ),
        []
    );
    let longest = |at: usize| {
        let mut observation = fresh(applied(R2, Health::Unknown));
        observation.row.as_mut().unwrap().reason = Some("ü".repeat(5000));
        let mut longest = evident(&format!("{at:01024}"), observation);
        longest.row.excused = Some("ü".repeat(256));
        longest
    };
    let mut hub = Hub::default();
    hub.apply(&Ask { generation: 1, rows: (0..256).map(longest).collect() });
    let slice = hub.slices.values().next().unwrap();
    assert!(serde_json::to_string(slice.content.as_ref().unwrap()).unwrap().len() < 700_000);
}

#[test]
fn evidence_that_grows_younger_is_written_every_third_of_stale_after() {
    let at = |t: f64| Observation { as_of: Some(t), ..fresh(healthy(R2)) };
    let mut hub = Hub::default();
    hub.apply(&Ask { generation: 1, rows: vec![evident("a", at(T)), evident("b", at(T + 50.0))] });
    let as_of = |hub: &Hub| hub.slices.values().next().unwrap().content.clone().unwrap().as_of;
    assert_eq!(as_of(&hub), Some(time(T)), "the oldest");
    let later =
        |by: f64| Ask { generation: 1, rows: vec![evident("a", at(T + by)), evident("b", at(T + by))] };
    assert_eq!(hub.plan(&later(59.0)), []);
    hub.apply(&later(60.0));
    assert_eq!(as_of(&hub), Some(time(T + 60.0)));
    // Without evidence there is no age, at once.
    let gone = unobserved(Standing::Stale, Some(healthy(R2)));
    hub.apply(&Ask { generation: 1, rows: vec![evident("a", gone.clone()), evident("b", gone)] });
    assert_eq!(as_of(&hub), None);
}

#[test]
fn a_time_that_is_corrected_a_little_differently_is_the_same() {
    let since = |offset: f64| vec![evident("a", fresh(Row { since: T - 3600.0 + offset, ..healthy(R2) }))];
    let mut hub = Hub::default();
    hub.apply(&Ask { generation: 1, rows: since(0.0) });
    assert_eq!(hub.plan(&Ask { generation: 1, rows: since(1.0) }), []);
    assert_eq!(hub.plan(&Ask { generation: 1, rows: since(-1.0) }), []);
    assert_eq!(hub.plan(&Ask { generation: 1, rows: since(2.0) }).len(), 1);
}

#[test]
fn what_somebody_changed_is_put_right() {
    let ask = Ask { generation: 1, rows: many(3) };
    let mut hub = Hub::default();
    hub.apply(&ask);
    let name = hub.slices.keys().next().unwrap().clone();
    let whole = hub.slices[&name].clone();
    let mut spoiled = Vec::new();
    spoiled.push(Slice { label: None, ..whole.clone() });
    spoiled.push(Slice { content: None, ..whole.clone() });
    let mut content = whole.content.clone().unwrap();
    content.clusters[1].status = RolloutStatus::Skip;
    spoiled.push(Slice { content: Some(content.clone()), ..whole.clone() });
    content.clusters.swap(0, 2);
    spoiled.push(Slice { content: Some(content), ..whole.clone() });
    for slice in spoiled {
        hub.slices = BTreeMap::from([(name.clone(), slice)]);
        hub.apply(&ask);
        // One that cannot be read is replaced by another.
        let now: Vec<&Slice> = hub.slices.values().collect();
        assert!(now.len() == 1 && now[0].content == whole.content, "{now:?}");
        assert_eq!(now[0].label, whole.label);
    }
}

#[test]
fn names_that_are_taken_are_passed_over() {
    let ask = Ask { generation: 1, rows: many(1) };
    let wanted = Wanted { name: PACKAGE, uid: "1-2-3", generation: 1, stale_after: 180.0, rows: &ask.rows };
    let name = |taken: &BTreeSet<String>| match &plan(&[], |name| taken.contains(name), &wanted)[..] {
        [Change::Create(name, _)] => name.clone(),
        other => panic!("{other:?}"),
    };
    let first = name(&BTreeSet::new());
    assert_eq!(first, name(&BTreeSet::new()));
    let second = name(&BTreeSet::from([first.clone()]));
    assert!(
        first != second && [&first, &second].iter().all(|it| it.starts_with("payments-")),
        "{first} {second}"
    );
}

#[test]
fn the_label_of_a_long_name_is_short_and_its_own() {
    assert_eq!(label("payments"), "payments");
    let long = format!("{}.x", "a".repeat(200));
    assert!(label(&long).len() <= 63 && label(&long) != label(&format!("{long}y")));
}

fn fleet() -> impl Strategy<Value = Vec<(u16, bool)>> {
    prop::collection::btree_map(0u16..1200, any::<bool>(), 0..900).prop_map(|it| it.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever comes and goes: every cluster is in exactly one slice with its row, no slice is too
    /// large, there are few, a cluster moves only when its slice is dissolved, and then it is quiet.
    #[test]
    fn slices_follow_the_fleet(steps in prop::collection::vec(fleet(), 1..6)) {
        let mut hub = Hub::default();
        for (generation, step) in steps.into_iter().enumerate() {
            let rows: Vec<Evident> = step
                .into_iter()
                .map(|(at, well)| {
                    let row = if well { healthy(R2) } else { failed(R1, R2) };
                    evident(&format!("c{at:04}"), fresh(row))
                })
                .collect();
            let ask = Ask { generation: generation as i64 / 2, rows };
            let before = hub.where_is();
            let old: BTreeSet<String> = hub.slices.keys().cloned().collect();
            let changes = hub.apply(&ask);
            let last_write = changes.iter().rposition(|it| !matches!(it, Change::Delete(_)));
            let first_delete = changes.iter().position(|it| matches!(it, Change::Delete(_)));
            prop_assert!(last_write.zip(first_delete).is_none_or(|(write, delete)| write < delete));

            let now = hub.where_is();
            let found: BTreeMap<String, ClusterRow> = hub.slices.values()
                .flat_map(|slice| slice.content.clone().unwrap().clusters)
                .map(|row| (row.cluster_name.clone(), row))
                .collect();
            let asked: BTreeMap<String, ClusterRow> =
                ask.rows.iter().map(|it| (it.row.cluster_name.clone(), it.row.clone())).collect();
            prop_assert_eq!(found, asked);
            let needed = ask.rows.len().div_ceil(MOST_CLUSTERS);
            prop_assert!(hub.slices.len() <= 2 * needed, "{} slices, {} needed", hub.slices.len(), needed);
            for slice in hub.slices.values() {
                let content = slice.content.as_ref().unwrap();
                prop_assert!((1..=MOST_CLUSTERS).contains(&content.clusters.len()));
                prop_assert_eq!(content.fleet_package_generation, ask.generation);
            }
            for (cluster, slice) in &before {
                if let Some(at) = now.get(cluster) && at != slice {
                    prop_assert!(old.contains(slice) && !hub.slices.contains_key(slice));
                }
            }
            prop_assert_eq!(hub.plan(&ask), vec![]);
        }
    }
}
