//! `hack/kind` with real API servers in place of clusters in Docker: all but what `docker` and `kind` do is real.

use super::getting_started::Shell;
use super::stand_ins::{Discovery, StandIns};
use super::*;
use statusbridge_tests::{Etcd, KustomizeController, Prometheus, PrometheusConfig, Rig, hub, run};
use std::os::unix::fs::PermissionsExt;

/// A program in place of another; `body` is a shell script.
fn stand_in(dir: &Path, name: &str, body: &str) -> Result<()> {
    let (file, calls) = (dir.join(name), dir.join("calls"));
    let script = format!("#!/bin/sh\nset -eu\necho \"{name} $*\" >>'{}'\n{body}", calls.display());
    std::fs::write(&file, script)?;
    Ok(std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?)
}

/// `docker` and `kind`: clusters are API servers that run already, at addresses that only node ports tell apart.
fn programs(rig: &Rig) -> Result<PathBuf> {
    let dir = rig.subdir("programs")?;
    stand_in(
        &dir,
        "docker",
        "case \"$1\" in\n\
         info | image) ;;\n\
         inspect) echo 172.18.0.2 ;;\n\
         *) exit 1 ;;\n\
         esac\n",
    )?;
    // The kubeconfig of the shell has a context for each cluster; kind makes one of another name, in a file of the script.
    stand_in(
        &dir,
        "kind",
        "while [ $# -gt 0 ]; do case \"$1\" in --name) cluster=$2; shift 2 ;; --*) shift 2 ;; *) did=\"${did:-} $1\"; shift ;; esac; done\n\
         case \"$did\" in\n\
         ' get clusters') touch \"$HOME/clusters\"; cat \"$HOME/clusters\" ;;\n\
         ' create cluster') echo \"$cluster\" >>\"$HOME/clusters\" ;;\n\
         ' export kubeconfig')\n\
           grep -qx \"$cluster\" \"$HOME/clusters\"\n\
           touch \"$KUBECONFIG\"\n\
           own=$HOME/own-$$\n\
           kubectl --kubeconfig \"$HOME/kubeconfig\" --context \"${cluster#statusbridge-}\" config view --minify --flatten >\"$own\"\n\
           kubectl --kubeconfig \"$own\" config rename-context \"${cluster#statusbridge-}\" \"kind-$cluster\"\n\
           KUBECONFIG=\"$KUBECONFIG:$own\" kubectl config view --flatten >\"$own.merged\"\n\
           mv \"$own.merged\" \"$KUBECONFIG\" ;;\n\
         ' load docker-image'*) ;;\n\
         ' delete cluster') sed -i \"/^$cluster\\$/d\" \"$HOME/clusters\" ;;\n\
         *) exit 1 ;;\n\
         esac\n",
    )?;
    Ok(dir)
}

#[tokio::test]
async fn a_laptop_comes_to_a_gate() {
    run("deploy-kind", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let (fleet, first, second) = tokio::try_join!(
            ApiServer::start(rig, &etcd, "hub"),
            ApiServer::start(rig, &etcd, "eu-1"),
            ApiServer::start(rig, &etcd, "us-1"),
        )?;
        let clusters = [first, second];
        let _controllers = [
            KustomizeController::start(rig, &clusters[0]).await?,
            KustomizeController::start(rig, &clusters[1]).await?,
        ];
        let prometheus = Prometheus::start(rig, &PrometheusConfig::default()).await?;
        let mut around = StandIns::new(rig, &fleet, &clusters, &prometheus, Discovery::NodePorts).await?;
        let programs = programs(rig)?;
        let shell = Shell::new(rig, &[&fleet, &clusters[0], &clusters[1]], &[&programs]).await?;
        // Flux' CRDs are what there is of it here: kustomize-controller runs, and nothing has to be fetched.
        let settings =
            format!("FLUX={}\nKIND_KUBECONFIG=$HOME/kind\n", repository("tests/crds/flux").display());
        shell.run(&settings).await?;
        let script = async {
            let said = shell.run("hack/kind up").await?;
            ensure!(said.contains("rolloutgate.statusbridge.dev/wave-1 condition met"), "{said}");
            // It may be run again: nothing is made twice.
            let again = shell.run("hack/kind up").await?;
            ensure!(again.contains("rolloutgate.statusbridge.dev/wave-1 unchanged"), "{again}");
            Ok(said)
        };
        let said = tokio::select! {
            said = script => said?,
            failed = around.work() => return failed.map(|never| match never {}),
        };
        let calls = std::fs::read_to_string(programs.join("calls"))?;
        for cluster in ["hub", "eu-1", "us-1"] {
            let created = format!("kind create cluster --name statusbridge-{cluster} ");
            ensure!(calls.matches(&created).count() == 1, "{calls}");
            for image in ["statusbridge-exporter", "statusbridge-aggregator"] {
                let loaded = format!("kind load docker-image --name statusbridge-{cluster} {image}:");
                ensure!(calls.contains(&loaded), "{calls}");
            }
        }

        // Both clusters are seen, and what the script prints leads to the hub.
        let exports: Vec<&str> =
            said.lines().map(str::trim).filter(|line| line.starts_with("export ")).collect();
        shell.run(&exports.join("\n")).await?;
        let status = shell.run("statusbridge status --namespace fleet").await?;
        ensure!(status.contains("gate/wave-1") && status.contains("2/2"), "{status}");
        let kind = hub::kind("RolloutGate");
        let gate = fleet.dynamic(&kind, Some("fleet")).await?.get("wave-1").await?;
        ensure!(statusbridge_tests::history::condition(&gate, "Open").0 == "True", "{}", gate.data["status"]);

        shell.run("hack/kind down").await?;
        let left = shell.run("kind get clusters; ls \"$HOME\"").await?;
        ensure!(!left.contains("statusbridge") && !left.lines().any(|file| file == "kind"), "{left}");
        Ok(())
    })
    .await;
}
