//! `mcp`: the fleet for chats and editors, by the Model Context Protocol over standard input and output.
//!
//! ```text
//!   client ─(stdio)─> server ─> fleet, revision, explain, history ─> api ─(GET)─> aggregator
//!                                    └─> objects: what was read;  bound: how much of it is told
//! ```
//!
//! It reads the aggregator's HTTP API with one token, and so sees what the bearer of the token may see. It writes nothing.

mod api;
mod arguments;
mod bound;
mod explain;
mod fleet;
mod history;
mod objects;
mod revision;
mod server;

use anyhow::{Context, Result};
use clap::Args;
use rmcp::ServiceExt;
use rmcp::transport::io::stdio_pipes;

use crate::exit::Exit;
use crate::hub::Access;
use api::{Api, ApiArgs};
use server::Server;

/// Flags of `mcp`.
#[derive(Debug, Clone, Args)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    api: ApiArgs,
}

/// Answers until the client closes standard input.
pub(crate) async fn run(access: &Access, args: McpArgs) -> Result<Exit> {
    let api = Api::new(args.api).map_err(|error| Exit::Usage.error(error))?;
    let server = Server::new(api, access.named_namespace().map(str::to_owned));
    let service = server.serve(stdio_pipes()).await.context("beginning to speak with the client")?;
    service.waiting().await.context("speaking with the client")?;
    Ok(Exit::Done)
}
