//! VictoriaMetrics, the cluster version: series are spread over storage nodes, of which one may be lost.

use crate::{Port, Process, Rig, Sample, program};
use anyhow::{Context, Result, ensure};

/// How many storage nodes there are.
const NODES: usize = 2;
/// Each takes 60 % of the machine for its caches otherwise.
const MEMORY: &str = "-memory.allowedBytes=64MB";

/// Two storage nodes and who writes to them.
#[derive(Debug)]
pub struct VictoriaCluster {
    nodes: Vec<StorageNode>,
    _vminsert: Process,
    writes: Port,
    http: reqwest::Client,
}

#[derive(Debug)]
struct StorageNode {
    process: Process,
    port: Port,
    inserts: Port,
    selects: Port,
}

impl VictoriaCluster {
    /// Starts them, with so many copies of every sample.
    ///
    /// # Errors
    /// When something does not come up.
    pub async fn start(rig: &Rig, copies: usize) -> Result<Self> {
        let http = crate::servers::http()?;
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            nodes.push(StorageNode::start(rig, &http).await?);
        }
        let writes = Port::reserve()?;
        let mut args = vec![
            format!("-httpListenAddr={}", writes.address()),
            format!("-replicationFactor={copies}"),
            MEMORY.to_owned(),
        ];
        args.extend(nodes.iter().map(|node| format!("-storageNode={}", node.inserts.address())));
        let name = format!("vminsert-{}", writes.number());
        let vminsert = Process::spawn(rig, &name, &program("vminsert")?, args, [])?;
        ready(&http, &vminsert, &writes).await?;
        Ok(Self { nodes, _vminsert: vminsert, writes, http })
    }

    /// Where a Prometheus writes to.
    pub fn remote_write_url(&self) -> String {
        format!("http://{}/insert/0/prometheus/api/v1/write", self.writes.address())
    }

    /// Takes samples in the text exposition format.
    ///
    /// # Errors
    /// When it refuses them.
    pub async fn import(&self, exposition: String) -> Result<()> {
        let url = format!("http://{}/insert/0/prometheus/api/v1/import/prometheus", self.writes.address());
        let answer = self.http.post(url).body(exposition).send().await?;
        ensure!(answer.status().is_success(), "import: {}", answer.status());
        Ok(())
    }

    /// A storage node's process, to kill, freeze or start again.
    pub fn node(&self, number: usize) -> &Process {
        &self.nodes[number].process
    }

    /// How many samples each storage node has put on its disk, which is what it still has after it was killed.
    ///
    /// # Errors
    /// When one does not say.
    pub async fn stored(&self) -> Result<Vec<u64>> {
        let mut all = Vec::new();
        for node in &self.nodes {
            let url = format!("http://{}/metrics", node.port.address());
            let page = self.http.get(url).send().await?.text().await?;
            let of = |kind: &str| {
                let series = format!("vm_rows{{type=\"storage/{kind}\"}} ");
                let count = page.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok());
                count.with_context(|| format!("no {series}"))
            };
            all.push(of("small")? + of("big")?);
        }
        Ok(all)
    }

    /// Starts a vmselect over the storage nodes with further flags.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn select(&self, rig: &Rig, flags: &[&str]) -> Result<VmSelect> {
        let nodes = self.nodes.iter().map(|node| node.selects.address().to_string());
        VmSelect::start(rig, nodes.collect(), flags).await
    }
}

impl StorageNode {
    async fn start(rig: &Rig, http: &reqwest::Client) -> Result<Self> {
        let (port, inserts, selects) = (Port::reserve()?, Port::reserve()?, Port::reserve()?);
        let name = format!("vmstorage-{}", port.number());
        let args = [
            format!("-storageDataPath={}", rig.subdir(&name)?.display()),
            format!("-httpListenAddr={}", port.address()),
            format!("-vminsertAddr={}", inserts.address()),
            format!("-vmselectAddr={}", selects.address()),
            "-retentionPeriod=1d".to_owned(),
            MEMORY.to_owned(),
        ];
        let process = Process::spawn(rig, &name, &program("vmstorage")?, args, [])?;
        ready(http, &process, &port).await?;
        Ok(Self { process, port, inserts, selects })
    }
}

/// Who answers queries.
#[derive(Debug)]
pub struct VmSelect {
    _process: Process,
    port: Port,
    native: Port,
}

impl VmSelect {
    async fn start(rig: &Rig, nodes: Vec<String>, flags: &[&str]) -> Result<Self> {
        let (port, native) = (Port::reserve()?, Port::reserve()?);
        let mut args = vec![
            format!("-httpListenAddr={}", port.address()),
            format!("-clusternativeListenAddr={}", native.address()),
            MEMORY.to_owned(),
        ];
        args.extend(nodes.iter().map(|node| format!("-storageNode={node}")));
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let name = format!("vmselect-{}", port.number());
        let process = Process::spawn(rig, &name, &program("vmselect")?, args, [])?;
        ready(&crate::servers::http()?, &process, &port).await?;
        Ok(Self { _process: process, port, native })
    }

    /// Starts another one that asks this one, as where clusters are made of clusters.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn above(&self, rig: &Rig) -> Result<Self> {
        Self::start(rig, vec![self.native.address().to_string()], &[]).await
    }

    /// An instant query, evaluated now, which whoever is left answers where a storage node is away.
    ///
    /// # Errors
    /// When it is not answered with success.
    pub async fn query(&self, promql: &str) -> Result<Vec<Sample>> {
        crate::prometheus::instant_query(&crate::servers::http()?, &self.url(), promql, None).await
    }

    /// Base URL of its Prometheus API, for the first tenant.
    pub fn url(&self) -> String {
        format!("http://{}/select/0/prometheus", self.port.address())
    }
}

async fn ready(http: &reqwest::Client, process: &Process, port: &Port) -> Result<()> {
    process
        .ready(async || {
            let answer = http.get(format!("http://{}/health", port.address())).send().await?;
            ensure!(answer.status().is_success(), "{}", answer.status());
            Ok(())
        })
        .await
}
