//! Writing a status as a whole, only on top of the version that was decided upon.

use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ObjectList, PartialObjectMeta, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use statusbridge_core::reconcile::calls::CALL_TIMEOUT;
use statusbridge_core::reconcile::command::{Answer, Head, Listing, Which};
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::{Key, Kind, Version};
use tracing::warn;

use crate::clock::Timestamp;
use crate::hub::leadership_guard::NotLeading;
use crate::metrics::WriteResult;

/// Under which name the aggregator and the sweeper write.
pub const FIELD_MANAGER: &str = "statusbridge-aggregator";

/// HTTP status codes with which an API server says that it does not take a write as it is: malformed, no right or no admission
/// or no quota, too large, invalid.
const REFUSALS: [u16; 4] = [400, 403, 413, 422];
/// Objects of a page of which only the metadata is read. Whoever writes them may hang 256 KiB of annotations on each.
const HEADS: u32 = 50;
/// Objects of a kind that are listed in a namespace, at most: whoever may make more must not hold up all others by it.
const MOST_HEADS: usize = 5_000;

/// Why a call of the hub's API server failed.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// It answered with an error, or the connection failed.
    #[error("{0}")]
    Api(#[source] kube::Error),
    /// It did not answer in time.
    #[error("no answer from the hub's API server in time")]
    Timeout,
    /// There is too much to read.
    #[error("{0} has more than {MOST_HEADS} {1}s: remove those that are over")]
    TooMany(String, &'static str),
    /// It was not asked, because another replica may lead before it answers.
    #[error("{0}")]
    NotLeading(NotLeading),
}

impl From<kube::Error> for HubError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Service(error) if error.is::<NotLeading>() => Self::NotLeading(NotLeading),
            error => Self::Api(error),
        }
    }
}

/// What became of a write.
#[derive(Debug)]
pub enum Written {
    /// It was accepted; the object as it is now.
    Done(Box<LazyObject>),
    /// The object has changed since it was read: read it again and decide again.
    Conflict,
    /// There is no such object any more.
    Gone,
}

impl Written {
    /// Accepted; the object as it is now.
    pub fn done(object: LazyObject) -> Self {
        Self::Done(Box::new(object))
    }
}

/// What the hub's answer to a write comes to.
pub(crate) const fn result(answer: &Result<Written, HubError>) -> WriteResult {
    match answer {
        Ok(Written::Done(_)) => WriteResult::Done,
        Ok(Written::Conflict) => WriteResult::Conflict,
        Ok(Written::Gone) => WriteResult::Gone,
        Err(HubError::NotLeading(_)) => WriteResult::Fenced,
        Err(_) => WriteResult::Error,
    }
}

/// The same as the reconciler takes it. What failed is logged with what was to be written.
pub(crate) fn answer(what: Kind, key: &Key, answer: Result<Written, HubError>) -> Answer {
    match answer {
        Ok(Written::Done(object)) => Answer::Done(object),
        Ok(Written::Conflict) => Answer::Conflict,
        Ok(Written::Gone) => Answer::Gone,
        Err(HubError::NotLeading(_)) => Answer::NotSent,
        Err(error) => {
            warn!(kind = what.name(), object = %key, %error, "could not be written");
            match error {
                HubError::Api(kube::Error::Api(refusal)) if REFUSALS.contains(&refusal.code) => {
                    Answer::Refused(refusal.message.clone())
                }
                _ => Answer::Unconfirmed,
            }
        }
    }
}

/// All objects of a kind.
pub fn everywhere(client: &Client, kind: Kind) -> Api<LazyObject> {
    Api::all_with(client.clone(), &kind.resource())
}

/// The objects of a kind in a namespace.
pub fn within(client: &Client, kind: Kind, namespace: &str) -> Api<LazyObject> {
    Api::namespaced_with(client.clone(), namespace, &kind.resource())
}

/// Writes a status, or where the object has no room for it, `least`. An object that has changed meanwhile, or is another
/// of the same name, is not touched.
///
/// # Errors
/// When the API server refuses both, or does not answer.
pub async fn status(
    client: &Client,
    kind: Kind,
    version: &Version,
    status: &impl Serialize,
    least: Option<&impl Serialize>,
) -> Result<Written, HubError> {
    let answer = replace(client, kind, version, status).await;
    match (&answer, least) {
        (Err(HubError::Api(kube::Error::Api(refusal))), Some(least)) if is_too_large(refusal) => {
            warn!(object = %version.key, "a gate is closed without details, as its object is full");
            replace(client, kind, version, least).await
        }
        _ => answer,
    }
}

/// By JSON patch: the status is replaced whoever owns which of its fields, and an API server that has no room for an
/// object makes some by leaving out `managedFields`, which it does not for server-side apply.
async fn replace(
    client: &Client,
    kind: Kind,
    version: &Version,
    status: &impl Serialize,
) -> Result<Written, HubError> {
    let set = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let Version { key, uid, resource_version } = version;
    let mut patch = vec![json!({"op": "test", "path": "/metadata/uid", "value": uid})];
    if !resource_version.is_empty() {
        patch.push(set("/metadata/resourceVersion", json!(resource_version)));
    }
    let unusual = kube::Error::SerdeError;
    patch.push(set("/status", serde_json::to_value(status).map_err(unusual)?));
    let patch = Patch::<()>::Json(serde_json::from_value(Value::Array(patch)).map_err(unusual)?);
    let (api, params) = (within(client, kind, &key.namespace), patching());
    let call = api.patch_status(&key.name, &params, &patch);
    match written(in_time(call).await.map(Written::done)) {
        // It is another one of that name.
        Err(HubError::Api(kube::Error::Api(refusal))) if refusal.code == 422 => Ok(Written::Conflict),
        answer => answer,
    }
}

