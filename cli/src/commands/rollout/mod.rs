//! `rollout …`: looks at FleetRollouts, and does what people do about one.

mod approve;
mod one;
mod pause;
mod promote;
mod status;
mod text;

use anyhow::Result;
use clap::Subcommand;

use crate::exit::Exit;
use crate::hub::Access;

/// What to do about a FleetRollout.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum RolloutCommand {
    /// Show how far FleetRollouts are, or one of them wave by wave
    Status(status::StatusArgs),
    /// Admit no further cluster until the FleetRollout is resumed
    Pause(pause::PauseArgs),
    /// Go on admitting clusters
    Resume(pause::ResumeArgs),
    /// Approve the gate of the wave that waits for an approval
    Approve(approve::RolloutApproveArgs),
    /// Let a FleetRollout go on although the gate of a wave is closed, for a while
    ///
    /// It writes spec.override of the wave's gate, which takes the verb override.
    Promote(promote::PromoteArgs),
}

/// Does it.
///
/// # Errors
/// When the hub cannot be asked, refuses, or has no such FleetRollout.
pub(crate) async fn run(access: &Access, command: RolloutCommand) -> Result<Exit> {
    match command {
        RolloutCommand::Status(args) => status::run(access, args).await,
        RolloutCommand::Pause(args) => pause::pause(access, args).await,
        RolloutCommand::Resume(args) => pause::resume(access, args).await,
        RolloutCommand::Approve(args) => approve::run(access, args).await,
        RolloutCommand::Promote(args) => promote::run(access, args).await,
    }
}

#[cfg(test)]
mod tests;
