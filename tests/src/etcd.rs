//! etcd.

use crate::{Port, Process, Rig, program};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

/// An etcd with one member.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    data: PathBuf,
    client_port: Port,
    _peer_port: Port,
}

impl Etcd {
    /// An etcd of today.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(rig: &Rig) -> Result<Self> {
        Self::start_program(rig, "etcd").await
    }

    /// An etcd older than 3.5.13, on which the API server refuses streaming lists.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_old(rig: &Rig) -> Result<Self> {
        Self::start_program(rig, "etcd-old").await
    }

    async fn start_program(rig: &Rig, name: &str) -> Result<Self> {
        let (client_port, peer_port) = (Port::reserve()?, Port::reserve()?);
        let client = format!("http://{}", client_port.address());
        let peer = format!("http://{}", peer_port.address());
        let log_name = format!("{name}-{}", client_port.number());
        let data = rig.subdir(&format!("{log_name}-data"))?;
        let args = [
            "--name=default".to_owned(),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            // Tests keep nothing, and disks of build machines are slow.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        let process = Process::spawn(rig, &log_name, &program(name)?, args, [])?;
        let etcd = Self { process, data, client_port, _peer_port: peer_port };
        etcd.wait_ready().await?;
        Ok(etcd)
    }

    async fn wait_ready(&self) -> Result<()> {
        let (http, url) = (crate::servers::http()?, self.url());
        self.process
            .ready(async || {
                let answer = http.get(format!("{url}/health")).send().await?.text().await?;
                ensure!(answer.contains("\"true\""), "{answer}");
                Ok(())
            })
            .await
    }

    /// Kills it. Its data stays.
    pub fn stop(&self) {
        self.process.kill();
    }

    /// Starts it again after [`Etcd::stop`], on the same ports and data, and waits until it answers.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_again(&self) -> Result<()> {
        self.process.start()?;
        self.wait_ready().await
    }

    /// Copies its data while it is stopped; gives where the copy is.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn save(&self, name: &str) -> Result<PathBuf> {
        let saved = self.process.rig().dir().join(name);
        copy(&self.data, &saved)?;
        Ok(saved)
    }

    /// Puts a copy in the place of its data while it is stopped: it has gone back in time.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn restore(&self, saved: &Path) -> Result<()> {
        std::fs::remove_dir_all(&self.data)?;
        copy(saved, &self.data)
    }

    /// Where clients reach it.
    pub fn url(&self) -> String {
        format!("http://{}", self.client_port.address())
    }

    /// The process, to freeze or kill.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = std::process::Command::new("cp").arg("-a").args([from, to]).status()?;
    ensure!(status.success(), "cp of {} failed", from.display());
    Ok(())
}
