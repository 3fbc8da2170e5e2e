//! `status`: the fleet at a glance, one FleetPackage and its gates, or one gate.
//!
//! ```text
//!   list and watch of both kinds ─> Fleet ─(the hub's clock)─> entries ─> table | JSON | YAML
//! ```
//!
//! Each entry is read by the rules of `wait` and of the gate page: one whose evidence is too old, or whose spec has not
//! been judged, is not shown as open, whatever stands in its status.

mod entry;
mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use futures::{FutureExt, StreamExt};
use kube::runtime::watcher;
use serde_json::json;
use statusbridge_aggregator::hub;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::store::{GateObject, Gates, Key, Kind, Packages};
use statusbridge_core::time::Seconds;
use statusbridge_serving::signals::told_to_stop;
use tokio::time::{Instant, sleep, timeout};

use crate::exit::Exit;
use crate::feeds::{Evidence, FeedArgs};
use crate::hub::{Access, Hub};
use crate::output::{Output, OutputArgs, warn};
use crate::target::{Target, target};
use entry::{Entry, Report};

/// Longest wait for the first lists.
const LIST: Duration = Duration::from_secs(60);
/// How often the hub is asked for the time while nothing happens: evidence grows old without an event.
const TICK: Duration = Duration::from_secs(5);

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
    let text = Printed::new(args.output.output, true).text(&entries, false);
    args.output.output.print(&text, &Report::of(entries))
}

async fn show(hub: &Hub, args: &StatusArgs) -> Result<()> {
    let namespace = (!args.all_namespaces).then_some(hub.namespace.as_str());
    let mut fleet = Fleet::default();
    let mut events = hub.events(&[Kind::FleetPackage, Kind::RolloutGate], namespace);
    let lists = timeout(LIST, async {
        while !fleet.is_listed() {
            let (kind, event) = events.next().await.context("the hub's API server ended the list")?;
            fleet.apply(kind, event.map_err(|error| refused(kind, &error))?);
        }
        anyhow::Ok(())
    });
    lists.await.map_err(|_| anyhow!("the hub's API server sent no list within {} s", LIST.as_secs()))??;
    let mut clock = Clock { now: hub.now().await?, at: Instant::now() };
    let entries = fleet.entries(args.target.as_ref(), clock.now());
    if let (Some(target), true) = (&args.target, entries.is_empty()) {
        let missing =
            format!("there is no {} {:?} in namespace {:?}", target.kind.name(), target.name, hub.namespace);
        return Err(Exit::NotFound.error(missing));
    }
    let output = args.output.output;
    let mut printed = Printed::new(output, args.all_namespaces);
    if !args.watch {
        return match (&args.target, entries.as_slice()) {
            (Some(Target { kind: Kind::RolloutGate, .. }), [gate]) => {
                output.print(&printed.text(&entries, true), gate)
            }
            (target, _) => {
                let text = printed.text(&entries, target.is_some());
                output.print(&text, &Report::of(entries))
            }
        };
    }
    printed.begin(&entries)?;
    let mut complaint = String::new();
    loop {
        tokio::select! {
            event = events.next() => {
                // What is there already is shown at once.
                let mut next = Some(event);
                while let Some(event) = next {
                    let (kind, event) = event.context("the hub's API server ended the watch")?;
                    match event {
                        Ok(event) => fleet.apply(kind, event),
                        Err(error) => {
                            let error = format!("{:#}", refused(kind, &error));
                            if complaint != error {
                                warn(&error);
                                complaint = error;
                            }
                        }
                    }
                    next = events.next().now_or_never();
                }
            }
            () = sleep(TICK) => {
                // Where it does not answer, time goes on all the same.
                if let Ok(now) = hub.now().await {
                    clock = Clock { now, at: Instant::now() };
                }
            }
        }
        if fleet.is_listed() {
            printed.go_on(&fleet.entries(args.target.as_ref(), clock.now()))?;
        }
    }
}

fn refused(kind: Kind, error: &watcher::Error) -> anyhow::Error {
    anyhow!("{}s: {error}", kind.name())
}

