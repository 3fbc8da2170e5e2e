//! What is to be written for a FleetRollout: gates of its waves, and rows of its record.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use statusbridge_api::fleet_rollout as api;
use statusbridge_api::fleet_rollout_slice::{AdmittedCluster, FLEET_ROLLOUT_LABEL, WAVE_LABEL};
use statusbridge_api::rollout_gate::{GateTerms, Override, OverrideState};
use statusbridge_api::window::Approval;
use statusbridge_api::{ClusterSet, RolloutGateSpec};
use statusbridge_contract::wanted;

use super::{Parts, gate_name};
use crate::decide::fleet_rollout::Step;
use crate::reconcile::object::{GateObject, HubObject, RolloutObject};
use crate::reconcile::owned::{Change, Content, label};

/// Makes of what was decided what is to be written.
pub(super) struct Changes<'a> {
    pub(super) object: &'a RolloutObject,
    pub(super) parts: &'a Parts<'a>,
    pub(super) plan: &'a [api::Wave],
    pub(super) now: Time,
}

impl Changes<'_> {
    /// Gates of waves that start, and of those whose terms are others now.
    pub(super) fn gates(&self, steps: &[Step<'_>]) -> Vec<Change> {
        let Ok(revision) = &self.parts.revision else { return Vec::new() };
        let others = self.plan.iter().filter_map(|wave| {
            let gate = self.parts.gates.get(wave.name.as_str())?;
            let known = gate.spec.as_deref().ok()?;
            // At another revision it waits for its wave.
            let is_current = wanted::is_same(&known.revision, revision);
            (is_current && known.terms != terms_of(wave, known)).then(|| {
                let spec = RolloutGateSpec { terms: terms_of(wave, known), ..known.clone() };
                self.update(gate, known, wave, spec)
            })
        });
        let starts = steps.iter().filter_map(|step| match step {
            Step::Start(at, members) => {
                let wave = self.plan.get(*at)?;
                let spec = RolloutGateSpec {
                    fleet_package_ref: self.object.spec.as_deref().ok()?.fleet_package_ref.clone(),
                    revision: revision.clone(),
                    clusters: ClusterSet::named(
                        members.iter().map(|cluster| (*cluster).to_owned()).collect(),
                    ),
                    terms: wave.gate.clone(),
                    depends_on: Vec::new(),
                    override_: None,
                };
                // One that was not removed, as somebody holds it closed, goes on with that.
                let gate = self.parts.gates.get(wave.name.as_str());
                Some(match gate.and_then(|gate| Some((gate, gate.spec.as_deref().ok()?))) {
                    Some((gate, known)) => {
                        let closed = |it: &&Override| it.state == OverrideState::Closed;
                        let spec = RolloutGateSpec {
                            terms: terms_of(wave, known),
                            depends_on: known.depends_on.clone(),
                            override_: known.override_.as_ref().filter(closed).cloned(),
                            ..spec
                        };
                        self.update(gate, known, wave, spec)
                    }
                    None => {
                        let name = gate_name(&self.object.key.name, &wave.name);
                        Change::Create(name, self.content(wave, &json!({"spec": spec})))
                    }
                })
            }
            Step::Admit(..) => None,
        });
        others.chain(starts).collect()
    }

    fn update(
        &self,
        gate: &GateObject,
        known: &RolloutGateSpec,
        wave: &api::Wave,
        spec: RolloutGateSpec,
    ) -> Change {
        Change::Update(
            gate.version(),
            self.content(wave, &json!({"spec": merged(&json!(known), json!(spec))})),
        )
    }

    fn content(&self, wave: &api::Wave, fields: &Value) -> Content {
        let mut content = Content::of((FLEET_ROLLOUT_LABEL, label(&self.object.key.name)), fields);
        content.labels.insert(WAVE_LABEL.to_owned(), wave.name.clone());
        content
    }

    /// Rows of clusters that may have the revision from now on.
    pub(super) fn record(&self, steps: &[Step<'_>]) -> Vec<Change> {
        let (Ok(spec), Ok(revision), Ok(record)) =
            (&self.object.spec, &self.parts.revision, &self.parts.record)
        else {
            return Vec::new();
        };
        let row = |wave: &str, cluster: &str| AdmittedCluster {
            cluster_name: cluster.to_owned(),
            revision: revision.clone(),
            wave: wave.to_owned(),
            since: self.now.clone(),
        };
        let admitted = steps.iter().flat_map(|step| match step {
            Step::Admit(at, clusters) => {
                let wave = self.plan.get(*at).map(|wave| wave.name.as_str()).unwrap_or_default();
                clusters.iter().map(|cluster| row(wave, cluster)).collect::<Vec<_>>()
            }
            Step::Start(..) => Vec::new(),
        });
        record.add(&self.object.key, &spec.fleet_package_ref.name, admitted.collect())
    }
}

/// What a wave asks of its gate: its terms, and what the gate has of what keeps it closed, which only people take away.
fn terms_of(wave: &api::Wave, known: &RolloutGateSpec) -> GateTerms {
    let approval =
        if known.terms.approval == Approval::Required { Approval::Required } else { wave.gate.approval };
    GateTerms { paused: wave.gate.paused || known.terms.paused, approval, ..wave.gate.clone() }
}

/// What makes of one text of fields the other, by a merge patch: what `to` does not have is taken away.
fn merged(from: &Value, to: Value) -> Value {
    match (from, to) {
        (Value::Object(from), Value::Object(mut to)) => {
            for (field, before) in from {
                let after = to.remove(field).map_or(Value::Null, |after| merged(before, after));
                to.insert(field.clone(), after);
            }
            Value::Object(to)
        }
        (_, to) => to,
    }
}
