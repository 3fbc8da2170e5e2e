//! `set-revision`: moves a FleetPackage, its gates and its FleetRollouts to a revision together, and leaves no moment in
//! which a gate that was open for the revision before could be taken for one of the new revision.
//!
//! ```text
//!   gates, last waves first ──> the aggregator has judged each anew ──> no gate is left ──> FleetPackage ──> FleetRollouts
//! ```
//!
//! The gates of a FleetRollout's waves are the aggregator's: it makes them anew at the revision that the FleetRollout rolls out.
//!
//! A gate whose spec changes is closed from that very write on, for everybody who looks at
//! `observedGeneration`; for everybody else once it was judged anew. Only then something else says
//! that the new revision is wanted. Where this stops half-way, the moved gates are closed until
//! their clusters are healthy at the new revision, and the same command goes on where it stopped.

mod plan;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use kube::api::{Api, ListParams};
use kube::{Error, ResourceExt};
use serde_json::{Value, json};
use statusbridge_aggregator::hub::write::{self, HubError, Written, in_time};
use statusbridge_api::common::duration;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::{Key, Kind, Version};
use tokio::time::{Instant, sleep};

use crate::exit::Exit;
use crate::hub::{Access, Hub};
use crate::output::say;
use crate::target::{revision, warn_of};
use plan::{Gate, Plan, is_of, plan};

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

/// Moves the gates, then the FleetPackage, then its FleetRollouts, and prints what it does.
///
/// # Errors
/// When it may not or cannot be done, or only half-way; the message says how far it got.
pub(crate) async fn run(access: &Access, args: SetRevisionArgs) -> Result<Exit> {
    warn_of(&args.revision);
    let mut mover = Mover { hub: access.connect().await?, args, moved: Vec::new() };
    let moved = mover.all().await.map(|()| Exit::Done);
    if mover.moved.is_empty() {
        return moved;
    }
    moved.with_context(|| {
        format!(
            "only these were moved: {}. Gates are closed until their clusters are healthy at the new revision. The same \
             command goes on from here",
            mover.moved.join(", ")
        )
    })
}

struct Mover {
    hub: Hub,
    args: SetRevisionArgs,
    moved: Vec<String>,
}

impl Mover {
    async fn all(&mut self) -> Result<()> {
        let package = self.package().await?;
        let rollouts = self.rollouts().await?;
        let plan = self.plan().await?;
        self.announce(&plan);
        self.move_gates(plan).await?;
        if !self.args.dry_run {
            self.wait_until_judged().await?;
        }
        self.set(Kind::FleetPackage, &self.args.package.clone(), package).await?;
        for (name, revision) in rollouts {
            match revision {
                Some(_) => self.set(Kind::FleetRollout, &name, revision).await?,
                None => say(&format!("fleetrollout/{name} rolls out what the FleetPackage wants")),
            }
        }
        Ok(())
    }

    fn objects(&self, kind: Kind) -> Api<LazyObject> {
        write::within(&self.hub.client, kind, &self.hub.namespace)
    }

    async fn list(&self, kind: Kind) -> Result<Vec<LazyObject>> {
        let list = in_time(self.objects(kind).list(&ListParams::default())).await;
        Ok(list.with_context(|| format!("listing {}s", kind.name()))?.items)
    }

    /// The revision of the FleetPackage, if it is to be set by hand.
    async fn package(&self) -> Result<Option<String>> {
        let name = &self.args.package;
        let package = in_time(self.objects(Kind::FleetPackage).get_opt(name))
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
        Ok(revision_of(&package))
    }

    /// The FleetRollouts of the FleetPackage, each with the revision that it has of its own.
    async fn rollouts(&self) -> Result<Vec<(String, Option<String>)>> {
        let list = self.list(Kind::FleetRollout).await?;
        let its = list.into_iter().filter(|object| is_of(object, &self.args.package));
        Ok(its.filter_map(|object| Some((object.metadata.name.clone()?, revision_of(&object)))).collect())
    }

    async fn plan(&self) -> Result<Plan> {
        let list = self.list(Kind::RolloutGate).await?;
        let gates = list.iter().filter_map(|object| Gate::read(object, &self.args.package));
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
            for Gate { name, revision, .. } in plan.moved {
                if self.moved.contains(&shown(Kind::RolloutGate, &name)) {
                    bail!("somebody else has moved rolloutgate/{name} to {revision} meanwhile");
                }
                self.set(Kind::RolloutGate, &name, Some(revision)).await?;
            }
            if self.args.dry_run {
                return Ok(());
            }
            plan = self.plan().await?;
        }
        bail!("there are new gates again and again")
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

    /// Sets the revision of an object that is at `before`.
    async fn set(&mut self, kind: Kind, name: &str, before: Option<String>) -> Result<()> {
        let which = shown(kind, name);
        let or_none = |revision: Option<String>| revision.unwrap_or_else(|| "no revision".to_owned());
        for _ in 0..ATTEMPTS {
            let read = in_time(self.objects(kind).get_opt(name)).await.with_context(|| which.clone())?;
            let Some(object) = read else { bail!("somebody else has deleted {which} meanwhile") };
            let now = revision_of(&object);
            if now.as_deref() == Some(&self.args.revision) {
                say(&format!("{which} is at {} already", self.args.revision));
                return Ok(());
            }
            if now != before {
                bail!("somebody else has moved {which} to {} meanwhile", or_none(now));
            }
            match self.patch(kind, name, &object).await.with_context(|| which.clone())? {
                Written::Done(_) => {
                    let how = if self.args.dry_run { " (dry run)" } else { "" };
                    say(&format!("{which}: {} -> {}{how}", or_none(before), self.args.revision));
                    if !self.args.dry_run {
                        self.moved.push(which);
                    }
                    return Ok(());
                }
                Written::Gone | Written::Conflict => {}
            }
        }
        bail!("{which} keeps changing; tried {ATTEMPTS} times")
    }

    /// Sets the revision, on top of the version that was looked at.
    async fn patch(&self, kind: Kind, name: &str, object: &LazyObject) -> Result<Written> {
        let version = Version {
            key: Key { namespace: self.hub.namespace.clone(), name: name.to_owned() },
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
        };
        let change = json!({"spec": {"revision": self.args.revision}});
        match self.hub.patch(kind, &version, change, self.args.dry_run).await {
            Err(HubError::Api(Error::Api(status))) => bail!("{}", status.message),
            written => Ok(written?),
        }
    }
}

/// An object as kubectl names it, less the group.
fn shown(kind: Kind, name: &str) -> String {
    format!("{}/{name}", kind.name().to_lowercase())
}

fn revision_of(object: &LazyObject) -> Option<String> {
    Some(object.value("spec").get("revision")?.as_str()?.to_owned())
}
