//! The requests that this program sends to a hub, answered from the store.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::store::{Change, Expected, Refusal, Store, What};
use super::stored::{Place, plural, set, set_metadata};

/// How long a watch goes on where the request does not say.
const WATCH: u64 = 290;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Answers requests.
#[derive(Clone)]
pub(super) struct Api {
    /// Whoever writes waits for the disk, and others for that: it is locked on threads that may wait.
    store: Arc<Mutex<Store>>,
    changed: watch::Receiver<u64>,
}

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// The API groups.
    Groups,
    /// The kinds of a group and version.
    Kinds { group: String, version: String },
    /// All objects of a kind, or those of a namespace.
    Objects { group: String, version: String, plural: String, namespace: Option<String> },
    /// One of them, or its status.
    Object { place: Place, status: bool },
}

impl Target {
    fn of(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["apis"] => return Some(Self::Groups),
            ["api", version, rest @ ..] => ("", version, rest),
            ["apis", group, version, rest @ ..] => (*group, version, rest),
            _ => return None,
        };
        let (group, version) = (group.to_owned(), (*version).to_owned());
        let object = |namespace: &str, plural: &str, name: &str, status| {
            let (namespace, plural, name) = (namespace.to_owned(), plural.to_owned(), name.to_owned());
            Self::Object { place: Place { group: group.clone(), plural, namespace, name }, status }
        };
        Some(match rest {
            [] => Self::Kinds { group, version },
            [plural] => Self::Objects { group, version, plural: (*plural).to_owned(), namespace: None },
            ["namespaces", namespace, plural] => {
                let namespace = Some((*namespace).to_owned());
                Self::Objects { group, version, plural: (*plural).to_owned(), namespace }
            }
            ["namespaces", namespace, plural, name] => object(namespace, plural, name, false),
            ["namespaces", namespace, plural, name, "status"] => object(namespace, plural, name, true),
            _ => return None,
        })
    }
}

impl Api {
    pub(super) fn new(store: Arc<Mutex<Store>>, changed: watch::Receiver<u64>) -> Self {
        Self { store, changed }
    }

    pub(super) async fn answer(self, request: Request<Body>) -> Result<Answer, Infallible> {
        let (head, body) = request.into_parts();
        let query = head.uri.query().unwrap_or_default();
        let parameters: BTreeMap<String, String> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let Some(target) = Target::of(head.uri.path()) else {
            return Ok(refused(StatusCode::NOT_FOUND, "NotFound", head.uri.path()));
        };
        if head.method == Method::GET && parameters.get("watch").is_some_and(|watch| watch == "true") {
            return Ok(self.watch(target, &parameters));
        }
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return Ok(refused(StatusCode::BAD_REQUEST, "BadRequest", &error.to_string())),
        };
        let kind = head.headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let kind = kind.unwrap_or_default().to_owned();
        let force = parameters.get("force").is_some_and(|force| force == "true");
        // Writing waits for the disk.
        let answer = tokio::task::spawn_blocking(move || {
            self.answer_at_once(&head.method, &target, &kind, force, &body)
        });
        Ok(match answer.await {
            Ok(Ok((status, body))) => whole(status, &body),
            Ok(Err(refusal)) => {
                let (status, reason) = match &refusal {
                    Refusal::NotFound => (StatusCode::NOT_FOUND, "NotFound"),
                    Refusal::AlreadyExists => (StatusCode::CONFLICT, "AlreadyExists"),
                    Refusal::Conflict | Refusal::Another => (StatusCode::CONFLICT, "Conflict"),
                    Refusal::NotTaken(_) => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
                    Refusal::Unknown(_) | Refusal::Failed(_) => {
                        (StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
                    }
                };
                refused(status, reason, &refusal.to_string())
            }
            Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &error.to_string()),
        })
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer_at_once(
        &self,
        method: &Method,
        target: &Target,
        content_type: &str,
        force: bool,
        body: &[u8],
    ) -> Result<(StatusCode, Value), Refusal> {
        let mut store = self.store();
        let read =
            || serde_json::from_slice::<Value>(body).map_err(|error| Refusal::NotTaken(error.to_string()));
        let found = |object: Arc<Value>| (StatusCode::OK, object.as_ref().clone());
        match (method, target) {
            (&Method::GET, Target::Groups) => Ok((StatusCode::OK, groups(&store))),
            (&Method::GET, Target::Kinds { group, version }) => {
                kinds(&store, group, version).map(|kinds| (StatusCode::OK, kinds)).ok_or(Refusal::NotFound)
            }
            (&Method::GET, Target::Objects { group, version, plural, namespace }) => {
                if let Some(why) = store.unknown(group) {
                    return Err(Refusal::Unknown(why.to_owned()));
                }
                let is_one = |place: &Place| is_of(place, group, plural, namespace.as_deref());
                let items: Vec<&Value> = store
                    .iter()
                    .filter(|(place, _)| is_one(place))
                    .map(|(_, object)| object.as_ref())
                    .collect();
                let metadata = json!({"resourceVersion": store.version().to_string()});
                let list = json!({
                    "apiVersion": api_version(group, version),
                    "kind": "List",
                    "metadata": metadata,
                    "items": items,
                });
                Ok((StatusCode::OK, list))
            }
            (&Method::GET, Target::Object { place, status: false }) => {
                store.get(place).map(found).ok_or(Refusal::NotFound)
            }
            // Events are in the log as well, and nobody would read them here.
            (&Method::POST, Target::Objects { plural, .. }) if plural == "events" => {
                Ok((StatusCode::CREATED, read()?))
            }
            (&Method::POST, Target::Objects { plural, namespace, .. }) => {
                let object = as_sent(read()?, namespace.as_deref(), None);
                taken(Place::of(&object).as_ref(), plural)?;
                Ok((StatusCode::CREATED, store.create(object)?.as_ref().clone()))
            }
            (&Method::PUT, Target::Object { place, status: false }) => {
                taken(Some(place), &place.plural)?;
                let object = read()?;
                let expected = Expected::of(&object);
                store.change(place, &expected, |known| *known = object).map(found)
            }
            (&Method::PATCH, Target::Object { place, status: true }) if place.kind().is_some() => {
                let (expected, status) = status_patch(read()?)?;
                store.change(place, &expected, |known| set(known, "status", Some(status))).map(found)
            }
            (&Method::PATCH, Target::Object { place, status: false }) => {
                taken(Some(place), &place.plural)?;
                let patch = as_sent(read()?, Some(&place.namespace), Some(&place.name));
                match content_type {
                    "application/apply-patch+yaml" => store.apply(patch, force).map(found),
                    "application/merge-patch+json" => {
                        store.change(place, &Expected::of(&patch), |known| merge(known, &patch)).map(found)
                    }
                    other => Err(Refusal::NotTaken(format!("patches of type {other} are not taken here"))),
                }
            }
            (&Method::DELETE, Target::Object { place, status: false }) => {
                taken(Some(place), &place.plural)?;
                let options = if body.is_empty() { Value::Null } else { read()? };
                let preconditions = options.get("preconditions").cloned().unwrap_or_default();
                store.delete(place, &Expected::of(&json!({"metadata": preconditions}))).map(found)
            }
            (method, target) => Err(Refusal::NotTaken(format!("{method} of {target:?} is not taken here"))),
        }
    }

