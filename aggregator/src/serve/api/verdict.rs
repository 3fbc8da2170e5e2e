//! `/v1alpha1/verdict`: whether a revision is where it should be, whatever gates there are.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Map, Value};
use statusbridge_api::PackageRef;
use statusbridge_api::common::{Amount, ClusterSet, Reporting};
use statusbridge_api::rollout_gate::Require;
use statusbridge_core::reconcile::revision_verdict::{RevisionQuestion, RevisionState};
use statusbridge_serving::authorize::Guard;

use super::failure::Failure;
use super::params::Params;
use super::{Api, Body};

/// Longest body of a request: ten thousand names.
const LONGEST_BODY: usize = 512 << 10;
/// Age that evidence may have where nothing else is said: as in a FleetPackage.
const STALE_AFTER: &str = "3m";

/// What a question may say.
pub(super) const PARAMS: [&str; 13] = [
    "source",
    "namespace",
    "package",
    "revision",
    "clusters",
    "selector",
    "reporting",
    "require",
    "minHealthy",
    "maxFailures",
    "minSuccessTime",
    "staleAfter",
    "hubNamespace",
];

/// Answers a request for a verdict.
pub(super) async fn answer(
    api: &Arc<Api>,
    guard: Option<&Arc<Guard>>,
    request: Request<Incoming>,
    mut params: Params,
) -> Result<Response<Body>, Failure> {
    if ![Method::GET, Method::HEAD, Method::POST].contains(request.method()) {
        return Err(Failure::not_allowed("GET, HEAD, POST"));
    }
    let (head, body) = request.into_parts();
    let request = Request::from_parts(head, ());
    // Nobody has a body read who may not ask.
    let asker = params.get("hubNamespace").filter(|namespace| !namespace.is_empty());
    api.admit(guard, &request, asker).await?;
    if request.method() == Method::POST {
        let _place = api.place_of_body(&request)?;
        add_body(&mut params, &super::body(body, LONGEST_BODY).await?)?;
    }
    let question = read(&params)?;
    api.speaks()?;
    let verdict = api.ask(&request, move |world| world.revision(&question)).await?;
    let status = match verdict.state {
        RevisionState::Open => StatusCode::OK,
        RevisionState::Closed => StatusCode::CONFLICT,
        RevisionState::Unknown => StatusCode::SERVICE_UNAVAILABLE,
        RevisionState::Invalid => StatusCode::BAD_REQUEST,
        RevisionState::Forbidden => StatusCode::FORBIDDEN,
    };
    let mut response = super::json(status, &verdict);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    Ok(response)
}

/// Takes parameters from a JSON object, or from `metadata` in one, which is where Flagger's webhooks have them.
fn add_body(params: &mut Params, body: &[u8]) -> Result<(), Failure> {
    if body.is_empty() {
        return Ok(());
    }
    let bad = |what: String| Failure::bad(format!("the body must be a JSON object of parameters: {what}"));
    let all: Map<String, Value> = serde_json::from_slice(body).map_err(|error| bad(error.to_string()))?;
    let metadata =
        all.get("metadata").map(Map::deserialize).transpose().map_err(|error| bad(error.to_string()))?;
    for (name, value) in metadata.unwrap_or(all) {
        let text = |value: &Value| match value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            other => Err(bad(format!("{name} is {other}"))),
        };
        let value = match &value {
            Value::Array(values) => values.iter().map(text).collect::<Result<Vec<_>, _>>()?.join(","),
            value => text(value)?,
        };
        if name == "hubNamespace" {
            return Err(bad("hubNamespace stands in the query alone".to_owned()));
        }
        params.insert(&name, value, &PARAMS)?;
    }
    Ok(())
}

fn read(params: &Params) -> Result<RevisionQuestion, Failure> {
    let owned = |name: &str| params.get(name).map(str::to_owned);
    let amount = |name: &str| params.get(name).map(Amount::from);
    let require = match params.get("require") {
        None | Some("Healthy") => Require::Healthy,
        Some("Applied") => Require::Applied,
        Some(_) => return Err(Failure::bad("require must be Healthy or Applied")),
    };
    Ok(RevisionQuestion {
        asker: owned("hubNamespace").unwrap_or_default(),
        package: PackageRef {
            source: params.need("source")?.to_owned(),
            namespace: owned("namespace").filter(|namespace| !namespace.is_empty()),
            name: params.need("package")?.to_owned(),
        },
        revision: params.need("revision")?.to_owned(),
        clusters: clusters(params)?,
        require,
        min_healthy: amount("minHealthy"),
        max_failures: amount("maxFailures"),
        min_success_time: owned("minSuccessTime"),
        stale_after: owned("staleAfter").unwrap_or_else(|| STALE_AFTER.to_owned()),
    })
}

