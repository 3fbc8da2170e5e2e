//! The packages that clusters report, whether or not a FleetPackage is about them.

use statusbridge_api::FleetPackageSpec;
use statusbridge_api::common::ClusterSet;

use super::judge::World;
use super::object::{Key, Object, PackageObject};

impl World<'_> {
    /// Each package that any cluster reports, as a FleetPackage for all of them would show it. Evidence older than
    /// `stale_after` (`3m`) does not count.
    pub fn reported(&self, stale_after: &str) -> Vec<PackageObject> {
        let packages = self.state.fleet.packages(|_| |_: &str| true);
        let report = |package: statusbridge_api::PackageRef| {
            let key = Key {
                namespace: package.namespace.clone().unwrap_or_default(),
                name: format!("{}/{}", package.source, package.name),
            };
            let spec = FleetPackageSpec::of(package, ClusterSet::any_reporting(), stale_after);
            let mut object = Object::made_up(key, spec);
            object.status = self.package(&object);
            object
        };
        packages.into_iter().map(report).collect()
    }
}
