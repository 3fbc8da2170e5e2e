//! Who may loosen the plan of a FleetRollout: the two policies that ship for them, tried by people with different rights.

use super::*;

/// A right that a change may take, beside the one to write FleetRollouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Override,
    Approve,
}
use Verb::{Approve, Override};

impl Verb {
    /// What is told to whoever lacks it.
    fn refusal(self) -> &'static str {
        match self {
            Override => {
                "needs the verb override on rolloutgates.statusbridge.dev in the FleetRollout's namespace"
            }
            Approve => "needs the verb approve on rolloutgates.statusbridge.dev in its namespace",
        }
    }
}

const PEOPLE: [(&str, &[&str], &[Verb]); 4] = [
    ("editor", &["statusbridge-editor"], &[]),
    ("opener", &["statusbridge-editor", "statusbridge-override"], &[Override]),
    ("approver", &["statusbridge-editor", "statusbridge-approve"], &[Approve]),
    (
        "releaser",
        &["statusbridge-editor", "statusbridge-override", "statusbridge-approve"],
        &[Override, Approve],
    ),
];

fn wave(name: &str, gate: Value) -> Value {
    json!({"name": name, "clusters": {"percentage": "50%"}, "gate": gate})
}

/// One wave with its gate, before one without terms.
fn first(gate: Value) -> Value {
    json!([wave("one", gate), wave("rest", json!({}))])
}

fn rollout(name: &str, waves: Value) -> Value {
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetRollout",
        "metadata": {"name": name, "namespace": FLEET},
        "spec": {"fleetPackageRef": {"name": "app"}, "revision": "v1", "waves": waves},
    })
}

/// The FleetRollouts that are there, with their waves, and what deleting each takes.
fn rollouts() -> [(&'static str, Value, &'static [Verb]); 3] {
    [
        ("plain", first(json!({})), &[]),
        ("loose", first(json!({"minHealthy": 1, "maxFailures": "10%"})), &[]),
        ("asks", first(json!({"approval": "Required"})), &[Approve]),
    ]
}

/// Changes of these, and what each takes.
fn changes() -> Vec<(&'static str, Value, &'static [Verb])> {
    let waves = |waves: Value| json!({"waves": waves});
    let one = |gate: Value| waves(first(gate));
    let with_one_before =
        |gate: Value| waves(json!([wave("zero", json!({})), wave("one", gate), wave("rest", json!({}))]));
    let loose = || json!({"minHealthy": 1, "maxFailures": "10%"});
    let asks = || json!({"approval": "Required"});
    let other = json!({
        "revision": "v2", "paused": true, "windows": [{"schedule": "0 9 * * *", "duration": "8h"}],
    });
    vec![
        ("plain", other.clone(), &[]),
        ("plain", one(json!({"minSuccessTime": "5m", "requireStage": "build"})), &[]),
        ("plain", with_one_before(json!({})), &[]),
        ("plain", one(asks()), &[]),
        ("plain", one(json!({"minHealthy": 1})), &[Override]),
        ("plain", one(json!({"maxFailures": "10%"})), &[Override]),
        ("loose", other.clone(), &[]),
        ("loose", one(loose()), &[]),
        ("loose", with_one_before(loose()), &[]),
        ("loose", one(json!({"minHealthy": 1, "maxFailures": "10%", "minSuccessTime": "5m"})), &[]),
        ("loose", one(json!({"minHealthy": 2, "maxFailures": "10%"})), &[Override]),
        ("loose", one(json!({"minHealthy": 1, "maxFailures": 10})), &[Override]),
        ("loose", one(json!({"minHealthy": 1})), &[Override]),
        ("loose", waves(json!([wave("rest", json!({}))])), &[Override]),
        ("loose", waves(json!([wave("one", json!({})), wave("rest", loose())])), &[Override]),
        ("asks", other, &[]),
        ("asks", one(asks()), &[]),
        ("asks", one(json!({"approval": "NotRequired"})), &[Approve]),
        ("asks", one(json!({})), &[Approve]),
        ("asks", with_one_before(asks()), &[Approve]),
        ("asks", waves(json!([wave("rest", json!({}))])), &[Approve]),
        ("asks", one(json!({"approval": "Required", "minSuccessTime": "5m"})), &[Approve]),
        ("asks", one(json!({"approval": "Required", "minHealthy": 1})), &[Override, Approve]),
    ]
}

