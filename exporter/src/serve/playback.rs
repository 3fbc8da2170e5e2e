//! A recording in place of an API server: the engine hears its objects as if they changed now.
//!
//! The times in the objects are those of the recording; they are moved so that it begins now, and pressed together by the
//! speed. Objects come as in [`replay`](crate::replay): the first version of each is there from the start, later ones come
//! at the newest time that they or earlier ones say. After the last one everything stays as it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::{
    clock::{Clock, Moment},
    replay::newest_time,
    saved::Saved,
    source::KindRef,
    state::Command,
    watch::{Change, Contact, Event, KindId, PackageKey, Reading, SourceId, Update},
};

/// Time from one sign of life to the next.
const BEAT: i64 = 1_000;
/// The namespace whose UID stands for the cluster.
const CLUSTER_NAMESPACE: &str = "kube-system";

/// What to play.
#[derive(Debug, Clone, clap::Args)]
pub struct ReplayArgs {
    /// Serve a recording instead of watching a cluster: objects as `statusbridge source replay` reads them, from a file or
    /// the files of a directory. Its times are moved to now
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = ["kubeconfig", "context"])]
    pub replay: Option<PathBuf>,
    /// How many times as fast as it was recorded
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = speed, requires = "replay")]
    pub speed: f64,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.001..=1000.0).contains(speed));
    speed.ok_or_else(|| "expected a number from 0.001 to 1000".to_owned())
}

/// One version of an object.
#[derive(Debug)]
struct Version {
    /// How long after the beginning it comes, in milliseconds.
    at: i64,
    key: PackageKey,
    object: Value,
}

/// All versions, in the order in which they come.
#[derive(Debug)]
pub(super) struct Recording {
    versions: Vec<Version>,
    /// Stands for the cluster: the UID of its namespace `kube-system`, or the recording's path where that was not recorded.
    pub(super) cluster: String,
    /// When it began, by the `boot` clock.
    began: i64,
}

impl Recording {
    /// Reads a recording that begins now.
    ///
    /// # Errors
    /// When there is nothing in it, or a part of it cannot be read.
    pub(super) fn read(path: &PathBuf, speed: f64, now: Moment) -> Result<Self> {
        let saved = Saved::read(std::slice::from_ref(path));
        if let Some(broken) = saved.broken.first() {
            bail!("{broken}");
        }
        let objects: Vec<Value> = saved.objects.into_iter().map(|saved| saved.value).collect();
        if objects.is_empty() {
            bail!("{}: found no object, expected a recording", path.display());
        }
        let recording = Self::new(objects, speed, now);
        let namespace = recording.versions.iter().map(|version| &version.object).find(|object| {
            object.get("kind").is_some_and(|kind| kind == "Namespace")
                && key(object).name.as_ref() == CLUSTER_NAMESPACE
        });
        let uid =
            namespace.and_then(|object| object.get("metadata")?.get("uid")?.as_str().map(str::to_owned));
        Ok(Self { cluster: uid.unwrap_or_else(|| path.display().to_string()), ..recording })
    }

    fn new(objects: Vec<Value>, speed: f64, now: Moment) -> Self {
        let (mut clock, mut start) = (i64::MIN, None);
        let mut seen = BTreeSet::new();
        let mut timed = Vec::new();
        for object in objects {
            let is_first = seen.insert((kind(&object), key(&object)));
            // No time has been seen while the clock stands there.
            if !is_first && clock > i64::MIN {
                start.get_or_insert(clock);
            }
            clock = clock.max(newest_time(&object).unwrap_or(clock));
            timed.push((is_first, clock, object));
        }
        let start = start.unwrap_or(clock);
        let begin = now.run.saturating_add(now.offset);
        let since = |time: i64| (time.saturating_sub(start) as f64 / speed) as i64;
        let mut versions = Vec::new();
        for (number, (is_first, time, mut object)) in timed.into_iter().enumerate() {
            move_times(&mut object, &|time| begin.saturating_add(since(time)));
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("resourceVersion".to_owned(), json!((number + 1).to_string()));
            }
            let at = if is_first || time == i64::MIN { 0 } else { since(time).max(0) };
            versions.push(Version { at, key: key(&object), object });
        }
        // First versions are there from the start, wherever they stand.
        versions.sort_by_key(|version| version.at);
        Self { versions, cluster: String::new(), began: now.boot }
    }

    fn of<'r>(&'r self, kind: &'r KindRef) -> impl Iterator<Item = &'r Version> {
        self.versions.iter().filter(|version| kind.matches(&version.object))
    }

    /// Objects of a kind as they are at a time.
    fn at<'r>(&'r self, kind: &'r KindRef, at: i64) -> BTreeMap<&'r PackageKey, &'r Value> {
        self.of(kind).take_while(|version| version.at <= at).map(|it| (&it.key, &it.object)).collect()
    }

    /// The kinds in a category, as recorded CustomResourceDefinitions say.
    fn kinds_of(&self, categories: &[String]) -> Vec<KindRef> {
        let kind = |version: &Version| {
            let spec = version.object.get("spec")?;
            let names = spec.get("names")?;
            let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
            let all = names.get("categories")?.as_array()?;
            all.iter().filter_map(Value::as_str).find(|it| categories.iter().any(|wanted| wanted == it))?;
            let versions = spec.get("versions")?.as_array()?.iter().filter_map(|it| text(it.get("name")));
            Some(KindRef {
                group: text(spec.get("group"))?,
                kind: text(names.get("kind"))?,
                versions: versions.collect(),
                resource: text(names.get("plural")),
                selector: None,
            })
        };
        let found: BTreeSet<KindRef> = self.versions.iter().filter_map(kind).collect();
        found.into_iter().collect()
    }
}

