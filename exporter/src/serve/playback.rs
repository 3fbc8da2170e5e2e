//! A recording in place of an API server: the engine hears its objects as if they changed now.
//!
//! The times in the objects are those of the recording; they are moved so that it begins now, and pressed together by the
//! speed. After the last version everything stays as it is.

use std::collections::{BTreeMap, HashMap};
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
    recording::{GroupKind, Kinds, View, in_order, millis, timeline},
    saved::{Saved, SavedObject},
    source::{KindRef, Projection},
    state::Command,
    watch::{Change, Contact, Event, KindId, PackageKey, SourceId, Update},
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

/// One version of an object, or its end.
#[derive(Debug)]
struct Version {
    /// How long after the beginning it comes, in milliseconds.
    at: i64,
    kind: GroupKind,
    key: PackageKey,
    /// `None` when it is gone.
    object: Option<Value>,
}

/// All versions, in the order in which they come.
#[derive(Debug)]
pub(super) struct Recording {
    kinds: Kinds,
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
        if saved.objects.is_empty() {
            bail!("{}: found no object, expected a recording", path.display());
        }
        let recording = Self::new(saved.objects, speed, now);
        let is_own = |version: &&Version| {
            version.kind == (String::new(), "Namespace".to_owned())
                && version.key.name.as_ref() == CLUSTER_NAMESPACE
        };
        let namespace = recording.versions.iter().find(is_own).and_then(|version| version.object.as_ref());
        let uid =
            namespace.and_then(|object| object.get("metadata")?.get("uid")?.as_str().map(str::to_owned));
        Ok(Self { cluster: uid.unwrap_or_else(|| path.display().to_string()), ..recording })
    }

    fn new(objects: Vec<SavedObject>, speed: f64, now: Moment) -> Self {
        let kinds = Kinds::of(&objects);
        let begin = now.run.saturating_add(now.offset);
        let (recorded, start) = timeline(in_order(objects), begin);
        let since = |time: i64| (time.saturating_sub(start) as f64 / speed) as i64;
        let version = |recorded: crate::recording::Version| {
            let moved = |object: Value| {
                let mut object = kinds.stored(object);
                move_times(&mut object, &|time| begin.saturating_add(since(time)));
                if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                    let number = (recorded.number + 1).to_string();
                    metadata.insert("resourceVersion".to_owned(), json!(number));
                }
                object
            };
            let object = recorded.object.map(moved);
            Version { at: since(recorded.at), kind: recorded.kind, key: recorded.key, object }
        };
        let versions = recorded.into_iter().map(version).collect();
        Self { kinds, versions, cluster: String::new(), began: now.boot }
    }

    /// What comes in a time (after the first, up to the last of two moments) of what a watch sees.
    fn between<'r>(&'r self, seen: &'r Seen, after: i64, to: i64) -> impl Iterator<Item = Change> + 'r {
        let of_kind = self.versions.iter().filter(|version| seen.view.is_of(&version.kind));
        of_kind.filter(move |version| after < version.at && version.at <= to).map(|version| {
            let key = version.key.clone();
            match seen.lean(version) {
                Some(object) => Change::Object(key, object),
                None => Change::Deleted(key),
            }
        })
    }

    /// Objects that a watch sees as they are at a time.
    fn at(&self, seen: &Seen, at: i64) -> BTreeMap<PackageKey, Value> {
        let mut objects = BTreeMap::new();
        for change in self.between(seen, i64::MIN, at) {
            match change {
                Change::Object(key, object) => drop(objects.insert(key, object)),
                Change::Deleted(key) => drop(objects.remove(&key)),
                _ => {}
            }
        }
        objects
    }

    /// When something comes next of what a watch sees.
    fn next(&self, seen: &Seen, after: i64) -> Option<i64> {
        let of_kind = self.versions.iter().filter(|version| seen.view.is_of(&version.kind));
        of_kind.map(|version| version.at).find(|at| *at > after)
    }
}

/// What a watch sees and keeps.
struct Seen {
    view: View,
    projection: Projection,
}

impl Seen {
    fn lean(&self, version: &Version) -> Option<Value> {
        self.view.read(version.object.as_ref()?, &self.projection)
    }
}

