//! `/v1alpha1/…`: what the page and other programs read, as JSON. Nothing here changes anything.
//!
//! ```text
//!   request ──params──> who may? ──desk──> World ──> answer
//!                                  └─pictures──> fleet, and what changes in it
//! ```

pub(crate) mod admitted;
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
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::Incoming;
use statusbridge_api::{GROUP, fleet_package_slice, fleet_rollout_slice};
use statusbridge_core::reconcile::judge::World;
use statusbridge_core::reconcile::object::Key;
use statusbridge_serving::authorize::{Guard, Wanted};
use statusbridge_serving::places::{Place, Places};
use statusbridge_serving::response::respond;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::gate_cache::{GateCache, NOT_AUTHORIZED};
use crate::serve::desk::{Desk, PATIENCE, Unanswered};
use failure::Failure;
use params::Params;
use pictures::{Pictures, Shown};

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
    /// FleetRollouts.
    Rollouts,
    /// One FleetRollout, and the clusters of one of its waves.
    Rollout {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
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
            ["rollouts"] => Some(Self::Rollouts),
            ["rollouts", namespace, name] => {
                Some(Self::Rollout { namespace: word(namespace)?, name: word(name)? })
            }
            ["clusters", cluster] => Some(Self::Cluster(word(cluster)?)),
            ["verdict"] => Some(Self::Verdict),
            _ => None,
        }
    }

    /// The parameters that it takes.
    const fn params(&self) -> &'static [&'static str] {
        match self {
            Self::OpenApi => &[],
            Self::Fleet | Self::Cluster(_) | Self::Rollouts => &["namespace"],
            Self::Changes => &["namespace", "cursor"],
            Self::Packages => &["namespace", "source", "package", "ready"],
            Self::Package { .. } => &["state", "cluster", "limit"],
            Self::Gates => &["namespace", "fleetPackage", "revision", "open"],
            Self::Rollout { .. } => &["wave", "limit"],
            Self::Verdict => &verdict::PARAMS,
        }
    }
}

/// Answers requests for the API.
pub struct Api {
    desk: Arc<Desk>,
    board: Arc<GateCache>,
    pictures: Arc<Pictures>,
    /// Turns to ask the loop, so that pictures of the fleet find a place there whoever asks how much.
    questions: Semaphore,
    /// For bodies that are read.
    bodies: Places,
    /// For questions that wait or are answered, and for fleets that are sent: somebody who asks for much, or reads nothing,
    /// takes nobody's turn and little memory.
    places: Places,
}

/// Questions to the loop at the same time: fewer than find a place there.
const QUESTIONS: usize = 2;
/// Bodies of one client that are read at the same time.
const BODIES: usize = 2;
/// Questions and whole fleets that one client may have under way.
const OF_CLIENT: usize = 16;

impl Api {
    /// The API over what the loop behind this desk knows, as long as the board says that it speaks for the hub.
    pub fn new(desk: Arc<Desk>, board: Arc<GateCache>) -> Arc<Self> {
        let (questions, pictures) = (Semaphore::new(QUESTIONS), Pictures::new(desk.clone()));
        let (bodies, places) = (Places::new(BODIES), Places::new(OF_CLIENT));
        Arc::new(Self { desk, board, pictures, questions, bodies, places })
    }

    /// The answer to a request.
    pub async fn answer(
        self: &Arc<Self>,
        endpoint: Endpoint,
        guard: Option<&Arc<Guard>>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let answer = self.answer_or_fail(endpoint, guard, request).await;
        answer.unwrap_or_else(|failure| whole(failure.respond()))
    }

    async fn answer_or_fail(
        self: &Arc<Self>,
        endpoint: Endpoint,
        guard: Option<&Arc<Guard>>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        if endpoint != Endpoint::Verdict && !is_read {
            return Err(Failure::not_allowed("GET, HEAD"));
        }
        let params = Params::read(request.uri().query(), endpoint.params())?;
        match endpoint {
            Endpoint::OpenApi => Ok(whole(respond(StatusCode::OK, JSON, OPENAPI))),
            Endpoint::Fleet => fleet::all(self, guard, &request, &params).await,
            Endpoint::Changes => fleet::changes(self, guard, request, &params).await,
            Endpoint::Packages => lists::packages(self, guard, &request, &params).await,
            Endpoint::Gates => lists::gates(self, guard, &request, &params).await,
            Endpoint::Package { namespace, name } => {
                details::package(self, guard, &request, Key { namespace, name }, &params).await
            }
            Endpoint::Rollouts => lists::rollouts(self, guard, &request, &params).await,
            Endpoint::Rollout { namespace, name } => {
                details::rollout(self, guard, &request, Key { namespace, name }, &params).await
            }
            Endpoint::Cluster(cluster) => details::cluster(self, guard, &request, cluster, &params).await,
            Endpoint::Verdict => verdict::answer(self, guard, request, params).await,
        }
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
        for resource in ["fleetpackages", "rolloutgates", "fleetrollouts", fleet_package_slice::PLURAL] {
            guard.admit(request, Wanted::List { group: GROUP, resource, namespace }).await?;
        }
        Ok(())
    }

