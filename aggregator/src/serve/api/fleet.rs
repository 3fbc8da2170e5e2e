//! `/v1alpha1/fleet`, and `/v1alpha1/fleet/changes` as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{self, Stream};
use http::{HeaderValue, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use serde_json::json;
use statusbridge_serving::authorize::Guard;

use super::failure::Failure;
use super::params::Params;
use super::pictures::{Follower, Shown};
use super::{Api, Body};

/// Time between two signs of life, at most: longer than between two pictures, so that there are none while something
/// changes.
const PULSE: Duration = Duration::from_secs(2);
/// How long nobody is asked again whether who reads may go on reading.
const ADMITTED: Duration = Duration::from_secs(30);

/// Everything that the page shows. The reader's place is taken until all of it is sent.
pub(super) async fn all<B>(
    api: &Arc<Api>,
    guard: Option<&Arc<Guard>>,
    request: &Request<B>,
    params: &Params,
) -> Result<Response<Body>, Failure> {
    let shown = api.picture(guard, request, params.get("namespace")).await?;
    let sent = shown.send(None, api.silent());
    let (_, body) = sent.ok_or_else(|| Failure::silent("the fleet cannot be put into JSON"))?;
    Ok(super::sent(body, api.place(request)?))
}

struct Reader {
    api: Arc<Api>,
    guard: Option<Arc<Guard>>,
    request: Request<()>,
    namespace: Option<String>,
    follower: Follower,
    shown: Arc<Shown>,
    /// None once it was told that there is nothing to go on with.
    cursor: Option<String>,
    admitted: Instant,
    is_first: bool,
}

/// What changes after the picture to which `cursor` belongs.
pub(super) async fn changes(
    api: &Arc<Api>,
    guard: Option<&Arc<Guard>>,
    request: Request<Incoming>,
    params: &Params,
) -> Result<Response<Body>, Failure> {
    let namespace = params.get("namespace").map(str::to_owned);
    let cursor = params.need("cursor")?.to_owned();
    let request = request.map(drop);
    let shown = api.picture(guard, &request, namespace.as_deref()).await?;
    let reader = Reader {
        api: api.clone(),
        guard: guard.cloned(),
        request,
        namespace,
        follower: shown.follow(),
        shown,
        cursor: Some(cursor),
        admitted: Instant::now(),
        is_first: true,
    };
    let mut response = Response::new(StreamBody::new(reader.events()).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies would wait until there is more.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

impl Reader {
    /// One event after the other, each made when the one before was taken: who reads slowly gets more at once.
    fn events(self) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
        stream::unfold(self, |mut reader| async move {
            let event = reader.next().await?;
            Some((Ok(Frame::data(Bytes::from(event))), reader))
        })
    }

    async fn next(&mut self) -> Option<Vec<u8>> {
        let cursor = self.cursor.take()?;
        if !std::mem::take(&mut self.is_first) {
            self.follower.changed(PULSE).await;
        }
        if self.admitted.elapsed() > ADMITTED {
            let admitted =
                self.api.admit(self.guard.as_ref(), &self.request, self.namespace.as_deref()).await;
            admitted.ok()?;
            self.admitted = Instant::now();
        }
        self.shown.is_seen();
        Some(match self.shown.send(Some(&cursor), self.api.silent()) {
            Some((cursor, body)) => {
                self.cursor = Some(cursor);
                [b"event: changes\ndata: ", body.as_ref(), b"\n\n"].concat()
            }
            None => {
                let message = json!({"message": "the cursor is not known here: read the fleet anew"});
                format!("event: reset\ndata: {message}\n\n").into_bytes()
            }
        })
    }
}
