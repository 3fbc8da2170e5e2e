//! `set-revision`: moves a FleetPackage and its gates to a revision together, and leaves no moment in
//! which a gate that was open for the revision before could be taken for one of the new revision.
//!
//! ```text
//!   gates, last waves first ──> the aggregator has judged each anew ──> no gate is left ──> FleetPackage
//! ```
//!
//! A gate whose spec changes is closed from that very write on, for everybody who looks at
//! `observedGeneration`; for everybody else once it was judged anew. Only then something else says
//! that the new revision is wanted. Where this stops half-way, the moved gates are closed until
//! their clusters are healthy at the new revision, and the same command goes on where it stopped.

mod plan;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use kube::api::{Api, ListParams};
use kube::{Error, ResourceExt};
use serde_json::{Value, json};
use statusbridge_aggregator::hub::write::{self, HubError, Written, in_time};
use statusbridge_api::common::duration;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::store::{Key, Kind, Version};
use tokio::time::{Instant, sleep};

use crate::exit::Exit;
use crate::hub::{Access, Hub};
use crate::output::say;
use crate::target::{revision, warn_of};
use plan::{Gate, Plan, plan};

/// How often a write is tried again because the object has changed meanwhile, if only in its status.
const ATTEMPTS: usize = 10;
/// How often gates are looked for that came or were moved back meanwhile.
const ROUNDS: usize = 5;
/// Time between two looks at whether gates have been judged.
const LOOK: Duration = Duration::from_millis(500);

/// Flags of `set-revision`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SetRevisionArgs {
    /// Name of the FleetPackage
    package: String,
    /// The revision that is wanted from now on
    #[arg(value_parser = revision)]
    revision: String,
    /// Move only these gates, separated by commas; the others stay where they are
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    gates: Option<Vec<String>>,
    /// How long to wait for the aggregator to judge the moved gates, before the FleetPackage is moved
    #[arg(long, default_value = "1m", value_parser = duration)]
    timeout: Duration,
    /// Only say what would be done; the API server checks it, but keeps nothing
    #[arg(long)]
    dry_run: bool,
}

/// Moves the gates, then the FleetPackage, and prints what it does.
///
/// # Errors
/// When it may not or cannot be done, or only half-way; the message says how far it got.
pub(crate) async fn run(access: &Access, args: SetRevisionArgs) -> Result<Exit> {
    warn_of(&args.revision);
    let hub = access.connect().await?;
    let mut mover = Mover {
        packages: write::within(&hub.client, Kind::FleetPackage, &hub.namespace),
        gates: write::within(&hub.client, Kind::RolloutGate, &hub.namespace),
        hub,
        args,
        moved: BTreeSet::new(),
    };
    let moved = mover.all().await.map(|()| Exit::Done);
    if mover.moved.is_empty() {
        return moved;
    }
    let gates = Vec::from_iter(mover.moved).join(", ");
    moved.with_context(|| {
        format!(
            "only gates were moved, and not the FleetPackage: {gates}. They are closed until their clusters are \
             healthy at the new revision. The same command goes on from here"
        )
    })
}

struct Mover {
    hub: Hub,
    packages: Api<LazyObject>,
    gates: Api<LazyObject>,
    args: SetRevisionArgs,
    moved: BTreeSet<String>,
}

impl Mover {
    async fn all(&mut self) -> Result<()> {
        let package = self.package().await?;
        let plan = self.plan().await?;
        self.announce(&plan);
        self.move_gates(plan).await?;
        if !self.args.dry_run {
            self.wait_until_judged().await?;
        }
        self.move_package(package).await
    }

    /// The FleetPackage, if its revision is to be set by hand.
    async fn package(&self) -> Result<LazyObject> {
        let name = &self.args.package;
        let package = in_time(self.packages.get_opt(name))
            .await
            .with_context(|| format!("FleetPackage {name}"))?
            .ok_or_else(|| {
                Exit::NotFound.error(format!("there is no FleetPackage {name:?} in this namespace"))
            })?;
        let spec = package.value("spec");
        if spec.get("revisionFrom").is_some_and(|it| !it.is_null()) {
            bail!(
                "FleetPackage {name} reads its revision from another object (revisionFrom): change that one"
            );
        }
        if let Some(manager) = spec.get("managedBy").and_then(Value::as_str) {
            bail!("FleetPackage {name} is filled by {manager} (managedBy)");
        }
        Ok(package)
    }

    async fn plan(&self) -> Result<Plan> {
        let list = in_time(self.gates.list(&ListParams::default())).await.context("RolloutGates")?;
        let gates = list.items.iter().filter_map(|object| Gate::read(object, &self.args.package));
        plan(gates.collect(), &self.args.revision, self.args.gates.as_deref())
    }

    /// Says what those who watch should know beforehand.
    fn announce(&self, plan: &Plan) {
        for gate in &plan.there {
            say(&format!("rolloutgate/{} is at {} already", gate.name, gate.revision));
        }
        for gate in &plan.left {
            let open = if gate.open { " and is OPEN for it" } else { "" };
            say(&format!("rolloutgate/{} stays at {}{open}: it is not in --gates", gate.name, gate.revision));
        }
        for Gate { name, word, .. } in plan.moved.iter().chain(&plan.there).chain(&plan.left) {
            let Some((state, reason)) = word else { continue };
            if state == "Open" {
                let which = format!("rolloutgate/{name} is held open by hand ({reason})");
                eprintln!("warning: {which}: it stays open whatever the revision");
            } else {
                eprintln!("note: rolloutgate/{name} is held closed by hand ({reason})");
            }
        }
    }

