//! The hub's API server: how it is reached, and what time it is there.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Args;
use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll, select_all};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use statusbridge_aggregator::clock;
use statusbridge_aggregator::hub::write;
use statusbridge_core::reconcile::command::CALL_TIMEOUT;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::store::Kind;
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
    let date = headers.get(header::DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    date.map_or_else(clock::now, |date| date.timestamp().as_duration().as_secs_f64())
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

/// What lists and watches say.
pub(crate) type Events = SelectAll<BoxStream<'static, (Kind, watcher::Result<watcher::Event<LazyObject>>)>>;

impl Hub {
    /// Lists objects of these kinds in a namespace, or in all, and goes on with what changes.
    pub(crate) fn events(&self, kinds: &[Kind], namespace: Option<&str>) -> Events {
        let of = |kind: Kind| {
            let api: Api<LazyObject> = match namespace {
                Some(namespace) => write::within(&self.client, kind, namespace),
                None => write::everywhere(&self.client, kind),
            };
            let events = watcher(api, watcher::Config::default().page_size(PAGE)).default_backoff();
            events.map(move |event| (kind, event)).boxed()
        };
        select_all(kinds.iter().map(|kind| of(*kind)))
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
