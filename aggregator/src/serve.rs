//! What the subcommands do with their flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{ArgAction, Args};
use kube::client::ClientBuilder;
use kube::{Client, Config};
use statusbridge_serving::{kubeconfig, log::LogFormat, options::ServerArgs, signals::told_to_stop};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::api::{common, crd};
use crate::board::Board;
use crate::config::ConfigFile;
use crate::controller::{Controller, Pace};
use crate::discover;
use crate::feed::{Address, TlsFiles, Trust};
use crate::feeds::{self, Backend, BasicAuth, Plan};
use crate::fence::Fence;
use crate::fleet::FleetSettings;
use crate::heartbeat::{Heartbeat, NAMESPACE};
use crate::lease::{self, Candidate};
use crate::metrics::Metrics;
use crate::reception::Reception;
use crate::server::{self, Health, Shown};
use crate::sweeper::Sweeper;
use crate::write::CALL_TIMEOUT;

/// How to reach the hub.
#[derive(Debug, Clone, Args)]
pub struct Access {
    /// Kubeconfig of the hub [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, env = "STATUSBRIDGE_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long, env = "STATUSBRIDGE_CONTEXT")]
    context: Option<String>,
}

/// Flags that every long-running subcommand takes.
#[derive(Debug, Clone, Args)]
pub struct HubArgs {
    #[command(flatten)]
    access: Access,
    /// Namespace of the Leases, the same for every installation on a hub
    #[arg(long, env = "STATUSBRIDGE_LEASE_NAMESPACE", default_value = NAMESPACE)]
    lease_namespace: String,
    /// Address of /metrics, /healthz and /readyz
    #[arg(long, env = "STATUSBRIDGE_LISTEN", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    #[command(flatten)]
    server: ServerArgs,
    /// Form of the log on standard error; RUST_LOG says how much
    #[arg(long, env = "STATUSBRIDGE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
}

/// Flags of `serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    backend: BackendArgs,
    /// Time between polls of the metrics backend
    #[arg(long, env = "STATUSBRIDGE_POLL_INTERVAL", default_value = "15s", value_parser = duration)]
    poll_interval: Duration,
    /// How far behind the present the backend is asked, so that its answers are complete
    #[arg(long, env = "STATUSBRIDGE_SETTLE_DELAY", default_value = "5s", value_parser = duration)]
    settle_delay: Duration,
    /// Status writes a second at most; gates that close are not counted
    #[arg(long, env = "STATUSBRIDGE_WRITES_PER_SECOND", default_value_t = 20)]
    writes_per_second: u32,
    #[command(flatten)]
    discover: DiscoverArgs,
    /// YAML file with what is too rich for flags; read again when it changes
    #[arg(long, env = "STATUSBRIDGE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Show gates by name: /v1alpha1/gates/NAMESPACE/NAME, and statusbridge_gate_open on /metrics
    #[arg(long, env = "STATUSBRIDGE_SERVE_GATES", default_value_t = true, action = ArgAction::Set)]
    serve_gates: bool,
    #[command(flatten)]
    leader: LeaderArgs,
}

/// Flags about leader election, named as in Kubernetes' own components.
#[derive(Debug, Clone, Args)]
pub struct LeaderArgs {
    /// Work only while holding a Lease, so that several replicas can run
    #[arg(long, env = "STATUSBRIDGE_LEADER_ELECT", value_name = "BOOL", default_value_t = true,
        action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: bool,
    #[command(flatten)]
    times: lease::Times,
    /// Name of this installation in the leader's Lease: of several on a hub only one works [default: namespace of the
    /// context]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    installation: Option<String>,
    /// Name of this process in the Leases; what makes it unique is added
    #[arg(long, env = "HOSTNAME", default_value = "statusbridge-aggregator", hide = true)]
    identity: String,
}

