//! Our own programs.

use crate::authority::Authority;
use crate::exposition::Exposition;
use crate::{ApiServer, Port, Process, Rig, wall_clock};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::OnceCell;

/// Our programs, each of a package of the same name.
pub const PROGRAMS: [&str; 4] =
    ["statusbridge", "statusbridge-exporter", "statusbridge-aggregator", "statusbridge-changelog"];

/// Path of one of our programs, such as `statusbridge-exporter`, built when it is out of date: with the profile and
/// into the target directory that the test itself was built with. `STATUSBRIDGE_BIN_DIR` names a directory to take
/// it from instead.
///
/// # Errors
/// When it does not build.
pub async fn own_program(name: &str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("STATUSBRIDGE_BIN_DIR") {
        return Ok(PathBuf::from(dir).join(name));
    }
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    Ok(BUILT.get_or_try_init(build).await?.join(name))
}

/// One of our programs as a command that a test runs to its end. It is killed when it is dropped.
///
/// # Errors
/// When the program does not build.
pub async fn own_command(name: &str, args: &[&str]) -> Result<tokio::process::Command> {
    let mut command = tokio::process::Command::new(own_program(name).await?);
    command.args(args).env("NO_PROXY", "127.0.0.1").stdin(std::process::Stdio::null()).kill_on_drop(true);
    Ok(command)
}

/// Builds once per test process; cargo's own lock orders several.
async fn build() -> Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program")?;
    let mut dir = this.parent().context("this program lies nowhere")?;
    if dir.ends_with("deps") {
        dir = dir.parent().context("this program lies nowhere")?;
    }
    let (target, profile) = (dir.parent(), dir.file_name().and_then(|n| n.to_str()));
    let (target, profile) = target.zip(profile).context("this program does not lie in a target directory")?;
    let profile = if profile == "debug" { "dev" } else { profile };
    let out = tokio::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--bins"])
        .args(PROGRAMS.iter().flat_map(|program| ["-p", program]))
        .args(["--profile", profile, "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .await
        .context("running cargo")?;
    ensure!(out.status.success(), "our programs do not build:\n{}", String::from_utf8_lossy(&out.stderr));
    Ok(dir.to_owned())
}

/// `statusbridge-exporter serve`.
#[derive(Debug)]
pub struct Exporter {
    process: Process,
    port: Port,
}

impl Exporter {
    /// Starts one that reads with `kubeconfig`, and waits until its first lists are complete.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start(rig: &Rig, name: &str, kubeconfig: &Path, more: &[&str]) -> Result<Self> {
        let exporter = Self::launch(rig, name, kubeconfig, more).await?;
        exporter.wait_ready().await?;
        Ok(exporter)
    }

    /// Starts one without waiting for it, for when its API server is not to be reached.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn launch(rig: &Rig, name: &str, kubeconfig: &Path, more: &[&str]) -> Result<Self> {
        let port = Port::reserve()?;
        let process =
            launch(rig, name, "statusbridge-exporter", "serve", kubeconfig, Some(&port), more).await?;
        Ok(Self { process, port })
    }

    /// Waits for `/readyz`.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn wait_ready(&self) -> Result<()> {
        let url = format!("http://{}/readyz", self.address());
        wait_ready(&self.process, &crate::servers::http()?, &url).await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The process, to freeze, kill or start again.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// What `/metrics` answers.
    ///
    /// # Errors
    /// When it does not answer 200.
    pub async fn metrics(&self) -> Result<String> {
        let answer = crate::servers::http()?.get(format!("http://{}/metrics", self.address())).send().await?;
        Ok(answer.error_for_status()?.text().await?)
    }

    /// The same, read.
    ///
    /// # Errors
    /// When it does not answer 200, or with something else than an exposition.
    pub async fn says(&self) -> Result<Exposition> {
        Exposition::parse(&self.metrics().await?)
    }

    /// How many events of a kind it has heard of.
    ///
    /// # Errors
    /// When it does not answer 200, or says nothing of the kind.
    pub async fn watch_events(&self, kind: &str) -> Result<f64> {
        let (text, kind) = (self.metrics().await?, format!("kind=\"{kind}\""));
        let mut lines = text.lines().filter(|l| l.starts_with("statusbridge_exporter_watch_events_total{"));
        let line = lines.find(|line| line.contains(&kind)).context("no events")?;
        Ok(line.rsplit_once(' ').context("no value")?.1.parse()?)
    }

    /// Lets a user called `exporter` do what `statusbridge source rbac` with these arguments says, and no more. Gives
    /// back a kubeconfig file of that user.
    ///
    /// # Errors
    /// When the program fails or the API server refuses.
    pub async fn grant(api: &ApiServer, args: &[&str]) -> Result<PathBuf> {
        let role = tokio::process::Command::new(own_program("statusbridge").await?)
            .args(["source", "rbac"])
            .args(args)
            .output()
            .await
            .context("running statusbridge source rbac")?;
        ensure!(role.status.success(), "rbac: {}", String::from_utf8_lossy(&role.stderr));
        api.apply(&String::from_utf8(role.stdout)?).await?;
        let group = "rbac.authorization.k8s.io";
        api.apply_object(&json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "exporter"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "statusbridge-exporter"},
            "subjects": [{"kind": "User", "name": "exporter", "apiGroup": group}],
        }))
        .await?;
        api.kubeconfig_as("exporter", &[])
    }
}