    /// What changes after a version.
    fn watch(self, target: Target, parameters: &BTreeMap<String, String>) -> Answer {
        let Target::Objects { group, version, plural, namespace } = target else {
            return refused(StatusCode::NOT_FOUND, "NotFound", "only kinds are watched");
        };
        let number = |name: &str| parameters.get(name).and_then(|text| text.parse::<u64>().ok());
        let seconds = number("timeoutSeconds").unwrap_or(WATCH).min(WATCH);
        let watching = Watching {
            changed: self.changed.clone(),
            api: self,
            seen: number("resourceVersion").unwrap_or_default(),
            until: Instant::now() + Duration::from_secs(seconds),
            ended: false,
            bookmark: json!({"apiVersion": api_version(&group, &version), "kind": "Bookmark"}),
            group: group.clone(),
            is_one: Box::new(move |place| is_of(place, &group, &plural, namespace.as_deref())),
        };
        let events = stream::unfold(watching, |watching| async move {
            let (text, watching) = watching.next().await?;
            Some((Ok(Frame::data(Bytes::from(text))), watching))
        });
        Response::new(UnsyncBoxBody::new(StreamBody::new(events)))
    }
}

/// A watch that is under way.
struct Watching {
    api: Api,
    changed: watch::Receiver<u64>,
    seen: u64,
    until: Instant,
    ended: bool,
    bookmark: Value,
    group: String,
    is_one: Box<dyn Fn(&Place) -> bool + Send + Sync>,
}

impl Watching {
    /// The next lines.
    async fn next(mut self) -> Option<(String, Self)> {
        while !self.ended {
            self.changed.borrow_and_update();
            let looked = tokio::task::spawn_blocking(move || (self.lines(), self)).await;
            let lines;
            (lines, self) = looked.ok()?;
            if !lines.is_empty() {
                return Some((lines, self));
            }
            self.ended = !matches!(timeout_at(self.until, self.changed.changed()).await, Ok(Ok(())));
            if self.ended {
                set_metadata(&mut self.bookmark, "resourceVersion", json!(self.seen.to_string()));
                return Some((line("BOOKMARK", &self.bookmark), self));
            }
        }
        None
    }

    fn lines(&mut self) -> String {
        let store = self.api.store();
        if let Some(why) = store.unknown(&self.group) {
            self.ended = true;
            let why = Refusal::Unknown(why.to_owned()).to_string();
            return line("ERROR", &failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &why));
        }
        let Some(changes) = store.since(self.seen) else {
            self.ended = true;
            return line("ERROR", &failure(StatusCode::GONE, "Expired", "that version is too old"));
        };
        let mut lines = String::new();
        for Change { what, place, object, version } in changes {
            if (self.is_one)(place) {
                let what = match what {
                    What::Added => "ADDED",
                    What::Modified => "MODIFIED",
                    What::Deleted => "DELETED",
                };
                lines.push_str(&line(what, object));
            }
            self.seen = *version;
        }
        lines
    }
}

