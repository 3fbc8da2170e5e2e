//! The engines as real processes: where to write, where to ask, and what they say of themselves.

use super::page::Page;
use super::stored::{self, Stored};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use statusbridge_tests::{
    Mimir, MimirTenant, Port, Process, PrometheusConfig, Rig, eventually, program, usage,
};
use std::path::PathBuf;
use std::time::Duration;

/// Longest time for a start, until every series is in, and for writing all that is in memory to disk.
const PATIENCE: Duration = Duration::from_secs(1_200);
/// Mimir's tenant.
const TENANT: &str = "fleet";
/// VictoriaMetrics' storage nodes.
const NODES: usize = 2;

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Mimir,
    Thanos,
    Victoria,
}

impl Kind {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Mimir, Self::Thanos, Self::Victoria];

    /// As `ENGINE` names it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mimir => "mimir",
            Self::Thanos => "thanos",
            Self::Victoria => "victoria",
        }
    }

    /// What runs, for a headline.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Mimir => "Mimir, all of it in one process",
            Self::Thanos => "Thanos, one receiver and one querier",
            Self::Victoria => "VictoriaMetrics cluster, one vminsert, two vmstorage, one vmselect",
        }
    }

    /// The programs that it needs.
    pub(super) const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Mimir => &["mimir"],
            Self::Thanos => &["thanos"],
            Self::Victoria => &["vminsert", "vmselect", "vmstorage"],
        }
    }
}

/// An engine, running.
pub(super) struct Engine {
    servers: Servers,
    http: reqwest::Client,
}

enum Servers {
    Mimir { all: Mimir, tenant: MimirTenant, data: PathBuf },
    Thanos { receive: Server, writes: Port, query: Server, data: PathBuf, _inner: [Port; 2] },
    Victoria { nodes: Vec<Node>, insert: Server, select: Server },
}

/// A process that answers HTTP.
struct Server {
    process: Process,
    port: Port,
}

/// A vmstorage, and where vminsert and vmselect reach it.
struct Node {
    server: Server,
    inserts: Port,
    selects: Port,
}

/// What an engine says of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// Samples that it has accepted so far.
    pub(super) samples: f64,
    /// Series that it holds in memory; of VictoriaMetrics those that had samples in the last hour.
    pub(super) series: f64,
}

