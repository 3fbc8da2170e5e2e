//! Prometheus.

use crate::{Port, Process, Rig, program};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// One scrape job. Rules are written as JSON, which is YAML too.
#[derive(Debug, Clone, Default)]
pub struct ScrapeJob {
    /// Value of the `job` label.
    pub name: String,
    /// Addresses (`host:port`), each with the labels that the scrape configuration gives to it.
    pub targets: Vec<(String, BTreeMap<String, String>)>,
    /// The list under `relabel_configs`.
    pub relabel: Vec<Value>,
    /// The list under `metric_relabel_configs`.
    pub metric_relabel: Vec<Value>,
    /// Other fields of the job, such as `honor_labels` or `scrape_interval`.
    pub more: BTreeMap<String, Value>,
}

impl ScrapeJob {
    /// A job without targets.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds a target.
    #[must_use]
    pub fn target(mut self, address: impl ToString, labels: &[(&str, &str)]) -> Self {
        self.targets.push((address.to_string(), to_map(labels)));
        self
    }

    fn to_json(&self) -> Value {
        let targets: Vec<Value> =
            self.targets.iter().map(|(t, l)| json!({"targets": [t], "labels": l})).collect();
        let mut job = json!({"job_name": self.name, "static_configs": targets});
        if !self.relabel.is_empty() {
            job["relabel_configs"] = json!(self.relabel);
        }
        if !self.metric_relabel.is_empty() {
            job["metric_relabel_configs"] = json!(self.metric_relabel);
        }
        for (field, value) in &self.more {
            job[field] = value.clone();
        }
        job
    }
}

fn to_map(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// Configuration of one Prometheus.
#[derive(Debug, Clone)]
pub struct PrometheusConfig {
    /// How often it scrapes.
    pub scrape_interval: Duration,
    /// Labels for remote write (and federation): not seen by its own queries.
    pub external_labels: BTreeMap<String, String>,
    /// What it scrapes.
    pub jobs: Vec<ScrapeJob>,
    /// URLs it writes everything to.
    pub remote_write: Vec<String>,
    /// URLs it writes everything to in the name of a tenant (`X-Scope-OrgID`).
    pub remote_write_as: Vec<(String, String)>,
    /// Files with recording and alerting rules.
    pub rule_files: Vec<PathBuf>,
    /// File that it notes every query in.
    pub query_log: Option<PathBuf>,
    /// Further flags.
    pub flags: Vec<String>,
}

impl Default for PrometheusConfig {
    fn default() -> Self {
        Self {
            scrape_interval: Duration::from_secs(1),
            external_labels: BTreeMap::new(),
            jobs: Vec::new(),
            remote_write: Vec::new(),
            remote_write_as: Vec::new(),
            rule_files: Vec::new(),
            query_log: None,
            flags: Vec::new(),
        }
    }
}

impl PrometheusConfig {
    /// With these jobs and a scrape a second.
    pub fn with_jobs(jobs: impl IntoIterator<Item = ScrapeJob>) -> Self {
        Self { jobs: jobs.into_iter().collect(), ..Self::default() }
    }

    /// Sets external labels.
    #[must_use]
    pub fn external(mut self, labels: &[(&str, &str)]) -> Self {
        self.external_labels = to_map(labels);
        self
    }

    fn to_json(&self) -> Value {
        let interval = format!("{}ms", self.scrape_interval.as_millis());
        let jobs: Vec<Value> = self.jobs.iter().map(ScrapeJob::to_json).collect();
        let write = self.remote_write.iter().map(|u| json!({"url": u}));
        let write_as = self.remote_write_as.iter();
        let write_as = write_as.map(|(u, tenant)| json!({"url": u, "headers": {"X-Scope-OrgID": tenant}}));
        let write: Vec<Value> = write.chain(write_as).collect();
        let mut config = json!({
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": interval,
                "external_labels": self.external_labels,
            },
            "scrape_configs": jobs,
            "remote_write": write,
            "rule_files": self.rule_files,
        });
        if let Some(file) = &self.query_log {
            config["global"]["query_log_file"] = json!(file);
        }
        config
    }
}

/// A query that was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// In PromQL.
    pub query: String,
    /// The time that it is about, in unix seconds.
    pub at: i64,
}

/// The queries of a [`PrometheusConfig::query_log`].
///
/// # Errors
/// When it is not there, or written in another way.
pub fn queries(log: &std::path::Path) -> Result<Vec<Asked>> {
    let text = std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    let asked = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let param = |name: &str| line["params"][name].as_str().with_context(|| format!("no {name}: {line}"));
        let at: jiff::Timestamp = param("end")?.parse()?;
        Ok(Asked { query: param("query")?.to_owned(), at: at.as_second() })
    });
    asked.collect()
}

/// One sample of an instant query's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its labels, `__name__` among them.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
    /// The time the answer gives, in seconds: when the query was evaluated.
    pub at: f64,
}

impl Sample {
    /// A label's value; empty when it is not there, as in PromQL.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// A Prometheus with its own data, which survives [`Prometheus::stop`] and [`Prometheus::start_again`].
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    port: Port,
    config_file: PathBuf,
    http: reqwest::Client,
}

