//! `/v1alpha1/…`: what the page and other programs read, as JSON. Nothing here changes anything.
//!
//! ```text
//!   request ──params──> who may? ──desk──> World ──> answer
//!                                  └─pictures──> fleet, and what changes in it
//! ```

mod details;
mod failure;
mod fleet;
pub mod gates;
mod lists;
mod params;
mod pictures;
mod verdict;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use statusbridge_api::{GROUP, fleet_package_slice};
use statusbridge_serving::authorize::{Guard, Wanted};
use statusbridge_serving::response::respond;

use crate::gate_cache::{GateCache, NOT_AUTHORIZED};
use crate::serve::desk::Desk;
use failure::Failure;
use pictures::Pictures;

/// Body of an answer, which may go on for as long as somebody reads it.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// The description of this API.
    OpenApi,
    /// Everything that the page shows.
    Fleet,
    /// What changes in that.
    Changes,
    /// FleetPackages.
    Packages,
    /// One FleetPackage, cluster by cluster.
    Package {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Gates.
    Gates,
    /// One cluster, package by package.
    Cluster(String),
    /// A verdict on any revision.
    Verdict,
}

impl Endpoint {
    /// What is at this path, if anything is.
    pub fn of(path: &str) -> Option<Self> {
        let words: Vec<&str> = path.strip_prefix("/v1alpha1/")?.split('/').collect();
        let word = |word: &str| params::decode(word).filter(|word| !word.is_empty());
        match words.as_slice() {
            ["openapi.json"] => Some(Self::OpenApi),
            ["fleet"] => Some(Self::Fleet),
            ["fleet", "changes"] => Some(Self::Changes),
            ["packages"] => Some(Self::Packages),
            ["packages", namespace, name] => {
                Some(Self::Package { namespace: word(namespace)?, name: word(name)? })
            }
            ["gates"] => Some(Self::Gates),
            ["clusters", cluster] => Some(Self::Cluster(word(cluster)?)),
            ["verdict"] => Some(Self::Verdict),
            _ => None,
        }
    }
}

/// Answers requests for the API.
pub struct Api {
    desk: Arc<Desk>,
    board: Arc<GateCache>,
    pictures: Arc<Pictures>,
}

impl Api {
    /// The API over what the loop behind this desk knows, as long as the board says that it speaks for the hub.
    pub fn new(desk: Arc<Desk>, board: Arc<GateCache>) -> Arc<Self> {
        Arc::new(Self { pictures: Pictures::new(desk.clone()), desk, board })
    }

    /// The answer to a request.
    pub async fn answer(
        self: &Arc<Self>,
        endpoint: Endpoint,
        guard: Option<&Arc<Guard>>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let method = request.method();
        let is_read = method == Method::GET || method == Method::HEAD;
        let answer = match endpoint {
            Endpoint::Verdict => return verdict::answer(self, guard, request).await,
            _ if !is_read => Err(Failure::not_allowed("GET, HEAD")),
            Endpoint::OpenApi => Ok(whole(respond(StatusCode::OK, JSON, OPENAPI))),
            Endpoint::Fleet => fleet::all(self, guard, &request).await,
            Endpoint::Changes => fleet::changes(self, guard, request).await,
            Endpoint::Packages => lists::packages(self, guard, &request).await,
            Endpoint::Gates => lists::gates(self, guard, &request).await,
            Endpoint::Package { namespace, name } => {
                details::package(self, guard, &request, namespace, name).await
            }
            Endpoint::Cluster(cluster) => details::cluster(self, guard, &request, cluster).await,
        };
        answer.unwrap_or_else(|failure| whole(failure.respond()))
    }

    /// Whether somebody may see all that is in a namespace, or in all of them.
    async fn admit<B>(
        &self,
        guard: Option<&Arc<Guard>>,
        request: &Request<B>,
        namespace: Option<&str>,
    ) -> Result<(), Failure> {
        let Some(guard) = guard else {
            let refused = || Failure::new(StatusCode::FORBIDDEN, "Forbidden", NOT_AUTHORIZED);
            return if self.board.hides_gates() { Err(refused()) } else { Ok(()) };
        };
        for resource in ["fleetpackages", "rolloutgates", fleet_package_slice::PLURAL] {
            guard.admit(request, Wanted::List { group: GROUP, resource, namespace }).await?;
        }
        Ok(())
    }

    /// Why nothing can be said at this moment, if so.
    fn silent(&self) -> Option<String> {
        self.board.silent(Instant::now())
    }
}

/// Content type of what is answered.
const JSON: &str = "application/json";

/// The API's description.
pub const OPENAPI: &str = include_str!("openapi.json");

/// An answer that is made at once.
pub(crate) fn whole(response: Response<Full<Bytes>>) -> Response<Body> {
    response.map(BodyExt::boxed_unsync)
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response<Body> {
    let response = match serde_json::to_vec(value) {
        Ok(body) => respond(status, JSON, body),
        Err(error) => Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "Error", error.to_string()).respond(),
    };
    let mut response = whole(response);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
