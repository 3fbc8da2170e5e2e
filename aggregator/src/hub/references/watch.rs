//! Follows the objects of one kind in one namespace: a list, then a watch from there, again and again.
//!
//! Only objects that somebody refers to are kept, as far as the room of their namespace goes; when one more is asked
//! for, or there is room again, the list is read again.
//! Kinds that are not there are looked for again and again. What may not be read, or has no kind any
//! more, is not known from that moment on; where the API server only fails to answer, what was read
//! is believed for [`PATIENCE`], so that a restart of the API server is no event.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::Error;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Resource, WatchEvent};
use kube::core::Request;
use kube::discovery::{self, Scope, verbs};
use statusbridge_core::reconcile::references::{Failure, News, Place, Room, Shelf};
use tokio::sync::{mpsc, watch as channel};
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::Wanted;
use super::api::{Hub, Page};
use crate::hub::write::{HubError, in_time};

/// For how long what was read is believed while the API server fails to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause after a failure, which doubles until it works again.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Time between two lists, so that names which are asked for one after another need few of them.
const BETWEEN_LISTS: Duration = Duration::from_secs(1);
/// Time between two looks whether there is room for an object that had none.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// What a watch found out, and which one it was.
pub(super) struct Report {
    pub(super) place: Place,
    pub(super) number: u64,
    pub(super) news: News,
}

/// Follows one place until nobody listens any more.
pub(super) struct Follower {
    hub: Hub,
    place: Place,
    shelf: Shelf,
    number: u64,
    wanted: channel::Receiver<Wanted>,
    reports: mpsc::Sender<Report>,
    failed: Option<Failure>,
}

/// Why a watch is not followed any further.
enum End {
    /// Objects are asked for that the list did not look for, or that had no room and may have it now.
    Asked,
    /// It broke.
    Broke(Failure),
    /// Nobody listens.
    Unheard,
}

/// A list that was read.
struct Listed {
    requests: Request,
    resource: String,
    version: String,
    /// How many names had ever been added.
    additions: u64,
}

impl Follower {
    pub(super) fn new(
        hub: Hub,
        room: Room,
        place: Place,
        number: u64,
        wanted: channel::Receiver<Wanted>,
        reports: mpsc::Sender<Report>,
    ) -> Self {
        Self { hub, place, shelf: Shelf::new(room), number, wanted, reports, failed: None }
    }

    pub(super) async fn run(mut self) {
        let mut good = Instant::now();
        let mut pause = PAUSE;
        loop {
            let began = Instant::now();
            let end = match self.list().await {
                Ok(listed) => {
                    pause = PAUSE;
                    let end = self.watch(listed).await;
                    good = Instant::now();
                    end
                }
                Err(end) => end,
            };
            match end {
                End::Unheard => return,
                End::Asked => sleep_until(began + BETWEEN_LISTS).await,
                End::Broke(failure) => {
                    if (is_definite(&failure) || good.elapsed() >= PATIENCE)
                        && self.tell_failure(failure).await.is_err()
                    {
                        return;
                    }
                    sleep(pause).await;
                    pause = LONGEST_PAUSE.min(2 * pause);
                }
            }
        }
    }

    async fn list(&mut self) -> Result<Listed, End> {
        let Wanted { names: asked, additions } = self.wanted.borrow_and_update().clone();
        self.shelf.retain(&asked);
        let resource = self.resource().await.map_err(End::Broke)?;
        let full_name = full_name(&resource);
        let requests = Request::new(DynamicObject::url_path(&resource, Some(&self.place.namespace)));
        let mut objects = BTreeMap::new();
        let mut token: Option<String> = None;
        let version = loop {
            let Page { metadata, items } = self
                .hub
                .page(&requests, token.as_deref())
                .await
                .map_err(|error| End::Broke(failure(error, "list", &full_name)))?;
            for sent in items.into_iter().flatten().filter(|sent| asked.contains(&sent.name)) {
                objects.insert(sent.name.clone(), self.shelf.put(sent));
            }
            match metadata.continue_ {
                Some(next) if !next.is_empty() => token = Some(next),
                _ => break metadata.resource_version.unwrap_or_default(),
            }
        };
        self.shelf.retain(&objects.keys().cloned().collect());
        self.tell(News::Listed { asked, objects }).await?;
        self.failed = None;
        Ok(Listed { requests, resource: full_name, version, additions })
    }

