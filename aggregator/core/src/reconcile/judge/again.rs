//! Judging again: whether what an object was judged to be still stands, see [`VerdictCache`](crate::reconcile::verdict_cache::VerdictCache).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use statusbridge_api::FleetPackageSpec;

use super::{World, stale_after};
use crate::decide::hold::Knowledge;
use crate::decide::{Backend, Evidence, Membership, Target, fleet_package, worth_writing};
use crate::fleet;
use crate::reconcile::object::{GateObject, Key, Kind, Object, PackageObject};
use crate::reconcile::references::Resolution;
use crate::reconcile::tenancy::Grant;
use crate::reconcile::verdict_cache::{Basis, Decided, Found, Question, Still};
use crate::time::Seconds;

impl World<'_> {
    /// What a verdict rests on besides the object, the fleet and the time; None when it cannot be told later
    /// whether it still stands.
    fn basis(&self, kind: Kind, key: &Key, terms: u64, package: &FleetPackageSpec) -> Option<Basis> {
        let answers = self.state.feeds.backend() == Backend::Answers && self.state.feeds.unheard().is_none();
        let is_sure = !self.state.unconfirmed.contains(&(kind, key.clone()));
        // Stages are other packages, in other clusters.
        let is_plain = package.trace.is_empty() && package.managed_by.is_none();
        let revision =
            package.revision_from.as_ref().map(|from| self.state.references.resolution(key, from).clone());
        (answers && is_sure && is_plain).then(|| Basis {
            terms,
            dependencies: Vec::new(),
            cycle: None,
            revision,
            freezes: 0,
            approvals: (None, false, false),
            profiles: self.state.profiles.revision(),
            settle: fleet_package::least_stale_after(0.0, self.moment.now - self.moment.t) as i64,
        })
    }

    /// The basis of a FleetPackage's verdict.
    pub(in crate::reconcile) fn basis_of_package<'o>(
        &self,
        object: &'o PackageObject,
    ) -> Option<(Basis, &'o FleetPackageSpec)> {
        let spec = object.spec.as_deref().ok()?;
        let basis = self.basis(Kind::FleetPackage, &object.key, object.terms, spec)?;
        let is_pending = basis.revision == Some(Resolution::Pending);
        let selects = self.state.profiles.choose(spec, &spec.clusters);
        (!is_pending && self.knows(selects)).then_some((basis, spec))
    }

    /// The basis of a gate's verdict, and the spec of its FleetPackage.
    pub(in crate::reconcile) fn basis_of_gate(
        &self,
        object: &GateObject,
    ) -> Option<(Basis, &FleetPackageSpec)> {
        let gate = object.spec.as_deref().ok()?;
        let package = self.package_of(object)?;
        let spec = package.spec.as_deref().ok()?;
        // What the backend says to checks is other at every poll.
        let selects = self.state.profiles.choose(spec, &gate.clusters);
        if !gate.terms.checks.is_empty() || !self.knows(selects) {
            return None;
        }
        let basis = self.basis(Kind::RolloutGate, &object.key, package.terms, spec)?;
        let dependencies = self.dependencies(object);
        let standings = dependencies.gates.iter().map(|(_, standing)| *standing).collect();
        let (freezes, revision) = self.state.holds.freezes(&object.key.namespace);
        let approvals = self.approvals(object);
        // How long a doubt lasts decides, too.
        let is_unsure = |it| matches!(it, Knowledge::Unsure { .. });
        if is_unsure(freezes.knowledge) || is_unsure(approvals.knowledge) {
            return None;
        }
        let basis = Basis {
            dependencies: standings,
            cycle: dependencies.cycle,
            // A gate names its revision itself.
            revision: None,
            freezes: revision,
            approvals: (
                approvals.valid.cloned(),
                approvals.others,
                approvals.knowledge == Knowledge::NotServed,
            ),
            ..basis
        };
        Some((basis, spec))
    }

    /// Whether it does not depend on the time which clusters are meant, where ClusterProfiles select or excuse them.
    fn knows(&self, selects: bool) -> bool {
        !selects || self.state.profiles.membership() == Membership::Known
    }

    fn ask_about<S, T, R>(
        &self,
        kind: Kind,
        object: &Object<S, T>,
        (basis, package): (&Basis, &FleetPackageSpec),
        ask: impl FnOnce(&Question<'_>) -> R,
    ) -> R {
        let stale_after = stale_after(package);
        // Most never have to look.
        let prepared = std::cell::OnceCell::<Grant<'_>>::new();
        let look = |cluster: &str| -> Target {
            let grant = prepared
                .get_or_init(|| self.state.rules.tenancy.grant(&object.key.namespace, &package.package));
            self.sources(grant).see(cluster, &package.package, stale_after)
        };
        ask(&Question {
            kind,
            key: &object.key,
            version: (&object.uid, &object.resource_version),
            basis,
            fleet: &self.state.fleet,
            look: &look,
            moment: self.moment,
        })
    }

    /// What has become of the verdict on an object.
    pub(in crate::reconcile) fn still<S, T>(
        &self,
        kind: Kind,
        object: &Object<S, T>,
        basis: (&Basis, &FleetPackageSpec),
        as_of: Option<&Time>,
    ) -> Still {
        self.ask_about(kind, object, basis, |question| self.verdicts.ask(question, as_of))
    }

    /// What comes of the verdict on an object: the status that is worth a write, if one is. None when it has to be given
    /// anew.
    pub(super) fn again<S, T: Evidence>(
        &self,
        kind: Kind,
        object: &Object<S, T>,
        basis: Option<(&Basis, &FleetPackageSpec)>,
        as_of: Option<&Time>,
        of_this_kind: impl Fn(Decided) -> Option<T>,
    ) -> Option<Option<T>> {
        let basis = basis?;
        match self.still(kind, object, basis, as_of) {
            Still::Stands => Some(None),
            Still::Refreshed(at) => {
                let mut status = object.status.clone()?;
                *status.as_of() = Some(at);
                Some(Some(status))
            }
            Still::Due(decided) => {
                let mut status = of_this_kind(decided)?;
                *status.epoch() = Some(self.state.epoch);
                // Its evidence may be as old again as the hub says.
                let worth = worth_writing(object.status.as_ref(), &status, stale_after(basis.1));
                Some(worth.then_some(status))
            }
            Still::Unknown => None,
        }
    }

    /// Keeps a verdict that was just given; without a basis none is kept.
    pub(in crate::reconcile) fn keep<S, T>(
        &self,
        kind: Kind,
        object: &Object<S, T>,
        basis: Option<(&Basis, &FleetPackageSpec)>,
        found: Found<'_>,
    ) {
        match basis {
            Some(basis) => {
                self.ask_about(kind, object, basis, |question| self.verdicts.note(question, found))
            }
            None => self.verdicts.forget(kind, &object.key),
        }
    }
}

/// The key by which the fleet knows a package.
pub(in crate::reconcile) fn fleet_key(package: &FleetPackageSpec) -> String {
    fleet::key(&package.package)
}

/// A time that never comes.
pub(in crate::reconcile) const NEVER: Seconds = Seconds::INFINITY;
