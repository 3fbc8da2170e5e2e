//! Names may be any text.

use crate::e2e::world::*;
use anyhow::ensure;
use serde_json::{Value, json};
use statusbridge_tests::*;

#[tokio::test]
async fn names_of_any_kind_make_their_way_from_exporter_to_gate() {
    run("e2e-odd-names", async |rig| {
        let odd =
            "q\"uote b\\ack\\\\slash n\new\tline 🚀 ümläut {a=\"b\"} ,|.*+?^$()[] 'x' %s \\n `y` \u{fffd}";
        let long_name = format!("{odd}{}", "\\".repeat(400));
        let packages =
            [("odd", "ns", odd), ("odd-namespace", "n\"s\n\\🚀", "app"), ("long", "ns", long_name.as_str())];
        let long = "ö".repeat(253);
        let clusters = [odd, long.as_str(), "plain|plainer", "plain"];
        let fleet = FakeFleet::start().await?;
        for cluster in clusters {
            for (_, namespace, name) in packages {
                fleet.says_in(namespace, cluster, name, healthy_for(3600));
            }
        }
        fleet.says_in("failing", odd, odd, FakePackage::failed_at(&revision(1)));
        let prometheus = Backend::prometheus(rig, &fleet, &clusters).await?;
        let victoria_metrics = Backend::victoria_metrics(rig, &fleet, &clusters).await?;
        for backend in [prometheus, victoria_metrics] {
            let etcd = Etcd::start(rig).await?;
            let hub = Hub::start_with(rig, &etcd, backend.options()).await?;
            for (object, namespace, name) in packages.into_iter().chain([("failing", "failing", odd)]) {
                let package = json!({"source": fake_fleet::SOURCE, "namespace": namespace, "name": name});
                hub.report(object, "30s", json!({"package": package})).await?;
                for (soak, wave) in [("now", "0s"), ("soaked", "5m")] {
                    let spec = json!({"clusters": {"names": clusters}, "minSuccessTime": wave});
                    hub.gate(&format!("{object}-{soak}"), object, &revision(1), spec).await?;
                }
            }
            for (object, ..) in packages {
                for soak in ["now", "soaked"] {
                    let gate = hub.opens(&format!("{object}-{soak}"), SOON).await?;
                    ensure!(gate.data["status"]["healthy"] == "4/4", "{}", gate.data["status"]);
                }
                hub.reports(object, "Ready", "True", "HealthyAtOwnRevision", SOON).await?;
            }
            // What is wrong is told by the very name.
            hub.gate("one", "failing", &revision(1), json!({"clusters": {"names": [odd]}})).await?;
            let gate = hub.closes("one", "FailureBudgetExceeded", SOON).await?;
            ensure!(
                gate.data["status"]["waitingFor"][0]["clusters"] == json!([odd]),
                "{}",
                gate.data["status"]
            );
            let report = hub.reports("failing", "Ready", "False", "Failed", SOON).await?;
            let problem: &Value = &report.data["status"]["problems"][0];
            ensure!(problem["clusterName"] == odd, "{problem}");
        }
        Ok(())
    })
    .await;
}
