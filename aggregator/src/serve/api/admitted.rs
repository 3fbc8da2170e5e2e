//! What FleetRollouts have admitted, for those who deliver: `/v1alpha1/rollouts/NAMESPACE/NAME/clusters/CLUSTER`, and the
//! generator plugin of Argo CD's ApplicationSets.
//!
//! ```text
//!   request ──token──> who may? ──record──> row, or rows
//! ```
//!
//! The record alone answers, in every replica, however old evidence is. Flux Operator and Argo CD remove what they made of a row
//! that is no longer in an answer, and leave everything as it is after an error. So wherever there is nothing to hand over, the
//! answer is an error and never an empty list.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::json;
use statusbridge_api::GROUP;
use statusbridge_api::fleet_rollout_slice::{self, AdmittedCluster};
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::object::Key;
use statusbridge_serving::authorize::{Guard, Wanted};
use statusbridge_serving::places::Places;
use statusbridge_serving::response::respond;

use super::failure::Failure;
use super::params::{self, Params};
use super::{BODIES, Body, JSON, OF_CLIENT, busy, whole};
use crate::feed::push::server::bearer;
use crate::gate_cache::{GateCache, NOT_AUTHORIZED};
use crate::hub::admitted::{Admitted, Rows, Unknown};
use crate::serve::cluster_tokens::ClusterTokens;

/// Where Argo CD posts to; what precedes `api` is `baseUrl` of the plugin.
const PLUGIN: &str = "/v1alpha1/applicationset/api/v1/getparams.execute";
/// Longest body of a request: some names.
const LONGEST_BODY: usize = 16 << 10;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    /// What a cluster may run.
    Cluster(Key, String),
    /// What all clusters may run.
    Parameters,
}

impl Question {
    /// What is asked at this path, if anything is.
    pub(crate) fn of(path: &str) -> Option<Self> {
        if path == PLUGIN {
            return Some(Self::Parameters);
        }
        let words: Vec<&str> = path.strip_prefix("/v1alpha1/rollouts/")?.split('/').collect();
        let word = |word: &str| params::decode(word).filter(|word| !word.is_empty());
        match words.as_slice() {
            [namespace, name, "clusters", cluster] => {
                Some(Self::Cluster(Key { namespace: word(namespace)?, name: word(name)? }, word(cluster)?))
            }
            _ => None,
        }
    }
}

/// Answers those who deliver.
pub struct Rollouts {
    admitted: Arc<Admitted>,
    tokens: Arc<ClusterTokens>,
    board: Arc<GateCache>,
    /// For bodies that are read.
    bodies: Places,
    /// For questions about all clusters, until the answer is sent.
    places: Places,
}

/// What Argo CD says. Which ApplicationSet asks changes nothing.
#[derive(Deserialize)]
struct Asked {
    input: Input,
}

#[derive(Deserialize)]
struct Input {
    parameters: Parameters,
}

/// A parameter that is not understood may have been meant to narrow the question.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    namespace: String,
    rollout: String,
}

/// A row, as those who deliver read it.
#[derive(Serialize)]
struct Row<'a> {
    cluster: &'a str,
    revision: &'a str,
    wave: &'a str,
    since: &'a Time,
}

impl<'a> Row<'a> {
    fn of(row: &'a AdmittedCluster) -> Self {
        let AdmittedCluster { cluster_name, revision, wave, since } = row;
        Self { cluster: cluster_name, revision, wave, since }
    }
}

impl Rollouts {
    pub(crate) fn new(
        admitted: Arc<Admitted>,
        tokens: Arc<ClusterTokens>,
        board: Arc<GateCache>,
    ) -> Arc<Self> {
        let (bodies, places) = (Places::new(BODIES), Places::new(OF_CLIENT));
        Arc::new(Self { admitted, tokens, board, bodies, places })
    }

    /// The answer to a request.
    pub(crate) async fn answer(
        &self,
        question: Question,
        guard: Option<&Arc<Guard>>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let answer = match question {
            Question::Cluster(rollout, cluster) => self.cluster(guard, &request, &rollout, &cluster).await,
            Question::Parameters => self.parameters(guard, request).await,
        };
        answer.unwrap_or_else(|failure| whole(failure.respond()))
    }

