//! etcd.

use crate::{Port, Process, Rig, program};
use anyhow::{Result, ensure};
use std::time::Duration;

/// An etcd with one member.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
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
        let http = crate::servers::http()?;
        process
            .ready(Duration::from_secs(60), async || {
                let answer = http.get(format!("{client}/health")).send().await?.text().await?;
                ensure!(answer.contains("\"true\""), "{answer}");
                Ok(())
            })
            .await?;
        Ok(Self { process, client_port, _peer_port: peer_port })
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
