//! What is known of single clusters: for people who ask about one package or one cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::Value;
use statusbridge_api::fleet_package_slice::ClusterRow;
use statusbridge_api::{FleetPackageSpec, FleetPackageStatus, Reason};

use super::judge::{Rows, World, stale_after};
use super::object::{Key, PackageObject};
use super::picture::metadata;
use super::written::wanted_revision;
use crate::decide::excused::Excused;
use crate::decide::fleet_package::Wanted;
use crate::decide::rows::Evident;
use crate::decide::{Target, rows, time};

/// Most points of a curve.
const POINTS: usize = 100;

/// One cluster of a package, and what its state rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterDetail {
    pub(super) row: ClusterRow,
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

/// A FleetPackage, and the clusters that were asked for.
#[derive(Debug, Serialize)]
pub struct FleetPackageDetail<'a> {
    metadata: Value,
    spec: Option<&'a FleetPackageSpec>,
    status: Option<&'a FleetPackageStatus>,
    #[serde(flatten)]
    clusters: Clusters,
}

/// Some clusters of a package, and what is known of all of them together.
#[derive(Debug, Default, Serialize)]
struct Clusters {
    wanted: Option<String>,
    adoption: Option<Adoption>,
    clusters: Vec<ClusterDetail>,
    /// There are more that were asked for.
    more: bool,
}

/// Which clusters of a package are asked for.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Those of this state.
    pub state: Option<String>,
    /// The one of this name.
    pub cluster: Option<String>,
    /// So many at most.
    pub limit: usize,
}

/// When clusters came to be healthy at a revision.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Adoption {
    revision: Option<String>,
    /// Since then so many clusters are healthy at it, and have been since.
    points: Vec<(Time, usize)>,
}

impl Filter {
    fn wants(&self, cluster: &str, state: &str) -> bool {
        self.cluster.as_ref().is_none_or(|name| name == cluster)
            && self.state.as_ref().is_none_or(|wanted| wanted == state)
    }

    /// What `tell` makes of the first of those that are wanted, and whether there are more.
    fn first<T>(
        &self,
        mut wanted: impl Iterator<Item = T>,
        tell: impl Fn(T) -> Option<ClusterDetail>,
    ) -> (Vec<ClusterDetail>, bool) {
        let told = wanted.by_ref().take(self.limit).filter_map(tell).collect();
        (told, wanted.next().is_some())
    }
}

impl From<Evident> for ClusterDetail {
    fn from(Evident { row, as_of }: Evident) -> Self {
        Self { row, as_of: as_of.map(time), message: String::new() }
    }
}

/// What is known of a cluster that is held to this revision.
pub(super) fn detail(target: &Target, wanted: Wanted<'_>, excused: Option<String>) -> Option<ClusterDetail> {
    let nobody = Excused::nobody();
    let mut evident = rows::rows(wanted, std::slice::from_ref(target), &nobody).pop()?;
    evident.row.excused = excused;
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
    /// A FleetPackage, and its clusters that are asked for; None where there is none.
    pub fn package_in_detail(&self, key: &Key, filter: &Filter) -> Option<FleetPackageDetail<'_>> {
        let object = self.state.packages.get(key)?;
        let told = if self.reads_the_hub_alone() {
            self.written(object).map_or(Rows::Unknown, |rows| {
                let wanted = rows.into_iter().filter(|it| filter.wants(&it.row.cluster_name, &it.row.state));
                let (clusters, more) = filter.first(wanted, |row| Some(row.into()));
                Rows::Known(Clusters { wanted: wanted_revision(object), adoption: None, clusters, more })
            })
        } else {
            self.each_cluster(object, |revision, targets, excused| {
                let state = |target: &Target| rows::state(target, revision).0.name();
                let excused = excused.targets().iter().map(|it| (&it.target, Some(&it.reason)));
                let all = targets.iter().map(|target| (target, None)).chain(excused);
                let wanted = all.filter(|(target, _)| filter.wants(&target.cluster, state(target)));
                let tell = |(target, why): (&Target, Option<&String>)| detail(target, revision, why.cloned());
                let (clusters, more) = filter.first(wanted, tell);
                let adoption = Some(adoption(revision, targets));
                Clusters { wanted: revision.text().map(str::to_owned), adoption, clusters, more }
            })
        };
        let clusters = match told {
            Rows::Known(clusters) => clusters,
            Rows::Unknown | Rows::NotOurs => Clusters::default(),
        };
        let (spec, status) = (object.spec.as_deref().ok(), object.status.as_ref());
        Some(FleetPackageDetail { metadata: metadata(object), spec, status, clusters })
    }

    /// What is known of these FleetPackages in one cluster, as far as their namespaces may see it.
    pub fn packages_in_cluster(&self, keys: &[Key], cluster: &str) -> Vec<PackageDetail> {
        let look = |key: &Key| {
            let cluster = self.cluster_of(self.state.packages.get(key)?, cluster)?;
            Some(PackageDetail { namespace: key.namespace.clone(), name: key.name.clone(), cluster })
        };
        keys.iter().filter_map(look).collect()
    }

    fn cluster_of(&self, object: &PackageObject, cluster: &str) -> Option<ClusterDetail> {
        if self.reads_the_hub_alone() {
            let mut rows = self.written(object)?.into_iter();
            return rows.find(|it| it.row.cluster_name == cluster).map(ClusterDetail::from);
        }
        let spec = object.spec.as_deref().ok().filter(|_| self.may_show(object, cluster))?;
        let grant = self.state.rules.tenancy.grant(&object.key.namespace, &spec.package);
        let target = self.sources(&grant).see(cluster, &spec.package, stale_after(spec));
        let excused = self.excuses(spec).reason(cluster);
        self.with_wanted(object, spec, |wanted| detail(&target, wanted, excused))?
    }
}