    /// Moves gates until a list shows none that is left.
    async fn move_gates(&mut self, mut plan: Plan) -> Result<()> {
        for _ in 0..ROUNDS {
            if plan.moved.is_empty() {
                return Ok(());
            }
            for gate in plan.moved {
                let Gate { name, revision, .. } = &gate;
                if self.moved.contains(name) {
                    bail!("somebody else has moved rolloutgate/{name} to {revision} meanwhile");
                }
                self.move_gate(gate.clone()).await.with_context(|| format!("rolloutgate/{name}"))?;
            }
            if self.args.dry_run {
                return Ok(());
            }
            plan = self.plan().await?;
        }
        bail!("there are new gates again and again")
    }

    async fn move_gate(&mut self, mut gate: Gate) -> Result<()> {
        let before = gate.revision.clone();
        for _ in 0..ATTEMPTS {
            match self.patch(Kind::RolloutGate, &gate.name, &gate.uid, &gate.resource_version).await? {
                Written::Done(_) => {
                    say(&format!("rolloutgate/{}: {before} -> {}", gate.name, self.to()));
                    if !self.args.dry_run {
                        self.moved.insert(gate.name);
                    }
                    return Ok(());
                }
                Written::Gone => return Ok(()),
                Written::Conflict => {}
            }
            let read = in_time(self.gates.get_opt(&gate.name)).await?;
            match read.as_ref().and_then(|object| Gate::read(object, &self.args.package)) {
                None => return Ok(()),
                Some(now) if now.revision == self.args.revision => return Ok(()),
                Some(now) => {
                    ensure!(now.revision == before, "somebody else moves it to {} just now", now.revision);
                    gate = now;
                }
            }
        }
        bail!("it keeps changing; tried {ATTEMPTS} times")
    }

    /// Waits until no gate's status speaks of the revision before.
    async fn wait_until_judged(&self) -> Result<()> {
        let until = Instant::now() + self.args.timeout;
        loop {
            let plan = self.plan().await?;
            if let Some(gate) = plan.moved.first() {
                let Gate { name, revision, .. } = gate;
                bail!("somebody else has made or moved rolloutgate/{name} at {revision} meanwhile");
            }
            let waiting: Vec<&str> =
                plan.there.iter().filter(|gate| !gate.judged).map(|gate| gate.name.as_str()).collect();
            if waiting.is_empty() {
                return Ok(());
            }
            if Instant::now() >= until {
                let (gates, seconds) = (waiting.join(", "), self.args.timeout.as_secs());
                let late =
                    format!("the aggregator has not judged {gates} within {seconds} s: is it running?");
                return Err(Exit::TimedOut.error(late));
            }
            sleep(LOOK).await;
        }
    }

    async fn move_package(&self, mut package: LazyObject) -> Result<()> {
        let revision =
            |package: &LazyObject| package.value("spec").get("revision")?.as_str().map(str::to_owned);
        let or_none = |revision: Option<String>| revision.unwrap_or_else(|| "no revision".to_owned());
        let name = &self.args.package;
        let before = revision(&package);
        for _ in 0..ATTEMPTS {
            let now = revision(&package);
            if now.as_deref() == Some(&self.args.revision) {
                say(&format!("fleetpackage/{name} is at {} already", self.args.revision));
                return Ok(());
            }
            if now != before {
                bail!("somebody else has moved fleetpackage/{name} to {} meanwhile", or_none(now));
            }
            let version = package.resource_version().unwrap_or_default();
            let uid = package.uid().unwrap_or_default();
            let patched = self.patch(Kind::FleetPackage, name, &uid, &version).await;
            match patched.with_context(|| format!("fleetpackage/{name}"))? {
                Written::Done(_) => {
                    say(&format!("fleetpackage/{name}: {} -> {}", or_none(before), self.to()));
                    return Ok(());
                }
                Written::Gone | Written::Conflict => package = self.package().await?,
            }
        }
        bail!("fleetpackage/{name} keeps changing; tried {ATTEMPTS} times")
    }

    /// Sets the revision, on top of the version that was looked at.
    async fn patch(&self, kind: Kind, name: &str, uid: &str, resource_version: &str) -> Result<Written> {
        let key = Key { namespace: self.hub.namespace.clone(), name: name.to_owned() };
        let version = Version { key, uid: uid.to_owned(), resource_version: resource_version.to_owned() };
        let change = json!({"spec": {"revision": self.args.revision}});
        match self.hub.patch(kind, &version, change, self.args.dry_run).await {
            Err(HubError::Api(Error::Api(status))) => bail!("{}", status.message),
            written => Ok(written?),
        }
    }

    fn to(&self) -> String {
        let how = if self.args.dry_run { " (dry run)" } else { "" };
        format!("{}{how}", self.args.revision)
    }
}
