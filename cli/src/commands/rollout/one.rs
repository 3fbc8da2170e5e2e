//! One FleetRollout with its package and its gates, kept up to date.

use anyhow::{Result, anyhow};
use kube::runtime::watcher::Config;
use statusbridge_api::fleet_package::Problem;
use statusbridge_api::fleet_rollout_slice::FLEET_ROLLOUT_LABEL;
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::object::{GateObject, Key, Kind, PackageObject, RolloutObject};
use statusbridge_core::reconcile::owned::label;

use crate::exit::Exit;
use crate::hub::Hub;
use crate::rollout::{Rollout, Wave, is_its};
use crate::watched::{Objects, Watched};

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

    /// The gate of a wave, for the revision that is rolled out.
    ///
    /// # Errors
    /// When the wave has not started, or its gate is for another revision or not this FleetRollout's.
    pub(super) fn gate(&self, rollout: &Rollout, wave: &Wave) -> Result<&GateObject> {
        gate(&self.watched.objects, self.object()?, rollout, wave)
    }
}

/// A wave by its name.
///
/// # Errors
/// When there is none.
pub(super) fn wave<'r>(rollout: &'r Rollout, name: &str) -> Result<&'r Wave> {
    rollout.waves.iter().find(|wave| wave.status.name == name).ok_or_else(|| {
        let names: Vec<&str> = rollout.waves.iter().map(|wave| wave.status.name.as_str()).collect();
        let all = if names.is_empty() { "none was judged yet".to_owned() } else { names.join(", ") };
        Exit::NotFound.error(format!("rollout/{} has no wave {name:?}: {all}", rollout.name))
    })
}

fn gate<'o>(
    objects: &'o Objects,
    object: &RolloutObject,
    rollout: &Rollout,
    wave: &Wave,
) -> Result<&'o GateObject> {
    let name = wave.status.gate.as_ref();
    let name =
        name.ok_or_else(|| anyhow!("wave {} has not started: it has no gate yet", wave.status.name))?;
    let gate = objects.gates.get(&object.key.beside(name)).filter(|gate| is_its(gate, object));
    let gate = gate.ok_or_else(|| anyhow!("there is no rolloutgate/{name} of rollout/{}", rollout.name))?;
    let spec = gate.spec.as_ref().map_err(|error| anyhow!("rolloutgate/{name}: {error}"))?;
    let wanted = rollout.revision.as_deref().unwrap_or_default();
    if Fingerprint::of(&spec.revision) != Fingerprint::of(wanted) {
        let own = &spec.revision;
        let message =
            format!("rolloutgate/{name} is for revision {own}, and rollout/{} at {wanted}", rollout.name);
        return Err(Exit::OtherRevision.error(message));
    }
    Ok(gate)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::example;

    /// Place of the gate of the wave `half` among the objects.
    const HALF: usize = 4;

    #[rstest]
    #[case::its_gate(|_: &mut Value| {}, "half", Ok("payments-half"))]
    #[case::of_another_revision(
        |gate: &mut Value| gate["spec"]["revision"] = json!("v1"), "half",
        Err("rolloutgate/payments-half is for revision v1, and rollout/payments at main@sha1:2222222222222222222222222222222222222222")
    )]
    #[case::of_somebody_else(
        |gate: &mut Value| gate["metadata"]["ownerReferences"][0]["uid"] = json!("another"), "half",
        Err("there is no rolloutgate/payments-half of rollout/payments")
    )]
    #[case::not_started(|_: &mut Value| {}, "rest", Err("wave rest has not started: it has no gate yet"))]
    #[case::not_there(
        |_: &mut Value| {}, "all", Err("rollout/payments has no wave \"all\": canary, staging, half, rest")
    )]
    fn gates_of_waves(
        #[case] change: fn(&mut Value),
        #[case] name: &str,
        #[case] expected: Result<&str, &str>,
    ) {
        let mut sent = example::all();
        change(&mut sent[HALF]);
        let objects = example::objects(&sent);
        let (object, rollout) = (objects.rollouts.iter().next().unwrap(), example::read(&objects));
        let found = wave(&rollout, name).and_then(|wave| gate(&objects, object, &rollout, wave));
        let found = found.map(|gate| gate.key.name.clone()).map_err(|error| error.to_string());
        assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned));
    }
}
