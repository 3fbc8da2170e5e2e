//! The history of saved objects: what the exporter would have shown, version by version.
//!
//! An object that comes once is there from the start. One that comes several times is there in its
//! first version, and its later versions come in the order in which they were given. Pure: the clock
//! is given.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
};

use serde_json::Value;

use crate::{
    saved::{BrokenObject, SavedObject},
    source::{
        Identity, JoinKey, KindRef, PackageKinds, RelatedObject, RelatedObjects, ResourceSet, ResourceState,
        ResourceSummary, Source, Verdict, kstatus,
    },
    state::{
        hold::{self, Settled},
        soak::{self, Known, Shown},
    },
};

/// What time it is when a version comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Always this, in unix milliseconds.
    Fixed(i64),
    /// The newest time that the versions so far have in them, which is about when the last one was
    /// written; the given time, in unix milliseconds, while there is none.
    FromObjects(i64),
}

/// A package, as its series name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackageId {
    /// Index of its source.
    pub source: usize,
    /// Its namespace; `None` when it is cluster-scoped.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// A change of what is shown of a package, its first sight included.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The package.
    pub package: PackageId,
    /// What is shown from then on.
    pub shown: Shown,
    /// Which version of the package's object it was, counted from 1.
    pub version: usize,
}

/// All that came of a replay.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// What is shown in the end.
    pub packages: BTreeMap<PackageId, Shown>,
    /// Every change, in order.
    pub transitions: Vec<Transition>,
    /// Versions on which an expression failed.
    pub failures: Vec<BrokenObject>,
    /// Indices of the objects that no source reads.
    pub unread: Vec<usize>,
    /// Indices of the sources that read at least one of the objects as a package.
    pub sources: BTreeSet<usize>,
}

/// Replays objects through sources.
pub fn replay(sources: &[Source], objects: &[SavedObject], clock: Clock) -> History {
    let mut replay = Replay {
        sources,
        related: HashMap::new(),
        packages: BTreeMap::new(),
        looked_at: RefCell::default(),
        history: History::default(),
    };
    let categories = Categories::of(objects);
    let is_package = |object: &Value| sources.iter().any(|s| categories.has(&s.kinds, object));
    let resources = sources.iter().any(Source::watches_resources);
    let read = |object: &Value| {
        sources.iter().flat_map(|s| &s.related).flat_map(|r| &r.kinds).any(|k| k.matches(object))
    };
    let is_related = |object: &Value| read(object) || (resources && !is_package(object));
    let mut unread = Vec::new();
    let mut versions: HashMap<(GroupKind, Name), usize> = HashMap::new();
    let mut keys = Vec::new();
    for (index, saved) in objects.iter().enumerate() {
        let (kind, name) = (group_kind(&saved.value), Name::of(&saved.value));
        let version = versions.entry((kind.clone(), name.clone())).or_default();
        *version += 1;
        let related = is_related(&saved.value);
        if related && *version == 1 {
            replay.related.entry(kind.clone()).or_default().insert(name.clone(), &saved.value);
        }
        if !read(&saved.value) && !is_package(&saved.value) && !categories.is_definition(&saved.value) {
            unread.push((index, (kind.clone(), name.clone())));
        }
        keys.push((kind, name, *version, related));
    }
    let mut now = match clock {
        Clock::Fixed(now) => now,
        Clock::FromObjects(_) => i64::MIN,
    };
    for (saved, (kind, name, version, related)) in objects.iter().zip(keys) {
        if let Clock::FromObjects(start) = clock {
            let newest = newest_time(&saved.value).unwrap_or(if now == i64::MIN { start } else { now });
            now = now.max(newest);
        }
        replay.expire(now);
        if related && version > 1 {
            replay.related.entry(kind).or_default().insert(name.clone(), &saved.value);
            replay.look_again(now);
        }
        for (source, s) in sources.iter().enumerate() {
            if !categories.has(&s.kinds, &saved.value) {
                continue;
            }
            replay.history.sources.insert(source);
            let Identity { namespace, name: package } =
                s.identity(&saved.value).unwrap_or_else(|_| Identity::of(&saved.value));
            let id = PackageId { source, namespace, name: package };
            let evaluation_error = replay.look(&id, &saved.value, version, now);
            if let Some(message) = evaluation_error {
                let message = format!(
                    "{} {}: source {}: {message}",
                    group_kind(&saved.value).1,
                    name.display(),
                    s.name
                );
                replay.history.failures.push(BrokenObject { origin: saved.origin.clone(), message });
            }
        }
    }
    let looked_at = replay.looked_at.take();
    replay.history.unread =
        unread.into_iter().filter(|(_, which)| !looked_at.contains(which)).map(|(index, _)| index).collect();
    replay.history.packages = replay.packages.into_iter().map(|(id, package)| (id, package.shown)).collect();
    replay.history
}

