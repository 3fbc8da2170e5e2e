//! The presets against API servers that have the systems' own CRDs: the objects in their tests are ones that can
//! exist, what comes back from the API server is shown as the test says, and so it is by the exporter itself.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiResource, Discovery, Scope};
use serde_json::{Map, Value, json};
use statusbridge_exporter::source::{PRESETS, PackageKinds, Preset, Source};
use statusbridge_exporter::suite::{Case, Suite};
use statusbridge_tests::*;

use crate::checked;

const NAMESPACE: &str = "cases";
/// Cases at work at a time.
const AT_ONCE: usize = 16;

/// An API server with one set of the upstream CRDs.
struct Cluster {
    api: ApiServer,
    kinds: Discovery,
    crds: Vec<Value>,
}

/// A kind as an API server has it.
struct Kind {
    resource: ApiResource,
    namespaced: bool,
    has_status: bool,
}

/// What became of an object in one cluster.
enum Fate {
    /// The cluster has no such kind at the versions that the preset reads.
    NotServed(String),
    /// It was refused, or parts of it were dropped or changed: what happened.
    NotTaken(String),
    /// It came back like this.
    Taken(Value),
}

impl Cluster {
    async fn start(rig: &Rig, etcd: &Etcd, name: &str, crds: &[Value]) -> Result<Self> {
        let api = ApiServer::start(rig, etcd, name).await?;
        crds::install_definitions(&api, crds).await?;
        api.ensure_namespace(NAMESPACE).await?;
        let kinds = eventually(SOON, "all kinds can be discovered", async || {
            let kinds = Discovery::new(api.client()).run_aggregated().await?;
            for crd in crds {
                let version = |v: &Value| v["served"] == true;
                let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
                for served in versions.filter(|v| version(v)) {
                    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
                    let spec = &crd["spec"];
                    let kind = GroupVersionKind {
                        group: text(&spec["group"]),
                        version: text(&served["name"]),
                        kind: text(&spec["names"]["kind"]),
                    };
                    ensure!(kinds.resolve_gvk(&kind).is_some(), "{kind:?} cannot");
                }
            }
            Ok(kinds)
        })
        .await?;
        Ok(Self { api, kinds, crds: crds.to_vec() })
    }

    /// The CRDs of what a source reads.
    fn crds_of(&self, source: &Source) -> Vec<&Value> {
        let kinds = source.kinds.listed().iter().chain(source.related.iter().flat_map(|r| &r.kinds));
        let categories: &[String] = match &source.kinds {
            PackageKinds::Categories(categories) => categories,
            PackageKinds::Listed(_) => &[],
        };
        let is = |spec: &Value| {
            let named = spec["names"]["categories"].as_array().into_iter().flatten();
            kinds.clone().any(|k| spec["group"] == k.group && spec["names"]["kind"] == k.kind)
                || named.filter_map(Value::as_str).any(|name| categories.iter().any(|c| c == name))
        };
        self.crds.iter().filter(|crd| is(&crd["spec"])).collect()
    }

    /// The kind of an object; `None` when it is not served at the object's version.
    fn kind(&self, object: &Value) -> Result<Option<Kind>> {
        let text = |field: &str| object[field].as_str().with_context(|| format!("no {field}"));
        let version = text("apiVersion")?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let served = self.kinds.resolve_gvk(&GroupVersionKind::gvk(group, version, text("kind")?));
        Ok(served.map(|(resource, can)| Kind {
            resource,
            namespaced: can.scope == Scope::Namespaced,
            has_status: can.subresources.iter().any(|(sub, _)| sub.plural == "status"),
        }))
    }

    fn api_of(&self, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
        match kind.namespaced {
            true => Api::namespaced_with(self.api.client(), namespace, &kind.resource),
            false => Api::all_with(self.api.client(), &kind.resource),
        }
    }

    /// Makes an object with its status, under another name and namespace, and reads it back.
    async fn put(
        &self,
        object: &Value,
        namespace: &str,
        name: &str,
        status: impl FnOnce(&DynamicObject, Value) -> Value,
    ) -> Result<Fate> {
        let Some(kind) = self.kind(object)? else {
            return Ok(Fate::NotServed(format!("{} at {}", object["kind"], object["apiVersion"])));
        };
        let mut new = object.clone();
        let given = metadata(&new, |field| KEPT.contains(&field));
        new["metadata"] = Value::Object(given);
        new["metadata"]["name"] = json!(name);
        if kind.namespaced {
            new["metadata"]["namespace"] = json!(namespace);
        }
        let written = new.get("status").filter(|s| !s.is_null()).cloned();
        if kind.has_status {
            new.as_object_mut().context("not a map")?.remove("status");
        }
        let api = self.api_of(&kind, namespace);
        let stored = async {
            let new: DynamicObject = serde_json::from_value(new).context("no Kubernetes object")?;
            let mut stored = api.create(&PostParams::default(), &new).await?;
            if let (true, Some(written)) = (kind.has_status, written) {
                stored.data["status"] = status(&stored, written);
                api.replace_status(name, &PostParams::default(), &stored).await?;
            }
            anyhow::Ok(serde_json::to_value(api.get(name).await?)?)
        };
        match stored.await {
            Ok(stored) => Ok(Fate::Taken(stored)),
            Err(error) => match error.downcast_ref() {
                Some(kube::Error::Api(answer)) if matches!(answer.code, 400 | 422) => {
                    Ok(Fate::NotTaken(answer.message.clone()))
                }
                _ => Err(error.context(format!("{} {name}", kind.resource.kind))),
            },
        }
    }

