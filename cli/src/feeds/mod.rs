//! Which metrics backends are asked: by the flags and the configuration file of the aggregator.

mod evidence;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use statusbridge_aggregator::feed::flags::BackendArgs;
use statusbridge_aggregator::serve::config::{Config, ConfigFile};
use statusbridge_api::common::duration;

use crate::exit::Exit;

pub(crate) use evidence::Evidence;

/// Flags about backends.
#[derive(Debug, Clone, Args)]
pub(crate) struct FeedArgs {
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    /// How far behind the present the backend is asked, as for the aggregator
    #[arg(long, env = "STATUSBRIDGE_SETTLE_DELAY", default_value = "5s", value_parser = duration)]
    pub(crate) settle_delay: Duration,
    /// The aggregator's configuration file: the feeds that it names are asked too
    #[arg(long, env = "STATUSBRIDGE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl FeedArgs {
    /// What the configuration file says.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn config(&self) -> Result<Config> {
        let file =
            ConfigFile::open(self.config.clone()).map_err(|error| Exit::Usage.error(format!("{error:#}")))?;
        Ok(file.current().clone())
    }
}