/// New ones, in the same way.
fn creations() -> [(Value, &'static [Verb]); 5] {
    [
        (json!({}), &[]),
        (json!({"approval": "Required"}), &[]),
        (json!({"minHealthy": "100%"}), &[Override]),
        (json!({"maxFailures": 0}), &[Override]),
        (json!({"approval": "Required", "maxFailures": 1}), &[Override]),
    ]
}

/// Whether what somebody with these rights tried ended as it had to.
fn ended(tried: Result<()>, takes: &[Verb], has: &[Verb]) -> Result<()> {
    let lacks: Vec<Verb> = takes.iter().copied().filter(|verb| !has.contains(verb)).collect();
    if lacks.is_empty() {
        return tried.context("it was refused");
    }
    let said = tried.err().with_context(|| format!("it was accepted without {lacks:?}"))?.to_string();
    ensure!(lacks.iter().any(|verb| said.contains(verb.refusal())), "without {lacks:?} it says: {said}");
    Ok(())
}

#[tokio::test]
async fn who_may_loosen_the_plan_of_a_rollout() {
    run("deploy-by-hand-rollouts", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        api.install_crds(&crds::own()?).await?;
        api.ensure_namespace(FLEET).await?;
        let chart = Chart::Aggregator.render(NAMESPACE, &[]).await?;
        for role in of_kind(&chart, "ClusterRole") {
            api.apply_object(role).await?;
        }
        for (name, waves, _) in rollouts() {
            api.apply_object(&rollout(name, waves)).await?;
        }
        for policy in ["fleetrollout-override", "fleetrollout-approval"] {
            for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
                api.apply_object(the(&chart, kind, &format!("{policy}.statusbridge.dev"))?).await?;
            }
        }
        let (resource, _) = kube::discovery::pinned_kind(&api.client(), &hub::kind("FleetRollout")).await?;
        let mut people = Vec::new();
        for (name, roles, has) in PEOPLE {
            let roles: Vec<_> = roles.iter().map(|role| ("ClusterRole", *role)).collect();
            let client = person(&api, name, Opens::Nothing, &roles).await?.client;
            people.push((name, Api::<DynamicObject>::namespaced_with(client, FLEET, &resource), has));
        }
        let change = async |api: &Api<DynamicObject>, name: &str, spec: &Value| {
            done(api.patch(name, &dry_patch(), &Patch::Merge(json!({"spec": spec}))).await)
        };
        let delete = async |api: &Api<DynamicObject>, name: &str| done(api.delete(name, &dry_delete()).await);

        // Roles and policies count from a moment after they were made.
        eventually(SOON, "roles and policies are in force", async || {
            for (_, api, has) in &people {
                let loosened = json!({"waves": first(json!({"minHealthy": 1}))});
                ended(change(api, "plain", &loosened).await, &[Override], has)?;
                ended(delete(api, "asks").await, &[Approve], has)?;
            }
            Ok(())
        })
        .await?;
        let mut wrong = Vec::new();
        let mut note = |what: String, result: Result<()>| {
            wrong.extend(result.err().map(|error| format!("{what}: {error:#}")));
        };
        for (who, api, has) in &people {
            for (name, spec, takes) in changes() {
                let result = ended(change(api, name, &spec).await, takes, has);
                note(format!("{who} changes {name} by {spec}"), result);
            }
            for (gate, takes) in creations() {
                let params = PostParams { dry_run: true, ..PostParams::default() };
                let new = serde_json::from_value(rollout("fresh", first(gate.clone())))?;
                let result = ended(done(api.create(&params, &new).await), takes, has);
                note(format!("{who} creates one with {gate}"), result);
            }
            for (name, _, takes) in rollouts() {
                note(format!("{who} deletes {name}"), ended(delete(api, name).await, takes, has));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));

        // A namespace with one that asks for an approval can be removed.
        api.kubectl(&["delete", "namespace", FLEET, "--wait=false"]).await?;
        let (_, editors, _) = &people[0];
        eventually(SOON, "it goes with its namespace", async || delete(editors, "asks").await).await
    })
    .await;
}
