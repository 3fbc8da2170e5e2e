//! What the subcommands do with their flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{ArgAction, Args};
use kube::Client;
use kube::client::ClientBuilder;
use statusbridge_api::common::duration;
use statusbridge_api::crd;
use statusbridge_core::fleet::FleetSettings;
use statusbridge_core::reconcile::calls::CALL_TIMEOUT;
use statusbridge_core::reconcile::discover;
use statusbridge_core::reconcile::election::Candidate;
use statusbridge_serving::log::LogFormat;
use statusbridge_serving::options::ServerArgs;
use statusbridge_serving::signals::told_to_stop;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::feed::flags::BackendArgs;
use crate::feed::push::server::PushServer;
use crate::feed::{self, Plan};
use crate::gate_cache::GateCache;
use crate::health::Health;
use crate::hub::access::Access;
use crate::hub::admitted::Admitted;
use crate::hub::directory::Directory;
use crate::hub::events::Events;
use crate::hub::heartbeat::{Heartbeat, NAMESPACE};
use crate::hub::hub_clock::HubClock;
use crate::hub::leadership_guard::LeadershipGuard;
use crate::hub::lease::{self, Election};
use crate::hub::sweeper::Sweeper;
use crate::metrics::Metrics;
use crate::serve::api::Api;
use crate::serve::api::admitted::Rollouts;
use crate::serve::cluster_tokens::{ClusterTokens, Files};
use crate::serve::config::ConfigFile;
use crate::serve::controller::{Controller, Pace, Settings};
use crate::serve::desk::Desk;
use crate::serve::server::{self, Shown};

/// Flags that every long-running subcommand takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct HubArgs {
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
    /// A directory of YAML files instead of a hub's API server, to try things out and for pipelines without a hub: what is
    /// written goes to PATH/status
    #[arg(
        long = "hub",
        env = "STATUSBRIDGE_HUB",
        value_name = "dir:PATH",
        value_parser = directory,
        conflicts_with_all = ["kubeconfig", "context"]
    )]
    directory: Option<PathBuf>,
    #[command(flatten)]
    backend: BackendArgs,
    /// Time between polls of the metrics backend
    #[arg(long, env = "STATUSBRIDGE_POLL_INTERVAL", default_value = "15s", value_parser = duration)]
    poll_interval: Duration,
    /// How far behind the present the backend is asked, so that its answers are complete
    #[arg(long, env = "STATUSBRIDGE_SETTLE_DELAY", default_value = "5s", value_parser = duration)]
    settle_delay: Duration,
    /// Forget an exporter that was not heard from for so long, and with its last exporter a cluster: gates for all
    /// clusters that report then no longer wait for it
    #[arg(long, env = "STATUSBRIDGE_FORGET_EXPORTERS_AFTER", default_value = "1h", value_parser = duration)]
    forget_exporters_after: Duration,
    /// Status writes a second at most; gates that close are not counted
    #[arg(long, env = "STATUSBRIDGE_WRITES_PER_SECOND", default_value_t = 20)]
    writes_per_second: u32,
    #[command(flatten)]
    discover: DiscoverArgs,
    /// YAML file with what is too rich for flags; read again when it changes
    #[arg(long, env = "STATUSBRIDGE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Show gates by name: /v1alpha1/gates/NAMESPACE/NAME, and metrics of gates and FleetPackages on /metrics
    #[arg(long, env = "STATUSBRIDGE_SERVE_GATES", default_value_t = true, action = ArgAction::Set)]
    serve_gates: bool,
    /// Show the fleet: the page at /ui/, and /v1alpha1/ with fleet, packages, gates, rollouts, clusters and verdict for any revision.
    /// Needs --authorize-scrapes on addresses that others reach
    #[arg(long = "serve-fleet", env = "STATUSBRIDGE_SERVE_FLEET")]
    fleet: bool,
    /// Hand over what FleetRollouts admit: /v1alpha1/rollouts/NAMESPACE/NAME/clusters/CLUSTER, and the generator plugin of
    /// ApplicationSets. Needs --authorize-scrapes on addresses that others reach
    #[arg(long = "serve-rollouts", env = "STATUSBRIDGE_SERVE_ROLLOUTS")]
    rollouts: bool,
    #[command(flatten)]
    leader: LeaderArgs,
}