type GroupKind = (String, String);

/// Which kinds are in which categories, as saved CustomResourceDefinitions say.
struct Categories<'a>(HashMap<GroupKind, &'a Value>);

impl<'a> Categories<'a> {
    fn of(objects: &'a [SavedObject]) -> Self {
        let named = |saved: &'a SavedObject| {
            let spec = saved.value.get("spec").filter(|_| Self::is_crd(&saved.value))?;
            let names = spec.get("names")?;
            let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
            Some(((text(spec.get("group")), text(names.get("kind"))), names))
        };
        Self(objects.iter().filter_map(named).collect())
    }

    fn is_crd(object: &Value) -> bool {
        group_kind(object) == ("apiextensions.k8s.io".to_owned(), "CustomResourceDefinition".to_owned())
    }

    /// Whether an object is one of those that say it.
    fn is_definition(&self, object: &Value) -> bool {
        !self.0.is_empty() && Self::is_crd(object)
    }

    /// Whether an object is of one of these kinds.
    fn has(&self, kinds: &PackageKinds, object: &Value) -> bool {
        match kinds {
            PackageKinds::Listed(kinds) => kinds.iter().any(|kind| kind.matches(object)),
            PackageKinds::Categories(wanted) => {
                let names = self.0.get(&group_kind(object));
                let categories = names.and_then(|names| names.get("categories")?.as_array());
                categories
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .any(|c| wanted.iter().any(|w| w == c))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Name {
    namespace: Option<String>,
    name: String,
}

impl Name {
    fn of(object: &Value) -> Self {
        let text = |field: &str| object.get("metadata")?.get(field)?.as_str().map(str::to_owned);
        Self {
            namespace: text("namespace").filter(|n| !n.is_empty()),
            name: text("name").unwrap_or_default(),
        }
    }

    fn display(&self) -> String {
        self.namespace
            .as_ref()
            .map_or_else(|| self.name.clone(), |namespace| format!("{namespace}/{}", self.name))
    }
}

fn group_kind(object: &Value) -> GroupKind {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    (group.to_owned(), text("kind").to_owned())
}

struct Replay<'a> {
    sources: &'a [Source],
    related: HashMap<GroupKind, BTreeMap<Name, &'a Value>>,
    packages: BTreeMap<PackageId, Package<'a>>,
    /// Objects that some package was found to consist of.
    looked_at: RefCell<HashSet<(GroupKind, Name)>>,
    history: History,
}

struct Package<'a> {
    object: &'a Value,
    version: usize,
    settled: Settled,
    shown: Shown,
}

impl<'a> Replay<'a> {
    /// Looks at a version of a package; returns what failed.
    fn look(&mut self, id: &PackageId, object: &'a Value, version: usize, now: i64) -> Option<String> {
        let source = self.sources.get(id.source)?;
        if !source.takes(object) {
            self.packages.remove(id);
            return None;
        }
        let related = self.related_objects(source, object);
        let evaluation = source.evaluate_with(object, &related, &mut |set| self.resources(&set, now));
        let error = evaluation.error.as_ref().map(ToString::to_string);
        let previous = self.packages.get(id);
        let settled = hold::settle(previous.map(|p| &p.settled), evaluation, now);
        let verdict = settled.shown.clone();
        self.show(id, object, version, settled, verdict, now);
        error
    }

    /// Looks again at every package, as something that may be related to it has changed.
    fn look_again(&mut self, now: i64) {
        let packages: Vec<_> =
            self.packages.iter().map(|(id, p)| (id.clone(), p.object, p.version)).collect();
        for (id, object, version) in packages {
            self.look(&id, object, version, now);
        }
    }

    /// Ends the holds that ran out before `now`, each at its own time.
    fn expire(&mut self, now: i64) {
        let mut due: Vec<_> = self
            .packages
            .iter()
            .filter_map(|(id, p)| Some((p.settled.until.filter(|until| *until <= now)?, id.clone())))
            .collect();
        due.sort();
        for (until, id) in due {
            let Some(package) = self.packages.get(&id) else { continue };
            if let Some(settled) = hold::expire(&package.settled, until) {
                let (object, version, verdict) = (package.object, package.version, settled.shown.clone());
                self.show(&id, object, version, settled, verdict, until);
            }
        }
    }

    fn show(
        &mut self,
        id: &PackageId,
        object: &'a Value,
        version: usize,
        settled: Settled,
        verdict: Verdict,
        now: i64,
    ) {
        let previous = self.packages.get(id).map(|p| &p.shown);
        let own = soak::own(object, verdict.since, Some(0));
        let own = own.filter(|_| self.sources.get(id.source).is_some_and(Source::rests_on_one_object));
        let (shown, changed) = soak::advance(previous, verdict, Known::Watched, own, now);
        if changed {
            self.history.transitions.push(Transition { package: id.clone(), shown: shown.clone(), version });
        }
        self.packages.insert(id.clone(), Package { object, version, settled, shown });
    }

    fn related_objects(&self, source: &Source, object: &Value) -> RelatedObjects<'a> {
        let empty = |by_reference| {
            if by_reference { RelatedObject::One(None) } else { RelatedObject::Many(Vec::new()) }
        };
        let mut found: Vec<_> = source.related.iter().map(|r| empty(r.by_reference())).collect();
        for key in source.join_keys(object) {
            let (JoinKey::Reference { related, kind, .. } | JoinKey::Labels { related, kind, .. }) = &key;
            let of_kind = source.related.get(*related).and_then(|r| self.of_kind(r.kinds.get(*kind)?));
            match (&key, found.get_mut(*related)) {
                (JoinKey::Reference { namespace, name, .. }, Some(found)) => {
                    let name = Name { namespace: namespace.clone(), name: name.clone() };
                    *found = RelatedObject::One(of_kind.and_then(|all| all.get(&name)).copied());
                }
                (JoinKey::Labels { .. }, Some(RelatedObject::Many(objects))) => {
                    let of_kind = of_kind.into_iter().flat_map(|all| all.values());
                    objects.extend(of_kind.filter(|o| key.matches(o)));
                }
                _ => {}
            }
        }
        RelatedObjects(found)
    }

    /// What the objects of a package say.
    fn resources(&self, set: &ResourceSet, now: i64) -> ResourceSummary {
        let mut summary = ResourceSummary::default();
        let state = |object: &Value| {
            let status = kstatus::of_resource(object, now.div_euclid(1000));
            ResourceState::Found(status.health, status.reason)
        };
        let all = |group: &str, kind: &str| self.related.get(&(group.to_owned(), kind.to_owned()));
        for resource in &set.objects {
            let namespace = resource.namespace.as_deref().map(str::to_owned);
            let name = Name { namespace, name: resource.name.to_string() };
            let kind = (resource.group.to_string(), resource.kind.to_string());
            self.looked_at.borrow_mut().insert((kind, name.clone()));
            let found = all(&resource.group, &resource.kind).and_then(|objects| objects.get(&name));
            let state = found.map_or(ResourceState::NotFound, |object| state(object));
            summary.add(&state, || format!("{} {}", resource.kind, name.display()));
        }
        for label in &set.labelled {
            for (name, object) in all(&label.group, &label.kind).into_iter().flatten() {
                let labels = object.get("metadata").and_then(|m| m.get("labels"));
                let value = labels.and_then(|l| l.get(&*label.label)).and_then(Value::as_str);
                if value == Some(&*label.value) {
                    let kind = (label.group.to_string(), label.kind.to_string());
                    self.looked_at.borrow_mut().insert((kind, name.clone()));
                    summary.add(&state(object), || format!("{} {}", label.kind, name.display()));
                }
            }
        }
        summary
    }

    fn of_kind(&self, kind: &KindRef) -> Option<&BTreeMap<Name, &'a Value>> {
        self.related.get(&(kind.group.clone(), kind.kind.clone()))
    }
}

