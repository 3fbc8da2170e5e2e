//! The exporter against real API servers: what only a real watch can show.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_contract::{Fingerprint, Health};
use statusbridge_exporter::source::{PRESETS, PackageKinds, Source};
use statusbridge_tests::{
    ApiServer, Etcd, Exporter, FLUX_NAMESPACE, Fault, FaultProxy, KptPackage, Rig, SOON, crds, eventually,
    program, put_inventory, run, workload::Workload,
};

/// The lines of an exposition that are about packages.
fn package_lines(text: &str) -> usize {
    text.lines().filter(|l| l.starts_with("statusbridge_package_healthy_revision{")).count()
}

/// Runs promtool on a text given as standard input and as the file `exposition` in its directory.
async fn promtool_accepts(rig: &Rig, args: &[&str], text: &str) -> Result<()> {
    let file = rig.dir().join("exposition");
    std::fs::write(&file, text)?;
    let out = tokio::process::Command::new(program("promtool")?)
        .args(args)
        .current_dir(rig.dir())
        .stdin(std::fs::File::open(&file)?)
        .output()
        .await?;
    ensure!(out.status.success(), "promtool: {}\n{text}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

/// OpenMetrics text with a timestamp on each sample, which promtool's only parser of it insists on.
fn with_timestamps(openmetrics: &str) -> String {
    openmetrics
        .lines()
        .map(|l| if l.starts_with('#') { format!("{l}\n") } else { format!("{l} 1700000000\n") })
        .collect()
}

#[tokio::test]
async fn both_formats_are_accepted_whole_and_compressed() {
    run("exporter-formats", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let cluster = Workload::start(rig, &etcd, "one", &[]).await?;
        cluster.deliver("payments", "r1").await?;
        eventually(SOON, "the package is shown", async || cluster.shows("payments").await).await?;
        let url = format!("http://{}/metrics", cluster.exporter.address());
        let client = reqwest::Client::builder().gzip(false).build()?;

        let text = client.get(&url).send().await?;
        ensure!(text.headers()["content-type"] == "text/plain; version=0.0.4; charset=utf-8");
        promtool_accepts(rig, &["check", "metrics"], &text.text().await?).await?;

        let open =
            client.get(&url).header("accept", "application/openmetrics-text; version=1.0.0").send().await?;
        ensure!(
            open.headers()["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        );
        let open = open.text().await?;
        ensure!(open.ends_with("# EOF\n") && open.matches("# EOF").count() == 1);
        let import = ["tsdb", "create-blocks-from", "openmetrics", "exposition", "blocks"];
        promtool_accepts(rig, &import, &with_timestamps(&open)).await?;
        let broken = with_timestamps(&open).replace("# EOF", "");
        ensure!(promtool_accepts(rig, &import, &broken).await.is_err(), "promtool takes anything");

        let packed = client.get(&url).header("accept-encoding", "gzip").send().await?;
        ensure!(packed.headers()["content-encoding"] == "gzip");
        let packed = packed.bytes().await?;
        let mut unpacked = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&*packed), &mut unpacked)?;
        ensure!(package_lines(&unpacked) == 1, "{unpacked}");
        Ok(())
    })
    .await;
}

/// Whether the kind of a source's packages is among these CRDs.
fn installed(source: &Source, crds: &[Value]) -> bool {
    // What is in the core group every API server has.
    if matches!(&source.kinds, PackageKinds::Listed(kinds) if kinds.iter().any(|kind| kind.group.is_empty()))
    {
        return true;
    }
    crds.iter().map(|crd| &crd["spec"]).any(|spec| match &source.kinds {
        PackageKinds::Listed(kinds) => {
            let served = spec["versions"].as_array().into_iter().flatten().filter(|v| v["served"] == true);
            let names: Vec<&str> = served.filter_map(|v| v["name"].as_str()).collect();
            kinds.iter().any(|kind| {
                spec["group"] == kind.group
                    && spec["names"]["kind"] == kind.kind
                    && kind.versions.iter().any(|version| names.contains(&version.as_str()))
            })
        }
        PackageKinds::Categories(names) => in_category(spec, names),
    })
}

fn in_category(spec: &Value, categories: &[String]) -> bool {
    let mut of = spec["names"]["categories"].as_array().into_iter().flatten();
    of.any(|category| categories.iter().any(|name| category == name))
}

/// Resources that a source finds by category among these CRDs, as `networks.example.org`: the names of CRDs.
fn found_by_category(source: &Source, crds: &[Value]) -> Vec<String> {
    let PackageKinds::Categories(names) = &source.kinds else { return vec![] };
    let found = crds.iter().filter(|crd| in_category(&crd["spec"], names));
    found.filter_map(|crd| crd["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn the_least_rights_that_rbac_prints_are_enough() {
    run("exporter-rbac", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let sources: Vec<Source> = PRESETS.iter().map(|p| p.source()).collect::<Result<_, _>>()?;
        let every = PRESETS.iter().map(|p| p.name).collect::<Vec<_>>().join(",");
        let mut seen_up = BTreeSet::new();
        for (number, crds) in crds::upstream()?.iter().enumerate() {
            let api = ApiServer::start(rig, &etcd, &format!("set-{number}")).await?;
            crds::install_definitions(&api, crds).await?;
            api.ensure_namespace(FLUX_NAMESPACE).await?;
            let by_category = sources.iter().flat_map(|source| found_by_category(source, crds));
            let by_category = by_category.collect::<Vec<_>>().join(",");
            let kubeconfig =
                Exporter::grant(&api, &["--presets", &every, "--resource", &by_category]).await?;
            let arguments = ["--presets", &every];
            let exporter =
                Exporter::start(rig, &format!("exporter-{number}"), &kubeconfig, &arguments).await?;
            let cluster = Workload::of(api, exporter).await?;
            cluster.deliver("payments", "r1").await?;
            let expected: Vec<&str> =
                sources.iter().filter(|s| installed(s, crds)).map(|s| s.name.as_str()).collect();
            eventually(SOON, "every source is up and the cluster's UID is known", async || {
                cluster.shows("payments").await?;
                let says = cluster.says().await?;
                ensure!(says.cluster_uid().is_some(), "no UID");
                for source in &expected {
                    ensure!(says.source_up(source) == Some(true), "{source} is not up");
                }
                Ok(())
            })
            .await?;
            nothing_is_forbidden(&cluster.exporter).await?;
            seen_up.extend(expected.into_iter().map(str::to_owned));
        }
        let all: BTreeSet<String> = sources.into_iter().map(|source| source.name).collect();
        ensure!(seen_up == all, "of {all:?} only {seen_up:?} were tried");
        Ok(())
    })
    .await;
}

async fn nothing_is_forbidden(exporter: &Exporter) -> Result<()> {
    let text = exporter.metrics().await?;
    let refused: Vec<&str> = text.lines().filter(|l| l.contains("cause=\"forbidden\"")).collect();
    ensure!(refused.is_empty(), "{refused:?}");
    Ok(())
}

/// What packages consist of more often than not, as they name it.
const USUAL_KINDS: &[(&str, &[&str])] = &[
    ("", &["ConfigMap", "Namespace", "PersistentVolumeClaim", "Pod", "Service", "ServiceAccount"]),
    ("admissionregistration.k8s.io", &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    ("apps", &["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("autoscaling", &["HorizontalPodAutoscaler"]),
    ("batch", &["CronJob", "Job"]),
    ("networking.k8s.io", &["Ingress", "NetworkPolicy"]),
    ("policy", &["PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
];

#[tokio::test]
async fn so_they_are_for_what_packages_usually_consist_of() {
    run("exporter-rbac-leaves", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        let _package = KptPackage::new(rig, &api, "web").await?;
        let presets = ["--presets", "kpt-resourcegroup"];
        let kubeconfig = Exporter::grant(&api, &presets).await?;
        let exporter = Exporter::start(rig, "exporter", &kubeconfig, &presets).await?;
        let usual =
            USUAL_KINDS.iter().flat_map(|(group, kinds)| kinds.iter().map(move |kind| (*group, *kind)));
        for (group, kind) in usual.clone() {
            put_inventory(&api, &kind.to_lowercase(), &[(group, kind, "web", "missing")]).await?;
        }
        for (_, kind) in usual {
            // Who may not read a kind does not know that an object is missing.
            let missing = (Health::NotFound, "ResourcesNotFound");
            shows_health(&exporter, &kind.to_lowercase(), missing).await?;
        }
        // Nobody asks for these.
        put_inventory(&api, "secret", &[("", "Secret", "web", "missing")]).await?;
        shows_health(&exporter, "secret", (Health::Unknown, "NoResources")).await?;
        nothing_is_forbidden(&exporter).await?;

        put_inventory(&api, "lease", &[("coordination.k8s.io", "Lease", "web", "missing")]).await?;
        shows_health(&exporter, "lease", (Health::Unknown, "ResourcesForbidden")).await?;
        ensure!(nothing_is_forbidden(&exporter).await.is_err(), "it would not be noticed");
        Ok(())
    })
    .await;
}

async fn shows_health(exporter: &Exporter, package: &str, expected: (Health, &str)) -> Result<()> {
    eventually(SOON, &format!("{package} is {expected:?}"), async || {
        let says = exporter.says().await?;
        let shown = says.package("kpt-resourcegroup", package).context("not shown")?;
        let reason = says.reason("kpt-resourcegroup", shown.reason).unwrap_or_default();
        ensure!((shown.health, reason) == expected, "it is {} because {reason}", shown.health);
        Ok(())
    })
    .await
}

/// By when a dead connection is known: the default `--contact-timeout` of 20 s, and what a busy machine needs.
const NOTICED: Duration = Duration::from_secs(20 + 60);

#[tokio::test]
async fn a_connection_that_only_looks_open_is_noticed_and_replaced() {
    run("exporter-half-open", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        api.install_crds(&crds::flux()?).await?;
        api.ensure_namespace(FLUX_NAMESPACE).await?;
        let proxy = FaultProxy::start(rig, api.address()).await?;
        let kubeconfig = api.kubeconfig_via(proxy.address())?;
        let exporter = Exporter::start(rig, "exporter", &kubeconfig, &[]).await?;
        let cluster = Workload::of(api, exporter).await?;
        cluster.deliver("payments", "r1").await?;
        eventually(SOON, "r1 is healthy", async || {
            let shown = cluster.shows("payments").await?;
            ensure!(shown.healthy == Fingerprint::of("r1"));
            Ok(())
        })
        .await?;

        proxy.set(Fault::Freeze);
        cluster.deliver("payments", "r2").await?;
        eventually(NOTICED, "the source is down and shows what was last known", async || {
            let text = cluster.exporter.metrics().await?;
            ensure!(text.contains("statusbridge_source_up{package_source=\"flux-kustomization\"} 0"));
            let shown = cluster.shows("payments").await?;
            ensure!(shown.healthy == Fingerprint::of("r1"));
            Ok(())
        })
        .await?;

        proxy.set(Fault::Pass);
        eventually(SOON, "it is up again and shows r2", async || {
            let text = cluster.exporter.metrics().await?;
            ensure!(text.contains("statusbridge_source_up{package_source=\"flux-kustomization\"} 1"));
            let shown = cluster.shows("payments").await?;
            ensure!(shown.healthy == Fingerprint::of("r2"));
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn what_happens_behind_a_forgotten_connection_is_soon_known_or_the_source_is_down() {
    run("exporter-forgotten", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        api.install_crds(&crds::flux()?).await?;
        api.ensure_namespace(FLUX_NAMESPACE).await?;
        let proxy = FaultProxy::start(rig, api.address()).await?;
        let kubeconfig = api.kubeconfig_via(proxy.address())?;
        let exporter = Exporter::start(rig, "exporter", &kubeconfig, &[]).await?;
        let cluster = Workload::of(api, exporter).await?;
        cluster.deliver("payments", "r1").await?;
        let shows = async |revision: &str| {
            ensure!(cluster.shows("payments").await?.healthy == Fingerprint::of(revision));
            Ok(())
        };
        let up = async || {
            let says = cluster.exporter.says().await?.source_up("flux-kustomization");
            says.context("nothing is said of the source")
        };
        eventually(SOON, "r1 is healthy", async || shows("r1").await).await?;

        // New connections work, and nobody says that the old ones do not.
        proxy.forget();
        let forgotten = std::time::Instant::now();
        cluster.deliver("payments", "r2").await?;
        eventually(NOTICED, "r2 is shown, or the source is down", async || {
            ensure!(shows("r2").await.is_ok() || !up().await?);
            Ok(())
        })
        .await?;
        eprintln!("noticed after {:?}", forgotten.elapsed());
        eventually(SOON, "r2 is shown and the source is up", async || {
            ensure!(up().await?);
            shows("r2").await
        })
        .await?;
        eprintln!("up with what was missed after {:?}", forgotten.elapsed());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_kind_served_only_at_another_version_is_read_at_one_that_the_source_lists() {
    run("exporter-versions", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        // The upstream CRD as a cluster has it that only serves the older version.
        let files = crds::flux()?;
        let upstream =
            files.iter().find(|f| f.to_string_lossy().contains("kustomizations")).context("CRD")?;
        let mut crd: serde_json::Value = serde_saphyr::from_str(&std::fs::read_to_string(upstream)?)?;
        let versions = crd["spec"]["versions"].as_array_mut().context("versions")?;
        versions.retain(|v| v["name"] == "v1");
        versions[0]["name"] = json!("v1beta2");
        let file = rig.dir().join("kustomizations.yaml");
        std::fs::write(&file, serde_json::to_vec(&crd)?)?;
        api.install_crds(&[file]).await?;
        api.ensure_namespace(FLUX_NAMESPACE).await?;
        let exporter = Exporter::start(rig, "exporter", api.kubeconfig(), &[]).await?;
        api.apply_object(&json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1beta2", "kind": "Kustomization",
            "metadata": {"name": "old", "namespace": FLUX_NAMESPACE},
            "spec": {"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "old"}},
        }))
        .await?;
        eventually(SOON, "the package is read", async || {
            let text = exporter.metrics().await?;
            ensure!(package_lines(&text) == 1, "{text}");
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn an_expired_resource_version_leads_to_a_new_list_and_not_to_wrong_series() {
    run("exporter-expired", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        api.install_crds(&crds::flux()?).await?;
        api.ensure_namespace(FLUX_NAMESPACE).await?;
        let proxy = FaultProxy::start(rig, api.address()).await?;
        let kubeconfig = api.kubeconfig_via(proxy.address())?;
        let exporter = Exporter::start(rig, "exporter", &kubeconfig, &[]).await?;
        let cluster = Workload::of(api, exporter).await?;
        cluster.deliver("stays", "r1").await?;
        cluster.deliver("goes", "r1").await?;
        eventually(SOON, "both are shown", async || {
            cluster.shows("stays").await?;
            cluster.shows("goes").await
        })
        .await?;

        // A restarted API server remembers nothing from before, so the version to go on from is too old.
        proxy.set(Fault::Refuse);
        cluster.kustomizations().delete("goes", &Default::default()).await?;
        cluster.deliver("stays", "r2").await?;
        cluster.api.stop();
        cluster.api.start_again().await?;
        proxy.set(Fault::Pass);
        eventually(SOON, "the version expired, and what is shown is right", async || {
            let text = cluster.exporter.metrics().await?;
            ensure!(text.contains("cause=\"expired\"} "), "nothing expired");
            ensure!(package_lines(&text) == 1, "{text}");
            ensure!(cluster.shows("stays").await?.healthy == Fingerprint::of("r2"));
            Ok(())
        })
        .await
    })
    .await;
}
