//! The API server that is read: filled with objects, listed, updated.

use crate::{central, fleet, joins, resources};
use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use serde_json::{Value, json};
use statusbridge_tests::bench::say;
use statusbridge_tests::{ApiServer, Etcd, Rig, crds, eventually};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Writes under way at a time.
const WRITERS: usize = 64;
/// Writes after which there is word of how far they are.
const PROGRESS: usize = 10_000;
/// Objects on a page of the yardstick.
const PAGE: usize = 500;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bench {
    /// Flux Kustomizations, which say themselves how they are.
    Packages,
    /// kpt's ResourceGroups, whose objects have to be looked at.
    Resources,
    /// Packages of a source that is not a preset, joined by label with their objects.
    Joins,
    /// Argo CD's Applications of many clusters.
    Central,
}

/// A cluster full of packages.
pub(crate) struct Cluster {
    pub(crate) api: ApiServer,
    _etcd: Etcd,
    pub(crate) bench: Bench,
    /// How many packages there are.
    pub(crate) packages: usize,
}

/// How long a list of everything that is read took, and how large it was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed {
    pub(crate) took: Duration,
    pub(crate) bytes: usize,
    pub(crate) objects: usize,
}

/// A kind of objects.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    prefix: &'static str,
    plural: &'static str,
    /// The object with this number.
    object: fn(usize) -> Value,
}

/// Argo CD's, which have no status subresource.
pub(crate) const APPLICATIONS: Kind =
    Kind { prefix: "/apis/argoproj.io/v1alpha1", plural: "applications", object: central::application };

const KUSTOMIZATIONS: Kind =
    Kind { prefix: "/apis/kustomize.toolkit.fluxcd.io/v1", plural: "kustomizations", object: fleet::package };
const GIT_REPOSITORIES: Kind = Kind {
    prefix: "/apis/source.toolkit.fluxcd.io/v1",
    plural: "gitrepositories",
    object: fleet::repository,
};
const RESOURCE_GROUPS: Kind =
    Kind { prefix: "/apis/kpt.dev/v1alpha1", plural: "resourcegroups", object: resources::resource_group };
const CONFIG_MAPS: Kind = Kind { prefix: "/api/v1", plural: "configmaps", object: resources::config_map };
const SERVICES: Kind = Kind { prefix: "/api/v1", plural: "services", object: resources::service };
const DEPLOYMENTS: Kind =
    Kind { prefix: "/apis/apps/v1", plural: "deployments", object: resources::deployment };
/// The packages of [`Bench::Joins`].
pub(crate) const WIDGETS: Kind =
    Kind { prefix: "/apis/example.com/v1", plural: "widgets", object: joins::widget };
/// What they are joined with.
pub(crate) const PARTS: Kind = Kind { prefix: "/apis/example.com/v1", plural: "parts", object: joins::part };

impl Kind {
    /// Whether a CRD defines it.
    fn is_custom(self) -> bool {
        self.prefix.contains('.')
    }

    fn collection(self, object: &Value) -> String {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("");
        format!("{}/namespaces/{namespace}/{}", self.prefix, self.plural)
    }

    fn status(self, n: usize) -> String {
        let object = (self.object)(n);
        let path =
            format!("{}/{}", self.collection(&object), object["metadata"]["name"].as_str().unwrap_or(""));
        if self.plural == APPLICATIONS.plural { path } else { path + "/status" }
    }
}

impl Bench {
    /// Its custom resources; as their projects publish them, where they have one.
    fn crds(self) -> Result<Vec<Value>> {
        match self {
            Self::Packages => crds::definitions(&crds::flux()?),
            Self::Resources => crds::definitions(&crds::kpt()?),
            Self::Joins => Ok(joins::crds()),
            Self::Central => crds::definitions(&crds::argocd()?),
        }
    }

    /// What there is of each kind, in the order in which it is written: a package comes after what it consists of, as
    /// that of a finished apply.
    fn objects(self, packages: usize) -> Vec<(Kind, Range<usize>)> {
        match self {
            Self::Packages => {
                vec![(GIT_REPOSITORIES, 0..fleet::repositories(packages)), (KUSTOMIZATIONS, 0..packages)]
            }
            Self::Resources => {
                let mut objects = Vec::new();
                for (kind, each) in [
                    (CONFIG_MAPS, resources::CONFIG_MAPS),
                    (SERVICES, resources::SERVICES),
                    (DEPLOYMENTS, resources::DEPLOYMENTS),
                ] {
                    for first in [0, resources::OTHERS] {
                        objects.push((kind, first..first + packages * each));
                    }
                }
                objects.push((RESOURCE_GROUPS, 0..packages));
                objects
            }
            Self::Joins => vec![(PARTS, 0..packages * joins::EACH), (WIDGETS, 0..packages)],
            Self::Central => vec![(APPLICATIONS, 0..packages)],
        }
    }

