//! `ui`: the page on one's own machine, from what one may read in the hub: FleetPackages, gates, FleetRollouts and slices.
//!
//! ```text
//!   lists and watches ─> State ─(questions)─> the aggregator's API and page, on a loopback address
//! ```

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use futures::StreamExt;
use futures::stream::{FuturesUnordered, SelectAll};
use kube::runtime::watcher;
use statusbridge_aggregator::clock;
use statusbridge_aggregator::gate_cache::GateCache;
use statusbridge_aggregator::health::Health;
use statusbridge_aggregator::hub;
use statusbridge_aggregator::metrics::Metrics;
use statusbridge_aggregator::serve::api::Api;
use statusbridge_aggregator::serve::desk::Desk;
use statusbridge_aggregator::serve::server::{self, Shown};
use statusbridge_core::decide::Moment;
use statusbridge_core::fleet::{Fleet, FleetSettings};
use statusbridge_core::reconcile::holds::Holds;
use statusbridge_core::reconcile::judge::World;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::Kind;
use statusbridge_core::reconcile::profiles;
use statusbridge_core::reconcile::state::{Rules, State};
use statusbridge_core::reconcile::store::{Event, Gates, Packages, Rollouts};
use statusbridge_core::time::Seconds;
use statusbridge_serving::options::ServerOptions;
use statusbridge_serving::signals::told_to_stop;
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;
use crate::hub::{Access, Hub};
use crate::output::{say, warn};

/// How often the hub is asked for the time, which also tells whether it can be reached.
const TICK: Duration = Duration::from_secs(5);
/// How long the page counts without an answer of the hub.
const PATIENCE: Duration = Duration::from_secs(20);

/// Flags of `ui`.
#[derive(Debug, Clone, Args)]
pub(crate) struct UiArgs {
    /// Show all namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Where the page is served: a loopback address, since whoever reaches it sees what you may see
    #[arg(long, default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
}

/// Serves the page until it is told to stop.
///
/// # Errors
/// When the hub cannot be reached, or the address cannot be listened on.
pub(crate) async fn run(access: &Access, args: UiArgs) -> Result<Exit> {
    if !args.listen.ip().is_loopback() {
        let message =
            format!("--listen {}: only loopback addresses, such as 127.0.0.1:8090, are served", args.listen);
        return Err(Exit::Usage.error(message));
    }
    let hub = access.connect().await?;
    let namespace = (!args.all_namespaces).then(|| hub.namespace.clone());
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    let (desk, board) = (Arc::<Desk>::default(), GateCache::new(PATIENCE));
    let metrics = Arc::new(Metrics::aggregator());
    let api = Api::new(desk.clone(), board.clone());
    let (health, shown_board) = (Health::new(PATIENCE), Some(board.clone()));
    let shown = Shown { metrics, health, board: shown_board, api: Some(api), rollouts: None };
    let query = namespace.as_ref().map(|namespace| format!("#/?namespace={namespace}")).unwrap_or_default();
    say(&format!("the page is at http://{}/ui/{query}", listener.local_addr()?));
    let stop = CancellationToken::new();
    let stopped = told_to_stop()?;
    let server = server::serve(listener, ServerOptions::default(), shown, stop.clone());
    tokio::select! {
        () = server => bail!("the server has ended"),
        ended = follow(&hub, namespace.as_deref(), &desk, &board) => ended.map(|()| Exit::Done),
        () = stopped => Ok(Exit::Done),
    }
}

/// What is read.
const KINDS: [Kind; 5] = [
    Kind::FleetPackage,
    Kind::RolloutGate,
    Kind::FleetPackageSlice,
    Kind::FleetRollout,
    Kind::FleetRolloutSlice,
];
/// Time until the hub is read anew after an error.
const AGAIN: Duration = Duration::from_secs(1);

/// Keeps up with the hub, and answers questions about it.
async fn follow(connected: &Hub, namespace: Option<&str>, desk: &Desk, board: &GateCache) -> Result<()> {
    let fleet = Fleet::new(FleetSettings::default());
    let mut state = State::new(fleet, profiles::Settings::default(), Rules::default(), 0);
    state.holds = Holds::none();
    (state.packages, state.gates) = (Packages::of_others(), Gates::of_others());
    state.rollouts = Rollouts::of_others();
    let mut heard = connected.events(&KINDS, namespace);
    // Kinds whose list is whole since nothing went wrong.
    let mut whole = BTreeSet::new();
    let mut again = None;
    let mut asked = FuturesUnordered::new();
    let mut questions = desk.open();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // How far the hub's clock is ahead of this machine's, in seconds.
    let mut ahead: Seconds = 0.0;
    loop {
        tokio::select! {
            Some((kind, event)) = heard.next() => match event {
                Ok(event) => {
                    if matches!(event, watcher::Event::InitDone) {
                        whole.insert(kind);
                    }
                    apply(&mut state, kind, hub::event(event), board);
                }
                Err(error) => {
                    let why = format!("{}s of the hub cannot be read: {error}", kind.name());
                    warn(&why);
                    board.silence(why);
                    whole.clear();
                    // What was missed shows in whole lists alone.
                    heard = SelectAll::new();
                    again = Some(Box::pin(sleep(AGAIN)));
                }
            },
            () = async { if let Some(rest) = &mut again { rest.await } }, if again.is_some() => {
                again = None;
                heard = connected.events(&KINDS, namespace);
            }
            _ = ticks.tick() => if asked.is_empty() {
                asked.push(connected.now());
            } else {
                board.silence("the hub does not answer");
            },
            Some(answer) = asked.next() => match answer {
                Ok(now) => {
                    ahead = now - clock::now();
                    if whole.len() == KINDS.len() {
                        board.spoke(Instant::now());
                    }
                }
                Err(error) => board.silence(format!("the hub does not answer: {error:#}")),
            },
            Some(question) = questions.recv() => {
                let now = clock::now() + ahead;
                question(&World::new(&state, Moment { t: now, now }));
            }
        }
    }
}

fn apply(state: &mut State, kind: Kind, event: Event<LazyObject>, board: &GateCache) {
    match kind {
        Kind::RolloutGate => {
            for key in state.gates.apply(event) {
                board.gate(&key, state.gates.get(&key));
            }
        }
        Kind::FleetPackage => {
            for key in state.packages.apply(event) {
                board.package(&key, state.packages.get(&key));
            }
        }
        Kind::FleetPackageSlice => drop(state.slices.apply(event)),
        Kind::FleetRollout => drop(state.rollouts.apply(event)),
        Kind::FleetRolloutSlice => drop(state.rollout_slices.apply(event)),
        _ => {}
    }
}
