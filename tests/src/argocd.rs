//! Packages delivered by the real Argo CD from git repositories on disk.
//!
//! Neither its API server nor its user interface runs. No kubelet runs either, so a Job that a sync waits for ends when the
//! test writes its status.

use crate::{ApiServer, Port, Process, Rig, crds, program};
use anyhow::{Context, Result, ensure};
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Namespace of Argo CD and its Applications.
const NAMESPACE: &str = "argocd";

/// A git repository whose branch is `main`.
#[derive(Debug)]
pub struct GitRepository {
    dir: PathBuf,
}

impl GitRepository {
    /// Makes an empty one.
    ///
    /// # Errors
    /// When git cannot be run.
    pub async fn start(rig: &Rig, name: &str) -> Result<Self> {
        let it = Self { dir: rig.subdir(&format!("git-{name}"))? };
        it.git(&["init", "--quiet", "--initial-branch=main"]).await?;
        Ok(it)
    }

    /// URL, as Argo CD takes it.
    pub fn url(&self) -> String {
        format!("file://{}", self.dir.display())
    }

    /// Commits files (path and content) beside those that are there, and gives back the commit.
    ///
    /// # Errors
    /// When a file cannot be written, or git refuses.
    pub async fn commit(&self, files: &[(&str, &str)]) -> Result<String> {
        for (path, content) in files {
            let path = self.dir.join(path);
            std::fs::create_dir_all(path.parent().context("a file that lies nowhere")?)?;
            std::fs::write(path, content)?;
        }
        self.git(&["add", "--all"]).await?;
        let author =
            ["-c", "user.name=rig", "-c", "user.email=rig@example.com", "-c", "commit.gpgsign=false"];
        self.git(&[&author[..], &["commit", "--quiet", "--message=change"]].concat()).await?;
        Ok(self.git(&["rev-parse", "HEAD"]).await?.trim().to_owned())
    }