    async fn resource(&self) -> Result<ApiResource, Failure> {
        let Place { api_version, kind, .. } = &self.place;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind_of = GroupVersionKind::gvk(group, version, kind);
        let (resource, able) =
            in_time(discovery::pinned_kind(&self.hub.client, &kind_of)).await.map_err(undiscovered)?;
        if resource.plural == "secrets" {
            return Err(Failure::Unfit("a revision is never read from a Secret".to_owned()));
        }
        if able.scope != Scope::Namespaced {
            return Err(Failure::Unfit(format!("{kind} in {api_version} is no namespaced kind")));
        }
        if !able.supports_operation(verbs::LIST) || !able.supports_operation(verbs::WATCH) {
            return Err(Failure::Unfit(format!("{kind} in {api_version} cannot be listed and watched")));
        }
        Ok(resource)
    }

    /// Follows a watch, and the next one where it ends, until one breaks.
    async fn watch(&mut self, listed: Listed) -> End {
        let Listed { requests, resource, mut version, additions } = listed;
        let mut looks = interval(BETWEEN_LOOKS);
        loop {
            let began = Instant::now();
            let events = match self.hub.events(&requests, &version).await {
                Ok(events) => events,
                Err(error) => return End::Broke(failure(error, "watch", &resource)),
            };
            let mut events = pin!(events);
            loop {
                let event = tokio::select! {
                    changed = self.wanted.changed() => {
                        if changed.is_err() {
                            return End::Unheard;
                        }
                        let wanted = self.wanted.borrow_and_update();
                        self.shelf.retain(&wanted.names);
                        if wanted.additions == additions { continue } else { return End::Asked }
                    }
                    _ = looks.tick() => {
                        if self.shelf.has_room() { return End::Asked } else { continue }
                    }
                    event = events.next() => event,
                };
                let (object, gone) = match event {
                    None if began.elapsed() < PAUSE => {
                        return End::Broke(Failure::NotAnswered("the watch ends at once".to_owned()));
                    }
                    // The API server ends every watch after a while.
                    None => break,
                    Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                        version = bookmark.metadata.resource_version;
                        continue;
                    }
                    Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => (object, false),
                    Some(Ok(WatchEvent::Deleted(object))) => (object, true),
                    Some(Ok(WatchEvent::Error(status))) => {
                        return End::Broke(failure(HubError::Api(Error::Api(status)), "watch", &resource));
                    }
                    Some(Err(error)) => return End::Broke(failure(error.into(), "watch", &resource)),
                };
                version.clone_from(&object.version);
                let name = object.name.clone();
                if !self.wanted.borrow().names.contains(&name) {
                    continue;
                }
                let kept = if gone {
                    self.shelf.remove(&name);
                    None
                } else {
                    Some(self.shelf.put(object))
                };
                if let Err(end) = self.tell(News::Changed(name, kept)).await {
                    return end;
                }
            }
        }
    }

    async fn tell_failure(&mut self, failure: Failure) -> Result<(), End> {
        self.shelf.retain(&BTreeSet::new());
        if self.failed.as_ref() == Some(&failure) {
            return Ok(());
        }
        self.failed = Some(failure.clone());
        self.tell(News::Failed(failure)).await
    }

    async fn tell(&self, news: News) -> Result<(), End> {
        let report = Report { place: self.place.clone(), number: self.number, news };
        self.reports.send(report).await.map_err(|_| End::Unheard)
    }
}

/// Whether the API server has said so itself, and does not only fail to answer.
fn is_definite(failure: &Failure) -> bool {
    !matches!(failure, Failure::NotAnswered(_))
}

fn undiscovered(error: HubError) -> Failure {
    match error {
        HubError::Api(Error::Discovery(_)) => Failure::NotServed,
        HubError::Api(Error::Api(status)) if status.code == 404 => Failure::NotServed,
        error => Failure::NotAnswered(error.to_string()),
    }
}

fn failure(error: HubError, verb: &'static str, resource: &str) -> Failure {
    match error {
        HubError::Api(Error::Api(status)) if status.code == 404 => Failure::NotServed,
        HubError::Api(Error::Api(status)) if status.code == 403 => {
            Failure::Forbidden { verb, resource: resource.to_owned() }
        }
        HubError::Api(Error::Api(status)) => Failure::NotAnswered(status.message.clone()),
        error => Failure::NotAnswered(error.to_string()),
    }
}

/// The resource as `kubectl auth can-i` takes it.
fn full_name(resource: &ApiResource) -> String {
    if resource.group.is_empty() {
        resource.plural.clone()
    } else {
        format!("{}.{}", resource.plural, resource.group)
    }
}
