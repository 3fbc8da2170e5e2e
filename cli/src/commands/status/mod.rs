//! `status`: the fleet at a glance, one FleetPackage and its gates, or one gate.
//!
//! ```text
//!   lists ─> Watched ─(the hub's clock)─> entries ─> table | JSON | YAML
//!   watches ──┘  └────────────────────────> tree ──> screen
//! ```
//!
//! Each entry is read by the rules of `wait` and of the gate page: one whose evidence is too old, or whose spec has not
//! been judged, is not shown as open, whatever stands in its status.

mod entry;
mod text;
mod tree;

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use kube::runtime::watcher::Config;
use serde_json::json;
use statusbridge_core::reconcile::object::{Key, Kind};
use statusbridge_serving::signals::told_to_stop;

use crate::exit::Exit;
use crate::feeds::{Evidence, FeedArgs};
use crate::hub::{Access, Hub};
use crate::output::{Output, OutputArgs};
use crate::screen::Screen;
use crate::target::{Target, target};
use crate::watched::{TICK, Watched};
use entry::{Entry, Report};
use tree::tree;

/// How old evidence may be where no FleetPackage says it.
const STALE_AFTER: &str = "3m";

/// Flags of `status`.
#[derive(Debug, Clone, Args)]
pub(crate) struct StatusArgs {
    /// gate/NAME, or package/NAME for a FleetPackage and its gates [default: all in the namespace]
    #[arg(value_name = "KIND/NAME", value_parser = target)]
    target: Option<Target>,
    /// Show all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["target", "namespace"])]
    all_namespaces: bool,
    /// Go on, and print what changes
    #[arg(long, short)]
    watch: bool,
    /// Ask no hub: read the backend, or the exporters that --config names, and show every package that a cluster reports
    #[arg(long, conflicts_with_all = ["target", "all_namespaces", "watch"])]
    without_hub: bool,
    #[command(flatten)]
    feeds: FeedArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints how things are, and with `--watch` what changes until it is told to stop.
///
/// # Errors
/// When the hub cannot be asked, or has no such object.
pub(crate) async fn run(access: &Access, args: StatusArgs) -> Result<Exit> {
    if args.without_hub {
        return show_reported(&args).await.map(|()| Exit::Done);
    }
    let hub = access.connect().await?;
    let stopped = told_to_stop()?;
    tokio::select! {
        ended = show(&hub, &args) => ended.map(|()| Exit::Done),
        () = stopped => Ok(Exit::Done),
    }
}

/// Prints what the clusters report, as it is now.
async fn show_reported(args: &StatusArgs) -> Result<()> {
    let mut evidence = Evidence::begin(&args.feeds, TICK)?;
    evidence.first().await?;
    let world = evidence.world();
    let entries: Vec<Entry> = world
        .reported(STALE_AFTER)
        .iter()
        .map(|package| Entry::of_package(package, world.moment.now))
        .collect();
    let text = text::all(&entries, true, false);
    args.output.output.print(&text, &Report::of(entries))
}

async fn show(hub: &Hub, args: &StatusArgs) -> Result<()> {
    let namespace = (!args.all_namespaces).then_some(hub.namespace.as_str());
    let (output, target) = (args.output.output, args.target.as_ref());
    let follows_tree = args.watch && output == Output::Text;
    let kinds = [Kind::FleetPackage, Kind::RolloutGate].into_iter();
    let kinds = kinds.chain(follows_tree.then_some(Kind::FleetRollout)).map(|kind| (kind, Config::default()));
    let mut watched = Watched::begin(hub, namespace, kinds).await?;
    let entries = entries(&watched, target);
    if let (Some(target), true) = (target, entries.is_empty()) {
        let missing =
            format!("there is no {} {:?} in namespace {:?}", target.kind.name(), target.name, hub.namespace);
        return Err(Exit::NotFound.error(missing));
    }
    if !args.watch {
        return match (target, entries.as_slice()) {
            (Some(Target { kind: Kind::RolloutGate, .. }), [gate]) => {
                output.print(&text::all(&entries, args.all_namespaces, true), gate)
            }
            (target, _) => {
                let text = text::all(&entries, args.all_namespaces, target.is_some());
                output.print(&text, &Report::of(entries))
            }
        };
    }
    let (mut screen, mut printed) = (Screen::new(), Printed::new(output));
    loop {
        if follows_tree {
            screen.show(&tree(&watched.objects, target, args.all_namespaces, watched.now()))?;
        } else {
            printed.go_on(&self::entries(&watched, target))?;
        }
        if let Some(complaint) = watched.change().await? {
            screen.warn(&complaint);
        }
    }
}

/// Each package, followed by its gates; of a target, that alone. Gates without a package come last.
fn entries(watched: &Watched, target: Option<&Target>) -> Vec<Entry> {
    let now = watched.now();
    let mut of_packages: BTreeMap<&Key, Vec<Entry>> = BTreeMap::new();
    let mut alone = Vec::new();
    for gate in watched.objects.gates.iter() {
        let package = gate.package().and_then(|key| watched.objects.packages.get(&key));
        let entry = Entry::of_gate(gate, package, now);
        match package {
            Some(package) => of_packages.entry(&package.key).or_default().push(entry),
            None => alone.push(entry),
        }
    }
    let mut entries = Vec::new();
    for package in watched.objects.packages.iter() {
        entries.push(Entry::of_package(package, now));
        entries.extend(of_packages.remove(&package.key).into_iter().flatten());
    }
    entries.extend(alone);
    entries.retain(|entry| target.is_none_or(|target| entry.concerns(target)));
    entries
}

/// What was printed of a watch, for programs.
struct Printed {
    output: Output,
    /// By kind, namespace and name, what was last printed of each object.
    told: BTreeMap<(Kind, Key), Vec<String>>,
}

impl Printed {
    fn new(output: Output) -> Self {
        Self { output, told: BTreeMap::new() }
    }

    /// Prints the objects that are other than they were printed.
    fn go_on(&mut self, entries: &[Entry]) -> Result<()> {
        let mut before = std::mem::take(&mut self.told);
        for entry in entries {
            let (key, news) = (entry.key(), entry.news());
            if before.remove(&key).as_ref() != Some(&news) {
                self.output.print_next("", entry)?;
            }
            self.told.insert(key, news);
        }
        for (kind, key) in before.into_keys() {
            let gone =
                json!({"kind": kind.name(), "namespace": key.namespace, "name": key.name, "state": "Gone"});
            self.output.print_next("", &gone)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