    /// What differs from what is expected of a case once an API server has had its objects; `Err` says why it could not have
    /// them.
    async fn read(
        &self,
        source: &Arc<Source>,
        suite: &Suite,
        case: &Case,
        id: &str,
    ) -> Result<std::result::Result<Vec<String>, Fate>> {
        let mut found = Vec::new();
        for (number, (what, object)) in objects(suite, source, case)?.into_iter().enumerate() {
            let name = format!("{id}-{number}");
            let stored = self.put(&object, NAMESPACE, &name, |_, status| status).await;
            let mut stored = match stored.with_context(|| what.clone())? {
                Fate::Taken(stored) => stored,
                Fate::NotTaken(why) => return Ok(Err(Fate::NotTaken(format!("{what}: {why}")))),
                not_served => return Ok(Err(not_served)),
            };
            let mut changed = Vec::new();
            compare(&what, &comparable(&object), &stored, &mut changed);
            if !changed.is_empty() {
                return Ok(Err(Fate::NotTaken(changed.join(", "))));
            }
            // Its name, generation and deletion are the case's.
            let mut own = metadata(&object, |field| !KEPT.contains(&field));
            own.extend(metadata(&stored, |field| KEPT.contains(&field)));
            stored["metadata"] = Value::Object(own);
            found.push(stored);
        }
        found.extend(self.crds_of(source).into_iter().cloned());
        Ok(Ok(suite.differences(source, case, found).map_err(anyhow::Error::msg)?))
    }
}

/// The objects of a case, but for the definitions of kinds, which every API server here has.
fn objects(suite: &Suite, source: &Source, case: &Case) -> Result<Vec<(String, Value)>> {
    let mut objects = suite.objects(source, case).map_err(anyhow::Error::msg)?;
    objects.retain(|(_, object)| object["kind"] != "CustomResourceDefinition");
    Ok(objects)
}

/// What of an object's metadata an API server keeps as it is given; the rest is its own to say.
const KEPT: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];

fn metadata(object: &Value, wanted: impl Fn(&str) -> bool) -> Map<String, Value> {
    let all = object["metadata"].as_object().cloned().unwrap_or_default();
    all.into_iter().filter(|(field, value)| wanted(field) && !value.is_null()).collect()
}

/// What of an object has to come back.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"] = Value::Object(metadata(&object, |field| KEPT.contains(&field)));
    object
}

/// Adds to `changed` where `found` is not all that was `given`. A null is a field that is not there.
fn compare(at: &str, given: &Value, found: &Value, changed: &mut Vec<String>) {
    match (given, found) {
        (Value::Null, _) => {}
        (Value::Object(given), Value::Object(found)) => {
            for (field, value) in given {
                compare(&format!("{at}.{field}"), value, found.get(field).unwrap_or(&Value::Null), changed);
            }
        }
        (Value::Array(given), Value::Array(found)) if given.len() == found.len() => {
            for (index, (given, found)) in given.iter().zip(found).enumerate() {
                compare(&format!("{at}[{index}]"), given, found, changed);
            }
        }
        (Value::Object(fields), Value::Null) if fields.is_empty() => {}
        _ if given == found => {}
        _ => changed.push(format!("{at} is {found} in place of {given}")),
    }
}