/// Flags about FleetPackages that are made by themselves.
#[derive(Debug, Clone, Args)]
pub struct DiscoverArgs {
    /// Make a FleetPackage in this namespace for every package that any cluster reports
    #[arg(long, env = "STATUSBRIDGE_DISCOVER_INTO", value_name = "NAMESPACE")]
    discover_into: Option<String>,
    /// Most FleetPackages that are made so
    #[arg(long, env = "STATUSBRIDGE_DISCOVER_LIMIT", default_value_t = 1000, value_name = "NUMBER")]
    discover_limit: usize,
    /// Remove one again when no cluster has reported its package for so long
    #[arg(long, env = "STATUSBRIDGE_DISCOVER_FORGET_AFTER", default_value = "24h", value_parser = duration)]
    discover_forget_after: Duration,
}

impl DiscoverArgs {
    fn settings(&self) -> Option<discover::Settings> {
        let namespace = self.discover_into.clone().filter(|it| !it.is_empty())?;
        let forget_after = self.discover_forget_after.as_secs_f64();
        Some(discover::Settings { namespace, limit: self.discover_limit, forget_after })
    }
}

impl LeaderArgs {
    /// A name that no other process has, not even one that runs in the same place later.
    fn identity(&self) -> Result<String> {
        let mut random = [0; 4];
        if rustls::crypto::ring::default_provider().secure_random.fill(&mut random).is_err() {
            bail!("there is no source of randomness");
        }
        Ok(format!("{}_{:08x}", self.identity, u32::from_be_bytes(random)))
    }
}

/// Flags about the metrics backend.
#[derive(Debug, Clone, Args)]
pub struct BackendArgs {
    /// Base address of the Prometheus query API, for instance http://prometheus:9090
    #[arg(long = "backend", env = "STATUSBRIDGE_BACKEND", hide_env_values = true, value_name = "URL")]
    url: Option<Address>,
    /// What kind of backend it is: any, prometheus, thanos, victoriametrics
    #[arg(long = "backend-flavour", env = "STATUSBRIDGE_BACKEND_FLAVOUR", default_value = "any")]
    flavour: crate::feed::Flavour,
    /// Header sent with every query, for instance "X-Scope-OrgID: fleet"; may be repeated
    #[arg(long = "backend-header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// File with a bearer token for the backend; read again for every query
    #[arg(
        long = "backend-bearer-token-file",
        env = "STATUSBRIDGE_BACKEND_BEARER_TOKEN_FILE",
        conflicts_with = "username"
    )]
    bearer_token_file: Option<PathBuf>,
    /// User for HTTP basic authentication at the backend
    #[arg(
        long = "backend-basic-auth-username",
        env = "STATUSBRIDGE_BACKEND_BASIC_AUTH_USERNAME",
        requires = "password_file"
    )]
    username: Option<String>,
    /// File with that user's password; read again for every query
    #[arg(
        long = "backend-basic-auth-password-file",
        env = "STATUSBRIDGE_BACKEND_BASIC_AUTH_PASSWORD_FILE",
        requires = "username",
        value_name = "FILE"
    )]
    password_file: Option<PathBuf>,
    /// PEM file with certificate authorities to trust for the backend; read again when it changes
    #[arg(long = "backend-ca-file", env = "STATUSBRIDGE_BACKEND_CA_FILE")]
    ca_file: Option<PathBuf>,
    /// PEM file with the certificate to show to the backend; read again when it changes
    #[arg(
        long = "backend-client-cert-file",
        env = "STATUSBRIDGE_BACKEND_CLIENT_CERT_FILE",
        requires = "client_key_file"
    )]
    client_cert_file: Option<PathBuf>,
    /// PEM file with the private key of that certificate
    #[arg(
        long = "backend-client-key-file",
        env = "STATUSBRIDGE_BACKEND_CLIENT_KEY_FILE",
        requires = "client_cert_file"
    )]
    client_key_file: Option<PathBuf>,
    /// Longest time for one query
    #[arg(long = "backend-timeout", env = "STATUSBRIDGE_BACKEND_TIMEOUT", default_value = "10s", value_parser = duration)]
    timeout: Duration,
    /// Label that the metrics pipeline gives the cluster's name
    #[arg(long, env = "STATUSBRIDGE_CLUSTER_LABEL", default_value = "cluster")]
    cluster_label: String,
    /// Labels that the metrics pipeline gives exporters and nobody else, for instance
    /// 'namespace="statusbridge-system",job="statusbridge-exporter"': only such streams count. `statusbridge doctor` proposes some
    #[arg(long, env = "STATUSBRIDGE_TRUST", value_name = "MATCHERS", conflicts_with = "trust_all")]
    trust: Option<Trust>,
    /// Let every stream count: whoever is scraped in a cluster, or writes to the backend, can open its gates
    #[arg(long, env = "STATUSBRIDGE_TRUST_ALL")]
    trust_all: bool,
    /// Labels that do not tell streams apart, separated by commas
    #[arg(long, env = "STATUSBRIDGE_IGNORE_LABELS", value_delimiter = ',')]
    ignore_labels: Vec<String>,
    /// Largest believable difference between the backend's clock and a cluster's
    #[arg(long, env = "STATUSBRIDGE_MAX_CLOCK_SKEW", default_value = "60s", value_parser = duration)]
    max_clock_skew: Duration,
}