/// Flags about leader election, named as in Kubernetes' own components.
#[derive(Debug, Clone, Args)]
pub(crate) struct LeaderArgs {
    #[command(flatten)]
    times: lease::Times,
    /// Name of this installation in the leader's Lease: of several on a hub only one works [default: namespace of the
    /// context]
    #[arg(long, env = "STATUSBRIDGE_INSTALLATION", value_name = "NAME")]
    installation: Option<String>,
    /// Name of this process in the Leases; what makes it unique is added
    #[arg(long, env = "HOSTNAME", default_value = "statusbridge-aggregator", hide = true)]
    identity: String,
}

/// Flags about FleetPackages that are made by themselves.
#[derive(Debug, Clone, Args)]
pub(crate) struct DiscoverArgs {
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

/// What `--hub` names.
fn directory(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("dir:").filter(|path| !path.is_empty());
    path.map(PathBuf::from).ok_or_else(|| "expected dir:PATH, with the path of a directory".to_owned())
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

/// Flags of `sweep`.
#[derive(Debug, Clone, Args)]
pub struct SweepArgs {
    #[command(flatten)]
    hub: HubArgs,
    /// How old the aggregator's heartbeat may get before open gates are closed
    #[arg(long, env = "STATUSBRIDGE_HEARTBEAT_TIMEOUT", default_value = "60s", value_parser = duration)]
    heartbeat_timeout: Duration,
    /// Name of this process in Events
    #[arg(long, env = "HOSTNAME", default_value = "statusbridge-sweeper", hide = true)]
    identity: String,
}

/// Runs the aggregator until it is told to stop.
pub async fn serve(args: ServeArgs) -> Result<()> {
    args.hub.log_format.log_to(std::io::stderr);
    args.leader.times.check().context("flags of leader election")?;
    let identity = args.leader.identity()?;
    let namespace = &args.hub.lease_namespace;
    let fence = LeadershipGuard::shut();
    // Whatever works for the leader goes through the fence; only the leader's lease does not.
    let Hub { fenced: client, unfenced, clock, installation, directory } = hub(&args, &fence).await?;
    let named = ConfigFile::open(args.config.clone())?;
    let timeouts = named.current().feeds.backends.iter().map(|backend| backend.timeout);
    let timeout = timeouts.fold(args.backend.timeout, Duration::max);
    // The backend may take its time; only a loop that stands still is dead.
    let health = Health::new(args.poll_interval + 10 * timeout + Duration::from_secs(60));
    // A round that is late because the backend is slow is not a loop that stands still.
    let patience = 4 * args.poll_interval.max(Duration::from_secs(1)) + 2 * timeout;
    let board = GateCache::authorized(patience, args.hub.server.authorize_scrapes);
    board.has_tenants(named.current().tenants.is_configured());
    let desk = Arc::<Desk>::default();
    let served = args.serve_gates.then(|| board.clone());
    let metrics = Arc::new(Metrics::aggregator().with_gates(served.clone()));
    let seconds = i32::try_from(4 * args.poll_interval.as_secs()).unwrap_or(i32::MAX).max(1);
    let pace = Pace {
        poll_interval: args.poll_interval.max(Duration::from_millis(100)),
        writes_per_second: args.writes_per_second,
    };
    let reception = PushServer::new(metrics.clone());
    let plan = plan(&args, pace.poll_interval, metrics.clone(), reception);
    let events = Events::start(client.clone(), "aggregator", &identity, metrics.clone());
    // Each leadership starts from nothing: what was known before may have been overtaken.
    let fresh = |epoch: i64| -> Result<Controller> {
        let file = ConfigFile::open(args.config.clone())?;
        let forget_after = args.forget_exporters_after.as_secs_f64();
        let fleet = FleetSettings { forget_after, ..args.backend.fleet() };
        let heartbeat = Heartbeat::new(client.clone(), namespace, identity.clone(), seconds);
        let heartbeat = if args.directory.is_some() { heartbeat.without_sweeper() } else { heartbeat };
        let (discovery, events) = (args.discover.settings(), events.clone());
        let lease_namespace = namespace.clone();
        let settings = Settings { pace, fleet, epoch, discovery, events, lease_namespace };
        let (client, plan, shown) = (client.clone(), plan.clone(), (board.clone(), desk.clone()));
        Controller::new(client, file, plan, settings, heartbeat, metrics.clone(), health.clone(), shown)
    };
    // What is wrong with the flags is said now, not when this process comes to lead.
    fresh(0)?;
    let api = args.fleet.then(|| Api::new(desk.clone(), board.clone()));
    let rollouts = if args.rollouts { Some(rollouts(&args, &board, unfenced.clone())?) } else { None };
    let open =
        [(args.fleet, "--serve-fleet shows the fleet"), (args.rollouts, "--serve-rollouts shows rollouts")];
    if let Some((_, shows)) = open.iter().find(|(is_served, _)| *is_served)
        && !args.hub.server.authorize_scrapes
        && !args.hub.listen.ip().is_loopback()
    {
        bail!(
            "{shows} to whoever reaches {}: add --authorize-scrapes, or listen on 127.0.0.1",
            args.hub.listen
        );
    }
    let shown = Shown { metrics: metrics.clone(), health: health.clone(), board: served, api, rollouts };
    run(&args.hub, unfenced.clone(), shown, async |stop| {
        let candidate =
            Candidate { installation, identity: identity.clone(), term: args.leader.times.term() };
        let retry = args.leader.times.retry_period;
        let election = Election::new(
            (unfenced, clock),
            namespace,
            candidate,
            retry,
            fence,
            metrics.clone(),
            health.clone(),
        );
        let leads = election.run(&stop, async |epoch| {
            while fresh(epoch)?.run(stop.clone()).await {}
            Ok(())
        });
        let lost = async {
            match directory {
                Some(directory) => directory.lost().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            outcome = leads => outcome,
            error = lost => Err(error),
        }
    })
    .await
}

/// The hub, as this process reaches it.
struct Hub {
    /// Passes what changes something only while this process leads.
    fenced: Client,
    /// Who may ask is asked by those too who do not lead.
    unfenced: Client,
    /// What the answers to `unfenced` tell.
    clock: HubClock,
    installation: String,
    directory: Option<Directory>,
}

async fn hub(args: &ServeArgs, fence: &LeadershipGuard) -> Result<Hub> {
    let installation = args.leader.installation.as_deref();
    if let Some(path) = &args.directory {
        if args.hub.server.authorize_scrapes {
            bail!(
                "--authorize-scrapes asks the hub's API server who may read, and --hub dir:{} has none: leave it out and \
                 listen on 127.0.0.1",
                path.display()
            );
        }
        let directory = Directory::open(path).await?;
        let (fenced, unfenced) = directory.clients(fence, CALL_TIMEOUT);
        let installation = installation.unwrap_or("directory").to_owned();
        // Its clock is ours.
        let clock = HubClock::default();
        return Ok(Hub { fenced, unfenced, clock, installation, directory: Some(directory) });
    }
    let (config, installation) = args.hub.access.configure(installation).await?;
    let fenced = ClientBuilder::try_from(config.clone()).context("client of the hub")?;
    let fenced = fenced.with_layer(&fence.layer(CALL_TIMEOUT)).build();
    let clock = HubClock::default();
    let unfenced = ClientBuilder::try_from(config).context("client of the hub")?;
    let unfenced = unfenced.with_layer(&clock.layer()).build();
    Ok(Hub { fenced, unfenced, clock, installation, directory: None })
}

/// Begins to read what FleetRollouts admit, and which cluster may ask by which token.
fn rollouts(args: &ServeArgs, board: &Arc<GateCache>, hub: Client) -> Result<Arc<Rollouts>> {
    let (admitted, tokens) = (Arc::<Admitted>::default(), Arc::<ClusterTokens>::default());
    let files = Files::open(ConfigFile::open(args.config.clone())?)?;
    let rollouts = Rollouts::new(admitted.clone(), tokens.clone(), board.clone());
    tokio::spawn(async move { admitted.follow(hub).await });
    tokio::spawn(async move { tokens.follow(files).await });
    Ok(rollouts)
}

/// How the feeds are made that flags and the configuration name.
fn plan(args: &ServeArgs, interval: Duration, metrics: Arc<Metrics>, reception: Arc<PushServer>) -> Plan {
    let (flags, settle) = (args.backend.clone(), args.settle_delay);
    Arc::new(move |feeds| {
        let mut all = Vec::new();
        for backend in flags.backends(feeds)? {
            all.push(backend.feed(settle, interval)?);
        }
        if let Some(scrape) = &feeds.scrape {
            all.push(feed::scrape(scrape.clone(), interval, metrics.clone())?);
        }
        // Last: it takes effect at once.
        match &feeds.push {
            Some(push) => all.push(feed::push(push.clone(), interval, reception.clone())?),
            None => reception.close(),
        }
        if all.is_empty() {
            bail!("there is nothing to ask: neither --backend nor `feeds` in the configuration file");
        }
        Ok(all)
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
    let shown =
        Shown { metrics: metrics.clone(), health: health.clone(), board: None, api: None, rollouts: None };
    let events = Events::start(client.clone(), "sweeper", &args.identity, metrics.clone());
    let sweeper = Sweeper { client: client.clone(), namespace, timeout, metrics, health, events };
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
