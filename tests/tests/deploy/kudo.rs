//! The policy for KUDO: no change of an Instance's spec while a plan is in progress.

use super::*;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use statusbridge_tests::{Etcd, SOON, eventually, run};

const PLAN: &str = "6f5b0a52-0d6e-4a3c-8e2f-2f2f3b3c4d5e";
const NEXT_PLAN: &str = "c326b250-cabd-4b28-a1f8-c1b1f460a267";

struct Kudo {
    instances: Api<DynamicObject>,
    /// KUDO's own controller.
    manager: Api<DynamicObject>,
}

impl Kudo {
    async fn merge(api: &Api<DynamicObject>, patch: Value) -> Result<()> {
        Ok(api.patch("kafka", &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)?)
    }

    async fn count(&self, count: &str) -> Result<()> {
        Self::merge(&self.instances, json!({"spec": {"parameters": {"COUNT": count}}})).await
    }

    /// What KUDO writes: the plan that is scheduled, and how plans are.
    async fn plan(&self, scheduled: Value, plans: Value) -> Result<()> {
        Self::merge(&self.manager, json!({"spec": {"planExecution": scheduled}})).await?;
        let status = Patch::Merge(json!({"status": {"planStatus": plans}}));
        self.manager.patch_status("kafka", &PatchParams::default(), &status).await?;
        Ok(())
    }
}

fn is_refused(change: Result<()>, plan: &str, run: &str) -> Result<()> {
    let refusal = change.err().context("the change was accepted")?.to_string();
    let text =
        format!("plan {plan} is in progress: the spec of this Instance can be changed when it has ended");
    ensure!(refusal.contains(&text), "{refusal}");
    ensure!(refusal.contains(&format!("statusbridge.dev/break-glass={run}")), "{refusal}");
    Ok(())
}

#[tokio::test]
async fn nobody_changes_an_instance_while_a_plan_is_in_progress() {
    run("deploy-kudo", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "cluster").await?;
        api.install_crds(&crds::kudo()?).await?;
        api.apply(&std::fs::read_to_string(repository("deploy/policies/kudo-plan-in-progress.yaml"))?)
            .await?;
        // Rights that KUDO has: it runs as an administrator.
        let manager = api.kubeconfig_of_service_account("kudo-system", "kudo-manager").await?;
        let group = "rbac.authorization.k8s.io";
        api.apply_object(&json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "kudo"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "kudo-manager", "namespace": "kudo-system"}],
        }))
        .await?;
        let kind = GroupVersionKind::gvk("kudo.dev", "v1beta1", "Instance");
        let (resource, _) = kube::discovery::pinned_kind(&api.client(), &kind).await?;
        let manager = kube::config::Kubeconfig::read_from(&manager)?;
        let config = kube::Config::from_custom_kubeconfig(manager, &Default::default()).await?;
        let kudo = Kudo {
            instances: Api::namespaced_with(api.client(), "default", &resource),
            manager: Api::namespaced_with(kube::Client::try_from(config)?, "default", &resource),
        };
        let instance = json!({
            "apiVersion": "kudo.dev/v1beta1", "kind": "Instance",
            "metadata": {"name": "kafka", "namespace": "default"},
            "spec": {"operatorVersion": {"name": "kafka-1.0"}, "parameters": {"COUNT": "1"}},
        });
        api.apply_object(&instance).await?;

        // No status, then a plan that has ended: everything may change.
        kudo.count("2").await?;
        kudo.plan(
            Value::Null,
            json!({"deploy": {"status": "COMPLETE", "uid": PLAN}, "backup": {"status": "NEVER_RUN"}}),
        )
        .await?;
        kudo.count("3").await?;

        // Scheduled, while the status is still that of the last run. A policy counts from a moment after it was made.
        kudo.plan(
            json!({"planName": "deploy", "uid": PLAN}),
            json!({"deploy": {"status": "COMPLETE", "uid": "old"}}),
        )
        .await?;
        let mut count = 3;
        eventually(SOON, "the policy is in force", async || {
            count += 1;
            is_refused(kudo.count(&count.to_string()).await, "deploy", PLAN)
        })
        .await?;

        // Each state of a plan, also where nothing is scheduled any more.
        for (status, running) in [
            ("PENDING", true),
            ("IN_PROGRESS", true),
            ("ERROR", true),
            ("COMPLETE", false),
            ("FATAL_ERROR", false),
            ("NEVER_RUN", false),
        ] {
            kudo.plan(Value::Null, json!({"deploy": {"status": status, "uid": PLAN}})).await?;
            count += 1;
            let change = kudo.count(&count.to_string()).await;
            if running { is_refused(change, "deploy", PLAN) } else { change }.context(status)?;
        }

        // What is no change of the spec goes through, and so does what KUDO does itself.
        let running = json!({"deploy": {"status": "IN_PROGRESS", "uid": PLAN}});
        kudo.plan(json!({"planName": "deploy", "uid": PLAN}), running).await?;
        let label = |value: &str| json!({"metadata": {"labels": {"example.org/a": value}}});
        Kudo::merge(&kudo.instances, label("b")).await?;
        is_refused(
            Kudo::merge(&kudo.instances, json!({"spec": {"operatorVersion": {"name": "kafka-2.0"}}})).await,
            "deploy",
            PLAN,
        )?;
        is_refused(
            Kudo::merge(&kudo.instances, json!({"spec": {"planExecution": null}})).await,
            "deploy",
            PLAN,
        )?;
        Kudo::merge(&kudo.manager, json!({"spec": {"planExecution": {"status": "IN_PROGRESS"}}})).await?;

        // Breaking the glass names the run, and covers no other one.
        let break_glass =
            |run: &str| json!({"metadata": {"annotations": {"statusbridge.dev/break-glass": run}}});
        Kudo::merge(&kudo.instances, break_glass("yes")).await?;
        is_refused(kudo.count("100").await, "deploy", PLAN)?;
        Kudo::merge(&kudo.instances, break_glass(PLAN)).await?;
        kudo.count("101").await?;
        let next = json!({"deploy": {"status": "PENDING", "uid": NEXT_PLAN}});
        kudo.plan(json!({"planName": "deploy", "uid": NEXT_PLAN}), next).await?;
        is_refused(kudo.count("102").await, "deploy", NEXT_PLAN)?;
        // A run without a uid is named by its plan.
        kudo.plan(
            json!({"planName": "deploy", "uid": null}),
            json!({"deploy": {"status": "PENDING", "uid": null}}),
        )
        .await?;
        is_refused(kudo.count("102").await, "deploy", "deploy")?;

        // It may be deleted at any time.
        kudo.instances.delete("kafka", &Default::default()).await?;
        Ok(())
    })
    .await;
}
