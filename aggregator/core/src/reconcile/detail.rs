//! What is known of single clusters: for people who ask about one package or one cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::{Value, json};
use statusbridge_api::Reason;
use statusbridge_api::fleet_package_slice::ClusterRow;

use super::judge::{Rows, World, stale_after};
use super::store::{Key, PackageObject};
use crate::decide::fleet_package::Wanted;
use crate::decide::rows::Evident;
use crate::decide::{Target, rows, time};

/// Most points of a curve.
const POINTS: usize = 100;

/// One cluster of a package, and what its state rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterDetail {
    row: ClusterRow,
    /// Time of the evidence.
    as_of: Option<Time>,
    /// More about it, where there is more.
    message: String,
}

/// One package of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PackageDetail {
    namespace: String,
    name: String,
    #[serde(flatten)]
    cluster: ClusterDetail,
}

/// When clusters came to be healthy at a revision.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Adoption {
    revision: Option<String>,
    /// Since then so many clusters are healthy at it, and have been since.
    points: Vec<(Time, usize)>,
}

impl From<Evident> for ClusterDetail {
    fn from(Evident { row, as_of }: Evident) -> Self {
        Self { row, as_of: as_of.map(time), message: String::new() }
    }
}

fn detail(target: &Target, wanted: Wanted<'_>) -> Option<ClusterDetail> {
    let evident = rows::rows(wanted, std::slice::from_ref(target)).pop()?;
    // As it stands in the evidence, also where that does not count any more.
    let as_of = target.observation.as_of.map(time);
    Some(ClusterDetail { row: evident.row, as_of, message: target.observation.message.clone() })
}

fn adoption(wanted: Wanted<'_>, targets: &[Target]) -> Adoption {
    let healthy = targets.iter().filter(|target| rows::state(target, wanted).0 == Reason::Healthy);
    let mut since: Vec<f64> = healthy.filter_map(|it| Some(it.observation.row.as_ref()?.since)).collect();
    since.sort_by(f64::total_cmp);
    let all = since.len();
    // Every step if they are few, else so many that are as far apart in clusters.
    let counts = (1..=all.min(POINTS)).map(|point| point * all / all.min(POINTS));
    let points = counts.filter_map(|count| Some((time(*since.get(count - 1)?), count))).collect();
    Adoption { revision: wanted.text().map(str::to_owned), points }
}

impl World<'_> {
    /// A FleetPackage, and its clusters of this state or name, at most `limit`; None where there is none.
    pub fn package_in_detail(
        &self,
        key: &Key,
        state: Option<&str>,
        cluster: Option<&str>,
        limit: usize,
    ) -> Option<Value> {
        let object = self.state.packages.get(key)?;
        let told = if self.reads_the_hub_alone() {
            self.written(object).map_or(Rows::Unknown, |rows| {
                let is_asked_for = |it: &Evident| {
                    cluster.is_none_or(|name| it.row.cluster_name == name)
                        && state.is_none_or(|state| it.row.state == state)
                };
                let mut asked_for = rows.into_iter().filter(is_asked_for);
                let clusters: Vec<_> = asked_for.by_ref().take(limit).map(ClusterDetail::from).collect();
                let more = asked_for.next().is_some();
                let wanted = object.spec.as_ref().ok().and_then(|spec| spec.wanted(object.status.as_ref()));
                Rows::Known(json!({"clusters": clusters, "more": more, "adoption": null, "wanted": wanted}))
            })
        } else {
            self.heard_in_detail(object, state, cluster, limit)
        };
        let mut all = match told {
            Rows::Known(told) if told.is_object() => told,
            _ => json!({"clusters": [], "more": false, "adoption": null, "wanted": null}),
        };
        let metadata = json!({
            "namespace": key.namespace, "name": key.name, "generation": object.generation, "labels": object.labels,
        });
        let fields = all.as_object_mut()?;
        fields.insert("metadata".to_owned(), metadata);
        fields.insert("spec".to_owned(), json!(object.spec.as_ref().ok()));
        fields.insert("status".to_owned(), json!(object.status));
        Some(all)
    }

    fn heard_in_detail(
        &self,
        object: &PackageObject,
        state: Option<&str>,
        cluster: Option<&str>,
        limit: usize,
    ) -> Rows<Value> {
        self.each_cluster(object, |wanted, targets| {
            let is_asked_for = |target: &&Target| {
                cluster.is_none_or(|name| target.cluster == name)
                    && state.is_none_or(|state| rows::state(target, wanted).0.name() == state)
            };
            let mut asked_for = targets.iter().filter(is_asked_for);
            let clusters: Vec<_> =
                asked_for.by_ref().take(limit).filter_map(|target| detail(target, wanted)).collect();
            let more = asked_for.next().is_some();
            json!({"clusters": clusters, "more": more, "adoption": adoption(wanted, targets), "wanted": wanted.text()})
        })
    }

    /// What is known of these FleetPackages in one cluster, as far as their namespaces may see it.
    pub fn packages_in_cluster(&self, keys: &[Key], cluster: &str) -> Vec<PackageDetail> {
        let look = |key: &Key| {
            let object = self.state.packages.get(key)?;
            if self.reads_the_hub_alone() {
                let row = self.written(object)?.into_iter().find(|it| it.row.cluster_name == cluster)?;
                return Some(PackageDetail {
                    namespace: key.namespace.clone(),
                    name: key.name.clone(),
                    cluster: row.into(),
                });
            }
            let spec = object.spec.as_ref().ok().filter(|_| self.may_show(object, cluster))?;
            let grant = self.state.rules.tenancy.grant(&key.namespace, &spec.package);
            let target = self.sources(&grant).see(cluster, &spec.package, stale_after(spec));
            let detail = self.with_wanted(object, spec, |wanted| detail(&target, wanted))??;
            Some(PackageDetail { namespace: key.namespace.clone(), name: key.name.clone(), cluster: detail })
        };
        keys.iter().filter_map(look).collect()
    }
}