/// Flags of `sweep`.
#[derive(Debug, Clone, Args)]
pub struct SweepArgs {
    #[command(flatten)]
    hub: HubArgs,
    /// How old the aggregator's heartbeat may get before open gates are closed
    #[arg(long, env = "STATUSBRIDGE_HEARTBEAT_TIMEOUT", default_value = "60s", value_parser = duration)]
    heartbeat_timeout: Duration,
}

/// A duration such as `90s`, `1h30m` or `500ms`.
pub fn duration(text: &str) -> Result<Duration, common::BadDuration> {
    match text.strip_suffix("ms").and_then(|number| number.parse().ok()) {
        Some(milliseconds) => Ok(Duration::from_millis(milliseconds)),
        None => common::seconds(text).map(Duration::from_secs_f64),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is written NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Runs the aggregator until it is told to stop.
pub async fn serve(args: ServeArgs) -> Result<()> {
    args.hub.log_format.log_to(std::io::stderr);
    args.leader.times.check().context("flags of leader election")?;
    let identity = args.leader.identity()?;
    let (config, installation) = args.hub.access.configure(args.leader.installation.as_deref()).await?;
    let namespace = &args.hub.lease_namespace;
    let fence = if args.leader.leader_elect { Fence::shut() } else { Fence::none() };
    // Whatever works for the leader goes through the fence; only the leader's lease does not.
    let client = ClientBuilder::try_from(config.clone()).context("client of the hub")?;
    let client = client.with_layer(&fence.layer(CALL_TIMEOUT)).build();
    let named = ConfigFile::open(args.config.clone())?;
    let timeouts = named.current().feeds.backends.iter().map(|backend| backend.timeout);
    let timeout = timeouts.fold(args.backend.timeout, Duration::max);
    // The backend may take its time; only a loop that stands still is dead.
    let health = Health::new(args.poll_interval + 10 * timeout + Duration::from_secs(60));
    // A round that is late because the backend is slow is not a loop that stands still.
    let patience = 4 * args.poll_interval.max(Duration::from_secs(1)) + 2 * timeout;
    let board = Board::authorized(patience, args.hub.server.authorize_scrapes);
    board.has_tenants(named.current().tenants.is_configured());
    let served = args.serve_gates.then(|| board.clone());
    let metrics = Arc::new(Metrics::aggregator().with_gates(served.clone()));
    let seconds = i32::try_from(4 * args.poll_interval.as_secs()).unwrap_or(i32::MAX).max(1);
    let pace = Pace {
        poll_interval: args.poll_interval.max(Duration::from_millis(100)),
        writes_per_second: args.writes_per_second,
    };
    let reception = Reception::new(metrics.clone());
    let plan = plan(&args, pace.poll_interval, metrics.clone(), reception);
    // Each leadership starts from nothing: what was known before may have been overtaken.
    let fresh = |epoch: Option<i64>| -> Result<Controller> {
        let file = ConfigFile::open(args.config.clone())?;
        let fleet = args.backend.fleet();
        let heartbeat = Heartbeat::new(client.clone(), namespace, identity.clone(), seconds);
        let (client, plan, board) = (client.clone(), plan.clone(), board.clone());
        let (metrics, health) = (metrics.clone(), health.clone());
        let controller = Controller::new(client, file, plan, fleet, pace, heartbeat, metrics, health, board)?;
        Ok(controller.in_epoch(epoch).discovering(args.discover.settings()))
    };
    // What is wrong with the flags is said now, not when this process comes to lead.
    let first = fresh(None)?;
    // Who may ask is asked of the hub by those too who do not lead.
    let unfenced = Client::try_from(config).context("client of the hub")?;
    let shown = Shown { metrics: metrics.clone(), health: health.clone(), board: served };
    run(&args.hub, unfenced.clone(), shown, async |stop| {
        if !args.leader.leader_elect {
            metrics.leads(true);
            let mut controller = first;
            while controller.run(stop.clone()).await {
                controller = fresh(None)?;
            }
            return Ok(());
        }
        drop(first);
        let candidate = Candidate::new(
            unfenced,
            namespace,
            installation,
            identity.clone(),
            args.leader.times,
            fence,
            metrics.clone(),
            health.clone(),
        );
        candidate
            .run(&stop, async |epoch| {
                while fresh(Some(epoch))?.run(stop.clone()).await {}
                Ok(())
            })
            .await
    })
    .await
}

/// How the feeds are made that flags and the configuration name.
fn plan(args: &ServeArgs, interval: Duration, metrics: Arc<Metrics>, reception: Arc<Reception>) -> Plan {
    let (flags, settle) = (args.backend.clone(), args.settle_delay);
    Arc::new(move |config| {
        let mut feeds = Vec::new();
        for backend in flags.backends(&config.feeds)? {
            feeds.push(backend.feed(settle, interval)?);
        }
        if let Some(scrape) = &config.feeds.scrape {
            feeds.push(feeds::scrape(scrape.clone(), interval, metrics.clone())?);
        }
        // Last: it takes effect at once.
        match &config.feeds.push {
            Some(push) => feeds.push(feeds::push(push.clone(), interval, reception.clone())?),
            None => reception.close(),
        }
        if feeds.is_empty() {
            bail!("there is nothing to ask: neither --backend nor `feeds` in the configuration file");
        }
        Ok(feeds)
    })
}

/// Runs the sweeper until it is told to stop.
pub async fn sweep(args: SweepArgs) -> Result<()> {
    args.hub.log_format.log_to(std::io::stderr);
    let (config, _) = args.hub.access.configure(None).await?;
    let namespace = args.hub.lease_namespace.clone();
    let client = Client::try_from(config).context("client of the hub")?;
    let health = Health::new(Duration::from_secs(120));
    let metrics = Arc::new(Metrics::sweeper());
    let timeout = args.heartbeat_timeout;
    if timeout.is_zero() {
        bail!("--heartbeat-timeout must be more than 0s");
    }
    let shown = Shown { metrics: metrics.clone(), health: health.clone(), board: None };
    let sweeper = Sweeper { client: client.clone(), namespace, timeout, metrics, health };
    run(&args.hub, client, shown, async |stop| {
        sweeper.run(stop).await;
        Ok(())
    })
    .await
}

/// Prints the CRDs, or writes each to its file in a directory.
pub fn crds(directory: Option<&Path>) -> Result<()> {
    for (name, yaml) in crd::files()? {
        match directory {
            Some(directory) => {
                let path = directory.join(name);
                std::fs::write(&path, yaml).with_context(|| format!("writing {}", path.display()))?;
            }
            None => print!("{yaml}"),
        }
    }
    Ok(())
}

async fn run(
    args: &HubArgs,
    hub: Client,
    shown: Shown,
    work: impl AsyncFnOnce(CancellationToken) -> Result<()>,
) -> Result<()> {
    let options = args.server.options(&shown.metrics.server, async || Ok(hub)).await?;
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    info!(address = %listener.local_addr()?, "serving /metrics, /healthz and /readyz");
    let stop = CancellationToken::new();
    let (stopped, stopping) = (told_to_stop()?, stop.clone());
    tokio::spawn(async move {
        stopped.await;
        info!("stopping");
        stopping.cancel();
    });
    let server = tokio::spawn(server::serve(listener, options, shown, stop.clone()));
    let outcome = work(stop.clone()).await;
    stop.cancel();
    server.await.context("the HTTP server ended badly")?;
    outcome
}

impl Access {
    async fn configure(&self, namespace: Option<&str>) -> Result<(Config, String)> {
        let mut config = kubeconfig::find(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        config.connect_timeout = Some(Duration::from_secs(5));
        // A watch gets a bookmark about once a minute; one that is silent for longer is dead.
        config.read_timeout = Some(Duration::from_secs(150));
        let namespace = namespace.map_or_else(|| config.default_namespace.clone(), str::to_owned);
        Ok((config, namespace))
    }
}

impl BackendArgs {
    /// Every backend: the one that flags name, and those of the configuration file.
    ///
    /// # Errors
    /// When flags do not say who is believed, or cannot be used.
    pub fn backends(&self, feeds: &feeds::Settings) -> Result<Vec<Backend>> {
        let trust = || {
            self.trust().context(
                "nothing says whose samples count: --trust names labels that only exporters bear, for instance \
                 --trust 'namespace=\"statusbridge-system\",job=\"statusbridge-exporter\"' (`statusbridge doctor` proposes some); \
                 --trust-all believes whoever is scraped",
            )
        };
        let flags = if self.has_url() { self.backend(trust()?, feeds)? } else { None };
        Ok(flags.into_iter().chain(feeds.backends.iter().cloned()).collect())
    }

    fn has_url(&self) -> bool {
        self.url.as_ref().is_some_and(|url| !url.is_empty())
    }

    /// Who is believed, where flags say it.
    pub fn trust(&self) -> Option<Trust> {
        self.trust_all.then_some(Trust::All).or_else(|| self.trust.clone())
    }

    /// The backend that flags name, if they do, where these are believed.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn backend(&self, trust: Trust, feeds: &feeds::Settings) -> Result<Option<Backend>> {
        let Some(url) = self.url.clone().filter(|_| self.has_url()) else { return Ok(None) };
        let basic_auth = self.username.clone().zip(self.password_file.clone());
        let backend = Backend {
            name: feeds.name_of_flags().to_owned(),
            url,
            flavour: self.flavour,
            headers: self.headers.iter().cloned().collect(),
            bearer_token_file: self.bearer_token_file.clone(),
            basic_auth: basic_auth.map(|(username, password_file)| BasicAuth { username, password_file }),
            tls: TlsFiles {
                ca_file: self.ca_file.clone(),
                cert_file: self.client_cert_file.clone(),
                key_file: self.client_key_file.clone(),
                server_name: None,
            },
            timeout: self.timeout,
            cluster_label: self.cluster_label.clone(),
            trust,
            ignore_labels: self.ignore_labels.iter().filter(|label| !label.is_empty()).cloned().collect(),
            settle_delay: None,
            batch_samples: None,
            checks: true,
        };
        match backend.check() {
            Ok(()) => Ok(Some(backend)),
            Err((field, error)) => bail!("the backend that flags name: {field}: {error}"),
        }
    }

    /// By which limits evidence is judged.
    pub fn fleet(&self) -> FleetSettings {
        FleetSettings { max_clock_skew: self.max_clock_skew.as_secs_f64(), ..FleetSettings::default() }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    #[test]
    fn flags_fit_together_and_say_the_times_of_an_election() {
        let mut command = ServeArgs::augment_args(Command::new("serve"));
        command.clone().debug_assert();
        let help = command.render_help().to_string();
        assert!(help.contains("--leader-elect-renew-deadline <DURATION>"), "{help}");
        let flags = ["serve", "--leader-elect-lease-duration", "60s", "--backend-timeout", "500ms"];
        let parsed = command.try_get_matches_from(flags).unwrap();
        let args = ServeArgs::from_arg_matches(&parsed).unwrap();
        let seconds = Duration::from_secs;
        let (lease_duration, renew_deadline, retry_period) = (seconds(60), seconds(10), seconds(2));
        assert_eq!(args.leader.times, lease::Times { lease_duration, renew_deadline, retry_period });
        assert_eq!(args.backend.timeout, Duration::from_millis(500));
    }
}
