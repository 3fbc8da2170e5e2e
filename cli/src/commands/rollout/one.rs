//! One FleetRollout with its package and its gates, kept up to date.

use anyhow::{Result, anyhow};
use kube::runtime::watcher::Config;
use statusbridge_api::fleet_package::Problem;
use statusbridge_api::fleet_rollout_slice::FLEET_ROLLOUT_LABEL;
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::owned::label;
use statusbridge_core::reconcile::store::{GateObject, Key, Kind, PackageObject, RolloutObject};

use crate::exit::Exit;
use crate::hub::Hub;
use crate::rollout::{Rollout, Wave, is_its};
use crate::watched::Watched;

pub(super) struct One {
    pub(super) watched: Watched,
    key: Key,
}

/// That there is no such FleetRollout.
pub(super) fn not_found(key: &Key) -> anyhow::Error {
    Exit::NotFound.error(format!("there is no FleetRollout {:?} in namespace {}", key.name, key.namespace))
}

impl One {
    /// Lists what belongs to the FleetRollout of this name.
    ///
    /// # Errors
    /// When the hub cannot be asked.
    pub(super) async fn begin(hub: &Hub, name: &str) -> Result<Self> {
        let kinds = [
            (Kind::FleetRollout, Config::default().fields(&format!("metadata.name={name}"))),
            (Kind::FleetPackage, Config::default()),
            (Kind::RolloutGate, Config::default().labels(&format!("{FLEET_ROLLOUT_LABEL}={}", label(name)))),
        ];
        let watched = Watched::begin(hub, Some(&hub.namespace), kinds).await?;
        Ok(Self { watched, key: Key { namespace: hub.namespace.clone(), name: name.to_owned() } })
    }

    /// The FleetRollout.
    ///
    /// # Errors
    /// When there is none, or no longer.
    pub(super) fn object(&self) -> Result<&RolloutObject> {
        self.watched.objects.rollouts.get(&self.key).ok_or_else(|| not_found(&self.key))
    }

    fn package(&self) -> Option<&PackageObject> {
        let spec = self.watched.objects.rollouts.get(&self.key)?.spec.as_ref().ok()?;
        self.watched.objects.packages.get(&self.key.beside(&spec.fleet_package_ref.name))
    }

    /// What its FleetPackage names as problems.
    pub(super) fn problems(&self) -> &[Problem] {
        let status = self.package().and_then(|package| package.status.as_ref());
        status.map(|status| status.problems.as_slice()).unwrap_or_default()
    }

    /// What the FleetRollout tells now.
    ///
    /// # Errors
    /// When there is none, or no longer.
    pub(super) fn read(&self) -> Result<Rollout> {
        let gates = self.watched.objects.gates.within(&self.key.namespace);
        Ok(Rollout::of(self.object()?, self.package(), gates, self.watched.now()))
    }

    /// A wave by its name.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn wave<'r>(&self, rollout: &'r Rollout, name: &str) -> Result<&'r Wave> {
        rollout.waves.iter().find(|wave| wave.status.name == name).ok_or_else(|| {
            let names: Vec<&str> = rollout.waves.iter().map(|wave| wave.status.name.as_str()).collect();
            let all = if names.is_empty() { "none was judged yet".to_owned() } else { names.join(", ") };
            Exit::NotFound.error(format!("rollout/{} has no wave {name:?}: {all}", self.key.name))
        })
    }

    /// The gate of a wave, for the revision that is rolled out.
    ///
    /// # Errors
    /// When the wave has not started, or its gate is for another revision or not this FleetRollout's.
    pub(super) fn gate(&self, rollout: &Rollout, wave: &Wave) -> Result<&GateObject> {
        let name = wave.status.gate.as_ref();
        let name =
            name.ok_or_else(|| anyhow!("wave {} has not started: it has no gate yet", wave.status.name))?;
        let object = self.object()?;
        let gate = self.watched.objects.gates.get(&self.key.beside(name)).filter(|gate| is_its(gate, object));
        let gate =
            gate.ok_or_else(|| anyhow!("there is no rolloutgate/{name} of rollout/{}", self.key.name))?;
        let spec = gate.spec.as_ref().map_err(|error| anyhow!("rolloutgate/{name}: {error}"))?;
        let wanted = rollout.revision.as_deref().unwrap_or_default();
        if Fingerprint::of(&spec.revision) != Fingerprint::of(wanted) {
            let message = format!(
                "rolloutgate/{name} is for revision {}, and rollout/{} is at {wanted}",
                spec.revision, self.key.name
            );
            return Err(Exit::OtherRevision.error(message));
        }
        Ok(gate)
    }
}
