//! How the hub's API server is reached.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use kube::{Client, Config};
use statusbridge_serving::kubeconfig;

/// How to reach the hub.
#[derive(Debug, Clone, Args)]
pub struct Access {
    /// Kubeconfig of the hub [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, env = "STATUSBRIDGE_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long, env = "STATUSBRIDGE_CONTEXT")]
    context: Option<String>,
}

impl Access {
    /// A client of the hub, and the namespace that is meant when none is named.
    pub async fn connect(&self, namespace: Option<&str>) -> Result<(Client, String)> {
        let (config, namespace) = self.configure(namespace).await?;
        Ok((Client::try_from(config).context("client of the hub")?, namespace))
    }

    /// How the hub is reached, and the namespace that is meant when none is named.
    pub(crate) async fn configure(&self, namespace: Option<&str>) -> Result<(Config, String)> {
        let mut config = kubeconfig::find(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        config.connect_timeout = Some(Duration::from_secs(5));
        // A watch gets a bookmark about once a minute; one that is silent for longer is dead.
        config.read_timeout = Some(Duration::from_secs(150));
        let namespace = namespace.map_or_else(|| config.default_namespace.clone(), str::to_owned);
        Ok((config, namespace))
    }
}