    async fn git(&self, args: &[&str]) -> Result<String> {
        let out = tokio::process::Command::new("git")
            .arg("-C")
            .arg(&self.dir)
            .args(args)
            .stdin(std::process::Stdio::null())
            .output()
            .await
            .context("running git")?;
        ensure!(out.status.success(), "git {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr));
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

/// Argo CD in one API server: application-controller, repo-server and ApplicationSet controller, with a Redis.
#[derive(Debug)]
pub struct ArgoCd {
    _processes: [Process; 4],
    _ports: [Port; 6],
}

impl ArgoCd {
    /// Installs Argo CD's CRDs and starts it with this ConfigMap `argocd-cm`.
    ///
    /// # Errors
    /// When something does not come up.
    pub async fn start(rig: &Rig, api: &ApiServer, config: &Value) -> Result<Self> {
        install(api, config).await?;
        let ports = [(); 6].map(|()| Port::reserve());
        let [redis, repo, repo_metrics, app_metrics, set_metrics, webhook] = ports;
        let (redis, repo, repo_metrics) = (redis?, repo?, repo_metrics?);
        let (app_metrics, set_metrics, webhook) = (app_metrics?, set_metrics?, webhook?);
        let dir = rig.subdir(&format!("argocd-{}", api.name()))?;
        // repo-server has every commit looked at by this script of Argo CD's image, and makes nothing of it here.
        let bin = rig.subdir(&format!("argocd-bin-{}", api.name()))?;
        std::os::unix::fs::symlink("/bin/true", bin.join("git-verify-wrapper.sh"))?;
        let path = format!("{}:{}", bin.display(), std::env::var("PATH")?);
        let spawn = |command: &str, args: &[String]| {
            let args = [&[command.to_owned()], args].concat();
            let env = [
                ("KUBECONFIG", api.kubeconfig().into()),
                // Else it takes its own cluster from its pod.
                ("ARGOCD_FAKE_IN_CLUSTER", "true".into()),
                ("ARGOCD_GPG_ENABLED", "false".into()),
                ("ARGOCD_ASK_PASS_SOCK", dir.join("ask-pass").into()),
                ("PATH", path.clone().into()),
                ("TMPDIR", dir.clone().into()),
                ("HOME", dir.clone().into()),
            ];
            Process::spawn(rig, &format!("{command}-{}", api.name()), &program("argocd")?, args, env)
        };

        let cache = spawn("redis", &[format!("--address={}", redis.address())])?;
        let args = [
            "--disable-tls".to_owned(),
            "--client-ca-path=".to_owned(),
            format!("--address={}", repo.address().ip()),
            format!("--port={}", repo.number()),
            format!("--metrics-address={}", repo_metrics.address().ip()),
            format!("--metrics-port={}", repo_metrics.number()),
            format!("--redis={}", redis.address()),
            // How soon a branch that moved is noticed.
            "--revision-cache-expiration=1s".to_owned(),
        ];
        let repo_server = spawn("argocd-repo-server", &args)?;
        let args = [
            format!("--namespace={NAMESPACE}"),
            format!("--repo-server={}", repo.address()),
            "--repo-server-plaintext".to_owned(),
            format!("--redis={}", redis.address()),
            format!("--metrics-port={}", app_metrics.number()),
            "--app-resync=2".to_owned(),
            "--app-resync-jitter=0".to_owned(),
        ];
        let controller = spawn("argocd-application-controller", &args)?;
        let args = [
            format!("--namespace={NAMESPACE}"),
            format!("--argocd-repo-server={}", repo.address()),
            "--repo-server-plaintext".to_owned(),
            format!("--metrics-addr={}", set_metrics.address()),
            "--probe-addr=0".to_owned(),
            format!("--webhook-addr={}", webhook.address()),
            "--enable-progressive-syncs".to_owned(),
        ];
        let sets = spawn("argocd-applicationset-controller", &args)?;
        for (process, port) in
            [(&repo_server, &repo_metrics), (&controller, &app_metrics), (&sets, &set_metrics)]
        {
            let url = format!("http://{}/metrics", port.address());
            process.ready(async || answers(&url).await).await?;
        }
        Ok(Self {
            _processes: [cache, repo_server, controller, sets],
            _ports: [redis, repo, repo_metrics, app_metrics, set_metrics, webhook],
        })
    }

    /// Lets the Argo CD in `api` deliver to another cluster, by its name.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn register(api: &ApiServer, cluster: &ApiServer) -> Result<()> {
        let file: Value = serde_json::from_slice(&std::fs::read(cluster.kubeconfig())?)?;
        let config = json!({
            "bearerToken": file["users"][0]["user"]["token"],
            "tlsClientConfig": {"insecure": true},
        });
        api.apply_object(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": format!("cluster-{}", cluster.name()), "namespace": NAMESPACE,
                "labels": {"argocd.argoproj.io/secret-type": "cluster"},
            },
            "stringData": {
                "name": cluster.name(), "server": format!("https://{}", cluster.address()),
                "config": config.to_string(),
            },
        }))
        .await
        .map(drop)
    }

    /// An Application as it is now.
    ///
    /// # Errors
    /// When it does not exist.
    pub async fn application(api: &ApiServer, name: &str) -> Result<DynamicObject> {
        let kind = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Application");
        Ok(api.dynamic(&kind, Some(NAMESPACE)).await?.get(name).await?)
    }
}

/// What Argo CD needs before it starts.
async fn install(api: &ApiServer, config: &Value) -> Result<()> {
    api.install_crds(&crds::argo_cd()?).await?;
    api.ensure_namespace(NAMESPACE).await?;
    let mut config = config.clone();
    config["metadata"]["namespace"] = json!(NAMESPACE);
    let labels = json!({"app.kubernetes.io/part-of": "argocd"});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"server.secretkey": "of no server"},
        "metadata": {"name": "argocd-secret", "namespace": NAMESPACE, "labels": labels},
    });
    let everything = json!([{"group": "*", "kind": "*"}]);
    let project = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
        "metadata": {"name": "default", "namespace": NAMESPACE},
        "spec": {
            "sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}],
            "clusterResourceWhitelist": everything,
        },
    });
    for object in [config, secret, project] {
        api.apply_object(&object).await?;
    }
    Ok(())
}

async fn answers(url: &str) -> Result<()> {
    let answer = crate::servers::http()?.get(url).send().await?;
    ensure!(answer.status().is_success(), "{}", answer.status());
    Ok(())
}