/// The newest time in an object's metadata and status, in unix milliseconds.
pub(crate) fn newest_time(object: &Value) -> Option<i64> {
    fn newest(value: &Value) -> Option<i64> {
        match value {
            Value::String(text) if text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T') => {
                text.parse::<jiff::Timestamp>().ok().map(|time| time.as_millisecond())
            }
            Value::Array(items) => items.iter().filter_map(newest).max(),
            Value::Object(fields) => fields.values().filter_map(newest).max(),
            _ => None,
        }
    }
    ["metadata", "status"].iter().filter_map(|field| newest(object.get(field)?)).max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use statusbridge_contract::ApplyState;

    use super::*;

    const SOURCE: &str = r#"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: widgets
spec:
  kinds:
    - {group: example.com, kind: Widget, versions: [v1]}
  related:
    - name: wanted
      kinds: [{group: "", kind: ConfigMap, versions: [v1]}]
      reference:
        nameExpression: object.metadata.name
  revisions:
    desiredExpression: wanted.?data.?revision
    appliedExpression: object.?status.?revision
  apply:
    - {whenExpression: "wanted.?data.?revision.orValue('') != object.?status.?revision.orValue('')", state: Pending}
    - {state: Applied}
  health: [{whenExpression: object.?status.?busy.orValue(false), state: InProgress}, {state: Current}]
  hold: {whenExpression: object.?status.?busy.orValue(false), keyExpression: object.?status.?revision}
  samples: [{object: {apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}}]