impl Prometheus {
    /// Starts one.
    ///
    /// # Errors
    /// When it does not come up, for instance because it refuses the configuration.
    pub async fn start(rig: &Rig, config: &PrometheusConfig) -> Result<Self> {
        let port = Port::reserve()?;
        let name = format!("prometheus-{}", port.number());
        let dir = rig.subdir(&name)?;
        let config_file = dir.join("prometheus.yml");
        write_config(&config_file, config)?;
        let args = [
            format!("--config.file={}", config_file.display()),
            format!("--storage.tsdb.path={}", dir.join("data").display()),
            format!("--web.listen-address={}", port.address()),
            "--web.enable-lifecycle".to_owned(),
            "--web.enable-remote-write-receiver".to_owned(),
            // Remote read and queries see what was scraped a moment ago; nothing is compacted in a test's life.
            "--storage.tsdb.retention.time=1d".to_owned(),
            "--log.level=warn".to_owned(),
        ];
        let args = args.into_iter().chain(config.flags.iter().cloned());
        let process = Process::spawn(rig, &name, &program("prometheus")?, args, [])?;
        let server = Self { process, port, config_file, http: crate::servers::http()? };
        server.wait_ready().await?;
        Ok(server)
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn wait_ready(&self) -> Result<()> {
        self.process
            .ready(async || {
                let answer = self.http.get(format!("{}/-/ready", self.url())).send().await?;
                ensure!(answer.status().is_success(), "{}", answer.status());
                Ok(())
            })
            .await
    }

    /// Base URL of its API.
    pub fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// Its address, for a [`FaultProxy`](crate::FaultProxy) in front of it.
    pub fn address(&self) -> std::net::SocketAddr {
        self.port.address()
    }

    /// The process, to freeze, thaw or kill.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills it. Its data stays.
    pub fn stop(&self) {
        self.process.kill();
    }

    /// Starts it again on the port, configuration and data that it had.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_again(&self) -> Result<()> {
        self.process.start()?;
        self.wait_ready().await
    }

    /// Gives it another configuration while it runs.
    ///
    /// # Errors
    /// When it refuses it.
    pub async fn reload(&self, config: &PrometheusConfig) -> Result<()> {
        write_config(&self.config_file, config)?;
        let answer = self.http.post(format!("{}/-/reload", self.url())).send().await?;
        ensure!(answer.status().is_success(), "reload: {}", answer.text().await?);
        Ok(())
    }

    /// An instant query, evaluated now.
    ///
    /// # Errors
    /// When it is not answered with success.
    pub async fn query(&self, promql: &str) -> Result<Vec<Sample>> {
        instant_query(&self.http, &self.url(), promql, None).await
    }

    /// A query over the last so many seconds, one of them a step: how many series it has.
    ///
    /// # Errors
    /// When it is not answered with success.
    pub async fn query_range(&self, promql: &str, seconds: u64) -> Result<usize> {
        range_query(&self.http, &self.url(), promql, seconds).await
    }

    /// All rules, as it tells them.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn rules(&self) -> Result<Vec<Value>> {
        rules(&self.http, &self.url()).await
    }

    /// An instant query, evaluated at a time in seconds.
    ///
    /// # Errors
    /// When it is not answered with success.
    pub async fn query_at(&self, promql: &str, time: f64) -> Result<Vec<Sample>> {
        instant_query(&self.http, &self.url(), promql, Some(time)).await
    }
}

fn write_config(file: &std::path::Path, config: &PrometheusConfig) -> Result<()> {
    std::fs::write(file, serde_json::to_vec_pretty(&config.to_json())?)
        .with_context(|| format!("writing {}", file.display()))
}

/// All rules of anything that speaks the Prometheus API.
pub(crate) async fn rules(http: &reqwest::Client, base: &str) -> Result<Vec<Value>> {
    let answer: Value = http.get(format!("{base}/api/v1/rules")).send().await?.json().await?;
    let groups = answer["data"]["groups"].as_array().context("no groups")?;
    Ok(groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect())
}

/// A query over the last so many seconds against anything that speaks the Prometheus API.
pub(crate) async fn range_query(
    http: &reqwest::Client,
    base: &str,
    promql: &str,
    seconds: u64,
) -> Result<usize> {
    let now = crate::fake_fleet::unix_now();
    let (query, start) = (percent_encode(promql), now.saturating_sub(seconds));
    let url = format!("{base}/api/v1/query_range?query={query}&start={start}&end={now}&step=1");
    let answer = http.get(url).send().await?.bytes().await?;
    let answer: Value = serde_json::from_slice(&answer).context("the answer is not JSON")?;
    ensure!(answer["status"] == "success", "{promql}: {answer}");
    Ok(answer["data"]["result"].as_array().context("the answer has no result")?.len())
}

/// An instant query against anything that speaks the Prometheus API.
pub(crate) async fn instant_query(
    http: &reqwest::Client,
    base: &str,
    promql: &str,
    time: Option<f64>,
) -> Result<Vec<Sample>> {
    let mut form = vec![("query", promql.to_owned())];
    if let Some(time) = time {
        form.push(("time", format!("{time:.3}")));
    }
    let query = form.iter().map(|(k, v)| format!("{k}={}", percent_encode(v))).collect::<Vec<_>>().join("&");
    let answer = http.get(format!("{base}/api/v1/query?{query}")).send().await?.bytes().await?;
    let answer: Value = serde_json::from_slice(&answer).context("the answer is not JSON")?;
    ensure!(answer["status"] == "success", "{promql}: {answer}");
    let result = answer["data"]["result"].as_array().context("the answer has no result")?;
    result
        .iter()
        .map(|series| {
            let value = series["value"][1].as_str().context("a sample without value")?;
            Ok(Sample {
                labels: serde_json::from_value(series["metric"].clone())?,
                value: value.parse().with_context(|| format!("the value {value}"))?,
                at: series["value"][0].as_f64().unwrap_or_default(),
            })
        })
        .collect()
}

fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(b).to_string(),
            _ => format!("%{b:02X}"),
        })
        .collect()
}