/// Settings of an aggregator, fast enough for tests.
#[derive(Debug, Clone)]
pub struct AggregatorOptions {
    /// Base URL of the backend; empty for none.
    pub backend: String,
    /// `--poll-interval`.
    pub poll_interval: Duration,
    /// `--settle-delay`.
    pub settle_delay: &'static str,
    /// `--cluster-label`.
    pub cluster_label: String,
    /// `--trust`; none for `--trust-all`.
    pub trust: Option<String>,
    /// Namespace of its leases.
    pub namespace: String,
    /// Further arguments.
    pub more: Vec<String>,
    /// Certificate of whom its own was signed by, where it serves HTTPS.
    pub authority: Option<String>,
}

impl AggregatorOptions {
    /// Polls `backend` every second.
    pub fn new(backend: impl Into<String>) -> Self {
        Self {
            backend: backend.into(),
            poll_interval: Duration::from_secs(1),
            settle_delay: "1s",
            cluster_label: "cluster".to_owned(),
            trust: None,
            namespace: "default".to_owned(),
            more: Vec::new(),
            authority: None,
        }
    }

    /// Believes each of these exporters, by their clusters, about packages of `source` in the clusters that its pattern
    /// names. The configuration file that says so lies in `dir`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn believing(mut self, dir: &Path, source: &str, speakers: &[(&str, &str)]) -> Result<Self> {
        let file = dir.join("aggregator.yaml");
        let speakers = speakers.iter().map(
            |(speaker, clusters)| json!({"cluster": speaker, "sources": [source], "clusters": [clusters]}),
        );
        let speakers: Vec<_> = speakers.collect();
        std::fs::write(&file, json!({"speakers": speakers}).to_string())?;
        self.more.extend(["--config".to_owned(), file.display().to_string()]);
        Ok(self)
    }

    /// Serves HTTPS with a certificate of this authority, whose files lie in `dir`.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn over_tls(mut self, dir: &Path, authority: &Authority) -> Result<Self> {
        let made = authority.certify("127.0.0.1")?;
        for (flag, file, text) in [
            ("--tls-cert-file", "serving.crt", made.certificate),
            ("--tls-private-key-file", "serving.key", made.key),
        ] {
            let file = dir.join(file);
            std::fs::write(&file, text)?;
            self.more.extend([flag.to_owned(), file.display().to_string()]);
        }
        self.authority = Some(authority.pem().to_owned());
        Ok(self)
    }
}

/// `statusbridge-aggregator serve`.
#[derive(Debug)]
pub struct Aggregator {
    process: Process,
    port: Port,
    http: reqwest::Client,
    scheme: &'static str,
}

