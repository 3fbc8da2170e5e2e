//! Which kinds the API server serves, at which of the versions that a source can read.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use kube::Client;
use tokio::{sync::Mutex, time::timeout};

use super::Fault;
use crate::source::KindRef;

/// How long an answer is used again, so that many kinds waiting cost few requests.
const FRESH: Duration = Duration::from_secs(2);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

type Resources = HashMap<String, String>;

/// A cached view of the API server's discovery.
pub struct Discovery {
    client: Client,
    /// Resource name by kind, by `group/version`; `None` where that is not served.
    seen: Mutex<HashMap<String, (Instant, Option<Resources>)>>,
}

impl Discovery {
    /// Asks the API server of `client`.
    pub fn new(client: Client) -> Self {
        Self { client, seen: Mutex::default() }
    }

    /// The request path of a kind's objects in all namespaces, at the first of its versions that is
    /// served; `None` when none is.
    pub async fn path(&self, kind: &KindRef) -> Result<Option<String>, Fault> {
        for version in &kind.versions {
            let prefix = if kind.group.is_empty() {
                format!("/api/{version}")
            } else {
                format!("/apis/{}/{version}", kind.group)
            };
            if let Some(resource) = self.resource(&prefix, &kind.kind).await? {
                return Ok(Some(format!("{prefix}/{resource}")));
            }
        }
        Ok(None)
    }

    async fn resource(&self, prefix: &str, kind: &str) -> Result<Option<String>, Fault> {
        // Held while asking: others that want to know the same wait for the one answer.
        let mut seen = self.seen.lock().await;
        if let Some((at, resources)) = seen.get(prefix)
            && at.elapsed() < FRESH
        {
            return Ok(resources.as_ref().and_then(|r| r.get(kind).cloned()));
        }
        let resources = self.ask(prefix).await?;
        let found = resources.as_ref().and_then(|r| r.get(kind).cloned());
        seen.insert(prefix.to_owned(), (Instant::now(), resources));
        Ok(found)
    }

    async fn ask(&self, prefix: &str) -> Result<Option<Resources>, Fault> {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
        let request = http::Request::get(prefix)
            .body(Vec::new())
            .map_err(|error| Fault::Malformed(format!("request for {prefix}: {error}")))?;
        let answer = timeout(PATIENCE, self.client.request::<APIResourceList>(request))
            .await
            .map_err(|_| Fault::Silent(PATIENCE))?;
        match answer.map_err(Fault::from) {
            Ok(list) => Ok(Some(
                list.resources
                    .into_iter()
                    .filter(|r| !r.name.contains('/') && r.verbs.iter().any(|v| v == "watch"))
                    .map(|r| (r.kind, r.name))
                    .collect(),
            )),
            Err(Fault::NotServed) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}
