//! Which kinds the API server serves, at which of the versions that a source can read.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use kube::Client;
use serde::Deserialize;
use tokio::{sync::Mutex, time::timeout};

use super::{fault::Fault, path::Path};
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
    /// Versions by group, the preferred one first.
    versions: Mutex<HashMap<String, (Instant, Vec<String>)>>,
}

/// All that is served, in one answer (Kubernetes 1.26 and newer).
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

impl Discovery {
    /// Asks the API server of `client`.
    pub fn new(client: Client) -> Self {
        Self { client, seen: Mutex::default(), versions: Mutex::default() }
    }

    /// Where a kind's objects are, at the first of its versions that is served, or the one that the
    /// server prefers when it has none; `None` when none is served.
    pub async fn path(&self, kind: &KindRef) -> Result<Option<Path>, Fault> {
        let preferred = match kind.versions.is_empty() {
            true => self.versions(&kind.group).await?,
            false => Vec::new(),
        };
        for version in kind.versions.iter().chain(&preferred) {
            let prefix = if kind.group.is_empty() {
                format!("/api/{version}")
            } else {
                format!("/apis/{}/{version}", kind.group)
            };
            if let Some(resource) = self.resource(&prefix, &kind.kind).await? {
                return Ok(Some(Path { prefix, resource }));
            }
        }
        Ok(None)
    }

    /// Versions of a group, the preferred one first; none when it is not served.
    async fn versions(&self, group: &str) -> Result<Vec<String>, Fault> {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
        if group.is_empty() {
            return Ok(vec!["v1".to_owned()]);
        }
        let mut seen = self.versions.lock().await;
        if let Some((at, versions)) = seen.get(group)
            && at.elapsed() < FRESH
        {
            return Ok(versions.clone());
        }
        let versions = match self.get::<APIGroup>(&format!("/apis/{group}"), None).await {
            Ok(found) => {
                let preferred = found.preferred_version.map(|v| v.version);
                let others = found.versions.into_iter().map(|v| v.version);
                let mut versions: Vec<String> = preferred.into_iter().chain(others).collect();
                let mut named = std::collections::HashSet::new();
                versions.retain(|version| named.insert(version.clone()));
                versions
            }
            Err(Fault::NotServed) => Vec::new(),
            Err(fault) => return Err(fault),
        };
        seen.insert(group.to_owned(), (Instant::now(), versions.clone()));
        Ok(versions)
    }

    /// Every kind that is in one of these categories, at its preferred version.
    pub(crate) async fn kinds_of(&self, categories: &[String]) -> Result<Vec<KindRef>, Fault> {
        let list: GroupList = self.get("/apis", Some(AGGREGATED)).await?;
        if list.kind != "APIGroupDiscoveryList" {
            let message = format!("{} from /apis: categories need Kubernetes 1.26 or newer", list.kind);
            return Err(Fault::Malformed(message));
        }
        let mut kinds = Vec::new();
        for group in list.items {
            for version in group.versions {
                for resource in version.resources {
                    let known =
                        |k: &KindRef| k.group == group.metadata.name && k.kind == resource.response_kind.kind;
                    let wanted = resource.categories.iter().any(|c| categories.contains(c));
                    let watched = resource.verbs.iter().any(|v| v == "watch");
                    if wanted && watched && !kinds.iter().any(known) {
                        kinds.push(KindRef {
                            group: group.metadata.name.clone(),
                            kind: resource.response_kind.kind,
                            versions: vec![version.version.clone()],
                            resource: Some(resource.resource),
                            selector: None,
                        });
                    }
                }
            }
        }
        kinds.sort_unstable();
        Ok(kinds)
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
        match self.get::<APIResourceList>(prefix, None).await {
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

    async fn get<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        accept: Option<&'static str>,
    ) -> Result<T, Fault> {
        let mut request = http::Request::get(path);
        if let Some(accept) = accept {
            request = request.header(http::header::ACCEPT, accept);
        }
        let request = request
            .body(Vec::new())
            .map_err(|error| Fault::Malformed(format!("request for {path}: {error}")))?;
        let answer = timeout(PATIENCE, self.client.request::<T>(request));
        answer.await.map_err(|_| Fault::Silent(PATIENCE))?.map_err(Fault::from)
    }
}

#[derive(Deserialize)]
struct GroupList {
    kind: String,
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    metadata: GroupName,
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupName {
    name: String,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    response_kind: ResponseKind,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct ResponseKind {
    kind: String,
}
