//! The page that leads from nothing to a gate: its commands, as they stand there, on real servers.

use super::stand_ins::{Discovery, StandIns, with_a_job_of_its_own};
use super::*;
use crate::docs::markdown::{Block, Page};
use statusbridge_tests::{
    Etcd, KustomizeController, Prometheus, PrometheusConfig, Rig, SOON, eventually, own_program, run,
};
use std::fmt::Write;
use std::process::Stdio;
use std::time::Instant;

const PAGE: &str = "docs/getting-started.md";

/// A shell as the page's reader has it: programs on PATH, a kubeconfig with a context for each cluster, and variables
/// that outlive a block.
pub(super) struct Shell {
    dir: PathBuf,
    path: std::ffi::OsString,
}

impl Shell {
    /// `first` are directories before all others on PATH.
    pub(super) async fn new(rig: &Rig, clusters: &[&ApiServer], first: &[&Path]) -> Result<Self> {
        let dir = rig.subdir("shell")?;
        let mut merged =
            json!({"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []});
        for api in clusters {
            let own: Value = serde_json::from_slice(&std::fs::read(api.kubeconfig())?)?;
            for field in ["clusters", "users", "contexts"] {
                let mut entry = own[field][0].clone();
                entry["name"] = json!(api.name());
                if field == "contexts" {
                    entry["context"]["cluster"] = json!(api.name());
                    entry["context"]["user"] = json!(api.name());
                }
                merged[field].as_array_mut().context("no list")?.push(entry);
            }
        }
        std::fs::write(dir.join("kubeconfig"), merged.to_string())?;
        std::fs::write(dir.join("variables"), "")?;
        let programs = [program("kubectl")?, program("helm")?, own_program("statusbridge").await?];
        let programs = programs.iter().filter_map(|program| program.parent());
        let path = first.iter().copied().chain(programs).chain(["/usr/bin", "/bin"].map(Path::new));
        Ok(Self { path: std::env::join_paths(path)?, dir })
    }

    /// What a command prints, and that it succeeds.
    pub(super) async fn run(&self, command: &str) -> Result<String> {
        let keeps = "set -euo pipefail -o allexport\n. \"$HOME/variables\"\n\
            trap 'code=$?; export -p >\"$HOME/variables\"; exit $code' EXIT\n";
        std::fs::write(self.dir.join("command"), format!("{keeps}{command}"))?;
        let running = tokio::process::Command::new("bash")
            .arg(self.dir.join("command"))
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", &self.dir)
            .env("KUBECONFIG", self.dir.join("kubeconfig"))
            .env("NO_PROXY", "127.0.0.1")
            .current_dir(repository(""))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let out = tokio::time::timeout(SOON, running).await.context("it takes too long")??;
        let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        ensure!(out.status.success(), "{}: {said}", out.status);
        Ok(said)
    }

    /// Sets variables that the page has the reader fill in.
    async fn fill_in(&self, values: &[(&str, &str)]) -> Result<()> {
        let mut lines = String::new();
        for (name, value) in values {
            // That it is there is what the page said so far.
            writeln!(lines, ": \"${{{name}?the page does not ask for it}}\"\n{name}='{value}'")?;
        }
        self.run(&lines).await.map(drop)
    }
}

/// Words with one space in between.
fn collapsed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a command printed what the page shows: every line of it, in that order, where `…` stands for anything.
fn shows(shown: &str, said: &str) -> Result<()> {
    let printed = collapsed(said);
    let mut rest = printed.as_str();
    for part in shown.lines().flat_map(|line| line.split('…')).map(collapsed).filter(|part| !part.is_empty())
    {
        let (_, behind) =
            rest.split_once(&part).with_context(|| format!("{part:?} is not printed, but\n{said}"))?;
        rest = behind;
    }
    Ok(())
}

/// Does all that the page says.
async fn follow(shell: &Shell, blocks: &[Block], values: &[(&str, &str)]) -> Result<()> {
    let (mut ran, mut compared) = (0, 0);
    for (index, block) in blocks.iter().enumerate().filter(|(_, block)| block.language == "sh") {
        let started = Instant::now();
        let at = format!("{PAGE}:{}", block.line);
        let said = shell.run(&block.text).await.with_context(|| format!("{at}:\n{}", block.text))?;
        println!("{at} took {:.1} s:\n{said}", started.elapsed().as_secs_f64());
        if let Some(shown) = blocks.get(index + 1).filter(|next| next.language == "text") {
            shows(&shown.text, &said).with_context(|| at.clone())?;
            compared += 1;
        }
        if ran == 0 {
            shell.fill_in(values).await.with_context(|| at)?;
        }
        ran += 1;
    }
    ensure!(ran > 10 && compared > 8, "only {ran} blocks, and {compared} with what they print");
    Ok(())
}

#[tokio::test]
async fn the_first_hour() {
    run("deploy-getting-started", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let (hub, cluster) = tokio::try_join!(ApiServer::start(rig, &etcd, "hub"), async {
            let cluster = ApiServer::start(rig, &etcd, "eu-1").await?;
            cluster.install_crds(&crds::monitoring()?).await?;
            Ok(cluster)
        },)?;
        let _controller = KustomizeController::start(rig, &cluster).await?;
        let prometheus = Prometheus::start(rig, &PrometheusConfig::default()).await?;
        prometheus.reload(&with_a_job_of_its_own(&prometheus, [])).await?;
        eventually(SOON, "the pipeline has metrics of the cluster", async || {
            ensure!(!prometheus.query("up{cluster=\"eu-1\"}").await?.is_empty(), "none");
            Ok(())
        })
        .await?;

        let shell = Shell::new(rig, &[&hub, &cluster], &[]).await?;
        let (charts, url) = (repository("deploy/charts"), prometheus.url());
        let charts = charts.to_str().context("where the charts are")?;
        let values = [("CHARTS", charts), ("BACKEND", url.as_str()), ("STATUSBRIDGE_BACKEND", url.as_str())];
        let page = Page::parse(PathBuf::from(PAGE), &std::fs::read_to_string(repository(PAGE))?);
        let clusters = [cluster];
        let mut around = StandIns::new(rig, &hub, &clusters, &prometheus, Discovery::PodMonitors).await?;
        tokio::select! {
            followed = follow(&shell, &page.blocks, &values) => followed,
            failed = around.work() => failed.map(|never| match never {}),
        }
    })
    .await;
}

#[test]
fn what_a_page_shows_is_looked_for_in_order() {
    let said = "NAME     READY   AGE\npayments  True   3s\n";
    assert!(shows("NAME … AGE\npayments   True …\n", said).is_ok());
    assert!(shows("payments …\nNAME\n", said).is_err());
    assert!(shows("payments … False\n", said).is_err());
}
