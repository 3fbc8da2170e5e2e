//! Mimir: all of it in one process, and further ingesters in processes of their own.

use crate::{Port, Process, PrometheusConfig, Rig, SOON, Sample, eventually, program};
use anyhow::{Context, Result, ensure};
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// A Mimir whose tenants are told apart, as they are by default, and whose series each are in one ingester only.
#[derive(Debug)]
pub struct Mimir {
    process: Process,
    port: Port,
    gossip: Port,
    http: reqwest::Client,
    _grpc: Port,
}

impl Mimir {
    /// Starts one.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(rig: &Rig) -> Result<Self> {
        Self::start_with(rig, json!({})).await
    }

    /// Starts one with limits of its own for some tenants: fields of Mimir's `limits`, by tenant.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_with(rig: &Rig, limits: Value) -> Result<Self> {
        let ports = [Port::reserve()?, Port::reserve()?, Port::reserve()?];
        let name = format!("mimir-{}", ports[0].number());
        let dir = rig.subdir(&name)?;
        let overrides = dir.join("limits.yaml");
        std::fs::write(&overrides, json!({"overrides": limits}).to_string())?;
        let mut config = config(rig, &name, "all", &ports, &ports[2])?;
        config["runtime_config"] = json!({"file": overrides});
        let process = spawn(rig, &name, &dir, &config)?;
        let [port, grpc, gossip] = ports;
        let server = Self { process, port, gossip, http: crate::servers::http()?, _grpc: grpc };
        server.wait_ready().await?;
        Ok(server)
    }

    /// Starts another ingester, and waits until series are given to it as well.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_ingester(&self, rig: &Rig) -> Result<MimirIngester> {
        let ports = [Port::reserve()?, Port::reserve()?, Port::reserve()?];
        let name = format!("mimir-ingester-{}", ports[0].number());
        let config = config(rig, &name, "ingester", &ports, &self.gossip)?;
        let process = spawn(rig, &name, &rig.subdir(&name)?, &config)?;
        ready(&process, &self.http, &ports[0]).await?;
        self.has_ingesters(2).await?;
        Ok(MimirIngester { process, _ports: ports })
    }

    /// Waits until it has so many ingesters.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn has_ingesters(&self, count: usize) -> Result<()> {
        let url = format!("http://{}/ingester/ring", self.port.address());
        eventually(SOON, &format!("{count} ingesters are in the ring"), async || {
            let ring = self.http.get(&url).header("Accept", "application/json").send().await?;
            let ring: Value = ring.json().await?;
            let members = ring["shards"].as_array().context("no ring")?;
            let active = members.iter().filter(|member| member["state"] == "ACTIVE").count();
            ensure!(active == count && members.len() == count, "{ring}");
            Ok(())
        })
        .await
    }

    /// Waits until it takes and answers everything.
    ///
    /// # Errors
    /// When it does not.
    pub async fn wait_ready(&self) -> Result<()> {
        ready(&self.process, &self.http, &self.port).await
    }

    /// Base URL of its Prometheus API.
    pub fn url(&self) -> String {
        format!("http://{}/prometheus", self.port.address())
    }

    /// Its address, for a [`FaultProxy`](crate::FaultProxy) in front of it.
    pub fn address(&self) -> std::net::SocketAddr {
        self.port.address()
    }

    /// The process, to freeze, kill or start again.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// One of its tenants, which need not be made.
    ///
    /// # Errors
    /// When the name cannot be sent.
    pub fn tenant(&self, name: &str) -> Result<MimirTenant> {
        let mut headers = HeaderMap::new();
        headers.insert("X-Scope-OrgID", HeaderValue::from_str(name).context("the tenant's name")?);
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10));
        let http = http.default_headers(headers).build().context("building the HTTP client")?;
        Ok(MimirTenant { base: format!("http://{}", self.port.address()), name: name.to_owned(), http })
    }
}

/// An ingester that is a process of its own.
#[derive(Debug)]
pub struct MimirIngester {
    process: Process,
    _ports: [Port; 3],
}

impl MimirIngester {
    /// The process, to freeze, kill or start again. One that is asked to stop leaves the ring, and what it alone has is
    /// not to be had any more.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// A tenant of a Mimir.
#[derive(Debug, Clone)]
pub struct MimirTenant {
    base: String,
    name: String,
    http: reqwest::Client,
}

impl MimirTenant {
    /// A Prometheus' configuration with which it writes here too.
    #[must_use]
    pub fn written_by(&self, mut config: PrometheusConfig) -> PrometheusConfig {
        config.remote_write_as.push((format!("{}/api/v1/push", self.base), self.name.clone()));
        config
    }