fn kind(object: &Value) -> (String, String) {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    (group.to_owned(), text("kind").to_owned())
}

fn key(object: &Value) -> PackageKey {
    let text = |field: &str| object.get("metadata").and_then(|metadata| metadata.get(field)?.as_str());
    PackageKey::new(text("namespace"), text("name").unwrap_or_default())
}

/// Moves every time in an object's metadata and status.
fn move_times(object: &mut Value, moved: &impl Fn(i64) -> i64) {
    fn walk(value: &mut Value, moved: &impl Fn(i64) -> i64) {
        match value {
            Value::String(text) if text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T') => {
                let time = text.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_millisecond);
                if let Ok(time) = time.map(moved).and_then(jiff::Timestamp::from_millisecond) {
                    *text = format!("{time:.0}");
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, moved)),
            Value::Object(fields) => fields.values_mut().for_each(|value| walk(value, moved)),
            _ => {}
        }
    }
    let fields = object.as_object_mut().map(Map::iter_mut).into_iter().flatten();
    for (_, value) in fields.filter(|(field, _)| ["metadata", "status"].contains(&field.as_str())) {
        walk(value, moved);
    }
}

/// Plays a recording to the engine.
pub(super) struct Playback {
    player: Player,
    watching: HashMap<KindId, AbortHandle>,
    finding: HashMap<SourceId, AbortHandle>,
    all: JoinSet<Option<()>>,
}

#[derive(Clone)]
struct Player {
    recording: Arc<Recording>,
    clock: Arc<Clock>,
    updates: mpsc::Sender<Event>,
}

impl Playback {
    pub(super) fn new(recording: Arc<Recording>, clock: Arc<Clock>, updates: mpsc::Sender<Event>) -> Self {
        let player = Player { recording, clock, updates };
        Self { player, watching: HashMap::new(), finding: HashMap::new(), all: JoinSet::new() }
    }

    pub(super) fn obey(&mut self, command: Command) {
        let player = self.player.clone();
        match command {
            Command::Watch { kind, of, contact, .. } => {
                self.watching.insert(kind, self.all.spawn(player.watch(kind, of, contact)));
            }
            Command::Unwatch(kind) => self.watching.remove(&kind).iter().for_each(AbortHandle::abort),
            Command::Find { source, categories } => {
                self.finding.insert(source, self.all.spawn(player.find(source, categories)));
            }
            Command::StopFinding(source) => {
                self.finding.remove(&source).iter().for_each(AbortHandle::abort);
            }
            Command::Read(wanted) => {
                let objects: Vec<_> = player
                    .recording
                    .at(&wanted.of, player.elapsed())
                    .into_iter()
                    .filter(|(key, object)| is_read(&wanted.reading, key, object))
                    .map(|(key, object)| (key.clone(), object.clone()))
                    .collect();
                let change = Change::Read { reading: wanted.reading, objects, asked: wanted.asked };
                self.all.spawn(async move { player.tell(wanted.kind, change).await });
            }
        }
        while self.all.try_join_next().is_some() {}
    }
}

fn is_read(reading: &Reading, key: &PackageKey, object: &Value) -> bool {
    match reading {
        Reading::All => true,
        Reading::Object(wanted) => wanted == key,
        Reading::Labelled { label, value } => {
            let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
            labels.and_then(|labels| labels.get(&**label)).and_then(Value::as_str) == Some(&**value)
        }
    }
}

impl Player {
    /// How long it has been playing, in milliseconds.
    fn elapsed(&self) -> i64 {
        self.clock.now().boot.saturating_sub(self.recording.began)
    }

    /// `None` when nobody listens any more.
    async fn tell(&self, kind: KindId, change: Change) -> Option<()> {
        self.updates.send(Event::Heard(Update { kind, change })).await.ok()
    }

