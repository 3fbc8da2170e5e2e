//! `approve-stages`: approves stages of KubeFleet's staged update runs, each once its gate is open for the run's revision.
//!
//! ```text
//!   watch of ClusterApprovalRequests ─> Requests ─(every few seconds, one after the other)─┐
//!   approval, on top of the version that was seen <─ decide <─ look at the gate <─ wish <─ the run's annotations
//! ```
//!
//! The run, its gate and the FleetPackage are read anew for each look, so what a watch has missed approves nothing.

mod kubefleet;
mod requests;
mod wish;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use futures::StreamExt;
use statusbridge_aggregator::clock::Timestamp;
use statusbridge_aggregator::hub::write::Written;
use statusbridge_api::common::duration;
use statusbridge_core::reconcile::calls::CALL_TIMEOUT;
use statusbridge_core::reconcile::object::Kind;
use statusbridge_serving::signals::told_to_stop;
use tokio::time::{MissedTickBehavior, interval};

use crate::exit::Exit;
use crate::hub::{Access, Hub};
use crate::look::look;
use crate::output::{say, warn};
use crate::text::one_line;
use requests::{MOST, Request, Requests};
use wish::{Decision, decide, wish};

/// How long between two rounds of looks.
const TICK: Duration = Duration::from_secs(5);
/// Most requests of a round: the others have their turn in the next one.
const ROUND: usize = 100;

/// Flags of `approve-stages`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ApproveStagesArgs {
    /// Look at each request once, and end
    #[arg(long)]
    once: bool,
    /// How much older than staleAfter evidence may be, for clocks that differ
    #[arg(long, default_value = "15s", value_parser = duration)]
    slack: Duration,
}

/// Approves until it is told to stop. Prints a line for each approval, and when a request begins to wait for something else.
///
/// # Errors
/// When there is no way to reach the hub's API server; with `--once`, when it does not list the requests.
pub(crate) async fn run(access: &Access, args: ApproveStagesArgs) -> Result<Exit> {
    let hub = access.connect().await?;
    let stopped = told_to_stop()?;
    tokio::select! {
        ended = follow(&hub, &args) => ended.map(|()| Exit::Done),
        () = stopped => Ok(Exit::Done),
    }
}

async fn follow(hub: &Hub, args: &ApproveStagesArgs) -> Result<()> {
    let mut requests = Requests::default();
    let mut events = kubefleet::watch(hub);
    let mut approver = Approver { hub, slack: args.slack, told: BTreeMap::new() };
    let mut complaint = String::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = events.next() => match event.context("the hub's API server ended the watch")? {
                Ok(event) => {
                    requests.apply(event);
                    complaint.clear();
                }
                Err(error) if args.once => return Err(error).context(kubefleet::REQUEST),
                Err(error) => {
                    let said = one_line(&format!("{}s cannot be read: {error}", kubefleet::REQUEST));
                    if said != complaint {
                        warn(&said);
                        complaint = said;
                    }
                }
            },
            _ = ticks.tick(), if requests.are_listed() => {
                approver.told.retain(|name, _| requests.have(name));
                for request in requests.next(if args.once { MOST } else { ROUND }) {
                    approver.see(&request).await;
                }
                if args.once {
                    return Ok(());
                }
                if requests.need_a_list() {
                    events = kubefleet::watch(hub);
                }
            }
        }
    }
}

/// What there is to say about a request, and what of that would be news if it changed.
struct News {
    state: String,
    text: String,
}

/// Looks at requests, and says what is new about them.
struct Approver<'a> {
    hub: &'a Hub,
    slack: Duration,
    /// What was said last about each request that waits.
    told: BTreeMap<String, String>,
}

impl Approver<'_> {
    async fn see(&mut self, request: &Request) {
        let name = format!("clusterapprovalrequest/{}", request.name);
        match self.look_at(request).await {
            Ok(None) => {}
            Ok(Some(News { state, text })) => {
                if self.is_news(request, state) {
                    say(&format!("{name}: {text}"));
                }
            }
            Err(trouble) => {
                if self.is_news(request, trouble.clone()) {
                    warn(&format!("{name}: {}", one_line(&trouble)));
                }
            }
        }
    }

    fn is_news(&mut self, request: &Request, state: String) -> bool {
        self.told.insert(request.name.clone(), state.clone()).is_none_or(|before| before != state)
    }

    /// Approves if the gate is open; `None` where there is nothing to say.
    async fn look_at(&self, request: &Request) -> Result<Option<News>, String> {
        let run = &request.run;
        let of_run = |error| format!("clusterstagedupdaterun/{run}: {error}");
        let Some(annotations) = kubefleet::annotations(self.hub, run).await.map_err(of_run)? else {
            return Ok(None);
        };
        let Some(wish) = wish(&annotations, &request.stage).map_err(of_run)? else { return Ok(None) };
        let (begun, slack) = (Timestamp::now(), self.slack.as_secs_f64());
        let seen = look(self.hub, Kind::RolloutGate, &wish.gate, wish.revision, slack).await;
        match decide(&wish, &seen.unwrap_or_else(|seen| seen)) {
            Decision::Wait { message, state } => Ok(Some(News { state, text: format!("waits: {message}") })),
            // The process or the network stood still since: what was seen is not the present.
            Decision::Approve { .. } if begun.elapsed() >= CALL_TIMEOUT => Ok(None),
            Decision::Approve { message, at } => {
                match kubefleet::approve(self.hub, request, &message, at).await {
                    Ok(Written::Done(_)) => {
                        Ok(Some(News { state: "approved".to_owned(), text: format!("approved: {message}") }))
                    }
                    // The watch tells of it, and then it is looked at again.
                    Ok(Written::Conflict | Written::Gone) => Ok(None),
                    Err(error) => Err(format!("cannot be approved: {error}")),
                }
            }
        }
    }
}