    /// What the yardstick lists.
    fn listed(self) -> &'static [Kind] {
        match self {
            Self::Packages => &[KUSTOMIZATIONS],
            Self::Resources => &[CONFIG_MAPS, SERVICES, DEPLOYMENTS, RESOURCE_GROUPS],
            Self::Joins => &[PARTS, WIDGETS],
            Self::Central => &[APPLICATIONS],
        }
    }

    /// What it is about, in words.
    pub(crate) fn what(self, packages: usize, objects: usize) -> String {
        match self {
            Self::Packages => format!("{packages} Flux Kustomizations"),
            Self::Resources => format!(
                "{packages} ResourceGroups of 20 objects each and as many objects in no inventory, {objects} objects in all"
            ),
            Self::Joins => format!(
                "{packages} packages and the objects that they are joined with by label, {objects} objects in all"
            ),
            Self::Central => format!("{packages} Applications"),
        }
    }

    /// What is updated, in words.
    pub(crate) const fn updated(self) -> &'static str {
        match self {
            Self::Packages | Self::Central => "a package",
            Self::Resources => "a Deployment's status",
            Self::Joins => "an object that one package is joined with",
        }
    }

    /// How many objects can be updated.
    pub(crate) fn most_updates(self, packages: usize) -> usize {
        match self {
            Self::Packages | Self::Central => packages,
            Self::Joins => 2 * packages,
            // One update takes a replica away, another gives it back.
            Self::Resources => 2 * packages * resources::DEPLOYMENTS,
        }
    }

    /// Which object the `n`th of so many updates is about, and its status then.
    fn update(self, n: usize, updates: usize, revision: usize) -> (Kind, usize, Value) {
        match self {
            Self::Packages => (KUSTOMIZATIONS, n, fleet::healthy_status(n, revision)),
            Self::Central => (APPLICATIONS, n, central::status(n, revision)),
            Self::Resources => {
                let half = updates / 2;
                (DEPLOYMENTS, n % half, resources::replica_status(n >= half))
            }
            Self::Joins => {
                let half = updates / 2;
                (PARTS, n % half * joins::EACH, joins::part_status(n >= half))
            }
        }
    }
}

