//! `statusbridge-changelog`, and the provider's side of it.

use crate::exposition::Exposition;
use crate::{Port, Process, Rig, own_program, program};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The sidecar.
#[derive(Debug)]
pub struct Changelog {
    process: Process,
    port: Port,
    socket: PathBuf,
}

/// What became of the entries that a provider sent.
#[derive(Debug)]
pub struct Sent {
    /// Those that were answered well.
    pub sent: u64,
    /// Those that were not.
    pub failed: u64,
    /// From the first to the last answer.
    pub took: Duration,
    /// The longest that one waited for its answer.
    pub slowest: Duration,
}

impl Changelog {
    /// Starts one whose standard output is appended to the file, or named pipe, `out`.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start(rig: &Rig, name: &str, out: &Path, more: &[&str]) -> Result<Self> {
        Self::start_in(rig, name, out, vec![], more).await
    }

    /// Starts one with this environment. `LOG` is a file, or named pipe, that its standard error is appended to.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start_in(
        rig: &Rig,
        name: &str,
        out: &Path,
        mut environment: Vec<(&'static str, OsString)>,
        more: &[&str],
    ) -> Result<Self> {
        let port = Port::reserve()?;
        let socket = rig.subdir(name)?.join("c.sock");
        // The rig's processes have one log for both outputs, and this one's standard output is what it is about.
        let mut args: Vec<OsString> =
            vec!["-c".into(), "[ -z \"$LOG\" ] || exec 2>>\"$LOG\"; exec \"$0\" \"$@\" >>\"$OUT\"".into()];
        args.push(own_program("statusbridge-changelog").await?.into());
        args.extend(["--socket-path".into(), socket.clone().into()]);
        args.extend(["--listen".into(), port.address().to_string().into()]);
        args.extend(more.iter().map(Into::into));
        environment.push(("OUT", out.into()));
        let process = Process::spawn(rig, name, Path::new("/bin/sh"), args, environment)?;
        let changelog = Self { process, port, socket };
        changelog.wait_ready().await?;
        Ok(changelog)
    }

    /// Waits for `/readyz`.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn wait_ready(&self) -> Result<()> {
        let (http, url) = (crate::servers::http()?, format!("http://{}/readyz", self.port.address()));
        self.process
            .ready(async || {
                http.get(&url).send().await?.error_for_status()?;
                Ok(())
            })
            .await
    }

    /// What `/metrics` answers.
    ///
    /// # Errors
    /// When it does not answer 200, or with something else than an exposition.
    pub async fn says(&self) -> Result<Exposition> {
        let url = format!("http://{}/metrics", self.port.address());
        Exposition::parse(&crate::servers::http()?.get(url).send().await?.error_for_status()?.text().await?)
    }

    /// The process, to freeze, kill or start again.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Where it serves metrics.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Where it takes entries.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Has a provider send so many entries, from so many reconcilers at once.
    ///
    /// # Errors
    /// When that cannot be done.
    pub async fn load(&self, entries: u64, workers: usize) -> Result<Sent> {
        let args = [entries.to_string(), workers.to_string()];
        let says: Value = serde_json::from_str(&self.client("load", &args, "").await?)?;
        let number = |field: &str| says[field].as_u64().with_context(|| format!("{field} in {says}"));
        Ok(Sent {
            sent: number("sent")?,
            failed: number("failed")?,
            took: Duration::try_from_secs_f64(says["seconds"].as_f64().context("no seconds")?)?,
            slowest: Duration::from_micros(number("slowestMicroseconds")?),
        })
    }

    /// Sends entries as they are. Gives for each the answer's `code` and `message`, and the `line` that upstream's
    /// sidecar would print.
    ///
    /// # Errors
    /// When an entry cannot be sent.
    pub async fn echo(&self, entries: &[Value]) -> Result<Vec<Value>> {
        let lines: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
        let answers = self.client("echo", &[], &lines).await?;
        answers.lines().map(|line| serde_json::from_str(line).context(line.to_owned())).collect()
    }

    async fn client(&self, command: &str, args: &[String], input: &str) -> Result<String> {
        let mut client = Command::new(program("changelog-client")?)
            .arg(command)
            .arg(&self.socket)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting changelog-client")?;
        let mut stdin = client.stdin.take().context("no standard input")?;
        let write = async {
            stdin.write_all(input.as_bytes()).await?;
            drop(stdin);
            anyhow::Ok(())
        };
        let (written, out) = tokio::join!(write, client.wait_with_output());
        let out = out?;
        ensure!(out.status.success(), "changelog-client: {}", String::from_utf8_lossy(&out.stderr));
        written?;
        Ok(String::from_utf8(out.stdout)?)
    }
}