    async fn cluster<B>(
        &self,
        guard: Option<&Arc<Guard>>,
        request: &Request<B>,
        rollout: &Key,
        cluster: &str,
    ) -> Result<Response<Body>, Failure> {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return Err(Failure::not_allowed("GET, HEAD"));
        }
        Params::read(request.uri().query(), &[])?;
        match bearer(request.headers()).and_then(|token| self.tokens.cluster(token)) {
            Some(own) if own == cluster => {}
            Some(own) => {
                let message =
                    format!("this token is that of cluster {own:?}, which may ask about itself only");
                return Err(Failure::new(StatusCode::FORBIDDEN, "Forbidden", message));
            }
            None => self.admit(guard, request, rollout).await?,
        }
        let rows = self.admitted.by(rollout)?;
        let row = rows.as_ref().and_then(|rows| rows.by_cluster.get(cluster)).ok_or_else(|| {
            let message = format!(
                "cluster {cluster:?} may have nothing yet by a FleetRollout {rollout}: its wave has not come, or there is none \
                 of that name that it is in"
            );
            Failure::new(StatusCode::NOT_FOUND, "NotAdmitted", message)
        })?;
        input(rollout, row, request.headers())
    }

    async fn parameters(
        &self,
        guard: Option<&Arc<Guard>>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        if request.method() != Method::POST {
            return Err(Failure::not_allowed("POST"));
        }
        Params::read(request.uri().query(), &[])?;
        let (head, body) = request.into_parts();
        let request = Request::from_parts(head, ());
        let body = {
            let _place = self.bodies.take(&request).ok_or_else(|| busy(BODIES))?;
            super::body(body, LONGEST_BODY).await?
        };
        let bad = |error: serde_json::Error| {
            Failure::bad(format!("the parameters must be `namespace` and `rollout`, both text: {error}"))
        };
        let Asked { input: Input { parameters } } = serde_json::from_slice(&body).map_err(bad)?;
        let rollout = Key { namespace: parameters.namespace, name: parameters.rollout };
        self.admit(guard, &request, &rollout).await?;
        let rows = self.admitted.by(&rollout)?.ok_or_else(|| {
            let message = format!("there is no FleetRollout {rollout}, or it has admitted no cluster yet");
            Failure::new(StatusCode::NOT_FOUND, "NotAdmitted", message)
        })?;
        let place = self.places.take(&request).ok_or_else(|| busy(OF_CLIENT))?;
        Ok(super::sent(output(&rows), place))
    }

    /// Whether somebody may read a FleetRollout and its record. What those who may not are told is the same whether or not there
    /// is one.
    async fn admit<B>(
        &self,
        guard: Option<&Arc<Guard>>,
        request: &Request<B>,
        Key { namespace, name }: &Key,
    ) -> Result<(), Failure> {
        let Some(guard) = guard else {
            let refused = || Failure::new(StatusCode::FORBIDDEN, "Forbidden", NOT_AUTHORIZED);
            return if self.board.hides_gates() { Err(refused()) } else { Ok(()) };
        };
        let rollout = Wanted::Object { group: GROUP, resource: "fleetrollouts", namespace, name };
        guard.admit(request, rollout).await?;
        let (resource, namespace) = (fleet_rollout_slice::PLURAL, Some(namespace.as_str()));
        guard.admit(request, Wanted::List { group: GROUP, resource, namespace }).await?;
        Ok(())
    }
}

impl From<Unknown> for Failure {
    fn from(unknown: Unknown) -> Self {
        let status = match unknown {
            Unknown::Unread => StatusCode::SERVICE_UNAVAILABLE,
            Unknown::Unreadable => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, "RecordUnavailable", unknown.to_string())
    }
}

/// All rows of a record, as Argo CD reads them.
fn output(rows: &Rows) -> Bytes {
    rows.text(|rows: &BTreeMap<String, AdmittedCluster>| {
        let rows: Vec<Row<'_>> = rows.values().map(Row::of).collect();
        json!({"output": {"parameters": rows}}).to_string().into()
    })
}

/// A row, as Flux Operator reads it; nothing but its mark for those who have it already.
fn input(rollout: &Key, row: &AdmittedCluster, headers: &HeaderMap) -> Result<Response<Body>, Failure> {
    #[derive(Serialize)]
    struct Input<'a> {
        id: String,
        #[serde(flatten)]
        row: Row<'a>,
    }
    // The same for this cluster and rollout whatever the revision, and another one for any other.
    let id = Fingerprint::of(&format!("input {rollout}/{}", row.cluster_name)).to_string();
    let body = serde_json::to_string(&json!({"inputs": [Input { id, row: Row::of(row) }]}));
    let body = body.map_err(|error| Failure::broken(&error))?;
    let mark = format!("\"{}\"", Fingerprint::of(&body));
    let mut response = match has(headers, &mark) {
        true => respond(StatusCode::NOT_MODIFIED, JSON, Bytes::new()),
        false => respond(StatusCode::OK, JSON, body),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    // Thousands ask, each once a minute: none keeps a connection from one question to the next.
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if let Ok(mark) = HeaderValue::from_str(&mark) {
        headers.insert(header::ETAG, mark);
    }
    Ok(whole(response))
}