"#;

    fn widget(revision: &str, second: u32, busy: bool) -> Value {
        let at = format!("2026-01-01T00:00:{second:02}Z");
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "n"},
            "status": {"revision": revision, "busy": busy, "at": at}})
    }

    fn wanted(revision: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "data": {"revision": revision}})
    }

    fn run(values: &[Value], clock: Clock) -> History {
        let sources = Source::parse("widgets.yaml", SOURCE).expect("it compiles");
        let objects: Vec<_> =
            values.iter().map(|value| SavedObject { origin: "f".into(), value: value.clone() }).collect();
        replay(&sources, &objects, clock)
    }

    fn states(history: &History) -> Vec<(usize, ApplyState, bool)> {
        history
            .transitions
            .iter()
            .map(|t| (t.version, t.shown.verdict.apply, t.shown.verdict.good()))
            .collect()
    }

    #[test]
    fn what_comes_once_is_there_from_the_start() {
        let history = run(&[widget("r1", 0, false), wanted("r1")], Clock::Fixed(0));
        assert_eq!(states(&history), [(1, ApplyState::Applied, true)]);
        let shown = history.packages.values().next().expect("a package");
        assert_eq!(shown.verdict.desired, shown.verdict.applied);
    }

    #[test]
    fn a_later_version_of_a_related_object_is_seen_when_it_comes() {
        let all = [wanted("r1"), widget("r1", 0, false), wanted("r2"), widget("r2", 1, false)];
        let states = states(&run(&all, Clock::FromObjects(0)));
        assert_eq!(
            states,
            [(1, ApplyState::Applied, true), (1, ApplyState::Pending, false), (2, ApplyState::Applied, true)]
        );
    }

    #[test]
    fn holds_run_out_by_the_times_in_the_objects() {
        let short = [wanted("r1"), widget("r1", 0, false), widget("r1", 5, true), widget("r1", 20, false)];
        assert_eq!(states(&run(&short, Clock::FromObjects(0))), [(1, ApplyState::Applied, true)]);
        let long = [wanted("r1"), widget("r1", 0, false), widget("r1", 5, true), widget("r1", 40, false)];
        let history = run(&long, Clock::FromObjects(0));
        assert_eq!(
            states(&history),
            [(1, ApplyState::Applied, true), (2, ApplyState::Applied, false), (3, ApplyState::Applied, true)]
        );
        let times: Vec<i64> = history.transitions.iter().map(|t| t.shown.since / 1000 % 60).collect();
        assert_eq!(times, [0, 35, 40]);
        assert_eq!(
            run(&long, Clock::Fixed(0)).transitions.len(),
            1,
            "a clock that stands still ends no hold"
        );
    }

    #[test]
    fn what_nobody_reads_and_what_fails_is_told() {
        let mut broken = widget("r1", 0, false);
        broken["status"]["revision"] = json!(5);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        let history = run(&[pod, broken, wanted("r1")], Clock::Fixed(0));
        assert_eq!(history.unread, [0]);
        let failures: Vec<String> = history.failures.iter().map(ToString::to_string).collect();
        assert_eq!(
            failures,
            [
                "f: Widget n/a: source widgets: spec.revisions.appliedExpression: gives int, where a string or a list of strings is needed in `object.?status.?revision`"
            ]
        );
        assert_eq!(history.packages.len(), 1, "it is shown as Unknown all the same");
    }
}
