//! Finds ClusterProfiles at whatever version the hub prefers, lists and watches them, and says when
//! it cannot.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use kube::api::{Api, ApiResource, DynamicObject};
use kube::error::DiscoveryError;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, discovery};
use statusbridge_core::reconcile::profiles::{GROUP, KIND, News, Settings};

use crate::hub::write::{HubError, in_time};

/// Time until it is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Seconds after which a watch is begun anew, so that one that has died unnoticed is found out.
const WATCH: u32 = 60;
/// Profiles carry what it takes to reach a cluster: a page of them is not small.
const PAGE: u32 = 100;

enum Step {
    Look,
    Follow(BoxStream<'static, watcher::Result<Event<DynamicObject>>>),
    Rest,
}

/// Everything there is to be heard, for ever.
pub fn watch(client: Client, settings: &Settings) -> BoxStream<'static, News> {
    let namespace = settings.namespace.clone();
    stream::unfold(Step::Look, move |mut step| {
        let (client, namespace) = (client.clone(), namespace.clone());
        async move {
            loop {
                step = match step {
                    Step::Look => match find(&client).await {
                        Ok(Some(resource)) => Step::Follow(follow(client.clone(), &resource, &namespace)),
                        Ok(None) => return Some((News::NotInstalled, Step::Rest)),
                        Err(error) => return Some((News::Broken(error.to_string()), Step::Rest)),
                    },
                    Step::Follow(mut events) => match events.next().await {
                        Some(Ok(event)) => {
                            return Some((crate::hub::event(event).into(), Step::Follow(events)));
                        }
                        // A watch that goes on after an error says nothing until something changes:
                        // only a new list shows that nothing was missed.
                        Some(Err(error)) => return Some((News::Broken(error.to_string()), Step::Rest)),
                        None => Step::Rest,
                    },
                    Step::Rest => {
                        tokio::time::sleep(RETRY).await;
                        Step::Look
                    }
                }
            }
        }
    })
    .boxed()
}

/// The kind at the version that the hub prefers, if it is served.
async fn find(client: &Client) -> Result<Option<ApiResource>, HubError> {
    match in_time(discovery::group(client, GROUP)).await {
        Ok(group) => Ok(group.recommended_kind(KIND).map(|(resource, _)| resource)),
        Err(HubError::Api(kube::Error::Discovery(DiscoveryError::MissingApiGroup(_)))) => Ok(None),
        Err(error) => Err(error),
    }
}

fn follow(
    client: Client,
    resource: &ApiResource,
    namespace: &Option<String>,
) -> BoxStream<'static, watcher::Result<Event<DynamicObject>>> {
    let api = match namespace {
        Some(namespace) => Api::<DynamicObject>::namespaced_with(client, namespace, resource),
        None => Api::<DynamicObject>::all_with(client, resource),
    };
    watcher(api, watcher::Config::default().page_size(PAGE).timeout(WATCH)).boxed()
}