/// Whether a request says that its sender has what bears this mark.
fn has(headers: &HeaderMap, mark: &str) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known) == mark
    })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    fn row(cluster: &str, revision: &str) -> AdmittedCluster {
        let since: Time = serde_json::from_value(json!("2026-05-04T10:00:00Z")).unwrap();
        AdmittedCluster {
            cluster_name: cluster.into(),
            revision: revision.into(),
            wave: "canary".into(),
            since,
        }
    }

    fn key(name: &str) -> Key {
        Key { namespace: "fleet".into(), name: name.into() }
    }

    fn asked(revision: &str, if_none_match: &[&str]) -> Response<Body> {
        let mut headers = HeaderMap::new();
        for value in if_none_match {
            headers.append(header::IF_NONE_MATCH, value.parse().unwrap());
        }
        input(&key("payments"), &row("eu-1", revision), &headers).unwrap()
    }

    async fn text(response: Response<Body>) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
    }

    #[rstest]
    #[case("/v1alpha1/rollouts/fleet/payments/clusters/eu-1", Some(Question::Cluster(key("payments"), "eu-1".into())))]
    #[case("/v1alpha1/rollouts/fleet/payments/clusters/a%2Fb", Some(Question::Cluster(key("payments"), "a/b".into())))]
    #[case("/v1alpha1/rollouts/fleet/payments/clusters/", None)]
    #[case("/v1alpha1/rollouts/fleet/payments/clusters/%ff", None)]
    #[case("/v1alpha1/rollouts/fleet/payments/clusters/a/b", None)]
    #[case("/v1alpha1/rollouts//payments/clusters/a", None)]
    #[case("/v1alpha1/rollouts/fleet/payments", None)]
    #[case("/v1alpha1/applicationset/api/v1/getparams.execute", Some(Question::Parameters))]
    #[case("/v1alpha1/applicationset/api/v1/getparams.execute/", None)]
    fn a_path_is_a_question_or_nothing(#[case] path: &str, #[case] question: Option<Question>) {
        assert_eq!(Question::of(path), question);
    }

    /// docs/api/v1/resourcesetinputprovider.md of Flux Operator, and what its controller refuses.
    #[tokio::test]
    async fn flux_operator_reads_one_input_with_an_id_that_stays() {
        let read = async |revision: &str| -> Value {
            serde_json::from_str(&text(asked(revision, &[])).await).unwrap()
        };
        let (one, two) = (read("r1").await, read("r2").await);
        let inputs = one["inputs"].as_array().unwrap();
        let id = inputs[0]["id"].as_str().unwrap();
        assert_eq!(
            *inputs,
            [
                json!({"id": id, "cluster": "eu-1", "revision": "r1", "wave": "canary", "since": "2026-05-04T10:00:00Z"})
            ]
        );
        assert_eq!(
            (two["inputs"][0]["id"].as_str(), &two["inputs"][0]["revision"]),
            (Some(id), &json!("r2"))
        );
    }

    #[tokio::test]
    async fn who_has_the_answer_gets_its_mark_only() {
        let mark = asked("r1", &[]).headers()[header::ETAG].to_str().unwrap().to_owned();
        let weak = format!("\"x\", W/{mark}");
        for known in [&[mark.as_str()][..], &[weak.as_str()], &["\"x\"", mark.as_str()], &["*"]] {
            let answer = asked("r1", known);
            assert_eq!(
                (answer.status(), answer.headers()[header::ETAG].to_str().unwrap()),
                (StatusCode::NOT_MODIFIED, &*mark)
            );
            assert_eq!(text(answer).await, "", "{known:?}");
        }
        assert_eq!(asked("r2", &[&mark]).status(), StatusCode::OK);
        for other in ["x", "\"\"", "", &mark[1..]] {
            assert_eq!(asked("r1", &[other]).status(), StatusCode::OK, "{other}");
        }
    }

    #[rstest]
    #[case(Unknown::Unread, StatusCode::SERVICE_UNAVAILABLE, Some("1"))]
    #[case(Unknown::Unreadable, StatusCode::INTERNAL_SERVER_ERROR, None)]
    fn what_is_not_known_is_an_error(
        #[case] unknown: Unknown,
        #[case] status: StatusCode,
        #[case] retry_after: Option<&str>,
    ) {
        let answer = Failure::from(unknown).respond();
        let found = answer.headers().get(header::RETRY_AFTER).map(|it| it.to_str().unwrap());
        assert_eq!((answer.status(), found), (status, retry_after));
    }

    #[test]
    fn argo_cd_reads_every_row() {
        let rows = [row("eu-2", "r1"), row("eu-1", "r2")].map(|row| (row.cluster_name.clone(), row));
        let rows = Rows::new(rows.into());
        let output: Value = serde_json::from_slice(&output(&rows)).unwrap();
        let parameters = |cluster: &str, revision: &str| json!({"cluster": cluster, "revision": revision, "wave": "canary", "since": "2026-05-04T10:00:00Z"});
        assert_eq!(
            output,
            json!({"output": {"parameters": [parameters("eu-1", "r2"), parameters("eu-2", "r1")]}})
        );
    }

    #[rstest]
    #[case(json!({"applicationSetName": "x", "input": {"parameters": {"namespace": "a", "rollout": "b"}}}), true)]
    #[case(json!({"input": {"parameters": {"namespace": "a"}}}), false)]
    #[case(json!({"input": {"parameters": {"namespace": "a", "rollout": ["b"]}}}), false)]
    #[case(json!({"input": {"parameters": {"namespace": "a", "rollout": "b", "cluster": "c"}}}), false)]
    #[case(json!({"namespace": "a", "rollout": "b"}), false)]
    fn what_is_asked_is_understood_or_refused(#[case] body: Value, #[case] is_understood: bool) {
        assert_eq!(serde_json::from_value::<Asked>(body).is_ok(), is_understood);
    }
}
