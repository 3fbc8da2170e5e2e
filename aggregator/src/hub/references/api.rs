//! Pages and events of the API server, of which no more than so many bytes are read.

use std::sync::Arc;

use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, Stream, stream};
use kube::api::{ListMeta, ListParams, WatchEvent, WatchParams};
use kube::core::{Request, Status};
use kube::{Client, Error};
use serde::Deserialize;
use statusbridge_core::reconcile::references::Sent;
use tokio::sync::Semaphore;

use crate::hub::write::{HubError, in_time};

/// Longest page and longest event, in bytes. One object has up to 1.5 MiB, of which escapes make 9 MiB of JSON at most.
const LONGEST: u64 = 16 << 20;
/// Objects that are read at once: they come whole, whether somebody refers to them or not, and may be large.
const PAGE: u32 = 8;
/// Pages that all watches together read at once.
const PAGES: usize = 4;

/// The API server, for all watches.
#[derive(Clone)]
pub(super) struct Hub {
    pub(super) client: Client,
    pages: Arc<Semaphore>,
}

/// A part of a list.
#[derive(Deserialize)]
pub(super) struct Page {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    pub(super) items: Option<Vec<Sent>>,
}

impl Hub {
    pub(super) fn new(client: Client) -> Self {
        Self { client, pages: Arc::new(Semaphore::new(PAGES)) }
    }

    /// Reads the page at this token. Objects come one at a time where some together are too long.
    pub(super) async fn page(&self, requests: &Request, token: Option<&str>) -> Result<Page, HubError> {
        for limit in [PAGE, 1] {
            let params = ListParams {
                limit: Some(limit),
                continue_token: token.map(str::to_owned),
                ..ListParams::default()
            };
            let request = requests.list(&params).map_err(Error::BuildRequest)?;
            let call = async {
                let body = self.client.request_stream(request).await?;
                // Only who has an answer waits for a turn, as one that is late would keep all others waiting.
                let _turn = self.pages.acquire().await.ok();
                let mut text = Vec::new();
                body.take(LONGEST + 1).read_to_end(&mut text).await.map_err(Error::ReadEvents)?;
                let fits = text.len() as u64 <= LONGEST;
                fits.then(|| serde_json::from_slice(&text)).transpose().map_err(Error::SerdeError)
            };
            if let Some(page) = in_time(call).await? {
                return Ok(page);
            }
        }
        Err(too_long().into())
    }

    /// The events since a version, until the connection ends.
    pub(super) async fn events(
        &self,
        requests: &Request,
        version: &str,
    ) -> Result<impl Stream<Item = kube::Result<WatchEvent<Sent>>> + use<>, HubError> {
        let mut request = requests.watch(&WatchParams::default(), version).map_err(Error::BuildRequest)?;
        // API servers compress each event for itself, and the client reads the first one only.
        let identity = http::HeaderValue::from_static("identity");
        request.headers_mut().insert(http::header::ACCEPT_ENCODING, identity);
        let body = in_time(self.client.request_stream(request)).await?;
        Ok(stream::try_unfold(Box::pin(body), async |mut body| {
            let line = line(&mut body).await?;
            line.map(|line| Ok((event(&line)?, body))).transpose()
        }))
    }
}

/// The next line. A connection that breaks ends like any other: the next watch tells why it does not work.
async fn line(body: &mut (impl AsyncBufRead + Unpin)) -> kube::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = body.take(LONGEST).read_until(b'\n', &mut line).await;
    if line.ends_with(b"\n") {
        Ok(Some(line))
    } else if read.is_ok_and(|read| read as u64 >= LONGEST) {
        Err(too_long())
    } else {
        Ok(None)
    }
}

/// An event has to say its type before its object, as every API server does.
fn event(line: &[u8]) -> kube::Result<WatchEvent<Sent>> {
    serde_json::from_slice(line).map_err(|error| match serde_json::from_slice::<Status>(line) {
        Ok(status) if status.code != 0 => Error::Api(status.boxed()),
        _ => Error::SerdeError(error),
    })
}