impl Engine {
    /// Starts one that keeps one copy of every sample, with the limits that docs/pipelines.md has an operator raise.
    pub(super) async fn start(rig: &Rig, kind: Kind) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
        let servers = match kind {
            Kind::Mimir => mimir(rig).await?,
            Kind::Thanos => thanos(rig, &http).await?,
            Kind::Victoria => victoria(rig, &http).await?,
        };
        Ok(Self { servers, http })
    }

    /// Base URL of its query API.
    pub(super) fn url(&self) -> String {
        match &self.servers {
            Servers::Mimir { all, .. } => all.url(),
            Servers::Thanos { query, .. } => query.url(),
            Servers::Victoria { select, .. } => format!("{}/select/0/prometheus", select.url()),
        }
    }

    /// What an aggregator that reads it has to be told besides its URL.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--backend-flavour".to_owned()];
        match &self.servers {
            Servers::Mimir { tenant, .. } => {
                let (name, value) = tenant.header();
                let header =
                    ["prometheus".to_owned(), "--backend-header".to_owned(), format!("{name}: {value}")];
                arguments.extend(header);
            }
            Servers::Thanos { .. } => arguments.push("thanos".to_owned()),
            Servers::Victoria { .. } => arguments.push("victoriametrics".to_owned()),
        }
        arguments
    }

    /// A Prometheus' configuration with which it writes to this engine too.
    pub(super) fn written_by(&self, mut config: PrometheusConfig) -> PrometheusConfig {
        match &self.servers {
            Servers::Mimir { tenant, .. } => return tenant.written_by(config),
            Servers::Thanos { writes, .. } => {
                config.remote_write.push(format!("http://{}/api/v1/receive", writes.address()));
            }
            Servers::Victoria { insert, .. } => {
                config.remote_write.push(format!("{}/insert/0/prometheus/api/v1/write", insert.url()));
            }
        }
        config
    }

    /// Its processes, by what each is for.
    pub(super) fn processes(&self) -> Vec<(&'static str, &Process)> {
        match &self.servers {
            Servers::Mimir { all, .. } => vec![("Mimir", all.process())],
            Servers::Thanos { receive, query, .. } => {
                vec![("receiver", &receive.process), ("querier", &query.process)]
            }
            Servers::Victoria { nodes, insert, select } => {
                let roles = ["one vmstorage", "the other vmstorage"];
                let nodes = roles.into_iter().zip(nodes.iter().map(|node| &node.server.process));
                nodes.chain([("vminsert", &insert.process), ("vmselect", &select.process)]).collect()
            }
        }
    }

    /// Processor time that all of its processes have used so far.
    pub(super) fn processor(&self) -> Result<Duration> {
        self.each_pid(usage::processor).map(|all| all.into_iter().sum())
    }

    /// The most memory in bytes that was ever resident, summed over its processes.
    pub(super) fn highest_resident(&self) -> Result<u64> {
        self.each_pid(usage::highest_resident).map(|all| all.into_iter().sum())
    }

    fn each_pid<T>(&self, of: impl Fn(u32) -> Result<T>) -> Result<Vec<T>> {
        let processes = self.processes();
        let each = processes
            .iter()
            .map(|(role, process)| of(process.pid().with_context(|| format!("the {role} does not run"))?));
        each.collect()
    }

    /// What it says of itself.
    pub(super) async fn counts(&self) -> Result<Counts> {
        Ok(match &self.servers {
            Servers::Mimir { all, .. } => {
                let page = self.page(&format!("http://{}", all.address())).await?;
                Counts {
                    samples: page.sum("cortex_distributor_received_samples_total"),
                    series: page.sum("cortex_ingester_memory_series"),
                }
            }
            Servers::Thanos { receive, .. } => {
                let page = self.page(&receive.url()).await?;
                Counts {
                    samples: page.sum("prometheus_tsdb_head_samples_appended_total"),
                    series: page.sum("prometheus_tsdb_head_series"),
                }
            }
            Servers::Victoria { nodes, insert, .. } => {
                let mut series = 0.0;
                for node in nodes {
                    let page = self.page(&node.server.url()).await?;
                    series += page.sum_of("vm_cache_entries", &["storage/hour_metric_ids"]);
                }
                Counts { samples: self.page(&insert.url()).await?.sum("vm_rows_inserted_total"), series }
            }
        })
    }

    /// Waits until it has so many series in memory.
    pub(super) async fn holds(&self, series: usize) -> Result<()> {
        eventually(PATIENCE, "every series is in", async || {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let all = self.counts().await?.series;
            ensure!(all >= series as f64, "{all} of {series}");
            Ok(())
        })
        .await
    }

    /// What it has on disk once all is written and merged. It takes no more samples afterwards.
    pub(super) async fn stored(&self) -> Result<Stored> {
        match &self.servers {
            Servers::Mimir { all, data, .. } => {
                let url = format!("http://{}/ingester/flush?wait=true", all.address());
                let answer = self.http.post(url).send().await?;
                ensure!(answer.status().is_success(), "flush: {}", answer.status());
                stored::blocks(data)
            }
            Servers::Thanos { receive, data, .. } => {
                receive.process.terminate(PATIENCE).await?;
                stored::blocks(data)
            }
            Servers::Victoria { nodes, .. } => {
                let mut all = Stored::default();
                for node in nodes {
                    for what in ["force_flush", "force_merge"] {
                        let url = format!("{}/internal/{what}", node.server.url());
                        let answer = self.http.get(url).send().await?;
                        ensure!(answer.status().is_success(), "{what}: {}", answer.status());
                    }
                    let page = eventually(PATIENCE, "all parts are merged", async || {
                        tokio::time::sleep(Duration::from_secs(2)).await;
                        let page = self.page(&node.server.url()).await?;
                        ensure!(page.sum("vm_active_force_merges") == 0.0, "it still merges");
                        Ok(page)
                    })
                    .await?;
                    let rows = ["storage/inmemory", "storage/small", "storage/big"];
                    let index = ["indexdb/inmemory", "indexdb/file"];
                    all.samples += page.sum_of("vm_rows", &rows) as u64;
                    all.bytes += page.sum_of("vm_data_size_bytes", &rows) as u64;
                    all.index += page.sum_of("vm_data_size_bytes", &index) as u64;
                    all.series += page.sum_of("vm_cache_entries", &["storage/hour_metric_ids"]) as u64;
                }
                Ok(all)
            }
        }
    }

    async fn page(&self, url: &str) -> Result<Page> {
        Page::read(&self.http, url).await
    }
}

