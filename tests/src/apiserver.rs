//! kube-apiserver.

use crate::{Authority, Etcd, Kubeconfig, Port, Process, Rig, SOON, crds, eventually, program};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiResource, Scope};
use kube::{Client, Config};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const ADMIN_TOKEN: &str = "admin-token";
/// Go's default, 100, collects garbage for a third of the processor time that a test's API server takes in its short life.
const GOGC: &str = "400";
/// Served for controllers that no test runs, and none of their kinds are parts of packages. Without them a start takes less
/// processor time: each API is described to clients in three forms.
const APIS_OF_CONTROLLERS: [&str; 5] = [
    "autoscaling/v1",
    "certificates.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1",
    "resource.k8s.io/v1",
    "storage.k8s.io/v1",
];
/// They need those APIs, or objects that a controller manager would make.
const ADMISSION_FOR_CONTROLLERS: [&str; 7] = [
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "DefaultStorageClass",
    "PersistentVolumeClaimResize",
    "ServiceAccount",
    "StorageObjectInUseProtection",
];

/// An API server with RBAC and without controllers or nodes. Several share one etcd, each under a prefix.
pub struct ApiServer {
    name: String,
    process: Process,
    port: Port,
    dir: PathBuf,
    kubeconfig: PathBuf,
    client: Client,
    kinds: Mutex<HashMap<GroupVersionKind, (ApiResource, Scope)>>,
}