/// The present of the hub, as of when it was last asked.
struct Clock {
    now: Seconds,
    at: Instant,
}

impl Clock {
    fn now(&self) -> Seconds {
        self.now + self.at.elapsed().as_secs_f64()
    }
}

/// Packages and gates as they stand in the hub.
struct Fleet {
    packages: Packages,
    gates: Gates,
}

impl Default for Fleet {
    fn default() -> Self {
        Self { packages: Packages::of_others(), gates: Gates::of_others() }
    }
}

impl Fleet {
    fn is_listed(&self) -> bool {
        self.packages.complete() && self.gates.complete()
    }

    fn apply(&mut self, kind: Kind, event: watcher::Event<LazyObject>) {
        let event = hub::event(event);
        match kind {
            Kind::RolloutGate => drop(self.gates.apply(event)),
            Kind::FleetPackage => drop(self.packages.apply(event)),
            _ => {}
        }
    }

    /// Each package, followed by its gates; of a target, that alone. Gates without a package come last.
    fn entries(&self, target: Option<&Target>, now: Seconds) -> Vec<Entry> {
        let package_of = |gate: &GateObject| {
            let name = &gate.spec.as_ref().ok()?.fleet_package_ref.name;
            self.packages.get(&gate.key.beside(name))
        };
        let mut of_packages: BTreeMap<&Key, Vec<Entry>> = BTreeMap::new();
        let mut alone = Vec::new();
        for gate in self.gates.iter() {
            let package = package_of(gate);
            let entry = Entry::of_gate(gate, package, now);
            match package {
                Some(package) => of_packages.entry(&package.key).or_default().push(entry),
                None => alone.push(entry),
            }
        }
        let mut entries = Vec::new();
        for package in self.packages.iter() {
            entries.push(Entry::of_package(package, now));
            entries.extend(of_packages.remove(&package.key).into_iter().flatten());
        }
        entries.extend(alone);
        entries.retain(|entry| target.is_none_or(|target| entry.concerns(target)));
        entries
    }
}

/// What was printed of a watch.
struct Printed {
    output: Output,
    namespaces: bool,
    widths: Vec<usize>,
    /// By kind, namespace and name, what was last printed of each object.
    lines: BTreeMap<(Kind, Key), Vec<String>>,
}

impl Printed {
    fn new(output: Output, namespaces: bool) -> Self {
        Self { output, namespaces, widths: Vec::new(), lines: BTreeMap::new() }
    }

    /// The whole table, with what single objects say at length.
    fn text(&mut self, entries: &[Entry], at_length: bool) -> String {
        let (table, widths) = text::table(entries, self.namespaces);
        self.widths = widths;
        let rest = if at_length { text::details(entries) } else { text::summary(entries) };
        table + &rest
    }

    fn begin(&mut self, entries: &[Entry]) -> Result<()> {
        if self.output == Output::Text {
            let (table, widths) = text::table(entries, self.namespaces);
            self.widths = widths;
            self.output.print_next(&table, &())?;
        }
        for entry in entries {
            if self.output != Output::Text {
                self.output.print_next("", entry)?;
            }
            self.lines.insert(entry.key(), entry.news());
        }
        Ok(())
    }

    /// Prints the objects that are other than they were printed.
    fn go_on(&mut self, entries: &[Entry]) -> Result<()> {
        let mut before = std::mem::take(&mut self.lines);
        for entry in entries {
            let (key, news) = (entry.key(), entry.news());
            if before.remove(&key).as_ref() != Some(&news) {
                let row = text::row(entry, self.namespaces, &self.widths);
                self.output.print_next(&row, entry)?;
            }
            self.lines.insert(key, news);
        }
        for (kind, key) in before.into_keys() {
            let gone =
                json!({"kind": kind.name(), "namespace": key.namespace, "name": key.name, "state": "Gone"});
            self.output.print_next(&text::gone(kind, &key, self.namespaces, &self.widths), &gone)?;
        }
        Ok(())
    }
}