    async fn watch(self, kind: KindId, of: KindRef, contact: Contact) -> Option<()> {
        let mut shown = self.elapsed();
        if self.recording.of(&of).next().is_none() {
            self.tell(kind, Change::Absent).await?;
        } else {
            let server = Some(self.clock.now().offset);
            self.tell(kind, Change::ListStarted { server, restored: false }).await?;
            for (key, object) in self.recording.at(&of, shown) {
                self.tell(kind, Change::Object(key.clone(), object.clone())).await?;
            }
            self.tell(kind, Change::ListDone).await?;
        }
        loop {
            let now = self.clock.now().boot;
            contact.hear(now);
            self.tell(kind, Change::Contact(now)).await?;
            let next = self.recording.of(&of).map(|version| version.at).find(|at| *at > shown);
            let pause = next.map_or(BEAT, |at| at.saturating_sub(self.elapsed()).clamp(0, BEAT));
            sleep(Duration::from_millis(pause.unsigned_abs())).await;
            let now = self.elapsed();
            for version in self.recording.of(&of).filter(|version| shown < version.at && version.at <= now) {
                self.tell(kind, Change::Object(version.key.clone(), version.object.clone())).await?;
            }
            shown = now;
        }
    }

    async fn find(self, source: SourceId, categories: Vec<String>) -> Option<()> {
        let mut kinds = Some(self.recording.kinds_of(&categories));
        loop {
            let at = self.clock.now().boot;
            self.updates.send(Event::Found { source, kinds: kinds.take(), at }).await.ok()?;
            sleep(Duration::from_millis(BEAT.unsigned_abs())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(name: &str, time: &str) -> Value {
        json!({
            "apiVersion": "example.org/v1",
            "kind": "App",
            "metadata": {"name": name, "namespace": "apps", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"since": "2026-01-01T00:00:00Z"},
            "status": {"since": time},
        })
    }

    fn kind() -> KindRef {
        let text = |text: &str| text.to_owned();
        KindRef {
            group: text("example.org"),
            kind: text("App"),
            versions: vec![text("v1")],
            resource: None,
            selector: None,
        }
    }

    #[test]
    fn a_recording_begins_now_and_goes_as_fast_as_it_is_told() {
        let objects = vec![
            version("a", "2026-01-01T00:01:00Z"),
            version("a", "2026-01-01T00:01:40Z"),
            version("b", "2026-01-01T00:01:50Z"),
            version("b", "2026-01-01T00:02:00Z"),
            version("b", "2026-01-01T00:01:00Z"),
        ];
        let now = "2027-07-07T07:07:07Z".parse::<jiff::Timestamp>().unwrap();
        let recording = Recording::new(objects, 10.0, Moment::unix(now.as_millisecond()));
        let plan: Vec<_> = recording
            .versions
            .iter()
            .map(|it| (it.at, it.key.name.as_ref(), it.object["status"]["since"].as_str().unwrap()))
            .collect();
        assert_eq!(
            plan,
            [
                (0, "a", "2027-07-07T07:07:07Z"),
                (0, "b", "2027-07-07T07:07:12Z"),
                (4_000, "a", "2027-07-07T07:07:11Z"),
                (6_000, "b", "2027-07-07T07:07:13Z"),
                (6_000, "b", "2027-07-07T07:07:07Z"),
            ]
        );
        let first = &recording.versions[0].object;
        assert_eq!(first["metadata"]["creationTimestamp"], "2027-07-07T07:07:01Z");
        assert_eq!(first["spec"]["since"], "2026-01-01T00:00:00Z", "what people wrote stays");
        let versions: BTreeSet<_> = recording
            .versions
            .iter()
            .map(|it| it.object["metadata"]["resourceVersion"].as_str().unwrap())
            .collect();
        assert_eq!(versions.len(), 5);
        assert_eq!(
            recording.at(&kind(), 4_000).values().map(|it| &it["status"]["since"]).collect::<Vec<_>>(),
            ["2027-07-07T07:07:11Z", "2027-07-07T07:07:12Z"]
        );
    }

    #[test]
    fn a_recording_begins_with_the_first_time_that_it_has() {
        let without = || json!({"apiVersion": "example.org/v1", "kind": "App", "metadata": {"name": "a"}});
        let objects = vec![without(), without(), version("b", "2026-01-01T00:01:00Z")];
        let objects = [objects, vec![version("b", "2026-01-01T00:01:30Z")]].concat();
        let recording = Recording::new(objects, 1.0, Moment::unix(0));
        let plan: Vec<_> = recording.versions.iter().map(|it| (it.at, it.key.name.as_ref())).collect();
        assert_eq!(plan, [(0, "a"), (0, "a"), (0, "b"), (30_000, "b")]);
    }

    #[test]
    fn what_is_broken_or_empty_is_named() {
        let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
        let read = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            Recording::read(&file.path().to_owned(), 1.0, Moment::unix(0))
                .map(|it| it.cluster)
                .map_err(|error| error.to_string())
        };
        let name = file.path().display().to_string();
        assert_eq!(read("# nothing\n"), Err(format!("{name}: found no object, expected a recording")));
        assert!(read("kind: App\n").unwrap_err().starts_with(&format!("{name}: is no Kubernetes object")));
        let app = version("a", "2026-01-01T00:01:00Z").to_string();
        assert_eq!(read(&app), Ok(name));
        let namespace =
            r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "u"}}"#;
        assert_eq!(read(&format!("{app}\n{namespace}\n")), Ok("u".to_owned()));
    }
}