/// An event. Its type comes before its object, as from every API server.
fn line(what: &str, object: &Value) -> String {
    let mut line = String::new();
    // Writing to a text does not fail.
    let _ = writeln!(line, r#"{{"type":"{what}","object":{object}}}"#);
    line
}

fn is_of(place: &Place, group: &str, plural: &str, namespace: Option<&str>) -> bool {
    place.group == group && place.plural == plural && namespace.is_none_or(|it| it == place.namespace)
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Refuses what is written of kinds that this program does not write to a hub.
fn taken(place: Option<&Place>, plural: &str) -> Result<(), Refusal> {
    match place.is_some_and(Place::is_written) {
        true => Ok(()),
        false => Err(Refusal::NotTaken(format!("{plural} are not written to a directory"))),
    }
}

/// An object with what its path says of it.
fn as_sent(mut object: Value, namespace: Option<&str>, name: Option<&str>) -> Value {
    for (field, value) in [("namespace", namespace), ("name", name)] {
        if let Some(value) = value {
            set_metadata(&mut object, field, json!(value));
        }
    }
    object
}

/// What a patch of a status tests, and the status that it sets.
fn status_patch(patch: Value) -> Result<(Expected, Value), Refusal> {
    let mut expected = Expected::default();
    let mut status = None;
    for step in patch.as_array().into_iter().flatten() {
        let text = |field: &str| step.get(field).and_then(Value::as_str).unwrap_or_default();
        let value = step.get("value").cloned().unwrap_or_default();
        let value_text = value.as_str().map(str::to_owned);
        match (text("op"), text("path")) {
            ("test", "/metadata/uid") => expected.uid = value_text,
            ("add", "/metadata/resourceVersion") => expected.version = value_text,
            ("add", "/status") => status = Some(value),
            (op, path) => return Err(Refusal::NotTaken(format!("{op} of {path} is not taken here"))),
        }
    }
    let status = status.ok_or_else(|| Refusal::NotTaken("the patch sets no status".to_owned()))?;
    Ok((expected, status))
}

/// A merge patch (RFC 7386).
fn merge(known: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *known = patch.clone();
        return;
    };
    if !known.is_object() {
        *known = json!({});
    }
    for (field, value) in patch {
        if value.is_null() {
            set(known, field, None);
        } else if let Some(fields) = known.as_object_mut() {
            merge(fields.entry(field.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Versions of each group that there are objects of.
fn versions(store: &Store) -> BTreeMap<&str, Vec<&str>> {
    let mut all = BTreeMap::<&str, Vec<&str>>::new();
    for (place, object) in store.iter() {
        let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let version = version.rsplit_once('/').map_or(version, |(_, version)| version);
        let versions = all.entry(&place.group).or_default();
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    all
}

fn groups(store: &Store) -> Value {
    let named = |(group, versions): (&str, Vec<&str>)| {
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| json!({"groupVersion": api_version(group, version), "version": version}))
            .collect();
        json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
    };
    let groups: Vec<Value> =
        versions(store).into_iter().filter(|(group, _)| !group.is_empty()).map(named).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// The kinds of a group and version that there are objects of; `None` where there are none.
fn kinds(store: &Store, group: &str, version: &str) -> Option<Value> {
    let group_version = api_version(group, version);
    let mut kinds = BTreeMap::<&str, bool>::new();
    for (place, object) in store.iter().filter(|(place, _)| place.group == group) {
        if object.get("apiVersion").and_then(Value::as_str) == Some(&group_version)
            && let Some(kind) = object.get("kind").and_then(Value::as_str)
        {
            kinds.insert(kind, !place.namespace.is_empty());
        }
    }
    let resource = |(kind, namespaced): (&str, bool)| {
        Value::Object(Map::from_iter([
            ("name".to_owned(), json!(plural(kind))),
            ("singularName".to_owned(), json!(kind.to_ascii_lowercase())),
            ("kind".to_owned(), json!(kind)),
            ("namespaced".to_owned(), json!(namespaced)),
            ("verbs".to_owned(), json!(["get", "list", "watch"])),
        ]))
    };
    (!kinds.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version,
            "resources": kinds.into_iter().map(resource).collect::<Vec<_>>(),
        })
    })
}

fn failure(status: StatusCode, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status.as_u16(),
    })
}

fn refused(status: StatusCode, reason: &str, message: &str) -> Answer {
    whole(status, &failure(status, reason, message))
}

fn whole(status: StatusCode, body: &Value) -> Answer {
    let body = UnsyncBoxBody::new(Full::new(Bytes::from(body.to_string())));
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer
}