    /// The same, and the record of which clusters may have which revision.
    async fn admit_to_record<B>(
        &self,
        guard: Option<&Arc<Guard>>,
        request: &Request<B>,
        namespace: &str,
    ) -> Result<(), Failure> {
        self.admit(guard, request, Some(namespace)).await?;
        let Some(guard) = guard else { return Ok(()) };
        let resource = fleet_rollout_slice::PLURAL;
        guard.admit(request, Wanted::List { group: GROUP, resource, namespace: Some(namespace) }).await?;
        Ok(())
    }

    /// The picture of a namespace, or of all, for those who may see it.
    async fn picture<B>(
        &self,
        guard: Option<&Arc<Guard>>,
        request: &Request<B>,
        namespace: Option<&str>,
    ) -> Result<Arc<Shown>, Failure> {
        self.admit(guard, request, namespace).await?;
        self.pictures.of(namespace.map(str::to_owned)).await
    }

    /// Nothing is answered by one that does not speak for the hub.
    fn speaks(&self) -> Result<(), Failure> {
        self.silent().map_or(Ok(()), |silent| Err(Failure::silent(silent)))
    }

    /// A place of the client that this request is from.
    fn place<B>(&self, request: &Request<B>) -> Result<Place, Failure> {
        self.places.take(request).ok_or_else(|| busy(OF_CLIENT))
    }

    /// The same for the body of this request.
    fn place_of_body<B>(&self, request: &Request<B>) -> Result<Place, Failure> {
        self.bodies.take(request).ok_or_else(|| busy(BODIES))
    }

    /// What the loop says to a question, when it is its turn.
    async fn ask<B, R: Send + 'static>(
        &self,
        request: &Request<B>,
        question: impl FnOnce(&World<'_>) -> R + Send + 'static,
    ) -> Result<R, Failure> {
        let _place = self.place(request)?;
        let turn = timeout(PATIENCE, self.questions.acquire()).await;
        let _turn = turn.map_err(|_| Unanswered::Busy)?;
        Ok(self.desk.ask(question).await?)
    }

    /// Why nothing can be said at this moment, if so.
    fn silent(&self) -> Option<String> {
        self.board.silent(Instant::now())
    }
}

fn busy(others: usize) -> Failure {
    Failure::silent(format!("{others} other requests of this client are under way"))
}

/// Whether a request names this server by an address or as localhost. A web site that makes its own name mean this address
/// has that name in the header.
pub(crate) fn is_local<B>(request: &Request<B>) -> bool {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|it| it.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok()
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
    match serde_json::to_vec(value) {
        Ok(body) => json_text(status, body),
        Err(error) => whole(Failure::broken(&error).respond()),
    }
}

fn json_text(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = whole(respond(status, JSON, body));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Bytes that are sent at once.
const CHUNK: usize = 64 << 10;

/// An answer that may be long. The reader's place is taken until all of it is sent.
fn sent(body: Bytes, place: Place) -> Response<Body> {
    let chunks = stream::unfold((body, place), |(mut body, place)| async move {
        let chunk = body.split_to(CHUNK.min(body.len()));
        (!chunk.is_empty()).then(|| (Ok(Frame::data(chunk)), (body, place)))
    });
    json_text(StatusCode::OK, Bytes::new()).map(|_| StreamBody::new(chunks).boxed_unsync())
}

/// How long a body may take to come.
const ARRIVAL: Duration = Duration::from_secs(10);

/// The body of a request, of at most `longest` bytes.
async fn body(body: Incoming, longest: usize) -> Result<Bytes, Failure> {
    let body = timeout(ARRIVAL, Limited::new(body, longest).collect()).await;
    let body = body.map_err(|_| Failure::bad(format!("the body took more than {} s", ARRIVAL.as_secs())))?;
    let body = body.map_err(|_| {
        let message = format!("the body has more than {longest} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "TooLarge", message)
    })?;
    Ok(body.to_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use serde_json::Value;

    #[rstest::rstest]
    #[case("127.0.0.1:8090", true)]
    #[case("[::1]:8090", true)]
    #[case("localhost", true)]
    #[case("10.0.0.7", true)]
    #[case("evil.example:8090", false)]
    #[case("127.0.0.1.evil.example", false)]
    #[case("", false)]
    fn a_name_that_anybody_may_give_an_address_is_not_local(#[case] host: &str, #[case] local: bool) {
        assert_eq!(is_local(&Request::builder().header("host", host).body(()).unwrap()), local);
    }

    #[test]
    fn the_description_has_every_endpoint_with_its_parameters() {
        let description: Value = serde_json::from_str(OPENAPI).unwrap();
        let mut described = 0;
        for (path, methods) in description["paths"].as_object().unwrap() {
            let example = path
                .replace("{namespace}", "default")
                .replace("{name}", "payments")
                .replace("{cluster}", "eu-1");
            let params = methods["get"]["parameters"].as_array().cloned().unwrap_or_default();
            let in_query = params.iter().filter(|param| param["in"] == "query");
            let described_params: BTreeSet<&str> =
                in_query.map(|param| param["name"].as_str().unwrap()).collect();
            let taken: BTreeSet<&str> = match Endpoint::of(&example) {
                Some(endpoint) => endpoint.params().iter().copied().collect(),
                None if example.starts_with(gates::PATH) => ["revision"].into(),
                None if admitted::Question::of(&example).is_some() => BTreeSet::new(),
                None => panic!("{path} is not served"),
            };
            assert_eq!(described_params, taken, "{path}");
            described += 1;
        }
        // One of each kind, the gate, and two about rollouts.
        assert_eq!(described, 13);
    }
}