/// Moves every time in an object's metadata and status.
fn move_times(object: &mut Value, moved: &impl Fn(i64) -> i64) {
    fn walk(value: &mut Value, moved: &impl Fn(i64) -> i64) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, moved)),
            Value::Object(fields) => fields.values_mut().for_each(|value| walk(value, moved)),
            other => {
                if let Some(time) =
                    millis(other).and_then(|it| jiff::Timestamp::from_millisecond(moved(it)).ok())
                {
                    *other = format!("{time:.0}").into();
                }
            }
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
            Command::Watch { kind, of, projection, contact } => {
                let seen = player.seen(&of, projection);
                self.watching.insert(kind, self.all.spawn(player.watch(kind, seen, contact)));
            }
            Command::Unwatch(kind) => self.watching.remove(&kind).iter().for_each(AbortHandle::abort),
            Command::Find { source, categories } => {
                self.finding.insert(source, self.all.spawn(player.find(source, categories)));
            }
            Command::StopFinding(source) => {
                self.finding.remove(&source).iter().for_each(AbortHandle::abort);
            }
            Command::Read(wanted) => {
                let seen = player.seen(&wanted.of, wanted.projection);
                let all = seen.map(|seen| player.recording.at(&seen, player.elapsed())).unwrap_or_default();
                let objects =
                    all.into_iter().filter(|(key, object)| wanted.reading.is_of(key, object)).collect();
                let change = Change::Read { reading: wanted.reading, objects, asked: wanted.asked };
                self.all.spawn(async move { player.tell(wanted.kind, change).await });
            }
        }
        while self.all.try_join_next().is_some() {}
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

    /// What a watch of a kind sees; `None` when the kind is not served.
    fn seen(&self, of: &KindRef, projection: Projection) -> Option<Seen> {
        self.recording.kinds.view(of).map(|view| Seen { view, projection })
    }

    async fn watch(self, kind: KindId, seen: Option<Seen>, contact: Contact) -> Option<()> {
        let mut shown = self.elapsed();
        match &seen {
            None => self.tell(kind, Change::Absent).await?,
            Some(seen) => {
                let server = Some(self.clock.now().offset);
                self.tell(kind, Change::ListStarted { server, restored: false }).await?;
                for (key, object) in self.recording.at(seen, shown) {
                    self.tell(kind, Change::Object(key, object)).await?;
                }
                self.tell(kind, Change::ListDone).await?;
            }
        }
        loop {
            let now = self.clock.now().boot;
            contact.hear(now);
            self.tell(kind, Change::Contact(now)).await?;
            let next = seen.as_ref().and_then(|seen| self.recording.next(seen, shown));
            let pause = next.map_or(BEAT, |at| at.saturating_sub(self.elapsed()).clamp(0, BEAT));
            sleep(Duration::from_millis(pause.unsigned_abs())).await;
            let now = self.elapsed();
            if let Some(seen) = &seen {
                for change in self.recording.between(seen, shown, now) {
                    self.tell(kind, change).await?;
                }
            }
            shown = now;
        }
    }

    async fn find(self, source: SourceId, categories: Vec<String>) -> Option<()> {
        let mut kinds = Some(self.recording.kinds.of_categories(&categories));
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

    fn saved(objects: Vec<Value>) -> Vec<SavedObject> {
        objects.into_iter().map(|object| SavedObject::new("f", object)).collect()
    }

    /// A watch that keeps everything.
    fn seen(recording: &Recording) -> Seen {
        let text = |text: &str| text.to_owned();
        let of = KindRef {
            group: text("example.org"),
            kind: text("App"),
            versions: vec![text("v1")],
            resource: None,
            selector: None,
        };
        let mut projection = Projection::default();
        projection.keep();
        Seen { view: recording.kinds.view(&of).unwrap(), projection }
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
        let recording = Recording::new(saved(objects), 10.0, Moment::unix(now.as_millisecond()));
        let plan: Vec<_> = recording
            .versions
            .iter()
            .map(|it| {
                (
                    it.at,
                    it.key.name.as_ref(),
                    it.object.as_ref().unwrap()["status"]["since"].as_str().unwrap(),
                )
            })
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
        let first = recording.versions[0].object.as_ref().unwrap();
        assert_eq!(first["metadata"]["creationTimestamp"], "2027-07-07T07:07:01Z");
        assert_eq!(first["spec"]["since"], "2026-01-01T00:00:00Z", "what people wrote stays");
        let versions: std::collections::BTreeSet<_> = recording
            .versions
            .iter()
            .map(|it| it.object.as_ref().unwrap()["metadata"]["resourceVersion"].as_str().unwrap())
            .collect();
        assert_eq!(versions.len(), 5);
        assert_eq!(
            recording
                .at(&seen(&recording), 4_000)
                .values()
                .map(|it| &it["status"]["since"])
                .collect::<Vec<_>>(),
            ["2027-07-07T07:07:11Z", "2027-07-07T07:07:12Z"]
        );
    }

    #[test]
    fn a_recording_begins_with_the_first_time_that_it_has() {
        let without = || json!({"apiVersion": "example.org/v1", "kind": "App", "metadata": {"name": "a"}});
        let objects = vec![without(), without(), version("b", "2026-01-01T00:01:00Z")];
        let objects = [objects, vec![version("b", "2026-01-01T00:01:30Z")]].concat();
        let recording = Recording::new(saved(objects), 1.0, Moment::unix(0));
        let plan: Vec<_> = recording.versions.iter().map(|it| (it.at, it.key.name.as_ref())).collect();
        assert_eq!(plan, [(0, "a"), (0, "b"), (0, "a"), (30_000, "b")]);
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
