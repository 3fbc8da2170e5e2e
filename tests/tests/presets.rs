//! The presets against API servers that have the systems' own CRDs: the objects in their tables are ones that can
//! exist, what comes back from the API server is read as the table says, and so it is by the exporter itself.

#[path = "../../exporter/tests/support/table.rs"]
mod table;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiResource, Discovery, Scope};
use serde_json::{Map, Value, json};
use statusbridge_contract::Fingerprint;
use statusbridge_exporter::source::{
    KindRef, PRESETS, PackageKinds, Preset, ResourceRef, ResourceSet, ResourceSummary, Source,
};
use statusbridge_tests::exposition::Exposition;
use statusbridge_tests::*;
use table::{Case, Table, describe, evaluate, related};

const SOON: Duration = Duration::from_secs(60);
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

    /// The kind of an object: the one that it names, or else the only one that the preset expects there, at the
    /// first version that is served.
    fn kind(&self, expected: &[KindRef], object: &Value) -> Result<Option<Kind>> {
        let text = |field: &str| object[field].as_str();
        let candidates: Vec<GroupVersionKind> = match (text("apiVersion"), text("kind"), expected) {
            (Some(version), Some(kind), _) => {
                let (group, version) = version.split_once('/').unwrap_or(("", version));
                vec![GroupVersionKind::gvk(group, version, kind)]
            }
            (None, None, [only]) => {
                only.versions.iter().map(|v| GroupVersionKind::gvk(&only.group, v, &only.kind)).collect()
            }
            _ => {
                bail!("it needs both apiVersion and kind, or neither where the preset expects one kind only")
            }
        };
        let served = candidates.iter().find_map(|kind| self.kinds.resolve_gvk(kind));
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
        expected: &[KindRef],
        object: &Value,
        namespace: &str,
        name: &str,
        status: impl FnOnce(&DynamicObject, Value) -> Value,
    ) -> Result<Fate> {
        let Some(kind) = self.kind(expected, object)? else {
            let named = |k: &KindRef| format!("{}.{} {}", k.kind, k.group, k.versions.join(" or "));
            return Ok(Fate::NotServed(match (&object["apiVersion"], &object["kind"], expected) {
                (Value::Null, _, [only]) => named(only),
                (version, kind, _) => format!("{kind} at {version}"),
            }));
        };
        let mut new = object.clone();
        new["apiVersion"] = json!(kind.resource.api_version);
        new["kind"] = json!(kind.resource.kind);
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

    /// What a preset says of a case's objects once an API server has had them; `Err` says why it could not have them.
    async fn read(
        &self,
        source: &Source,
        objects: &Value,
        id: &str,
    ) -> Result<std::result::Result<String, Fate>> {
        let mut found = json!({"related": {}, "leaves": objects["leaves"]});
        for (number, Part { of, kinds, object }) in parts(source, objects).into_iter().enumerate() {
            let name = format!("{id}-{number}");
            let what = of.unwrap_or("object");
            let stored = self.put(kinds, object, NAMESPACE, &name, |_, status| status).await;
            let mut stored = match stored.with_context(|| what.to_owned())? {
                Fate::Taken(stored) => stored,
                Fate::NotTaken(why) => return Ok(Err(Fate::NotTaken(format!("{what}: {why}")))),
                not_served => return Ok(Err(not_served)),
            };
            let mut changed = Vec::new();
            compare(what, &comparable(object), &stored, &mut changed);
            if !changed.is_empty() {
                return Ok(Err(Fate::NotTaken(changed.join(", "))));
            }
            // Its name, generation and deletion are the case's.
            let mut own = metadata(object, |field| !KEPT.contains(&field));
            own.extend(metadata(&stored, |field| KEPT.contains(&field)));
            stored["metadata"] = Value::Object(own);
            match (of, of.map(|of| &objects["related"][of])) {
                (Some(of), Some(Value::Array(_))) => match &mut found["related"][of] {
                    Value::Array(list) => list.push(stored),
                    list => *list = json!([stored]),
                },
                (Some(of), _) => found["related"][of] = stored,
                (None, _) => found["object"] = stored,
            }
        }
        Ok(Ok(describe(&evaluate(source, &found))))
    }
}

/// One of the objects that a preset reads.
struct Part<'a> {
    /// The entry of `related` that finds it; `None` for the package itself.
    of: Option<&'a str>,
    kinds: &'a [KindRef],
    object: &'a Value,
}