fn clusters(params: &Params) -> Result<ClusterSet, Failure> {
    match (params.get("clusters"), params.get("selector"), params.get("reporting")) {
        (Some(names), None, None) => {
            let names = names.split(',').map(|name| name.trim().to_owned()).collect();
            Ok(ClusterSet::named(names))
        }
        (None, Some(selector), None) => {
            let selector = selector.parse().map_err(|error| Failure::bad(format!("selector: {error}")))?;
            Ok(ClusterSet { selector: Some(selector), ..ClusterSet::default() })
        }
        (None, None, Some(_)) => {
            let least = params.parse::<u32>("reporting", "a number of clusters, at least 1")?;
            let min_clusters = least.filter(|least| *least > 0).ok_or_else(|| {
                Failure::bad(
                    "reporting must be a number of clusters, at least 1: of so many at least must be heard",
                )
            })?;
            let reporting = Some(Reporting { min_clusters: min_clusters.into() });
            Ok(ClusterSet { reporting, ..ClusterSet::default() })
        }
        _ => Err(Failure::bad(
            "exactly one of clusters (names with commas between), selector (labels of ClusterProfiles) and reporting \
             (how many clusters must be heard of) must be given",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn of(query: &str) -> Result<RevisionQuestion, Failure> {
        Params::read(Some(query), &PARAMS).and_then(|params| read(&params))
    }

    #[test]
    fn a_question_is_read_from_a_query_and_from_a_body_alike() {
        let query = "source=flux&namespace=ns&package=p&revision=main%40sha1%3Aab&clusters=a,b&maxFailures=1\
                     &minHealthy=50%25&minSuccessTime=10m&require=Applied&hubNamespace=team";
        let question = of(query).unwrap();
        assert_eq!(question.revision, "main@sha1:ab");
        assert_eq!(
            (question.max_failures.clone(), question.min_healthy.clone()),
            (Some(Amount::Count(1)), Some(Amount::Percent("50%".into())))
        );
        assert_eq!(
            (question.asker.as_str(), question.stale_after.as_str(), question.require),
            ("team", "3m", Require::Applied)
        );
        let told = json!({
            "namespace": "ns", "package": "p", "revision": "main@sha1:ab", "clusters": ["a", "b"], "maxFailures": 1,
            "minHealthy": "50%", "minSuccessTime": "10m", "require": "Applied",
        });
        for body in [told.clone(), json!({"name": "podinfo", "phase": "Progressing", "metadata": told})] {
            let mut params = Params::read(Some("source=flux&hubNamespace=team"), &PARAMS).unwrap();
            add_body(&mut params, body.to_string().as_bytes()).unwrap();
            assert_eq!(read(&params), Ok(question.clone()), "{body}");
        }
    }

    #[rstest]
    #[case::no_source("package=p&revision=r&clusters=a", "source is missing")]
    #[case::no_revision("source=s&package=p&clusters=a&revision=", "revision is missing")]
    #[case::no_clusters("source=s&package=p&revision=r", "exactly one of clusters")]
    #[case::two_choices("source=s&package=p&revision=r&clusters=a&reporting=1", "exactly one of clusters")]
    #[case::nobody("source=s&package=p&revision=r&reporting=0", "reporting must be a number")]
    #[case::bad_selector("source=s&package=p&revision=r&selector=a%20in%20(b", "selector: ")]
    #[case::bad_require("source=s&package=p&revision=r&clusters=a&require=Ready", "require must be")]
    fn what_is_missing_is_named(#[case] query: &str, #[case] message: &str) {
        let failure = of(query).unwrap_err();
        assert!(format!("{failure:?}").contains(message), "{failure:?}");
        assert_eq!(failure.status, StatusCode::BAD_REQUEST);
    }

    #[rstest]
    #[case::no_json("{")]
    #[case::no_object("[]")]
    #[case::no_parameter(r#"{"phase": "x"}"#)]
    #[case::no_text(r#"{"source": {"a": 1}}"#)]
    #[case::who_asks_is_known_before(r#"{"hubNamespace": "team"}"#)]
    #[case::bad_metadata(r#"{"metadata": 1}"#)]
    #[case::twice(r#"{"source": "t"}"#)]
    fn a_body_that_makes_no_sense_is_refused(#[case] body: &str) {
        let mut params = Params::read(Some("source=s"), &PARAMS).unwrap();
        assert!(add_body(&mut params, body.as_bytes()).is_err());
    }
}