impl ApiServer {
    /// Starts one that keeps its objects under `name` in `etcd`.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(rig: &Rig, etcd: &Etcd, name: &str) -> Result<Self> {
        Self::start_with(rig, etcd, name, &[]).await
    }

    /// The same with more flags, such as feature gates.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_with(rig: &Rig, etcd: &Etcd, name: &str, flags: &[&str]) -> Result<Self> {
        let port = Port::reserve()?;
        let dir = rig.subdir(&format!("apiserver-{name}"))?;
        std::fs::write(dir.join("tokens.csv"), format!("{ADMIN_TOKEN},admin,admin,\"system:masters\"\n"))?;
        // It would make itself an RSA key, which takes a tenth of the processor time of its start.
        let authority = Authority::new("test cluster")?;
        let certified = authority.certify("127.0.0.1")?;
        std::fs::write(dir.join("ca.crt"), authority.pem())?;
        std::fs::write(dir.join("server.crt"), certified.certificate)?;
        std::fs::write(dir.join("server.key"), certified.key)?;
        let file = |f: &str| dir.join(f).display().to_string();
        let args = [
            format!("--etcd-servers={}", etcd.url()),
            format!("--etcd-prefix=/registry-{name}"),
            format!("--secure-port={}", port.number()),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("server.crt")),
            format!("--service-account-signing-key-file={}", file("server.key")),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            format!("--runtime-config={}", APIS_OF_CONTROLLERS.map(|api| format!("{api}=false")).join(",")),
            format!("--disable-admission-plugins={}", ADMISSION_FOR_CONTROLLERS.join(",")),
            "--enable-priority-and-fairness=false".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
        ];
        let args = args.into_iter().chain(flags.iter().map(|f| (*f).to_owned()));
        let process = Process::spawn(
            rig,
            &format!("apiserver-{name}"),
            &program("kube-apiserver")?,
            args,
            [("GOGC", GOGC.into())],
        )?;
        let kubeconfig = dir.join("admin.kubeconfig");
        let admin = Kubeconfig {
            server: port.address(),
            ca_file: dir.join("ca.crt"),
            token: ADMIN_TOKEN.to_owned(),
            impersonate: None,
            namespace: "default".to_owned(),
        };
        admin.write(&kubeconfig)?;
        let client = client_from(&kubeconfig).await?;
        let server =
            Self { name: name.to_owned(), process, port, dir, kubeconfig, client, kinds: Mutex::default() };
        server.wait_ready().await?;
        Ok(server)
    }

    /// The name it was started with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until it answers: ready, and with the namespace that every cluster has.
    ///
    /// # Errors
    /// When it does not.
    pub async fn wait_ready(&self) -> Result<()> {
        self.process
            .ready(async || {
                let request = http::Request::get("/readyz").body(Vec::new())?;
                self.client.request_text(request).await?;
                Api::<Namespace>::all(self.client.clone()).get("default").await?;
                Ok(())
            })
            .await
    }

    /// Kills it. Its data stays in etcd.
    pub fn stop(&self) {
        self.process.kill();
    }

    /// Starts it again after [`ApiServer::stop`], on the same port and data, and waits until it answers.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_again(&self) -> Result<()> {
        self.process.start()?;
        self.wait_ready().await
    }

    /// The process, to freeze or kill.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Where it listens (TLS).
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// An administrator's client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// An administrator's kubeconfig file.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    fn base(&self) -> Kubeconfig {
        Kubeconfig {
            server: self.address(),
            ca_file: self.dir.join("ca.crt"),
            token: ADMIN_TOKEN.to_owned(),
            impersonate: None,
            namespace: "default".to_owned(),
        }
    }

    /// An administrator's kubeconfig file that goes through another address, such as a
    /// [`FaultProxy`](crate::FaultProxy)'s.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_via(&self, server: SocketAddr) -> Result<PathBuf> {
        let path = self.dir.join(format!("via-{}.kubeconfig", server.port()));
        Kubeconfig { server, ..self.base() }.write(&path)?;
        Ok(path)
    }

    /// A kubeconfig file that acts as any user in any groups (by impersonation): for RBAC.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let path = self.dir.join(format!("as-{}.kubeconfig", user.replace(['/', ':'], "-")));
        let groups = groups.iter().map(|g| (*g).to_owned()).collect();
        Kubeconfig { impersonate: Some((user.to_owned(), groups)), ..self.base() }.write(&path)?;
        Ok(path)
    }

    /// A kubeconfig file with a real token of a service account, which is made when it does not exist: what a
    /// program in the cluster would have.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn kubeconfig_of_service_account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let token = self.token_of_service_account(namespace, name, &[]).await?;
        let path = self.dir.join(format!("sa-{namespace}-{name}.kubeconfig"));
        Kubeconfig { token, namespace: namespace.to_owned(), ..self.base() }.write(&path)?;
        Ok(path)
    }

    /// A copy of a kubeconfig file that goes through another address, such as a
    /// [`FaultProxy`](crate::FaultProxy)'s.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn via(&self, kubeconfig: &Path, server: SocketAddr) -> Result<PathBuf> {
        let mut file: serde_json::Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
        file["clusters"][0]["cluster"]["server"] = format!("https://{server}").into();
        let path = kubeconfig.with_extension(format!("via-{}", server.port()));
        std::fs::write(&path, file.to_string()).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// A real token of a service account, which is made when it does not exist; for the API server itself unless
    /// `audiences` are named.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn token_of_service_account(
        &self,
        namespace: &str,
        name: &str,
        audiences: &[&str],
    ) -> Result<String> {
        self.ensure_namespace(namespace).await?;
        let accounts = Api::<ServiceAccount>::namespaced(self.client(), namespace);
        if accounts.get_opt(name).await?.is_none() {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let account = ServiceAccount { metadata, ..ServiceAccount::default() };
            accounts
                .create(&PostParams::default(), &account)
                .await
                .context("creating the service account")?;
        }
        let audiences = Some(audiences.iter().map(|a| (*a).to_owned()).collect());
        let expiration_seconds = Some(24 * 3600);
        let spec = TokenRequestSpec { audiences, expiration_seconds, ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
        answer.status.and_then(|s| s.token).context("the API server answered without a token")
    }

    /// Does what the control plane does with ClusterRoles to which others are aggregated: there is no controller
    /// manager here.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn aggregate_cluster_roles(&self) -> Result<()> {
        let roles = Api::<ClusterRole>::all(self.client());
        for role in roles.list(&ListParams::default()).await? {
            let Some(selectors) = role.aggregation_rule.and_then(|rule| rule.cluster_role_selectors) else {
                continue;
            };
            let mut rules = Vec::new();
            for selector in selectors {
                let labels: Vec<String> = selector
                    .match_labels
                    .iter()
                    .flatten()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                let selected = roles.list(&ListParams::default().labels(&labels.join(","))).await?;
                rules.extend(selected.into_iter().flat_map(|role| role.rules.unwrap_or_default()));
            }
            let name = role.metadata.name.context("a role without a name")?;
            let patch = serde_json::json!({"rules": rules});
            roles.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        Ok(())
    }

    /// Makes a namespace unless it exists.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn ensure_namespace(&self, name: &str) -> Result<()> {
        let manifest =
            serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.apply_object(&manifest).await.map(drop)
    }

    /// Applies every document of a YAML text (server-side, forced), kinds found by discovery.
    ///
    /// # Errors
    /// When a document cannot be read, its kind is not served, or the API server refuses it.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        for object in crds::documents(yaml)? {
            self.apply_object(&object).await?;
        }
        Ok(())
    }

    /// Applies one object (server-side, forced) and gives back what was stored. A kind whose CRD was just made may
    /// be answered 404, 429 or 503 for a moment, so those are tried again.
    ///
    /// # Errors
    /// When its kind is not served after a while, or the API server refuses it.
    pub async fn apply_object(&self, object: &serde_json::Value) -> Result<DynamicObject> {
        let parsed: DynamicObject =
            serde_json::from_value(object.clone()).context("not a Kubernetes object")?;
        let name = parsed.metadata.name.clone().context("the object has no name")?;
        let types = parsed.types.clone().context("the object has no apiVersion and kind")?;
        let kind = GroupVersionKind::try_from(&types)?;
        let mut refused = None;
        let applied = eventually(SOON, &format!("{} is served", types.kind), async || {
            let api = self.dynamic(&kind, parsed.metadata.namespace.as_deref()).await?;
            let params = PatchParams::apply("statusbridge-rig").force();
            match api.patch(&name, &params, &Patch::Apply(&parsed)).await {
                Err(kube::Error::Api(status)) if ![404, 429, 503].contains(&status.code) => {
                    refused = Some(kube::Error::Api(status));
                    Ok(None)
                }
                other => Ok(Some(other?)),
            }
        })
        .await?;
        match (applied, refused) {
            (Some(object), _) => Ok(object),
            (None, Some(error)) => Err(error).with_context(|| format!("applying {} {name}", types.kind)),
            (None, None) => anyhow::bail!("applying {} {name} came to nothing", types.kind),
        }
    }

    /// A client for any kind; in all namespaces when `namespace` is `None`. A kind is looked up once.
    ///
    /// # Errors
    /// When the kind is not served.
    pub async fn dynamic(
        &self,
        kind: &GroupVersionKind,
        namespace: Option<&str>,
    ) -> Result<Api<DynamicObject>> {
        let known = self.kinds.lock().unwrap_or_else(PoisonError::into_inner).get(kind).cloned();
        let (resource, scope) = match known {
            Some(known) => known,
            None => {
                let (resource, capabilities) = kube::discovery::pinned_kind(&self.client, kind).await?;
                let found = (resource, capabilities.scope);
                let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
                kinds.insert(kind.clone(), found.clone());
                found
            }
        };
        Ok(match (scope, namespace) {
            (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(self.client(), namespace, &resource),
            _ => Api::all_with(self.client(), &resource),
        })
    }

    /// Installs CRD files and waits until their kinds are served.
    ///
    /// # Errors
    /// When a file cannot be read, or a CRD is not established in time.
    pub async fn install_crds(&self, files: &[PathBuf]) -> Result<()> {
        crds::install(self, files).await
    }

    /// Runs kubectl as administrator and gives back what it printed.
    ///
    /// # Errors
    /// When it ends with another status than 0; the message holds what it said.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let out = self.kubectl_output(args).await?;
        ensure!(
            out.status.success(),
            "kubectl {} failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&out.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Runs kubectl as administrator, whatever status it ends with.
    ///
    /// # Errors
    /// When it cannot be run.
    pub async fn kubectl_output(&self, args: &[&str]) -> Result<std::process::Output> {
        tokio::process::Command::new(program("kubectl")?)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(args)
            // Its discovery cache would outlive this server on the same port.
            .env("KUBECACHEDIR", self.dir.join("kubectl-cache"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("running kubectl")
    }
}

/// A client from a kubeconfig file.
pub(crate) async fn client_from(kubeconfig: &Path) -> Result<Client> {
    let file = kube::config::Kubeconfig::read_from(kubeconfig).context("reading the kubeconfig")?;
    let mut config =
        Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(Client::try_from(config)?)
}
