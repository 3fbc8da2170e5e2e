//! Puts together what a decision needs: the hub's objects, the fleet, the backend, the time.

use statusbridge_contract::Fingerprint;

use crate::api::common::{self, ClusterSet};
use crate::api::{FleetPackageSpec, FleetPackageStatus, RolloutGateSpec, RolloutGateStatus};
use crate::clock::Seconds;
use crate::decide::rollout_gate::PackageSpec;
use crate::decide::{Backend, Moment, Target, fleet_package, rollout_gate, worth_writing};
use crate::fleet::{Fleet, PackageId};
use crate::store::{Object, Store};

/// A FleetPackage of the hub.
pub type PackageObject = Object<FleetPackageSpec, FleetPackageStatus>;
/// A RolloutGate of the hub.
pub type GateObject = Object<RolloutGateSpec, RolloutGateStatus>;
/// All FleetPackages.
pub type Packages = Store<FleetPackageSpec, FleetPackageStatus>;
/// All RolloutGates.
pub type Gates = Store<RolloutGateSpec, RolloutGateStatus>;

/// All that is known at one moment.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// What the clusters report.
    pub fleet: &'a Fleet,
    /// The packages that gates refer to.
    pub packages: &'a Packages,
    /// What the last poll came to.
    pub backend: Backend<'a>,
    /// When.
    pub moment: Moment,
}

impl World<'_> {
    /// The status that a FleetPackage should get, if it is worth a write.
    pub fn package(&self, object: &PackageObject) -> Option<FleetPackageStatus> {
        let spec = object.spec.as_ref();
        if spec.is_ok_and(|spec| spec.managed_by.is_some()) {
            return None;
        }
        let targets = spec.map(|spec| self.targets(spec, &spec.clusters)).unwrap_or_default();
        let status = fleet_package::decide(&fleet_package::Input {
            spec: spec.map_err(String::as_str),
            generation: object.generation,
            previous: object.status.as_ref(),
            targets: &targets,
            backend: self.backend,
            moment: self.moment,
        });
        let stale_after = spec.map_or(0.0, stale_after);
        worth_writing(object.status.as_ref(), &status, stale_after).then_some(status)
    }

    /// The status that a RolloutGate should get, if it is worth a write.
    pub fn gate(&self, object: &GateObject) -> Option<RolloutGateStatus> {
        let package = object
            .spec
            .as_ref()
            .ok()
            .and_then(|gate| self.packages.get(&object.key.beside(&gate.fleet_package_ref.name)));
        let (package, targets, seen_anywhere, stale_after) = match (package.map(|it| &it.spec), &object.spec)
        {
            (Some(Ok(package)), Ok(gate)) => {
                let id = PackageId::from(&package.package);
                let seen = self.fleet.seen_anywhere(&id, Fingerprint::of(&gate.revision));
                let targets = self.targets(package, &gate.clusters);
                (PackageSpec::Found(package), targets, seen, stale_after(package))
            }
            (Some(Err(error)), _) => (PackageSpec::Unreadable(error), Vec::new(), false, 0.0),
            _ => (PackageSpec::NotFound, Vec::new(), false, 0.0),
        };
        let status = rollout_gate::decide(&rollout_gate::Input {
            spec: object.spec.as_ref().map_err(String::as_str),
            generation: object.generation,
            previous: object.status.as_ref(),
            package,
            targets: &targets,
            seen_anywhere,
            backend: self.backend,
            moment: self.moment,
        });
        worth_writing(object.status.as_ref(), &status, stale_after).then_some(status)
    }

    /// The clusters that are meant, and what the fleet says of the package there.
    fn targets(&self, package: &FleetPackageSpec, clusters: &ClusterSet) -> Vec<Target> {
        let id = PackageId::from(&package.package);
        let names = match &clusters.names {
            Some(names) => names.clone(),
            None => self.fleet.reporting(&id),
        };
        let stale_after = stale_after(package);
        names
            .into_iter()
            .map(|cluster| {
                let observation = self.fleet.observe(&cluster, &id, self.moment.t, stale_after);
                Target { cluster, observation }
            })
            .collect()
    }
}

/// A duration that cannot be read makes everything stale; deciding says why.
fn stale_after(package: &FleetPackageSpec) -> Seconds {
    common::seconds(&package.stale_after).unwrap_or(0.0)
}
