//! Every version that an object of the hub ever had: for what must not have happened, not even for a moment.

use crate::{ApiServer, SOON, eventually};
use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// One version of the object.
#[derive(Debug, Clone)]
pub struct Version {
    /// When the watch brought it.
    pub seen: Instant,
    /// The object as it was.
    pub object: DynamicObject,
}

impl Version {
    /// Status and reason of a condition: `("True", "Healthy")`. Empty where there is none.
    pub fn condition(&self, kind: &str) -> (&str, &str) {
        condition(&self.object, kind)
    }

    /// Whether this says Open, or anything else that promotion reads, for the generation that the object has.
    pub fn lets_pass(&self) -> bool {
        let status = &self.object.data["status"];
        let generation = self.object.metadata.generation;
        let current = |c: &Value| c["observedGeneration"].as_i64() == generation;
        let conditions = status["conditions"].as_array().into_iter().flatten();
        status["observedGeneration"].as_i64() == generation
            && conditions
                .filter(|c| current(c) && c["status"] == "True")
                .any(|c| ["Open", "OpenedOnce", "Ready"].contains(&c["type"].as_str().unwrap_or_default()))
    }
}

/// Status and reason of an object's condition. Empty where there is none.
pub fn condition<'a>(object: &'a DynamicObject, kind: &str) -> (&'a str, &'a str) {
    let mut conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|c| c["type"] == kind);
    let text = |field: &str| found.and_then(|c| c[field].as_str()).unwrap_or_default();
    (text("status"), text("reason"))
}

#[derive(Debug, Default)]
struct Seen {
    versions: Vec<Version>,
    /// Why versions may be missing.
    gap: Option<String>,
}

/// Records an object's versions, from the one that it has now.
pub struct History {
    name: String,
    api: Api<DynamicObject>,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl History {
    /// Starts recording. The object need not exist yet.
    ///
    /// # Errors
    /// When the kind is not served.
    pub async fn record(
        api: &ApiServer,
        kind: &GroupVersionKind,
        namespace: &str,
        name: &str,
    ) -> Result<Self> {
        let api = api.dynamic(kind, Some(namespace)).await?;
        let only = format!("metadata.name={name}");
        let list = api.list(&ListParams::default().fields(&only)).await?;
        let from = list.metadata.resource_version.context("a list without resourceVersion")?;
        let versions =
            list.items.into_iter().map(|object| Version { seen: Instant::now(), object }).collect();
        let seen = Arc::new(Mutex::new(Seen { versions, gap: None }));
        let task = tokio::spawn(follow(api.clone(), only, from, seen.clone()));
        Ok(Self { name: name.to_owned(), api, seen, task })
    }

    /// All versions so far, up to the one that the object has now.
    ///
    /// # Errors
    /// When versions may be missing.
    pub async fn versions(&self) -> Result<Vec<Version>> {
        let number = |object: &DynamicObject| -> Result<u64> {
            Ok(object.metadata.resource_version.as_deref().context("no resourceVersion")?.parse()?)
        };
        let Some(now) = self.api.get_opt(&self.name).await? else { bail!("{} is not there", self.name) };
        let newest = number(&now)?;
        eventually(SOON, "the watch has seen all versions", async || {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(gap) = &seen.gap {
                return Ok(Err(anyhow::anyhow!("versions are missing: {gap}")));
            }
            let last = seen.versions.last().context("none was seen")?;
            ensure!(number(&last.object)? >= newest, "not the last one yet");
            Ok(Ok(seen.versions.clone()))
        })
        .await?
    }

    /// Holds every version so far against `rule`.
    ///
    /// # Errors
    /// For the first version that breaks it, and when versions may be missing.
    pub async fn check(&self, what: &str, rule: impl Fn(&Version) -> Result<()>) -> Result<()> {
        for version in self.versions().await? {
            rule(&version).with_context(|| {
                let status = &version.object.data["status"];
                let generation = version.object.metadata.generation.unwrap_or_default();
                format!("a version of {}, generation {generation}, breaks {what:?}: {status}", self.name)
            })?;
        }
        Ok(())
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(api: Api<DynamicObject>, only: String, from: String, seen: Arc<Mutex<Seen>>) {
    let mut version = from;
    let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let params = WatchParams::default().fields(&only);
        let Ok(stream) = api.watch(&params, &version).await else {
            // The server is being started again; the version tells where to go on.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        tokio::pin!(stream);
        while let Some(event) = stream.next().await {
            match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    version = object.metadata.resource_version.clone().unwrap_or(version);
                    lock().versions.push(Version { seen: Instant::now(), object });
                }
                Ok(WatchEvent::Deleted(object)) => {
                    version = object.metadata.resource_version.unwrap_or(version);
                }
                Ok(WatchEvent::Bookmark(bookmark)) => version = bookmark.metadata.resource_version,
                Ok(WatchEvent::Error(error)) => {
                    lock().gap = Some(error.message.clone());
                    return;
                }
                Err(_) => break,
            }
        }
    }
}
