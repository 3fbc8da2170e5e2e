//! `/v1alpha1/packages`, `/v1alpha1/gates` and `/v1alpha1/rollouts`: lists, filtered.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use statusbridge_api::conditions::{READY, find};
use statusbridge_contract::Fingerprint;
use statusbridge_serving::authorize::Guard;

use super::failure::Failure;
use super::params::Params;
use super::{Api, Body};

/// The FleetPackages of a namespace, or of all.
pub(super) async fn packages<B>(
    api: &Arc<Api>,
    guard: Option<&Arc<Guard>>,
    request: &Request<B>,
    params: &Params,
) -> Result<Response<Body>, Failure> {
    let ready: Option<bool> = params.parse("ready", "true or false")?;
    let shown = api.picture(guard, request, params.get("namespace")).await?;
    api.speaks()?;
    let picture = shown.picture()?;
    let wanted = picture.packages().filter(|package| {
        let of = package.spec.map(|spec| &spec.package);
        let conditions = package.status.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let is_ready = find(conditions, READY).is_some_and(|it| it.status == "True");
        params.get("source").is_none_or(|source| of.is_some_and(|of| of.source == source))
            && params.get("package").is_none_or(|name| of.is_some_and(|of| of.name == name))
            && ready.is_none_or(|ready| ready == is_ready)
    });
    Ok(super::json(StatusCode::OK, &json!({"items": items(wanted)?})))
}

/// The gates of a namespace, or of all.
pub(super) async fn gates<B>(
    api: &Arc<Api>,
    guard: Option<&Arc<Guard>>,
    request: &Request<B>,
    params: &Params,
) -> Result<Response<Body>, Failure> {
    let open: Option<bool> = params.parse("open", "true or false")?;
    let shown = api.picture(guard, request, params.get("namespace")).await?;
    api.speaks()?;
    let picture = shown.picture()?;
    let revision = params.revision()?;
    let wanted = picture.gates().filter(|gate| {
        let is_of = |name: &str| gate.spec.is_some_and(|spec| spec.fleet_package_ref.name == name);
        params.get("fleetPackage").is_none_or(is_of)
            && open.is_none_or(|open| gate.verdict.is_open() == open)
            && revision
                .is_none_or(|asked| gate.spec.is_some_and(|spec| Fingerprint::of(&spec.revision) == asked))
    });
    Ok(super::json(StatusCode::OK, &json!({"items": items(wanted)?})))
}

/// The FleetRollouts of a namespace, or of all.
pub(super) async fn rollouts<B>(
    api: &Arc<Api>,
    guard: Option<&Arc<Guard>>,
    request: &Request<B>,
    params: &Params,
) -> Result<Response<Body>, Failure> {
    let shown = api.picture(guard, request, params.get("namespace")).await?;
    api.speaks()?;
    let picture = shown.picture()?;
    Ok(super::json(StatusCode::OK, &json!({"items": items(picture.rollouts())?})))
}

fn items(all: impl Iterator<Item = impl serde::Serialize>) -> Result<Vec<Value>, Failure> {
    all.map(serde_json::to_value).collect::<Result<_, _>>().map_err(|error| Failure::broken(&error))
}
