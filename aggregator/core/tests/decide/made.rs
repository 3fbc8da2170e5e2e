//! Specs and observations for tests.

use std::sync::LazyLock;

use statusbridge_api::common::{Amount, ClusterSet};
use statusbridge_api::fleet_package::{Detail, FleetPackageSpec};
use statusbridge_api::package_ref::PackageRef;
use statusbridge_api::rollout_gate::{FleetPackageRef, GateTerms, RolloutGateSpec};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_core::decide::dependencies::Dependencies;
use statusbridge_core::decide::excused::Excused;
use statusbridge_core::decide::fleet_package::{self, Wanted};
use statusbridge_core::decide::hold::{Approvals, Freezes};
use statusbridge_core::decide::rollout_gate::{Input, PackageSpec};
use statusbridge_core::decide::{Backend, Membership, Moment, Target};
use statusbridge_core::fleet::observation::{Observation, Row, Standing, reason};

/// When all of these tests take place.
pub const T: f64 = 1_800_000_000.0;
pub const NOW: Moment = Moment { t: T, now: T + 5.0 };
pub const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
pub const R2: &str = "main@sha1:2222222222222222222222222222222222222222";
pub const R3: &str = "main@sha1:3333333333333333333333333333333333333333";

pub fn package() -> FleetPackageSpec {
    FleetPackageSpec {
        package: PackageRef {
            source: "flux-kustomization".into(),
            namespace: Some("flux-system".into()),
            name: "payments".into(),
        },
        revision: Some(R2.into()),
        revision_from: None,
        trace: Vec::new(),
        clusters: ClusterSet::any_reporting(),
        excused: Vec::new(),
        min_observed: None,
        stale_after: "3m".into(),
        detail: Detail::Problems,
        managed_by: None,
    }
}

pub fn gate() -> RolloutGateSpec {
    RolloutGateSpec {
        fleet_package_ref: FleetPackageRef { name: "payments".into() },
        revision: R2.into(),
        clusters: ClusterSet::any_reporting(),
        terms: GateTerms::default(),
        depends_on: Vec::new(),
        override_: None,
    }
}

static NO_DEPENDENCIES: LazyLock<Dependencies<'_>> = LazyLock::new(Dependencies::default);

/// All that a gate's status depends on, where nothing is out of the ordinary and it was never judged before.
pub fn asked<'a>(
    spec: &'a RolloutGateSpec,
    package: &'a FleetPackageSpec,
    targets: &'a [Target],
    excused: &'a Excused<'a>,
) -> Input<'a> {
    Input {
        spec: Ok(spec),
        generation: 1,
        previous: None,
        package: PackageSpec::Found(package),
        targets,
        excused,
        membership: &Membership::Known,
        selected: None,
        unheard: None,
        artifact: Ok(Fingerprint::of(&spec.revision)),
        stages: &[],
        seen_anywhere: &|| true,
        dependencies: &NO_DEPENDENCIES,
        checks: &[],
        freezes: Freezes::default(),
        approvals: Approvals::default(),
        backend: Backend::Answers,
        moment: NOW,
    }
}

/// All that a FleetPackage's status depends on, where nothing is out of the ordinary and it was never judged before.
pub fn reported<'a>(
    spec: &'a FleetPackageSpec,
    targets: &'a [Target],
    excused: &'a Excused<'a>,
) -> fleet_package::Input<'a> {
    fleet_package::Input {
        spec: Ok(spec),
        generation: 1,
        previous: None,
        wanted: Wanted::literal(spec),
        stages: &[],
        rarely_scraped: None,
        targets,
        excused,
        membership: &Membership::Known,
        backend: Backend::Answers,
        moment: NOW,
    }
}

pub fn percent(text: &str) -> Option<Amount> {
    Some(Amount::Percent(text.into()))
}

pub fn count(count: i64) -> Option<Amount> {
    Some(Amount::Count(count))
}

/// Applied and healthy at a revision for an hour.
pub fn healthy(revision: &str) -> Row {
    let revision = Fingerprint::of(revision);
    Row {
        apply: ApplyState::Applied,
        health: Health::Current,
        desired: revision,
        applied: revision,
        healthy: revision,
        reason: None,
        since: T - 3600.0,
        previously_applied: Fingerprint::NONE,
    }
}

/// Told to run `to`, still applied at `from`.
pub fn moving(from: &str, to: &str) -> Row {
    Row {
        apply: ApplyState::Applying,
        health: Health::Current,
        desired: Fingerprint::of(to),
        healthy: Fingerprint::NONE,
        ..healthy(from)
    }
}

/// Applied at a revision, with this health.
pub fn applied(revision: &str, health: Health) -> Row {
    Row { health, healthy: Fingerprint::NONE, reason: Some("NotReady".into()), ..healthy(revision) }
}

/// Failed to apply a revision; the one before is still there.
pub fn failed(from: &str, to: &str) -> Row {
    Row { apply: ApplyState::Failed, reason: Some("BuildFailed".into()), ..moving(from, to) }
}

pub fn fresh(row: Row) -> Observation {
    Observation {
        standing: Standing::Fresh,
        as_of: Some(T - 10.0),
        row: Some(row),
        reason: reason::REPORTED,
        message: String::new(),
        told_by: None,
    }
}

/// Not to be relied upon, whatever the row.
pub fn unobserved(standing: Standing, row: Option<Row>) -> Observation {
    let (reason, as_of) = match standing {
        Standing::Fresh => (reason::REPORTED, None),
        Standing::Stale => (reason::EXPORTER_SILENT, Some(T - 600.0)),
        Standing::Missing => (reason::CLUSTER_NOT_FOUND, None),
        Standing::Unverified => (reason::UNVERIFIED, Some(T - 600.0)),
        Standing::Conflict => (reason::CLUSTER_NAME_CONFLICT, Some(T - 10.0)),
        Standing::ClockSkew => (reason::CLOCK_SKEW, Some(T - 10.0)),
    };
    Observation { standing, as_of, row, reason, message: "said the fleet".into(), told_by: None }
}

/// `c00`, `c01`, … with these observations.
pub fn targets(observations: impl IntoIterator<Item = Observation>) -> Vec<Target> {
    observations
        .into_iter()
        .enumerate()
        .map(|(at, observation)| Target { cluster: format!("c{at:02}"), observation })
        .collect()
}
