//! The hub's API server: how it is reached, and what time it is there.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Args;
use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll, select_all};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use serde_json::{Value, json};
use statusbridge_aggregator::clock;
use statusbridge_aggregator::hub::write::{self, HubError, Written, in_time};
use statusbridge_core::reconcile::calls::CALL_TIMEOUT;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::{Kind, Version};
use statusbridge_core::time::Seconds;
use statusbridge_serving::kubeconfig;

use crate::target::name;

/// How to reach the hub, for all commands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of all commands")]
pub(crate) struct Access {
    /// Kubeconfig of the hub [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, global = true, env = "STATUSBRIDGE_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long, global = true, env = "STATUSBRIDGE_CONTEXT", value_name = "NAME")]
    context: Option<String>,
    /// Namespace in the hub [default: that of the context or of the pod]
    #[arg(long, short, global = true, value_name = "NAME", value_parser = name)]
    namespace: Option<String>,
}

/// The hub, as one command sees it.
#[derive(Clone)]
pub(crate) struct Hub {
    pub(crate) client: Client,
    /// The namespace that is meant.
    pub(crate) namespace: String,
}

impl Access {
    /// The namespace that the command line names.
    pub(crate) fn named_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// A client of the hub.
    ///
    /// # Errors
    /// When there is no kubeconfig, or it cannot be used.
    pub(crate) async fn connect(&self) -> Result<Hub> {
        let mut config = kubeconfig::find(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        config.connect_timeout = Some(Duration::from_secs(5));
        // A watch gets a bookmark about once a minute; one that is silent for longer is dead.
        config.read_timeout = Some(Duration::from_secs(150));
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Ok(Hub { client: Client::try_from(config).context("client of the hub")?, namespace })
    }
}

/// When a server answered, by its own clock; by ours, where it does not say.
pub(crate) fn time(headers: &HeaderMap) -> Seconds {
    clock::told(headers).unwrap_or_else(clock::now)
}

/// What the API server answered.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    /// When it did so, by its own clock.
    pub(crate) now: Seconds,
}

/// Objects of a page of a list: slices are large.
const PAGE: u32 = 50;

/// Who changes specs.
const FIELD_MANAGER: &str = "statusbridge";

/// What lists and watches say.
pub(crate) type Events = SelectAll<EventsOfKind>;
type EventsOfKind = BoxStream<'static, (Kind, watcher::Result<watcher::Event<LazyObject>>)>;

impl Hub {
    /// Lists objects of these kinds in a namespace, or in all, and goes on with what changes.
    pub(crate) fn events(&self, kinds: &[Kind], namespace: Option<&str>) -> Events {
        select_all(kinds.iter().map(|kind| self.events_of(*kind, namespace, watcher::Config::default())))
    }

    /// Lists those objects of a kind that `only` selects, and goes on with what changes.
    pub(crate) fn events_of(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        only: watcher::Config,
    ) -> EventsOfKind {
        let api: Api<LazyObject> = match namespace {
            Some(namespace) => write::within(&self.client, kind, namespace),
            None => write::everywhere(&self.client, kind),
        };
        let events = watcher(api, only.page_size(PAGE)).default_backoff();
        events.map(move |event| (kind, event)).boxed()
    }

    /// Changes the object of which this is the version, and no other; one that has changed meanwhile stays as it is.
    /// `patch` is a merge patch.
    ///
    /// # Errors
    /// When the API server refuses or does not answer.
    pub(crate) async fn patch(
        &self,
        kind: Kind,
        version: &Version,
        mut patch: Value,
        dry_run: bool,
    ) -> Result<Written, HubError> {
        let Version { key, uid, resource_version } = version;
        if let Some(fields) = patch.as_object_mut() {
            let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("uid".to_owned(), json!(uid));
                metadata.insert("resourceVersion".to_owned(), json!(resource_version));
            }
        }
        let params =
            PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let objects = write::within(&self.client, kind, &key.namespace);
        let answer = in_time(objects.patch(&key.name, &params, &Patch::Merge(&patch))).await;
        write::written(answer.map(Written::done))
    }

    /// Asks for a path.
    ///
    /// # Errors
    /// In words, when there is no answer.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, String> {
        let asked = async {
            let request = Request::get(path).body(kube::client::Body::from(Vec::new()));
            let request = request.map_err(|error| error.to_string())?;
            let answer = self.client.send(request).await.map_err(|error| error.to_string())?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            Ok(Answer { status: head.status, body, now: time(&head.headers) })
        };
        let late = |_| Err(format!("no answer within {} s", CALL_TIMEOUT.as_secs()));
        tokio::time::timeout(CALL_TIMEOUT, asked).await.unwrap_or_else(late)
    }

    /// The present, by the API server's clock: that of this machine may be wrong, and an old verdict would look like a
    /// new one.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn now(&self) -> Result<Seconds> {
        let answer = self.get("/version").await.map_err(anyhow::Error::msg);
        Ok(answer.context("asking the hub's API server for the time")?.now)
    }
}
