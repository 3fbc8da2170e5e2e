//! The way to an API server.

use std::path::Path;

use anyhow::{Context, Result};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// By this kubeconfig and context, where they are named; else by `$KUBECONFIG`, `~/.kube/config`, or the pod's service
/// account.
///
/// # Errors
/// When there is none, or it cannot be used.
pub async fn find(file: Option<&Path>, context: Option<&str>) -> Result<Config> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    match file {
        Some(file) => {
            let shown = file.display();
            let kubeconfig =
                Kubeconfig::read_from(file).with_context(|| format!("cannot read the kubeconfig {shown}"))?;
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            config.with_context(|| format!("cannot use the kubeconfig {shown}"))
        }
        None if context.is_some() => {
            Config::from_kubeconfig(&options).await.context("cannot use the kubeconfig")
        }
        None => Config::infer().await.context("found neither a kubeconfig nor a service account"),
    }
}
