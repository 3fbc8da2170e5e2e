//! Kubeconfig files.

use anyhow::{Context, Result};
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What a kubeconfig file is to say.
#[derive(Debug, Clone)]
pub struct Kubeconfig {
    /// Where the API server is reached.
    pub server: SocketAddr,
    /// File with the certificate of the authority that certifies the API server.
    pub ca_file: PathBuf,
    /// Bearer token.
    pub token: String,
    /// User and groups to impersonate, if any.
    pub impersonate: Option<(String, Vec<String>)>,
    /// Default namespace.
    pub namespace: String,
}

impl Kubeconfig {
    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut user = json!({"token": self.token});
        if let Some((name, groups)) = &self.impersonate {
            user["as"] = json!(name);
            user["as-groups"] = json!(groups);
        }
        let file = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "rig",
            "contexts": [{"name": "rig", "context":
                {"cluster": "rig", "user": "rig", "namespace": self.namespace}}],
            "clusters": [{"name": "rig", "cluster":
                {"server": format!("https://{}", self.server), "certificate-authority": self.ca_file}}],
            "users": [{"name": "rig", "user": user}],
        });
        std::fs::write(path, serde_json::to_vec_pretty(&file)?)
            .with_context(|| format!("writing {}", path.display()))
    }
}
