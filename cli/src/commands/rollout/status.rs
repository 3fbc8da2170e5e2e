//! `rollout status`: FleetRollouts at a glance, or one wave by wave, as it goes on if asked.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use futures::future::OptionFuture;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::Config;
use statusbridge_aggregator::hub::write::in_time;
use statusbridge_api::common::duration;
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::object::{Kind, RolloutObject};
use statusbridge_serving::signals::told_to_stop;
use tokio::time::{Instant, sleep_until};

use super::one::One;
use super::pause::PAUSED_BECAUSE;
use super::text;
use crate::exit::Exit;
use crate::hub::{Access, Hub};
use crate::output::{Output, OutputArgs};
use crate::rollout::{Rollout, RolloutState};
use crate::screen::Screen;
use crate::target::{name, revision};
use crate::tree::Branch;
use crate::watched::Watched;

/// Flags of `rollout status`.
#[derive(Debug, Clone, Args)]
pub(crate) struct StatusArgs {
    /// Name of a FleetRollout [default: all in the namespace]
    #[arg(value_parser = name)]
    rollout: Option<String>,
    /// Go on until it is rolled out, and show what changes
    #[arg(long, short, requires = "rollout")]
    watch: bool,
    /// When --watch ends
    #[arg(long, value_enum, default_value_t = Until::RolledOut, requires = "watch")]
    until: Until,
    /// How long to watch at most [default: as long as it takes]
    #[arg(long, value_parser = duration, requires = "watch")]
    timeout: Option<Duration>,
    /// The revision that you mean; refuses where another one is rolled out
    #[arg(long, value_parser = revision, requires = "rollout")]
    revision: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// When `--watch` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Until {
    /// When it is rolled out, with exit code 0
    RolledOut,
    /// Also when it is stalled, with exit code 3
    Settled,
}

/// Prints how things are, and with `--watch` what changes.
///
/// # Errors
/// When the hub cannot be asked, has no such FleetRollout, or another revision is rolled out.
pub(super) async fn run(access: &Access, args: StatusArgs) -> Result<Exit> {
    let hub = access.connect().await?;
    let Some(name) = args.rollout.clone() else {
        return all(&hub, args.output.output).await.map(|()| Exit::Done);
    };
    let until = args.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let stopped = told_to_stop()?;
    tokio::select! {
        ended = show(&hub, &name, &args) => ended,
        Some(()) = OptionFuture::from(until.map(sleep_until)) => {
            Err(Exit::TimedOut.error(format!("the time is over, and rollout/{name} is not rolled out")))
        }
        () = stopped => bail!("told to stop"),
    }
}

async fn all(hub: &Hub, output: Output) -> Result<()> {
    let kinds = [Kind::FleetRollout, Kind::FleetPackage, Kind::RolloutGate];
    let kinds = kinds.map(|kind| (kind, Config::default()));
    let watched = Watched::begin(hub, Some(&hub.namespace), kinds).await?;
    let now = watched.now();
    let read = |object: &RolloutObject| {
        let package = object.spec.as_ref().ok().map(|spec| object.key.beside(&spec.fleet_package_ref.name));
        let package = package.and_then(|package| watched.objects.packages.get(&package));
        Rollout::of(object, package, watched.objects.gates.within(&object.key.namespace), now)
    };
    let rollouts: Vec<Rollout> = watched.objects.rollouts.iter().map(read).collect();
    output.print(&text::all(&rollouts, now), &rollouts)
}

async fn show(hub: &Hub, name: &str, args: &StatusArgs) -> Result<Exit> {
    let mut one = One::begin(hub, name).await?;
    let output = args.output.output;
    if !args.watch {
        let (rollout, tree) = look(hub, &one, args).await?;
        output.print(&text::one(&tree), &rollout)?;
        return Ok(Exit::Done);
    }
    let mut screen = Screen::new();
    let mut last = None;
    loop {
        let (rollout, tree) = look(hub, &one, args).await?;
        if output == Output::Text {
            screen.show(&tree)?;
        } else {
            let news = rollout.news();
            if last.as_ref() != Some(&news) {
                output.print_next("", &rollout)?;
                last = Some(news);
            }
        }
        match rollout.state {
            RolloutState::RolledOut => return Ok(Exit::Done),
            RolloutState::Stalled if args.until == Until::Settled => return Ok(Exit::Stalled),
            _ => {}
        }
        if let Some(complaint) = one.watched.change().await? {
            screen.warn(&complaint);
        }
    }
}

/// The FleetRollout as it is now, if it is at the revision that is meant.
async fn look(hub: &Hub, one: &One, args: &StatusArgs) -> Result<(Rollout, Vec<Branch>)> {
    let rollout = one.read()?;
    let own = rollout.revision.as_deref();
    if let Some(meant) = args.revision.as_deref().filter(|meant| own.is_none_or(|own| !is_same(own, meant))) {
        let own = own.unwrap_or("no revision");
        let message = format!("rollout/{} is at {own}, not {meant}", rollout.name);
        return Err(Exit::OtherRevision.error(message));
    }
    let why = if rollout.paused { paused_because(hub, &rollout).await } else { None };
    let tree = text::tree(&rollout, one.problems(), why.as_deref(), one.watched.now());
    Ok((rollout, tree))
}

fn is_same(one: &str, other: &str) -> bool {
    Fingerprint::of(one) == Fingerprint::of(other)
}

/// Why somebody has paused it, if that can be read. Of annotations a watch keeps only those that decisions rest on.
async fn paused_because(hub: &Hub, rollout: &Rollout) -> Option<String> {
    let resource = Kind::FleetRollout.resource();
    let rollouts = Api::<DynamicObject>::namespaced_with(hub.client.clone(), &rollout.namespace, &resource);
    let metadata = in_time(rollouts.get_metadata_opt(&rollout.name)).await.ok().flatten()?;
    metadata.annotations().get(PAUSED_BECAUSE).cloned()
}
