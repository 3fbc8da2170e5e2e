//! Tokens by which a cluster asks about itself: those of the file that the configuration names, both read again when they
//! change.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::feed::push::server::{Tokens, TokensFile};
use crate::serve::config::ConfigFile;

/// Time between looks at the files.
const LOOK: Duration = Duration::from_secs(2);

/// Which cluster a token is for.
#[derive(Debug, Default)]
pub(crate) struct ClusterTokens(RwLock<Tokens>);

impl ClusterTokens {
    /// The cluster that a token is for.
    pub(crate) fn cluster(&self, token: &str) -> Option<String> {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tokens.find(token).map(|(_, cluster)| cluster.to_owned())
    }

    fn are(&self, tokens: &Tokens) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clone_from(tokens);
    }

    /// Keeps up with the files, for ever.
    pub(crate) async fn follow(&self, mut files: Files) {
        let mut said = None;
        self.are(files.file.current());
        loop {
            sleep(LOOK).await;
            match files.reread() {
                Ok(true) => {
                    info!("the tokens by which clusters ask about rollouts have changed");
                    self.are(files.file.current());
                    said = None;
                }
                Ok(false) => {}
                Err(error) => {
                    let error = format!("{error:#}");
                    if said.as_ref() != Some(&error) {
                        warn!(error, "the tokens of clusters cannot be used; those from before stay");
                        said = Some(error);
                    }
                }
            }
        }
    }
}

/// The configuration, and the file with tokens that it names.
pub(crate) struct Files {
    config: ConfigFile,
    path: Option<PathBuf>,
    file: TokensFile,
}

impl Files {
    /// Reads the tokens for the first time.
    ///
    /// # Errors
    /// When they cannot be used.
    pub(crate) fn open(config: ConfigFile) -> Result<Self> {
        let path = config.current().cluster_tokens();
        let file = TokensFile::open(path.clone()).context("rollouts.tokensFile")?;
        Ok(Self { config, path, file })
    }

    /// Whether the tokens are others now.
    fn reread(&mut self) -> Result<bool> {
        // The loop says what is wrong with the configuration.
        drop(self.config.reread());
        let path = self.config.current().cluster_tokens();
        if path != self.path {
            self.file = TokensFile::open(path.clone()).context("rollouts.tokensFile")?;
            self.path = path;
            return Ok(true);
        }
        self.file.reread().transpose().map(|changed| changed.is_some())
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn line(cluster: &str, token: &str) -> String {
        let hash: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("- {{cluster: {cluster}, sha256: {hash}}}\n")
    }

    #[test]
    fn tokens_follow_the_file_and_the_configuration_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
        let names = |section: &str, name: &str| {
            let more = if section == "rollouts" { "" } else { ", insecure: true" };
            let settings = format!("{{tokensFile: {}{more}}}", at(name).display());
            let text = if section == "rollouts" {
                format!("rollouts: {settings}\n")
            } else {
                format!("feeds: {{push: {settings}}}\n")
            };
            write("config", &text);
        };
        let tokens = ClusterTokens::default();
        let cluster = |files: &Files, token: &str| {
            tokens.are(files.file.current());
            tokens.cluster(token)
        };
        write("one", &line("eu-1", "a"));
        write("two", &line("eu-2", "a"));
        // Left out, they are those of pushes.
        names("push", "one");
        let mut files = Files::open(ConfigFile::open(Some(at("config"))).unwrap()).unwrap();
        assert_eq!((cluster(&files, "a").as_deref(), cluster(&files, "b")), (Some("eu-1"), None));
        assert!(!files.reread().unwrap());

        write("one", &line("eu-3", "b"));
        assert!(files.reread().unwrap());
        assert_eq!((cluster(&files, "a"), cluster(&files, "b").as_deref()), (None, Some("eu-3")));

        names("rollouts", "two");
        assert!(files.reread().unwrap());
        assert_eq!(cluster(&files, "a").as_deref(), Some("eu-2"));

        // What cannot be used leaves those from before in force, until it can.
        names("rollouts", "three");
        assert!(files.reread().is_err() && files.reread().is_err());
        assert_eq!(cluster(&files, "a").as_deref(), Some("eu-2"));
        write("three", &line("eu-4", "c"));
        assert!(files.reread().unwrap());
        assert_eq!((cluster(&files, "a"), cluster(&files, "c").as_deref()), (None, Some("eu-4")));

        write("config", "rollouts: {tokenFile: x}\n");
        assert!(!files.reread().unwrap());
        assert_eq!(cluster(&files, "c").as_deref(), Some("eu-4"));
        write("config", "{}\n");
        assert!(files.reread().unwrap());
        assert_eq!(cluster(&files, "c"), None, "no file, no token");
    }
}