    /// The header that has to be sent with every query.
    pub fn header(&self) -> (String, String) {
        ("X-Scope-OrgID".to_owned(), self.name.clone())
    }

    /// An instant query, evaluated now.
    ///
    /// # Errors
    /// When it is not answered with success.
    pub async fn query(&self, promql: &str) -> Result<Vec<Sample>> {
        crate::prometheus::instant_query(&self.http, &self.api(), promql, None).await
    }

    /// A query over the last so many seconds, one of them a step: how many series it has.
    ///
    /// # Errors
    /// When it is not answered with success.
    pub async fn query_range(&self, promql: &str, seconds: u64) -> Result<usize> {
        crate::prometheus::range_query(&self.http, &self.api(), promql, seconds).await
    }

    /// Gives a file of rules to the ruler.
    ///
    /// # Errors
    /// When it refuses one of its groups.
    pub async fn load_rules(&self, file: &str) -> Result<()> {
        let file: Value = serde_saphyr::from_str(file).context("the rules are no YAML")?;
        for group in file["groups"].as_array().context("no groups of rules")? {
            let url = format!("{}/config/v1/rules/statusbridge", self.api());
            let answer = self.http.post(url).body(group.to_string()).send().await?;
            ensure!(answer.status().is_success(), "{}: {}", group["name"], answer.text().await?);
        }
        Ok(())
    }

    /// All rules that the ruler evaluates, as the Prometheus API tells them.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn rules(&self) -> Result<Vec<Value>> {
        crate::prometheus::rules(&self.http, &self.api()).await
    }

    fn api(&self) -> String {
        format!("{}/prometheus", self.base)
    }
}

async fn ready(process: &Process, http: &reqwest::Client, port: &Port) -> Result<()> {
    process
        .ready(async || {
            let answer = http.get(format!("http://{}/ready", port.address())).send().await?;
            ensure!(answer.status().is_success(), "{}", answer.status());
            Ok(())
        })
        .await
}

fn spawn(rig: &Rig, name: &str, dir: &Path, config: &Value) -> Result<Process> {
    let file = dir.join("mimir.yaml");
    std::fs::write(&file, config.to_string()).with_context(|| format!("writing {}", file.display()))?;
    Process::spawn(rig, name, &program("mimir")?, [format!("-config.file={}", file.display())], [])
}

/// What a process of this name is told, whose HTTP, gRPC and gossip ports these are. `first` is the gossip port of whom
/// it joins.
fn config(rig: &Rig, name: &str, target: &str, ports: &[Port; 3], first: &Port) -> Result<Value> {
    let own = |what: &str| rig.subdir(&format!("{name}/{what}"));
    let [http, grpc, gossip] = ports.each_ref().map(Port::number);
    let here = "127.0.0.1";
    let store = rig.subdir(&format!("mimir-store-{}", first.number()))?;
    // One copy of everything: who loses a part has lost it.
    let ring = json!({"instance_id": name, "instance_addr": here, "replication_factor": 1, "min_ready_duration": "0s"});
    Ok(json!({
        "target": target,
        "multitenancy_enabled": true,
        "tenant_federation": {"enabled": true},
        "server": {
            "http_listen_address": here, "http_listen_port": http,
            "grpc_listen_address": here, "grpc_listen_port": grpc, "log_level": "warn",
        },
        "activity_tracker": {"filepath": ""},
        "usage_stats": {"enabled": false},
        "memberlist": {
            "node_name": name, "bind_addr": [here], "bind_port": gossip,
            "join_members": [first.address().to_string()],
        },
        "common": {"storage": {"backend": "filesystem", "filesystem": {"dir": store}}},
        "blocks_storage": {
            "storage_prefix": "blocks", "tsdb": {"dir": own("tsdb")?}, "bucket_store": {"sync_dir": own("sync")?},
        },
        "ruler_storage": {"storage_prefix": "rules"},
        "ruler": {
            "rule_path": own("rules")?, "ring": {"instance_addr": here},
            "poll_interval": "1s", "evaluation_interval": "1s",
        },
        "compactor": {"data_dir": own("compactor")?, "sharding_ring": {"instance_addr": here}},
        "distributor": {
            "ring": {"instance_addr": here},
            // For tenants whose limits say `accept_ha_samples`.
            "ha_tracker": {"enable_ha_tracker": true, "kvstore": {"store": "memberlist"}},
        },
        "ingester": {"ring": ring},
        "store_gateway": {"sharding_ring": {"instance_addr": here, "replication_factor": 1}},
        "frontend": {"address": here},
    }))
}
