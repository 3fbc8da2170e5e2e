//! Follows the objects of one kind in one namespace: a list, then a watch from there, again and again.
//!
//! Only objects that somebody refers to are kept; when one more is asked for, the list is read again.
//! Kinds that are not there are looked for again and again. What may not be read, or has no kind any
//! more, is not known from that moment on; where the API server only fails to answer, what was read
//! is believed for [`PATIENCE`], so that a restart of the API server is no event.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, TypeMeta, WatchEvent, WatchParams,
};
use kube::discovery::{self, Scope, verbs};
use kube::{Client, Error, ResourceExt};
use serde_json::Value;
use statusbridge_core::reconcile::references::{Failure, News, Place};
use tokio::sync::{mpsc, watch as channel};
use tokio::time::{Instant, sleep, sleep_until};

use crate::hub::write::{HubError, in_time};

/// For how long what was read is believed while the API server fails to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause after a failure, which doubles until it works again.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Time between two lists, so that names which are asked for one after another need few of them.
const BETWEEN_LISTS: Duration = Duration::from_secs(1);
/// Objects that are read at once: they are read whole, whether somebody refers to them or not.
const PAGE: u32 = 50;

/// What a watch found out, and which one it was.
pub(super) struct Report {
    pub(super) place: Place,
    pub(super) number: u64,
    pub(super) news: News,
}

/// Follows one place until nobody listens any more.
pub(super) struct Follower {
    client: Client,
    place: Place,
    number: u64,
    names: channel::Receiver<BTreeSet<String>>,
    reports: mpsc::Sender<Report>,
    failed: Option<Failure>,
}

/// Why a watch is not followed any further.
enum End {
    /// Objects are asked for that the list did not look for.
    Asked,
    /// It broke.
    Broke(Failure),
    /// Nobody listens.
    Unheard,
}

/// A list that was read.
struct Listed {
    api: Api<DynamicObject>,
    resource: String,
    version: String,
    asked: BTreeSet<String>,
}

impl Follower {
    pub(super) fn new(
        client: Client,
        place: Place,
        number: u64,
        names: channel::Receiver<BTreeSet<String>>,
        reports: mpsc::Sender<Report>,
    ) -> Self {
        Self { client, place, number, names, reports, failed: None }
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
        let asked = self.names.borrow_and_update().clone();
        let resource = self.resource().await.map_err(End::Broke)?;
        let full_name = full_name(&resource);
        let api = Api::namespaced_with(self.client.clone(), &self.place.namespace, &resource);
        let mut objects = BTreeMap::new();
        let mut page = ListParams::default().limit(PAGE);
        let version = loop {
            let list = in_time(api.list(&page))
                .await
                .map_err(|error| End::Broke(failure(error, "list", &full_name)))?;
            objects.extend(list.items.into_iter().filter_map(|object| self.wanted(object, &asked)));
            match list.metadata.continue_ {
                Some(token) if !token.is_empty() => page = page.continue_token(&token),
                _ => break list.metadata.resource_version.unwrap_or_default(),
            }
        };
        self.tell(News::Listed { asked: asked.clone(), objects }).await?;
        self.failed = None;
        Ok(Listed { api, resource: full_name, version, asked })
    }

    async fn resource(&self) -> Result<ApiResource, Failure> {
        let Place { api_version, kind, .. } = &self.place;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind_of = GroupVersionKind::gvk(group, version, kind);
        let (resource, able) =
            in_time(discovery::pinned_kind(&self.client, &kind_of)).await.map_err(undiscovered)?;
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
        let Listed { api, resource, mut version, asked } = listed;
        let params = WatchParams::default();
        loop {
            let began = Instant::now();
            let events = match in_time(api.watch(&params, &version)).await {
                Ok(events) => events,
                Err(error) => return End::Broke(failure(error, "watch", &resource)),
            };
            let mut events = pin!(events);
            loop {
                let event = tokio::select! {
                    changed = self.names.changed() => {
                        if changed.is_err() {
                            return End::Unheard;
                        }
                        let known = self.names.borrow_and_update().is_subset(&asked);
                        if known { continue } else { return End::Asked }
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
                if let Some(seen) = object.resource_version() {
                    version = seen;
                }
                if let Some((name, object)) = self.wanted(object, &asked)
                    && let Err(end) = self.tell(News::Changed(name, (!gone).then_some(object))).await
                {
                    return end;
                }
            }
        }
    }

    /// Name and contents of an object that somebody refers to.
    fn wanted(&self, mut object: DynamicObject, asked: &BTreeSet<String>) -> Option<(String, Value)> {
        let name = object.metadata.name.clone().filter(|name| asked.contains(name))?;
        // Objects of a list may leave these out.
        let (api_version, kind) = (self.place.api_version.clone(), self.place.kind.clone());
        object.types = Some(TypeMeta { api_version, kind });
        object.metadata.managed_fields = None;
        Some((name, serde_json::to_value(object).ok()?))
    }

    async fn tell_failure(&mut self, failure: Failure) -> Result<(), End> {
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
