//! The commands: each is a file or folder here, named after it.
//!
//! | commands | what they ask |
//! |---|---|
//! | `status`, `wait`, `explain`, `ui`, `set-revision`, `approve`, `approve-stages`, `rollout …` | the hub's API server, by [`crate::hub`] |
//! | `doctor`, `history` | metrics backends too, by [`crate::feeds`] |
//! | `verdict`, `status --without-hub` | metrics backends alone |
//! | `mcp` | the aggregator's HTTP API |
//! | `source …`, `kstatus` | files |
//! | `completion` | nothing |

mod approve;
mod approve_stages;
mod completion;
mod doctor;
mod explain;
mod history;
mod kstatus;
mod mcp;
mod rollout;
mod set_revision;
mod source;
mod status;
mod ui;
mod verdict;
mod wait;

use anyhow::Result;
use clap::Subcommand;

use crate::exit::Exit;
use crate::hub::Access;

/// A command with its flags.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show how far packages are and which gates are open: all at a glance, one FleetPackage, or one gate
    Status(Box<status::StatusArgs>),
    /// Wait until a gate is open for one revision: for pipelines and Jobs
    Wait(wait::WaitArgs),
    /// Serve the page on this machine, from what you may read in the hub: packages by clusters, gates, what they wait for
    Ui(ui::UiArgs),
    /// Say whether a revision is where it should be, from a metrics backend or exporters alone: without a hub
    Verdict(Box<verdict::VerdictArgs>),
    /// Say what a verdict rests on, cluster by cluster, from the hub's API server alone
    Explain(explain::ExplainArgs),
    /// Say what each cluster did about a package: operations, durations, failures, and what was not seen
    History(Box<history::HistoryArgs>),
    /// Say whether clusters, metrics pipeline and backend are fit, and what to change
    Doctor(Box<doctor::DoctorArgs>),
    /// Answer the questions of a chat or an editor about the fleet: a read-only server of the Model Context Protocol
    ///
    /// It speaks on standard input and output, reads the aggregator's HTTP API with your rights, and writes nothing.
    Mcp(mcp::McpArgs),
    /// Move a FleetPackage, its gates and its FleetRollouts to another revision, gates first
    SetRevision(set_revision::SetRevisionArgs),
    /// Approve a gate at its revision, for gates that ask for an approval
    Approve(approve::ApproveArgs),
    /// Approve stages of KubeFleet's staged update runs whose gate is open, until it is told to stop
    ApproveStages(approve_stages::ApproveStagesArgs),
    /// Follow a FleetRollout, and pause, approve or promote it
    #[command(subcommand)]
    Rollout(rollout::RolloutCommand),
    /// Look at sources, which tell the exporter how to read packages, and try them on saved objects
    #[command(subcommand)]
    Source(source::SourceCommand),
    /// Print what kstatus says about saved objects: one JSON line each, as they are read
    ///
    /// A line has apiVersion, kind, namespace, name, status, reason and message. What cannot be read
    /// as an object has status Unknown and reason Malformed, and does not change the exit code.
    Kstatus(kstatus::KstatusArgs),
    /// Print a script that completes command lines in a shell
    Completion(completion::CompletionArgs),
}

impl Command {
    /// Runs the command; `program` is what a script would complete.
    pub(crate) fn run(self, access: &Access, program: clap::Command) -> Result<Exit> {
        match self {
            Self::Status(args) => block_on(status::run(access, *args)),
            Self::Wait(args) => block_on(wait::run(access, args)),
            Self::Ui(args) => block_on(ui::run(access, args)),
            Self::Verdict(args) => block_on(verdict::run(*args)),
            Self::Explain(args) => block_on(explain::run(access, args)),
            Self::History(args) => block_on(history::run(access, *args)),
            Self::Doctor(args) => block_on(doctor::run(access, *args)),
            Self::Mcp(args) => block_on(mcp::run(access, args)),
            Self::SetRevision(args) => block_on(set_revision::run(access, args)),
            Self::Approve(args) => block_on(approve::run(access, args)),
            Self::ApproveStages(args) => block_on(approve_stages::run(access, args)),
            Self::Rollout(command) => block_on(rollout::run(access, command)),
            Self::Source(command) => source::run(&command),
            Self::Kstatus(args) => kstatus::run(&args),
            Self::Completion(args) => completion::run(&args, program),
        }
    }
}

fn block_on(work: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}