fn too_long() -> Error {
    let message = format!("the API server sends more than {} MiB for one object", LONGEST >> 20);
    Error::Service(message.into())
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn object(name: &str, bytes: usize) -> Value {
        json!({"metadata": {"name": name, "resourceVersion": "7"}, "data": {"x": "x".repeat(bytes)}})
    }

    /// A hub that answers with what this says to a query.
    fn hub(answer: impl Fn(&str) -> String + Clone + Send + 'static) -> (Hub, Request) {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let answer = answer(request.uri().query().unwrap_or_default());
            async move { Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(answer.into_bytes()))) }
        });
        let requests = Request::new("/api/v1/namespaces/fleet/configmaps");
        (Hub::new(Client::new(service, "default")), requests)
    }

    fn names(page: &Page) -> Vec<&str> {
        page.items.iter().flatten().map(|sent| sent.name.as_str()).collect()
    }

    #[tokio::test]
    async fn objects_that_are_too_long_together_are_read_one_at_a_time() {
        let (hub, requests) = hub(|query| {
            let long = if query.contains("limit=8") { 3 << 20 } else { 1 };
            let items = if query.contains("limit=8") { 8 } else { 1 };
            let items: Vec<Value> = (0..items).map(|n| object(&format!("a{n}"), long)).collect();
            json!({"metadata": {"continue": "more"}, "items": items}).to_string()
        });
        let page = hub.page(&requests, None).await.unwrap();
        assert_eq!((names(&page), page.metadata.continue_.as_deref()), (vec!["a0"], Some("more")));
    }

    #[tokio::test]
    async fn a_page_goes_on_at_its_token_and_an_empty_one_is_good() {
        let (hub, requests) = hub(|query| {
            let items = query.contains("continue=more").then(|| [object("a", 1), object("b", 400_000)]);
            json!({"metadata": {"resourceVersion": "9"}, "items": items}).to_string()
        });
        assert!(names(&hub.page(&requests, None).await.unwrap()).is_empty());
        assert_eq!(names(&hub.page(&requests, Some("more")).await.unwrap()), ["a", "b"]);
    }

    #[tokio::test]
    async fn one_object_that_is_too_long_is_an_error() {
        let (hub, requests) = hub(|_| "x".repeat(17 << 20));
        let error = hub.page(&requests, None).await.err().unwrap().to_string();
        assert!(error.contains("sends more than 16 MiB for one object"), "{error}");
    }

    #[tokio::test]
    async fn events_are_read_line_by_line_and_no_longer_than_one_may_be() {
        let event = |kind: &str, object: Value| format!(r#"{{"type":"{kind}","object":{object}}}"#) + "\n";
        let status = json!({"status": "Failure", "message": "too old", "reason": "Expired", "code": 410});
        let lines = [
            event("ADDED", object("a", 1)),
            event("MODIFIED", object("b", 2 << 20)),
            event("DELETED", object("a", 1)),
            event(
                "BOOKMARK",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "8"}}),
            ),
            event("ERROR", status.clone()),
        ];
        let seen = async |text: String| -> Vec<String> {
            let (hub, requests) = hub(move |_| text.clone());
            let events = hub.events(&requests, "7").await.unwrap();
            let seen = events.map(|event| match event {
                Ok(WatchEvent::Added(sent)) => format!("added {}", sent.name),
                Ok(WatchEvent::Modified(sent)) => format!("modified {}", sent.name),
                Ok(WatchEvent::Deleted(sent)) => format!("deleted {}", sent.name),
                Ok(WatchEvent::Bookmark(it)) => format!("bookmark {}", it.metadata.resource_version),
                Ok(WatchEvent::Error(status)) => format!("error {}", status.code),
                Err(Error::Api(status)) => format!("refused {}", status.code),
                Err(error) => error.to_string(),
            });
            seen.collect().await
        };
        let all = ["added a", "modified b", "deleted a", "bookmark 8", "error 410"];
        assert_eq!(seen(lines.concat()).await, all);
        // It breaks in the middle of a line.
        assert_eq!(seen(lines.concat() + &lines[0][..20]).await, all);
        assert_eq!(seen(status.to_string() + "\n").await, ["refused 410"]);
        let other = seen("{}\n".to_owned()).await;
        assert!(other.len() == 1 && other[0].contains("missing field"), "{other:?}");
        let long = seen(lines[0].clone() + &"x".repeat(17 << 20)).await;
        assert!(long.len() == 2 && long[1].contains("sends more than 16 MiB"), "{long:?}");
    }
}