impl Cluster {
    /// Starts the servers and writes the objects.
    pub(crate) async fn start(rig: &Rig, bench: Bench, packages: usize) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "bench").await?;
        let cluster = Self { api, _etcd: etcd, bench, packages };
        let crds = bench.crds()?;
        // Without the status subresource an object is written with its status at one go, which takes half the time.
        crds::install_definitions(&cluster.api, &without_subresources(&crds)).await?;
        for namespace in fleet::namespaces().into_iter().chain([central::NAMESPACE.to_owned()]) {
            cluster.api.ensure_namespace(&namespace).await?;
        }
        for (kind, numbers) in bench.objects(packages) {
            cluster.fill(kind, numbers).await?;
        }
        crds::install_definitions(&cluster.api, &crds).await?;
        for (kind, numbers) in bench.objects(packages) {
            if kind.is_custom() {
                cluster.until_status_is_served(kind, numbers.start).await?;
            }
        }
        Ok(cluster)
    }

    async fn fill(&self, kind: Kind, numbers: Range<usize>) -> Result<()> {
        let (started, count) = (Instant::now(), numbers.len());
        let one = async |n: usize| -> Result<()> {
            let object = (kind.object)(n);
            self.write("POST", &kind.collection(&object), "application/json", &object).await?;
            match object.get("status") {
                // That of a built-in kind cannot be written at once.
                Some(status) if !kind.is_custom() => self.write_status(kind, n, status).await,
                _ => Ok(()),
            }
        };
        let mut written = stream::iter(numbers).map(one).buffer_unordered(WRITERS);
        let mut so_far = 0;
        while let Some(result) = written.next().await {
            result?;
            so_far += 1;
            if so_far % PROGRESS == 0 || so_far == count {
                let seconds = started.elapsed().as_secs_f64();
                say(&format!("  {so_far} of {count} {} written after {seconds:.1} s", kind.plural));
            }
        }
        Ok(())
    }

    /// The API server throws away what it has cached of a kind whose CRD changes, and reads all of it again.
    async fn until_status_is_served(&self, kind: Kind, n: usize) -> Result<()> {
        let cached = format!("{}/{}?limit=1&resourceVersion=0", kind.prefix, kind.plural);
        let paths = [kind.status(n), cached];
        eventually(Duration::from_secs(180), &format!("{} is served", paths[0]), async || {
            for path in &paths {
                let request = http::Request::get(path).body(Vec::new())?;
                self.client().request_text(request).await?;
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn write_status(&self, kind: Kind, n: usize, status: &Value) -> Result<()> {
        let patch = json!({"status": status});
        self.write("PATCH", &kind.status(n), "application/merge-patch+json", &patch).await
    }

    async fn write(&self, method: &str, path: &str, content: &str, object: &Value) -> Result<()> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{path}?fieldManager=bench"))
            .header("content-type", content)
            .body(serde_json::to_vec(object)?)?;
        self.client().request_text(request).await.map(drop).with_context(|| format!("{method} {path}"))
    }

    fn client(&self) -> Client {
        self.api.client()
    }

    /// Tells the sources of the first packages that there is a new revision; gives how many sources they are.
    pub(crate) async fn announce(&self, updates: usize, revision: usize) -> Result<usize> {
        let count = match self.bench {
            Bench::Packages => fleet::repositories(updates),
            Bench::Resources | Bench::Joins | Bench::Central => 0,
        };
        for n in 0..count {
            self.write_status(GIT_REPOSITORIES, n, &fleet::repository_status(n, revision)).await?;
        }
        Ok(count)
    }

    /// Updates so many objects, `rate` a second; gives how long it took.
    pub(crate) async fn update(&self, updates: usize, revision: usize, rate: u32) -> Result<Duration> {
        self.paced(updates, rate, |n| self.bench.update(n, updates, revision)).await
    }

    /// Writes so many statuses, `rate` a second; gives how long it took.
    pub(crate) async fn paced(
        &self,
        updates: usize,
        rate: u32,
        update: impl Fn(usize) -> (Kind, usize, Value),
    ) -> Result<Duration> {
        let started = Instant::now();
        let pace = |n: usize| started + Duration::from_secs(1) / rate * u32::try_from(n).unwrap_or(u32::MAX);
        let one = async |n: usize| {
            let (kind, object, status) = update(n);
            self.write_status(kind, object, &status).await
        };
        let paced = stream::iter(0..updates).then(async |n| {
            tokio::time::sleep_until(pace(n).into()).await;
            n
        });
        paced.map(one).buffered(WRITERS).try_collect::<()>().await?;
        Ok(started.elapsed())
    }

    /// Writes the status of these packages, as fast as the API server takes them.
    pub(crate) async fn put(&self, packages: Range<usize>, status: impl Fn(usize) -> Value) -> Result<()> {
        let one = async |n: usize| self.write_status(KUSTOMIZATIONS, n, &status(n)).await;
        stream::iter(packages).map(one).buffer_unordered(WRITERS).try_collect().await
    }

    /// Lists everything that is read page by page, the way the fastest reader would: whole bodies, nothing parsed.
    pub(crate) async fn list(&self) -> Result<Listed> {
        let started = Instant::now();
        let (mut bytes, mut pages) = (0, 0);
        for kind in self.bench.listed() {
            let mut next = String::new();
            loop {
                let uri = format!("{}/{}?limit={PAGE}{next}", kind.prefix, kind.plural);
                let request =
                    http::Request::get(uri).header("accept-encoding", "identity").body(Vec::new())?;
                let body = self.client().request_text(request).await.context("listing")?;
                (bytes, pages) = (bytes + body.len(), pages + 1);
                match continue_token(&body) {
                    Some(token) => next = format!("&continue={token}"),
                    None => break,
                }
            }
        }
        let took = started.elapsed();
        let of_kind = |kind: &Kind| {
            let all = self.bench.objects(self.packages);
            all.iter().filter(|(k, _)| k.plural == kind.plural).map(|(_, n)| n.len()).sum::<usize>()
        };
        let counts: Vec<usize> = self.bench.listed().iter().map(of_kind).collect();
        let least: usize = counts.iter().map(|count| count.div_ceil(PAGE)).sum();
        // One that the API server made itself may take another page.
        ensure!((least..=least + counts.len()).contains(&pages), "{counts:?} objects came in {pages} pages");
        Ok(Listed { took, bytes, objects: counts.iter().sum() })
    }

    /// How many GETs and LISTs of what is listed the API server has answered so far.
    pub(crate) async fn reads(&self) -> Result<u64> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.client().request_text(request).await.context("reading the API server's metrics")?;
        let has = |line: &str, label: &str, value: &str| line.contains(&format!("{label}=\"{value}\""));
        let counts = text.lines().filter(|line| {
            line.starts_with("apiserver_request_total{")
                && (has(line, "verb", "GET") || has(line, "verb", "LIST"))
                && self.bench.listed().iter().any(|kind| has(line, "resource", kind.plural))
        });
        Ok(counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>() as u64)
    }
}

fn without_subresources(crds: &[Value]) -> Vec<Value> {
    let mut crds = crds.to_vec();
    for version in crds.iter_mut().filter_map(|crd| crd["spec"]["versions"].as_array_mut()).flatten() {
        version.as_object_mut().map(|version| version.remove("subresources"));
    }
    crds
}

/// The token of the next page, found without parsing: it is in the list's own metadata, which custom resources have at
/// the end and built-in kinds at the beginning.
fn continue_token(body: &str) -> Option<&str> {
    let metadata = match body.find("\"items\":") {
        Some(items) if body[..items].contains("\"metadata\":{") => &body[..items],
        _ => &body[body.rfind("\"metadata\":{")?..],
    };
    let (_, token) = metadata.split_once("\"continue\":\"")?;
    token.split_once('"').map(|(token, _)| token).filter(|token| !token.is_empty())
}