/// The package and what is related to it.
fn parts<'a>(source: &'a Source, objects: &'a Value) -> Vec<Part<'a>> {
    let mut all = vec![Part { of: None, kinds: source.kinds.listed(), object: &objects["object"] }];
    for r in &source.related {
        let part = |object| Part { of: Some(&r.name), kinds: &r.kinds, object };
        match objects.pointer(&format!("/related/{}", r.name)) {
            None | Some(Value::Null) => {}
            Some(Value::Array(several)) => all.extend(several.iter().map(part)),
            Some(one) => all.push(part(one)),
        }
    }
    all
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

fn tables() -> Vec<Table> {
    Table::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../exporter/tests/cases"))
}

async fn clusters(rig: &Rig, etcd: &Etcd) -> Result<Vec<Cluster>> {
    let sets = crds::upstream()?;
    let names: Vec<String> = (0..sets.len()).map(|set| format!("set-{set}")).collect();
    try_join_all(names.iter().zip(&sets).map(|(name, crds)| Cluster::start(rig, etcd, name, crds))).await
}

/// What is wrong with a case; empty when nothing is. One of the clusters has to take its objects, and whichever does,
/// the preset must say of what came back what the table says.
async fn check(
    clusters: &[Cluster],
    source: &Source,
    table: &Table,
    case: &Case,
    id: &str,
) -> Result<String> {
    let mut looking = Preset::find(&source.name).context("no such preset")?.source()?;
    let source = if case.leaf_health {
        ensure!(looking.watch_resources(true), "{} has no leaves", source.name);
        &looking
    } else {
        source
    };
    let objects = table.objects(case);
    let expected = table.expected(case);
    let mut problems = String::new();
    let mut fates = BTreeSet::new();
    let mut taken = false;
    for (index, cluster) in clusters.iter().enumerate() {
        // Most CRDs are the same everywhere.
        let crds = cluster.crds_of(source);
        if clusters[..index].iter().any(|before| before.crds_of(source) == crds) {
            continue;
        }
        match cluster.read(source, &objects, id).await.with_context(|| case.name.clone())? {
            Ok(found) => {
                taken = true;
                if found != expected {
                    let at = cluster.api.name();
                    let _ = write!(problems, "\n  {at}: expected {expected:?}\n  {at}: found    {found:?}");
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
async fn what_the_tables_speak_of_can_exist_and_comes_back_as_it_was() {
    run("preset-tables", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let clusters = clusters(rig, &etcd).await?;
        let sources: Vec<Source> = PRESETS.iter().map(|p| p.source()).collect::<Result<_, _>>()?;
        let tables = tables();
        let of_table =
            |table: usize| tables[table].cases.iter().enumerate().map(move |(case, _)| (table, case));
        let mut cases = Vec::new();
        for source in &sources {
            let covers = |t: &usize| tables[*t].of.contains(&source.name);
            cases.extend((0..tables.len()).filter(covers).flat_map(of_table).map(|(t, c)| (source, t, c)));
        }
        cases.retain(|(_, table, case)| !tables[*table].cases[*case].rubbish);
        ensure!(cases.len() >= PRESETS.len(), "{} cases", cases.len());
        let checks = cases.into_iter().enumerate().map(|(number, (source, table, case))| {
            let (table, clusters) = (&tables[table], &clusters);
            let case = &table.cases[case];
            async move {
                let problems = check(clusters, source, table, case, &format!("case-{number}")).await?;
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

/// Makes the objects of a table's base as they are; `None` when the cluster cannot have them.
async fn put_base(
    cluster: &Cluster,
    sources: &[Source],
    base: &Value,
) -> Result<Option<Vec<(Api<DynamicObject>, String)>>> {
    let mut made = Vec::new();
    let mut seen = BTreeSet::new();
    for source in sources {
        // The package comes last: its controller would have written it when all else was there.
        for Part { of, kinds, object } in parts(source, base).into_iter().rev() {
            let text = |field: &str| object["metadata"][field].as_str();
            let name = text("name").context("a name")?;
            let namespace = text("namespace").unwrap_or("default");
            let Some(kind) = cluster.kind(kinds, object)? else { return Ok(None) };
            // Several presets of a table may share what is related to them.
            if !seen.insert((kind.resource.kind.clone(), namespace, name)) {
                continue;
            }
            cluster.api.ensure_namespace(namespace).await?;
            let mut object = object.clone();
            object["metadata"]["finalizers"] = Value::Null;
            let given = object["metadata"]["generation"].as_i64();
            let fate = cluster.put(kinds, &object, namespace, name, |stored, mut status| {
                if let Some((given, real)) = given.zip(stored.metadata.generation) {
                    of_generation(&mut status, given, real);
                }
                status
            });
            match fate.await.with_context(|| of.unwrap_or("object").to_owned())? {
                Fate::Taken(_) => made.push((cluster.api_of(&kind, namespace), name.to_owned())),
                Fate::NotServed(_) | Fate::NotTaken(_) => {
                    remove(made).await?;
                    return Ok(None);
                }
            }
        }
    }
    Ok(Some(made))
}

/// The objects that a package of a table's base consists of.
fn leaves(source: &Source, base: &Value) -> Vec<ResourceRef> {
    let mut found = Vec::new();
    let mut look = |set: ResourceSet| {
        found.extend(set.objects);
        ResourceSummary::default()
    };
    source.evaluate_with(&base["object"], &related(source, base), &mut look);
    found
}

/// Makes an object that a package consists of, as good as it can be, unless it is there.
async fn put_leaf(cluster: &Cluster, leaf: &ResourceRef) -> Result<()> {
    let (kind, namespace) = (&*leaf.kind, leaf.namespace.as_deref().unwrap_or("default"));
    let name = &*leaf.name;
    let mut object = match (&*leaf.group, kind) {
        ("", "ConfigMap") => json!({"apiVersion": "v1"}),
        ("apps", "Deployment") => json!({"apiVersion": "apps/v1", "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "example.com/app:1"}]},
            },
        }}),
        ("", "Service") => json!({"apiVersion": "v1", "spec": {"ports": [{"port": 80}]}}),
        (group, _) => bail!("this test does not know how to make a {kind}.{group}"),
    };
    object["kind"] = json!(kind);
    object["metadata"] = json!({"name": name, "namespace": namespace});
    let made = cluster.kind(&[], &object)?.context("not served")?;
    if cluster.api_of(&made, namespace).get_opt(name).await?.is_some() {
        return Ok(());
    }
    cluster.api.ensure_namespace(namespace).await?;
    cluster.api.apply_object(&object).await?;
    if kind == "Deployment" {
        Flux::set_deployment(&cluster.api, namespace, name, Rollout::Ready).await?;
    }
    Ok(())
}

async fn remove(made: Vec<(Api<DynamicObject>, String)>) -> Result<()> {
    try_join_all(
        made.iter().map(|(api, name)| async move { api.delete(name, &DeleteParams::default()).await }),
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn the_exporter_finds_every_package_and_what_is_related_to_it() {
    run("preset-exporter", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let clusters = clusters(rig, &etcd).await?;
        for table in tables() {
            let what = table.of.join(",");
            let source = |name: &String| Ok(Preset::find(name).context("no such preset")?.source()?);
            let sources = table.of.iter().map(source).collect::<Result<Vec<Source>>>()?;
            let mut found = None;
            for cluster in &clusters {
                if let Some(made) = put_base(cluster, &sources, &table.base).await.context(what.clone())? {
                    found = Some((cluster, made));
                    break;
                }
            }
            let (cluster, made) = found.with_context(|| format!("{what}: no API server takes the base"))?;
            for leaf in sources.iter().flat_map(|source| leaves(source, &table.base)) {
                put_leaf(cluster, &leaf).await.with_context(|| format!("{what}: {leaf:?}"))?;
            }
            let name = format!("exporter-{}", table.of[0]);
            let exporter =
                Exporter::start(rig, &name, cluster.api.kubeconfig(), &["--presets", &what]).await?;
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            let revision = |field: &Option<String>| Fingerprint::of(&text(field)).to_string();
            let expect = &table.expect;
            let states = [text(&expect.apply), text(&expect.health)];
            let revisions = [&expect.desired, &expect.applied, &expect.healthy].map(revision);
            for (name, source) in table.of.iter().zip(&sources) {
                let package = source.identity(&table.base["object"])?.name;
                let source = name;
                eventually(SOON, &format!("{source} shows {package} as the table says"), async || {
                    let says = Exposition::parse(&exporter.metrics().await?)?;
                    let shown = says.package(source, &package).context("nothing is said of it")?;
                    let found = [shown.apply.to_string(), shown.health.to_string()];
                    ensure!(
                        found == states,
                        "it shows {found:?} in place of {states:?}, reason {}",
                        shown.reason
                    );
                    let found = [shown.desired, shown.applied, shown.healthy].map(|r| r.to_string());
                    ensure!(found == revisions, "it shows {found:?} in place of {revisions:?}");
                    Ok(())
                })
                .await?;
            }
            drop(exporter);
            remove(made).await?;
        }
        Ok(())
    })
    .await;
}
