//! Whatever carries an exposition to a backend, it adds up there: by the configurations that are shipped.

use crate::e2e::reader::Reader;
use crate::e2e::world::*;
use anyhow::Result;
use kube::api::DeleteParams;
use statusbridge_aggregator::feed::promql::Flavour;
use statusbridge_tests::*;

/// A package that is there for good and one that failed, so that there is a reason.
async fn cluster(rig: &Rig, etcd: &Etcd) -> Result<Workload> {
    let cluster = Workload::start(rig, etcd, "c1", &[]).await?;
    cluster.deliver(APP, &revision(1)).await?;
    cluster.deliver("other", &revision(1)).await?;
    cluster.fail("other", &revision(2), "health check failed").await?;
    Ok(cluster)
}

fn route(name: &str, cluster: &Workload, backend: &VictoriaMetrics) -> Route {
    Route {
        cluster: name.to_owned(),
        exporter: cluster.exporter.address(),
        write_url: backend.remote_write_url(),
    }
}

#[tokio::test]
async fn what_prometheus_and_vmagent_write_adds_up() {
    run("e2e-pipelines", async |rig| {
        let (etcd, backend) = (Etcd::start(rig).await?, VictoriaMetrics::start(rig).await?);
        let cluster = cluster(rig, &etcd).await?;
        let _pipelines = [
            Pipeline::prometheus(rig, &route("prometheus", &cluster, &backend)).await?,
            Pipeline::vmagent(rig, &route("vmagent", &cluster, &backend)).await?,
        ];
        let mut reader = Reader::behind(backend.url(), Flavour::VictoriaMetrics)?;
        let both = ["prometheus", "vmagent"];
        reader.sees((2, 0), "other", &both).await?;
        // What is gone is gone: by stale markers, or by being read again as it was stamped.
        cluster.kustomizations().delete("other", &DeleteParams::default()).await?;
        reader.sees((2, 0), "other", &[]).await?;
        reader.sees((2, 0), APP, &both).await.map(drop)
    })
    .await;
}

#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn what_the_opentelemetry_collector_writes_adds_up_unless_it_changes_names() {
    run("e2e-collector", async |rig| {
        let (etcd, backend) = (Etcd::start(rig).await?, VictoriaMetrics::start(rig).await?);
        let cluster = cluster(rig, &etcd).await?;
        let start = |name: &str, more: &[(&str, &str)]| {
            Pipeline::collector(rig, &route(name, &cluster, &backend), more)
        };
        // As shipped, and with what other people's configurations are likely to have.
        let _good = [
            start("collector", &[])?,
            start(
                "usual",
                &[
                    (
                        "    target_info: {enabled: false}",
                        "    resource_to_telemetry_conversion: {enabled: true}",
                    ),
                    ("    disable_scope_info: true", "    add_metric_suffixes: false"),
                ],
            )?,
        ];
        let mut reader = Reader::behind(backend.url(), Flavour::VictoriaMetrics)?;
        let both = ["collector", "usual"];
        reader.sees((2, 0), "other", &both).await?;
        cluster.kustomizations().delete("other", &DeleteParams::default()).await?;
        reader.sees((2, 0), "other", &[]).await?;

        // No name ends in what is trimmed; one that is prefixed is nobody's.
        let trim = ("  prometheus:\n", "  prometheus:\n    trim_metric_suffixes: true\n");
        let no_suffix = ("    disable_scope_info: true", "    add_metric_suffixes: false");
        let prefix = ("    disable_scope_info: true", "    namespace: otel");
        let _more = [start("trimmed", &[trim, no_suffix])?, start("prefixed", &[prefix])?];
        reader.sees((3, 0), APP, &["collector", "trimmed", "usual"]).await?;
        Ok(())
    })
    .await;
}
