//! `/v1alpha1/packages/NAMESPACE/NAME` and `/v1alpha1/rollouts/NAMESPACE/NAME`, cluster by cluster, and
//! `/v1alpha1/clusters/NAME`, package by package.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use serde_json::json;
use statusbridge_core::reconcile::detail::Filter;
use statusbridge_core::reconcile::object::Key;
use statusbridge_core::reconcile::rollouts::{MembersOf, Unseen};
use statusbridge_serving::authorize::Guard;

use super::failure::Failure;
use super::params::Params;
use super::{Api, Body};

/// Clusters of a package or wave that are told of where nothing else is asked for, and at most.
const CLUSTERS: (usize, usize) = (100, 1_000);

fn limit(params: &Params) -> Result<usize, Failure> {
    let (usual, most) = CLUSTERS;
    let limit = params.parse::<usize>("limit", &format!("a number up to {most}"))?;
    Ok(limit.unwrap_or(usual).min(most))
}

/// One FleetPackage, cluster by cluster.
pub(super) async fn package<B>(
    api: &Arc<Api>,
    guard: Option<&Arc<Guard>>,
    request: &Request<B>,
    key: Key,
    params: &Params,
) -> Result<Response<Body>, Failure> {
    let limit = limit(params)?;
    let owned = |name: &str| params.get(name).map(str::to_owned);
    let filter = Filter { state: owned("state"), cluster: owned("cluster"), limit };
    api.admit(guard, request, Some(&key.namespace)).await?;
    api.speaks()?;
    let message = format!("there is no FleetPackage {key}");
    let told = api
        .ask(request, move |world| world.package_in_detail(&key, &filter).map(|it| serde_json::to_vec(&it)));
    let told = told.await?.ok_or_else(|| Failure::not_found(message))?;
    told.map(|told| super::json_text(StatusCode::OK, told)).map_err(|error| Failure::broken(&error))
}

/// One FleetRollout, and the clusters of the wave that is asked for.
pub(super) async fn rollout<B>(
    api: &Arc<Api>,
    guard: Option<&Arc<Guard>>,
    request: &Request<B>,
    key: Key,
    params: &Params,
) -> Result<Response<Body>, Failure> {
    let limit = limit(params)?;
    let members = params.get("wave").map(|wave| MembersOf { wave: wave.to_owned(), limit });
    match &members {
        Some(_) => api.admit_to_record(guard, request, &key.namespace).await?,
        None => api.admit(guard, request, Some(&key.namespace)).await?,
    }
    api.speaks()?;
    let told = api.ask(request, move |world| {
        world.rollout_in_detail(&key, members.as_ref()).map(|it| serde_json::to_vec(&it))
    });
    match told.await? {
        Ok(told) => {
            told.map(|told| super::json_text(StatusCode::OK, told)).map_err(|error| Failure::broken(&error))
        }
        Err(why @ Unseen::NotFound(_)) => Err(Failure::not_found(why.to_string())),
        Err(why @ Unseen::Unread) => Err(Failure::silent(why.to_string())),
    }
}

/// One cluster, package by package.
pub(super) async fn cluster<B>(
    api: &Arc<Api>,
    guard: Option<&Arc<Guard>>,
    request: &Request<B>,
    cluster: String,
    params: &Params,
) -> Result<Response<Body>, Failure> {
    let shown = api.picture(guard, request, params.get("namespace")).await?;
    api.speaks()?;
    let (keys, labels) = {
        let picture = shown.picture()?;
        (picture.packages_in(&cluster), picture.labels_of(&cluster).cloned())
    };
    let missing = || Failure::not_found(format!("no FleetPackage is meant to be in cluster {cluster:?}"));
    let labels = labels.filter(|_| !keys.is_empty()).ok_or_else(missing)?;
    let name = cluster.clone();
    let packages = api.ask(request, move |world| world.packages_in_cluster(&keys, &cluster)).await?;
    Ok(super::json(StatusCode::OK, &json!({"name": name, "labels": labels, "packages": packages})))
}
