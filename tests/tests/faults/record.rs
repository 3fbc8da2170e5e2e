//! Every version of every gate, plan and record, read from the hub's etcd: there is none that this does not see,
//! whatever becomes of API servers and watches.

use crate::faults::timeline::{Timeline, Version, now};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use statusbridge_tests::{Etcd, SOON, eventually};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

#[derive(Debug, Default)]
struct Seen {
    /// The store's revision up to which all is known.
    revision: u64,
    fault: Option<String>,
}

/// Adds versions to a timeline.
#[derive(Debug)]
pub(crate) struct Recorder {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
    url: String,
    prefix: String,
    http: reqwest::Client,
}

impl Recorder {
    /// Records from now on what stands under a prefix of keys.
    pub(crate) fn start(etcd: &Etcd, prefix: &str, log: Arc<Mutex<Timeline>>) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (url, prefix) = (etcd.url(), prefix.to_owned());
        let task = tokio::spawn(follow(http.clone(), url.clone(), prefix.clone(), Arc::clone(&seen), log));
        Ok(Self { seen, task, url, prefix, http })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all versions up to now are recorded.
    ///
    /// # Errors
    /// When some may be missing.
    pub(crate) async fn has_all(&self) -> Result<()> {
        let body = json!({"key": encode(self.prefix.as_bytes()), "range_end": encode(&after(&self.prefix))});
        let answer = self.http.post(format!("{}/v3/kv/range", self.url)).json(&body).send().await?;
        let answer: Value = answer.error_for_status()?.json().await?;
        let stored = answer["kvs"].as_array().into_iter().flatten();
        let newest = stored.filter_map(|kv| number(&kv["mod_revision"])).max().unwrap_or_default();
        eventually(SOON, "all versions were recorded", async || {
            let seen = self.seen();
            if let Some(fault) = &seen.fault {
                return Ok(Err(anyhow::anyhow!("versions are missing: {fault}")));
            }
            ensure!(seen.revision >= newest, "{} of {newest}", seen.revision);
            Ok(Ok(()))
        })
        .await?
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    http: reqwest::Client,
    url: String,
    prefix: String,
    seen: Arc<Mutex<Seen>>,
    log: Arc<Mutex<Timeline>>,
) {
    let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        // A broken watch goes on where it was.
        let ended = watch(&http, &url, &prefix, &seen, &log).await;
        if lock().fault.is_some() {
            return;
        }
        drop(ended);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn watch(
    http: &reqwest::Client,
    url: &str,
    prefix: &str,
    seen: &Mutex<Seen>,
    log: &Mutex<Timeline>,
) -> Result<()> {
    let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    let next = lock().revision + 1;
    let request = json!({"create_request": {
        "key": encode(prefix.as_bytes()), "range_end": encode(&after(prefix)), "start_revision": next.to_string(),
    }});
    let mut answer = http.post(format!("{url}/v3/watch")).json(&request).send().await?.error_for_status()?;
    let mut buffer: Vec<u8> = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let message: Value = serde_json::from_slice(&line).context("a line of the watch")?;
            if let Err(error) = take(&message["result"], &mut lock(), log) {
                lock().fault = Some(format!("{error:#}"));
                return Err(error);
            }
        }
    }
    bail!("the watch ended")
}

fn take(result: &Value, seen: &mut Seen, log: &Mutex<Timeline>) -> Result<()> {
    ensure!(result["canceled"] != true, "the watch was cancelled: {result}");
    for event in result["events"].as_array().into_iter().flatten() {
        let kv = &event["kv"];
        seen.revision = seen.revision.max(number(&kv["mod_revision"]).context("no revision")?);
        let text = |field: &str| decode(kv[field].as_str().unwrap_or_default());
        let key = String::from_utf8(text("key").context("the key")?)?;
        // …/RESOURCE/NAMESPACE/NAME
        let mut parts = key.rsplit('/').map(str::to_owned);
        let (name, resource) = (parts.next(), parts.nth(1));
        let (name, resource) = name.zip(resource).with_context(|| format!("the key {key}"))?;
        let mut object = match event["type"] == "DELETE" {
            true => Value::Null,
            false => serde_json::from_slice(&text("value").context("the value")?)?,
        };
        // Half of it, which nobody asks for.
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let version = Version { resource, name, at: now(), object: Arc::new(object) };
        log.lock().unwrap_or_else(PoisonError::into_inner).versions.push(version);
    }
    Ok(())
}

fn number(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}

/// The first key that does not have this prefix.
fn after(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64, in which etcd's gateway wants keys.
fn encode(bytes: &[u8]) -> String {
    let group = |chunk: &[u8]| {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        let digit = |i: usize| char::from(DIGITS[(bits >> (18 - 6 * i)) as usize & 63]);
        (0..4).map(|i| if i <= chunk.len() { digit(i) } else { '=' }).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for digit in text.bytes().filter(|digit| *digit != b'=') {
        bits = bits << 6 | u32::try_from(DIGITS.iter().position(|it| *it == digit)?).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[test]
fn base64_is_what_it_should_be() {
    for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
        assert_eq!(encode(plain.as_bytes()), coded);
        assert_eq!(decode(coded).as_deref(), Some(plain.as_bytes()));
    }
}