fn suites() -> Result<Vec<Suite>> {
    Ok(Suite::read(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../exporter/tests/cases")])?)
}

/// A preset, with or without a look at the objects that its packages consist of.
fn preset(name: &str, resources: Option<bool>) -> Result<Arc<Source>> {
    let mut source = Preset::find(name).context("no such preset")?.source()?;
    if let Some(resources) = resources {
        ensure!(source.watch_resources(resources), "{name} does not say what its packages consist of");
    }
    Ok(Arc::new(source))
}

async fn clusters(rig: &Rig, etcd: &Etcd) -> Result<Vec<Cluster>> {
    let sets = crds::upstream()?;
    let names: Vec<String> = (0..sets.len()).map(|set| format!("set-{set}")).collect();
    try_join_all(names.iter().zip(&sets).map(|(name, crds)| Cluster::start(rig, etcd, name, crds))).await
}

/// What is wrong with a case; empty when nothing is. One of the clusters has to take its objects, and whichever does,
/// the preset must show of what came back what the test says.
async fn problems(
    clusters: &[Cluster],
    source: &Arc<Source>,
    suite: &Suite,
    case: &Case,
    id: &str,
) -> Result<String> {
    let mut problems = String::new();
    let mut fates = BTreeSet::new();
    let mut taken = false;
    for (index, cluster) in clusters.iter().enumerate() {
        // Most CRDs are the same everywhere.
        let crds = cluster.crds_of(source);
        if clusters[..index].iter().any(|before| before.crds_of(source) == crds) {
            continue;
        }
        match cluster.read(source, suite, case, id).await.with_context(|| case.name.clone())? {
            Ok(differences) => {
                taken = true;
                for difference in differences {
                    let _ = write!(problems, "\n  {}: {difference}", cluster.api.name());
                }
            }
            Err(Fate::NotTaken(why)) => drop(fates.insert(why)),
            Err(Fate::NotServed(kind)) => drop(fates.insert(format!("no CRD in tests/crds is of {kind}"))),
            Err(Fate::Taken(_)) => {}
        }
    }
    if !taken {
        for fate in fates {
            let _ = write!(problems, "\n  {fate}");
        }
    }
    Ok(problems)
}

#[tokio::test]
async fn what_the_tests_speak_of_can_exist_and_comes_back_as_it_was() {
    run("preset-tests", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let clusters = clusters(rig, &etcd).await?;
        let suites = suites()?;
        let mut presets = BTreeMap::new();
        let mut cases = Vec::new();
        for suite in &suites {
            for name in &suite.sources {
                for case in suite.cases.iter().filter(|case| !case.rubbish) {
                    let source = match presets.entry((name, case.resource_health)) {
                        Entry::Occupied(compiled) => Arc::clone(compiled.get()),
                        Entry::Vacant(new) => Arc::clone(new.insert(preset(name, case.resource_health)?)),
                    };
                    cases.push((source, suite, case));
                }
            }
        }
        ensure!(cases.len() >= PRESETS.len(), "{} cases", cases.len());
        let checks = cases.into_iter().enumerate().map(|(number, (source, suite, case))| {
            let clusters = &clusters;
            async move {
                let problems = problems(clusters, &source, suite, case, &format!("case-{number}")).await?;
                let name = format!("{}: {}", source.name, case.name);
                anyhow::Ok(if problems.is_empty() { None } else { Some(format!("{name}{problems}")) })
            }
        });
        let wrong: Vec<Option<String>> =
            futures::stream::iter(checks).buffered(AT_ONCE).try_collect().await?;
        let wrong: Vec<String> = wrong.into_iter().flatten().collect();
        ensure!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
        Ok(())
    })
    .await;
}

/// The status as its controller would have written it about the object as it now is: where it speaks of the table's
/// generation, it is to speak of the real one.
fn of_generation(status: &mut Value, given: i64, real: i64) {
    match status {
        Value::Array(items) => items.iter_mut().for_each(|item| of_generation(item, given, real)),
        Value::Object(fields) => {
            for (field, value) in fields {
                match value.as_i64() {
                    Some(observed) if field == "observedGeneration" && observed == given => {
                        *value = json!(real)
                    }
                    _ => of_generation(value, given, real),
                }
            }
        }
        _ => {}
    }
}

/// What was made in a cluster.
#[derive(Default)]
struct Made {
    objects: Vec<(Api<DynamicObject>, String)>,
    /// As the API server gives them.
    stored: Vec<Value>,
    /// As they were written, with what only the API server can say: without what it fills in.
    written: Vec<Value>,
}

/// Makes the objects that a test's cases change as they are; `None` when the cluster cannot have them.
async fn put_base(cluster: &Cluster, suite: &Suite, sources: &[Arc<Source>]) -> Result<Option<Made>> {
    let mut made = Made::default();
    let mut seen = BTreeSet::new();
    for source in sources {
        // The package comes last: its controller would have written it when all else was there.
        for (what, mut object) in objects(suite, source, &Case::default())?.into_iter().rev() {
            let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
            let name = text("name").context("a name")?;
            let namespace = text("namespace").unwrap_or("default".to_owned());
            let Some(kind) = cluster.kind(&object)? else { return Ok(None) };
            // Several presets of a test may share what is related to them.
            if !seen.insert((kind.resource.kind.clone(), namespace.clone(), name.clone())) {
                continue;
            }
            cluster.api.ensure_namespace(&namespace).await?;
            object["metadata"]["finalizers"] = Value::Null;
            let given = object["metadata"]["generation"].as_i64();
            let fate = cluster.put(&object, &namespace, &name, |stored, mut status| {
                if let Some((given, real)) = given.zip(stored.metadata.generation) {
                    of_generation(&mut status, given, real);
                }
                status
            });
            match fate.await.with_context(|| what.clone())? {
                Fate::Taken(stored) => {
                    made.objects.push((cluster.api_of(&kind, &namespace), name));
                    for field in ["metadata", "status"] {
                        object[field] = stored[field].clone();
                    }
                    made.written.push(object);
                    made.stored.push(stored);
                }
                Fate::NotServed(_) | Fate::NotTaken(_) => {
                    remove(made.objects).await?;
                    return Ok(None);
                }
            }
        }
    }
    Ok(Some(made))
}

async fn remove(made: Vec<(Api<DynamicObject>, String)>) -> Result<()> {
    try_join_all(
        made.iter().map(|(api, name)| async move { api.delete(name, &DeleteParams::default()).await }),
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn the_exporter_shows_every_package_and_check_says_the_same() {
    run("preset-exporter", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let clusters = clusters(rig, &etcd).await?;
        for suite in suites()? {
            let what = suite.sources.join(",");
            let sources = suite.sources.iter().map(|name| preset(name, None)).collect::<Result<Vec<_>>>()?;
            let mut found = None;
            for cluster in &clusters {
                if let Some(made) = put_base(cluster, &suite, &sources).await.context(what.clone())? {
                    found = Some((cluster, made));
                    break;
                }
            }
            let (cluster, made) = found.with_context(|| format!("{what}: no API server takes the base"))?;
            let args = ["--presets", &what];
            let name = format!("exporter-{}", suite.name);
            let exporter = Exporter::start(rig, &name, cluster.api.kubeconfig(), &args).await?;
            let crds: Vec<Value> =
                sources.iter().flat_map(|source| cluster.crds_of(source)).cloned().collect();
            for (how, objects) in [("stored", &made.stored), ("written", &made.written)] {
                let objects = [crds.as_slice(), objects].concat();
                for source in &sources {
                    let wrong = suite.differences(source, &Case::default(), objects.clone());
                    let wrong = wrong.map_err(anyhow::Error::msg)?;
                    ensure!(wrong.is_empty(), "{} as {how}: {}", source.name, wrong.join("\n"));
                }
                let (checked, told) =
                    checked::check(rig, &format!("{}-{how}", suite.name), &args, &objects).await?;
                // What packages consist of is not looked at everywhere.
                ensure!(
                    told.lines().all(|line| line.ends_with("is read by no source")),
                    "{what} as {how}: {told}"
                );
                eventually(SOON, &format!("the exporter and check agree on {what} as {how}"), async || {
                    checked::agree(&exporter.says().await?, &checked)
                })
                .await?;
            }
            drop(exporter);
            remove(made.objects).await?;
        }
        Ok(())
    })
    .await;
}

/// The file of this name in the page on writing a source.
fn documented(name: &str) -> Result<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/write-your-own-source.md");
    let page = std::fs::read_to_string(page)?;
    let (_, rest) = page.split_once(&format!("```yaml {name}\n")).with_context(|| format!("no {name}"))?;
    Ok(rest.split_once("```").context("a block without an end")?.0.to_owned())
}

#[tokio::test]
async fn the_exporter_and_check_say_the_same_of_the_documented_example() {
    run("documented-example", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let crds = crds::documents(&documented("crd.yaml")?)?;
        let cluster = Cluster::start(rig, &etcd, "one", &crds).await?;
        let file = rig.dir().join("source.yaml");
        std::fs::write(&file, documented("better.yaml")?)?;
        let file = file.display().to_string();
        let args = ["--presets", "", "--sources", &file];
        let mut objects = crds;
        for object in crds::documents(&documented("sites.yaml")?)? {
            let text = |field: &str| object["metadata"][field].as_str().context("no name").map(str::to_owned);
            let (namespace, name) = (text("namespace")?, text("name")?);
            cluster.api.ensure_namespace(&namespace).await?;
            let given = object["metadata"]["generation"].as_i64();
            let fate = cluster.put(&object, &namespace, &name, |stored, mut status| {
                if let Some((given, real)) = given.zip(stored.metadata.generation) {
                    of_generation(&mut status, given, real);
                }
                status
            });
            match fate.await? {
                Fate::Taken(stored) => objects.push(stored),
                Fate::NotServed(why) | Fate::NotTaken(why) => bail!("{name}: {why}"),
            }
        }
        let exporter = Exporter::start(rig, "exporter", cluster.api.kubeconfig(), &args).await?;
        let (checked, told) = checked::check(rig, "sites", &args, &objects).await?;
        ensure!(told.is_empty() && checked.packages() == ["blog", "front"], "{told}");
        eventually(SOON, "the exporter and check agree", async || {
            checked::agree(&exporter.says().await?, &checked)
        })
        .await
    })
    .await;
}