async fn mimir(rig: &Rig) -> Result<Servers> {
    let limits = json!({TENANT: {
        "max_global_series_per_user": 0,
        "ingestion_rate": 10_000_000,
        "ingestion_burst_size": 100_000_000,
    }});
    let all = Mimir::start_with(rig, limits).await?;
    let tenant = all.tenant(TENANT)?;
    let data = rig.dir().join(format!("mimir-{}", all.address().port())).join("tsdb");
    Ok(Servers::Mimir { all, tenant, data })
}

async fn thanos(rig: &Rig, http: &reqwest::Client) -> Result<Servers> {
    let (stores, writes, querying) = (Port::reserve()?, Port::reserve()?, Port::reserve()?);
    let data = rig.subdir("thanos-receive")?;
    let args = [
        "receive".to_owned(),
        format!("--tsdb.path={}", data.display()),
        "--tsdb.retention=1d".to_owned(),
        "--label=receive_replica=\"0\"".to_owned(),
        format!("--grpc-address={}", stores.address()),
        format!("--remote-write.address={}", writes.address()),
        "--log.level=warn".to_owned(),
    ];
    let receive = Server::start(rig, http, ("thanos", "--http-address"), args.to_vec()).await?;
    let args = [
        "query".to_owned(),
        format!("--endpoint-strict={}", stores.address()),
        format!("--grpc-address={}", querying.address()),
        "--log.level=warn".to_owned(),
    ];
    let query = Server::start(rig, http, ("thanos", "--http-address"), args.to_vec()).await?;
    Ok(Servers::Thanos { receive, writes, query, data, _inner: [stores, querying] })
}

async fn victoria(rig: &Rig, http: &reqwest::Client) -> Result<Servers> {
    let mut nodes = Vec::new();
    for number in 0..NODES {
        let (inserts, selects) = (Port::reserve()?, Port::reserve()?);
        let args = [
            format!("-storageDataPath={}", rig.subdir(&format!("vmstorage-data-{number}"))?.display()),
            format!("-vminsertAddr={}", inserts.address()),
            format!("-vmselectAddr={}", selects.address()),
            "-retentionPeriod=1d".to_owned(),
        ];
        let server = Server::start(rig, http, ("vmstorage", "-httpListenAddr"), args.to_vec()).await?;
        nodes.push(Node { server, inserts, selects });
    }
    let to = |port: fn(&Node) -> &Port| {
        nodes.iter().map(|node| format!("-storageNode={}", port(node).address())).collect()
    };
    let inserting = to(|node| &node.inserts);
    let insert = Server::start(rig, http, ("vminsert", "-httpListenAddr"), inserting).await?;
    let selecting = to(|node| &node.selects);
    let select = Server::start(rig, http, ("vmselect", "-httpListenAddr"), selecting).await?;
    Ok(Servers::Victoria { nodes, insert, select })
}

impl Server {
    /// Starts a program that is told by a flag where to listen, and waits until it answers.
    async fn start(
        rig: &Rig,
        http: &reqwest::Client,
        (name, flag): (&str, &str),
        mut args: Vec<String>,
    ) -> Result<Self> {
        let port = Port::reserve()?;
        args.push(format!("{flag}={}", port.address()));
        let log = format!("{name}-{}", port.number());
        let process = Process::spawn(rig, &log, &program(name)?, args, [])?;
        let server = Self { process, port };
        let path = if name == "thanos" { "-/ready" } else { "health" };
        eventually(PATIENCE, &format!("{log} answers"), async || {
            server.process.ensure_running()?;
            let answer = http.get(format!("{}/{path}", server.url())).send().await?;
            ensure!(answer.status().is_success(), "{}", answer.status());
            Ok(())
        })
        .await?;
        Ok(server)
    }

    fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }
}