impl Aggregator {
    /// Starts one that writes with `kubeconfig`, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start(
        rig: &Rig,
        name: &str,
        kubeconfig: &Path,
        options: &AggregatorOptions,
    ) -> Result<Self> {
        let aggregator = Self::launch(rig, name, kubeconfig, options).await?;
        aggregator.wait_ready().await?;
        Ok(aggregator)
    }

    /// Starts one without waiting for it, for when its backend is not to be reached.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn launch(
        rig: &Rig,
        name: &str,
        kubeconfig: &Path,
        options: &AggregatorOptions,
    ) -> Result<Self> {
        let port = Port::reserve()?;
        let mut args = vec!["--cluster-label", &options.cluster_label];
        if !options.backend.is_empty() {
            args.extend(["--backend", &options.backend]);
            match &options.trust {
                Some(trust) => args.extend(["--trust", trust]),
                None => args.push("--trust-all"),
            }
        }
        let poll_interval = format!("{}ms", options.poll_interval.as_millis());
        args.extend(["--poll-interval", &poll_interval, "--settle-delay", options.settle_delay]);
        args.extend(["--lease-namespace", &options.namespace]);
        args.extend(options.more.iter().map(String::as_str));
        let program = "statusbridge-aggregator";
        let process = launch(rig, name, program, "serve", kubeconfig, Some(&port), &args).await?;
        let (http, scheme) = match &options.authority {
            Some(authority) => (trusting(authority)?, "https"),
            None => (crate::servers::http()?, "http"),
        };
        Ok(Self { process, port, http, scheme })
    }

    /// The address of a path.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address())
    }

    /// A client that trusts its certificate, if it has one.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// Waits for `/readyz`.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn wait_ready(&self) -> Result<()> {
        wait_ready(&self.process, &self.http, &self.url("/readyz")).await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The process, to freeze, kill or start again.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// A sample of `/metrics`, named as it stands there, with its labels.
    ///
    /// # Errors
    /// When it does not answer, or has no such sample.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let page = self.http.get(self.url("/metrics")).send().await?.text().await?;
        let mut samples = page.lines().filter_map(|line| line.rsplit_once(' '));
        let (_, value) = samples.find(|(sample, _)| *sample == name).with_context(|| page.clone())?;
        Ok(value.parse()?)
    }
}

/// `statusbridge-aggregator sweep`.
#[derive(Debug)]
pub struct Sweeper {
    process: Process,
    port: Port,
}

impl Sweeper {
    /// Starts one.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(
        rig: &Rig,
        name: &str,
        kubeconfig: &Path,
        namespace: &str,
        more: &[&str],
    ) -> Result<Self> {
        let port = Port::reserve()?;
        let args: Vec<&str> =
            ["--lease-namespace", namespace].into_iter().chain(more.iter().copied()).collect();
        let program = "statusbridge-aggregator";
        let process = launch(rig, name, program, "sweep", kubeconfig, Some(&port), &args).await?;
        Ok(Self { process, port })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The process, to freeze, kill or start again.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

fn trusting(authority: &str) -> Result<reqwest::Client> {
    let authority = reqwest::Certificate::from_pem(authority.as_bytes())?;
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10));
    http.tls_certs_only([authority]).build().context("building the HTTP client")
}

async fn launch(
    rig: &Rig,
    name: &str,
    program: &str,
    command: &str,
    kubeconfig: &Path,
    listen: Option<&Port>,
    more: &[&str],
) -> Result<Process> {
    let mut args: Vec<OsString> = vec![command.into(), "--kubeconfig".into(), kubeconfig.into()];
    if let Some(port) = listen {
        args.extend(["--listen".into(), port.address().to_string().into()]);
    }
    args.extend(more.iter().map(Into::into));
    let program = own_program(program).await?;
    let env = wall_clock::env(rig, name, &program)?.into_iter().chain([("NO_PROXY", "127.0.0.1".into())]);
    Process::spawn(rig, name, &program, args, env)
}

async fn wait_ready(process: &Process, http: &reqwest::Client, url: &str) -> Result<()> {
    process
        .ready(async || {
            let answer = http.get(url).send().await?;
            ensure!(answer.status().is_success(), "/readyz answers {}", answer.status());
            Ok(())
        })
        .await
}