/// How we change objects.
pub(crate) fn patching() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// How we make objects.
pub(crate) fn making() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// Whether an object would become larger than its API server, or etcd behind that, lets it.
fn is_too_large(refusal: &Status) -> bool {
    refusal.code == 413 || refusal.message.contains("too large")
}

/// Removes an object, unless it has changed meanwhile or is another of the same name.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn delete<K>(api: &Api<K>, version: &Version) -> Result<Written, HubError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let Version { key, uid, resource_version } = version.clone();
    let preconditions = Preconditions { uid: Some(uid), resource_version: Some(resource_version) };
    let params = DeleteParams::default().preconditions(preconditions);
    written(in_time(api.delete(&key.name, &params)).await.map(|_| Written::Gone))
}

/// What became of a write that was answered like this.
///
/// # Errors
/// Those of the answer that say neither that the object has changed nor that it is gone.
pub fn written(answer: Result<Written, HubError>) -> Result<Written, HubError> {
    match answer {
        Err(HubError::Api(kube::Error::Api(refusal))) if refusal.code == 409 => Ok(Written::Conflict),
        Err(HubError::Api(kube::Error::Api(refusal))) if refusal.code == 404 => Ok(Written::Gone),
        answer => answer,
    }
}

/// Reads one object; `None` when it is gone.
pub async fn read(client: &Client, kind: Kind, key: &Key) -> Result<Option<LazyObject>, HubError> {
    in_time(within(client, kind, &key.namespace).get_opt(&key.name)).await
}

/// What tells whether objects are known, of all that these listings give.
///
/// # Errors
/// When a page cannot be had.
pub(crate) async fn heads(
    client: &Client,
    namespace: &str,
    listings: &[Listing],
) -> Result<Vec<Head>, HubError> {
    let mut all = Vec::new();
    for Listing { kind, which } in listings {
        let page = match which {
            Which::All => ListParams::default(),
            Which::Named(name) => ListParams::default().fields(&format!("metadata.name={name}")),
            Which::Labelled(label, value) => ListParams::default().labels(&format!("{label}={value}")),
        };
        let api = &within(client, *kind, namespace);
        let list = |page: ListParams| async move { api.list_metadata(&page).await };
        let read = |object: PartialObjectMeta<LazyObject>| {
            let metadata = object.metadata;
            let version = Version {
                key: Key { namespace: namespace.to_owned(), name: metadata.name.unwrap_or_default() },
                uid: metadata.uid.unwrap_or_default(),
                resource_version: metadata.resource_version.unwrap_or_default(),
            };
            Some(Head { kind: *kind, version, generation: metadata.generation.unwrap_or_default() })
        };
        let too_many = || HubError::TooMany(namespace.to_owned(), kind.name());
        all.extend(paged(page.limit(HEADS), list, read, MOST_HEADS).await?.ok_or_else(too_many)?);
    }
    Ok(all)
}

/// Lists objects page by page, and reads each of them.
///
/// # Errors
/// When a page cannot be had.
pub async fn list<K: Clone + DeserializeOwned + Debug, T>(
    api: &Api<K>,
    page: ListParams,
    read: impl Fn(K) -> Option<T>,
) -> Result<Vec<T>, HubError> {
    let all = paged(page, |page| async move { api.list(&page).await }, read, usize::MAX).await?;
    Ok(all.unwrap_or_default())
}

/// `None` where there are more than `most`.
async fn paged<K: Clone, T, F: Future<Output = kube::Result<ObjectList<K>>>>(
    mut page: ListParams,
    call: impl Fn(ListParams) -> F,
    read: impl Fn(K) -> Option<T>,
    most: usize,
) -> Result<Option<Vec<T>>, HubError> {
    let mut all = Vec::new();
    loop {
        let list = in_time(call(page.clone())).await?;
        all.extend(list.items.into_iter().filter_map(&read));
        match list.metadata.continue_ {
            _ if all.len() > most => return Ok(None),
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            _ => return Ok(Some(all)),
        }
    }
}

/// Waits for an answer, but not for ever. The call takes no step after that, not even the one for which a
/// process that was frozen wakes up.
pub async fn in_time<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, HubError> {
    answered(Timestamp::now(), call).await
}

async fn answered<T>(begun: Timestamp, call: impl Future<Output = kube::Result<T>>) -> Result<T, HubError> {
    let mut call = pin!(call);
    let steps = poll_fn(|context| {
        if begun.elapsed() < CALL_TIMEOUT {
            call.as_mut().poll(context).map_err(HubError::from)
        } else {
            Poll::Ready(Err(HubError::Timeout))
        }
    });
    tokio::time::timeout(CALL_TIMEOUT, steps).await.unwrap_or(Err(HubError::Timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_takes_no_step_once_its_time_is_over() {
        let call = |begun| answered(begun, async { Ok(1) });
        assert!(matches!(call(Timestamp::now()).await, Ok(1)));
        assert!(matches!(call(Timestamp::ago(CALL_TIMEOUT)).await, Err(HubError::Timeout)));
    }
}
