//! The API server that is read: filled with packages, listed, updated.

use crate::fleet;
use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use serde_json::{Value, json};
use statusbridge_tests::{ApiServer, Etcd, Rig, crds};
use std::time::{Duration, Instant};

/// Writes under way at a time.
const WRITERS: usize = 32;
/// Objects on a page of the yardstick.
const PAGE: usize = 500;
const KUSTOMIZATIONS: &str = "kustomize.toolkit.fluxcd.io/v1";
const SOURCES: &str = "source.toolkit.fluxcd.io/v1";

/// A cluster full of packages.
pub(crate) struct Cluster {
    pub(crate) api: ApiServer,
    _etcd: Etcd,
    packages: usize,
    /// Resource version of every package, then of every GitRepository: whoever updates an object has to know it.
    versions: Vec<Vec<String>>,
}

/// How long a list of all packages took, and how large it was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed {
    pub(crate) took: Duration,
    pub(crate) bytes: usize,
    pub(crate) pages: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    Package = 0,
    Repository = 1,
}

impl Cluster {
    /// Starts the servers and writes the packages.
    pub(crate) async fn start(rig: &Rig, packages: usize) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "bench").await?;
        api.install_crds(&crds::flux()?).await?;
        for namespace in fleet::namespaces() {
            api.ensure_namespace(&namespace).await?;
        }
        let mut cluster = Self { api, _etcd: etcd, packages, versions: Vec::new() };
        let made = cluster.fill(Kind::Package, packages, fleet::package, fleet::first_status).await?;
        cluster.versions.push(made);
        let repositories = fleet::repositories(packages);
        let status = |n| fleet::repository_status(n, 1);
        let made = cluster.fill(Kind::Repository, repositories, fleet::repository, status).await?;
        cluster.versions.push(made);
        Ok(cluster)
    }

    /// How many packages there are.
    pub(crate) fn packages(&self) -> usize {
        self.packages
    }

    /// Makes objects with their status.
    async fn fill(
        &self,
        kind: Kind,
        count: usize,
        object: impl Fn(usize) -> Value,
        status: impl Fn(usize) -> Value,
    ) -> Result<Vec<String>> {
        let one = async |n: usize| {
            let version = self.write("POST", &collection(kind, n), &object(n)).await?;
            self.write_status(kind, n, &version, status(n)).await
        };
        stream::iter(0..count).map(one).buffered(WRITERS).try_collect().await
    }

    async fn write_status(&self, kind: Kind, n: usize, version: &str, status: Value) -> Result<String> {
        // A status is written by replacing the object in the status subresource, which takes nothing else of it.
        let mut object = match kind {
            Kind::Package => fleet::package(n),
            Kind::Repository => fleet::repository(n),
        };
        object["metadata"]["resourceVersion"] = json!(version);
        object["status"] = status;
        let name = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
        self.write("PUT", &format!("{}/{name}/status", collection(kind, n)), &object).await
    }

    /// Writes an object and gives the resource version it has then.
    async fn write(&self, method: &str, path: &str, object: &Value) -> Result<String> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{path}?fieldManager=kustomize-controller"))
            .header("content-type", "application/json")
            .body(serde_json::to_vec(object)?)?;
        let answer: Value =
            self.client().request(request).await.with_context(|| format!("{method} {path}"))?;
        let version = answer["metadata"]["resourceVersion"].as_str();
        Ok(version.context("the API server answered without a resource version")?.to_owned())
    }

    fn client(&self) -> Client {
        self.api.client()
    }

    /// Tells the GitRepositories of the first `packages` packages that there is a new revision; gives how many they are.
    pub(crate) async fn move_repositories(&mut self, packages: usize, revision: usize) -> Result<usize> {
        let count = fleet::repositories(packages);
        for n in 0..count {
            let version = &self.versions[Kind::Repository as usize][n];
            let status = fleet::repository_status(n, revision);
            let version = self.write_status(Kind::Repository, n, version, status).await?;
            self.versions[Kind::Repository as usize][n] = version;
        }
        Ok(count)
    }

    /// Moves the first `packages` packages to a new revision, so many a second; gives how long it took.
    pub(crate) async fn move_packages(
        &mut self,
        packages: usize,
        revision: usize,
        rate: u32,
    ) -> Result<Duration> {
        let started = Instant::now();
        let versions = &self.versions[Kind::Package as usize];
        let pace = |n: usize| started + Duration::from_secs(1) / rate * u32::try_from(n).unwrap_or(u32::MAX);
        let one = async |n: usize| {
            let status = fleet::healthy_status(n, revision);
            self.write_status(Kind::Package, n, &versions[n], status).await
        };
        let paced = stream::iter(0..packages).then(async |n| {
            tokio::time::sleep_until(pace(n).into()).await;
            n
        });
        let moved: Vec<String> = paced.map(one).buffered(WRITERS).try_collect().await?;
        self.versions[Kind::Package as usize][..packages].clone_from_slice(&moved);
        Ok(started.elapsed())
    }

    /// Lists all packages page by page, the way the fastest reader would: whole bodies, nothing parsed.
    pub(crate) async fn list(&self) -> Result<Listed> {
        let started = Instant::now();
        let (mut bytes, mut pages, mut next) = (0, 0, String::new());
        loop {
            let uri = format!("/apis/{KUSTOMIZATIONS}/kustomizations?limit={PAGE}{next}");
            let request = http::Request::get(uri).header("accept-encoding", "identity").body(Vec::new())?;
            let body = self.client().request_text(request).await.context("listing the packages")?;
            (bytes, pages) = (bytes + body.len(), pages + 1);
            match continue_token(&body) {
                Some(token) => next = format!("&continue={token}"),
                None => break,
            }
        }
        let took = started.elapsed();
        ensure!(pages == self.packages.div_ceil(PAGE), "{} packages came in {pages} pages", self.packages);
        Ok(Listed { took, bytes, pages })
    }
}

fn collection(kind: Kind, n: usize) -> String {
    match kind {
        Kind::Package => {
            format!("/apis/{KUSTOMIZATIONS}/namespaces/{}/kustomizations", fleet::namespace(n))
        }
        Kind::Repository => format!("/apis/{SOURCES}/namespaces/{}/gitrepositories", fleet::REPOSITORIES),
    }
}

/// The token of the next page, found without parsing: a list of custom resources ends with its metadata.
fn continue_token(body: &str) -> Option<&str> {
    let tail = &body[body.rfind("\"metadata\":{")?..];
    let (_, token) = tail.split_once("\"continue\":\"")?;
    token.split_once('"').map(|(token, _)| token).filter(|token| !token.is_empty())
}
